//! The programs that run cells, and the watchers of a run.

use super::error::RunError;
use crate::cell::Cell;
use crate::sample::Sample;

/// The observer of a run.
pub trait Watch {
    /// A cell begins: its number of how many, and the estimated seconds left.
    fn begins(&mut self, number: usize, total: usize, cell: &Cell, left: Option<f64>);
    /// A running cell does this now.
    fn phase(&mut self, cell: &Cell, phase: &str);
    /// It ended, after a number of seconds, or could not run.
    fn ended(&mut self, cell: &Cell, outcome: Result<f64, &str>);
    /// Whether to stop now.
    fn is_interrupted(&self) -> bool;
}

/// The result of a cell: its samples, or the reason why it has none.
pub type Ended = Result<Vec<Sample>, Failure>;

/// Why a cell came to nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// In words.
    pub why: String,
    /// The kernel killed a process for lack of memory: another run may succeed. Otherwise no run of
    /// the target is expected to succeed.
    pub is_want_of_memory: bool,
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self { why, is_want_of_memory: false }
    }
}

/// Runs cells.
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
