//! The memory that delayed data take.
//!
//! One limit holds for a volume ([`VolumeOptions::memory`](crate::VolumeOptions::memory)). Frames
//! of metadata take at most half of it, inodes an eighth, and buddies an eighth; delayed data take
//! the rest, between an eighth and half. A writer over the limit gives buddies up
//! first, and waits, with no lock held, until data were written; it does not fail.

use crate::ranks::DelayedMemoryLock;
use extant_runtime::env::Env;
use extant_runtime::sync::atomic::{AtomicU64, Ordering};
use extant_runtime::sync::{Condvar, Mutex};

/// Bytes that delayed data take and may take.
#[derive(Debug)]
pub(crate) struct DelayedMemory {
    /// The volume's limit.
    all: u64,
    /// Number of bytes that delayed data may take now.
    limit: AtomicU64,
    used: Mutex<Used, DelayedMemoryLock>,
    given_back: Condvar,
}

/// Bytes of a turn: one waiter is woken for each. More waiters would block each other, and a wake
/// for each write costs more than the write.
const TURN: u64 = 1 << 20;

#[derive(Debug, Default)]
struct Used {
    /// Delayed, or admitted and not yet delayed.
    bytes: u64,
    waiting: u64,
    /// Bytes admitted and given back since the last waiter was woken.
    turn: u64,
}

impl Used {
    /// Counts bytes that were admitted or given back; returns whether a waiter is woken. While more
    /// than half of the limit is in use, that is once a turn; every waiter is woken then, since the
    /// background writer continues as long as any thread waits.
    fn wakes_one(&mut self, bytes: u64, limit: u64) -> bool {
        self.turn += bytes;
        let is_turn = self.turn >= TURN.min(limit / 32) || self.bytes < limit / 2;
        let wakes = self.waiting > 0 && self.bytes < limit && is_turn;
        if wakes {
            self.turn = 0;
        }
        wakes
    }
}

/// Whether others wait for memory too.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Waits {
    Alone,
    WithOthers,
}

/// Bytes that a caller may delay. The rest of them is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Admission<'m> {
    memory: &'m DelayedMemory,
    bytes: u64,
}

impl Admission<'_> {
    /// Counts bytes that are delayed now.
    pub(crate) fn spend(&mut self, bytes: u64) {
        let short = bytes.saturating_sub(self.bytes);
        if short > 0 {
            self.memory.used.lock().bytes += short;
        }
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        self.memory.give_back(self.bytes);
    }
}

impl DelayedMemory {
    pub(crate) fn new(all: u64) -> Self {
        Self {
            all,
            limit: AtomicU64::new(all / 2),
            used: Mutex::default(),
            given_back: Condvar::new(),
        }
    }

    /// The largest write that is delayed: a longer one would push out all others.
    pub(crate) fn largest(&self) -> u64 {
        self.all / 16
    }

    /// Bytes of buddies that stay while memory is short.
    pub(crate) fn least_buddies(&self) -> u64 {
        self.all / 64
    }

    /// Sets the bytes that frames and buddies take now: delayed data may take the rest, within
    /// bounds.
    pub(crate) fn set_others(&self, bytes: u64) {
        let left = (self.all - self.all / 8).saturating_sub(bytes);
        self.limit.store(left.clamp(self.all / 8, self.all / 2), Ordering::Relaxed);
    }

    /// Bytes that delayed data may take now.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Whether data should be written: a quarter of the limit is delayed, or a thread waits. With a
    /// small limit, the disk would idle until half of it is used.
    pub(crate) fn is_short(&self) -> bool {
        let used = self.used.lock();
        used.waiting > 0 || used.bytes > self.limit() / 4
    }

    /// Waits until `bytes` bytes may be delayed. No lock is held; `help` wakes the background
    /// writer, and for all waiters but the first also writes some data, unless enough others do.
    /// The first continues as soon as there is memory: it would fill none while it writes, and
    /// without other writers the disk would idle then.
    pub(crate) fn admit(
        &self,
        env: &Env,
        bytes: u64,
        help: impl Fn(Waits) -> bool,
    ) -> Admission<'_> {
        let is_over = |used: &Used| used.bytes > 0 && used.bytes + bytes > self.limit();
        let mut used = self.used.lock();
        while is_over(&used) {
            used.waiting += 1;
            let waits = if used.waiting == 1 { Waits::Alone } else { Waits::WithOthers };
            drop(used);
            let has_helped = help(waits);
            used = self.used.lock();
            if !has_helped {
                env.wait_while(&self.given_back, &mut used, |used| is_over(used));
            }
            used.waiting -= 1;
        }
        used.bytes += bytes;
        let wakes_next = used.wakes_one(bytes, self.limit());
        drop(used);
        if wakes_next {
            self.given_back.notify_one();
        }
        Admission { memory: self, bytes }
    }

    /// Counts bytes that are free again.
    pub(crate) fn give_back(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut used = self.used.lock();
        debug_assert!(used.bytes >= bytes, "{bytes} bytes given back of {}", used.bytes);
        used.bytes = used.bytes.saturating_sub(bytes);
        let wakes_one = used.wakes_one(bytes, self.limit());
        drop(used);
        if wakes_one {
            self.given_back.notify_one();
        }
    }

    /// Delayed data took `before` bytes and take `after` now.
    pub(crate) fn changed(&self, before: u64, after: u64) {
        if after > before {
            self.used.lock().bytes += after - before;
        } else {
            self.give_back(before - after);
        }
    }
}
