//! The blocks that a copy of a volume needs.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use extant_device::{Device, OverlayDevice};
use extant_journal::{Finish, recover_volume};
use extant_layout::RunSet;
use extant_layout::groups::{desc_block_places, leading};
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::inode::FileType;
use extant_ondisk::{BlockNo, CompatFeatures, Geometry, GroupNo, IncompatFeatures, InodeNo};

use super::{DebugChoice, DebugError, DebugVolume, MapStep, RawRecord};

/// Bytes that a replay in memory may change.
const REPLAY_MEMORY: u64 = 1 << 30;

/// The contents of a copy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CopyContents {
    /// The structures: superblock, descriptors, bitmaps, inode tables, directories, maps,
    /// blocks of extended attributes, targets of symbolic links, quota files, the orphan file
    /// and the journal.
    Metadata,
    /// Every block in use but those listed as bad.
    All,
}

/// The blocks that a copy needs.
#[derive(Debug)]
pub struct BlocksToCopy {
    /// Their numbers.
    pub blocks: RunSet,
    /// Inodes whose map could be followed in part only.
    pub damaged: Vec<(InodeNo, DebugError)>,
}

impl BlocksToCopy {
    /// The blocks that a copy of the volume on a device needs: those of
    /// [`DebugVolume::blocks_to_copy`], and where the journal must be replayed, those that the
    /// volume has in use after that. The replay is made in memory; where it fails, all blocks are
    /// copied.
    ///
    /// # Errors
    /// There is no volume, or the device failed.
    pub fn find(
        device: &Arc<dyn Device>,
        choice: &DebugChoice,
        contents: CopyContents,
    ) -> Result<(DebugVolume, Self), DebugError> {
        let (mut volume, _) = DebugVolume::open(device.clone(), choice)?;
        let mut found = volume.blocks_to_copy(contents)?;
        if volume.raw().features().incompat.contains(IncompatFeatures::RECOVER) {
            match after_replay(device, choice, contents) {
                Some(blocks) => blocks.iter().for_each(|run| found.blocks.insert(run)),
                None if contents == CopyContents::All => {
                    found.blocks.insert(0..volume.geometry().blocks_count);
                }
                None => {}
            }
        }
        Ok((volume, found))
    }
}

/// The blocks that a copy of a volume needs once its journal is replayed; `None` where that fails.
fn after_replay(
    device: &Arc<dyn Device>,
    choice: &DebugChoice,
    contents: CopyContents,
) -> Option<RunSet> {
    let overlay = OverlayDevice::new(device.clone()).with_limit(REPLAY_MEMORY);
    let overlay: Arc<dyn Device> = Arc::new(overlay);
    recover_volume(&*overlay, None, Finish::Reset).ok()?;
    let (mut volume, _) = DebugVolume::open(overlay, choice).ok()?;
    Some(volume.blocks_to_copy(contents).ok()?.blocks)
}

impl DebugVolume {
    /// The blocks that a copy needs, without those that its journal leads to. They are found by
    /// the inodes and, for all blocks, by the block bitmaps too, whatever the checksums: on a
    /// damaged volume a block that either has in use is copied.
    ///
    /// # Errors
    /// The device failed.
    pub fn blocks_to_copy(&mut self, contents: CopyContents) -> Result<BlocksToCopy, DebugError> {
        let verifies = std::mem::replace(&mut self.verifies, false);
        let found = self.find_blocks_to_copy(contents);
        self.verifies = verifies;
        found
    }

    fn find_blocks_to_copy(&mut self, contents: CopyContents) -> Result<BlocksToCopy, DebugError> {
        let geometry = self.geometry().clone();
        let mut found = BlocksToCopy { blocks: RunSet::new(), damaged: Vec::new() };
        let add = |found: &mut BlocksToCopy, run: Range<u64>| {
            found.blocks.insert(run.start..run.end.min(geometry.blocks_count));
        };
        for group in (0..geometry.groups_count).map(GroupNo) {
            let desc = self.editor().desc(group);
            let table = desc.inode_table.0;
            add(&mut found, table..table.saturating_add(geometry.itable_blocks().into()));
            for bitmap in [desc.block_bitmap.0, desc.inode_bitmap.0] {
                add(&mut found, bitmap..bitmap.saturating_add(1));
            }
            if contents == CopyContents::All && self.has_bitmaps() {
                for run in self.used_runs(group).iter() {
                    add(&mut found, run);
                }
            }
        }
        for run in descriptors(&geometry).iter() {
            add(&mut found, run);
        }
        if let Some(block) = self.editor().mmp_block() {
            add(&mut found, block.0..block.0 + 1);
        }
        let used = self.inodes_in_use()?;
        self.walk_inodes(&mut |record| {
            if used.contains(u64::from(record.number.0)) || record.base().i_links_count.get() != 0 {
                let mut runs = Vec::new();
                let outcome = self.runs_of(&record, contents, &mut runs);
                runs.into_iter().for_each(|run| add(&mut found, run));
                found.damaged.extend(outcome.err().map(|error| (record.number, error)));
            }
            ControlFlow::Continue(())
        })?;
        let bad = self.bad_blocks();
        if bad.count() > 0 {
            found.blocks = found.blocks.without(&bad);
        }
        Ok(found)
    }

    /// The blocks that are listed as bad, as far as the list can be read.
    fn bad_blocks(&self) -> RunSet {
        let mut bad = RunSet::new();
        let Ok(record) = self.inode_unverified(InodeNo::BAD_BLOCKS) else { return bad };
        // Blocks that are listed before an error are bad, too.
        let _ = self.walk_blocks(&record, &mut |step| {
            if let MapStep::Data { start, len, .. } = step {
                bad.insert(start..start.saturating_add(len));
            }
            ControlFlow::Continue(())
        });
        bad
    }

    /// The runs that a group's block bitmap has in use.
    fn used_runs(&mut self, group: GroupNo) -> RunSet {
        let geometry = self.geometry().clone();
        let per_cluster = u64::from(geometry.blocks_per_cluster);
        let start = geometry.group_start(group).0;
        let end = start + u64::from(geometry.group_blocks(group));
        let mut runs = RunSet::new();
        let Ok(bits) = self.bitmap(BitmapKind::Block, group) else {
            // It lies outside the volume: any block may be in use.
            runs.insert(start..end);
            return runs;
        };
        let clusters = (end - start).div_ceil(per_cluster);
        // A group has fewer than 2^32 clusters.
        let used = (0..clusters).filter(|cluster| bitmap::test(bits, *cluster as u32));
        let first_block = |cluster: u64| start + cluster * per_cluster;
        used.for_each(|it| runs.insert(first_block(it)..first_block(it + 1).min(end)));
        runs
    }

    /// Numbers of the inodes that the bitmaps have in use.
    fn inodes_in_use(&mut self) -> Result<RunSet, DebugError> {
        let geometry = self.geometry().clone();
        let mut used = RunSet::new();
        for group in (0..geometry.groups_count).map(GroupNo) {
            let first = u64::from(group.0) * u64::from(geometry.inodes_per_group) + 1;
            let Ok(bits) = self.bitmap(BitmapKind::Inode, group) else { continue };
            for index in (0..geometry.inodes_per_group).filter(|index| bitmap::test(bits, *index)) {
                let number = first + u64::from(index);
                used.insert(number..number + 1);
            }
        }
        Ok(used)
    }

    /// The runs of one inode.
    fn runs_of(
        &self,
        record: &RawRecord,
        contents: CopyContents,
        runs: &mut Vec<Range<u64>>,
    ) -> Result<(), DebugError> {
        let BlockNo(attributes) = record.file_acl(self.geometry());
        if attributes != 0 {
            runs.push(attributes..attributes.saturating_add(1));
        }
        if !self.has_map(record) {
            return Ok(());
        }
        let files_of_structures = [
            InodeNo::USER_QUOTA,
            InodeNo::GROUP_QUOTA,
            InodeNo(self.raw().s_prj_quota_inum.get()),
            InodeNo(self.raw().s_orphan_file_inum.get()),
            InodeNo::JOURNAL,
        ];
        let has_data = contents == CopyContents::All
            || files_of_structures.contains(&record.number)
            || matches!(record.file_type(), Some(FileType::Directory | FileType::Symlink));
        self.walk_blocks(record, &mut |step| {
            match step {
                MapStep::Data { start, len, .. } if has_data => {
                    runs.push(start..start.saturating_add(len));
                }
                MapStep::Data { .. } => {}
                MapStep::Node { at, .. } => runs.push(at..at.saturating_add(1)),
            }
            ControlFlow::Continue(())
        })
    }

    /// Whether `i_block` is a map.
    fn has_map(&self, record: &RawRecord) -> bool {
        match record.file_type() {
            Some(FileType::Regular | FileType::Directory) => true,
            Some(FileType::Symlink) => !record.is_fast_symlink(self.geometry()),
            // Reserved inodes may have no type.
            _ => record.number < self.geometry().first_inode,
        }
    }
}

/// The primary superblock and descriptors, and the blocks reserved for more of these.
fn descriptors(geometry: &Geometry) -> RunSet {
    let first = leading(geometry, GroupNo(0));
    let mut runs = RunSet::new();
    runs.insert(0..first.descriptors.end);
    if geometry.has_compat(CompatFeatures::RESIZE_INODE) {
        runs.insert(first.reserved);
    }
    let places = (0..geometry.desc_blocks())
        .filter_map(|at| desc_block_places(geometry, at).first().copied());
    places.for_each(|BlockNo(at)| runs.insert(at..at + 1));
    runs
}
