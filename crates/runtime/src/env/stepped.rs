//! Background work that runs only when the caller steps it or waits.
//!
//! Each worker has its own stack (a thread), but only one of them, or the caller, runs at a time:
//! the caller passes its turn to a worker and gets it back when the worker's run ends or blocks. So
//! a worker may block during a run, as with real threads, and every choice is made by the seeded
//! generator.

use std::any::Any;
use std::cell::RefCell;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::work::{Next, WallTime, Work};
use crate::random::Random;
use crate::raw::{Condvar, Mutex, MutexGuard, thread, thread_local};

/// Number of steps without an idle state, or in one wait, after which the workers are reported as
/// never idle.
const STEPS_UNTIL_IDLE: u64 = 250_000;
/// Time in milliseconds for which a thread outside the stepped runtime may hold a lock before that
/// counts as a deadlock.
const LOCK_TIMEOUT_MS: u32 = 5_000;

pub(crate) struct Stepped {
    state: Mutex<State>,
    /// Notified when a worker returns the turn.
    returned: Condvar,
}

struct State {
    start: WallTime,
    clock: Duration,
    random: Random,
    slots: Vec<Slot>,
    /// The worker whose turn it is; `None`: the caller.
    running: Option<usize>,
    /// Number of events that may have changed a condition for which a suspended worker waits.
    progress: u64,
    /// The payload of a worker's panic, which is resumed in the caller.
    failure: Option<Box<dyn Any + Send>>,
    /// Time until which each processor is busy.
    processors: Vec<Duration>,
    /// Total time used of all processors.
    worked: Duration,
}

struct Slot {
    name: String,
    phase: Phase,
    due: Option<Duration>,
    stopping: bool,
    /// Notified when the worker gets the turn.
    turn: Arc<Condvar>,
    /// Until the worker runs for the first time.
    work: Option<Work>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Phase {
    Idle,
    Running,
    /// Suspended during a run: its condition was tested when `progress` had this value, and need
    /// not be tested again before that changes.
    Standing {
        tried_at: u64,
        until: Option<Duration>,
        on: Obstacle,
    },
    Done,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Obstacle {
    Lock,
    Condition,
    Worker,
    /// Time only: no other event is a reason to test its condition.
    Time,
}

/// Default number of processors of a runtime.
const PROCESSORS: usize = 2;

/// The role of a thread in stepped runtimes.
enum Role {
    /// It created or stepped these; the last used one is first.
    Caller(Vec<Weak<Stepped>>),
    Worker(Arc<Stepped>, usize),
}

thread_local! {
    // Shuttle's macro has no const form.
    #[allow(clippy::missing_const_for_thread_local)]
    static ROLE: RefCell<Role> = RefCell::new(Role::Caller(Vec::new()));
}

enum Turn {
    Worker(Arc<Stepped>, usize),
    Caller(Vec<Arc<Stepped>>),
}

fn this_turn() -> Turn {
    ROLE.with(|role| match &mut *role.borrow_mut() {
        Role::Worker(runtime, index) => Turn::Worker(runtime.clone(), *index),
        Role::Caller(runtimes) => {
            runtimes.retain(|runtime| runtime.strong_count() > 0);
            Turn::Caller(runtimes.iter().filter_map(Weak::upgrade).collect())
        }
    })
}

/// Whether waits on this thread step a runtime.
pub(crate) fn is_stepped_thread() -> bool {
    match this_turn() {
        Turn::Worker(..) => true,
        Turn::Caller(runtimes) => !runtimes.is_empty(),
    }
}

/// Acquires a lock that is held: in a stepped runtime its holder may be a suspended worker. Locks
/// that are not held do not come here.
#[cold]
#[inline(never)]
pub(crate) fn block_for<G>(mut attempt: impl FnMut() -> Option<G>, block: impl FnOnce() -> G) -> G {
    let turn = this_turn();
    if let Turn::Caller(runtimes) = &turn
        && !runtimes.iter().any(|runtime| runtime.has_standing())
    {
        return block();
    }
    let mut got = None;
    wait_for(turn, Obstacle::Lock, None, || {
        got = attempt();
        got.is_some()
    });
    got.expect("the wait ends when the lock was got")
}

/// Waits for a condition that other threads change, for at most `limit`.
pub(crate) fn wait(condition: impl FnMut() -> bool, limit: Option<Duration>) {
    wait_for(this_turn(), Obstacle::Condition, limit, condition);
}

fn wait_for(turn: Turn, on: Obstacle, limit: Option<Duration>, condition: impl FnMut() -> bool) {
    match turn {
        Turn::Worker(runtime, index) => runtime.stand(index, on, limit, condition),
        Turn::Caller(runtimes) => step_until(&runtimes, on, limit, condition),
    }
}

/// The caller's wait: runs the workers of its runtimes, and advances the clock when all wait for
/// it. `limit` is in the first runtime's time.
fn step_until(
    runtimes: &[Arc<Stepped>],
    on: Obstacle,
    limit: Option<Duration>,
    mut condition: impl FnMut() -> bool,
) {
    let until = limit.map(|limit| runtimes[0].elapsed().saturating_add(limit));
    let mut time_left = LOCK_TIMEOUT_MS;
    let mut steps = 0;
    runtimes.iter().for_each(|runtime| runtime.state.lock().progress += 1);
    loop {
        if condition() || until.is_some_and(|until| runtimes[0].elapsed() >= until) {
            return;
        }
        if runtimes.iter().any(|runtime| runtime.step_once()) {
            steps += 1;
            assert!(
                steps < STEPS_UNTIL_IDLE,
                "the caller waits for {} through {steps} steps{}",
                on.text(),
                runtimes.iter().map(|runtime| runtime.describe()).collect::<String>()
            );
            continue;
        }
        let first_until = |index| if index == 0 { until } else { None };
        if runtimes
            .iter()
            .enumerate()
            .any(|(index, runtime)| runtime.skip_to_next(first_until(index)))
        {
            steps = 0;
            continue;
        }
        // A thread outside may hold a lock briefly.
        let lock_held =
            on == Obstacle::Lock || runtimes.iter().any(|runtime| runtime.stands_on_lock());
        if !lock_held || time_left == 0 {
            let all: String = runtimes.iter().map(|runtime| runtime.describe()).collect();
            panic!("nothing can run: the caller waits for {}{all}", on.text());
        }
        time_left -= 1;
        thread::nap();
        runtimes.iter().for_each(|runtime| runtime.state.lock().progress += 1);
    }
}

impl Obstacle {
    fn text(self) -> &'static str {
        match self {
            Self::Lock => "a lock",
            Self::Condition => "a condition that is not notified",
            Self::Worker => "a worker to stop",
            Self::Time => "a moment",
        }
    }
}

impl Stepped {
    pub(super) fn new(seed: u64, start: WallTime) -> Arc<Self> {
        let state = State {
            start,
            clock: Duration::ZERO,
            random: Random::new(seed),
            slots: Vec::new(),
            running: None,
            progress: 0,
            failure: None,
            processors: vec![Duration::ZERO; PROCESSORS],
            worked: Duration::ZERO,
        };
        let runtime = Arc::new(Self { state: Mutex::new(state), returned: Condvar::new() });
        runtime.adopt_thread();
        runtime
    }

    /// Makes waits on this thread step this runtime.
    pub(super) fn adopt_thread(self: &Arc<Self>) {
        ROLE.with(|role| {
            if let Role::Caller(runtimes) = &mut *role.borrow_mut() {
                runtimes.retain(|runtime| {
                    runtime.strong_count() > 0 && !std::ptr::eq(runtime.as_ptr(), Arc::as_ptr(self))
                });
                runtimes.insert(0, Arc::downgrade(self));
            }
        });
    }

    pub(super) fn now(&self) -> WallTime {
        let state = self.state.lock();
        state.start.after(state.clock)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.state.lock().clock
    }

    pub(super) fn set_processors(&self, count: usize) {
        self.state.lock().processors = vec![Duration::ZERO; count.max(1)];
    }

    pub(super) fn worked(&self) -> Duration {
        self.state.lock().worked
    }

    /// Uses the first free processor for `time`.
    pub(super) fn spend(self: &Arc<Self>, time: Duration) {
        if time.is_zero() {
            return;
        }
        let end = {
            let mut state = self.state.lock();
            let clock = state.clock;
            state.worked += time;
            let Some(first) = state.processors.iter_mut().min() else { return };
            *first = clock.max(*first) + time;
            *first
        };
        self.sleep_until(end);
    }

    pub(super) fn sleep_until(self: &Arc<Self>, moment: Duration) {
        self.adopt_thread();
        let now = {
            let mut state = self.state.lock();
            if state.clock >= moment {
                return;
            }
            // No worker does anything earlier.
            let is_quiet = |slot: &Slot| match slot.phase {
                Phase::Idle => !slot.stopping && slot.due.is_none_or(|due| due > moment),
                Phase::Standing { on: Obstacle::Time, until, .. } => {
                    until.is_some_and(|until| until > moment)
                }
                Phase::Standing { .. } | Phase::Running => false,
                Phase::Done => true,
            };
            if state.slots.iter().all(is_quiet) && state.running.is_none() {
                state.clock = moment;
                return;
            }
            state.clock
        };
        let limit = Some(moment.saturating_sub(now));
        wait_for(this_turn(), Obstacle::Time, limit, || self.elapsed() >= moment);
    }

    pub(super) fn spawn(self: &Arc<Self>, name: &str, work: Work) -> usize {
        let mut state = self.state.lock();
        let due = Some(state.clock);
        state.slots.push(Slot {
            name: name.to_owned(),
            phase: Phase::Idle,
            due,
            stopping: false,
            turn: Arc::new(Condvar::new()),
            work: Some(work),
            thread: None,
        });
        state.slots.len() - 1
    }

    pub(super) fn wake(&self, index: usize) {
        let mut state = self.state.lock();
        let clock = state.clock;
        state.slots[index].due = Some(clock);
    }

    pub(super) fn is_done(&self, index: usize) -> bool {
        self.state.lock().slots[index].phase == Phase::Done
    }

    pub(super) fn step(self: &Arc<Self>) -> bool {
        self.assert_caller();
        self.state.lock().progress += 1;
        self.step_once()
    }

    pub(super) fn run_until_idle(self: &Arc<Self>) {
        self.assert_caller();
        self.state.lock().progress += 1;
        for _ in 0..STEPS_UNTIL_IDLE {
            if !self.step_once() {
                return;
            }
        }
        panic!("the workers do not come to rest{}", self.describe());
    }

    pub(super) fn advance(self: &Arc<Self>, time: Duration) {
        let target = self.elapsed().saturating_add(time);
        loop {
            self.run_until_idle();
            let mut state = self.state.lock();
            match state.next_moment() {
                Some(next) if next <= target => state.clock = next,
                _ => {
                    state.clock = state.clock.max(target);
                    return;
                }
            }
        }
    }

    pub(super) fn stop(self: &Arc<Self>, index: usize) {
        let unstarted = {
            let mut state = self.state.lock();
            let slot = &mut state.slots[index];
            slot.stopping = true;
            let work = slot.work.take();
            if work.is_some() {
                slot.phase = Phase::Done;
            }
            work
        };
        // Values in the work may take locks and stop other workers on drop.
        drop(unstarted);
        // While a panic unwinds, the worker may never get its turn.
        if std::thread::panicking() {
            return;
        }
        match this_turn() {
            Turn::Worker(runtime, this) if Arc::ptr_eq(&runtime, self) && this == index => return,
            Turn::Worker(runtime, this) => {
                runtime.stand(this, Obstacle::Worker, None, || self.is_done(index));
            }
            Turn::Caller(_) => {
                step_until(std::slice::from_ref(self), Obstacle::Worker, None, || {
                    self.is_done(index)
                });
            }
        }
        let thread = self.state.lock().slots[index].thread.take();
        if let Some(thread) = thread {
            // The payload of its panic was resumed in the caller.
            let _ = thread.join();
        }
    }

    fn assert_caller(self: &Arc<Self>) {
        assert!(
            !matches!(this_turn(), Turn::Worker(..)),
            "a worker does not step the world it lives in"
        );
        self.adopt_thread();
    }

    fn has_standing(&self) -> bool {
        self.state.lock().slots.iter().any(|slot| matches!(slot.phase, Phase::Standing { .. }))
    }

    fn stands_on_lock(&self) -> bool {
        let on_lock =
            |slot: &Slot| matches!(slot.phase, Phase::Standing { on: Obstacle::Lock, .. });
        self.state.lock().slots.iter().any(on_lock)
    }

    /// Gives the turn to a worker that can run.
    fn step_once(self: &Arc<Self>) -> bool {
        let mut state = self.state.lock();
        // Another caller is stepping: its step counts for both.
        if state.running.is_some() {
            self.await_turn(&mut state);
            return true;
        }
        let Some(index) = state.pick() else { return false };
        let slot = &mut state.slots[index];
        let was_idle = slot.phase == Phase::Idle;
        slot.phase = Phase::Running;
        if was_idle {
            slot.due = None;
        }
        if let Some(work) = slot.work.take() {
            let runtime = self.clone();
            slot.thread =
                Some(thread::spawn_named(&slot.name, move || live(&runtime, index, work)));
        }
        slot.turn.notify_all();
        state.running = Some(index);
        state.progress += u64::from(was_idle);
        self.await_turn(&mut state);
        if let Some(failure) = state.failure.take() {
            drop(state);
            resume_unwind(failure);
        }
        true
    }

    fn await_turn(&self, state: &mut MutexGuard<'_, State>) {
        while state.running.is_some() {
            self.returned.wait(state);
        }
    }

    /// Advances the clock to the next time for which a thread waits. Returns false if no worker is
    /// due.
    fn skip_to_next(&self, until: Option<Duration>) -> bool {
        let mut state = self.state.lock();
        let Some(next) = state.next_moment().into_iter().chain(until).min() else { return false };
        if next <= state.clock {
            return false;
        }
        state.clock = next;
        true
    }

    /// A worker's wait: returns the turn until `condition` holds or `limit` has passed.
    fn stand(
        &self,
        index: usize,
        on: Obstacle,
        limit: Option<Duration>,
        mut condition: impl FnMut() -> bool,
    ) {
        let until = limit.map(|limit| self.elapsed().saturating_add(limit));
        loop {
            let met = condition();
            let mut state = self.state.lock();
            if met || until.is_some_and(|until| state.clock >= until) {
                state.progress += 1;
                return;
            }
            let tried_at = if on == Obstacle::Time { u64::MAX } else { state.progress };
            state.slots[index].phase = Phase::Standing { tried_at, until, on };
            self.give_back(&mut state);
            self.await_turn_of(index, &mut state);
        }
    }

    fn give_back(&self, state: &mut State) {
        state.running = None;
        self.returned.notify_all();
    }

    fn await_turn_of(&self, index: usize, state: &mut MutexGuard<'_, State>) {
        let turn = state.slots[index].turn.clone();
        while state.running != Some(index) {
            turn.wait(state);
        }
    }

    /// The workers and their states, for a panic.
    fn describe(&self) -> String {
        let state = self.state.lock();
        let mut text = String::new();
        for slot in state.slots.iter().filter(|slot| slot.phase != Phase::Done) {
            let at = match slot.phase {
                Phase::Standing { on, .. } => on.text(),
                _ if slot.due.is_some() => "its next run",
                _ => "being woken",
            };
            write!(text, "; worker `{}` waits for {at}", slot.name).expect("a string takes all");
        }
        text
    }
}

/// A worker's thread.
fn live(runtime: &Arc<Stepped>, index: usize, mut work: Work) {
    ROLE.with(|role| *role.borrow_mut() = Role::Worker(runtime.clone(), index));
    loop {
        let mut state = runtime.state.lock();
        runtime.await_turn_of(index, &mut state);
        let stopping = state.slots[index].stopping;
        drop(state);

        let result =
            if stopping { Ok(Next::Done) } else { catch_unwind(AssertUnwindSafe(&mut work)) };

        // Values in the work may take locks and stop workers on drop: that happens in this worker's
        // turn.
        let mut dropped = None;
        let is_last = !matches!(result, Ok(Next::After(_) | Next::WhenWoken));
        if is_last {
            dropped = catch_unwind(AssertUnwindSafe(|| drop(work))).err();
            work = Box::new(|| Next::Done);
        }
        let mut state = runtime.state.lock();
        let clock = state.clock;
        let slot = &mut state.slots[index];
        slot.phase = Phase::Idle;
        match result {
            // A wake during the run has set an earlier moment.
            Ok(Next::After(time)) => {
                slot.due = Some(slot.due.unwrap_or(clock.saturating_add(time)))
            }
            Ok(Next::WhenWoken) => {}
            Ok(Next::Done) => slot.phase = Phase::Done,
            Err(failure) => {
                slot.phase = Phase::Done;
                state.failure = Some(failure);
            }
        }
        if let Some(failure) = dropped {
            state.failure.get_or_insert(failure);
        }
        runtime.give_back(&mut state);
        if is_last {
            return;
        }
    }
}

impl State {
    fn pick(&mut self) -> Option<usize> {
        let (clock, progress) = (self.clock, self.progress);
        let can_run = |slot: &Slot| match slot.phase {
            Phase::Idle => slot.stopping || slot.due.is_some_and(|due| due <= clock),
            Phase::Standing { tried_at, until, .. } => {
                tried_at < progress || until.is_some_and(|until| until <= clock)
            }
            Phase::Running | Phase::Done => false,
        };
        let count = self.slots.iter().filter(|slot| can_run(slot)).count();
        if count == 0 {
            return None;
        }
        let chosen = self.random.below(count);
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| can_run(slot))
            .map(|(index, _)| index)
            .nth(chosen)
    }

    /// The next moment at which a worker becomes due or stops waiting.
    fn next_moment(&self) -> Option<Duration> {
        let moment = |slot: &Slot| match slot.phase {
            Phase::Idle => slot.due,
            Phase::Standing { until, .. } => until,
            Phase::Running | Phase::Done => None,
        };
        self.slots.iter().filter_map(moment).min()
    }
}
