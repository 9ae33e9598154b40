//! `cargo xtask test`: everything that must hold, with one closing line that CI can read.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use crate::{Failure, corpora, machine};

mod at_once;
mod rest;

/// How many lines of a failed test's output are printed again at the end.
const LINES_OF_A_FAILURE: usize = 20;

/// Run every check and every test
#[derive(clap::Args)]
pub(crate) struct Test {
    /// Install nothing: neither packages on this machine nor programs in the target directory
    #[arg(long)]
    no_install: bool,
    /// Then run what takes long as well: all that an ordinary run skips or shortens, in about two
    /// hours
    #[arg(long)]
    full: bool,
}

/// The counts so far.
#[derive(Default)]
struct Tally {
    passed: u64,
    failed: Vec<String>,
    /// Tests that failed and then passed alone.
    unsteady: Vec<String>,
    /// The first lines that each failed test printed.
    printed: Vec<String>,
    skipped: BTreeSet<String>,
    /// Parts of a full run, with the seconds that each took.
    parts: Vec<(&'static str, f64)>,
}

impl Test {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut tally = Tally::default();
        if !self.no_install {
            let packages = machine::install_packages();
            let others = machine::install_crates().into_iter().chain(machine::install_python());
            for missing in packages.into_iter().chain(others) {
                println!("not installed: {missing}");
            }
            let (name, version) = machine::S3_SERVER;
            if self.full && machine::install_tool(name, version, &["--features", "binary"]).is_err()
            {
                println!("not installed: {name}");
            }
        }
        let cargo = |args: &str| {
            let mut cargo = machine::cargo();
            cargo.args(args.split(' '));
            cargo
        };
        tally.component("rustfmt", "fmt", cargo("fmt --all --check"))?;
        let clippy = cargo("clippy --workspace --all-targets -- -D warnings");
        tally.component("clippy", "clippy", clippy)?;
        let bare = cargo("check --package extant-ondisk --no-default-features");
        tally.check("ondisk without std", bare)?;
        let mut docs = cargo("doc --workspace --no-deps --document-private-items");
        docs.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links");
        tally.check("documentation", docs)?;
        if self.full {
            tally.part("the corpus", |_| corpora::make_own_where_missing())?;
        }
        corpora::make_where_missing()?;
        at_once::run(&mut tally)?;
        tally.cargo_test(cargo("test --workspace --no-fail-fast --doc"))?;
        // The same locks and threads under shuttle's scheduler: tests named `shuttle_tests`.
        let schedules = "test --package extant-runtime --package extant-journal \
                         --package extant-engine --features extant-engine/shuttle --lib \
                         shuttle_tests";
        tally.cargo_test(cargo(schedules))?;
        if self.full {
            rest::run(&mut tally)?;
        }
        Ok(tally.close())
    }
}

impl Tally {
    /// A check by a part of the toolchain that may not be installed.
    fn component(&mut self, name: &str, command: &str, check: Command) -> Result<(), Failure> {
        let mut version = machine::cargo();
        version.args([command, "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
        if version.status()?.success() {
            return self.check(name, check);
        }
        self.skipped.insert(format!("{name}: not part of this toolchain"));
        Ok(())
    }

    fn check(&mut self, name: &str, mut check: Command) -> Result<(), Failure> {
        let started = Instant::now();
        let outcome = check.stdin(Stdio::null()).status()?;
        if outcome.success() {
            self.passed += 1;
        } else {
            self.failed.push(name.to_owned());
        }
        let word = if outcome.success() { "ok" } else { "FAILED" };
        println!("check {name} ... {word} ({:.0} s)", started.elapsed().as_secs_f64());
        Ok(())
    }

    /// Runs `cargo test`, passes on what it prints and counts it.
    fn cargo_test(&mut self, mut test: Command) -> Result<(), Failure> {
        let started = Instant::now();
        let (output, writer) = std::io::pipe()?;
        let mut running = test
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .env("CARGO_TERM_COLOR", "never")
            .spawn()?;
        drop(test); // and with it our ends of the pipe, or it would never end
        let failures = self.count(output, String::new())?;
        // A suite that does not build, or dies, has no line of results.
        if !running.wait()?.success() && failures == 0 {
            self.failed.push("cargo test: a suite did not build or did not finish".into());
        }
        println!("tests took {:.0} s", started.elapsed().as_secs_f64());
        Ok(())
    }

    /// Passes on what tests print and counts it; gives how many failed. `suite` is the one that the
    /// lines are of until one of them names another.
    fn count(&mut self, output: impl Read, mut suite: String) -> Result<u64, Failure> {
        let (mut failures, mut lines_left) = (0, 0);
        for line in BufReader::new(output).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            println!("{line}");
            if line.starts_with("---- ") && line.ends_with(" stdout ----") {
                lines_left = LINES_OF_A_FAILURE;
            } else if line == "failures:" {
                lines_left = 0;
            }
            if lines_left > 0 {
                lines_left -= 1;
                self.printed.push(line.clone());
            }
            match Said::of(&line) {
                Some(Said::Suite(name)) => suite = name,
                Some(Said::Skipped(what)) => drop(self.skipped.insert(format!("{suite}: {what}"))),
                Some(Said::Failed(test)) => self.failed.push(format!("{suite}: {test}")),
                Some(Said::Result { passed, failed, ignored }) => {
                    self.passed += passed;
                    failures += failed;
                    if ignored > 0 {
                        self.skipped.insert(format!("{suite}: {ignored} tests marked as ignored"));
                    }
                }
                None => {}
            }
        }
        Ok(failures)
    }

    /// Runs a part of a full run, and notes how long it took.
    fn part(
        &mut self,
        name: &'static str,
        run: impl FnOnce(&mut Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        println!("part {name}");
        let started = Instant::now();
        run(self)?;
        self.parts.push((name, started.elapsed().as_secs_f64()));
        Ok(())
    }

    /// Forgets that tests of a suite were skipped, which are run again: those whose name begins
    /// with `test`.
    fn forget_skipped(&mut self, suite: &str, test: &str) {
        let prefix = format!("{suite}: {test}");
        let counted = self.skipped_tests();
        self.skipped.retain(|what| !what.starts_with(&prefix));
        // Each returned like one that passed.
        self.passed = self.passed.saturating_sub(counted - self.skipped_tests());
    }

    fn close(self) -> ExitCode {
        println!();
        self.parts.iter().for_each(|(name, seconds)| println!("part {name} took {seconds:.0} s"));
        self.skipped.iter().for_each(|what| println!("skipped {what}"));
        self.printed.iter().for_each(|line| println!("{line}"));
        self.unsteady
            .iter()
            .for_each(|what| println!("unsteady {what}: failed, then passed alone"));
        self.failed.iter().for_each(|what| println!("failed {what}"));
        let (failed, skipped) = (self.failed.len(), self.skipped.len());
        // A test that says it was skipped returns like one that passed.
        let passed = self.passed.saturating_sub(self.skipped_tests());
        println!("{passed} passed, {failed} failed, {skipped} skipped");
        ExitCode::from(u8::from(failed > 0))
    }

    fn skipped_tests(&self) -> u64 {
        let counted = |what: &&String| {
            !what.ends_with("tests marked as ignored") && !what.ends_with("of this toolchain")
        };
        self.skipped.iter().filter(counted).count() as u64
    }
}

/// A line of `cargo test` that counts.
#[derive(Debug, Eq, PartialEq)]
enum Said {
    Suite(String),
    Skipped(String),
    Failed(String),
    Result { passed: u64, failed: u64, ignored: u64 },
}

impl Said {
    fn of(line: &str) -> Option<Self> {
        let trimmed = line.trim_start();
        if let Some(rest) = trimmed.strip_prefix("Running ") {
            // `unittests src/lib.rs (target/debug/deps/extant_ondisk-0123456789abcdef)`
            let binary = rest.rsplit_once('/')?.1.trim_end_matches(')');
            return Some(Self::Suite(binary.rsplit_once('-').map_or(binary, |it| it.0).to_owned()));
        }
        if let Some(rest) = trimmed.strip_prefix("Doc-tests ") {
            return Some(Self::Suite(format!("{rest} (documentation)")));
        }
        // With several threads this line may follow another test's name on the same line.
        if let Some((_, rest)) = line.split_once("skipped: ") {
            return Some(Self::Skipped(rest.to_owned()));
        }
        if let Some(rest) = trimmed.strip_prefix("test result: ") {
            let count = |word: &str| {
                let part = rest.split([';', '.']).find(|part| part.trim_end().ends_with(word));
                part.and_then(|part| part.split_whitespace().next()?.parse().ok()).unwrap_or(0)
            };
            let (passed, failed, ignored) = (count("passed"), count("failed"), count("ignored"));
            return Some(Self::Result { passed, failed, ignored });
        }
        let test = trimmed.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
        Some(Self::Failed(test.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_cargo_test_are_understood() {
        let cases = [
            (
                "     Running unittests src/lib.rs (target/debug/deps/extant_ondisk-0123456789abcdef)",
                Some(Said::Suite("extant_ondisk".into())),
            ),
            ("   Doc-tests extant", Some(Said::Suite("extant (documentation)".into()))),
            (
                "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.4s",
                Some(Said::Result { passed: 12, failed: 0, ignored: 1 }),
            ),
            (
                "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
                Some(Said::Result { passed: 3, failed: 2, ignored: 0 }),
            ),
            ("test a::b ... FAILED", Some(Said::Failed("a::b".into()))),
            ("test a::b ... ok", None),
            (
                "test a::b ... skipped: c::d: a loop mount needs root",
                Some(Said::Skipped("c::d: a loop mount needs root".into())),
            ),
        ];
        for (line, expected) in cases {
            assert_eq!(Said::of(line), expected, "{line}");
        }
    }
}
