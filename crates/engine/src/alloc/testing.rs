//! Helpers for tests of the allocator.

use extant_ondisk::Geometry;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_MAGIC};
use zerocopy::FromZeros;

/// A volume of `groups` groups of 32,768 blocks of 4 KiB, and 8,192 inodes each.
pub(super) fn geometry(groups: u32) -> Geometry {
    let mut raw = RawSuperblock::new_zeroed();
    raw.s_magic.set(SUPERBLOCK_MAGIC);
    raw.s_rev_level.set(1);
    raw.s_log_block_size.set(2);
    raw.s_log_cluster_size.set(2);
    raw.s_blocks_per_group.set(32_768);
    raw.s_clusters_per_group.set(32_768);
    raw.s_inodes_per_group.set(8192);
    raw.s_inodes_count.set(8192 * groups);
    raw.s_blocks_count_lo.set(32_768 * groups);
    raw.s_first_ino.set(11);
    raw.s_inode_size.set(256);
    Geometry::new(&raw).expect("the figures of a plain volume")
}
