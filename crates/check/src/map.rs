//! A file's map as far as it is valid: read without reporting findings, and written again.
//!
//! The rules of pass 1 check maps; all other code (the search for owners, directories, quota files)
//! uses the valid parts from here.

use crate::context::Check;
use crate::order::{self, Candidate, ExtentFix, OrderCheck};
use crate::recount;
use crate::store::CheckError;
use crate::tables::Stored;
use extant_layout::pack::MappingTree;
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::dirent::DirFormat;
use extant_ondisk::extent::{
    self, Extent, ExtentNode, NodeLimits, NodeOwner, RawExtent, RawExtentHeader, RawExtentIndex,
    capacity,
};
use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::htree::{HtreeFormat, IndexKind};
use extant_ondisk::indirect::{IndirectMap, SLOTS, pointer, pointers};
use extant_ondisk::inode::{FileType, Inode, InodeFlags};
use extant_ondisk::{BlockNo, ClusterNo, FileBlock, GroupNo, InodeNo, MAX_FILE_BLOCKS};
use std::collections::BTreeSet;
use zerocopy::FromBytes;

/// Maximum depth of extent trees that are walked: more than readers accept, so that files in deeper
/// nodes are kept.
const MOST_LEVELS: u16 = 32;

/// Targets of fewer bytes lie in the inode.
pub(crate) const FAST_TARGET: u64 = 60;

/// Whether a link's target is stored in `i_block`: decided by its length, since `i_blocks` and the
/// attribute block may be corrupt.
pub(crate) fn is_fast_symlink(inode: &Inode) -> bool {
    inode.file_type() == Some(FileType::Symlink)
        && !inode.is_inline()
        && (1..FAST_TARGET).contains(&inode.size)
}

/// The map of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileMap {
    /// Runs of blocks, in order and apart.
    pub(crate) extents: Vec<Extent>,
    /// Indirect blocks or extent nodes.
    pub(crate) nodes: Vec<BlockNo>,
}

impl FileMap {
    /// Where a logical block lies.
    pub(crate) fn physical(&self, block: u64) -> Option<BlockNo> {
        let after = self.extents.partition_point(|extent| extent.block.0 <= block);
        self.extents.get(after.checked_sub(1)?)?.physical(FileBlock(block))
    }

    /// The logical block after the last.
    pub(crate) fn end(&self) -> u64 {
        self.extents.last().map_or(0, |last| last.end().0)
    }

    /// All blocks with their logical ones.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (u64, BlockNo)> + '_ {
        self.extents.iter().flat_map(|extent| {
            (0..u64::from(extent.len))
                .map(move |at| (extent.block.0 + at, BlockNo(extent.start.0 + at)))
        })
    }

    /// Adds a block after the last one, or in a hole.
    pub(crate) fn set(&mut self, block: u64, to: BlockNo) {
        let one = Extent { block: FileBlock(block), len: 1, start: to, is_unwritten: false };
        let at = self.extents.partition_point(|extent| extent.block.0 < block);
        self.extents.insert(at, one);
        self.join();
    }

    /// Joins neighbours.
    pub(crate) fn join(&mut self) {
        extent::join(&mut self.extents);
    }

    /// Forgets everything from a logical block on; the blocks that went.
    pub(crate) fn truncate(&mut self, end: u64) -> Vec<BlockNo> {
        let gone: Vec<_> =
            self.blocks().filter(|(at, _)| *at >= end).map(|(_, block)| block).collect();
        self.extents.retain_mut(|extent| {
            let left = end.saturating_sub(extent.block.0).min(u64::from(extent.len));
            extent.len = left as u32; // no longer than it was
            extent.len > 0
        });
        gone
    }
}

/// The root of a tree that is too deep to be walked, if all else of its header is valid: its
/// entries lead nowhere, and the rest of the inode need not be wrong.
pub(crate) fn root_of_impossible_depth(root: &[u8]) -> Option<ExtentNode<'_>> {
    fitting_header(root).and_then(|_| ExtentNode::parse(root))
}

/// The header of a node, if it is valid but for its level.
fn fitting_header(bytes: &[u8]) -> Option<&RawExtentHeader> {
    let (header, _) = RawExtentHeader::ref_from_prefix(bytes).ok()?;
    let fits = header.eh_magic.get() == extent::EXTENT_MAGIC
        && header.eh_max.get() <= capacity(bytes.len())
        && header.eh_max.get() > 0
        && header.eh_entries.get() <= header.eh_max.get();
    fits.then_some(header)
}

/// Whether an inode has a map at all, and not inline data, a short target or a device number.
pub(crate) fn has_map(inode: &Inode) -> bool {
    match inode.file_type() {
        Some(FileType::Regular | FileType::Directory) => !inode.is_inline(),
        Some(FileType::Symlink) => !inode.is_inline() && !is_fast_symlink(inode),
        _ => false,
    }
}

impl Check<'_> {
    /// The map of a file as far as it is valid. No finding is reported and no block is claimed.
    pub(crate) fn read_map(&self, ino: InodeNo, inode: &Inode) -> Result<FileMap, CheckError> {
        let mut map = FileMap::default();
        // The list of bad blocks has no mode.
        if !has_map(inode) && ino != InodeNo::BAD_BLOCKS {
            return Ok(map);
        }
        // Nodes so far: each is read once, whatever leads to it.
        let mut met = BTreeSet::new();
        if inode.is_extent_mapped() {
            let (mut watch, mut all) = (OrderCheck::default(), Vec::new());
            let root = NodeOwner { inode: ino, generation: inode.generation, block: None };
            let nodes = &mut map.nodes;
            self.read_extents(&inode.i_block, &root, None, &mut met, nodes, &mut |candidate| {
                watch.see(&candidate);
                all.push(candidate);
            })?;
            map.extents = if self.needs_arranging(&watch, inode) {
                order::apply(&all, &self.arrange(ino, inode, &all, map.nodes.len())?)
            } else {
                all.into_iter().map(|candidate| candidate.extent).collect()
            };
        } else {
            let arithmetic = IndirectMap::new(self.geometry.block_size);
            for slot in 0..SLOTS {
                let Some(block) = pointer(&inode.i_block, slot) else { break };
                let levels = slot.saturating_sub(11);
                let first = arithmetic.slot_start(slot).0;
                self.read_indirect(inode, block, (levels, first), &arithmetic, &mut map, &mut met)?;
            }
            map.join();
        }
        Ok(map)
    }

    /// All extents of a tree that could be some, in its order, and its nodes.
    fn read_extents(
        &self,
        bytes: &[u8],
        owner: &NodeOwner,
        depth: Option<u16>,
        met: &mut BTreeSet<BlockNo>,
        nodes: &mut Vec<BlockNo>,
        sink: &mut dyn FnMut(Candidate),
    ) -> Result<(), CheckError> {
        let Some(node) = self.usable_node(bytes, depth) else { return Ok(()) };
        match node {
            ExtentNode::Leaf(extents) => {
                for candidate in extents.iter().filter_map(|raw| self.candidate(raw.decode())) {
                    sink(candidate);
                }
            }
            ExtentNode::Index(indexes, below) => {
                for index in indexes.iter().map(RawExtentIndex::decode) {
                    if !self.geometry.contains(index.leaf, 1) || met.contains(&index.leaf) {
                        continue;
                    }
                    let child = self.read_claimed(index.leaf)?;
                    let owner = NodeOwner { block: Some(index.leaf), ..*owner };
                    let is_others = self.blocks.is_system(self.blocks.cluster_of(index.leaf))
                        && !self.is_own_node(&child, &owner, below);
                    if is_others || self.usable_node(&child, Some(below)).is_none() {
                        continue;
                    }
                    met.insert(index.leaf);
                    nodes.push(index.leaf);
                    self.read_extents(&child, &owner, Some(below), met, nodes, sink)?;
                }
            }
        }
        Ok(())
    }

    /// An extent that has blocks and starts on the volume, as far as it lies there.
    pub(crate) fn candidate(&self, mut extent: Extent) -> Option<Candidate> {
        if extent.len == 0 || !self.geometry.contains(extent.start, 1) {
            return None;
        }
        let on_volume = self.geometry.blocks_count.checked_sub(extent.start.0)?;
        let in_file = MAX_FILE_BLOCKS.checked_sub(extent.block.0)?;
        let most = on_volume.min(in_file);
        let is_clipped = most < u64::from(extent.len);
        if is_clipped {
            extent.len = u32::try_from(most).ok()?;
        }
        (extent.len > 0).then_some(Candidate { extent, is_clipped })
    }

    /// The fixes for the extents of a tree, in its order, if the extents do not ascend.
    pub(crate) fn extent_fixes(
        &self,
        ino: InodeNo,
        inode: &Inode,
    ) -> Result<Option<Vec<ExtentFix>>, CheckError> {
        let mut watch = OrderCheck::default();
        let read = |sink: &mut dyn FnMut(Candidate)| {
            let mut met = BTreeSet::new();
            let root = NodeOwner { inode: ino, generation: inode.generation, block: None };
            self.read_extents(&inode.i_block, &root, None, &mut met, &mut Vec::new(), sink)?;
            Ok::<_, CheckError>(met.len())
        };
        read(&mut |candidate| watch.see(&candidate))?;
        if !self.needs_arranging(&watch, inode) {
            return Ok(None);
        }
        let mut all = Vec::new();
        let nodes = read(&mut |candidate| all.push(candidate))?;
        self.arrange(ino, inode, &all, nodes).map(Some)
    }

    /// Files may have blocks past their end; those of directories are checked.
    fn needs_arranging(&self, watch: &OrderCheck, inode: &Inode) -> bool {
        let blocks = inode.size.div_ceil(u64::from(self.geometry.block_size));
        watch.is_disordered || inode.is_dir() && watch.is_beyond(blocks)
    }

    fn arrange(
        &self,
        ino: InodeNo,
        inode: &Inode,
        candidates: &[Candidate],
        nodes: usize,
    ) -> Result<Vec<ExtentFix>, CheckError> {
        let blocks = inode.size.div_ceil(u64::from(self.geometry.block_size));
        if !inode.is_dir() {
            // With clusters an extent pays for more than it has.
            let block = u64::from(self.geometry.block_size);
            let other_blocks = nodes as u64 + u64::from(inode.file_acl.0 != 0);
            let paid = inode.blocks.checked_mul(self.space_unit(inode)).map(|bytes| bytes / block);
            let paid = paid
                .filter(|_| self.geometry.blocks_per_cluster == 1)
                .and_then(|paid| paid.checked_sub(other_blocks));
            return Ok(order::arrange(candidates, blocks, paid));
        }
        let format = DirFormat::new(self.geometry, ino, inode.generation);
        order::arrange_directory(candidates, blocks, |extent, sure, places| {
            let mut len = sure;
            while len < u64::from(extent.len) {
                let block = BlockNo(extent.start.0 + len);
                let is_others = len > 0 && places.is_start(block.0)
                    || self.blocks.is_system(self.blocks.cluster_of(block));
                if is_others || !self.is_block_of(&format, extent.block.0 + len, block)? {
                    break;
                }
                len += 1;
            }
            Ok(len)
        })
    }

    /// Whether a block could be one of a directory's: by its checksum, else by its records.
    pub(crate) fn is_block_of(
        &self,
        format: &DirFormat,
        at: u64,
        block: BlockNo,
    ) -> Result<bool, CheckError> {
        let bytes = self.store.read(block)?;
        if format.checksum_seed.is_some() {
            let index = HtreeFormat {
                checksum_seed: format.checksum_seed,
                ..HtreeFormat::new(self.geometry, format.inode, 0)
            };
            let is_node = |kind| index.verify(&bytes, FileBlock(at), kind).is_ok();
            return Ok(format.verify(&bytes, FileBlock(at)).is_ok()
                || is_node(IndexKind::Root)
                || is_node(IndexKind::Node));
        }
        // Another directory's first block begins with its number.
        let mut is_own = true;
        for entry in format.entries(&bytes, FileBlock(at)) {
            let Ok(entry) = entry else { return Ok(false) };
            let is_known = entry.inode.is_none_or(|ino| ino.0 <= self.geometry.inodes_count);
            is_own &= is_known && (entry.name != b"." || entry.inode == Some(format.inode));
        }
        Ok(is_own)
    }

    /// A node whose header is valid, whatever its entries are.
    pub(crate) fn usable_node<'b>(
        &self,
        bytes: &'b [u8],
        depth: Option<u16>,
    ) -> Option<ExtentNode<'b>> {
        let header = fitting_header(bytes)?;
        let found = header.eh_depth.get();
        match depth {
            // One that leads to none is walked in no time.
            None if found > MOST_LEVELS && header.eh_entries.get() > 0 => None,
            Some(depth) if found != depth => self.node_of_level(bytes, depth),
            _ => ExtentNode::parse(bytes),
        }
    }

    /// A block as the scan before this repair found it, if a file claims the volume's own metadata.
    pub(crate) fn read_claimed(&self, block: BlockNo) -> Result<Vec<u8>, CheckError> {
        match self.shared.before(block) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => self.store.read(block),
        }
    }

    /// [`Self::read_claimed`] into a buffer of one block.
    pub(crate) fn read_claimed_into(
        &self,
        block: BlockNo,
        bytes: &mut [u8],
    ) -> Result<(), CheckError> {
        match self.shared.before(block) {
            Some(before) => bytes.copy_from_slice(before),
            None => self.store.read_into(block, bytes)?,
        }
        Ok(())
    }

    /// Whether an extent node that lies on the volume's own metadata is the file's: by its
    /// checksum, without checksums by all that it says.
    pub(crate) fn is_own_node(&self, bytes: &[u8], owner: &NodeOwner, depth: u16) -> bool {
        if self.geometry.has_metadata_csum() {
            return self.usable_node(bytes, Some(depth)).is_some()
                && extent::verify(bytes, owner, self.geometry).is_ok();
        }
        let limits = NodeLimits { depth: Some(depth), ..NodeLimits::ROOT };
        ExtentNode::check(bytes, owner, &limits, self.geometry).is_ok()
    }

    /// Whether an indirect block that lies on the volume's own metadata is the file's. It has no
    /// field for its owner: it must lead to different blocks, none of them the volume's own, all
    /// inside the file. `first` is its first logical block, `step` the number of blocks that each
    /// pointer covers.
    pub(crate) fn is_own_indirect(
        &self,
        bytes: &[u8],
        inode: &Inode,
        first: u64,
        step: u64,
    ) -> bool {
        let end = inode.size.div_ceil(u64::from(self.geometry.block_size));
        let mut met = BTreeSet::new();
        let mut used = pointers(bytes).enumerate().filter(|(_, pointer)| pointer.0 != 0);
        used.all(|(at, pointer)| {
            first + at as u64 * step < end
                && self.geometry.contains(pointer, 1)
                && !self.blocks.is_system(self.blocks.cluster_of(pointer))
                && met.insert(pointer)
        }) && !met.is_empty()
    }

    /// A node whose stored level is wrong: its contents are valid at its real level.
    fn node_of_level<'b>(&self, bytes: &'b [u8], depth: u16) -> Option<ExtentNode<'b>> {
        let (header, rest) = RawExtentHeader::ref_from_prefix(bytes).ok()?;
        let count = usize::from(header.eh_entries.get());
        if depth == 0 {
            let (extents, _) = <[RawExtent]>::ref_from_prefix_with_elems(rest, count).ok()?;
            let mut next = 0;
            let is_sound = extents.iter().map(RawExtent::decode).all(|extent| {
                let ascends = extent.block.0 >= next;
                next = extent.end().0;
                let len = u64::from(extent.len);
                ascends && len > 0 && self.geometry.contains(extent.start, len)
            });
            return (is_sound && count > 0).then_some(ExtentNode::Leaf(extents));
        }
        let (indexes, _) = <[RawExtentIndex]>::ref_from_prefix_with_elems(rest, count).ok()?;
        let is_sound = indexes.is_sorted_by_key(|index| index.ei_block.get())
            && indexes.iter().all(|index| self.geometry.contains(index.decode().leaf, 1));
        (is_sound && count > 0).then_some(ExtentNode::Index(indexes, depth - 1))
    }

    fn read_indirect(
        &self,
        inode: &Inode,
        block: BlockNo,
        (levels, first): (usize, u64),
        arithmetic: &IndirectMap,
        map: &mut FileMap,
        met: &mut BTreeSet<BlockNo>,
    ) -> Result<(), CheckError> {
        if block.0 == 0 || !self.geometry.contains(block, 1) || first >= MAX_FILE_BLOCKS {
            return Ok(());
        }
        if levels == 0 {
            let extent =
                Extent { block: FileBlock(first), len: 1, start: block, is_unwritten: false };
            match map.extents.last_mut() {
                Some(last) if last.is_continued_by(&extent) => last.len += 1,
                _ => map.extents.push(extent),
            }
            return Ok(());
        }
        let bytes = self.read_claimed(block)?;
        let step = if levels == 1 { 1 } else { arithmetic.covered_by(levels - 1) };
        let is_others = self.blocks.is_system(self.blocks.cluster_of(block))
            && !self.is_own_indirect(&bytes, inode, first, step);
        if is_others || !met.insert(block) {
            return Ok(());
        }
        map.nodes.push(block);
        for (at, pointer) in pointers(&bytes).enumerate() {
            if pointer.0 != 0 {
                let first = first + at as u64 * step;
                self.read_indirect(inode, pointer, (levels - 1, first), arithmetic, map, met)?;
            }
        }
        Ok(())
    }

    /// Writes a file's map to new nodes, or over the old ones where there is no room; the old ones
    /// are given back. The inode is the caller's to write, by [`Store::write_inode_ordered`].
    /// `i_blocks` changes by what the map grew or shrank. False when the volume is full; nothing is
    /// changed then.
    ///
    /// [`Store::write_inode_ordered`]: crate::store::Store::write_inode_ordered
    pub(crate) fn write_map(
        &self,
        ino: InodeNo,
        inode: &mut Inode,
        old: &FileMap,
        new: &FileMap,
    ) -> Result<bool, CheckError> {
        self.write_map_over(&old.nodes, ino, inode, old, new)
    }

    /// [`Self::write_map`] where other inodes claim nodes of the old map too: `own` are the ones
    /// that this inode alone claims. No other node is written over or given back.
    pub(crate) fn write_map_over(
        &self,
        own: &[BlockNo],
        ino: InodeNo,
        inode: &mut Inode,
        old: &FileMap,
        new: &FileMap,
    ) -> Result<bool, CheckError> {
        let geometry = self.geometry;
        let is_extents = inode.is_extent_mapped();
        let counted = recount::of_map(ino, inode, &old.extents);
        let tree = MappingTree::from_extents(&new.extents, is_extents);
        let Some(needed) = tree.blocks(geometry.block_size) else { return Ok(false) };
        let goal = new.extents.first().map_or(BlockNo(0), |extent| extent.start);
        let Some((places, reused)) = self.node_places(own, needed, goal, is_extents)? else {
            return Ok(false);
        };
        for block in own.iter().skip(reused) {
            self.release_block(*block);
        }
        let mut failed = Ok(());
        let nodes = places.iter().copied();
        inode.i_block = tree.write(ino, inode.generation, geometry, nodes, |block, bytes| {
            if failed.is_ok() {
                failed = self.store.write(block, bytes);
            }
        });
        failed?;
        self.count_removed(&counted);
        self.count_made(&recount::of_map(ino, inode, &new.extents));
        self.recount.lock().is_unsure |= !is_extents;
        let before = self.clusters_of(old) + old.nodes.len() as u64;
        let after = self.clusters_of(new) + needed;
        let unit = geometry.cluster_size() / self.space_unit(inode);
        inode.blocks = (inode.blocks + after * unit).saturating_sub(before * unit);
        Ok(true)
    }

    /// Places for the nodes of a map: new ones, so that the old map stays whole until the inode
    /// leads to the new one. Where there is no room for those, nodes of the old map (`own`) and as
    /// many new ones as are missing. With the number of old ones.
    fn node_places(
        &self,
        own: &[BlockNo],
        needed: u64,
        goal: BlockNo,
        is_extents: bool,
    ) -> Result<Option<(Vec<BlockNo>, usize)>, CheckError> {
        for reused in [0, own.len().min(needed as usize)] {
            let Some(fresh) = self.allocate_blocks(goal, needed - reused as u64)? else { continue };
            // Indirect blocks hold numbers of 32 bits.
            if !is_extents && fresh.iter().any(|block| block.0 >> 32 != 0) {
                fresh.into_iter().for_each(|block| self.release_block(block));
                continue;
            }
            let mut places = own[..reused].to_vec();
            places.extend(fresh);
            return Ok(Some((places, reused)));
        }
        Ok(None)
    }

    /// Bytes of the unit of `i_blocks`.
    pub(crate) fn space_unit(&self, inode: &Inode) -> u64 {
        let in_blocks = inode.flags.contains(InodeFlags::HUGE_FILE)
            && self.geometry.has_ro_compat(extant_ondisk::RoCompatFeatures::HUGE_FILE);
        if in_blocks { u64::from(self.geometry.block_size) } else { extant_ondisk::inode::SECTOR }
    }

    /// Clusters that a map's data take.
    pub(crate) fn clusters_of(&self, map: &FileMap) -> u64 {
        let mut last = None;
        let mut count = 0;
        for extent in &map.extents {
            let first = self.blocks.cluster_of(extent.start).0;
            let end = self.blocks.cluster_of(BlockNo(extent.start.0 + u64::from(extent.len) - 1)).0;
            count += end - first + 1 - u64::from(last == Some(first));
            last = Some(end);
        }
        count
    }

    /// A new block near `goal`, the first of its cluster; `None` on a full volume.
    pub(crate) fn allocate_block(&self, goal: BlockNo) -> Result<Option<BlockNo>, CheckError> {
        let goal = self.blocks.cluster_of(goal);
        // Free blocks come first: a block in use without a known owner may belong to a file that is
        // not known yet.
        let stored = |group| self.stored_blocks(group);
        let any = |_| Ok(Stored::Empty);
        let mut cluster = self.blocks.allocate(goal, &self.budget, &stored)?;
        if cluster.is_none() {
            cluster = self.blocks.allocate(goal, &self.budget, &any)?;
        }
        if cluster.is_none() && self.free_released()? {
            cluster = self.blocks.allocate(goal, &self.budget, &any)?;
        }
        if cluster.is_none() && !self.window.is_whole() {
            cluster = self.allocate_elsewhere()?;
        }
        cluster.inspect(|cluster| self.store.note_allocated(*cluster));
        Ok(cluster.map(|cluster| self.blocks.cluster_start(cluster)))
    }

    /// New blocks near `goal`, each the first of its cluster; `None`, and nothing is taken, where
    /// there are not as many.
    pub(crate) fn allocate_blocks(
        &self,
        mut goal: BlockNo,
        count: u64,
    ) -> Result<Option<Vec<BlockNo>>, CheckError> {
        let mut blocks = Vec::new();
        while (blocks.len() as u64) < count {
            let Some(block) = self.allocate_block(goal)? else {
                blocks.into_iter().for_each(|block| self.release_block(block));
                return Ok(None);
            };
            goal = block;
            blocks.push(block);
        }
        Ok(Some(blocks))
    }

    /// The stored block bitmap of a group. A wrong one does no damage: a group without a free block
    /// in it is skipped.
    fn stored_blocks(&self, group: GroupNo) -> Result<Stored, CheckError> {
        let mut last = self.stored_bitmap.lock();
        if let Some((of, stored)) = &*last
            && *of == group
        {
            return Ok(stored.clone());
        }
        let (geometry, desc) = (self.geometry, self.store.desc(group));
        let is_implied =
            geometry.has_uninit_groups() && desc.flags.contains(GroupFlags::BLOCK_UNINIT);
        let stored = if is_implied || !geometry.contains(desc.block_bitmap, 1) {
            Stored::Empty
        } else if desc.free_clusters == 0 {
            Stored::Full
        } else {
            let word = |bytes: &[u8]| {
                bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
            };
            let bits = self.store.read(desc.block_bitmap)?;
            Stored::Words(bits.chunks(8).map(word).collect())
        };
        *last = Some((group, stored.clone()));
        Ok(stored)
    }

    /// Frees the clusters given back so far, after a flush of what no longer leads to them; whether
    /// there were any.
    pub(crate) fn free_released(&self) -> Result<bool, CheckError> {
        if !self.blocks.has_released() {
            return Ok(false);
        }
        self.store.flush()?;
        Ok(self.blocks.free_released(&self.budget))
    }

    /// A free cluster outside of the window, by the bitmaps on the volume. If one of those is
    /// wrong, a later round finds the consequences.
    fn allocate_elsewhere(&self) -> Result<Option<ClusterNo>, CheckError> {
        let geometry = self.geometry;
        let groups = (0..geometry.groups_count).filter(|it| !self.window.groups.contains(it));
        for group in groups.map(GroupNo) {
            let desc = self.store.desc(group);
            let is_implied =
                geometry.has_uninit_groups() && desc.flags.contains(GroupFlags::BLOCK_UNINIT);
            if is_implied || desc.free_clusters == 0 || !geometry.contains(desc.block_bitmap, 1) {
                continue;
            }
            let mut bits = self.store.read(desc.block_bitmap)?;
            let first = u64::from(group.0) * u64::from(geometry.clusters_per_group);
            let free = (0..geometry.group_clusters(group)).find(|bit| {
                let cluster = ClusterNo(first + u64::from(*bit));
                !bitmap::test(&bits, *bit) && !self.blocks.is_system(cluster)
            });
            let Some(bit) = free else { continue };
            bitmap::set(&mut bits, bit);
            self.store.write(desc.block_bitmap, &bits)?;
            self.store.update_desc(group, |desc| {
                desc.free_clusters -= 1;
                bitmap::seal(&bits, BitmapKind::Block, desc, geometry);
            })?;
            return Ok(Some(ClusterNo(first + u64::from(bit))));
        }
        Ok(None)
    }

    /// Gives a block's cluster back.
    pub(crate) fn release_block(&self, block: BlockNo) {
        self.blocks.release(self.blocks.cluster_of(block));
    }
}
