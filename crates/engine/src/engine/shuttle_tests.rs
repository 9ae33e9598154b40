//! The cache of inodes, and files made and deleted by several threads, under shuttle's scheduler.

use super::inodes::tests::loaded;
use super::inodes::{InodeCache, LockClass};
use crate::{Credentials, RenameFlags, Volume, VolumeOptions};
use extant_device::{Device, MemoryDevice};
use extant_ondisk::bitmap::BitmapKind;
use extant_ondisk::{GroupNo, InodeNo};
use extant_reader::{Error, Reader, VolumeRead};
use extant_runtime::env::Env;
use extant_runtime::sync::{Arc, Mutex, thread};
use extant_testkit::{TempImage, skip};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};
use std::collections::{BTreeSet, HashMap};

const STACK: usize = 1 << 20;

fn run(scheduler: impl Scheduler + 'static, test: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK;
    Runner::new(scheduler, config).run(test);
}

/// As many inodes of one shard as push each other out of it.
const INODES: u32 = 20;

fn numbered(at: u32) -> InodeNo {
    InodeNo(64 * (at + 1))
}

/// Threads count in inodes, and store each count in a record, as operations do, while inodes push
/// each other out: no count is lost, and all holders of an inode have the same one.
fn threads_count_in_inodes(rounds: u32) {
    let cache = Arc::new(InodeCache::new(0));
    let records: Arc<Mutex<HashMap<InodeNo, u16>>> = Arc::default();
    let workers: Vec<_> = (0..2_u32)
        .map(|me| {
            let (cache, records) = (cache.clone(), records.clone());
            thread::spawn(move || {
                for round in 0..rounds {
                    let number = numbered(round % 3);
                    let ours = cache.get(number);
                    let load = |_| {
                        let stored = records.lock().get(&number).copied().unwrap_or(1);
                        Ok::<_, Error>(loaded(number, stored))
                    };
                    let mut locked = ours.write_with(LockClass::File, load).unwrap();
                    locked.inode.links += 1;
                    records.lock().insert(number, locked.links);
                    if (round + me) % 2 == 0 {
                        for other in 3..INODES {
                            cache.get(numbered(other));
                        }
                    }
                    assert!(Arc::ptr_eq(&ours, &cache.get(number)), "two of {number}");
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    let records = records.lock();
    let counted: u32 = records.values().map(|links| u32::from(*links) - 1).sum();
    assert_eq!(counted, 2 * rounds);
}

#[test]
fn counts_in_inodes_agree_in_random_schedules() {
    run(RandomScheduler::new(1000), || threads_count_in_inodes(4));
}

#[test]
fn counts_in_inodes_agree_where_threads_are_switched_at_few_places() {
    run(PctScheduler::new(3, 500), || threads_count_in_inodes(6));
}

/// Bytes of a small volume. Locks of a device are shuttle's too, so each schedule makes its own of
/// them.
fn volume_of(options: &[&str]) -> Result<Vec<u8>, String> {
    let usual = ["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "64"];
    let image = TempImage::by_mke2fs(4 << 20, &[&usual[..], options].concat())?;
    std::fs::read(image.path()).map_err(|error| error.to_string())
}

fn opened(device: &Arc<dyn Device>) -> Volume {
    let options = VolumeOptions::default();
    Volume::open(device.clone(), &Env::threads(), &options).unwrap()
}

/// Bytes of a file's piece.
fn bytes_of(me: u8, round: u8) -> Vec<u8> {
    vec![me * 16 + round + 1; 2500]
}

/// Threads make, fill, cut and delete files of one directory: no block has two owners, and what
/// groups and superblock count is what is there.
fn threads_allocate(base: &[u8], rounds: u8) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(base));
    let volume = Arc::new(opened(&device));
    let workers: Vec<_> = (0..2_u8)
        .map(|me| {
            let volume = volume.clone();
            thread::spawn(move || {
                for round in 0..rounds {
                    let name = format!("f{me}-{round}").into_bytes();
                    let made =
                        volume.create(InodeNo::ROOT, &name, 0o644, &Credentials::ROOT).unwrap();
                    volume.acquire(made.number).unwrap();
                    volume.write(made.number, 0, &bytes_of(me, round)).unwrap();
                    if round % 2 == 0 {
                        volume.unlink(InodeNo::ROOT, &name).unwrap();
                    } else {
                        volume.truncate(made.number, 1500).unwrap();
                    }
                    if round % 3 == me % 3 {
                        volume.sync().unwrap();
                    }
                    volume.release(made.number, 1).unwrap();
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    let Some(volume) = Arc::into_inner(volume) else { panic!("everybody has ended") };
    volume.close().unwrap();
    let volume = Reader::open(device).unwrap();
    let mut owned = BTreeSet::new();
    for me in 0..2 {
        for round in (1..rounds).step_by(2) {
            let name = format!("f{me}-{round}").into_bytes();
            let file = volume.lookup(InodeNo::ROOT, &name).unwrap().inode;
            let mut found = vec![0; 3000];
            let count = volume.read(file, 0, &mut found).unwrap();
            assert_eq!(found[..count], bytes_of(me, round)[..1500]);
            for run in volume.extents(file).unwrap() {
                let run = run.unwrap();
                let start = run.physical().expect("a file without holes");
                for block in start.0..start.0 + run.len {
                    assert!(owned.insert(block), "block {block} has two owners");
                }
            }
        }
    }
    let geometry = volume.geometry();
    let mut free = 0;
    for group in (0..geometry.groups_count).map(GroupNo) {
        let bits = volume.bitmap(group, BitmapKind::Block).unwrap();
        let clusters = geometry.group_clusters(group);
        let is_free = |bit: &u32| bits[(bit / 8) as usize] & 1 << (bit % 8) == 0;
        let counted = (0..clusters).filter(is_free).count() as u32;
        assert_eq!(counted, volume.group_desc(group).unwrap().free_clusters, "{group}");
        free += u64::from(counted);
    }
    assert_eq!(free, volume.superblock().free_blocks);
}

#[test]
fn blocks_have_one_owner_in_random_schedules() {
    let base = match volume_of(&["-g", "512"]) {
        Ok(base) => base,
        Err(why) => skip!("{why}"),
    };
    run(RandomScheduler::new(60), move || threads_allocate(&base, 4));
}

/// Bytes of a piece of the file that several threads change: not whole blocks.
const PIECE: usize = 1500;

/// One thread writes the delayed data of a file again and again, and gives up its lock during each
/// write; others write over data under writeback, delay further data and truncate the file. Each
/// sees what it wrote, and in the end all of it is there.
fn threads_change_data_on_their_way(base: &[u8]) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(base));
    let volume = Arc::new(opened(&device));
    let file = volume.create(InodeNo::ROOT, b"file", 0o644, &Credentials::ROOT).unwrap().number;
    volume.write(file, 0, &[1; 4 * PIECE]).unwrap();
    let syncer = {
        let volume = volume.clone();
        thread::spawn(move || {
            for _ in 0..2 {
                volume.sync().unwrap();
            }
        })
    };
    let writers = [0, 4].map(|place| {
        let volume = volume.clone();
        thread::spawn(move || {
            for fill in [2, 3] {
                let at = (place * PIECE) as u64;
                assert_eq!(volume.write(file, at, &[fill; PIECE]).unwrap(), PIECE);
                let mut found = [0; PIECE];
                assert_eq!(volume.read(file, at, &mut found).unwrap(), PIECE);
                assert_eq!(found, [fill; PIECE], "at {at}");
            }
        })
    });
    for worker in writers.into_iter().chain([syncer]) {
        worker.join().unwrap();
    }
    let cutter = {
        let volume = volume.clone();
        thread::spawn(move || volume.truncate(file, 2 * PIECE as u64).unwrap())
    };
    volume.sync().unwrap();
    cutter.join().unwrap();
    assert_eq!(volume.reserved_space(), 0);
    let Some(volume) = Arc::into_inner(volume) else { panic!("everybody has ended") };
    volume.close().unwrap();
    let volume = Reader::open(device).unwrap();
    let mut found = vec![0; 8 * PIECE];
    let count = volume.read(file, 0, &mut found).unwrap();
    assert_eq!(found[..count], [[3; PIECE], [1; PIECE]].concat());
}

#[test]
fn data_on_their_way_are_kept_in_random_schedules() {
    let base = match volume_of(&[]) {
        Ok(base) => base,
        Err(why) => skip!("{why}"),
    };
    run(RandomScheduler::new(60), move || threads_change_data_on_their_way(&base));
}

/// Threads make files durable by fast commits while another commits transactions; then the power
/// goes. Everything that an fsync acknowledged is there.
fn threads_fsync(base: &[u8], rounds: u8) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(base));
    let volume = Arc::new(opened(&device));
    let files = [b"one", b"two"]
        .map(|name| volume.create(InodeNo::ROOT, name, 0o644, &Credentials::ROOT).unwrap().number);
    volume.sync().unwrap();
    let workers = [0_u8, 1].map(|me| {
        let volume = volume.clone();
        thread::spawn(move || {
            for round in 0..rounds {
                let name = format!("f{me}-{round}").into_bytes();
                let made = volume.create(InodeNo::ROOT, &name, 0o644, &Credentials::ROOT).unwrap();
                volume.write(made.number, 0, &bytes_of(me, round)).unwrap();
                volume.fsync(made.number).unwrap();
                volume.write(files[usize::from(me)], 0, &bytes_of(me, round)).unwrap();
                volume.fdatasync(files[usize::from(me)]).unwrap();
            }
        })
    });
    let syncer = {
        let volume = volume.clone();
        thread::spawn(move || volume.sync().unwrap())
    };
    for worker in workers.into_iter().chain([syncer]) {
        worker.join().unwrap();
    }
    drop(volume);
    let volume = Reader::open(device).unwrap();
    let last = |me| (if me == 0 { "one" } else { "two" }.to_owned(), rounds - 1);
    for me in 0..2 {
        let made = (0..rounds).map(|round| (format!("f{me}-{round}"), round));
        for (name, round) in made.chain([last(me)]) {
            let file = volume.lookup(InodeNo::ROOT, name.as_bytes()).unwrap().inode;
            let mut found = vec![0; 3000];
            let count = volume.read(file, 0, &mut found).unwrap();
            assert_eq!(found[..count], bytes_of(me, round), "{name}");
        }
    }
}

#[test]
fn fast_commits_keep_what_was_acknowledged_in_random_schedules() {
    let base = match volume_of(&["-O", "fast_commit"]) {
        Ok(base) => base,
        Err(why) => skip!("{why}"),
    };
    run(RandomScheduler::new(60), {
        let base = base.clone();
        move || threads_fsync(&base, 3)
    });
    run(PctScheduler::new(3, 60), move || threads_fsync(&base, 3));
}

/// One thread writes the delayed data of several files together while others take two of these
/// files at once, in either order of their names, and replace one by another: every thread gets its
/// locks.
fn threads_rename_files_on_their_way(base: &[u8]) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(base));
    let volume = Arc::new(opened(&device));
    let names = [b"one", b"two", b"six"];
    for (name, fill) in names.into_iter().zip(1..) {
        let made = volume.create(InodeNo::ROOT, name, 0o644, &Credentials::ROOT).unwrap();
        volume.write(made.number, 0, &[fill; PIECE]).unwrap();
    }
    let syncer = {
        let volume = volume.clone();
        thread::spawn(move || volume.sync().unwrap())
    };
    let renamers = [(0, 1), (2, 1)].map(|(from, to)| {
        let volume = volume.clone();
        thread::spawn(move || {
            let (root, flags) = (InodeNo::ROOT, RenameFlags::EXCHANGE);
            volume.rename(root, names[from], root, names[to], flags).unwrap();
            volume.rename(root, names[to], root, names[from], flags).unwrap();
        })
    });
    for worker in renamers.into_iter().chain([syncer]) {
        worker.join().unwrap();
    }
    let replacer = {
        let volume = volume.clone();
        thread::spawn(move || {
            let root = InodeNo::ROOT;
            volume.rename(root, b"one", root, b"two", RenameFlags::empty()).unwrap();
        })
    };
    let six = volume.lookup(InodeNo::ROOT, b"six").unwrap().inode;
    volume.write(six, 0, &[4; PIECE]).unwrap();
    volume.sync().unwrap();
    replacer.join().unwrap();
    assert_eq!(volume.reserved_space(), 0);
    let Some(volume) = Arc::into_inner(volume) else { panic!("everybody has ended") };
    volume.close().unwrap();
    let volume = Reader::open(device).unwrap();
    let six = volume.lookup(InodeNo::ROOT, b"six").unwrap().inode;
    let mut found = vec![0; 2 * PIECE];
    assert_eq!(volume.read(six, 0, &mut found).unwrap(), PIECE);
    assert_eq!(found[..PIECE], [4; PIECE]);
}

#[test]
fn files_on_their_way_together_land_in_random_schedules() {
    let base = match volume_of(&[]) {
        Ok(base) => base,
        Err(why) => skip!("{why}"),
    };
    run(RandomScheduler::new(60), move || threads_rename_files_on_their_way(&base));
}

/// Threads delete files whose blocks lie in one group of a volume that is not in memory yet: each
/// sees a consistent state of the group, whatever the other one changes.
fn threads_delete_on_a_cold_volume(base: &[u8]) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(base));
    let volume = opened(&device);
    let names = [b"one", b"two"];
    for name in names {
        let made = volume.create(InodeNo::ROOT, name, 0o644, &Credentials::ROOT).unwrap();
        volume.write(made.number, 0, &[7; PIECE]).unwrap();
    }
    volume.close().unwrap();
    let volume = Arc::new(opened(&device));
    let workers = names.map(|name| {
        let volume = volume.clone();
        thread::spawn(move || volume.unlink(InodeNo::ROOT, name).unwrap())
    });
    for worker in workers {
        worker.join().unwrap();
    }
    let Some(volume) = Arc::into_inner(volume) else { panic!("everybody has ended") };
    volume.close().unwrap();
}

#[test]
fn a_group_that_others_change_is_read_whole_where_threads_are_switched_at_few_places() {
    let base = match volume_of(&[]) {
        Ok(base) => base,
        Err(why) => skip!("{why}"),
    };
    run(PctScheduler::new(3, 1000), move || threads_delete_on_a_cold_volume(&base));
}
