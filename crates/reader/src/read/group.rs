//! Group descriptors and bitmaps.

use super::inode;
use crate::error::Error;
use crate::source::{BlockKind, MetadataRead};
use extant_layout::groups::leading;
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::group_desc::{self, GroupDesc, GroupFlags};
use extant_ondisk::superblock::Superblock;
use extant_ondisk::{BlockNo, Flaw, Geometry, GroupNo, Location};
use std::ops::Range;

/// A group's descriptor: its checksum is right and its bitmaps and table lie on the volume. Its
/// counts are not checked: reading files does not need them.
///
/// # Errors
/// No such group, a broken descriptor, or the device failed.
pub fn descriptor<S: MetadataRead>(source: &S, group: GroupNo) -> Result<GroupDesc, Error> {
    let geometry = source.geometry();
    if group.0 >= geometry.groups_count {
        let flaw = Flaw::above_limit("group", group.0, geometry.groups_count - 1);
        return Err(flaw.at(Location::GroupDesc(group)).into());
    }
    let (index, at) = geometry.desc_place(group);
    let table = source.metadata(source.descriptor_block(index), BlockKind::Descriptors)?;
    let stored = table.get(at..at + usize::from(geometry.desc_size)).unwrap_or_default();
    group_desc::verify(stored, group, geometry)?;
    let desc = GroupDesc::from_stored(stored, group, geometry)?;
    desc.check_places(group, geometry)?;
    Ok(desc)
}

/// A group's bitmap, one block: as stored and checked, or if the group's flags say that it is not
/// stored, as implied.
///
/// # Errors
/// A broken descriptor or bitmap, or the device failed.
pub fn bitmap<S: MetadataRead>(
    source: &S,
    group: GroupNo,
    kind: BitmapKind,
) -> Result<Vec<u8>, Error> {
    let geometry = source.geometry();
    let desc = descriptor(source, group)?;
    if !is_implied(geometry, kind, &desc) {
        return Ok(stored_bitmap(source, group, kind, &desc)?.to_vec());
    }
    Ok(implied_bitmap(geometry, group, kind, &desc))
}

/// Whether a group's bitmap is implied and not stored.
pub fn is_implied(geometry: &Geometry, kind: BitmapKind, desc: &GroupDesc) -> bool {
    let unstored = match kind {
        BitmapKind::Block => GroupFlags::BLOCK_UNINIT,
        BitmapKind::Inode => GroupFlags::INODE_UNINIT,
    };
    geometry.has_uninit_groups() && desc.flags.contains(unstored)
}

/// Where a group's bitmap lies.
pub fn bitmap_place(kind: BitmapKind, desc: &GroupDesc) -> BlockNo {
    match kind {
        BitmapKind::Block => desc.block_bitmap,
        BitmapKind::Inode => desc.inode_bitmap,
    }
}

/// A group's bitmap as stored, checked.
///
/// # Errors
/// A broken bitmap, or the device failed.
pub fn stored_bitmap<S: MetadataRead>(
    source: &S,
    group: GroupNo,
    kind: BitmapKind,
    desc: &GroupDesc,
) -> Result<S::Block, Error> {
    let checksum = kind.stored_checksum(desc);
    source.metadata(bitmap_place(kind, desc), BlockKind::Bitmap { group, kind, checksum })
}

/// A group's bitmap as implied by its descriptor: nothing in use but the group's own metadata.
pub fn implied_bitmap(
    geometry: &Geometry,
    group: GroupNo,
    kind: BitmapKind,
    desc: &GroupDesc,
) -> Vec<u8> {
    let mut bytes = vec![0; geometry.block_len()];
    if kind == BitmapKind::Block {
        let table = u64::from(geometry.itable_blocks());
        let own = [
            desc.block_bitmap.0..desc.block_bitmap.0 + 1,
            desc.inode_bitmap.0..desc.inode_bitmap.0 + 1,
            desc.inode_table.0..desc.inode_table.0 + table,
        ];
        for blocks in own.into_iter().chain([leading(geometry, group).blocks()]) {
            mark(&mut bytes, group, blocks, geometry);
        }
    }
    bitmap::pad(&mut bytes, kind.used_bits(group, geometry));
    bytes
}

/// Sets the bits of the blocks that lie in the group.
fn mark(bytes: &mut [u8], group: GroupNo, blocks: Range<u64>, geometry: &Geometry) {
    let start = geometry.group_start(group).0;
    let end = start + u64::from(geometry.group_blocks(group));
    let (from, to) = (blocks.start.max(start), blocks.end.min(end));
    if from < to {
        let per_cluster = u64::from(geometry.blocks_per_cluster);
        // Within a group, so it fits.
        let first = ((from - start) / per_cluster) as u32;
        let last = ((to - 1 - start) / per_cluster) as u32;
        bitmap::set_range(bytes, first..last + 1);
    }
}

/// Free clusters and free inodes, as all descriptors count them.
///
/// # Errors
/// A broken descriptor, or the device failed.
pub fn free_counts<S: MetadataRead>(source: &S) -> Result<(u64, u64), Error> {
    let (mut free_clusters, mut free_inodes) = (0_u64, 0_u64);
    for group in (0..source.geometry().groups_count).map(GroupNo) {
        let desc = descriptor(source, group)?;
        free_clusters += u64::from(desc.free_clusters);
        free_inodes += u64::from(desc.free_inodes);
    }
    Ok((free_clusters, free_inodes))
}

/// Blocks that belong to the volume itself, as statfs counts them: recorded in the superblock, else
/// those of superblocks, descriptors, bitmaps, inode tables and the internal journal.
///
/// # Errors
/// The device failed, or the journal's inode is broken.
pub fn overhead<S: MetadataRead>(source: &S, superblock: &Superblock) -> Result<u64, Error> {
    let geometry = source.geometry();
    let per_cluster = u64::from(geometry.blocks_per_cluster);
    if superblock.overhead_clusters != 0 {
        return Ok(u64::from(superblock.overhead_clusters).saturating_mul(per_cluster));
    }
    let mut blocks = geometry.first_data_block.0;
    for group in (0..geometry.groups_count).map(GroupNo) {
        let leading = leading(geometry, group).blocks();
        blocks += leading.end - leading.start + 2 + u64::from(geometry.itable_blocks());
    }
    if let Some(journal) = superblock.internal_journal() {
        let size = inode::load(source, journal)?.size;
        blocks += size.div_ceil(u64::from(geometry.block_size));
    }
    Ok(blocks)
}
