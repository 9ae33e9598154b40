//! The resize inode, which owns the blocks reserved for growth of the descriptor table.

use extant_layout::groups::leading;
use extant_offline::OfflineVolume;
use extant_ondisk::indirect;
use extant_ondisk::inode::Inode;
use extant_ondisk::{BlockNo, CompatFeatures, Geometry, GroupNo, InodeNo};

use super::error::ResizeError;

/// The slot of `i_block` with the double indirect block.
pub(super) const DOUBLE_SLOT: usize = 13;

/// Checks that [`update`] can map the reserved blocks for a new geometry, before anything changes.
pub(super) fn check(volume: &mut OfflineVolume, geometry: &Geometry) -> Result<(), ResizeError> {
    let old = volume.geometry().clone();
    if !old.has_compat(CompatFeatures::RESIZE_INODE) {
        return Ok(());
    }
    let record = volume.read_inode(InodeNo::RESIZE)?;
    let inode = Inode::decode(&record, InodeNo::RESIZE, &old)?;
    let double = indirect::pointer(&inode.i_block, DOUBLE_SLOT);
    let has_double = double.is_some_and(|block| old.contains(block, 1));
    let backups = geometry.backup_superblock_groups();
    let last = backups.last().copied().unwrap_or(GroupNo(0));
    let end = leading(geometry, GroupNo(0)).reserved.end;
    let end = end + u64::from(last.0) * u64::from(geometry.blocks_per_group);
    let has_room = backups.len() <= geometry.block_size as usize / 4 && end <= u64::from(u32::MAX);
    let is_kept = geometry.has_compat(CompatFeatures::RESIZE_INODE);
    match has_double && (has_room || !is_kept) {
        true => Ok(()),
        false => Err(ResizeError::NeedsCheck),
    }
}

/// Maps the reserved blocks of the volume and of its backups; `old` is the geometry of before. If
/// the volume has lost the feature, the inode is cleared.
pub(super) fn update(volume: &mut OfflineVolume, old: &Geometry) -> Result<(), ResizeError> {
    if !old.has_compat(CompatFeatures::RESIZE_INODE) {
        return Ok(());
    }
    let geometry = volume.geometry().clone();
    let mut record = volume.read_inode(InodeNo::RESIZE)?;
    let mut inode = Inode::decode(&record, InodeNo::RESIZE, old)?;
    let double = indirect::pointer(&inode.i_block, DOUBLE_SLOT)
        .filter(|block| geometry.contains(*block, 1))
        .ok_or(ResizeError::NeedsCheck)?;
    if !geometry.has_compat(CompatFeatures::RESIZE_INODE) {
        volume.free_blocks_of(std::iter::once(double.0..double.0 + 1))?;
        record.fill(0);
        return Ok(volume.write_inode(InodeNo::RESIZE, &mut record)?);
    }
    let reserved = leading(&geometry, GroupNo(0)).reserved;
    // Each at the same distance from group 0's as their groups, as e2fsprogs requires.
    let backups: Vec<u64> = geometry
        .backup_superblock_groups()
        .into_iter()
        .map(|group| u64::from(group.0) * u64::from(geometry.blocks_per_group))
        .collect();
    let pointers = u64::from(geometry.block_size / 4);
    let mut double_bytes = vec![0; geometry.block_len()];
    for block in reserved.clone() {
        let mut bytes = vec![0; geometry.block_len()];
        for (slot, backup) in backups.iter().enumerate() {
            indirect::set_pointer(&mut bytes, slot, BlockNo(block + backup));
        }
        volume.write(BlockNo(block), &bytes)?;
        // The slot is the number of the descriptor block that it may become: fewer than 2^14.
        let slot = (block - geometry.superblock_block().0 - 1) % pointers;
        indirect::set_pointer(&mut double_bytes, slot as usize, BlockNo(block));
    }
    volume.write(double, &double_bytes)?;
    let blocks = 1 + (reserved.end - reserved.start) * (1 + backups.len() as u64);
    inode.set_space(&geometry, blocks * u64::from(geometry.blocks_per_cluster));
    inode.encode_into(&mut record, &geometry);
    Ok(volume.write_inode(InodeNo::RESIZE, &mut record)?)
}
