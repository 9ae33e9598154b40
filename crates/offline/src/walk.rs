//! A walk over a file's block map on the device, of extents or of indirect blocks.

use extant_device::Device;
use extant_ondisk::extent::{
    self, Extent, ExtentNode, NodeLimits, NodeOwner, ROOT_SIZE, child_limits,
};
use extant_ondisk::indirect::{DIRECT_BLOCKS, IndirectMap, pointer};
use extant_ondisk::inode::Inode;
use extant_ondisk::{BlockNo, FileBlock, Flaw, FormatError, Geometry, InodeNo, Location};

use crate::OfflineError;

/// A file whose map is walked.
#[derive(Clone, Copy, Debug)]
pub struct MappedFile {
    /// Its inode.
    pub inode: InodeNo,
    /// The inode's generation: checksums of extent nodes depend on it.
    pub generation: u32,
    /// Whether it has an extent tree instead of indirect blocks.
    pub is_extents: bool,
    /// The root of the map.
    pub i_block: [u8; ROOT_SIZE],
}

impl MappedFile {
    /// The file of an inode that has a map.
    pub fn of_inode(number: InodeNo, inode: &Inode) -> Self {
        Self {
            inode: number,
            generation: inode.generation,
            is_extents: inode.is_extent_mapped(),
            i_block: inode.i_block,
        }
    }
}

/// A step of a walk over a map. All blocks are within the volume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MapPart {
    /// An extent node or an indirect block. It is read after this, if the walk continues.
    Node {
        /// The first logical block that it can map.
        first: FileBlock,
        /// Its block number.
        at: BlockNo,
    },
    /// Data blocks. A map of indirect blocks gives one block at a time.
    Data(Extent),
}

/// Walks over a map in file order. Each node is checked as far as possible from its content and its
/// parents. A block that is visited twice is not an error here, and a damaged map of indirect
/// blocks may lead to one repeatedly: the caller sets a limit. Ends after an error.
pub struct MapWalk<'a> {
    device: &'a dyn Device,
    geometry: &'a Geometry,
    file: MappedFile,
    verifies: bool,
    /// The nodes from the root to the current one.
    open: Vec<OpenNode>,
    /// The next node to be read.
    next: Option<Unread>,
}

/// A node in memory.
struct OpenNode {
    bytes: Vec<u8>,
    /// Index of its next entry.
    position: usize,
    kind: Kind,
}

/// A node before it is read: the root, or a block.
enum Unread {
    Root,
    Block(BlockNo, Kind),
}

/// The type of a node, by its position.
enum Kind {
    Extents(NodeLimits),
    /// The slots of `i_block`.
    Slots,
    /// An indirect block: the first logical block that it maps, and the number of levels of
    /// indirect blocks from here to the data, including this one.
    Pointers {
        first: u64,
        levels: usize,
    },
}

enum Entry {
    Hole,
    Data(Extent),
    Node { first: FileBlock, at: BlockNo, kind: Kind },
}

impl<'a> MapWalk<'a> {
    /// A walk over a file's map. `verifies`: whether a wrong checksum of an extent node is an
    /// error.
    pub fn new(
        device: &'a dyn Device,
        geometry: &'a Geometry,
        file: MappedFile,
        verifies: bool,
    ) -> Self {
        Self { device, geometry, file, verifies, open: Vec::new(), next: Some(Unread::Root) }
    }

    fn step(&mut self) -> Result<Option<MapPart>, OfflineError> {
        match self.next.take() {
            None => {}
            Some(Unread::Root) => {
                let is_extents = self.file.is_extents;
                let kind = if is_extents { Kind::Extents(NodeLimits::ROOT) } else { Kind::Slots };
                self.enter(None, self.file.i_block.to_vec(), kind)?;
            }
            Some(Unread::Block(at, kind)) => {
                let mut bytes = vec![0; self.geometry.block_len()];
                self.device.read_at(self.geometry.byte_of(at), &mut bytes)?;
                self.enter(Some(at), bytes, kind)?;
            }
        }
        while let Some(node) = self.open.last() {
            let entry = self.entry(node)?;
            let Some(node) = self.open.last_mut() else { break };
            node.position += 1;
            match entry {
                None => {
                    self.open.pop();
                }
                Some(Entry::Hole) => {}
                Some(Entry::Data(extent)) => return Ok(Some(MapPart::Data(extent))),
                Some(Entry::Node { first, at, kind }) => {
                    self.next = Some(Unread::Block(at, kind));
                    return Ok(Some(MapPart::Node { first, at }));
                }
            }
        }
        Ok(None)
    }

    fn enter(
        &mut self,
        block: Option<BlockNo>,
        bytes: Vec<u8>,
        kind: Kind,
    ) -> Result<(), FormatError> {
        if let Kind::Extents(limits) = &kind {
            let owner =
                NodeOwner { inode: self.file.inode, generation: self.file.generation, block };
            if self.verifies {
                extent::verify(&bytes, &owner, self.geometry)?;
            }
            ExtentNode::check(&bytes, &owner, limits, self.geometry)?;
        }
        self.open.push(OpenNode { bytes, position: 0, kind });
        Ok(())
    }

    /// The next entry of a node; `None` past its end.
    fn entry(&self, node: &OpenNode) -> Result<Option<Entry>, FormatError> {
        let position = node.position;
        let shape = IndirectMap::new(self.geometry.block_size);
        let (first, levels) = match &node.kind {
            Kind::Extents(limits) => return Ok(extent_entry(&node.bytes, position, limits)),
            Kind::Slots => {
                let levels = (position + 1).saturating_sub(DIRECT_BLOCKS as usize);
                (shape.slot_start(position).0, levels)
            }
            Kind::Pointers { first, levels } => {
                (first + position as u64 * shape.covered_by(levels - 1), levels - 1)
            }
        };
        let Some(at) = pointer(&node.bytes, position) else { return Ok(None) };
        if at.0 == 0 {
            return Ok(Some(Entry::Hole));
        }
        if !self.geometry.contains(at, 1) {
            let flaw = Flaw::above_limit("block", at.0, self.geometry.blocks_count);
            return Err(flaw.at(Location::Inode(self.file.inode)));
        }
        let block = FileBlock(first);
        Ok(Some(match levels {
            0 => Entry::Data(Extent { block, len: 1, start: at, is_unwritten: false }),
            _ => Entry::Node { first: block, at, kind: Kind::Pointers { first, levels } },
        }))
    }
}

fn extent_entry(bytes: &[u8], position: usize, limits: &NodeLimits) -> Option<Entry> {
    match ExtentNode::parse(bytes)? {
        ExtentNode::Leaf(extents) => Some(Entry::Data(extents.get(position)?.decode())),
        ExtentNode::Index(indexes, below) => {
            let (index, limits) = child_limits(indexes, below, position, limits)?;
            let kind = Kind::Extents(limits);
            Some(Entry::Node { first: index.block, at: index.leaf, kind })
        }
    }
}

impl Iterator for MapWalk<'_> {
    type Item = Result<MapPart, OfflineError>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.step();
        if found.is_err() {
            self.open.clear();
        }
        found.transpose()
    }
}
