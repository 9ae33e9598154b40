//! A smaller size: blocks and inodes of what is cut off move, then the switch cuts. Descriptors of
//! another size come in the same way.
//!
//! Data are copied to free blocks first. What leads to them changes in transactions that each leave
//! a sound volume: all in one if the journal has room for them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use extant_device::{Device, OverlayDevice};
use extant_journal::{Finish, OneTransaction, ReplayBy, recover_volume};
use extant_layout::RunSet;
use extant_offline::{OfflineVolume, read_primary_superblock};
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::extent::{self, NodeEntries, NodeLimits, NodeOwner, OwnedNode};
use extant_ondisk::indirect;
use extant_ondisk::inode::{Inode, InodeFlags};
use extant_ondisk::orphan_file::OrphanFileFormat;
use extant_ondisk::quota::{QUOTA_BLOCK_SIZE, QuotaKind, quota_tree};
use extant_ondisk::superblock::Superblock;
use extant_ondisk::{
    BlockNo, CompatFeatures, Geometry, GroupNo, IncompatFeatures, InodeNo, RoCompatFeatures, xattr,
};
use zerocopy::IntoBytes;

use super::copy::copy;
use super::descriptors;
use super::error::ResizeError;
use super::minimum::Smallest;
use super::moves::Moves;
use super::plan::{CutTables, MovedFile, Plan, freed_metadata, metadata, runs_of, taken};
use super::renumber;
use super::resize_inode::{self, DOUBLE_SLOT};
use super::scan::Scan;
use super::size::{Resized, Target};
use super::staged::Staged;
use super::{Resize, ResizeStep};

/// The mode of the change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Contents {
    Copied,
    /// Only the sizes matter: the volume is an overlay that is thrown away.
    Ignored,
}

impl Resize<'_> {
    /// Gives the volume a smaller size.
    pub(super) fn shrink(&self, blocks: u64) -> Result<(), ResizeError> {
        let mut volume = self.open_to_shrink()?;
        let scan = Scan::of(&mut volume)?;
        let target = Target::Blocks(blocks);
        if let Some(plan) = Plan::new(&mut volume, &scan, target, CutTables::InPlace)? {
            return self.carry_out(&plan, Contents::Copied);
        }
        // The room may come from tables below the cut of groups that are cut off.
        let least = self.minimum()?;
        if blocks < least {
            return Err(ResizeError::TooSmall { blocks, least });
        }
        let now = self.shrink_stepwise(blocks, Contents::Copied)?;
        if now > blocks {
            return Err(ResizeError::TooSmall { blocks, least: now });
        }
        Ok(())
    }

    /// The smallest size in blocks.
    pub(super) fn least(&self) -> Result<u64, ResizeError> {
        let overlay: Arc<dyn Device> = Arc::new(OverlayDevice::new(self.device.clone()));
        let features = read_primary_superblock(&overlay)?.features();
        if features.incompat.contains(IncompatFeatures::RECOVER) {
            recover_volume(&overlay, self.journal, Finish::Leave)?;
        }
        let on_overlay = Resize { device: &overlay, progress: None, ..*self };
        on_overlay.shrink_stepwise(0, Contents::Ignored)
    }

    /// Makes the volume smaller in steps, as each gives room for the next, to `blocks` blocks or as
    /// small as it can be. Returns its number of blocks.
    fn shrink_stepwise(&self, blocks: u64, contents: Contents) -> Result<u64, ResizeError> {
        let mut tables_beyond = u64::MAX;
        loop {
            let mut volume = self.open_to_shrink()?;
            let now = volume.geometry().blocks_count;
            if now <= blocks {
                return Ok(now);
            }
            let scan = Scan::of(&mut volume)?;
            let mut smallest = Smallest { volume: &mut volume, scan: &scan, least: blocks };
            let bound = smallest.by_counts(now)?;
            let plan = smallest.plan(now, CutTables::InPlace)?;
            let before = plan.as_ref().map_or(now, |plan| plan.blocks).min(tables_beyond);
            if before > bound
                && let Some((end, plan)) = smallest.tables_beyond(before)?
            {
                tables_beyond = end;
                drop(volume);
                self.carry_out(&plan, contents)?;
                continue;
            }
            let Some(plan) = plan else { return Ok(now) };
            // Extents that join need fewer blocks for their map: that is room for one step more.
            let is_last = plan.blocks == bound && !plan.frees_nodes();
            drop(volume);
            if !(is_last && contents == Contents::Ignored) {
                self.carry_out(&plan, contents)?;
            }
            if is_last {
                return Ok(bound);
            }
        }
    }

    fn open_to_shrink(&self) -> Result<OfflineVolume, ResizeError> {
        let volume = self.open_to_move()?;
        match volume.geometry().has_compat(CompatFeatures::STABLE_INODES) {
            true => Err(ResizeError::Barred("the feature stable_inodes")),
            false => Ok(volume),
        }
    }

    /// The volume, if its blocks can move.
    pub(super) fn open_to_move(&self) -> Result<OfflineVolume, ResizeError> {
        let volume = self.open_checked()?;
        let geometry = volume.geometry();
        let superblock = Superblock::decode(&volume.raw);
        if superblock.last_orphan.is_some()
            || geometry.has_ro_compat(RoCompatFeatures::ORPHAN_PRESENT)
        {
            return Err(ResizeError::NeedsCheck);
        }
        if geometry.has_ro_compat(RoCompatFeatures::SHARED_BLOCKS) {
            return Err(ResizeError::Barred("the feature shared_blocks"));
        }
        Ok(volume)
    }

    pub(super) fn carry_out(&self, plan: &Plan, contents: Contents) -> Result<(), ResizeError> {
        let mut volume = OfflineVolume::open_strict(self.device.clone())?;
        let geometry = volume.geometry().clone();
        if contents == Contents::Copied {
            self.begin(ResizeStep::MoveBlocks, plan.moves.iter().count() as u64);
            self.copy(plan, &geometry)?;
        }
        let staged = Arc::new(Staged::new(self.device.clone(), &geometry));
        volume = OfflineVolume::open(staged.clone())?;
        let mut work = Work {
            resize: self,
            staged,
            volume,
            moves: &plan.moves,
            contents,
            space: BTreeMap::new(),
        };
        work.move_files(plan)?;
        work.move_xattr_blocks(plan)?;
        work.move_mmp(plan)?;
        work.update_quotas()?;
        work.renumber(plan)?;
        if plan.target == Target::Bit64(true) {
            work.clear_high_halves()?;
        }
        work.cut(plan)?;
        match contents {
            Contents::Copied => self.write_backups(),
            Contents::Ignored => Ok(()),
        }
    }

    /// Copies everything that moves to its new place.
    fn copy(&self, plan: &Plan, geometry: &Geometry) -> Result<(), ResizeError> {
        let in_bytes = |(run, to): (Range<u64>, u64)| {
            let start = geometry.byte_of(BlockNo(run.start));
            let end = geometry.byte_of(BlockNo(run.end)).min(self.device.size());
            (start..end.max(start), geometry.byte_of(BlockNo(to)))
        };
        let mut moves = plan.moves.iter();
        let tell = |count| {
            for (run, to) in moves.by_ref().take(count) {
                if let Some(progress) = self.progress {
                    progress.move_blocks(run, to);
                }
            }
        };
        Ok(copy(self.device, plan.moves.iter().map(in_bytes), tell)?)
    }
}

/// A change under way. Between two files the volume on the staged device is sound.
pub(super) struct Work<'a> {
    pub(super) resize: &'a Resize<'a>,
    pub(super) staged: Arc<Staged>,
    pub(super) volume: OfflineVolume,
    moves: &'a Moves,
    pub(super) contents: Contents,
    /// Blocks that files got in addition (or lost), by the file's owners.
    space: BTreeMap<(u32, u32, u32), i64>,
}

impl Work<'_> {
    /// Number of blocks that the volume's journal can change at once; `None` if a change is not
    /// journalled.
    pub(super) fn capacity(&self) -> Result<Option<usize>, ResizeError> {
        if self.contents == Contents::Ignored {
            return Ok(None);
        }
        let journal = OneTransaction::open(&**self.resize.device, self.resize.journal)?;
        let capacity = journal.map(|journal| journal.capacity()).transpose()?;
        Ok(capacity.map(|blocks| blocks as usize))
    }

    /// Makes the changes so far.
    pub(super) fn flush(&mut self) -> Result<(), ResizeError> {
        self.volume.sum_free_counts();
        self.volume.commit()?;
        self.switch(&self.volume, ReplayBy::All)?;
        self.staged.clear_unused();
        Ok(())
    }

    /// Makes the changes in memory; `after` is the volume with them.
    fn switch(&self, after: &OfflineVolume, replay: ReplayBy) -> Result<(), ResizeError> {
        if self.contents == Contents::Ignored {
            for (block, bytes) in self.staged.take_changes()? {
                self.resize.device.write_at(after.geometry().byte_of(block), &bytes)?;
            }
            return Ok(());
        }
        self.resize.switch(self.staged.take_changes()?, replay)
    }

    /// Makes the changes so far if they could be too many for the journal.
    pub(super) fn flush_if_many(&mut self, capacity: Option<usize>) -> Result<(), ResizeError> {
        // Bitmaps and descriptors come in addition.
        if capacity.is_some_and(|capacity| self.staged.held() > capacity / 2) {
            self.flush()?;
        }
        Ok(())
    }

    fn move_files(&mut self, plan: &Plan) -> Result<(), ResizeError> {
        let capacity = self.capacity()?;
        let journal = self.volume.raw.s_journal_inum.get();
        for file in &plan.files {
            if file.number.0 == journal && self.contents == Contents::Copied {
                self.move_journal(file)?;
                continue;
            }
            self.move_file(file)?;
            self.flush_if_many(capacity)?;
        }
        Ok(())
    }

    /// Claims new places and frees the old ones.
    fn change_places(
        &mut self,
        moved: impl IntoIterator<Item = (Range<u64>, u64)>,
    ) -> Result<(), ResizeError> {
        for (from, to) in moved {
            let to = to..to + (from.end - from.start);
            self.staged.add_unused(to.clone());
            self.volume.claim_blocks([to])?;
            self.volume.free_blocks_of([from])?;
        }
        Ok(())
    }

    fn move_file(&mut self, file: &MovedFile) -> Result<(), ResizeError> {
        let ratio = u64::from(self.volume.geometry().blocks_per_cluster);
        for run in file.taken(ratio) {
            self.staged.add_unused(run.clone());
            self.volume.claim_blocks([run])?;
        }
        self.volume.free_blocks_of(file.left(ratio))?;
        self.write_file_map(file)?;
        Ok(())
    }

    /// Writes the map of a file to its new places. Returns the inode with it.
    pub(super) fn write_file_map(&mut self, file: &MovedFile) -> Result<Inode, ResizeError> {
        let number = file.number;
        let geometry = self.volume.geometry().clone();
        let mut record = self.volume.read_inode(number)?;
        let mut inode = Inode::decode(&record, number, &geometry)?;
        if number == InodeNo::RESIZE {
            let double = indirect::pointer(&inode.i_block, DOUBLE_SLOT).unwrap_or(BlockNo(0));
            let bytes = self.volume.read(double)?;
            let place = self.moves.block(double);
            self.volume.write(place, &bytes)?;
            indirect::set_pointer(&mut inode.i_block, DOUBLE_SLOT, place);
        } else if let Some(split) = &file.split {
            let ratio = u64::from(geometry.blocks_per_cluster);
            let map = extant_offline::FileMap {
                extents: split.extents.clone(),
                nodes: split.nodes.clone(),
            };
            (inode.i_block, _) = self.volume.write_map(number, &inode, &map)?;
            let before = inode.space(&geometry) / u64::from(geometry.block_size);
            let change = (split.nodes.len() as i64 - split.had as i64) * ratio.cast_signed();
            inode.set_space(&geometry, before.saturating_add_signed(change));
            if self.counts_for_quota(number, &inode) {
                let owners = (inode.uid, inode.gid, inode.project.unwrap_or(0));
                *self.space.entry(owners).or_default() += change;
            }
        } else if inode.is_extent_mapped() {
            let mut root = inode.i_block;
            self.move_node(number, &inode, None, &mut root, &NodeLimits::ROOT)?;
            inode.i_block = root;
        } else {
            let mut root = inode.i_block;
            for slot in 0..indirect::SLOTS {
                let levels = (slot + 1).saturating_sub(indirect::DIRECT_BLOCKS as usize);
                self.move_pointer(&mut root, slot, levels)?;
            }
            inode.i_block = root;
        }
        inode.encode_into(&mut record, &geometry);
        self.volume.write_inode(number, &mut record)?;
        if self.volume.raw.s_orphan_file_inum.get() == number.0 {
            self.seal_orphan_file(number, &inode)?;
        }
        Ok(inode)
    }

    /// Whether the blocks of an inode are in the quota of its owners.
    fn counts_for_quota(&self, number: InodeNo, inode: &Inode) -> bool {
        let superblock = Superblock::decode(&self.volume.raw);
        let own = [
            superblock.usr_quota_inode,
            superblock.grp_quota_inode,
            superblock.prj_quota_inode,
            superblock.orphan_file_inode,
            superblock.journal_inode,
        ];
        let is_reserved = number < self.volume.geometry().first_inode && number != InodeNo::ROOT;
        !is_reserved && !own.contains(&Some(number)) && !inode.flags.contains(InodeFlags::EA_INODE)
    }

    /// Checksums of the orphan file depend on the places of its blocks.
    pub(super) fn seal_orphan_file(
        &mut self,
        number: InodeNo,
        inode: &Inode,
    ) -> Result<(), ResizeError> {
        let format = OrphanFileFormat::new(self.volume.geometry(), number, inode.generation);
        for (_, block) in self.volume.read_map(number, inode)?.blocks() {
            let mut bytes = self.volume.read(block)?;
            format.seal(&mut bytes, block);
            self.volume.write(block, &bytes)?;
        }
        Ok(())
    }

    /// Moves what a node of an extent tree leads to. `bytes` are its own.
    fn move_node(
        &mut self,
        number: InodeNo,
        inode: &Inode,
        block: Option<BlockNo>,
        bytes: &mut [u8],
        limits: &NodeLimits,
    ) -> Result<(), ResizeError> {
        let geometry = self.volume.geometry().clone();
        let owner = NodeOwner { inode: number, generation: inode.generation, block };
        let mut node = OwnedNode::decode(bytes, &owner, limits, &geometry)?;
        match &mut node.entries {
            NodeEntries::Leaf(extents) => {
                for extent in extents {
                    extent.start = self.moves.block(extent.start);
                }
            }
            NodeEntries::Index(indexes, below) => {
                for position in 0..indexes.len() {
                    let end =
                        indexes.get(position + 1).map_or(limits.blocks.end, |next| next.block.0);
                    let index = &mut indexes[position];
                    let limits = NodeLimits { depth: Some(*below), blocks: index.block.0..end };
                    let mut child = self.volume.read(index.leaf)?;
                    let place = self.moves.block(index.leaf);
                    self.move_node(number, inode, Some(index.leaf), &mut child, &limits)?;
                    self.volume.write(place, &child)?;
                    index.leaf = place;
                }
            }
        }
        node.encode_into(bytes);
        extent::seal(bytes, &owner, &geometry);
        Ok(())
    }

    /// Moves the block that a pointer leads to through `levels` indirect blocks.
    fn move_pointer(
        &mut self,
        bytes: &mut [u8],
        position: usize,
        levels: usize,
    ) -> Result<(), ResizeError> {
        let Some(block) = indirect::pointer(bytes, position).filter(|block| block.0 != 0) else {
            return Ok(());
        };
        let place = self.moves.block(block);
        if levels > 0 {
            let mut child = self.volume.read(block)?;
            for position in 0..child.len() / 4 {
                self.move_pointer(&mut child, position, levels - 1)?;
            }
            self.volume.write(place, &child)?;
        }
        if place != block {
            indirect::set_pointer(bytes, position, place);
        }
        Ok(())
    }

    /// Blocks of attributes move with all inodes that share them.
    fn move_xattr_blocks(&mut self, plan: &Plan) -> Result<(), ResizeError> {
        if plan.xattr_blocks.is_empty() {
            return Ok(());
        }
        let capacity = self.capacity()?;
        let scan = Scan::of(&mut self.volume)?;
        for block in &plan.xattr_blocks {
            let users = scan.xattr_blocks.get(block).cloned().unwrap_or_default();
            // All inodes that share a block are in one transaction.
            if capacity.is_some_and(|limit| self.staged.held() + users.len() > limit / 2) {
                self.flush()?;
            }
            let geometry = self.volume.geometry().clone();
            let place = self.moves.block(*block);
            let whole = self.moves.blocks(&self.moves.clusters(&(block.0..block.0 + 1)));
            let parts = self.moves.parts(whole);
            self.change_places(parts)?;
            let mut bytes = self.volume.read(*block)?;
            xattr::seal_block(&mut bytes, place, &geometry);
            self.volume.write(place, &bytes)?;
            for number in users {
                let mut record = self.volume.read_inode(number)?;
                let mut inode = Inode::decode(&record, number, &geometry)?;
                inode.file_acl = place;
                inode.encode_into(&mut record, &geometry);
                self.volume.write_inode(number, &mut record)?;
            }
        }
        Ok(())
    }

    fn move_mmp(&mut self, plan: &Plan) -> Result<(), ResizeError> {
        let Some(block) = self.volume.mmp_block().filter(|_| plan.moves_mmp) else {
            return Ok(());
        };
        let place = self.moves.block(block);
        let whole = self.moves.blocks(&self.moves.clusters(&(block.0..block.0 + 1)));
        let parts = self.moves.parts(whole);
        self.change_places(parts)?;
        let bytes = self.volume.read(block)?;
        self.volume.write(place, &bytes)?;
        Ok(self.volume.update_superblock(|raw| raw.s_mmp_block.set(place.0))?)
    }

    /// Quota files count the blocks of maps, too.
    fn update_quotas(&mut self) -> Result<(), ResizeError> {
        let space = std::mem::take(&mut self.space);
        if self.contents == Contents::Ignored
            || !self.volume.geometry().has_ro_compat(RoCompatFeatures::QUOTA)
        {
            return Ok(());
        }
        let superblock = Superblock::decode(&self.volume.raw);
        for (kind, number) in [
            (QuotaKind::User, superblock.usr_quota_inode),
            (QuotaKind::Group, superblock.grp_quota_inode),
            (QuotaKind::Project, superblock.prj_quota_inode),
        ] {
            let Some(number) = number else { continue };
            let mut changes: BTreeMap<u32, i64> = BTreeMap::new();
            for ((user, group, project), change) in &space {
                let id = match kind {
                    QuotaKind::User => *user,
                    QuotaKind::Group => *group,
                    QuotaKind::Project => *project,
                };
                *changes.entry(id).or_default() += change;
            }
            self.update_quota(kind, number, &changes)?;
        }
        Ok(())
    }

    fn update_quota(
        &mut self,
        kind: QuotaKind,
        number: InodeNo,
        changes: &BTreeMap<u32, i64>,
    ) -> Result<(), ResizeError> {
        let geometry = self.volume.geometry().clone();
        let record = self.volume.read_inode(number)?;
        let inode = Inode::decode(&record, number, &geometry)?;
        let blocks: Vec<BlockNo> =
            self.volume.read_map(number, &inode)?.blocks().map(|(_, block)| block).collect();
        let mut bytes = Vec::new();
        for block in &blocks {
            bytes.extend_from_slice(&self.volume.read(*block)?);
        }
        for (id, change) in changes.iter().filter(|(_, change)| **change != 0) {
            let path = quota_tree(&bytes, kind, number)?.find(*id)?;
            let Some(mut found) = path.found else { continue };
            let change = change.saturating_mul(i64::from(geometry.block_size));
            found.record.space = found.record.space.saturating_add_signed(change);
            let start = found.leaf as usize * QUOTA_BLOCK_SIZE + found.at;
            let raw = found.record.encode();
            let stored = raw.as_bytes();
            if let Some(place) = bytes.get_mut(start..start + stored.len()) {
                place.copy_from_slice(stored);
            }
        }
        for (block, bytes) in blocks.iter().zip(bytes.chunks_exact(geometry.block_len())) {
            self.volume.write(*block, bytes)?;
        }
        Ok(())
    }

    fn renumber(&mut self, plan: &Plan) -> Result<(), ResizeError> {
        self.resize.begin(ResizeStep::MoveInodes, plan.renumbered.len() as u64);
        let mut left: Vec<(u32, u32)> =
            plan.renumbered.iter().map(|(old, new)| (*old, *new)).collect();
        if let Some(progress) = self.resize.progress {
            left.iter().for_each(|(old, new)| progress.move_inode(*old, *new));
        }
        let capacity = self.capacity()?;
        let mut count = left.len();
        while !left.is_empty() {
            count = count.min(left.len());
            let pairs: BTreeMap<u32, u32> = left[..count].iter().copied().collect();
            self.volume.commit()?;
            let geometry = self.volume.geometry().clone();
            let trial = Arc::new(Staged::new(self.staged.clone(), &geometry));
            let mut volume = OfflineVolume::open(trial.clone())?;
            renumber::inodes(&mut volume, &pairs, self.contents == Contents::Ignored)?;
            volume.commit()?;
            let changes = trial.take_changes()?;
            if let Some(capacity) = capacity
                && changes.len() + self.staged.held() > capacity / 4 * 3
            {
                if self.staged.held() > 0 {
                    self.flush()?;
                }
                if changes.len() > capacity / 4 * 3 && count > 1 {
                    count = count.div_ceil(2);
                    continue;
                }
            }
            for (block, bytes) in changes {
                self.staged.write_at(geometry.byte_of(block), &bytes)?;
            }
            self.volume = OfflineVolume::open(self.staged.clone())?;
            left.drain(..count);
        }
        Ok(())
    }

    /// The switch to the new size.
    fn cut(&mut self, plan: &Plan) -> Result<(), ResizeError> {
        let old = self.volume.geometry().clone();
        self.resize.begin(ResizeStep::MoveTables, plan.tables.len() as u64);
        // Descriptors and the resize inode's blocks come in addition.
        let Resized { geometry, .. } = Resized::of(&self.volume.raw, plan.target)?;
        let descriptors = old.desc_blocks().max(geometry.desc_blocks()) as usize;
        let more = descriptors + usize::from(old.reserved_gdt_blocks);
        let is_many = |capacity: usize| self.staged.held() + more > capacity / 2;
        // The smaller superblock is written first: no map may lead past its end by then.
        if !plan.tables.is_empty() || self.capacity()?.is_some_and(is_many) {
            // The new places of tables may have held what has moved.
            self.flush()?;
        }
        self.volume.commit()?;
        let Resized { mut raw, geometry } = Resized::of(&self.volume.raw, plan.target)?;
        let freed = freed_metadata(&self.volume, &geometry, &plan.tables);
        if raw.s_overhead_blocks.get() > 0 {
            let ratio = u64::from(geometry.blocks_per_cluster);
            let before = metadata(&self.volume, &old, &BTreeMap::new()).count() / ratio;
            let after = metadata(&self.volume, &geometry, &plan.tables).count() / ratio;
            let now = u64::from(raw.s_overhead_blocks.get()) + after;
            raw.s_overhead_blocks.set(u32::try_from(now.saturating_sub(before)).unwrap_or(0));
        }

        let table = descriptors::resized(self.volume.table(), &old, &geometry);
        let staged = self.staged.clone();
        let mut cut = OfflineVolume::of_parts(staged.clone(), raw, geometry.clone(), table);
        let replay = match old.desc_size == geometry.desc_size {
            true => ReplayBy::All,
            false => {
                descriptors::seal_bitmaps(&self.volume, &mut cut)?;
                ReplayBy::AllButKernel
            }
        };
        for (group, tables) in &plan.tables {
            self.move_tables(&mut cut, GroupNo(*group), tables)?;
        }
        let taken = taken(&old, &geometry);
        cut.claim_blocks(taken.iter())?;
        change_metadata(&mut cut, &freed, &taken, plan)?;
        resize_inode::update(&mut cut, &old)?;
        cut.sum_free_counts();
        self.resize.set_write_time(&mut cut)?;
        cut.touch_all_descs();
        cut.commit()?;
        self.switch(&cut, replay)
    }

    /// Copies the tables of a group to their new places.
    fn move_tables(
        &self,
        cut: &mut OfflineVolume,
        group: GroupNo,
        tables: &extant_layout::tables::GroupTables,
    ) -> Result<(), ResizeError> {
        let geometry = cut.geometry().clone();
        let desc = self.volume.desc(group);
        let before = extant_layout::tables::GroupTables {
            block_bitmap: desc.block_bitmap,
            inode_bitmap: desc.inode_bitmap,
            inode_table: desc.inode_table,
        };
        for (from, to) in runs_of(&before, &geometry).into_iter().zip(runs_of(tables, &geometry)) {
            if from == to {
                continue;
            }
            if let Some(progress) = self.resize.progress {
                progress.move_table(group.0, from.start, to.start);
            }
            self.staged.add_unused(to.clone());
            for (from, to) in from.zip(to) {
                let bytes = self.volume.read(BlockNo(from))?;
                cut.write(BlockNo(to), &bytes)?;
            }
        }
        cut.update_desc(group, |desc| {
            desc.block_bitmap = tables.block_bitmap;
            desc.inode_bitmap = tables.inode_bitmap;
            desc.inode_table = tables.inode_table;
        });
        Ok(())
    }
}

/// Marks the metadata of groups that are gone as free, that of moved tables as in use, and counts
/// the groups that this or `taken` concerns, with the last one, which may be shorter.
fn change_metadata(
    cut: &mut OfflineVolume,
    freed: &RunSet,
    taken: &RunSet,
    plan: &Plan,
) -> Result<(), ResizeError> {
    let geometry = cut.geometry().clone();
    let ratio = u64::from(geometry.blocks_per_cluster);
    let mut changed = RunSet::new();
    let mut concerned: BTreeSet<GroupNo> = match plan.target {
        Target::Blocks(_) => [GroupNo(geometry.groups_count - 1)].into(),
        Target::TablesBeyond(_) | Target::Bit64(_) => BTreeSet::new(),
    };
    concerned.extend(taken.iter().flat_map(|run| groups_of(&geometry, &run)));
    for run in freed.iter() {
        changed.insert(run);
    }
    let in_use = metadata(cut, &geometry, &plan.tables);
    for run in changed.iter() {
        for group in groups_of(&geometry, &run) {
            concerned.insert(group);
        }
        // Only whole clusters that hold no other metadata.
        let origin = geometry.first_data_block.0;
        let mut at = origin + (run.start - origin) / ratio * ratio;
        while at < run.end {
            let cluster = at..at + ratio;
            if in_use.is_free(cluster.clone()) {
                cut.free_blocks_of([cluster])?;
            }
            at += ratio;
        }
    }
    for tables in plan.tables.values() {
        for run in runs_of(tables, &geometry) {
            concerned.extend(groups_of(&geometry, &run));
            cut.claim_blocks([run])?;
        }
    }
    for group in concerned {
        cut.store_bitmap(BitmapKind::Block, group)?;
        let bits = 0..geometry.group_clusters(group);
        let used = bitmap::count_set(cut.bitmap(BitmapKind::Block, group)?, bits.clone());
        cut.update_desc(group, |desc| desc.free_clusters = bits.end - used);
    }
    Ok(())
}

/// The groups that have blocks of a run.
fn groups_of(geometry: &Geometry, run: &Range<u64>) -> Vec<GroupNo> {
    let first = geometry.group_of(BlockNo(run.start));
    let last = geometry.group_of(BlockNo(run.end.saturating_sub(1)));
    match (first, last) {
        (Some(first), Some(last)) => (first.0..=last.0).map(GroupNo).collect(),
        _ => Vec::new(),
    }
}
