//! Volumes that the kernel filled, with what mke2fs does not make: maps of several levels, indexes
//! of two, attributes that are shared or have inodes of their own, files and directories inside
//! inodes, unwritten extents, space of users and projects.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;

use extant_testkit::{LoopMount, TempImage, tool};
use rustix::fs::{CWD, FallocateFlags, FileType, Mode, XattrFlags};

/// Options of mke2fs, in one word list, and the features that are set after the kernel, which need
/// not know them, is done.
pub(super) const SETS: &[(&str, &str)] = &[
    ("-t ext4 -b 1024 -O ea_inode,inline_data,orphan_file", "quota,project"),
    ("-t ext4 -b 1024 -O ^extent,^64bit,^flex_bg,^has_journal", ""),
    ("-t ext4 -b 1024 -C 8192 -O bigalloc,^resize_inode", ""),
    ("-t ext4 -b 1024 -g 1024 -O meta_bg,^resize_inode,fast_commit,uninit_bg,^metadata_csum", ""),
    (
        "-t ext4 -b 4096 -I 1024 -O inline_data,sparse_super2,large_dir,^metadata_csum,^uninit_bg",
        "",
    ),
];

/// Bytes of the image.
const SIZE: u64 = 24 << 20;

/// A healthy volume.
pub(super) fn base((options, features): (&str, &str)) -> Result<TempImage, String> {
    let options: Vec<&str> = options.split(' ').collect();
    let image = TempImage::by_mke2fs(SIZE, &options)?;
    let mount = LoopMount::new(&image.path(), "")?;
    let filled = fill(mount.path());
    mount.unmount()?;
    filled.map_err(|error| error.to_string())?;
    if !features.is_empty() {
        let tune2fs = tool("tune2fs").ok_or("tune2fs is not installed")?;
        let image = image.path();
        tune2fs.text(["-O".as_ref(), features.as_ref(), image.as_os_str()])?;
    }
    Ok(image)
}

/// Runs a program that may not be there, or may not be able to.
fn try_to(name: &str, args: &[&str], path: &Path) {
    drop(Command::new(name).args(args).arg(path).output());
}

fn fill(root: &Path) -> std::io::Result<()> {
    // Every other block, some out of order: extents that fill nodes of two levels.
    let scattered = File::create(root.join("scattered"))?;
    for at in (0..900_u64).map(|at| at * 611 % 900) {
        scattered.write_all_at(&at.to_le_bytes(), at * 8192)?;
        if at % 64 == 0 {
            scattered.sync_data()?;
        }
    }
    // Far enough for all kinds of indirect blocks.
    let far = File::create(root.join("far"))?;
    for at in [0, 20 << 10, 400 << 10, 70 << 20, (70 << 20) + 4096] {
        far.write_all_at(b"far", at)?;
    }
    let reserved = File::create(root.join("reserved"))?;
    rustix::fs::fallocate(&reserved, FallocateFlags::KEEP_SIZE, 0, 300 << 10).ok();
    reserved.write_all_at(b"written", 100 << 10)?;
    names(root)?;
    attributes(root)?;
    // Inside inodes, where they may be.
    let small = root.join("small");
    for dir in 0..6 {
        let dir = small.join(format!("d{dir}"));
        fs::create_dir_all(&dir)?;
        for (at, length) in [5, 60, 100, 150, 600].into_iter().enumerate() {
            fs::write(dir.join(format!("f{at}")), vec![b'a' + at as u8; length])?;
        }
    }
    for (name, length) in [("short", 12), ("edge", 59), ("slow", 60), ("long", 400)] {
        symlink("t".repeat(length), small.join(name))?;
    }
    for (name, kind, device) in
        [("fifo", FileType::Fifo, 0), ("node", FileType::CharacterDevice, 0x0103)]
    {
        rustix::fs::mknodat(CWD, small.join(name), kind, Mode::RUSR, device)?;
    }
    // A chain, and a gap in the inodes.
    fs::create_dir_all(root.join("deep/a/b/c/d/e/f/g/h/i/j/k"))?;
    for at in (0..40).step_by(3) {
        fs::remove_file(root.join(format!("files/{at}")))?;
    }
    for (at, user) in [(1, 7), (2, 7), (4, 1000), (5, 70_000)] {
        std::os::unix::fs::chown(root.join(format!("files/{at}")), Some(user), Some(user + 1))?;
    }
    try_to("chattr", &["-p", "77"], &root.join("files/7"));
    try_to("chattr", &["+aA"], &root.join("files/8"));
    try_to("chattr", &["+i"], &root.join("files/10"));
    Ok(())
}

/// One directory whose index has two levels, of names of a few files; and directories with holes in
/// their names.
fn names(root: &Path) -> std::io::Result<()> {
    let (files, many) = (root.join("files"), root.join("many"));
    fs::create_dir(&files)?;
    fs::create_dir(&many)?;
    for at in 0..40 {
        fs::write(files.join(at.to_string()), vec![at as u8; at * 300])?;
    }
    for at in 0..2600 {
        let name = format!("{at:05} a name that takes its time to be read, and room");
        fs::hard_link(files.join((at % 40).to_string()), many.join(name))?;
    }
    for at in (0..2600).step_by(7) {
        fs::remove_file(
            many.join(format!("{at:05} a name that takes its time to be read, and room")),
        )?;
    }
    Ok(())
}

/// Attributes inside inodes, in blocks of one file and of several, and in inodes of their own.
fn attributes(root: &Path) -> std::io::Result<()> {
    let dir = root.join("attributes");
    fs::create_dir(&dir)?;
    for at in 0..12_usize {
        let file = dir.join(at.to_string());
        fs::write(&file, b"with attributes")?;
        let set = |name: &str, value: &[u8]| {
            // There may be no room.
            rustix::fs::setxattr(&file, name, value, XattrFlags::empty()).is_ok()
        };
        set("user.small", b"in the inode");
        if at % 3 == 0 {
            set("user.shared", &[b's'; 500]);
        } else if at % 3 == 1 {
            set("user.own", &vec![at as u8; 300 + at]);
            set("trusted.own", &[at as u8; 200]);
        } else {
            set("user.large", &vec![b'l'; 3000 + at / 6]);
            set("user.larger", &vec![at as u8; 5000]);
        }
    }
    Ok(())
}
