//! What a block group starts with: the superblock or its backup, descriptors, blocks reserved for more of them.
//! From the kernel's documentation (blockgroup, group_descr, special_inodes).

use std::ops::Range;

use extant_ondisk::{BlockNo, CompatFeatures, Geometry, GroupNo, IncompatFeatures};

/// The blocks at a group's start that belong to the volume as a whole.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Leading {
    /// The group's first block: the superblock's, but for block 0 before a superblock in block 1.
    pub first: BlockNo,
    /// The superblock or a backup. Block 0 holds it at byte 1,024.
    pub superblock: Option<BlockNo>,
    /// Blocks of the descriptor table.
    pub descriptors: Range<u64>,
    /// Which block of the table the first of them is.
    pub first_desc_block: u32,
    /// Blocks into which the table may grow.
    pub reserved: Range<u64>,
}

impl Leading {
    /// All of them together: they lie one after the other.
    pub fn blocks(&self) -> Range<u64> {
        self.first.0..self.reserved.end
    }
}

/// Descriptor blocks that lie behind superblocks: all, or with meta_bg those before the first meta group.
pub fn classic_desc_blocks(geometry: &Geometry) -> u32 {
    if geometry.has_incompat(IncompatFeatures::META_BG) {
        geometry.first_meta_bg.min(geometry.desc_blocks())
    } else {
        geometry.desc_blocks()
    }
}

/// What a group starts with.
pub fn leading(geometry: &Geometry, group: GroupNo) -> Leading {
    let first = geometry.group_start(group);
    // With blocks of 1 KiB and bigalloc group 0 starts at block 0 and its superblock lies in block 1.
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

/// Where a block of the descriptor table is kept: the copy in use first, then its backups.
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
