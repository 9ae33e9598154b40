//! Commands of this machine.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::error::CellError;
use crate::environment::is_there;

/// Runs a command that must succeed; what it printed.
pub(super) fn run<S: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    words: impl IntoIterator<Item = S>,
) -> Result<String, CellError> {
    let mut command = Command::new(program);
    let output = finish(command.args(words))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(complaint(&command, &output)),
    }
}

/// Refuses a program that is not on this machine.
pub(super) fn needs(program: impl AsRef<Path>) -> Result<(), CellError> {
    match is_there(&program) {
        true => Ok(()),
        false => Err(not_here(program.as_ref().display())),
    }
}

fn not_here(program: impl Display) -> CellError {
    CellError(format!("{program} is not on this machine"))
}

/// Runs a command to its end, whatever that is.
pub(super) fn finish(command: &mut Command) -> Result<Output, CellError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    output.map_err(|error| match error.kind() {
        ErrorKind::NotFound => not_here(&program),
        _ => CellError(format!("{program}: {error}")),
    })
}

/// Error text of a command that failed.
pub(super) fn complaint(command: &Command, output: &Output) -> CellError {
    let said = [&output.stderr, &output.stdout].map(|text| String::from_utf8_lossy(text));
    let words = said.iter().flat_map(|text| text.lines()).map(str::trim);
    let line = words.filter(|line| !line.is_empty()).take(2).collect::<Vec<_>>().join("; ");
    let program = command.get_program().to_string_lossy();
    let name = program.rsplit('/').next().unwrap_or_default();
    let first = command.get_args().next().map(|word| word.to_string_lossy().into_owned());
    let name = match first.filter(|word| name == "extant" && !word.starts_with('-')) {
        Some(word) => format!("extant {word}"),
        None => name.to_owned(),
    };
    CellError(format!("{name}: {}: {line}", output.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = run("mkfs.nowhere", ["image"]).expect_err("it is missing");
        assert_eq!(error.0, "mkfs.nowhere is not on this machine");
        assert_eq!(needs("mkfs.nowhere").expect_err("it is missing"), error);
        let error = run("sh", ["-c", "echo why >&2; exit 3"]).expect_err("it fails");
        assert_eq!(error.0, "sh: exit status: 3: why");
    }
}
