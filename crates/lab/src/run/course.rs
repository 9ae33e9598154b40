//! The course of a run: which cells are done, which comes next, and the results kept of one that
//! has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use super::error::{RunError, failed};
use super::executor::{Ended, Failure, Watch};
use super::manifest::Manifest;
use super::plan::Plan;
use super::scratch::{SCRATCH, clear};
use crate::cell::Cell;
use crate::sample::{CELL_SECONDS, CellKey, OTHER_LOAD, SAMPLES, SKIPPED, Sample, Store, WHOLE};
use crate::stats::Summary;

/// The done part of a plan, and the rest.
pub(super) struct Course {
    out: PathBuf,
    store: Store,
    cells: Vec<Cell>,
    /// Cells before this one are done, given up or running.
    next: usize,
    /// Experiments and targets that could not run.
    given_up: BTreeSet<(String, String)>,
}

fn key(cell: &Cell) -> CellKey {
    (cell.experiment.name.clone(), cell.target.to_string(), cell.run)
}

/// State that all runs of a cell's target share.
fn name(cell: &Cell) -> (String, String) {
    (cell.experiment.name.clone(), cell.target.to_string())
}

impl Course {
    /// Begins, or continues with the contents of the plan's directory.
    pub(super) fn begin(plan: &Plan, isolated: bool, is_guest: bool) -> Result<Self, RunError> {
        let out = plan.out.clone();
        fs::create_dir_all(&out).map_err(failed(out.display()))?;
        for entry in fs::read_dir(&out).map_err(failed(out.display()))? {
            let entry = entry.map_err(failed(out.display()))?;
            if entry.file_name().to_str().is_some_and(is_scratch) {
                let path = entry.path();
                clear(&path).map_err(failed(path.display()))?;
            }
        }
        Manifest::keep(plan, is_guest)?;
        let store = Store::open(&out).map_err(failed(out.join(SAMPLES).display()))?;
        let cells = plan.cells(isolated);
        Ok(Self { out, store, cells, next: 0, given_up: BTreeSet::new() })
    }

    /// How many cells the plan has.
    pub(super) fn total(&self) -> usize {
        self.cells.len()
    }

    /// The next cell that is to be done, with its number.
    pub(super) fn next_cell(&mut self) -> Option<(usize, Cell)> {
        loop {
            let cell = self.cells.get(self.next)?;
            self.next += 1;
            if !self.is_done(cell) && !self.given_up.contains(&name(cell)) {
                return Some((self.next, cell.clone()));
            }
        }
    }

    /// Whether nothing is left to do: warming up is needed only for what is measured afterwards.
    fn is_done(&self, cell: &Cell) -> bool {
        if cell.run > 0 {
            return self.store.has(&key(cell));
        }
        let same = |other: &&Cell| other.run > 0 && name(other) == name(cell);
        self.cells.iter().filter(same).all(|other| self.store.has(&key(other)))
    }

    /// Estimated seconds of the cells from this number on, one after the other: from earlier cells
    /// of the same target, else of the same experiment, else all.
    pub(super) fn left(&self, number: usize) -> Option<f64> {
        let mut of_target: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
        let mut of_experiment: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let mut of_all = Vec::new();
        for sample in self.store.samples.iter().filter(|sample| sample.metric == CELL_SECONDS) {
            let (experiment, target) = (sample.experiment.as_str(), sample.target.as_str());
            of_target.entry((experiment, target)).or_default().push(sample.value);
            of_experiment.entry(experiment).or_default().push(sample.value);
            of_all.push(sample.value);
        }
        let all = Summary::of(&of_all)?.mean;
        let of = |cell: &Cell| {
            let (experiment, target) = (cell.experiment.name.as_str(), cell.target.to_string());
            let own = of_target.get(&(experiment, target.as_str()));
            let values = own.or_else(|| of_experiment.get(experiment));
            values.and_then(|values| Summary::of(values)).map_or(all, |summary| summary.mean)
        };
        let cells = self.cells[number - 1..].iter();
        Some(cells.filter(|cell| !self.is_done(cell)).map(of).sum())
    }

    /// Keeps the result of a cell, its seconds, and the processors' load by others.
    pub(super) fn keep(
        &mut self,
        cell: &Cell,
        ended: Ended,
        seconds: f64,
        load: Option<f64>,
        watch: &mut dyn Watch,
    ) -> Result<(), RunError> {
        let samples = match ended {
            Ok(mut samples) => {
                watch.ended(cell, Ok(seconds));
                if cell.run == 0 {
                    return Ok(());
                }
                samples.extend(load.map(|load| cell.sample(WHOLE, OTHER_LOAD, load)));
                samples.push(cell.sample(WHOLE, CELL_SECONDS, seconds));
                samples
            }
            Err(Failure { why, is_want_of_memory }) => {
                watch.ended(cell, Err(&why));
                // Another run of the target may have been in progress when this one was given up.
                if !is_want_of_memory && !self.given_up.insert(name(cell)) {
                    return Ok(());
                }
                vec![Sample { why: Some(why), ..cell.sample(WHOLE, SKIPPED, 1.0) }]
            }
        };
        self.store.add(samples).map_err(failed(self.out.display()))
    }

    /// All is done: the samples lie in the order of the cells, whichever ended first.
    pub(super) fn end(mut self) -> Result<(), RunError> {
        let order: Vec<CellKey> = self.cells.iter().map(key).collect();
        self.store.arrange(&order).map_err(failed(self.out.display()))
    }
}

/// Whether a name is that of a cell's directory.
fn is_scratch(name: &str) -> bool {
    name.strip_prefix(SCRATCH).is_some_and(|rest| {
        let number = rest.strip_prefix('-').unwrap_or("");
        rest.is_empty() || !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Experiment, Settings};
    use crate::target::LabTarget;

    struct Unwatched;

    impl Watch for Unwatched {
        fn begins(&mut self, _: usize, _: usize, _: &Cell, _: Option<f64>) {}
        fn phase(&mut self, _: &Cell, _: &str) {}
        fn ended(&mut self, _: &Cell, _: Result<f64, &str>) {}
        fn is_interrupted(&self) -> bool {
            false
        }
    }

    /// The targets and runs that are tried when each ends so.
    fn tried(failure: &Failure) -> Vec<String> {
        let dir = tempfile::tempdir().expect("a place for the test");
        let program = dir.path().join("program");
        fs::write(&program, "").expect("written");
        let targets = LabTarget::list("xfs,btrfs").expect("two targets");
        let of = |it: &Experiment| it.name == "low-memory";
        let plan = Plan {
            experiments: Experiment::built_in().into_iter().filter(of).collect(),
            settings: Settings { runs: Some(2), targets, ..Settings::default() },
            out: dir.path().join("out"),
            program,
            command: Vec::new(),
            guest: None,
            jobs: 1,
        };
        let mut course = Course::begin(&plan, false, false).expect("begins");
        let mut tried = Vec::new();
        while let Some((_, cell)) = course.next_cell() {
            tried.push(format!("{} {}", cell.target, cell.run));
            course.keep(&cell, Err(failure.clone()), 1.0, None, &mut Unwatched).expect("is kept");
        }
        tried
    }

    #[test]
    fn a_target_that_cannot_run_is_given_up_and_one_that_wanted_memory_is_not() {
        let cannot = Failure::from("it is missing".to_owned());
        let wanting = Failure { is_want_of_memory: true, ..cannot.clone() };
        assert_eq!(tried(&cannot), ["xfs 1", "btrfs 1"]);
        assert_eq!(tried(&wanting), ["xfs 1", "btrfs 1", "xfs 2", "btrfs 2"]);
    }

    #[test]
    fn directories_of_cells_are_known_by_their_names() {
        for name in ["scratch", "scratch-1", "scratch-12"] {
            assert!(is_scratch(name), "{name}");
        }
        for name in ["scratched", "scratch-", "scratch-a", "scratch1", "samples.jsonl"] {
            assert!(!is_scratch(name), "{name}");
        }
    }
}
