//! Which threads wait for requests.
//!
//! Waking a thread on another processor costs more than most replies. So one thread polls as a
//! rule: it answers the requests that it reads, and polls a moment for the next one before it
//! sleeps, since a program that got its reply mostly sends another request at once. The others wait
//! to be called: when requests pile up, before long work while several programs send requests, and
//! by a watch when the polling thread does not come back.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::cpu_latency::CpuLatencyRequest;

/// Period of the watch's samples, and the number of samples without a request after which it
/// sleeps.
const SAMPLE_PERIOD: Duration = Duration::from_millis(1);
const QUIET_SAMPLES: u32 = 50;
/// A request takes as much processor time in its caller as in the thread that answers it.
const PROCESSORS_A_THREAD: usize = 2;
/// Number of the last requests that count as recent.
const RECENT: u32 = 64;

#[derive(Debug, Default)]
struct State {
    /// Threads that read, or will again soon.
    polling: usize,
    /// Threads that wait to be called.
    waiting: usize,
    /// Calls that no thread has followed yet.
    calls: usize,
    /// The mount is gone.
    is_over: bool,
}

/// Whether one program sends requests or several.
#[derive(Debug, Default)]
struct Programs {
    /// The program of the last request.
    last: AtomicU32,
    /// How many requests more count as lately.
    recent: AtomicU32,
}

impl Programs {
    /// Counts a request of a program, or of the kernel itself (0).
    fn count(&self, program: u32) {
        // Updates by several threads at once may be lost: these are estimates.
        if program != 0 && self.last.load(Ordering::Relaxed) != program {
            self.last.store(program, Ordering::Relaxed);
            self.recent.store(RECENT, Ordering::Relaxed);
        } else {
            let left = self.recent.load(Ordering::Relaxed).saturating_sub(1);
            self.recent.store(left, Ordering::Relaxed);
        }
    }

    /// Whether several programs sent recent requests.
    fn are_several(&self) -> bool {
        self.recent.load(Ordering::Relaxed) > 0
    }
}

/// The threads of a mount that read requests.
#[derive(Debug)]
pub(super) struct Readers {
    state: Mutex<State>,
    called: Condvar,
    /// A thread waits to be called: stored without the lock, so it may be late.
    has_waiting: AtomicBool,
    /// Threads that poll or sleep for a request now.
    reading: AtomicUsize,
    /// Requests so far.
    requests: AtomicU64,
    programs: Programs,
    /// Threads that may work at once.
    most_working: usize,
    /// The watch is awake.
    watches: AtomicBool,
    is_watch_wanted: Mutex<bool>,
    watch: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Readers {
    /// `calls` threads are called from the start; the threads share `processors` processors.
    pub(super) fn new(calls: usize, processors: usize) -> Self {
        Self {
            state: Mutex::new(State { calls, ..State::default() }),
            called: Condvar::new(),
            has_waiting: AtomicBool::new(false),
            reading: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            programs: Programs::default(),
            most_working: (processors / PROCESSORS_A_THREAD).max(1),
            watches: AtomicBool::new(false),
            is_watch_wanted: Mutex::new(false),
            watch: Condvar::new(),
        }
    }

    /// Waits to be called; `false` when the mount is gone.
    pub(super) fn wait(&self) -> bool {
        let mut state = lock(&self.state);
        state.waiting += 1;
        self.has_waiting.store(true, Ordering::Relaxed);
        while state.calls == 0 && !state.is_over {
            state = self.called.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
        self.has_waiting.store(state.waiting > 0, Ordering::Relaxed);
        if state.is_over {
            return false;
        }
        state.calls -= 1;
        state.polling += 1;
        true
    }

    /// Calls another thread, if one waits.
    pub(super) fn call(&self) {
        self.call_if(|_| true);
    }

    /// Calls another thread, if one waits and those on duty leave a processor for it.
    pub(super) fn call_to_work(&self) {
        self.call_if(|state| state.polling + state.calls < self.most_working);
    }

    fn call_if(&self, is_needed: impl FnOnce(&State) -> bool) {
        if !self.has_waiting.load(Ordering::Relaxed) {
            return;
        }
        let mut state = lock(&self.state);
        if state.waiting > state.calls && is_needed(&state) {
            state.calls += 1;
            drop(state);
            self.called.notify_one();
        }
    }

    /// A polling thread has found nothing to do: it may leave if another one polls.
    pub(super) fn may_leave(&self) -> bool {
        let mut state = lock(&self.state);
        let may_leave = state.polling + state.calls > 1;
        if may_leave {
            state.polling -= 1;
        }
        may_leave
    }

    /// A thread starts long work: another thread polls during it, if any is left.
    pub(super) fn leave_for_work(&self) {
        let mut state = lock(&self.state);
        state.polling -= 1;
        if state.polling == 0 && state.waiting > state.calls {
            state.calls += 1;
            drop(state);
            self.called.notify_one();
        }
    }

    /// The thread is back; whether it is needed.
    pub(super) fn return_from_work(&self) -> bool {
        let mut state = lock(&self.state);
        let is_needed = state.polling + state.calls == 0;
        if is_needed {
            state.polling += 1;
        }
        is_needed
    }

    /// A thread starts to poll for a request.
    pub(super) fn starts_reading(&self) {
        self.reading.fetch_add(1, Ordering::SeqCst);
    }

    /// It stops polling without a request.
    pub(super) fn stops_reading(&self) {
        self.reading.fetch_sub(1, Ordering::SeqCst);
    }

    /// It has a request, of `program` (0 for the kernel itself). `slept` is whether it slept
    /// before: the watch may sleep too.
    pub(super) fn has_read(&self, program: u32, slept: bool) {
        self.programs.count(program);
        self.requests.fetch_add(1, Ordering::SeqCst);
        self.reading.fetch_sub(1, Ordering::SeqCst);
        if slept && !self.watches.load(Ordering::SeqCst) {
            self.wake_watch();
        }
    }

    /// A request of `program` came by a ring.
    pub(super) fn has_come(&self, program: u32) {
        self.programs.count(program);
        self.requests.fetch_add(1, Ordering::SeqCst);
        if !self.watches.load(Ordering::SeqCst) {
            self.wake_watch();
        }
    }

    /// Whether several programs sent recent requests.
    pub(super) fn are_several(&self) -> bool {
        self.programs.are_several()
    }

    /// The mount is gone: all waiting threads end.
    pub(super) fn end(&self) {
        lock(&self.state).is_over = true;
        self.called.notify_all();
        self.wake_watch();
    }

    /// Calls a thread whenever no thread has polled for a while, and samples the number of requests
    /// for `cpu_latency`, until the mount is gone. Sleeps while no requests come.
    pub(super) fn watch(&self, mut cpu_latency: Option<CpuLatencyRequest>) {
        while self.sleep_until_request() {
            let (mut seen, mut quiet) = (self.requests.load(Ordering::SeqCst), 0);
            loop {
                std::thread::sleep(SAMPLE_PERIOD);
                let now = self.requests.load(Ordering::SeqCst);
                if let Some(cpu_latency) = &mut cpu_latency {
                    cpu_latency.sample(now.wrapping_sub(seen));
                }
                let is_still = now == seen;
                seen = now;
                if self.reading.load(Ordering::SeqCst) > 0 {
                    quiet = if is_still { quiet + 1 } else { 0 };
                } else if is_still {
                    // The polling thread has not come back since the last sample.
                    self.call();
                }
                if lock(&self.state).is_over {
                    return;
                }
                if quiet > QUIET_SAMPLES {
                    self.watches.store(false, Ordering::SeqCst);
                    // A request that did not see that was counted before.
                    if self.requests.load(Ordering::SeqCst) == seen {
                        break;
                    }
                    self.watches.store(true, Ordering::SeqCst);
                    quiet = 0;
                }
            }
        }
    }

    /// The watch sleeps until there is a request; `false` when the mount is gone.
    fn sleep_until_request(&self) -> bool {
        let mut is_wanted = lock(&self.is_watch_wanted);
        while !*is_wanted {
            is_wanted = self.watch.wait(is_wanted).unwrap_or_else(PoisonError::into_inner);
        }
        *is_wanted = false;
        self.watches.store(true, Ordering::SeqCst);
        drop(is_wanted);
        !lock(&self.state).is_over
    }

    fn wake_watch(&self) {
        *lock(&self.is_watch_wanted) = true;
        self.watch.notify_one();
    }
}

/// Registers a reading thread with the others while it lives.
#[derive(Debug)]
pub(super) struct Reader<'a>(pub(super) &'a Readers);

impl Drop for Reader<'_> {
    /// One that panics leaves its place to another; one that ends has seen the end of the mount, or
    /// an error that all would see.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return self.0.end();
        }
        let mut state = lock(&self.0.state);
        state.polling = state.polling.saturating_sub(1);
        state.calls += 1;
        drop(state);
        self.0.called.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    fn state(readers: &Readers) -> (usize, usize) {
        let state = lock(&readers.state);
        (state.polling, state.calls)
    }

    #[test]
    fn the_last_polling_thread_stays() {
        let readers = Readers::new(2, 4);
        assert!(readers.wait() && readers.wait());
        assert!(readers.may_leave());
        assert!(!readers.may_leave());
        assert_eq!(state(&readers), (1, 0));
    }

    #[test]
    fn a_thread_with_long_work_is_replaced_and_not_needed_afterwards() {
        let readers = Arc::new(Readers::new(1, 2));
        assert!(readers.wait());
        let other = thread::spawn({
            let readers = readers.clone();
            move || readers.wait()
        });
        while !readers.has_waiting.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        readers.leave_for_work();
        assert!(other.join().expect("no panic"));
        assert_eq!(state(&readers), (1, 0));
        assert!(!readers.return_from_work());
        // Now that one leaves, no thread is left to call.
        readers.leave_for_work();
        assert_eq!(state(&readers), (0, 0));
        assert!(readers.return_from_work());
    }

    #[test]
    fn the_end_wakes_waiting_threads_and_the_watch() {
        let readers = Arc::new(Readers::new(0, 2));
        let waits = [0, 1].map(|_| {
            let readers = readers.clone();
            thread::spawn(move || readers.wait())
        });
        let watch = thread::spawn({
            let readers = readers.clone();
            move || readers.watch(None)
        });
        drop(Reader(&readers));
        assert!(waits.into_iter().all(|wait| !wait.join().expect("no panic")));
        watch.join().expect("no panic");
    }

    #[test]
    fn a_thread_is_called_if_the_polling_one_does_not_come_back() {
        let readers = Arc::new(Readers::new(1, 2));
        assert!(readers.wait());
        let watch = thread::spawn({
            let readers = readers.clone();
            move || readers.watch(None)
        });
        let other = thread::spawn({
            let readers = readers.clone();
            move || readers.wait()
        });
        readers.starts_reading();
        readers.has_read(0, true);
        assert!(other.join().expect("no panic"), "it was called");
        readers.end();
        watch.join().expect("no panic");
    }

    #[test]
    fn several_programs_are_recent_if_more_than_one_sent_requests() {
        let programs = Programs::default();
        programs.count(7);
        (0..RECENT).for_each(|_| programs.count(7));
        assert!(!programs.are_several());
        programs.count(8);
        assert!(programs.are_several());
        // The kernel's own requests have no process ID.
        (0..RECENT).for_each(|_| programs.count(0));
        assert!(!programs.are_several());
    }
}
