//! Places for new inodes and blocks, where debugfs looks for them.

use extant::InodeNo;
use extant::debug::{DebugError, DebugVolume};
use extant::rooms::ondisk::GroupNo;
use extant::rooms::ondisk::bitmap::{self, BitmapKind};

/// The first free inode from the group of a directory on; `None` on a full volume.
pub(super) fn free_inode(
    volume: &mut DebugVolume,
    dir: InodeNo,
) -> Result<Option<InodeNo>, DebugError> {
    let geometry = volume.geometry().clone();
    let per_group = geometry.inodes_per_group;
    let groups = geometry.groups_count;
    let home = group_of_inode(dir, per_group).0.min(groups.saturating_sub(1));
    for group in (home..groups).chain(0..home).map(GroupNo) {
        let first = group.0 * per_group;
        let reserved = geometry.first_inode.0.saturating_sub(1).saturating_sub(first);
        let bits = volume.bitmap(BitmapKind::Inode, group)?;
        let from = reserved.min(per_group);
        if let Some(bit) = bitmap::next_clear(bits, from..per_group) {
            return Ok(Some(InodeNo(first + bit + 1)));
        }
    }
    Ok(None)
}

/// The group of an inode number.
fn group_of_inode(inode: InodeNo, per_group: u32) -> GroupNo {
    GroupNo(inode.0.saturating_sub(1) / per_group.max(1))
}
