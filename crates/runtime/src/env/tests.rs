use std::time::Duration;

use super::{Env, Next, WallTime};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Condvar, Mutex, Weak};

/// A small journal: a commit worker, and callers that wait for their transaction.
struct Log {
    env: Env,
    state: Mutex<Commits>,
    changed: Condvar,
}

#[derive(Default)]
struct Commits {
    running: u64,
    committed: u64,
    commits: u64,
}

impl Log {
    fn new(env: Env) -> Arc<Self> {
        Arc::new(Self {
            env,
            state: Mutex::new(Commits { running: 1, ..Commits::default() }),
            changed: Condvar::new(),
        })
    }

    fn commit(log: &Weak<Self>) -> Next {
        let Some(log) = log.upgrade() else { return Next::Done };
        let mut state = log.state.lock();
        state.committed = state.running;
        state.running += 1;
        state.commits += 1;
        drop(state);
        log.changed.notify_all();
        Next::After(Duration::from_secs(5))
    }

    fn fsync(&self, wake: impl Fn()) -> u64 {
        let mut state = self.state.lock();
        let tid = state.running;
        wake();
        self.env.wait_while(&self.changed, &mut state, |state| state.committed < tid);
        tid
    }
}

fn both_worlds() -> [Env; 2] {
    [Env::threads(), Env::stepped(1)]
}

#[test]
fn fsync_waits_for_the_commit_worker_in_both_worlds() {
    for env in both_worlds() {
        let log = Log::new(env.clone());
        let worker = env.spawn("commit", {
            let log = Arc::downgrade(&log);
            move || Log::commit(&log)
        });
        for _ in 0..10 {
            let tid = log.fsync(|| worker.wake());
            assert!(log.state.lock().committed >= tid, "{env:?}");
        }
    }
}

#[test]
fn several_callers_wait_for_one_worker_on_threads() {
    let env = Env::threads();
    let log = Log::new(env.clone());
    let worker = env.spawn("commit", {
        let log = Arc::downgrade(&log);
        move || Log::commit(&log)
    });
    crate::sync::thread::scope(|scope| {
        for _ in 0..4 {
            let (log, waker) = (&log, worker.waker());
            scope.spawn(move || {
                for _ in 0..50 {
                    log.fsync(|| waker.wake());
                }
            });
        }
    });
    assert!(log.state.lock().commits >= 50);
}

#[test]
fn a_stopped_worker_runs_no_more_in_both_worlds() {
    for env in both_worlds() {
        let runs = Arc::new(AtomicU64::new(0));
        let worker = env.spawn("count", {
            let runs = runs.clone();
            move || {
                runs.fetch_add(1, Ordering::SeqCst);
                Next::WhenWoken
            }
        });
        let waker = worker.waker();
        worker.stop();
        let stopped_at = runs.load(Ordering::SeqCst);
        assert!(stopped_at <= 1);
        waker.wake();
        env.run_until_idle();
        assert_eq!(runs.load(Ordering::SeqCst), stopped_at, "{env:?}");
        assert_eq!(Arc::strong_count(&runs), 1, "the closure is gone: {env:?}");
    }
}

#[test]
fn a_worker_may_drop_its_own_handle_in_both_worlds() {
    for env in both_worlds() {
        let own = Arc::new(Mutex::new(None));
        let gone = Arc::new((Mutex::new(false), Condvar::new()));
        let worker = env.spawn("last owner", {
            let (own, gone) = (own.clone(), gone.clone());
            move || {
                let handle = own.lock().take();
                let Some(handle) = handle else { return Next::WhenWoken };
                drop::<super::Worker>(handle);
                *gone.0.lock() = true;
                gone.1.notify_all();
                Next::WhenWoken
            }
        });
        let waker = worker.waker();
        *own.lock() = Some(worker);
        waker.wake();
        let mut is_gone = gone.0.lock();
        env.wait_while(&gone.1, &mut is_gone, |is_gone| !*is_gone);
    }
}

#[test]
#[should_panic(expected = "`doomed` panicked")]
fn a_wait_on_threads_notices_a_worker_that_panicked() {
    let env = Env::threads();
    let _worker = env.spawn("doomed", || panic!("as the test wants"));
    let (lock, never) = (Mutex::new(()), Condvar::new());
    env.wait_while(&never, &mut lock.lock(), |()| true);
}

#[test]
#[should_panic(expected = "as the test wants")]
fn a_stepped_worker_panics_in_its_caller() {
    let env = Env::stepped(0);
    let _worker = env.spawn("doomed", || panic!("as the test wants"));
    env.run_until_idle();
}

#[test]
fn stepped_workers_run_at_their_moment_and_in_order() {
    let env = Env::stepped(3);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let worker_every = |name: &'static str, seconds: u64| {
        let (seen, env) = (seen.clone(), env.clone());
        let own = env.clone();
        own.spawn(name, move || {
            seen.lock().push((env.elapsed().as_secs(), name));
            Next::After(Duration::from_secs(seconds))
        })
    };
    let _workers = [worker_every("five", 5), worker_every("seven", 7)];
    env.run_until_idle();
    assert_eq!(env.elapsed(), Duration::ZERO);
    seen.lock().clear();
    env.advance(Duration::from_secs(15));
    assert_eq!(
        *seen.lock(),
        [(5, "five"), (7, "seven"), (10, "five"), (14, "seven"), (15, "five")]
    );
    assert_eq!(env.elapsed(), Duration::from_secs(15));
    let start = WallTime { seconds: 1_767_225_600, nanoseconds: 0 };
    assert_eq!(env.now(), start.after(Duration::from_secs(15)));
}

#[test]
fn a_stepped_wait_lets_time_pass_when_all_wait_for_it() {
    let env = Env::stepped(3);
    let log = Log::new(env.clone());
    let _worker = env.spawn("commit", {
        let log = Arc::downgrade(&log);
        move || Log::commit(&log)
    });
    env.run_until_idle();
    log.fsync(|| {});
    assert_eq!(env.elapsed(), Duration::from_secs(5));
}

#[test]
fn a_wait_ends_at_its_limit_in_both_worlds() {
    for env in both_worlds() {
        let (lock, never) = (Mutex::new(()), Condvar::new());
        let limit = Duration::from_millis(20);
        assert!(env.wait_while_for(&never, &mut lock.lock(), limit, |()| true));
        assert!(env.elapsed() >= limit);
        assert!(!env.wait_while_for(&never, &mut lock.lock(), limit, |()| false));
    }
}

/// Two workers that interleave freely: the history depends on the seed.
fn history(seed: u64) -> Vec<&'static str> {
    let env = Env::stepped(seed);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let workers: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .map(|name| {
            let seen = seen.clone();
            let mut left = 20;
            env.spawn(name, move || {
                seen.lock().push(name);
                left -= 1;
                if left == 0 { Next::Done } else { Next::After(Duration::ZERO) }
            })
        })
        .collect();
    env.run_until_idle();
    assert!(workers.iter().all(super::Worker::is_done));
    Arc::into_inner(seen).map(Mutex::into_inner).expect("the workers are done")
}

#[test]
fn a_seed_gives_one_history_and_seeds_differ() {
    assert_eq!(history(1), history(1));
    assert_ne!(history(1), history(2));
}

/// A worker is suspended while it holds a lock that another one needs: both finish, for every seed.
#[test]
fn stepped_workers_block_in_the_middle_of_a_run() {
    for seed in 0..50 {
        let env = Env::stepped(seed);
        let inode = Arc::new(Mutex::new(0));
        let space = Arc::new((Mutex::new(0_u32), Condvar::new()));
        let writer = env.spawn("writer", {
            let (env, inode, space) = (env.clone(), inode.clone(), space.clone());
            move || {
                let mut inode = inode.lock();
                let mut left = space.0.lock();
                env.wait_while(&space.1, &mut left, |left| *left == 0);
                *left -= 1;
                *inode += 1;
                Next::Done
            }
        });
        let writeback = env.spawn("writeback", {
            let inode = inode.clone();
            move || {
                *inode.lock() += 10;
                Next::Done
            }
        });
        let checkpoint = env.spawn("checkpoint", {
            let space = space.clone();
            move || {
                *space.0.lock() += 1;
                space.1.notify_all();
                Next::Done
            }
        });
        // The caller takes the lock too, at any point of the history.
        for _ in 0..seed % 4 {
            env.step();
        }
        *inode.lock() += 100;
        env.run_until_idle();
        assert_eq!(*inode.lock(), 111, "seed {seed}");
        assert!(writer.is_done() && writeback.is_done() && checkpoint.is_done(), "seed {seed}");
    }
}

#[test]
#[should_panic(expected = "worker `writer` waits for a condition that is not notified")]
fn a_stepped_deadlock_names_who_waits() {
    let env = Env::stepped(0);
    let _writer = env.spawn("writer", {
        let env = env.clone();
        move || {
            let (lock, never) = (Mutex::new(()), Condvar::new());
            env.wait_while(&never, &mut lock.lock(), |()| true);
            Next::Done
        }
    });
    let (lock, never) = (Mutex::new(()), Condvar::new());
    env.wait_while(&never, &mut lock.lock(), |()| true);
}

#[test]
fn wall_time_carries_into_seconds() {
    let time = WallTime { seconds: -1, nanoseconds: 900_000_000 };
    assert_eq!(
        time.after(Duration::from_millis(200)),
        WallTime { seconds: 0, nanoseconds: 100_000_000 }
    );
}

#[test]
#[should_panic(expected = "the workers do not come to rest; worker `restless`")]
fn workers_that_never_rest_are_noticed() {
    let env = Env::stepped(0);
    let _worker = env.spawn("restless", || Next::After(Duration::ZERO));
    env.run_until_idle();
}
