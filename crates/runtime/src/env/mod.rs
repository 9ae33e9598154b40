//! The runtime of the engine: a clock and background work.
//!
//! An [`Env`] is created by the caller of the engine and passed down; it is a handle, cheap to
//! clone.
//! - [`Env::threads`]: background work runs on its own threads, with the real clock.
//! - [`Env::stepped`]: background work runs only when the caller steps it or waits for it, one
//!   worker at a time, chosen by a seeded generator. Its clock advances when the caller advances it
//!   or when all threads wait for it. The same seed and the same calls give the same history. A
//!   worker that blocks during a run (on a lock or a condition) is suspended while the others
//!   continue, so histories interleave as with real threads.
//!
//! A worker is a closure that does one piece of work and returns when it is to run next. A thread
//! that needs the result waits on its own condition:
//!
//! ```
//! use extant_runtime::env::{Env, Next};
//! use extant_runtime::sync::{Arc, Condvar, Mutex};
//!
//! let env = Env::stepped(7);
//! let committed = Arc::new((Mutex::new(0), Condvar::new()));
//! let worker = env.spawn("commit", {
//!     let committed = committed.clone();
//!     move || {
//!         *committed.0.lock() += 1;
//!         committed.1.notify_all();
//!         Next::WhenWoken
//!     }
//! });
//! worker.wake();
//! let mut tid = committed.0.lock();
//! env.wait_while(&committed.1, &mut tid, |tid| *tid < 1);
//! assert_eq!(*tid, 1);
//! ```

#[cfg(all(test, feature = "shuttle"))]
mod shuttle_tests;
pub(crate) mod stepped;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
mod threads;
mod work;

use std::fmt;
use std::time::Duration;

use crate::sync::{Arc, Condvar, MutexGuard, Rank};
use stepped::Stepped;
use threads::Threads;
use work::Work;

pub use work::{Next, WallTime};

/// A clock and background work. See the [module](self).
#[derive(Clone)]
pub struct Env(Kind);

#[derive(Clone)]
enum Kind {
    Threads(Arc<Threads>),
    Stepped(Arc<Stepped>),
}

impl Env {
    /// Creates a runtime with threads and the real clock.
    pub fn threads() -> Self {
        Self(Kind::Threads(Arc::new(Threads::new())))
    }

    /// As [`Self::threads`], with the wall clock stopped at `now`, for changes that give the same
    /// bytes at any time.
    pub fn threads_at(now: WallTime) -> Self {
        Self(Kind::Threads(Arc::new(Threads::at(now))))
    }

    /// Creates a runtime whose background work is stepped by the caller in an order chosen by
    /// `seed`, with a clock that starts on 2026-01-01.
    ///
    /// Only one thread at a time steps and waits in such a runtime, normally the one that created
    /// it.
    pub fn stepped(seed: u64) -> Self {
        Self::stepped_at(seed, WallTime { seconds: 1_767_225_600, nanoseconds: 0 })
    }

    /// As [`Env::stepped`], with a clock that starts at `start`.
    pub fn stepped_at(seed: u64, start: WallTime) -> Self {
        Self(Kind::Stepped(Stepped::new(seed, start)))
    }

    /// Sets the number of processors of a stepped runtime, at least one: see [`Env::spend`].
    pub fn with_processors(self, count: usize) -> Self {
        if let Kind::Stepped(stepped) = &self.0 {
            stepped.set_processors(count);
        }
        self
    }

    /// Whether the caller steps the background work.
    pub fn is_stepped(&self) -> bool {
        matches!(self.0, Kind::Stepped(_))
    }

    /// The wall clock.
    pub fn now(&self) -> WallTime {
        match &self.0 {
            Kind::Threads(threads) => threads.now(),
            Kind::Stepped(stepped) => stepped.now(),
        }
    }

    /// Sets the I/O priority of this thread, 0 (highest) to 7 (ionice(1), class best-effort). Has
    /// no effect in a stepped runtime.
    ///
    /// # Errors
    /// The system has no such priorities.
    pub fn set_io_priority(&self, level: u8) -> std::io::Result<()> {
        match &self.0 {
            Kind::Threads(_) => threads::set_io_priority(level),
            Kind::Stepped(_) => Ok(()),
        }
    }

    /// Time since the runtime was created. It never decreases.
    pub fn elapsed(&self) -> Duration {
        match &self.0 {
            Kind::Threads(threads) => threads.elapsed(),
            Kind::Stepped(stepped) => stepped.elapsed(),
        }
    }

    /// Waits until [`Env::elapsed`] is `moment`. In a stepped runtime, the workers run during the
    /// wait, and the clock advances when all of them wait for it.
    pub fn sleep_until(&self, moment: Duration) {
        match &self.0 {
            Kind::Threads(threads) => threads.sleep_until(moment),
            Kind::Stepped(stepped) => stepped.sleep_until(moment),
        }
    }

    /// Uses a processor of a stepped runtime for `time`, after waiting for a free one. Has no
    /// effect with threads.
    pub fn spend(&self, time: Duration) {
        if let Kind::Stepped(stepped) = &self.0 {
            stepped.spend(time);
        }
    }

    /// Total processor time used by [`Env::spend`] in a stepped runtime.
    pub fn worked(&self) -> Duration {
        match &self.0 {
            Kind::Threads(_) => Duration::ZERO,
            Kind::Stepped(stepped) => stepped.worked(),
        }
    }

    /// Starts a background worker. `work` runs at once, and then at the time that it returned or
    /// when it is woken; a wake during a run causes another run. It must not panic.
    ///
    /// The worker ends when the handle is dropped, so `work` must hold its owner only by a `Weak`:
    /// otherwise worker and owner keep each other alive.
    pub fn spawn(&self, name: &str, work: impl FnMut() -> Next + Send + 'static) -> Worker {
        let work: Work = Box::new(work);
        match &self.0 {
            Kind::Threads(threads) => Worker(Some(Handle::Thread(threads.spawn(name, work)))),
            Kind::Stepped(stepped) => {
                Worker(Some(Handle::Stepped(stepped.clone(), stepped.spawn(name, work))))
            }
        }
    }

    /// Waits on `changed` while `condition` holds; `guard` is unlocked during the wait. In a
    /// stepped runtime the workers run, and the clock advances when all of them wait for it.
    ///
    /// # Panics
    /// A worker of this runtime panicked; or, in a stepped runtime, nothing can notify `changed`
    /// any more: then the panic lists the workers and their states.
    pub fn wait_while<T, R: Rank>(
        &self,
        changed: &Condvar,
        guard: &mut MutexGuard<'_, T, R>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(&mut **guard) {
            match &self.0 {
                Kind::Threads(threads) => {
                    changed.wait_real(guard, Duration::from_secs(1));
                    threads.assert_alive();
                }
                Kind::Stepped(stepped) => {
                    stepped.adopt_thread();
                    changed.wait_stepped(guard, None);
                }
            }
        }
    }

    /// As [`Env::wait_while`], for at most `limit`. Returns whether `condition` still held then.
    pub fn wait_while_for<T, R: Rank>(
        &self,
        changed: &Condvar,
        guard: &mut MutexGuard<'_, T, R>,
        limit: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> bool {
        let end = self.elapsed().saturating_add(limit);
        while condition(&mut **guard) {
            let left = end.saturating_sub(self.elapsed());
            if left.is_zero() {
                return true;
            }
            match &self.0 {
                Kind::Threads(threads) => {
                    changed.wait_real(guard, left.min(Duration::from_secs(1)));
                    threads.assert_alive();
                }
                Kind::Stepped(stepped) => {
                    stepped.adopt_thread();
                    changed.wait_stepped(guard, Some(left));
                }
            }
        }
        false
    }

    /// Runs one worker that is due, or continues a suspended one. Returns false if no worker is
    /// due. Has no effect with threads.
    pub fn step(&self) -> bool {
        match &self.0 {
            Kind::Threads(_) => false,
            Kind::Stepped(stepped) => stepped.step(),
        }
    }

    /// Steps until no worker is due. The clock does not advance. Has no effect with threads.
    pub fn run_until_idle(&self) {
        if let Kind::Stepped(stepped) = &self.0 {
            stepped.run_until_idle();
        }
    }

    /// Advances the clock by `time` and runs each worker when it is due. Has no effect with
    /// threads.
    pub fn advance(&self, time: Duration) {
        if let Kind::Stepped(stepped) = &self.0 {
            stepped.advance(time);
        }
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_stepped() { "Env::stepped" } else { "Env::threads" })
    }
}

enum Handle {
    Thread(threads::ThreadWorker),
    Stepped(Arc<Stepped>, usize),
}

/// A background worker. Dropping it stops the worker as [`Worker::stop`] does.
#[must_use = "the worker stops when its handle is dropped"]
pub struct Worker(Option<Handle>);

impl Worker {
    /// Makes the worker run soon.
    pub fn wake(&self) {
        self.waker().wake();
    }

    /// A handle by which other threads wake the worker; it does not keep the worker running.
    pub fn waker(&self) -> Waker {
        match self.0.as_ref().expect("taken only by drop") {
            Handle::Thread(thread) => Waker(Target::Thread(thread.control())),
            Handle::Stepped(stepped, index) => Waker(Target::Stepped(stepped.clone(), *index)),
        }
    }

    /// Whether the worker returned [`Next::Done`].
    pub fn is_done(&self) -> bool {
        match self.0.as_ref().expect("taken only by drop") {
            Handle::Thread(thread) => thread.is_done(),
            Handle::Stepped(stepped, index) => stepped.is_done(*index),
        }
    }

    /// Stops the worker: a run in progress is finished, no other is started. Does not wait if the
    /// worker itself calls it (by dropping its last owner, for instance).
    pub fn stop(self) {}
}

impl Drop for Worker {
    fn drop(&mut self) {
        match self.0.take() {
            Some(Handle::Thread(thread)) => thread.stop(),
            Some(Handle::Stepped(stepped, index)) => stepped.stop(index),
            None => {}
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Worker")
    }
}

/// Wakes a [`Worker`].
#[derive(Clone)]
pub struct Waker(Target);

#[derive(Clone)]
enum Target {
    Thread(Arc<threads::Control>),
    Stepped(Arc<Stepped>, usize),
}

impl Waker {
    /// Makes the worker run soon. Has no effect on a worker that is done.
    pub fn wake(&self) {
        match &self.0 {
            Target::Thread(control) => control.wake(),
            Target::Stepped(stepped, index) => stepped.wake(*index),
        }
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}
