//! Uncached data are read around the system's cache: the same is found, and a failing direct read
//! falls back to an ordinary one.

mod common;

use common::{findings, open};
use extant_check::{CheckOptions, PassReport, Store};
use extant_device::{Device, DeviceError, Request};
use extant_ondisk::{GroupNo, InodeNo};
use extant_runtime::sync::Mutex;
use extant_testkit::{Scratch, TempImage, skip, tool};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A device with nothing in the cache. Every nth read around it fails, after it filled the buffer
/// with other bytes.
#[derive(Debug)]
struct Cold {
    inner: Arc<dyn Device>,
    fails: usize,
    read: Mutex<Vec<Range<u64>>>,
}

impl Device for Cold {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        self.inner.submit(batch)
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        Ok(Some(range).filter(|range| !range.is_empty()))
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn uncached(&self, range: Range<u64>) -> Option<u64> {
        Some(range.end - range.start)
    }

    fn read_around(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let mut read = self.read.lock();
        read.push(offset..offset + buffer.len() as u64);
        if read.len().is_multiple_of(self.fails) {
            buffer.fill(0xa5);
            return false;
        }
        drop(read);
        self.inner.read_at(offset, buffer).is_ok()
    }
}

/// A volume whose inode tables are read whole, with a directory of many blocks side by side.
fn volume(inodes: &str) -> TempImage {
    let scratch = Scratch::new();
    let directory = scratch.join("source/directory");
    std::fs::create_dir_all(&directory).expect("a directory");
    for file in 0..3000 {
        let name = format!("{file:05} with a name that is long enough to fill the blocks");
        std::fs::write(directory.join(name), []).expect("a file");
    }
    let source = scratch.join("source");
    let source = source.to_str().expect("scratch paths are UTF-8");
    let features = "^metadata_csum,^uninit_bg";
    let options =
        ["-t", "ext4", "-b", "4096", "-g", "4096", "-N", inodes, "-O", features, "-d", source];
    TempImage::by_mke2fs(96 << 20, &options).expect("mke2fs makes it")
}

/// Link counts of some files.
fn spoil(image: &Path) {
    let store = Store::open(open(image, true)).expect("it opens");
    for ino in [100, 1000, 2999].map(InodeNo) {
        let mut record = store.read_inode(ino).expect("reads").expect("there is one");
        record[26] = 9;
        store.write_inode(ino, &mut record).expect("writes");
    }
}

fn scan(device: Arc<dyn Device>, threads: usize) -> PassReport {
    let options = CheckOptions { threads, ..CheckOptions::default() };
    extant_check::scan(&Store::open(device).expect("it opens"), &options).expect("it ends")
}

#[test]
fn uncached_data_are_read_around_the_cache_and_checked_alike() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    // Tables of 2 MiB and of 32 MiB are read in pieces of other sizes.
    for inodes in ["8192", "131072"] {
        let image = volume(inodes);
        spoil(&image.path());
        let usual = scan(open(&image.path(), false), 1);
        assert_eq!(usual.findings.len(), 3, "{}", findings(&usual));
        for (threads, fails) in [(1, usize::MAX), (2, usize::MAX), (5, usize::MAX), (1, 2), (3, 3)]
        {
            let inner = open(&image.path(), false);
            let cold = Arc::new(Cold { inner, fails, read: Mutex::default() });
            let report = scan(cold.clone(), threads);
            assert_eq!(findings(&report), findings(&usual), "{inodes}, {threads} threads");
            assert_eq!(report.statistics, usual.statistics);
            if fails < usize::MAX {
                continue;
            }
            let store = Store::open(cold.clone()).expect("it opens");
            let mut read = std::mem::take(&mut *cold.read.lock());
            read.sort_by_key(|range| range.start);
            let twice = read.windows(2).find(|pair| pair[1].start < pair[0].end);
            assert_eq!(twice, None, "nothing is read twice");
            let all: u64 = read.iter().map(|range| range.end - range.start).sum();
            assert!(all >= tables(&store), "all inode tables, and directory blocks: {all}");
            let outside = read.iter().filter(|range| !is_table(&store, range.start)).count();
            assert!(outside > 0, "no directory blocks");
        }
    }
}

/// Bytes of all inode tables.
fn tables(store: &Store) -> u64 {
    let geometry = store.geometry();
    u64::from(geometry.itable_blocks())
        * u64::from(geometry.block_size)
        * u64::from(geometry.groups_count)
}

fn is_table(store: &Store, byte: u64) -> bool {
    let geometry = store.geometry();
    (0..geometry.groups_count).any(|group| {
        let first = geometry.byte_of(store.desc(GroupNo(group)).inode_table);
        let bytes = u64::from(geometry.itable_blocks()) * u64::from(geometry.block_size);
        (first..first + bytes).contains(&byte)
    })
}
