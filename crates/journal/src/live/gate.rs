//! The gate of the running transaction: a handle enters by one atomic addition, and takes its credits by another beside it.

use extant_ondisk::Tid;
use extant_runtime::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const CLOSED: u64 = 1 << 31;
const HANDLES: u64 = CLOSED - 1;
const TID_SHIFT: u32 = 32;

/// What all handles change when they come and go. It lies in one line of the processor's cache, which nothing else shares.
#[repr(align(64))]
pub(super) struct Gate {
    /// The running transaction's number, whether it takes handles, and how many it has.
    word: AtomicU64,
    /// Blocks that the handles of a transaction may still dirty, and those that they have dirtied: of transactions with even
    /// numbers, and with odd ones.
    credits: [AtomicU32; 2],
}

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
        Self {
            word: AtomicU64::new(u64::from(tid.0) << TID_SHIFT),
            credits: <[AtomicU32; 2]>::default(),
        }
    }

    /// The credits of the running transaction, or of the one that commits.
    pub(super) fn credits(&self, tid: Tid) -> &AtomicU32 {
        &self.credits[(tid.0 % 2) as usize]
    }

    /// Enters and shows the gate as it was. If it was closed, the entry does not count and must be taken back by
    /// [`Gate::leave`] at once.
    pub(super) fn enter(&self) -> Glance {
        Glance::of(self.word.fetch_add(1, Ordering::AcqRel))
    }

    /// Leaves; true when somebody waits at the closed gate for this last one.
    pub(super) fn leave(&self) -> bool {
        let before = Glance::of(self.word.fetch_sub(1, Ordering::AcqRel));
        assert!(before.handles > 0, "a handle leaves once");
        before.is_closed && before.handles == 1
    }

    /// No more handles from now on.
    pub(super) fn close(&self) {
        self.word.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// The closed gate opens for the next transaction.
    pub(super) fn open_next(&self) {
        // Entries that are about to be taken back stay counted. The number wraps around as it should.
        let step = (1 << TID_SHIFT) - CLOSED;
        let before = Glance::of(self.word.fetch_add(step, Ordering::AcqRel));
        assert!(before.is_closed, "an open gate is opened");
    }

    pub(super) fn look(&self) -> Glance {
        Glance::of(self.word.load(Ordering::Acquire))
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
