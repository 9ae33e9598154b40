//! Superblocks, descriptors and reserved GDT blocks at the start of block groups. Source: the
//! kernel's documentation (blockgroup, group_descr, special_inodes).

use std::ops::Range;

use extant_ondisk::{BlockNo, CompatFeatures, Geometry, GroupNo, IncompatFeatures};

/// The metadata at a group's start that belongs to the whole volume.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Leading {
    /// The group's first block: that of its superblock, except block 0 when the superblock is in
    /// block 1.
    pub first: BlockNo,
    /// The block of the superblock or a backup. Block 0 holds it at byte 1,024.
    pub superblock: Option<BlockNo>,
    /// Descriptor table blocks.
    pub descriptors: Range<u64>,
    /// Index in the table of the first of them.
    pub first_desc_block: u32,
    /// Blocks reserved for growth of the table.
    pub reserved: Range<u64>,
}

impl Leading {
    /// All of these blocks: they are adjacent.
    pub fn blocks(&self) -> Range<u64> {
        self.first.0..self.reserved.end
    }
}

/// Number of descriptor blocks stored after superblocks: all, or with meta_bg those before the
/// first meta group.
pub fn classic_desc_blocks(geometry: &Geometry) -> u32 {
    if geometry.has_incompat(IncompatFeatures::META_BG) {
        geometry.first_meta_bg.min(geometry.desc_blocks())
    } else {
        geometry.desc_blocks()
    }
}

/// The metadata at the start of a group.
pub fn leading(geometry: &Geometry, group: GroupNo) -> Leading {
    let first = geometry.group_start(group);
    // With blocks of 1 KiB and bigalloc, group 0 starts at block 0 and its superblock is in block
    // 1.
    let start =
        if group.0 == 0 { geometry.superblock_block().0 } else { geometry.group_start(group).0 };
    let has_super = geometry.has_super(group);
    let after_super = start + u64::from(has_super);
    let superblock = has_super.then_some(BlockNo(start));
    let meta_group = group.0 / geometry.descs_per_block();
    let classic = classic_desc_blocks(geometry);
    if geometry.has_incompat(IncompatFeatures::META_BG) && meta_group >= geometry.first_meta_bg {
        let place = group.0 % geometry.descs_per_block();
        // A copy in the meta group's first, second and last group.
        let has_copy = place <= 1 || place == geometry.descs_per_block() - 1;
        let end = after_super + u64::from(has_copy);
        return Leading {
            first,
            superblock,
            descriptors: after_super..end,
            first_desc_block: meta_group,
            reserved: end..end,
        };
    }
    let (table, reserved) = if has_super {
        let reserved = if geometry.has_compat(CompatFeatures::RESIZE_INODE) {
            u64::from(geometry.reserved_gdt_blocks)
        } else {
            0
        };
        (u64::from(classic), reserved)
    } else {
        (0, 0)
    };
    let end = after_super + table;
    Leading {
        first,
        superblock,
        descriptors: after_super..end,
        first_desc_block: 0,
        reserved: end..end + reserved,
    }
}

/// The locations of a descriptor table block: the primary copy first, then its backups.
pub fn desc_block_places(geometry: &Geometry, desc_block: u32) -> Vec<BlockNo> {
    let holders: Vec<GroupNo> = if geometry.has_incompat(IncompatFeatures::META_BG)
        && desc_block >= geometry.first_meta_bg
    {
        let per_block = u64::from(geometry.descs_per_block());
        let first = u64::from(desc_block) * per_block;
        let mut holders = vec![first, first + 1, first + per_block - 1];
        holders.dedup();
        holders
            .into_iter()
            .filter(|group| *group < u64::from(geometry.groups_count))
            .filter_map(|group| u32::try_from(group).ok().map(GroupNo))
            .collect()
    } else {
        std::iter::once(GroupNo(0)).chain(geometry.backup_superblock_groups()).collect()
    };
    holders
        .into_iter()
        .filter_map(|group| {
            let leading = leading(geometry, group);
            let at = desc_block.checked_sub(leading.first_desc_block)?;
            let block = leading.descriptors.start + u64::from(at);
            (block < leading.descriptors.end).then_some(BlockNo(block))
        })
        .collect()
}
