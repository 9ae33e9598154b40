//! Calls that find no space, tried again once some was gained.
//!
//! There may be space that is not free yet: what running transactions freed is free after a commit,
//! and what was reserved for delayed data beyond their need is free once these are written. The
//! cheap way is tried first.

use super::Engine;
use extant_reader::Error;

/// What is done for space where a call has found none, before it is tried again.
#[derive(Clone, Copy, Debug)]
enum Rung {
    /// A commit, where it would free something.
    Commit,
    /// All delayed data are written, where clusters are reserved for some; and what that has freed
    /// is committed.
    WriteBack,
}

/// Which rungs a call may try: it depends on the locks that it holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ladder {
    /// All, in order. No lock and no handle is held.
    Whole,
    /// The rungs that need no lock of a file: such a lock may be held, but no handle.
    LockHeld,
    /// Those that are left when [`Self::LockHeld`] was not enough. No lock and no handle is held.
    LockReleased,
}

impl Ladder {
    fn rungs(self) -> &'static [Rung] {
        match self {
            Self::Whole => &[Rung::Commit, Rung::WriteBack],
            Self::LockHeld => &[Rung::Commit],
            Self::LockReleased => &[Rung::WriteBack],
        }
    }
}

impl Engine {
    /// Runs an operation as soon as the volume is not frozen, and again where it finds no space and
    /// some can be gained. It has let locks and handle go when it returns.
    pub(crate) fn with_space<R>(
        &self,
        operation: impl FnMut() -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.wait_for_thaw()?;
        self.noted(self.retry_for_space(Ladder::Whole, operation))
    }

    /// Tries, and tries again after each rung that may have gained space, as long as there is none.
    /// An attempt that has done a part goes on from there the next time.
    pub(crate) fn retry_for_space<R>(
        &self,
        ladder: Ladder,
        mut attempt: impl FnMut() -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut outcome = attempt();
        for rung in ladder.rungs() {
            if !matches!(outcome, Err(Error::NoSpace)) {
                break;
            }
            if self.gain_space(*rung)? {
                outcome = attempt();
            }
        }
        outcome
    }

    /// Takes a rung; whether there may be more space now.
    fn gain_space(&self, rung: Rung) -> Result<bool, Error> {
        match rung {
            Rung::Commit if self.allocator.has_pending() => {}
            Rung::WriteBack if self.allocator.reserved_clusters() > 0 => self.write_back_all(),
            Rung::Commit | Rung::WriteBack => return Ok(false),
        }
        self.journal.sync()?;
        Ok(true)
    }
}
