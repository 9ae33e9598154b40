//! Events that may free space.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

/// Events that may free space.
#[derive(Debug, Default)]
pub(super) struct SpaceEvents {
    /// Requests by which a file may lose its last name.
    removals: AtomicU64,
    /// Files that are closed or forgotten: begun, and done.
    begun: AtomicU64,
    done: AtomicU64,
}

/// A file that is being closed or forgotten while this lives.
#[derive(Debug)]
pub(super) struct Ending<'a>(&'a SpaceEvents);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.done.fetch_add(1, Ordering::Release);
    }
}

impl SpaceEvents {
    /// A file may lose its last name.
    pub(super) fn removal(&self) {
        self.removals.fetch_add(1, Ordering::Relaxed);
    }

    /// A file is closed or forgotten.
    pub(super) fn ending(&self) -> Ending<'_> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        Ending(self)
    }

    pub(super) fn removals(&self) -> u64 {
        self.removals.load(Ordering::Relaxed)
    }

    /// How many files have been closed or forgotten; `None` while some are.
    pub(super) fn endings(&self) -> Option<u64> {
        let done = self.done.load(Ordering::Acquire);
        (self.begun.load(Ordering::Relaxed) == done).then_some(done)
    }
}

/// Whether more space would have helped.
pub(super) fn wants_space(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::DQUOT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_being_forgotten_is_an_event() {
        let space_events = SpaceEvents::default();
        let (one, other) = (space_events.ending(), space_events.ending());
        assert_eq!(space_events.endings(), None);
        drop(one);
        assert_eq!(space_events.endings(), None);
        drop(other);
        assert_eq!(space_events.endings(), Some(2));
    }
}
