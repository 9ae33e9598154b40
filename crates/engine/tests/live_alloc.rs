//! Where a volume puts files: by the multi-block allocator and by the plain one, verified by
//! extents and by e2fsck.

use extant_device::{Device, FileDevice, MemoryDevice};
use extant_engine::ops::FallocateMode;
use extant_engine::{AllocatorKind, Credentials, Volume, VolumeOptions};
use extant_ondisk::bitmap::BitmapKind;
use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::{GroupNo, InodeNo};
use extant_reader::{Error, Mapping, Reader, VolumeRead};
use extant_runtime::env::Env;
use extant_testkit::{TempImage, e2fsck_fn, skip, tool};
use std::path::Path;
use std::sync::Arc;

/// Bytes of a write of document 003.
const WRITE: usize = 64 << 10;

fn open(device: Arc<dyn Device>, options: &VolumeOptions) -> Volume {
    Volume::open(device, &Env::threads(), options).unwrap()
}

fn open_file(path: &Path, options: &VolumeOptions) -> Volume {
    open(Arc::new(extant_device::FileDeviceOptions::new().write(true).open(path).unwrap()), options)
}

/// Blocks are chosen at each write.
fn with(allocator: AllocatorKind) -> VolumeOptions {
    VolumeOptions { allocator, delalloc: Some(false), ..VolumeOptions::default() }
}

fn create(volume: &Volume, name: &str) -> InodeNo {
    volume.create(InodeNo::ROOT, name.as_bytes(), 0o644, &Credentials::ROOT).unwrap().number
}

fn extents(volume: &Volume, file: InodeNo) -> Vec<Mapping> {
    volume.extents(file).unwrap().map(Result::unwrap).collect()
}

/// Files written alternately, a piece of each at a time; the extents of all.
fn written_together(volume: &Volume, files: usize, bytes: usize) -> usize {
    let files: Vec<InodeNo> = (0..files).map(|at| create(volume, &format!("file-{at}"))).collect();
    let data = vec![0x5a; WRITE];
    for at in (0..bytes).step_by(WRITE) {
        for file in &files {
            assert_eq!(volume.write(*file, at as u64, &data).unwrap(), WRITE);
        }
    }
    files.iter().map(|file| extents(volume, *file).len()).sum()
}

#[test]
fn files_that_grow_together_have_few_extents_and_the_plain_allocator_mixes_them() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("no e2fsprogs here");
    }
    let mut sums = Vec::new();
    for kind in [AllocatorKind::MultiBlock, AllocatorKind::Plain] {
        let image = TempImage::by_mke2fs(512 << 20, &["-t", "ext4"]).unwrap();
        let volume = open_file(&image.path(), &with(kind));
        sums.push(written_together(&volume, 8, 2 << 20));
        volume.close().unwrap();
        e2fsck_fn(&image.path()).unwrap();
    }
    let [multi, plain] = sums[..] else { unreachable!("two allocators") };
    assert!(multi <= 8 * 3, "{multi} extents of 8 files");
    assert!(plain >= 8 * 16, "{plain} extents of 8 files by the plain allocator");
}

/// Preallocations never take all that is free: the last files that grow find runs too.
#[test]
fn many_files_on_a_volume_that_runs_full_have_few_extents() {
    const FILES: usize = 100;
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("no e2fsprogs here");
    }
    let image = TempImage::by_mke2fs(512 << 20, &["-t", "ext4", "-m", "0"]).unwrap();
    let writer = extant_device::FileDeviceOptions::new().write(true).open(image.path()).unwrap();
    let options = VolumeOptions { memory: 64 << 20, ..VolumeOptions::default() };
    let volume = Volume::open(Arc::new(writer), &Env::stepped(1), &options).unwrap();
    written_together(&volume, FILES, 4 << 20);
    volume.sync().unwrap();
    let counts: Vec<usize> = (0..FILES)
        .map(|at| {
            let name = format!("file-{at}");
            let file = volume.lookup(InodeNo::ROOT, name.as_bytes()).unwrap().inode;
            extents(&volume, file).len()
        })
        .collect();
    assert!(counts.iter().all(|count| *count <= 4), "{counts:?}");
    volume.close().unwrap();
    e2fsck_fn(&image.path()).unwrap();
}

/// Document 003: the allocator of 2008 passed over groups that were not initialised. Here they are
/// used like others, and what their bitmaps hold on the disk, which may be anything, is not read.
#[test]
fn groups_that_are_not_initialised_are_used_and_their_bitmaps_not_read() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("no e2fsprogs here");
    }
    let features = ["-t", "ext4", "-O", "^flex_bg,^metadata_csum,uninit_bg,^resize_inode"];
    for features in [&features[..], &["-t", "ext4"]] {
        let image = TempImage::by_mke2fs(1 << 30, features).unwrap();
        let device = FileDevice::open(image.path()).unwrap();
        let volume = Reader::open(Arc::new(device)).unwrap();
        let geometry = volume.geometry().clone();
        let uninit: Vec<GroupNo> = (0..geometry.groups_count)
            .map(GroupNo)
            .filter(|group| {
                let desc = volume.group_desc(*group).unwrap();
                desc.flags.contains(GroupFlags::BLOCK_UNINIT)
            })
            .collect();
        assert!(uninit.len() >= 3, "{uninit:?}");
        let writer =
            extant_device::FileDeviceOptions::new().write(true).open(image.path()).unwrap();
        for group in &uninit {
            let bitmap = volume.group_desc(*group).unwrap().block_bitmap;
            writer.write_at(geometry.byte_of(bitmap), &vec![0xa5; geometry.block_len()]).unwrap();
        }
        drop((volume, writer));

        let volume = open_file(&image.path(), &VolumeOptions::default());
        let file = create(&volume, "large");
        volume.fallocate(file, FallocateMode::Allocate, 0, 700 << 20).unwrap();
        let extents = extents(&volume, file);
        let groups: Vec<u32> = extents
            .iter()
            .map(|run| geometry.group_of(run.physical().unwrap()).unwrap().0)
            .collect();
        assert!(groups.len() <= geometry.groups_count as usize, "{extents:?}");
        let used: Vec<&GroupNo> = uninit.iter().filter(|group| groups.contains(&group.0)).collect();
        assert!(used.len() >= 2, "{groups:?} of {uninit:?}");
        volume.close().unwrap();
        e2fsck_fn(&image.path()).unwrap();
        let volume = Reader::open(Arc::new(FileDevice::open(image.path()).unwrap())).unwrap();
        let first = *used[0];
        assert!(!volume.group_desc(first).unwrap().flags.contains(GroupFlags::BLOCK_UNINIT));
        volume.bitmap(first, BitmapKind::Block).unwrap();
    }
}

#[test]
fn what_is_preallocated_counts_as_free_and_is_given_back_when_space_is_short() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("no e2fsprogs here");
    }
    let image = TempImage::by_mke2fs(256 << 20, &["-t", "ext4", "-m", "0"]).unwrap();
    let volume = open_file(&image.path(), &with(AllocatorKind::MultiBlock));
    let before = volume.stat_fs().unwrap().free_blocks;
    let block_size = u64::from(volume.stat_fs().unwrap().block_size);
    let grown = written_together(&volume, 4, 1 << 20) as u64;
    assert!(grown >= 4);
    let free = volume.stat_fs().unwrap().free_blocks;
    assert_eq!(before - free, 4 * ((1 << 20) / block_size));
    // All but what is kept for maps.
    let rest = create(&volume, "rest");
    let kept = free - volume.stat_fs().unwrap().available_blocks;
    let most = (free - kept) * block_size;
    volume.fallocate(rest, FallocateMode::Allocate, 0, most).unwrap();
    let left = volume.stat_fs().unwrap().free_blocks;
    assert!(left <= kept, "{left} of {free} blocks are left");
    let end = volume.fallocate(rest, FallocateMode::Allocate, 0, most + (64 << 20));
    assert!(matches!(end, Err(Error::NoSpace)), "{end:?}");
    volume.close().unwrap();
    e2fsck_fn(&image.path()).unwrap();
}

#[test]
fn large_runs_are_aligned_to_the_stripe() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("no e2fsprogs here");
    }
    // By the superblock, and by an option that says otherwise.
    let image = TempImage::by_mke2fs(256 << 20, &["-t", "ext4", "-E", "stride=16,stripe_width=48"])
        .unwrap();
    for (stripe, blocks) in [(None, 48), (Some(80), 80)] {
        let options = VolumeOptions { stripe, ..VolumeOptions::default() };
        let volume = open_file(&image.path(), &options);
        for at in 0..4 {
            let file = create(&volume, &format!("striped-{blocks}-{at}"));
            let block_size = u64::from(volume.geometry().block_size);
            volume.fallocate(file, FallocateMode::Allocate, 0, 3 * blocks * block_size).unwrap();
            let runs = extents(&volume, file);
            assert_eq!(runs.len(), 1, "{runs:?}");
            let start = runs[0].physical().unwrap().0;
            assert!(start.is_multiple_of(blocks), "{start} with stripes of {blocks} blocks");
            // So that the next one does not begin at a stripe by chance.
            let odd = create(&volume, &format!("odd-{blocks}-{at}"));
            volume.fallocate(odd, FallocateMode::Allocate, 0, 5 * block_size).unwrap();
        }
        volume.close().unwrap();
        e2fsck_fn(&image.path()).unwrap();
    }
}

#[test]
fn freed_blocks_are_discarded_after_their_commit_where_that_is_asked_for() {
    if tool("mke2fs").is_none() {
        skip!("no mke2fs here");
    }
    let image = TempImage::by_mke2fs(64 << 20, &["-t", "ext4"]).unwrap();
    for discard in [true, false] {
        let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap()));
        let options = VolumeOptions { discard, ..VolumeOptions::default() };
        let volume = open(device.clone(), &options);
        let file = create(&volume, "file");
        volume.write(file, 0, &[0x77; WRITE]).unwrap();
        volume.fsync(file).unwrap();
        let place = extents(&volume, file)[0].physical().unwrap();
        let at = volume.geometry().byte_of(place);
        let mut byte = [0];
        volume.unlink(InodeNo::ROOT, b"file").unwrap();
        device.read_at(at, &mut byte).unwrap();
        assert_eq!(byte, [0x77], "before the commit the file may come back");
        volume.sync().unwrap();
        device.read_at(at, &mut byte).unwrap();
        assert_eq!(byte, [if discard { 0 } else { 0x77 }]);
        volume.close().unwrap();
    }
}

/// FITRIM: what was free before is zeroes then, all of it and nothing else.
#[test]
fn free_space_is_trimmed_and_what_is_in_use_stays() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("no e2fsprogs here");
    }
    let kinds = [&["-t", "ext4"][..], &["-t", "ext4", "-O", "bigalloc"], &["-b", "1024"]];
    for args in kinds {
        let image = TempImage::by_mke2fs(96 << 20, args).unwrap();
        let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap()));
        let volume = open(device.clone(), &VolumeOptions::default());
        let geometry = volume.geometry();
        let [kept, gone] = ["kept", "gone"].map(|name| create(&volume, name));
        for at in 0..24 {
            for file in [kept, gone] {
                volume.write(file, at * WRITE as u64, &[0x77; WRITE]).unwrap();
            }
        }
        volume.fsync(gone).unwrap();
        let places: Vec<u64> = extents(&volume, gone)
            .iter()
            .map(|extent| geometry.byte_of(extent.physical().unwrap()))
            .collect();
        volume.last_writer_closed(kept);
        volume.unlink(InodeNo::ROOT, b"gone").unwrap();
        volume.sync().unwrap();
        let bytes_at = |places: &[u64]| {
            let mut byte = [0];
            let at = |place: &u64| device.read_at(*place, &mut byte).map(|()| byte[0]);
            places.iter().map(at).collect::<Result<Vec<u8>, _>>().unwrap()
        };
        assert_eq!(bytes_at(&places), vec![0x77; places.len()], "{args:?}");

        let whole = 0..device.size();
        assert_eq!(
            volume.trim(whole.clone(), 256 << 20).unwrap(),
            0,
            "{args:?}: no run is so long"
        );
        let group = u64::from(geometry.blocks_per_group) * u64::from(geometry.block_size);
        let first = volume.trim(0..group, 0).unwrap();
        assert!(first > 0 && first < group, "{args:?}: {first} bytes of a group");
        let free = volume.stat_fs().unwrap().free_blocks * u64::from(geometry.block_size);
        assert_eq!(volume.trim(whole, 0).unwrap(), free, "{args:?}: all that is free");
        assert_eq!(bytes_at(&places), vec![0; places.len()], "{args:?}");
        let mut found = vec![0; 24 * WRITE];
        volume.read(kept, 0, &mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == 0x77), "{args:?}");
        volume.close().unwrap();

        let mut bytes = vec![0; device.size() as usize];
        device.read_at(0, &mut bytes).unwrap();
        std::fs::write(image.path(), bytes).unwrap();
        e2fsck_fn(&image.path()).unwrap();
    }
}

/// How a file is closed.
type Close = fn(&Volume, InodeNo);

/// The last one who holds a file lets it go, or only reads it from now on.
const CLOSES: [Close; 2] = [
    |volume, file| volume.release(file, 1).unwrap(),
    |volume, file| volume.last_writer_closed(file),
];

/// Two writes' bytes at a place of a file.
fn write_two(volume: &Volume, file: InodeNo, at: usize) {
    let data = vec![1; 2 * WRITE];
    assert_eq!(volume.write(file, at as u64, &data).unwrap(), data.len());
}

fn written_and_closed(volume: &Volume, name: &str, close: Close) -> InodeNo {
    let file = create(volume, name);
    volume.acquire(file).unwrap();
    write_two(volume, file, 0);
    close(volume, file);
    file
}

#[test]
fn files_that_are_closed_leave_the_space_behind_them_to_the_next_ones() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("no e2fsprogs here");
    }
    // Blocks are chosen at each write, or for all files when they are closed.
    let ways = [false, true].into_iter().flat_map(|delalloc| CLOSES.map(|close| (delalloc, close)));
    for (delalloc, close) in ways {
        let image = TempImage::by_mke2fs(256 << 20, &["-t", "ext4", "-b", "4096"]).unwrap();
        let options = VolumeOptions { delalloc: Some(delalloc), ..VolumeOptions::default() };
        let volume = open_file(&image.path(), &options);
        let close_at = |at| written_and_closed(&volume, &format!("file-{at}"), close);
        let files: Vec<InodeNo> = (0..8).map(close_at).collect();
        volume.sync().unwrap();
        let runs: Vec<Mapping> = files.iter().flat_map(|file| extents(&volume, *file)).collect();
        assert_eq!(runs.len(), files.len(), "{runs:?}");
        let end = |run: &Mapping| run.physical().unwrap().0 + run.len;
        let is_next = |pair: &[Mapping]| end(&pair[0]) == pair[1].physical().unwrap().0;
        assert!(runs.windows(2).all(is_next), "delalloc {delalloc}: {runs:?}");
        volume.close().unwrap();
        e2fsck_fn(&image.path()).unwrap();
    }
}

#[test]
fn a_file_that_is_written_again_keeps_the_space_behind_it() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("no e2fsprogs here");
    }
    for close in CLOSES {
        let image = TempImage::by_mke2fs(256 << 20, &["-t", "ext4", "-b", "4096"]).unwrap();
        let volume = open_file(&image.path(), &VolumeOptions::default());
        let file = written_and_closed(&volume, "again", close);
        volume.acquire(file).unwrap();
        write_two(&volume, file, 2 * WRITE);
        volume.sync().unwrap();
        let other = written_and_closed(&volume, "other", close);
        volume.sync().unwrap();
        write_two(&volume, file, 4 * WRITE);
        volume.sync().unwrap();
        assert_eq!((extents(&volume, file).len(), extents(&volume, other).len()), (1, 1));
        volume.close().unwrap();
        e2fsck_fn(&image.path()).unwrap();
    }
}

/// Takes all space that is free.
fn fill_up(volume: &Volume) {
    let file = create(volume, "fill");
    let block = u64::from(volume.geometry().block_size) as usize;
    let mut at = 0;
    for piece in [1 << 20, 16 * block, block] {
        while let Ok(count) = volume.write_by(file, at, &vec![1; piece], &Credentials::ROOT) {
            at += count as u64;
        }
    }
    volume.sync().unwrap();
    assert_eq!(volume.stat_fs().unwrap().free_blocks, 0);
}

/// As many extents as an inode has room for, far from each other.
fn in_four_places(volume: &Volume, blocks: u64) -> InodeNo {
    let file = create(volume, "file");
    let block = u64::from(volume.geometry().block_size);
    for at in 0..4 {
        volume
            .write(file, at * 4 * blocks * block, &vec![b'A'; (blocks * block) as usize])
            .unwrap();
    }
    volume.fsync(file).unwrap();
    assert_eq!(extents(volume, file).iter().filter(|found| !found.is_hole()).count(), 4);
    file
}

fn contents(volume: &Volume, file: InodeNo) -> Vec<u8> {
    let mut bytes = vec![0; volume.inode(file).unwrap().size as usize];
    volume.read(file, 0, &mut bytes).unwrap();
    bytes
}

/// The parts of an extent need a node for which there is no space: then its first and last bytes
/// stay too.
#[test]
fn a_hole_that_cannot_be_punched_changes_nothing() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("no e2fsprogs here");
    }
    for args in [&["-b", "4096"][..], &["-b", "1024"], &["-b", "4096", "-O", "bigalloc"]] {
        let args = [&["-t", "ext4"], args].concat();
        let image = TempImage::by_mke2fs(32 << 20, &args).unwrap();
        let options = VolumeOptions { reserved_clusters: Some(0), ..VolumeOptions::default() };
        let volume = open_file(&image.path(), &options);
        let block = u64::from(volume.geometry().block_size);
        let file = in_four_places(&volume, 64);
        fill_up(&volume);
        let before = contents(&volume, file);
        let (from, length) = (256 * block + 16 * block + 100, 32 * block + 200);
        let punch = || volume.fallocate(file, FallocateMode::PunchHole, from, length);
        assert!(matches!(punch(), Err(Error::NoSpace)), "{args:?}");
        assert!(contents(&volume, file) == before, "{args:?}");
        volume.unlink(InodeNo::ROOT, b"fill").unwrap();
        volume.sync().unwrap();
        punch().unwrap();
        let mut expected = before;
        expected[from as usize..(from + length) as usize].fill(0);
        assert!(contents(&volume, file) == expected, "{args:?}");
        volume.close().unwrap();
        e2fsck_fn(&image.path()).unwrap();
    }
}

/// A write that cannot map its hole has not overwritten the blocks after it either.
#[test]
fn a_write_that_finds_no_space_changes_nothing_behind_it() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("no e2fsprogs here");
    }
    let image = TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-b", "4096"]).unwrap();
    let options = VolumeOptions { reserved_clusters: Some(0), ..VolumeOptions::default() };
    let volume = open_file(&image.path(), &options);
    let block = u64::from(volume.geometry().block_size);
    let file = in_four_places(&volume, 1);
    let one = create(&volume, "one");
    volume.write(one, 0, &vec![1; block as usize]).unwrap();
    fill_up(&volume);
    volume.unlink(InodeNo::ROOT, b"one").unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.stat_fs().unwrap().free_blocks, 1);
    let before = contents(&volume, file);
    let written = volume.write(file, 3 * block, &vec![b'B'; 2 * block as usize]);
    assert!(matches!(written, Err(Error::NoSpace)), "{written:?}");
    assert!(contents(&volume, file) == before);
    volume.close().unwrap();
    e2fsck_fn(&image.path()).unwrap();
}
