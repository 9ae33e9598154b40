//! The programs that run cells, and the watchers of a run.

use super::error::RunError;
use crate::cell::Cell;
use crate::sample::Sample;

/// Whoever watches a run.
pub trait Watch {
    /// A cell begins: which of how many, and how many seconds are left, as far as can be told.
    fn begins(&mut self, number: usize, total: usize, cell: &Cell, left: Option<f64>);
    /// One that is at work does this now.
    fn phase(&mut self, cell: &Cell, phase: &str);
    /// It ended, after so many seconds, or could not run.
    fn ended(&mut self, cell: &Cell, outcome: Result<f64, &str>);
    /// Whether to stop now.
    fn is_interrupted(&self) -> bool;
}

/// What a cell came to: its samples, or why it has none.
pub type Ended = Result<Vec<Sample>, Failure>;

/// Why a cell came to nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// In words.
    pub why: String,
    /// For want of memory the kernel ended something: another run may have enough. Without, no run
    /// of the target is expected to go better.
    pub is_want_of_memory: bool,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self { why, is_want_of_memory: false }
    }
}

/// Whoever runs cells.
pub trait Executor {
    /// Whether mounts end with a cell.
    fn is_isolated(&self) -> bool;
    /// Whether it is another machine than this one.
    fn is_guest(&self) -> bool;
    /// Runs one.
    ///
    /// # Errors
    /// No cell can be run any more, or [`Watch::is_interrupted`].
    fn one(&mut self, cell: &Cell, watch: &mut dyn Watch) -> Result<Ended, RunError>;
}
