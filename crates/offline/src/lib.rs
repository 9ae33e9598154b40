//! Changes without transactions to a volume that is not mounted or open elsewhere: for checkers,
//! tuners, and the replay of fast commits.
//!
//! [`OfflineVolume`] keeps the superblock, the descriptors and the bitmaps that it used in memory;
//! [`OfflineVolume::commit`] writes the changes. Inodes and blocks of files are written at once.
//! The caller protects against an interruption: by an undo file, or by a later check. To complete
//! all changes before any of them is on the device, open the volume on an overlay. [`MapWalk`]
//! walks over the map of one file and does not need an open volume.
#![forbid(unsafe_code)]

mod alloc;
pub mod bad_blocks;
mod error;
mod files;
mod map;
pub mod mmp;
mod superblock;
mod volume;
mod walk;

pub use error::{MapError, NoSpace, OfflineError, format_errno};
pub use files::{CreatedFile, JournalShape, back_up_journal};
pub use map::FileMap;
pub use superblock::{backup_superblock, read_primary_superblock, read_superblock, read_table};
pub use volume::OfflineVolume;
pub use walk::{MapPart, MapWalk, MappedFile};
