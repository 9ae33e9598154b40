//! Output and errors of a command.

use std::fmt::{self, Display};
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

/// Standard output of a command, and its name in messages.
pub struct Console<'a> {
    /// Standard output.
    pub out: &'a mut dyn Write,
    /// How messages on standard error begin: `extant lab`.
    pub called: &'a str,
}

impl Console<'_> {
    /// A line on standard output.
    pub(super) fn line(&mut self, line: impl Display) -> Result<(), CommandError> {
        Ok(writeln!(self.out, "{line}")?)
    }

    /// One JSON document on standard output, indented.
    pub(super) fn json(&mut self, value: &impl Serialize) -> Result<(), CommandError> {
        serde_json::to_writer_pretty(&mut self.out, value).map_err(io::Error::from)?;
        Ok(self.out.write_all(b"\n")?)
    }

    /// All lines so far reach the reader.
    pub(super) fn flush(&mut self) -> Result<(), CommandError> {
        Ok(self.out.flush()?)
    }

    /// A warn on standard error, which may be closed.
    pub(super) fn warn(&mut self, what: impl Display) -> Result<(), CommandError> {
        self.flush()?;
        say_on_stderr(format_args!("{}: {what}", self.called));
        Ok(())
    }
}

/// A line on standard error, which may be closed.
pub(super) fn say_on_stderr(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Why a command failed.
#[derive(Debug)]
pub enum CommandError {
    /// In one sentence.
    Failed(String),
    /// The command line is invalid.
    Usage(String),
    /// A signal ended it.
    Interrupted(String),
    /// Standard output cannot be written.
    Output(io::Error),
}

impl CommandError {
    pub(super) fn new(sentence: impl Display) -> Self {
        Self::Failed(sentence.to_string())
    }

    /// `PLACE: what went wrong`.
    pub(super) fn at(place: impl AsRef<Path>, what: impl Display) -> Self {
        Self::new(format_args!("{}: {what}", place.as_ref().display()))
    }

    pub(super) fn usage(sentence: impl Display) -> Self {
        Self::Usage(sentence.to_string())
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl Display for CommandError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(sentence) | Self::Usage(sentence) | Self::Interrupted(sentence) => {
                out.write_str(sentence)
            }
            Self::Output(error) => write!(out, "standard output: {error}"),
        }
    }
}

impl std::error::Error for CommandError {}

/// Names the place of another error: `file.read(…).at(&path)?`.
pub(super) trait At<T> {
    /// The error with `place` before it.
    fn at(self, place: impl AsRef<Path>) -> Result<T, CommandError>;
}

impl<T, E: Display> At<T> for Result<T, E> {
    fn at(self, place: impl AsRef<Path>) -> Result<T, CommandError> {
        self.map_err(|error| CommandError::at(place, error))
    }
}
