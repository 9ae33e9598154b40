//! The report: one page that needs nothing else, the figures beside it, and all samples as CSV.

mod beside;
mod figures;
mod own;
mod summary;
mod table;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use askama::Template;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::experiment::Experiment;
use crate::results::Results;
use crate::run::{Manifest, RunError};
use figures::Figure;
pub use summary::summary;
use table::{Table, published};

/// The page's name.
pub const PAGE: &str = "report.html";
/// The samples' name.
pub const CSV: &str = "samples.csv";
/// Where the figures are.
pub const FIGURES: &str = "figures";

/// The page.
#[derive(Template)]
#[template(path = "report.html")]
struct Page<'r> {
    manifest: &'r Manifest,
    command: String,
    overhead: String,
    memory: u64,
    /// Whether something was measured on a simulated drive.
    is_simulated: bool,
    sections: Vec<Section<'r>>,
}

/// An experiment on the page.
struct Section<'r> {
    experiment: &'r Experiment,
    work: String,
    skipped: Vec<(&'r str, &'r str)>,
    tables: Vec<Table>,
    pictures: Vec<Picture>,
}

/// A figure in the page: light and dark, in base64.
struct Picture {
    title: String,
    light: String,
    dark: String,
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> RunError + '_ {
    move |source| RunError::Io { what: path.display().to_string(), source }
}

/// Writes the report of a directory of results into it; the page.
///
/// # Errors
/// It holds no results, or cannot be written to.
pub fn write(dir: &Path) -> Result<PathBuf, RunError> {
    let results = Results::read(dir)?;
    let pictures = dir.join(FIGURES);
    fs::create_dir_all(&pictures).map_err(failed(&pictures))?;
    let mut sections = Vec::new();
    for experiment in &results.manifest.experiments {
        let (mut tables, figures) = own::of(&results, experiment);
        for table in published().into_iter().filter(|table| table.experiment == experiment.name) {
            tables.push(beside::beside(&results, experiment, &table).unwrap_or(table));
        }
        let drawn: Result<Vec<Picture>, RunError> =
            figures.iter().map(|figure| keep(&pictures, figure)).collect();
        sections.push(Section {
            experiment,
            work: toml::to_string(experiment).unwrap_or_default(),
            skipped: results.skipped(&experiment.name),
            tables,
            pictures: drawn?,
        });
    }
    let page = Page {
        command: results.manifest.command.join(" "),
        overhead: format!("{:.0}", results.manifest.overhead_seconds * 1e6),
        memory: results.manifest.environment.memory >> 20,
        is_simulated: results.samples.iter().any(|sample| sample.target.starts_with("engine@")),
        manifest: &results.manifest,
        sections,
    };
    let path = dir.join(PAGE);
    let text = page.render().map_err(|error| failed(&path)(io::Error::other(error)))?;
    fs::write(&path, text).map_err(failed(&path))?;
    let csv = dir.join(CSV);
    fs::write(&csv, as_csv(&results)).map_err(failed(&csv))?;
    Ok(path)
}

/// Draws a figure into the directory.
fn keep(dir: &Path, figure: &Figure) -> Result<Picture, RunError> {
    let drawn = figure.draw().map_err(|error| failed(dir)(io::Error::other(error)))?;
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let name: String = figure.name().chars().map(plain).collect();
    for (name, bytes) in [
        (format!("{name}.svg"), drawn.light.as_bytes()),
        (format!("{name}-dark.svg"), drawn.dark.as_bytes()),
        (format!("{name}.png"), &drawn.png),
    ] {
        let path = dir.join(name);
        fs::write(&path, bytes).map_err(failed(&path))?;
    }
    Ok(Picture {
        title: figure.title().to_owned(),
        light: STANDARD.encode(&drawn.light),
        dark: STANDARD.encode(&drawn.dark),
    })
}

/// Every sample, a line each; texts with commas or quotes in quotes (RFC 4180).
fn as_csv(results: &Results) -> String {
    let mut text = "experiment,target,run,phase,metric,value,unit,at,why\n".to_owned();
    for sample in &results.samples {
        let fields = [
            quoted(&sample.experiment),
            quoted(&sample.target),
            sample.run.to_string(),
            quoted(&sample.phase),
            quoted(&sample.metric),
            sample.value.to_string(),
            quoted(&sample.unit),
            sample.at.map(|at| at.to_string()).unwrap_or_default(),
            quoted(sample.why.as_deref().unwrap_or_default()),
        ];
        text.push_str(&fields.join(","));
        text.push('\n');
    }
    text
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_keeps_commas_and_quotes() {
        assert_eq!(quoted("engine:a,b"), "\"engine:a,b\"");
        assert_eq!(quoted("say \"x\""), "\"say \"\"x\"\"\"");
        assert_eq!(quoted("plain"), "plain");
    }
}
