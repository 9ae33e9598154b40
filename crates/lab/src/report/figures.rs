//! Figures: bars with intervals, and curves; light and dark, with colours that the colour-blind can
//! distinguish.

use kuva::backend::png::PngBackend;
use kuva::backend::svg::SvgBackend;
use kuva::plot::legend::LegendPosition;
use kuva::plot::{BarPlot, LinePlot};
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;
use kuva::render::render::{Scene, render_multiple};
use kuva::render::theme::Theme;

/// Okabe and Ito's colours without yellow, which vanishes on white, and black, which is the axes'
/// colour.
const COLOURS: [&str; 6] = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9"];
/// Wide enough for the names of targets.
const WIDTH: f64 = 1100.0;
const CURVES_HEIGHT: f64 = 420.0;
/// Of one bar, and of what is around all of them.
const BAR_HEIGHT: f64 = 26.0;
const AROUND_BARS: f64 = 110.0;
/// Room for the last number of an axis.
const MARGIN: f64 = 40.0;
/// Bars of our own systems and of the others: far apart in hue and in lightness, on white and on
/// black.
const OURS: &str = "#0072b2";
const THEIRS: &str = "#e69f00";
/// Pixels of a PNG for each of the picture's.
const PNG_SCALE: f32 = 2.0;
/// Names that are longer are broken off in the middle.
const LONGEST: usize = 86;

/// A line's name and its points.
pub(super) type Line = (String, Vec<(f64, f64)>);

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

/// A figure before it is drawn.
#[derive(Clone, Debug)]
pub(super) enum Figure {
    /// A bar for each target, with its interval.
    Bars {
        /// Its caption.
        title: String,
        /// The axis, with its unit.
        axis: String,
        /// One for each target.
        bars: Vec<Bar>,
    },
    /// A line for each name.
    Curves {
        /// Its caption.
        title: String,
        /// The axes, with their units.
        axes: [String; 2],
        /// One next to the other.
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
    /// Its caption.
    pub(super) fn title(&self) -> &str {
        match self {
            Self::Bars { title, .. } | Self::Curves { title, .. } => title,
        }
    }

    /// Its identity among the others: its title and its unit.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Bars { title, axis, .. } => {
                format!("{title} {}", axis.split(';').next().unwrap_or_default())
            }
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
                // The first is on top.
                let turned = || bars.iter().rev();
                let ink = theme.axis_color.clone();
                let colour = |bar: &Bar| if bar.is_ours() { OURS } else { THEIRS };
                let plot = BarPlot::new()
                    .with_colored_bars(
                        turned().map(|bar| (short(&bar.name), bar.mean, colour(bar))),
                    )
                    .with_horizontal(true);
                let has_whiskers = bars.iter().any(|bar| bar.whisker.0 < bar.whisker.1);
                let reach = |bar: &Bar| (bar.mean - bar.whisker.0, bar.whisker.1 - bar.mean);
                let plot = match has_whiskers {
                    true => plot
                        .with_asymmetric_error(turned().map(reach))
                        .with_error_color(ink)
                        .with_error_cap_width(0.4),
                    false => plot,
                };
                let plots: Vec<Plot> = vec![plot.into()];
                let height = AROUND_BARS + BAR_HEIGHT * bars.len() as f64;
                let mut layout = Layout::auto_from_plots(&plots)
                    .with_width(WIDTH)
                    .with_height(height)
                    .with_title(title)
                    .with_x_label(axis)
                    .with_theme(theme);
                layout.force_margin_right = Some(MARGIN);
                render_multiple(plots, layout)
            }
            Self::Curves { title, axes, lines } => {
                let ink = theme.axis_color.as_str();
                let colours: Vec<&str> = COLOURS.into_iter().chain([ink]).collect();
                let line = |(number, line): (usize, &Line)| {
                    let (name, points) = line;
                    let plot = LinePlot::new()
                        .with_data(points.iter().copied())
                        .with_color(colours[number % colours.len()])
                        .with_stroke_width(2.0)
                        .with_legend(short(name));
                    // Beyond the colours, the line style distinguishes them.
                    match number / colours.len() {
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

/// A name that fits next to a figure.
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
            bars: vec![
                Bar { name: "engine".into(), mean: 1.0, whisker: (0.9, 1.2) },
                Bar { name: "ext4".into(), mean: 2.0, whisker: (2.0, 2.0) },
            ],
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
