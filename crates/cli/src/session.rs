//! The context of every command: its name in messages, standard output, and the exit code so far.

use std::any::Any;
use std::rc::Rc;

use crate::err_line;
use crate::failure::Failure;
use crate::output::Output;

/// The version of e2fsprogs whose behavior commands called by its names have.
const E2FSPROGS_VERSION: &str = "1.47.4";

/// One run of one command.
pub(crate) struct Session {
    /// As messages begin: `extant ls`, or e2fsprogs' name for it.
    pub(crate) called: String,
    /// Whether a link named as in e2fsprogs called us: the output must parse like theirs.
    pub(crate) is_compat: bool,
    /// Standard output.
    pub(crate) out: Output,
    /// The image that `extant sh` has open for its commands; `writable_image` knows its type.
    pub(crate) held: Option<Rc<dyn Any>>,
    code: u8,
    /// Failures that were printed.
    errors: u64,
}

impl Session {
    /// A session of the command that is `called` so.
    pub(crate) fn new(called: impl Into<String>, is_compat: bool) -> Self {
        Self {
            called: called.into(),
            is_compat,
            out: Output::new(),
            held: None,
            code: 0,
            errors: 0,
        }
    }

    /// Prints a failure and continues, as `ls` does with one of several operands. If the reader
    /// of standard output has gone, the failure is returned.
    pub(crate) fn error(&mut self, failure: Failure) -> Result<(), Failure> {
        if failure.code() == Failure::broken_pipe().code() {
            return Err(failure);
        }
        self.out.flush()?;
        failure.tell(&self.called);
        self.code = self.code.max(failure.code());
        self.errors += 1;
        Ok(())
    }

    /// Number of failures that were printed.
    pub(crate) fn errors(&self) -> u64 {
        self.errors
    }

    /// Prints a warning, which does not change the exit code.
    pub(crate) fn warn(&mut self, what: impl std::fmt::Display) -> Result<(), Failure> {
        self.out.flush()?;
        err_line!("{}: {what}", self.called);
        Ok(())
    }

    /// The answer to `-V`: a command that gives its version does nothing else. By a name of
    /// e2fsprogs it has the form that scripts take apart, with the version that is the model.
    pub(crate) fn version(&self) -> String {
        let ours = env!("CARGO_PKG_VERSION");
        match self.is_compat {
            true => format!("{} {E2FSPROGS_VERSION} (extant {ours})", self.called),
            false => format!("{} {ours}", self.called),
        }
    }

    /// As [`Self::close`] for a command whose exit code says what it found: a reader that has gone
    /// changes nothing of that.
    pub(crate) fn close_unheard(mut self, outcome: Result<(), Failure>) -> u8 {
        let _ = self.out.flush();
        if let Err(failure) = outcome {
            failure.tell(&self.called);
            self.code = self.code.max(failure.code());
        }
        self.code
    }

    /// Ends the session with the outcome of its command; the exit code.
    pub(crate) fn close(mut self, outcome: Result<(), Failure>) -> u8 {
        let flushed = self.out.flush();
        for failure in [outcome, flushed].into_iter().filter_map(Result::err) {
            failure.tell(&self.called);
            self.code = self.code.max(failure.code());
        }
        self.code
    }
}
