//! Measurements on simulated drives, in Markdown. They are kept apart: seconds of a drive's clock
//! are compared with each other and with published ones, never with this machine's.

use std::fmt::Write as _;

use super::own::scaled;
use super::published::published_for_drives;
use super::table::{Headline, Table, escaped, number, published, with_interval};
use crate::experiment::{Experiment, Work};
use crate::results::{Of, Results};
use crate::sample::{Sample, WHOLE};
use crate::target::LabTarget;

/// Checks of a volume that is filled in steps: the last ones are e2fsck's, by this machine's clock.
const CHECKS: [&str; 6] = [
    "extant fsck establish",
    "extant fsck use",
    "extant fsck remove",
    "e2fsck on this machine establish",
    "e2fsck on this machine use",
    "e2fsck on this machine remove",
];
const CHECK: Headline = ("extant fsck, s", "extant fsck", "check_seconds", 1.0, false);

/// An experiment's part of the page; nothing where no target of it was measured on a simulated
/// drive.
pub(super) fn write(
    results: &Results,
    experiment: &Experiment,
    headlines: &[Headline],
    page: &mut String,
) {
    let drives = Drives { results, experiment };
    let targets = drives.targets();
    if targets.is_empty() {
        return;
    }
    let _ = writeln!(
        page,
        "\nOn simulated drives, by their own clocks. They are compared with each other and the published figures; no other system has these drives."
    );
    let own = match experiment.work() {
        Work::CheckTime(_) => drives.by_step(&targets),
        _ => drives.by_target(&targets, headlines),
    };
    write_table(&own, page);
    for table in published().into_iter().filter(|table| table.experiment == experiment.name) {
        if let Some(table) = published_for_drives(results, experiment, &table) {
            let _ = writeln!(page, "\n{}. Published: {}.", table.caption, table.hardware);
            write_table(&table, page);
        }
    }
}

struct Drives<'r> {
    results: &'r Results,
    experiment: &'r Experiment,
}

impl Drives<'_> {
    /// Targets on drives that have figures, in their order.
    fn targets(&self) -> Vec<String> {
        let is_on_drive = |text: &String| {
            text.parse().is_ok_and(|target: LabTarget| target.system.drive().is_some())
        };
        let is_figure = |sample: &Sample, target: &str| {
            sample.experiment == self.experiment.name
                && sample.target == target
                && sample.phase != WHOLE
                && sample.why.is_none()
        };
        let has_figures =
            |text: &String| self.results.samples.iter().any(|sample| is_figure(sample, text));
        let all = self.results.targets(self.experiment).into_iter();
        all.filter(is_on_drive).filter(has_figures).collect()
    }

    fn of<'o>(&'o self, target: &'o str, phase: &'o str, metric: &'o str) -> Of<'o> {
        Of { experiment: &self.experiment.name, target, phase, metric }
    }

    /// A row for each target, a column for each figure that one of them has.
    fn by_target(&self, targets: &[String], headlines: &[Headline]) -> Table {
        let mut columns: Vec<(&str, Vec<String>)> = Vec::new();
        for (title, phase, metric, unit, _) in headlines.iter().chain([&CHECK]) {
            let found = targets.iter().map(|target| {
                let summary = self.results.summary(&self.of(target, phase, metric))?;
                Some(with_interval(&scaled(&summary, *unit)))
            });
            let found: Vec<Option<String>> = found.collect();
            if found.iter().any(Option::is_some) {
                columns.push((title, found.into_iter().map(or_none).collect()));
            }
        }
        let mut head = vec!["target"];
        head.extend(columns.iter().map(|(title, _)| *title));
        let mut table = Table::ours(&self.experiment.name, "", &head);
        for (number, target) in targets.iter().enumerate() {
            let mut row = vec![format!("`{target}`")];
            row.extend(columns.iter().map(|(_, cells)| cells[number].clone()));
            table.rows.push(row);
        }
        table
    }

    /// A row for each target and step of filling, a column for each check.
    fn by_step(&self, targets: &[String]) -> Table {
        let curves = |phase: &&&str| {
            targets.iter().any(|target| {
                !self.results.by_place(&self.of(target, phase, "check_seconds")).is_empty()
            })
        };
        let phases: Vec<&str> = CHECKS.iter().filter(curves).copied().collect();
        let titles: Vec<String> = phases.iter().map(|phase| format!("{phase}, s")).collect();
        let mut head = vec!["target", "% in use"];
        head.extend(titles.iter().map(String::as_str));
        let mut table = Table::ours(&self.experiment.name, "", &head);
        for target in targets {
            let found: Vec<_> = phases
                .iter()
                .map(|phase| self.results.by_place(&self.of(target, phase, "check_seconds")))
                .collect();
            let mut steps: Vec<f64> = found.iter().flatten().map(|(at, _)| *at).collect();
            steps.sort_by(f64::total_cmp);
            steps.dedup();
            for step in steps {
                let mut row = vec![format!("`{target}`"), number(step)];
                row.extend(found.iter().map(|places| {
                    let place = places.iter().find(|(at, _)| *at == step);
                    or_none(place.map(|(_, summary)| with_interval(summary)))
                }));
                table.rows.push(row);
            }
        }
        table
    }
}

fn or_none(cell: Option<String>) -> String {
    cell.unwrap_or_else(|| "–".to_owned())
}

fn write_table(table: &Table, page: &mut String) {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
        format!("| {} |", cells.join(" | "))
    };
    let _ = writeln!(page, "\n{}\n|{}", line(&table.head), "---|".repeat(table.head.len()));
    for row in &table.rows {
        let _ = writeln!(page, "{}", line(row));
    }
}
