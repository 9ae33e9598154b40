//! `cargo xtask fuzz`: the harnesses of the `fuzz` test suites, for longer.

use std::process::{ExitCode, Stdio};

use crate::{Failure, machine};

/// Run the fuzz harnesses: each is a test of a crate's suite `fuzz`
#[derive(clap::Args)]
pub(crate) struct Fuzz {
    /// Only harnesses whose name contains this
    target: Option<String>,
    /// Time for each harness
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// List the harnesses
    #[arg(long)]
    list: bool,
}

/// A suite of harnesses, built as tests are: with the checks for overflows that a release build lacks.
const SUITE: [&str; 4] = ["test", "--quiet", "--test", "fuzz"];

/// A harness: the crate and the test's name.
type Harness = (String, String);

impl Fuzz {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let wanted = self.target.as_deref().unwrap_or_default();
        let mut harnesses = harnesses()?;
        harnesses.retain(|(_, name)| name.contains(wanted));
        if harnesses.is_empty() {
            return Err(format!("no fuzz harness is called {wanted:?}").into());
        }
        let mut failed = 0;
        for (package, name) in &harnesses {
            if self.list {
                println!("{package} {name}");
                continue;
            }
            println!("fuzzing {package} {name} for {} s", self.seconds);
            let outcome = machine::cargo()
                .args(SUITE)
                .args(["--package", package, "--", "--exact", name, "--nocapture"])
                // Both bounds of bolero's random engine go before those in the harness: time decides, not the count.
                .env("BOLERO_RANDOM_TEST_TIME_MS", self.seconds.saturating_mul(1000).to_string())
                .env("BOLERO_RANDOM_ITERATIONS", u32::MAX.to_string())
                .status()?;
            failed += usize::from(!outcome.success());
        }
        if !self.list {
            println!("{} passed, {failed} failed, 0 skipped", harnesses.len() - failed);
        }
        Ok(ExitCode::from(u8::from(failed > 0)))
    }
}

fn harnesses() -> Result<Vec<Harness>, Failure> {
    let mut harnesses = Vec::new();
    let mut crates =
        std::fs::read_dir(machine::workspace().join("crates"))?.collect::<Result<Vec<_>, _>>()?;
    crates.sort_by_key(std::fs::DirEntry::file_name);
    for directory in crates {
        let suites = ["tests/fuzz.rs", "tests/fuzz/main.rs"];
        if !suites.iter().any(|suite| directory.path().join(suite).is_file()) {
            continue;
        }
        let package = format!("extant-{}", directory.file_name().to_string_lossy());
        let package = package.replace("extant-extant", "extant");
        let output = machine::cargo()
            .args(SUITE)
            .args(["--package", &package, "--", "--list"])
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            return Err(format!("the harnesses of {package} do not build").into());
        }
        let list = String::from_utf8(output.stdout)?;
        let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
        harnesses.extend(names.map(|name| (package.clone(), name.to_owned())));
    }
    Ok(harnesses)
}
