//! Deletions and truncations that take many steps: through power cuts, and of files that are held
//! open.

mod common;

use common::memory;
use extant_device::{Device, MemoryDevice, OverlayDevice};
use extant_engine::ops::FallocateMode;
use extant_engine::write::orphans::Orphans;
use extant_engine::{Credentials, DataMode, Volume, VolumeOptions};
use extant_ondisk::InodeNo;
use extant_reader::{Error, Reader, VolumeRead};
use extant_runtime::env::Env;
use extant_sim::{Recorder, Sweep};
use extant_testkit::{LoopMount, TempImage, e2fsck_fn, is_root, skip, tool};
use std::path::PathBuf;
use std::sync::Arc;

const ROOT: InodeNo = InodeNo::ROOT;
const SIZE: u64 = 96 << 20;

/// Volumes of many small groups, so that every step dirties other bitmaps, and with a log that is
/// soon full.
const KINDS: [&[&str]; 4] = [
    &["-t", "ext4", "-b", "1024", "-g", "256", "-J", "size=1", "-N", "512"],
    &["-t", "ext3", "-b", "1024", "-g", "256", "-J", "size=1", "-N", "512"],
    &["-t", "ext4", "-b", "1024", "-g", "256", "-J", "size=1", "-N", "512", "-O", "orphan_file"],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-g",
        "256",
        "-J",
        "size=1",
        "-N",
        "512",
        "-O",
        "^metadata_csum,uninit_bg",
    ],
];

fn base(options: &[&str], size: u64) -> MemoryDevice {
    let file = TempImage::by_mke2fs(size, options).unwrap();
    let device = MemoryDevice::new(size);
    device.write_at(0, &std::fs::read(file.path()).unwrap()).unwrap();
    device
}

fn open_live(device: Arc<dyn Device>, data: Option<DataMode>) -> Result<Volume, Error> {
    let options = VolumeOptions { data, ..VolumeOptions::default() };
    Volume::open(device, &Env::threads(), &options)
}

fn stored(device: &dyn Device) -> (TempImage, PathBuf) {
    let file = TempImage::of_size(0).unwrap();
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let path = file.path();
    (file, path)
}

/// The contents of block `at` of file `which`.
fn block(which: u8, at: u64) -> Vec<u8> {
    (0..1024_u64).map(|byte| which ^ ((at * 7 + byte) % 251) as u8).collect()
}

/// Two files whose runs of eight blocks alternate on the volume.
fn alternate(volume: &Volume, blocks: u64) -> [InodeNo; 2] {
    let make = |name: &str| {
        volume.create(ROOT, name.as_bytes(), 0o644, &Credentials::ROOT).unwrap().number
    };
    let files = [make("cut"), make("gone")];
    for at in (0..blocks).step_by(8) {
        for (which, file) in (1..).zip(files) {
            let eight: Vec<u8> = (at..at + 8).flat_map(|at| block(which, at)).collect();
            assert_eq!(volume.write(file, at * 1024, &eight).unwrap(), eight.len());
        }
    }
    files
}

fn named(volume: &Volume, name: &str) -> Option<InodeNo> {
    match volume.lookup(ROOT, name.as_bytes()) {
        Ok(found) => Some(found.inode),
        Err(Error::NotFound) => None,
        Err(error) => panic!("{error}"),
    }
}

/// The first `size` bytes of a file are what was written.
fn check_start(volume: &Volume, file: InodeNo, which: u8, size: u64) {
    let mut found = vec![0; size as usize];
    assert_eq!(volume.read(file, 0, &mut found).unwrap() as u64, size);
    for (at, bytes) in (0..).zip(found.chunks(1024)) {
        assert!(*bytes == block(which, at)[..bytes.len()], "block {at} of file {which}");
    }
}

#[test]
fn a_long_truncation_and_a_long_deletion_go_on_after_every_power_cut() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    const BLOCKS: u64 = 36_000;
    const CUT_AT: u64 = 700 * 1024 + 300;
    for (number, options) in (0..).zip(KINDS).take(3) {
        let modes = [DataMode::Ordered, DataMode::Journal];
        for data in modes.into_iter().take(if number == 0 { 2 } else { 1 }) {
            let device = Arc::new(base(options, SIZE));
            let volume = open_live(device.clone(), None).unwrap();
            let [cut, _] = alternate(&volume, BLOCKS);
            volume.close().unwrap();

            let recorder = Arc::new(Recorder::new(device));
            let volume = open_live(recorder.clone(), Some(data)).unwrap();
            recorder.mark(1);
            volume.truncate(cut, CUT_AT).unwrap();
            volume.sync().unwrap();
            recorder.mark(2);
            volume.unlink(ROOT, b"gone").unwrap();
            volume.sync().unwrap();
            recorder.mark(3);
            volume.close().unwrap();

            let sweep = Sweep { seed: number, prefixes: 2, subsets: 1, torn: 1 };
            let (mut seen, mut half_done) = ([0; 3], 0);
            for (turn, power_cut) in recorder.cuts(sweep).enumerate() {
                if !power_cut.marks.contains(&1) {
                    continue;
                }
                let place = format!("{options:?} {data:?} {power_cut}");
                let image: Arc<dyn Device> =
                    Arc::new(OverlayDevice::new(Arc::new(power_cut.image.fork())));
                let volume = Reader::open(image.clone()).unwrap();
                let unfinished = Orphans::load(&volume, |error| panic!("{error}")).unwrap();
                half_done += usize::from(!unfinished.is_empty());
                let volume = open_live(image.clone(), Some(data))
                    .unwrap_or_else(|error| panic!("{place}: {error}"));
                let size = volume.inode(cut).unwrap().size;
                assert!([CUT_AT, BLOCKS * 1024].contains(&size), "{place}: {size}");
                check_start(&volume, cut, 1, CUT_AT);
                let gone = named(&volume, "gone");
                if let Some(gone) = gone {
                    let size = if turn % 30 == 0 { BLOCKS * 1024 } else { 50_000 };
                    check_start(&volume, gone, 2, size);
                }
                for (mark, is_done) in [(2, size == CUT_AT), (3, gone.is_none())] {
                    assert!(is_done || !power_cut.marks.contains(&mark), "{place}");
                }
                seen[usize::from(size == CUT_AT) + usize::from(gone.is_none())] += 1;
                volume.close().unwrap();
                if turn % 50 == 0 {
                    e2fsck_fn(&stored(&*image).1).unwrap_or_else(|said| panic!("{place}: {said}"));
                    let (_file, path) = stored(&power_cut.image);
                    let e2fsck = tool("e2fsck").unwrap();
                    let said = e2fsck.run([std::ffi::OsStr::new("-fy"), path.as_os_str()]);
                    assert!(said.status.code().is_some_and(|code| code <= 1), "{place}");
                }
                if turn % 400 == 0 && is_root() {
                    let (_file, path) = stored(&power_cut.image);
                    LoopMount::new(&path, "").unwrap().unmount().unwrap();
                    e2fsck_fn(&path).unwrap_or_else(|said| panic!("{place}, kernel: {said}"));
                }
            }
            assert!(half_done > 0, "no step was cut off: {options:?} {data:?}");
            assert!(seen.iter().all(|count| *count > 0), "{seen:?} {options:?} {data:?}");
        }
    }
}

/// A file without a name lives as long as it is held open, grows and shrinks, and is deleted with
/// the last hold; or, when the power is lost before, at the next opening.
#[test]
fn an_unlinked_file_that_is_held_is_read_and_written_and_goes_in_the_end() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for options in KINDS {
        let device: Arc<dyn Device> = Arc::new(base(options, SIZE));
        let volume = open_live(device.clone(), None).unwrap();
        let before = volume.stat_fs().unwrap();
        let mut held = Vec::new();
        for index in 0..6_u8 {
            let name = [b'f', b'0' + index];
            let file = volume.create(ROOT, &name, 0o644, &Credentials::ROOT).unwrap().number;
            volume.acquire(file).unwrap();
            volume.write(file, 0, &[index; 5000]).unwrap();
            volume.unlink(ROOT, &name).unwrap();
            held.push(file);
        }
        for (index, file) in (0..).zip(&held) {
            let file = *file;
            volume.write(file, 5000, &[index; 60_000]).unwrap();
            volume.truncate(file, 40_000).unwrap();
            volume.fallocate(file, FallocateMode::PunchHole, 0, 1024).unwrap();
            let mut bytes = vec![9; 50_000];
            assert_eq!(volume.read(file, 0, &mut bytes).unwrap(), 40_000);
            assert_eq!(bytes[1023], 0);
            assert!(bytes[1024..40_000].iter().all(|byte| *byte == index));
        }
        // One from the middle, the oldest and the newest of the list are released.
        for file in [held[3], held[0], held[5]] {
            volume.release(file, 1).unwrap();
            let gone = volume.inode(file).unwrap_err();
            assert!(matches!(gone, Error::FreeInode(_)), "{gone}");
        }
        volume.sync().unwrap();
        // The power goes.
        drop(volume);
        let mut bytes = vec![0; device.size() as usize];
        device.read_at(0, &mut bytes).unwrap();
        let (_file, path) = stored(&*memory(&bytes));
        if is_root() {
            LoopMount::new(&path, "").unwrap().unmount().unwrap();
            e2fsck_fn(&path).unwrap_or_else(|said| panic!("{options:?}, kernel: {said}"));
        }
        let volume = open_live(device.clone(), None).unwrap();
        for file in held {
            let gone = volume.inode(file).unwrap_err();
            assert!(matches!(gone, Error::FreeInode(_)), "{gone}");
        }
        volume.sync().unwrap();
        assert_eq!(volume.stat_fs().unwrap(), before, "{options:?}");
        volume.close().unwrap();
        e2fsck_fn(&stored(&*device).1).unwrap_or_else(|said| panic!("{options:?}: {said}"));
    }
}

/// More files are held than are kept in memory: each one is what it was when its turn comes, and
/// goes with its last name and hold, whichever comes last.
#[test]
fn files_that_are_held_outlast_their_inodes_in_memory() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    const FILES: u32 = 6000;
    let device: Arc<dyn Device> = Arc::new(base(&["-t", "ext4", "-b", "1024", "-N", "8192"], SIZE));
    let options = VolumeOptions { memory: 16 << 20, ..VolumeOptions::default() };
    let volume = Volume::open(device.clone(), &Env::threads(), &options);
    let volume = volume.unwrap();
    let before = volume.stat_fs().unwrap();
    let name = |index: u32| format!("f{index}").into_bytes();
    let files: Vec<InodeNo> = (0..FILES)
        .map(|index| {
            let file = volume.create(ROOT, &name(index), 0o644, &Credentials::ROOT).unwrap().number;
            volume.acquire(file).unwrap();
            file
        })
        .collect();
    // Of three each, one loses its name first and one its hold; the third is held until the volume
    // is closed.
    for (index, file) in (0..).zip(&files) {
        let unlink = || volume.unlink(ROOT, &name(index)).unwrap();
        match index % 3 {
            0 => {
                unlink();
                assert_eq!(volume.write(*file, 0, b"still there").unwrap(), 11);
                volume.release(*file, 1).unwrap();
            }
            1 => {
                volume.release(*file, 1).unwrap();
                unlink();
            }
            _ => {
                unlink();
                continue;
            }
        }
        let gone = volume.inode(*file).unwrap_err();
        assert!(matches!(gone, Error::FreeInode(_)), "{index}: {gone}");
    }
    assert_eq!(volume.open_unlinked_count(), FILES as usize / 3);
    volume.close().unwrap();
    let volume = open_live(device.clone(), None).unwrap();
    let after = volume.stat_fs().unwrap();
    // The directory keeps the blocks that it has grown by.
    assert_eq!(after.free_inodes, before.free_inodes);
    volume.close().unwrap();
    e2fsck_fn(&stored(&*device).1).unwrap_or_else(|said| panic!("{said}"));
}
