//! One page over several directories of results: of each the question, the verdict and a picture,
//! then the documents' findings.

use std::path::{Path, PathBuf};

use askama::Template;

use super::assessed::{self, Assessed};
use super::figures::Figure;
use super::files::{PAGE, failed};
use super::own;
use super::picture::Picture;
use super::standing::{other_load, question};
use super::verdict::{self, Verdicts};
use crate::experiment::{Experiment, Work};
use crate::results::Results;
use crate::run::RunError;

/// The page.
#[derive(Template)]
#[template(path = "index.html")]
struct Index {
    groups: Vec<Group>,
    findings: Vec<Assessed>,
    counts: String,
}

/// Experiments by one kind of clock.
struct Group {
    title: &'static str,
    about: &'static str,
    entries: Vec<Entry>,
}

/// An experiment of a directory.
struct Entry {
    name: String,
    /// To its report, where there is one.
    link: Option<String>,
    question: &'static str,
    scale: String,
    verdicts: Vec<Verdicts>,
    picture: Option<Picture>,
    /// How many findings hold; `None` where none of them was measured.
    counts: Option<String>,
    /// Number of targets that could not run, or not all of it.
    skipped: usize,
}

/// The page over directories of results, for a file in `home`.
///
/// # Errors
/// One of them holds no results.
pub(super) fn page(dirs: &[PathBuf], home: &Path) -> Result<String, RunError> {
    let mut all = Vec::new();
    for dir in dirs {
        all.push((dir.as_path(), Results::read(dir)?));
    }
    let (mut here, mut simulated) = (Vec::new(), Vec::new());
    for (dir, results) in &all {
        for experiment in &results.manifest.experiments {
            let entry = Entry::of(dir, home, results, experiment)?;
            let is_simulated = entry.verdicts.iter().all(|it| it.clock.is_some());
            let group = if is_simulated { &mut simulated } else { &mut here };
            group.push(entry);
        }
    }
    let mut groups = vec![
        Group {
            title: "On this machine",
            about: "Systems next to each other, by this machine's clock. The scale is a part of the documents' where it says so.",
            entries: here,
        },
        Group {
            title: "On simulated drives",
            about: "The engine alone, with the options that the documents compare, at their own scale and by the drive's clock. \
                No other system has these drives, so the targets are compared with each other.",
            entries: simulated,
        },
    ];
    groups.retain(|group| !group.entries.is_empty());
    let results: Vec<&Results> = all.iter().map(|(_, results)| results).collect();
    let findings = assessed::all(&results);
    let index = Index { groups, counts: assessed::counts(&findings), findings };
    index.render().map_err(|error| failed(home)(std::io::Error::other(error)))
}

impl Entry {
    fn of(
        dir: &Path,
        home: &Path,
        results: &Results,
        experiment: &Experiment,
    ) -> Result<Self, RunError> {
        let settings = &results.manifest.settings;
        let verdicts = verdict::of(results, experiment);
        let (_, figures) = own::of(results, experiment);
        let picture = main_figure(figures, experiment, &verdicts);
        let drawn = picture.map(|figure| Picture::of(&figure).map_err(failed_drawing(dir)));
        let findings = assessed::measured(results, &experiment.name);
        let name = dir.file_name().unwrap_or(dir.as_os_str()).to_string_lossy().into_owned();
        let runs = settings.runs.unwrap_or(experiment.runs);
        Ok(Self {
            link: dir.join(PAGE).exists().then(|| link(dir, home, &experiment.name)),
            name: match results.manifest.experiments.len() {
                1 => name,
                _ => format!("{name}: {}", experiment.name),
            },
            question: question(experiment),
            scale: format!(
                "After: {}. Sizes × {}, counts × {} (1 is the document's), {runs} {}.{}",
                experiment.document,
                settings.sizes,
                settings.counts,
                if runs == 1 { "run" } else { "runs" },
                other_load(results).map_or_else(String::new, |load| format!(
                    " Other work on the processors: {load}."
                )),
            ),
            verdicts,
            picture: drawn.transpose()?,
            counts: (!findings.is_empty()).then(|| assessed::counts(&findings)),
            skipped: skipped(results, experiment),
        })
    }
}

fn failed_drawing(dir: &Path) -> impl FnOnce(String) -> RunError + '_ {
    move |error| failed(dir)(std::io::Error::other(error))
}

/// Number of targets that could not run, or not all of it.
fn skipped(results: &Results, experiment: &Experiment) -> usize {
    let mut targets: Vec<String> =
        results.skipped(experiment).into_iter().map(|(target, _)| target).collect();
    targets.sort();
    targets.dedup();
    targets.len()
}

/// From a page in `home` to a report, by a path that also holds on another machine where it can.
fn link(dir: &Path, home: &Path, experiment: &str) -> String {
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let home = if home.as_os_str().is_empty() { Path::new(".") } else { home };
    let (dir, home) = (whole(dir), whole(home));
    let path = dir.strip_prefix(&home).unwrap_or(&dir).join(PAGE);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    let path = path.to_string_lossy();
    let encoded = path.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    encoded.chain([format!("#{experiment}")]).collect()
}

/// The picture that speaks for the experiment, of the compared systems alone.
fn main_figure(
    figures: Vec<Figure>,
    experiment: &Experiment,
    verdicts: &[Verdicts],
) -> Option<Figure> {
    let wanted = match experiment.work() {
        Work::CopyRemove(_) => ": cp cp elapsed, s",
        Work::LowMemory(_) => ": write many files seconds",
        Work::HardLinks(_) => ": extract links seconds",
        Work::SequentialWrite(_) => ": write throughput, MB/s",
        Work::CheckTime(_) => ": filled by ext4 seconds",
    };
    let names: Vec<String> = figures.iter().map(Figure::name).collect();
    let place = names.iter().position(|name| name.ends_with(wanted)).unwrap_or(0);
    let mut figure = figures.into_iter().nth(place)?;
    if let Figure::Bars { bars, .. } = &mut figure {
        let compared: Vec<&str> = verdicts.iter().flat_map(Verdicts::all_targets).collect();
        let is_compared = |name: &str| compared.contains(&name);
        if bars.iter().any(|bar| is_compared(&bar.name)) {
            bars.retain(|bar| is_compared(&bar.name));
        }
    }
    Some(figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_from_the_page_to_the_reports() {
        let home = Path::new("/no/such/home");
        assert_eq!(link(&home.join("a b"), home, "rm"), "a%20b/report.html#rm");
        assert_eq!(link(Path::new("/else/a"), home, "rm"), "/else/a/report.html#rm");
    }

    #[test]
    fn the_page_has_each_experiment_and_the_findings() {
        let home = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/experiments");
        let home = Path::new(home);
        let dirs = ["copy-remove", "document-001"].map(|name| home.join(name));
        let page = page(&dirs, home).expect("results of the documentation");
        for wanted in [
            "<a href=\"copy-remove/report.html#copy-remove\">copy-remove</a>",
            "<a href=\"document-001/report.html#low-memory\">document-001</a>",
            "cp, s: xfs is first with 1.66",
            "extant next to the kernel&#39;s ext4 in 6 measures: ",
            "single runs, without intervals",
            "64-bit block numbers cost no processor time in copying",
            "<span class=\"badge unmeasured\">was not measured</span>",
            "On simulated drives",
        ] {
            assert!(page.contains(wanted), "{wanted}");
        }
        assert!(!page.contains("<script") && !page.contains("http"), "it needs nothing else");
    }
}
