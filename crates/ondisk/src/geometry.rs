//! Sizes and counts of a volume, checked once when it is opened.

use crate::checksum::Crc32c;
use crate::features::{
    CompatFeatures, Features, IncompatFeatures, MetadataChecksum, RoCompatFeatures,
};
use crate::superblock::{RawSuperblock, Superblock};
use crate::types::{BlockNo, ClusterNo, GroupNo, InodeNo, MAX_BLOCKS};
use crate::{Flaw, FormatError, Location};
use alloc::vec::Vec;

/// log2 of the maximum block size over 1 KiB: 64 KiB.
const MAX_LOG_BLOCK_SIZE: u32 = 6;
/// log2 of the maximum cluster size over 1 KiB: 2^29 bytes, as in the kernel.
const MAX_LOG_CLUSTER_SIZE: u32 = 19;
/// Inode size in bytes of revision 0.
const GOOD_OLD_INODE_SIZE: u16 = 128;
/// Descriptor size in bytes without 64bit, and the minimum with it.
const DESC_SIZE: u16 = 32;
const DESC_SIZE_64BIT: u16 = 64;
/// Maximum descriptor size in bytes that mke2fs writes.
const MAX_DESC_SIZE: u16 = 1024;

/// Sizes and locations of a volume's structures. All fields are consistent and safe for arithmetic:
/// no size is zero, counts fit their tables.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Geometry {
    /// Block size in bytes: 1,024 to 65,536.
    pub block_size: u32,
    /// Number of blocks per cluster: 1 without bigalloc.
    pub blocks_per_cluster: u32,
    /// First block of group 0: 1 with blocks of 1 KiB, otherwise 0 (also with bigalloc).
    pub first_data_block: BlockNo,
    /// Number of blocks of the volume, including those before `first_data_block`.
    pub blocks_count: u64,
    /// Number of blocks per group; the last group may have fewer.
    pub blocks_per_group: u32,
    /// Number of clusters per group: the bits of a block bitmap.
    pub clusters_per_group: u32,
    /// Number of inodes per group.
    pub inodes_per_group: u32,
    /// Number of inodes of the volume.
    pub inodes_count: u32,
    /// First inode that is not reserved.
    pub first_inode: InodeNo,
    /// Inode size in bytes: a power of two from 128 to the block size.
    pub inode_size: u16,
    /// Group descriptor size in bytes: 32, or 64 and more.
    pub desc_size: u16,
    /// Number of block groups.
    pub groups_count: u32,
    /// Initial value of crc32c checksums.
    pub checksum_seed: u32,
    /// UUID of the volume: initial value of crc16 checksums.
    pub uuid: crate::Uuid,
    /// The OS that created the volume, which determines the meaning of some inode fields: 0 Linux,
    /// 1 Hurd.
    pub creator_os: u32,
    /// The feature words.
    pub features: Features,
    /// Number of groups per flex group: 1 without flex_bg.
    pub groups_per_flex: u32,
    /// First meta block group: descriptor blocks from here on are in their groups (with meta_bg).
    pub first_meta_bg: u32,
    /// Number of blocks reserved after the descriptors.
    pub reserved_gdt_blocks: u16,
    /// Groups with superblock backups with sparse_super2; 0 for none.
    pub backup_groups: [u32; 2],
}

impl Geometry {
    /// Checks the superblock's sizes and counts and derives the rest.
    ///
    /// # Errors
    /// A feature that cannot be read, or an invalid size or count.
    pub fn new(raw: &RawSuperblock) -> Result<Self, FormatError> {
        let features = raw.features();
        let beyond = features.incompat.difference(IncompatFeatures::READABLE);
        if !beyond.is_empty() {
            return Err(FormatError::Unsupported(beyond));
        }
        Self::of_figures(raw).map_err(|flaw| flaw.at(Location::Superblock(GroupNo(0))))
    }

    fn of_figures(raw: &RawSuperblock) -> Result<Self, Flaw> {
        let superblock = Superblock::decode(raw);
        let features = superblock.features;
        let is_bigalloc = features.ro_compat.contains(RoCompatFeatures::BIGALLOC);

        let log_block =
            limited("s_log_block_size", raw.s_log_block_size.get(), MAX_LOG_BLOCK_SIZE)?;
        let block_size = 1024_u32 << log_block;
        let bits_per_block = block_size * 8;

        let blocks_per_cluster = if is_bigalloc {
            let log =
                limited("s_log_cluster_size", raw.s_log_cluster_size.get(), MAX_LOG_CLUSTER_SIZE)?;
            if log < log_block {
                return Err(Flaw::below_limit("s_log_cluster_size", log, log_block));
            }
            1_u32 << (log - log_block)
        } else {
            1
        };

        let blocks_per_group = positive("s_blocks_per_group", raw.s_blocks_per_group.get())?;
        let clusters_per_group = if is_bigalloc {
            positive("s_clusters_per_group", raw.s_clusters_per_group.get())?
        } else {
            blocks_per_group
        };
        limited("s_clusters_per_group", clusters_per_group, bits_per_block)?;
        if u64::from(clusters_per_group) * u64::from(blocks_per_cluster)
            != u64::from(blocks_per_group)
        {
            return Err(Flaw::bad_value("s_blocks_per_group", blocks_per_group));
        }

        let (inode_size, first_inode) = if superblock.revision == 0 {
            (GOOD_OLD_INODE_SIZE, InodeNo::FIRST_ORDINARY)
        } else {
            (raw.s_inode_size.get(), InodeNo(raw.s_first_ino.get()))
        };
        if !inode_size.is_power_of_two() || inode_size < GOOD_OLD_INODE_SIZE {
            return Err(Flaw::bad_value("s_inode_size", inode_size));
        }
        limited("s_inode_size", u32::from(inode_size), block_size)?;
        if first_inode < InodeNo::FIRST_ORDINARY {
            return Err(Flaw::below_limit("s_first_ino", first_inode.0, InodeNo::FIRST_ORDINARY.0));
        }

        let desc_size = if features.incompat.contains(IncompatFeatures::BIT64) {
            let size = raw.s_desc_size.get();
            if !(DESC_SIZE_64BIT..=MAX_DESC_SIZE).contains(&size) || !size.is_power_of_two() {
                return Err(Flaw::bad_value("s_desc_size", size));
            }
            size
        } else {
            DESC_SIZE
        };

        let blocks_count = superblock.blocks_count;
        if blocks_count > MAX_BLOCKS {
            return Err(Flaw::above_limit("s_blocks_count", blocks_count, MAX_BLOCKS));
        }
        let first_data_block =
            u64::from(limited("s_first_data_block", raw.s_first_data_block.get(), 1)?);
        let grouped_blocks = blocks_count
            .checked_sub(first_data_block)
            .filter(|&blocks| blocks > 0)
            .ok_or(Flaw::below_limit("s_blocks_count", blocks_count, first_data_block + 1))?;
        let groups = grouped_blocks.div_ceil(u64::from(blocks_per_group));
        let groups_count = u32::try_from(groups)
            .map_err(|_| Flaw::above_limit("number of groups", groups, u32::MAX))?;

        let inodes_per_group = positive("s_inodes_per_group", raw.s_inodes_per_group.get())?;
        limited("s_inodes_per_group", inodes_per_group, bits_per_block)?;
        let inodes = u64::from(inodes_per_group) * u64::from(groups_count);
        if inodes != u64::from(superblock.inodes_count) {
            return Err(Flaw::bad_value("s_inodes_count", superblock.inodes_count));
        }
        limited("s_first_ino", first_inode.0, superblock.inodes_count)?;

        let log_flex = u32::from(raw.s_log_groups_per_flex);
        let groups_per_flex = if features.incompat.contains(IncompatFeatures::FLEX_BG) {
            1_u32.checked_shl(log_flex).ok_or(Flaw::above_limit(
                "s_log_groups_per_flex",
                log_flex,
                31_u32,
            ))?
        } else {
            1
        };
        let reserved_gdt_blocks = raw.s_reserved_gdt_blocks.get();
        limited("s_reserved_gdt_blocks", u32::from(reserved_gdt_blocks), block_size / 4)?;

        Ok(Self {
            block_size,
            blocks_per_cluster,
            first_data_block: BlockNo(first_data_block),
            blocks_count,
            blocks_per_group,
            clusters_per_group,
            inodes_per_group,
            inodes_count: superblock.inodes_count,
            first_inode,
            inode_size,
            desc_size,
            groups_count,
            checksum_seed: raw.checksum_seed(),
            uuid: superblock.uuid,
            creator_os: superblock.creator_os,
            features,
            groups_per_flex,
            first_meta_bg: raw.s_first_meta_bg.get(),
            reserved_gdt_blocks,
            backup_groups: raw.s_backup_bgs.map(|group| group.get()),
        })
    }

    /// log2 of the block size.
    pub fn block_bits(&self) -> u32 {
        self.block_size.trailing_zeros()
    }

    /// The block size as a length in memory.
    pub fn block_len(&self) -> usize {
        self.block_size as usize
    }

    /// Cluster size in bytes.
    pub fn cluster_size(&self) -> u64 {
        u64::from(self.block_size) * u64::from(self.blocks_per_cluster)
    }

    /// Byte offset of a block on the device. Below 2^64, since blocks have 48 bits and sizes 16.
    pub fn byte_of(&self, block: BlockNo) -> u64 {
        block.0 << self.block_bits()
    }

    /// Whether `count` blocks from `start` are within the volume.
    pub fn contains(&self, start: BlockNo, count: u64) -> bool {
        start.0 >= self.first_data_block.0
            && start.0.checked_add(count).is_some_and(|end| end <= self.blocks_count)
    }

    /// Number of inodes per block of the inode table.
    pub fn inodes_per_block(&self) -> u32 {
        self.block_size / u32::from(self.inode_size)
    }

    /// Clusters that a mount keeps for maps, as the kernel does (`admin-guide/ext4.rst`,
    /// "reserved_clusters"): a fiftieth of all, 4096 at most, where files may have extents. With
    /// them a full volume can cut an extent that is punched or written in the middle.
    pub fn clusters_for_maps(&self) -> u64 {
        /// One cluster in this number is kept, and at most this number in total.
        const SHARE: u64 = 50;
        const MOST: u64 = 4096;
        if !self.has_incompat(IncompatFeatures::EXTENTS) {
            return 0;
        }
        (self.blocks_count / u64::from(self.blocks_per_cluster) / SHARE).min(MOST)
    }

    /// Number of blocks of a group's inode table.
    pub fn itable_blocks(&self) -> u32 {
        self.inodes_per_group.div_ceil(self.inodes_per_block())
    }

    /// Number of descriptors per block of the descriptor table.
    pub fn descs_per_block(&self) -> u32 {
        self.block_size / u32::from(self.desc_size)
    }

    /// Number of blocks of the descriptor table.
    pub fn desc_blocks(&self) -> u32 {
        self.groups_count.div_ceil(self.descs_per_block())
    }

    /// The block with the primary superblock: 0, or 1 with blocks of 1 KiB.
    pub fn superblock_block(&self) -> BlockNo {
        BlockNo(crate::superblock::SUPERBLOCK_OFFSET / u64::from(self.block_size))
    }

    /// The location of a block of the descriptor table, given by its index: after the superblock,
    /// or with meta_bg in the first group that it describes.
    pub fn desc_block(&self, index: u32) -> BlockNo {
        let first_group = GroupNo(index.saturating_mul(self.descs_per_block()));
        if !self.is_in_meta_group(index) || first_group.0 == 0 {
            return BlockNo(self.superblock_block().0 + 1 + u64::from(index));
        }
        self.desc_block_of_meta_group(first_group)
    }

    /// The location of the copy of a descriptor table block that belongs to the backup superblock
    /// of group `backup`: after that, or with meta_bg in the second group that the block describes.
    /// `None` if there is no copy.
    pub fn desc_block_backup(&self, index: u32, backup: GroupNo) -> Option<BlockNo> {
        let block = if self.is_in_meta_group(index) {
            let second = GroupNo(index.checked_mul(self.descs_per_block())?.checked_add(1)?);
            if second.0 >= self.groups_count {
                return None;
            }
            self.desc_block_of_meta_group(second)
        } else {
            BlockNo(self.group_start(backup).0 + 1 + u64::from(index))
        };
        self.contains(block, 1).then_some(block)
    }

    /// The position of a group's descriptor: index of the table block, and byte in it.
    pub fn desc_place(&self, group: GroupNo) -> (u32, usize) {
        let at = group.0 % self.descs_per_block();
        // Below the block size.
        (group.0 / self.descs_per_block(), (at * u32::from(self.desc_size)) as usize)
    }

    fn is_in_meta_group(&self, index: u32) -> bool {
        self.has_incompat(IncompatFeatures::META_BG) && index >= self.first_meta_bg
    }

    fn desc_block_of_meta_group(&self, group: GroupNo) -> BlockNo {
        BlockNo(self.group_start(group).0 + u64::from(self.has_super(group)))
    }

    /// First block of a group.
    pub fn group_start(&self, group: GroupNo) -> BlockNo {
        BlockNo(self.first_data_block.0 + u64::from(group.0) * u64::from(self.blocks_per_group))
    }

    /// Number of blocks of a group: fewer in the last one.
    pub fn group_blocks(&self, group: GroupNo) -> u32 {
        let left = self.blocks_count.saturating_sub(self.group_start(group).0);
        // At most blocks_per_group, so it fits.
        left.min(u64::from(self.blocks_per_group)) as u32
    }

    /// Number of clusters of a group: the bits in use of its block bitmap.
    pub fn group_clusters(&self, group: GroupNo) -> u32 {
        self.group_blocks(group).div_ceil(self.blocks_per_cluster)
    }

    /// The group of a block; `None` outside the volume.
    pub fn group_of(&self, block: BlockNo) -> Option<GroupNo> {
        let at = block.0.checked_sub(self.first_data_block.0)?;
        if block.0 >= self.blocks_count {
            return None;
        }
        u32::try_from(at / u64::from(self.blocks_per_group)).ok().map(GroupNo)
    }

    /// The group of an inode and its index in the group's table; `None` if there is no such inode.
    pub fn inode_place(&self, inode: InodeNo) -> Option<(GroupNo, u32)> {
        let at = inode.0.checked_sub(1)?;
        if inode.0 > self.inodes_count {
            return None;
        }
        Some((GroupNo(at / self.inodes_per_group), at % self.inodes_per_group))
    }

    /// The cluster of a block.
    pub fn cluster_of(&self, block: BlockNo) -> ClusterNo {
        ClusterNo(
            block.0.saturating_sub(self.first_data_block.0) / u64::from(self.blocks_per_cluster),
        )
    }

    /// The first block of a cluster.
    pub fn cluster_start(&self, cluster: ClusterNo) -> BlockNo {
        BlockNo(self.first_data_block.0 + cluster.0 * u64::from(self.blocks_per_cluster))
    }

    /// Number of clusters of the volume.
    pub fn clusters_count(&self) -> u64 {
        (self.blocks_count - self.first_data_block.0).div_ceil(u64::from(self.blocks_per_cluster))
    }

    /// The type of metadata checksums.
    pub fn checksum(&self) -> MetadataChecksum {
        self.features.checksum()
    }

    /// Whether the volume has crc32c checksums.
    pub fn has_metadata_csum(&self) -> bool {
        self.checksum() == MetadataChecksum::Crc32c
    }

    /// Initial value of checksums of an inode's structures: directory blocks, htree nodes, extent
    /// nodes, the inode itself.
    pub fn inode_checksum_seed(&self, inode: InodeNo, generation: u32) -> u32 {
        Crc32c::seeded(self.checksum_seed).le32(inode.0).le32(generation).value()
    }

    /// The generation of an inode whose structures have checksums that start at `seed`.
    #[must_use]
    pub fn generation_of_seed(&self, inode: InodeNo, seed: u32) -> u32 {
        let before = Crc32c::seeded(self.checksum_seed).le32(inode.0).value();
        before ^ Crc32c::seeded(seed).without_zeros(4).value()
    }

    /// Whether descriptors have checksums and may mark bitmaps and tables as uninitialized.
    pub fn has_uninit_groups(&self) -> bool {
        self.checksum() != MetadataChecksum::None
    }

    /// Whether a compatible feature is set.
    pub fn has_compat(&self, feature: CompatFeatures) -> bool {
        self.features.compat.contains(feature)
    }

    /// Whether an incompatible feature is set.
    pub fn has_incompat(&self, feature: IncompatFeatures) -> bool {
        self.features.incompat.contains(feature)
    }

    /// Whether a read-only compatible feature is set.
    pub fn has_ro_compat(&self, feature: RoCompatFeatures) -> bool {
        self.features.ro_compat.contains(feature)
    }

    /// Whether a group starts with a copy of the superblock (and, before the first meta group, of
    /// the descriptors).
    pub fn has_super(&self, group: GroupNo) -> bool {
        if group.0 == 0 {
            return true;
        }
        if self.has_compat(CompatFeatures::SPARSE_SUPER2) {
            return self.backup_groups.contains(&group.0);
        }
        if group.0 == 1 || !self.has_ro_compat(RoCompatFeatures::SPARSE_SUPER) {
            return true;
        }
        [3, 5, 7].into_iter().any(|base| is_power_of(group.0, base))
    }

    /// The groups with backups of the superblock, without group 0.
    pub fn backup_superblock_groups(&self) -> Vec<GroupNo> {
        if self.has_compat(CompatFeatures::SPARSE_SUPER2) {
            let mut groups: Vec<_> = self
                .backup_groups
                .into_iter()
                .filter(|&group| group != 0 && group < self.groups_count)
                .map(GroupNo)
                .collect();
            groups.sort_unstable();
            groups.dedup();
            return groups;
        }
        if !self.has_ro_compat(RoCompatFeatures::SPARSE_SUPER) {
            return (1..self.groups_count).map(GroupNo).collect();
        }
        let powers = [3, 5, 7].into_iter().flat_map(powers_of);
        let mut groups: Vec<_> = core::iter::once(1).chain(powers).map(GroupNo).collect();
        groups.retain(|group| group.0 < self.groups_count);
        groups.sort_unstable();
        groups
    }
}

/// The powers of a number of at least 2, without 1.
fn powers_of(base: u32) -> impl Iterator<Item = u32> {
    core::iter::successors(Some(base), move |power| power.checked_mul(base))
}

fn is_power_of(number: u32, base: u32) -> bool {
    let mut power = u64::from(base);
    while power < u64::from(number) {
        power *= u64::from(base);
    }
    power == u64::from(number)
}

fn limited(field: &'static str, found: u32, limit: u32) -> Result<u32, Flaw> {
    if found > limit { Err(Flaw::above_limit(field, found, limit)) } else { Ok(found) }
}

fn positive(field: &'static str, found: u32) -> Result<u32, Flaw> {
    if found == 0 { Err(Flaw::below_limit(field, found, 1_u32)) } else { Ok(found) }
}
