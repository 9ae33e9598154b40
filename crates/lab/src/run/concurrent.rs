//! Concurrent cells, each in a process of its own. Simulated runtimes have clocks of their own, so
//! their measurements do not change when processors have other work.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, ScopedJoinHandle};
use std::time::Instant;

use super::course::Course;
use super::error::RunError;
use super::executor::{Ended, Watch};
use super::here::{POLL, one};
use super::isolate::Isolation;
use super::plan::{Plan, must_be_alone};
use super::scratch::{SCRATCH, clean};
use crate::cell::Cell;

/// A running cell; its result, and how many seconds it took.
struct AtWork<'s> {
    cell: Cell,
    thread: ScopedJoinHandle<'s, (Result<Ended, RunError>, f64)>,
}

/// Runs the cells that are not done yet, as many at once as the plan has.
pub(super) fn run(plan: &Plan, watch: &mut dyn Watch) -> Result<(), RunError> {
    if let Some(why) = must_be_alone(&plan.experiments, &plan.settings) {
        return Err(RunError::NotBeside(why));
    }
    let isolation = Isolation::found();
    let mut course = Course::begin(plan, isolation != Isolation::None, false)?;
    let stop = AtomicBool::new(false);
    let (sender, phases) = mpsc::channel();
    thread::scope(|scope| {
        let mut places: Vec<Option<AtWork<'_>>> = (0..plan.jobs).map(|_| None).collect();
        let mut outcome = Ok(());
        loop {
            for (number, place) in places.iter_mut().enumerate() {
                if let Some(at_work) = place.take_if(|at_work| at_work.thread.is_finished()) {
                    let kept = ended(at_work, &mut course, watch);
                    outcome = outcome.and(kept);
                }
                if place.is_none()
                    && outcome.is_ok()
                    && let Some((next, mut cell)) = course.next_cell()
                {
                    let left = course.left(next).map(|left| left / plan.jobs as f64);
                    watch.begins(next, course.total(), &cell, left);
                    cell.scratch = scratch(plan, number);
                    cell.job = Some(number);
                    let mut reporter = Reporter { sender: sender.clone(), stop: &stop };
                    let of_thread = cell.clone();
                    let thread =
                        scope.spawn(move || measured(&of_thread, isolation, &mut reporter));
                    *place = Some(AtWork { cell, thread });
                }
            }
            if places.iter().all(Option::is_none) {
                outcome?;
                return course.end();
            }
            if let Ok((cell, phase)) = phases.recv_timeout(POLL) {
                watch.phase(&cell, &phase);
            }
            if outcome.is_err() || watch.is_interrupted() {
                stop.store(true, Ordering::Relaxed);
            }
        }
    })
}

/// A directory for each running cell.
fn scratch(plan: &Plan, place: usize) -> PathBuf {
    match place {
        0 => plan.out.join(SCRATCH),
        _ => plan.out.join(format!("{SCRATCH}-{place}")),
    }
}

fn measured(
    cell: &Cell,
    isolation: Isolation,
    reporter: &mut Reporter<'_>,
) -> (Result<Ended, RunError>, f64) {
    let start = Instant::now();
    let ended = one(cell, isolation, reporter);
    clean(cell);
    (ended, start.elapsed().as_secs_f64())
}

fn ended(at_work: AtWork<'_>, course: &mut Course, watch: &mut dyn Watch) -> Result<(), RunError> {
    let (ended, seconds) =
        at_work.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    // Other cells ran at the same time: the processors' load is meaningless.
    course.keep(&at_work.cell, ended?, seconds, None, watch)
}

/// Messages from and to the thread of a cell.
struct Reporter<'s> {
    sender: Sender<(Cell, String)>,
    stop: &'s AtomicBool,
}

impl Watch for Reporter<'_> {
    fn begins(&mut self, _: usize, _: usize, _: &Cell, _: Option<f64>) {}

    fn phase(&mut self, cell: &Cell, phase: &str) {
        // The receiver exists as long as this thread.
        let _ = self.sender.send((cell.clone(), phase.to_owned()));
    }

    fn ended(&mut self, _: &Cell, _: Result<f64, &str>) {}

    fn is_interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
