//! Errors of the format: a location and a flaw, or an unsupported feature.

use crate::features::{IncompatFeatures, RoCompatFeatures};
use crate::jbd2::JournalIncompat;
use crate::types::{BlockNo, FileBlock, GroupNo, InodeNo};
use core::fmt;

/// An error of bytes of the format.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FormatError {
    /// The structure is corrupt.
    #[error("{location}: {flaw}")]
    Corrupt {
        /// The location of the structure.
        location: Location,
        /// The flaw in it.
        flaw: Flaw,
    },
    /// There is no primary superblock: the device is too short, or has no magic number there.
    #[error("not an ext2, ext3 or ext4 file system (superblock: {0})")]
    NotExt(Flaw),
    /// Valid, but reading it is not supported.
    #[error("feature not supported: {0}")]
    Unsupported(IncompatFeatures),
    /// Valid and readable, but writing it is not supported.
    #[error("feature not supported for writing: {0}")]
    UnsupportedForWriting(RoCompatFeatures),
    /// A valid journal with an unsupported feature.
    #[error("feature of the journal not supported: {0}")]
    UnsupportedJournal(JournalIncompat),
}

impl FormatError {
    /// Whether the structure is corrupt and not merely unsupported.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::NotExt(_))
    }

    /// Converts an error of the primary superblock on opening: a device that is too short or has no
    /// magic number is not an ext file system.
    #[must_use]
    pub fn of_primary(self) -> Self {
        match self {
            Self::Corrupt {
                location: Location::Superblock(GroupNo(0)),
                flaw: flaw @ (Flaw::Magic { .. } | Flaw::Truncated { .. }),
            } => Self::NotExt(flaw),
            other => other,
        }
    }
}

/// The location of a structure on the volume, for messages and findings.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Location {
    /// The superblock, or the backup at the start of the given group.
    Superblock(GroupNo),
    /// The descriptor of a block group.
    GroupDesc(GroupNo),
    /// The block bitmap of a group.
    BlockBitmap(GroupNo),
    /// The inode bitmap of a group.
    InodeBitmap(GroupNo),
    /// The inode table of a group.
    InodeTable(GroupNo),
    /// An inode's own fields.
    Inode(InodeNo),
    /// The extent tree root in an inode, or the node in a block.
    ExtentNode(InodeNo, Option<BlockNo>),
    /// A block of an indirect map.
    IndirectBlock(InodeNo, BlockNo),
    /// A logical block of a directory.
    DirBlock(InodeNo, FileBlock),
    /// A directory entry: logical block and byte in it.
    DirEntry(InodeNo, FileBlock, u32),
    /// The index of a hashed directory: logical block.
    Htree(InodeNo, FileBlock),
    /// The extended attributes in an inode.
    InodeXattr(InodeNo),
    /// A block of extended attributes.
    XattrBlock(BlockNo),
    /// The inode that holds the value of an extended attribute.
    EaInode(InodeNo),
    /// Inline data of an inode.
    InlineData(InodeNo),
    /// The target of a symbolic link.
    Symlink(InodeNo),
    /// An access control list.
    Acl,
    /// A block of the orphan file.
    OrphanFile(InodeNo, FileBlock),
    /// The multiple-mount protection block.
    Mmp(BlockNo),
    /// The journal's superblock.
    JournalSuperblock,
    /// A block of the journal, counted from its start.
    JournalBlock(u32),
    /// A record of the fast-commit area: journal block and byte in it.
    FastCommit(u32, u32),
    /// A quota file: inode and block of 1 KiB.
    Quota(InodeNo, u32),
    /// A physical block whose use is not known.
    Block(BlockNo),
    /// The volume as a whole.
    Volume,
}

impl Location {
    /// The error of `flaw` at this location.
    pub fn corrupt(self, flaw: Flaw) -> FormatError {
        FormatError::Corrupt { location: self, flaw }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Superblock(GroupNo(0)) => f.write_str("superblock"),
            Self::Superblock(group) => write!(f, "backup superblock of group {group}"),
            Self::GroupDesc(group) => write!(f, "descriptor of group {group}"),
            Self::BlockBitmap(group) => write!(f, "block bitmap of group {group}"),
            Self::InodeBitmap(group) => write!(f, "inode bitmap of group {group}"),
            Self::InodeTable(group) => write!(f, "inode table of group {group}"),
            Self::Inode(inode) => write!(f, "inode {inode}"),
            Self::ExtentNode(inode, None) => write!(f, "extent root of inode {inode}"),
            Self::ExtentNode(inode, Some(block)) => {
                write!(f, "extent node of inode {inode} in block {block}")
            }
            Self::IndirectBlock(inode, block) => {
                write!(f, "indirect block {block} of inode {inode}")
            }
            Self::DirBlock(inode, block) => write!(f, "directory {inode}, block {block}"),
            Self::DirEntry(inode, block, at) => {
                write!(f, "directory {inode}, block {block}, entry at byte {at}")
            }
            Self::Htree(inode, block) => write!(f, "htree of directory {inode}, block {block}"),
            Self::InodeXattr(inode) => write!(f, "extended attributes in inode {inode}"),
            Self::XattrBlock(block) => write!(f, "extended attribute block {block}"),
            Self::EaInode(inode) => write!(f, "extended attribute inode {inode}"),
            Self::InlineData(inode) => write!(f, "inline data of inode {inode}"),
            Self::Symlink(inode) => write!(f, "symbolic link {inode}"),
            Self::Acl => f.write_str("access control list"),
            Self::OrphanFile(inode, block) => write!(f, "orphan file {inode}, block {block}"),
            Self::Mmp(block) => write!(f, "MMP block {block}"),
            Self::JournalSuperblock => f.write_str("journal superblock"),
            Self::JournalBlock(block) => write!(f, "journal block {block}"),
            Self::FastCommit(block, at) => {
                write!(f, "fast commit record in journal block {block} at byte {at}")
            }
            Self::Quota(inode, block) => write!(f, "quota file {inode}, block {block}"),
            Self::Block(block) => write!(f, "block {block}"),
            Self::Volume => f.write_str("volume"),
        }
    }
}

/// A flaw in a structure.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Flaw {
    /// The stored checksum differs from the computed one.
    Checksum {
        /// As stored.
        found: u32,
        /// As computed from the bytes.
        computed: u32,
    },
    /// The magic number is wrong.
    Magic {
        /// As stored.
        found: u32,
        /// The correct number.
        expected: u32,
    },
    /// A field exceeds its limit.
    AboveLimit {
        /// The field's name.
        field: &'static str,
        /// As stored.
        found: u64,
        /// Maximum.
        limit: u64,
    },
    /// A field is below its limit.
    BelowLimit {
        /// The field's name.
        field: &'static str,
        /// As stored.
        found: u64,
        /// Minimum.
        limit: u64,
    },
    /// A field has an invalid value.
    BadValue {
        /// The field's name.
        field: &'static str,
        /// As stored.
        found: u64,
    },
    /// The structure is truncated.
    Truncated {
        /// Number of bytes available.
        found: u64,
        /// Number of bytes needed.
        needed: u64,
    },
    /// A violated rule, as text, if no single field is wrong.
    Rule(&'static str),
}

impl Flaw {
    /// A checksum that does not match.
    pub fn checksum(found: impl Into<u32>, computed: impl Into<u32>) -> Self {
        Self::Checksum { found: found.into(), computed: computed.into() }
    }

    /// A missing magic number.
    pub fn magic(found: impl Into<u32>, expected: impl Into<u32>) -> Self {
        Self::Magic { found: found.into(), expected: expected.into() }
    }

    /// A field above its limit.
    pub fn above_limit(field: &'static str, found: impl Into<u64>, limit: impl Into<u64>) -> Self {
        Self::AboveLimit { field, found: found.into(), limit: limit.into() }
    }

    /// A field below its limit.
    pub fn below_limit(field: &'static str, found: impl Into<u64>, limit: impl Into<u64>) -> Self {
        Self::BelowLimit { field, found: found.into(), limit: limit.into() }
    }

    /// A field with a value that is never right.
    pub fn bad_value(field: &'static str, found: impl Into<u64>) -> Self {
        Self::BadValue { field, found: found.into() }
    }

    /// Too few bytes.
    pub fn truncated(found: usize, needed: usize) -> Self {
        Self::Truncated { found: found as u64, needed: needed as u64 }
    }

    /// The error of this flaw found at `place`.
    pub fn at(self, location: Location) -> FormatError {
        location.corrupt(self)
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checksum { found, computed } => {
                write!(f, "checksum is {found:#x}, computed {computed:#x}")
            }
            Self::Magic { found, expected } => {
                write!(f, "magic is {found:#x}, expected {expected:#x}")
            }
            Self::AboveLimit { field, found, limit } => {
                write!(f, "{field} is {found}, maximum {limit}")
            }
            Self::BelowLimit { field, found, limit } => {
                write!(f, "{field} is {found}, minimum {limit}")
            }
            Self::BadValue { field, found } => {
                write!(f, "{field} has the invalid value {found:#x}")
            }
            Self::Truncated { found, needed } => {
                write!(f, "truncated: {found} bytes, expected {needed}")
            }
            Self::Rule(rule) => f.write_str(rule),
        }
    }
}
