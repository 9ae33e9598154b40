//! Running experiments: which cells there are, in which order, each in a process of its own, saved
//! as they end.
//!
//! Targets are interleaved (A B A B), so that changes of the machine affect all of them alike. A
//! directory of results that was begun is continued: cells that are done stay, others are done
//! again. Cells on simulated drives may run at the same time: their runtimes have clocks of their
//! own.

mod alone;
mod concurrent;
mod course;
mod error;
mod executor;
mod here;
mod isolate;
mod manifest;
mod memory;
mod plan;
mod scratch;

use std::thread;
use std::time::{Duration, Instant};

pub use alone::Alone;
pub use error::RunError;
pub use executor::{Ended, Executor, Failure, Watch};
pub use here::Here;
pub use manifest::{MANIFEST, Manifest};
pub(crate) use manifest::{call_overhead, overhead};
pub use plan::{GuestMachine, Plan, must_be_alone};
pub(crate) use scratch::clean;

use crate::cpu::Cpu;
use course::Course;

/// How long the machine is watched before a cell.
const BEFORE: Duration = Duration::from_millis(100);

/// Does what is not done yet.
///
/// # Errors
/// Results cannot be written, the directory holds results of other settings, the run was
/// interrupted, or cells that must run alone are to run concurrently.
pub fn run(plan: &Plan, watch: &mut dyn Watch) -> Result<(), RunError> {
    match plan.jobs {
        0 | 1 => run_with(plan, &mut Here::found(), watch),
        _ => concurrent::run(plan, watch),
    }
}

/// The same, with cells run by an executor, one after the other.
///
/// # Errors
/// As [`run`].
pub fn run_with(
    plan: &Plan,
    executor: &mut dyn Executor,
    watch: &mut dyn Watch,
) -> Result<(), RunError> {
    let mut course = Course::begin(plan, executor.is_isolated(), executor.is_guest())?;
    while let Some((number, cell)) = course.next_cell() {
        watch.begins(number, course.total(), &cell, course.left(number));
        let load = other_load();
        // Leftovers of a killed cell would be in the way.
        clean(&cell);
        let start = Instant::now();
        let ended = executor.one(&cell, watch);
        clean(&cell);
        course.keep(&cell, ended?, start.elapsed().as_secs_f64(), load, watch)?;
    }
    course.end()
}

/// Load of the processors while the lab is idle, in per cent of one; `None` if it cannot be read.
fn other_load() -> Option<f64> {
    let (start, before) = (Instant::now(), Cpu::now());
    thread::sleep(BEFORE);
    let busy = Cpu::now().since(before).machine_seconds?;
    Some(100.0 * busy / start.elapsed().as_secs_f64())
}
