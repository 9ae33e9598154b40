//! Extent trees: runs of blocks and pointers to them.
//!
//! Source: the kernel's `ifork.rst`. A node is a 12-byte header and entries of 12 bytes: extents in
//! a leaf, index entries above. The root fills the 60 bytes of `i_block`; other nodes fill a block
//! and with metadata_csum end with a checksum.
//!
//! [`ExtentNode::check`] validates a node once, when it is read; after that, [`ExtentNode`]
//! searches without further checks. [`OwnedNode`] is the form for creating and changing nodes.

use crate::checksum::Crc32c;
use crate::geometry::Geometry;
use crate::types::{BlockNo, FileBlock, InodeNo, MAX_BLOCKS, MAX_FILE_BLOCKS};
use crate::{Flaw, FormatError, Location};
use alloc::vec::Vec;
use core::mem::{offset_of, size_of};
use core::ops::Range;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `eh_magic`.
pub const EXTENT_MAGIC: u16 = 0xf30a;
/// Maximum depth of a root: enough for 2^32 blocks with blocks of 1 KiB.
pub const MAX_DEPTH: u16 = 5;
/// Size in bytes of `i_block`, the root.
pub const ROOT_SIZE: usize = 60;
/// Maximum number of blocks of a written extent.
pub const MAX_WRITTEN_LEN: u32 = 32768;
/// Maximum number of blocks of an unwritten extent.
pub const MAX_UNWRITTEN_LEN: u32 = 32767;

const HEADER_SIZE: usize = size_of::<RawExtentHeader>();
const ENTRY_SIZE: usize = size_of::<RawExtent>();
const TAIL_SIZE: usize = 4;

/// The header of a node as stored, little-endian.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[allow(missing_docs, reason = "the kernel's field names, documented in ifork.rst")]
pub struct RawExtentHeader {
    pub eh_magic: U16,
    pub eh_entries: U16,
    pub eh_max: U16,
    pub eh_depth: U16,
    pub eh_generation: U32,
}

/// An index entry as stored, little-endian.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[allow(missing_docs, reason = "the kernel's field names, documented in ifork.rst")]
pub struct RawExtentIndex {
    pub ei_block: U32,
    pub ei_leaf_lo: U32,
    pub ei_leaf_hi: U16,
    pub ei_unused: U16,
}

/// A leaf entry as stored, little-endian.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[allow(missing_docs, reason = "the kernel's field names, documented in ifork.rst")]
pub struct RawExtent {
    pub ee_block: U32,
    pub ee_len: U16,
    pub ee_start_hi: U16,
    pub ee_start_lo: U32,
}

const _: () = assert!(size_of::<RawExtentHeader>() == 12);
const _: () = assert!(size_of::<RawExtentIndex>() == 12);
const _: () = assert!(size_of::<RawExtent>() == 12);
const _: () = assert!(offset_of!(RawExtent, ee_start_lo) == 8);
const _: () = assert!(offset_of!(RawExtentIndex, ei_leaf_hi) == 8);

/// Number of entries in a node of `node_size` bytes: 4 in a root, 340 in a block of 4 KiB.
pub fn capacity(node_size: usize) -> u16 {
    // At most 5,460, for a block of 64 KiB.
    (node_size.saturating_sub(HEADER_SIZE) / ENTRY_SIZE) as u16
}

/// A run of a file's blocks.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Extent {
    /// First logical block.
    pub block: FileBlock,
    /// Number of blocks: 1 to [`MAX_WRITTEN_LEN`], or to [`MAX_UNWRITTEN_LEN`] if unwritten.
    pub len: u32,
    /// First physical block.
    pub start: BlockNo,
    /// Whether the blocks are allocated but read as zeros.
    pub is_unwritten: bool,
}

impl Extent {
    /// The logical block after the last.
    pub fn end(&self) -> FileBlock {
        FileBlock(self.block.0.saturating_add(u64::from(self.len)))
    }

    /// Whether the logical block is in this extent.
    pub fn contains(&self, block: FileBlock) -> bool {
        self.block <= block && block < self.end()
    }

    /// The physical block of a logical block; `None` for one outside this extent.
    pub fn physical(&self, block: FileBlock) -> Option<BlockNo> {
        if self.contains(block) { self.start.checked_add(block.0 - self.block.0) } else { None }
    }

    /// Maximum number of blocks of an entry.
    pub fn max_len(is_unwritten: bool) -> u32 {
        if is_unwritten { MAX_UNWRITTEN_LEN } else { MAX_WRITTEN_LEN }
    }

    /// Whether `next` continues this extent, so that both can be merged (up to the length limit).
    pub fn is_continued_by(&self, next: &Self) -> bool {
        self.is_unwritten == next.is_unwritten
            && self.end() == next.block
            && self.start.checked_add(u64::from(self.len)) == Some(next.start)
            && self.len + next.len <= Self::max_len(self.is_unwritten)
    }
}

/// Joins extents that continue the one before them.
pub fn join(extents: &mut Vec<Extent>) {
    extents.dedup_by(|next, before| {
        let is_continued = before.is_continued_by(next);
        if is_continued {
            before.len += next.len;
        }
        is_continued
    });
}

impl RawExtent {
    /// Joins the halves. A length above 32,768 means unwritten.
    pub fn decode(&self) -> Extent {
        let len = u32::from(self.ee_len.get());
        let is_unwritten = len > MAX_WRITTEN_LEN;
        Extent {
            block: FileBlock(u64::from(self.ee_block.get())),
            len: if is_unwritten { len - MAX_WRITTEN_LEN } else { len },
            start: joined(self.ee_start_lo, self.ee_start_hi),
            is_unwritten,
        }
    }

    /// Encodes the stored form.
    ///
    /// # Panics
    /// If the extent exceeds a limit of the format: a programming error, not disk damage.
    pub fn encode(extent: &Extent) -> Self {
        let max = Extent::max_len(extent.is_unwritten);
        assert!((1..=max).contains(&extent.len), "length of {extent:?}");
        assert!(extent.end().0 <= MAX_FILE_BLOCKS, "end of {extent:?}");
        let len = if extent.is_unwritten { extent.len + MAX_WRITTEN_LEN } else { extent.len };
        let (low, high) = split(extent.start);
        Self {
            ee_block: U32::new(extent.block.0 as u32),
            ee_len: U16::new(len as u16),
            ee_start_hi: high,
            ee_start_lo: low,
        }
    }
}

/// A pointer to a node one level down.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ExtentIndex {
    /// First logical block of the node below; its end is that of the next entry.
    pub block: FileBlock,
    /// The block of the node below.
    pub leaf: BlockNo,
    /// `ei_unused`, preserved.
    pub unused: u16,
}

impl RawExtentIndex {
    /// Joins the halves.
    pub fn decode(&self) -> ExtentIndex {
        ExtentIndex {
            block: FileBlock(u64::from(self.ei_block.get())),
            leaf: joined(self.ei_leaf_lo, self.ei_leaf_hi),
            unused: self.ei_unused.get(),
        }
    }

    /// Encodes the stored form.
    ///
    /// # Panics
    /// If it exceeds a limit of the format: a programming error, not disk damage.
    pub fn encode(index: &ExtentIndex) -> Self {
        assert!(index.block.0 <= MAX_FILE_BLOCKS, "block of {index:?}");
        let (low, high) = split(index.leaf);
        Self {
            ei_block: U32::new(index.block.0 as u32),
            ei_leaf_lo: low,
            ei_leaf_hi: high,
            ei_unused: U16::new(index.unused),
        }
    }
}

fn joined(low: U32, high: U16) -> BlockNo {
    BlockNo(u64::from(low.get()) | u64::from(high.get()) << 32)
}

fn split(block: BlockNo) -> (U32, U16) {
    assert!(block.0 < MAX_BLOCKS, "physical block {block}");
    (U32::new((block.0 & 0xffff_ffff) as u32), U16::new((block.0 >> 32) as u16))
}

/// The owner and block of a node, for messages and for the checksum.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NodeOwner {
    /// The inode.
    pub inode: InodeNo,
    /// Its `i_generation`.
    pub generation: u32,
    /// The node's block; `None` for the root.
    pub block: Option<BlockNo>,
}

impl NodeOwner {
    /// The node's location for messages.
    pub fn location(&self) -> Location {
        Location::ExtentNode(self.inode, self.block)
    }
}

/// The limits of a node that follow from its parent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeLimits {
    /// Number of levels below: `None` for a root, which may have up to [`MAX_DEPTH`].
    pub depth: Option<u16>,
    /// The logical blocks that it may map.
    pub blocks: Range<u64>,
}

impl NodeLimits {
    /// The limits of a root.
    pub const ROOT: Self = Self { depth: None, blocks: 0..MAX_FILE_BLOCKS };
}

/// A checked node, borrowed from its bytes.
#[derive(Clone, Copy, Debug)]
pub enum ExtentNode<'a> {
    /// Extents, in order and without overlaps.
    Leaf(&'a [RawExtent]),
    /// Index entries for nodes of the given depth, in order.
    Index(&'a [RawExtentIndex], u16),
}

impl<'a> ExtentNode<'a> {
    /// Validates a node: magic number, counts, depth, order, overlaps, its parent's range, blocks
    /// within the volume. [`verify`] checks the checksum.
    ///
    /// # Errors
    /// The first flaw, with the node's location.
    pub fn check(
        bytes: &'a [u8],
        owner: &NodeOwner,
        limits: &NodeLimits,
        geometry: &Geometry,
    ) -> Result<Self, FormatError> {
        Self::checked(bytes, limits, geometry).map_err(|flaw| flaw.at(owner.location()))
    }

    fn checked(bytes: &'a [u8], limits: &NodeLimits, geometry: &Geometry) -> Result<Self, Flaw> {
        let header = check_header(bytes)?;
        let depth = header.eh_depth.get();
        match limits.depth {
            Some(expected) if depth != expected => {
                return Err(Flaw::bad_value("eh_depth", depth));
            }
            None if depth > MAX_DEPTH => {
                return Err(Flaw::above_limit("eh_depth", depth, MAX_DEPTH));
            }
            _ => {}
        }
        let node = Self::parse(bytes).ok_or(Flaw::truncated(bytes.len(), HEADER_SIZE))?;
        match node {
            Self::Leaf(extents) => check_extents(extents, &limits.blocks, geometry)?,
            Self::Index(indexes, _) => check_indexes(indexes, &limits.blocks, geometry)?,
        }
        Ok(node)
    }

    /// Parses a node that was checked before; `None` if its counts do not fit its length.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = RawExtentHeader::ref_from_prefix(bytes).ok()?;
        let entries = usize::from(header.eh_entries.get());
        match header.eh_depth.get() {
            0 => {
                let (extents, _) = <[RawExtent]>::ref_from_prefix_with_elems(rest, entries).ok()?;
                Some(Self::Leaf(extents))
            }
            depth => {
                let (indexes, _) =
                    <[RawExtentIndex]>::ref_from_prefix_with_elems(rest, entries).ok()?;
                Some(Self::Index(indexes, depth - 1))
            }
        }
    }

    /// Number of levels below this node: 0 for a leaf.
    pub fn depth(&self) -> u16 {
        match self {
            Self::Leaf(_) => 0,
            Self::Index(_, below) => below.saturating_add(1),
        }
    }

    /// Index of the last entry that starts at or before a logical block; `None` if all start after
    /// it.
    pub fn position(&self, block: FileBlock) -> Option<usize> {
        let after = match self {
            Self::Leaf(extents) => {
                extents.partition_point(|raw| u64::from(raw.ee_block.get()) <= block.0)
            }
            Self::Index(indexes, _) => {
                indexes.partition_point(|raw| u64::from(raw.ei_block.get()) <= block.0)
            }
        };
        after.checked_sub(1)
    }
}

/// The index entry at a position, with the limits of its node: its blocks end where those of the
/// next entry begin, those of the last one where the parent's end.
pub fn child_limits(
    indexes: &[RawExtentIndex],
    depth_below: u16,
    position: usize,
    parent: &NodeLimits,
) -> Option<(ExtentIndex, NodeLimits)> {
    let index = indexes.get(position)?.decode();
    let end =
        indexes.get(position + 1).map_or(parent.blocks.end, |next| u64::from(next.ei_block.get()));
    let limits = NodeLimits { depth: Some(depth_below), blocks: index.block.0..end };
    Some((index, limits))
}

fn check_header(bytes: &[u8]) -> Result<&RawExtentHeader, Flaw> {
    let (header, _) = RawExtentHeader::ref_from_prefix(bytes)
        .map_err(|_| Flaw::truncated(bytes.len(), HEADER_SIZE))?;
    if header.eh_magic.get() != EXTENT_MAGIC {
        return Err(Flaw::magic(header.eh_magic.get(), EXTENT_MAGIC));
    }
    let (entries, max) = (header.eh_entries.get(), header.eh_max.get());
    if max > capacity(bytes.len()) {
        return Err(Flaw::above_limit("eh_max", max, capacity(bytes.len())));
    }
    if max == 0 {
        return Err(Flaw::below_limit("eh_max", max, 1_u16));
    }
    if entries > max {
        return Err(Flaw::above_limit("eh_entries", entries, max));
    }
    if entries == 0 && header.eh_depth.get() > 0 {
        return Err(Flaw::below_limit("eh_entries", entries, 1_u16));
    }
    Ok(header)
}

fn check_extents(
    extents: &[RawExtent],
    limits: &Range<u64>,
    geometry: &Geometry,
) -> Result<(), Flaw> {
    let mut free_from = limits.start;
    for raw in extents {
        let extent = raw.decode();
        if extent.len == 0 {
            return Err(Flaw::below_limit("ee_len", 0_u32, 1_u32));
        }
        if extent.block.0 < free_from {
            return Err(Flaw::below_limit("ee_block", extent.block.0, free_from));
        }
        if extent.end().0 > limits.end {
            return Err(Flaw::above_limit("end of the extent", extent.end().0, limits.end));
        }
        if !geometry.contains(extent.start, u64::from(extent.len)) {
            return Err(Flaw::bad_value("ee_start", extent.start.0));
        }
        free_from = extent.end().0;
    }
    Ok(())
}

fn check_indexes(
    indexes: &[RawExtentIndex],
    limits: &Range<u64>,
    geometry: &Geometry,
) -> Result<(), Flaw> {
    let mut least = limits.start;
    for raw in indexes {
        let index = raw.decode();
        if index.block.0 < least {
            return Err(Flaw::below_limit("ei_block", index.block.0, least));
        }
        if index.block.0 >= limits.end {
            return Err(Flaw::above_limit("ei_block", index.block.0, limits.end - 1));
        }
        if !geometry.contains(index.leaf, 1) {
            return Err(Flaw::bad_value("ei_leaf", index.leaf.0));
        }
        least = index.block.0 + 1;
    }
    Ok(())
}

/// Verifies the checksum at a block's end. Ok for a root, and without metadata_csum.
///
/// # Errors
/// [`Flaw::Checksum`], or [`Flaw::AboveLimit`] if `eh_max` leaves no room for the checksum.
pub fn verify(bytes: &[u8], owner: &NodeOwner, geometry: &Geometry) -> Result<(), FormatError> {
    if owner.block.is_none() || !geometry.has_metadata_csum() {
        return Ok(());
    }
    let at = tail_at(bytes).map_err(|flaw| flaw.at(owner.location()))?;
    let (covered, tail) = bytes.split_at(at);
    let found = tail.first_chunk::<TAIL_SIZE>().map_or(0, |tail| u32::from_le_bytes(*tail));
    let computed = checksum(covered, owner, geometry);
    if found != computed {
        return Err(Flaw::checksum(found, computed).at(owner.location()));
    }
    Ok(())
}

/// Sets the checksum; the last step before a block is written. A root has no checksum of its own.
///
/// # Panics
/// If the bytes are not a node with room for the checksum: a programming error, not disk damage.
pub fn seal(bytes: &mut [u8], owner: &NodeOwner, geometry: &Geometry) {
    if owner.block.is_none() || !geometry.has_metadata_csum() {
        return;
    }
    let at = tail_at(bytes).expect("a node just encoded leaves room for its checksum");
    let computed = checksum(&bytes[..at], owner, geometry);
    bytes[at..at + TAIL_SIZE].copy_from_slice(&computed.to_le_bytes());
}

/// Position of the checksum, after the last entry that `eh_max` allows.
fn tail_at(bytes: &[u8]) -> Result<usize, Flaw> {
    let header = check_header(bytes)?;
    let max = header.eh_max.get();
    let at = HEADER_SIZE + ENTRY_SIZE * usize::from(max);
    if at + TAIL_SIZE > bytes.len() {
        return Err(Flaw::above_limit("eh_max", max, capacity(bytes.len() - TAIL_SIZE)));
    }
    Ok(at)
}

fn checksum(covered: &[u8], owner: &NodeOwner, geometry: &Geometry) -> u32 {
    Crc32c::seeded(geometry.checksum_seed)
        .le32(owner.inode.0)
        .le32(owner.generation)
        .bytes(covered)
        .value()
}

/// The entries of an [`OwnedNode`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NodeEntries {
    /// Extents of a leaf.
    Leaf(Vec<Extent>),
    /// Index entries, and the depth of the nodes below.
    Index(Vec<ExtentIndex>, u16),
}

/// A node for creation and changes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OwnedNode {
    /// Maximum number of entries.
    pub max: u16,
    /// `eh_generation`, preserved.
    pub generation: u32,
    /// The entries.
    pub entries: NodeEntries,
}

impl OwnedNode {
    /// An empty leaf for a node of `node_size` bytes: [`ROOT_SIZE`] or a block.
    pub fn empty_leaf(node_size: usize) -> Self {
        Self { max: capacity(node_size), generation: 0, entries: NodeEntries::Leaf(Vec::new()) }
    }

    /// Decodes a node, with the checks of [`ExtentNode::check`].
    ///
    /// # Errors
    /// Those of [`ExtentNode::check`].
    pub fn decode(
        bytes: &[u8],
        owner: &NodeOwner,
        limits: &NodeLimits,
        geometry: &Geometry,
    ) -> Result<Self, FormatError> {
        let node = ExtentNode::check(bytes, owner, limits, geometry)?;
        let header = check_header(bytes).map_err(|flaw| flaw.at(owner.location()))?;
        let entries = match node {
            ExtentNode::Leaf(extents) => {
                NodeEntries::Leaf(extents.iter().map(RawExtent::decode).collect())
            }
            ExtentNode::Index(indexes, below) => {
                NodeEntries::Index(indexes.iter().map(RawExtentIndex::decode).collect(), below)
            }
        };
        Ok(Self { max: header.eh_max.get(), generation: header.eh_generation.get(), entries })
    }

    /// Writes header and entries. Bytes after them are not changed.
    ///
    /// # Panics
    /// If the node does not fit in the bytes or exceeds a limit of the format: a programming error,
    /// not disk damage.
    pub fn encode_into(&self, bytes: &mut [u8]) {
        let (count, depth) = match &self.entries {
            NodeEntries::Leaf(extents) => (extents.len(), 0),
            NodeEntries::Index(indexes, below) => (indexes.len(), below + 1),
        };
        assert!(self.max <= capacity(bytes.len()), "{} entries in {}", self.max, bytes.len());
        assert!(count <= usize::from(self.max), "{count} entries of {}", self.max);
        let header = RawExtentHeader {
            eh_magic: U16::new(EXTENT_MAGIC),
            eh_entries: U16::new(count as u16),
            eh_max: U16::new(self.max),
            eh_depth: U16::new(depth),
            eh_generation: U32::new(self.generation),
        };
        let (head, rest) = bytes.split_at_mut(HEADER_SIZE);
        head.copy_from_slice(header.as_bytes());
        let places = rest.chunks_exact_mut(ENTRY_SIZE);
        match &self.entries {
            NodeEntries::Leaf(extents) => {
                for (place, extent) in places.zip(extents) {
                    place.copy_from_slice(RawExtent::encode(extent).as_bytes());
                }
            }
            NodeEntries::Index(indexes, _) => {
                for (place, index) in places.zip(indexes) {
                    place.copy_from_slice(RawExtentIndex::encode(index).as_bytes());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock::RawSuperblock;
    use alloc::vec;
    use proptest::prelude::*;
    use zerocopy::FromZeros;

    /// A volume of 2^20 blocks of 4 KiB with metadata_csum.
    fn geometry() -> Geometry {
        let mut raw = RawSuperblock::new_zeroed();
        raw.s_log_block_size.set(2);
        raw.s_log_cluster_size.set(2);
        raw.s_blocks_count_lo.set(1 << 20);
        raw.s_blocks_per_group.set(32768);
        raw.s_clusters_per_group.set(32768);
        raw.s_inodes_per_group.set(8192);
        raw.s_inodes_count.set(8192 * 32);
        raw.s_rev_level.set(1);
        raw.s_inode_size.set(256);
        raw.s_first_ino.set(11);
        raw.s_feature_ro_compat.set(crate::RoCompatFeatures::METADATA_CSUM.bits());
        Geometry::new(&raw).expect("a possible volume")
    }

    const OWNER: NodeOwner =
        NodeOwner { inode: InodeNo(12), generation: 7, block: Some(BlockNo(99)) };

    fn extent(block: u64, len: u32, start: u64, is_unwritten: bool) -> Extent {
        Extent { block: FileBlock(block), len, start: BlockNo(start), is_unwritten }
    }

    fn leaf(extents: &[Extent]) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        let node = OwnedNode {
            entries: NodeEntries::Leaf(extents.to_vec()),
            ..OwnedNode::empty_leaf(4096)
        };
        node.encode_into(&mut bytes);
        bytes
    }

    fn flaw_of(bytes: &[u8], limits: &NodeLimits) -> Flaw {
        match ExtentNode::check(bytes, &OWNER, limits, &geometry()) {
            Err(FormatError::Corrupt { location, flaw }) => {
                assert_eq!(location, OWNER.location());
                flaw
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn capacities_are_those_of_the_block_sizes() {
        let sizes = [60, 1024, 2048, 4096, 65536];
        assert_eq!(sizes.map(capacity), [4, 84, 169, 340, 5460]);
    }

    #[test]
    fn a_length_above_32768_means_unwritten() {
        let mut raw = RawExtent::encode(&extent(0, 32768, 5, false));
        assert_eq!(raw.ee_len.get(), 0x8000);
        assert_eq!(raw.decode(), extent(0, 32768, 5, false));
        raw.ee_len.set(0x8001);
        assert_eq!(raw.decode(), extent(0, 1, 5, true));
        raw.ee_len.set(0xffff);
        assert_eq!(raw.decode().len, MAX_UNWRITTEN_LEN);
    }

    #[test]
    fn physical_blocks_have_48_bits() {
        let far = extent(0, 1, (1 << 48) - 1, false);
        assert_eq!(RawExtent::encode(&far).decode(), far);
    }

    #[test]
    fn overlapping_extents_are_refused() {
        let bytes = leaf(&[extent(0, 10, 100, false), extent(9, 1, 200, false)]);
        assert_eq!(
            flaw_of(&bytes, &NodeLimits::ROOT),
            Flaw::below_limit("ee_block", 9_u32, 10_u32)
        );
    }

    #[test]
    fn an_extent_of_no_blocks_is_refused() {
        let mut bytes = leaf(&[extent(0, 10, 100, false)]);
        bytes[HEADER_SIZE + 4..HEADER_SIZE + 6].fill(0);
        assert_eq!(flaw_of(&bytes, &NodeLimits::ROOT), Flaw::below_limit("ee_len", 0_u32, 1_u32));
    }

    #[test]
    fn an_extent_outside_its_parents_range_is_refused() {
        let bytes = leaf(&[extent(5, 10, 100, false)]);
        let limits = NodeLimits { depth: Some(0), blocks: 5..14 };
        assert_eq!(
            flaw_of(&bytes, &limits),
            Flaw::above_limit("end of the extent", 15_u32, 14_u32)
        );
        let limits = NodeLimits { depth: Some(0), blocks: 6..15 };
        assert_eq!(flaw_of(&bytes, &limits), Flaw::below_limit("ee_block", 5_u32, 6_u32));
    }

    #[test]
    fn an_extent_off_the_volume_is_refused() {
        let bytes = leaf(&[extent(0, 10, (1 << 20) - 9, false)]);
        assert_eq!(
            flaw_of(&bytes, &NodeLimits::ROOT),
            Flaw::bad_value("ee_start", (1_u32 << 20) - 9)
        );
    }

    #[test]
    fn a_node_of_another_depth_than_its_parent_says_is_refused() {
        let limits = NodeLimits { depth: Some(1), ..NodeLimits::ROOT };
        assert_eq!(flaw_of(&leaf(&[]), &limits), Flaw::bad_value("eh_depth", 0_u32));
    }

    #[test]
    fn more_entries_than_fit_are_refused() {
        let mut bytes = leaf(&[]);
        bytes[2..4].copy_from_slice(&341_u16.to_le_bytes());
        assert_eq!(
            flaw_of(&bytes, &NodeLimits::ROOT),
            Flaw::above_limit("eh_entries", 341_u16, 340_u16)
        );
        bytes[4..6].copy_from_slice(&341_u16.to_le_bytes());
        assert_eq!(
            flaw_of(&bytes, &NodeLimits::ROOT),
            Flaw::above_limit("eh_max", 341_u16, 340_u16)
        );
    }

    #[test]
    fn a_sealed_block_verifies_until_a_byte_changes() {
        let mut bytes = leaf(&[extent(0, 10, 100, false)]);
        seal(&mut bytes, &OWNER, &geometry());
        assert_eq!(verify(&bytes, &OWNER, &geometry()), Ok(()));
        bytes[20] ^= 1;
        assert!(verify(&bytes, &OWNER, &geometry()).is_err());
    }

    #[test]
    fn a_childs_blocks_end_where_the_next_ones_begin() {
        let raw = [0_u64, 10, 20].map(|block| {
            RawExtentIndex::encode(&ExtentIndex {
                block: FileBlock(block),
                leaf: BlockNo(50 + block),
                unused: 0,
            })
        });
        let parent = NodeLimits { depth: None, blocks: 0..25 };
        let ends: Vec<_> = (0..4).map(|at| child_limits(&raw, 0, at, &parent)).collect();
        let blocks: Vec<_> =
            ends.iter().flatten().map(|(_, limits)| limits.blocks.clone()).collect();
        assert_eq!(blocks, [0..10, 10..20, 20..25]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_checked_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), depth in 0_u16..7) {
            let mut bytes = bytes;
            if let Some(magic) = bytes.first_chunk_mut::<2>() {
                *magic = EXTENT_MAGIC.to_le_bytes();
            }
            let limits = NodeLimits { depth: (depth < 6).then_some(depth), ..NodeLimits::ROOT };
            let _ = verify(&bytes, &OWNER, &geometry());
            let _ = ExtentNode::parse(&bytes).and_then(|node| node.position(FileBlock(5)));
            let _ = OwnedNode::decode(&bytes, &OWNER, &limits, &geometry());
        }

        #[test]
        fn what_was_decoded_encodes_to_the_same_bytes(
            runs in prop::collection::vec((0_u64..50, 1_u32..40, 1_u64..1000, any::<bool>()), 0..340),
            filler: u8,
        ) {
            let mut at = 0;
            let extents: Vec<_> = runs.into_iter().map(|(gap, len, start, is_unwritten)| {
                let run = extent(at + gap, len, start, is_unwritten);
                at = run.end().0;
                run
            }).collect();
            let mut bytes = leaf(&extents);
            bytes[HEADER_SIZE + ENTRY_SIZE * extents.len()..].fill(filler);
            let node = OwnedNode::decode(&bytes, &OWNER, &NodeLimits::ROOT, &geometry()).unwrap();
            let before = bytes.clone();
            node.encode_into(&mut bytes);
            prop_assert_eq!(bytes, before);
        }

        #[test]
        fn a_lookup_finds_the_run_that_holds_the_block(
            runs in prop::collection::vec((0_u64..3, 1_u32..4), 1..100),
            block in 0_u64..400,
        ) {
            let mut at = 0;
            let extents: Vec<_> = runs.into_iter().map(|(gap, len)| {
                let run = extent(at + gap, len, 1, false);
                at = run.end().0;
                run
            }).collect();
            let bytes = leaf(&extents);
            let node = ExtentNode::parse(&bytes).unwrap();
            let slow = extents.iter().rposition(|run| run.block.0 <= block);
            prop_assert_eq!(node.position(FileBlock(block)), slow);
        }
    }
}
