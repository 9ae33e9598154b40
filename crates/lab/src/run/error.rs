//! Errors that end a run.

use std::io;
use std::path::PathBuf;

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The results could not be kept, or no process started.
    #[error("{what}: {source}")]
    Io {
        /// The file or program.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The directory holds results of something else.
    #[error("{}: contains results of other {what}: use another --out", path.display())]
    Other {
        /// The directory.
        path: PathBuf,
        /// The difference.
        what: &'static str,
    },
    /// [`must_be_alone`](super::must_be_alone).
    #[error("{0}")]
    NotBeside(String),
    /// There is an [`Alone`](super::Alone) for it.
    #[error("{}: in use by another run", path.display())]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// [`Watch::is_interrupted`](super::Watch::is_interrupted).
    #[error("interrupted (run the same command again to resume)")]
    Interrupted,
}

pub(super) fn failed<'w>(
    what: impl std::fmt::Display + 'w,
) -> impl FnOnce(io::Error) -> RunError + 'w {
    move |source| RunError::Io { what: what.to_string(), source }
}
