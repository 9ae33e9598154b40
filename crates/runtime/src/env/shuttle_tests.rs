//! The runtimes under shuttle: `cargo test -p extant-device --features shuttle shuttle_tests`.

use super::{Env, Next};
use crate::sync::{Arc, Condvar, Mutex, RwLock};

const SCHEDULES: usize = 300;

fn fsync_and_commit(env: &Env) {
    let log = Arc::new((Mutex::new((1_u64, 0_u64)), Condvar::new()));
    let worker = env.spawn("commit", {
        let log = log.clone();
        move || {
            let mut state = log.0.lock();
            state.1 = state.0;
            state.0 += 1;
            drop(state);
            log.1.notify_all();
            Next::WhenWoken
        }
    });
    let wait = |log: &(Mutex<(u64, u64)>, Condvar), env: &Env| {
        let mut state = log.0.lock();
        let tid = state.0;
        worker.wake();
        env.wait_while(&log.1, &mut state, |state| state.1 < tid);
        assert!(state.1 >= tid);
    };
    wait(&log, env);
    wait(&log, env);
    worker.stop();
}

#[test]
fn fsync_is_woken_by_the_commit_worker_in_every_schedule() {
    shuttle::check_random(|| fsync_and_commit(&Env::threads()), SCHEDULES);
}

#[test]
fn a_stepped_world_goes_on_in_every_schedule() {
    shuttle::check_random(|| fsync_and_commit(&Env::stepped(1)), SCHEDULES);
}

#[test]
fn locks_exclude_in_every_schedule() {
    shuttle::check_random(
        || {
            let shared = Arc::new((Mutex::new(0), RwLock::new(0)));
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let shared = shared.clone();
                    crate::sync::thread::spawn(move || {
                        let before = *shared.1.read();
                        *shared.1.write() += 1;
                        assert!(*shared.1.read() > before);
                        *shared.0.lock() += 1;
                    })
                })
                .collect();
            for thread in threads {
                thread.join().expect("it asserts only");
            }
            assert_eq!((*shared.0.lock(), *shared.1.read()), (3, 3));
        },
        SCHEDULES,
    );
}
