//! Why the journal could not do what was asked.

use std::path::PathBuf;
use std::sync::Arc;

use extant_device::DeviceError;
use extant_offline::OfflineError;
use extant_ondisk::{FormatError, Uuid};

/// Why the journal could not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// Bytes of the volume or of the journal are broken, or beyond this code.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The volume's journal lies on a device of its own, which was neither given nor found.
    #[error("the journal is on another device (UUID {0}), which was not found")]
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
    #[error("the journal's device holds {held} of the {wanted} blocks that it should")]
    DeviceTooShort {
        /// Blocks on the device.
        held: u64,
        /// Blocks that its superblock counts.
        wanted: u64,
    },
    /// The device given does not hold this volume's journal.
    #[error("the device holds the journal {found}, the volume wants {wanted}")]
    OtherJournal {
        /// What the device holds.
        found: Uuid,
        /// What the volume's superblock names.
        wanted: Uuid,
    },
    /// A fast commit says something that cannot be put in force.
    #[error("fast commit: {0}")]
    FastCommit(&'static str),
    /// A file of the volume cannot be changed.
    #[error(transparent)]
    Volume(OfflineError),
    /// The log holds transactions: it must be recovered before it is written.
    #[error("the journal must be recovered first")]
    NotRecovered,
    /// The log is too short to work with.
    #[error("a journal with a log of {0} blocks is too small")]
    TooSmall(u32),
    /// One operation wants to change more blocks than one transaction can hold.
    #[error("{asked} blocks are more than the {limit} that one transaction holds")]
    TooManyCredits {
        /// What it asked for.
        asked: u32,
        /// What there is.
        limit: u32,
    },
    /// A transaction has more blocks than the log.
    #[error("a transaction of {needed} blocks does not fit into a log of {size}")]
    TooLarge {
        /// Its blocks.
        needed: u32,
        /// The log's.
        size: u32,
    },
    /// An earlier failure stopped the journal: nothing is written any more.
    #[error("read-only after an earlier failure: {0}")]
    Aborted(#[source] Arc<JournalError>),
    /// An operation has failed, and what it had changed could not be taken back.
    #[error("half a change could not be taken back")]
    HalfDone,
    /// The volume has no journal.
    #[error("the volume has no journal")]
    NoJournal,
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
