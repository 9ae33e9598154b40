//! Helpers of the tests: opening images, and the tree that a volume shows.
#![allow(dead_code, reason = "each test file uses some of it")]

pub(crate) mod bases;

use extant_device::{Device, MemoryDevice};
use extant_ondisk::InodeNo;
use extant_ondisk::bitmap::BitmapKind;
use extant_ondisk::inode::FileType;
use extant_reader::{Error, LoadedInode, Reader, VolumeRead};
use extant_testkit::{Entry, Kind, LoopMount, TreeSnapshot, content_digest};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The device of an image file.
pub(crate) fn device(image: &Path) -> Arc<dyn Device> {
    Arc::new(extant_device::FileDeviceOptions::new().open(image).unwrap())
}

/// The volume of an image file.
pub(crate) fn open(image: &Path) -> Reader {
    Reader::open(device(image)).unwrap_or_else(|error| panic!("{}: {error}", image.display()))
}

/// A device of these bytes.
pub(crate) fn memory(bytes: &[u8]) -> Arc<dyn Device> {
    let device = MemoryDevice::new(bytes.len() as u64);
    device.write_at(0, bytes).unwrap();
    Arc::new(device)
}

/// The tree that the volume shows, from its root; every name is also looked up.
pub(crate) fn snapshot(volume: &impl VolumeRead) -> Result<TreeSnapshot, Error> {
    let mut tree = TreeSnapshot::default();
    let mut by_inode = HashMap::<InodeNo, Vec<Vec<u8>>>::new();
    let mut waiting = vec![(Vec::new(), InodeNo::ROOT)];
    while let Some((path, number)) = waiting.pop() {
        let inode = volume.inode(number)?;
        if inode.is_dir() {
            for entry in volume.read_dir(number, 0)? {
                let entry = entry?;
                let found = volume.lookup(number, &entry.name)?;
                assert_eq!((found.inode, found.file_type), (entry.inode, entry.file_type));
                if matches!(&entry.name[..], b"." | b"..") {
                    continue;
                }
                let separator: &[u8] = if path.is_empty() { b"" } else { b"/" };
                waiting.push(([&path, separator, &entry.name].concat(), entry.inode));
            }
        } else if inode.links > 1 {
            by_inode.entry(number).or_default().push(path.clone());
        }
        tree.entries.insert(path, entry(volume, &inode)?);
    }
    tree.group_hard_links(by_inode.into_values());
    Ok(tree)
}

fn entry(volume: &impl VolumeRead, inode: &LoadedInode) -> Result<Entry, Error> {
    let number = inode.number;
    let kind = match inode.file_type() {
        FileType::Regular => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::CharDevice => Kind::CharDevice,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
    };
    let mut xattrs = std::collections::BTreeMap::new();
    for info in volume.xattrs(number)? {
        let value = volume.xattr(number, &info.name)?;
        xattrs.insert(info.name, value);
    }
    let content = if kind == Kind::File {
        let ranges = volume.data_segments(number)?.collect::<Result<Vec<_>, _>>()?;
        let read = |at, piece: &mut [u8]| match volume.read_loaded(inode, at, piece) {
            Ok(count) if count == piece.len() => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Err(io::Error::other(error)),
        };
        let digest = content_digest(inode.size, ranges, read);
        Some(digest.map_err(|error| match error.downcast::<Error>() {
            Ok(error) => error,
            Err(error) => panic!("{error}"),
        })?)
    } else {
        None
    };
    let has_size = matches!(kind, Kind::File | Kind::Symlink);
    Ok(Entry {
        kind,
        mode: u32::from(inode.permissions()),
        uid: inode.uid,
        gid: inode.gid,
        size: if has_size { inode.size } else { 0 },
        links: u64::from(inode.links),
        mtime: (inode.mtime.seconds, i64::from(inode.mtime.nanoseconds)),
        rdev: inode.device().map(|device| (device.major, device.minor)),
        xattrs,
        target: match kind {
            Kind::Symlink => Some(volume.read_link(number)?),
            _ => None,
        },
        content,
        same_as: None,
    })
}

/// Compares what we read with what the kernel shows of the same image.
#[track_caller]
pub(crate) fn assert_like_the_kernel(image: &Path) {
    let mount = LoopMount::new(image, "ro").unwrap();
    let expected = TreeSnapshot::of_dir(mount.path()).unwrap();
    let found = snapshot(&open(image)).unwrap();
    extant_testkit::assert_same_tree(&expected, &found);
}

/// Names that a walk looks at before it stops: damaged images may name more than they hold.
const MAX_WALKED: usize = 50_000;

/// Reads everything that can be reached on a volume that may be damaged, and says how many files
/// there were and what was wrong. Directories are entered once, of each file a part is read.
pub(crate) fn walk(volume: &impl VolumeRead) -> (usize, Vec<String>) {
    let (mut seen, mut errors) = (std::collections::HashSet::new(), Vec::new());
    let mut waiting = vec![InodeNo::ROOT];
    let mut note = |what: &dyn std::fmt::Display, error: Option<Error>| {
        errors.extend(error.map(|error| format!("{what}: {error}")));
    };
    note(&"statfs", volume.stat_fs().err());
    for group in (0..volume.geometry().groups_count.min(64)).map(extant_ondisk::GroupNo) {
        for kind in [BitmapKind::Block, BitmapKind::Inode] {
            note(&format_args!("bitmap of {group}"), volume.bitmap(group, kind).err());
        }
    }
    for number in (1..=volume.geometry().inodes_count.min(100)).map(InodeNo) {
        note(&number, volume.any_inode(number).err().filter(Error::is_corruption));
        if let Ok(inode) = volume.inode(number) {
            note(&number, visit(volume, &inode).err());
        }
    }
    let mut names = 0;
    while let Some(number) = waiting.pop() {
        if !volume.inode(number).is_ok_and(|inode| inode.is_dir()) {
            continue;
        }
        let entries = match volume.read_dir(number, 0) {
            Ok(entries) => entries,
            Err(error) => {
                note(&number, Some(error));
                continue;
            }
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    note(&number, Some(error));
                    break;
                }
            };
            names += 1;
            let name = format!("{number}/{}", entry.name.escape_ascii());
            note(&name, volume.lookup(number, &entry.name).err());
            if names < MAX_WALKED && seen.insert(entry.inode) {
                waiting.push(entry.inode);
                match volume.inode(entry.inode) {
                    Ok(inode) => note(&name, visit(volume, &inode).err()),
                    Err(error) => note(&name, Some(error)),
                }
            }
        }
        if names >= MAX_WALKED {
            break;
        }
    }
    (seen.len(), errors)
}

/// Runs of a file's map that a walk looks at.
const MAX_RUNS: usize = 20_000;

fn visit(volume: &impl VolumeRead, inode: &LoadedInode) -> Result<(), Error> {
    for info in volume.xattrs(inode.number)? {
        volume.xattr(inode.number, &info.name)?;
    }
    for kind in [extant_reader::AclKind::Access, extant_reader::AclKind::Default] {
        volume.acl(inode.number, kind)?;
    }
    match inode.file_type() {
        FileType::Symlink => drop(volume.read_link(inode.number)?),
        FileType::Regular if !inode.is_encrypted() => {
            volume.extents(inode.number)?.take(MAX_RUNS).try_for_each(|run| run.map(drop))?;
            let mut bytes = vec![0; 1 << 17];
            volume.read_loaded(inode, 0, &mut bytes)?;
            volume.read_loaded(inode, inode.size.saturating_sub(5000), &mut bytes)?;
            volume.data_segments(inode.number)?.take(MAX_RUNS).try_for_each(|run| run.map(drop))?;
        }
        _ => {}
    }
    Ok(())
}
