//! The rules of one inode, in the order in which e2fsck has them: what it is, its flags, its map,
//! its attributes, its size.

use super::Local;
use super::visit::{MapCounts, Visit};
use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::map::is_fast_symlink;
use crate::recount::is_large;
use crate::store::CheckError;
use crate::tables::{Kind, Mark};
use extant_ondisk::inode::{self, FileType, Inode, InodeFlags, RawInode};
use extant_ondisk::{BlockNo, Flaw, FormatError, InodeNo, RoCompatFeatures};
use zerocopy::FromBytes;

/// The records of one block of an inode table.
struct RecordsOfBlock {
    first: InodeNo,
    bytes: Vec<u8>,
    /// Bytes of a record.
    each: usize,
}

impl RecordsOfBlock {
    fn iter(&self) -> impl Iterator<Item = (InodeNo, &[u8])> {
        (self.first.0..).map(InodeNo).zip(self.bytes.chunks_exact(self.each))
    }
}

impl Check<'_> {
    /// One record of an inode table.
    pub(super) fn check_record(
        &self,
        ino: InodeNo,
        record: &mut [u8],
        local: &mut Local,
    ) -> Result<(), CheckError> {
        let Ok((raw, _)) = RawInode::ref_from_prefix(record) else { return Ok(()) };
        let (links, mode) = (raw.i_links_count.get(), raw.i_mode.get());
        let is_flagged = InodeFlags::from_bits_retain(raw.i_flags.get())
            .intersects(InodeFlags::CASEFOLD | InodeFlags::INDEX);
        let is_reserved = ino < self.geometry.first_inode && ino != InodeNo::ROOT;
        if links == 0 && !is_reserved {
            if self.is_in_bad_block(ino) {
                self.inodes.mark(ino, Mark::BAD_BLOCK);
                return Ok(());
            }
            let dtime = raw.i_dtime.get();
            if self.is_orphan_number(dtime) {
                self.check_leftover(ino, record)?;
            } else if mode != 0 && dtime == 0 {
                let now = self.now();
                if self.should_fix(Finding::new(Code::DeletedWithoutDtime).inode(ino))? {
                    if let Ok((raw, _)) = RawInode::mut_from_prefix(record) {
                        raw.i_dtime.set(now);
                    }
                    self.store.write_inode(ino, record)?;
                }
            } else if self.geometry.has_metadata_csum()
                && record.iter().any(|byte| *byte != 0)
                && inode::verify(record, ino, self.geometry).is_err()
                && self.should_fix(Finding::new(Code::InodeChecksum).inode(ino))?
            {
                // Never used records are zeros; one that was used keeps its checksum.
                self.store.write_inode(ino, record)?;
            }
            return Ok(());
        }
        if is_reserved && self.is_orphan_number(raw.i_dtime.get()) {
            self.check_leftover(ino, record)?;
        }
        let is_blank = is_reserved && record.iter().all(|byte| *byte == 0);
        if is_blank && ino != InodeNo::BAD_BLOCKS {
            return Ok(());
        }
        if self.is_in_bad_block(ino) {
            self.inodes.mark(ino, Mark::BAD_BLOCK);
            return Ok(());
        }
        let bad_checksum = match inode::verify(record, ino, self.geometry) {
            Ok(()) => false,
            Err(FormatError::Corrupt { flaw: Flaw::Checksum { .. }, .. }) => true,
            Err(_) => self.geometry.has_metadata_csum(),
        };
        let is_alone = bad_checksum && !self.has_sound_neighbour(ino)?;
        if is_alone
            && self.is_garbage(ino)?
            && self.should_fix(Finding::new(Code::InodeGarbage).inode(ino))?
        {
            self.write_cleared(ino, record)?;
            return Ok(());
        }
        if bad_checksum
            && let Some(owner) = self.copied_from(ino, record)?
            && self.is_given_up(ino, owner)?
        {
            // Its contents belong to the other one: nothing is claimed.
            self.copies.lock().insert(ino);
            self.inodes.note(ino, Kind::Unknown, Mark::USED | Mark::SUSPECT, links);
            return Ok(());
        }
        if mode == 0 && self.is_spare(ino) && !is_flagged {
            return self.check_spare(ino, record, (bad_checksum, is_alone), local);
        }
        let decoded = Inode::decode(record, ino, self.geometry);
        let extra_is_invalid = decoded.is_err();
        let mut fixed_extra = false;
        let inode = match decoded {
            Ok(inode) => inode,
            Err(_) => {
                let found = record
                    .get(128..130)
                    .map_or(0, |field| u64::from(u16::from_le_bytes([field[0], field[1]])));
                let finding = Finding::new(Code::ExtraSizeInvalid).inode(ino).found(found);
                let is_checked = ino != InodeNo::BAD_BLOCKS && !self.is_out_of_use(ino);
                fixed_extra = is_checked && self.should_fix(finding)?;
                // A check needs some size; the record on the volume changes only if that is
                // accepted.
                self.set_extra_size(record);
                match Inode::decode(record, ino, self.geometry) {
                    Ok(inode) => inode,
                    Err(_) => return Ok(()),
                }
            }
        };
        let mut visit = Visit {
            ino,
            record,
            inode,
            dirty: fixed_extra,
            cleared: false,
            marks: Mark::USED,
            bad_checksum,
            is_alone,
        };
        self.check_inode(&mut visit, local)?;
        if visit.cleared {
            return Ok(());
        }
        visit.bad_checksum &= !extra_is_invalid;
        self.finish_visit(&mut visit)
    }

    /// Checks a reserved inode that has no use: only its checksum, flags that contradict each other
    /// and the space that it claims.
    fn check_spare(
        &self,
        ino: InodeNo,
        record: &mut [u8],
        (bad_checksum, is_alone): (bool, bool),
        local: &mut Local,
    ) -> Result<(), CheckError> {
        let decoded = Inode::decode(record, ino, self.geometry).or_else(|_| {
            // An invalid extra size is no finding here.
            let mut other = record.to_vec();
            self.set_extra_size(&mut other);
            Inode::decode(&other, ino, self.geometry)
        });
        let Ok(inode) = decoded else { return Ok(()) };
        let (dirty, cleared, marks) = (false, false, Mark::USED);
        let mut visit = Visit { ino, record, inode, dirty, cleared, marks, bad_checksum, is_alone };
        if visit.inode.flags.contains(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA) {
            self.check_both_maps(&mut visit)?;
            if visit.cleared {
                return Ok(());
            }
        }
        self.check_spare_space(&mut visit, local)?;
        self.finish_visit(&mut visit)
    }

    /// Writes what was repaired; a record that is written has a checksum that fits.
    fn finish_visit(&self, visit: &mut Visit<'_>) -> Result<(), CheckError> {
        if visit.bad_checksum && !visit.dirty {
            let is_whole_block = visit.is_alone && self.is_block_without_checksums(visit.ino)?;
            let code = if is_whole_block { Code::InodeBlockChecksum } else { Code::InodeChecksum };
            visit.dirty = self.should_fix(visit.finding(code))?;
        }
        if visit.dirty {
            visit.inode.encode_into(visit.record, self.geometry);
            self.store.write_inode(visit.ino, visit.record)?;
        }
        Ok(())
    }

    /// An inode's place in an orphan list that nothing leads to.
    fn check_leftover(&self, ino: InodeNo, record: &mut [u8]) -> Result<(), CheckError> {
        let now = self.now();
        if self.should_fix(Finding::new(Code::OrphanListLeftover).inode(ino))? {
            if let Ok((raw, _)) = RawInode::mut_from_prefix(record) {
                let is_in_use = raw.i_links_count.get() > 0;
                raw.i_dtime.set(if is_in_use { 0 } else { now });
            }
            self.store.write_inode(ino, record)?;
        }
        Ok(())
    }

    /// Whether the record of an inode lies in a block that the bad blocks inode lists.
    pub(crate) fn is_in_bad_block(&self, ino: InodeNo) -> bool {
        if !self.has_bad_inodes {
            return false;
        }
        let offset = self.store.inode_offset(ino);
        offset.is_some_and(|offset| self.bad.contains(offset >> self.geometry.block_bits()))
    }

    /// The records of an inode's block of the table.
    fn records_around(&self, ino: InodeNo) -> Result<RecordsOfBlock, CheckError> {
        let per_block = self.geometry.inodes_per_block();
        let first = InodeNo(ino.0 - (ino.0 - 1) % per_block);
        let bytes = match self.store.inode_offset(first) {
            Some(offset) => self.store.read(BlockNo(offset >> self.geometry.block_bits()))?,
            None => Vec::new(),
        };
        Ok(RecordsOfBlock { first, bytes, each: usize::from(self.geometry.inode_size) })
    }

    /// Whether another record of an inode's block of the table has the right checksum.
    fn has_sound_neighbour(&self, ino: InodeNo) -> Result<bool, CheckError> {
        let records = self.records_around(ino)?;
        let mut others = records.iter().filter(|(other, _)| *other != ino);
        Ok(others.any(|(other, record)| {
            inode::verify(record, other, self.geometry).is_ok()
                && record.iter().any(|byte| *byte != 0)
        }))
    }

    /// Whether several records lie in an inode's block of the table and all of them fail their
    /// checksums.
    fn is_block_without_checksums(&self, ino: InodeNo) -> Result<bool, CheckError> {
        let mut failed = 0;
        for (other, record) in self.records_around(ino)?.iter() {
            if record.iter().all(|byte| *byte == 0) {
                continue;
            }
            if inode::verify(record, other, self.geometry).is_ok() {
                return Ok(false);
            }
            failed += 1;
        }
        Ok(failed > 1)
    }

    /// Whether a record that fails its checksum makes no sense at all. One flipped bit leaves most
    /// of it in place.
    fn is_garbage(&self, ino: InodeNo) -> Result<bool, CheckError> {
        if !self.is_repair() && ino < self.geometry.first_inode {
            return Ok(false);
        }
        // Several inodes of one block of the table that all fail were overwritten together.
        let per_block = self.geometry.inodes_per_block();
        let first = ino.0 - (ino.0 - 1) % per_block;
        if first < self.geometry.first_inode.0 {
            return Ok(false);
        }
        let records = self.records_around(ino)?;
        let is_kept = |(other, record): (InodeNo, &[u8])| {
            record.iter().all(|byte| *byte == 0)
                || inode::verify(record, other, self.geometry).is_ok()
        };
        // The record of another inode is sound, and lies in a wrong place.
        let is_misplaced = |(other, record): (InodeNo, &[u8])| {
            inode::number_of(record, other, self.geometry).is_some()
        };
        Ok(!records.iter().any(is_kept) && !records.iter().any(is_misplaced))
    }

    /// The inode whose record is in the place of another one's: its checksum, which depends on the
    /// number, identifies it. That inode is in use itself and has the same map of blocks, so that
    /// the record here is a copy. Records that changed places are not copies: their maps differ.
    fn copied_from(&self, ino: InodeNo, record: &[u8]) -> Result<Option<InodeNo>, CheckError> {
        if !self.geometry.has_metadata_csum() || ino < self.geometry.first_inode {
            return Ok(None);
        }
        let owner = inode::number_of(record, ino, self.geometry);
        let Some(owner) = owner.filter(|owner| *owner != ino) else { return Ok(None) };
        let Some(original) = self.store.read_inode(owner)? else { return Ok(None) };
        let links =
            RawInode::ref_from_prefix(&original).map_or(0, |(raw, _)| raw.i_links_count.get());
        let is_in_use = links > 0 && inode::verify(&original, owner, self.geometry).is_ok();
        // A file without blocks claims nothing twice.
        let map = |record: &[u8]| {
            let (raw, _) = RawInode::ref_from_prefix(record).ok()?;
            (raw.i_blocks_lo.get() > 0).then_some(raw.i_block)
        };
        let is_same = map(&original).is_some_and(|original| map(record) == Some(original));
        Ok((is_in_use && is_same).then_some(owner))
    }

    /// Whether a copy of another inode's record is to be cleared. In a repair each is checked in
    /// its own window.
    fn is_given_up(&self, ino: InodeNo, owner: InodeNo) -> Result<bool, CheckError> {
        if self.is_repair() && !self.inodes.is_in_window(ino) {
            return Ok(true);
        }
        self.should_fix(Finding::new(Code::InodeIsCopy).inode(ino).found(u64::from(owner.0)))
    }

    fn set_extra_size(&self, record: &mut [u8]) {
        let room = record.len().saturating_sub(128);
        let wanted = match usize::from(self.superblock.want_extra_isize) {
            wanted if (4..=room).contains(&wanted) && wanted.is_multiple_of(4) => wanted,
            _ => 32.min(room),
        };
        if let Some(field) = record.get_mut(128..130) {
            field.copy_from_slice(&(wanted as u16).to_le_bytes());
        }
    }

    /// Makes an inode unused and writes it. Its blocks are not released: it must not have claimed
    /// any yet.
    pub(crate) fn write_cleared(&self, ino: InodeNo, record: &mut [u8]) -> Result<(), CheckError> {
        let now = self.now();
        if let Ok((raw, _)) = RawInode::mut_from_prefix(record) {
            raw.i_links_count.set(0);
            raw.i_flags.set(0);
            raw.i_dtime.set(now);
        }
        // The number of another orphan is never read out of a cleared inode: its time of deletion
        // is far beyond any.
        self.store.write_inode(ino, record)?;
        self.inodes.forget(ino);
        Ok(())
    }

    pub(super) fn clear_visited(&self, visit: &mut Visit<'_>) -> Result<(), CheckError> {
        if visit.ino < self.geometry.first_inode && visit.ino != InodeNo::ROOT {
            // A reserved inode is emptied: its number stays taken.
            visit.record.fill(0);
            self.store.write_inode(visit.ino, visit.record)?;
            self.inodes.forget(visit.ino);
        } else {
            visit.inode.encode_into(visit.record, self.geometry);
            self.write_cleared(visit.ino, visit.record)?;
        }
        visit.cleared = true;
        Ok(())
    }

    /// A directory, link or file in use: all checks of one inode. Ends early if it was cleared.
    fn check_inode(&self, visit: &mut Visit<'_>, local: &mut Local) -> Result<(), CheckError> {
        if self.is_out_of_use(visit.ino) && !self.has_foreign_flag(&visit.inode) {
            self.check_special_inode(visit)?;
            if visit.cleared || visit.inode.links == 0 {
                return Ok(()); // whatever its mode says
            }
            if visit.inode.dtime != 0 && self.should_fix(visit.finding(Code::InUseWithDtime))? {
                visit.inode.dtime = 0;
                visit.dirty = true;
            }
            self.note_inode(visit, local);
            return Ok(());
        }
        self.check_unknown_mode(visit)?;
        self.check_flags(visit)?;
        if visit.cleared {
            return Ok(());
        }
        self.check_dtime(visit)?;
        if self.check_special_inode(visit)? || visit.cleared {
            // The inode is not what the rules of files are for.
            if !visit.cleared && self.is_spare(visit.ino) {
                self.check_spare_space(visit, local)?;
            }
            let is_resize = visit.ino == InodeNo::RESIZE && !visit.cleared;
            local.statistics.own_large += u64::from(is_resize && is_large(&visit.inode));
            self.note_inode(visit, local);
            return Ok(());
        }
        self.check_times(visit)?;
        let xattrs = self.check_xattrs(visit)?;
        if visit.cleared {
            return Ok(());
        }
        self.check_fields(visit);
        let file_type = visit.inode.file_type();
        let mut counts = MapCounts::default();
        if visit.inode.is_inline() {
            self.check_inline(visit, &xattrs)?;
        } else if crate::map::has_map(&visit.inode) || visit.ino == InodeNo::BAD_BLOCKS {
            counts = if visit.inode.is_extent_mapped() {
                self.check_extents(visit, local)?
            } else {
                self.check_indirect(visit, local)?
            };
        }
        if visit.cleared {
            return Ok(());
        }
        self.check_file_type(visit, &counts)?;
        if visit.cleared {
            return Ok(());
        }
        self.check_verity(visit, &counts)?;
        self.check_size(visit, &counts)?;
        if visit.cleared {
            return Ok(());
        }
        self.check_space(visit, &counts, &xattrs, local)?;
        if file_type == Some(FileType::Directory) {
            self.note_directory(visit, &counts, local)?;
        }
        if counts.rebuild {
            self.deferred.lock().rebuild.push(visit.ino);
        }
        self.note_inode(visit, local);
        Ok(())
    }

    /// Whether a time of deletion is the number of an inode, left over from an orphan list. Where
    /// the volume was made or used by a clock that had just started, it may be a time all the same.
    fn is_orphan_number(&self, dtime: u32) -> bool {
        let numbers = 1..u64::from(self.geometry.inodes_count);
        let superblock = &self.superblock;
        let times = [superblock.mkfs_time, superblock.mount_time, superblock.write_time];
        numbers.contains(&u64::from(dtime)) && !times.iter().any(|time| numbers.contains(time))
    }

    fn check_dtime(&self, visit: &mut Visit<'_>) -> Result<(), CheckError> {
        let is_orphan_number = self.is_orphan_number(visit.inode.dtime);
        // Reserved inodes are not deleted; what orphan lists left in them was reported before.
        let is_reserved = visit.ino < self.geometry.first_inode && visit.ino != InodeNo::ROOT;
        let is_unused = visit.inode.links == 0 && !is_orphan_number;
        if visit.inode.dtime == 0 || is_unused || is_reserved {
            return Ok(());
        }
        let code = if visit.ino == InodeNo::ROOT {
            Code::RootHasDtime
        } else if is_orphan_number {
            Code::OrphanListLeftover
        } else {
            Code::InUseWithDtime
        };
        if self.should_fix(visit.finding(code))? {
            visit.inode.dtime = 0;
            visit.dirty = true;
        }
        Ok(())
    }

    /// Epoch bits of 3 with a negative second: old kernels wrote times before 1970 so.
    fn check_times(&self, visit: &mut Visit<'_>) -> Result<(), CheckError> {
        const CUTOFF: i64 = 3 << 32;
        let inode = &mut visit.inode;
        if inode.extra_isize < 16 || inode.flags.contains(InodeFlags::EA_INODE) {
            return Ok(());
        }
        let is_beyond = |seconds: i64| (CUTOFF - (1 << 31)..CUTOFF).contains(&seconds);
        let times = [Some(inode.atime), Some(inode.ctime), Some(inode.mtime), inode.crtime];
        if !times.iter().flatten().any(|time| is_beyond(time.seconds)) {
            return Ok(());
        }
        if self.should_fix(visit.finding(Code::TimeBeyond))? {
            let inode = &mut visit.inode;
            for time in [&mut inode.atime, &mut inode.ctime, &mut inode.mtime]
                .into_iter()
                .chain(inode.crtime.as_mut())
            {
                if is_beyond(time.seconds) {
                    time.seconds -= CUTOFF;
                }
            }
            visit.dirty = true;
        }
        Ok(())
    }

    pub(super) fn check_size(
        &self,
        visit: &mut Visit<'_>,
        counts: &MapCounts,
    ) -> Result<(), CheckError> {
        let block = u64::from(self.geometry.block_size);
        let size = visit.inode.size;
        if visit.inode.is_inline() || counts.is_unsure {
            return Ok(());
        }
        let expected = match visit.inode.file_type() {
            Some(FileType::Directory) => {
                // Without a block it is given one, and the size of that.
                let end = counts.end.max(1) * block;
                let size = if counts.end == 0 { end } else { size };
                // Preallocated blocks may follow the directory's end.
                (size != end && (size > end || !size.is_multiple_of(block) || size < end))
                    .then_some(end)
            }
            Some(FileType::Regular) => self.file_size_expected(visit, counts),
            _ => None,
        };
        let Some(expected) = expected else { return Ok(()) };
        let finding = visit.finding(Code::InodeSizeWrong).found(size).expected(expected);
        if self.should_fix(finding)? {
            visit.inode.size = expected;
            visit.dirty = true;
        }
        Ok(())
    }

    fn file_size_expected(&self, visit: &Visit<'_>, counts: &MapCounts) -> Option<u64> {
        let block = u64::from(self.geometry.block_size);
        let size = visit.inode.size;
        let limit = self.largest_file(visit.inode.is_extent_mapped());
        if size > limit {
            return Some((counts.end * block).min(limit));
        }
        if visit.inode.flags.contains(InodeFlags::VERITY) {
            return None;
        }
        // The last written block may lie wholly past the end: a crash between the two leaves it so.
        let last = counts.written_end.checked_sub(1)?;
        (size < last * block).then_some(counts.written_end * block)
    }

    /// Bytes of the largest file.
    pub(super) fn largest_file(&self, is_extents: bool) -> u64 {
        let block = u64::from(self.geometry.block_size);
        if is_extents {
            return (1_u64 << 32) * block - 1;
        }
        let map = extant_ondisk::indirect::IndirectMap::new(self.geometry.block_size);
        map.max_blocks().saturating_mul(block)
    }

    fn check_space(
        &self,
        visit: &mut Visit<'_>,
        counts: &MapCounts,
        xattrs: &super::xattr::XattrCounts,
        local: &mut Local,
    ) -> Result<(), CheckError> {
        let clusters = counts.clusters + xattrs.clusters;
        let cluster_size = self.geometry.cluster_size();
        // Values with inodes of their own are charged to each inode that refers to them.
        let space = (clusters + xattrs.ea_clusters) * cluster_size;
        let expected = space / self.space_unit(&visit.inode);
        // For the bad blocks inode mke2fs and e2fsck do not count the blocks of the map, and e2fsck
        // checks neither this count nor that of links with inline data.
        let is_checked =
            visit.ino != InodeNo::BAD_BLOCKS && !counts.is_unsure && !is_inline_link(&visit.inode);
        if visit.inode.blocks != expected && is_checked {
            let finding =
                visit.finding(Code::InodeBlocksWrong).found(visit.inode.blocks).expected(expected);
            if self.should_fix(finding)? {
                visit.inode.blocks = expected;
                visit.dirty = true;
            }
        }
        if self.geometry.has_ro_compat(RoCompatFeatures::QUOTA) && !self.is_quota_exempt(visit) {
            let ids =
                [Some(visit.inode.uid), Some(visit.inode.gid), visit.inode.project.or(Some(0))];
            for (usage, id) in local.usage.iter_mut().zip(ids) {
                if let Some(id) = id {
                    let entry = usage.entry(id).or_default();
                    entry.0 += space;
                    entry.1 += 1 + xattrs.ea_inodes;
                }
            }
        }
        local.statistics.large += u64::from(is_large(&visit.inode));
        if visit.ino == InodeNo::BAD_BLOCKS {
            local.statistics.bad_blocks = counts.end;
        }
        if counts.runs > 1 && visit.ino != InodeNo::BAD_BLOCKS {
            local.statistics.fragmented += 1;
            let is_dir = visit.inode.file_type() == Some(FileType::Directory);
            local.statistics.fragmented_directories += u64::from(is_dir);
        }
        if visit.inode.is_extent_mapped()
            && let Some(count) = local.statistics.extent_depth.get_mut(usize::from(counts.depth))
        {
            *count += 1;
        }
        Ok(())
    }

    /// Whether the statistics of -v have the shape of an inode's map: e2fsck leaves out two.
    pub(super) fn has_counted_map(&self, ino: InodeNo) -> bool {
        ino != InodeNo::BAD_BLOCKS && self.superblock.journal_inode != Some(ino)
    }

    /// Reserved inodes, except for the root, have no owner, and the inodes that refer to a value of
    /// an attribute are charged for it. e2fsck leaves out links whose target is in the inode, and
    /// both must agree on the count.
    fn is_quota_exempt(&self, visit: &Visit<'_>) -> bool {
        let ino = visit.ino;
        visit.inode.flags.contains(InodeFlags::EA_INODE)
            || is_inline_link(&visit.inode)
            || self.is_own_file(ino)
    }

    /// Whether an inode is the file system's own, without a name; the root is not.
    fn is_own_file(&self, ino: InodeNo) -> bool {
        ino < self.geometry.first_inode && ino != InodeNo::ROOT
            || [
                self.superblock.usr_quota_inode,
                self.superblock.grp_quota_inode,
                self.superblock.prj_quota_inode,
                self.superblock.orphan_file_inode,
                self.superblock.journal_inode,
            ]
            .contains(&Some(ino))
    }

    fn note_inode(&self, visit: &Visit<'_>, local: &mut Local) {
        if visit.cleared {
            return;
        }
        let kind = Kind::of_mode(visit.inode.mode);
        let mut marks = visit.marks;
        if visit.inode.flags.contains(InodeFlags::ENCRYPT) {
            marks |= Mark::ENCRYPTED;
        }
        if visit.inode.flags.contains(InodeFlags::EA_INODE) {
            marks |= Mark::EA_INODE;
        }
        self.inodes.note(visit.ino, kind, marks, visit.inode.links);
        let statistics = &mut local.statistics;
        statistics.inodes += 1;
        match kind {
            Kind::Regular if self.is_own_file(visit.ino) => {}
            Kind::Regular => statistics.regular += 1,
            Kind::Directory => statistics.directories += 1,
            Kind::CharDevice => statistics.char_devices += 1,
            Kind::BlockDevice => statistics.block_devices += 1,
            Kind::Fifo => statistics.fifos += 1,
            Kind::Socket => statistics.sockets += 1,
            Kind::Symlink => {
                statistics.symlinks += 1;
                statistics.fast_symlinks += u64::from(is_fast_symlink(&visit.inode));
            }
            Kind::Unknown => {}
        }
    }
}

/// Whether a link has its target among inline data.
fn is_inline_link(inode: &Inode) -> bool {
    inode.is_inline() && inode.file_type() == Some(FileType::Symlink)
}
