//! Free space that is discarded on the device.

use crate::engine::Engine;
use extant_ondisk::{Geometry, GroupNo};
use extant_reader::Error;
use std::ops::Range;

/// Bytes that are claimed at a time while the device discards them: they are not allocatable then.
const BYTES_AT_ONCE: u64 = 64 << 20;

impl Engine {
    /// Discards the free space in a range of the volume's bytes on the device, as the ioctl FITRIM
    /// does: a sparse image uses no space for it any more. Free runs of fewer than `least` bytes
    /// are left as they are. Freed space is committed first, so that it is free. Number of bytes
    /// that were discarded.
    ///
    /// # Errors
    /// An error has made the volume read-only, a bitmap is broken, or the journal or device failed.
    pub fn trim(&self, range: Range<u64>, least: u64) -> Result<u64, Error> {
        self.check_writable()?;
        if self.allocator.has_pending() {
            self.commit_all()?;
        }
        let geometry = self.geometry();
        let cluster_size = geometry.cluster_size();
        // Runs lie in groups, and a group's clusters have 32 bits.
        let in_clusters =
            |bytes: u64| u32::try_from(bytes.div_ceil(cluster_size)).unwrap_or(u32::MAX);
        let (least, most) = (in_clusters(least), in_clusters(BYTES_AT_ONCE));
        let mut discarded = 0;
        for group in (0..geometry.groups_count).map(GroupNo) {
            let mut clusters = clusters_within(geometry, group, &range);
            while !clusters.is_empty() {
                let claimed = self.allocator.claim_in(self, group, clusters.clone(), least, most);
                let claim = match claimed {
                    Ok(Some(claim)) => claim,
                    // Fallback: all free space is reserved for delayed data, which will be written
                    // there.
                    Ok(None) | Err(Error::NoSpace) => break,
                    Err(error) => return Err(error),
                };
                let run = claim.run();
                let start = geometry.byte_of(run.start);
                let end = start + run.count * u64::from(geometry.block_size);
                self.device.discard(start..end)?;
                discarded += end - start;
                clusters.start = claim.end();
            }
        }
        Ok(discarded)
    }
}

/// The clusters of a group that lie wholly within a range of the volume's bytes.
fn clusters_within(geometry: &Geometry, group: GroupNo, range: &Range<u64>) -> Range<u32> {
    let cluster_size = geometry.cluster_size();
    let start = geometry.byte_of(geometry.group_start(group));
    let count = geometry.group_clusters(group);
    let bytes = u64::from(geometry.group_blocks(group)) * u64::from(geometry.block_size);
    let first = range.start.saturating_sub(start).div_ceil(cluster_size);
    // The volume's last cluster may be cut off.
    let end = match range.end.saturating_sub(start) {
        end if end >= bytes => u64::from(count),
        end => end / cluster_size,
    };
    let within = |cluster: u64| u32::try_from(cluster).unwrap_or(u32::MAX).min(count);
    within(first)..within(end)
}
