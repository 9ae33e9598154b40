//! Changes that a volume does not admit.

use std::fmt;

use extant_device::errno;
use extant_ondisk::{Features, InodeNo};

/// The change of a feature.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FeatureChange {
    /// It is set.
    Set,
    /// It is cleared.
    Clear,
}

impl fmt::Display for FeatureChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Set => "Setting",
            Self::Clear => "Clearing",
        })
    }
}

/// A change that the volume does not admit.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ChangeError {
    /// A feature that tune2fs does not change.
    #[error("{change} filesystem feature '{features}' not supported.")]
    Feature {
        /// The change asked for.
        change: FeatureChange,
        /// The feature.
        features: Features,
    },
    /// A journal for a volume that has one.
    #[error("The filesystem already has a journal.")]
    HasJournal,
    /// An encoding for a volume that has one.
    #[error("Cannot alter existing encoding: the casefold feature is set already.")]
    HasEncoding,
    /// `metadata_csum_seed` without `metadata_csum`.
    #[error(
        "Setting feature 'metadata_csum_seed' is only supported on filesystems with the metadata_csum feature enabled."
    )]
    SeedWithoutChecksums,
    /// `orphan_file` without a journal.
    #[error("orphan_file feature can be set only for filesystems with journal.")]
    OrphanFileWithoutJournal,
    /// `project` with inodes of 128 bytes.
    #[error("Cannot enable project feature; inode size too small.")]
    InodesTooSmallForProject,
    /// `flex_bg` cleared while a group's tables are in another group.
    #[error("Clearing the flex_bg flag would cause the the filesystem to be inconsistent.")]
    TablesOutsideGroup,
    /// `casefold` cleared while a directory uses it.
    #[error(
        "The casefold feature can't be cleared when there are inodes with the +F flag: directory {0}"
    )]
    FoldedDirectory(InodeNo),
    /// A journal that does not fit.
    #[error("The filesystem is too small for a journal")]
    TooSmallForJournal,
    /// `clear_mmp` without the feature `mmp`.
    #[error("clear_mmp: the volume has no mmp feature")]
    NoMmp,
    /// Inodes have this size, in bytes.
    #[error("The inode size is already {0}")]
    SameInodeSize(u16),
    /// Another inode size with `flex_bg`.
    #[error("-I: the inode size of a volume with flex_bg cannot be changed")]
    InodeSizeWithFlexBg,
    /// Inodes are larger.
    #[error("Shrinking inode size is not supported")]
    SmallerInodes,
    /// Inodes that are larger than a block.
    #[error("Invalid inode size {size} (max {max})")]
    InodeSize {
        /// Bytes asked for.
        size: u16,
        /// Bytes of a block.
        max: u32,
    },
    /// More than half of the blocks.
    #[error("reserved blocks count is too big ({0})")]
    ReservedBlocks(u64),
    /// A change of more than the superblock, on a volume that the kernel has mounted.
    #[error("mounted device: {0} may only be changed when the filesystem is unmounted")]
    OnlyUnmounted(&'static str),
    /// The UUID of a volume with `stable_inodes`.
    #[error(
        "Cannot change the UUID of this filesystem because it has the stable_inodes feature flag."
    )]
    StableInodes,
}

impl ChangeError {
    /// The number that a system call returns for it (`ENOENT` is 2).
    pub fn errno(&self) -> i32 {
        match self {
            Self::HasJournal | Self::HasEncoding => errno::EEXIST,
            Self::TooSmallForJournal => errno::ENOSPC,
            Self::FoldedDirectory(_) => errno::ENOTEMPTY,
            Self::OnlyUnmounted(_) => errno::EBUSY,
            _ => errno::EINVAL,
        }
    }
}

/// Part of tune2fs, but not of this version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unsupported {
    /// A change of the feature `64bit`.
    Bit64(FeatureChange),
    /// A change of a journal device.
    JournalDevice,
    /// A journal on another device for a volume that has one.
    ExternalJournal,
    /// A change of the inode size.
    InodeSize,
    /// Checksums of a directory without room for them, with `bigalloc`.
    BigallocDirectory(InodeNo),
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bit64(change) => write!(f, "{change} 64bit, which is resize2fs's,"),
            Self::JournalDevice => f.write_str("changing a journal device"),
            Self::ExternalJournal => {
                f.write_str("replacing a journal by one on a device of its own (-J device=)")
            }
            Self::InodeSize => f.write_str("changing the inode size (-I)"),
            Self::BigallocDirectory(directory) => {
                write!(f, "room for checksums in directory {directory} of a volume with bigalloc")
            }
        }
    }
}

/// Work that relies on structures of the volume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Work {
    /// A journal is added.
    AddJournal,
    /// The journal is removed.
    RemoveJournal,
    /// A journal that must be replayed is removed.
    RemoveDirtyJournal,
    /// An orphan file is added.
    AddOrphanFile,
    /// The orphan file is removed.
    RemoveOrphanFile,
    /// An orphan file with orphans is removed.
    RemoveOrphanFileInUse,
    /// Quota files are added.
    AddQuota,
    /// Quota files are removed.
    RemoveQuota,
    /// `dir_index` is cleared.
    ClearDirIndex,
    /// Checksums of metadata are added, removed or changed.
    ChangeChecksums,
    /// The UUID, on which the checksums depend, is changed.
    ChangeUuid,
    /// A directory with holes is written again.
    RewriteDirectory(InodeNo),
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AddJournal => "adding a journal",
            Self::RemoveJournal => "taking off the journal",
            Self::RemoveDirtyJournal => "taking off a journal with changes in it",
            Self::AddOrphanFile => "adding an orphan file",
            Self::RemoveOrphanFile => "removing the orphan file",
            Self::RemoveOrphanFileInUse => "removing an orphan file in use",
            Self::AddQuota => "adding quota files",
            Self::RemoveQuota => "removing quota files",
            Self::ClearDirIndex => "clearing dir_index",
            Self::ChangeChecksums => "changing checksums",
            Self::ChangeUuid => "changing the UUID of a volume with checksums",
            Self::RewriteDirectory(number) => {
                return write!(f, "directory {number}, which has holes,");
            }
        })
    }
}
