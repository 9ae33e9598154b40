//! Why an overlay cannot be used.

use extant_device::{DeviceError, errno};

/// Why an overlay cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// The file holds something else.
    #[error("not an overlay's file: the header is missing")]
    NotAnOverlay,
    /// The file is a block device.
    #[error("the upper file of an overlay must be a regular file")]
    NotAFile,
    /// The overlay has no file.
    #[error("the overlay has no file to take changes from: give upper=FILE")]
    NoFile,
    /// The file is the base itself.
    #[error("the upper file of an overlay cannot be its base")]
    IsBase,
    /// The file was written by a later version.
    #[error("overlay version {version} is not supported")]
    Version {
        /// The version.
        version: u32,
    },
    /// The header is damaged.
    #[error("damaged overlay: {what}")]
    Corrupt {
        /// The damage.
        what: &'static str,
    },
    /// The base is not what the changes were made to: together they would be neither.
    #[error("the base of the overlay has changed: {difference}")]
    BaseChanged {
        /// The difference.
        difference: &'static str,
    },
    /// A commit was interrupted: the base has some of the changes.
    #[error("a commit of this overlay was interrupted: run extant commit again")]
    CommitInterrupted,
    /// The volume would be changed in part only.
    #[error(
        "the volume has its journal on another device, which no overlay keeps: it cannot be changed"
    )]
    ExternalJournal,
    /// The base has more bytes than the format describes.
    #[error("a base of {size} bytes is too large for an overlay")]
    TooLarge {
        /// Its bytes.
        size: u64,
    },
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl OverlayError {
    /// The number that a system call returns for it.
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotAnOverlay | Self::NotAFile | Self::NoFile | Self::IsBase => errno::EINVAL,
            Self::Version { .. } | Self::ExternalJournal => errno::EOPNOTSUPP,
            Self::Corrupt { .. } | Self::BaseChanged { .. } => errno::EUCLEAN,
            Self::CommitInterrupted => errno::EBUSY,
            Self::TooLarge { .. } => errno::EFBIG,
            Self::Device(error) => error.errno(),
        }
    }
}
