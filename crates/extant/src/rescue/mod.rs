//! Deleted files: what the journal and the disk still hold of them. The volume is only read.
//!
//! Old copies of directory blocks in the log give the names, those of inode tables give the inodes
//! with their maps, and the disk still has the contents as far as their blocks were not used again.
//! The log holds what was changed lately alone, as far back as its size allows.

mod files;
mod history;
mod log_copies;
mod names;
mod past;
mod timeline;

pub use files::{Content, DeletedFile, DeletedFiles};
pub use history::{InodeVersion, history};
pub use timeline::{TimelineEntry, timeline};

use extant_device::DeviceError;
use extant_journal::JournalError;

use crate::inspect::InspectError;

/// Deleted files cannot be looked for.
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
}
