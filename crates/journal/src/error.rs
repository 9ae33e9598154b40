//! Why the journal could not do what was asked.

use extant_device::DeviceError;
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
    /// The volume's journal lies on a device of its own, and none was given.
    #[error("the journal {0} lies on a device of its own: name it")]
    ExternalJournalNeeded(Uuid),
    /// The device given does not hold this volume's journal.
    #[error("the device holds the journal {found}, the volume wants {wanted}")]
    OtherJournal {
        /// What the device holds.
        found: Uuid,
        /// What the volume's superblock names.
        wanted: Uuid,
    },
    /// The journal holds fast commits, which this code cannot replay yet.
    #[error("the journal holds {0} fast commits: replaying them is not supported")]
    FastCommits(u32),
    /// The volume has no journal.
    #[error("the volume has no journal")]
    NoJournal,
}
