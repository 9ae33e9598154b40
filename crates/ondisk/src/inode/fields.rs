//! Stored fields of an inode, file types, device numbers.

use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size in bytes of the fields of every inode, and of whole inodes in ext2, ext3 and revision 0.
pub const GOOD_OLD_INODE_SIZE: u16 = 128;
/// Size of `i_block` in bytes.
pub const I_BLOCK_SIZE: usize = 60;
/// The bits of the mode for the file type.
pub const FILE_TYPE_MASK: u16 = 0xf000;
/// The mode's other bits: permissions, sticky, setgid, setuid.
pub const PERMISSION_MASK: u16 = 0x0fff;
/// Bit of `i_mode`: a program runs with the ID of the file's owner.
pub const SETUID: u16 = 0o4000;
/// Bit of `i_mode`: a program runs with the ID of the file's group, and new files get the group of
/// their directory.
pub const SETGID: u16 = 0o2000;

pub(super) const BASE: usize = GOOD_OLD_INODE_SIZE as usize;

/// The first 128 bytes as stored, little-endian, with the Linux names of fields that depend on the
/// OS.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[allow(missing_docs, reason = "the kernel's field names, documented in inodes.rst")]
pub struct RawInode {
    pub i_mode: U16,
    pub i_uid: U16,
    pub i_size_lo: U32,
    pub i_atime: U32,
    pub i_ctime: U32,
    pub i_mtime: U32,
    pub i_dtime: U32,
    pub i_gid: U16,
    pub i_links_count: U16,
    pub i_blocks_lo: U32,
    pub i_flags: U32,
    /// `osd1`: the version's low half; on the Hurd the translator block.
    pub i_version_lo: U32,
    pub i_block: [u8; I_BLOCK_SIZE],
    pub i_generation: U32,
    pub i_file_acl_lo: U32,
    pub i_size_high: U32,
    pub i_obso_faddr: U32,
    /// `osd2` from here; reserved on the Hurd.
    pub i_blocks_high: U16,
    /// The mode's high half on the Hurd.
    pub i_file_acl_high: U16,
    pub i_uid_high: U16,
    pub i_gid_high: U16,
    /// With the next field, the author on the Hurd.
    pub i_checksum_lo: U16,
    pub i_reserved: U16,
}

/// The fields after the first 128 bytes, up to `i_extra_isize`.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[allow(missing_docs, reason = "the kernel's field names, documented in inodes.rst")]
pub struct RawInodeExtra {
    pub i_extra_isize: U16,
    pub i_checksum_hi: U16,
    pub i_ctime_extra: U32,
    pub i_mtime_extra: U32,
    pub i_atime_extra: U32,
    pub i_crtime: U32,
    pub i_crtime_extra: U32,
    pub i_version_hi: U32,
    pub i_projid: U32,
}

/// `i_extra_isize` of new inodes in large enough records: all known fields.
pub const NEW_EXTRA_ISIZE: u16 = size_of::<RawInodeExtra>() as u16;

pub(super) const CHECKSUM_LO_AT: usize = 0x7c;
pub(super) const CHECKSUM_HI_AT: usize = 0x82;
const _: () = assert!(size_of::<RawInode>() == BASE);
const _: () = assert!(offset_of!(RawInode, i_block) == 0x28);
const _: () = assert!(offset_of!(RawInode, i_generation) == 0x64);
const _: () = assert!(offset_of!(RawInode, i_checksum_lo) == CHECKSUM_LO_AT);
const _: () = assert!(size_of::<RawInodeExtra>() == 32);
const _: () = assert!(BASE + offset_of!(RawInodeExtra, i_checksum_hi) == CHECKSUM_HI_AT);
const _: () = assert!(BASE + offset_of!(RawInodeExtra, i_projid) == 0x9c);

/// End of each field, counted from byte 128: the field exists if `i_extra_isize` is at least that.
pub(super) const CHECKSUM_HI_END: usize = offset_of!(RawInodeExtra, i_checksum_hi) + 2;
pub(super) const CTIME_EXTRA_END: usize = offset_of!(RawInodeExtra, i_ctime_extra) + 4;
pub(super) const MTIME_EXTRA_END: usize = offset_of!(RawInodeExtra, i_mtime_extra) + 4;
pub(super) const ATIME_EXTRA_END: usize = offset_of!(RawInodeExtra, i_atime_extra) + 4;
pub(super) const CRTIME_END: usize = offset_of!(RawInodeExtra, i_crtime) + 4;
pub(super) const CRTIME_EXTRA_END: usize = offset_of!(RawInodeExtra, i_crtime_extra) + 4;
pub(super) const PROJID_END: usize = offset_of!(RawInodeExtra, i_projid) + 4;

/// Whether a field with this end exists.
pub(super) fn has_extra(extra_isize: u16, end: usize) -> bool {
    usize::from(extra_isize) >= end
}

/// Length in bytes of the known fields that exist. `i_extra_isize` is a multiple of 4, so it
/// truncates none.
pub(super) fn whole_fields(extra_isize: u16) -> usize {
    usize::from(extra_isize).min(size_of::<RawInodeExtra>()) / 4 * 4
}

impl RawInodeExtra {
    /// Reads the fields in `room`, the bytes counted by `i_extra_isize`; fields that do not exist
    /// are zero.
    pub fn of_record(room: &[u8]) -> Self {
        let mut extra = Self::new_zeroed();
        let known = room.len().min(size_of::<Self>());
        extra.as_mut_bytes()[..known].copy_from_slice(&room[..known]);
        extra
    }
}

/// The file type in a mode.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum FileType {
    /// A named pipe.
    Fifo,
    /// A character device.
    CharDevice,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A regular file.
    Regular,
    /// A symbolic link.
    Symlink,
    /// A socket.
    Socket,
}

impl FileType {
    /// All types with their mode bits.
    const MODES: [(Self, u16); 7] = [
        (Self::Fifo, 0x1000),
        (Self::CharDevice, 0x2000),
        (Self::Directory, 0x4000),
        (Self::BlockDevice, 0x6000),
        (Self::Regular, 0x8000),
        (Self::Symlink, 0xa000),
        (Self::Socket, 0xc000),
    ];

    /// The type in a mode; `None` if it has none.
    pub fn of_mode(mode: u16) -> Option<Self> {
        let bits = mode & FILE_TYPE_MASK;
        Self::MODES.iter().find(|(_, of_type)| *of_type == bits).map(|(file_type, _)| *file_type)
    }

    /// The mode bits of the type.
    pub fn mode(self) -> u16 {
        Self::MODES.iter().find(|(file_type, _)| *file_type == self).map_or(0, |(_, bits)| *bits)
    }
}

/// A device number.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct DeviceNumber {
    /// The device type: 12 bits are stored.
    pub major: u32,
    /// The device of that type: 20 bits are stored.
    pub minor: u32,
}

impl DeviceNumber {
    /// Decodes `i_block`: the first word has the old format of two bytes, or is 0 and the second
    /// word has the new format.
    pub fn decode(i_block: &[u8; I_BLOCK_SIZE]) -> Self {
        let word = |at: usize| {
            u32::from_le_bytes([i_block[at], i_block[at + 1], i_block[at + 2], i_block[at + 3]])
        };
        match (word(0), word(4)) {
            (0, new) => Self { major: new >> 8 & 0xfff, minor: new & 0xff | new >> 12 & 0xf_ff00 },
            (old, _) => Self { major: old >> 8 & 0xff, minor: old & 0xff },
        }
    }

    /// Encodes `i_block` of a device file, in the old format if possible, as Linux does. `None` if
    /// the number does not fit.
    pub fn encode(self) -> Option<[u8; I_BLOCK_SIZE]> {
        let Self { major, minor } = self;
        if major > 0xfff || minor > 0xf_ffff {
            return None;
        }
        let mut i_block = [0; I_BLOCK_SIZE];
        if major < 256 && minor < 256 {
            i_block[..4].copy_from_slice(&(major << 8 | minor).to_le_bytes());
        } else {
            let new = minor & 0xff | major << 8 | (minor & 0xf_ff00) << 12;
            i_block[4..8].copy_from_slice(&new.to_le_bytes());
        }
        Some(i_block)
    }
}
