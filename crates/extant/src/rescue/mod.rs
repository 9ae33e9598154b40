//! Deleted files: what the journal and the disk still hold of them. The volume is only read.
//!
//! Old copies of directory blocks in the log give the names, those of inode tables give the inodes
//! with their maps, and the disk still has the contents as far as their blocks were not used again.
//! The log holds what was changed lately alone, as far back as its size allows.
//!
//! [`Salvager`] reads damaged volumes: it makes the checker's repairs in memory, passes over
//! sectors that cannot be read, and reports what is missing.

mod damage;
mod ddrescue;
mod files;
mod history;
mod log_copies;
mod names;
mod past;
mod salvage;
mod timeline;
mod unread_map;

pub use ddrescue::{MapFile, MapFileError};
pub use files::{Content, DeletedFile, DeletedFiles};
pub use history::{InodeVersion, history};
pub use salvage::{DamagedFile, LostName, Salvage, SalvageReport, Salvager};
pub use timeline::{TimelineEntry, timeline};

use std::io;

use extant_check::run::RunError;
use extant_device::{DeviceError, FileError};
use extant_journal::JournalError;

use crate::inspect::InspectError;

/// Deleted files cannot be looked for, or a damaged volume cannot be salvaged.
#[derive(Debug, thiserror::Error)]
pub enum RescueError {
    /// The volume cannot be read.
    #[error(transparent)]
    Volume(#[from] extant_reader::Error),
    /// Its structures cannot be read.
    #[error(transparent)]
    Structures(#[from] InspectError),
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The volume cannot be checked.
    #[error(transparent)]
    Check(Box<RunError>),
    /// The device of an external journal cannot be opened.
    #[error(transparent)]
    JournalDevice(FileError),
    /// The system gives no random bytes.
    #[error("cannot generate a UUID: {0}")]
    NoRandomness(io::Error),
    /// The repairs that are made in memory take too much of it.
    #[error("out of memory: the repairs take more than {limit} bytes")]
    Memory {
        /// The limit, in bytes.
        limit: u64,
    },
}
