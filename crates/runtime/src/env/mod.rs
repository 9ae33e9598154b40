//! The world the engine lives in: a clock, and background work.
//!
//! One [`Env`] comes in from outside and is handed down; it is a handle, cheap to clone.
//! - [`Env::threads`]: background work runs on threads of its own, on the real clock.
//! - [`Env::stepped`]: background work runs only when the caller steps it or waits for it, one worker at a time, the
//!   next one picked by a seeded generator, on a clock that moves when the caller says so or when everybody waits for
//!   it. The same seed and the same calls give the same history. Workers that block in the middle of a run (on a lock
//!   or a condition) stand still there and the others go on, so a history may interleave as real threads would.
//!
//! A worker is a closure that does one piece of work and says when it wants to run next. Who needs the result waits on
//! a condition of his own:
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

use std::fmt;
use std::time::Duration;

use crate::sync::{Arc, Condvar, MutexGuard, Rank};
use stepped::Stepped;
use threads::Threads;

/// A clock and background work. See the [module](self).
#[derive(Clone)]
pub struct Env(World);

#[derive(Clone)]
enum World {
    Threads(Arc<Threads>),
    Stepped(Arc<Stepped>),
}

/// A moment on the wall clock.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct WallTime {
    /// Since 1970-01-01 00:00 UTC, rounded down.
    pub seconds: i64,
    /// Since that second; below 1,000,000,000.
    pub nanoseconds: u32,
}

impl WallTime {
    /// The moment so much later.
    pub fn after(self, time: Duration) -> Self {
        let nanoseconds = self.nanoseconds + time.subsec_nanos();
        let seconds = self
            .seconds
            .saturating_add_unsigned(time.as_secs())
            .saturating_add(i64::from(nanoseconds / 1_000_000_000));
        Self { seconds, nanoseconds: nanoseconds % 1_000_000_000 }
    }
}

/// When a worker wants to run next. It runs earlier if it is woken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    /// After so much time.
    After(Duration),
    /// Only when it is woken.
    WhenWoken,
    /// Never again.
    Done,
}

impl Next {
    /// What a worker wants that does two kinds of work: the sooner of both.
    pub fn sooner(self, other: Self) -> Self {
        match (self, other) {
            (Self::After(one), Self::After(other)) => Self::After(one.min(other)),
            (Self::After(one), _) | (_, Self::After(one)) => Self::After(one),
            (Self::WhenWoken, _) | (_, Self::WhenWoken) => Self::WhenWoken,
            (Self::Done, Self::Done) => Self::Done,
        }
    }
}

type Work = Box<dyn FnMut() -> Next + Send>;

impl Env {
    /// Background work on threads, the real clock.
    pub fn threads() -> Self {
        Self(World::Threads(Arc::new(Threads::new())))
    }

    /// The same with a wall clock that stands still at `now`, for changes that give the same bytes at any time.
    pub fn threads_at(now: WallTime) -> Self {
        Self(World::Threads(Arc::new(Threads::at(now))))
    }

    /// Background work when the caller steps it, picked by `seed`, on a clock that starts on 2026-01-01.
    ///
    /// One thread at a time steps and waits in such a world, normally the one that made it.
    pub fn stepped(seed: u64) -> Self {
        Self::stepped_at(seed, WallTime { seconds: 1_767_225_600, nanoseconds: 0 })
    }

    /// As [`Env::stepped`], on a clock that starts at `start`.
    pub fn stepped_at(seed: u64, start: WallTime) -> Self {
        Self(World::Stepped(Stepped::new(seed, start)))
    }

    /// Gives a stepped world so many processors, at least one: see [`Env::spend`].
    pub fn with_processors(self, count: usize) -> Self {
        if let World::Stepped(stepped) = &self.0 {
            stepped.set_processors(count);
        }
        self
    }

    /// Whether the caller steps the background work.
    pub fn is_stepped(&self) -> bool {
        matches!(self.0, World::Stepped(_))
    }

    /// The wall clock.
    pub fn now(&self) -> WallTime {
        match &self.0 {
            World::Threads(threads) => threads.now(),
            World::Stepped(stepped) => stepped.now(),
        }
    }

    /// Gives what this thread reads and writes a priority among programs, 0 (first) to 7 (ionice(1), class best-effort). In a
    /// stepped world nothing is done.
    ///
    /// # Errors
    /// The system knows no such priorities.
    pub fn set_io_priority(&self, level: u8) -> std::io::Result<()> {
        match &self.0 {
            World::Threads(_) => threads::set_io_priority(level),
            World::Stepped(_) => Ok(()),
        }
    }

    /// Time since the world was made. It never goes back.
    pub fn elapsed(&self) -> Duration {
        match &self.0 {
            World::Threads(threads) => threads.elapsed(),
            World::Stepped(stepped) => stepped.elapsed(),
        }
    }

    /// Waits until [`Env::elapsed`] is `moment`. In a stepped world the workers run meanwhile, and time passes when they all
    /// wait for it.
    pub fn sleep_until(&self, moment: Duration) {
        match &self.0 {
            World::Threads(threads) => threads.sleep_until(moment),
            World::Stepped(stepped) => stepped.sleep_until(moment),
        }
    }

    /// Takes so much time of a processor of a stepped world, which waits for one to be free first. On threads work takes the
    /// time that it takes, and nothing is done.
    pub fn spend(&self, time: Duration) {
        if let World::Stepped(stepped) = &self.0 {
            stepped.spend(time);
        }
    }

    /// What processors have worked in a stepped world by [`Env::spend`].
    pub fn worked(&self) -> Duration {
        match &self.0 {
            World::Threads(_) => Duration::ZERO,
            World::Stepped(stepped) => stepped.worked(),
        }
    }

    /// Starts a background worker. `work` is due at once, and then whenever it last said or when it is woken; a wake
    /// during a run makes another run. It must not panic.
    ///
    /// The worker ends when the handle is dropped, so `work` holds its owner only by a `Weak`: an owner that is kept by
    /// its own worker never goes.
    pub fn spawn(&self, name: &str, work: impl FnMut() -> Next + Send + 'static) -> Worker {
        let work: Work = Box::new(work);
        match &self.0 {
            World::Threads(threads) => Worker(Some(Handle::Thread(threads.spawn(name, work)))),
            World::Stepped(stepped) => {
                Worker(Some(Handle::Stepped(stepped.clone(), stepped.spawn(name, work))))
            }
        }
    }

    /// Waits on `changed` while `condition` holds; `guard` is open meanwhile. In a stepped world the workers run, and
    /// time passes when they all wait for it.
    ///
    /// # Panics
    /// A worker of this world panicked; or, in a stepped world, nobody can notify `changed` any more: then the panic
    /// names the workers and what they wait for.
    pub fn wait_while<T, R: Rank>(
        &self,
        changed: &Condvar,
        guard: &mut MutexGuard<'_, T, R>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(&mut **guard) {
            match &self.0 {
                World::Threads(threads) => {
                    changed.wait_real(guard, Duration::from_secs(1));
                    threads.assert_alive();
                }
                World::Stepped(stepped) => {
                    stepped.adopt_thread();
                    changed.wait_stepped(guard, None);
                }
            }
        }
    }

    /// As [`Env::wait_while`], for at most `limit`; true if `condition` still held then.
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
                World::Threads(threads) => {
                    changed.wait_real(guard, left.min(Duration::from_secs(1)));
                    threads.assert_alive();
                }
                World::Stepped(stepped) => {
                    stepped.adopt_thread();
                    changed.wait_stepped(guard, Some(left));
                }
            }
        }
        false
    }

    /// Runs one worker that is due, or takes one a little further that stands in the middle of a run; false if there is
    /// none. Does nothing on threads.
    pub fn step(&self) -> bool {
        match &self.0 {
            World::Threads(_) => false,
            World::Stepped(stepped) => stepped.step(),
        }
    }

    /// Steps until no worker is due. The clock stands still. Does nothing on threads.
    pub fn run_until_idle(&self) {
        if let World::Stepped(stepped) = &self.0 {
            stepped.run_until_idle();
        }
    }

    /// Lets `time` pass and runs what becomes due, each at its moment. Does nothing on threads.
    pub fn advance(&self, time: Duration) {
        if let World::Stepped(stepped) = &self.0 {
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

    /// A handle with which others can wake the worker; it does not keep the worker running.
    pub fn waker(&self) -> Waker {
        match self.0.as_ref().expect("taken only by drop") {
            Handle::Thread(thread) => Waker(Target::Thread(thread.control())),
            Handle::Stepped(stepped, index) => Waker(Target::Stepped(stepped.clone(), *index)),
        }
    }

    /// Whether the worker said [`Next::Done`].
    pub fn is_done(&self) -> bool {
        match self.0.as_ref().expect("taken only by drop") {
            Handle::Thread(thread) => thread.is_done(),
            Handle::Stepped(stepped, index) => stepped.is_done(*index),
        }
    }

    /// Stops the worker: a run under way is finished, another is not begun. Called by the worker itself (by dropping
    /// the last owner, for instance), it does not wait.
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
    /// Makes the worker run soon. Nothing happens to a worker that is done.
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
