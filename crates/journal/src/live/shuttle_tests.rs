//! The journal under shuttle's scheduler: threads, the commit and the checkpoint interleaved in
//! many ways.

use extant_device::{Device, MemoryDevice};
use extant_ondisk::jbd2::{JournalCompat, JournalIncompat, JournalRoCompat, JournalSuperblock};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_MAGIC, SUPERBLOCK_OFFSET};
use extant_ondisk::{BlockNo, CompatFeatures, Geometry, Tid, Uuid};
use extant_runtime::env::Env;
use extant_runtime::sync::{Arc, thread};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};
use zerocopy::{FromZeros, IntoBytes};

use super::*;
use crate::{BlockRuns, Finish, JournalLocation, Log, recover};

const BLOCK: u32 = 1024;
const BLOCKS: u64 = 8192;
/// The first block of the journal: its log holds only a few transactions.
const LOG_AT: u64 = 200;
const LOG: u32 = 66;
/// The first block of the test's data.
const DATA: u64 = 1000;

/// Recovery puts whole blocks on the stack.
const STACK: usize = 1 << 20;

fn random(test: impl Fn() + Send + Sync + 'static, schedules: usize) {
    run(RandomScheduler::new(schedules), test);
}

fn run(scheduler: impl Scheduler + 'static, test: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK;
    Runner::new(scheduler, config).run(test);
}

/// The parts of a volume that the journal reads.
fn volume() -> (Arc<dyn Device>, Geometry, OpenLog) {
    let mut raw = RawSuperblock::new_zeroed();
    raw.s_magic.set(SUPERBLOCK_MAGIC);
    raw.s_first_data_block.set(1);
    raw.s_blocks_per_group.set(BLOCK * 8);
    raw.s_clusters_per_group.set(BLOCK * 8);
    raw.s_blocks_count_lo.set(BLOCKS as u32);
    raw.s_inodes_per_group.set(64);
    raw.s_inodes_count.set(64);
    raw.s_rev_level.set(1);
    raw.s_inode_size.set(256);
    raw.s_first_ino.set(11);
    raw.s_feature_compat.set(CompatFeatures::HAS_JOURNAL.bits());
    let geometry = Geometry::new(&raw).unwrap();
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(BLOCKS * u64::from(BLOCK)));
    device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).unwrap();
    let superblock = JournalSuperblock {
        is_v2: true,
        block_size: BLOCK,
        blocks_count: LOG,
        first: 1,
        sequence: Tid(u32::MAX - 2),
        start: 0,
        errno: 0,
        compat: JournalCompat::empty(),
        incompat: JournalIncompat::empty(),
        ro_compat: JournalRoCompat::empty(),
        uuid: Uuid([1; 16]),
        fast_commit_blocks: 0,
        head: 0,
        users: Vec::new(),
    };
    device.write_at(LOG_AT * u64::from(BLOCK), superblock.encode().as_bytes()).unwrap();
    let mut runs = BlockRuns::new();
    assert!(runs.push(BlockNo(LOG_AT), LOG));
    let place = JournalLocation { runs, superblock_at: 0, block_size: BLOCK };
    let log = OpenLog { device: device.clone(), place, is_external: false };
    (device, geometry, log)
}

fn word(device: &dyn Device, block: u64) -> u64 {
    let mut bytes = [0; 8];
    device.read_at(block * u64::from(BLOCK), &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// Each thread increments a counter in a block of its own and one in a shared block; every third
/// time it frees its block and creates it again. Committed changes are recovered, and a thread's
/// two counts are equal.
fn threads_count(operations: u64) {
    let (device, geometry, log) = volume();
    let place = log.place.clone();
    let env = Env::threads();
    let options = JournalOptions { memory: 1, ..JournalOptions::default() };
    let journal = Arc::new(
        Journal::open(device.clone(), &geometry, Some(log), &env, options, Arc::new(NoHooks))
            .unwrap(),
    );
    let workers: Vec<_> = (0..2_u64)
        .map(|me| {
            let journal = journal.clone();
            thread::spawn(move || {
                for op in 1..=operations {
                    let handle = journal.start(2).unwrap();
                    let own = BlockNo(DATA + 1 + me);
                    let frame = if op % 3 == 0 {
                        handle.forget(own).unwrap();
                        handle.create(own).unwrap()
                    } else {
                        journal.read(own).unwrap()
                    };
                    handle.write(&frame).unwrap()[..8].copy_from_slice(&op.to_le_bytes());
                    let shared = journal.read(BlockNo(DATA)).unwrap();
                    let at = me as usize * 8;
                    handle.write(&shared).unwrap()[at..at + 8].copy_from_slice(&op.to_le_bytes());
                    let tid = handle.tid();
                    drop(handle);
                    if op % 2 == me {
                        journal.commit(tid).unwrap();
                    }
                }
                if me == 0 {
                    journal.checkpoint().unwrap();
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    journal.sync().unwrap();
    drop(journal);
    let log = Log { device: &*device, place: &place };
    let recovered = recover(&*device, &log, Finish::Reset).unwrap();
    assert!(recovered.damage.is_empty(), "{recovered:?}");
    for me in 0..2 {
        assert_eq!(word(&*device, DATA + 1 + me), operations, "thread {me}");
    }
    let mut shared = [0; 16];
    device.read_at(DATA * u64::from(BLOCK), &mut shared).unwrap();
    let counts = shared.as_chunks::<8>().0.iter().map(|count| u64::from_le_bytes(*count));
    assert_eq!(counts.collect::<Vec<_>>(), [operations; 2]);
}

#[test]
fn counts_agree_in_random_schedules() {
    random(|| threads_count(4), 1500);
}

#[test]
fn counts_agree_where_threads_are_switched_at_few_places() {
    run(PctScheduler::new(3, 1500), || threads_count(3));
}

/// A handle that waits for a closed transaction continues when the next one opens, in any
/// interleaving.
#[test]
fn nobody_waits_for_ever_at_the_gate() {
    random(
        || {
            let (device, geometry, log) = volume();
            let env = Env::threads();
            let journal = Arc::new(
                Journal::open(
                    device,
                    &geometry,
                    Some(log),
                    &env,
                    JournalOptions::default(),
                    Arc::new(NoHooks),
                )
                .unwrap(),
            );
            let most = journal.max_credits();
            let workers: Vec<_> = (0..3)
                .map(|_| {
                    let journal = journal.clone();
                    thread::spawn(move || {
                        let handle = journal.start(most).unwrap();
                        let frame = journal.read(BlockNo(DATA)).unwrap();
                        handle.write(&frame).unwrap()[0] += 1;
                    })
                })
                .collect();
            for worker in workers {
                worker.join().unwrap();
            }
            assert_eq!(journal.read(BlockNo(DATA)).unwrap().snapshot()[0], 3);
        },
        300,
    );
}
