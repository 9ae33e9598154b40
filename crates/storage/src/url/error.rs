//! Why a name leads nowhere.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use extant_device::{FileError, SliceError, errno};
use extant_nbd::NbdError;

#[cfg(feature = "crypt")]
use crate::crypt::CryptError;
use crate::key::KeyError;
use crate::lvm::LvmError;
use crate::opened::FinishError;
use crate::overlay::OverlayError;
use crate::partition::PartitionError;
#[cfg(feature = "remote")]
use crate::remote::error::RemoteError;
#[cfg(feature = "vm")]
use crate::vm::error::VmImageError;

/// A name that leads nowhere.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// The text before `://` is an unknown scheme.
    #[error("unknown scheme: {scheme}")]
    UnknownScheme {
        /// The scheme, with its colon and slashes.
        scheme: String,
    },
    /// The part after `#` or `?` has a mistake.
    #[error("{}: {problem}", concealed(text))]
    Malformed {
        /// The name.
        text: OsString,
        /// The mistake.
        problem: String,
    },
    /// Two files fit the name.
    #[error("{}: ambiguous, could be {} or {} (use ./ for a host path, or --image)", text.display(), one.display(), other.display())]
    Ambiguous {
        /// The name.
        text: OsString,
        /// One file.
        one: PathBuf,
        /// The other.
        other: PathBuf,
    },
    /// No block device has a file system of that label or UUID.
    #[error("{}: no block device has this label or UUID", text.display())]
    NoSuchTag {
        /// The name, with `LABEL=` or `UUID=`.
        text: OsString,
    },
    /// No prefix of `IMAGE:/path` names a file or block device.
    #[error("{}: no file or block device {}", text.display(), image.display())]
    NoImage {
        /// The name.
        text: OsString,
        /// The longest prefix that was tried.
        image: PathBuf,
    },
    /// The name has a backup superblock, and the command is not one that only reads.
    #[error("{}: sb={block} is for commands that only read the volume (fsck has -b, mount -o ro,sb=)", path.display())]
    Superblock {
        /// The file.
        path: PathBuf,
        /// The block.
        block: u64,
    },
    /// Two parts that are joined have bytes of one file in common.
    #[error("linear: segments overlap: {} and {}", one.display(), other.display())]
    Overlap {
        /// The file of the first part.
        one: PathBuf,
        /// The identity of the second, perhaps under another name.
        other: PathBuf,
    },
    /// The file was not opened.
    #[error(transparent)]
    File(#[from] FileError),
    /// The partition was not found.
    #[error("{}: {error}", path.display())]
    Partition {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: PartitionError,
    },
    /// The key was not had.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The device was not deciphered.
    #[cfg(feature = "crypt")]
    #[error("{}: {error}", path.display())]
    Crypt {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: CryptError,
    },
    /// The logical volume was not found.
    #[error("{}: {error}", path.display())]
    Lvm {
        /// The first file.
        path: PathBuf,
        /// Why not.
        error: LvmError,
    },
    /// The changes of an overlay cannot be used.
    #[error("{}: {error}", path.display())]
    Overlay {
        /// The file of the changes, or the base where it has none.
        path: PathBuf,
        /// Why not.
        error: OverlayError,
    },
    /// A disk image of a virtual machine is not read.
    #[cfg(feature = "vm")]
    #[error("{}: {error}", path.display())]
    VmImage {
        /// The image, or a file that it names.
        path: PathBuf,
        /// Why not.
        error: VmImageError,
    },
    /// An NBD server was not reached, or does not have the export.
    #[error("{}: {error}", path.display())]
    Nbd {
        /// The URL without its options, or the socket that was not reached.
        path: PathBuf,
        /// Why not.
        error: NbdError,
    },
    /// An object of a server is not read.
    #[cfg(feature = "remote")]
    #[error("{}: {error}", path.display())]
    Remote {
        /// The URL without its options.
        path: PathBuf,
        /// Why not.
        error: RemoteError,
    },
    /// A scheme of a part of the program that this build lacks.
    #[error("{scheme} not included in this build of extant (cargo feature {feature})")]
    LeftOut {
        /// The scheme, with its colon.
        scheme: &'static str,
        /// The feature of cargo.
        feature: &'static str,
    },
    /// A backend's own failure.
    #[error(transparent)]
    Backend(Box<dyn std::error::Error + Send + Sync>),
    /// The device was used, and not ended well.
    #[error(transparent)]
    Finish(#[from] FinishError),
    /// The run does not fit.
    #[error("{}: {error}", path.display())]
    Slice {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: SliceError,
    },
}

/// A URL without the password or the signature that a user may have put into it.
fn concealed(text: &OsStr) -> String {
    let text = text.display().to_string();
    let Some((scheme, rest)) = text.split_once("://") else { return text };
    let host_end = rest.find('/').unwrap_or(rest.len());
    let host_start = rest[..host_end].rfind('@').map_or(0, |at| at + 1);
    let shown = match rest[host_start..].find('?') {
        // The options of a server's URL are of no use in a message that names the wrong one.
        Some(query) if !scheme.contains("nbd") => &rest[host_start..host_start + query],
        _ => &rest[host_start..],
    };
    format!("{scheme}://{shown}")
}

impl UrlError {
    /// The number that a system call returns for it (`ENOENT` is 2).
    pub fn errno(&self) -> i32 {
        match self {
            Self::LeftOut { .. } => errno::EOPNOTSUPP,
            Self::UnknownScheme { .. }
            | Self::Malformed { .. }
            | Self::Ambiguous { .. }
            | Self::Superblock { .. }
            | Self::Overlap { .. }
            | Self::Slice { .. } => errno::EINVAL,
            Self::NoImage { .. } | Self::NoSuchTag { .. } => errno::ENOENT,
            Self::File(error) => error.errno(),
            Self::Partition { error, .. } => error.errno(),
            Self::Key(error) => error.errno(),
            #[cfg(feature = "crypt")]
            Self::Crypt { error, .. } => error.errno(),
            Self::Lvm { error, .. } => error.errno(),
            Self::Overlay { error, .. } => error.errno(),
            Self::Nbd { error, .. } => error.errno(),
            #[cfg(feature = "remote")]
            Self::Remote { error, .. } => error.errno(),
            #[cfg(feature = "vm")]
            Self::VmImage { error, .. } => error.errno(),
            Self::Backend(error) => errno::of_source(&**error),
            Self::Finish(error) => error.errno(),
        }
    }

    /// The kind of error in std's words.
    pub fn kind(&self) -> std::io::ErrorKind {
        errno::kind(self.errno())
    }
}
