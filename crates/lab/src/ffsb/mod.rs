//! The Flexible File System Benchmark: profiles of FFSB 5 and 6, and an engine that runs them on
//! any [`Files`].
//!
//! The behaviour of the format and the program is taken from its documentation and from
//! observation. For known defects of the program ours follows the documentation; each such place
//! says so.

mod names;
mod operate;
pub mod profile;
mod reference;
mod run;
mod trial;
mod turns;

use std::io;
use std::path::{Path, PathBuf};

pub use profile::Profile;
pub use reference::{REFERENCES, Reference};
pub use run::run;
pub use trial::{Counts, Group, Measured, Times, TrialResult};
pub use turns::run_in_turns;

#[cfg(doc)]
use crate::files::Files;

/// Why a run ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A call failed.
    #[error("cannot {what} {}: {source}", path.display())]
    Call {
        /// The operation.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A call did less than it should.
    #[error("{} ended while it was read", path.display())]
    Short {
        /// The file.
        path: PathBuf,
    },
    /// An operation wants more of a file than there is.
    #[error("{operation} needs {wanted} bytes of {}, which has {size}", path.display())]
    TooSmall {
        /// The operation's name.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// Its size, in bytes.
        size: u64,
        /// The size that a larger file would have.
        wanted: u64,
    },
    /// An operation finds no file.
    #[error("{operation}: no file is left in {}", path.display())]
    NoFile {
        /// The operation's name.
        operation: &'static str,
        /// The directory of the files.
        path: PathBuf,
    },
    /// Operations that logical threads taking turns cannot do.
    #[error("on a simulated drive a profile makes files and does nothing else: not {0}")]
    NotInTurns(&'static str),
    /// The machine has no room for another thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// The profile's command did not do its work.
    #[error("callout {command:?}: {what}")]
    Callout {
        /// The command.
        command: String,
        /// How it ended.
        what: String,
    },
}

/// An error of a call, with the subject of the call.
fn failed<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> RunError + 'a {
    move |source| RunError::Call { what, path: path.to_owned(), source }
}
