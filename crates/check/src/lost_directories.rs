//! Directories whose inode is lost, or whose map does not lead to all of their blocks: found by
//! their blocks among those that are in use and that nothing claims.
//!
//! The first block names the directory ('.') and its parent ('..'). With metadata_csum each block
//! has a checksum that starts at a seed of the inode's number and generation: from a block and its
//! checksum the seed follows, and with the number the generation. Blocks of one directory have the
//! same seed.
//!
//! A copy of a directory's block, or a block of another volume in a file, looks the same. Restored
//! is only what the rest of the volume confirms: the parent names the directory, no name leads to
//! an inode of another kind, and none is there twice.

use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::map::FileMap;
use crate::store::CheckError;
use crate::tables::DirFlags;
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::dirent::{DirFormat, FileType, NewEntry, dot_entries};
use extant_ondisk::extent::Extent;
use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::htree::{HtreeFormat, IndexKind};
use extant_ondisk::inode::Inode;
use extant_ondisk::{BlockNo, FileBlock, GroupNo, IncompatFeatures, InodeNo};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Mode of a directory whose mode is lost.
const MODE: u16 = 0o40_700;

/// The first block of a directory.
struct FirstBlock {
    block: BlockNo,
    parent: InodeNo,
    /// Where its checksums start, if it has any.
    seed: Option<u32>,
    /// It is the root of an index, and holds no names.
    is_index: bool,
}

/// A name that was found.
struct FoundName {
    name: Vec<u8>,
    inode: InodeNo,
    kind: FileType,
}

/// A lost directory, with what was found of it.
struct LostDirectory {
    first: FirstBlock,
    others: Vec<BlockNo>,
    names: Vec<FoundName>,
}

/// Blocks of directories that nothing claims.
#[derive(Default)]
struct FoundBlocks {
    /// By the directory's inode; those of one that is named twice are left out.
    first: BTreeMap<InodeNo, Option<FirstBlock>>,
    /// The other blocks, by the seed of their checksums, in ascending order.
    others: HashMap<u32, Vec<BlockNo>>,
}

impl Check<'_> {
    /// Proposes to restore directories from their blocks. Where one was restored, the round is
    /// begun again.
    pub(crate) fn find_lost_directories(&self) -> Result<(), CheckError> {
        if !self.window.is_whole() || self.has_bad_inodes {
            return Ok(());
        }
        let mut found = FoundBlocks::default();
        for group in (0..self.geometry.groups_count).map(GroupNo) {
            let runs = self.unclaimed_in(group)?;
            self.for_blocks(&runs, |block, bytes| self.sort_block(block, bytes, &mut found))?;
        }
        let mut is_restored = false;
        let lost = self.lost_directories(&mut found)?;
        if !lost.is_empty() {
            is_restored |= self.restore_named(lost)?;
        }
        if found.others.is_empty() {
            return self.restart_if(is_restored);
        }
        let known = self.dirs.iter().filter(|dir| {
            found.others.contains_key(&dir.checksum_seed)
                && self.inodes.is_used(dir.inode)
                && !dir.has(DirFlags::INLINE)
        });
        for dir in known.map(|dir| (dir.inode, dir.checksum_seed)).collect::<Vec<_>>() {
            is_restored |= self.append_blocks(dir, &mut found)?;
        }
        self.restart_if(is_restored)
    }

    /// The directories whose inodes are lost and whose names agree with the volume.
    fn lost_directories(
        &self,
        found: &mut FoundBlocks,
    ) -> Result<BTreeMap<InodeNo, LostDirectory>, CheckError> {
        let garbage = self.garbage_inodes();
        let mut lost = BTreeMap::new();
        for (inode, first) in std::mem::take(&mut found.first) {
            let Some(first) = first else { continue };
            if !self.has_table_lost(inode, &garbage)? {
                continue;
            }
            let others = first.seed.and_then(|seed| found.others.remove(&seed)).unwrap_or_default();
            let mut blocks = others.clone();
            if !first.is_index {
                blocks.insert(0, first.block);
            }
            let names = self.names_in(&blocks)?;
            if !names.is_empty() && self.are_plausible(&names)? {
                lost.insert(inode, LostDirectory { first, others, names });
            }
        }
        Ok(lost)
    }

    /// Restores the directories that are named by their parents: by one that the volume has, or by
    /// one that was restored.
    fn restore_named(
        &self,
        mut lost: BTreeMap<InodeNo, LostDirectory>,
    ) -> Result<bool, CheckError> {
        let mut by_parent: BTreeMap<InodeNo, Vec<InodeNo>> = BTreeMap::new();
        for (inode, directory) in &lost {
            by_parent.entry(directory.first.parent).or_default().push(*inode);
        }
        let mut named = Vec::new();
        let parents: Vec<InodeNo> = by_parent.keys().copied().collect();
        for parent in parents {
            if let Some(names) = self.names_of(parent)? {
                named.extend(named_among(by_parent.remove(&parent), &names));
            }
        }
        let mut is_restored = false;
        while let Some(inode) = named.pop() {
            let Some(directory) = lost.remove(&inode) else { continue };
            if !self.restore_directory(inode, &directory)? {
                continue;
            }
            is_restored = true;
            named.extend(named_among(by_parent.remove(&inode), &directory.names));
        }
        Ok(is_restored)
    }

    /// Inodes that this run cleared since nothing in them made sense.
    fn garbage_inodes(&self) -> BTreeSet<InodeNo> {
        let findings = self.recorder.findings();
        let garbage =
            findings.iter().filter(|it| it.repaired && it.finding.code == Code::InodeGarbage);
        garbage.filter_map(|it| it.finding.subject.inode).collect()
    }

    /// The names in blocks of a directory, without '.' and '..'.
    fn names_in(&self, blocks: &[BlockNo]) -> Result<Vec<FoundName>, CheckError> {
        let format = self.format_of_any();
        let mut names = Vec::new();
        for block in blocks {
            let bytes = self.store.read(*block)?;
            for entry in format.entries(&bytes, FileBlock(0)).flatten() {
                if let Some(inode) = entry.inode.filter(|_| !entry.is_dot()) {
                    let (name, kind) = (entry.name.to_vec(), entry.file_type);
                    names.push(FoundName { name, inode, kind });
                }
            }
        }
        Ok(names)
    }

    /// The names of a directory of the volume; `None` for another inode.
    fn names_of(&self, inode: InodeNo) -> Result<Option<Vec<FoundName>>, CheckError> {
        let known = self.dirs.get(inode).filter(|dir| !dir.has(DirFlags::INLINE));
        if known.is_none() || !self.inodes.is_used(inode) {
            return Ok(None);
        }
        let record = self.record(inode)?;
        let Ok(stored) = Inode::decode(&record, inode, self.geometry) else { return Ok(None) };
        let map = self.read_map(inode, &stored)?;
        let format = DirFormat::new(self.geometry, inode, stored.generation);
        let mut blocks = Vec::new();
        for (at, block) in map.blocks() {
            if self.geometry.contains(block, 1)
                && format.verify(&self.store.read(block)?, FileBlock(at)).is_ok()
            {
                blocks.push(block);
            }
        }
        Ok(Some(self.names_in(&blocks)?))
    }

    /// Whether no name is there twice, and none leads to an inode of another kind.
    fn are_plausible(&self, names: &[FoundName]) -> Result<bool, CheckError> {
        let mut met = HashSet::new();
        for FoundName { name, inode, kind } in names {
            let is_other = *kind != FileType::Unknown
                && self.inodes.is_used(*inode)
                && self.kind_of(*inode)? != Some(*kind);
            if is_other || !met.insert(name) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether all names lead to inodes that are in use or lost. Others are those of an old copy.
    fn are_current(&self, names: &[FoundName]) -> Result<bool, CheckError> {
        let garbage = self.garbage_inodes();
        for FoundName { inode, .. } in names {
            if !self.inodes.is_used(*inode) && !self.has_table_lost(*inode, &garbage)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn restart_if(&self, is_restored: bool) -> Result<(), CheckError> {
        if is_restored {
            self.store.flush()?;
            self.need_restart();
        }
        Ok(())
    }

    /// Adds a block if it is one of a directory.
    fn sort_block(&self, block: BlockNo, bytes: &[u8], found: &mut FoundBlocks) {
        let format = self.format_of_any();
        let is_chain = || format.entries(bytes, FileBlock(0)).all(|entry| entry.is_ok());
        let has_dots = bytes.get(8) == Some(&b'.') && bytes.get(4..6) == Some(&[12, 0]);
        let has_checksums = self.geometry.has_metadata_csum();
        let dots = dot_entries(&format, bytes).ok().filter(|_| has_dots);
        let Some((inode, parent)) = dots else {
            if has_checksums
                && format.has_tail(bytes)
                && is_chain()
                && let Some(seed) = format.seed_of(bytes)
            {
                found.others.entry(seed).or_default().push(block);
            }
            return;
        };
        let index = HtreeFormat::new(self.geometry, inode, 0);
        // The record of '..' reaches to the end of an index's root, over what was a checksum there.
        let mut records = format.entries(bytes, FileBlock(0)).flatten().skip(1);
        let is_to_end = records.next().is_some_and(|it| it.at + it.rec_len == bytes.len());
        let is_index = is_to_end && index.root(bytes).is_ok();
        let seed = match is_index {
            true => index.seed_of(bytes, IndexKind::Root),
            false => format.seed_of(bytes),
        };
        if !is_chain() || has_checksums && seed.is_none() {
            return;
        }
        let seed = seed.filter(|_| has_checksums);
        let first = FirstBlock { block, parent, seed, is_index };
        let is_new = !found.first.contains_key(&inode);
        found.first.insert(inode, Some(first).filter(|_| is_new));
    }

    fn format_of_any(&self) -> DirFormat {
        DirFormat::new(self.geometry, InodeNo(0), 0)
    }

    /// Whether an inode is in use by the bitmap, and its table has lost it: its record is zeros or
    /// was garbage. A record that says deleted is not lost.
    fn has_table_lost(
        &self,
        inode: InodeNo,
        garbage: &BTreeSet<InodeNo>,
    ) -> Result<bool, CheckError> {
        let is_file = inode >= self.geometry.first_inode;
        let Some((group, index)) = self.geometry.inode_place(inode) else { return Ok(false) };
        if !is_file || self.inodes.is_used(inode) || index >= self.inodes.opened(group) {
            return Ok(false);
        }
        let is_blank = self.record(inode)?.iter().all(|byte| *byte == 0);
        if !is_blank && !garbage.contains(&inode) {
            return Ok(false);
        }
        let desc = self.store.desc(group);
        if desc.flags.contains(GroupFlags::INODE_UNINIT)
            || !self.geometry.contains(desc.inode_bitmap, 1)
        {
            return Ok(false);
        }
        let bits = self.store.read(desc.inode_bitmap)?;
        let is_sound =
            bitmap::verify(&bits, BitmapKind::Inode, group, &desc, self.geometry).is_ok();
        Ok(is_sound && bitmap::test(&bits, index))
    }

    fn restore_directory(
        &self,
        inode: InodeNo,
        LostDirectory { first, others, .. }: &LostDirectory,
    ) -> Result<bool, CheckError> {
        let count = 1 + others.len() as u64;
        let finding = Finding::new(Code::DirectoryInodeLost)
            .inode(inode)
            .dir(first.parent)
            .block(first.block)
            .found(count);
        if !self.should_fix(finding)? {
            return Ok(false);
        }
        let Some((mut record, mut fresh)) = self.fresh_inode(inode, MODE) else {
            return Ok(false);
        };
        if let Some(seed) = first.seed {
            fresh.generation = self.geometry.generation_of_seed(inode, seed);
        }
        fresh.links = 2;
        let mut map = FileMap::default();
        append(&mut map, &[first.block]);
        append(&mut map, others);
        fresh.size = count * u64::from(self.geometry.block_size);
        if !self.write_map(inode, &mut fresh, &FileMap::default(), &map)? {
            return Ok(false);
        }
        if first.is_index {
            let mut bytes = vec![0; self.geometry.block_len()];
            let format = DirFormat::new(self.geometry, inode, fresh.generation);
            let mut packer = format.packer(&mut bytes);
            packer.push(&NewEntry::new(inode, FileType::Directory, b"."));
            packer.push(&NewEntry::new(first.parent, FileType::Directory, b".."));
            packer.finish();
            format.seal(&mut bytes);
            self.store.write(first.block, &bytes)?;
        }
        fresh.encode_into(&mut record, self.geometry);
        self.store.write_inode_ordered(inode, &mut record);
        Ok(true)
    }

    /// Appends blocks to a directory whose map does not lead to them.
    fn append_blocks(
        &self,
        (inode, seed): (InodeNo, u32),
        found: &mut FoundBlocks,
    ) -> Result<bool, CheckError> {
        let Some(blocks) = found.others.remove(&seed) else { return Ok(false) };
        let mut record = self.record(inode)?;
        let Ok(mut stored) = Inode::decode(&record, inode, self.geometry) else {
            return Ok(false);
        };
        let old = self.read_map(inode, &stored)?;
        let missing = self.missing_blocks(inode, stored.size, &old);
        if old.physical(0).is_none() || blocks.len() as u64 > missing {
            return Ok(false);
        }
        let names = self.names_in(&blocks)?;
        if names.is_empty() || !self.are_plausible(&names)? || !self.are_current(&names)? {
            return Ok(false);
        }
        let found_names: HashSet<&[u8]> = names.iter().map(|it| &*it.name).collect();
        let Some(kept) = self.names_of(inode)? else { return Ok(false) };
        if kept.iter().any(|it| found_names.contains(&*it.name)) {
            return Ok(false); // they are copies
        }
        let finding = Finding::new(Code::DirectoryBlocksLost)
            .inode(inode)
            .block(blocks.first().copied().unwrap_or(BlockNo(0)))
            .found(blocks.len() as u64);
        if !self.should_fix(finding)? {
            return Ok(false);
        }
        let mut new = old.clone();
        append(&mut new, &blocks);
        if !self.write_map(inode, &mut stored, &old, &new)? {
            return Ok(false);
        }
        stored.size = new.end() * u64::from(self.geometry.block_size);
        stored.encode_into(&mut record, self.geometry);
        self.store.write_inode_ordered(inode, &mut record);
        Ok(true)
    }

    /// Blocks that the size of a directory counts, also as it was before this run corrected it, and
    /// that its map does not have.
    fn missing_blocks(&self, inode: InodeNo, size: u64, map: &FileMap) -> u64 {
        let findings = self.recorder.findings();
        let sizes = findings
            .iter()
            .map(|it| &it.finding)
            .filter(|it| it.code == Code::InodeSizeWrong && it.subject.inode == Some(inode));
        let size = sizes.filter_map(|it| it.subject.found).fold(size, u64::max);
        let mapped: u64 = map.extents.iter().map(|extent| u64::from(extent.len)).sum();
        size.div_ceil(u64::from(self.geometry.block_size)).saturating_sub(mapped)
    }

    /// Whether directories can be found by their blocks: names that are encrypted or compared
    /// without case need what their inode said of them.
    pub(crate) fn may_find_directories(&self) -> bool {
        let needs_flags = IncompatFeatures::CASEFOLD | IncompatFeatures::ENCRYPT;
        self.is_repair() && !self.geometry.features.incompat.intersects(needs_flags)
    }
}

/// The inodes to which one of the names leads, as to a directory, and no other.
fn named_among(inodes: Option<Vec<InodeNo>>, names: &[FoundName]) -> Vec<InodeNo> {
    let inodes = inodes.unwrap_or_default();
    let mut leading: BTreeMap<InodeNo, (u32, bool)> =
        inodes.into_iter().map(|inode| (inode, (0, true))).collect();
    for FoundName { inode, kind, .. } in names {
        if let Some((count, is_directory)) = leading.get_mut(inode) {
            *count = count.saturating_add(1);
            *is_directory &= matches!(kind, FileType::Directory | FileType::Unknown);
        }
    }
    leading.retain(|_, (count, is_directory)| *count == 1 && *is_directory);
    leading.into_keys().collect()
}

/// Appends blocks to a map.
fn append(map: &mut FileMap, blocks: &[BlockNo]) {
    let first = map.end();
    map.extents.extend((first..).map(FileBlock).zip(blocks).map(|(block, start)| Extent {
        block,
        len: 1,
        start: *start,
        is_unwritten: false,
    }));
    map.join();
}
