//! High-water marks of the inode tables, and implied bitmaps: the parts of uninit_bg.

use extant_offline::OfflineVolume;
use extant_ondisk::GroupNo;
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::group_desc::GroupFlags;

use super::error::TuneError;

fn groups(volume: &OfflineVolume) -> impl Iterator<Item = GroupNo> + use<> {
    (0..volume.geometry().groups_count).map(GroupNo)
}

/// Sets the mark of each group after the last used inode of its table. Tables of a volume without
/// marks were cleared when it was made.
pub(super) fn set(volume: &mut OfflineVolume) -> Result<(), TuneError> {
    let whole = volume.geometry().inodes_per_group;
    for group in groups(volume) {
        let bitmap = volume.bitmap(BitmapKind::Inode, group)?;
        let used =
            (0..whole).rev().find(|&index| bitmap::test(bitmap, index)).map_or(0, |at| at + 1);
        volume.update_desc(group, |desc| {
            desc.flags = GroupFlags::INODE_ZEROED;
            desc.itable_unused = whole - used;
        });
    }
    Ok(())
}

/// Stores implied data: every bitmap, and zeroes in tables that are not cleared yet. Done before
/// the feature is cleared.
pub(super) fn remove(volume: &mut OfflineVolume) -> Result<(), TuneError> {
    let geometry = volume.geometry().clone();
    for group in groups(volume) {
        for kind in [BitmapKind::Block, BitmapKind::Inode] {
            volume.store_bitmap(kind, group)?;
        }
        let desc = volume.desc(group);
        if !desc.flags.contains(GroupFlags::INODE_ZEROED) {
            let table = geometry.byte_of(desc.inode_table);
            let size = u64::from(geometry.inode_size);
            let used = u64::from(desc.itable_used(&geometry)) * size;
            let end = u64::from(geometry.inodes_per_group) * size;
            volume.device().write_zeroes(table + used..table + end)?;
        }
        volume.update_desc(group, |desc| {
            desc.flags = GroupFlags::empty();
            desc.itable_unused = 0;
        });
    }
    Ok(())
}
