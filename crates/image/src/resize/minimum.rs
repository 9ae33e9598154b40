//! The smallest size of a volume.

use extant_layout::groups::leading;
use extant_offline::OfflineVolume;
use extant_ondisk::{Geometry, GroupNo, IncompatFeatures};

use super::error::ResizeError;
use super::plan::{CutTables, Plan, metadata};
use super::scan::Scan;
use super::size::{Resized, Target};

/// The search for the smallest size of a volume.
pub(super) struct Smallest<'a> {
    pub(super) volume: &'a mut OfflineVolume,
    pub(super) scan: &'a Scan,
    /// No smaller number of blocks is wanted.
    pub(super) least: u64,
}

impl Smallest<'_> {
    /// The plan of the smallest size below `end` blocks, if there is one.
    pub(super) fn plan(
        &mut self,
        end: u64,
        cut_tables: CutTables,
    ) -> Result<Option<Plan>, ResizeError> {
        let (mut low, mut high) = (self.by_counts(end)?, end);
        let mut best: Option<Plan> = None;
        let mut step = u64::from(self.volume.geometry().blocks_per_cluster);
        let mut at = low;
        // Sizes that fit are searched upwards, then the smallest of them between two tries.
        while low < high {
            let found = Plan::new(self.volume, self.scan, Target::Blocks(at), cut_tables)?;
            match found.filter(|plan| plan.blocks >= self.least) {
                Some(plan) => {
                    high = plan.blocks.min(at);
                    best = Some(plan);
                }
                None => low = at + 1,
            }
            at = match &best {
                Some(_) => low + high.saturating_sub(low) / 2,
                None => {
                    step = step.saturating_mul(2);
                    at.saturating_add(step).min(high - 1).max(low)
                }
            };
        }
        Ok(best)
    }

    /// Where tables of groups that would be cut off are in the way of a size below `end` blocks:
    /// that size, and the plan of the volume with these tables beyond it.
    pub(super) fn tables_beyond(&mut self, end: u64) -> Result<Option<(u64, Plan)>, ResizeError> {
        if !self.volume.geometry().has_incompat(IncompatFeatures::FLEX_BG) {
            return Ok(None);
        }
        let Some(smaller) = self.plan(end, CutTables::Beyond)? else { return Ok(None) };
        let target = Target::TablesBeyond(smaller.blocks);
        let plan = Plan::new(self.volume, self.scan, target, CutTables::InPlace)?;
        Ok(plan.filter(|plan| !plan.tables.is_empty()).map(|plan| (smaller.blocks, plan)))
    }

    /// The first size up to `end` that has as many blocks and inodes as are in use, wherever they
    /// lie: no smaller one can hold them.
    pub(super) fn by_counts(&self, end: u64) -> Result<u64, ResizeError> {
        let geometry = self.volume.geometry();
        let first = geometry.first_data_block.0;
        let ratio = u64::from(geometry.blocks_per_cluster);
        let mut used = first;
        for group in (0..geometry.groups_count).map(GroupNo) {
            let free = self.volume.desc(group).free_clusters;
            used += u64::from(geometry.group_clusters(group).saturating_sub(free)) * ratio;
        }
        let metadata = metadata(self.volume, geometry, &Default::default());
        let files = used.saturating_sub(metadata.in_clusters(first, ratio).count());
        let inodes = self.scan.inodes.saturating_add(geometry.first_inode.0 - 1);
        let per_group = u64::from(geometry.blocks_per_group);
        let last = |groups: u32| (first + u64::from(groups) * per_group).min(geometry.blocks_count);
        let needed = |groups: u32| match Resized::new(&self.volume.raw, last(groups)) {
            Ok(resized) => Ok(files + metadata_blocks(&resized.geometry)),
            Err(ResizeError::TooSmall { .. }) => Ok(u64::MAX),
            Err(error) => Err(error),
        };
        // More groups have more room.
        let mut low = inodes.div_ceil(geometry.inodes_per_group).max(1);
        let mut high = geometry.groups_count;
        while low < high {
            let middle = low + (high - low) / 2;
            match needed(middle)? <= last(middle) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        let least = needed(low)?.max(last(low - 1) + 1).max(self.least);
        Ok(least.min(end).next_multiple_of(ratio))
    }
}

/// Number of blocks of the metadata of all groups, and of those before the first group.
fn metadata_blocks(geometry: &Geometry) -> u64 {
    let tables = u64::from(geometry.itable_blocks()) + 2;
    let of_group = |group| {
        let own = leading(geometry, group).blocks();
        let start = if group == GroupNo(0) { geometry.group_start(group).0 } else { own.start };
        own.end - start + tables
    };
    geometry.first_data_block.0 + (0..geometry.groups_count).map(GroupNo).map(of_group).sum::<u64>()
}
