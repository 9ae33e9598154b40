//! Calls under watch: one that does not return in time is named and called off.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The longest that a call may take.
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

/// The calls under way.
#[derive(Default)]
pub(super) struct Calls {
    running: Mutex<BTreeMap<u64, (String, Instant)>>,
    next: AtomicU64,
    /// Calls that took too long.
    hung: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

impl Calls {
    /// Makes a call.
    pub(super) fn call<T>(&self, what: &str, call: impl FnOnce() -> T) -> T {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        locked(&self.running).insert(number, (what.to_owned(), Instant::now()));
        let answer = call();
        locked(&self.running).remove(&number);
        answer
    }

    /// Calls that took too long.
    pub(super) fn hung(&self) -> Vec<String> {
        locked(&self.hung).clone()
    }

    fn note_hung(&self) -> bool {
        let mut running = locked(&self.running);
        let (late, others) = std::mem::take(&mut *running)
            .into_iter()
            .partition(|(_, (_, since))| since.elapsed() > LIMIT);
        *running = others;
        let late: BTreeMap<u64, (String, Instant)> = late;
        let is_any = !late.is_empty();
        locked(&self.hung).extend(late.into_values().map(|(what, _)| what));
        is_any
    }
}

/// The thread that looks; it ends when this is dropped.
pub(super) struct Watch {
    calls: Arc<Calls>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// `call_off` makes calls on the mount return: it takes the mount away.
    pub(super) fn new(calls: &Arc<Calls>, call_off: impl Fn() + Send + 'static) -> Self {
        let calls = calls.clone();
        calls.is_over.store(false, Ordering::Relaxed);
        let watched = calls.clone();
        let thread = thread::spawn(move || {
            while !watched.is_over.load(Ordering::Relaxed) {
                if watched.note_hung() {
                    call_off();
                }
                thread::sleep(PAUSE);
            }
        });
        Self { calls, thread: Some(thread) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.calls.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A lock that a failed thread has held is as good as any.
pub(super) fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}
