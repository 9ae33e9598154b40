//! The report: one self-contained page, the figures next to it, and all samples as CSV; and the
//! pages over several reports.

mod assessed;
mod bars;
mod drives;
mod figures;
mod files;
mod index;
mod own;
mod picture;
mod published;
mod standing;
mod summary;
mod table;
mod verdict;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use askama::Template;

use crate::experiment::{Experiment, Settings};
use crate::results::Results;
use crate::run::{Manifest, RunError};
use assessed::Assessed;
use figures::Figure;
use files::failed;
pub use files::{CSV, FIGURES, INDEX, PAGE};
use picture::Picture;
use standing::{other_load, question};
pub use summary::summary;
use table::{Table, published};
use verdict::Verdicts;

/// The page.
#[derive(Template)]
#[template(path = "report.html")]
struct Page<'r> {
    manifest: &'r Manifest,
    title: String,
    /// To be given to a shell.
    command: String,
    /// When the run began.
    began: String,
    overhead: String,
    call_overhead: Option<String>,
    memory: u64,
    /// Changes by the command line in addition to the scale.
    changes: String,
    other_load: Option<String>,
    /// Whether something was measured on a simulated drive.
    is_simulated: bool,
    sections: Vec<Section<'r>>,
}

/// An experiment on the page.
struct Section<'r> {
    experiment: &'r Experiment,
    question: &'static str,
    verdicts: Vec<Verdicts>,
    findings: Vec<Assessed>,
    /// How many findings hold.
    counts: String,
    work: String,
    skipped: Vec<(String, String)>,
    tables: Vec<Table>,
    pictures: Vec<Picture>,
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
            tables.push(published::with_published(&results, experiment, &table).unwrap_or(table));
        }
        let drawn: Result<Vec<Picture>, RunError> =
            figures.iter().map(|figure| keep(&pictures, figure)).collect();
        let findings = assessed::measured(&results, &experiment.name);
        sections.push(Section {
            experiment,
            question: question(experiment),
            verdicts: verdict::of(&results, experiment),
            counts: assessed::counts(&findings),
            findings,
            work: toml::to_string(experiment).unwrap_or_default(),
            skipped: results.skipped(experiment),
            tables,
            pictures: drawn?,
        });
    }
    let call_overhead = results.manifest.call_overhead_seconds;
    let page = Page {
        title: match &results.manifest.experiments[..] {
            [one] => format!("{}: {}", one.name, one.title),
            all => format!("extant lab: {} experiments", all.len()),
        },
        command: shell_line(&results.manifest.command),
        began: utc(results.manifest.started),
        overhead: format!("{:.0}", results.manifest.overhead_seconds * 1e6),
        call_overhead: (call_overhead > 0.0).then(|| format!("{:.0}", call_overhead * 1e9)),
        changes: changes(&results.manifest.settings),
        other_load: other_load(&results),
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

/// Writes the summary of directories of results as Markdown into a file, and next to it the page
/// over all of them; the path of the page.
///
/// # Errors
/// One of them holds no results, or the files cannot be written.
pub fn write_summary(dirs: &[PathBuf], file: &Path) -> Result<PathBuf, RunError> {
    let home = file.parent().unwrap_or(Path::new(""));
    let path = home.join(INDEX);
    let (text, page) = (summary(dirs)?, index::page(dirs, home)?);
    let link = format!("\n[With pictures, on one page]({INDEX}).\n\n## ");
    fs::write(file, text.replacen("\n## ", &link, 1)).map_err(failed(file))?;
    fs::write(&path, page).map_err(failed(&path))?;
    Ok(path)
}

/// A command as it is typed: words with anything but plain letters are quoted.
fn shell_line(words: &[String]) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "@%+=:,./_-".contains(letter);
    let quoted = |word: &String| match !word.is_empty() && word.chars().all(is_plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Changes other than sizes, counts and seed.
fn changes(settings: &Settings) -> String {
    let mut all = String::new();
    if let Some(runs) = settings.runs {
        all.push_str(&format!("; {runs} runs"));
    }
    if let Some(seconds) = settings.time {
        all.push_str(&format!("; {seconds} s of what is timed"));
    }
    if let Some(bytes) = settings.memory {
        all.push_str(&format!("; {} MiB of memory", bytes >> 20));
    }
    if let Some(device) = &settings.device {
        all.push_str(&format!("; on {}", device.display()));
    }
    all
}

/// Seconds since 1970 as a date and a time of day.
fn utc(seconds: u64) -> String {
    const DAY: u64 = 24 * 60 * 60;
    // The end of 9999: years have four digits.
    const LAST: u64 = 253_402_300_799;
    let seconds = seconds.min(LAST);
    let (mut day, rest) = (seconds / DAY, seconds % DAY);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    loop {
        let days = if is_leap(year) { 366 } else { 365 };
        if day < days {
            break;
        }
        (day, year) = (day - days, year + 1);
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        (day, month) = (day - days, month + 1);
    }
    let (hour, minute) = (rest / 3600, rest / 60 % 60);
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02} UTC", day + 1)
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
    Ok(Picture::drawn(figure, &drawn))
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

    #[test]
    fn a_command_can_be_given_to_a_shell() {
        let words = ["extant", "lab", "--targets", "engine::-O ^64bit,xfs", "it's", ""];
        let words = words.map(str::to_owned);
        let line = shell_line(&words);
        assert_eq!(line, "extant lab --targets 'engine::-O ^64bit,xfs' 'it'\\''s' ''");
        let echo = format!("printf '%s\\n' {line}");
        let said = std::process::Command::new("sh").args(["-c", &echo]).output().expect("a shell");
        assert_eq!(String::from_utf8_lossy(&said.stdout).lines().collect::<Vec<_>>(), words);
    }

    #[test]
    fn times_are_dates() {
        for (seconds, date) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_700_000_000, "2023-11-14 22:13 UTC"),
            (1_798_761_599, "2026-12-31 23:59 UTC"),
        ] {
            assert_eq!(utc(seconds), date);
        }
        assert_eq!(utc(u64::MAX), "9999-12-31 23:59 UTC");
    }
}
