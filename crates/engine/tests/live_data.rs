//! Contents of files changed on open volumes: against a model in memory, e2fsck and the kernel, in
//! every data mode.

mod common;

use common::edited::rng;
use common::memory;
use extant_device::Device;
use extant_engine::ops::FallocateMode;
use extant_engine::{Credentials, DataMode, Volume, VolumeOptions};
use extant_ondisk::InodeNo;
use extant_reader::{Error, Reader, VolumeRead};
use extant_runtime::env::Env;
use extant_testkit::{LoopMount, TempImage, e2fsck_fn, is_root, skip, tool};
use proptest::test_runner::TestRng;
use rand::RngExt;
use std::path::PathBuf;
use std::sync::Arc;

/// An image of mke2fs in memory: commits wait for no disk.
struct Image {
    file: TempImage,
    device: Arc<dyn Device>,
}

impl Image {
    fn new(size: u64, options: &[&str]) -> Self {
        let file = TempImage::by_mke2fs(size, options).unwrap();
        let device = memory(&std::fs::read(file.path()).unwrap());
        Self { file, device }
    }

    fn open_live(&self, data: Option<DataMode>) -> Volume {
        self.open_with(&VolumeOptions { data, ..VolumeOptions::default() })
    }

    fn open_with(&self, options: &VolumeOptions) -> Volume {
        Volume::open(self.device.clone(), &Env::threads(), options).unwrap()
    }

    /// The image as a file again.
    fn stored(&self) -> PathBuf {
        let mut bytes = vec![0; self.device.size() as usize];
        self.device.read_at(0, &mut bytes).unwrap();
        std::fs::write(self.file.path(), bytes).unwrap();
        self.file.path()
    }
}

/// A file and what it should hold.
struct Model {
    file: InodeNo,
    name: String,
    bytes: Vec<u8>,
}

impl Model {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[offset..end].copy_from_slice(bytes);
    }

    fn check(&self, volume: &impl VolumeRead, what: &str) {
        let mut found = vec![1; self.bytes.len() + 9];
        let count = volume.read(self.file, 0, &mut found).unwrap();
        assert_eq!(count, self.bytes.len(), "size after {what}");
        let first = found.iter().zip(&self.bytes).position(|(a, b)| a != b);
        assert_eq!(first, None, "{} differs after {what}", self.name);
    }
}

/// One random call on a file and on its model. The sizes are such that the file crosses every kind
/// of boundary of its map.
fn step(volume: &Volume, model: &mut Model, random: &mut TestRng, most: usize) -> String {
    let block = volume.geometry().block_size as usize;
    let unit = volume.geometry().cluster_size() as usize;
    let size = model.bytes.len();
    let offset = match random.random_range(0..3_u32) {
        0 => size,
        1 => random.random_range(0..most),
        _ => random.random_range(0..most / block) * block,
    };
    let len = match random.random_range(0..4_u32) {
        0 => random.random_range(1..200),
        1 => random.random_range(1..3 * block),
        2 => block * random.random_range(1..9_usize),
        _ => random.random_range(1..most / 4),
    };
    let len = len.min(most.saturating_sub(offset)).max(1);
    let (at, count) = (offset as u64, len as u64);
    let expect = |result: Result<(), Error>| match result {
        Ok(()) => true,
        Err(Error::NoSpace | Error::NotSupported(_) | Error::Invalid(_)) => false,
        Err(error) => panic!("{error}"),
    };
    let fallocate = |mode| expect(volume.fallocate(model.file, mode, at, count));
    match random.random_range(0..16_u32) {
        0..=7 => {
            let fill = random.random_range(1..=255_u8);
            let bytes: Vec<u8> = (0..len).map(|index| fill ^ (index % 251) as u8).collect();
            match volume.write(model.file, at, &bytes) {
                Ok(count) => {
                    assert!(count > 0 && count <= len);
                    model.write(offset, &bytes[..count]);
                    format!("write {at}+{len}: {count}")
                }
                Err(Error::NoSpace) => format!("write {at}+{len}: no space"),
                Err(error) => panic!("write {at}+{len}: {error}"),
            }
        }
        8..=9 => {
            if expect(volume.truncate(model.file, at)) {
                model.bytes.resize(offset, 0);
            }
            format!("truncate {at} (was {size})")
        }
        10 => {
            if fallocate(FallocateMode::PunchHole) {
                let (from, to) = (offset.min(size), (offset + len).min(size));
                model.bytes[from..to].fill(0);
            }
            format!("punch {at}+{len}")
        }
        11 => {
            if fallocate(FallocateMode::Allocate) {
                model.bytes.resize(size.max(offset + len), 0);
            }
            format!("allocate {at}+{len}")
        }
        12 => {
            fallocate(FallocateMode::KeepSize);
            format!("allocate {at}+{len}, size kept")
        }
        13 => {
            let keeps = random.random_range(0..2_u32) == 0;
            let mode =
                if keeps { FallocateMode::ZeroRangeKeepSize } else { FallocateMode::ZeroRange };
            if fallocate(mode) {
                if !keeps {
                    model.bytes.resize(size.max(offset + len), 0);
                }
                let size = model.bytes.len();
                model.bytes[offset.min(size)..(offset + len).min(size)].fill(0);
            }
            format!("zero {at}+{len}, {mode:?}")
        }
        14 => {
            let (from, to) = (offset / unit * unit, (offset + len).div_ceil(unit) * unit);
            let (at, count) = (from as u64, (to - from) as u64);
            let mode = FallocateMode::CollapseRange;
            if expect(volume.fallocate(model.file, mode, at, count)) {
                assert!(to < size);
                model.bytes.drain(from..to);
            }
            format!("collapse {at}+{count}")
        }
        _ => {
            let (from, to) = (offset / unit * unit, (offset + len).div_ceil(unit) * unit);
            let (at, count) = (from as u64, (to - from) as u64);
            let mode = FallocateMode::InsertRange;
            if size + (to - from) <= 2 * most
                && expect(volume.fallocate(model.file, mode, at, count))
            {
                assert!(from < size);
                model.bytes.splice(from..from, std::iter::repeat_n(0, to - from));
            }
            format!("insert {at}+{count}")
        }
    }
}

/// Files changed at random; then what the reader, e2fsck and the kernel see.
fn history(options: &[&str], data: Option<DataMode>, seed: u8, steps: u32, size: u64, most: usize) {
    let image = Image::new(size, options);
    let volume = image.open_live(data);
    let mut random = rng(seed);
    let mut models: Vec<Model> = (0..3)
        .map(|index| {
            let name = format!("file{index}");
            let made = volume.create(InodeNo::ROOT, name.as_bytes(), 0o644, &Credentials::ROOT);
            Model { file: made.unwrap().number, name, bytes: Vec::new() }
        })
        .collect();
    let place = format!("{options:?} {data:?} seed {seed}");
    for turn in 0..steps {
        let index = random.random_range(0..models.len());
        let what = step(&volume, &mut models[index], &mut random, most);
        if most < 1 << 20 || turn % 8 == 0 {
            models[index].check(&volume, &format!("{what} ({place}, step {turn})"));
        }
        match random.random_range(0..40_u32) {
            0 => volume.fsync(models[index].file).unwrap(),
            1 => volume.fdatasync(models[index].file).unwrap(),
            2 => volume.sync().unwrap(),
            _ => {}
        }
    }
    for model in &models {
        model.check(&volume, &place);
        let mut at = 0;
        while let Some(hole) = volume.seek_hole(model.file, at).unwrap() {
            let Some(data) = volume.seek_data(model.file, hole).unwrap() else { break };
            assert!(model.bytes[hole as usize..data as usize].iter().all(|byte| *byte == 0));
            at = data;
        }
    }
    volume.sync().unwrap();
    assert_eq!(volume.reserved_space(), 0, "{place}");
    let stat = volume.stat_fs().unwrap();
    volume.close().unwrap();
    let path = image.stored();
    e2fsck_fn(&path).unwrap_or_else(|said| panic!("{place}: {said}"));
    let reread = Reader::open(image.device.clone()).unwrap();
    assert_eq!(reread.stat_fs().unwrap(), stat, "{place}");
    for model in &models {
        model.check(&reread, &place);
    }
    if is_root() {
        let mount = LoopMount::new(&path, "ro").unwrap();
        for model in &models {
            let found = std::fs::read(mount.path().join(&model.name)).unwrap();
            assert!(found == model.bytes, "{} as the kernel reads it: {place}", model.name);
        }
    }
}

const KINDS: [&[&str]; 11] = [
    &["-t", "ext2", "-b", "1024"],
    &["-t", "ext3", "-b", "4096"],
    &["-t", "ext4"],
    &["-t", "ext4", "-b", "1024", "-O", "metadata_csum,64bit"],
    &["-t", "ext4", "-O", "^metadata_csum,uninit_bg", "-b", "1024"],
    &["-t", "ext4", "-O", "^has_journal"],
    &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
    &["-t", "ext4", "-O", "bigalloc", "-b", "1024", "-C", "8192"],
    &["-t", "ext4", "-O", "inline_data", "-I", "256"],
    &["-t", "ext4", "-O", "quota", "-b", "1024"],
    &["-t", "ext4", "-O", "orphan_file,inline_data,bigalloc", "-I", "512"],
];

#[test]
fn random_changes_of_contents_agree_with_the_model_e2fsck_and_the_kernel() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for (index, options) in KINDS.into_iter().enumerate() {
        let has_journal = !options.contains(&"ext2") && !options.contains(&"^has_journal");
        history(options, None, 1 + index as u8, 120, 24 << 20, 600_000);
        if has_journal {
            let writeback = Some(DataMode::Writeback);
            if index % 4 == 3 {
                history(options, writeback, 21 + index as u8, 60, 24 << 20, 600_000);
            }
            history(options, Some(DataMode::Journal), 41 + index as u8, 60, 24 << 20, 600_000);
        }
    }
}

/// Contents in the inode do not limit where a file may reach.
#[test]
fn an_empty_file_whose_contents_may_lie_in_the_inode_reaches_as_far_as_extents_do() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let options = ["-t", "ext4", "-b", "1024", "-O", "inline_data", "-I", "256"];
    let image = Image::new(16 << 20, &options);
    let volume = image.open_live(None);
    let far = 600 << 30;
    for (name, contents) in [("empty", &b""[..]), ("short", b"short")] {
        let file = volume.create(InodeNo::ROOT, name.as_bytes(), 0o644, &Credentials::ROOT);
        let file = file.unwrap().number;
        assert_eq!(volume.write(file, 0, contents).unwrap(), contents.len());
        assert_eq!(volume.write(file, far, b"far").unwrap(), 3);
        let mut found = [0; 3];
        assert_eq!(volume.read(file, far, &mut found).unwrap(), 3);
        assert_eq!(&found, b"far");
    }
    let file = volume.create(InodeNo::ROOT, b"longer", 0o644, &Credentials::ROOT).unwrap().number;
    volume.truncate(file, far).unwrap();
    volume.fallocate(file, FallocateMode::PunchHole, 0, far).unwrap();
    volume.close().unwrap();
    e2fsck_fn(&image.stored()).unwrap();
}

/// Three files that do not fit: every call succeeds, ends as a short write, or changes nothing.
#[test]
fn a_volume_that_runs_full_loses_nothing() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for (index, options) in KINDS.into_iter().enumerate().step_by(2) {
        let has_journal = !options.contains(&"ext2") && !options.contains(&"^has_journal");
        let size = if options.contains(&"bigalloc") { 24 << 20 } else { 12 << 20 };
        let small = [options, &["-N", "64"], if has_journal { &["-J", "size=4"][..] } else { &[] }];
        let small = small.concat();
        history(&small, None, 61 + index as u8, 120, size, size as usize);
        if has_journal {
            let journal = Some(DataMode::Journal);
            history(&small, journal, 81 + index as u8, 50, size, size as usize);
        }
    }
}

/// A file written from start to end in small pieces has few extents, and one that is written in one
/// call as few as there can be.
#[test]
fn sequential_writers_get_few_extents() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let image = Image::new(64 << 20, &["-t", "ext4"]);
    let volume = image.open_live(None);
    let make = |name: &str| {
        volume.create(InodeNo::ROOT, name.as_bytes(), 0o644, &Credentials::ROOT).unwrap().number
    };
    let (small, large) = (make("small"), make("large"));
    for at in 0..1024 {
        assert_eq!(volume.write(small, at * 9000, &[7; 9000]).unwrap(), 9000);
    }
    assert_eq!(volume.write(large, 0, &vec![9; 20 << 20]).unwrap(), 20 << 20);
    for file in [small, large] {
        let count = volume.extents(file).unwrap().count();
        assert!(count <= 4, "{count} extents");
    }
    volume.close().unwrap();
    e2fsck_fn(&image.stored()).unwrap();
}

/// Where a range may end depends on the volume, not on how the file is mapped. Seen of the kernel,
/// Linux 6.
#[test]
fn ranges_of_any_file_may_end_where_the_longest_file_of_the_volume_does() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    const MODES: [FallocateMode; 5] = [
        FallocateMode::Allocate,
        FallocateMode::KeepSize,
        FallocateMode::PunchHole,
        FallocateMode::ZeroRange,
        FallocateMode::ZeroRangeKeepSize,
    ];
    for (options, block, end) in [
        (&["-t", "ext2", "-b", "1024"][..], 1024_u64, (1_u64 << 41) - 1024),
        (&["-t", "ext3", "-b", "4096"], 4096, (1 << 41) - 4096),
        (&["-t", "ext4", "-b", "1024", "-O", "^extents,^64bit"], 1024, (1 << 42) - 1024),
        (&["-t", "ext4", "-b", "4096", "-O", "^extents,^64bit"], 4096, (1 << 44) - 4096),
        (&["-t", "ext4", "-b", "4096", "-O", "^huge_file"], 4096, (1 << 41) - 4096),
        (&["-t", "ext4", "-b", "4096"], 4096, (1 << 44) - 4096),
    ] {
        let image = Image::new(16 << 20, options);
        let volume = image.open_live(None);
        let has_extents =
            options.iter().all(|word| !word.contains("^extents")) && options[1] == "ext4";
        for mode in MODES {
            let name = format!("{mode:?}");
            let made =
                volume.create(InodeNo::ROOT, name.as_bytes(), 0o644, &Credentials::ROOT).unwrap();
            let file = made.number;
            volume.write(file, 0, &[1; 10_000]).unwrap();
            let within = volume.fallocate(file, mode, end - block, block);
            match mode {
                FallocateMode::PunchHole => within.unwrap(),
                _ if has_extents => within.unwrap(),
                _ => assert!(
                    matches!(within, Err(Error::NotSupported(_))),
                    "{options:?} {mode:?}: {within:?}"
                ),
            }
            let past = volume.fallocate(file, mode, end, block);
            assert!(matches!(past, Err(Error::FileTooLarge)), "{options:?} {mode:?}: {past:?}");
            // A hole that begins in the file and ends past the reach of its map.
            if mode == FallocateMode::PunchHole {
                volume.fallocate(file, mode, 5000, end - 5000).unwrap();
                let mut buffer = [2; 10_000];
                assert_eq!(volume.read(file, 0, &mut buffer).unwrap(), 10_000);
                assert!(buffer[..5000] == [1; 5000] && buffer[5000..] == [0; 5000]);
            }
        }
        volume.close().unwrap();
        e2fsck_fn(&image.stored()).unwrap();
    }
}

/// Sizes past 2 and 4 GiB in a sparse file, and the last byte that there can be.
#[test]
fn files_reach_as_far_as_the_format_does() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for (options, end) in [
        (&["-t", "ext4", "-b", "1024", "-O", "^large_file"][..], 0xffff_ffff_u64 * 1024),
        (&["-t", "ext2", "-b", "1024"], (12 + 256 + (1 << 16) + (1 << 24)) * 1024),
    ] {
        let image = Image::new(16 << 20, options);
        let volume = image.open_live(None);
        let made = volume.create(InodeNo::ROOT, b"file", 0o644, &Credentials::ROOT).unwrap();
        let file = made.number;
        for at in [(2 << 30) - 1, (4 << 30) - 2, end - 2] {
            assert_eq!(volume.write(file, at, b"ab").unwrap(), 2, "{at}");
        }
        assert_eq!(volume.write(file, end - 1, b"cd").unwrap(), 1);
        let past = volume.write(file, end, b"e").unwrap_err();
        assert!(matches!(past, Error::FileTooLarge), "{past}");
        let past = volume.truncate(file, end + 1).unwrap_err();
        assert!(matches!(past, Error::FileTooLarge), "{past}");
        let mut buffer = [1; 4];
        assert_eq!(volume.read(file, end - 3, &mut buffer).unwrap(), 3);
        assert_eq!(buffer, [0, b'a', b'c', 1]);
        assert_eq!(volume.read(file, (4 << 30) - 3, &mut buffer).unwrap(), 4);
        assert_eq!(buffer, [0, b'a', b'b', 0]);
        assert_eq!(volume.seek_data(file, 0).unwrap(), Some((2 << 30) - 1024));
        volume.close().unwrap();
        e2fsck_fn(&image.stored()).unwrap();
    }
}

/// Writers of files of their own, and of one that all of them share, do not get into each other's
/// way.
#[test]
fn threads_change_contents_side_by_side() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for (options, data) in [
        (&["-t", "ext4"][..], None),
        (&["-t", "ext4", "-b", "1024"], Some(DataMode::Journal)),
        (&["-t", "ext2", "-b", "1024"], None),
    ] {
        let image = Image::new(64 << 20, options);
        let volume = image.open_live(data);
        let make = |name: &str| {
            volume.create(InodeNo::ROOT, name.as_bytes(), 0o644, &Credentials::ROOT).unwrap().number
        };
        let shared = make("shared");
        let mut models: Vec<Model> = (0..4)
            .map(|index| {
                let name = format!("file{index}");
                Model { file: make(&name), name, bytes: Vec::new() }
            })
            .collect();
        extant_runtime::sync::thread::scope(|scope| {
            for (index, model) in (1..).zip(&mut models) {
                let volume = &volume;
                scope.spawn(move || {
                    let mut random = rng(100 + index);
                    for turn in 0..60_u64 {
                        let what = step(volume, model, &mut random, 300_000);
                        model.check(volume, &what);
                        // Pages of one's own in the shared file.
                        let at = (turn * 4 + u64::from(index - 1)) * 4096;
                        assert_eq!(volume.write(shared, at, &[index; 4096]).unwrap(), 4096);
                        if turn % 16 == 0 {
                            volume.fsync(model.file).unwrap();
                        }
                    }
                });
            }
        });
        let mut bytes = vec![0; 60 * 4 * 4096];
        assert_eq!(volume.read(shared, 0, &mut bytes).unwrap(), bytes.len());
        for (page, bytes) in bytes.chunks(4096).enumerate() {
            assert!(bytes.iter().all(|byte| usize::from(*byte) == page % 4 + 1), "page {page}");
        }
        volume.close().unwrap();
        e2fsck_fn(&image.stored()).unwrap_or_else(|said| panic!("{options:?}: {said}"));
        let reread = Reader::open(image.device.clone()).unwrap();
        for model in &models {
            model.check(&reread, "closing");
        }
    }
}

/// Preallocated blocks can be written when the volume is full, in any order.
#[test]
fn preallocated_blocks_of_a_full_volume_are_written() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let image = Image::new(8 << 20, &["-t", "ext4", "-b", "1024", "-N", "64", "-J", "size=1"]);
    // Delayed data leave some blocks that were reserved for their map.
    let delalloc = Some(false);
    let options =
        VolumeOptions { delalloc, reserved_clusters: Some(0), ..VolumeOptions::default() };
    let volume = image.open_with(&options);
    let make = |name: &str| {
        volume.create(InodeNo::ROOT, name.as_bytes(), 0o644, &Credentials::ROOT).unwrap().number
    };
    let (ready, filler) = (make("ready"), make("filler"));
    const SIZE: usize = 1 << 20;
    volume.fallocate(ready, FallocateMode::Allocate, 0, SIZE as u64).unwrap();
    let mut at = 0;
    while let Ok(count) = volume.write_by(filler, at, &[1; 1 << 16], &Credentials::ROOT) {
        at += count as u64;
    }
    assert_eq!(volume.stat_fs().unwrap().free_blocks, 0);
    let mut model = vec![0; SIZE];
    for turn in 0..200_usize {
        let at = (turn * 37 % 1000) * 1024 + turn;
        assert_eq!(volume.write(ready, at as u64, &[turn as u8; 700]).unwrap(), 700, "{turn}");
        model[at..at + 700].fill(turn as u8);
    }
    let mut found = vec![1; SIZE];
    assert_eq!(volume.read(ready, 0, &mut found).unwrap(), SIZE);
    assert!(found == model);
    volume.close().unwrap();
    e2fsck_fn(&image.stored()).unwrap();
}

/// Every block of journalled data is revoked when it is freed: of a large file in steps, so that
/// the log has room for the records.
#[test]
fn a_large_journalled_file_is_deleted_with_a_small_log() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let image = Image::new(120 << 20, &["-t", "ext4", "-b", "1024", "-J", "size=1"]);
    let volume = image.open_live(Some(DataMode::Journal));
    let made = volume.create(InodeNo::ROOT, b"file", 0o644, &Credentials::ROOT).unwrap();
    let bytes = vec![7; 1 << 20];
    let mut at = 0;
    while at < 90 << 20 {
        at += volume.write(made.number, at, &bytes).unwrap() as u64;
    }
    volume.sync().unwrap();
    volume.unlink(InodeNo::ROOT, b"file").unwrap();
    volume.close().unwrap();
    e2fsck_fn(&image.stored()).unwrap();
}

/// Preallocated blocks after the end are freed by a truncation to the size that the file has.
#[test]
fn truncation_to_the_same_size_gives_preallocated_blocks_back() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let image = Image::new(16 << 20, &["-t", "ext4"]);
    let volume = image.open_live(None);
    let file = volume.create(InodeNo::ROOT, b"file", 0o644, &Credentials::ROOT).unwrap().number;
    volume.write(file, 0, b"ten bytes.").unwrap();
    let before = volume.inode(file).unwrap().blocks;
    volume.fallocate(file, FallocateMode::KeepSize, 0, 1 << 20).unwrap();
    assert!(volume.inode(file).unwrap().blocks > before);
    volume.truncate(file, 10).unwrap();
    assert_eq!(volume.inode(file).unwrap().blocks, before);
    let mut bytes = [0; 16];
    assert_eq!(volume.read(file, 0, &mut bytes).unwrap(), 10);
    assert_eq!(&bytes[..10], b"ten bytes.");
    volume.close().unwrap();
    e2fsck_fn(&image.stored()).unwrap();
}
