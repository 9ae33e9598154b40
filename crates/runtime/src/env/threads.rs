//! Background work on its own threads, with the real clock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::work::{Next, WallTime, Work};
use crate::raw::{Condvar, Mutex, clock, thread};

/// `IOPRIO_WHO_PROCESS`, which means a thread: the calling one for ID 0; and the class best-effort,
/// which needs no privilege (ioprio_set(2)).
const WHO_THREAD: libc::c_int = 1;
const BEST_EFFORT: libc::c_int = 2 << 13;

/// Sets the priority of this thread's input and output.
#[allow(unsafe_code)]
pub(super) fn set_io_priority(level: u8) -> std::io::Result<()> {
    let priority = BEST_EFFORT | libc::c_int::from(level);
    // SAFETY: the call takes three numbers and no memory.
    let done = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_THREAD, 0, priority) };
    if done == -1 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

pub(super) struct Threads {
    start: clock::Start,
    /// The time at which the wall clock is stopped; `None` for the real clock.
    stopped_at: Option<WallTime>,
    /// The name of the first worker that panicked.
    dead: Mutex<Option<String>>,
}

/// The state shared by a worker's thread and its handles.
pub(super) struct Control {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    woken: bool,
    stopping: bool,
    done: bool,
}

pub(super) struct ThreadWorker {
    control: Arc<Control>,
    thread: thread::JoinHandle<()>,
}

impl Threads {
    pub(super) fn new() -> Self {
        Self { start: clock::Start::now(), stopped_at: None, dead: Mutex::new(None) }
    }

    pub(super) fn at(now: WallTime) -> Self {
        Self { stopped_at: Some(now), ..Self::new() }
    }

    pub(super) fn now(&self) -> WallTime {
        if let Some(stopped_at) = self.stopped_at {
            return stopped_at;
        }
        let (seconds, nanoseconds) = clock::wall();
        WallTime { seconds, nanoseconds }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub(super) fn sleep_until(&self, moment: Duration) {
        let never_notified = Condvar::new();
        let mut slept = self.dead.lock();
        while let Some(left) = moment.checked_sub(self.elapsed()).filter(|left| !left.is_zero()) {
            never_notified.wait_for(&mut slept, left);
        }
    }

    /// Panics if a worker did: the event that its waiters wait for will not happen.
    pub(super) fn assert_alive(&self) {
        let dead = self.dead.lock().clone();
        if let Some(name) = dead {
            panic!("the background worker `{name}` panicked");
        }
    }

    pub(super) fn spawn(self: &Arc<Self>, name: &str, work: Work) -> ThreadWorker {
        let control = Arc::new(Control {
            state: Mutex::new(State { woken: true, ..State::default() }),
            changed: Condvar::new(),
        });
        let thread = thread::spawn_named(name, {
            let (control, runtime, name) = (control.clone(), Arc::downgrade(self), name.to_owned());
            move || run(&control, &runtime, &name, work)
        });
        ThreadWorker { control, thread }
    }
}

fn run(control: &Control, runtime: &Weak<Threads>, name: &str, mut work: Work) {
    let mut next = Next::WhenWoken;
    while control.wait_until_due(next) {
        next = match catch_unwind(AssertUnwindSafe(&mut work)) {
            Ok(next) => next,
            Err(_) => {
                tracing::error!(name, "a background worker panicked");
                if let Some(runtime) = runtime.upgrade() {
                    runtime.dead.lock().get_or_insert_with(|| name.to_owned());
                }
                Next::Done
            }
        };
    }
    // The work may own the handle: it is dropped before the thread is marked as done.
    drop(work);
    control.state.lock().done = true;
}

impl Control {
    pub(super) fn wake(&self) {
        self.state.lock().woken = true;
        self.changed.notify_all();
    }

    /// Returns false when the worker is to end.
    fn wait_until_due(&self, next: Next) -> bool {
        let limit = match next {
            Next::Done => return false,
            Next::WhenWoken => None,
            Next::After(limit) => Some(limit),
        };
        let waiting = clock::Start::now();
        let mut state = self.state.lock();
        while !state.woken && !state.stopping {
            match limit.map(|limit| limit.saturating_sub(waiting.elapsed())) {
                Some(left) if left.is_zero() => break,
                Some(left) => self.changed.wait_for(&mut state, left),
                None => self.changed.wait(&mut state),
            }
        }
        state.woken = false;
        !state.stopping
    }
}

impl ThreadWorker {
    pub(super) fn control(&self) -> Arc<Control> {
        self.control.clone()
    }

    pub(super) fn is_done(&self) -> bool {
        self.control.state.lock().done
    }

    pub(super) fn stop(self) {
        self.control.state.lock().stopping = true;
        self.control.changed.notify_all();
        let is_self = thread::current().id() == self.thread.thread().id();
        // While a panic unwinds, the worker may wait for an event that will not happen.
        if !is_self && !std::thread::panicking() {
            // A worker that panicked is recorded in `dead`.
            let _ = self.thread.join();
        }
    }
}
