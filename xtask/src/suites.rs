//! Test suites that are built once and then run test by test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{Failure, machine};

/// How suites are built.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Build {
    /// As `cargo test` does.
    Test,
    /// Optimized, with the checks that tests have.
    Optimized,
    /// With bolero's libFuzzer engine, and with the code counting its edges.
    Guided,
}

/// The flags that `cargo bolero --engine libfuzzer --sanitizer NONE` passes to rustc, without the
/// depth of the stack. Stable rustc takes all of it: the pass and its options are LLVM's.
const GUIDED: [&str; 7] = [
    "--cfg fuzzing",
    "--cfg fuzzing_libfuzzer",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// A suite that was built.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Suite {
    /// The crate's directory, without its path.
    pub(crate) room: String,
    pub(crate) name: String,
    /// `test`, or what cargo calls the code whose unit tests these are: `lib`, `bin`.
    kind: String,
    program: PathBuf,
    directory: PathBuf,
}

/// Builds the suites of these names, of all crates.
pub(crate) fn build(names: &[&str], build: Build) -> Result<Vec<Suite>, Failure> {
    let mut cargo = machine::cargo();
    cargo.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    cargo.args(names.iter().flat_map(|name| ["--test", name]));
    if build != Build::Test {
        cargo.args(["--profile", "fuzz"]);
    }
    if build == Build::Guided {
        // With a target named, the flags do not reach build scripts and derive macros, which have
        // no counters to link with.
        cargo.args(["--target", &host()?, "--target-dir"]);
        cargo.arg(machine::target_dir().join("guided")).env("RUSTFLAGS", GUIDED.join(" "));
    }
    let output = cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("the suites {} do not build", names.join(", ")).into());
    }
    let messages = String::from_utf8(output.stdout)?;
    let of_these = |suite: &Suite| suite.kind == "test" && names.contains(&&suite.name[..]);
    Ok(sorted(messages.lines().filter_map(Suite::of).filter(of_these).collect()))
}

/// Builds all suites of the workspace, unit tests too, and gives those that build; the flag says
/// whether all did.
pub(crate) fn build_all() -> Result<(Vec<Suite>, bool), Failure> {
    let mut cargo = machine::cargo();
    cargo.args(["test", "--workspace", "--no-run", "--no-fail-fast"]);
    cargo.arg("--message-format=json-render-diagnostics");
    let output = cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    let messages = String::from_utf8(output.stdout)?;
    Ok((sorted(messages.lines().filter_map(Suite::of).collect()), output.status.success()))
}

fn sorted(mut suites: Vec<Suite>) -> Vec<Suite> {
    suites.sort_by(|a, b| (&a.room, &a.name, &a.kind).cmp(&(&b.room, &b.name, &b.kind)));
    suites
}

/// The target triple that rustc builds for where nothing else is asked for.
fn host() -> Result<String, Failure> {
    let output = Command::new("rustc").arg("-vV").output()?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc does not name its host".into())
}

impl Suite {
    /// The suite that a message of cargo is about.
    pub(crate) fn of(message: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(message).ok()?;
        let target = &message["target"];
        if message["profile"]["test"] != true {
            return None;
        }
        let directory = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        Some(Self {
            room: directory.file_name()?.to_str()?.to_owned(),
            name: target["name"].as_str()?.to_owned(),
            kind: target["kind"][0].as_str()?.to_owned(),
            program: message["executable"].as_str()?.into(),
            directory,
        })
    }

    /// Its name; of unit tests, that of their crate with the kind.
    pub(crate) fn title(&self) -> String {
        if self.kind == "test" {
            self.name.clone()
        } else {
            format!("{} ({})", self.name, self.kind)
        }
    }

    /// All its tests, as cargo runs them.
    pub(crate) fn all_tests(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.directory).env("CARGO_MANIFEST_DIR", &self.directory);
        command.stdin(Stdio::null());
        command
    }

    /// The names of its tests.
    pub(crate) fn tests(&self) -> Result<Vec<String>, Failure> {
        let output = Command::new(&self.program).arg("--list").output()?;
        let list = String::from_utf8(output.stdout)?;
        Ok(list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }

    /// Runs one test as cargo does, with all its output; ended after `seconds`.
    pub(crate) fn command(&self, test: &str, limit: u64) -> Command {
        let mut command = Command::new("timeout");
        // In the foreground, so that an interrupt from the terminal reaches the test as well.
        command.args(["--foreground", "-k", "10"]).arg(limit.to_string()).arg(&self.program);
        command.args([test, "--exact", "--nocapture", "--test-threads", "1"]);
        command.current_dir(&self.directory).env("CARGO_MANIFEST_DIR", &self.directory);
        command.stdin(Stdio::null());
        command
    }

    /// Where bolero looks for inputs that once failed: each run of the harness as a test tries
    /// them.
    pub(crate) fn crashes_of(&self, harness: &str) -> PathBuf {
        let tests = self.directory.join("tests");
        let suite = tests.join(&self.name);
        let parent = if suite.is_dir() { suite } else { tests };
        parent.join("__fuzz__").join(harness.replace("::", "__")).join("crashes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_suite_that_was_built() {
        let message = r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/ondisk/Cargo.toml",
            "target":{"kind":["test"],"name":"fuzz"},"profile":{"test":true},
            "executable":"/w/target/debug/deps/fuzz-12"}"#;
        let suite = Suite::of(message).expect("it is one");
        assert_eq!((&suite.room[..], &suite.name[..], &suite.kind[..]), ("ondisk", "fuzz", "test"));
        assert_eq!(suite.program, Path::new("/w/target/debug/deps/fuzz-12"));
        assert_eq!(Suite::of(&message.replace("true", "false")), None);
        assert_eq!(Suite::of("{\"reason\":\"build-finished\",\"success\":true}"), None);
    }
}
