//! Bulk packing: directories, extent trees and indirect maps are written whole, from contents that
//! are all known in advance.
//!
//! For each kind, one call returns the number of blocks needed and a second one writes them, from
//! the same input, so that no state is kept between the calls. The caller chooses the blocks: there
//! is no allocation policy here.

mod directory;
mod extents;
mod indirect;
mod mapping;

pub use directory::{DirItem, DirPlan, DirectoryPacker, TooManyNames};
pub use extents::{ExtentTree, extent_blocks};
pub use indirect::{IndirectTree, indirect_blocks};
pub use mapping::{MappingTree, dense_runs};

use extant_ondisk::{BlockNo, FileBlock};

/// Consecutive logical blocks of a file in consecutive physical blocks, of any length.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FileExtent {
    /// First logical block.
    pub block: FileBlock,
    /// Number of blocks, at least one.
    pub len: u64,
    /// First physical block.
    pub start: BlockNo,
}

#[cfg(test)]
pub(crate) mod sample {
    use extant_ondisk::Geometry;
    use extant_ondisk::superblock::RawSuperblock;
    use extant_ondisk::{IncompatFeatures, RoCompatFeatures};
    use zerocopy::FromZeros;

    /// A volume of 32 groups.
    pub(crate) fn geometry(block_size: u32, has_csum: bool) -> Geometry {
        let mut raw = RawSuperblock::new_zeroed();
        let log = block_size.trailing_zeros() - 10;
        raw.s_log_block_size.set(log);
        raw.s_log_cluster_size.set(log);
        raw.s_first_data_block.set(u32::from(block_size == 1024));
        raw.s_blocks_per_group.set(block_size * 8);
        raw.s_clusters_per_group.set(block_size * 8);
        raw.s_blocks_count_lo.set(block_size * 8 * 32 + u32::from(block_size == 1024));
        raw.s_inodes_per_group.set(1024);
        raw.s_inodes_count.set(1024 * 32);
        raw.s_rev_level.set(1);
        raw.s_inode_size.set(256);
        raw.s_first_ino.set(11);
        raw.s_feature_incompat.set((IncompatFeatures::FILETYPE | IncompatFeatures::EXTENTS).bits());
        if has_csum {
            raw.s_feature_ro_compat.set(RoCompatFeatures::METADATA_CSUM.bits());
            raw.s_checksum_type = 1;
        }
        Geometry::new(&raw).expect("a possible volume")
    }
}
