//! `cargo xtask soak`: random tests for hours. Seeds and counts go on from a file, so that runs add
//! up.

mod leftovers;
mod state;
mod sums;
mod units;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use crate::fuzz::Harness;
use crate::suites::Build;
use crate::{Failure, machine};
use extant_testkit::tool;
use leftovers::Temporary;
use state::{State, Sums};
use units::Unit;

/// Run random tests for hours; their counts add up in a file
#[derive(clap::Args)]
pub(crate) struct Soak {
    /// Hours after which no slice begins; a slice that runs is finished
    #[arg(long, default_value_t = 1.0, value_parser = hours)]
    hours: f64,
    /// The file that runs add up in [default: soak/state.json in the target directory]; outputs,
    /// failures and corpora lie in soak of the target directory
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Only what begins with this: a kind (cuts, fuzz, differential, kills, load, histories) or
    /// more, as fuzz/ondisk; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Print the sums of all runs as docs/src/internals/testing.md holds them, and run nothing
    #[arg(long)]
    sums: bool,
}

fn hours(text: &str) -> Result<f64, String> {
    let hours: f64 = text.parse().map_err(|_| "invalid number of hours".to_owned())?;
    let is_valid = (0.0..1e6).contains(&hours);
    is_valid.then_some(hours).ok_or_else(|| "invalid number of hours".to_owned())
}

/// How a slice ended.
enum SliceEnd {
    Counted(Sums),
    /// It has no counts: a tool is missing, or root.
    Skipped,
    /// The failure.
    Failed(String),
}

/// One run.
struct Run {
    file: PathBuf,
    /// Where outputs, failures and corpora go.
    directory: PathBuf,
    state: State,
    start: Instant,
    limit: Duration,
    /// Seconds of each kind in this run.
    seconds: BTreeMap<&'static str, f64>,
    failed: Vec<String>,
}

impl Soak {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let directory = machine::target_dir().join("soak");
        let default = || directory.join("state.json");
        let file = std::path::absolute(self.state.clone().unwrap_or_else(default))?;
        if self.sums {
            if !file.exists() {
                return Err(format!("{}: no such file", file.display()).into());
            }
            print!("{}", sums::table(&State::load(&file)?));
            return Ok(ExitCode::SUCCESS);
        }
        fs::create_dir_all(&directory)?;
        let _lock = state::lock(&file)?;
        let state = State::load(&file)?;
        let mut units = units::all(&self.only, self.build())?;
        let limit = Duration::from_secs_f64(self.hours * 3600.0);
        let (seconds, failed) = (BTreeMap::new(), Vec::new());
        let start = Instant::now();
        let mut run = Run { file, directory, state, start, limit, seconds, failed };
        while run.start.elapsed() < run.limit {
            let of_kind = |kind: &units::Kind| run.seconds.get(kind.name).copied().unwrap_or(0.0);
            let Some(unit) = units::next(&units, &run.state, of_kind) else { break };
            if !run.slice(unit)? {
                let ended = unit.name.clone();
                units.retain(|unit| unit.name != ended);
            }
        }
        Ok(run.close())
    }

    /// Guided, where libFuzzer can be built.
    fn build(&self) -> Build {
        if tool("c++").is_some() {
            return Build::Guided;
        }
        println!("no C++ compiler: the fuzz harnesses run without the guidance of coverage");
        Build::Optimized
    }
}

impl Run {
    /// Runs a slice of a unit and records it; whether the unit goes on in this run.
    fn slice(&mut self, unit: &Unit) -> Result<bool, Failure> {
        let seed = self.state.progress(&unit.name).next;
        let name = Path::new("failures").join(format!("{}-{seed}", unit.file_name()));
        let kept = self.directory.join(&name);
        fs::create_dir_all(&kept)?;
        let left = self.limit.saturating_sub(self.start.elapsed()).as_secs();
        let corpora = self.directory.join("corpus");
        let mut command = unit.command(seed, left, &corpora, &kept)?;
        let temporary = Temporary::new()?;
        command.env("TMPDIR", temporary.path());
        let output = self.directory.join("output").join(format!("{}.txt", unit.file_name()));
        let before = Instant::now();
        let outcome = outcome(unit, &mut command, &output)?;
        drop(temporary);
        command.env_remove("TMPDIR");
        let seconds = before.elapsed().as_secs_f64();
        *self.seconds.entry(unit.kind.name).or_default() += seconds;
        let goes_on = matches!(outcome, SliceEnd::Counted(_));
        let said = match outcome {
            SliceEnd::Counted(sums) => {
                let counted = sums::in_words(&sums.counts);
                self.state.add(&unit.name, seconds, sums);
                // Images of trials that went worse; most slices have none.
                drop(fs::remove_dir(&kept));
                let all = sums::in_words(&self.state.progress(&unit.name).counts);
                format!("{counted}; in all {all}")
            }
            SliceEnd::Skipped => {
                drop(fs::remove_dir(&kept));
                format!("skipped, see {}", output.display())
            }
            SliceEnd::Failed(why) => {
                keep(unit, &command, &output, &kept)?;
                self.state.add(&unit.name, seconds, unit.sums(&read(&output)?).unwrap_or_default());
                self.state.fail(&unit.name, seed, name);
                let line = format!("{} seed {seed}: {why}: {}", unit.name, kept.display());
                self.failed.push(line);
                format!("FAILED: {why}; see {}", kept.display())
            }
        };
        self.state.save(&self.file)?;
        let minutes = self.start.elapsed().as_secs() / 60;
        println!("[{minutes} min] {} seed {seed}, {seconds:.0} s: {said}", unit.name);
        Ok(goes_on)
    }

    fn close(mut self) -> ExitCode {
        self.failed.extend(sums::too_many_worse(&self.state));
        println!("\n{}", sums::table(&self.state));
        self.failed.iter().for_each(|line| println!("failed {line}"));
        ExitCode::from(u8::from(!self.failed.is_empty()))
    }
}

/// Runs a slice, its output into a file that can be read while it runs.
fn outcome(unit: &Unit, command: &mut Command, output: &Path) -> Result<SliceEnd, Failure> {
    fs::create_dir_all(output.parent().ok_or("no place for the output")?)?;
    let file = File::create(output)?;
    let status = command.stdout(file.try_clone()?).stderr(file).status()?;
    Ok(match (status.code(), unit.sums(&read(output)?)) {
        (Some(0), Some(sums)) => SliceEnd::Counted(sums),
        (Some(0), None) => SliceEnd::Skipped,
        (Some(124 | 137), _) => SliceEnd::Failed("it did not end in time".into()),
        (Some(code), _) => SliceEnd::Failed(format!("exit code {code}")),
        (None, _) => SliceEnd::Failed(status.to_string()),
    })
}

fn read(output: &Path) -> Result<String, Failure> {
    Ok(String::from_utf8_lossy(&fs::read(output)?).into_owned())
}

/// Keeps what repeats a failure: the output, which has the history or the value that was made
/// smaller, the command, and the input. An input goes to the crate's tests as well, which try it
/// from then on.
fn keep(unit: &Unit, command: &Command, output: &Path, kept: &Path) -> Result<(), Failure> {
    fs::copy(output, kept.join("output.txt"))?;
    fs::write(kept.join("command"), in_words(command))?;
    let (Some(harness), Some(place)) = (unit.harness(), command.get_current_dir()) else {
        return Ok(());
    };
    for input in failed_inputs(place)? {
        let name = input.file_name().ok_or("an input has a name")?;
        fs::copy(&input, kept.join(name))?;
        keep_as_test(harness, &input)?;
        fs::remove_file(&input)?;
    }
    Ok(())
}

fn keep_as_test(harness: &Harness, input: &Path) -> Result<(), Failure> {
    let crashes = harness.suite.crashes_of(&harness.test);
    fs::create_dir_all(&crashes)?;
    let test = crashes.join(input.file_name().ok_or("an input has a name")?);
    fs::copy(input, &test)?;
    println!("kept as a test: {}", test.display());
    Ok(())
}

/// Files that libFuzzer left in its working directory.
fn failed_inputs(place: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(place)?.collect::<Result<Vec<_>, _>>()?;
    let is_input = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        ["crash-", "timeout-", "oom-", "leak-"].iter().any(|prefix| name.starts_with(prefix))
    };
    Ok(entries.into_iter().map(|entry| entry.path()).filter(is_input).collect())
}

/// A line of a shell that runs a command again.
fn in_words(command: &Command) -> String {
    let quoted =
        |text: &std::ffi::OsStr| format!("'{}'", text.to_string_lossy().replace('\'', r"'\''"));
    let mut line = String::new();
    if let Some(directory) = command.get_current_dir() {
        line += &format!("cd {} && ", quoted(directory.as_os_str()));
    }
    for (name, value) in command.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        line += &format!("{}={} ", name.to_string_lossy(), quoted(value));
    }
    line += &quoted(command.get_program());
    command.get_args().for_each(|word| line += &format!(" {}", quoted(word)));
    line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_told_as_a_shell_takes_it() {
        let mut command = Command::new("printf");
        command.args(["%s", "it's"]).env("EXTANT_SEED", "7").current_dir("/tmp");
        let line = in_words(&command);
        assert_eq!(line, "cd '/tmp' && EXTANT_SEED='7' 'printf' '%s' 'it'\\''s'\n");
        let said = Command::new("sh").args(["-c", &line]).output().expect("sh runs");
        assert_eq!(said.stdout, b"it's");
    }

    #[test]
    fn inputs_that_failed_are_told_from_others() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("corpus")).expect("a directory");
        for name in ["crash-12", "timeout-3", "notes"] {
            fs::write(dir.path().join(name), name).expect("a file");
        }
        let mut found = failed_inputs(dir.path()).expect("readable");
        found.sort();
        assert_eq!(found, [dir.path().join("crash-12"), dir.path().join("timeout-3")]);
    }

    #[test]
    fn hours_may_be_fractions_and_are_never_negative() {
        assert_eq!(hours("0.25"), Ok(0.25));
        for text in ["-1", "x", "NaN", "inf"] {
            assert_eq!(hours(text), Err("invalid number of hours".to_owned()), "{text}");
        }
    }
}
