//! The outcome of an extraction: counts, entries that were refused, the error that ended it.

use std::io;

use extant_image::source::{EntryName, SourceError};
use extant_reader::Error as Cause;

use crate::path_error::PathError;

/// Counts of what was made of an archive.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ExtractedCounts {
    /// Number of regular files.
    pub files: u64,
    /// Number of directories that were made or were there.
    pub directories: u64,
    /// Number of symbolic links.
    pub symlinks: u64,
    /// Number of further names of files.
    pub hard_links: u64,
    /// Number of device files and named pipes.
    pub special_files: u64,
    /// Bytes of contents, without holes.
    pub bytes: u64,
}

/// An archive that was read to its end.
#[derive(Debug, Default)]
pub struct Extracted {
    /// Counts of what was made.
    pub counts: ExtractedCounts,
    /// Entries that were refused, and attributes that were left out.
    pub problems: Vec<MemberProblem>,
}

/// An entry that is not in the file system as it is in the archive.
#[derive(Debug)]
pub struct MemberProblem {
    /// Its path as the archive has it.
    pub path: Vec<u8>,
    /// Why.
    pub why: MemberError,
}

/// Why an entry was refused, or something of it left out.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// A `..` in the path.
    #[error("refused: path has a '..' component")]
    DotDot,
    /// A path along a symbolic link that the archive made.
    #[error("refused: path goes through the symbolic link {0}, which this archive has made")]
    OwnLink(EntryName),
    /// A path along a symbolic link to a place that is not below the directory.
    #[error("refused: path leaves the directory through the symbolic link {0}")]
    Outside(EntryName),
    /// A path along something else than a directory.
    #[error("parent {0} is not a directory")]
    NotADirectory(EntryName),
    /// A directory where another file is.
    #[error("cannot overwrite non-directory: the entry is a directory")]
    OverFile,
    /// Another file where a directory is.
    #[error("cannot overwrite directory: the entry is not a directory")]
    OverDirectory,
    /// Another file in place of the directory that the archive is unpacked into.
    #[error("refused: a file in place of the root directory of the archive")]
    Root,
    /// A hard link whose target is not there.
    #[error("cannot hard link to {target}: {why}")]
    Link {
        /// As the archive has it.
        target: EntryName,
        /// The error of its path.
        why: Box<MemberError>,
    },
    /// A hard link to a name whose own entry was refused: what has the name is not of the archive.
    #[error("refused: the entry of this name was not unpacked")]
    TargetRefused,
    /// An attribute that the volume does not take.
    #[error("extended attribute {name}: {cause}")]
    Xattr {
        /// Its name.
        name: EntryName,
        /// The error.
        cause: Cause,
    },
    /// An attribute that ext4 has no place for.
    #[error("extended attribute {0} ignored: ext4 cannot hold it in such a file")]
    IgnoredXattr(EntryName),
    /// A call of the volume failed.
    #[error(transparent)]
    Volume(#[from] Cause),
}

impl MemberError {
    /// Whether the entry is missing, or less than it is in the archive.
    pub fn is_loss(&self) -> bool {
        !matches!(self, Self::IgnoredXattr(_))
    }
}

/// Why an archive was not unpacked to its end.
#[derive(Debug, thiserror::Error)]
pub enum ExtractCause {
    /// The archive cannot be read or is damaged.
    #[error(transparent)]
    Archive(Box<SourceError>),
    /// The file system failed or is full.
    #[error(transparent)]
    Path(Box<PathError>),
}

/// An archive that was not unpacked to its end. Entries before the error are in the file system.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct ExtractError {
    /// The error.
    pub cause: ExtractCause,
    /// The entries that were unpacked before it.
    pub extracted: Box<Extracted>,
}

impl ExtractError {
    /// The number that a system call returns for it (`ENOENT` is 2).
    pub fn errno(&self) -> i32 {
        match &self.cause {
            ExtractCause::Archive(error) => error.errno(),
            ExtractCause::Path(error) => error.errno(),
        }
    }

    /// The kind of error in std's words.
    pub fn kind(&self) -> io::ErrorKind {
        match &self.cause {
            ExtractCause::Archive(error) => error.kind(),
            ExtractCause::Path(error) => error.kind(),
        }
    }
}

/// Whether a cause is about one path, so that other entries may still succeed.
pub(super) fn is_of_path(cause: &Cause) -> bool {
    matches!(
        cause,
        Cause::NotFound
            | Cause::Exists
            | Cause::NotADirectory
            | Cause::IsADirectory
            | Cause::FileTooLarge
            | Cause::TooManyLinks
            | Cause::NameTooLong
            | Cause::XattrNameTooLong
            | Cause::XattrTooLarge
            | Cause::Invalid(_)
            | Cause::NotSupported(_)
            | Cause::NotPermitted(_)
            | Cause::LinksDirectory
            | Cause::WrongFileType
            | Cause::SymlinkLoop
            | Cause::Encrypted(_)
            | Cause::CrossesBoundary
            | Cause::NoXattrRoom
            | Cause::DirectoryFull
    )
}
