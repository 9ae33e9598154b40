//! Delayed allocation seen from outside: when data are written, what is reserved for them, and what
//! happens to them when that fails.

mod common;

use common::pause;
use extant_device::{Device, DeviceError, MemoryDevice, Operation, Request, RequestKind};
use extant_engine::ops::FallocateMode;
use extant_engine::{Credentials, DataMode, RenameFlags, SetAttributes, Volume, VolumeOptions};
use extant_ondisk::InodeNo;
use extant_reader::{Error, MappingTarget, Reader, VolumeRead};
use extant_runtime::env::Env;
use extant_runtime::sync::atomic::{AtomicUsize, Ordering};
use extant_runtime::sync::thread::scope;
use extant_sim::{Effect, Event, Fault, FaultyDevice, Recorder};
use extant_testkit::{TempImage, e2fsck_fn, skip, tool};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const ROOT: InodeNo = InodeNo::ROOT;

fn image(size: u64, options: &[&str]) -> Result<Arc<MemoryDevice>, String> {
    tool("mke2fs").ok_or("mke2fs is not installed")?;
    let image = TempImage::by_mke2fs(size, options)?;
    Ok(Arc::new(MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap())))
}

fn open(device: Arc<dyn Device>, env: &Env, options: &VolumeOptions) -> Volume {
    Volume::open(device, env, options).unwrap()
}

/// A volume on a device that will fail.
struct Faulty {
    inner: Arc<MemoryDevice>,
    faulty: Arc<FaultyDevice>,
    env: Env,
    volume: Volume,
}

impl Faulty {
    fn new() -> Result<Self, String> {
        Self::with(&VolumeOptions::default())
    }

    fn with(options: &VolumeOptions) -> Result<Self, String> {
        let inner = image(16 << 20, &["-t", "ext4", "-b", "1024"])?;
        let faulty = Arc::new(FaultyDevice::new(inner.clone()));
        let env = Env::stepped(1);
        let volume = open(faulty.clone(), &env, options);
        Ok(Self { inner, faulty, env, volume })
    }
}

fn create(volume: &Volume, name: &str) -> InodeNo {
    volume.create(ROOT, name.as_bytes(), 0o644, &Credentials::ROOT).unwrap().number
}

fn check(device: &dyn Device) {
    let image = TempImage::of_size(device.size()).unwrap();
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    std::fs::write(image.path(), bytes).unwrap();
    e2fsck_fn(&image.path()).unwrap();
}

/// As [`check`], of a volume whose log is to be replayed.
fn check_after_repair(device: &dyn Device) {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    let replayed = Arc::new(MemoryDevice::from_bytes(&bytes));
    open(replayed.clone(), &Env::stepped(1), &VolumeOptions::default()).close().unwrap();
    check(&*replayed);
}

/// Writes to the device that hold file data of a fill byte.
fn data_writes(recorder: &Recorder, fill: u8) -> usize {
    let holds = |event: &&Event| match event {
        Event::Write { data, .. } => data.iter().filter(|byte| **byte == fill).count() > 500,
        _ => false,
    };
    recorder.events().iter().filter(holds).count()
}

#[test]
fn data_are_seen_at_once_and_written_when_they_are_old() {
    let device = match image(16 << 20, &["-t", "ext4", "-b", "1024"]) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let recorder = Arc::new(Recorder::new(device));
    let env = Env::stepped(1);
    let volume = open(recorder.clone(), &env, &VolumeOptions::default());
    let file = create(&volume, "file");
    volume.sync().unwrap();
    let free = volume.stat_fs().unwrap().free_blocks;
    assert_eq!(volume.write(file, 300, &[7; 5000]).unwrap(), 5000);
    let seen = volume.inode(file).unwrap();
    assert_eq!((seen.size, seen.blocks), (5300, 12));
    assert!(volume.stat_fs().unwrap().free_blocks <= free - 6);
    let mut bytes = [1; 6000];
    assert_eq!(volume.read(file, 0, &mut bytes).unwrap(), 5300);
    assert!(bytes[..300].iter().all(|byte| *byte == 0));
    assert!(bytes[300..5300].iter().all(|byte| *byte == 7));
    assert_eq!(volume.seek_data(file, 0).unwrap(), Some(0));
    env.advance(Duration::from_secs(29));
    assert_eq!(data_writes(&recorder, 7), 0, "a commit writes no delayed data");
    env.advance(Duration::from_secs(2));
    assert_eq!(data_writes(&recorder, 7), 1, "one request");
    assert_eq!(volume.reserved_space(), 0);
    assert_eq!(volume.stat_fs().unwrap().free_blocks, free - 6);
    volume.close().unwrap();
}

/// A file's lock is held while a part of its data is written: long writes would keep its readers
/// waiting.
#[test]
fn long_data_are_written_in_rounds() {
    let device = match image(64 << 20, &["-t", "ext4", "-b", "4096"]) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let recorder = Arc::new(Recorder::new(device.clone()));
    let options = VolumeOptions { memory: 256 << 20, ..VolumeOptions::default() };
    let volume = open(recorder.clone(), &Env::stepped(1), &options);
    let file = create(&volume, "file");
    let piece = vec![7; 1 << 20];
    for at in 0..40 {
        assert_eq!(volume.write(file, at << 20, &piece).unwrap(), piece.len());
    }
    assert_eq!(data_writes(&recorder, 7), 0);
    volume.fsync(file).unwrap();
    let lengths = |event: &Event| match event {
        Event::Write { data, .. } => data.iter().filter(|byte| **byte == 7).count(),
        _ => 0,
    };
    let written: Vec<usize> = recorder.events().iter().map(lengths).collect();
    // The journal and the maps hold a few of these bytes too.
    assert_eq!(written.iter().filter(|len| **len > 4096).sum::<usize>(), 40 << 20);
    assert_eq!(written.iter().max(), Some(&(16 << 20)));
    assert_eq!(volume.extents(file).unwrap().count(), 1);
    volume.close().unwrap();
    check(&*device);
}

/// An archive's files are written and then given to their owners: one by one they would be small
/// writes.
#[test]
fn data_of_a_file_that_is_given_away_stay_delayed_without_quotas() {
    for (options, writes) in [(&["-t", "ext4"][..], 0), (&["-t", "ext4", "-O", "quota"], 1)] {
        let device = match image(16 << 20, options) {
            Ok(device) => device,
            Err(why) => skip!("{why}"),
        };
        let recorder = Arc::new(Recorder::new(device.clone()));
        let volume = open(recorder.clone(), &Env::stepped(1), &VolumeOptions::default());
        let file = create(&volume, "file");
        volume.write(file, 0, &[7; 3000]).unwrap();
        let owner = |uid| SetAttributes { uid: Some(uid), gid: Some(uid), ..Default::default() };
        volume.set_attributes(file, &owner(0)).unwrap();
        assert_eq!(data_writes(&recorder, 7), 0, "the owner it had, {options:?}");
        volume.set_attributes(file, &owner(1000)).unwrap();
        assert_eq!(data_writes(&recorder, 7), writes, "{options:?}");
        let mut bytes = [0; 4000];
        assert_eq!(volume.read(file, 0, &mut bytes).unwrap(), 3000);
        assert!(bytes[..3000].iter().all(|byte| *byte == 7));
        volume.close().unwrap();
        check(&*device);
    }
}

/// The contents of small files.
const SMALL: u8 = 7;

/// A device that knows how many small files came to it in one batch at most.
#[derive(Debug)]
struct Largest {
    inner: Arc<dyn Device>,
    files: AtomicUsize,
}

impl Device for Largest {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        let is_small = |request: &&Request<'_>| match &request.kind {
            RequestKind::Write { buffers, .. } => {
                let bytes = buffers.slices().iter().flat_map(|slice| slice.iter());
                bytes.filter(|byte| **byte == SMALL).count() > 500
            }
            _ => false,
        };
        self.files.fetch_max(batch.iter().filter(is_small).count(), Ordering::Relaxed);
        self.inner.submit(batch)
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        self.inner.next_data(range)
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }
}

/// Small files would be small writes, one after the other.
#[test]
fn data_of_small_files_are_written_together() {
    let device = match image(16 << 20, &["-t", "ext4", "-b", "1024"]) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let largest = Arc::new(Largest { inner: device.clone(), files: AtomicUsize::new(0) });
    let env = Env::stepped(1);
    let volume = open(largest.clone(), &env, &VolumeOptions::default());
    let fill = |at: usize| {
        let file = create(&volume, &format!("file{at}"));
        volume.write(file, 0, &[SMALL; 3000]).unwrap();
        file
    };
    let files: Vec<InodeNo> = (0..30).map(fill).collect();
    env.advance(Duration::from_secs(31));
    assert_eq!(largest.files.swap(0, Ordering::Relaxed), files.len(), "when they are old");
    let starts: Vec<u64> = files
        .iter()
        .map(|file| volume.extents(*file).unwrap().next().unwrap().unwrap().physical().unwrap().0)
        .collect();
    assert!(starts.windows(2).all(|pair| pair[1] == pair[0] + 3), "not side by side: {starts:?}");
    (30..50).for_each(|at| {
        fill(at);
    });
    volume.sync().unwrap();
    assert_eq!(largest.files.load(Ordering::Relaxed), 20, "when a caller waits for them");
    assert_eq!(volume.reserved_space(), 0);
    for file in files {
        let mut bytes = [0; 4000];
        assert_eq!(volume.read(file, 0, &mut bytes).unwrap(), 3000);
        assert!(bytes[..3000].iter().all(|byte| *byte == SMALL));
    }
    volume.close().unwrap();
    check(&*device);
}

#[test]
fn of_files_that_are_written_together_only_those_that_cannot_be_written_are_lost() {
    let Faulty { inner, faulty, env, volume } = match Faulty::new() {
        Ok(opened) => opened,
        Err(why) => skip!("{why}"),
    };
    let files = ["one", "two", "three"].map(|name| create(&volume, name));
    volume.sync().unwrap();
    for file in files {
        volume.write(file, 0, &[7; 3000]).unwrap();
    }
    let broken = Effect::Error(io::ErrorKind::Other);
    faulty.inject(Fault::new(broken).on(Operation::Write).after(1).times(1));
    env.advance(Duration::from_secs(31));
    assert_eq!(faulty.faults_met(), 1);
    let reported = files.map(|file| volume.fsync(file).is_ok());
    assert_eq!(reported, [true, false, true]);
    assert_eq!(files.map(|file| volume.inode(file).unwrap().size), [3000, 0, 3000]);
    assert_eq!(volume.reserved_space(), 0);
    assert!(volume.sync().is_err());
    volume.close().unwrap();
    check(&*inner);
}

#[test]
fn data_of_a_removed_file_are_never_written() {
    let device = match image(16 << 20, &["-t", "ext4", "-b", "1024"]) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let recorder = Arc::new(Recorder::new(device.clone()));
    let volume = open(recorder.clone(), &Env::stepped(1), &VolumeOptions::default());
    let (gone, cut) = (create(&volume, "gone"), create(&volume, "cut"));
    volume.write(gone, 0, &[5; 20_000]).unwrap();
    volume.write(cut, 0, &[6; 20_000]).unwrap();
    volume.unlink(ROOT, b"gone").unwrap();
    volume.truncate(cut, 0).unwrap();
    assert_eq!(volume.reserved_space(), 0);
    volume.close().unwrap();
    assert_eq!((data_writes(&recorder, 5), data_writes(&recorder, 6)), (0, 0));
    check(&*device);
}

/// After a rename of a file over another one, or after it is emptied and written again, power loss
/// leaves the old or the new content.
#[test]
fn replacing_a_file_writes_its_data_early() {
    let device = match image(16 << 20, &["-t", "ext4", "-b", "1024"]) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    for (auto_da_alloc, expected) in [(true, 1), (false, 0)] {
        let recorder = Arc::new(Recorder::new(Arc::new(device.fork())));
        let options = VolumeOptions { auto_da_alloc, ..VolumeOptions::default() };
        let volume = open(recorder.clone(), &Env::stepped(1), &options);
        let (old, new) = (create(&volume, "old"), create(&volume, "new"));
        volume.write(old, 0, &[3; 9000]).unwrap();
        volume.write(new, 0, &[4; 9000]).unwrap();
        volume.rename(ROOT, b"new", ROOT, b"old", RenameFlags::empty()).unwrap();
        assert_eq!(data_writes(&recorder, 4), expected, "by rename");
        volume.sync().unwrap();
        volume.truncate(new, 0).unwrap();
        volume.write(new, 0, &[9; 9000]).unwrap();
        assert_eq!(data_writes(&recorder, 9), 0);
        volume.on_close(new);
        assert_eq!(data_writes(&recorder, 9), expected, "by truncation");
        volume.close().unwrap();
    }
}

#[test]
fn options_of_data_that_do_not_go_together_are_refused() {
    let device = match image(16 << 20, &["-t", "ext4"]) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let options = VolumeOptions {
        data: Some(DataMode::Journal),
        delalloc: Some(true),
        ..VolumeOptions::default()
    };
    let refused = Volume::open(device.clone(), &Env::stepped(1), &options);
    assert!(matches!(refused, Err(Error::Options(_))), "{refused:?}");
    // Journalled data wait for nothing.
    let options = VolumeOptions { data: Some(DataMode::Journal), ..VolumeOptions::default() };
    let volume = open(device, &Env::stepped(1), &options);
    volume.write(create(&volume, "file"), 0, &[1; 9000]).unwrap();
    assert_eq!(volume.reserved_space(), 0);
    volume.close().unwrap();
}

/// Space that a call has reserved stays reserved until the end, whatever others write; and the
/// excess of a reservation is given back.
#[test]
fn a_volume_that_runs_full_keeps_what_it_took() {
    for options in [
        &["-t", "ext4", "-b", "1024", "-J", "size=1"][..],
        &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "bigalloc", "-C", "16384"],
        &["-t", "ext2", "-b", "1024"],
    ] {
        let device = match image(8 << 20, options) {
            Ok(device) => device,
            Err(why) => skip!("{why}"),
        };
        let volume = open(device.clone(), &Env::threads(), &VolumeOptions::default());
        let files: Vec<InodeNo> =
            (0..8).map(|index| create(&volume, &format!("file{index}"))).collect();
        // Every second block of each file in turn, so that the maps grow.
        let mut written = vec![Vec::new(); files.len()];
        'all: for at in (0..).map(|turn| turn * 2048_u64) {
            for (index, file) in files.iter().enumerate() {
                match volume.write(*file, at, &[index as u8 + 1; 1024]) {
                    Ok(count) => {
                        assert_eq!(count, 1024);
                        written[index].push(at);
                    }
                    Err(Error::NoSpace) => break 'all,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        volume.sync().unwrap();
        assert_eq!(volume.reserved_space(), 0, "{options:?}");
        let left = volume.stat_fs().unwrap();
        let per_cluster = volume.geometry().blocks_per_cluster;
        assert!(left.available_blocks < 200 * u64::from(per_cluster), "{options:?}: {left:?}");
        volume.close().unwrap();
        let volume = Reader::open(device.clone()).unwrap();
        for (index, file) in files.iter().enumerate() {
            for at in &written[index] {
                let mut bytes = [0; 1024];
                assert_eq!(volume.read(*file, *at, &mut bytes).unwrap(), 1024);
                assert_eq!(bytes, [index as u8 + 1; 1024], "{options:?}: {index} at {at}");
            }
        }
        check(&*device);
    }
}

#[test]
fn what_cannot_be_written_is_told_once_and_leaves_nothing_promised() {
    let Faulty { inner, faulty, env, volume } = match Faulty::new() {
        Ok(opened) => opened,
        Err(why) => skip!("{why}"),
    };
    let (lost, kept) = (create(&volume, "lost"), create(&volume, "kept"));
    volume.sync().unwrap();
    let free = volume.stat_fs().unwrap().free_blocks;
    volume.write(lost, 0, &[7; 30_000]).unwrap();
    let broken = Effect::Error(io::ErrorKind::Other);
    faulty.inject(Fault::new(broken).on(Operation::Write).times(1));
    env.advance(Duration::from_secs(31));
    assert!(faulty.faults_met() > 0, "the background writer has not met the failure");
    assert_eq!(volume.reserved_space(), 0);
    assert_eq!(volume.stat_fs().unwrap().free_blocks, free);
    assert!(matches!(volume.fsync(lost), Err(Error::Io(_))));
    volume.fsync(lost).unwrap();
    assert!(matches!(volume.sync(), Err(Error::Io(_))), "who waits for all is told too");
    volume.write(kept, 0, &[8; 30_000]).unwrap();
    volume.write(lost, 0, &[9; 3000]).unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.inode(lost).unwrap().size, 3000);
    volume.close().unwrap();
    check(&*inner);
}

/// Every open file gets the error once; where the file was not open, the next one that is opened.
#[test]
fn every_open_file_gets_the_error_of_lost_data_once() {
    let Faulty { inner, faulty, env, volume } = match Faulty::new() {
        Ok(opened) => opened,
        Err(why) => skip!("{why}"),
    };
    let lose = |file| {
        volume.write(file, 0, &[7; 3000]).unwrap();
        let broken = Effect::Error(io::ErrorKind::Other);
        faulty.inject(Fault::new(broken).on(Operation::Write).times(1));
        env.advance(Duration::from_secs(31));
    };
    let open = |file| {
        volume.acquire(file).unwrap();
        volume.error_sample(file)
    };
    let [shared, alone] = ["shared", "alone"].map(|name| create(&volume, name));
    volume.sync().unwrap();
    let (mut one, mut two) = (open(shared), open(shared));
    lose(shared);
    lose(alone);
    let mut three = open(shared);
    assert!(matches!(volume.fsync_open(shared, &mut one), Err(Error::Io(_))));
    volume.fdatasync_open(shared, &mut one).unwrap();
    let mut late = open(shared);
    volume.fsync_open(shared, &mut late).unwrap();
    volume.on_close(shared);
    assert!(matches!(volume.fdatasync_open(shared, &mut two), Err(Error::Io(_))));
    assert!(matches!(volume.fsync_open(shared, &mut three), Err(Error::Io(_))));
    for sample in [&mut one, &mut two, &mut three, &mut late] {
        volume.fsync_open(shared, sample).unwrap();
    }
    // A second loss is another one.
    lose(shared);
    for sample in [&mut one, &mut two, &mut three, &mut late] {
        assert!(matches!(volume.fsync_open(shared, sample), Err(Error::Io(_))));
    }
    assert!(matches!(volume.fsync_open(alone, &mut open(alone)), Err(Error::Io(_))));
    volume.fsync_open(alone, &mut open(alone)).unwrap();
    assert!(volume.sync().is_err());
    volume.close().unwrap();
    check(&*inner);
}

/// After a failed flush it is not sure what is on the device: a link whose target may be missing is
/// not committed.
#[test]
fn a_target_that_cannot_be_flushed_stops_the_journal() {
    let options = VolumeOptions {
        data: Some(DataMode::Writeback),
        journal_async_commit: true,
        ..VolumeOptions::default()
    };
    let Faulty { inner, faulty, env, volume } = match Faulty::with(&options) {
        Ok(opened) => opened,
        Err(why) => skip!("{why}"),
    };
    create(&volume, "before");
    volume.sync().unwrap();
    let broken = Effect::Error(io::ErrorKind::Other);
    faulty.inject(Fault::new(broken).on(Operation::Flush).times(1));
    let link = volume.symlink(ROOT, b"link", &[b't'; 100], &Credentials::ROOT);
    assert!(matches!(link, Err(Error::Io(_))), "{link:?}");
    assert_eq!(faulty.faults_met(), 1);
    // The device works again; the volume takes nothing any more.
    let after = volume.create(ROOT, b"after", 0o644, &Credentials::ROOT);
    assert!(matches!(after, Err(Error::Journal(_))), "{after:?}");
    assert!(volume.sync().is_err());
    env.advance(Duration::from_secs(31));
    drop(volume);
    let left = open(inner.clone(), &env, &VolumeOptions::default());
    assert!(left.lookup(ROOT, b"before").is_ok());
    assert!(matches!(left.lookup(ROOT, b"link"), Err(Error::NotFound)));
    left.close().unwrap();
    check(&*inner);
}

/// The state of a deleted inode does not affect the next file with its number.
#[test]
fn a_number_that_is_used_again_begins_anew() {
    let Faulty { inner, faulty, env, volume } = match Faulty::new() {
        Ok(opened) => opened,
        Err(why) => skip!("{why}"),
    };
    let lost = create(&volume, "lost");
    volume.sync().unwrap();
    volume.write(lost, 0, &[7; 3000]).unwrap();
    let broken = Effect::Error(io::ErrorKind::Other);
    faulty.inject(Fault::new(broken).on(Operation::Write).times(1));
    env.advance(Duration::from_secs(31));
    assert_eq!(faulty.faults_met(), 1);
    assert!(volume.sync().is_err());
    volume.unlink(ROOT, b"lost").unwrap();
    volume.sync().unwrap();
    let new = create(&volume, "new");
    assert_eq!(new, lost);
    volume.fdatasync(new).expect("the other file's data are lost");

    let durable = create(&volume, "durable");
    volume.write(durable, 0, &[8; 3000]).unwrap();
    volume.fdatasync(durable).unwrap();
    volume.unlink(ROOT, b"durable").unwrap();
    volume.sync().unwrap();
    let new = create(&volume, "newer");
    assert_eq!(new, durable);
    volume.fdatasync(new).unwrap();
    // The power goes now.
    let left = Reader::open(Arc::new(inner.fork())).unwrap();
    assert_eq!(left.lookup(ROOT, b"newer").unwrap().inode, new);
    volume.close().unwrap();
    check(&*inner);
}

/// Delaying data and mapping them are two changes: that the first is durable must not end the wait
/// for the second.
#[test]
fn data_that_fdatasync_has_acknowledged_are_there_after_a_power_cut() {
    let device = match image(8 << 20, &["-t", "ext4", "-b", "1024", "-J", "size=1"]) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let env = Env::threads();
    // No other thread commits.
    let interval = Duration::from_secs(3600);
    let options = VolumeOptions { commit_interval: interval, ..VolumeOptions::default() };
    let volume = open(device.clone(), &env, &options);
    let file = create(&volume, "file");
    let is_over = AtomicUsize::new(0);
    scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while is_over.load(Ordering::Relaxed) == 0 {
                    volume.fdatasync(file).unwrap();
                }
            });
        }
        let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for at in 0..400 {
                volume.write(file, at * 2048, &[(at % 255) as u8 + 1; 1024]).unwrap();
                // The others have time to wait for what they know of.
                pause(Duration::from_millis(2));
                volume.fdatasync(file).unwrap();
                let left = Reader::open(Arc::new(device.fork())).unwrap();
                let mut bytes = [0; 1024];
                assert_eq!(left.read(file, at * 2048, &mut bytes).unwrap(), 1024, "write {at}");
                assert_eq!(bytes, [(at % 255) as u8 + 1; 1024], "write {at}");
            }
        }));
        is_over.store(1, Ordering::Relaxed);
        written.unwrap();
    });
    volume.close().unwrap();
    check(&*device);
}

/// As what a failed write of metadata does.
#[test]
fn what_cannot_be_written_ends_all_changes_with_data_err_abort() {
    let inner = match image(16 << 20, &["-t", "ext4", "-b", "1024"]) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let faulty = Arc::new(FaultyDevice::new(inner.clone()));
    let env = Env::stepped(1);
    let options = VolumeOptions { aborts_on_lost_data: true, ..VolumeOptions::default() };
    let volume = open(faulty.clone(), &env, &options);
    let (lost, kept) = (create(&volume, "lost"), create(&volume, "kept"));
    volume.sync().unwrap();
    volume.write(lost, 0, &[7; 30_000]).unwrap();
    let broken = Effect::Error(io::ErrorKind::Other);
    faulty.inject(Fault::new(broken).on(Operation::Write).times(1));
    env.advance(Duration::from_secs(31));
    assert!(faulty.faults_met() > 0, "the background writer has not met the failure");
    assert!(volume.write(kept, 0, &[8; 3000]).is_err());
    assert!(volume.fsync(lost).is_err() && volume.sync().is_err());
    drop(volume);
    check_after_repair(&*inner);
    let none = image(16 << 20, &["-t", "ext4", "-O", "^has_journal"]).unwrap();
    let refused = Volume::open(none, &env, &options);
    assert!(matches!(refused, Err(Error::Options(why)) if why.contains("data_err=abort")));
}

#[test]
fn calls_on_ranges_see_delayed_data() {
    let device = match image(16 << 20, &["-t", "ext4", "-b", "1024"]) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let volume = open(device.clone(), &Env::stepped(1), &VolumeOptions::default());
    let file = create(&volume, "file");
    volume.write(file, 0, &[1; 8192]).unwrap();
    volume.write(file, 20_480, &[2; 4096]).unwrap();
    assert_eq!(volume.seek_hole(file, 0).unwrap(), Some(8192));
    assert_eq!(volume.seek_data(file, 8192).unwrap(), Some(20_480));
    volume.fallocate(file, FallocateMode::PunchHole, 1024, 1024).unwrap();
    volume.fallocate(file, FallocateMode::CollapseRange, 0, 1024).unwrap();
    volume.write(file, 30_000, &[3; 10]).unwrap();
    let runs: Vec<_> = volume.extents(file).unwrap().map(|run| run.unwrap().target).collect();
    assert_eq!(runs.iter().filter(|target| matches!(target, MappingTarget::Written(_))).count(), 3);
    let mut bytes = vec![9; 40_000];
    assert_eq!(volume.read(file, 0, &mut bytes).unwrap(), 30_010);
    let expected = |at: usize| match at {
        1024..7168 => 1,
        19_456..23_552 => 2,
        30_000..30_010 => 3,
        _ => 0,
    };
    assert!((0..30_010).all(|at| bytes[at] == expected(at)));
    volume.close().unwrap();
    check(&*device);
}
