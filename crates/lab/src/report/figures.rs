//! Figures: bars with intervals, and curves; light and dark, with colours that the colour-blind can
//! distinguish.

use kuva::backend::png::PngBackend;
use kuva::backend::svg::SvgBackend;
use kuva::plot::LinePlot;
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;
use kuva::render::render::{Scene, render_multiple};
use kuva::render::theme::Theme;

use super::bars::{self, Bar, WIDTH};
use super::table::number;

/// Okabe and Ito's colours without yellow, which vanishes on white, and black, which is the axes'
/// colour.
const COLOURS: [&str; 6] = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9"];
/// Without the names of the curves, which are below them.
const CURVES_HEIGHT: f64 = 300.0;
/// Pixels of a PNG for each of the picture's.
const PNG_SCALE: f32 = 2.0;
/// Letters of a line of a title.
const TITLE_LETTERS: usize = 40;
/// Room for the last number of an axis.
const MARGIN: f64 = 30.0;

/// A line's name and its points.
pub(super) type Line = (String, Vec<(f64, f64)>);

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
    /// In pixels of the page.
    pub(super) width: u32,
    pub(super) height: u32,
}

impl Figure {
    /// It in words, for those who do not see it.
    pub(super) fn alt(&self) -> String {
        match self {
            Self::Bars { title, axis, bars } => {
                let by_mean = |one: &&Bar, other: &&Bar| one.mean.total_cmp(&other.mean);
                let figure = |bar: &Bar| format!("{} of {}", number(bar.mean), bar.name);
                let ends = [bars.iter().min_by(by_mean), bars.iter().max_by(by_mean)];
                let ends = match (ends, bars.len()) {
                    ([Some(least), Some(most)], 2..) => {
                        format!("from {} to {}", figure(least), figure(most))
                    }
                    ([Some(one), _], _) => figure(one),
                    _ => "none".to_owned(),
                };
                format!("{title}. Bars of {axis}: {ends}")
            }
            Self::Curves { title, axes: [across, up], lines } => {
                let names: Vec<&str> = lines.iter().map(|(name, _)| name.as_str()).collect();
                format!("{title}. Curves of {up} by {across}: {}", names.join("; "))
            }
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
            width: light.width.ceil() as u32,
            height: light.height.ceil() as u32,
        })
    }

    fn scene(&self, theme: Theme) -> Scene {
        match self {
            Self::Bars { title, axis, bars } => bars::scene(title, axis, bars, &theme),
            Self::Curves { title, axes, lines } => {
                let ink = theme.axis_color.clone();
                let colours: Vec<&str> = COLOURS.into_iter().chain([ink.as_str()]).collect();
                // Beyond the colours, the style of the lines distinguishes them.
                let style = |number: usize| match number / colours.len() {
                    0 => (colours[number % colours.len()], None),
                    1 => (colours[number % colours.len()], Some("8,4")),
                    _ => (colours[number % colours.len()], Some("2,3")),
                };
                let line = |(number, (_, points)): (usize, &Line)| {
                    let (colour, dashes) = style(number);
                    let plot = LinePlot::new()
                        .with_data(points.iter().copied())
                        .with_color(colour)
                        .with_stroke_width(2.0);
                    match dashes {
                        None => plot.into(),
                        Some(_) if number / colours.len() == 1 => plot.with_dashed().into(),
                        Some(_) => plot.with_dotted().into(),
                    }
                };
                let plots: Vec<Plot> = lines.iter().enumerate().map(line).collect();
                let mut layout = Layout::auto_from_plots(&plots)
                    .with_width(WIDTH)
                    .with_height(CURVES_HEIGHT)
                    .with_title(title)
                    .with_x_label(&axes[0])
                    .with_y_label(&axes[1])
                    .with_theme(theme);
                layout.force_margin_right = Some(MARGIN);
                layout.title_wrap = Some(TITLE_LETTERS);
                let mut scene = render_multiple(plots, layout);
                for (number, (name, _)) in lines.iter().enumerate() {
                    let (colour, dashes) = style(number);
                    bars::add_key(&mut scene, name, colour, dashes);
                }
                scene
            }
        }
    }
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
            assert!(drawn.light.contains("engine") && drawn.light.contains(&figure.name()[..2]));
            assert_ne!(drawn.light, drawn.dark);
            assert!(drawn.png.starts_with(b"\x89PNG"));
            assert!(drawn.width > 0 && drawn.height > 0);
            assert!(figure.alt().contains("engine"), "{}", figure.alt());
        }
    }
}
