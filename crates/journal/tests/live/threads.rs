use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extant_device::Device;
use extant_journal::{Finish, Journal, JournalOptions, NoHooks, recover_volume};
use extant_ondisk::BlockNo;
use extant_runtime::env::Env;
use extant_runtime::sync::thread;
use extant_sim::{Recorder, Sweep};
use extant_testkit::skip;

use crate::toy::{Random, Volume};

const THREADS: u64 = 4;
/// Number of blocks of each thread.
const OWN: u64 = 6;

/// The blocks of the test: a shared one with a counter for each thread, then the threads' own
/// blocks.
#[derive(Clone, Copy)]
struct Layout {
    first: u64,
}

impl Layout {
    fn shared(self) -> BlockNo {
        BlockNo(self.first)
    }

    fn own(self, thread: u64, at: u64) -> BlockNo {
        BlockNo(self.first + 1 + at * THREADS + thread)
    }
}

fn word(bytes: &[u8], at: u64) -> u64 {
    u64::from_le_bytes(bytes[at as usize * 8..][..8].try_into().unwrap())
}

/// The blocks of a thread that its operation `op` rewrites.
fn chosen(thread: u64, op: u64) -> impl Iterator<Item = u64> {
    let mask = Random(thread << 32 | op).below(1 << OWN);
    (0..OWN).filter(move |at| mask >> at & 1 == 1)
}

fn work(journal: &Journal, layout: Layout, me: u64, operations: u64, recorder: &Recorder) {
    let mut random = Random(me);
    for op in 1..=operations {
        let handle = journal.start(OWN as u32 + 1).unwrap();
        for at in chosen(me, op) {
            let block = layout.own(me, at);
            // A third of the blocks is freed and allocated again.
            let frame = if random.below(3) == 0 {
                handle.forget(block).unwrap();
                handle.create(block).unwrap()
            } else {
                journal.read(block).unwrap()
            };
            let mut bytes = handle.write(&frame).unwrap();
            bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&op.to_le_bytes()));
        }
        let shared = journal.read(layout.shared()).unwrap();
        handle.write(&shared).unwrap()[me as usize * 8..][..8].copy_from_slice(&op.to_le_bytes());
        let tid = handle.tid();
        drop(handle);
        match random.below(30) {
            0 | 1 => {
                journal.commit(tid).unwrap();
                recorder.mark(me << 32 | op);
            }
            2 if me == 0 => {
                journal.checkpoint().unwrap();
                recorder.mark(me << 32 | op);
            }
            _ => {}
        }
    }
}

/// Checks that every thread's blocks are those of the operation in the shared block. Returns these
/// operations.
fn check(device: &dyn Device, volume: &Volume, layout: Layout, what: &str) -> Vec<u64> {
    let read = |block: BlockNo| {
        let mut bytes = vec![0; volume.geometry.block_len()];
        device.read_at(volume.geometry.byte_of(block), &mut bytes).unwrap();
        bytes
    };
    let shared = read(layout.shared());
    let reached: Vec<u64> = (0..THREADS).map(|thread| word(&shared, thread)).collect();
    for (thread, reached) in (0..).zip(&reached) {
        for at in 0..OWN {
            let expected =
                (1..=*reached).rev().find(|op| chosen(thread, *op).any(|chosen| chosen == at));
            let bytes = read(layout.own(thread, at));
            let expected = expected.unwrap_or(0);
            let is_right = (0..bytes.len() as u64 / 8).all(|at| word(&bytes, at) == expected);
            assert!(is_right, "{what}: thread {thread}, block {at} after operation {reached}");
        }
    }
    reached
}

#[test]
fn threads_keep_their_operations_apart_and_whole() {
    for (log, seed) in [(80, 1), (1023, 2)] {
        let volume = match Volume::new(&["-t", "ext4", "-b", "1024", "-J", "size=1"], 512) {
            Ok(volume) => volume.with_log(log),
            Err(why) => skip!("{why}"),
        };
        let recorder = Arc::new(Recorder::new(volume.base.clone()));
        let device: Arc<dyn Device> = recorder.clone();
        let env = Env::threads();
        let on_device = volume.log(&device);
        let hooks = Arc::new(NoHooks);
        let options = JournalOptions { memory: 1 << 18, ..JournalOptions::default() };
        let journal =
            Journal::open(device, &volume.geometry, on_device, &env, options, hooks).unwrap();
        let layout = Layout { first: volume.free };
        let opened = recorder.events().len();
        thread::scope(|scope| {
            for me in 0..THREADS {
                let (journal, recorder) = (&journal, &*recorder);
                scope.spawn(move || work(journal, layout, me, 250, recorder));
            }
        });
        journal.sync().unwrap();
        drop(journal);
        let mut cuts = 0;
        for cut in recorder.cuts(Sweep { seed, prefixes: 2, subsets: 1, torn: 1 }) {
            if cut.events < opened {
                continue;
            }
            let what = format!("log of {log} blocks, {cut}");
            let recovered = recover_volume(&cut.image, None, Finish::Leave).unwrap().unwrap();
            assert_eq!(recovered.damage, [], "{what}");
            let reached = check(&cut.image, &volume, layout, &what);
            for mark in &cut.marks {
                let (thread, op) = (mark >> 32, mark & 0xffff_ffff);
                assert!(reached[thread as usize] >= op, "{what}: {op} of thread {thread} is lost");
            }
            cuts += 1;
        }
        assert!(cuts > 100, "{cuts}");
        let end = recorder.image(recorder.events().len(), extant_sim::Survivors::None);
        recover_volume(&end, None, Finish::Reset).unwrap();
        assert_eq!(check(&end, &volume, layout, "the end"), [250; THREADS as usize]);
    }
}

#[test]
fn readers_see_whole_versions_while_writers_change_them() {
    let volume = match Volume::new(&["-t", "ext4", "-b", "1024", "-J", "size=1"], 512) {
        Ok(volume) => volume.with_log(80),
        Err(why) => skip!("{why}"),
    };
    let device: Arc<dyn Device> = Arc::new(volume.base.fork());
    let env = Env::threads();
    let on_device = volume.log(&device);
    let hooks = Arc::new(NoHooks);
    let journal =
        Journal::open(device, &volume.geometry, on_device, &env, JournalOptions::default(), hooks)
            .unwrap();
    let running = AtomicU64::new(2);
    thread::scope(|scope| {
        for me in 0..2_u64 {
            let (journal, running, volume) = (&journal, &running, &volume);
            scope.spawn(move || {
                for op in 0..2000_u64 {
                    let handle = journal.start(1).unwrap();
                    let frame = journal.read(BlockNo(volume.free + op % 3)).unwrap();
                    handle.write(&frame).unwrap().fill((op * 2 + me) as u8);
                    let tid = handle.tid();
                    drop(handle);
                    if op % 100 == 0 {
                        journal.commit(tid).unwrap();
                    }
                }
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        scope.spawn(|| {
            let mut at = 0;
            while running.load(Ordering::Relaxed) > 0 {
                at += 1;
                let bytes = journal.read(BlockNo(volume.free + at % 3)).unwrap().snapshot();
                assert!(bytes.iter().all(|byte| *byte == bytes[0]));
            }
        });
    });
    journal.close().unwrap();
}
