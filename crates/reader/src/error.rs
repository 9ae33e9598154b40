//! The errors of calls on a volume.

use std::fmt;

use extant_device::DeviceError;
use extant_journal::JournalError;
use extant_offline::OfflineError;
use extant_ondisk::{FormatError, InodeNo};

/// Why a call failed: facts in fields, one sentence when shown. [`Error::errno`] gives each as
/// errno.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The volume is corrupt, or has an unknown feature.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The device failed.
    #[error(transparent)]
    Io(#[from] DeviceError),
    /// The journal could not be replayed.
    #[error("journal: {0}")]
    Journal(#[from] JournalError),
    /// The volume is larger than the device: it was cut off, or the device is another one.
    #[error("the volume has {volume} bytes, but the device only {device}")]
    DeviceTooSmall {
        /// Bytes that the superblock counts.
        volume: u64,
        /// Bytes of the device.
        device: u64,
    },
    /// The journal holds changes that are not on the volume yet, and the options bar their replay.
    #[error("the journal must be replayed first (needs_recovery)")]
    NeedsRecovery,
    /// Another host has the volume open (multiple-mount protection).
    #[error("the volume is in use: {0}")]
    InUse(OtherHost),
    /// No free blocks.
    #[error("no space left on the volume")]
    NoSpace,
    /// No free inodes: blocks there may be.
    #[error("no inodes left on the volume")]
    NoInodes,
    /// The directory's index names as many blocks as it can.
    #[error("the directory is full")]
    DirectoryFull,
    /// An attribute that fits neither into the inode nor into one attribute block next to the
    /// file's other attributes.
    #[error("no space for the extended attribute in inode and attribute block")]
    NoXattrRoom,
    /// More than the limits of the owner, the group or the project allow.
    #[error("disk quota exceeded")]
    QuotaExceeded,
    /// The name is taken, or the attribute is there already.
    #[error("file exists")]
    Exists,
    /// The file would need blocks that its map cannot name.
    #[error("file too large")]
    FileTooLarge,
    /// A directory with names in it.
    #[error("directory not empty")]
    NotEmpty,
    /// A file of one project does not go into a directory that passes another one on.
    #[error("directory enforces a different project ID")]
    CrossesBoundary,
    /// The file has as many links, or the directory as many subdirectories, as the format counts.
    #[error("too many links")]
    TooManyLinks,
    /// The inode's flags bar the change: immutable, or append only.
    #[error("inode {0} is immutable or append-only")]
    NotPermitted(InodeNo),
    /// A directory has one name only.
    #[error("hard links to directories are not allowed")]
    LinksDirectory,
    /// The volume was opened for reading, or an error has made it read-only.
    #[error("read-only")]
    ReadOnly,
    /// An invalid argument.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// Options that do not go together, or not with this volume.
    #[error("{0}")]
    Options(&'static str),
    /// Healthy, but not supported yet.
    #[error("not supported yet: {0}")]
    NotSupported(&'static str),
    /// No such file, or no such attribute's owner.
    #[error("not found")]
    NotFound,
    /// A path goes through something that is no directory.
    #[error("not a directory")]
    NotADirectory,
    /// Data of a directory were requested.
    #[error("is a directory")]
    IsADirectory,
    /// The inode is not a symbolic link, or holds no data to read.
    #[error("invalid operation for this type of file")]
    WrongFileType,
    /// The path has more symbolic links than are followed.
    #[error("too many symbolic links")]
    SymlinkLoop,
    /// A name of more than 255 bytes, or a path of more than 4,096.
    #[error("name too long")]
    NameTooLong,
    /// The file has no such attribute.
    #[error("no such attribute")]
    NoXattr,
    /// An attribute's name of more than 255 bytes, its prefix included.
    #[error("the attribute's name is too long")]
    XattrNameTooLong,
    /// An attribute's value of more than 64 KiB.
    #[error("the attribute's value is too large")]
    XattrTooLarge,
    /// Contents are encrypted; there is no key here.
    #[error("inode {0} is encrypted")]
    Encrypted(InodeNo),
    /// The inode is not in use.
    #[error("inode {0} is not in use")]
    FreeInode(InodeNo),
    /// There is no inode of that number.
    #[error("inode {0} does not exist on this volume")]
    NoSuchInode(InodeNo),
}

/// The host that has a volume open, as its MMP block says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OtherHost {
    /// Its name, escaped.
    pub node: String,
    /// Whether a checker has the volume open there.
    pub is_check: bool,
}

impl fmt::Display for OtherHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_check {
            true => write!(f, "being checked on {}", self.node),
            false => write!(f, "open on {}", self.node),
        }
    }
}

impl Error {
    /// Whether the cause is missing space of any kind: ENOSPC.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::NoSpace | Self::NoInodes | Self::DirectoryFull | Self::NoXattrRoom)
    }

    /// Whether the volume is broken on disk.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::Format(error) if error.is_corruption())
    }

    /// Whether an earlier failure had made the volume read-only.
    pub fn is_late(&self) -> bool {
        matches!(self, Self::Journal(JournalError::Aborted(_)))
    }
}

impl From<OfflineError> for Error {
    fn from(error: OfflineError) -> Self {
        match error {
            OfflineError::Device(error) => Self::Io(error),
            OfflineError::Format(error) => Self::Format(error),
            other => Self::Journal(JournalError::Volume(other)),
        }
    }
}
