//! Inode tables read ahead: a walk takes fewer reads, none past what was ever used, and never
//! brings back what was changed since.

use extant_device::{Device, DeviceError, Operation, Request};
use extant_engine::{Credentials, OpenVolume, SetAttributes, Volume, VolumeOptions};
use extant_ondisk::{BlockNo, GroupNo, InodeNo};
use extant_reader::{ReaderOptions, VolumeRead};
use extant_runtime::env::Env;
use extant_runtime::sync::Mutex;
use extant_sim::{Effect, Fault, FaultyDevice};
use extant_testkit::{TempImage, e2fsck_fn, skip, tool};
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

const BLOCK: u64 = 4096;
const INODE: u64 = 256;
/// Inodes of a block.
const PER_BLOCK: u32 = (BLOCK / INODE) as u32;
/// The first inode of a file, after that of lost+found.
const FIRST: u32 = 12;
/// Files that there are.
const FILES: u32 = 1600;

/// A device that remembers what was read of it.
#[derive(Debug)]
struct Reads {
    inner: Arc<dyn Device>,
    seen: Mutex<Vec<Range<u64>>>,
}

impl Reads {
    fn of(image: &TempImage) -> Arc<Self> {
        let device =
            extant_device::FileDeviceOptions::new().write(true).open(image.path()).unwrap();
        Arc::new(Self { inner: Arc::new(device), seen: Mutex::default() })
    }

    /// The blocks of each read within a range since this was asked last.
    fn take(&self, within: &Range<u64>) -> Vec<Range<u64>> {
        let seen = std::mem::take(&mut *self.seen.lock());
        let blocks = seen.into_iter().map(|read| read.start / BLOCK..read.end.div_ceil(BLOCK));
        blocks.filter(|read| read.start < within.end && within.start < read.end).collect()
    }
}

impl Device for Reads {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        let reads = batch.iter().filter(|request| request.operation() == Operation::Read);
        let ranges = reads.map(|read| read.offset()..read.offset() + read.length());
        self.seen.lock().extend(ranges);
        self.inner.submit(batch)
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        self.inner.next_data(range)
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

/// A volume of two groups with files in its root.
fn filled() -> Option<TempImage> {
    tool("mke2fs")?;
    let words = ["-t", "ext4", "-b", "4096", "-I", "256", "-N", "65536"];
    let image = TempImage::by_mke2fs(256 << 20, &words).unwrap();
    let volume = live(Reads::of(&image), 32, VolumeOptions::default().memory);
    for file in 0..FILES {
        let name = format!("file-{file:04}");
        let made =
            volume.create(InodeNo::ROOT, name.as_bytes(), 0o600, &Credentials::ROOT).unwrap();
        assert_eq!(made.number.0, FIRST + file);
    }
    volume.close().unwrap();
    Some(image)
}

fn live(device: Arc<dyn Device>, blocks: u32, memory: u64) -> Volume {
    let options =
        VolumeOptions { inode_readahead_blks: blocks, memory, ..VolumeOptions::default() };
    Volume::open(device, &Env::stepped(1), &options).unwrap()
}

/// The first group's table.
fn table(volume: &impl VolumeRead) -> Range<u64> {
    let start = volume.group_desc(GroupNo(0)).unwrap().inode_table.0;
    start..start + u64::from(volume.geometry().itable_blocks())
}

/// Where an inode of the first group lies.
fn block_of(table: &Range<u64>, inode: u32) -> u64 {
    table.start + u64::from((inode - 1) / PER_BLOCK)
}

/// Looks at every file of the root; the reads of the table that it took.
fn walk(volume: &impl VolumeRead, device: &Reads) -> Vec<Range<u64>> {
    let table = table(volume);
    device.take(&table);
    let mut files = 0;
    for entry in volume.read_dir(InodeNo::ROOT, 0).unwrap() {
        let inode = volume.inode(entry.unwrap().inode).unwrap();
        files += u32::from(inode.permissions() == 0o600);
    }
    assert_eq!(files, FILES);
    device.take(&table)
}

#[test]
fn a_cold_walk_takes_few_reads_and_a_warm_one_none() {
    let Some(image) = filled() else { skip!("mke2fs is not installed") };
    // Blocks in which inodes were ever used; the first may have been read when the volume was
    // opened.
    let used = u64::from((FIRST + FILES - 1).div_ceil(PER_BLOCK));
    let check = |open: ReaderOptions, memory: Option<u64>, longest: u64| {
        let what = format!("{open:?}, {memory:?}");
        let device = Reads::of(&image);
        let volume: OpenVolume = match memory {
            Some(memory) => live(device.clone(), open.inode_readahead_blks, memory).into(),
            None => open.open(device.clone()).unwrap().into(),
        };
        let table = table(&volume);
        let used = table.start..table.start + used;
        let reads = walk(&volume, &device);
        let runs = (used.end - 1) / longest - used.start / longest + 1;
        let count = reads.len() as u64;
        assert!(count == runs || count + 1 == runs, "{what}: {count} reads, {runs} runs");
        let is_run = |read: &Range<u64>| {
            read.start >= used.start
                && read.end <= used.end
                && read.start / longest == (read.end - 1) / longest
        };
        assert!(reads.iter().all(is_run), "{what}: {reads:?} of {used:?}");
        assert_eq!(walk(&volume, &device), [], "{what}: all is in memory");
        volume.close().unwrap();
    };
    let usual = VolumeOptions::default().memory;
    for (blocks, longest) in [(32, 32), (0, 1), (1, 1), (8, 8)] {
        let open = ReaderOptions { inode_readahead_blks: blocks, ..ReaderOptions::default() };
        check(open.clone(), None, longest);
        check(open, Some(usual), longest);
    }
    // No more than a 256th of the memory, of which frames have half.
    check(ReaderOptions::default(), Some(16 << 20), 8);
    check(ReaderOptions { cache_size: (2 << 20) - 1, ..ReaderOptions::default() }, None, 1);
}

/// Reads a record of each block of both tables but one, so that all frames that may be given up
/// are.
fn push_out(volume: &impl VolumeRead, all_but: u64) {
    let geometry = volume.geometry();
    for _ in 0..2 {
        for number in (1..geometry.inodes_count).step_by(PER_BLOCK as usize) {
            let (group, index) = geometry.inode_place(InodeNo(number)).unwrap();
            let table = volume.group_desc(group).unwrap().inode_table;
            if BlockNo(table.0 + u64::from(index / PER_BLOCK)) != BlockNo(all_but) {
                // Most were never used.
                drop(volume.any_inode(InodeNo(number)));
            }
        }
    }
}

#[test]
fn what_is_newer_than_the_device_is_not_read_over() {
    let Some(image) = filled() else { skip!("mke2fs is not installed") };
    let device = Reads::of(&image);
    let volume = live(device.clone(), 32, 16 << 20);
    let table = table(&volume);
    let changed = InodeNo(500);
    let home = block_of(&table, changed.0);
    // The least memory has runs of eight blocks.
    let is_near = |number: &u32| {
        let block = block_of(&table, *number);
        block != home && block / 8 == home / 8
    };
    let near = InodeNo((FIRST..FIRST + FILES).find(is_near).unwrap());
    let mode = |volume: &Volume| volume.any_inode(changed).unwrap().permissions();
    let mode_at_home = || {
        let mut bytes = [0; 2];
        let at = home * BLOCK + u64::from((changed.0 - 1) % PER_BLOCK) * INODE;
        device.inner.read_at(at, &mut bytes).unwrap();
        u16::from_le_bytes(bytes) & 0o7777
    };
    for (is_committed, new) in [(false, 0o640), (true, 0o644)] {
        let before = mode_at_home();
        let attributes = SetAttributes { mode: Some(new), ..SetAttributes::default() };
        volume.set_attributes(changed, &attributes).unwrap();
        if is_committed {
            volume.sync().unwrap();
        }
        push_out(&volume, home);
        device.take(&table);
        volume.any_inode(near).unwrap();
        let reads = device.take(&table);
        let near = block_of(&table, near.0);
        assert!(reads.iter().any(|read| read.contains(&near)), "{reads:?}: it was pushed out");
        assert!(reads.iter().any(|read| read.end - read.start > 1), "{reads:?}: others with it");
        assert!(!reads.iter().any(|read| read.contains(&home)), "{reads:?}");
        assert_eq!(mode(&volume), new);
        assert_eq!(mode_at_home(), before, "it is in the log at most");
    }
    // Home, and pushed out: read with its neighbour as it is now.
    volume.freeze().unwrap();
    volume.thaw().unwrap();
    assert_eq!(mode_at_home(), 0o644);
    push_out(&volume, home);
    volume.any_inode(near).unwrap();
    device.take(&table);
    assert_eq!(mode(&volume), 0o644);
    assert_eq!(device.take(&table), [], "it came with its neighbour");
    volume.close().unwrap();
    e2fsck_fn(&image.path()).unwrap();
}

#[test]
fn a_bad_block_of_a_table_harms_its_own_inodes_only() {
    let Some(image) = filled() else { skip!("mke2fs is not installed") };
    let device = Arc::new(FaultyDevice::new(Reads::of(&image)));
    for is_live in [false, true] {
        device.heal();
        let volume: OpenVolume = match is_live {
            true => live(device.clone(), 32, VolumeOptions::default().memory).into(),
            false => ReaderOptions::default().open(device.clone()).unwrap().into(),
        };
        let bad = block_of(&table(&volume), 900);
        let failing = Fault::new(Effect::Error(ErrorKind::Other)).on(Operation::Read);
        device.inject(failing.within(bad * BLOCK..(bad + 1) * BLOCK));
        for number in FIRST..FIRST + FILES {
            let is_bad = block_of(&table(&volume), number) == bad;
            assert_eq!(volume.inode(InodeNo(number)).is_err(), is_bad, "{number}");
        }
        device.heal();
        assert_eq!(volume.inode(InodeNo(900)).unwrap().permissions(), 0o600);
        volume.close().unwrap();
    }
}
