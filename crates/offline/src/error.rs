//! Errors of reads and changes of a volume that is not mounted.

use extant_device::{DeviceError, errno};
use extant_ondisk::{FormatError, InodeNo};

/// An error of a read or change of the volume.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OfflineError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A structure of the volume is invalid.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A file's block map is invalid.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The volume has not enough free space.
    #[error(transparent)]
    NoSpace(#[from] NoSpace),
}

impl OfflineError {
    /// The number that a system call returns for it.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Device(error) => error.errno(),
            Self::Format(error) => format_errno(error),
            Self::Map(MapError::Broken(_)) => errno::EUCLEAN,
            Self::Map(MapError::TooFragmented(_)) | Self::NoSpace(_) => errno::ENOSPC,
        }
    }
}

/// The number that a system call returns for an error of the format.
pub fn format_errno(error: &FormatError) -> i32 {
    if error.is_corruption() { errno::EUCLEAN } else { errno::EOPNOTSUPP }
}

/// An invalid block map.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MapError {
    /// It has blocks outside the volume, or a loop.
    #[error("inode {0}: invalid block map")]
    Broken(InodeNo),
    /// To write it again would need more map blocks than it had.
    #[error("inode {0}: block map does not fit in its blocks")]
    TooFragmented(InodeNo),
}

/// The volume has not enough free space.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NoSpace {
    /// Too few blocks are free.
    #[error("not enough free blocks: {wanted} more needed")]
    Blocks {
        /// Number of blocks missing.
        wanted: u64,
    },
    /// No inode is free.
    #[error("no free inodes")]
    Inodes,
}
