//! The volume during the replay of fast commits: changes stay in memory until the end.

use std::ops::Range;

use extant_device::{Device, OverlayDevice};
use extant_offline::OfflineVolume;
use extant_ondisk::BlockNo;

use crate::JournalError;

/// The volume with the changes so far. The device below is only read.
pub(super) type Volume<'a> = OfflineVolume<OverlayDevice<&'a dyn Device>>;

pub(super) fn open(device: &dyn Device) -> Result<Volume<'_>, JournalError> {
    Ok(OfflineVolume::open_strict(OverlayDevice::new(device))?)
}

/// A run of blocks by their numbers.
pub(super) fn run(start: BlockNo, count: u64) -> Range<u64> {
    start.0..start.0.saturating_add(count)
}

/// Allocates a whole cluster, in the group of `goal` or a later one. Returns its first block.
pub(super) fn allocate(volume: &mut Volume<'_>, goal: BlockNo) -> Result<BlockNo, JournalError> {
    let taken = volume.take_blocks(goal, 1)?;
    Ok(BlockNo(taken.first().map_or(0, |run| run.start)))
}

/// Updates counts and checksums of all changed structures. Returns the blocks that differ from
/// those on the device, in ascending order. On a damaged volume, bitmaps that cannot be read are
/// not counted.
pub(super) fn finish(
    mut volume: Volume<'_>,
    is_damaged: bool,
) -> Result<Vec<(BlockNo, Vec<u8>)>, JournalError> {
    match volume.recount().map_err(JournalError::from) {
        Err(error) if !is_damaged || matches!(error, JournalError::Device(_)) => return Err(error),
        _ => {}
    }
    volume.commit()?;
    let (overlay, geometry) = (volume.device(), volume.geometry());
    let size = u64::from(geometry.block_size);
    let mut before = vec![0; geometry.block_len()];
    let (mut changed, mut next) = (Vec::new(), 0);
    for run in overlay.changed() {
        // Two ranges can be in one block.
        let first = next.max(run.start / size);
        next = run.end.div_ceil(size);
        for block in (first..next).map(BlockNo).filter(|block| geometry.contains(*block, 1)) {
            overlay.base().read_at(geometry.byte_of(block), &mut before)?;
            let bytes = volume.read(block)?;
            if bytes != before {
                changed.push((block, bytes));
            }
        }
    }
    Ok(changed)
}
