//! Why an image is not built.

use std::path::PathBuf;

use extant_device::{DeviceError, FileError, errno};
use extant_layout::pack::TooManyNames;
use extant_offline::format_errno;
use extant_ondisk::FormatError;

use crate::mkfs::MkfsError;
use crate::source::{EntryName, SourceError};

/// A refusal or a failure of build. Nothing of the image is left where it was to be.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The sources.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The options of the file system.
    #[error(transparent)]
    Mkfs(#[from] MkfsError),
    /// The device that is written to.
    #[error(transparent)]
    Place(#[from] extant_storage::UrlError),
    /// A node exceeds the limits of the format, or of the chosen features.
    #[error("{path}: {limit}")]
    Limit {
        /// In the image.
        path: EntryName,
        /// The limit.
        limit: Limit,
    },
    /// An attribute finds no room.
    #[error(
        "{path}: no room for the extended attribute {name} ({needed} bytes){}",
        if *.has_ea_inodes { "" } else { "; the feature ea_inode, larger blocks or larger inodes make room" }
    )]
    XattrRoom {
        /// A node that has it.
        path: EntryName,
        /// The attribute.
        name: String,
        /// Bytes that entry and value take.
        needed: usize,
        /// Whether large values may have inodes of their own.
        has_ea_inodes: bool,
    },
    /// An attribute's name has no place in ext4.
    #[error("{path}: ext4 has no place for an extended attribute of the name {name}")]
    XattrName {
        /// A node that has it.
        path: EntryName,
        /// Its full name.
        name: EntryName,
    },
    /// An access control list that is not one.
    #[error("{path}: {source}")]
    Acl {
        /// A node that has it.
        path: EntryName,
        /// The flaw.
        source: FormatError,
    },
    /// The format of the new volume; a mistake of our own or an impossible option.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// More files than inode numbers.
    #[error("too many files: {count} (maximum {most})")]
    TooManyFiles {
        /// Files of the sources.
        count: u64,
        /// The limit.
        most: u64,
    },
    /// The tree does not fit the requested size.
    #[error(
        "the tree does not fit into {room} blocks of {block_size} bytes: the smallest volume that holds it has {needed}"
    )]
    NoSpace {
        /// Blocks of the smallest volume with these options.
        needed: u64,
        /// Number of blocks of the requested size.
        room: u64,
        /// Bytes a block.
        block_size: u32,
    },
    /// The tree does not fit a volume of given parameters.
    #[error(
        "the tree does not fit into {room} blocks of {block_size} bytes: {missing} more are needed"
    )]
    Missing {
        /// Blocks that are too few, at least.
        missing: u64,
        /// Blocks of the volume.
        room: u64,
        /// Bytes a block.
        block_size: u32,
    },
    /// The requested size is more than a device or partition has.
    #[error(
        "{}: the requested size is {wanted} bytes, but the device has {room}: use --size device",
        path.display()
    )]
    LargerThanDevice {
        /// The device.
        path: PathBuf,
        /// Bytes requested.
        wanted: u64,
        /// Bytes of the device.
        room: u64,
    },
    /// There are fewer inodes than files.
    #[error("too few inodes: {needed} needed, but the options allow {given}")]
    NoInodes {
        /// Inodes needed, the reserved ones included.
        needed: u64,
        /// Inodes of the volume.
        given: u64,
    },
    /// An option that build does not do.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
    /// No size was found for an image without a given size.
    #[error("cannot choose a size: none was found in which the tree fits")]
    NoFittingSize,
    /// The image cannot be opened.
    #[error(transparent)]
    Output(#[from] FileError),
    /// The image cannot be written.
    #[error("{}: {source}", path.display())]
    Write {
        /// The image.
        path: PathBuf,
        /// The path.
        source: DeviceError,
    },
    /// A system call other than read and write failed.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation: a verb that follows "cannot".
        action: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}

impl BuildError {
    /// The number that a system call returns for it (`ENOENT` is 2).
    pub fn errno(&self) -> i32 {
        match self {
            Self::Source(error) => error.errno(),
            Self::Mkfs(error) => error.errno(),
            Self::Place(error) => error.errno(),
            Self::Limit { limit, .. } => limit.errno(),
            Self::XattrName { .. } | Self::Acl { .. } => errno::EINVAL,
            Self::Format(error) => format_errno(error),
            Self::XattrRoom { .. }
            | Self::TooManyFiles { .. }
            | Self::NoSpace { .. }
            | Self::Missing { .. }
            | Self::LargerThanDevice { .. }
            | Self::NoInodes { .. }
            | Self::NoFittingSize => errno::ENOSPC,
            Self::Unsupported(_) => errno::EOPNOTSUPP,
            Self::Output(error) => error.errno(),
            Self::Write { source, .. } => source.errno(),
            Self::Io { source, .. } => errno::of_io(source),
        }
    }

    /// The kind of error in std's words.
    pub fn kind(&self) -> std::io::ErrorKind {
        errno::kind(self.errno())
    }
}

/// A limit of the format, or of the features chosen, for one node.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Limit {
    /// A file with too many blocks.
    #[error("{blocks} blocks: a file of this volume has at most {max}")]
    FileBlocks {
        /// Blocks of the file.
        blocks: u64,
        /// Maximum.
        max: u64,
    },
    /// A file so large that its count of sectors needs the feature `huge_file`.
    #[error("2 TiB and more of data need the feature huge_file")]
    HugeFile,
    /// A target of a symbolic link that is larger than a block.
    #[error("a target of {bytes} bytes does not fit a block of {block_size}")]
    Symlink {
        /// Bytes of the target.
        bytes: u64,
        /// Bytes of a block.
        block_size: u64,
    },
    /// Too many names of one file.
    #[error("{links} hard links: ext4 counts at most {max}")]
    Links {
        /// Number of names.
        links: u32,
        /// Maximum.
        max: u32,
    },
    /// A directory with more names than its index supports.
    #[error(transparent)]
    Index(#[from] TooManyNames),
    /// A directory so large that it needs the feature `large_dir`.
    #[error("{0} bytes of names need the feature large_dir")]
    LargeDirectory(u64),
    /// Too many directories in one directory.
    #[error("{count} subdirectories: without dir_nlink and dir_index there are at most {max}")]
    Subdirectories {
        /// Number of directories.
        count: u32,
        /// Maximum.
        max: u32,
    },
    /// A `lost+found` that is not a directory.
    #[error("must be a directory: e2fsck uses it")]
    LostFound,
}

impl Limit {
    /// The number that a system call returns for it (`ENOENT` is 2).
    pub fn errno(&self) -> i32 {
        match self {
            Self::FileBlocks { .. } | Self::HugeFile => errno::EFBIG,
            Self::Symlink { .. } => errno::ENAMETOOLONG,
            Self::Links { .. } | Self::Subdirectories { .. } => errno::EMLINK,
            Self::Index(_) | Self::LargeDirectory(_) => errno::ENOSPC,
            Self::LostFound => errno::EEXIST,
        }
    }
}
