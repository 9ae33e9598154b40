//! The map of a file, step by step, as far as it can be followed.

use std::collections::HashSet;
use std::ops::ControlFlow;

use extant_ondisk::extent::{
    self, EXTENT_MAGIC, NodeOwner, RawExtent, RawExtentHeader, RawExtentIndex,
};
use extant_ondisk::indirect::{DIRECT_BLOCKS, IndirectMap, pointer};
use extant_ondisk::{BlockNo, FileBlock};
use zerocopy::FromBytes;

use super::{DebugError, DebugVolume, RawRecord};

/// Bytes of an extent node's header, and of each entry.
const ENTRY: usize = 12;

/// A block that maps others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NodeKind {
    /// An indirect block with this many levels of blocks below it: 1 for one that names data.
    Indirect(usize),
    /// An extent node, by its distance from the inode, from 0 on.
    Extents(u16),
}

/// A step of a walk over a map.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MapStep {
    /// A run of data blocks; a map of indirect blocks gives one at a time.
    Data {
        /// First logical block.
        logical: u64,
        /// First physical block.
        start: u64,
        /// Number of blocks.
        len: u64,
        /// Whether it reads as zeros.
        is_unwritten: bool,
    },
    /// A block that maps others.
    Node {
        /// Its kind.
        kind: NodeKind,
        /// Its number.
        at: u64,
    },
}

/// An entry of an extent tree, as a listing shows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ExtentLine {
    /// Distance from the inode.
    pub level: u16,
    /// Depth of the tree.
    pub depth: u16,
    /// Its place in its node, from 1 on.
    pub index: u16,
    /// Number of entries of its node.
    pub entries: u16,
    /// First logical block.
    pub logical: u64,
    /// Number of logical blocks; for an inner entry up to where the next one begins.
    pub len: u64,
    /// First data block, or the block of the node below.
    pub physical: u64,
    /// Whether it is of a leaf.
    pub is_leaf: bool,
    /// Whether the blocks read as zeros.
    pub is_unwritten: bool,
}

type Visit<'a> = &'a mut dyn FnMut(MapStep) -> ControlFlow<()>;
type VisitLine<'a> = &'a mut dyn FnMut(ExtentLine) -> ControlFlow<()>;

impl DebugVolume {
    /// Calls `visit` for every block of a map in file order, nodes before what they map, until it
    /// breaks off. What `i_block` contains is taken for a map, also where a file of that type has
    /// none. Files whose data are in the inode have no blocks.
    ///
    /// # Errors
    /// A node cannot be read or is damaged; the steps before it were visited.
    pub fn walk_blocks(&self, record: &RawRecord, visit: Visit<'_>) -> Result<(), DebugError> {
        if record.is_inline() {
            return Ok(());
        }
        if !record.is_extents() {
            return self.walk_indirect(record, visit);
        }
        self.walk_extents(record, &mut |line| {
            visit(match line.is_leaf {
                true => MapStep::Data {
                    logical: line.logical,
                    start: line.physical,
                    len: line.len,
                    is_unwritten: line.is_unwritten,
                },
                false => MapStep::Node { kind: NodeKind::Extents(line.level), at: line.physical },
            })
        })
    }

    /// The physical block of a logical one, and whether it is unwritten.
    ///
    /// # Errors
    /// As [`Self::walk_blocks`], for nodes on the way.
    pub fn map_block(
        &self,
        record: &RawRecord,
        logical: u64,
    ) -> Result<Option<(u64, bool)>, DebugError> {
        if !record.is_extents() && !record.is_inline() {
            return Ok(self.map_indirect(record, logical)?.map(|at| (at, false)));
        }
        let mut found = None;
        self.walk_blocks(record, &mut |piece| match piece {
            MapStep::Data { logical: first, start, len, is_unwritten }
                if first <= logical && logical - first < len =>
            {
                found = Some((start.saturating_add(logical - first), is_unwritten));
                ControlFlow::Break(())
            }
            MapStep::Data { logical: first, .. } if first > logical => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        })?;
        Ok(found)
    }

    fn map_indirect(&self, record: &RawRecord, logical: u64) -> Result<Option<u64>, DebugError> {
        let shape = IndirectMap::new(self.geometry().block_size);
        let Some(path) = shape.path(FileBlock(logical)) else { return Ok(None) };
        let mut at = pointer(&record.i_block(), path.slot).map_or(0, |at| at.0);
        for position in &path.positions[..path.levels] {
            if at == 0 {
                return Ok(None);
            }
            let bytes = self.indirect_block(at)?;
            at = pointer(&bytes, *position as usize).map_or(0, |at| at.0);
        }
        Ok((at != 0).then_some(at))
    }

    fn indirect_block(&self, at: u64) -> Result<Vec<u8>, DebugError> {
        if !self.geometry().contains(BlockNo(at), 1) {
            return Err(DebugError::IndirectBlock);
        }
        self.block(BlockNo(at))
    }

    fn walk_indirect(&self, record: &RawRecord, visit: Visit<'_>) -> Result<(), DebugError> {
        let shape = IndirectMap::new(self.geometry().block_size);
        // A loop leads to more blocks than there are.
        let mut left = self.geometry().blocks_count.saturating_mul(2).saturating_add(64);
        for slot in 0..15 {
            let Some(at) = pointer(&record.i_block(), slot).filter(|at| at.0 != 0) else {
                continue;
            };
            let levels = (slot + 1).saturating_sub(DIRECT_BLOCKS as usize);
            let first = shape.slot_start(slot).0;
            if self.walk_pointer(&shape, at.0, (first, levels), &mut left, visit)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn walk_pointer(
        &self,
        shape: &IndirectMap,
        at: u64,
        (first, levels): (u64, usize),
        left: &mut u64,
        visit: Visit<'_>,
    ) -> Result<ControlFlow<()>, DebugError> {
        *left = left.checked_sub(1).ok_or(DebugError::Loop)?;
        if levels == 0 {
            let piece = MapStep::Data { logical: first, start: at, len: 1, is_unwritten: false };
            return Ok(visit(piece));
        }
        if visit(MapStep::Node { kind: NodeKind::Indirect(levels), at }).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let bytes = self.indirect_block(at)?;
        for position in 0..bytes.len() / 4 {
            let Some(below) = pointer(&bytes, position).filter(|at| at.0 != 0) else { continue };
            let start = first + position as u64 * shape.covered_by(levels - 1);
            let place = (start, levels - 1);
            if self.walk_pointer(shape, below.0, place, left, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Calls `visit` for every entry of an extent tree, inner ones before what is below them.
    ///
    /// # Errors
    /// As [`Self::walk_blocks`].
    pub fn walk_extents(&self, record: &RawRecord, visit: VisitLine<'_>) -> Result<(), DebugError> {
        let root = record.i_block();
        let header = header_of(&root)?;
        let depth = header.eh_depth.get();
        if depth > extent::MAX_DEPTH {
            return Err(DebugError::ExtentHeader);
        }
        let size = self.geometry().block_size;
        let end = record.size().div_ceil(u64::from(size));
        let mut met = HashSet::new();
        let node = Node { bytes: &root, level: 0, depth, end };
        self.walk_node(record, node, &mut met, visit).map(drop)
    }

    fn walk_node(
        &self,
        record: &RawRecord,
        node: Node<'_>,
        met: &mut HashSet<u64>,
        visit: VisitLine<'_>,
    ) -> Result<ControlFlow<()>, DebugError> {
        let header = header_of(node.bytes)?;
        if header.eh_depth.get() != node.depth - node.level {
            return Err(DebugError::ExtentHeader);
        }
        let entries = header.eh_entries.get();
        let room = node.bytes.len() / ENTRY - 1;
        if usize::from(entries) > room {
            return Err(DebugError::ExtentHeader);
        }
        let is_leaf = node.level == node.depth;
        let stored = |index: u16| {
            let at = (usize::from(index) + 1) * ENTRY;
            node.bytes.get(at..at + ENTRY).unwrap_or_default()
        };
        for index in 0..entries {
            let place = |logical, len, physical, is_unwritten| ExtentLine {
                level: node.level,
                depth: node.depth,
                index: index + 1,
                entries,
                logical,
                len,
                physical,
                is_leaf,
                is_unwritten,
            };
            if is_leaf {
                let Ok(raw) = RawExtent::read_from_bytes(stored(index)) else { break };
                let found = raw.decode();
                let len = u64::from(found.len);
                if visit(place(found.block.0, len, found.start.0, found.is_unwritten)).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                continue;
            }
            let Ok(raw) = RawExtentIndex::read_from_bytes(stored(index)) else { break };
            let found = raw.decode();
            let next = RawExtentIndex::read_from_bytes(stored(index + 1)).ok();
            let end = match next.filter(|_| index + 1 < entries) {
                Some(next) => u64::from(next.ei_block.get()),
                None => node.end,
            };
            let len = end.saturating_sub(found.block.0);
            if visit(place(found.block.0, len, found.leaf.0, false)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if !met.insert(found.leaf.0) {
                return Err(DebugError::Loop);
            }
            let bytes = self.block(found.leaf)?;
            header_of(&bytes)?;
            let owner = NodeOwner {
                inode: record.number,
                generation: record.base().i_generation.get(),
                block: Some(found.leaf),
            };
            if self.verifies && extent::verify(&bytes, &owner, self.geometry()).is_err() {
                return Err(DebugError::ExtentChecksum);
            }
            let below = Node { bytes: &bytes, level: node.level + 1, depth: node.depth, end };
            if self.walk_node(record, below, met, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// A node of an extent tree.
struct Node<'a> {
    bytes: &'a [u8],
    level: u16,
    depth: u16,
    /// The logical block at which what it maps ends, as far as that is known.
    end: u64,
}

fn header_of(bytes: &[u8]) -> Result<RawExtentHeader, DebugError> {
    match RawExtentHeader::read_from_prefix(bytes) {
        Ok((header, _)) if header.eh_magic.get() == EXTENT_MAGIC => Ok(header),
        _ => Err(DebugError::ExtentHeader),
    }
}
