//! Shuttle's locks and threads, with the interface of `threads.rs`. There is no time: a wait with
//! a limit waits for its notification, and a worker that is to run later runs when it is woken.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use shuttle::sync;

/// Atomic numbers and flags.
pub mod atomic {
    pub use shuttle::sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
        Ordering, fence,
    };
}

/// Threads for parallel work that ends before its caller does; background work is
/// [`Env::spawn`](crate::env::Env::spawn).
pub mod thread {
    pub(crate) use shuttle::thread::current;
    pub(crate) use shuttle::thread::yield_now as nap;
    pub use shuttle::thread::{JoinHandle, Scope, ScopedJoinHandle, scope, spawn, yield_now};
    pub use std::thread::available_parallelism;

    /// Schedules are not explored for shards: all threads have the same number.
    pub fn number() -> usize {
        0
    }

    pub(crate) fn spawn_named(name: &str, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        shuttle::thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)
            .expect("shuttle has threads left")
    }
}

pub(crate) use shuttle::thread_local;

const POISON: &str = "a panic ends the whole test under shuttle";

pub(crate) struct Mutex<T>(sync::Mutex<T>);

/// The guard is taken out during a wait for a condition.
pub(crate) struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    guard: Option<sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { lock: self, guard: Some(self.0.lock().expect(POISON)) }
    }
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        Some(MutexGuard { lock: self, guard: Some(self.0.try_lock().ok()?) })
    }
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect(POISON)
    }
    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner().expect(POISON)
    }
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl<T> MutexGuard<'_, T> {
    pub(crate) fn unlocked(&mut self, f: impl FnOnce()) {
        self.guard = None;
        f();
        self.guard = Some(self.lock.0.lock().expect(POISON));
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.guard.as_ref().expect("taken only during a wait")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("taken only during a wait")
    }
}

pub(crate) struct RwLock<T>(sync::RwLock<T>);
pub(crate) use shuttle::sync::RwLockReadGuard as ReadGuard;
pub(crate) use shuttle::sync::RwLockWriteGuard as WriteGuard;

impl<T> RwLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }
    pub(crate) fn read(&self) -> ReadGuard<'_, T> {
        self.0.read().expect(POISON)
    }
    pub(crate) fn write(&self) -> WriteGuard<'_, T> {
        self.0.write().expect(POISON)
    }
    pub(crate) fn try_read(&self) -> Option<ReadGuard<'_, T>> {
        self.0.try_read().ok()
    }
    pub(crate) fn try_write(&self) -> Option<WriteGuard<'_, T>> {
        self.0.try_write().ok()
    }
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect(POISON)
    }
    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner().expect(POISON)
    }
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

#[derive(Default)]
pub(crate) struct Condvar(sync::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(sync::Condvar::new())
    }
    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let inner = guard.guard.take().expect("taken only during a wait");
        guard.guard = Some(self.0.wait(inner).expect(POISON));
    }
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _limit: Duration) {
        self.wait(guard);
    }
    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }
    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A stopped clock: with real time, two runs of one schedule would differ.
pub(crate) mod clock {
    use std::time::Duration;

    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Start;

    impl Start {
        pub(crate) fn now() -> Self {
            Self
        }
        pub(crate) fn elapsed(self) -> Duration {
            Duration::ZERO
        }
    }

    /// Seconds and nanoseconds since 1970.
    pub(crate) fn wall() -> (i64, u32) {
        (1_767_225_600, 0)
    }
}
