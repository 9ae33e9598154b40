use super::{Arc, Condvar, Mutex, RwLock};

crate::lock_ranks! {
    /// One inode.
    InodeLock = 10, keyed;
    /// A group's allocation state.
    GroupLock = 20;
    /// The running transaction.
    JournalLock = 30;
}

#[test]
fn rising_ranks_are_taken() {
    let (inode, group) = (RwLock::<_, InodeLock>::ranked(1), Mutex::<_, GroupLock>::ranked(2));
    let inode = inode.read();
    let group = group.lock();
    assert_eq!(*inode + *group, 3);
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "lock order: GroupLock is taken while JournalLock is held")]
fn a_falling_rank_panics_with_both_names() {
    let (journal, group) = (Mutex::<_, JournalLock>::ranked(()), Mutex::<_, GroupLock>::ranked(()));
    let _journal = journal.lock();
    let _group = group.lock();
}

#[test]
fn a_released_lock_is_no_longer_in_the_order() {
    let (journal, group) = (Mutex::<_, JournalLock>::ranked(()), Mutex::<_, GroupLock>::ranked(()));
    let first = group.lock();
    let second = journal.lock();
    drop(first);
    drop(second);
    drop(group.lock());
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "lock order: GroupLock is taken while GroupLock is held")]
fn the_same_rank_twice_panics() {
    let groups = [Mutex::<_, GroupLock>::ranked(()), Mutex::ranked(())];
    let _first = groups[0].lock();
    let _second = groups[1].lock();
}

#[test]
fn the_same_rank_is_taken_by_rising_keys() {
    let inodes = [RwLock::<_, InodeLock>::ranked(11), RwLock::ranked(12)];
    let first = inodes[0].write_keyed(11);
    let second = inodes[1].write_keyed(12);
    assert_eq!(*first + *second, 23);
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "lock order: InodeLock[11] is taken while InodeLock[12] is held")]
fn falling_keys_panic() {
    let inodes = [RwLock::<_, InodeLock>::ranked(()), RwLock::ranked(())];
    let _first = inodes[0].write_keyed(12);
    let _second = inodes[1].write_keyed(11);
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "locked again by the thread that holds it")]
fn a_lock_taken_twice_panics_even_without_rank() {
    let lock = RwLock::new(());
    let _first = lock.read();
    let _second = lock.read();
}

#[test]
fn trying_does_not_keep_the_order() {
    let (journal, group) = (Mutex::<_, JournalLock>::ranked(()), Mutex::<_, GroupLock>::ranked(()));
    let _journal = journal.lock();
    assert!(group.try_lock().is_some());
    assert!(journal.try_lock().is_none());
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "lock order: GroupLock is waited on while JournalLock is held")]
fn a_wait_with_a_later_lock_held_panics() {
    let (journal, group) = (Mutex::<_, JournalLock>::ranked(()), Mutex::<_, GroupLock>::ranked(()));
    let mut group = group.lock();
    let _journal = journal.lock();
    Condvar::new().wait(&mut group);
}

#[test]
fn a_condition_wakes_who_waits() {
    let shared = Arc::new((Mutex::new(false), Condvar::new()));
    let thread = super::thread::spawn({
        let shared = shared.clone();
        move || {
            *shared.0.lock() = true;
            shared.1.notify_one();
        }
    });
    let mut ready = shared.0.lock();
    while !*ready {
        shared.1.wait(&mut ready);
    }
    drop(ready);
    thread.join().expect("the thread only sets a flag");
}

/// A lock without a rank costs the same as parking_lot's.
#[cfg(not(debug_assertions))]
#[test]
fn ranks_cost_nothing_in_release() {
    assert_eq!(size_of::<Mutex<u64, InodeLock>>(), size_of::<parking_lot::Mutex<u64>>());
    assert_eq!(
        size_of::<super::MutexGuard<'_, u64, InodeLock>>(),
        size_of::<parking_lot::MutexGuard<'_, u64>>()
    );
}
