//! The figures as a picture.

use kuva::backend::svg::SvgBackend;
use kuva::render::color::Color;
use kuva::render::render::{Primitive, Scene, TextAnchor};

use crate::output::human_size;
use extant::inspect::{BlockUse, CLASSES, Counts, KINDS, VolumeMap};

const WIDTH: f64 = 1240.0;
const MARGIN: f64 = 40.0;
/// Where the cells begin: right of the rows' labels.
const LEFT: f64 = 120.0;
const COLUMNS: usize = 128;
const CELL_WIDTH: f64 = (WIDTH - LEFT - MARGIN) / COLUMNS as f64;
const CELL_HEIGHT: f64 = 10.0;
const TOP: f64 = 112.0;
const CHART_HEIGHT: f64 = 150.0;
const INK: &str = "#222222";
const PALE: &str = "#666666";

/// The picture of a volume that is called `name`.
pub(super) fn draw(figures: &VolumeMap, name: &str) -> Scene {
    let rows = figures.cells.len().div_ceil(COLUMNS).max(1);
    let legend_top = TOP + rows as f64 * CELL_HEIGHT + 46.0;
    let legend_rows = KINDS.len().div_ceil(3) as f64;
    let charts_top = legend_top + legend_rows * 22.0 + 50.0;
    let height = charts_top + CHART_HEIGHT + 60.0;
    let mut picture = Picture { scene: Scene::new(WIDTH, height) };
    picture.title(figures, name);
    picture.cells(figures);
    picture.legend(figures, legend_top);
    let unit = u64::from(figures.block_size);
    let half = (WIDTH - 3.0 * MARGIN) / 2.0;
    picture.chart(
        "Free space by the length of its runs",
        "blocks in a run",
        &figures.free_by_run,
        (MARGIN, charts_top, half),
        &|blocks| human_size(blocks.saturating_mul(unit)),
    );
    picture.chart(
        "Files by the number of their pieces",
        "pieces of a file",
        &figures.files_by_pieces,
        (2.0 * MARGIN + half, charts_top, half),
        &|files| files.to_string(),
    );
    picture.scene
}

/// The picture as SVG.
pub(super) fn svg(scene: &Scene) -> String {
    SvgBackend::new().render_scene(scene)
}

struct Picture {
    scene: Scene,
}

impl Picture {
    fn text(
        &mut self,
        at: (f64, f64),
        content: String,
        size: u32,
        anchor: TextAnchor,
        color: &str,
    ) {
        self.scene.add(Primitive::Text {
            x: at.0,
            y: at.1,
            content,
            size,
            anchor,
            rotate: None,
            bold: size > 16,
            color: Some(Color::from(color)),
        });
    }

    fn rect(&mut self, at: (f64, f64), size: (f64, f64), fill: &str, stroke: Option<&str>) {
        self.scene.add(Primitive::Rect {
            x: at.0,
            y: at.1,
            width: size.0,
            height: size.1,
            fill: Color::from(fill),
            stroke: stroke.map(Color::from),
            stroke_width: stroke.map(|_| 1.0),
            opacity: None,
        });
    }

    fn title(&mut self, figures: &VolumeMap, name: &str) {
        let bytes = |blocks: u64| human_size(blocks.saturating_mul(figures.block_size.into()));
        let title = format!("What lies where in {name}");
        self.text((MARGIN, 40.0), title, 22, TextAnchor::Start, INK);
        let groups = match figures.groups {
            1 => "1 block group".to_owned(),
            groups => {
                format!("{groups} block groups of {}", bytes(figures.blocks_per_group.into()))
            }
        };
        let free = figures.totals[BlockUse::Free as usize];
        let facts = format!(
            "{} in {} blocks of {} bytes, {groups}; {} free in {} runs, the longest {}",
            bytes(figures.blocks),
            figures.blocks,
            figures.block_size,
            bytes(free),
            figures.free_runs,
            bytes(figures.longest_free_run),
        );
        self.text((MARGIN, 64.0), facts, 14, TextAnchor::Start, INK);
        let plural = if figures.blocks_per_cell == 1 { "block" } else { "blocks" };
        let reading = format!(
            "A cell is {} {plural} ({}), rows run left to right; a cell of several kinds is divided by their shares. \
             Dark ticks: a block group begins. Left: the row's first block.",
            figures.blocks_per_cell,
            bytes(figures.blocks_per_cell)
        );
        self.text((MARGIN, 86.0), reading, 13, TextAnchor::Start, PALE);
    }

    fn cells(&mut self, figures: &VolumeMap) {
        for (row, cells) in figures.cells.chunks(COLUMNS).enumerate() {
            let y = TOP + row as f64 * CELL_HEIGHT;
            if row % 4 == 0 {
                let first = row as u64 * COLUMNS as u64 * figures.blocks_per_cell;
                let at = (LEFT - 10.0, y + CELL_HEIGHT - 1.0);
                self.text(at, first.to_string(), 11, TextAnchor::End, PALE);
            }
            let mut column = 0;
            while column < cells.len() {
                // Cells of one kind alone are drawn together.
                let alone = only_kind(&cells[column]);
                let same = match alone {
                    Some(_) => {
                        cells[column..].iter().take_while(|cell| only_kind(cell) == alone).count()
                    }
                    None => 1,
                };
                let x = LEFT + column as f64 * CELL_WIDTH;
                match alone {
                    Some(kind) => {
                        self.rect(
                            (x, y),
                            (same as f64 * CELL_WIDTH, CELL_HEIGHT - 1.0),
                            KINDS[kind].2,
                            None,
                        );
                    }
                    None => self.divided(&cells[column], x, y),
                }
                column += same;
            }
        }
        self.ticks(figures);
    }

    /// A cell from the bottom up: what is in use, then what is free.
    fn divided(&mut self, counts: &Counts, x: f64, y: f64) {
        let total: u64 = counts.iter().sum();
        let height = CELL_HEIGHT - 1.0;
        let mut bottom = y + height;
        for (kind, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let part = height * count as f64 / total as f64;
            bottom -= part;
            self.rect((x, bottom), (CELL_WIDTH, part), KINDS[kind].2, None);
        }
    }

    /// Where groups begin, unless there are too many to tell apart.
    fn ticks(&mut self, figures: &VolumeMap) {
        if u64::from(figures.blocks_per_group) < 4 * figures.blocks_per_cell {
            return;
        }
        for group in 0..figures.groups {
            let block = u64::from(group) * u64::from(figures.blocks_per_group);
            let cell = block as f64 / figures.blocks_per_cell as f64;
            let row = (cell / COLUMNS as f64).floor();
            let x = LEFT + (cell - row * COLUMNS as f64) * CELL_WIDTH;
            let y = TOP + row * CELL_HEIGHT;
            self.rect((x - 0.75, y - 1.0), (1.5, CELL_HEIGHT + 1.0), "#000000", None);
        }
    }

    fn legend(&mut self, figures: &VolumeMap, top: f64) {
        let total: u64 = figures.totals.iter().sum();
        for (at, (kind, name, color)) in KINDS.into_iter().enumerate() {
            let column = (WIDTH - 2.0 * MARGIN) / 3.0;
            let x = MARGIN + (at % 3) as f64 * column;
            let y = top + (at / 3) as f64 * 22.0;
            self.rect((x, y - 11.0), (16.0, 13.0), color, Some("#888888"));
            let blocks = figures.totals[kind as usize];
            let share = blocks as f64 * 100.0 / total.max(1) as f64;
            let size = human_size(blocks.saturating_mul(figures.block_size.into()));
            let text = format!("{name}: {size} ({share:.1}%)");
            self.text((x + 24.0, y), text, 14, TextAnchor::Start, INK);
        }
    }

    fn chart(
        &mut self,
        title: &str,
        unit: &str,
        values: &[u64; CLASSES],
        (left, top, width): (f64, f64, f64),
        label: &dyn Fn(u64) -> String,
    ) {
        self.text((left, top - 12.0), title.to_owned(), 15, TextAnchor::Start, INK);
        let used = values.iter().rposition(|&value| value > 0).map_or(1, |last| last + 1);
        let most = values.iter().max().copied().unwrap_or(0).max(1);
        let step = (width / used as f64).min(90.0);
        let room = CHART_HEIGHT - 46.0;
        let floor = top + CHART_HEIGHT - 24.0;
        // Every second label where bars stand close.
        let every = if step < 46.0 { 2 } else { 1 };
        for (at, &value) in values[..used].iter().enumerate() {
            let x = left + at as f64 * step;
            let height = room * value as f64 / most as f64;
            if value > 0 {
                let bar = height.max(1.0);
                self.rect((x + 2.0, floor - bar), (step - 4.0, bar), "#5b84c4", None);
                let place = (x + step / 2.0, floor - bar - 4.0);
                let size = if step < 46.0 { 9 } else { 11 };
                self.text(place, label(value), size, TextAnchor::Middle, INK);
            }
            if at % every == 0 {
                let place = (x + step / 2.0, floor + 15.0);
                self.text(place, class_name(at), 10, TextAnchor::Middle, PALE);
            }
        }
        self.rect((left, floor), (step * used as f64, 1.0), PALE, None);
        self.text((left, floor + 32.0), unit.to_owned(), 12, TextAnchor::Start, PALE);
    }
}

/// The kind that has a cell for itself.
fn only_kind(counts: &Counts) -> Option<usize> {
    let mut kinds = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let (kind, _) = kinds.next()?;
    kinds.next().is_none().then_some(kind)
}

/// `1`, `2`, `3-4`, `to 64`, `to 1K`: the largest number of a class.
fn class_name(class: usize) -> String {
    let largest = 1_u64 << class;
    match class {
        0 | 1 => largest.to_string(),
        2 | 3 => format!("{}-{largest}", largest / 2 + 1),
        _ if largest < 1024 => format!("to {largest}"),
        _ => format!("to {}", human_size(largest).replace(".0", "")),
    }
}
