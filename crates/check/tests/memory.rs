//! A small limit of memory: the passes go over the disk more often, find the same and repair the
//! same.

mod common;

use common::{findings, open};
use extant_check::{AutoPolicy, CheckOptions, PassReport, Recorder, Store};
use extant_device::{Device, DeviceError, Request};
use extant_ondisk::{BlockNo, GroupNo, InodeNo};
use extant_runtime::sync::Mutex;
use extant_testkit::{Scratch, TempImage, e2fsck_fn, skip, tool};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// A volume of sixteen groups with files and directories in all of them, and inodes that were never
/// used.
fn healthy() -> TempImage {
    let scratch = Scratch::new();
    let source = scratch.join("source");
    for dir in 0..25 {
        let dir = source.join(format!("directory {dir}"));
        std::fs::create_dir_all(&dir).expect("a directory");
        for file in 0..90 {
            let name = format!("{file} of a length that fills blocks");
            std::fs::write(dir.join(name), vec![file; 3000]).expect("a file");
        }
    }
    let source = source.to_str().expect("scratch paths are UTF-8");
    let options = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-g",
        "1024",
        "-N",
        "16384",
        "-O",
        "^resize_inode",
        "-d",
        source,
    ];
    TempImage::by_mke2fs(16 << 20, &options).expect("mke2fs makes it")
}

/// Damage of which the halves lie far apart: claims, names, links and bitmaps.
fn spoil(image: &Path) {
    let store = Store::open(open(image, true)).expect("it opens");
    let geometry = store.geometry().clone();
    let used: Vec<InodeNo> = (20..geometry.inodes_count)
        .map(InodeNo)
        .filter(|ino| {
            let record = store.read_inode(*ino).expect("reads").expect("there is one");
            record[0..2] == [0xa4, 0x81] && record[26] == 1
        })
        .collect();
    let record = |ino: InodeNo| store.read_inode(ino).expect("reads").expect("there is one");
    let (first, last) = (used[5], used[used.len() - 5]);
    // Two files share blocks.
    let mut shared = record(first);
    shared[40..100].copy_from_slice(&record(last)[40..100]);
    store.write_inode(first, &mut shared).expect("writes");
    // A link count, and a file that is gone but for its name.
    let mut linked = record(used[used.len() / 2]);
    linked[26] = 7;
    store.write_inode(used[used.len() / 2], &mut linked).expect("writes");
    let mut gone = record(used[used.len() / 3]);
    gone.fill(0);
    store.write_inode(used[used.len() / 3], &mut gone).expect("writes");
    // A directory that nothing leads to, and bitmaps of the first and the last group.
    let mut root = store.read(root_block(&store)).expect("reads");
    let at = root.windows(11).position(|it| it == b"directory 7").expect("its name is there");
    root[at - 8..at - 4].fill(0);
    store.write(root_block(&store), &root).expect("writes");
    for group in [0, geometry.groups_count - 1] {
        let place = store.desc(GroupNo(group)).block_bitmap;
        let mut bitmap = store.read(place).expect("reads");
        bitmap[100] ^= 0x3c;
        store.write(place, &bitmap).expect("writes");
    }
}

/// The first block of the root, which its extent tree names in its only entry.
fn root_block(store: &Store) -> BlockNo {
    let record = store.read_inode(InodeNo::ROOT).expect("reads").expect("there is one");
    let low = u32::from_le_bytes([record[60], record[61], record[62], record[63]]);
    BlockNo(u64::from(low))
}

fn scan(image: &Path, memory: Option<u64>, threads: usize) -> PassReport {
    let options = CheckOptions { memory, threads, ..CheckOptions::default() };
    extant_check::scan(&Store::open(open(image, false)).expect("it opens"), &options)
        .expect("it ends")
}

/// Limits between the memory that a scan uses and the memory that it needs.
fn limits(whole: u64) -> impl Iterator<Item = u64> {
    (1..=4).map(move |quarters| whole * (12 - quarters) / 12)
}

#[test]
fn a_healthy_volume_has_no_findings_within_a_small_limit() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let image = healthy();
    let whole = scan(&image.path(), None, 2);
    assert_eq!((whole.windows, whole.findings.len()), (1, 0), "{}", findings(&whole));
    for limit in limits(whole.memory) {
        let small = scan(&image.path(), Some(limit), 2);
        assert!(small.windows > 1 && small.memory <= limit, "{} of {limit}", small.memory);
        assert!(small.findings.is_empty(), "{}", findings(&small));
        assert_eq!(small.statistics, whole.statistics);
    }
}

#[test]
fn a_small_limit_finds_the_same_damage_and_repairs_it() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = healthy();
    spoil(&image.path());
    let whole = scan(&image.path(), None, 1);
    assert!(whole.findings.len() >= 8, "{}", findings(&whole));
    let mut least = u64::MAX;
    for limit in limits(whole.memory) {
        for threads in [1, 3] {
            let small = scan(&image.path(), Some(limit), threads);
            assert_eq!(findings(&whole), findings(&small), "within {limit}, {threads} threads");
            assert!(small.memory <= limit && small.windows > 1);
        }
        least = limit;
    }
    let mut store = Store::open(open(&image.path(), true)).expect("it opens");
    let options = CheckOptions { memory: Some(least), ..CheckOptions::default() };
    let recorder = Recorder::new(&AutoPolicy::Yes);
    let report = extant_check::repair(&mut store, &options, &recorder).expect("it ends");
    assert!(!report.errors_left && report.windows > 1, "{}", findings(&report));
    drop(store);
    assert_eq!(e2fsck_fn(&image.path()), Ok(()), "{}", findings(&report));
    assert!(scan(&image.path(), None, 1).findings.is_empty());
}

#[test]
fn a_limit_below_what_must_be_kept_is_an_error_that_names_it() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let image = healthy();
    let store = Store::open(open(&image.path(), false)).expect("it opens");
    let options = CheckOptions { memory: Some(1000), ..CheckOptions::default() };
    let error = extant_check::scan(&store, &options).expect_err("directories alone take more");
    assert_eq!(error.to_string(), "out of memory: the check needs more than 1000 bytes");
}

/// A device that records the ranges requested ahead.
#[derive(Debug)]
struct Recording {
    inner: Arc<dyn Device>,
    ranges: Mutex<Vec<Range<u64>>>,
}

impl Device for Recording {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        self.inner.submit(batch)
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        self.inner.next_data(range)
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn will_need(&self, range: Range<u64>) {
        self.ranges.lock().push(range);
    }
}

/// An inode table of 8 MiB without a mark, of which only the start was ever written.
#[test]
fn holes_of_inode_tables_are_not_fetched_ahead() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let options = ["-t", "ext4", "-b", "4096", "-N", "32768", "-O", "^metadata_csum,^uninit_bg"];
    let made = TempImage::by_mke2fs(64 << 20, &options).expect("mke2fs makes it");
    let bytes = std::fs::read(made.path()).expect("it is there");
    let image = TempImage::of_size(bytes.len() as u64).expect("a sparse file");
    let file = File::options().write(true).open(image.path()).expect("it opens");
    for (at, block) in bytes.chunks(4096).enumerate() {
        if block.iter().any(|byte| *byte != 0) {
            file.write_all_at(block, at as u64 * 4096).expect("written");
        }
    }

    let inner = open(&image.path(), false);
    let requested = Arc::new(Recording { inner: inner.clone(), ranges: Mutex::default() });
    let store = Store::open(requested.clone()).expect("it opens");
    let report = extant_check::scan(&store, &CheckOptions::default()).expect("it ends");
    assert!(report.findings.is_empty(), "{}", findings(&report));
    let requested = requested.ranges.lock();
    assert!(!requested.is_empty());
    for range in requested.iter() {
        let data = inner.next_data(range.clone()).expect("it can tell");
        assert_eq!(data.map(|run| run.start), Some(range.start), "{range:?}");
    }
}
