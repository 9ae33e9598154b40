//! `extant lab run`: measures, and keeps every sample.

use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cell::Cell;
use crate::experiment::{Bytes, Experiment, MOST_FACTOR, MOST_RUNS, Settings};
use crate::results::Results;
use crate::run::{self, Alone, Plan, RunError, Watch};
use crate::sample::CELL_SECONDS;
use crate::target::LabTarget;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::console::{At, CommandError, Console, say_on_stderr};

/// Bytes of a file of experiments, at most.
const LONGEST_EXPERIMENTS: u64 = 16 << 20;

/// Where results go, unless another directory is given.
pub(super) const OUT: &str = "lab-results";

/// Run experiments; an interrupted run is resumed
///
/// TARGET is engine (the library in process), engine@DRIVE (the same on a simulated drive: hdd7200,
/// hdd7200-2005, ssd-sata, nvme), extant (our mount), ext2, ext3, ext4, xfs, btrfs, jfs, nilfs2
/// (the kernel's), zfs-fuse, fuse2fs or dir:PATH. All but the last may be followed by
/// :MOUNT-OPTIONS and :MKFS-OPTIONS: `engine:data=writeback,nodelalloc:-I 256`. On a --device the
/// kernel's names may be followed by +linear, +crypt, +crypt-xts: `ext4+linear+crypt`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Output directory: samples.jsonl, run.json
    #[arg(long, value_name = "DIR", default_value = OUT)]
    out: PathBuf,
    #[command(flatten)]
    changes: Changes,
    /// Number of cells (runs of a target) at once, all of them on simulated drives; results do not
    /// depend on it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: u16,
    /// Names of experiments, or all
    #[arg(value_name = "EXPERIMENT", required = true)]
    names: Vec<String>,
}

/// Changes of experiments by the command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Changes {
    /// Add the experiments of a TOML file; one with the name of a built-in replaces it
    #[arg(long, value_name = "FILE")]
    experiments: Option<PathBuf>,
    /// Factor for sizes of files and of the volumes they fill; 1 is the document's. Files of
    /// check-time are empty
    #[arg(long, value_name = "FACTOR", value_parser = factor, allow_negative_numbers = true)]
    sizes: Option<f64>,
    /// Factor for numbers of files, threads, links and inodes
    #[arg(long, value_name = "FACTOR", value_parser = factor, allow_negative_numbers = true)]
    counts: Option<f64>,
    /// Number of runs of each target
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_RUNS)))]
    runs: Option<u32>,
    /// Targets, separated by commas
    #[arg(long, value_name = "TARGET,...")]
    targets: Vec<String>,
    /// Limit of memory of each target, page cache and servers included
    #[arg(long, value_name = "SIZE")]
    memory: Option<Bytes>,
    /// Seed of random choices
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Duration of sequential-write
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    time: Option<f64>,
    /// Percentages of inodes in use at which check-time checks, separated by commas
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', allow_negative_numbers = true)]
    steps: Vec<f64>,
    /// Block device to use instead of a file; its contents are lost
    #[arg(long, value_name = "DEVICE")]
    device: Option<PathBuf>,
}

/// Parses a scale factor.
fn factor(text: &str) -> Result<f64, String> {
    above_zero(text, MOST_FACTOR)
}

/// A time: a year at most.
fn seconds(text: &str) -> Result<f64, String> {
    above_zero(text, 365.0 * 24.0 * 3600.0)
}

fn above_zero(text: &str, most: f64) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| *number > 0.0 && *number <= most);
    number.ok_or_else(|| format!("expected a positive number up to {most}"))
}

impl Changes {
    /// Those of these names.
    pub(crate) fn chosen(&self, names: &[String]) -> Result<Vec<Experiment>, CommandError> {
        let chosen = chosen(&experiments(self.experiments.as_deref())?, names)?;
        if self.steps.is_empty() {
            return Ok(chosen);
        }
        let with_steps = |experiment: Experiment| experiment.with_steps(&self.steps);
        chosen.into_iter().map(with_steps).collect::<Result<_, _>>().map_err(CommandError::usage)
    }

    /// As the lab takes them.
    pub(crate) fn settings(&self) -> Result<Settings, CommandError> {
        let mut targets = Vec::new();
        for text in &self.targets {
            targets.extend(LabTarget::list(text).map_err(CommandError::usage)?);
        }
        if let Some(device) = &self.device
            && !std::fs::metadata(device).at(device)?.file_type().is_block_device()
        {
            return Err(CommandError::usage(format_args!(
                "{}: not a block device",
                device.display()
            )));
        }
        let usual = Settings::default();
        Ok(Settings {
            sizes: self.sizes.unwrap_or(usual.sizes),
            counts: self.counts.unwrap_or(usual.counts),
            runs: self.runs,
            targets,
            memory: self.memory.map(|bytes| bytes.0),
            seed: self.seed.unwrap_or(usual.seed),
            time: self.time,
            device: self.device.clone(),
        })
    }

    /// Reports the options that change nothing of any of the experiments.
    pub(crate) fn warn(
        &self,
        experiments: &[Experiment],
        console: &mut Console<'_>,
    ) -> Result<(), CommandError> {
        if self.time.is_some() && experiments.iter().all(|one| one.sequential_write.is_none()) {
            console.warn("--time has no effect on these experiments: none is timed")?;
        }
        let is_sized = self.sizes.is_some_and(|factor| factor != Settings::default().sizes);
        if is_sized && experiments.iter().all(|one| one.check_time.is_some()) {
            console.warn("--sizes has no effect on these experiments: files are empty")?;
        }
        if !self.steps.is_empty() && experiments.iter().all(|one| one.check_time.is_none()) {
            console.warn("--steps has no effect on these experiments")?;
        }
        Ok(())
    }
}

/// The built-in experiments, and those of a file instead or as well.
pub(crate) fn experiments(file: Option<&Path>) -> Result<Vec<Experiment>, CommandError> {
    let mut all = Experiment::built_in();
    if let Some(file) = file {
        let mut text = String::new();
        let opened = std::fs::File::open(file).at(file)?;
        opened.take(LONGEST_EXPERIMENTS + 1).read_to_string(&mut text).at(file)?;
        if text.len() as u64 > LONGEST_EXPERIMENTS {
            return Err(CommandError::at(file, "file too large"));
        }
        for own in Experiment::parse_all(&text).at(file)? {
            match all.iter_mut().find(|experiment| experiment.name == own.name) {
                Some(experiment) => *experiment = own,
                None => all.push(own),
            }
        }
    }
    Ok(all)
}

/// Those of these names.
pub(crate) fn chosen(
    all: &[Experiment],
    names: &[String],
) -> Result<Vec<Experiment>, CommandError> {
    if names.iter().any(|name| name == "all") {
        return Ok(all.to_vec());
    }
    let find = |name: &String| {
        let found = all.iter().find(|experiment| experiment.name == *name);
        found.cloned().ok_or_else(|| {
            let known: Vec<_> = all.iter().map(|experiment| experiment.name.as_str()).collect();
            let known = known.join(", ");
            CommandError::usage(format_args!("unknown experiment {name} (expected {known})"))
        })
    };
    names.iter().map(find).collect()
}

impl Args {
    pub(crate) fn run(self, console: &mut Console<'_>) -> Result<(), CommandError> {
        let experiments = self.changes.chosen(&self.names)?;
        let settings = self.changes.settings()?;
        self.changes.warn(&experiments, console)?;
        if self.jobs > 1
            && let Some(why) = run::must_be_alone(&experiments, &settings)
        {
            return Err(CommandError::usage(format_args!("--jobs: {why}")));
        }
        perform(experiments, settings, &self.out, self.jobs)?;
        report_to(&self.out, console)
    }
}

/// Prints where the samples are, and whether any of them is a figure.
pub(super) fn report_to(out: &Path, console: &mut Console<'_>) -> Result<(), CommandError> {
    let results = Results::read(out).map_err(CommandError::new)?;
    let is_any = results.samples.iter().any(|sample| sample.metric == CELL_SECONDS);
    console.warn(match is_any {
        true => format!("samples are in {}", out.display()),
        false => format!("no measurements (see the samples in {})", out.display()),
    })
}

/// Runs experiments and shows how far they are.
pub(crate) fn perform(
    experiments: Vec<Experiment>,
    settings: Settings,
    out: &Path,
    jobs: u16,
) -> Result<(), CommandError> {
    let plan = Plan { jobs: usize::from(jobs), ..plan(experiments, settings, out)? };
    let _alone = Alone::in_dir(&plan.out).map_err(CommandError::new)?;
    let mut display = Display::new()?;
    let outcome = run::run(&plan, &mut display);
    display.bar.finish_and_clear();
    ended(outcome)
}

/// Makes the plan of a run, and creates its directory of results.
pub(super) fn plan(
    experiments: Vec<Experiment>,
    settings: Settings,
    out: &Path,
) -> Result<Plan, CommandError> {
    if let Err(error) = std::fs::create_dir_all(out) {
        return Err(match out.exists() {
            true => CommandError::at(out, "not a directory"),
            false => CommandError::at(out, error),
        });
    }
    Ok(Plan {
        experiments,
        settings,
        out: out.canonicalize().at(out)?,
        program: std::env::current_exe().map_err(CommandError::new)?,
        command: command_line(),
        guest: None,
        jobs: 1,
    })
}

/// The error of a run, as one of a command.
pub(super) fn ended(outcome: Result<(), RunError>) -> Result<(), CommandError> {
    match outcome {
        Ok(()) => Ok(()),
        Err(error @ RunError::Interrupted) => Err(CommandError::Interrupted(error.to_string())),
        Err(error) => Err(CommandError::new(error)),
    }
}

/// The command as typed, with the program's name.
fn command_line() -> Vec<String> {
    let words = std::env::args().skip(1);
    std::iter::once("extant".to_owned()).chain(words).collect()
}

/// Progress: the running cell, the number of remaining cells and the time left, as a bar on a
/// terminal, and a line for each finished cell.
pub(super) struct Display {
    pub(super) bar: ProgressBar,
    interrupted: Arc<AtomicBool>,
    left: String,
}

impl Display {
    pub(super) fn new() -> Result<Self, CommandError> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let flag = interrupted.clone();
            signal_hook::flag::register(signal, flag).map_err(CommandError::new)?;
        }
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{bar:20} {pos}/{len} {elapsed} {msg}") {
            bar.set_style(style);
        }
        Ok(Self { bar, interrupted, left: String::new() })
    }

    fn report(&self, line: &str) {
        self.bar.suspend(|| say_on_stderr(line));
    }
}

/// Name of a cell in messages.
fn name(cell: &Cell) -> String {
    let run = if cell.run == 0 { "warming up".to_owned() } else { format!("run {}", cell.run) };
    format!("{} {} {run}", cell.experiment.name, cell.target)
}

impl Watch for Display {
    fn begins(&mut self, number: usize, total: usize, cell: &Cell, left: Option<f64>) {
        self.left = left.map_or_else(String::new, |seconds| {
            let left = HumanDuration(std::time::Duration::from_secs_f64(seconds.max(0.0)));
            format!(", {left} left")
        });
        self.bar.set_length(total as u64);
        self.bar.set_position(number as u64 - 1);
        self.phase(cell, "");
    }

    fn phase(&mut self, cell: &Cell, phase: &str) {
        self.bar.set_message(format!("{}{}: {phase}", name(cell), self.left));
    }

    fn ended(&mut self, cell: &Cell, outcome: Result<f64, &str>) {
        let name = name(cell);
        match outcome {
            Ok(seconds) => self.report(&format!("{name}: {seconds:.1} s")),
            Err(why) => self.report(&format!("{name}: skipped: {why}")),
        }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}
