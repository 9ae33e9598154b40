//! `cargo xtask fuzz`: the harnesses of the `fuzz` test suites, for longer.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::suites::{Build, Suite};
use crate::{Failure, machine, suites};

/// Run the fuzz harnesses: each is a test of a crate's suite `fuzz`
#[derive(clap::Args)]
pub(crate) struct Fuzz {
    /// Only harnesses whose name contains this
    target: Option<String>,
    /// Time for each harness
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Let coverage guide the inputs, which needs a C++ compiler; the corpus stays in soak/corpus
    /// of the target directory
    #[arg(long)]
    guided: bool,
    /// List the harnesses
    #[arg(long)]
    list: bool,
}

/// The suites' name.
pub(crate) const SUITE: &str = "fuzz";
/// Seconds that a harness may take in addition to its time: it makes its images first, and shrinks
/// an input that fails.
const MARGIN: u64 = 300;
/// Seconds that one input may take.
const INPUT_LIMIT: u64 = 60;
/// Crates of which each input is work on a whole volume or archive. Counting edges takes more than
/// half of their time, so bolero's random engine chooses their inputs.
const UNGUIDED: [&str; 3] = ["engine", "image", "reader"];

/// A harness: a test of a suite.
pub(crate) struct Harness {
    pub(crate) suite: Suite,
    pub(crate) test: String,
    build: Build,
}

impl Fuzz {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let wanted = self.target.as_deref().unwrap_or_default();
        let build = if self.guided { Build::Guided } else { Build::Test };
        let mut harnesses = harnesses(build)?;
        harnesses.retain(|harness| harness.name().contains(wanted));
        if harnesses.is_empty() {
            return Err(format!("no fuzz harness is called {wanted:?}").into());
        }
        let mut failed = 0;
        for harness in &harnesses {
            if self.list {
                println!("{}", harness.name());
                continue;
            }
            println!("fuzzing {} for {} s", harness.name(), self.seconds);
            let place = machine::target_dir().join("soak/corpus").join(harness.file_name());
            let outcome = harness.command(&place, 0, self.seconds)?.status()?;
            failed += usize::from(!outcome.success());
        }
        if !self.list {
            println!("{} passed, {failed} failed, 0 skipped", harnesses.len() - failed);
        }
        Ok(ExitCode::from(u8::from(failed > 0)))
    }
}

/// Builds the suites and lists their harnesses.
pub(crate) fn harnesses(build: Build) -> Result<Vec<Harness>, Failure> {
    let mut harnesses = built(build)?;
    if build == Build::Guided {
        let is_unguided = |harness: &Harness| UNGUIDED.contains(&&harness.suite.room[..]);
        harnesses.retain(|harness| !is_unguided(harness));
        harnesses.extend(built(Build::Optimized)?.into_iter().filter(is_unguided));
    }
    Ok(harnesses)
}

fn built(build: Build) -> Result<Vec<Harness>, Failure> {
    let mut harnesses = Vec::new();
    for suite in suites::build(&[SUITE], build)? {
        let tests = suite.tests()?;
        harnesses.extend(tests.iter().map(|test| Harness::new(suite.clone(), test, build)));
    }
    Ok(harnesses)
}

impl Harness {
    pub(crate) fn new(suite: Suite, test: &str, build: Build) -> Self {
        Self { suite, test: test.to_owned(), build }
    }

    /// The crate's directory and the test.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.suite.room, self.test)
    }

    /// The name as one part of a path.
    pub(crate) fn file_name(&self) -> String {
        self.name().replace(['/', ':'], "-")
    }

    /// Runs it for `seconds`. `place` keeps the corpus, and an input that fails, between runs;
    /// bolero's random engine needs none, and takes no seed.
    pub(crate) fn command(
        &self,
        place: &Path,
        seed: u64,
        seconds: u64,
    ) -> Result<Command, Failure> {
        let mut command = self.suite.command(&self.test, seconds + MARGIN);
        if self.build != Build::Guided {
            // Both bounds of bolero's random engine go before those in the harness: time decides,
            // not the count.
            command.env("BOLERO_RANDOM_TEST_TIME_MS", seconds.saturating_mul(1000).to_string());
            command.env("BOLERO_RANDOM_ITERATIONS", u32::MAX.to_string());
            return Ok(command);
        }
        std::fs::create_dir_all(place.join("corpus"))?;
        // Inputs have any length from the first: libFuzzer lets them grow by the number of those
        // that were tried, which a slow harness does not reach. Its choice by entropy takes half of
        // the time where there are ten thousands of edges.
        let args = format!(
            "corpus -artifact_prefix=./ -seed={seed} -max_total_time={seconds} -timeout={INPUT_LIMIT} \
             -len_control=0 -entropic=0 -rss_limit_mb=4096 -print_final_stats=1"
        );
        // bolero splits the arguments at blanks, so no path is among them.
        command.current_dir(place).env("BOLERO_LIBFUZZER_ARGS", args);
        Ok(command)
    }
}

/// The number of inputs that a harness says it has tried, by either engine.
pub(crate) fn inputs(output: &str) -> Option<u64> {
    let number = |text: &str| {
        let digits = text.trim_start();
        let end = digits.find(|it: char| !it.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse::<u64>().ok()
    };
    let guided = output.lines().rev().find_map(|line| {
        number(line.trim_start().strip_prefix("stat::number_of_executed_units:")?)
    });
    let random = || {
        let (_, line) = output.lines().rev().find_map(|line| line.split_once("rng inputs: "))?;
        number(line)
    };
    guided.or_else(random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_engines_say_how_many_inputs_they_tried() {
        let random = "test a ...\trun time: 1.0s | iterations/s: 9 | corpus inputs: 1 | rng inputs: 4512 | exit reason: max\n";
        assert_eq!(inputs(random), Some(4512));
        let guided =
            "#9 DONE cov: 3\nstat::number_of_executed_units: 4881804\nstat::peak_rss_mb: 28\n";
        assert_eq!(inputs(guided), Some(4_881_804));
        assert_eq!(inputs("test a ... skipped: no mke2fs here\n"), None);
    }
}
