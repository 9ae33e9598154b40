//! Locks, condition variables, atomics and threads for the engine.
//!
//! They are those of parking_lot and std; with the cargo feature `shuttle` they are shuttle's, so
//! that a test can explore interleavings. Locks do not poison: a panic in the engine is a bug that
//! ends the operation, and the journal decides what is durable.
//!
//! **The lock order is declared in the types.** A lock may have a [`Rank`], declared by
//! [`lock_ranks!`](crate::lock_ranks): a thread takes ranked locks only in ascending order of
//! levels. Debug builds check this at each lock, whether or not another thread holds it, and panic
//! with both names; release builds have no checks. A lock without a rank is only checked for being
//! taken twice by one thread.
//!
//! In a stepped runtime ([`Env::stepped`](crate::env::Env::stepped)), the other workers run while a
//! thread blocks here.

mod rank;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

pub use crate::raw::{atomic, thread};
pub use std::sync::{Arc, Weak};

pub use rank::{KeyedRank, Rank, Unranked};

use crate::env::stepped;
use crate::raw;
use rank::Held;

/// A mutual exclusion lock, ranked by `R`.
pub struct Mutex<T, R: Rank = Unranked> {
    raw: raw::Mutex<T>,
    rank: PhantomData<fn() -> R>,
}

/// A locked [`Mutex`].
#[must_use = "the lock is released at once"]
pub struct MutexGuard<'a, T, R: Rank = Unranked> {
    raw: raw::MutexGuard<'a, T>,
    held: Held,
    rank: PhantomData<fn() -> R>,
}

impl<T> Mutex<T> {
    /// Creates a lock without a rank.
    pub const fn new(value: T) -> Self {
        Self::ranked(value)
    }
}

impl<T, R: Rank> Mutex<T, R> {
    /// Creates a lock with the rank of its type.
    pub const fn ranked(value: T) -> Self {
        Self { raw: raw::Mutex::new(value), rank: PhantomData }
    }

    /// Waits for the lock and takes it.
    ///
    /// # Panics
    /// In debug builds, if the thread holds this lock or one of the same or a higher rank.
    pub fn lock(&self) -> MutexGuard<'_, T, R> {
        self.lock_with(None)
    }

    /// As [`Mutex::lock`], if the thread may hold locks of the same rank with lower keys.
    pub fn lock_keyed(&self, key: u64) -> MutexGuard<'_, T, R>
    where
        R: KeyedRank,
    {
        self.lock_with(Some(key))
    }

    #[inline]
    fn lock_with(&self, key: Option<u64>) -> MutexGuard<'_, T, R> {
        let held = Held::blocking::<R>(self.raw.address(), key);
        let raw = match self.raw.try_lock() {
            Some(raw) => raw,
            None => stepped::block_for(|| self.raw.try_lock(), || self.raw.lock()),
        };
        MutexGuard { raw, held, rank: PhantomData }
    }

    /// Takes the lock if it is free. Never waits, so the lock order does not apply.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, R>> {
        let raw = self.raw.try_lock()?;
        Some(MutexGuard { raw, held: Held::trying::<R>(self.raw.address()), rank: PhantomData })
    }

    /// The value, through the only reference to the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.raw.get_mut()
    }

    /// The value of a lock that is not needed any more.
    pub fn into_inner(self) -> T {
        self.raw.into_inner()
    }
}

impl<T: Default, R: Rank> Default for Mutex<T, R> {
    fn default() -> Self {
        Self::ranked(T::default())
    }
}

impl<T: fmt::Debug, R: Rank> fmt::Debug for Mutex<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.raw.try_lock() {
            Some(value) => f.debug_tuple("Mutex").field(&*value).finish(),
            None => f.write_str("Mutex(<locked>)"),
        }
    }
}

impl<T, R: Rank> Deref for MutexGuard<'_, T, R> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.raw
    }
}

impl<T, R: Rank> DerefMut for MutexGuard<'_, T, R> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.raw
    }
}

impl<T: fmt::Debug, R: Rank> fmt::Debug for MutexGuard<'_, T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A lock for one writer or many readers, ranked by `R`.
pub struct RwLock<T, R: Rank = Unranked> {
    raw: raw::RwLock<T>,
    rank: PhantomData<fn() -> R>,
}

/// A [`RwLock`] locked for reading.
#[must_use = "the lock is released at once"]
pub struct ReadGuard<'a, T> {
    raw: raw::ReadGuard<'a, T>,
    _held: Held,
}

/// A [`RwLock`] locked for writing.
#[must_use = "the lock is released at once"]
pub struct WriteGuard<'a, T> {
    raw: raw::WriteGuard<'a, T>,
    _held: Held,
}

impl<T> RwLock<T> {
    /// Creates a lock without a rank.
    pub const fn new(value: T) -> Self {
        Self::ranked(value)
    }
}

impl<T, R: Rank> RwLock<T, R> {
    /// Creates a lock with the rank of its type.
    pub const fn ranked(value: T) -> Self {
        Self { raw: raw::RwLock::new(value), rank: PhantomData }
    }

    /// Waits for the writer, and locks for reading.
    ///
    /// # Panics
    /// In debug builds, if the thread holds this lock (also for reading: a writer that waits
    /// between the two would deadlock both) or one of the same or a higher rank.
    pub fn read(&self) -> ReadGuard<'_, T> {
        self.read_with(None)
    }

    /// As [`RwLock::read`], if the thread may hold locks of the same rank with lower keys.
    pub fn read_keyed(&self, key: u64) -> ReadGuard<'_, T>
    where
        R: KeyedRank,
    {
        self.read_with(Some(key))
    }

    #[inline]
    fn read_with(&self, key: Option<u64>) -> ReadGuard<'_, T> {
        let held = Held::blocking::<R>(self.raw.address(), key);
        let raw = match self.raw.try_read() {
            Some(raw) => raw,
            None => stepped::block_for(|| self.raw.try_read(), || self.raw.read()),
        };
        ReadGuard { raw, _held: held }
    }

    /// Waits for readers and the writer, and locks for writing.
    ///
    /// # Panics
    /// In debug builds, as [`RwLock::read`].
    pub fn write(&self) -> WriteGuard<'_, T> {
        self.write_with(None)
    }

    /// As [`RwLock::write`], if the thread may hold locks of the same rank with lower keys.
    pub fn write_keyed(&self, key: u64) -> WriteGuard<'_, T>
    where
        R: KeyedRank,
    {
        self.write_with(Some(key))
    }

    #[inline]
    fn write_with(&self, key: Option<u64>) -> WriteGuard<'_, T> {
        let held = Held::blocking::<R>(self.raw.address(), key);
        let raw = match self.raw.try_write() {
            Some(raw) => raw,
            None => stepped::block_for(|| self.raw.try_write(), || self.raw.write()),
        };
        WriteGuard { raw, _held: held }
    }

    /// Locks for reading if there is no writer. Never waits.
    pub fn try_read(&self) -> Option<ReadGuard<'_, T>> {
        let raw = self.raw.try_read()?;
        Some(ReadGuard { raw, _held: Held::trying::<R>(self.raw.address()) })
    }

    /// Locks for writing if there is no reader or writer. Never waits.
    pub fn try_write(&self) -> Option<WriteGuard<'_, T>> {
        let raw = self.raw.try_write()?;
        Some(WriteGuard { raw, _held: Held::trying::<R>(self.raw.address()) })
    }

    /// As [`RwLock::try_write`], if locks of the same rank with higher keys may be taken while this
    /// one is held.
    pub fn try_write_keyed(&self, key: u64) -> Option<WriteGuard<'_, T>>
    where
        R: KeyedRank,
    {
        let raw = self.raw.try_write()?;
        Some(WriteGuard { raw, _held: Held::trying_keyed::<R>(self.raw.address(), key) })
    }

    /// The value, through the only reference to the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.raw.get_mut()
    }

    /// The value of a lock that is not needed any more.
    pub fn into_inner(self) -> T {
        self.raw.into_inner()
    }
}

impl<T: Default, R: Rank> Default for RwLock<T, R> {
    fn default() -> Self {
        Self::ranked(T::default())
    }
}

impl<T: fmt::Debug, R: Rank> fmt::Debug for RwLock<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.raw.try_read() {
            Some(value) => f.debug_tuple("RwLock").field(&*value).finish(),
            None => f.write_str("RwLock(<locked>)"),
        }
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.raw
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.raw
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.raw
    }
}

/// Waits of threads for changes of data under a [`Mutex`]. Changes must be notified: a stepped
/// runtime panics if a wait cannot end by a notification.
#[derive(Default)]
pub struct Condvar {
    raw: raw::Condvar,
    /// Number of notifications, which a stepped wait watches.
    notified: std::sync::atomic::AtomicU64,
}

impl Condvar {
    /// Creates a condition without waiters.
    pub const fn new() -> Self {
        Self { raw: raw::Condvar::new(), notified: std::sync::atomic::AtomicU64::new(0) }
    }

    /// Unlocks, waits for a notification (or a spurious wakeup), and locks again. To wait for
    /// background work, use [`Env::wait_while`](crate::env::Env::wait_while), which also detects
    /// that a worker panicked.
    ///
    /// # Panics
    /// In debug builds, if a lock was taken after this one: taking this one again would break the
    /// order.
    pub fn wait<T, R: Rank>(&self, guard: &mut MutexGuard<'_, T, R>) {
        if stepped::is_stepped_thread() {
            self.wait_stepped(guard, None);
        } else {
            guard.held.assert_last();
            self.raw.wait(&mut guard.raw);
        }
    }

    /// Waits for at most `limit` of real time.
    pub(crate) fn wait_real<T, R: Rank>(&self, guard: &mut MutexGuard<'_, T, R>, limit: Duration) {
        guard.held.assert_last();
        self.raw.wait_for(&mut guard.raw, limit);
    }

    /// Waits while the thread's stepped runtime continues, for at most `limit` of its time.
    pub(crate) fn wait_stepped<T, R: Rank>(
        &self,
        guard: &mut MutexGuard<'_, T, R>,
        limit: Option<Duration>,
    ) {
        guard.held.assert_last();
        let seen = self.notifications();
        guard.raw.unlocked(|| stepped::wait(|| self.notifications() != seen, limit));
    }

    fn notifications(&self) -> u64 {
        self.notified.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.notified.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        self.raw.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.notified.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        self.raw.notify_all();
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condvar")
    }
}
