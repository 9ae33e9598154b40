//! Running experiments: which cells there are, in which order, each in a process of its own, saved as they end.
//!
//! Targets are interleaved (A B A B), so that what changes on the machine meanwhile meets all of them alike. A directory of results
//! that was begun is gone on with: cells that are done stay, others are done again.

mod alone;
mod isolate;
mod manifest;
mod memory;

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{fs, thread};

pub use alone::Alone;
pub use manifest::{GuestMachine, MANIFEST, Manifest};
pub(crate) use manifest::{call_overhead, overhead};

use crate::cell::{Cell, Message};
use crate::cpu::Cpu;
use crate::experiment::{Experiment, Settings};
use crate::sample::{CELL_SECONDS, MEMORY_PEAK, OTHER_LOAD, SKIPPED, Sample, Store, WHOLE};
use crate::stats::Summary;
use crate::target::{System, Target};
use isolate::Isolation;
use memory::MemoryLimit;

/// How often a cell is looked after.
const LOOK: Duration = Duration::from_millis(100);
/// How long the machine is watched before a cell.
const BEFORE: Duration = Duration::from_millis(100);

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
}

/// Whoever watches a run.
pub trait Watch {
    /// A cell begins: which of how many, and how many seconds are left, as far as can be told.
    fn begins(&mut self, number: usize, total: usize, cell: &Cell, left: Option<f64>);
    /// It does this now.
    fn phase(&mut self, phase: &str);
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
                let targets = self.targets(experiment).iter();
                // A simulated drive is as cold in every run.
                let targets = targets.filter(|it| run > 0 || it.system.drive().is_none());
                cells.extend(targets.map(|target| Cell {
                    experiment: experiment.clone(),
                    settings: self.settings.clone(),
                    target: target.clone(),
                    run,
                    scratch: self.scratch(),
                    program: self.program.clone(),
                    isolated,
                    joins: None,
                }));
            }
        }
        cells
    }

    fn targets<'p>(&'p self, experiment: &'p Experiment) -> &'p [Target] {
        match self.settings.targets.is_empty() {
            true => &experiment.targets,
            false => &self.settings.targets,
        }
    }

    fn scratch(&self) -> PathBuf {
        self.out.join("scratch")
    }
}

/// Does what is not done yet.
///
/// # Errors
/// Results cannot be kept, the directory holds results of other settings, or the run was interrupted.
pub fn run(plan: &Plan, watch: &mut dyn Watch) -> Result<(), RunError> {
    run_with(plan, &mut Here::found(), watch)
}

/// The same, with cells run by somebody else.
///
/// # Errors
/// As [`run`].
pub fn run_with(
    plan: &Plan,
    executor: &mut dyn Executor,
    watch: &mut dyn Watch,
) -> Result<(), RunError> {
    fs::create_dir_all(&plan.out).map_err(failed(plan.out.display()))?;
    clear(&plan.scratch()).map_err(failed(plan.scratch().display()))?;
    Manifest::keep(plan, executor.is_guest())?;
    let mut store = Store::open(&plan.out).map_err(failed(plan.out.display()))?;
    let cells = plan.cells(executor.is_isolated());
    let mut given_up: BTreeSet<(String, String)> = BTreeSet::new();
    for (number, cell) in (1..).zip(&cells) {
        let name = (cell.experiment.name.clone(), cell.target.to_string());
        if is_done(&store, cell, &cells) || given_up.contains(&name) {
            continue;
        }
        watch.begins(number, cells.len(), cell, left(&store, &cells[number - 1..]));
        let load = other_load();
        // What one that was killed has left would be in the way.
        clean(cell);
        let start = Instant::now();
        let ended = executor.one(cell, watch);
        clean(cell);
        let seconds = start.elapsed().as_secs_f64();
        let ended = ended?;
        let is_warm_up = cell.run == 0 && ended.is_ok();
        let samples = match ended {
            Ok(mut samples) => {
                watch.ended(cell, Ok(seconds));
                samples.extend(load.map(|load| cell.sample(WHOLE, OTHER_LOAD, load)));
                samples.push(cell.sample(WHOLE, CELL_SECONDS, seconds));
                samples
            }
            Err(why) => {
                watch.ended(cell, Err(&why));
                given_up.insert(name.clone());
                vec![Sample { why: Some(why), ..cell.sample(WHOLE, SKIPPED, 1.0) }]
            }
        };
        if !is_warm_up {
            store.add(samples).map_err(failed(plan.out.display()))?;
        }
    }
    Ok(())
}

/// Whether nothing is left to do: warming up is needed only for what is measured afterwards.
fn is_done(store: &Store, cell: &Cell, cells: &[Cell]) -> bool {
    let key = |cell: &Cell| (cell.experiment.name.clone(), cell.target.to_string(), cell.run);
    if cell.run > 0 {
        return store.has(&key(cell));
    }
    let same = |other: &&Cell| {
        other.run > 0
            && other.experiment.name == cell.experiment.name
            && other.target == cell.target
    };
    cells.iter().filter(same).all(|other| store.has(&key(other)))
}

/// Seconds that cells will take, as far as earlier ones tell: those of the same target, else of the same experiment, else all.
fn left(store: &Store, cells: &[Cell]) -> Option<f64> {
    let mean = |is_like: &dyn Fn(&Sample) -> bool| {
        let ended = store.samples.iter().filter(|sample| sample.metric == CELL_SECONDS);
        let values: Vec<f64> =
            ended.filter(|sample| is_like(sample)).map(|sample| sample.value).collect();
        Summary::of(&values).map(|summary| summary.mean)
    };
    let all = mean(&|_| true)?;
    let of = |cell: &Cell| {
        let name = &cell.experiment.name;
        let target = cell.target.to_string();
        let own = mean(&|sample| sample.experiment == *name && sample.target == target);
        own.or_else(|| mean(&|sample| sample.experiment == *name)).unwrap_or(all)
    };
    Some(cells.iter().filter(|cell| !is_done(store, cell, cells)).map(of).sum())
}

/// What processors do while we do nothing, in per cent of one; `None` where that cannot be seen.
fn other_load() -> Option<f64> {
    let (start, before) = (Instant::now(), Cpu::now());
    thread::sleep(BEFORE);
    let busy = Cpu::now().since(before).machine_seconds?;
    Some(100.0 * busy / start.elapsed().as_secs_f64())
}

/// What a cell came to: its samples, or why it has none.
pub type Ended = Result<Vec<Sample>, String>;

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
        Err(why) => return Ok(Err(why)),
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
            Ok(Message::Phase(phase)) => watch.phase(&phase),
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
    let ended = outcome.unwrap_or_else(|| {
        let last = complaint.lines().rev().find(|line| !line.trim().is_empty());
        Err(format!("the cell's process died: {}", last.unwrap_or("it said nothing")))
    });
    Ok(match limit {
        Some(limit) => with_memory(cell, &limit, ended),
        None => ended,
    })
}

/// What is to be known of a cell that had a limit of memory: how much it used, and whether the kernel ended something for want of it.
fn with_memory(cell: &Cell, limit: &MemoryLimit, ended: Ended) -> Ended {
    let killed = limit.killed();
    match ended {
        Ok(mut samples) => {
            let peak = limit.peak().map(|bytes| cell.sample(WHOLE, MEMORY_PEAK, bytes as f64));
            samples.extend(peak);
            Ok(samples)
        }
        Err(why) if killed > 0 => {
            Err(format!("{why} (for want of memory the kernel ended {killed} of its processes)"))
        }
        Err(why) => Err(why),
    }
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
