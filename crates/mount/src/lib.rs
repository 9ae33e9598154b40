//! An ext4 volume mounted over FUSE.
//!
//! Three processes, of which two stay:
//! - who calls [`supervise()`] starts the server, waits until the volume is mounted, and stays
//!   outside: when the server ends, however it ends, it takes the mount away;
//! - the caller of [`serve()`] is the server: it opens the image, mounts, restricts itself
//!   ([`sandbox`]), and only then reads the image (before it no more than the superblock, which may
//!   name a journal on another device), recovers the journal and answers requests;
//! - in the background the first caller of all has gone by then.
//!
//! The server carries out requests, in values of this crate; a
//! [`transport`](crate::transport::Transport) carries messages. An error of the volume has its own
//! errno.
#![deny(unsafe_code)]

mod attr;
mod control;
mod mountpoint;
mod options;
pub mod sandbox;
mod serve;
mod server;
mod service;
mod supervise;
pub mod transport;
mod unmount;

pub use attr::Attributes;
pub use control::{
    MountedSize, extend_partition, freeze, grow, mounted_size, point_of, shutdown, thaw,
};
pub use mountpoint::{MountEntry, canonical_point, is_mounted, mount_at, remount};
pub use options::{Atime, MountOptions, OptionError, parse_options};
pub use serve::{MountRequest, serve, serve_files};
pub use server::{Cached, Caller, Change, Listed, Listing, LookedUp, OpenFor, Server, WriteBy};
pub use service::{FileService, ListedFiles, OngoingChange, TakeEntry};
pub use supervise::{Reports, supervise};
pub use unmount::{is_closing, unmount, unmount_by_force};

use std::io;
use std::path::PathBuf;

use extant_device::errno;

/// Why a volume was not mounted, or its mount did not end well.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The system refused something.
    #[error("{}: {what}: {source}", path.display())]
    System {
        /// The file, device or directory.
        path: PathBuf,
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// fusermount3 would not mount.
    #[error("{}: {}", path.display(), said.trim())]
    Fusermount {
        /// The mount point.
        path: PathBuf,
        /// Its error output.
        said: String,
    },
    /// An option that only those have who mount without fusermount3.
    #[error("mount option {0} requires root (fusermount3 does not permit it)")]
    BeyondFusermount(&'static str),
    /// The image is not a device that can be opened.
    #[error(transparent)]
    Image(#[from] extant_storage::UrlError),
    /// The volume cannot be opened, or was not closed well.
    #[error("{}: {source}", image.display())]
    Volume {
        /// The image.
        image: PathBuf,
        /// The flaw.
        source: extant_reader::Error,
    },
    /// The journal is on a device of its own, which was not named, nor found for sure.
    #[error("{}: {source}: use -o journal_path=DEVICE", image.display())]
    JournalNotFound {
        /// The image.
        image: PathBuf,
        /// Which journal it is.
        source: extant_reader::JournalError,
    },
    /// The machine has no block device of the number that `journal_dev=` gives.
    #[error("journal_dev={number:#x}: cannot find the device: {source}")]
    JournalNumber {
        /// As the kernel takes it.
        number: u32,
        /// The system's error.
        source: io::Error,
    },
    /// The server could not restrict itself.
    #[error("cannot enter the sandbox: {0} (use --no-sandbox to run without it)")]
    Sandbox(#[from] sandbox::SandboxError),
    /// A simulated drive: its clock does not advance with the kernel's.
    #[error("cannot mount a simulated drive (model:): it uses a virtual clock")]
    Simulated,
    /// Nothing of ours is mounted there.
    #[error("{}: not an extant mount point", .0.display())]
    NotMounted(PathBuf),
    /// Changes of the volume are held back already.
    #[error("{}: the volume is already frozen", .0.display())]
    Frozen(PathBuf),
    /// Changes of the volume are not held back.
    #[error("{}: the volume is not frozen", .0.display())]
    NotFrozen(PathBuf),
    /// The volume did not grow.
    #[error("{}: {what}", path.display())]
    NotGrown {
        /// The mount point.
        path: PathBuf,
        /// The number of a system call's error.
        errno: i32,
        /// Why.
        what: String,
    },
    /// An option that conflicts with the volume or with another one.
    #[error(transparent)]
    Options(#[from] OptionError),
    /// The server ended before the volume was mounted; its messages are printed above.
    #[error("the server ended before the volume was mounted")]
    ServerEnded,
}

impl MountError {
    /// The number that a system call returns for it (`ENOENT` is 2).
    pub fn errno(&self) -> i32 {
        match self {
            Self::System { source, .. } | Self::JournalNumber { source, .. } => {
                errno::of_io(source)
            }
            Self::Fusermount { .. } | Self::BeyondFusermount(_) | Self::Sandbox(_) => errno::EPERM,
            Self::Image(error) => error.errno(),
            Self::Volume { source, .. } => source.errno().raw_os_error(),
            Self::JournalNotFound { source, .. } => source.errno(),
            Self::Simulated => errno::EOPNOTSUPP,
            Self::NotMounted(_) | Self::NotFrozen(_) | Self::Options(_) => errno::EINVAL,
            Self::Frozen(_) => errno::EBUSY,
            Self::NotGrown { errno, .. } => *errno,
            Self::ServerEnded => errno::EIO,
        }
    }

    /// The kind of error in std's words.
    pub fn kind(&self) -> io::ErrorKind {
        errno::kind(self.errno())
    }
}
