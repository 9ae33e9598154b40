//! The documents' tables together with our figures, cell by cell.

use super::own::{STATISTICS, difference_text, scaled};
use super::table::{Across, Column, PUBLISHED, Series, Table, number, with_interval};
use crate::experiment::Experiment;
use crate::results::{Of, Results};
use crate::stats::{Difference, Summary};
use crate::target::{System, engine_on};

/// The series of e2fsck's figures, and its phases.
const E2FSCK: &str = "e2fsck";

/// Our figures as texts: rows, columns.
type Figures = Vec<Vec<Option<String>>>;

/// A published table with ours; `None` if nothing of it was measured.
pub(super) fn with_published(
    results: &Results,
    experiment: &Experiment,
    table: &Table,
) -> Option<Table> {
    let measured = Measured { results, experiment };
    let with_drives = |series: &Series| {
        let own = std::iter::once(series.clone());
        own.chain(measured.on_drives(series)).collect::<Vec<_>>()
    };
    measured.with_published(table, table.measured.iter().flat_map(with_drives).collect())
}

/// A published table with the figures of simulated drives; `None` if nothing of it was measured.
pub(super) fn published_for_drives(
    results: &Results,
    experiment: &Experiment,
    table: &Table,
) -> Option<Table> {
    let measured = Measured { results, experiment };
    let series = table.measured.iter().flat_map(|series| measured.on_drives(series)).collect();
    measured.with_published(table, series)
}

/// The measurements of an experiment.
struct Measured<'r> {
    results: &'r Results,
    experiment: &'r Experiment,
}

impl Measured<'_> {
    fn with_published(&self, table: &Table, all: Vec<Series>) -> Option<Table> {
        let columns = table.head.len() - table.labels;
        let series: Vec<Figures> =
            all.iter().map(|series| self.figures(series, table.rows.len(), columns)).collect();
        // Series, and columns of them, without any figure are left out.
        let has = |of: usize, column: usize| series[of].iter().any(|row| row[column].is_some());
        let shown: Vec<(usize, usize)> = (0..columns)
            .flat_map(|column| (0..series.len()).map(move |of| (column, of)))
            .filter(|(column, of)| has(*of, *column))
            .collect();
        if shown.is_empty() {
            return None;
        }
        let ours = |column: usize| {
            shown.iter().filter(move |(found, _)| *found == column).map(|(_, of)| *of)
        };
        let mut head: Vec<String> = table.head[..table.labels].to_vec();
        for column in 0..columns {
            let title = &table.head[table.labels + column];
            head.push(format!("{title}{PUBLISHED}"));
            head.extend(ours(column).map(|of| format!("{title}: {}", all[of].name)));
        }
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        let caption = format!("Published and measured here: {}", table.caption);
        let mut whole = Table::ours(&self.experiment.name, &caption, &head);
        whole.labels = table.labels;
        whole.hardware.clone_from(&table.hardware);
        for (number, published) in table.rows.iter().enumerate() {
            let mut row = published[..table.labels].to_vec();
            for column in 0..columns {
                let theirs = &published[table.labels + column];
                row.push(if theirs.is_empty() { "–".to_owned() } else { theirs.clone() });
                row.extend(ours(column).map(|of| {
                    series[of][number][column].clone().unwrap_or_else(|| "–".to_owned())
                }));
            }
            whole.rows.push(row);
        }
        Some(whole)
    }

    /// A series measured on each simulated drive; for images that e2fsck checked, by this machine's
    /// clock.
    fn on_drives(&self, series: &Series) -> Vec<Series> {
        let mut all: Vec<Series> = Vec::new();
        for drive in self.results.drives(self.experiment) {
            let mut of_drive = series.clone();
            of_drive.name = match series.name.as_str() {
                "engine" => drive.name().to_owned(),
                // No other checker runs on a drive's clock.
                E2FSCK => format!("{E2FSCK} on this machine, image of {}", drive.name()),
                name => format!("{name}, {}", drive.name()),
            };
            let is_any = of_drive.move_to(&drive);
            if is_any && all.iter().all(|other| other.name != of_drive.name) {
                all.push(of_drive);
            }
        }
        all
    }

    fn figures(&self, series: &Series, rows: usize, columns: usize) -> Figures {
        let row = |number: usize| match &series.across {
            Some(across) => self.across(across, number),
            None => self.along(series, number),
        };
        let mut figures: Figures = (0..rows).map(row).collect();
        figures.iter_mut().for_each(|row| row.resize(columns, None));
        figures
    }

    /// A row of one target.
    fn along(&self, series: &Series, place: usize) -> Vec<Option<String>> {
        let wanted = series.targets.get(place).or(series.targets.first());
        let target = wanted.and_then(|wanted| self.name_of(wanted));
        let target = target.as_deref();
        let at = series.at.get(place).copied();
        let cell = |(phases, metric, unit): &(Vec<String>, String, f64)| {
            let of = |phase: &str, metric: &str| {
                let of = Of { experiment: &self.experiment.name, target: target?, phase, metric };
                self.results.summary_at(&of, at).map(|summary| scaled(&summary, *unit))
            };
            let shown = |phase: &String| {
                let figure = with_interval(&of(phase, metric)?);
                let in_parentheses =
                    series.in_parentheses.as_ref().and_then(|metric| of(phase, metric));
                Some(match in_parentheses {
                    Some(second) => format!("{figure} ({})", number(second.mean)),
                    None => figure,
                })
            };
            phases.iter().find_map(shown)
        };
        series.figures.iter().map(cell).collect()
    }

    /// A row whose columns have targets of their own.
    fn across(&self, across: &Across, number: usize) -> Vec<Option<String>> {
        let Some(row) = across.rows.get(number) else { return Vec::new() };
        let statistic = STATISTICS.iter().find(|(title, _)| **title == row.figure);
        let metric = if statistic.is_some() { "elapsed_seconds" } else { row.figure.as_str() };
        let cell = |column: &Column| {
            let phases = if column.phases.is_empty() { &row.phases } else { &column.phases };
            // All that was done so: document 002 does not distinguish its two orders of removal.
            let summary = |target: &String| {
                let target = &*self.name_of(target)?;
                let of = |phase: &String| {
                    let name = &self.experiment.name;
                    self.results.values(&Of { experiment: name, target, phase, metric })
                };
                Summary::of(&phases.iter().flat_map(of).collect::<Vec<_>>())
            };
            match (&column.targets[..], statistic) {
                ([one], Some((_, text))) => summary(one).map(|summary| text(&summary)),
                ([one], None) => summary(one).map(|summary| with_interval(&summary)),
                ([before, after], _) => {
                    let (before, after) = (summary(before)?, summary(after)?);
                    Difference::between(&before, &after).map(difference_text)
                }
                _ => None,
            }
        };
        across.columns.iter().map(cell).collect()
    }

    fn name_of(&self, wanted: &str) -> Option<String> {
        self.results.as_measured(self.experiment, wanted)
    }
}

impl Series {
    /// Makes it the engine's on a simulated drive; whether anything in it was the engine's.
    fn move_to(&mut self, drive: &System) -> bool {
        let (mut is_any, is_of_e2fsck) = (false, self.name == E2FSCK);
        let mut moved = |text: &mut String| {
            *text = engine_on(text, drive).unwrap_or_default();
            is_any |= !text.is_empty();
        };
        self.targets.iter_mut().for_each(&mut moved);
        if let Some(across) = &mut self.across {
            for column in &mut across.columns {
                column.targets.iter_mut().for_each(&mut moved);
            }
        }
        for (phases, _, _) in &mut self.figures {
            let checker = if is_of_e2fsck { "e2fsck on this machine" } else { "extant fsck" };
            phases.iter_mut().for_each(|phase| *phase = phase.replace(E2FSCK, checker));
        }
        is_any
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::published;
    use super::*;
    use crate::environment::Environment;
    use crate::experiment::Settings;
    use crate::run::Manifest;
    use crate::sample::Sample;
    use crate::target::LabTarget;

    fn results(experiment: &str, targets: &str, figures: &[(&str, &str, &str, f64)]) -> Results {
        let all = Experiment::built_in().into_iter();
        let chosen: Vec<Experiment> = all.filter(|one| one.name == experiment).collect();
        let targets = LabTarget::list(targets).expect("targets");
        let sample = |(number, figure): (usize, &(&str, &str, &str, f64))| Sample {
            experiment: experiment.to_owned(),
            target: figure.0.to_owned(),
            run: number as u32 + 1,
            phase: figure.1.to_owned(),
            metric: figure.2.to_owned(),
            value: figure.3,
            unit: "s".to_owned(),
            at: None,
            why: None,
        };
        Results {
            manifest: Manifest {
                experiments: chosen,
                settings: Settings { targets, ..Settings::default() },
                environment: Environment {
                    kernel: String::new(),
                    processor: String::new(),
                    processors: 2,
                    memory: 1 << 30,
                    disk: String::new(),
                    tools: Vec::new(),
                    is_root: true,
                },
                command: Vec::new(),
                version: String::new(),
                build: None,
                started: 0,
                overhead_seconds: 0.0,
                call_overhead_seconds: 0.0,
                guest: None,
            },
            samples: figures.iter().enumerate().map(sample).collect(),
        }
    }

    /// The first published table of an experiment that has figures of ours.
    fn table(results: &Results) -> Table {
        let experiment = &results.manifest.experiments[0];
        let of = published().into_iter().filter(|table| table.experiment == experiment.name);
        of.filter_map(|table| with_published(results, experiment, &table)).next().expect("a table")
    }

    fn cell<'t>(table: &'t Table, row: &str, column: &str) -> &'t str {
        let column = table.head.iter().position(|title| title == column);
        let column = column.unwrap_or_else(|| panic!("{:?}", table.head));
        let row = table.rows.iter().find(|cells| cells[0] == row).expect("a row");
        &row[column]
    }

    #[test]
    fn before_and_after_are_compared_with_the_documents() {
        let (before, after) = ("engine::-O ^64bit", "engine::-O 64bit");
        let figures =
            [(before, "cp", "elapsed_seconds", 2.0), (after, "cp", "elapsed_seconds", 3.0)];
        let found = results("copy-remove", &format!("{before},{after}"), &figures);
        let table = table(&found);
        assert_eq!(cell(&table, "elapsed", "cp before: published"), "126.70");
        assert_eq!(cell(&table, "elapsed", "cp before: engine"), "2.00");
        assert_eq!(cell(&table, "elapsed", "difference: engine"), "+50.00%");
        assert_eq!(cell(&table, "user", "cp before: engine"), "–");
        assert!(table.is_theirs(&1) && !table.is_theirs(&2) && table.is_mixed());
    }

    #[test]
    fn both_orders_of_removal_are_one_figure_in_the_documents_statistics() {
        let figures = [
            ("ext4:noatime", "rm, pool first", "elapsed_seconds", 10.0),
            ("ext4:noatime", "rm, links first", "elapsed_seconds", 20.0),
        ];
        let table = table(&results("hard-links", "ext4:noatime", &figures));
        assert_eq!(cell(&table, "average", "ext4 rm: published"), "17518.11");
        assert_eq!(cell(&table, "average", "ext4 rm: kernel"), "15.00");
        assert_eq!(cell(&table, "samples", "ext4 rm: kernel"), "2");
        assert_eq!(cell(&table, "max", "ext4 rm: kernel"), "20.00");
    }

    #[test]
    fn the_engine_on_a_drive_has_columns_of_its_own() {
        let target = "engine@hdd7200:data=writeback,nodelalloc,nomballoc:-t ext3";
        let figures = [
            (target, "write large files", "elapsed_seconds", 5.0),
            (target, "delete large files", "elapsed_seconds", 2.0),
            (target, "delete large files", "system_seconds", 0.5),
        ];
        let found = table(&results("low-memory", target, &figures));
        let title = "write large files: engine@hdd7200";
        assert_eq!(cell(&found, "data=writeback", title), "5.00");
        let of_kernel = "delete large files: engine@hdd7200";
        assert_eq!(cell(&found, "data=writeback", of_kernel), "2.00 (0.5000)");
        assert_eq!(cell(&found, "data=ordered", title), "–");
        // One without options of its own takes the figures of one with some.
        let mut found = results(
            "check-time",
            "engine@hdd7200::-I 128",
            &[("engine@hdd7200::-I 128", "extant fsck use", "check_seconds", 7.0)],
        );
        found.samples[0].at = Some(40.0);
        let found = table(&found);
        assert_eq!(cell(&found, "40", "use: extant fsck, engine@hdd7200"), "7.00");
    }
}
