//! Files and directories whose runs are brought together: contents, through power cuts and on
//! volumes of many kinds, and what is left where it is.

mod common;

use extant_device::{Device, MemoryDevice, OverlayDevice};
use extant_engine::ops::FallocateMode;
use extant_engine::{Credentials, DataMode, Volume, VolumeOptions};
use extant_ondisk::InodeNo;
use extant_reader::read::mapping::{Mapping, MappingTarget};
use extant_reader::{Error, VolumeRead};
use extant_runtime::env::Env;
use extant_sim::{Recorder, Sweep};
use extant_testkit::{TempImage, e2fsck_fn, skip, tool};
use std::sync::Arc;

const ROOT: InodeNo = InodeNo::ROOT;
/// Blocks of a file of the tests, of one byte value each.
const BLOCKS: u64 = 600;

fn base(size: u64, options: &[&str]) -> MemoryDevice {
    let file = TempImage::by_mke2fs(size, options).unwrap();
    MemoryDevice::from_bytes(&std::fs::read(file.path()).unwrap())
}

fn open(device: Arc<dyn Device>, data: Option<DataMode>) -> Volume {
    let options = VolumeOptions { data, delalloc: Some(false), ..VolumeOptions::default() };
    Volume::open(device, &Env::stepped(3), &options).unwrap()
}

fn is_clean(device: &dyn Device) -> Result<(), String> {
    let file = TempImage::of_size(0).unwrap();
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    e2fsck_fn(&file.path()).map(drop)
}

fn contents(which: u8, at: u64, block_size: u64) -> Vec<u8> {
    vec![which ^ (at % 251) as u8; block_size as usize]
}

/// Two files whose blocks alternate on the volume, and between them a directory.
fn fragmented(volume: &Volume) -> [InodeNo; 3] {
    let make = |name: &[u8]| volume.create(ROOT, name, 0o644, &Credentials::ROOT).unwrap().number;
    let files = [make(b"one"), make(b"two")];
    let dir = volume.mkdir(ROOT, b"dir", 0o755, &Credentials::ROOT).unwrap().number;
    let block_size = u64::from(volume.geometry().block_size);
    for at in 0..BLOCKS {
        for (which, file) in (1..).zip(files) {
            // With bigalloc a cluster is filled in turn.
            let per_cluster = u64::from(volume.geometry().blocks_per_cluster);
            if at % per_cluster == 0 {
                for at in at..(at + per_cluster).min(BLOCKS) {
                    let bytes = contents(which, at, block_size);
                    assert_eq!(volume.write(file, at * block_size, &bytes).unwrap(), bytes.len());
                }
            }
            volume.last_writer_closed(file);
        }
        let name = format!("a name of the directory that is not short at all, of number {at}");
        volume.create(dir, name.as_bytes(), 0o644, &Credentials::ROOT).unwrap();
    }
    [files[0], files[1], dir]
}

fn check_contents(volume: &Volume, [one, two, dir]: [InodeNo; 3]) {
    let block_size = u64::from(volume.geometry().block_size);
    for (which, file) in (1..).zip([one, two]) {
        let mut found = vec![0; (BLOCKS * block_size) as usize];
        assert_eq!(volume.read(file, 0, &mut found).unwrap(), found.len());
        for (at, bytes) in (0..).zip(found.chunks(block_size as usize)) {
            assert!(bytes == contents(which, at, block_size), "block {at} of file {which}");
        }
    }
    for at in 0..BLOCKS {
        let name = format!("a name of the directory that is not short at all, of number {at}");
        volume.lookup(dir, name.as_bytes()).unwrap();
    }
}

const KINDS: [&[&str]; 6] = [
    &["-t", "ext4", "-b", "1024", "-J", "size=4"],
    &["-t", "ext4", "-b", "4096", "-O", "^has_journal"],
    &["-t", "ext4", "-b", "1024", "-O", "bigalloc,quota", "-C", "4096", "-J", "size=4"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^64bit,^flex_bg,uninit_bg"],
    &["-t", "ext4", "-b", "1024", "-g", "512", "-N", "2048", "-O", "quota,orphan_file"],
    &["-t", "ext4", "-b", "2048", "-O", "inline_data,large_dir"],
];

#[test]
fn runs_are_brought_together_and_contents_stay() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for options in KINDS {
        let device: Arc<dyn Device> = Arc::new(base(32 << 20, options));
        let volume = open(device.clone(), None);
        let inodes = fragmented(&volume);
        let times: Vec<_> = inodes.map(|inode| volume.inode(inode).unwrap().mtime).to_vec();
        for inode in inodes {
            let done = volume.defragment(inode).unwrap();
            // A directory may have a group of its own.
            assert!(inode == inodes[2] || done.runs_before > 4, "{options:?}: {inode} {done:?}");
            // Groups of few blocks have no longer runs.
            let most = if options.contains(&"512") { 8 } else { 2 };
            assert!(done.runs_after <= most, "{options:?}: {inode} {done:?}");
            let again = volume.defragment(inode).unwrap();
            assert!(again.runs_after <= done.runs_after, "{options:?}: {inode} {again:?}");
        }
        assert_eq!(inodes.map(|inode| volume.inode(inode).unwrap().mtime).to_vec(), times);
        check_contents(&volume, inodes);
        volume.close().unwrap();
        is_clean(&*device).unwrap_or_else(|said| panic!("{options:?}: {said}"));
        let volume = open(device, None);
        check_contents(&volume, inodes);
        volume.close().unwrap();
    }
}

#[test]
fn power_cuts_leave_every_block_at_its_old_or_its_new_place() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    // Without a journal power loss tears any change of a map.
    let kinds = KINDS.iter().filter(|options| !options.contains(&"^has_journal"));
    for (number, options) in (0..).zip(kinds) {
        let device = Arc::new(base(16 << 20, options));
        let volume = open(device.clone(), None);
        let inodes = fragmented(&volume);
        volume.close().unwrap();
        let recorder = Arc::new(Recorder::new(device));
        let volume = open(recorder.clone(), None);
        recorder.mark(1);
        for inode in inodes {
            volume.defragment(inode).unwrap();
        }
        volume.close().unwrap();
        let mut cuts = 0;
        for cut in recorder.cuts(Sweep { seed: number, prefixes: 2, subsets: 1, torn: 1 }) {
            if !cut.marks.contains(&1) {
                continue;
            }
            cuts += 1;
            let image: Arc<dyn Device> = Arc::new(OverlayDevice::new(Arc::new(cut.image.fork())));
            let volume = open(image.clone(), None);
            check_contents(&volume, inodes);
            volume.close().unwrap();
            if cuts % 8 == 0 {
                is_clean(&*image).unwrap_or_else(|said| panic!("{options:?} {cut}: {said}"));
            }
        }
        assert!(cuts > 4, "{options:?}: {cuts} cuts");
    }
}

#[test]
fn holes_and_preallocated_blocks_stay_where_they_are() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let device: Arc<dyn Device> = Arc::new(base(32 << 20, KINDS[0]));
    let volume = open(device.clone(), None);
    let [one, two, dir] = fragmented(&volume);
    volume.fallocate(one, FallocateMode::PunchHole, 10 << 10, 20 << 10).unwrap();
    volume.fallocate(one, FallocateMode::KeepSize, (BLOCKS + 9) << 10, 50 << 10).unwrap();
    volume.fallocate(one, FallocateMode::ZeroRange, 100 << 10, 7 << 10).unwrap();
    let before = volume.inode(one).unwrap();
    let mut bytes = vec![0; (BLOCKS << 10) as usize];
    volume.read(one, 0, &mut bytes).unwrap();
    let done = volume.defragment(one).unwrap();
    assert!(done.runs_before > 100 && done.runs_after < 20, "{done:?}");
    let after = volume.inode(one).unwrap();
    assert_eq!((after.size, after.mtime), (before.size, before.mtime));
    let mut found = vec![0; bytes.len()];
    volume.read(one, 0, &mut found).unwrap();
    assert!(found == bytes, "the contents changed");
    let runs: Result<Vec<Mapping>, Error> = volume.extents(one).unwrap().collect();
    let unwritten = |run: &&Mapping| matches!(run.target, MappingTarget::Unwritten(_));
    let unwritten: u64 = runs.unwrap().iter().filter(unwritten).map(|run| run.len).sum();
    assert_eq!(unwritten, 57);
    let _ = (two, dir);
    volume.close().unwrap();
    is_clean(&*device).unwrap();
}

#[test]
fn files_that_cannot_be_moved_are_refused_by_name() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    let ext3: Arc<dyn Device> = Arc::new(base(16 << 20, &["-t", "ext3", "-b", "1024"]));
    let volume = open(ext3, None);
    let [one, ..] = fragmented(&volume);
    assert!(matches!(volume.defragment(one), Err(Error::NotSupported(_))));
    volume.close().unwrap();
    let journalled: Arc<dyn Device> = Arc::new(base(16 << 20, KINDS[0]));
    let volume = open(journalled, Some(DataMode::Journal));
    let [one, _, dir] = fragmented(&volume);
    assert!(matches!(volume.defragment(one), Err(Error::NotSupported(_))));
    volume.defragment(dir).unwrap();
    volume.close().unwrap();
}

#[test]
fn a_step_that_fails_leaves_a_file_whole() {
    if tool("mke2fs").is_none() {
        skip!("mke2fs is not installed");
    }
    for options in [KINDS[0], KINDS[2]] {
        let device: Arc<dyn Device> = Arc::new(base(16 << 20, options));
        let volume = open(device.clone(), None);
        let inodes = fragmented(&volume);
        let mut failures = 0;
        for inode in inodes {
            // The next try goes on after the blocks that were moved before the failure.
            for passes in 0.. {
                volume.fail_steps(None, passes, 1);
                let done = volume.defragment(inode);
                let failed = volume.steps_failed();
                volume.fail_steps(None, u64::MAX, 1);
                assert!(!volume.is_read_only(), "{options:?}: failure {passes}");
                failures += failed;
                if failed == 0 {
                    done.unwrap();
                    break;
                }
            }
            check_contents(&volume, inodes);
        }
        assert!(failures > 20, "{options:?}: {failures} failures");
        volume.close().unwrap();
        is_clean(&*device).unwrap_or_else(|said| panic!("{options:?}: {said}"));
    }
}
