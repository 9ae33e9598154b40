//! The live ext4 file system.
//!
//! Opened by [`ReaderOptions::open`] a file system on a device is a [`Reader`]: it is only read.
//! Opened by [`Volume::open`] it is a [`Volume`], which owns an [`Engine`]: it is changed too,
//! through a journal where it has one. What both offer is in [`VolumeRead`]; an [`OpenVolume`] is
//! one or the other. All are `Send + Sync`, and every call takes `&self`. Files are named by inode;
//! paths are one layer above ([`VolumeRead::resolve`]).
//!
//! The algorithms that read the format are in [`read`]: functions over [`MetadataRead`], which yields checked metadata
//! blocks. They do not know whether a block comes from a cache before the device or from a frame of the journal.
#![forbid(unsafe_code)]

mod alloc;
mod cache;
pub mod edit;
mod engine;
mod error;
mod hash;
mod info;
mod lifecycle;
mod open;
mod open_volume;
pub mod ops;
mod options;
mod ranks;
pub mod read;
mod reader;
mod shutdown;
mod source;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod torn;
mod volume;
mod volume_read;
pub mod write;

pub use alloc::AllocatorKind;
pub use engine::Engine;
#[cfg(feature = "testing")]
pub use engine::faults::Step;
pub use engine::lost::ErrorSample;
pub use error::Error;
pub use extant_journal::{BatchTime, ExternalJournal, JournalError};
pub use info::VolumeInfo;
pub use open::{Journal, ReaderOptions, SuperblockAt};
pub use open_volume::{OpenReadDir, OpenVolume};
pub use ops::{Creator, EngineReadDir, RenameFlags, SetAttributes, TimesOfUse};
pub use options::{DataMode, VolumeOptions};
pub use read::dir::{BrokenIndex, DirEntry, Found, ReadDir};
pub use read::inode::LoadedInode;
pub use read::mapping::{Extents, Mapping, Target};
pub use read::path::Follow;
pub use read::statfs::StatFs;
pub use read::xattr::{AclKind, XattrInfo};
pub use reader::Reader;
pub use shutdown::Shutdown;
pub use source::{BlockKind, DataPiece, MetadataRead, RecordPlace};
pub use volume::Volume;
pub use volume_read::VolumeRead;
pub use write::xattr::{MAX_XATTR_SIZE, XattrSet};
