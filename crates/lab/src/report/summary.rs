//! Several directories of results on one page of Markdown: our engine, mount and checker, and which
//! of the documents' findings hold.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::assessed::{self, Assessed};
use super::drives;
use super::shell_line;
use super::standing::Standing;
use super::table::{escaped, number, published, with_interval};
use crate::experiment::Work;
use crate::results::{Of, Results};
use crate::run::RunError;
use crate::sample::Sample;
use crate::stats::{Difference, Summary};
use crate::target::LabTarget;

/// The page of some directories of results.
///
/// # Errors
/// One of them holds no results.
pub fn summary(dirs: &[PathBuf]) -> Result<String, RunError> {
    let mut page = "# Experiments\n\
        Written by `extant lab summary` from the samples next to it. Means of repeated runs; a star stands where the 95% interval of a\n\
        difference (Welch's) leaves zero out. What the documents measured was measured on other hardware: only directions can be\n\
        compared, not seconds.\n"
        .to_owned();
    let mut all = Vec::new();
    for dir in dirs {
        all.push((dir.as_path(), Results::read(dir)?));
    }
    runs(&all, &mut page);
    findings(&all, &mut page);
    page.push_str("\n## Results of ours\n");
    let mut compared = Compared::default();
    for (_, results) in &all {
        for experiment in &results.manifest.experiments {
            let standing = Standing { results, experiment };
            let _ = write!(page, "\n### {}: {}\n", experiment.name, experiment.title);
            standing.table(&mut page, &mut compared);
            standing.checkers(&mut page, &mut compared);
            drives::write(results, experiment, standing.headlines(), &mut page);
        }
    }
    page.push_str("\n## Where ours are slower\n");
    let significant =
        "figures of the tables above in which ours are worse and the interval says so";
    match (compared.figures, &compared.slower[..]) {
        (0, _) => page.push_str("Unknown: no figure of ours can be compared with one of another system by the same clock.\n"),
        (_, []) => {
            let _ = writeln!(page, "Nowhere: there are no {significant}.");
        }
        (_, slower) => {
            let _ = writeln!(page, "The {significant}:\n");
            for line in slower {
                let _ = writeln!(page, "- {line}");
            }
        }
    }
    Ok(page)
}

/// The runs: where, at which scale, under which load.
fn runs(all: &[(&Path, Results)], page: &mut String) {
    page.push_str(
        "\n## What was run\nA scale of 1 is the document's. *Other load* is what processors did in the moments before cells began, while the lab did nothing; *cells took* so long one after the other, with `--jobs 2` half of it.\n\n\
         | experiment | sizes × | counts × | runs | targets | other load | cells took | command | report |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for (dir, results) in all {
        for experiment in &results.manifest.experiments {
            let settings = &results.manifest.settings;
            let of = |metric: &str| {
                let fits = |sample: &&Sample| {
                    sample.experiment == experiment.name && sample.metric == metric
                };
                results.samples.iter().filter(fits).map(|sample| sample.value).collect::<Vec<_>>()
            };
            let load = Summary::of(&of(crate::sample::OTHER_LOAD));
            let load = load.map_or("not taken".to_owned(), |load| format!("{:.0}%", load.mean));
            let seconds: f64 = of(crate::sample::CELL_SECONDS).iter().sum();
            let name = dir.file_name().unwrap_or(dir.as_os_str()).to_string_lossy();
            let _ = writeln!(
                page,
                "| {} | {} | {} | {} | {} | {load} | {:.1} min | `{}` | [{name}]({name}) |",
                experiment.name,
                settings.sizes,
                settings.counts,
                settings.runs.unwrap_or(experiment.runs),
                results.targets(experiment).len(),
                seconds / 60.0,
                escaped(&shell_line(&results.manifest.command)),
            );
        }
    }
    if let Some((_, results)) = all.first() {
        let environment = &results.manifest.environment;
        let _ = writeln!(
            page,
            "\n{} × {}, {} MiB, {}; images on {}. 100% is one processor. Taking times costs {:.0} µs a phase.",
            environment.processors,
            environment.processor,
            environment.memory >> 20,
            environment.kernel,
            environment.disk,
            results.manifest.overhead_seconds * 1e6,
        );
        let mut skipped = Vec::new();
        for (_, results) in all {
            for experiment in &results.manifest.experiments {
                for (target, why) in results.skipped(experiment) {
                    skipped.push(format!("- {}, `{target}`: {why}", experiment.name));
                }
            }
        }
        if !skipped.is_empty() {
            let _ = writeln!(page, "\nCould not run, or not all of it:\n\n{}", skipped.join("\n"));
        }
    }
}

/// The documents' findings, and whether they hold today.
fn findings(all: &[(&Path, Results)], page: &mut String) {
    page.push_str(
        "\n## What the documents found\n\n| experiment | finding | published | system | here | verdict |\n|---|---|---|---|---|---|\n",
    );
    let results: Vec<&Results> = all.iter().map(|(_, results)| results).collect();
    for Assessed { finding, rows } in assessed::all(&results) {
        for (number, row) in rows.iter().enumerate() {
            let lead = match number {
                0 => [&*finding.experiment, &*finding.says, &*finding.published],
                _ => ["", "", ""],
            };
            let _ = writeln!(
                page,
                "| {} | {} | {} | {} |",
                lead.join(" | "),
                escaped(&row.system),
                row.here(),
                row.conclusion()
            );
        }
    }
    let hardware = published().into_iter().map(|table| (table.experiment, table.hardware));
    let mut named: Vec<(String, String)> = Vec::new();
    for (experiment, hardware) in hardware {
        if hardware != "as above" && !named.contains(&(experiment.clone(), hardware.clone())) {
            named.push((experiment, hardware));
        }
    }
    page.push_str("\nPublished figures were measured on:\n\n");
    for (experiment, hardware) in named {
        let _ = writeln!(page, "- {experiment}: {hardware}");
    }
}

/// The comparison of ours with others.
#[derive(Debug, Default)]
struct Compared {
    /// Number of our figures that could be compared with another system's.
    figures: usize,
    /// Those in which ours are worse, in words.
    slower: Vec<String>,
}

impl Standing<'_> {
    /// A row for each figure, a column for each system; ours and all others.
    fn table(&self, page: &mut String, compared: &mut Compared) {
        let (headlines, systems) = (self.headlines(), self.systems());
        if headlines.is_empty() || systems.is_empty() {
            return;
        }
        let names = systems.iter().map(|(system, target)| match system == target {
            true => escaped(system),
            false => format!("`{}`", escaped(target)),
        });
        let names: Vec<String> = names.collect();
        let _ =
            writeln!(page, "\n| | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len()));
        for headline in headlines {
            let found: Vec<Option<Summary>> =
                systems.iter().map(|(_, target)| self.summary(target, headline)).collect();
            if found.iter().all(Option::is_none) {
                continue;
            }
            let cells = found.iter().map(|one| one.as_ref().map_or("–".to_owned(), with_interval));
            let _ =
                writeln!(page, "| {} | {} |", headline.0, cells.collect::<Vec<_>>().join(" | "));
            let is_ours = |system: &str| system == "engine" || system == "extant";
            for ((system, _), ours) in
                systems.iter().zip(&found).filter(|((system, _), _)| is_ours(system))
            {
                for ((peer, _), theirs) in
                    systems.iter().zip(&found).filter(|((peer, _), _)| !is_ours(peer))
                {
                    let (Some(ours), Some(theirs)) = (ours, theirs) else { continue };
                    compared.figures += 1;
                    if let Some(times) = worse(ours, theirs, headline.4) {
                        compared.slower.push(format!(
                            "{}, {}: {system} {}, {peer} {}: {times}",
                            self.experiment.name,
                            headline.0,
                            number(ours.mean),
                            number(theirs.mean)
                        ));
                    }
                }
            }
        }
    }

    /// Our checker and e2fsck, on the same volumes.
    fn checkers(&self, page: &mut String, compared: &mut Compared) {
        let phases: &[&str] = match self.experiment.work() {
            Work::SequentialWrite(_) => &[""],
            Work::CheckTime(_) => &[" establish", " use", " remove"],
            _ => return,
        };
        let mut rows = Vec::new();
        for target in self.results.targets(self.experiment) {
            let is_ext = target.parse::<LabTarget>().is_ok_and(|target| target.system.is_ext());
            for phase in phases.iter().filter(|_| is_ext) {
                let of = |checker: &str| {
                    let phase = format!("{checker}{phase}");
                    let of = Of {
                        experiment: &self.experiment.name,
                        target: &target,
                        phase: &phase,
                        metric: "check_seconds",
                    };
                    let mut places = self.results.by_place(&of);
                    let whole = self.results.summary(&of).map(|summary| (-1.0, summary));
                    places.extend(whole);
                    places
                };
                let all_of_ours = of("extant fsck");
                for (at, theirs) in of("e2fsck") {
                    let same = all_of_ours.iter().find(|(place, _)| *place == at);
                    let Some((_, ours)) = same else { continue };
                    compared.figures += 1;
                    let place = if at < 0.0 { String::new() } else { format!(", {at}% in use") };
                    let what = format!("`{}`{phase}{place}", escaped(&target));
                    let ratio = ours.mean / theirs.mean;
                    let difference = Difference::between(&theirs, ours);
                    let star =
                        if difference.is_some_and(|it| it.is_significant()) { " *" } else { "" };
                    rows.push(format!(
                        "| {what} | {} | {} | {ratio:.2}{star} |",
                        with_interval(ours),
                        with_interval(&theirs)
                    ));
                    if let Some(times) = worse(ours, &theirs, false) {
                        compared.slower.push(format!(
                            "{}, check of {what}: extant fsck {} s, e2fsck {} s: {times}",
                            self.experiment.name,
                            number(ours.mean),
                            number(theirs.mean)
                        ));
                    }
                }
            }
        }
        if !rows.is_empty() {
            let _ = writeln!(
                page,
                "\n| volume filled by | extant fsck, s | e2fsck, s | ours / theirs |\n|---|---|---|---|\n{}",
                rows.join("\n")
            );
        }
    }
}

/// How many times worse ours is, if it is worse beyond the interval.
fn worse(ours: &Summary, theirs: &Summary, more_is_better: bool) -> Option<String> {
    let difference = Difference::between(theirs, ours)?;
    let is_worse = (difference.percent > 0.0) != more_is_better;
    let times = match more_is_better {
        true => theirs.mean / ours.mean,
        false => ours.mean / theirs.mean,
    };
    (is_worse && difference.is_significant()).then(|| format!("{times:.2} times worse"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_is_slower_if_it_is_significantly_worse() {
        let of = |values: &[f64]| Summary::of(values).expect("numbers");
        let (fast, slow) = (of(&[1.0, 1.01, 0.99]), of(&[2.0, 2.02, 1.98]));
        assert_eq!(worse(&slow, &fast, false).as_deref(), Some("2.00 times worse"));
        assert_eq!(worse(&fast, &slow, false), None);
        assert_eq!(worse(&fast, &slow, true).as_deref(), Some("2.00 times worse"));
        assert_eq!(worse(&of(&[2.0]), &fast, false), None, "a single run decides nothing");
        assert_eq!(worse(&of(&[1.0, 3.0]), &fast, false), None, "the interval holds zero");
    }

    /// The page of what is kept of the documents at their scale.
    fn page_of(names: &[&str]) -> String {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/experiments");
        let dirs: Vec<PathBuf> = names.iter().map(|name| Path::new(dir).join(name)).collect();
        summary(&dirs).expect("results of the documentation")
    }

    #[test]
    fn simulated_drives_are_compared_with_the_published_figures() {
        let page = page_of(&["document-001", "document-003"]);
        for wanted in [
            // Each target of a drive, by the figures of the experiment.
            "| `engine@hdd7200-2005:data=writeback,nodelalloc,nomballoc:-t ext3` | 232.4 | 0.7262 |",
            "\n| `engine@hdd7200:data=writeback:-I 256 -O ^metadata_csum,^flex_bg` | 99.67 |",
            // The document's table with the drive's figures in it.
            "| ext3, mount options | write large files: published | write large files: engine@hdd7200-2005 |",
            "| data=ordered | 2429.67 (2270.02) | 232.4 (",
            "| ext3 | -I 256 | data=writeback | 75.1 | 116.",
            // The documents' findings.
            "|  |  |  | engine@hdd7200-2005 | -94.03% (0.7262 to 0.0433) | holds (single runs) |",
            // No system but ours has such a drive.
            "Unknown: no figure of ours can be compared with one of another system",
        ] {
            assert!(page.contains(wanted), "{wanted} in {page}");
        }
        assert!(!page.contains("\n| |  |"), "a table without systems: {page}");
    }
}
