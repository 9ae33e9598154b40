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
//! an inode of another kind, and none is there twice. Where the parent has lost the name, or is the
//! directory itself as with the root, the directories below it must confirm it, and no other
//! directory may have its names.
//!
//! A directory compares names without case if its parent does, or all its subdirectories do: a new
//! directory takes that from its parent. One that is encrypted is reported and not restored: the
//! nonce that its names need was in its inode, and in lost+found its files can be read with their
//! keys.

use crate::context::Check;
use crate::finding::{Code, Finding, Severity};
use crate::map::FileMap;
use crate::store::{CheckError, Store};
use crate::tables::{DirFlags, Kind, Mark};
use crate::unclaimed::AT_ONCE;
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::dirent::{DirFormat, FileType, NewEntry, dot_entries};
use extant_ondisk::extent::Extent;
use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::htree::{HtreeFormat, IndexKind};
use extant_ondisk::inode::{Inode, InodeFlags};
use extant_ondisk::{BlockNo, FileBlock, Geometry, GroupNo, IncompatFeatures, InodeNo};
use roaring::RoaringTreemap;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

const CASEFOLD: IncompatFeatures = IncompatFeatures::CASEFOLD;
/// Bytes of the shortest encrypted name: one block of the cipher.
const SHORTEST_CIPHER: usize = 16;
/// Mode of a directory whose mode is lost.
const MODE: u16 = 0o40_700;
/// Mode of the root, as makers of volumes have it.
const ROOT_MODE: u16 = 0o40_755;
/// The inode that makers of volumes give to lost+found.
const USUAL_LOST_FOUND: InodeNo = InodeNo(11);

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

/// The names of a directory that the volume has.
struct KnownNames {
    names: Vec<FoundName>,
    /// No part of the directory is damaged.
    is_whole: bool,
}

/// Blocks of directories that nothing claims.
#[derive(Default)]
struct FoundBlocks {
    /// By the directory's inode; those of one that is named twice are left out.
    first: BTreeMap<InodeNo, Option<FirstBlock>>,
    /// The other blocks, by the seed of their checksums, in ascending order.
    others: HashMap<u32, Vec<BlockNo>>,
}

impl FoundBlocks {
    /// Adds a block if it is one of a directory.
    fn sort(&mut self, block: BlockNo, bytes: &[u8], geometry: &Geometry) {
        let format = format_of_any(geometry);
        let is_chain = || format.entries(bytes, FileBlock(0)).all(|entry| entry.is_ok());
        let has_dots = bytes.get(8) == Some(&b'.') && bytes.get(4..6) == Some(&[12, 0]);
        let has_checksums = geometry.has_metadata_csum();
        let dots = dot_entries(&format, bytes).ok().filter(|_| has_dots);
        let Some((inode, parent)) = dots else {
            if has_checksums
                && format.has_tail(bytes)
                && is_chain()
                && let Some(seed) = format.seed_of(bytes)
            {
                self.others.entry(seed).or_default().push(block);
            }
            return;
        };
        let index = HtreeFormat::new(geometry, inode, 0);
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
        let is_new = !self.first.contains_key(&inode);
        self.first.insert(inode, Some(first).filter(|_| is_new));
    }
}

/// Whether one of the clusters has a block of a directory.
pub(crate) fn has_directory_blocks(
    store: &Store,
    clusters: &RoaringTreemap,
) -> Result<bool, CheckError> {
    let geometry = store.geometry();
    let ratio = u64::from(geometry.blocks_per_cluster);
    let (start, end) = (geometry.group_start(GroupNo(0)).0, geometry.blocks_count);
    let at_once = (AT_ONCE >> geometry.block_bits()).max(ratio);
    let mut runs =
        clusters.iter().map(|it| start + it * ratio..(start + (it + 1) * ratio).min(end));
    let mut next = runs.next();
    while let Some(mut run) = next.take() {
        for more in runs.by_ref() {
            if more.start != run.end || more.end - run.start > at_once {
                next = Some(more);
                break;
            }
            run.end = more.end;
        }
        let mut bytes = vec![0; ((run.end - run.start) << geometry.block_bits()) as usize];
        store.read_into(BlockNo(run.start), &mut bytes)?;
        let mut found = FoundBlocks::default();
        for (block, bytes) in run.map(BlockNo).zip(bytes.chunks_exact(geometry.block_len())) {
            found.sort(block, bytes, geometry);
        }
        if !found.first.is_empty() || !found.others.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn format_of_any(geometry: &Geometry) -> DirFormat {
    DirFormat::new(geometry, InodeNo(0), 0)
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
            self.for_blocks(&runs, |block, bytes| found.sort(block, bytes, self.geometry))?;
        }
        let mut is_restored = self.restore_root(&mut found)?;
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
            if let Some(known) = self.names_of(parent)? {
                named.extend(named_among(by_parent.remove(&parent), &known.names));
            }
        }
        let mut is_restored = false;
        let folded = self.casefolded_among(&lost);
        loop {
            while let Some(inode) = named.pop() {
                let Some(directory) = lost.remove(&inode) else { continue };
                if !self.restore_directory(inode, &directory, folded.contains(&inode))? {
                    continue;
                }
                is_restored = true;
                named.extend(named_among(by_parent.remove(&inode), &directory.names));
            }
            // A restored directory is a parent of known names.
            if is_restored {
                return Ok(true);
            }
            named = self.confirmed_from_below(&lost)?;
            lost.retain(|inode, _| named.contains(inode));
            if named.is_empty() {
                return Ok(false);
            }
        }
    }

    /// Directories whose parents have lost the blocks that named them: those whose names are known
    /// to be current, and that no other directory has.
    fn confirmed_from_below(
        &self,
        lost: &BTreeMap<InodeNo, LostDirectory>,
    ) -> Result<Vec<InodeNo>, CheckError> {
        let mut candidates = Vec::new();
        for (inode, directory) in lost {
            if directory.first.seed.is_some()
                && self.has_lost_names(directory.first.parent, *inode, lost)?
                && self.are_current(&directory.names)?
                && self.lead_back(*inode, &directory.names)?
            {
                candidates.push(*inode);
            }
        }
        if candidates.is_empty() {
            return Ok(candidates);
        }
        let mut named = HashSet::new();
        for dir in self.dirs.iter().filter(|dir| self.inodes.is_used(dir.inode)) {
            let names = self.names_of(dir.inode)?.map_or_else(Vec::new, |known| known.names);
            named.extend(names.into_iter().map(|it| it.inode));
        }
        candidates.retain(|inode| {
            let names = &lost[inode].names;
            let is_own = |it: &FoundName| !named.contains(&it.inode);
            !named.contains(inode) && names.iter().all(is_own)
        });
        Ok(candidates)
    }

    /// Whether a directory may have named another one in a part of it that is lost.
    fn has_lost_names(
        &self,
        parent: InodeNo,
        inode: InodeNo,
        lost: &BTreeMap<InodeNo, LostDirectory>,
    ) -> Result<bool, CheckError> {
        if let Some(above) = lost.get(&parent) {
            return Ok(above.names.iter().filter(|it| it.inode == inode).count() == 1);
        }
        if let Some(known) = self.names_of(parent)? {
            return Ok(!known.is_whole || self.was_damaged(parent));
        }
        Ok(!self.inodes.is_used(parent) && self.has_table_lost(parent, &self.garbage_inodes())?)
    }

    /// Whether this run has repaired damage to an inode or its map.
    fn was_damaged(&self, inode: InodeNo) -> bool {
        self.recorder.any(|it| {
            let row = it.finding.code.row();
            let is_damage = row.severity >= Severity::Damage && (1..=2).contains(&row.pass);
            it.repaired && is_damage && it.finding.subject.inode == Some(inode)
        })
    }

    /// Whether names lead to directories that name `inode` as their parent, or to files in use: one
    /// at least.
    fn lead_back(&self, inode: InodeNo, names: &[FoundName]) -> Result<bool, CheckError> {
        let mut is_confirmed = false;
        for name in names.iter().filter(|it| self.inodes.is_used(it.inode)) {
            if self.kind_of(name.inode)? == Some(Kind::Directory)
                && self.parent_of(name.inode)? != Some(inode)
            {
                return Ok(false);
            }
            is_confirmed = true;
        }
        Ok(is_confirmed)
    }

    /// The inode that '..' of a directory of the volume names.
    fn parent_of(&self, inode: InodeNo) -> Result<Option<InodeNo>, CheckError> {
        let Some(dir) = self.dirs.get(inode) else { return Ok(None) };
        let record = self.record(inode)?;
        if dir.has(DirFlags::INLINE) {
            let content = self.inline_content(&record, inode)?;
            let number = |first: [u8; 60]| [first[0], first[1], first[2], first[3]];
            return Ok(content.map(|(first, _)| InodeNo(u32::from_le_bytes(number(first)))));
        }
        let Ok(stored) = Inode::decode(&record, inode, self.geometry) else { return Ok(None) };
        let Some(first) = self.read_map(inode, &stored)?.physical(0) else { return Ok(None) };
        if !self.geometry.contains(first, 1) {
            return Ok(None);
        }
        let bytes = self.store.read(first)?;
        Ok(dot_entries(&format_of_any(self.geometry), &bytes).ok().map(|(_, parent)| parent))
    }

    /// Proposes to restore the root directory, if its inode is lost. Its names must be those of all
    /// directories that have it as their parent.
    fn restore_root(&self, found: &mut FoundBlocks) -> Result<bool, CheckError> {
        let root = InodeNo::ROOT;
        if self.inodes.is_used(root) || !self.has_table_lost(root, &self.garbage_inodes())? {
            return Ok(false);
        }
        let Some(Some(first)) = found.first.remove(&root) else { return Ok(false) };
        let others = first.seed.and_then(|seed| found.others.remove(&seed)).unwrap_or_default();
        let mut blocks = others.clone();
        if !first.is_index {
            blocks.insert(0, first.block);
        }
        let names = self.names_in(&blocks)?;
        if first.parent != root
            || names.is_empty()
            || !self.are_plausible(&names)?
            || !self.are_current(&names)?
            || !self.lead_back(root, &names)?
        {
            return Ok(false);
        }
        let named: HashSet<InodeNo> = names.iter().map(|it| it.inode).collect();
        let mut is_confirmed = false;
        for dir in self.dirs.iter().filter(|dir| self.inodes.is_used(dir.inode)) {
            if self.parent_of(dir.inode)? != Some(root) {
                continue;
            }
            if !named.contains(&dir.inode) {
                return Ok(false); // it is an old copy, or that of another volume
            }
            // The root of any volume names that one.
            is_confirmed |= dir.inode != USUAL_LOST_FOUND;
        }
        let of_maker = first.seed.map(|seed| self.geometry.generation_of_seed(root, seed));
        if !is_confirmed && of_maker != Some(0) {
            return Ok(false);
        }
        let directory = LostDirectory { first, others, names };
        let is_casefolded = self.is_casefolded(&directory, &BTreeSet::new());
        self.restore_directory(root, &directory, is_casefolded)
    }

    /// The lost directories that compare names without case.
    fn casefolded_among(&self, lost: &BTreeMap<InodeNo, LostDirectory>) -> BTreeSet<InodeNo> {
        let mut folded = BTreeSet::new();
        loop {
            let more = lost.iter().filter(|(inode, directory)| {
                !folded.contains(*inode) && self.is_casefolded(directory, &folded)
            });
            let more: Vec<InodeNo> = more.map(|(inode, _)| *inode).collect();
            if more.is_empty() {
                return folded;
            }
            folded.extend(more);
        }
    }

    /// Whether a lost directory compares names without case: its parent does, or its subdirectories
    /// do, as far as that is known. `folded` are the lost ones that do.
    fn is_casefolded(&self, lost: &LostDirectory, folded: &BTreeSet<InodeNo>) -> bool {
        let casefold = self.dir_context().casefold;
        let Some(casefold) = casefold.filter(|_| self.geometry.has_incompat(CASEFOLD)) else {
            return false;
        };
        let is_folded = |inode: InodeNo| match folded.contains(&inode) {
            true => Some(true),
            false => {
                let dir = self.dirs.get(inode).filter(|_| self.inodes.is_used(inode))?;
                Some(dir.has(DirFlags::CASEFOLD))
            }
        };
        let mut below = lost.names.iter().filter_map(|name| is_folded(name.inode));
        let is_meant = is_folded(lost.first.parent) == Some(true)
            || below.next() == Some(true) && below.all(|it| it);
        let mut keys = HashSet::new();
        is_meant && lost.names.iter().all(|name| keys.insert(casefold.key(&name.name)))
    }

    /// Whether a lost directory is encrypted: names that are no text, in a directory or of files
    /// that are encrypted.
    fn is_encrypted(&self, lost: &LostDirectory) -> bool {
        if !self.geometry.has_incompat(IncompatFeatures::ENCRYPT) {
            return false;
        }
        let above = self.dirs.get(lost.first.parent);
        if above.is_some_and(|dir| dir.has(DirFlags::ENCRYPTED)) {
            return true;
        }
        let is_text = |name: &[u8]| {
            str::from_utf8(name).is_ok_and(|name| !name.contains(|it: char| it.is_control()))
        };
        let is_cipher = |name: &[u8]| name.len() >= SHORTEST_CIPHER && !is_text(name);
        let is_plain = |inode: InodeNo| {
            let state = self.inodes.state(inode).filter(|state| state.is_used());
            state.is_some_and(|state| {
                let kind = state.kind();
                let can_be = matches!(kind, Kind::Regular | Kind::Directory | Kind::Symlink);
                can_be && !state.has(Mark::ENCRYPTED)
            })
        };
        lost.names.iter().all(|it| is_cipher(&it.name) && !is_plain(it.inode))
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
        let format = format_of_any(self.geometry);
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
    fn names_of(&self, inode: InodeNo) -> Result<Option<KnownNames>, CheckError> {
        let Some(dir) = self.dirs.get(inode).filter(|_| self.inodes.is_used(inode)) else {
            return Ok(None);
        };
        let record = self.record(inode)?;
        if dir.has(DirFlags::INLINE) {
            return self.names_inside(inode, &record);
        }
        let Ok(stored) = Inode::decode(&record, inode, self.geometry) else { return Ok(None) };
        let map = self.read_map(inode, &stored)?;
        let format = DirFormat::new(self.geometry, inode, stored.generation);
        let index = HtreeFormat::new(self.geometry, inode, stored.generation);
        let mut blocks = Vec::new();
        let mut is_whole = true;
        for (at, block) in map.blocks() {
            if !self.geometry.contains(block, 1) {
                is_whole = false;
                continue;
            }
            let bytes = self.store.read(block)?;
            if format.verify(&bytes, FileBlock(at)).is_ok() {
                let entries = format.entries(&bytes, FileBlock(at));
                is_whole &= entries.map(|entry| entry.is_ok()).fold(true, |all, it| all & it);
                blocks.push(block);
            } else {
                let kind = if at == 0 { IndexKind::Root } else { IndexKind::Node };
                is_whole &= index.verify(&bytes, FileBlock(at), kind).is_ok();
            }
        }
        Ok(Some(KnownNames { names: self.names_in(&blocks)?, is_whole }))
    }

    /// The names of a directory whose records lie in its inode.
    fn names_inside(
        &self,
        inode: InodeNo,
        record: &[u8],
    ) -> Result<Option<KnownNames>, CheckError> {
        let Some((first, second)) = self.inline_content(record, inode)? else { return Ok(None) };
        let format = format_of_any(self.geometry);
        let (mut names, mut is_whole) = (Vec::new(), true);
        for part in [&first[4..], &second[..]] {
            for entry in format.inline(part.len()).entries(part, FileBlock(0)) {
                let Ok(entry) = entry else {
                    is_whole = false;
                    break;
                };
                if let Some(inode) = entry.inode {
                    let (name, kind) = (entry.name.to_vec(), entry.file_type);
                    names.push(FoundName { name, inode, kind });
                }
            }
        }
        Ok(Some(KnownNames { names, is_whole }))
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

    /// Whether an inode is in use by the bitmap, and its table has lost it: its record is zeros or
    /// was garbage. A record that says deleted is not lost.
    fn has_table_lost(
        &self,
        inode: InodeNo,
        garbage: &BTreeSet<InodeNo>,
    ) -> Result<bool, CheckError> {
        let is_file = inode >= self.geometry.first_inode || inode == InodeNo::ROOT;
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

    /// Each directory once in a run.
    fn report_encrypted(&self, inode: InodeNo, first: &FirstBlock) -> Result<(), CheckError> {
        let code = Code::EncryptedDirectoryLost;
        let is_same = |it: &Finding| it.code == code && it.subject.inode == Some(inode);
        if self.recorder.any(|it| is_same(&it.finding)) {
            return Ok(());
        }
        let finding = Finding::new(code).inode(inode).dir(first.parent).block(first.block);
        self.report(finding)
    }

    fn restore_directory(
        &self,
        inode: InodeNo,
        lost: &LostDirectory,
        is_casefolded: bool,
    ) -> Result<bool, CheckError> {
        let LostDirectory { first, others, .. } = lost;
        if self.is_encrypted(lost) {
            return self.report_encrypted(inode, first).map(|()| false);
        }
        let count = 1 + others.len() as u64;
        let mode = if inode == InodeNo::ROOT { ROOT_MODE } else { MODE };
        let finding = Finding::new(Code::DirectoryInodeLost)
            .inode(inode)
            .dir(first.parent)
            .block(first.block)
            .found(count);
        if !self.should_fix(finding)? {
            return Ok(false);
        }
        let Some((mut record, mut fresh)) = self.fresh_inode(inode, mode) else {
            return Ok(false);
        };
        if let Some(seed) = first.seed {
            fresh.generation = self.geometry.generation_of_seed(inode, seed);
        }
        fresh.flags.set(InodeFlags::CASEFOLD, is_casefolded);
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
        if kept.names.iter().any(|it| found_names.contains(&*it.name)) {
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
