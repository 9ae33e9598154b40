//! Running experiments: which cells there are, in which order, each in a process of its own, saved as they end.
//!
//! Targets are interleaved (A B A B), so that what changes on the machine meanwhile meets all of them alike. A directory of results
//! that was begun is gone on with: cells that are done stay, others are done again. Cells on simulated drives may be at work beside each
//! other: their worlds have clocks of their own.

mod alone;
mod beside;
mod course;
mod isolate;
mod manifest;
mod memory;

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{fs, thread};

pub use alone::Alone;
pub use manifest::{GuestMachine, MANIFEST, Manifest};
pub(crate) use manifest::{call_overhead, overhead};

use crate::cell::{Cell, Message, REAL_STEPS};
use crate::cpu::Cpu;
use crate::experiment::{Experiment, Settings, Work};
use crate::sample::{MEMORY_PEAK, Sample, WHOLE};
use crate::target::{System, Target};
use course::Course;
use isolate::Isolation;
use memory::MemoryLimit;

/// How often a cell is looked after.
const LOOK: Duration = Duration::from_millis(100);
/// How long the machine is watched before a cell.
const BEFORE: Duration = Duration::from_millis(100);

/// Where a cell has its image and its mount point, in the directory of results. Those beside it have a number behind the name.
const SCRATCH: &str = "scratch";

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The experiments, in their order.
    pub experiments: Vec<Experiment>,
    /// What is changed of them.
    pub settings: Settings,
    /// Where results go.
    pub out: PathBuf,
    /// The command `extant`.
    pub program: PathBuf,
    /// The command line, for the report.
    pub command: Vec<String>,
    /// The guest that cells run in, if they do.
    pub guest: Option<GuestMachine>,
    /// How many cells are at work at once on this machine: more than one where [`must_be_alone`] has nothing against it.
    pub jobs: usize,
}

/// Whoever watches a run.
pub trait Watch {
    /// A cell begins: which of how many, and how many seconds are left, as far as can be told.
    fn begins(&mut self, number: usize, total: usize, cell: &Cell, left: Option<f64>);
    /// One that is at work does this now.
    fn phase(&mut self, cell: &Cell, phase: &str);
    /// It ended, after so many seconds, or could not run.
    fn ended(&mut self, cell: &Cell, outcome: Result<f64, &str>);
    /// Whether to stop now.
    fn is_interrupted(&self) -> bool;
}

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The results could not be kept, or no process started.
    #[error("{what}: {source}")]
    Io {
        /// The file or program.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// The directory holds results of something else.
    #[error("{}: it holds results of other {what}; give another --out, or the same {what}", path.display())]
    Other {
        /// The directory.
        path: PathBuf,
        /// What is different.
        what: &'static str,
    },
    /// [`must_be_alone`].
    #[error("{0}")]
    NotBeside(String),
    /// There is an [`Alone`] for it.
    #[error("{}: another run is at work in it", path.display())]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// [`Watch::is_interrupted`].
    #[error("interrupted: the same command goes on where it stopped")]
    Interrupted,
}

fn failed<'w>(what: impl std::fmt::Display + 'w) -> impl FnOnce(io::Error) -> RunError + 'w {
    move |source| RunError::Io { what: what.to_string(), source }
}

impl Plan {
    /// All cells in their order; run 0 warms up.
    fn cells(&self, isolated: bool) -> Vec<Cell> {
        let mut cells = Vec::new();
        for experiment in &self.experiments {
            let runs = self.settings.runs.unwrap_or(experiment.runs);
            let warm_ups = (0..experiment.warm_up).map(|_| 0);
            for run in warm_ups.chain(1..=runs) {
                let targets = targets(experiment, &self.settings).iter();
                // A simulated drive is as cold in every run.
                let targets = targets.filter(|it| run > 0 || it.system.drive().is_none());
                cells.extend(targets.map(|target| Cell {
                    experiment: experiment.clone(),
                    settings: self.settings.clone(),
                    target: target.clone(),
                    run,
                    scratch: self.out.join(SCRATCH),
                    program: self.program.clone(),
                    isolated,
                    joins: None,
                    job: None,
                }));
            }
        }
        cells
    }
}

/// Why cells must not be at work beside each other: what this machine's clock measures would take longer.
pub fn must_be_alone(experiments: &[Experiment], settings: &Settings) -> Option<String> {
    experiments.iter().find_map(|experiment| {
        let name = &experiment.name;
        let is_real = |target: &&Target| target.system.drive().is_none();
        if let Some(target) = targets(experiment, settings).iter().find(is_real) {
            return Some(format!(
                "{name} on {target} is measured by this machine's clock: only cells on simulated drives (engine@DRIVE) can be at work at once"
            ));
        }
        let Work::CheckTime(work) = experiment.work() else { return None };
        let percent = REAL_STEPS.iter().find(|percent| work.steps.contains(percent))?;
        Some(format!(
            "{name}: at {percent}% e2fsck is measured by this machine's clock, beside which nothing can be at work"
        ))
    })
}

/// What is measured in an experiment.
fn targets<'e>(experiment: &'e Experiment, settings: &'e Settings) -> &'e [Target] {
    match settings.targets.is_empty() {
        true => &experiment.targets,
        false => &settings.targets,
    }
}

/// Does what is not done yet.
///
/// # Errors
/// Results cannot be kept, the directory holds results of other settings, the run was interrupted, or cells are to be at work
/// beside others that must not.
pub fn run(plan: &Plan, watch: &mut dyn Watch) -> Result<(), RunError> {
    match plan.jobs {
        0 | 1 => run_with(plan, &mut Here::found(), watch),
        _ => beside::run(plan, watch),
    }
}

/// The same, with cells run by somebody else, one after the other.
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
        // What one that was killed has left would be in the way.
        clean(&cell);
        let start = Instant::now();
        let ended = executor.one(&cell, watch);
        clean(&cell);
        course.keep(&cell, ended?, start.elapsed().as_secs_f64(), load, watch)?;
    }
    course.end()
}

/// What processors do while we do nothing, in per cent of one; `None` where that cannot be seen.
fn other_load() -> Option<f64> {
    let (start, before) = (Instant::now(), Cpu::now());
    thread::sleep(BEFORE);
    let busy = Cpu::now().since(before).machine_seconds?;
    Some(100.0 * busy / start.elapsed().as_secs_f64())
}

/// What a cell came to: its samples, or why it has none.
pub type Ended = Result<Vec<Sample>, Failure>;

/// Why a cell came to nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// In words.
    pub why: String,
    /// For want of memory the kernel ended something: another run may have enough. Without, no run of the target is expected to go
    /// better.
    pub is_want_of_memory: bool,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self { why, is_want_of_memory: false }
    }
}

/// Whoever runs cells.
pub trait Executor {
    /// Whether mounts end with a cell.
    fn is_isolated(&self) -> bool;
    /// Whether it is another machine than this one.
    fn is_guest(&self) -> bool;
    /// Runs one.
    ///
    /// # Errors
    /// No cell can be run any more, or [`Watch::is_interrupted`].
    fn one(&mut self, cell: &Cell, watch: &mut dyn Watch) -> Result<Ended, RunError>;
}

/// This machine: a process for each cell.
#[derive(Debug)]
pub struct Here {
    isolation: Isolation,
}

impl Here {
    /// With the best isolation that works.
    pub fn found() -> Self {
        Self { isolation: Isolation::found() }
    }
}

impl Executor for Here {
    fn is_isolated(&self) -> bool {
        self.isolation != Isolation::None
    }

    fn is_guest(&self) -> bool {
        false
    }

    fn one(&mut self, cell: &Cell, watch: &mut dyn Watch) -> Result<Ended, RunError> {
        one(cell, self.isolation, watch)
    }
}

/// Runs a cell in its process.
fn one(cell: &Cell, isolation: Isolation, watch: &mut dyn Watch) -> Result<Ended, RunError> {
    fs::create_dir_all(&cell.scratch).map_err(failed(cell.scratch.display()))?;
    let limit = match cell.memory().map(MemoryLimit::new).transpose() {
        Ok(limit) => limit,
        Err(why) => return Ok(Err(why.into())),
    };
    let mut command = isolation.command(&cell.program);
    command.args(["lab", "cell"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed(cell.program.display()))?;
    let mut orders = child.stdin.take().expect("it was asked for");
    let said = child.stdout.take().expect("it was asked for");
    let complained = child.stderr.take().expect("it was asked for");
    let complaints = thread::spawn(move || io::read_to_string(complained).unwrap_or_default());
    let (sender, messages) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(said).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let joined = Cell { joins: limit.as_ref().map(MemoryLimit::members), ..cell.clone() };
    let mut order = serde_json::to_vec(&joined).expect("a cell is plain data");
    order.push(b'\n');
    // A child that has ended already is told of below.
    let _ = orders.write_all(&order);
    let mut samples = Vec::new();
    let outcome = loop {
        if watch.is_interrupted() {
            end(&mut child);
            return Err(RunError::Interrupted);
        }
        let line = match messages.recv_timeout(LOOK) {
            Ok(line) => line,
            Err(mpsc::RecvTimeoutError::Timeout) => continue,
            Err(mpsc::RecvTimeoutError::Disconnected) => break None,
        };
        match serde_json::from_str(&line) {
            Ok(Message::Phase(phase)) => watch.phase(cell, &phase),
            Ok(Message::Sample(sample)) => samples.push(sample),
            Ok(Message::Failed(why)) => break Some(Err(why)),
            Ok(Message::Done) => break Some(Ok(samples)),
            Err(error) => break Some(Err(format!("the cell said {line:?}: {error}"))),
        }
    };
    drop(orders);
    if outcome.is_some() {
        let _ = child.wait();
    } else {
        end(&mut child);
    }
    let complaint = complaints.join().unwrap_or_default();
    let killed = limit.as_ref().map_or(0, MemoryLimit::killed);
    let ended = outcome.unwrap_or_else(|| {
        let last = complaint.lines().rev().find(|line| !line.trim().is_empty());
        Err(match last.filter(|_| killed == 0) {
            Some(last) => format!("the cell's process died: {last}"),
            None => "the cell's process died".to_owned(),
        })
    });
    Ok(match (ended, limit) {
        (Ok(samples), None) => Ok(samples),
        (Ok(mut samples), Some(limit)) => {
            let peak = limit.peak().map(|bytes| cell.sample(WHOLE, MEMORY_PEAK, bytes as f64));
            samples.extend(peak);
            Ok(samples)
        }
        (Err(why), _) if killed > 0 => Err(Failure {
            why: format!(
                "run {}: {why} (for want of memory the kernel ended {killed} of its processes)",
                cell.run
            ),
            is_want_of_memory: true,
        }),
        (Err(why), _) => Err(why.into()),
    })
}

/// Ends a process that may have ended already; with it go its mounts and its children.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// Takes away what a cell leaves on the disk.
pub(crate) fn clean(cell: &Cell) {
    if let System::Dir(path) = &cell.target.system {
        let _ = fs::remove_dir_all(crate::cell::work_dir(path));
    }
    let _ = clear(&cell.scratch);
}

/// Removes the image and the mount point: file by file, as something that is mounted must never be emptied.
fn clear(scratch: &Path) -> io::Result<()> {
    let missing_is_fine = |outcome: io::Result<()>| match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    };
    missing_is_fine(fs::remove_file(scratch.join("image")))?;
    missing_is_fine(fs::remove_file(scratch.join("image.words")))?;
    missing_is_fine(fs::remove_dir(scratch.join("mount")))?;
    missing_is_fine(fs::remove_dir(scratch))
}
