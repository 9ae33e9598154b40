//! Where a file's blocks lie: through extent trees and indirect maps.

use super::inode::LoadedInode;
use crate::error::Error;
use crate::source::{BlockKind, MetadataRead};
use extant_ondisk::extent::{ExtentNode, NodeLimits, NodeOwner, child_limits};
use extant_ondisk::indirect::{self, IndirectMap, SLOTS};
use extant_ondisk::inode::FileType;
use extant_ondisk::{BlockNo, FileBlock, Flaw, FormatError, Location, MAX_FILE_BLOCKS};

/// A run of a file's blocks that lie together, or of none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Mapping {
    /// First logical block.
    pub block: FileBlock,
    /// Blocks, at least one.
    pub len: u64,
    /// Where they are.
    pub target: MappingTarget,
}

/// Where a run of blocks is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MappingTarget {
    /// Nowhere: reads as zero.
    Hole,
    /// There.
    Written(BlockNo),
    /// There, but reads as zero.
    Unwritten(BlockNo),
}

impl Mapping {
    /// The logical block after the last.
    pub fn end(&self) -> FileBlock {
        FileBlock(self.block.0.saturating_add(self.len))
    }

    /// The first physical block, written or not; `None` for a hole.
    pub fn physical(&self) -> Option<BlockNo> {
        match self.target {
            MappingTarget::Hole => None,
            MappingTarget::Written(start) | MappingTarget::Unwritten(start) => Some(start),
        }
    }

    /// Whether the blocks are nowhere.
    pub fn is_hole(&self) -> bool {
        self.target == MappingTarget::Hole
    }

    /// The part from `block` on, which is one of the run's.
    fn from(self, block: FileBlock) -> Self {
        let skipped = block.0.saturating_sub(self.block.0);
        let ahead = |start: BlockNo| BlockNo(start.0.saturating_add(skipped));
        Self {
            block,
            len: self.len.saturating_sub(skipped),
            target: match self.target {
                MappingTarget::Hole => MappingTarget::Hole,
                MappingTarget::Written(start) => MappingTarget::Written(ahead(start)),
                MappingTarget::Unwritten(start) => MappingTarget::Unwritten(ahead(start)),
            },
        }
    }

    /// Whether `next` continues this run, on the volume as in the file.
    fn is_continued_by(&self, next: &Self) -> bool {
        let follows = |start: BlockNo| start.checked_add(self.len);
        self.end() == next.block
            && match (self.target, next.target) {
                (MappingTarget::Hole, MappingTarget::Hole) => true,
                (MappingTarget::Written(a), MappingTarget::Written(b))
                | (MappingTarget::Unwritten(a), MappingTarget::Unwritten(b)) => {
                    follows(a) == Some(b)
                }
                _ => false,
            }
    }
}

/// The run that holds a logical block, from that block on: up to the end of its leaf of the tree,
/// or of its block of pointers. Inline data, fast symlinks and device files have no blocks:
/// everything is a hole.
///
/// # Errors
/// A broken tree or map, or the device failed.
pub fn map<S: MetadataRead>(
    source: &S,
    inode: &LoadedInode,
    block: FileBlock,
) -> Result<Mapping, Error> {
    let rest = Mapping {
        block,
        len: MAX_FILE_BLOCKS.saturating_sub(block.0).max(1),
        target: MappingTarget::Hole,
    };
    if block.0 >= MAX_FILE_BLOCKS || !has_blocks(source, inode) {
        return Ok(rest);
    }
    if inode.is_extent_mapped() {
        map_by_extents(source, inode, block)
    } else {
        map_by_pointers(source, inode, block)
    }
}

/// Whether `i_block` maps blocks.
pub fn has_blocks<S: MetadataRead>(source: &S, inode: &LoadedInode) -> bool {
    match inode.file_type() {
        FileType::Regular | FileType::Directory => !inode.is_inline(),
        FileType::Symlink => !inode.is_inline() && !inode.is_fast_symlink(source.geometry()),
        _ => false,
    }
}

fn map_by_extents<S: MetadataRead>(
    source: &S,
    inode: &LoadedInode,
    block: FileBlock,
) -> Result<Mapping, Error> {
    let owner = NodeOwner { inode: inode.number, generation: inode.generation, block: None };
    let mut limits = NodeLimits::ROOT;
    let root = ExtentNode::check(&inode.i_block, &owner, &limits, source.geometry())?;
    let mut step = step_down(&root, block, &limits);
    // Each turn goes one level down: the depth of every node is checked to be one less than that of
    // the node above.
    loop {
        let (below, below_limits) = match step {
            Step::Mapped(mapping) => return Ok(mapping.from(block)),
            Step::Below(below, below_limits) => (below, below_limits),
        };
        limits = below_limits;
        let kind = BlockKind::ExtentNode {
            inode: inode.number,
            generation: inode.generation,
            depth: limits.depth.unwrap_or(0),
            from: limits.blocks.start,
            to: limits.blocks.end,
        };
        let bytes = source.metadata(below, kind)?;
        let place = Location::ExtentNode(inode.number, Some(below));
        let node = ExtentNode::parse(&bytes).ok_or_else(|| unchecked(place))?;
        step = step_down(&node, block, &limits);
    }
}

enum Step {
    Mapped(Mapping),
    Below(BlockNo, NodeLimits),
}

/// The node in which the search for a block continues after a node that may map `limits`.
fn step_down(node: &ExtentNode<'_>, block: FileBlock, limits: &NodeLimits) -> Step {
    let hole = |from: u64, to: u64| {
        let len = to.saturating_sub(from).max(1);
        Step::Mapped(Mapping { block: FileBlock(from), len, target: MappingTarget::Hole })
    };
    let position = node.position(block);
    match node {
        ExtentNode::Leaf(extents) => {
            let next = extents.get(position.map_or(0, |at| at + 1));
            let next_start = next.map_or(limits.blocks.end, |raw| u64::from(raw.ee_block.get()));
            let Some(extent) = position.and_then(|at| extents.get(at)).map(|raw| raw.decode())
            else {
                return hole(limits.blocks.start, next_start);
            };
            if !extent.contains(block) {
                return hole(extent.end().0, next_start);
            }
            let target = if extent.is_unwritten {
                MappingTarget::Unwritten(extent.start)
            } else {
                MappingTarget::Written(extent.start)
            };
            Step::Mapped(Mapping { block: extent.block, len: u64::from(extent.len), target })
        }
        ExtentNode::Index(indexes, below) => {
            match position.and_then(|at| child_limits(indexes, *below, at, limits)) {
                Some((index, limits)) => Step::Below(index.leaf, limits),
                None => {
                    let first = indexes
                        .first()
                        .map_or(limits.blocks.end, |raw| u64::from(raw.ei_block.get()));
                    hole(limits.blocks.start, first)
                }
            }
        }
    }
}

fn map_by_pointers<S: MetadataRead>(
    source: &S,
    inode: &LoadedInode,
    block: FileBlock,
) -> Result<Mapping, Error> {
    let map = IndirectMap::new(source.geometry().block_size);
    let Some(path) = map.path(block) else {
        let len = MAX_FILE_BLOCKS - block.0;
        return Ok(Mapping { block, len, target: MappingTarget::Hole });
    };
    let place = Location::Inode(inode.number);
    if path.levels == 0 {
        let slots = &inode.i_block[..(SLOTS - 3) * 4];
        return run_of_pointers(source, slots, path.slot, block, place);
    }
    let mut at = indirect::pointer(&inode.i_block, path.slot).unwrap_or_default();
    check_pointer(source, at, place)?;
    let mut below = path.levels;
    // The first block below the pointer that is followed.
    let mut covered_from = map.slot_start(path.slot).0;
    for (level, position) in path.positions.iter().take(path.levels).enumerate() {
        if at.0 == 0 {
            let end = covered_from + map.covered_by(below);
            let len = end.min(map.max_blocks()).saturating_sub(block.0).max(1);
            return Ok(Mapping { block, len, target: MappingTarget::Hole });
        }
        let bytes = source.metadata(at, BlockKind::Indirect { inode: inode.number })?;
        let position = *position as usize;
        if level + 1 == path.levels {
            let place = Location::IndirectBlock(inode.number, at);
            return run_of_pointers(source, &bytes, position, block, place);
        }
        below -= 1;
        covered_from += map.covered_by(below) * position as u64;
        at = indirect::pointer(&bytes, position).unwrap_or_default();
    }
    Err(unchecked(place).into())
}

/// The run that starts at a position of a block of pointers to data.
fn run_of_pointers<S: MetadataRead>(
    source: &S,
    pointers: &[u8],
    position: usize,
    block: FileBlock,
    place: Location,
) -> Result<Mapping, Error> {
    let mut rest = indirect::pointers(pointers).skip(position);
    let first = rest.next().unwrap_or_default();
    check_pointer(source, first, place)?;
    let mut len = 1;
    for next in rest {
        let expected = if first.0 == 0 { 0 } else { first.0 + len };
        if next.0 != expected {
            break;
        }
        len += 1;
    }
    if first.0 == 0 {
        return Ok(Mapping { block, len, target: MappingTarget::Hole });
    }
    if !source.geometry().contains(first, len) {
        return Err(Flaw::bad_value("pointer", first.0 + len - 1).at(place).into());
    }
    Ok(Mapping { block, len, target: MappingTarget::Written(first) })
}

fn check_pointer<S: MetadataRead>(source: &S, to: BlockNo, place: Location) -> Result<(), Error> {
    if to.0 != 0 && !source.geometry().contains(to, 1) {
        return Err(Flaw::bad_value("pointer", to.0).at(place).into());
    }
    Ok(())
}

/// A block that its source yielded as checked does not even parse.
fn unchecked(place: Location) -> FormatError {
    Flaw::Rule("the block changed after it was checked").at(place)
}

/// The runs of a range of a file in order, holes included, each as long as possible. Together they
/// are the range, unless an error ends it. A file that maps more blocks than the volume has is
/// broken: some must be mapped twice.
#[derive(Debug)]
pub struct Extents<'s, S> {
    source: &'s S,
    inode: LoadedInode,
    next: u64,
    end: u64,
    pending: Option<Mapping>,
    /// Number of blocks that may still be mapped, and of steps that may still be made.
    budget: u64,
}

/// The runs of the logical blocks `from` to `to`.
pub fn extents<S: MetadataRead>(
    source: &S,
    inode: LoadedInode,
    from: FileBlock,
    to: FileBlock,
) -> Extents<'_, S> {
    let budget = source.geometry().blocks_count.saturating_mul(2).saturating_add(16);
    let end = to.0.min(MAX_FILE_BLOCKS);
    Extents { source, inode, next: from.0, end, pending: None, budget }
}

impl<S: MetadataRead> Extents<'_, S> {
    fn step(&mut self) -> Result<Option<Mapping>, Error> {
        if self.next >= self.end {
            return Ok(None);
        }
        let mut mapping = map(self.source, &self.inode, FileBlock(self.next))?;
        mapping.len = mapping.len.min(self.end - self.next);
        let cost = if mapping.is_hole() { 1 } else { mapping.len };
        self.budget = self.budget.checked_sub(cost).ok_or_else(|| {
            let rule = Flaw::Rule("the file maps more blocks than the volume has");
            rule.at(Location::Inode(self.inode.number))
        })?;
        self.next = mapping.end().0;
        Ok(Some(mapping))
    }

    fn next_run(&mut self) -> Result<Option<Mapping>, Error> {
        let Some(mut run) = self.pending.take().map_or_else(|| self.step(), |run| Ok(Some(run)))?
        else {
            return Ok(None);
        };
        while let Some(next) = self.step()? {
            if !run.is_continued_by(&next) {
                self.pending = Some(next);
                break;
            }
            run.len += next.len;
        }
        Ok(Some(run))
    }
}

impl<S: MetadataRead> Iterator for Extents<'_, S> {
    type Item = Result<Mapping, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.next_run();
        if found.is_err() {
            self.pending = None;
            self.next = self.end;
        }
        found.transpose()
    }
}
