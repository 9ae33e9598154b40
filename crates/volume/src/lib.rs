//! The live ext4 file system.
//!
//! [`Volume`] is a file system opened on a device. It is `Send + Sync`, and every call takes `&self`. Files are named by
//! inode; paths are one layer above ([`Volume::resolve`]).
//!
//! Opened by [`OpenOptions::open`] it is only read; opened by [`OpenOptions::open_live`] it is changed too, through a journal
//! where it has one.
//!
//! The algorithms that read the format are in [`read`]: functions over [`MetadataRead`], which yields checked metadata
//! blocks. They do not know whether a block comes from a cache before the device or from a frame of the journal.
#![forbid(unsafe_code)]

mod alloc;
mod cache;
pub mod edit;
mod error;
mod hash;
mod info;
mod lifecycle;
mod live;
mod open;
pub mod ops;
mod ranks;
pub mod read;
mod shutdown;
mod source;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod torn;
mod volume;
pub mod write;

pub use alloc::AllocatorKind;
pub use error::Error;
pub use extant_journal::BatchTime;
pub use info::VolumeInfo;
#[cfg(feature = "testing")]
pub use live::faults::Step;
pub use live::lost::ErrorSample;
pub use open::{DataMode, Journal, LiveOptions, OpenOptions, SuperblockAt};
pub use ops::{Creator, LiveReadDir, RenameFlags, SetAttributes, TimesOfUse};
pub use read::dir::{BrokenIndex, DirEntry, Found, ReadDir};
pub use read::inode::LoadedInode;
pub use read::mapping::{Extents, Mapping, Target};
pub use read::path::Follow;
pub use read::xattr::{AclKind, XattrInfo};
pub use shutdown::Shutdown;
pub use source::{BlockKind, DataPiece, MetadataRead};
pub use volume::{StatFs, Volume};
pub use write::xattr::{MAX_XATTR_SIZE, XattrSet};
