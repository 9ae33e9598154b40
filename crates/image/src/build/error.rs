//! Why an image is not built.

use std::path::PathBuf;

use extant_device::{DeviceError, FileError};
use extant_ondisk::FormatError;

use crate::mkfs::MkfsError;
use crate::source::{EntryName, SourceError};

/// A refusal or a failure of build. Nothing of the image is left where it was to be.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The sources.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The options of the file system.
    #[error(transparent)]
    Mkfs(#[from] MkfsError),
    /// The device that is written to.
    #[error(transparent)]
    Place(#[from] extant_storage::UrlError),
    /// A node exceeds the limits of the format, or of the chosen features.
    #[error("{path}: {why}")]
    Limit {
        /// In the image.
        path: EntryName,
        /// One sentence.
        why: String,
    },
    /// An attribute finds no room.
    #[error(
        "{path}: no room for the extended attribute {name} ({needed} bytes){}",
        if *.has_ea_inodes { "" } else { "; the feature ea_inode, larger blocks or larger inodes make room" }
    )]
    XattrRoom {
        /// A node that has it.
        path: EntryName,
        /// The attribute.
        name: String,
        /// Bytes that entry and value take.
        needed: usize,
        /// Whether large values may have inodes of their own.
        has_ea_inodes: bool,
    },
    /// An attribute's name has no place in ext4.
    #[error("{path}: ext4 has no place for an extended attribute of the name {name}")]
    XattrName {
        /// A node that has it.
        path: EntryName,
        /// Its full name.
        name: EntryName,
    },
    /// An access control list that is not one.
    #[error("{path}: {source}")]
    Acl {
        /// A node that has it.
        path: EntryName,
        /// The flaw.
        source: FormatError,
    },
    /// The format of the new volume; a mistake of our own or an impossible option.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// More files than inode numbers.
    #[error("too many files: {count} (maximum {most})")]
    TooManyFiles {
        /// Files of the sources.
        count: u64,
        /// The limit.
        most: u64,
    },
    /// The tree does not fit the requested size.
    #[error(
        "the tree does not fit into {room} blocks of {block_size} bytes; the smallest volume that holds it has {needed}"
    )]
    NoSpace {
        /// Blocks of the smallest volume with these options.
        needed: u64,
        /// Number of blocks of the requested size.
        room: u64,
        /// Bytes a block.
        block_size: u32,
    },
    /// There are fewer inodes than files.
    #[error("{needed} inodes needed, but the options allow {given}")]
    NoInodes {
        /// Inodes needed, the reserved ones included.
        needed: u64,
        /// Inodes of the volume.
        given: u64,
    },
    /// An option that build does not do.
    #[error("build does not support {0}")]
    Unsupported(&'static str),
    /// An option's value.
    #[error("{0}")]
    Option(String),
    /// The image cannot be opened.
    #[error(transparent)]
    Output(#[from] FileError),
    /// The image cannot be written.
    #[error("{}: {source}", path.display())]
    Write {
        /// The image.
        path: PathBuf,
        /// The path.
        source: DeviceError,
    },
    /// A system call other than read and write failed.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation: a verb that follows "cannot".
        action: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}
