//! Why a file system is not made.

use std::path::PathBuf;

use super::config::ProfileError;

/// A refusal or a failure of mkfs. Everything but `Device` and `Io` is found before the
/// first write.
#[derive(Debug, thiserror::Error)]
pub enum MkfsError {
    /// The command line cannot be read.
    #[error("{0}")]
    Usage(String),
    /// The device URL leads nowhere.
    #[error(transparent)]
    Place(#[from] extant_storage::UrlError),
    /// An option's value is invalid, alone or together with the others.
    #[error("{0}")]
    Invalid(String),
    /// `-E` or the configuration's `options`.
    #[error("bad extended option {option}: {why}")]
    BadExtended {
        /// As it was written.
        option: String,
        /// The flaw.
        why: &'static str,
    },
    /// `-J`.
    #[error("bad journal option {option}: {why}")]
    BadJournal {
        /// As it was written.
        option: String,
        /// The flaw.
        why: &'static str,
    },
    /// A list of features names one that is unknown or that cannot be set.
    #[error("invalid filesystem option set: {0}")]
    BadFeatures(String),
    /// The configuration file is not in the format.
    #[error("{path}: {flaw}")]
    Config {
        /// The file.
        path: PathBuf,
        /// Where and what.
        flaw: ProfileError,
    },
    /// `-t` names a type that the configuration does not define (an error unless forced).
    #[error("the configuration file does not define the {0} file system type")]
    UnknownType(String),
    /// Existing data would be overwritten, without permission.
    #[error("{path} contains {found}: not overwritten without -F")]
    Occupied {
        /// The device.
        path: PathBuf,
        /// The existing data.
        found: String,
    },
    /// The file system does not fit: not even its own structures.
    #[error("not enough space to build the proposed file system: {0}")]
    TooSmall(String),
    /// More inodes than the block groups can hold.
    #[error("cannot create a file system with the requested number of inodes")]
    TooManyInodes,
    /// The device refused.
    #[error(transparent)]
    Device(#[from] extant_device::DeviceError),
    /// The undo file cannot be written.
    #[error(transparent)]
    Undo(#[from] extant_device::undo::UndoError),
    /// The device cannot be opened, or is in use.
    #[error(transparent)]
    Open(#[from] extant_device::FileError),
    /// Reading or writing a file that is not the device (configuration, list of bad blocks).
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}
