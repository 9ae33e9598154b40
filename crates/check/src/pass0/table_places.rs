//! Where a group's descriptor says that its tables lie.

use extant_ondisk::group_desc::{GroupDesc, GroupFlags};
use extant_ondisk::{BlockNo, Geometry, GroupNo, IncompatFeatures};

/// The names of a group's tables in findings.
pub(super) const TABLES: [&str; 3] = ["block bitmap", "inode bitmap", "inode table"];

pub(super) fn table_blocks(name: &str, geometry: &Geometry) -> u64 {
    if name == "inode table" { u64::from(geometry.itable_blocks()) } else { 1 }
}

/// The locations of a group that lie off the volume, or without flex_bg outside of the group. Block
/// 0 is not a valid location either: it holds the superblock, or the boot sector.
pub(super) fn bad_places(
    group: GroupNo,
    desc: &GroupDesc,
    geometry: &Geometry,
) -> Vec<&'static str> {
    let is_bound = !geometry.has_incompat(IncompatFeatures::FLEX_BG);
    let is_outside = |block: BlockNo| is_bound && geometry.group_of(block) != Some(group);
    [
        ("block bitmap", desc.block_bitmap, 1),
        ("inode bitmap", desc.inode_bitmap, 1),
        ("inode table", desc.inode_table, u64::from(geometry.itable_blocks())),
    ]
    .into_iter()
    .filter(|(_, block, count)| {
        block.0 == 0
            || !geometry.contains(*block, *count)
            || is_outside(*block)
            || is_outside(BlockNo(block.0 + count - 1))
    })
    .map(|(name, _, _)| name)
    .collect()
}

pub(super) fn place(desc: &GroupDesc, name: &str) -> BlockNo {
    match name {
        "block bitmap" => desc.block_bitmap,
        "inode bitmap" => desc.inode_bitmap,
        _ => desc.inode_table,
    }
}

pub(super) fn set_place(desc: &mut GroupDesc, name: &str, block: BlockNo) {
    match name {
        "block bitmap" => desc.block_bitmap = block,
        "inode bitmap" => desc.inode_bitmap = block,
        _ => desc.inode_table = block,
    }
}

/// Nothing is taken as never used in this group.
pub(super) fn mark_suspect(desc: &mut GroupDesc) {
    desc.flags -= GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_UNINIT;
    desc.itable_unused = 0;
}
