//! Figures: bars with intervals, and curves; light and dark, with colours that the colour-blind can tell apart.

use kuva::backend::png::PngBackend;
use kuva::backend::svg::SvgBackend;
use kuva::plot::legend::LegendPosition;
use kuva::plot::{BarPlot, LinePlot};
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;
use kuva::render::render::{Scene, render_multiple};
use kuva::render::theme::Theme;

/// Okabe and Ito's colours without black and yellow, which vanish on one of the grounds.
const COLOURS: [&str; 6] = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9"];
/// Wide enough for the names of targets.
const WIDTH: f64 = 1100.0;
const CURVES_HEIGHT: f64 = 420.0;
/// Of one bar, and of what is around all of them.
const BAR_HEIGHT: f64 = 26.0;
const AROUND_BARS: f64 = 110.0;
/// Pixels of a PNG for each of the picture's.
const PNG_SCALE: f32 = 2.0;
/// Names that are longer are broken off in the middle.
const LONGEST: usize = 86;

/// A line's name and its points.
pub(super) type Line = (String, Vec<(f64, f64)>);

/// A figure before it is drawn.
#[derive(Clone, Debug)]
pub(super) enum Figure {
    /// A bar for each target, with its interval.
    Bars {
        /// What it shows.
        title: String,
        /// The axis, with its unit.
        axis: String,
        /// Name, mean, half of the interval.
        bars: Vec<(String, f64, f64)>,
    },
    /// A line for each name.
    Curves {
        /// What it shows.
        title: String,
        /// The axes, with their units.
        axes: [String; 2],
        /// One beside the other.
        lines: Vec<Line>,
    },
}

/// A figure in every form.
pub(super) struct Drawn {
    pub(super) light: String,
    pub(super) dark: String,
    pub(super) png: Vec<u8>,
}

impl Figure {
    /// What it shows.
    pub(super) fn title(&self) -> &str {
        match self {
            Self::Bars { title, .. } | Self::Curves { title, .. } => title,
        }
    }

    /// What tells it from the others: its title and what it is measured in.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Bars { title, axis, .. } => format!("{title} {axis}"),
            Self::Curves { title, axes, .. } => format!("{title} {}", axes[1]),
        }
    }

    /// Draws it.
    pub(super) fn draw(&self) -> Result<Drawn, String> {
        let light = self.scene(Theme::light());
        Ok(Drawn {
            png: PngBackend::new().with_scale(PNG_SCALE).render_scene(&light)?,
            light: SvgBackend.render_scene(&light),
            dark: SvgBackend.render_scene(&self.scene(Theme::dark())),
        })
    }

    fn scene(&self, theme: Theme) -> Scene {
        match self {
            Self::Bars { title, axis, bars } => {
                // The first stands on top.
                let turned = || bars.iter().rev();
                let ink = theme.axis_color.clone();
                let plot = BarPlot::new()
                    .with_bars(turned().map(|(name, mean, _)| (short(name), *mean)))
                    .with_color(COLOURS[0])
                    .with_horizontal(true);
                let has_intervals = bars.iter().any(|(_, _, half)| *half > 0.0);
                let plot = match has_intervals {
                    true => {
                        plot.with_error(turned().map(|(_, _, half)| *half)).with_error_color(ink)
                    }
                    false => plot,
                };
                let plots: Vec<Plot> = vec![plot.into()];
                let height = AROUND_BARS + BAR_HEIGHT * bars.len() as f64;
                let layout = Layout::auto_from_plots(&plots)
                    .with_width(WIDTH)
                    .with_height(height)
                    .with_title(title)
                    .with_x_label(axis)
                    .with_theme(theme);
                render_multiple(plots, layout)
            }
            Self::Curves { title, axes, lines } => {
                let line = |(number, line): (usize, &Line)| {
                    let (name, points) = line;
                    let plot = LinePlot::new()
                        .with_data(points.iter().copied())
                        .with_color(COLOURS[number % COLOURS.len()])
                        .with_stroke_width(2.0)
                        .with_legend(short(name));
                    // Beyond the colours, the line tells them apart.
                    match number / COLOURS.len() {
                        0 => plot.into(),
                        1 => plot.with_dashed().into(),
                        _ => plot.with_dotted().into(),
                    }
                };
                let plots: Vec<Plot> = lines.iter().enumerate().map(line).collect();
                let layout = Layout::auto_from_plots(&plots)
                    .with_width(WIDTH)
                    .with_height(CURVES_HEIGHT)
                    .with_title(title)
                    .with_x_label(&axes[0])
                    .with_y_label(&axes[1])
                    .with_legend_position(LegendPosition::OutsideRightTop)
                    .with_theme(theme);
                render_multiple(plots, layout)
            }
        }
    }
}

/// A name that fits beside a figure.
fn short(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= LONGEST {
        return name.to_owned();
    }
    let half = LONGEST / 2;
    let (head, tail) = (&letters[..half], &letters[letters.len() - half..]);
    head.iter().chain(&['…']).chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_in_every_form() {
        let bars = Figure::Bars {
            title: "rm".into(),
            axis: "seconds".into(),
            bars: vec![("engine".into(), 1.0, 0.1), ("ext4".into(), 2.0, 0.0)],
        };
        let curves = Figure::Curves {
            title: "removed".into(),
            axes: ["seconds".into(), "files".into()],
            lines: vec![("engine".into(), vec![(0.0, 0.0), (1.0, 5.0)])],
        };
        for figure in [bars, curves] {
            let drawn = figure.draw().expect("a picture");
            assert!(drawn.light.contains("engine") && drawn.light.contains(figure.title()));
            assert_ne!(drawn.light, drawn.dark);
            assert!(drawn.png.starts_with(b"\x89PNG"));
        }
    }

    #[test]
    fn long_names_keep_both_ends() {
        let name = "engine:data=writeback,nodelalloc,nomballoc,journal_checksum,commit=30:-t ext4 -I 256 -b 4096 -O flex_bg";
        let found = short(name);
        assert_eq!(found.chars().count(), LONGEST + 1);
        assert!(found.starts_with("engine:data") && found.ends_with("-O flex_bg"));
    }
}
