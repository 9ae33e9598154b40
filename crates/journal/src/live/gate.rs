//! The gate of the running transaction: a handle enters by one atomic addition, and takes its
//! credits by another.

use extant_ondisk::Tid;
use extant_runtime::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const CLOSED: u64 = 1 << 31;
const HANDLES: u64 = CLOSED - 1;
const TID_SHIFT: u32 = 32;

/// The counters that every handle changes at its start and end, alone in a CPU cache line.
#[repr(align(64))]
pub(super) struct Gate {
    /// The running transaction's number, whether it is closed, and its number of handles.
    word: AtomicU64,
    /// Numbers of blocks that the handles of a transaction may still dirty, and have dirtied: for
    /// transactions with even and with odd numbers.
    credits: [AtomicU32; 2],
}

/// The state of the gate at one moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct GateState {
    /// The running (or locked) transaction.
    pub(super) tid: Tid,
    /// Whether it takes no more handles.
    pub(super) is_closed: bool,
    /// Number of handles in it.
    pub(super) handles: u32,
}

impl GateState {
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

    /// The credits of the running or the committing transaction.
    pub(super) fn credits(&self, tid: Tid) -> &AtomicU32 {
        &self.credits[(tid.0 % 2) as usize]
    }

    /// Enters, and returns the gate's state before. If it was closed, the entry does not count and
    /// must be undone by [`Gate::leave`] at once.
    pub(super) fn enter(&self) -> GateState {
        GateState::of(self.word.fetch_add(1, Ordering::AcqRel))
    }

    /// Leaves. Returns true if the commit waits at the closed gate and this was the last handle.
    pub(super) fn leave(&self) -> bool {
        let before = GateState::of(self.word.fetch_sub(1, Ordering::AcqRel));
        assert!(before.handles > 0, "a handle leaves once");
        before.is_closed && before.handles == 1
    }

    /// Closes the gate to new handles.
    pub(super) fn close(&self) {
        self.word.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Opens the closed gate for the next transaction.
    pub(super) fn open_next(&self) {
        // Entries that are about to be undone stay counted. The number wraps around as intended.
        let step = (1 << TID_SHIFT) - CLOSED;
        let before = GateState::of(self.word.fetch_add(step, Ordering::AcqRel));
        assert!(before.is_closed, "an open gate is opened");
    }

    pub(super) fn state(&self) -> GateState {
        GateState::of(self.word.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_wraps_and_late_entries_stay_counted() {
        let gate = Gate::new(Tid(u32::MAX));
        assert_eq!(gate.enter(), GateState { tid: Tid(u32::MAX), is_closed: false, handles: 0 });
        gate.close();
        assert!(gate.enter().is_closed);
        assert!(!gate.leave());
        assert!(gate.leave());
        assert!(gate.enter().is_closed);
        gate.open_next();
        assert_eq!(gate.state(), GateState { tid: Tid(0), is_closed: false, handles: 1 });
        assert!(!gate.leave());
    }
}
