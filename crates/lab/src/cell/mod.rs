//! A cell: one run of one target in one experiment, in a process of its own.
//!
//! The process has mounts and processes of its own too (see [`crate::run`]): when it ends, in
//! whatever way, the kernel removes its mounts, servers and loop devices. It reads a [`Cell`] from
//! standard input and writes [`Message`]s to standard output, a line each; when standard input ends
//! before it does, it ends at once.

mod check_time;
mod copy_remove;
mod engine;
mod error;
mod hard_links;
mod layers;
mod low_memory;
mod protocol;
mod recorder;
mod sequential_write;
mod tool;
mod volume;
mod zfs;

use std::io::{self, BufRead, Read, Write};
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::experiment::Work;
pub(crate) use check_time::REAL_STEPS;
pub use error::CellError;
pub use protocol::{Cell, Message};
use recorder::Recorder;
pub(crate) use volume::work_dir;

/// The process of a cell: what `extant lab cell` does.
///
/// # Errors
/// Standard input does not hold a cell, or standard output is closed.
pub fn serve() -> io::Result<()> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let cell: Cell = serde_json::from_str(&line)?;
    thread::spawn(|| {
        // The parent process has exited: nothing is left to do.
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    if let Some(members) = &cell.joins {
        std::fs::write(members, "0")?;
    }
    if cell.target.system.drive().is_some() {
        stay_on_one_processor(cell.job);
    }
    let mut out = io::stdout().lock();
    let mut sent = Ok(());
    cell.perform(&mut |message| {
        let said = serde_json::to_vec(&message).map_err(io::Error::from).and_then(|mut text| {
            text.push(b'\n');
            out.write_all(&text).and_then(|()| out.flush())
        });
        if sent.is_ok() {
            sent = said;
        }
    });
    sent
}

/// The threads of a simulated runtime take turns: waking each next one on another processor costs a
/// third of a cell's processor time. One that runs alone stays on its processor. If the system does
/// not allow it, threads are not bound.
fn stay_on_one_processor(job: Option<usize>) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|number| allowed.is_set(*number)).collect();
    let number = match job {
        Some(job) if !all.is_empty() => all[job % all.len()],
        _ => sched_getcpu(),
    };
    if number < CpuSet::MAX_CPU {
        let mut one = CpuSet::new();
        one.set(number);
        let _ = sched_setaffinity(None, &one);
    }
}

impl Cell {
    /// Does it, in this process.
    pub fn perform(&self, say: &mut dyn FnMut(Message)) {
        let mut recorder = Recorder::new(self, say);
        let outcome = match self.experiment.work() {
            Work::CopyRemove(work) => copy_remove::run(self, work, &mut recorder),
            Work::LowMemory(work) => low_memory::run(self, work, &mut recorder),
            Work::HardLinks(work) => hard_links::run(self, work, &mut recorder),
            Work::CheckTime(work) => check_time::run(self, work, &mut recorder),
            Work::SequentialWrite(work) => sequential_write::run(self, work, &mut recorder),
        };
        say(match outcome {
            Ok(()) => Message::Done,
            Err(error) => Message::Failed(error.0),
        });
    }
}
