//! A volume for a debugger: its structures as they are stored, whether they are sound or not.
//!
//! [`DebugVolume`] opens what can be opened at all: with a backup superblock, with checksums that
//! do not match, with features that are not known. Nothing is replayed and nothing is trusted:
//! walks are bounded, and whatever cannot be read is an error of its own. The texts of
//! [`DebugError`] are those of e2fsprogs, whose debugfs scripts read.

mod blocks;
mod blocks_to_copy;
mod change;
mod directory;
mod error;
mod file;
mod inode;
mod map;
mod metadata_image;
mod volume;
mod xattrs;

pub use blocks::{ExtentLine, MapStep, NodeKind};
pub use blocks_to_copy::{BlocksToCopy, CopyContents};
pub use directory::{DirItem, DirWalk};
pub use error::DebugError;
pub use inode::RawRecord;
pub use metadata_image::{MetadataOrigin, open_metadata_image};
pub use volume::{DebugChoice, DebugVolume};
pub use xattrs::RawXattr;
