//! The descriptor table with descriptors of another size.

use extant_layout::DescriptorTable;
use extant_offline::OfflineVolume;
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::{Geometry, GroupNo};

use super::error::ResizeError;

/// The descriptors of `old` in the size of `new`.
pub(super) fn resized(before: &DescriptorTable, old: &Geometry, new: &Geometry) -> DescriptorTable {
    let mut table = DescriptorTable::zeroed(new);
    let size = usize::from(new.desc_size);
    let kept = usize::from(old.desc_size).min(size);
    for group in (0..new.groups_count.min(old.groups_count)).map(GroupNo) {
        let (index, at) = new.desc_place(group);
        let start = index as usize * new.block_len() + at;
        let stored = &before.stored(group, old)[..kept];
        table.bytes_mut()[start..start + kept].copy_from_slice(stored);
    }
    table
}

/// Sets the checksums of all bitmaps in the descriptors of `after`, which have room for more or
/// fewer bits of them.
pub(super) fn seal_bitmaps(
    before: &OfflineVolume,
    after: &mut OfflineVolume,
) -> Result<(), ResizeError> {
    let (old, new) = (before.geometry(), after.geometry().clone());
    if !new.has_metadata_csum() {
        return Ok(());
    }
    for group in (0..new.groups_count).map(GroupNo) {
        let desc = before.desc(group);
        for (kind, block, uninit) in [
            (BitmapKind::Block, desc.block_bitmap, GroupFlags::BLOCK_UNINIT),
            (BitmapKind::Inode, desc.inode_bitmap, GroupFlags::INODE_UNINIT),
        ] {
            if desc.flags.contains(uninit) {
                continue;
            }
            let bits = before.read(block)?;
            bitmap::verify(&bits, kind, group, &desc, old)?;
            after.update_desc(group, |desc| bitmap::seal(&bits, kind, desc, &new));
        }
    }
    Ok(())
}
