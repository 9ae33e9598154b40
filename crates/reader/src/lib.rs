//! A volume that is only read.
//!
//! Opened by [`ReaderOptions::open`] a file system on a device is a [`Reader`], which never writes.
//! Its calls are those of [`VolumeRead`]; a volume that is changed (crate `extant-engine`) has the
//! same. It is `Send + Sync`, and every call takes `&self`. Files are named by inode; paths are one
//! layer above ([`VolumeRead::resolve`]).
//!
//! The algorithms that read the format are in [`read`]: functions over [`MetadataRead`], which
//! yields checked metadata blocks. They do not depend on whether a block comes from a cache in
//! front of the device or from a frame of the journal.
#![forbid(unsafe_code)]

mod cache;
mod errno;
mod error;
pub mod hash;
mod info;
mod open;
pub mod read;
mod reader;
mod source;
pub mod torn;
mod volume_read;

pub use error::{Error, OtherHost};
pub use extant_journal::{ExternalJournal, JournalError, NotOpened};
pub use info::VolumeInfo;
pub use open::{
    DEFAULT_TABLE_RUN, Journal, ReaderOptions, SuperblockAt, check_journal_device, check_size,
    find_backup_superblock,
};
pub use read::dir::{BrokenIndex, DirEntry, ReadDir};
pub use read::dir_block::EntryTarget;
pub use read::inode::LoadedInode;
pub use read::mapping::{Extents, Mapping, MappingTarget};
pub use read::path::Follow;
pub use read::statfs::StatFs;
pub use read::xattr::{AclKind, XattrInfo};
pub use reader::Reader;
pub use source::{
    BlockKind, DataPiece, MetadataRead, RecordPlace, superblock_at, superblock_block,
};
pub use volume_read::VolumeRead;
