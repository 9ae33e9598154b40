//! Images that the kernel wrote, read by us and compared with the kernel's own mount.

mod common;

use common::{assert_like_the_kernel, open};
use extant_ondisk::inode::InodeFlags;
use extant_reader::{Follow, VolumeRead};
use extant_testkit::{LoopMount, Scratch, TempImage, is_root, skip, tree};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// Makes an image, lets the kernel mount it and `fill` it; says why when something is missing here.
fn kernel_image(
    size: u64,
    options: &[&str],
    fill: impl FnOnce(&Path),
) -> Result<TempImage, String> {
    if !is_root() {
        return Err("a loop mount needs root".into());
    }
    let image = TempImage::by_mke2fs(size, options)?;
    let mount = LoopMount::new(&image.path(), "")?;
    fill(mount.path());
    mount.unmount()?;
    Ok(image)
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(status.success());
}

const OPTION_SETS: &[&[&str]] = &[
    &["-t", "ext4"],
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "2048", "-I", "128"],
    &["-t", "ext4", "-I", "1024", "-O", "inline_data"],
    &["-t", "ext4", "-O", "inline_data,ea_inode,metadata_csum_seed"],
    &["-t", "ext4", "-O", "bigalloc", "-C", "65536"],
    &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode,^flex_bg"],
    &["-t", "ext4", "-O", "^metadata_csum,uninit_bg,^64bit"],
    &["-t", "ext4", "-O", "^extent,^64bit,^flex_bg"],
    &["-t", "ext3"],
    &["-t", "ext3", "-b", "1024", "-I", "128", "-O", "^dir_index"],
    &["-t", "ext2", "-b", "1024"],
    &["-t", "ext2", "-O", "^filetype"],
];

#[test]
fn a_copied_tree_reads_as_the_kernel_shows_it() {
    let scratch = Scratch::new();
    let source = scratch.join("source");
    let options = tree::Options { block: 1024, ..tree::Options::default() };
    tree::grow(&source, 3, &options).unwrap();
    for options in OPTION_SETS {
        match kernel_image(96 << 20, options, |mount| copy(&source, &mount.join("copy"))) {
            Ok(image) => {
                println!("{options:?}");
                assert_like_the_kernel(&image.path());
            }
            Err(why) => skip!("{why}"),
        }
    }
}

/// Writes so that no two blocks of a file lie together in the file.
fn write_apart(path: &Path, blocks: u64, block_size: u64) {
    let file = File::create(path).unwrap();
    for at in 0..blocks {
        file.write_all_at(&at.to_le_bytes(), 2 * at * block_size).unwrap();
    }
    file.sync_all().unwrap();
}

#[test]
fn fragmented_files_read_as_the_kernel_shows_them() {
    for (options, block_size) in [
        (&["-t", "ext4", "-b", "1024"][..], 1024),
        (&["-t", "ext4", "-b", "1024", "-O", "^extent,^64bit"], 1024),
        (&["-t", "ext4"], 4096),
    ] {
        let filled = kernel_image(128 << 20, options, |mount| {
            write_apart(&mount.join("deep"), 20_000, block_size);
            let far = File::create(mount.join("far")).unwrap();
            // After the double indirect blocks; the last block of the file is short.
            for at in [0, 11, 12, 267, 268, 65_803, 65_804, 70_000, 1_000_000] {
                far.write_all_at(b"here", at * block_size + 3).unwrap();
            }
            let allocated = File::create(mount.join("unwritten")).unwrap();
            allocated.write_all_at(&[1; 10_000], 0).unwrap();
            let size = if options.contains(&"^extent,^64bit") { 0 } else { 1 << 20 };
            if size > 0 {
                let flags = rustix::fs::FallocateFlags::empty();
                rustix::fs::fallocate(&allocated, flags, 8192, size).unwrap();
                let flags = rustix::fs::FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&allocated, flags, 4 << 20, size).unwrap();
            }
        });
        match filled {
            Ok(image) => {
                assert_like_the_kernel(&image.path());
                extents_are_those_of_debugfs(&image.path(), b"/deep");
            }
            Err(why) => skip!("{why}"),
        }
    }
}

/// debugfs's `blocks` lists every data block and the indirect or extent blocks; ours are among
/// them, in order.
fn extents_are_those_of_debugfs(image: &Path, path: &[u8]) {
    let volume = open(image);
    let inode = volume.resolve(path, Follow::Yes).unwrap();
    let ours: Vec<u64> = volume
        .extents(inode.number)
        .unwrap()
        .map(Result::unwrap)
        .filter_map(|run| run.physical().map(|start| start.0..start.0 + run.len))
        .flatten()
        .collect();
    let shown = extant_testkit::debugfs(image, &format!("blocks <{}>", inode.number)).unwrap();
    let all: Vec<u64> = shown.split_whitespace().map(|block| block.parse().unwrap()).collect();
    let known: std::collections::HashSet<u64> = ours.iter().copied().collect();
    let theirs: Vec<u64> = all.into_iter().filter(|block| known.contains(block)).collect();
    assert_eq!(ours, theirs);
    assert!(ours.len() > 10_000);
}

#[test]
fn hashed_directories_of_the_kernel_are_searched_by_their_index() {
    let names = 100_000;
    let filled = kernel_image(256 << 20, &["-t", "ext4", "-b", "1024", "-N", "120000"], |mount| {
        let dir = mount.join("big");
        fs::create_dir(&dir).unwrap();
        let first = dir.join("name-0-\u{e4}\u{f6}");
        File::create(&first).unwrap();
        for number in 1..names {
            // Hard links are quicker than files; 60,000 is below the limit of links.
            let path = dir.join(format!("name-{number}-\u{e4}\u{f6}"));
            match number % 60_000 {
                0 => drop(File::create(&path).unwrap()),
                _ => fs::hard_link(
                    dir.join(format!("name-{}-\u{e4}\u{f6}", number / 60_000 * 60_000)),
                    &path,
                )
                .unwrap(),
            }
        }
    });
    let image = match filled {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let volume = open(&image.path());
    let dir = volume.resolve(b"/big", Follow::Yes).unwrap();
    assert!(dir.flags.contains(InodeFlags::INDEX));
    let entries: Vec<_> =
        volume.read_dir(dir.number, 0).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(entries.len(), names + 2);
    for entry in entries.iter().skip(2) {
        assert_eq!(volume.lookup(dir.number, &entry.name).unwrap().inode, entry.inode);
    }
    assert!(volume.lookup(dir.number, b"name-100000-").is_err());
    // A cookie continues after its entry.
    let middle = &entries[50_000];
    let next = volume.read_dir(dir.number, middle.cookie).unwrap().next().unwrap().unwrap();
    assert_eq!(next, entries[50_001]);
}

#[test]
fn every_hash_version_finds_its_names_signed_and_unsigned() {
    for (version, flags) in
        [("legacy", 1), ("half_md4", 1), ("tea", 1), ("legacy", 2), ("half_md4", 2), ("tea", 2)]
    {
        let options = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"];
        if !is_root() {
            skip!("a loop mount needs root");
        }
        let image = match TempImage::by_mke2fs(32 << 20, &options) {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let set = |command: &str| {
            let debugfs = extant_testkit::tool("debugfs").unwrap();
            debugfs.run(["-w", "-R", command, image.path().to_str().unwrap()]);
        };
        set(&format!("ssv def_hash_version {version}"));
        set(&format!("ssv flags {flags}"));
        let mount = match LoopMount::new(&image.path(), "") {
            Ok(mount) => mount,
            Err(why) => skip!("{why}"),
        };
        for number in 0..2000 {
            // Bytes above 127 are where signed and unsigned differ.
            let name = format!("\u{fc}mlaut-{number}-\u{20ac}\u{fffd}-ende");
            File::create(mount.path().join(name)).unwrap();
        }
        mount.unmount().unwrap();
        let volume = open(&image.path());
        assert_eq!(volume.superblock().hash_is_unsigned(), flags == 2);
        let root = volume.resolve(b"/", Follow::Yes).unwrap();
        assert!(root.flags.contains(InodeFlags::INDEX));
        let tree = common::snapshot(&volume).unwrap(); // looks every name up
        assert_eq!(tree.entries.len(), 2002, "{version} {flags}");
    }
}

#[test]
fn a_volume_left_dirty_by_the_kernel_reads_as_its_next_mount() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let image = match TempImage::by_mke2fs(64 << 20, &["-t", "ext4", "-b", "4096"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let mount = match LoopMount::new(&image.path(), "") {
        Ok(mount) => mount,
        Err(why) => skip!("{why}"),
    };
    let scratch = Scratch::new();
    let source = scratch.join("source");
    tree::grow(&source, 9, &tree::Options::default()).unwrap();
    copy(&source, &mount.path().join("copy"));
    let status = Command::new("sync").arg("-f").arg(mount.path()).status().unwrap();
    assert!(status.success());
    // A copy of the image while it is mounted has its journal to be replayed.
    let dirty = TempImage::of_size(0).unwrap();
    fs::copy(image.path(), dirty.path()).unwrap();
    mount.unmount().unwrap();
    let before = fs::read(dirty.path()).unwrap();
    let volume = open(&dirty.path());
    assert!(volume.recovered().is_some());
    let found = common::snapshot(&volume).unwrap();
    assert!(fs::read(dirty.path()).unwrap() == before, "reading wrote to the image");
    drop(volume);
    let mount = LoopMount::new(&dirty.path(), "").unwrap();
    let expected = extant_testkit::TreeSnapshot::of_dir(mount.path()).unwrap();
    extant_testkit::assert_same_tree(&expected, &found);
}

#[test]
fn statfs_is_that_of_the_kernel() {
    for options in OPTION_SETS {
        let filled = kernel_image(64 << 20, options, |mount| {
            fs::write(mount.join("file"), vec![1; 1 << 20]).unwrap();
        });
        let image = match filled {
            Ok(image) => image,
            Err(why) => skip!("{why}"),
        };
        let mount = LoopMount::new(&image.path(), "ro").unwrap();
        let theirs = rustix::fs::statvfs(mount.path()).unwrap();
        let ours = open(&image.path()).stat_fs().unwrap();
        assert_eq!(u64::from(ours.block_size), theirs.f_bsize, "{options:?}");
        assert_eq!(ours.blocks, theirs.f_blocks, "{options:?}");
        assert_eq!(ours.free_blocks, theirs.f_bfree, "{options:?}");
        assert_eq!(u64::from(ours.inodes), theirs.f_files, "{options:?}");
        assert_eq!(ours.free_inodes, theirs.f_ffree, "{options:?}");
        assert_eq!(ours.available_blocks, theirs.f_bavail, "{options:?}");
    }
}
