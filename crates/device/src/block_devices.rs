//! The machine's block devices, as the kernel lists them (`ABI/stable/sysfs-block` and
//! `ABI/stable/sysfs-dev-block` of its documentation).

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::file::{grow_mounted, mount_of};

/// Where all of them are listed by name, partitions too.
const BY_NAME: &str = "/sys/class/block";
/// Where they are listed by number.
const BY_NUMBER: &str = "/sys/dev/block";
/// Where their nodes are.
const NODES: &str = "/dev";

/// The number of the block device at `path`, as ext4 stores it (`s_journal_dev`) and the kernel's
/// mount option `journal_dev=` takes it: the minor number's low byte, the major number, the minor
/// number's rest. `None` where `path` is no block device.
pub fn number_of(path: &Path) -> Option<u32> {
    let found = fs::metadata(path).ok()?;
    let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
    let number = minor & 0xff | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12;
    found.file_type().is_block_device().then_some(number)
}

/// The path of the block device with a number, which is as [`number_of`] gives it.
///
/// # Errors
/// The machine has no such device.
pub fn path_of(number: u32) -> io::Result<PathBuf> {
    let (major, minor) = (number >> 8 & 0xfff, number & 0xff | number >> 12 & 0xf_ff00);
    node(&Path::new(BY_NUMBER).join(format!("{major}:{minor}")))
}

/// Whether a block device takes discards. A partition has the queue of its disk.
pub fn can_discard(path: &Path) -> bool {
    let Ok(found) = fs::metadata(path) else { return false };
    let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
    let device = Path::new(BY_NUMBER).join(format!("{major}:{minor}"));
    ["queue", "../queue"].iter().any(|queue| {
        let most = fs::read_to_string(device.join(queue).join("discard_max_bytes"));
        most.is_ok_and(|most| most.trim().parse::<u64>().is_ok_and(|most| most > 0))
    })
}

/// The paths of all block devices that hold something and that no other device is made of
/// (device-mapper, md), in the order of their names. The list is empty where the kernel shows none.
pub fn all() -> Vec<PathBuf> {
    listed(Path::new(BY_NAME))
}

fn listed(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut entries: Vec<_> = entries.map(|entry| entry.path()).collect();
    entries.sort();
    let free = entries.iter().filter(|entry| has_bytes(entry) && !is_part_of_another(entry));
    free.filter_map(|entry| node(entry).ok()).collect()
}

/// Whether a device has a medium; for some drives without one the kernel still reports a size.
fn has_bytes(entry: &Path) -> bool {
    fs::read_to_string(entry.join("size")).is_ok_and(|sectors| sectors.trim() != "0")
}

fn is_part_of_another(entry: &Path) -> bool {
    fs::read_dir(entry.join("holders")).is_ok_and(|mut holders| holders.next().is_some())
}

/// The node of a device that is listed.
fn node(entry: &Path) -> io::Result<PathBuf> {
    let facts = fs::read_to_string(entry.join("uevent"))?;
    let name = facts.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    Ok(Path::new(NODES).join(name.ok_or(io::ErrorKind::NotFound)?))
}

/// Whether the block device at `path` is mounted by the kernel's ext4, under any of its names, in
/// this mount namespace.
pub fn is_kernel_ext_mount(path: &Path) -> bool {
    let Ok(found) = fs::metadata(path) else { return false };
    found.file_type().is_block_device()
        && mount_of(found.rdev())
            .is_some_and(|mount| ["ext2", "ext3", "ext4"].contains(&mount.kind.as_str()))
}

/// Lets the kernel grow the ext4 volume that it has mounted from the block device at `path` to a
/// number of blocks. Returns where it is mounted.
///
/// # Errors
/// It is not mounted, or the kernel refused.
pub fn grow_kernel_mount(path: &Path, blocks: u64) -> io::Result<PathBuf> {
    let mount = mount_of(fs::metadata(path)?.rdev()).ok_or(io::ErrorKind::NotFound)?;
    grow_mounted(File::open(&mount.place)?, blocks)?;
    Ok(mount.place)
}

/// Whether the block device at `path` is mounted, and not read-only, under any of its names, in
/// this mount namespace.
pub fn is_mounted_for_writing(path: &Path) -> bool {
    let Ok(found) = fs::metadata(path) else { return false };
    found.file_type().is_block_device()
        && mount_of(found.rdev()).is_some_and(|mount| !mount.is_read_only)
}

/// Reads bytes of a block device without a lock, and waits for no medium.
///
/// # Errors
/// It cannot be opened or read, is shorter, or is no block device.
pub fn peek(path: &Path, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
    let flags = (OFlags::NONBLOCK | OFlags::CLOEXEC).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.file_type().is_block_device() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    file.read_exact_at(bytes, offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testkit::Scratch;

    fn add(scratch: &Scratch, name: &str, sectors: &str, facts: &str) {
        let entry = scratch.join(name);
        fs::create_dir_all(entry.join("holders")).unwrap();
        fs::write(entry.join("size"), format!("{sectors}\n")).unwrap();
        fs::write(entry.join("uevent"), facts).unwrap();
    }

    #[test]
    fn devices_without_bytes_and_members_of_others_are_left_out() {
        let scratch = Scratch::new();
        add(&scratch, "sdb1", "2048", "MAJOR=8\nMINOR=17\nDEVNAME=sdb1\nDEVTYPE=partition\n");
        add(&scratch, "loop0", "0", "DEVNAME=loop0\n");
        add(&scratch, "cciss!c0d0", "4096", "MAJOR=104\nDEVNAME=cciss/c0d0\n");
        add(&scratch, "sda1", "2048", "DEVNAME=sda1\n");
        fs::create_dir(scratch.join("sda1/holders/md0")).unwrap();
        add(&scratch, "nameless", "8", "MAJOR=8\n");
        let found = listed(scratch.path());
        assert_eq!(found, [Path::new("/dev/cciss/c0d0"), Path::new("/dev/sdb1")]);
        assert_eq!(listed(&scratch.join("missing")), [] as [PathBuf; 0]);
    }

    #[test]
    fn a_file_is_no_block_device() {
        let scratch = Scratch::new();
        let file = scratch.join("file");
        fs::write(&file, [0; 4096]).unwrap();
        assert_eq!(number_of(&file), None);
        let refused = peek(&file, 0, &mut [0; 4]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
