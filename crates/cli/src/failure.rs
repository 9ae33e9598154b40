//! The error that ends a command: one sentence for standard error, and the exit code.

use std::fmt::{self, Display};
use std::path::Path;

use crate::err_line;

/// The exit code of an ordinary failure.
const FAILED: u8 = 1;
/// Exit status that a shell shows for a program that SIGPIPE ended: 128 + 13.
const BROKEN_PIPE: u8 = 141;

/// Why a command failed. `main` prints it as `extant COMMAND: SENTENCE` and exits with its code.
#[derive(Debug)]
pub(crate) struct Failure {
    /// None: everything was said already.
    sentence: Option<String>,
    code: u8,
}

impl Failure {
    /// The exit code of a command line that means nothing.
    pub(crate) const USAGE: u8 = 2;

    /// A failure told in one sentence. It names the image and the place.
    pub(crate) fn new(sentence: impl Display) -> Self {
        Self { sentence: Some(sentence.to_string()), code: FAILED }
    }

    /// `IMAGE: what went wrong`.
    pub(crate) fn at(place: impl AsRef<Path>, what: impl Display) -> Self {
        Self::new(format_args!("{}: {what}", place.as_ref().display()))
    }

    /// A command line that cannot be meant.
    pub(crate) fn usage(sentence: impl Display) -> Self {
        Self::new(sentence).with_code(Self::USAGE)
    }

    /// A part of the design that this version lacks.
    pub(crate) fn not_built(what: impl Display) -> Self {
        Self::new(format_args!("{what} is not supported yet"))
    }

    /// The reader of our output has gone: end without a word, as if SIGPIPE had ended us.
    pub(crate) fn broken_pipe() -> Self {
        Self::silent(BROKEN_PIPE)
    }

    /// Everything was said; only the exit code is left.
    pub(crate) fn silent(code: u8) -> Self {
        Self { sentence: None, code }
    }

    /// The same failure with the exit code of the command of e2fsprogs.
    #[must_use]
    pub(crate) fn with_code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// With one exit code for all failures but a reader that has gone.
    #[must_use]
    pub(crate) fn with_usual_code(self, code: u8) -> Self {
        if self.code == BROKEN_PIPE { self } else { self.with_code(code) }
    }

    /// The same failure without its sentence.
    #[must_use]
    pub(crate) fn unsaid(self) -> Self {
        Self::silent(self.code)
    }

    /// Its sentence; empty if everything has been printed.
    pub(crate) fn sentence(self) -> String {
        self.sentence.unwrap_or_default()
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// Prints the sentence after the name under which the command was called.
    pub(crate) fn tell(&self, called: &str) {
        if let Some(sentence) = &self.sentence {
            err_line!("{called}: {sentence}");
        }
    }
}

impl Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.sentence.as_deref().unwrap_or_default())
    }
}

/// Names the place of a foreign error: `device.read(…).at(&image)?`.
pub(crate) trait At<T> {
    /// The error as a [`Failure`] with `place` before it.
    fn at(self, place: impl AsRef<Path>) -> Result<T, Failure>;
}

impl<T, E: Display> At<T> for Result<T, E> {
    fn at(self, place: impl AsRef<Path>) -> Result<T, Failure> {
        self.map_err(|error| Failure::at(place, error))
    }
}
