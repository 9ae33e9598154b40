//! Writes the changes of a request.
//!
//! Blocks that the volume does not use are written first: no program reads them. All others are one
//! transaction of the journal where it has room for them, so that a power cut leaves the volume as
//! it was or with all changes; a volume without a journal, and one whose journal cannot take them,
//! gets a log in free blocks for that time. Otherwise the superblock says "not clean" until all are
//! written, and they are written in an order of which e2fsck repairs each part, unless directories
//! or checksums are written again.

use std::ops::Range;
use std::sync::Arc;

use extant_device::{Device, DeviceError};
use extant_journal::{
    BlockRange, JournalError, JournalLocation, OneTransaction, ReplayBy, TemporaryLog,
    changes_checksums,
};
use extant_layout::RunSet;
use extant_offline::{JournalShape, OfflineError, OfflineVolume, read_primary_superblock};
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, State};
use extant_ondisk::{BlockNo, CompatFeatures, Geometry, GroupNo, IncompatFeatures, InodeNo, inode};
use extant_runtime::env::WallTime;
use zerocopy::IntoBytes;

use super::error::TuneError;
use super::pending::{Pending, outside};

/// Bytes of the primary superblock.
pub(super) const PRIMARY: Range<u64> =
    SUPERBLOCK_OFFSET..SUPERBLOCK_OFFSET + size_of::<RawSuperblock>() as u64;

/// The most bytes of a transaction: they are held in memory.
const MOST_AT_ONCE: u32 = 256 << 20;

/// A volume and the changes to it.
pub(super) struct Writer<'a> {
    pub(super) device: &'a Arc<dyn Device>,
    /// The device of an external journal.
    pub(super) journal: Option<&'a dyn Device>,
    pub(super) changes: &'a Arc<Pending<Arc<dyn Device>>>,
    /// The changes to the device of an external journal.
    pub(super) to_journal: Option<&'a Pending<&'a dyn Device>>,
}

/// Parts of a volume that are written one after the other; the superblock is the last.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Part {
    Descriptors,
    Bitmaps,
    InodeTables,
    /// Directories, maps, attributes, and the copies of superblock and descriptors.
    Other,
}

/// The changes, for all ways of writing them.
struct Change {
    before: RawSuperblock,
    after: RawSuperblock,
    /// The volume before.
    geometry: Geometry,
    /// The blocks that change, of those that the volume used before.
    used: RunSet,
    /// The other ones.
    unused: RunSet,
    time: WallTime,
}

impl Writer<'_> {
    pub(super) fn write(&self, time: WallTime) -> Result<(), TuneError> {
        let before = read_primary_superblock(self.device)?;
        let after = read_primary_superblock(&**self.changes)?;
        let geometry = Geometry::new(&before)?;
        if self.to_journal.is_none() && lies_in_superblocks(&**self.changes, &geometry) {
            self.changes.write_to(&**self.device, &PRIMARY)?;
            self.device.flush()?;
            self.device.write_at(PRIMARY.start, after.as_bytes())?;
            return Ok(self.device.flush()?);
        }
        let (unused, used) = self.split(&**self.changes, &geometry);
        write_blocks(&**self.changes, &**self.device, &geometry, &unused)?;
        self.device.flush()?;
        let change = Change { before, after, geometry, used, unused, time };
        if self.write_by_journal(&change)? || self.write_by_temporary_log(&change)? {
            return Ok(());
        }
        self.write_in_order(&change)
    }

    /// The blocks that changes concern: those that the volume on the device does not use, and the
    /// others. A block is used if its bitmap cannot be read.
    fn split<D: Device>(&self, changes: &Pending<D>, geometry: &Geometry) -> (RunSet, RunSet) {
        let (mut unused, mut used) = (RunSet::new(), RunSet::new());
        let mut volume = OfflineVolume::open_strict(self.device.clone()).ok();
        for block in changes.blocks(geometry.block_size).iter().flatten() {
            let group = geometry.group_of(BlockNo(block));
            let is_used = match (&mut volume, group) {
                (Some(volume), Some(group)) => {
                    let at = block - geometry.group_start(group).0;
                    // A group has fewer than 2^32 clusters.
                    let bit = (at / u64::from(geometry.blocks_per_cluster)) as u32;
                    let bits = volume.bitmap(BitmapKind::Block, group);
                    bits.map_or(true, |bits| bitmap::test(bits, bit))
                }
                _ => true,
            };
            let set = if is_used { &mut used } else { &mut unused };
            set.insert(block..block + 1);
        }
        (unused, used)
    }

    /// The used blocks with the changes.
    fn blocks(&self, change: &Change) -> Result<Vec<(BlockNo, Vec<u8>)>, DeviceError> {
        let read = |block| Ok((block, self.changed(change, block)?));
        change.used.iter().flatten().map(BlockNo).map(read).collect()
    }

    fn changed(&self, change: &Change, block: BlockNo) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; change.geometry.block_len()];
        self.changes.read_at(change.geometry.byte_of(block), &mut bytes)?;
        Ok(bytes)
    }

    /// Makes the changes by one transaction of the journal; whether it could.
    fn write_by_journal(&self, change: &Change) -> Result<bool, TuneError> {
        let Change { before, after, .. } = change;
        if self.to_journal.is_some() || !self.keeps_journal(change) {
            return Ok(false);
        }
        // A program that replays the journal has read these before.
        let [old, new] = [before, after].map(|raw| {
            let mut features = raw.features();
            features.incompat -= IncompatFeatures::RECOVER;
            (features, raw.checksum_seed())
        });
        let replay = if old == new { ReplayBy::All } else { ReplayBy::AllButKernel };
        if replay == ReplayBy::AllButKernel && before.s_journal_inum.get() == 0 {
            return Ok(false);
        }
        let Ok(Some(journal)) = OneTransaction::open(&**self.device, self.journal) else {
            return Ok(false);
        };
        let count = change.used.count();
        if count > u64::from(journal.capacity()?)
            || count > u64::from(MOST_AT_ONCE / change.geometry.block_size)
        {
            return Ok(false);
        }
        match journal.change(self.blocks(change)?, change.time, replay) {
            Ok(()) => Ok(true),
            Err(JournalError::NotRecovered) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the changes by a log in free blocks; whether it could. The journal's inode leads to
    /// it, so that the volume has no journal of its own, before and after: none at all, or one on
    /// another device.
    fn write_by_temporary_log(&self, change: &Change) -> Result<bool, TuneError> {
        let Change { before, after, geometry, .. } = change;
        let journal = |raw: &RawSuperblock| {
            let has_journal = raw.features().compat.contains(CompatFeatures::HAS_JOURNAL);
            has_journal.then_some((raw.s_journal_inum.get(), raw.s_journal_uuid))
        };
        let is_inside = journal(before).is_some_and(|(inode, _)| inode != 0);
        let is_old = |raw: &RawSuperblock| raw.s_rev_level.get() == 0;
        let Ok(count) = u32::try_from(change.used.count()) else { return Ok(false) };
        if self.to_journal.is_some()
            || is_inside
            || journal(before) != journal(after)
            || [before, after].into_iter().any(is_old)
            || count > MOST_AT_ONCE / geometry.block_size
        {
            return Ok(false);
        }
        let trial = Arc::new(Pending::new(self.device.clone()));
        let Ok(volume) = self.with_journal(change, &trial, count) else { return Ok(false) };
        let (free, _) = self.split(&*trial, geometry);
        let Ok(place) = JournalLocation::internal(&*trial, &volume.raw, volume.geometry()) else {
            return Ok(false);
        };
        let is_free = |block: u64| !change.unused.contains(block);
        let Some(offset) = volume.inode_offset(InodeNo::JOURNAL) else { return Ok(false) };
        let numbers = |run: &BlockRange| run.start.0..run.start.0 + u64::from(run.count);
        if !place.runs.runs().iter().flat_map(numbers).all(is_free) {
            return Ok(false);
        }
        write_blocks(&*trial, &**self.device, geometry, &free)?;
        self.device.flush()?;

        let block = BlockNo(offset / u64::from(geometry.block_size));
        let changed = self.changed(change, block)?;
        let mut with_inode = vec![0; geometry.block_len()];
        trial.read_at(geometry.byte_of(block), &mut with_inode)?;
        let mut record = volume.read_inode(InodeNo::JOURNAL)?;
        let new = Geometry::new(after)?;
        inode::seal(&mut record, InodeNo::JOURNAL, &new);
        let mut changed_with_inode = changed.clone();
        // Within the block: the size of a record divides its size.
        let at = (offset - geometry.byte_of(block)) as usize;
        changed_with_inode[at..at + record.len()].copy_from_slice(&record);
        let mut blocks = self.blocks(change)?;
        if !change.used.contains(block.0) {
            blocks.push((block, changed.clone()));
        }
        let log = TemporaryLog {
            volume: &**self.device,
            after: *after,
            place,
            with_inode,
            changed_with_inode,
            changed: (block, changed),
            changes_checksums: changes_checksums(before, after),
        };
        log.change(&blocks, change.time)?;
        Ok(true)
    }

    /// The volume with a journal in blocks that are free before and after the changes.
    fn with_journal(
        &self,
        change: &Change,
        trial: &Arc<Pending<Arc<dyn Device>>>,
        count: u32,
    ) -> Result<OfflineVolume, OfflineError> {
        let mut volume = OfflineVolume::open_strict(trial.clone() as Arc<dyn Device>)?;
        let mut after = OfflineVolume::open_strict(self.changes.clone() as Arc<dyn Device>)?;
        let geometry = &change.geometry;
        let ratio = u64::from(geometry.blocks_per_cluster);
        for group in (0..geometry.groups_count).map(GroupNo) {
            let start = geometry.group_start(group).0;
            let bits = after.bitmap(BitmapKind::Block, group)?;
            let used = bitmap::runs(bits, 0..geometry.group_clusters(group));
            let used: Vec<_> = used
                .filter(|run| run.is_set)
                .map(|run| {
                    start + u64::from(run.bits.start) * ratio
                        ..start + u64::from(run.bits.end) * ratio
                })
                .map(|run| run.start..run.end.min(geometry.blocks_count))
                .collect();
            volume.claim_blocks(used)?;
        }
        let shape = JournalShape {
            blocks: TemporaryLog::size_for(geometry, count),
            fast_commit_blocks: 0,
            goal: volume.journal_goal()?,
        };
        volume.make_journal(shape, change.time.seconds.max(0).cast_unsigned())?;
        volume.commit()?;
        Ok(volume)
    }

    /// Whether the volume has a journal, the same before and after the changes, and none of its
    /// blocks changes.
    fn keeps_journal(&self, change: &Change) -> bool {
        let Change { before, after, geometry, used, .. } = change;
        let has_journal =
            |raw: &RawSuperblock| raw.features().compat.contains(CompatFeatures::HAS_JOURNAL);
        if !has_journal(before)
            || !has_journal(after)
            || before.s_journal_inum.get() != after.s_journal_inum.get()
        {
            return false;
        }
        if before.s_journal_inum.get() == 0 {
            return before.s_journal_uuid == after.s_journal_uuid;
        }
        let Ok(new) = Geometry::new(after) else { return false };
        let old = JournalLocation::internal(&**self.device, before, geometry);
        let new = JournalLocation::internal(&**self.changes, after, &new);
        match (old, new) {
            (Ok(old), Ok(new)) => {
                old == new && used.iter().flatten().all(|block| !old.runs.holds(BlockNo(block)))
            }
            _ => false,
        }
    }

    /// Writes the changes part by part: e2fsck repairs what a power cut leaves of files that are
    /// made or removed.
    fn write_in_order(&self, change: &Change) -> Result<(), TuneError> {
        let Change { before, after, geometry, used, .. } = change;
        let not_clean = |raw: &RawSuperblock| {
            let mut raw = *raw;
            raw.s_state.set(raw.s_state.get() & !State::CLEAN.bits());
            raw.seal();
            raw
        };
        if State::from_bits_retain(before.s_state.get()).contains(State::CLEAN) {
            self.device.write_at(PRIMARY.start, not_clean(before).as_bytes())?;
            self.device.flush()?;
        }
        let parts = Parts::of(self.device, geometry);
        for now in [Part::Other, Part::Bitmaps, Part::InodeTables, Part::Descriptors] {
            for block in used.iter().flatten().filter(|block| parts.part_of(*block) == now) {
                let start = geometry.byte_of(BlockNo(block));
                let end = start + u64::from(geometry.block_size);
                for part in outside(&(start..end), &PRIMARY) {
                    self.changes.write_range(&**self.device, &part)?;
                }
            }
            self.device.flush()?;
        }
        if let (Some(changes), Some(journal)) = (self.to_journal, self.journal) {
            changes.write_to(journal, &(0..0))?;
            journal.flush()?;
        }
        self.device.write_at(PRIMARY.start, after.as_bytes())?;
        Ok(self.device.flush()?)
    }
}

fn write_blocks<D: Device>(
    changes: &Pending<D>,
    device: &dyn Device,
    geometry: &Geometry,
    blocks: &RunSet,
) -> Result<(), DeviceError> {
    for run in blocks.iter() {
        let [start, end] = [run.start, run.end].map(|block| geometry.byte_of(BlockNo(block)));
        changes.write_range(device, &(start..end))?;
    }
    Ok(())
}

/// Where the parts of a volume are.
struct Parts {
    descriptors: RunSet,
    bitmaps: RunSet,
    inode_tables: RunSet,
}

impl Parts {
    fn of(device: &Arc<dyn Device>, geometry: &Geometry) -> Self {
        let mut parts = Self {
            descriptors: RunSet::new(),
            bitmaps: RunSet::new(),
            inode_tables: RunSet::new(),
        };
        for index in 0..geometry.desc_blocks() {
            let block = geometry.desc_block(index).0;
            parts.descriptors.insert(block..block + 1);
        }
        let Ok(volume) = OfflineVolume::open(device.clone()) else { return parts };
        for group in (0..geometry.groups_count).map(GroupNo) {
            let desc = volume.desc(group);
            for block in [desc.block_bitmap.0, desc.inode_bitmap.0] {
                parts.bitmaps.insert(block..block.saturating_add(1));
            }
            let table = desc.inode_table.0;
            let end = table.saturating_add(u64::from(geometry.itable_blocks()));
            parts.inode_tables.insert(table..end);
        }
        parts
    }

    fn part_of(&self, block: u64) -> Part {
        if self.descriptors.contains(block) {
            Part::Descriptors
        } else if self.bitmaps.contains(block) {
            Part::Bitmaps
        } else if self.inode_tables.contains(block) {
            Part::InodeTables
        } else {
            Part::Other
        }
    }
}

/// Whether all changes lie in the superblock and its backups.
pub(super) fn lies_in_superblocks<D: Device>(changes: &Pending<D>, geometry: &Geometry) -> bool {
    let backups = geometry.backup_superblock_groups();
    let mut copies: Vec<u64> =
        backups.iter().map(|group| geometry.byte_of(geometry.group_start(*group))).collect();
    copies.push(PRIMARY.start);
    changes.lies_in(&copies, PRIMARY.end - PRIMARY.start)
}
