//! Volumes of many shapes, made of a few choices.

use bolero::TypeGenerator;
use extant_ondisk::superblock::{CHECKSUM_TYPE_CRC32C, RawSuperblock, SUPERBLOCK_MAGIC};
use extant_ondisk::{Features, Geometry, GroupNo, Uuid};
use zerocopy::FromZeros;

/// Choices for the format of a volume.
#[derive(Clone, Debug, TypeGenerator)]
pub(crate) struct Shape {
    block: Block,
    checksum: Checksum,
    inode_size: InodeSize,
    is_64bit: bool,
    has_bigalloc: bool,
    has_filetype: bool,
    has_large_dir: bool,
    has_ea_inode: bool,
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Block {
    K1,
    K4,
    K64,
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Checksum {
    None,
    Groups,
    Metadata,
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum InodeSize {
    Old,
    Usual,
    Large,
}

impl Shape {
    /// The superblock of such a volume, with its checksum.
    pub(crate) fn superblock(&self) -> RawSuperblock {
        let mut raw = RawSuperblock::new_zeroed();
        let log_block = match self.block {
            Block::K1 => 0,
            Block::K4 => 2,
            Block::K64 => 6,
        };
        let log_cluster = if self.has_bigalloc { log_block + 4 } else { log_block };
        raw.s_magic.set(SUPERBLOCK_MAGIC);
        raw.s_log_block_size.set(log_block);
        raw.s_log_cluster_size.set(log_cluster);
        raw.s_first_data_block.set(u32::from(log_cluster == 0));
        raw.s_blocks_count_lo.set(100_000);
        raw.s_blocks_per_group.set(8192);
        raw.s_clusters_per_group.set(8192 >> (log_cluster - log_block));
        raw.s_inodes_per_group.set(2048);
        raw.s_inodes_count.set(2048 * 13);
        raw.s_rev_level.set(1);
        raw.s_first_ino.set(11);
        raw.s_inode_size.set(match self.inode_size {
            InodeSize::Old => 128,
            InodeSize::Usual => 256,
            InodeSize::Large => 1024,
        });
        raw.s_desc_size.set(if self.is_64bit { 64 } else { 0 });
        raw.s_uuid = Uuid([7; 16]).0;
        raw.s_checksum_type = CHECKSUM_TYPE_CRC32C;
        raw.set_features(self.features());
        raw.seal();
        raw
    }

    fn features(&self) -> Features {
        let chosen = [
            (self.is_64bit, "64bit"),
            (self.has_bigalloc, "bigalloc"),
            (self.has_filetype, "filetype"),
            (self.has_large_dir, "large_dir"),
            (self.has_ea_inode, "ea_inode"),
            (matches!(self.checksum, Checksum::Groups), "uninit_bg"),
            (matches!(self.checksum, Checksum::Metadata), "metadata_csum"),
            (true, "has_journal"),
            (true, "extent"),
            (true, "flex_bg"),
            (true, "huge_file"),
            (true, "sparse_super"),
            (true, "inline_data"),
        ];
        let mut features = Features::default();
        for (_, name) in chosen.iter().filter(|(is_chosen, _)| *is_chosen) {
            features = features.union(Features::named(name).expect("a known feature"));
        }
        features
    }

    /// Its geometry.
    pub(crate) fn geometry(&self) -> Geometry {
        let raw = self.superblock();
        raw.verify(GroupNo(0)).expect("a sealed superblock");
        Geometry::new(&raw).expect("a volume as it should be")
    }
}
