//! Discards the free clusters on the device.

use crate::store::CheckError;
use extant_device::Device;
use extant_offline::OfflineVolume;
use extant_ondisk::bitmap::{BitmapKind, clear_runs};
use extant_ondisk::{BlockNo, GroupNo};
use std::sync::Arc;

/// Gives the free clusters back to the device.
pub(super) fn free_clusters(device: &Arc<dyn Device>) -> Result<(), CheckError> {
    let mut volume = OfflineVolume::open(device.clone())?;
    let geometry = volume.geometry().clone();
    let ratio = u64::from(geometry.blocks_per_cluster);
    for group in (0..geometry.groups_count).map(GroupNo) {
        let start = geometry.group_start(group).0;
        let end = start + u64::from(geometry.group_blocks(group));
        let bitmap = volume.bitmap(BitmapKind::Block, group)?;
        let free: Vec<_> = clear_runs(bitmap, 0..geometry.group_clusters(group)).collect();
        for run in free {
            let (from, to) = (u64::from(run.start) * ratio, u64::from(run.end) * ratio);
            let (from, to) = (BlockNo(start + from), BlockNo((start + to).min(end)));
            device.discard(geometry.byte_of(from)..geometry.byte_of(to))?;
        }
    }
    Ok(device.flush()?)
}
