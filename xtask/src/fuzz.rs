//! `cargo xtask fuzz`: the harnesses of the `fuzz` test suites, for longer.

use std::process::{ExitCode, Stdio};

use crate::{Failure, machine};

/// Run the fuzz harnesses: each is a test in a crate's `tests/fuzz.rs`
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
                .args(["test", "--quiet", "--release", "--package", package, "--test", "fuzz"])
                .args(["--", "--exact", name])
                // Both bounds of bolero's random engine: time decides, not the count.
                .env("BOLERO_RANDOM_TEST_TIME_MS", (self.seconds * 1000).to_string())
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
        if !directory.path().join("tests/fuzz.rs").is_file() {
            continue;
        }
        let package = format!("extant-{}", directory.file_name().to_string_lossy());
        let package = package.replace("extant-extant", "extant");
        let output = machine::cargo()
            .args(["test", "--quiet", "--release", "--package", &package, "--test", "fuzz"])
            .args(["--", "--list"])
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
