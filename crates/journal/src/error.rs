//! Errors of the journal.

use std::path::PathBuf;
use std::sync::Arc;

use extant_device::{DeviceError, errno};
use extant_offline::{OfflineError, format_errno};
use extant_ondisk::{FormatError, Uuid};

/// An error of the journal.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// Bytes of the volume or of the journal are invalid, or their format is not supported.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The volume's journal is on an external device, which was neither given nor found.
    #[error("external journal not found: UUID {0}")]
    ExternalJournalNeeded(Uuid),
    /// The journal's device was found, but its list of users lacks the volume.
    #[error("the journal (UUID {uuid}) is on {}, which does not list this file system", device.display())]
    NotListed {
        /// The journal.
        uuid: Uuid,
        /// Where it was found.
        device: PathBuf,
    },
    /// Two devices hold the journal, and the volume stores the number of neither.
    #[error("the journal (UUID {uuid}) is on two devices, {} and {}", devices[0].display(), devices[1].display())]
    OnTwoDevices {
        /// The journal.
        uuid: Uuid,
        /// The first ones of them.
        devices: [PathBuf; 2],
    },
    /// The journal's device ends before its superblock says.
    #[error("journal device too small: {held} of {wanted} blocks")]
    DeviceTooShort {
        /// Blocks on the device.
        held: u64,
        /// Blocks that its superblock counts.
        wanted: u64,
    },
    /// The device given does not hold this volume's journal.
    #[error("wrong external journal: UUID {found}, expected {wanted}")]
    OtherJournal {
        /// UUID of the journal on the device.
        found: Uuid,
        /// UUID in the volume's superblock.
        wanted: Uuid,
    },
    /// A fast commit has content that cannot be replayed.
    #[error("fast commit: {0}")]
    FastCommit(&'static str),
    /// A file of the volume cannot be changed.
    #[error(transparent)]
    Volume(OfflineError),
    /// The log holds transactions: it must be recovered before it is written.
    #[error("the journal must be recovered first")]
    NotRecovered,
    /// The log has fewer blocks than the journal needs.
    #[error("journal too small: log of {0} blocks")]
    TooSmall(u32),
    /// One operation asks for more credits than one transaction has.
    #[error("operation of {asked} blocks exceeds the transaction limit of {limit}")]
    TooManyCredits {
        /// Number of blocks that it asks for.
        asked: u32,
        /// Number of blocks that a transaction holds.
        limit: u32,
    },
    /// A transaction has more blocks than the log.
    #[error("transaction of {needed} blocks does not fit in a log of {size}")]
    TooLarge {
        /// Number of blocks of the transaction.
        needed: u32,
        /// Number of blocks of the log.
        size: u32,
    },
    /// An earlier failure aborted the journal: it writes nothing more.
    #[error("read-only after an earlier failure: {0}")]
    Aborted(#[source] Arc<JournalError>),
    /// An operation failed, and its changes could not be rolled back.
    #[error("failed operation could not be rolled back")]
    HalfDone,
    /// The volume has no journal.
    #[error("the volume has no journal")]
    NoJournal,
}

impl JournalError {
    /// The number that a system call returns for it.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Format(error) => format_errno(error),
            Self::Device(error) => error.errno(),
            Self::ExternalJournalNeeded(_) | Self::NoJournal => errno::ENOENT,
            Self::NotListed { .. } | Self::OnTwoDevices { .. } | Self::OtherJournal { .. } => {
                errno::EINVAL
            }
            Self::DeviceTooShort { .. } | Self::FastCommit(_) => errno::EUCLEAN,
            Self::Volume(error) => error.errno(),
            Self::NotRecovered | Self::Aborted(_) => errno::EROFS,
            Self::TooSmall(_) | Self::TooManyCredits { .. } | Self::TooLarge { .. } => {
                errno::ENOSPC
            }
            Self::HalfDone => errno::EIO,
        }
    }
}

impl JournalError {
    /// Whether the journal's own device was not found for sure, so that it must be named.
    pub fn wants_device(&self) -> bool {
        use JournalError::{ExternalJournalNeeded, NotListed, OnTwoDevices};
        matches!(self, ExternalJournalNeeded(_) | NotListed { .. } | OnTwoDevices { .. })
    }
}

impl From<OfflineError> for JournalError {
    fn from(error: OfflineError) -> Self {
        match error {
            OfflineError::Device(error) => Self::Device(error),
            OfflineError::Format(error) => Self::Format(error),
            other => Self::Volume(other),
        }
    }
}
