//! Why a volume is not changed.

mod change;
mod request;

pub use change::{ChangeError, FeatureChange, Unsupported, Work};
pub use request::{ExtendedError, RequestError};

use extant_device::{DeviceError, errno};
use extant_journal::JournalError;
use extant_layout::pack::TooManyNames;
use extant_offline::{OfflineError, format_errno};
use extant_ondisk::FormatError;

use crate::mkfs::MkfsError;

/// A refusal or a failure of tune.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// An option is invalid whatever the volume.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The volume does not admit the change.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// A directory does not fit its index.
    #[error(transparent)]
    Directory(#[from] TooManyNames),
    /// Part of tune2fs, but not of this version.
    #[error("{0} is not supported yet")]
    Unsupported(Unsupported),
    /// The volume is not clean, so that its structures cannot be relied on.
    #[error("{0} needs a freshly checked volume: run extant fsck -f first")]
    NeedsCheck(Work),
    /// Another program has the volume open, or did not close it (multiple-mount protection).
    #[error(
        "MMP: the volume is in use on {node:?}, or was not closed there; run extant fsck, or with -f -E clear_mmp forget it"
    )]
    InUse {
        /// Name of the host as the MMP block stores it, escaped.
        node: String,
    },
    /// A value as mkfs takes it.
    #[error(transparent)]
    Value(#[from] MkfsError),
    /// The journal cannot be replayed.
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

impl TuneError {
    /// The number that a system call returns for it (`ENOENT` is 2).
    pub fn errno(&self) -> i32 {
        match self {
            Self::Request(_) => errno::EINVAL,
            Self::Change(error) => error.errno(),
            Self::Directory(_) => errno::ENOSPC,
            Self::Unsupported(_) => errno::EOPNOTSUPP,
            Self::NeedsCheck(_) => errno::EUCLEAN,
            Self::InUse { .. } => errno::EBUSY,
            Self::Value(error) => error.errno(),
            Self::Journal(error) => error.errno(),
            Self::Volume(error) => error.errno(),
            Self::Broken(error) => format_errno(error),
            Self::Device(error) => error.errno(),
        }
    }

    /// Whether the request is invalid whatever the volume: the command line is wrong.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Request(_) | Self::Value(MkfsError::Value(_) | MkfsError::BadFeatures(_))
        )
    }

    /// The kind of error in std's words.
    pub fn kind(&self) -> std::io::ErrorKind {
        errno::kind(self.errno())
    }
}

impl From<OfflineError> for TuneError {
    fn from(error: OfflineError) -> Self {
        match error {
            OfflineError::Format(error @ FormatError::Corrupt { .. }) => Self::Broken(error),
            error => Self::Volume(error),
        }
    }
}
