//! The figures themselves.

use extant_ondisk::quota::QuotaKind;
use extant_ondisk::superblock::{DefaultMountOptions, ErrorPolicy};
use extant_ondisk::{Features, IncompatFeatures};

use super::super::extended::Extended;

/// Facts of the device that are known before anything is read from it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DeviceInfo {
    /// Bytes; `None` for a file that does not exist yet.
    pub size: Option<u64>,
    /// Bytes a logical sector: no smaller block can be written. 512 for files.
    pub logical_sector: u32,
    /// Bytes a physical sector: smaller blocks are slow.
    pub physical_sector: u32,
    /// `MKE2FS_FIRST_META_BG`
    pub first_meta_bg: Option<u32>,
}

/// `s_creator_os`
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CreatorOs(pub u32);

impl CreatorOs {
    /// Linux.
    pub const LINUX: Self = Self(0);
    /// GNU Hurd.
    pub const HURD: Self = Self(1);

    pub(super) fn of_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "linux" => Some(Self::LINUX),
            "hurd" | "gnu" => Some(Self::HURD),
            "freebsd" => Some(Self(3)),
            "lites" => Some(Self(4)),
            number => number.parse().ok().map(Self),
        }
    }
}

/// The parameters of a file system. Counts are consistent with each other: the volume can be laid
/// out.
#[derive(Clone, Debug, PartialEq)]
pub struct FsParams {
    /// 0 has neither features nor inode sizes.
    pub revision: u32,
    /// Features.
    pub features: Features,
    /// Bytes.
    pub block_size: u32,
    /// Bytes; the block size without bigalloc.
    pub cluster_size: u32,
    /// 1 with blocks of 1 KiB, unless clusters start at 0.
    pub first_data_block: u64,
    /// Blocks of the volume.
    pub blocks: u64,
    /// Blocks a group.
    pub blocks_per_group: u32,
    /// Groups.
    pub groups: u32,
    /// Inodes a group.
    pub inodes_per_group: u32,
    /// Bytes.
    pub inode_size: u16,
    /// Bytes a group descriptor; `None` without 64bit, where it is 32.
    pub desc_size: Option<u16>,
    /// Descriptor blocks reserved for growing.
    pub reserved_gdt_blocks: u16,
    /// Groups a flex group, 1 for none.
    pub flex_bg_size: u32,
    /// First meta block group.
    pub first_meta_bg: u32,
    /// sparse_super2: the groups with backups.
    pub backup_groups: [u32; 2],
    /// Blocks reserved for the superuser.
    pub reserved_blocks: u64,
    /// The per cent they were computed from.
    pub reserved_ratio: f64,
    /// The internal journal, or a journal device's own.
    pub journal: Option<JournalFigures>,
    /// Blocks of the orphan file; 0 without one.
    pub orphan_file_blocks: u32,
    /// Files to be made with the file system.
    pub huge_files: Option<HugeFiles>,
    /// Kinds of quota that get a file.
    pub quotas: Vec<QuotaKind>,
    /// Default hash of directories: 0 legacy, 1 half_md4, 2 tea.
    pub hash_version: u8,
    /// The reaction to errors.
    pub errors: ErrorPolicy,
    /// Default mount options.
    pub mount_options: DefaultMountOptions,
    /// Whether checks by mount count and time are on.
    pub periodic_fsck: bool,
    /// The creator OS.
    pub creator_os: CreatorOs,
    /// casefold: `s_encoding` and `s_encoding_flags`.
    pub encoding: (u16, u16),
    /// Seconds, 0 without mmp.
    pub mmp_interval: u16,
    /// The inode tables may be left for the kernel to clear.
    pub lazy_itable_init: bool,
    /// The journal need not be cleared.
    pub lazy_journal_init: bool,
    /// Discard the device first.
    pub discard: bool,
    /// Whether an undo file of an automatic name is made even if the inode tables are written.
    pub force_undo: bool,
    /// The journal at the start of the volume, with flex_bg all metadata, too.
    pub packed_meta_blocks: bool,
    /// The list of types by which the configuration was read.
    pub types: Vec<String>,
    /// The extended options, the configuration's included.
    pub extended: Extended,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

impl FsParams {
    /// Blocks a cluster.
    pub fn blocks_per_cluster(&self) -> u32 {
        self.cluster_size / self.block_size
    }

    /// Inodes of the volume.
    pub fn inodes(&self) -> u32 {
        self.groups.saturating_mul(self.inodes_per_group)
    }

    /// Whether the volume is a journal for others.
    pub fn is_journal_device(&self) -> bool {
        self.features.incompat.contains(IncompatFeatures::JOURNAL_DEV)
    }
}

/// The journal's figures.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct JournalFigures {
    /// All blocks, the fast-commit area included.
    pub blocks: u32,
    /// Blocks of the fast-commit area at its end.
    pub fast_commit_blocks: u32,
    /// The requested start.
    pub location: Option<u64>,
}

/// Files that are made with the file system, without contents.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HugeFiles {
    /// Directories on the way to them.
    pub directory: Vec<String>,
    /// Owner of files and directories.
    pub uid: u32,
    /// Their group.
    pub gid: u32,
    /// Permissions that they do not get.
    pub umask: u16,
    /// Files; 0 for as many as fit.
    pub count: u64,
    /// Blocks a file; 0 to fill the volume.
    pub blocks: u64,
    /// Blocks left free.
    pub slack: u64,
    /// Blocks; start and size of files are multiples of this.
    pub align: u64,
    /// The name before the number.
    pub name: String,
    /// Digits of the number.
    pub digits: usize,
    /// Whether their blocks must read as zero.
    pub zero: bool,
}
