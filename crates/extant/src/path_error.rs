//! The error of a call on a path.

use extant_reader::Error as Cause;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A call that failed, and the path that it was about.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}: {cause}", path.display())]
pub struct PathError {
    path: PathBuf,
    cause: Cause,
}

impl PathError {
    pub(crate) fn at(path: &Path, cause: Cause) -> Self {
        Self { path: path.to_owned(), cause }
    }

    /// The path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why, with all facts.
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Why, in std's words.
    pub fn kind(&self) -> ErrorKind {
        kind_of(&self.cause)
    }

    /// Why, as the number that a system call would return (`ENOENT` is 2), for programs in other
    /// languages.
    ///
    /// ```
    /// use extant::{FileSystem, MemoryDevice};
    /// use std::sync::Arc;
    ///
    /// let device = Arc::new(MemoryDevice::new(8 << 20));
    /// extant::format(&*device, ["-t", "ext4"])?;
    /// let fs = FileSystem::on_device(device)?;
    /// let error = fs.read("/missing").unwrap_err();
    /// assert_eq!(error.errno(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn errno(&self) -> i32 {
        self.cause.errno().raw_os_error()
    }
}

impl From<PathError> for std::io::Error {
    fn from(error: PathError) -> Self {
        Self::new(error.kind(), error)
    }
}

/// Why a call on a volume failed, in std's words.
pub(crate) fn kind_of(cause: &Cause) -> ErrorKind {
    match cause {
        Cause::NotFound | Cause::NoXattr | Cause::FreeInode(_) | Cause::NoSuchInode(_) => {
            ErrorKind::NotFound
        }
        Cause::Exists => ErrorKind::AlreadyExists,
        Cause::NotADirectory => ErrorKind::NotADirectory,
        Cause::IsADirectory => ErrorKind::IsADirectory,
        Cause::NotEmpty => ErrorKind::DirectoryNotEmpty,
        cause if cause.is_no_space() => ErrorKind::StorageFull,
        Cause::QuotaExceeded => ErrorKind::QuotaExceeded,
        Cause::FileTooLarge => ErrorKind::FileTooLarge,
        Cause::TooManyLinks => ErrorKind::TooManyLinks,
        Cause::NameTooLong => ErrorKind::InvalidFilename,
        Cause::Invalid(_) | Cause::WrongFileType | Cause::XattrTooLarge => ErrorKind::InvalidInput,
        Cause::ReadOnly => ErrorKind::ReadOnlyFilesystem,
        Cause::NotPermitted(_) | Cause::LinksDirectory => ErrorKind::PermissionDenied,
        Cause::NotSupported(_) => ErrorKind::Unsupported,
        Cause::Format(_) => ErrorKind::InvalidData,
        _ => ErrorKind::Other,
    }
}
