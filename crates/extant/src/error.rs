//! What a call on a path can end in.

use extant_reader::Error as Cause;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A call that failed, and the path that it was about.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}: {cause}", path.display())]
pub struct Error {
    path: PathBuf,
    cause: Cause,
}

impl Error {
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
        kind(&self.cause)
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}

fn kind(cause: &Cause) -> ErrorKind {
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
