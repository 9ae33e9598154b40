use std::sync::Arc;
use std::time::Duration;

use extant_device::Device;
use extant_journal::{BatchTime, Journal, JournalError, JournalOptions, NoHooks, Phase};
use extant_ondisk::Tid;
use extant_runtime::env::Env;
use extant_sim::{Event, Recorder};
use extant_testkit::skip;

use crate::toy::{Random, Toy, Volume};

const SMALL: &[&str] = &["-t", "ext4", "-b", "1024", "-J", "size=1"];

fn toy(args: &[&str], env: &Env, options: JournalOptions) -> Option<(Toy, Arc<dyn Device>)> {
    let volume = match Volume::new(args, 512) {
        Ok(volume) => volume,
        Err(why) => {
            extant_testkit::skipped(why);
            return None;
        }
    };
    let device: Arc<dyn Device> = Arc::new(volume.base.fork());
    Some((Toy::new(&volume, device.clone(), env, options, 1).unwrap(), device))
}

#[test]
fn a_closed_volume_holds_every_operation_and_needs_no_recovery() {
    for env in [Env::stepped(3), Env::threads()] {
        let Some((mut toy, device)) = toy(SMALL, &env, JournalOptions::default()) else { return };
        for _ in 0..2000 {
            toy.operate().unwrap();
        }
        let (volume, history) = (toy.volume, toy.history);
        toy.journal.close().unwrap();
        assert_eq!(volume.check(&*device, &history, "closed"), 2000);
        let recovered =
            extant_journal::recover_volume(&device, None, extant_journal::Finish::Leave);
        let recovered = recovered.unwrap().unwrap();
        assert_eq!((recovered.transactions, recovered.blocks), (0, 0));
    }
}

#[test]
fn a_transaction_commits_at_its_age_and_not_before() {
    let env = Env::stepped(1);
    let Some((mut toy, _)) = toy(SMALL, &env, JournalOptions::default()) else { return };
    let tid = toy.operate().unwrap();
    env.advance(Duration::from_millis(4900));
    assert!(toy.journal.committed().is_before(tid));
    env.advance(Duration::from_millis(200));
    assert_eq!(toy.journal.committed(), tid);
    assert_eq!(toy.journal.running(), tid.next());
    // It has no frames: it stays open.
    env.advance(Duration::from_secs(60));
    assert_eq!(toy.journal.committed(), tid);
}

#[test]
fn a_transaction_waits_for_its_handles_and_handles_for_the_next() {
    let env = Env::stepped(1);
    let Some((toy, _)) = toy(SMALL, &env, JournalOptions::default()) else { return };
    let handle = toy.journal.start(2).unwrap();
    let tid = handle.tid();
    toy.journal.request_commit(tid);
    env.run_until_idle();
    assert_eq!(toy.journal.phase(), Phase::Locked);
    drop(handle);
    let next = toy.journal.start(2).unwrap();
    assert_eq!(next.tid(), tid.next());
    drop(next);
    toy.journal.commit(tid).unwrap();
    assert_eq!(toy.journal.committed(), tid);
}

#[test]
fn fsyncs_of_one_transaction_share_its_commit() {
    let env = Env::stepped(1);
    let Some((mut toy, _)) = toy(SMALL, &env, JournalOptions::default()) else { return };
    let tids: Vec<Tid> = (0..50).map(|_| toy.operate().unwrap()).collect();
    let before = toy.journal.committed();
    for tid in tids {
        toy.journal.commit(tid).unwrap();
    }
    assert_eq!(toy.journal.committed(), before.next());
}

/// max_batch_time and min_batch_time (ext4(5)): a young transaction waits for others; an old one,
/// and one whose commit was requested, do not.
#[test]
fn a_commit_waits_for_others_to_join_within_the_batch_times() {
    let millis = Duration::from_millis;
    let waited = |batch: BatchTime, age: Duration| {
        let env = Env::stepped(1);
        let options = JournalOptions { batch, ..JournalOptions::default() };
        let (mut toy, _) = toy(SMALL, &env, options)?;
        let tid = toy.operate().unwrap();
        env.advance(age);
        let before = env.elapsed();
        toy.journal.commit(tid).unwrap();
        assert_eq!(toy.journal.committed(), tid);
        let waited = env.elapsed() - before;
        toy.journal.commit(tid).unwrap();
        assert_eq!(env.elapsed() - before, waited, "a committed one is waited for no more");
        Some(waited)
    };
    let batch = |min, max| BatchTime { min: millis(min), max: millis(max) };
    for (bounds, age, expected) in [
        (BatchTime::default(), 0, 0),
        (batch(0, 15), 0, 0),
        (batch(7, 15), 0, 7),
        (batch(20, 15), 0, 15),
        (batch(7, 15), 8, 0),
        (batch(7, 0), 0, 0),
    ] {
        let Some(found) = waited(bounds, millis(age)) else { return };
        assert_eq!(found, millis(expected), "{bounds:?}, {age} ms old");
    }
}

#[test]
fn credits_are_granted_until_the_transaction_is_full() {
    let env = Env::stepped(1);
    let Some((toy, _)) = toy(SMALL, &env, JournalOptions::default()) else { return };
    let most = toy.journal.max_credits();
    // A quarter of a log of 1,023 blocks, less descriptors, commit block and revoke records.
    assert!((200..=255).contains(&most), "{most}");
    let error = toy.journal.start(most + 1).unwrap_err();
    assert!(matches!(error, JournalError::TooManyCredits { limit, .. } if limit == most));
    let handle = toy.journal.start(most - 1).unwrap();
    assert!(handle.extend(1));
    assert!(!handle.extend(1));
    let first = handle.tid();
    let handle = handle.restart(most).unwrap();
    // The first handle returned its unused credits, so both fit into one transaction.
    assert_eq!(handle.tid(), first);
    drop(handle);
}

#[test]
fn memory_stays_near_its_limit() {
    let env = Env::threads();
    let options = JournalOptions { memory: 256 << 10, ..JournalOptions::default() };
    let volume = match Volume::new(&["-t", "ext4", "-b", "1024"], 512) {
        Ok(volume) => volume,
        Err(why) => skip!("{why}"),
    };
    let device: Arc<dyn Device> = Arc::new(volume.base.fork());
    let log = volume.log(&device);
    let hooks = Arc::new(NoHooks);
    let journal = Journal::open(device, &volume.geometry, log, &env, options, hooks).unwrap();
    assert_eq!(journal.max_credits(), 64);
    let mut random = Random(5);
    for round in 0..3000_u64 {
        let handle = journal.start(1).unwrap();
        let block = volume.geometry.blocks_count - 1 - random.below(2000);
        let frame = journal.read(extant_ondisk::BlockNo(block)).unwrap();
        handle.write(&frame).unwrap()[..8].copy_from_slice(&round.to_le_bytes());
        drop(handle);
        // The cache keeps its minimum, eight frames in each of 64 shards, and the frames that are
        // not checkpointed.
        assert!(journal.frames_count() <= 1200, "{}", journal.frames_count());
    }
    journal.close().unwrap();
}

#[test]
fn without_a_journal_sync_writes_home() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "^has_journal"];
    let env = Env::stepped(2);
    let Some((mut toy, device)) = toy(&args, &env, JournalOptions::default()) else { return };
    for round in 0..20 {
        for _ in 0..30 {
            toy.operate().unwrap();
        }
        toy.journal.sync().unwrap();
        assert_eq!(toy.volume.check(&*device, &toy.history, "synced"), (round + 1) * 30);
    }
    toy.journal.close().unwrap();
}

#[test]
fn log_blocks_are_reused_only_after_the_new_start_is_flushed() {
    let volume = match Volume::new(SMALL, 512) {
        Ok(volume) => volume.with_log(70),
        Err(why) => skip!("{why}"),
    };
    let recorder = Arc::new(Recorder::new(volume.base.clone()));
    let device: Arc<dyn Device> = recorder.clone();
    let place = volume.log(&device).unwrap().place;
    let superblock = volume.geometry.byte_of(place.runs.runs()[0].start);
    let env = Env::stepped(4);
    let mut toy = Toy::new(&volume, device, &env, JournalOptions::default(), 4).unwrap();
    for _ in 0..100 {
        let tid = toy.operate().unwrap();
        toy.journal.commit(tid).unwrap();
    }
    toy.journal.close().unwrap();
    let events = recorder.events();
    let is_start =
        |event: &Event| matches!(event, Event::Write { offset, .. } if *offset == superblock);
    let starts: Vec<_> = (0..events.len()).filter(|at| is_start(&events[*at])).collect();
    assert!(starts.len() > 5, "{} checkpoints", starts.len());
    for at in starts {
        // Transactions before the new start are checkpointed, and the start is durable before
        // anything else is written.
        assert!(at == 0 || events[at - 1] == Event::Flush, "event {at}");
        assert_eq!(events[at + 1], Event::Flush, "event {at}");
    }
}
