//! The figures of statfs.

use super::group;
use crate::error::Error;
use crate::source::MetadataRead;
use extant_ondisk::Uuid;
use extant_ondisk::dirent::MAX_NAME_LEN;

/// The figures of statfs for a volume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StatFs {
    /// Bytes a block.
    pub block_size: u32,
    /// Blocks that files can use: those of the volume but for its own metadata.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Free blocks but for those reserved for the reserved user, and for those that the kernel's
    /// ext4 does not tell of either.
    pub available_blocks: u64,
    /// Inodes.
    pub inodes: u32,
    /// Free inodes.
    pub free_inodes: u64,
    /// Bytes of the longest name.
    pub max_name_len: u32,
    /// Identity of the volume.
    pub uuid: Uuid,
}

/// Number of free clusters and inodes of a volume.
#[derive(Clone, Copy, Debug)]
pub struct Free {
    /// Clusters.
    pub clusters: u64,
    /// Inodes.
    pub inodes: u64,
    /// Clusters that are kept for maps.
    pub for_maps: u64,
}

/// The figures of a volume with so much free.
///
/// # Errors
/// A broken descriptor, or the device failed.
pub fn stat_fs<S: MetadataRead>(source: &S, free: Free) -> Result<StatFs, Error> {
    let (geometry, superblock) = (source.geometry(), &source.info().superblock);
    let per_cluster = u64::from(geometry.blocks_per_cluster);
    let free_blocks = free.clusters.saturating_mul(per_cluster);
    let overhead = group::overhead(source, superblock)?;
    let for_maps = free.for_maps.saturating_mul(per_cluster);
    let kept_blocks = superblock.reserved_blocks.saturating_add(for_maps);
    Ok(StatFs {
        block_size: geometry.block_size,
        blocks: geometry.blocks_count.saturating_sub(overhead),
        free_blocks,
        available_blocks: free_blocks.saturating_sub(kept_blocks),
        inodes: geometry.inodes_count,
        free_inodes: free.inodes,
        max_name_len: MAX_NAME_LEN as u32,
        uuid: superblock.uuid,
    })
}
