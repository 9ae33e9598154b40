//! A cell: one run of one target in one experiment, in a process of its own.
//!
//! The process has mounts and processes of its own too (see [`crate::run`]): when it ends, in whatever way, the kernel takes its mounts,
//! servers and loop devices away. It reads a [`Cell`] from standard input and says [`Message`]s on standard output, a line each; when
//! standard input ends before it does, it ends at once.

mod check_time;
mod copy_remove;
mod engine;
mod hard_links;
mod layers;
mod low_memory;
mod place;
mod recorder;
mod sequential_write;
mod tool;
mod zfs;

use std::io::{self, BufRead, Read, Write};
use std::path::PathBuf;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Settings, Work};
use crate::sample::{Sample, unit_of};
use crate::target::Target;
pub(crate) use check_time::REAL_STEPS;
pub(crate) use place::work_dir;
use recorder::Recorder;

/// What a cell is to do.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Cell {
    /// The experiment.
    pub experiment: Experiment,
    /// What the command line changes of it.
    pub settings: Settings,
    /// What is measured.
    pub target: Target,
    /// Which run; 0 warms up.
    pub run: u32,
    /// A directory of its own: for the image and the mount point.
    pub scratch: PathBuf,
    /// The command `extant`.
    pub program: PathBuf,
    /// Whether its mounts end with it. Without that it mounts nothing.
    pub isolated: bool,
    /// The members of a control group that limits memory: it joins them first.
    pub joins: Option<PathBuf>,
    /// Which of the jobs at work at once does it, from 0 on; `None`: it is alone.
    pub job: Option<usize>,
}

/// What a cell says.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// What it does now.
    Phase(String),
    /// What it measured.
    Sample(Sample),
    /// Why it ended without having done all.
    Failed(String),
    /// It has done all.
    Done,
}

/// Why a cell ends early: a sentence for the report.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct CellError(pub String);

impl CellError {
    fn new(what: impl std::fmt::Display) -> Self {
        Self(what.to_string())
    }
}

/// Names what was tried where something failed.
trait Trying<T> {
    fn trying(self, what: impl std::fmt::Display) -> Result<T, CellError>;
}

impl<T, E: std::fmt::Display> Trying<T> for Result<T, E> {
    fn trying(self, what: impl std::fmt::Display) -> Result<T, CellError> {
        self.map_err(|error| CellError(format!("{what}: {error}")))
    }
}

/// The process of a cell: what `extant lab cell` does.
///
/// # Errors
/// Standard input holds no cell, or nobody reads standard output.
pub fn serve() -> io::Result<()> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let cell: Cell = serde_json::from_str(&line)?;
    thread::spawn(|| {
        // Whoever started us has gone: nothing is left to be done.
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
    let mut heard = Ok(());
    cell.perform(&mut |message| {
        let said = serde_json::to_vec(&message).map_err(io::Error::from).and_then(|mut text| {
            text.push(b'\n');
            out.write_all(&text).and_then(|()| out.flush())
        });
        if heard.is_ok() {
            heard = said;
        }
    });
    heard
}

/// The threads of a world take turns: it costs a third of a cell's processor time to wake each next one on another processor. One that is
/// alone stays where it is. Where the system does not let it, it goes without.
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
    /// A figure of it.
    pub(crate) fn sample(&self, phase: &str, metric: &str, value: f64) -> Sample {
        Sample {
            experiment: self.experiment.name.clone(),
            target: self.target.to_string(),
            run: self.run,
            phase: phase.to_owned(),
            metric: metric.to_owned(),
            value,
            unit: unit_of(metric).to_owned(),
            at: None,
            why: None,
        }
    }

    /// Bytes of memory that it is limited to.
    pub fn memory(&self) -> Option<u64> {
        self.settings.memory.or(self.experiment.memory.map(|bytes| bytes.0))
    }

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
