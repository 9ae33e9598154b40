//! Why a volume is not changed.

use extant_device::DeviceError;
use extant_journal::JournalError;
use extant_offline::OfflineError;
use extant_ondisk::FormatError;

use crate::mkfs::MkfsError;

/// A refusal or a failure of tune.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// A request is invalid, alone or for this volume.
    #[error("{0}")]
    Invalid(String),
    /// Part of tune2fs, but not of this version.
    #[error("{0} is not built yet")]
    NotBuilt(String),
    /// The volume is not clean, so that its structures cannot be relied on.
    #[error("{0} needs a freshly checked volume: run extant fsck -f first")]
    NeedsCheck(String),
    /// Another program has the volume open, or did not close it.
    #[error("{0}")]
    InUse(String),
    /// A value as mkfs takes it.
    #[error(transparent)]
    Value(#[from] MkfsError),
    /// The journal cannot be replayed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The volume cannot be changed.
    #[error(transparent)]
    Volume(#[from] OfflineError),
    /// Bytes of the volume are broken.
    #[error("{0}: run extant fsck -f first")]
    Broken(#[from] FormatError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl TuneError {
    /// The volume cannot even be opened.
    pub(super) fn unusable(error: OfflineError) -> Self {
        match error {
            OfflineError::Format(error @ FormatError::Corrupt { .. }) => Self::Broken(error),
            error => Self::Volume(error),
        }
    }

    pub(super) fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid(text.into())
    }
}
