//! The gate of the running transaction: a handle enters by one atomic addition.

use extant_device::sync::atomic::{AtomicU64, Ordering};
use extant_ondisk::Tid;

const CLOSED: u64 = 1 << 31;
const HANDLES: u64 = CLOSED - 1;
const TID_SHIFT: u32 = 32;

/// The running transaction's number, whether it takes handles, and how many it has.
pub(super) struct Gate(AtomicU64);

/// What a glance at the gate shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Glance {
    /// The running (or locked) transaction.
    pub(super) tid: Tid,
    /// It takes no more handles.
    pub(super) is_closed: bool,
    /// Handles in it.
    pub(super) handles: u32,
}

impl Glance {
    fn of(word: u64) -> Self {
        Self {
            tid: Tid((word >> TID_SHIFT) as u32),
            is_closed: word & CLOSED != 0,
            // 31 bits.
            handles: (word & HANDLES) as u32,
        }
    }
}

impl Gate {
    pub(super) fn new(tid: Tid) -> Self {
        Self(AtomicU64::new(u64::from(tid.0) << TID_SHIFT))
    }

    /// Enters and shows the gate as it was. If it was closed, the entry does not count and must be taken back by
    /// [`Gate::leave`] at once.
    pub(super) fn enter(&self) -> Glance {
        Glance::of(self.0.fetch_add(1, Ordering::AcqRel))
    }

    /// Leaves; true when somebody waits at the closed gate for this last one.
    pub(super) fn leave(&self) -> bool {
        let before = Glance::of(self.0.fetch_sub(1, Ordering::AcqRel));
        assert!(before.handles > 0, "a handle leaves once");
        before.is_closed && before.handles == 1
    }

    /// No more handles from now on.
    pub(super) fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// The closed gate opens for the next transaction.
    pub(super) fn open_next(&self) {
        // Entries that are about to be taken back stay counted. The number wraps around as it should.
        let step = (1 << TID_SHIFT) - CLOSED;
        let before = Glance::of(self.0.fetch_add(step, Ordering::AcqRel));
        assert!(before.is_closed, "an open gate is opened");
    }

    pub(super) fn look(&self) -> Glance {
        Glance::of(self.0.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_wraps_and_late_entries_stay_counted() {
        let gate = Gate::new(Tid(u32::MAX));
        assert_eq!(gate.enter(), Glance { tid: Tid(u32::MAX), is_closed: false, handles: 0 });
        gate.close();
        assert!(gate.enter().is_closed);
        assert!(!gate.leave());
        assert!(gate.leave());
        assert!(gate.enter().is_closed);
        gate.open_next();
        assert_eq!(gate.look(), Glance { tid: Tid(0), is_closed: false, handles: 1 });
        assert!(!gate.leave());
    }
}
