//! Inodes as the kernel's FUSE sees them.

use extant_ondisk::inode::FileType;
use extant_ondisk::time::Timestamp;
use extant_ondisk::{Geometry, InodeNo};
use extant_reader::LoadedInode;
use extant_runtime::env::WallTime;

/// The root's number in FUSE.
const FUSE_ROOT: u64 = 1;

/// The number under which FUSE knows an inode: its own, but for the root's.
///
/// No other inode has the number 1 there: ext4's inode 1 has no name.
pub(crate) fn node_of(inode: InodeNo) -> u64 {
    if inode == InodeNo::ROOT { FUSE_ROOT } else { u64::from(inode.0) }
}

/// The inode of a number of FUSE's; `None` for one that was never given out.
pub(crate) fn inode_of(node: u64) -> Option<InodeNo> {
    match node {
        FUSE_ROOT => Some(InodeNo::ROOT),
        _ => u32::try_from(node).ok().filter(|number| *number > InodeNo::ROOT.0).map(InodeNo),
    }
}

/// The attributes of a file, as in stat.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Attributes {
    /// Inode number.
    pub inode: InodeNo,
    /// Changes when the number is reused.
    pub generation: u32,
    /// Bytes.
    pub size: u64,
    /// Space in use, in units of 512 bytes.
    pub sectors: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// When it was made, where the inode has room for that.
    pub btime: Option<Timestamp>,
    /// Type and permissions as in `i_mode`.
    pub mode: u16,
    /// The type alone.
    pub file_type: FileType,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number as the kernel's `new_encode_dev` has it; 0 for other files.
    pub rdev: u32,
    /// Bytes that are best read at once.
    pub block_size: u32,
}

impl Attributes {
    /// Of an inode.
    pub(crate) fn of(inode: &LoadedInode, geometry: &Geometry) -> Self {
        Self {
            inode: inode.number,
            generation: inode.generation,
            size: inode.size,
            sectors: inode.space(geometry) / 512,
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            btime: inode.crtime,
            mode: inode.mode,
            file_type: inode.file_type(),
            links: u32::from(inode.links),
            uid: inode.uid,
            gid: inode.gid,
            rdev: inode.device().map_or(0, |device| encode_device(device.major, device.minor)),
            block_size: geometry.block_size,
        }
    }
}

/// A device number in 32 bits, as FUSE carries it: 12 bits of major, 20 of minor, the minor's upper
/// 12 on top.
pub(crate) fn encode_device(major: u32, minor: u32) -> u32 {
    minor & 0xff | (major & 0xfff) << 8 | (minor & 0xfff00) << 12
}

/// The major and the minor number in it.
pub(crate) fn decode_device(device: u32) -> (u32, u32) {
    (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00)
}

/// Now, as a stamp.
pub(crate) fn timestamp(now: WallTime) -> Timestamp {
    Timestamp::new(now.seconds, now.nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_the_only_inode_with_another_number() {
        assert_eq!(node_of(InodeNo::ROOT), 1);
        assert_eq!(inode_of(1), Some(InodeNo::ROOT));
        assert_eq!((node_of(InodeNo(11)), inode_of(11)), (11, Some(InodeNo(11))));
        assert_eq!((inode_of(0), inode_of(2), inode_of(1 << 32)), (None, None, None));
    }

    #[test]
    fn device_numbers_come_back() {
        for (major, minor) in [(0, 0), (8, 1), (259, 0), (4095, 0xf_ffff), (10, 229)] {
            assert_eq!(decode_device(encode_device(major, minor)), (major, minor));
        }
        assert_eq!(encode_device(8, 1), 0x801);
        assert_eq!(encode_device(1, 256), 0x10_0100);
    }
}
