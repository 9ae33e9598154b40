//! Attributes and entries of directories as FUSE carries them.

use extant_ondisk::dirent::FileType as EntryType;
use extant_ondisk::time::Timestamp;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::abi::{Attr, AttrOut, Dirent, EntryOut, StatxOut, StatxTime};
use super::message::Reply;
use crate::attr::{Attributes, decode_device, node_of};
use crate::server::Listed;

/// Seconds that the kernel may cache names and attributes: no other process changes the volume.
const FOREVER: u64 = 365 * 24 * 60 * 60;
/// The fields of STATX: the basic ones and the birth time (linux/stat.h).
const STATX_BASIC_STATS: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;
/// Bits that the type is shifted by in a mode, and an entry's kind is not.
const TYPE_SHIFT: u32 = 12;

pub(super) fn attr(attributes: &Attributes) -> Attr {
    Attr {
        ino: u64::from(attributes.inode.0),
        size: attributes.size,
        blocks: attributes.sectors,
        atime: attributes.atime.seconds,
        mtime: attributes.mtime.seconds,
        ctime: attributes.ctime.seconds,
        atimensec: attributes.atime.nanoseconds,
        mtimensec: attributes.mtime.nanoseconds,
        ctimensec: attributes.ctime.nanoseconds,
        mode: u32::from(attributes.mode),
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.rdev,
        blksize: attributes.block_size,
        flags: 0,
    }
}

pub(super) fn attr_out(attributes: &Attributes) -> AttrOut {
    AttrOut { attr_valid: FOREVER, attr: attr(attributes), ..AttrOut::default() }
}

pub(super) fn entry_out(attributes: &Attributes) -> EntryOut {
    EntryOut {
        nodeid: node_of(attributes.inode),
        generation: u64::from(attributes.generation),
        entry_valid: FOREVER,
        attr_valid: FOREVER,
        attr: attr(attributes),
        ..EntryOut::default()
    }
}

/// A negative entry, which the kernel caches.
pub(super) fn no_entry() -> EntryOut {
    EntryOut { entry_valid: FOREVER, attr_valid: FOREVER, ..EntryOut::default() }
}

pub(super) fn statx_out(attributes: &Attributes) -> StatxOut {
    let time = |time: Timestamp| StatxTime {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
        reserved: 0,
    };
    let (rdev_major, rdev_minor) = decode_device(attributes.rdev);
    StatxOut {
        attr_valid: FOREVER,
        mask: STATX_BASIC_STATS | if attributes.btime.is_some() { STATX_BTIME } else { 0 },
        blksize: attributes.block_size,
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        mode: attributes.mode,
        ino: u64::from(attributes.inode.0),
        size: attributes.size,
        blocks: attributes.sectors,
        atime: time(attributes.atime),
        btime: time(attributes.btime.unwrap_or_default()),
        ctime: time(attributes.ctime),
        mtime: time(attributes.mtime),
        rdev_major,
        rdev_minor,
        ..StatxOut::default()
    }
}

/// The kind that a directory stores, as `d_type` has it; `None` where it stores none.
pub(super) fn kind_of(file_type: EntryType) -> Option<u32> {
    Some(match file_type {
        EntryType::Fifo => 1,
        EntryType::CharDevice => 2,
        EntryType::Directory => 4,
        EntryType::BlockDevice => 6,
        EntryType::Regular => 8,
        EntryType::Symlink => 10,
        EntryType::Socket => 12,
        _ => return None,
    })
}

/// The kind of a file as `d_type` has it.
pub(super) fn kind_of_mode(mode: u16) -> u32 {
    u32::from(mode) >> TYPE_SHIFT
}

/// An entry for READDIR, or with `entry` for READDIRPLUS; `false` if it does not fit into a reply
/// of `limit` bytes.
pub(super) fn put_listed(
    reply: &mut Reply<'_>,
    limit: usize,
    listed: &Listed,
    kind: u32,
    entry: Option<&EntryOut>,
) -> Result<bool, Errno> {
    let plus = entry.map_or(0, size_of_val);
    let len = size_of::<Dirent>() + listed.name.len();
    let padding = len.next_multiple_of(8) - len;
    if reply.len() + plus + len + padding > limit {
        return Ok(false);
    }
    if let Some(entry) = entry {
        reply.put_bytes(entry.as_bytes())?;
    }
    reply.put(&Dirent {
        ino: u64::from(listed.inode.0),
        off: listed.cookie,
        // Names have at most 255 bytes.
        namelen: listed.name.len() as u32,
        kind,
    })?;
    reply.put_bytes(&listed.name)?;
    reply.put_bytes(&[0; 8][..padding])?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::message::ReplyBuffer;
    use extant_ondisk::InodeNo;

    #[test]
    fn entries_are_padded_and_stop_at_the_limit() {
        let listed = |name: &[u8]| Listed {
            inode: InodeNo(12),
            file_type: EntryType::Regular,
            name: name.to_vec(),
            cookie: 5,
        };
        let mut buffer = ReplyBuffer::new();
        let mut reply = buffer.reply();
        assert_eq!(put_listed(&mut reply, 64, &listed(b"a"), 8, None), Ok(true));
        assert_eq!(reply.len(), 32);
        assert_eq!(put_listed(&mut reply, 64, &listed(b"12345678"), 8, None), Ok(true));
        assert_eq!(reply.len(), 64);
        assert_eq!(put_listed(&mut reply, 64, &listed(b"b"), 8, None), Ok(false));
        assert_eq!(reply.len(), 64, "what does not fit leaves nothing");
    }

    #[test]
    fn kinds_of_entries_are_those_of_modes() {
        assert_eq!(kind_of(EntryType::Directory), Some(kind_of_mode(0o040755)));
        assert_eq!(kind_of(EntryType::Regular), Some(kind_of_mode(0o100644)));
        assert_eq!(kind_of(EntryType::Socket), Some(kind_of_mode(0o140644)));
    }
}
