//! A profile: what to make, which threads do what to it, and for how long.

use std::path::PathBuf;
use std::time::Duration;

mod read;
mod show;

#[cfg(test)]
pub(super) use read::tests::PUBLISHED;

pub use read::{Flaw, ProfileError};

/// A whole profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// How long the threads run; nothing is measured when it is zero.
    pub time: Duration,
    /// Files of the measured phase are opened for direct access.
    pub direct_io: bool,
    /// Random and first offsets are multiples of 4096.
    pub align_io: bool,
    /// A shell command between making the files and starting the clock.
    pub callout: Option<String>,
    /// The contents of written bytes.
    pub fill: Fill,
    /// Where random choices start from; a random one when the profile has none.
    pub seed: Option<u64>,
    /// At least one.
    pub filesystems: Vec<FileSet>,
    /// At least one, unless nothing is measured.
    pub thread_groups: Vec<ThreadGroup>,
    /// Harmless mistakes of the profile.
    pub warnings: Vec<String>,
}

/// The contents of written bytes: FFSB's are zero, which favours file systems that detect zeroes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Fill {
    /// Zeroes.
    #[default]
    Zero,
    /// Random bytes, the same in each block of a run.
    Random,
    /// Each 64-bit word of a block is its offset.
    Pattern,
}

/// A `[filesystem]`: a directory, and the files made in it before the clock starts.
#[derive(Clone, Debug, PartialEq)]
pub struct FileSet {
    /// An existing directory.
    pub location: PathBuf,
    /// When enough files are made.
    pub start: Start,
    /// Number of directories that the files are spread over.
    pub dirs: u32,
    /// How large files become.
    pub sizes: Sizes,
    /// Bytes of one write while the files are made.
    pub create_block: u64,
    /// Files that are there already are kept if they fit.
    pub reuse: bool,
    /// The file system is aged first.
    pub ageing: Option<Ageing>,
}

/// When enough files are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    /// A number of files.
    Files(u32),
    /// A total size in bytes.
    Bytes(u64),
    /// This share of the file system is in use.
    Utilization(f64),
}

/// How large a new file becomes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Sizes {
    /// At least `min` and less than `max`, or `min` where both are equal.
    Uniform {
        /// In bytes.
        min: u64,
        /// In bytes.
        max: u64,
    },
    /// One of these sizes, each with its weight.
    Weighted(Vec<(u64, u32)>),
}

/// How a file system is made old before it is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Ageing {
    /// The weights of creates, appends and deletes among the operations.
    pub group: ThreadGroup,
    /// It ends when this share of the file system is in use.
    pub utilization: f64,
}

/// A `[threadgroup]`: threads that all draw from the same operations.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadGroup {
    /// How many, at least one.
    pub threads: u32,
    /// The only file set that they use, by its number.
    pub bound: Option<usize>,
    /// How long a thread waits after each operation.
    pub delay: Duration,
    /// How `read` reads.
    pub read: Reading,
    /// How `write` and `append` write.
    pub write: Writing,
    /// How often each operation is drawn, in the order of [`Operation::ALL`].
    pub weights: [u32; Operation::ALL.len()],
    /// Which system calls are timed.
    pub stats: Option<Stats>,
}

impl ThreadGroup {
    /// The sum of all weights, which is not zero.
    pub fn total_weight(&self) -> u64 {
        self.weights.iter().map(|weight| u64::from(*weight)).sum()
    }
}

/// How files are read.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Reading {
    /// Bytes of one `read` operation.
    pub size: u64,
    /// Bytes of one call.
    pub block: u64,
    /// Where the blocks of an operation are.
    pub order: ReadOrder,
}

/// Where the blocks of a `read` are.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ReadOrder {
    /// One after the other from a random place on.
    #[default]
    Sequential,
    /// Each at a random place.
    Random,
    /// From the file's start on, with this many bytes left out after each.
    Strided(u64),
}

/// How files are written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Writing {
    /// Bytes of one `write` or `append` operation.
    pub size: u64,
    /// Bytes of one call.
    pub block: u64,
    /// Each block at a random place, not one after the other.
    pub is_random: bool,
    /// Every writing operation ends with fsync, as the older key has it.
    pub fsync: bool,
}

/// The operations of a thread, in the order in which FFSB draws and prints.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Operation {
    /// Reads a part of a file.
    Read,
    /// Reads a whole file.
    ReadAll,
    /// Overwrites a part of a file, which keeps its size.
    Write,
    /// Makes a file and fills it.
    Create,
    /// Adds to a file's end.
    Append,
    /// Removes a file.
    Delete,
    /// Makes two directories, removes one and renames one.
    Meta,
    /// Makes one more directory for files.
    CreateDir,
    /// Reads a file's attributes.
    Stat,
    /// Overwrites a whole file.
    WriteAll,
    /// The same, with fsync.
    WriteAllFsync,
    /// Opens a file and closes it.
    OpenClose,
    /// [`Self::Write`] with fsync.
    WriteFsync,
    /// [`Self::Create`] with fsync.
    CreateFsync,
    /// [`Self::Append`] with fsync.
    AppendFsync,
}

impl Operation {
    /// All of them, in their order.
    pub const ALL: [Self; 15] = [
        Self::Read,
        Self::ReadAll,
        Self::Write,
        Self::Create,
        Self::Append,
        Self::Delete,
        Self::Meta,
        Self::CreateDir,
        Self::Stat,
        Self::WriteAll,
        Self::WriteAllFsync,
        Self::OpenClose,
        Self::WriteFsync,
        Self::CreateFsync,
        Self::AppendFsync,
    ];

    /// The name in profiles (before `_weight`) and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ReadAll => "readall",
            Self::Write => "write",
            Self::Create => "create",
            Self::Append => "append",
            Self::Delete => "delete",
            Self::Meta => "metaop",
            Self::CreateDir => "createdir",
            Self::Stat => "stat",
            Self::WriteAll => "writeall",
            Self::WriteAllFsync => "writeall_fsync",
            Self::OpenClose => "open_close",
            Self::WriteFsync => "write_fsync",
            Self::CreateFsync => "create_fsync",
            Self::AppendFsync => "append_fsync",
        }
    }

    const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadAll)
    }

    const fn writes(self) -> bool {
        !self.reads()
            && !matches!(
                self,
                Self::Delete | Self::Meta | Self::CreateDir | Self::Stat | Self::OpenClose
            )
    }

    /// Whether an operation writes `write_size` bytes.
    const fn writes_a_part(self) -> bool {
        matches!(self, Self::Write | Self::Append | Self::WriteFsync | Self::AppendFsync)
    }

    /// Whether an ageing group may do it.
    const fn ages(self) -> bool {
        matches!(
            self,
            Self::Create | Self::Append | Self::Delete | Self::CreateFsync | Self::AppendFsync
        )
    }
}

/// A `[stats]`: which calls are timed, and into which ranges they are sorted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Milliseconds, both ends in; the first that fits counts.
    pub ranges: Vec<(f64, f64)>,
    /// Calls that are left out.
    pub ignored: Vec<Call>,
}

/// A system call that is timed.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Call {
    /// open of a file that there is.
    Open,
    /// read.
    Read,
    /// write.
    Write,
    /// open that makes the file (FFSB counts it with [`Self::Open`]).
    Create,
    /// lseek.
    Lseek,
    /// unlink.
    Unlink,
    /// close.
    Close,
    /// stat.
    Stat,
    /// fsync, which FFSB does not time; nor the three after it.
    Fsync,
    /// mkdir.
    Mkdir,
    /// rmdir.
    Rmdir,
    /// rename.
    Rename,
}

impl Call {
    /// All of them, FFSB's first.
    pub const ALL: [Self; 12] = [
        Self::Open,
        Self::Read,
        Self::Write,
        Self::Create,
        Self::Lseek,
        Self::Unlink,
        Self::Close,
        Self::Stat,
        Self::Fsync,
        Self::Mkdir,
        Self::Rmdir,
        Self::Rename,
    ];

    /// The name in profiles and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Create => "create",
            Self::Lseek => "lseek",
            Self::Unlink => "unlink",
            Self::Close => "close",
            Self::Stat => "stat",
            Self::Fsync => "fsync",
            Self::Mkdir => "mkdir",
            Self::Rmdir => "rmdir",
            Self::Rename => "rename",
        }
    }
}
