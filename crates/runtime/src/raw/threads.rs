//! The system's locks (parking_lot) and threads.
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "this is what the others use instead"
)]

use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// Atomic numbers and flags.
pub mod atomic {
    pub use std::sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
        Ordering, fence,
    };
}

/// Threads for parallel work that ends before its caller does; background work is
/// [`Env::spawn`](crate::env::Env::spawn).
pub mod thread {
    use std::time::Duration;

    pub(crate) use std::thread::current;
    pub use std::thread::{JoinHandle, Scope, ScopedJoinHandle, available_parallelism, yield_now};

    /// As [`std::thread::spawn`].
    pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        std::thread::spawn(work)
    }

    /// As [`std::thread::scope`].
    pub fn scope<'env, T>(work: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
        std::thread::scope(work)
    }

    /// A small number that no other thread has, to choose one of several shards.
    pub fn number() -> usize {
        use std::cell::Cell;
        use std::sync::atomic::{AtomicUsize, Ordering};
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        std::thread_local! {
            static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
        }
        NUMBER.get().unwrap_or_else(|| {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            NUMBER.set(Some(number));
            number
        })
    }

    /// Lets other threads run briefly.
    pub(crate) fn nap() {
        std::thread::sleep(Duration::from_millis(1));
    }

    pub(crate) fn spawn_named(name: &str, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)
            .expect("the system has threads left")
    }
}

pub(crate) use std::thread_local;

pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);
pub(crate) struct MutexGuard<'a, T>(parking_lot::MutexGuard<'a, T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(self.0.lock())
    }
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().map(MutexGuard)
    }
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner()
    }
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl<T> MutexGuard<'_, T> {
    pub(crate) fn unlocked(&mut self, f: impl FnOnce()) {
        parking_lot::MutexGuard::unlocked(&mut self.0, f);
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

pub(crate) struct RwLock<T>(parking_lot::RwLock<T>);
pub(crate) use parking_lot::RwLockReadGuard as ReadGuard;
pub(crate) use parking_lot::RwLockWriteGuard as WriteGuard;

impl<T> RwLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(parking_lot::RwLock::new(value))
    }
    pub(crate) fn read(&self) -> ReadGuard<'_, T> {
        self.0.read()
    }
    pub(crate) fn write(&self) -> WriteGuard<'_, T> {
        self.0.write()
    }
    #[inline]
    pub(crate) fn try_read(&self) -> Option<ReadGuard<'_, T>> {
        self.0.try_read()
    }
    #[inline]
    pub(crate) fn try_write(&self) -> Option<WriteGuard<'_, T>> {
        self.0.try_write()
    }
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner()
    }
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

#[derive(Default)]
pub(crate) struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }
    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(&mut guard.0);
    }
    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, limit: Duration) {
        self.0.wait_for(&mut guard.0, limit);
    }
    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }
    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Real time, on which the runtime's clock is based.
pub(crate) mod clock {
    use std::time::{Duration, Instant};

    use rustix::time::{ClockId, clock_gettime};

    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Start(Instant);

    impl Start {
        pub(crate) fn now() -> Self {
            Self(Instant::now())
        }
        pub(crate) fn elapsed(self) -> Duration {
            self.0.elapsed()
        }
    }

    /// Seconds and nanoseconds since 1970, as in the kernel's file timestamps: that of its last
    /// tick. A finer clock would be ahead of the kernel's own timestamps.
    pub(crate) fn wall() -> (i64, u32) {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        // The kernel gives less than a second of them.
        (now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or(0))
    }
}
