//! Calls that find no space, tried again once some was gained.
//!
//! There may be space that is not free yet: what running transactions freed is free after a commit,
//! and what was reserved for delayed data beyond their need is free once these are written. The
//! cheap way is tried first.

use super::Engine;
use extant_reader::Error;

/// A way to gain space where a call has found none, before it is tried again.
#[derive(Clone, Copy, Debug)]
enum ReclaimStep {
    /// Commits if that frees something.
    Commit,
    /// Writes all delayed data if clusters are reserved for some, and commits the space that this
    /// frees.
    WriteBack,
}

/// Which steps a call may try: it depends on the locks that it holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReclaimSteps {
    /// All, in order. No lock and no handle is held.
    Whole,
    /// The steps that need no lock of a file: such a lock may be held, but no handle.
    LockHeld,
    /// The steps that are left if [`Self::LockHeld`] was not enough. No lock and no handle is held.
    LockReleased,
}

impl ReclaimSteps {
    fn steps(self) -> &'static [ReclaimStep] {
        match self {
            Self::Whole => &[ReclaimStep::Commit, ReclaimStep::WriteBack],
            Self::LockHeld => &[ReclaimStep::Commit],
            Self::LockReleased => &[ReclaimStep::WriteBack],
        }
    }
}

impl Engine {
    /// Runs an operation as soon as the volume is not frozen, and again where it finds no space and
    /// some can be gained. It has released locks and handle when it returns.
    pub(crate) fn with_space<R>(
        &self,
        operation: impl FnMut() -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.wait_for_thaw()?;
        self.record_corruption(self.retry_for_space(ReclaimSteps::Whole, operation))
    }

    /// Tries, and tries again after each step that may have gained space, until there is some. An
    /// attempt that has done a part continues from there the next time.
    pub(crate) fn retry_for_space<R>(
        &self,
        steps_to_try: ReclaimSteps,
        mut attempt: impl FnMut() -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut outcome = attempt();
        for step in steps_to_try.steps() {
            if !matches!(outcome, Err(Error::NoSpace)) {
                break;
            }
            if self.reclaim(*step)? {
                outcome = attempt();
            }
        }
        outcome
    }

    /// Takes a step; whether there may be more space now.
    fn reclaim(&self, step: ReclaimStep) -> Result<bool, Error> {
        match step {
            ReclaimStep::Commit if self.allocator.has_pending() => {}
            ReclaimStep::WriteBack if self.allocator.reserved_clusters() > 0 => {
                self.write_back_all()
            }
            ReclaimStep::Commit | ReclaimStep::WriteBack => return Ok(false),
        }
        self.journal.sync()?;
        Ok(true)
    }
}
