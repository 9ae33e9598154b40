//! A volume that is not open elsewhere, changed without transactions: by checkers, tuners, and the replay
//! of fast commits.
//!
//! [`OfflineVolume`] keeps superblock, descriptors and the bitmaps it needed in memory;
//! [`OfflineVolume::commit`] writes what changed. Inodes and blocks of files are written at once.
//! What makes half of such work harmless is the caller's: an undo file, or the next check. Who
//! wants to see the work whole before any of it is on the device opens the volume on an overlay.
//! [`MapWalk`] walks over the map of one file and needs no volume opened.
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

pub use error::{MapError, NoSpace, OfflineError};
pub use files::{JournalShape, NewFile, back_up_journal};
pub use map::FileMap;
pub use superblock::{backup_superblock, read_primary_superblock, read_superblock, read_table};
pub use volume::OfflineVolume;
pub use walk::{MapPart, MapWalk, MappedFile};
