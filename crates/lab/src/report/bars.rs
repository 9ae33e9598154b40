//! Bars with their names above them and their figures next to them: readable in a narrow column.

use kuva::render::render::{Primitive, Scene, TextAnchor};
use kuva::render::theme::Theme;

use super::table::number;

/// Narrow enough for a telephone, where the letters are still readable.
pub(super) const WIDTH: f64 = 480.0;

/// Bars of our own systems and of the others: far apart in hue and in lightness, on white and on
/// black.
const OURS: &str = "#0072b2";
const THEIRS: &str = "#e69f00";

/// Sizes of letters: of the title, of names and figures.
const TITLE_SIZE: u32 = 14;
const SIZE: u32 = 12;
/// From one line of text to the next.
const LINE: f64 = 16.0;
/// Around everything.
const EDGE: f64 = 8.0;
/// Letters of the widest usual font that a line has room for.
const TITLE_LETTERS: usize = 50;
const LETTERS: usize = 60;
const BAR_HEIGHT: f64 = 10.0;
/// Below a bar.
const GAP: f64 = 9.0;
/// Right of the longest bar, for its figure.
const FIGURE_WIDTH: f64 = 76.0;
/// Of the piece of a curve's line next to its name, and letters of the name in a line.
const KEY_WIDTH: f64 = 28.0;
const KEY_LETTERS: usize = 55;
/// Half of the line at the end of a whisker.
const CAP: f64 = 3.0;

/// A target's bar.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    /// The target.
    pub(super) name: String,
    /// How long it is.
    pub(super) mean: f64,
    /// Where its whisker begins and ends.
    pub(super) whisker: (f64, f64),
}

impl Bar {
    /// Is it one of ours?
    fn is_ours(&self) -> bool {
        self.name.starts_with("engine") || self.name.starts_with("extant")
    }
}

/// Draws bars below each other, the first on top.
pub(super) fn scene(title: &str, axis: &str, bars: &[Bar], theme: &Theme) -> Scene {
    let mut scene = Scene::new(WIDTH, 0.0);
    scene.background_color = Some(theme.background.clone());
    scene.text_color = Some(theme.text_color.clone());
    let mut y = EDGE;
    for (text, letters, size) in [(title, TITLE_LETTERS, TITLE_SIZE), (axis, LETTERS, SIZE)] {
        for line in lines(text, letters) {
            y += LINE;
            scene.add(text_at(EDGE, y, line, size, size == TITLE_SIZE));
        }
    }
    y += GAP;
    let top = y;
    let longest = bars.iter().map(|bar| bar.mean.max(bar.whisker.1)).fold(0.0, f64::max);
    let length = |value: f64| match longest > 0.0 {
        true => (WIDTH - 2.0 * EDGE - FIGURE_WIDTH) * value / longest,
        false => 0.0,
    };
    for bar in bars {
        for line in lines(&bar.name, LETTERS) {
            y += LINE;
            scene.add(text_at(EDGE + 4.0, y - 4.0, line, SIZE, false));
        }
        let ours = if bar.is_ours() { OURS } else { THEIRS };
        scene.add(Primitive::Rect {
            x: EDGE,
            y,
            width: length(bar.mean),
            height: BAR_HEIGHT,
            fill: ours.into(),
            stroke: None,
            stroke_width: None,
            opacity: None,
        });
        let middle = y + BAR_HEIGHT / 2.0;
        let (low, high) = (EDGE + length(bar.whisker.0), EDGE + length(bar.whisker.1));
        if low < high {
            let ink = theme.axis_color.as_str();
            scene.add(stroke((low, middle), (high, middle), ink));
            for end in [low, high] {
                scene.add(stroke((end, middle - CAP), (end, middle + CAP), ink));
            }
        }
        let end = high.max(EDGE + length(bar.mean));
        let figure = number(bar.mean);
        scene.add(text_at(end + 6.0, middle + 4.0, figure, SIZE, false));
        y += BAR_HEIGHT + GAP;
    }
    scene.add(stroke((EDGE, top), (EDGE, y - GAP / 2.0), &theme.axis_color));
    scene.height = y;
    scene
}

/// Adds the name of a curve below a figure, behind a piece of its line.
pub(super) fn add_key(scene: &mut Scene, name: &str, colour: &str, dashes: Option<&str>) {
    let mut x = EDGE + KEY_WIDTH + EDGE;
    for (number, line) in lines(name, KEY_LETTERS).into_iter().enumerate() {
        let middle = scene.height + LINE / 2.0;
        if number == 0 {
            scene.add(Primitive::Line {
                x1: EDGE,
                y1: middle,
                x2: EDGE + KEY_WIDTH,
                y2: middle,
                stroke: colour.into(),
                stroke_width: 3.0,
                stroke_dasharray: dashes.map(str::to_owned),
            });
        }
        scene.add(text_at(x, middle + 4.0, line, SIZE, false));
        scene.height += LINE;
        x = EDGE + KEY_WIDTH + 2.0 * EDGE;
    }
    scene.height += 2.0;
}

fn text_at(x: f64, y: f64, content: String, size: u32, bold: bool) -> Primitive {
    let anchor = TextAnchor::Start;
    Primitive::Text { x, y, content, size, anchor, rotate: None, bold, color: None }
}

fn stroke(from: (f64, f64), to: (f64, f64), ink: &str) -> Primitive {
    Primitive::Line {
        x1: from.0,
        y1: from.1,
        x2: to.0,
        y2: to.1,
        stroke: ink.into(),
        stroke_width: 1.0,
        stroke_dasharray: None,
    }
}

/// A text in lines of so many letters, broken behind the marks that separate options.
fn lines(text: &str, letters: usize) -> Vec<String> {
    let mut all = Vec::new();
    let mut rest: Vec<char> = text.chars().collect();
    while rest.len() > letters {
        let is_mark = |letter: &char| [',', ':', ' '].contains(letter);
        let at = rest[..letters].iter().rposition(is_mark).map_or(letters, |at| at + 1);
        let tail = rest.split_off(at);
        all.push(rest.iter().collect::<String>().trim_end().to_owned());
        rest = tail;
    }
    all.push(rest.into_iter().collect());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_broken_and_whole() {
        let name = "engine:data=writeback,nodelalloc,nomballoc,journal_checksum:-t ext4 -O flex_bg";
        let found = lines(name, LETTERS);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|line| line.chars().count() <= LETTERS));
        assert_eq!(found.concat(), name);
        assert_eq!(lines("engine", LETTERS), ["engine"]);
        assert_eq!(lines(&"x".repeat(70), LETTERS).len(), 2);
    }

    #[test]
    fn a_bar_of_nothing_has_no_length() {
        let bar = Bar { name: "engine".into(), mean: 0.0, whisker: (0.0, 0.0) };
        let scene = scene("rm", "seconds", &[bar], &Theme::light());
        let mut widths = scene.elements.iter().filter_map(|element| match element {
            Primitive::Rect { width, .. } => Some(*width),
            _ => None,
        });
        assert_eq!(widths.next(), Some(0.0));
    }
}
