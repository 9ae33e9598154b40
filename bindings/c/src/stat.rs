//! Attributes of files and volumes, as C has them.

use std::time::{SystemTime, UNIX_EPOCH};

use extant::{DeviceNumber, FileType, Metadata, StatFs, Timestamp};

use crate::error::Failure;

/// A time: seconds since 1970, negative before it, and nanoseconds after the second.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct extant_time {
    /// Seconds since 1970 in UTC.
    pub seconds: i64,
    /// Nanoseconds after the second.
    pub nanoseconds: u32,
}

impl From<SystemTime> for extant_time {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => {
                Self { seconds: after.as_secs().cast_signed(), nanoseconds: after.subsec_nanos() }
            }
            Err(error) => {
                let before = error.duration();
                let (seconds, rest) = (before.as_secs().cast_signed(), before.subsec_nanos());
                match rest {
                    0 => Self { seconds: -seconds, nanoseconds: 0 },
                    rest => Self { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - rest },
                }
            }
        }
    }
}

impl extant_time {
    pub(crate) fn checked(self) -> Result<Timestamp, Failure> {
        match self.nanoseconds {
            0..1_000_000_000 => Ok(Timestamp::new(self.seconds, self.nanoseconds)),
            _ => Err(Failure::invalid("invalid number of nanoseconds")),
        }
    }
}

/// The attributes of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct extant_stat {
    /// Bytes of its contents.
    pub size: u64,
    /// Bytes of the volume that it takes.
    pub space: u64,
    /// Last time that the contents were read.
    pub accessed: extant_time,
    /// Last change of the contents.
    pub modified: extant_time,
    /// Last change of the inode.
    pub changed: extant_time,
    /// When it was made; zeroes where the inode has no room for it.
    pub created: extant_time,
    /// Number of the inode.
    pub inode: u32,
    /// Type and permissions, as st_mode.
    pub mode: u32,
    /// Number of hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Flags of the inode, as FS_IOC_GETFLAGS has them.
    pub flags: u32,
    /// Major number of a device file.
    pub device_major: u32,
    /// Minor number of a device file.
    pub device_minor: u32,
}

impl From<&Metadata> for extant_stat {
    fn from(metadata: &Metadata) -> Self {
        let device = metadata.device().unwrap_or(DeviceNumber { major: 0, minor: 0 });
        Self {
            size: metadata.len(),
            space: metadata.space(),
            accessed: metadata.accessed().into(),
            modified: metadata.modified().into(),
            changed: metadata.changed().into(),
            created: metadata.created().unwrap_or(UNIX_EPOCH).into(),
            inode: metadata.inode().0,
            mode: metadata.mode().into(),
            links: metadata.links().into(),
            uid: metadata.uid(),
            gid: metadata.gid(),
            flags: metadata.flags().bits(),
            device_major: device.major,
            device_minor: device.minor,
        }
    }
}

/// Space and inodes of a volume.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct extant_statfs {
    /// Bytes of a block.
    pub block_size: u64,
    /// Number of blocks that files can use.
    pub blocks: u64,
    /// Number of free blocks.
    pub free_blocks: u64,
    /// Number of free blocks that are not reserved.
    pub available_blocks: u64,
    /// Number of inodes.
    pub inodes: u64,
    /// Number of free inodes.
    pub free_inodes: u64,
    /// Identity of the volume.
    pub uuid: [u8; 16],
}

impl From<StatFs> for extant_statfs {
    fn from(found: StatFs) -> Self {
        Self {
            block_size: found.block_size.into(),
            blocks: found.blocks,
            free_blocks: found.free_blocks,
            available_blocks: found.available_blocks,
            inodes: found.inodes.into(),
            free_inodes: found.free_inodes,
            uuid: found.uuid.0,
        }
    }
}

/// The type as the DT_ constants of dirent.h have it.
pub(crate) fn entry_type(file_type: FileType) -> u8 {
    match file_type {
        FileType::Fifo => libc::DT_FIFO,
        FileType::CharDevice => libc::DT_CHR,
        FileType::Directory => libc::DT_DIR,
        FileType::BlockDevice => libc::DT_BLK,
        FileType::Regular => libc::DT_REG,
        FileType::Symlink => libc::DT_LNK,
        FileType::Socket => libc::DT_SOCK,
    }
}
