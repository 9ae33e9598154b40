//! Errors of a profile, with their lines.

/// A profile that cannot be run.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {line}: {flaw}")]
pub struct ProfileError {
    /// Counted from 1. What is missing is told at its section's first line.
    pub line: usize,
    /// What is wrong there.
    pub flaw: Flaw,
}

/// What is wrong with a profile.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// Neither `key = value` nor a section nor a list item.
    #[error("{0:?} is neither a key with a value nor a section")]
    Line(String),
    /// A section of another name, or one that has no place there.
    #[error("there is no section [{0}] here")]
    Section(String),
    /// `[end]` of nothing.
    #[error("[end] without a section")]
    End,
    /// A section that the file's end cuts off.
    #[error("the section has no [end]")]
    Open,
    /// A key that there is not.
    #[error("there is no key {0} here")]
    Key(String),
    /// A value that does not fit its key.
    #[error("{key} = {value:?}: {expected} is expected")]
    Value {
        /// The key.
        key: String,
        /// What it has.
        value: String,
        /// What it should have.
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
        /// What is missing.
        needed: &'static str,
        /// What needs it.
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
    /// Nothing to work on, or nobody to do it.
    #[error("the profile has no [{0}]")]
    NoSection(&'static str),
}

impl Flaw {
    pub(super) fn at(self, line: usize) -> ProfileError {
        ProfileError { line, flaw: self }
    }
}
