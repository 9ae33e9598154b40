//! Growth: block groups are added after the last one.
//!
//! Everything that lies beyond the old end is written first. The changes of the old part (the
//! superblock, descriptors, the resize inode, the bitmap of the last group) are the switch, and
//! backups are written after it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use extant_device::Device;
use extant_journal::ReplayBy;
use extant_layout::groups::leading;
use extant_layout::tables::{TableRules, Tables, place_tables_from};
use extant_layout::{DescriptorTable, RunSet};
use extant_offline::OfflineVolume;
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, Superblock};
use extant_ondisk::{BlockNo, CompatFeatures, Geometry, GroupNo};
use zerocopy::FromBytes;

use super::error::ResizeError;
use super::resize_inode;
use super::size::Resized;
use super::staged::Staged;
use super::{Resize, ResizeStep};
use crate::mkfs::Batch;
use crate::mkfs::summary::{Usage, summarize};

/// The growth of a volume that is in use: see [`Resize::plan_growth`].
#[derive(Clone, Debug, Default)]
pub struct Growth {
    /// Number of blocks that the volume has then.
    pub blocks: u64,
    /// Blocks of the volume that change, in order, with their new contents. None if it has the size
    /// already.
    pub changes: Vec<(BlockNo, Vec<u8>)>,
    /// Number of clusters that become free.
    pub free_clusters: u64,
    /// Number of inodes that are added, all free.
    pub free_inodes: u32,
    /// Blocks in use that become free, in whole clusters and in order.
    pub freed: Vec<Range<u64>>,
}

impl Resize<'_> {
    pub(super) fn grow(
        &self,
        volume: &mut OfflineVolume,
        resized: Resized,
    ) -> Result<(), ResizeError> {
        self.switch(self.stage_growth(volume, resized)?, ReplayBy::All)?;
        self.write_backups()
    }

    /// Plans the growth of a volume that its caller has open, and has made quiet: what its log held
    /// is at its home location, and nothing changes before the plan is carried out. What lies
    /// beyond the end of the volume is written, which does not change the volume. The caller makes
    /// the changes of the plan in one step, and then calls [`Self::write_backups`].
    ///
    /// # Errors
    /// A size that the volume cannot have, a damaged volume, or the device failed.
    pub fn plan_growth(&self, blocks: u64) -> Result<Growth, ResizeError> {
        let (mut volume, resized) = self.checked(blocks)?;
        let (old, new) = (volume.geometry().clone(), resized.geometry.clone());
        if new.blocks_count < old.blocks_count {
            let (blocks, least) = (new.blocks_count, old.blocks_count);
            return Err(ResizeError::TooSmall { blocks, least });
        }
        if new == old {
            return Ok(Growth { blocks: old.blocks_count, ..Growth::default() });
        }
        let before = free_clusters(&volume);
        let raw = resized.raw;
        let changes = self.stage_growth(&mut volume, resized)?;
        let block = new.superblock_block();
        let at = (SUPERBLOCK_OFFSET % u64::from(new.block_size)) as usize;
        let grown = changes.iter().find(|(changed, _)| *changed == block);
        let grown = grown.and_then(|(_, bytes)| RawSuperblock::read_from_prefix(&bytes[at..]).ok());
        let grown = Superblock::decode(&grown.map_or(raw, |(raw, _)| raw));
        let after = grown.free_blocks / u64::from(new.blocks_per_cluster);
        Ok(Growth {
            blocks: new.blocks_count,
            changes,
            free_clusters: after.saturating_sub(before),
            free_inodes: new.inodes_count - old.inodes_count,
            freed: Vec::new(),
        })
    }

    /// Plans that `count` of the blocks that are reserved for descriptors become free, here and in
    /// the backups: growth changes every reserved block when a backup is added, and a log may have
    /// no room for that. The size stays. The caller does as for [`Self::plan_growth`]. `None` if
    /// fewer blocks are reserved.
    ///
    /// # Errors
    /// A damaged volume, or the device failed.
    pub fn plan_fewer_reserved(&self, count: u64) -> Result<Option<Growth>, ResizeError> {
        let mut volume = self.open_checked()?;
        let old = volume.geometry().clone();
        let left = u64::from(old.reserved_gdt_blocks).checked_sub(count);
        let Some(left) = left.filter(|_| old.has_compat(CompatFeatures::RESIZE_INODE)) else {
            return Ok(None);
        };
        let mut raw = volume.raw;
        raw.s_reserved_gdt_blocks.set(left as u16); // fewer than before
        let geometry = Geometry::new(&raw)?;
        resize_inode::check(&mut volume, &geometry)?;
        let freed = unreserved(&volume, &old, &geometry);
        if raw.s_overhead_blocks.get() > 0 {
            let ratio = u64::from(geometry.blocks_per_cluster);
            let clusters: u64 = freed.iter().map(|run| (run.end - run.start).div_ceil(ratio)).sum();
            let now = u64::from(raw.s_overhead_blocks.get()).saturating_sub(clusters);
            raw.s_overhead_blocks.set(now as u32); // fewer than before
        }
        let staged = Arc::new(Staged::new(self.device.clone(), &old));
        let table = volume.table().clone();
        let mut changed = OfflineVolume::of_parts(staged.clone(), raw, geometry, table);
        changed.free_blocks_of(freed.iter().cloned())?;
        for group in freed.iter().filter_map(|run| old.group_of(BlockNo(run.start))) {
            changed.store_bitmap(BitmapKind::Block, group)?;
            count_free(&mut changed, group)?;
        }
        resize_inode::update(&mut changed, &old)?;
        changed.sum_free_counts();
        self.set_write_time(&mut changed)?;
        changed.commit()?;
        let changes = staged.take_changes()?;
        Ok(Some(Growth { blocks: old.blocks_count, changes, freed, ..Growth::default() }))
    }

    /// Writes what lies beyond the old end, and returns the changes of the old part.
    fn stage_growth(
        &self,
        volume: &mut OfflineVolume,
        resized: Resized,
    ) -> Result<Vec<(BlockNo, Vec<u8>)>, ResizeError> {
        let old = volume.geometry().clone();
        let Resized { mut raw, geometry } = resized;
        // Verified, as its bitmap changes.
        let last = GroupNo(old.groups_count - 1);
        volume.bitmap(BitmapKind::Block, last)?;
        let staged = Arc::new(Staged::new(self.device.clone(), &old));
        staged.add_unused(old.blocks_count..geometry.blocks_count);

        let added = geometry.groups_count - old.groups_count;
        self.begin(ResizeStep::AddGroups, added.into());
        let tables = place(&geometry, &old, self.stride.unwrap_or(raw.s_raid_stride.get().into()))?;
        let table = self.write_groups(volume, &geometry, &tables)?;
        let new_part = old.blocks_count..geometry.blocks_count;
        let ratio = u64::from(geometry.blocks_per_cluster);
        let lost = lost_backup(&old, &geometry);
        if raw.s_overhead_blocks.get() > 0 {
            let added = tables.used.count_in(new_part) / ratio;
            let lost = lost.as_ref().map_or(0, |run| (run.end - run.start).div_ceil(ratio));
            let now = (u64::from(raw.s_overhead_blocks.get()) + added).saturating_sub(lost);
            raw.s_overhead_blocks.set(u32::try_from(now).unwrap_or(0));
        }

        let mut grown = OfflineVolume::of_parts(staged.clone(), raw, geometry.clone(), table);
        extend_last_group(&mut grown, &old, &tables.used, lost)?;
        resize_inode::update(&mut grown, &old)?;
        grown.sum_free_counts();
        self.set_write_time(&mut grown)?;
        grown.touch_all_descs();
        grown.commit()?;
        Ok(staged.take_changes()?)
    }

    /// Writes the bitmaps of the new groups, and clears their inode tables where these must read as
    /// zero. Returns the descriptors of all groups.
    fn write_groups(
        &self,
        volume: &OfflineVolume,
        geometry: &Geometry,
        tables: &Tables,
    ) -> Result<DescriptorTable, ResizeError> {
        let first = volume.geometry().groups_count;
        let blocks = u64::from(geometry.itable_blocks());
        let places: Vec<Range<u64>> = tables
            .groups
            .iter()
            .map(|group| {
                let end = BlockNo(group.inode_table.0 + blocks);
                geometry.byte_of(group.inode_table)..geometry.byte_of(end)
            })
            .collect();
        let mut zeroed = are_holes(&**self.device, &places)?;
        if !zeroed && !geometry.has_uninit_groups() {
            for place in places {
                for run in extant_device::data_runs(&**self.device, place) {
                    self.device.write_zeroes(run?)?;
                }
            }
            zeroed = true;
        }
        let inodes = RunSet::new();
        let usage = Usage { blocks: &tables.used, inodes: &inodes, tables_zeroed: zeroed };
        let mut table = DescriptorTable::zeroed(geometry);
        let before = volume.table().bytes();
        table.bytes_mut()[..before.len()].copy_from_slice(before);
        let mut batch = Batch::new(&**self.device, 0);
        for (group, places) in (first..geometry.groups_count).zip(&tables.groups) {
            let group = GroupNo(group);
            let summary = summarize(geometry, group, places, 0, usage);
            table.put(group, &summary.desc, geometry);
            if let Some(bits) = summary.block_bitmap {
                batch.put(geometry.byte_of(places.block_bitmap), bits)?;
            }
            if let Some(bits) = summary.inode_bitmap {
                batch.put(geometry.byte_of(places.inode_bitmap), bits)?;
            }
        }
        batch.flush()?;
        Ok(table)
    }

    /// Writes the backups of superblock and descriptors: from the volume as it is now.
    ///
    /// # Errors
    /// The volume is not valid, or the device failed.
    pub fn write_backups(&self) -> Result<(), ResizeError> {
        Ok(OfflineVolume::open(self.device.clone())?.write_backups()?)
    }
}

/// Number of free clusters that the descriptors count.
fn free_clusters(volume: &OfflineVolume) -> u64 {
    let groups = (0..volume.geometry().groups_count).map(GroupNo);
    groups.map(|group| u64::from(volume.desc(group).free_clusters)).sum()
}

/// Places the tables of new groups in the new part of the volume. The used blocks are in whole
/// clusters; the old part counts as used.
fn place(geometry: &Geometry, old: &Geometry, stride: u32) -> Result<Tables, ResizeError> {
    let ratio = u64::from(geometry.blocks_per_cluster);
    let mut barred = RunSet::new();
    barred.insert(0..old.blocks_count);
    let rules = TableRules { stride, packed: false };
    let first = GroupNo(old.groups_count);
    let mut tables = place_tables_from(geometry, first, rules, &barred)?;
    tables.used = tables.used.in_clusters(geometry.first_data_block.0, ratio);
    Ok(tables)
}

/// The backup in the last group of before, where the new last group has it instead.
fn lost_backup(old: &Geometry, geometry: &Geometry) -> Option<Range<u64>> {
    let last = GroupNo(old.groups_count - 1);
    let is_lost = old.has_super(last) && !geometry.has_super(last);
    is_lost.then(|| {
        let own = leading(old, last).blocks();
        // Blocks that stay: descriptors of its meta group.
        own.start.max(leading(geometry, last).blocks().end)..own.end
    })
}

/// The last group of before has more blocks, or has lost its backup.
fn extend_last_group(
    volume: &mut OfflineVolume,
    old: &Geometry,
    used: &RunSet,
    lost: Option<Range<u64>>,
) -> Result<(), ResizeError> {
    let geometry = volume.geometry().clone();
    let last = GroupNo(old.groups_count - 1);
    let ratio = u64::from(geometry.blocks_per_cluster);
    let start = geometry.group_start(last).0;
    let old_end = start + u64::from(old.group_blocks(last)).next_multiple_of(ratio);
    let end = start + u64::from(geometry.group_blocks(last));
    if old_end >= end && lost.is_none() {
        return Ok(());
    }
    volume.free_blocks_of(lost)?;
    // With clusters the last of them may hold other metadata of the group.
    let kept = super::plan::metadata(volume, &geometry, &BTreeMap::new());
    volume.claim_blocks(kept.runs_in(start..end).collect::<Vec<_>>())?;
    if old_end < end {
        volume.free_blocks_of(std::iter::once(old_end..end))?;
        volume.claim_blocks(used.runs_in(old_end..end).collect::<Vec<_>>())?;
    }
    volume.store_bitmap(BitmapKind::Block, last)?;
    // The padding of the bitmap was not counted as free before.
    count_free(volume, last)
}

/// Sets a group's number of free clusters to that of its bitmap.
fn count_free(volume: &mut OfflineVolume, group: GroupNo) -> Result<(), ResizeError> {
    let bits = 0..volume.geometry().group_clusters(group);
    let in_use = bitmap::count_set(volume.bitmap(BitmapKind::Block, group)?, bits.clone());
    volume.update_desc(group, |desc| desc.free_clusters = bits.end - in_use);
    Ok(())
}

/// The clusters of reserved blocks that are not reserved by a new geometry, and hold no other
/// metadata.
fn unreserved(volume: &OfflineVolume, old: &Geometry, geometry: &Geometry) -> Vec<Range<u64>> {
    let (first, ratio) = (geometry.first_data_block.0, u64::from(geometry.blocks_per_cluster));
    let kept = super::plan::metadata(volume, geometry, &BTreeMap::new()).in_clusters(first, ratio);
    let mut cut = RunSet::new();
    let groups = (0..old.groups_count).map(GroupNo);
    for (before, after) in groups.map(|group| (leading(old, group), leading(geometry, group))) {
        if after.reserved.end < before.reserved.end {
            cut.insert(after.reserved.end..before.reserved.end);
        }
    }
    let mut freed = Vec::new();
    for run in cut.in_clusters(first, ratio).iter() {
        let mut at = run.start;
        while let Some(gap) = kept.next_gap(at..run.end.min(old.blocks_count)) {
            at = gap.end;
            freed.push(gap);
        }
    }
    freed
}

/// Whether nothing is stored in these ranges of a device: they read as zeroes.
fn are_holes(device: &dyn Device, ranges: &[Range<u64>]) -> Result<bool, ResizeError> {
    let mut hole = 0..0;
    for range in ranges {
        if hole.contains(&range.start) && range.end <= hole.end {
            continue;
        }
        // One question covers every table up to the next data.
        let rest = range.start..device.size().max(range.end);
        match device.next_data(rest.clone())? {
            None => hole = rest,
            Some(data) if data.start < range.end => return Ok(false),
            Some(data) => hole = rest.start..data.start,
        }
    }
    Ok(true)
}
