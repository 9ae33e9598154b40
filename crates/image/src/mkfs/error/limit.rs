//! Sizes beyond a limit: too large for the format or the device, or too small for the volume's own
//! structures.

use std::path::PathBuf;

use extant_device::errno;
use extant_layout::pack::TooManyNames;
use extant_layout::tables::NoRoom;
use extant_offline::format_errno;
use extant_ondisk::FormatError;

/// A number of blocks as options give it, in MiB or KiB, and in blocks.
fn in_bytes(blocks: u64, block_size: u64) -> String {
    let kib = blocks.saturating_mul(block_size) >> 10;
    match kib % 1024 {
        0 => format!("{} MiB ({blocks} blocks)", kib >> 10),
        _ => format!("{kib} KiB ({blocks} blocks)"),
    }
}

/// A size or count beyond what the format, the device or the machine can hold.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SizeError {
    /// The file does not exist, and the size was not given.
    #[error("the file {} does not exist and no size was specified", .0.display())]
    Missing(PathBuf),
    /// Blocks that are smaller than the device's sectors.
    #[error("blocks of {bytes} bytes are smaller than the device's sectors of {sector}")]
    BlockBelowSector {
        /// Bytes of a block.
        bytes: u32,
        /// Bytes of a sector.
        sector: u32,
    },
    /// Blocks that are larger than the kernel's pages, without `-F`.
    #[error("{bytes}-byte blocks are too big for the system (max {max}): not made without -F")]
    BlockAbovePage {
        /// Bytes of a block.
        bytes: u32,
        /// Bytes of a page.
        max: u32,
    },
    /// More blocks than 32 bits can number, without `64bit`.
    #[error("a size of {0} blocks is too big to be expressed in 32 bits")]
    Above32Bits(u64),
    /// More blocks than the format can number.
    #[error("{0} blocks are more than the format can number")]
    AboveFormat(u64),
    /// More block groups than 32 bits can number.
    #[error("too many block groups")]
    Groups,
    /// `-N` of more inodes than 32 bits can number.
    #[error("too many inodes ({0}), specify < 2^32 inodes")]
    InodesAsked(u64),
    /// A ratio that gives more inodes than 32 bits can number.
    #[error("too many inodes ({0}), raise inode ratio?")]
    InodesOfRatio(u64),
    /// A size of the journal out of its range.
    #[error(
        "the total requested journal size is {}; it must be between {} and {}",
        in_bytes(*total, *block_size), in_bytes(*min, *block_size), in_bytes(*max, *block_size)
    )]
    Journal {
        /// Blocks asked for.
        total: u64,
        /// Minimum, in blocks.
        min: u64,
        /// Maximum, in blocks.
        max: u64,
        /// Bytes of a block.
        block_size: u64,
    },
    /// A journal of at least half of the file system.
    #[error("total journal size too big for filesystem")]
    JournalTooBig,
    /// A journal device with more blocks than 32 bits can number.
    #[error("a journal device has at most 2^32-1 blocks")]
    JournalDevice,
    /// More bytes than a file can have.
    #[error("the file system is too large for a file")]
    File,
    /// The file system does not fit on its device.
    #[error("the file system size of {end} bytes is larger than the device's {size}")]
    BeyondDevice {
        /// Bytes up to the end of the file system.
        end: u64,
        /// Bytes of the device.
        size: u64,
    },
    /// More bad blocks than the map of their inode can hold.
    #[error("{0} bad blocks are too many")]
    BadBlocks(u64),
    /// A map of bad blocks that is too deep.
    #[error("too many bad blocks")]
    BadBlockMap,
    /// A bad block where only the superblock and the descriptors can be.
    #[error(
        "block {block} in primary superblock/group descriptor area bad: blocks {first} through {last} must be good in order to build a filesystem"
    )]
    BadStart {
        /// The bad block.
        block: u64,
        /// First block of the area.
        first: u64,
        /// Last block of the area.
        last: u64,
    },
}

impl SizeError {
    /// The number that a system call returns for it (`ENOENT` is 2).
    pub fn errno(&self) -> i32 {
        match self {
            Self::Missing(_) => errno::ENOENT,
            Self::Above32Bits(_) | Self::AboveFormat(_) | Self::File => errno::EFBIG,
            Self::BeyondDevice { .. } => errno::ENOSPC,
            Self::BadStart { .. } => errno::EIO,
            _ => errno::EINVAL,
        }
    }
}

/// A structure or a file for which the file system is too small.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Shortage {
    /// Its own structures.
    #[error("{0} blocks")]
    Blocks(u64),
    /// The smallest journal.
    #[error("a journal has at least {min} blocks")]
    Journal {
        /// Minimum, in blocks.
        min: u64,
    },
    /// Bitmaps and inode table of a group.
    #[error(transparent)]
    Tables(#[from] NoRoom),
    /// The index of a directory.
    #[error(transparent)]
    Directory(#[from] TooManyNames),
    /// Inodes of the files that it is filled with.
    #[error("{files} files need more than {inodes} inodes")]
    Files {
        /// Number of files.
        files: u64,
        /// Number of free inodes.
        inodes: u64,
    },
    /// One more inode.
    #[error("no free inode is left")]
    Inode,
    /// Blocks of a file.
    #[error("{0} more blocks are needed")]
    Missing(u64),
    /// A file that is mapped without extents.
    #[error("a file is too large for indirect blocks")]
    IndirectFile,
    /// The room that `hugefiles_slack` leaves free.
    #[error("hugefiles_slack is more than what is free")]
    Slack,
    /// Inodes of the huge files.
    #[error("{0} huge files need as many inodes")]
    HugeFiles(u64),
}

/// Why a device cannot be the journal of a file system (`-J device=`).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum JournalDeviceError {
    /// It has no valid superblock.
    #[error("not a journal device: {0}")]
    NoSuperblock(FormatError),
    /// It holds a file system.
    #[error("not a journal device: it holds a file system")]
    FileSystem,
    /// Its blocks have another size.
    #[error("the journal's blocks have {journal} bytes, the file system's {volume}")]
    BlockSize {
        /// Bytes of the journal's blocks.
        journal: u32,
        /// Bytes of the file system's blocks.
        volume: u32,
    },
    /// The superblock of its log is invalid.
    #[error(transparent)]
    Log(#[from] FormatError),
    /// Its list of users is full.
    #[error("the journal has {0} users already")]
    Users(usize),
}

impl JournalDeviceError {
    /// The number that a system call returns for it (`ENOENT` is 2).
    pub fn errno(&self) -> i32 {
        match self {
            Self::NoSuperblock(_) | Self::FileSystem | Self::BlockSize { .. } => errno::EINVAL,
            Self::Log(error) => format_errno(error),
            Self::Users(_) => errno::ENOSPC,
        }
    }
}
