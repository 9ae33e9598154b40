//! Full volumes: calls that need no new data block succeed while the clusters that are kept for
//! maps last.

use extant_device::{Device, MemoryDevice};
use extant_engine::ops::FallocateMode;
use extant_engine::{Credentials, Volume, VolumeOptions};
use extant_ondisk::InodeNo;
use extant_reader::{Error, Reader, VolumeRead};
use extant_runtime::env::Env;
use extant_testkit::{TempImage, e2fsck_fn, skip, tool};
use std::sync::Arc;

const ROOT: InodeNo = InodeNo::ROOT;
const USER: Credentials =
    Credentials { uid: 1000, gid: 1000, is_privileged: false, ..Credentials::ROOT };

/// A volume of `size` bytes, open for changes, and its device.
fn volume(size: u64, args: &[&str]) -> Result<(Arc<MemoryDevice>, Volume), String> {
    tool("mke2fs").ok_or("mke2fs is not installed")?;
    let image = TempImage::by_mke2fs(size, args)?;
    let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap()));
    let env = Env::stepped(1);
    let volume = Volume::open(device.clone(), &env, &VolumeOptions::default());
    Ok((device, volume.unwrap()))
}

/// Ends the test where there is no mke2fs.
macro_rules! volume {
    ($size:expr, $args:expr) => {
        match volume($size, &$args) {
            Ok(made) => made,
            Err(why) => skip!("{why}"),
        }
    };
}

fn create(volume: &Volume, name: &str) -> InodeNo {
    volume.create(ROOT, name.as_bytes(), 0o666, &Credentials::ROOT).unwrap().number
}

/// Fills the volume with files, as long as those who may use reserved blocks find space.
fn fill(volume: &Volume, name: &str) {
    // Both files are made first: a leaf of the directory may have to be split for a name (the hash
    // seed of an image is random), and a directory has no part in the kept clusters.
    let files = [64 << 10, 4096].map(|piece| (create(volume, &format!("{name}-{piece}")), piece));
    for (file, piece) in files {
        let (piece, mut at) = (vec![1; piece], 0);
        loop {
            match volume.write_by(file, at, &piece, &Credentials::ROOT) {
                Ok(count) => at += count as u64,
                Err(Error::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
        // Reservations of delayed data beyond their need are free once the data are written.
        volume.sync().unwrap();
    }
}

fn check(device: &MemoryDevice) {
    let image = TempImage::of_size(device.size()).unwrap();
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    std::fs::write(image.path(), bytes).unwrap();
    e2fsck_fn(&image.path()).unwrap_or_else(|said| panic!("{said}"));
}

#[test]
fn preallocation_behind_the_end_can_be_written_on_a_full_volume() {
    let (device, volume) = volume!(16 << 20, ["-t", "ext4", "-b", "4096"]);
    let file = create(&volume, "preallocated");
    volume.fallocate(file, FallocateMode::KeepSize, 0, 1 << 20).unwrap();
    fill(&volume, "fill");
    for index in 0..12 {
        let at = index * 8 * 4096;
        assert_eq!(volume.write_by(file, at, &[7; 4096], &Credentials::ROOT).unwrap(), 4096);
        volume.fsync(file).unwrap();
        assert_eq!(volume.inode(file).unwrap().size, at + 4096);
    }
    volume.close().unwrap();
    check(&device);
    let volume = Reader::open(device).unwrap();
    let mut bytes = vec![9; 1 << 20];
    assert_eq!(volume.read(file, 0, &mut bytes).unwrap(), (11 * 8 + 1) * 4096);
    for (index, block) in bytes[..(11 * 8 + 1) * 4096].chunks(4096).enumerate() {
        let expected = if index % 8 == 0 { 7 } else { 0 };
        assert!(block.iter().all(|byte| *byte == expected), "block {index}");
    }
}

#[test]
fn holes_are_punched_on_a_full_volume() {
    let (device, volume) = volume!(16 << 20, ["-t", "ext4", "-b", "4096"]);
    let file = create(&volume, "file");
    volume.write_by(file, 0, &[7; 600 * 4096], &USER).unwrap();
    volume.sync().unwrap();
    fill(&volume, "fill");
    for index in 0..8 {
        let at = index * 12_288;
        volume.fallocate_by(file, FallocateMode::PunchHole, at, 8192, &USER).unwrap();
        // Another file takes the space that this gives back.
        fill(&volume, &format!("fill{index}"));
    }
    volume.close().unwrap();
    check(&device);
}

#[test]
fn ranges_are_put_in_on_a_full_volume() {
    let (device, volume) = volume!(16 << 20, ["-t", "ext4", "-b", "4096"]);
    let file = create(&volume, "file");
    volume.write_by(file, 0, &[7; 20 * 4096], &USER).unwrap();
    volume.sync().unwrap();
    fill(&volume, "fill");
    for index in 0..6 {
        volume
            .fallocate_by(file, FallocateMode::InsertRange, (1 + 2 * index) * 4096, 4096, &USER)
            .unwrap();
    }
    volume.close().unwrap();
    check(&device);
}

/// Blocks kept for maps are not available for data, even to root; statfs reports it as the kernel
/// does.
#[test]
fn the_kept_clusters_are_not_available_to_data() {
    let (device, volume) = volume!(16 << 20, ["-t", "ext4", "-b", "4096", "-m", "0"]);
    fill(&volume, "fill");
    let stat = volume.stat_fs().unwrap();
    // The files that fill it may have a node of their own each.
    assert!((4096 / 50 - 2..=4096 / 50).contains(&stat.free_blocks), "{stat:?}");
    assert_eq!(stat.available_blocks, 0);
    volume.close().unwrap();
    check(&device);
}

/// Once they are used up too, a write fails if the extent that cannot be split reaches past the
/// file's end, and nothing has changed; an extent within the file is filled with zeros instead.
#[test]
fn an_extent_behind_the_end_that_cannot_be_cut_is_left_as_it_is() {
    let (device, volume) = volume!(4 << 20, ["-t", "ext4", "-b", "1024", "-O", "^has_journal"]);
    let modes = [FallocateMode::KeepSize, FallocateMode::Allocate];
    let files: Vec<_> = (0..100)
        .map(|index| {
            let file = create(&volume, &format!("file{index}"));
            let mode = modes[index % 2];
            volume.fallocate_by(file, mode, 0, 16 << 10, &Credentials::ROOT).unwrap();
            (file, mode)
        })
        .collect();
    fill(&volume, "fill");
    let mut refused = 0;
    for (file, mode) in &files {
        for block in [1_u64, 3, 5] {
            let before = volume.inode(*file).unwrap();
            match volume.write_by(*file, block << 10, &[7; 1024], &Credentials::ROOT) {
                Ok(1024) => {}
                Err(Error::NoSpace) if *mode == FallocateMode::KeepSize => {
                    refused += 1;
                    let after = volume.inode(*file).unwrap();
                    assert_eq!((after.size, after.i_block), (before.size, before.i_block));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(refused > 0, "the kept clusters did not come to an end");
    for (file, _) in &files {
        let mut bytes = vec![9; 16 << 10];
        let count = volume.read(*file, 0, &mut bytes).unwrap();
        for (index, block) in bytes[..count].chunks(1024).enumerate() {
            let is_fill = |byte: u8| block.iter().all(|found| *found == byte);
            assert!(is_fill(0) || matches!(index, 1 | 3 | 5) && is_fill(7), "block {index}");
        }
    }
    volume.close().unwrap();
    check(&device);
}
