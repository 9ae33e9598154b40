//! Errors that end a cell.

use std::fmt::Display;

/// Why a cell ends early: a sentence for the report.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct CellError(pub String);

impl CellError {
    pub(super) fn new(what: impl Display) -> Self {
        Self(what.to_string())
    }
}

/// Adds the failed operation to an error.
pub(super) trait Trying<T> {
    fn trying(self, what: impl Display) -> Result<T, CellError>;
}

impl<T, E: Display> Trying<T> for Result<T, E> {
    fn trying(self, what: impl Display) -> Result<T, CellError> {
        self.map_err(|error| CellError(format!("{what}: {error}")))
    }
}
