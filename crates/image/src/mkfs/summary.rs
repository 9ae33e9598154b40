//! The group descriptors and bitmaps of a new volume, and the superblock that sums them up:
//! computed from what is in use, group by group, so that a volume of any size needs memory for one
//! bitmap at a time.

use extant_layout::RunSet;
use extant_layout::tables::{GroupTables, is_block_uninit};
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::group_desc::{self, GroupDesc, GroupFlags};
use extant_ondisk::{Geometry, GroupNo};

/// The usage of the volume, and the state of its inode tables.
#[derive(Clone, Copy, Debug)]
pub struct Usage<'a> {
    /// Blocks, in whole clusters.
    pub blocks: &'a RunSet,
    /// Inodes, by number.
    pub inodes: &'a RunSet,
    /// The unused parts of the inode tables read as zero.
    pub tables_zeroed: bool,
}

/// One group's descriptor and the bitmaps that must be stored.
#[derive(Clone, Debug)]
pub struct GroupSummary {
    /// The descriptor, bitmaps' checksums included.
    pub desc: GroupDesc,
    /// None: implied by the descriptor.
    pub block_bitmap: Option<Vec<u8>>,
    /// None: implied by the descriptor.
    pub inode_bitmap: Option<Vec<u8>>,
}

/// Sums up one group.
pub fn summarize(
    geometry: &Geometry,
    group: GroupNo,
    tables: &GroupTables,
    directories: u32,
    usage: Usage<'_>,
) -> GroupSummary {
    let blocks = {
        let start = geometry.group_start(group).0;
        start..start + u64::from(geometry.group_blocks(group))
    };
    let inodes = {
        let start = u64::from(group.0) * u64::from(geometry.inodes_per_group) + 1;
        start..start + u64::from(geometry.inodes_per_group)
    };
    let used_inodes = usage.inodes.count_in(inodes.clone());
    let high_water =
        usage.inodes.runs_in(inodes.clone()).last().map_or(0, |run| run.end - inodes.start);
    let mut flags = GroupFlags::empty();
    let mut itable_unused = 0;
    if geometry.has_uninit_groups() {
        itable_unused = u64::from(geometry.inodes_per_group) - high_water;
        if used_inodes == 0 {
            flags |= GroupFlags::INODE_UNINIT;
        }
        let is_last = group.0 + 1 == geometry.groups_count;
        if !is_last && used_inodes == 0 && is_block_uninit(geometry, tables, usage.blocks, group) {
            flags |= GroupFlags::BLOCK_UNINIT;
        }
        if usage.tables_zeroed {
            flags |= GroupFlags::INODE_ZEROED;
        }
    }
    let used_blocks = usage.blocks.count_in(blocks.clone());
    let used_clusters = used_blocks.div_ceil(u64::from(geometry.blocks_per_cluster));
    let small = |count: u64| u32::try_from(count).expect("counts of one group");
    let mut desc = GroupDesc {
        block_bitmap: tables.block_bitmap,
        inode_bitmap: tables.inode_bitmap,
        inode_table: tables.inode_table,
        free_clusters: geometry.group_clusters(group) - small(used_clusters),
        free_inodes: geometry.inodes_per_group - small(used_inodes),
        used_dirs: directories,
        flags,
        itable_unused: small(itable_unused),
        block_bitmap_checksum: 0,
        inode_bitmap_checksum: 0,
    };
    let block_bitmap = (!flags.contains(GroupFlags::BLOCK_UNINIT)).then(|| {
        let ratio = u64::from(geometry.blocks_per_cluster);
        let mut bits = vec![0; geometry.block_len()];
        for run in usage.blocks.runs_in(blocks.clone()) {
            let first = (run.start - blocks.start) / ratio;
            let end = (run.end - blocks.start).div_ceil(ratio);
            bitmap::set_range(&mut bits, small(first)..small(end));
        }
        bitmap::pad(&mut bits, BitmapKind::Block.used_bits(group, geometry));
        bitmap::seal(&bits, BitmapKind::Block, &mut desc, geometry);
        bits
    });
    let inode_bitmap = (!flags.contains(GroupFlags::INODE_UNINIT)).then(|| {
        let mut bits = vec![0; geometry.block_len()];
        for run in usage.inodes.runs_in(inodes.clone()) {
            let (first, end) = (run.start - inodes.start, run.end - inodes.start);
            bitmap::set_range(&mut bits, small(first)..small(end));
        }
        bitmap::pad(&mut bits, BitmapKind::Inode.used_bits(group, geometry));
        bitmap::seal(&bits, BitmapKind::Inode, &mut desc, geometry);
        bits
    });
    GroupSummary { desc, block_bitmap, inode_bitmap }
}

/// The descriptor as stored, sealed.
pub fn store(desc: &GroupDesc, group: GroupNo, geometry: &Geometry, stored: &mut [u8]) {
    desc.store(stored, group, geometry).expect("callers cut a slot of desc_size bytes");
    group_desc::seal(stored, group, geometry);
}
