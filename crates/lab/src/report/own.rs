//! Our figures in the documents' forms: tables, and what is drawn.

use super::bars::Bar;
use super::figures::Figure;
use super::table::{Table, number, with_interval};
use crate::compare::{Compared, compared};
use crate::experiment::{Experiment, Work};
use crate::results::{Of, Results};
use crate::sample::{FILES_DONE, MEMORY_PEAK, WHOLE};
use crate::stats::{Difference, Summary};
use crate::target::{LabTarget, System};

/// A column of a table that has a row for each target: title, phase, metric, divisor of the figure.
type Column = (&'static str, &'static str, &'static str, f64);

const COPY: [Column; 9] = [
    ("cp user, s", "cp", "user_seconds", 1.0),
    ("cp system, s", "cp", "system_seconds", 1.0),
    ("cp elapsed, s", "cp", "elapsed_seconds", 1.0),
    ("umount, s", "umount after cp", "elapsed_seconds", 1.0),
    ("rm user, s", "rm", "user_seconds", 1.0),
    ("rm system, s", "rm", "system_seconds", 1.0),
    ("rm elapsed, s", "rm", "elapsed_seconds", 1.0),
    ("umount after it, s", "umount after rm", "elapsed_seconds", 1.0),
    ("cp, all processors, s", "cp", "machine_cpu_seconds", 1.0),
];
const WRITE: [Column; 10] = [
    ("throughput, MB/s", "write", "throughput_bytes_per_second", 1e6),
    ("CPU, %", "write", "cpu_percent", 1.0),
    ("umount, s", "umount", "elapsed_seconds", 1.0),
    ("extents per file", "write", "extents_per_file", 1.0),
    ("e2fsck, s", "e2fsck", "check_seconds", 1.0),
    ("extant fsck, s", "extant fsck", "check_seconds", 1.0),
    ("xfs_repair, s", "xfs_repair", "check_seconds", 1.0),
    ("btrfs check, s", "btrfs check", "check_seconds", 1.0),
    ("rm -rf, s", "rm", "remove_seconds", 1.0),
    ("umount after it, s", "umount after rm", "elapsed_seconds", 1.0),
];
/// Writes that FUSE servers still have to do when they end are in the umounts.
const MEMORY: [&str; 6] = [
    "write large files",
    "delete large files",
    "umount after large files",
    "write many files",
    "delete many files",
    "umount after many files",
];
const LINKS: [&str; 8] = [
    "archive alone",
    "extract",
    "extract pool",
    "extract links",
    "sync",
    "rm, pool first",
    "rm, links first",
    "umount",
];
/// Bytes of a mebibyte.
const MIB: f64 = 1_048_576.0;
/// With fewer runs their extremes show more than an interval, which Student's t makes many times as
/// wide.
const FEW: usize = 3;
const CHECKERS: [&str; 5] =
    ["e2fsck", "extant fsck", "e2fsck on this machine", "xfs_repair", "btrfs check"];
const USES: [&str; 3] = ["establish", "use", "remove"];

/// Tables and figures of an experiment.
pub(super) fn of(results: &Results, experiment: &Experiment) -> (Vec<Table>, Vec<Figure>) {
    let own = Own { results, experiment, targets: results.targets(experiment) };
    let (mut tables, figures) = match experiment.work() {
        Work::CopyRemove(_) => {
            let mut tables = own.copies();
            tables.extend(own.by_target("Seconds, means with 95% intervals", &COPY));
            (tables, own.bars(&COPY))
        }
        Work::SequentialWrite(_) => {
            (own.by_target("Means with 95% intervals", &WRITE), own.bars(&WRITE))
        }
        Work::LowMemory(_) => own.low_memory(),
        Work::HardLinks(_) => own.hard_links(),
        Work::CheckTime(_) => own.check_time(),
    };
    tables.extend(own.pairs());
    (tables, figures)
}

struct Own<'r> {
    results: &'r Results,
    experiment: &'r Experiment,
    targets: Vec<String>,
}

impl Own<'_> {
    fn of<'o>(&'o self, target: &'o str, phase: &'o str, metric: &'o str) -> Of<'o> {
        Of { experiment: &self.experiment.name, target, phase, metric }
    }

    fn summary(&self, target: &str, phase: &str, metric: &str) -> Option<Summary> {
        self.results.summary(&self.of(target, phase, metric))
    }

    fn table(&self, caption: &str, head: &[&str]) -> Table {
        Table::ours(&self.experiment.name, caption, head)
    }

    /// Columns that some target has figures for.
    fn filled<'c>(&self, columns: &'c [Column]) -> Vec<&'c Column> {
        let is_filled = |(_, phase, metric, _): &&Column| {
            self.targets.iter().any(|target| self.summary(target, phase, metric).is_some())
        };
        columns.iter().filter(is_filled).collect()
    }

    /// A row for each target that ran.
    fn by_target(&self, caption: &str, columns: &[Column]) -> Vec<Table> {
        let columns = self.filled(columns);
        let mut head = vec!["target", "runs"];
        head.extend(columns.iter().map(|(title, ..)| *title));
        let mut table = self.table(caption, &head);
        for target in &self.targets {
            let found = columns.iter().map(|(_, phase, metric, unit)| {
                self.summary(target, phase, metric).map(|summary| scaled(&summary, *unit))
            });
            let found: Vec<Option<Summary>> = found.collect();
            let Some(runs) = found.iter().flatten().map(|summary| summary.count).max() else {
                continue;
            };
            let mut row = vec![target.clone(), runs.to_string()];
            row.extend(found.iter().map(|summary| cell(summary.as_ref())));
            table.rows.push(row);
        }
        vec![table]
    }

    fn bars(&self, columns: &[Column]) -> Vec<Figure> {
        let bars = self.filled(columns).into_iter().filter_map(|(title, phase, metric, unit)| {
            self.bars_of(&format!("{}: {phase}", self.experiment.name), title, phase, metric, *unit)
        });
        bars.collect()
    }

    fn bars_of(
        &self,
        title: &str,
        axis: &str,
        phase: &str,
        metric: &str,
        unit: f64,
    ) -> Option<Figure> {
        let found = |target: &String| {
            Some((target.clone(), scaled(&self.summary(target, phase, metric)?, unit)))
        };
        let found: Vec<(String, Summary)> = self.targets.iter().filter_map(found).collect();
        let least = found.iter().map(|(_, summary)| summary.count).min()?;
        let bar = |(name, summary): (String, Summary)| Bar {
            name,
            mean: summary.mean,
            whisker: match summary.student_interval() {
                // Measured values are never below zero.
                Some(half) if least >= FEW => ((summary.mean - half).max(0.0), summary.mean + half),
                _ => (summary.min, summary.max),
            },
        };
        let whiskers = match least {
            FEW.. => "; whiskers: 95% interval",
            2.. => "; whiskers: least and most of the runs",
            _ => "",
        };
        let bars = found.into_iter().map(bar).collect();
        let (title, axis) = (title.to_owned(), format!("{axis}{whiskers}"));
        Some(Figure::Bars { title, axis, bars })
    }

    /// Document 001's: elapsed seconds, followed by those in the kernel.
    fn low_memory(&self) -> (Vec<Table>, Vec<Figure>) {
        let mut head = vec!["target"];
        head.extend(MEMORY);
        head.push("most memory, MiB");
        let caption = "Elapsed seconds (in the kernel, by the process; all processors' seconds)";
        let mut table = self.table(caption, &head);
        for target in &self.targets {
            let mut row = vec![target.clone()];
            row.extend(MEMORY.iter().map(|phase| {
                let figure = |metric| self.summary(target, phase, metric);
                let Some(elapsed) = figure("elapsed_seconds") else { return "–".to_owned() };
                let mean = |summary: Option<Summary>| cell_mean(summary.as_ref());
                let kernel = mean(figure("system_seconds"));
                let all = mean(figure("machine_cpu_seconds"));
                format!("{} ({kernel}; {all})", with_interval(&elapsed))
            }));
            let is_any = row[1..].iter().any(|cell| cell != "–");
            let peak = self.summary(target, WHOLE, MEMORY_PEAK);
            row.push(cell_mean(peak.map(|peak| scaled(&peak, MIB)).as_ref()));
            if is_any {
                table.rows.push(row);
            }
        }
        let name = &self.experiment.name;
        let bars = MEMORY.iter().filter_map(|phase| {
            self.bars_of(&format!("{name}: {phase}"), "seconds", phase, "elapsed_seconds", 1.0)
        });
        (vec![table], bars.collect())
    }

    /// Document 002's: a table for each target.
    fn hard_links(&self) -> (Vec<Table>, Vec<Figure>) {
        let name = &self.experiment.name;
        let mut tables = Vec::new();
        for target in &self.targets {
            let columns: Vec<(&str, Summary)> = LINKS
                .iter()
                .filter_map(|phase| Some((*phase, self.summary(target, phase, "elapsed_seconds")?)))
                .collect();
            if columns.is_empty() {
                continue;
            }
            let mut head = vec![""];
            head.extend(columns.iter().map(|(phase, _)| *phase));
            let mut table = self.table(&format!("{target}: seconds"), &head);
            for (title, row) in STATISTICS {
                let mut cells = vec![title.to_owned()];
                cells.extend(columns.iter().map(|(_, summary)| row(summary)));
                table.rows.push(cells);
            }
            for (title, metric, unit) in [
                ("median call, ms", "stall_p50_seconds", 1e-3),
                ("99% of calls, ms", "stall_p99_seconds", 1e-3),
                ("99.9% of calls, ms", "stall_p999_seconds", 1e-3),
                ("longest call, ms", "stall_seconds_max", 1e-3),
                ("links that failed", "links_failed", 1.0),
            ] {
                let mut cells = vec![title.to_owned()];
                cells.extend(columns.iter().map(|(phase, _)| {
                    let summary = self.summary(target, phase, metric);
                    cell_mean(summary.map(|summary| scaled(&summary, unit)).as_ref())
                }));
                if cells[1..].iter().any(|cell| cell != "–") {
                    table.rows.push(cells);
                }
            }
            tables.push(table);
        }
        let bars = LINKS.iter().skip(1).filter_map(|phase| {
            self.bars_of(&format!("{name}: {phase}"), "seconds", phase, "elapsed_seconds", 1.0)
        });
        let mut figures: Vec<Figure> = bars.collect();
        for (phase, what) in
            [("extract", "done"), ("rm, pool first", "removed"), ("rm, links first", "removed")]
        {
            let line = |target: &String| {
                let points = self.results.curve(&self.of(target, phase, FILES_DONE));
                (!points.is_empty()).then(|| (target.clone(), points))
            };
            let lines: Vec<_> = self.targets.iter().filter_map(line).collect();
            if !lines.is_empty() {
                let axes = ["seconds".to_owned(), format!("names {what} so far")];
                figures.push(Figure::Curves { title: format!("{name}: {phase}"), axes, lines });
            }
        }
        (tables, figures)
    }

    /// Document 004's: by per cent of inodes in use.
    fn check_time(&self) -> (Vec<Table>, Vec<Figure>) {
        let (mut tables, mut figures) = (Vec::new(), Vec::new());
        for target in &self.targets {
            let mut lines = Vec::new();
            for checker in CHECKERS {
                let phases: Vec<String> =
                    USES.iter().map(|which| format!("{checker} {which}")).collect();
                let curve = |phase: &String, metric: &str| {
                    self.results.by_place(&self.of(target, phase, metric))
                };
                let found: Vec<Vec<(f64, Summary)>> =
                    phases.iter().map(|phase| curve(phase, "check_seconds")).collect();
                if found.iter().all(Vec::is_empty) {
                    continue;
                }
                let mut head = vec!["% in use"];
                head.extend(USES);
                let caption = format!("{checker} of what {target} filled: seconds");
                let mut table = self.table(&caption, &head);
                for (at, _) in &found[1] {
                    let mut row = vec![at.to_string()];
                    row.extend(found.iter().map(|places| at_place(places, *at)));
                    table.rows.push(row);
                }
                tables.push(table);
                tables.extend(self.passes(target, checker, &phases));
                for (phase, places) in phases.iter().zip(found) {
                    let points = places.iter().map(|(at, summary)| (*at, summary.mean));
                    if !places.is_empty() {
                        lines.push((phase.clone(), points.collect::<Vec<_>>()));
                    }
                }
            }
            if !lines.is_empty() {
                let axes = ["% of inodes in use", "seconds"].map(str::to_owned);
                let title = format!("{}: filled by {target}", self.experiment.name);
                figures.push(Figure::Curves { title, axes, lines });
            }
        }
        (tables, figures)
    }

    /// Each pass's seconds: establish, then use.
    fn passes(&self, target: &str, checker: &str, phases: &[String]) -> Option<Table> {
        let mut head = vec!["% in use".to_owned()];
        let mut columns = Vec::new();
        for (which, phase) in USES.iter().zip(phases).take(2) {
            for pass in 1..=5 {
                head.push(format!("pass {pass} ({which})"));
                let metric = format!("pass{pass}_seconds");
                columns.push(self.results.by_place(&self.of(target, phase, &metric)));
            }
        }
        let places: Vec<f64> = columns.first()?.iter().map(|(at, _)| *at).collect();
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        let mut table = self.table(&format!("{checker} of {target} by pass: seconds"), &head);
        for at in places {
            let mut row = vec![at.to_string()];
            row.extend(columns.iter().map(|column| at_place(column, at)));
            table.rows.push(row);
        }
        (!table.rows.is_empty()).then_some(table)
    }

    /// Document 000's: user, system and elapsed seconds of cp and rm, before and after.
    fn copies(&self) -> Vec<Table> {
        let head =
            ["", "cp before", "cp after", "difference", "rm before", "rm after", "difference"];
        let pair = |[before, after]: &[LabTarget; 2]| {
            let [before, after] = [before, after].map(ToString::to_string);
            let mut table =
                self.table(&format!("Seconds. Before: {before}. After: {after}"), &head);
            for (title, metric) in [
                ("user", "user_seconds"),
                ("system", "system_seconds"),
                ("elapsed", "elapsed_seconds"),
                ("all processors", "machine_cpu_seconds"),
            ] {
                let mut row = vec![title.to_owned()];
                for phase in ["cp", "rm"] {
                    let figure = |target| self.summary(target, phase, metric);
                    let (first, second) = (figure(&before)?, figure(&after)?);
                    let difference = Difference::between(&first, &second);
                    row.extend([cell(Some(&first)), cell(Some(&second))]);
                    row.push(difference.map_or("–".to_owned(), difference_text));
                }
                table.rows.push(row);
            }
            Some(table)
        };
        self.compared().iter().filter_map(pair).collect()
    }

    /// The experiment's pairs, and those of the engine's on each simulated drive that was measured;
    /// of two targets, both.
    fn compared(&self) -> Vec<[LabTarget; 2]> {
        let mut pairs = self.experiment.compare.clone();
        let measured: Vec<LabTarget> =
            self.targets.iter().filter_map(|text| text.parse().ok()).collect();
        if let [before, after] = &measured[..]
            && !pairs.iter().any(|[one, other]| (one, other) == (before, after))
        {
            pairs.push([before.clone(), after.clone()]);
        }
        for drive in
            measured.into_iter().map(|target| target.system).filter(|it| it.drive().is_some())
        {
            let of_engine =
                |pair: &&[LabTarget; 2]| pair.iter().all(|it| it.system == System::Engine);
            let on = |target: &LabTarget| LabTarget { system: drive.clone(), ..target.clone() };
            let moved = self.experiment.compare.iter().filter(of_engine);
            let moved: Vec<[LabTarget; 2]> = moved.map(|[a, b]| [on(a), on(b)]).collect();
            pairs
                .extend(moved.into_iter().filter(|pair| !pairs.contains(pair)).collect::<Vec<_>>());
        }
        pairs
    }

    /// All that was measured of both: before, after, difference.
    fn pairs(&self) -> Vec<Table> {
        let results = self.results;
        let pair = |[before, after]: &[LabTarget; 2]| {
            let (before, after) = (before.to_string(), after.to_string());
            let rows = compared((results, &before), (results, &after), &self.experiment.name);
            if rows.is_empty() {
                return None;
            }
            let caption = format!("Before: {before}. After: {after}");
            let head = ["phase", "metric", "before", "after", "difference (95% interval)"];
            let mut table = self.table(&caption, &head);
            table.rows = rows.iter().map(difference_row).collect();
            Some(table)
        };
        self.compared().iter().filter_map(pair).collect()
    }
}

/// A figure before and after, and how it differs.
fn difference_row(row: &Compared) -> Vec<String> {
    vec![
        row.phase_text(),
        row.metric.clone(),
        with_interval(&row.first),
        with_interval(&row.second),
        row.difference_text(),
    ]
}

/// A row of document 002's tables.
type Statistic = (&'static str, fn(&Summary) -> String);

/// Its tables' rows; the interval as it should be, and as it has it.
pub(super) const STATISTICS: [Statistic; 10] = [
    ("samples", |summary| summary.count.to_string()),
    ("average", |summary| number(summary.mean)),
    ("min", |summary| number(summary.min)),
    ("max", |summary| number(summary.max)),
    ("stddev", |summary| optional(summary.deviation)),
    ("stddev %", |summary| percent(summary.deviation_percent())),
    ("avg ± 95% (Student's t)", |summary| optional(summary.student_interval())),
    ("avg ± 95% (the document's)", |summary| optional(summary.published_interval())),
    ("avg ± % (Student's t)", |summary| {
        percent(summary.student_interval().map(|half| summary.percent(half)))
    }),
    ("avg ± % (the document's)", |summary| {
        percent(summary.published_interval().map(|half| summary.percent(half)))
    }),
];

/// A difference in per cent, with its interval.
pub(super) fn difference_text(difference: Difference) -> String {
    match difference.interval_percent {
        Some(half) => format!("{:+.2}% ± {half:.2}%", difference.percent),
        None => format!("{:+.2}%", difference.percent),
    }
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), number)
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.3}%"))
}

fn cell(summary: Option<&Summary>) -> String {
    summary.map_or_else(|| "–".to_owned(), with_interval)
}

fn cell_mean(summary: Option<&Summary>) -> String {
    summary.map_or_else(|| "–".to_owned(), |summary| number(summary.mean))
}

fn at_place(places: &[(f64, Summary)], at: f64) -> String {
    cell(places.iter().find(|(place, _)| *place == at).map(|(_, summary)| summary))
}

/// In another unit.
pub(super) fn scaled(summary: &Summary, unit: f64) -> Summary {
    Summary {
        count: summary.count,
        mean: summary.mean / unit,
        min: summary.min / unit,
        max: summary.max / unit,
        deviation: summary.deviation.map(|deviation| deviation / unit),
    }
}
