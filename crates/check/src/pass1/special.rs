//! Reserved inodes: root, bad blocks, resize, journal, quotas, and those that nothing uses.

use super::visit::{MapCounts, Visit};
use super::xattr::XattrCounts;
use super::{AT_ONCE, Local};
use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use extant_layout::groups::classic_desc_blocks;
use extant_ondisk::indirect::{IndirectMap, SLOTS, pointer, set_pointer};
use extant_ondisk::inode::{FileType, Inode, InodeFlags, RawInode};
use extant_ondisk::quota::QuotaKind;
use extant_ondisk::{BlockNo, CompatFeatures, FileBlock, InodeNo, RoCompatFeatures};
use std::ops::Range;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Holds a boot loader where there is one.
const BOOT_LOADER: InodeNo = InodeNo(5);
/// Slot of `i_block` with the double indirect block.
const DOUBLE_SLOT: usize = 13;
/// The unit of `i_blocks`.
const SECTOR: u64 = 512;

impl Check<'_> {
    /// Checks a reserved inode; true if the rules of files do not apply to it.
    pub(super) fn check_special_inode(&self, visit: &mut Visit<'_>) -> Result<bool, CheckError> {
        let ino = visit.ino;
        let file_type = visit.inode.file_type();
        if ino == InodeNo::ROOT {
            if file_type != Some(FileType::Directory)
                && self.should_fix(visit.finding(Code::RootNotDirectory))?
            {
                self.clear_visited(visit)?;
            }
            return Ok(visit.cleared);
        }
        if let Some(kind) = self.quota_kind(ino) {
            return self.check_quota_inode(visit, kind);
        }
        if ino >= self.geometry.first_inode && Some(ino) != self.superblock.journal_inode {
            return Ok(false);
        }
        if ino == InodeNo::RESIZE {
            return self.check_resize(visit);
        }
        // An inode that the superblock names as the journal is one, whatever the features are: pass
        // 0 checks that.
        let journal = self.superblock.journal_inode;
        if ino == InodeNo::JOURNAL && journal != Some(ino) {
            if has_content(visit) && self.should_fix(visit.finding(Code::JournalNotInUse))? {
                self.zero_inode(visit)?;
            }
            return Ok(true);
        }
        if Some(ino) == journal {
            if file_type != Some(FileType::Regular)
                && self.should_fix(visit.finding(Code::JournalInodeMode))?
            {
                visit.inode.mode = 0x8000 | 0o600;
                visit.dirty = true;
            }
            return Ok(false);
        }
        if ino == InodeNo::BAD_BLOCKS {
            let is_possible =
                !self.is_bad_list_broken && is_bad_block_list(visit.record, &visit.inode);
            if !is_possible && self.should_fix(visit.finding(Code::BadBlocksInodeInvalid))? {
                self.zero_inode(visit)?;
            }
            return Ok(visit.cleared);
        }
        // Only the boot loader's may be something, as e2fsck has it anything but a directory.
        let is_possible =
            visit.inode.mode == 0 || ino == BOOT_LOADER && file_type != Some(FileType::Directory);
        if !is_possible && self.should_fix(visit.finding(Code::ReservedInodeMode))? {
            self.zero_inode(visit)?;
        }
        Ok(visit.cleared || file_type != Some(FileType::Regular))
    }

    /// Whether an inode is reserved for a journal or a quota that the volume does not have: only
    /// its content is checked, and flags of features that the volume lacks.
    pub(super) fn is_out_of_use(&self, ino: InodeNo) -> bool {
        let is_of_journal = ino == InodeNo::JOURNAL && self.superblock.journal_inode != Some(ino);
        let is_of_quota = [InodeNo::USER_QUOTA, InodeNo::GROUP_QUOTA].contains(&ino)
            && self.quota_kind(ino).is_none_or(|kind| self.quota_inode(kind) != Some(ino));
        is_of_journal || is_of_quota
    }

    /// Whether a reserved inode is unused as long as it has no mode.
    pub(super) fn is_spare(&self, ino: InodeNo) -> bool {
        let has_rules =
            [InodeNo::BAD_BLOCKS, InodeNo::ROOT, InodeNo::JOURNAL, InodeNo::RESIZE].contains(&ino);
        ino < self.geometry.first_inode
            && !has_rules
            && self.quota_kind(ino).is_none()
            && self.superblock.journal_inode != Some(ino)
    }

    /// The space of an unused inode, checked as by e2fsck: its attribute block, the blocks of its
    /// map if its mode has one, `i_blocks`, and `i_size` above the largest file.
    pub(super) fn check_spare_space(
        &self,
        visit: &mut Visit<'_>,
        local: &mut Local,
    ) -> Result<(), CheckError> {
        let mut xattrs = XattrCounts::default();
        if visit.inode.file_acl.0 != 0 && self.has_xattr_blocks() {
            self.check_acl_block(visit, &mut xattrs, &mut None)?;
        }
        let counts = if !crate::map::has_map(&visit.inode) {
            MapCounts::default()
        } else if visit.inode.is_extent_mapped() {
            self.check_extents(visit, local)?
        } else {
            self.check_indirect(visit, local)?
        };
        if visit.cleared || counts.is_unsure {
            return Ok(());
        }
        if visit.inode.file_type() != Some(FileType::Symlink) {
            self.check_spare_size(visit, counts.end)?;
        }
        let space = (counts.clusters + xattrs.clusters) * self.geometry.cluster_size();
        let expected = space / self.space_unit(&visit.inode);
        let finding = visit.finding(Code::InodeBlocksWrong).found(visit.inode.blocks);
        if visit.inode.blocks != expected && self.should_fix(finding.expected(expected))? {
            visit.inode.blocks = expected;
            visit.dirty = true;
        }
        if counts.rebuild {
            self.deferred.lock().rebuild.push(visit.ino);
        }
        Ok(())
    }

    /// `i_size` above the largest file. Unlike elsewhere, its high half counts whatever the type.
    fn check_spare_size(&self, visit: &mut Visit<'_>, end: u64) -> Result<(), CheckError> {
        let Ok((raw, _)) = RawInode::ref_from_prefix(visit.record) else { return Ok(()) };
        let size = u64::from(raw.i_size_high.get()) << 32 | u64::from(raw.i_size_lo.get());
        let expected = end * u64::from(self.geometry.block_size);
        let finding = visit.finding(Code::InodeSizeWrong).found(size).expected(expected);
        if size > self.largest_file(visit.inode.is_extent_mapped()) && self.should_fix(finding)? {
            if let Ok((raw, _)) = RawInode::mut_from_prefix(visit.record) {
                raw.i_size_high.set(0);
            }
            visit.inode.size = expected;
            visit.dirty = true;
        }
        Ok(())
    }

    /// Empties a reserved inode.
    fn zero_inode(&self, visit: &mut Visit<'_>) -> Result<(), CheckError> {
        visit.record.fill(0);
        self.store.write_inode(visit.ino, visit.record)?;
        visit.cleared = true;
        Ok(())
    }

    /// Which quota an inode is for: by the superblock, or the two that have fixed numbers.
    fn quota_kind(&self, ino: InodeNo) -> Option<QuotaKind> {
        let superblock = &self.superblock;
        [
            (superblock.usr_quota_inode, QuotaKind::User),
            (superblock.grp_quota_inode, QuotaKind::Group),
            (superblock.prj_quota_inode, QuotaKind::Project),
        ]
        .into_iter()
        .find_map(|(of, kind)| (of == Some(ino)).then_some(kind))
        .or(match ino {
            InodeNo::USER_QUOTA => Some(QuotaKind::User),
            InodeNo::GROUP_QUOTA => Some(QuotaKind::Group),
            _ => None,
        })
    }

    /// The quota file of a kind that is in use.
    pub(crate) fn quota_inode(&self, kind: QuotaKind) -> Option<InodeNo> {
        if !self.geometry.has_ro_compat(RoCompatFeatures::QUOTA) {
            return None;
        }
        match kind {
            QuotaKind::User => self.superblock.usr_quota_inode,
            QuotaKind::Group => self.superblock.grp_quota_inode,
            QuotaKind::Project => self.superblock.prj_quota_inode,
        }
    }

    fn check_quota_inode(
        &self,
        visit: &mut Visit<'_>,
        kind: QuotaKind,
    ) -> Result<bool, CheckError> {
        if self.quota_inode(kind) != Some(visit.ino) {
            if visit.ino < self.geometry.first_inode
                && has_content(visit)
                && self.should_fix(visit.finding(Code::QuotaNotInUse))?
            {
                self.zero_inode(visit)?;
            }
            // Other contents of a reserved inode belong to no file.
            return Ok(visit.cleared || visit.ino < self.geometry.first_inode);
        }
        if visit.inode.file_type() != Some(FileType::Regular)
            && self.should_fix(visit.finding(Code::QuotaInodeMode))?
        {
            visit.inode.mode = 0x8000 | 0o600;
            visit.dirty = true;
        }
        Ok(false)
    }

    pub(super) fn has_resize_inode(&self) -> bool {
        self.geometry.has_compat(CompatFeatures::RESIZE_INODE)
            && !self.geometry.has_incompat(extant_ondisk::IncompatFeatures::META_BG)
    }

    /// The resize inode maps the reserved descriptor blocks: they are the volume's own, so that
    /// only the double indirect block is claimed here.
    fn check_resize(&self, visit: &mut Visit<'_>) -> Result<bool, CheckError> {
        let inode = &visit.inode;
        if !self.has_resize_inode() {
            let has_content = inode.links > 0
                || inode.blocks > 0
                || inode.size > 0
                || inode.file_acl.0 != 0
                || inode.i_block.iter().any(|byte| *byte != 0);
            let is_other = inode.mode != 0 && inode.file_type() != Some(FileType::Regular);
            if has_content && self.should_fix(visit.finding(Code::ResizeInodeNotInUse))? {
                self.zero_inode(visit)?;
            } else if has_content {
                self.claim_resize_blocks(inode)?;
            } else if is_other && self.should_fix(visit.finding(Code::ReservedInodeMode))? {
                self.zero_inode(visit)?;
            }
            return Ok(true);
        }
        if let Some(double) = self.resize_pointer(inode) {
            let cluster = self.blocks.cluster_of(double).0;
            self.blocks.claim(cluster..cluster + 1, &self.budget);
            let expected = self.resize_space() / SECTOR;
            let finding = visit.finding(Code::InodeBlocksWrong).found(inode.blocks);
            if inode.blocks != expected && self.should_fix(finding.expected(expected))? {
                visit.inode.blocks = expected;
                visit.dirty = true;
            }
            let end = self.resize_end();
            let counts = MapCounts { end, written_end: end, ..MapCounts::default() };
            self.check_size(visit, &counts)?;
        }
        Ok(true)
    }

    /// The double indirect block of the resize inode, where it lies on the volume.
    pub(super) fn resize_pointer(&self, inode: &Inode) -> Option<BlockNo> {
        let double = pointer(&inode.i_block, DOUBLE_SLOT)?;
        (double.0 != 0 && self.geometry.contains(double, 1)).then_some(double)
    }

    /// Blocks up to the last one that the resize inode maps: those of the backups.
    fn resize_end(&self) -> u64 {
        let start = IndirectMap::new(self.geometry.block_size).slot_start(DOUBLE_SLOT).0;
        let each = self.geometry.block_len() as u64 / 4;
        let ends = self.resize_plan().into_iter().filter(|(_, backups)| !backups.is_empty()).map(
            |(block, backups)| start + self.resize_slot(block) as u64 * each + backups.len() as u64,
        );
        ends.max().unwrap_or(0)
    }

    /// Bytes that the resize inode takes: the double indirect block, and each reserved block with
    /// those of the backups, each counted as a cluster (observed of mke2fs and e2fsck 1.47.0).
    fn resize_space(&self) -> u64 {
        let backups = self.geometry.backup_superblock_groups().len() as u64;
        let blocks = 1 + u64::from(self.geometry.reserved_gdt_blocks) * (1 + backups);
        blocks * self.geometry.cluster_size()
    }

    /// As long as it exists, the blocks of its map are in use.
    fn claim_resize_blocks(&self, inode: &Inode) -> Result<(), CheckError> {
        let map = self.read_map(InodeNo::RESIZE, inode)?;
        for block in map.nodes.iter().copied().chain(map.blocks().map(|(_, block)| block)) {
            let cluster = self.blocks.cluster_of(block);
            if !self.blocks.is_system(cluster) {
                self.blocks.claim(cluster.0..cluster.0 + 1, &self.budget);
            }
        }
        Ok(())
    }

    /// The reserved descriptor blocks of group 0.
    fn reserved_blocks(&self) -> Range<u64> {
        let geometry = self.geometry;
        let first = geometry.superblock_block().0 + 1 + u64::from(classic_desc_blocks(geometry));
        first..first + u64::from(geometry.reserved_gdt_blocks)
    }

    /// Has the reserved descriptor blocks fetched: they are compared when all inodes are checked.
    pub(super) fn fetch_reserved_blocks(&self) {
        let most = self.options.read_ahead >> self.geometry.block_bits();
        let Range { start, end } = self.reserved_blocks();
        let blocks = start..end.min(start.saturating_add(most));
        if self.has_resize_inode()
            && !self.is_repair()
            && let Ok(Some(run)) = self.store.next_data(blocks)
        {
            self.store.will_need(run);
        }
    }

    /// The reserved descriptor blocks of group 0, and for each those of the backups.
    fn resize_plan(&self) -> Vec<(BlockNo, Vec<BlockNo>)> {
        let geometry = self.geometry;
        let backups = geometry.backup_superblock_groups();
        self.reserved_blocks()
            .map(|block| {
                let of_backups = backups
                    .iter()
                    .map(|group| {
                        BlockNo(block + u64::from(group.0) * u64::from(geometry.blocks_per_group))
                    })
                    .collect();
                (BlockNo(block), of_backups)
            })
            .collect()
    }

    /// The slot of the double indirect block is the number of the descriptor block that a reserved
    /// block may become.
    fn resize_slot(&self, block: BlockNo) -> usize {
        let number = block.0 - self.geometry.superblock_block().0 - 1;
        // Below the pointers of a block, at most 2^14.
        (number % (u64::from(self.geometry.block_size) / 4)) as usize
    }

    fn resize_is_sound(&self, inode: &Inode) -> Result<bool, CheckError> {
        let double = pointer(&inode.i_block, DOUBLE_SLOT).unwrap_or_default();
        let others = (0..15)
            .filter(|slot| *slot != DOUBLE_SLOT)
            .all(|slot| pointer(&inode.i_block, slot) == Some(BlockNo(0)));
        if !others
            || !self.geometry.contains(double, 1)
            || inode.file_type() != Some(FileType::Regular)
            || inode.links != 1
            || inode.flags.intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA)
            || inode.file_acl.0 != 0
            || self.blocks.is_system(self.blocks.cluster_of(double))
                && self.geometry.blocks_per_cluster == 1
        {
            return Ok(false);
        }
        let expected = self.resize_blocks(&self.store.read(double)?, true)?;
        Ok(expected)
    }

    /// Whether the double indirect block and what lies below it are as planned; where not and
    /// `check` is off, they are written.
    fn resize_blocks(&self, double: &[u8], check: bool) -> Result<bool, CheckError> {
        let block_len = self.geometry.block_len();
        let plan = self.resize_plan();
        let mut expected = vec![0; double.len()];
        for (block, _) in &plan {
            set_pointer(&mut expected, self.resize_slot(*block), *block);
        }
        if check && expected != double {
            return Ok(false);
        }
        // They lie side by side.
        for part in plan.chunks((AT_ONCE as usize / block_len).max(1)) {
            let Some((first, _)) = part.first() else { break };
            let mut found = vec![0; part.len() * block_len];
            self.store.read_into(*first, &mut found)?;
            for ((block, backups), found) in part.iter().zip(found.chunks_exact(block_len)) {
                let mut bytes = vec![0; block_len];
                for (at, backup) in backups.iter().enumerate().take(block_len / 4) {
                    set_pointer(&mut bytes, at, *backup);
                }
                if found != bytes {
                    if check {
                        return Ok(false);
                    }
                    self.store.write(*block, &bytes)?;
                }
            }
        }
        Ok(true)
    }

    /// The block for the double indirect block: the old one if no other file claims it, else a
    /// free one.
    fn resize_double(&self, record: &[u8]) -> Result<Option<BlockNo>, CheckError> {
        let raw = RawInode::ref_from_prefix(record).ok().map(|(raw, _)| raw);
        let old = raw.and_then(|raw| pointer(&raw.i_block, DOUBLE_SLOT)).unwrap_or_default();
        let is_ours = |block: &BlockNo| {
            let cluster = self.blocks.cluster_of(*block);
            let is_shared = || self.blocks.twice().is_some_and(|twice| twice.contains(cluster.0));
            self.geometry.contains(*block, 1) && !self.blocks.is_system(cluster) && !is_shared()
        };
        let goal = BlockNo(self.geometry.superblock_block().0 + 1);
        if is_ours(&old) { Ok(Some(old)) } else { self.allocate_block(goal) }
    }

    /// Without a block for it the resize inode is dropped, and its reserved blocks are free.
    fn give_up_resize_inode(&self, mut record: Vec<u8>) -> Result<(), CheckError> {
        record.fill(0);
        self.store.write_inode(InodeNo::RESIZE, &mut record)?;
        self.store.update_superblock(|raw| {
            let mut features = raw.features();
            features.compat -= CompatFeatures::RESIZE_INODE;
            raw.set_features(features);
            raw.s_reserved_gdt_blocks.set(0);
        })?;
        self.need_restart();
        Ok(())
    }

    /// Reports the blocks past the volume's end in the map of a resize inode that stays as it is.
    fn report_illegal_pointers(&self, record: &[u8]) -> Result<(), CheckError> {
        let Ok((raw, _)) = RawInode::ref_from_prefix(record) else { return Ok(()) };
        let map = IndirectMap::new(self.geometry.block_size);
        let slots = (0..SLOTS)
            .filter_map(|slot| Some((map.slot_start(slot).0, pointer(&raw.i_block, slot)?)));
        let mut pointers: Vec<_> = slots.collect();
        let is_there = |block: BlockNo| block.0 != 0 && self.geometry.contains(block, 1);
        let double = pointer(&raw.i_block, DOUBLE_SLOT).unwrap_or_default();
        if is_there(double) {
            let each = self.geometry.block_len() as u64 / 4;
            let start = map.slot_start(DOUBLE_SLOT).0;
            let below = self.pointers_in(double, start, each)?;
            for (at, block) in below.iter().filter(|(_, block)| is_there(*block)) {
                pointers.extend(self.pointers_in(*block, *at, 1)?);
            }
            pointers.extend(below);
        }
        for (at, block) in pointers {
            if block.0 != 0 && !self.geometry.contains(block, 1) {
                let finding = Finding::new(Code::IllegalBlock).inode(InodeNo::RESIZE);
                self.report(finding.file_block(FileBlock(at)).block(block))?;
            }
        }
        Ok(())
    }

    /// The pointers of an indirect block, each with the first of the blocks of the file that it
    /// leads to.
    fn pointers_in(
        &self,
        block: BlockNo,
        start: u64,
        each: u64,
    ) -> Result<Vec<(u64, BlockNo)>, CheckError> {
        let bytes = self.store.read(block)?;
        let pointers = (0..).map_while(|at| pointer(&bytes, at));
        Ok(pointers.zip(0..).map(|(block, at)| (start + at * each, block)).collect())
    }

    /// After pass 1, when free blocks are known: the resize inode as it must be.
    pub(super) fn finish_resize_inode(&self) -> Result<(), CheckError> {
        if !self.has_resize_inode() {
            return Ok(());
        }
        let ino = InodeNo::RESIZE;
        let mut record = self.record(ino)?;
        let is_sound = match Inode::decode(&record, ino, self.geometry) {
            Ok(inode) => self.resize_is_sound(&inode)?,
            Err(_) => false,
        };
        if is_sound {
            return Ok(());
        }
        if !self.should_fix(Finding::new(Code::ResizeInodeInvalid).inode(ino))? {
            return if self.is_repair() { Ok(()) } else { self.report_illegal_pointers(&record) };
        }
        let Some(double) = self.resize_double(&record)? else {
            return self.give_up_resize_inode(record);
        };
        let per_block = self.geometry.block_len() / 4;
        let mut bytes = vec![0; self.geometry.block_len()];
        let plan = self.resize_plan();
        for (block, _) in &plan {
            set_pointer(&mut bytes, self.resize_slot(*block), *block);
        }
        self.store.write(double, &bytes)?;
        self.resize_blocks(&bytes, false)?;
        let block = u64::from(self.geometry.block_size);
        let per_block = per_block as u64;
        let size = (12 + per_block + per_block * per_block) * block;
        let mut raw = RawInode::new_zeroed();
        raw.i_mode.set(0x8000 | 0o600);
        raw.i_links_count.set(1);
        raw.i_size_lo.set((size & 0xffff_ffff) as u32);
        raw.i_size_high.set((size >> 32) as u32);
        raw.i_blocks_lo.set((self.resize_space() / SECTOR).min(u64::from(u32::MAX)) as u32);
        raw.i_mtime.set(self.now());
        raw.i_ctime.set(self.now());
        raw.i_atime.set(self.now());
        set_pointer(&mut raw.i_block, DOUBLE_SLOT, double);
        record.fill(0);
        record[..128].copy_from_slice(raw.as_bytes());
        if let Some(field) = record.get_mut(128..130) {
            field.copy_from_slice(&32_u16.to_le_bytes());
        }
        self.store.write_inode(ino, &mut record)?;
        self.need_restart();
        Ok(())
    }
}

/// Whether an inode can be the list of bad blocks: it has no field of a file. As in e2fsck, only
/// the low halves are checked.
pub(super) fn is_bad_block_list(record: &[u8], inode: &Inode) -> bool {
    let has_owner = |raw: &RawInode| raw.i_uid.get() != 0 || raw.i_gid.get() != 0;
    let is_file = RawInode::ref_from_prefix(record)
        .is_ok_and(|(raw, _)| has_owner(raw) || raw.i_file_acl_lo.get() != 0);
    inode.mode == 0 && inode.links == 0 && !is_file && !inode.is_inline()
}

/// Whether a reserved inode that is not in use has content. As in e2fsck, only the low half of
/// `i_blocks` and the first word of the map are checked.
fn has_content(visit: &Visit<'_>) -> bool {
    let has_blocks = |raw: &RawInode| raw.i_blocks_lo.get() > 0;
    visit.inode.links > 0
        || RawInode::ref_from_prefix(visit.record).is_ok_and(|(raw, _)| has_blocks(raw))
        || visit.inode.i_block[..4] != [0; 4]
}
