//! Why a file system is not made.

mod conflict;
mod limit;
mod usage;
mod value;

pub use conflict::Conflict;
pub use limit::{JournalDeviceError, Shortage, SizeError};
pub use usage::UsageError;
pub use value::ValueError;

use std::path::PathBuf;

use extant_device::errno;
use extant_offline::format_errno;
use extant_ondisk::FormatError;

use super::config::ProfileError;

/// A refusal or a failure of mkfs. Everything but `Device` and `Io` is found before the
/// first write.
#[derive(Debug, thiserror::Error)]
pub enum MkfsError {
    /// The command line cannot be read.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// The device URL leads nowhere.
    #[error(transparent)]
    Place(#[from] extant_storage::UrlError),
    /// An option's value is invalid.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// Options exclude or need each other.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// A size or count is beyond a limit.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// `-d`: work of `extant build`.
    #[error("-d: use extant build, which makes and fills the file system in one go")]
    SourceDirectory,
    /// A journal device, or a file system at an offset, on a device that the caller opened.
    #[error("a journal device or an offset: use extant mkfs")]
    NotOnOpenDevice,
    /// The device of an external journal cannot be used.
    #[error("{}: {problem}", path.display())]
    JournalDevice {
        /// The device.
        path: PathBuf,
        /// Why not.
        problem: JournalDeviceError,
    },
    /// The format cannot store what was asked for.
    #[error(transparent)]
    Format(#[from] FormatError),
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
    /// `-S` without permission: files that do not fit the new superblock are lost.
    #[error("-S may damage {path} further: not done without -F")]
    OnlySuperblocks {
        /// The device.
        path: PathBuf,
    },
    /// The file system does not fit: not even its own structures.
    #[error("not enough space to build the proposed file system: {0}")]
    TooSmall(#[from] Shortage),
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

impl MkfsError {
    /// The number that a system call returns for it (`ENOENT` is 2).
    pub fn errno(&self) -> i32 {
        match self {
            Self::Usage(_)
            | Self::Value(_)
            | Self::Conflict(_)
            | Self::BadExtended { .. }
            | Self::BadJournal { .. }
            | Self::BadFeatures(_)
            | Self::Config { .. }
            | Self::UnknownType(_) => errno::EINVAL,
            Self::Place(error) => error.errno(),
            Self::Size(error) => error.errno(),
            Self::SourceDirectory | Self::NotOnOpenDevice => errno::EOPNOTSUPP,
            Self::JournalDevice { problem, .. } => problem.errno(),
            Self::Format(error) => format_errno(error),
            Self::Occupied { .. } | Self::OnlySuperblocks { .. } => errno::EEXIST,
            Self::TooSmall(_) | Self::TooManyInodes => errno::ENOSPC,
            Self::Device(error) => error.errno(),
            Self::Undo(error) => error.errno(),
            Self::Open(error) => error.errno(),
            Self::Io { source, .. } => errno::of_io(source),
        }
    }

    /// The kind of error in std's words.
    pub fn kind(&self) -> std::io::ErrorKind {
        errno::kind(self.errno())
    }
}
