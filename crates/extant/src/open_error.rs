//! The error of opening a file system.

use std::io::ErrorKind;

use extant_reader::Error as Cause;
use extant_storage::UrlError;

use crate::path_error::kind_of;

/// Why a file system could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The image could not be opened, or another process uses it.
    #[error(transparent)]
    Device(#[from] UrlError),
    /// It holds no volume that can be used.
    #[error(transparent)]
    Volume(#[from] Cause),
}

impl OpenError {
    /// The number that a system call returns for it (`ENOENT` is 2).
    pub fn errno(&self) -> i32 {
        match self {
            Self::Device(error) => error.errno(),
            Self::Volume(cause) => cause.errno().raw_os_error(),
        }
    }

    /// The kind of error in std's words.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Device(error) => error.kind(),
            Self::Volume(cause) => kind_of(cause),
        }
    }
}
