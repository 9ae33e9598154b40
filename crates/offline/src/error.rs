//! Why a volume could not be read or changed.

use extant_device::DeviceError;
use extant_ondisk::{FormatError, InodeNo};

/// Why a volume could not be changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OfflineError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Bytes of the volume are broken.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A file's map is broken.
    #[error(transparent)]
    Map(#[from] MapError),
    /// There is no room.
    #[error(transparent)]
    NoSpace(#[from] NoSpace),
}

/// A map that makes no sense.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MapError {
    /// It leads off the volume, or round in circles.
    #[error("the block map of inode {0} is broken")]
    Broken(InodeNo),
    /// Written anew, it would need more blocks than it had.
    #[error("the block map of inode {0} cannot be written in the blocks that it has")]
    TooFragmented(InodeNo),
}

/// There is no room.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NoSpace {
    /// Not so many blocks are free.
    #[error("{wanted} more blocks are needed than are free")]
    Blocks {
        /// Blocks that were wanted and not had.
        wanted: u64,
    },
    /// No inode is free.
    #[error("no inode is free")]
    Inodes,
}
