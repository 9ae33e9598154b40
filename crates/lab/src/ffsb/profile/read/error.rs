//! Errors of a profile, with their lines.

/// A profile that cannot be run.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {line}: {flaw}")]
pub struct ProfileError {
    /// Counted from 1. A missing item is reported at its section's first line.
    pub line: usize,
    /// The flaw.
    pub flaw: Flaw,
}

/// A flaw of a profile.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// Neither `key = value` nor a section nor a list item.
    #[error("{0:?} is neither a key with a value nor a section")]
    Line(String),
    /// A section of another name, or one that has no place there.
    #[error("unknown section [{0}]")]
    Section(String),
    /// `[end]` of nothing.
    #[error("[end] without a section")]
    End,
    /// A section that the file's end cuts off.
    #[error("the section has no [end]")]
    Open,
    /// A key that there is not.
    #[error("unknown key {0}")]
    Key(String),
    /// A value that does not fit its key.
    #[error("{key} = {value:?}: {expected} is expected")]
    Value {
        /// The key.
        key: String,
        /// The present count.
        value: String,
        /// The required count.
        expected: &'static str,
    },
    /// A key that must be there.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// Two settings that rule each other out.
    #[error("{0} and {1} are mutually exclusive")]
    Conflict(&'static str, &'static str),
    /// A setting that another one needs.
    #[error("{by} requires {needed}")]
    Needs {
        /// The missing item.
        needed: &'static str,
        /// The item that needs it.
        by: &'static str,
    },
    /// A reference to a file system that is not described, or only later.
    #[error("no [filesystem] before this has the location {0}")]
    NoSuchLocation(String),
    /// A binding to a file system that is not described.
    #[error("bindfs: no [filesystem] has the location or number {0}")]
    NoSuchFileSystem(String),
    /// An operation that ageing has no use for.
    #[error("an ageing group cannot {0}")]
    CannotAge(&'static str),
    /// No files to work on, or no threads.
    #[error("the profile has no [{0}]")]
    NoSection(&'static str),
}

impl Flaw {
    pub(super) fn at(self, line: usize) -> ProfileError {
        ProfileError { line, flaw: self }
    }
}
