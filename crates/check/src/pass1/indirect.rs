//! Maps of indirect blocks.

use super::Local;
use super::visit::{MapCounts, Visit};
use crate::context::Check;
use crate::finding::Code;
use crate::report::DiscontinuityTarget;
use crate::store::CheckError;
use crate::tables::{DirBlock, Kind};
use extant_ondisk::indirect::{self, IndirectMap, SLOTS};
use extant_ondisk::inode::FileType;
use extant_ondisk::{BlockNo, ClusterNo, FileBlock, IncompatFeatures, InodeNo, MAX_FILE_BLOCKS};
use std::collections::BTreeSet;

/// The first slot of `i_block` with an indirect block.
const FIRST_INDIRECT: usize = 12;

/// Maximum number of illegal pointers of a file that are handled one by one. An `i_block` with as
/// many is not a map.
const TOO_MANY: u32 = 12;

struct Walk {
    map: IndirectMap,
    is_dir: bool,
    is_symlink: bool,
    is_bad_blocks: bool,
    /// The cluster of the last block of the list.
    last_bad: Option<ClusterNo>,
    dir_limit: u64,
    counts: MapCounts,
    illegal: u32,
    /// Illegal pointers after the first [`TOO_MANY`] are cleared.
    clears_all: bool,
    /// Pointers from this block of the file on are illegal wherever they lead.
    garbage_from: u64,
    /// Of a journal, its blocks by its size: after a hole there is nothing past them.
    journal_end: Option<u64>,
    /// A part that lay on the volume's own metadata was cut off.
    is_cut: bool,
    /// The block that would continue the current run of data, and the start of the run.
    run: (u64, u64),
    /// The block after the last one, data or indirect; 0 before the first.
    next: u64,
    nodes: [u64; 3],
    /// Indirect blocks so far: what lies below one is walked once.
    met: BTreeSet<BlockNo>,
}

impl Check<'_> {
    pub(super) fn check_indirect(
        &self,
        visit: &mut Visit<'_>,
        local: &mut Local,
    ) -> Result<MapCounts, CheckError> {
        let mut walk = Walk {
            map: IndirectMap::new(self.geometry.block_size),
            is_dir: visit.inode.is_dir(),
            is_symlink: visit.inode.file_type() == Some(FileType::Symlink),
            is_bad_blocks: visit.ino == InodeNo::BAD_BLOCKS,
            last_bad: None,
            dir_limit: self.dir_limit(),
            counts: MapCounts::default(),
            illegal: 0,
            clears_all: false,
            garbage_from: u64::MAX,
            journal_end: None,
            is_cut: false,
            run: (0, 0),
            next: 0,
            nodes: [0; 3],
            met: BTreeSet::new(),
        };
        if self.superblock.journal_inode == Some(visit.ino) {
            let end = visit.inode.size.div_ceil(u64::from(self.geometry.block_size));
            walk.journal_end = Some(end);
        }
        let mut i_block = visit.inode.i_block;
        if !walk.is_bad_blocks && self.illegal_of(&i_block).0 >= TOO_MANY {
            walk.counts.is_unsure = !self.drop_map(visit)?;
            return Ok(walk.counts);
        }
        for slot in 0..SLOTS {
            let Some(block) = indirect::pointer(&i_block, slot) else { break };
            if block.0 == 0 {
                continue;
            }
            let levels = slot.saturating_sub(11);
            let first = walk.map.slot_start(slot).0;
            if self.walk_pointer(visit, block, levels, first, &mut walk, local)? {
                indirect::set_pointer(&mut i_block, slot, BlockNo(0));
                visit.inode.i_block = i_block;
                visit.dirty = true;
            }
            if visit.cleared {
                return Ok(walk.counts);
            }
        }
        self.end_run(&mut walk);
        if walk.is_cut {
            self.need_restart();
        }
        for (count, nodes) in local.statistics.indirect.iter_mut().zip(walk.nodes) {
            *count += u64::from(nodes > 0 && self.has_counted_map(visit.ino));
        }
        let code = if self.geometry.blocks_per_cluster > 1 {
            (walk.counts.clusters > 0 && !walk.is_bad_blocks).then_some(Code::BlockMappedOnBigalloc)
        } else {
            let is_wanted = self.options.bmap_to_extent
                && self.is_repair()
                && walk.illegal == 0
                && visit.ino >= self.geometry.first_inode
                && self.geometry.has_incompat(IncompatFeatures::EXTENTS);
            is_wanted.then_some(Code::MapToExtents)
        };
        if let Some(code) = code
            && self.should_fix(visit.finding(code))?
        {
            self.deferred.lock().to_extents.push(visit.ino);
        }
        Ok(walk.counts)
    }

    /// The number of pointers that lead off the volume, and of those that do not.
    fn illegal_of(&self, bytes: &[u8]) -> (u32, u32) {
        let (mut illegal, mut legal) = (0, 0);
        for block in indirect::pointers(bytes).filter(|block| block.0 != 0) {
            let count = if self.geometry.contains(block, 1) { &mut legal } else { &mut illegal };
            *count += 1;
        }
        (illegal, legal)
    }

    /// `i_block` is not a map: a regular file becomes empty and keeps its name, another inode is
    /// cleared. True if that was accepted.
    fn drop_map(&self, visit: &mut Visit<'_>) -> Result<bool, CheckError> {
        if !self.should_fix(visit.finding(Code::TooManyIllegalBlocks))? {
            return Ok(false);
        }
        if visit.inode.file_type() == Some(FileType::Regular) {
            visit.inode.i_block.fill(0);
            visit.inode.size = 0;
            visit.dirty = true;
        } else {
            self.clear_visited(visit)?;
        }
        Ok(true)
    }

    /// Whether a block holds the primary superblock or primary descriptors.
    fn is_primary(&self, block: BlockNo) -> bool {
        let geometry = self.geometry;
        block == geometry.superblock_block()
            || (0..geometry.desc_blocks()).any(|index| geometry.desc_block(index) == block)
    }

    /// Checks a pointer and its subtree; true if the pointer is to be cleared.
    fn walk_pointer(
        &self,
        visit: &mut Visit<'_>,
        block: BlockNo,
        levels: usize,
        first: u64,
        walk: &mut Walk,
        local: &mut Local,
    ) -> Result<bool, CheckError> {
        let finding =
            |visit: &Visit<'_>, code| visit.finding(code).file_block(FileBlock(first)).block(block);
        let is_stray = walk.journal_end.is_some_and(|end| first >= end.max(walk.counts.end + 1));
        if !self.geometry.contains(block, 1) || first >= walk.garbage_from || is_stray {
            walk.illegal += 1;
            if walk.illegal >= TOO_MANY && !walk.is_bad_blocks {
                if walk.illegal == TOO_MANY {
                    walk.clears_all = self.should_fix(visit.finding(Code::TooManyIllegalBlocks))?;
                }
                return Ok(walk.clears_all);
            }
            let code = if walk.is_bad_blocks { Code::BadBlockIllegal } else { Code::IllegalBlock };
            return self.should_fix(finding(visit, code));
        }
        // If these were bad nothing could be read.
        if walk.is_bad_blocks && levels == 0 && self.is_primary(block) {
            return self.should_fix(finding(visit, Code::BadBlockPrimary));
        }
        if walk.is_bad_blocks && levels == 0 && is_own_node(visit, block, walk) {
            return self.should_fix(finding(visit, Code::BadBlockIllegal));
        }
        // A link's target has one block.
        if first > MAX_FILE_BLOCKS || walk.is_symlink && first > 0 {
            return self.should_fix(finding(visit, Code::FileTooBig));
        }
        if walk.is_dir && levels == 0 && first >= walk.dir_limit {
            return self.should_fix(finding(visit, Code::DirectoryTooBig));
        }
        if levels == 0 {
            self.take_data(visit, block, first, walk, local);
            return Ok(false);
        }
        self.end_run(walk);
        if !walk.met.insert(block) {
            walk.counts.is_unsure = true;
            let code = if walk.is_bad_blocks { Code::BadBlockIllegal } else { Code::IllegalBlock };
            return self.should_fix(finding(visit, code));
        }
        let step = if levels == 1 { 1 } else { walk.map.covered_by(levels - 1) };
        let cluster = self.blocks.cluster_of(block);
        let is_system = self.blocks.is_system(cluster);
        let mut bytes = local.nodes.pop().unwrap_or_default();
        bytes.resize(self.geometry.block_len(), 0);
        self.read_claimed_into(block, &mut bytes)?;
        let outer_garbage = walk.garbage_from;
        let (illegal, legal) = self.illegal_of(&bytes);
        if !walk.is_bad_blocks && !is_system && illegal >= TOO_MANY && illegal > legal {
            // Garbage past the file's end leaves the pointers before it.
            let end = visit.inode.size.div_ceil(u64::from(self.geometry.block_size));
            let used = end.saturating_sub(first).div_ceil(step).min(bytes.len() as u64 / 4);
            let (illegal, legal) = self.illegal_of(&bytes[..used as usize * 4]);
            if legal <= illegal {
                // It is not an indirect block: the file keeps its other blocks.
                local.nodes.push(bytes);
                return self.should_fix(finding(visit, Code::IllegalBlock));
            }
            walk.garbage_from = end;
        }
        self.step(visit, block, DiscontinuityTarget::Indirect(levels as u8), walk, local); // at most three
        walk.counts.clusters += 1;
        walk.nodes[levels - 1] += 1;
        if is_system && !self.is_own_indirect(&bytes, &visit.inode, first, step) {
            local.nodes.push(bytes);
            walk.counts.is_unsure = true;
            let is_cut = self.should_fix(visit.finding(Code::MapOnMetadata).block(block))?;
            walk.is_cut |= is_cut;
            return Ok(is_cut);
        }
        self.blocks.claim(cluster.0..cluster.0 + 1, &self.budget);
        let (mut changed, was_cut) = (false, walk.is_cut);
        for at in 0..bytes.len() / 4 {
            let Some(pointer) = indirect::pointer(&bytes, at) else { break };
            if pointer.0 == 0 {
                continue;
            }
            let logical = first + at as u64 * step;
            if self.walk_pointer(visit, pointer, levels - 1, logical, walk, local)? {
                indirect::set_pointer(&mut bytes, at, BlockNo(0));
                changed = true;
            }
            if visit.cleared {
                break;
            }
        }
        walk.garbage_from = outer_garbage;
        // Blocks that something else claims too may be the file's own: the file first gets a copy,
        // without these pointers.
        let is_own = !is_system && !self.shared.contains(cluster);
        if changed && is_own {
            self.store.write(block, &bytes)?;
        } else if changed {
            walk.is_cut = was_cut; // a restart would find the same pointers
        }
        local.nodes.push(bytes);
        // The list of bad blocks gets no copy: it gives the block up.
        if changed && !is_own && walk.is_bad_blocks {
            let is_cut = self.should_fix(finding(visit, Code::BadBlockIllegal))?;
            walk.is_cut |= is_cut;
            return Ok(is_cut);
        }
        Ok(false)
    }

    /// Advances to the next block of the file, indirect ones too: a run ends if the block is not
    /// adjacent.
    fn step(
        &self,
        visit: &Visit<'_>,
        block: BlockNo,
        to: DiscontinuityTarget,
        walk: &mut Walk,
        local: &mut Local,
    ) {
        let next = std::mem::replace(&mut walk.next, block.0 + 1);
        if next != block.0 {
            walk.counts.runs += 1;
            if next != 0 {
                let kind = Kind::of_mode(visit.inode.mode);
                self.note_discontinuity((visit.ino, kind), (next, block.0), to, local);
            }
        }
    }

    fn take_data(
        &self,
        visit: &Visit<'_>,
        block: BlockNo,
        first: u64,
        walk: &mut Walk,
        local: &mut Local,
    ) {
        self.step(visit, block, DiscontinuityTarget::Data(FileBlock(first)), walk, local);
        if walk.run.0 != block.0 || walk.run.0 == 0 {
            self.end_run(walk);
            walk.run = (block.0, block.0);
        }
        walk.run.0 = block.0 + 1;
        walk.counts.end = first + 1;
        walk.counts.written_end = first + 1;
        if walk.is_dir {
            let at = first as u32; // below the limit of directories
            local.dir_blocks.push(DirBlock { block: block.0, dir: visit.ino, at });
        }
    }

    /// Claims the current run.
    fn end_run(&self, walk: &mut Walk) {
        let (end, start) = walk.run;
        walk.run = (0, 0);
        if start == end {
            return;
        }
        let first = self.blocks.cluster_of(BlockNo(start)).0;
        let last = self.blocks.cluster_of(BlockNo(end - 1)).0;
        if walk.is_bad_blocks {
            // Each block of the list counts as a cluster, though several may lie in one.
            walk.counts.clusters += end - start;
            // A bad block of the volume's own tables stays theirs.
            for cluster in (first..=last).map(ClusterNo) {
                let is_claimed = walk.last_bad.replace(cluster) == Some(cluster);
                if !is_claimed && !self.blocks.is_system(cluster) {
                    self.blocks.claim(cluster.0..cluster.0 + 1, &self.budget);
                }
            }
            return;
        }
        walk.counts.clusters += last + 1 - first;
        self.blocks.claim(first..last + 1, &self.budget);
    }
}

/// Whether the list of bad blocks is kept in this block itself.
fn is_own_node(visit: &Visit<'_>, block: BlockNo, walk: &Walk) -> bool {
    let is_root_of_some = |slot| indirect::pointer(&visit.inode.i_block, slot) == Some(block);
    walk.met.contains(&block) || (FIRST_INDIRECT..SLOTS).any(is_root_of_some)
}
