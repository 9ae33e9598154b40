//! The index (htree) of a hashed directory: a root in the first block, nodes below it, and ordinary
//! directory blocks as leaves.
//!
//! Source: `directory.rst`. `docs/src/internals/on-disk.md` has the rest: limit and count are
//! stored in the first entry's hash word, `indirect_levels` is the number of levels between root
//! and leaves, and bit 0 of an entry's hash marks a continuation. Implementations without htree
//! support see free entries in index blocks.

use crate::checksum::Crc32c;
use crate::dirent::{FileType, RawDirEntry};
use crate::dx_hash::HashVersion;
use crate::features::IncompatFeatures;
use crate::types::{FileBlock, InodeNo};
use crate::{Flaw, FormatError, Geometry, Location};
use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `dx_root_info.info_length`: the only defined value.
const INFO_LEN: u8 = 8;
/// Length in bytes of the tail with an index block's checksum.
const TAIL_LEN: usize = 8;
/// Maximum number of levels between root and leaves, without and with `large_dir`.
const MAX_LEVELS: u8 = 1;
const MAX_LEVELS_LARGEDIR: u8 = 2;

/// The fixed part of the root, as stored: the entries `.` and `..`, then the parameters of the
/// tree.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[allow(missing_docs, reason = "the kernel's field names, documented in directory.rst")]
pub struct RawHtreeRoot {
    pub dot: RawDirEntry,
    pub dot_name: [u8; 4],
    pub dotdot: RawDirEntry,
    pub dotdot_name: [u8; 4],
    pub reserved_zero: U32,
    pub hash_version: u8,
    pub info_length: u8,
    pub indirect_levels: u8,
    pub unused_flags: u8,
}

/// An index entry as stored. The first one of a block has limit and count instead of a hash.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, PartialEq, Unaligned,
)]
#[allow(missing_docs, reason = "the kernel's field names, documented in directory.rst")]
pub struct RawHtreeEntry {
    pub hash: U32,
    pub block: U32,
}

/// Limit and count, in the hash word of the first entry.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
struct RawCounts {
    limit: U16,
    count: U16,
}

/// The checksum tail of an index block.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
struct RawHtreeTail {
    dt_reserved: U32,
    dt_checksum: U32,
}

const _: () = assert!(size_of::<RawHtreeRoot>() == 32);
const _: () = assert!(offset_of!(RawHtreeRoot, hash_version) == 0x1c);
const _: () = assert!(offset_of!(RawHtreeRoot, indirect_levels) == 0x1e);
const _: () = assert!(size_of::<RawHtreeEntry>() == 8);
const _: () = assert!(size_of::<RawHtreeTail>() == TAIL_LEN);

/// The type of an index block, which determines where its entries start.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum IndexKind {
    /// The directory's first block.
    Root,
    /// A node below the root.
    Node,
}

impl IndexKind {
    /// Byte where the entries start: after the root's fixed part, or after the header of a free
    /// entry.
    fn entries_at(self) -> usize {
        match self {
            Self::Root => size_of::<RawHtreeRoot>(),
            Self::Node => size_of::<RawDirEntry>(),
        }
    }
}

/// The format of a directory's index blocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HtreeFormat {
    /// The directory.
    pub inode: InodeNo,
    /// Block size in bytes.
    pub block_len: usize,
    /// The inode's checksum seed with metadata_csum; blocks then end with a tail.
    pub checksum_seed: Option<u32>,
    /// Whether directory entries have the file type.
    pub has_filetype: bool,
    /// Maximum number of levels between root and leaves.
    pub max_levels: u8,
}

impl HtreeFormat {
    /// The format of a directory's index.
    pub fn new(geometry: &Geometry, inode: InodeNo, generation: u32) -> Self {
        Self {
            inode,
            block_len: geometry.block_len(),
            checksum_seed: geometry
                .has_metadata_csum()
                .then(|| geometry.inode_checksum_seed(inode, generation)),
            has_filetype: geometry.has_incompat(IncompatFeatures::FILETYPE),
            max_levels: if geometry.has_incompat(IncompatFeatures::LARGEDIR) {
                MAX_LEVELS_LARGEDIR
            } else {
                MAX_LEVELS
            },
        }
    }

    /// Maximum number of entries of a block, including the first one (without a hash): the stored
    /// limit.
    pub fn capacity(&self, kind: IndexKind) -> usize {
        let tail = if self.checksum_seed.is_some() { TAIL_LEN } else { 0 };
        (self.block_len - kind.entries_at() - tail) / size_of::<RawHtreeEntry>()
    }

    /// Reads the root: the parameters of the tree, and its entries.
    ///
    /// # Errors
    /// An unknown hash version, too many levels, or an error of [`Self::node`].
    pub fn root<'a>(&self, block: &'a [u8]) -> Result<(HtreeRoot, HtreeNode<'a>), FormatError> {
        let location = Location::Htree(self.inode, FileBlock(0));
        let (raw, _) = RawHtreeRoot::read_from_prefix(block)
            .map_err(|_| Flaw::truncated(block.len(), size_of::<RawHtreeRoot>()).at(location))?;
        if raw.info_length != INFO_LEN {
            return Err(Flaw::bad_value("info_length", raw.info_length).at(location));
        }
        let hash_version = HashVersion::decode(raw.hash_version)
            .ok_or(Flaw::bad_value("hash_version", raw.hash_version).at(location))?;
        if raw.indirect_levels > self.max_levels {
            let flaw = Flaw::above_limit("indirect_levels", raw.indirect_levels, self.max_levels);
            return Err(flaw.at(location));
        }
        let root = HtreeRoot { hash_version, indirect_levels: raw.indirect_levels };
        Ok((root, self.node(block, FileBlock(0), IndexKind::Root)?))
    }

    /// Reads the entries of an index block. [`HtreeNode::check_order`] checks their order.
    ///
    /// # Errors
    /// The limit does not fit in the block, or the count is 0 or above the limit.
    pub fn node<'a>(
        &self,
        block: &'a [u8],
        at: FileBlock,
        kind: IndexKind,
    ) -> Result<HtreeNode<'a>, FormatError> {
        let location = Location::Htree(self.inode, at);
        let bytes = block.get(kind.entries_at()..).unwrap_or_default();
        let (counts, _) = RawCounts::read_from_prefix(bytes)
            .map_err(|_| Flaw::truncated(block.len(), kind.entries_at() + 8).at(location))?;
        let (limit, count) = (usize::from(counts.limit.get()), usize::from(counts.count.get()));
        let room = bytes.len() / size_of::<RawHtreeEntry>();
        if limit > room {
            return Err(Flaw::above_limit("limit", limit as u64, room as u64).at(location));
        }
        if count > limit {
            return Err(Flaw::above_limit("count", count as u64, limit as u64).at(location));
        }
        if count == 0 {
            return Err(Flaw::below_limit("count", 0_u32, 1_u32).at(location));
        }
        let (entries, _) = <[RawHtreeEntry]>::ref_from_prefix_with_elems(bytes, count)
            .map_err(|_| Flaw::truncated(bytes.len(), count * 8).at(location))?;
        Ok(HtreeNode { entries, limit })
    }

    /// Verifies the checksum tail of an index block.
    ///
    /// # Errors
    /// An error of [`Self::node`], no room for a tail, or a checksum that does not match.
    pub fn verify(&self, block: &[u8], at: FileBlock, kind: IndexKind) -> Result<(), FormatError> {
        let Some(seed) = self.checksum_seed else { return Ok(()) };
        let location = Location::Htree(self.inode, at);
        let node = self.node(block, at, kind)?;
        let (used, tail) = tail_of(block, kind, node.entries.len(), node.limit)
            .ok_or(Flaw::Rule("the index has no room for its checksum").at(location))?;
        let (found, computed) = (tail.dt_checksum.get(), checksum(seed, used, &tail));
        if found != computed {
            return Err(Flaw::checksum(found, computed).at(location));
        }
        Ok(())
    }

    /// The seed from which the checksum in a block is right; `None` if the block is no index block
    /// with a checksum.
    pub fn seed_of(&self, block: &[u8], kind: IndexKind) -> Option<u32> {
        let node = self.node(block, FileBlock(0), kind).ok()?;
        let (used, tail) = tail_of(block, kind, node.entries.len(), node.limit)?;
        let stored = Crc32c::seeded(tail.dt_checksum.get()).without_zeros(4);
        Some(stored.without(tail.dt_reserved.as_bytes()).without(used).value())
    }

    /// Sets the checksum; the last step before the bytes are written. A block with invalid counts
    /// is not changed.
    pub fn seal(&self, block: &mut [u8], kind: IndexKind) {
        let Some(seed) = self.checksum_seed else { return };
        let Ok(node) = self.node(block, FileBlock(0), kind) else { return };
        let (count, limit) = (node.entries.len(), node.limit);
        let Some((used, mut tail)) = tail_of(block, kind, count, limit) else { return };
        tail.dt_checksum.set(checksum(seed, used, &tail));
        let tail_at = kind.entries_at() + limit * size_of::<RawHtreeEntry>();
        block[tail_at..tail_at + TAIL_LEN].copy_from_slice(tail.as_bytes());
    }

    /// Overwrites the whole block with a new root: `entries` are (hash, logical block), where the
    /// first hash is not used. The checksum is not set.
    ///
    /// # Panics
    /// If there are no entries or more than [`Self::capacity`].
    pub fn write_root(
        &self,
        block: &mut [u8],
        parent: InodeNo,
        root: HtreeRoot,
        entries: impl ExactSizeIterator<Item = (u32, u32)>,
    ) {
        block.fill(0);
        let file_type = if self.has_filetype { FileType::Directory.encode() } else { 0 };
        // `..` hides the index: its entry extends to the block's end.
        let hidden = self.block_len - 12;
        let record = |inode: InodeNo, rec_len: usize, name_len| RawDirEntry {
            inode: U32::new(inode.0),
            rec_len: U16::new(rec_len as u16),
            name_len,
            file_type,
        };
        let raw = RawHtreeRoot {
            dot: record(self.inode, 12, 1),
            dot_name: *b".\0\0\0",
            dotdot: record(parent, hidden_len(hidden, self.block_len), 2),
            dotdot_name: *b"..\0\0",
            reserved_zero: U32::ZERO,
            hash_version: root.hash_version.encode(),
            info_length: INFO_LEN,
            indirect_levels: root.indirect_levels,
            unused_flags: 0,
        };
        block[..size_of::<RawHtreeRoot>()].copy_from_slice(raw.as_bytes());
        self.write_entries(block, IndexKind::Root, entries);
    }

    /// Overwrites the whole block with a new node. The checksum is not set.
    ///
    /// # Panics
    /// As [`Self::write_root`].
    pub fn write_node(&self, block: &mut [u8], entries: impl ExactSizeIterator<Item = (u32, u32)>) {
        block.fill(0);
        let fake = RawDirEntry {
            inode: U32::ZERO,
            rec_len: U16::new(hidden_len(self.block_len, self.block_len) as u16),
            name_len: 0,
            file_type: 0,
        };
        block[..size_of::<RawDirEntry>()].copy_from_slice(fake.as_bytes());
        self.write_entries(block, IndexKind::Node, entries);
    }

    fn write_entries(
        &self,
        block: &mut [u8],
        kind: IndexKind,
        entries: impl ExactSizeIterator<Item = (u32, u32)>,
    ) {
        let (count, limit) = (entries.len(), self.capacity(kind));
        assert!((1..=limit).contains(&count), "{count} index entries where {limit} fit");
        let places = block[kind.entries_at()..].chunks_exact_mut(size_of::<RawHtreeEntry>());
        for (place, (hash, file_block)) in places.zip(entries) {
            let raw = RawHtreeEntry { hash: U32::new(hash), block: U32::new(file_block) };
            place.copy_from_slice(raw.as_bytes());
        }
        set_counts(block, kind, limit, count);
    }

    /// Inserts an entry after the one with index `after`. Returns false and leaves the block
    /// unchanged if it is full.
    ///
    /// # Errors
    /// An error of [`Self::node`], or there is no entry `after`.
    pub fn insert(
        &self,
        block: &mut [u8],
        at: FileBlock,
        kind: IndexKind,
        after: usize,
        hash: u32,
        file_block: u32,
    ) -> Result<bool, FormatError> {
        let node = self.node(block, at, kind)?;
        let (count, limit) = (node.entries.len(), node.limit);
        if after >= count {
            let flaw = Flaw::above_limit("index entry", after as u64, count as u64 - 1);
            return Err(flaw.at(Location::Htree(self.inode, at)));
        }
        if count >= limit {
            return Ok(false);
        }
        let entry_at = |index: usize| kind.entries_at() + index * size_of::<RawHtreeEntry>();
        block.copy_within(entry_at(after + 1)..entry_at(count), entry_at(after + 2));
        let raw = RawHtreeEntry { hash: U32::new(hash), block: U32::new(file_block) };
        block[entry_at(after + 1)..entry_at(after + 2)].copy_from_slice(raw.as_bytes());
        set_counts(block, kind, limit, count + 1);
        Ok(true)
    }
}

/// The length of an entry that covers a block of 64 KiB does not fit its field: see `dirent`.
fn hidden_len(rec_len: usize, block_len: usize) -> usize {
    if rec_len == block_len && rec_len > usize::from(u16::MAX) {
        usize::from(u16::MAX)
    } else {
        rec_len
    }
}

fn set_counts(block: &mut [u8], kind: IndexKind, limit: usize, count: usize) {
    // A block of 64 KiB holds at most 8,191 entries.
    let counts = RawCounts { limit: U16::new(limit as u16), count: U16::new(count as u16) };
    let at = kind.entries_at();
    block[at..at + size_of::<RawCounts>()].copy_from_slice(counts.as_bytes());
}

/// The bytes before the tail that the checksum covers, and the tail, if there is room for one.
fn tail_of(
    block: &[u8],
    kind: IndexKind,
    count: usize,
    limit: usize,
) -> Option<(&[u8], RawHtreeTail)> {
    let entries = |count: usize| kind.entries_at() + count * size_of::<RawHtreeEntry>();
    let (tail, _) = RawHtreeTail::read_from_prefix(block.get(entries(limit)..)?).ok()?;
    Some((block.get(..entries(count))?, tail))
}

fn checksum(seed: u32, used: &[u8], tail: &RawHtreeTail) -> u32 {
    Crc32c::seeded(seed).bytes(used).bytes(tail.dt_reserved.as_bytes()).zeros(4).value()
}

/// The parameters of the tree in its root.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HtreeRoot {
    /// The hash function, as stored: the superblock has the signedness.
    pub hash_version: HashVersion,
    /// Number of levels between root and leaves.
    pub indirect_levels: u8,
}

/// The entries of an index block.
#[derive(Clone, Copy, Debug)]
pub struct HtreeNode<'a> {
    entries: &'a [RawHtreeEntry],
    /// Maximum number of entries, as stored.
    pub limit: usize,
}

/// An index entry: names with hashes from `hash` up to the next entry's are below `block`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HtreeEntry {
    /// Lowest hash, bit 0 clear; 0 for the first entry of a block.
    pub hash: u32,
    /// Whether names of this hash begin in the previous block.
    pub is_continuation: bool,
    /// Logical block of the leaf or the next node.
    pub block: FileBlock,
}

impl HtreeNode<'_> {
    /// Number of entries: at least one.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Whether the block has no room for another entry.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= self.limit
    }

    /// The entry at `index`.
    pub fn entry(&self, index: usize) -> Option<HtreeEntry> {
        let raw = self.entries.get(index)?;
        let hash = if index == 0 { 0 } else { raw.hash.get() };
        Some(HtreeEntry {
            hash: hash & !1,
            is_continuation: hash & 1 == 1,
            block: FileBlock(u64::from(raw.block.get())),
        })
    }

    /// All entries in order.
    pub fn entries(&self) -> impl Iterator<Item = HtreeEntry> + '_ {
        (0..self.count()).filter_map(|index| self.entry(index))
    }

    /// Index of the entry for a hash: the last one whose hash is not above it. If names of one hash
    /// are in several blocks, this is the first of them; the others follow as continuations.
    pub fn search(&self, hash: u32) -> usize {
        let above_first = self.entries.get(1..).unwrap_or_default();
        above_first.partition_point(|entry| entry.hash.get() <= hash)
    }

    /// Checks that the hashes ascend, as searches require.
    ///
    /// # Errors
    /// A hash is lower than the previous one.
    pub fn check_order(&self, location: Location) -> Result<(), FormatError> {
        let above_first = self.entries.get(1..).unwrap_or_default();
        if above_first.is_sorted_by_key(|entry| entry.hash.get()) {
            Ok(())
        } else {
            Err(Flaw::Rule("the hashes of the index do not ascend").at(location))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const NODE: FileBlock = FileBlock(5);

    fn format(block_len: usize, has_csum: bool) -> HtreeFormat {
        HtreeFormat {
            inode: InodeNo(12),
            block_len,
            checksum_seed: has_csum.then_some(99),
            has_filetype: true,
            max_levels: 1,
        }
    }

    fn node_of(format: &HtreeFormat, entries: &[(u32, u32)]) -> Vec<u8> {
        let mut block = vec![0; format.block_len];
        format.write_node(&mut block, entries.iter().copied());
        format.seal(&mut block, IndexKind::Node);
        block
    }

    #[test]
    fn capacities_are_those_of_the_kernel() {
        let capacities = |len, csum| {
            [IndexKind::Root, IndexKind::Node].map(|kind| format(len, csum).capacity(kind))
        };
        assert_eq!(capacities(4096, true), [507, 510]);
        assert_eq!(capacities(4096, false), [508, 511]);
        assert_eq!(capacities(1024, true), [123, 126]);
    }

    #[test]
    fn a_root_reads_what_was_written() {
        let format = format(1024, true);
        let mut block = vec![0xff; 1024];
        let root = HtreeRoot { hash_version: HashVersion::Tea, indirect_levels: 1 };
        format.write_root(&mut block, InodeNo(2), root, [(0, 1), (0x1000, 2)].into_iter());
        format.seal(&mut block, IndexKind::Root);
        assert_eq!(format.verify(&block, FileBlock(0), IndexKind::Root), Ok(()));
        let (found, node) = format.root(&block).unwrap();
        assert_eq!(found, root);
        let blocks: Vec<_> = node.entries().map(|entry| (entry.hash, entry.block.0)).collect();
        assert_eq!(blocks, [(0, 1), (0x1000, 2)]);
    }

    #[test]
    fn the_root_is_refused_for_what_it_cannot_be() {
        let format = format(1024, false);
        let mut sound = vec![0; 1024];
        let root = HtreeRoot { hash_version: HashVersion::HalfMd4, indirect_levels: 0 };
        format.write_root(&mut sound, InodeNo(2), root, [(0, 1)].into_iter());
        let cases = [
            (0x1c, 7, Flaw::bad_value("hash_version", 7_u8)),
            (0x1d, 9, Flaw::bad_value("info_length", 9_u8)),
            (0x1e, 2, Flaw::above_limit("indirect_levels", 2_u8, 1_u8)),
            (0x20, 125, Flaw::above_limit("limit", 125_u32, 124_u32)),
            (0x22, 125, Flaw::above_limit("count", 125_u32, 124_u32)),
            (0x22, 0, Flaw::below_limit("count", 0_u32, 1_u32)),
        ];
        for (byte, value, flaw) in cases {
            let mut block = sound.clone();
            block[byte] = value;
            let expected = flaw.at(Location::Htree(InodeNo(12), FileBlock(0)));
            assert_eq!(format.root(&block).err(), Some(expected), "byte {byte}");
        }
    }

    #[test]
    fn large_dir_admits_one_more_level() {
        let format = HtreeFormat { max_levels: MAX_LEVELS_LARGEDIR, ..format(1024, false) };
        let mut block = vec![0; 1024];
        let root = HtreeRoot { hash_version: HashVersion::HalfMd4, indirect_levels: 2 };
        format.write_root(&mut block, InodeNo(2), root, [(0, 1)].into_iter());
        assert_eq!(format.root(&block).unwrap().0, root);
    }

    #[test]
    fn a_search_finds_the_last_entry_not_above() {
        let format = format(1024, false);
        let block = node_of(&format, &[(0, 10), (100, 11), (200, 12), (201, 13), (300, 14)]);
        let node = format.node(&block, NODE, IndexKind::Node).unwrap();
        let found = [0, 98, 100, 198, 200, 202, 300, 0xffff_fffc].map(|hash| node.search(hash));
        assert_eq!(found, [0, 0, 1, 1, 2, 3, 4, 4]);
        let continued = node.entry(3).unwrap();
        assert!(continued.is_continuation && continued.hash == 200);
        assert_eq!(node.check_order(Location::Volume), Ok(()));
    }

    #[test]
    fn hashes_out_of_order_are_named() {
        let format = format(1024, false);
        let block = node_of(&format, &[(0, 10), (200, 11), (100, 12)]);
        let node = format.node(&block, NODE, IndexKind::Node).unwrap();
        let expected = Flaw::Rule("the hashes of the index do not ascend").at(Location::Volume);
        assert_eq!(node.check_order(Location::Volume), Err(expected));
    }

    #[test]
    fn insertion_keeps_the_order_until_the_block_is_full() {
        let format = format(1024, true);
        let mut block = node_of(&format, &[(0, 0)]);
        for count in 1..126_u32 {
            let node = format.node(&block, NODE, IndexKind::Node).unwrap();
            let hash = count.wrapping_mul(0x9e37_79b9) & !1;
            let after = node.search(hash);
            let inserted = format.insert(&mut block, NODE, IndexKind::Node, after, hash, count);
            assert_eq!(inserted, Ok(true));
        }
        let node = format.node(&block, NODE, IndexKind::Node).unwrap();
        assert!(node.is_full());
        assert_eq!(node.check_order(Location::Volume), Ok(()));
        assert_eq!(format.insert(&mut block, NODE, IndexKind::Node, 0, 2, 2), Ok(false));
    }

    #[test]
    fn only_used_entries_are_in_the_checksum() {
        let format = format(1024, true);
        let sound = node_of(&format, &[(0, 1), (4, 2)]);
        let mut block = sound.clone();
        block[24] = 1; // the third entry, which is not in use
        assert_eq!(format.verify(&block, NODE, IndexKind::Node), Ok(()));
        block[20] ^= 1;
        let error = format.verify(&block, NODE, IndexKind::Node).unwrap_err();
        assert!(matches!(error, FormatError::Corrupt { flaw: Flaw::Checksum { .. }, .. }));
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_entries_or_an_error(
            block in proptest::collection::vec(any::<u8>(), 0..256),
            has_csum: bool,
            after in 0_usize..40,
            hash: u32,
        ) {
            let format = HtreeFormat { block_len: 256, ..format(0, has_csum) };
            for kind in [IndexKind::Root, IndexKind::Node] {
                if let Ok(node) = format.node(&block, NODE, kind) {
                    prop_assert!(node.search(hash) < node.count());
                }
                let _ = format.verify(&block, NODE, kind);
                let mut edited = block.clone();
                format.seal(&mut edited, kind);
                let _ = format.insert(&mut edited, NODE, kind, after, hash, 1);
            }
            let _ = format.root(&block);
        }
    }
}
