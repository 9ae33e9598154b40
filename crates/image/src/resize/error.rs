//! Why a volume is not resized.

use extant_device::{DeviceError, FileError, errno};
use extant_journal::JournalError;
use extant_layout::tables::NoRoom;
use extant_offline::{OfflineError, format_errno};
use extant_ondisk::FormatError;

use crate::mkfs::MkfsError;

/// A refusal or a failure of a resize.
#[derive(Debug, thiserror::Error)]
pub enum ResizeError {
    /// The volume was not checked since it was last mounted, or is not clean.
    #[error("the volume must be checked first: run extant fsck -f")]
    NeedsCheck,
    /// The volume's features do not admit the size.
    #[error("{blocks} blocks are too many: at most {most} fit")]
    TooLarge {
        /// The size asked for, in blocks.
        blocks: u64,
        /// The largest size, in blocks.
        most: u64,
    },
    /// The size has less room than what is there needs.
    #[error("{blocks} blocks are too few: at least {least} are needed")]
    TooSmall {
        /// The size asked for, in blocks.
        blocks: u64,
        /// The smallest size, in blocks.
        least: u64,
    },
    /// The device is shorter than the size asked for.
    #[error("the device has {held} blocks only, and {blocks} were asked for")]
    DeviceTooShort {
        /// The size asked for, in blocks.
        blocks: u64,
        /// Size of the device, in blocks.
        held: u64,
    },
    /// Descriptors of 64 bytes need the feature `extents`.
    #[error("64bit requires the feature extents: set it first (extant tune -O extents)")]
    NoExtents,
    /// 64bit does not change with a journal on a device of its own.
    #[error(
        "64bit cannot be switched with an external journal: remove it first (extant tune -O ^has_journal)"
    )]
    ExternalJournal,
    /// A group counts more than descriptors of 32 bytes can.
    #[error("64bit cannot be switched off: groups of {0} clusters or inodes need it")]
    GroupTooLarge(u32),
    /// Blocks next to the descriptors cannot move.
    #[error(
        "64bit cannot be switched: too few free blocks to move what lies next to the descriptors"
    )]
    NoRoomToMove,
    /// A feature bars the change.
    #[error("a volume with {0}: its blocks and inodes cannot move")]
    Barred(&'static str),
    /// The volume has no journal.
    #[error("the volume has no journal: add one first (extant tune -j)")]
    NoJournal,
    /// The size of a journal on another device is that of the device.
    #[error("the journal is on another device: its size is that of the device")]
    JournalElsewhere,
    /// No size, or a volume of too few blocks for a journal.
    #[error("not a size of a journal for a volume of this size")]
    NoJournalSize,
    /// A journal cannot have the size.
    #[error(transparent)]
    JournalSize(MkfsError),
    /// The device of the journal cannot be opened.
    #[error(transparent)]
    JournalDevice(#[from] FileError),
    /// Another program has the volume open, or did not close it (multiple-mount protection).
    #[error("MMP: the volume is in use on {node:?}, or was not closed there; run extant fsck")]
    InUse {
        /// Name of the host as the MMP block stores it, escaped.
        node: String,
    },
    /// The tables of a new block group find no room.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The journal cannot be replayed or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The volume cannot be opened or changed.
    #[error(transparent)]
    Volume(OfflineError),
    /// Bytes of the volume are broken.
    #[error("{0}: run extant fsck -f first")]
    Broken(#[from] FormatError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl From<OfflineError> for ResizeError {
    fn from(error: OfflineError) -> Self {
        match error {
            OfflineError::Format(error @ FormatError::Corrupt { .. }) => Self::Broken(error),
            other => Self::Volume(other),
        }
    }
}

impl ResizeError {
    /// The number that a system call returns for it (`ENOSPC` is 28).
    pub fn errno(&self) -> i32 {
        match self {
            Self::NeedsCheck => errno::EUCLEAN,
            Self::TooLarge { .. } => errno::EFBIG,
            Self::TooSmall { .. }
            | Self::DeviceTooShort { .. }
            | Self::NoRoom(_)
            | Self::NoRoomToMove => errno::ENOSPC,
            Self::NoJournalSize | Self::JournalSize(_) => errno::EINVAL,
            Self::NoJournal
            | Self::JournalElsewhere
            | Self::Barred(_)
            | Self::NoExtents
            | Self::ExternalJournal
            | Self::GroupTooLarge(_) => errno::EOPNOTSUPP,
            Self::JournalDevice(error) => error.errno(),
            Self::InUse { .. } => errno::EBUSY,
            Self::Journal(error) => error.errno(),
            Self::Volume(error) => error.errno(),
            Self::Broken(error) => format_errno(error),
            Self::Device(error) => error.errno(),
        }
    }

    /// The kind of error in std's words.
    pub fn kind(&self) -> std::io::ErrorKind {
        errno::kind(self.errno())
    }
}
