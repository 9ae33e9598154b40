//! Quota files: limits and usage of each user, group or project, as a radix tree of 1 KiB blocks
//! (version 1 of the format that quota tools call vfsv1).
//!
//! Source: `docs/src/internals/on-disk.md`, checked against files that mke2fs and e2fsck wrote.
//! Block 0 is the header, block 1 the tree's root. Four levels of 256 numbers, indexed by the ID's
//! bytes from the highest on, lead to a leaf, which holds 14 records of any IDs.

use crate::types::InodeNo;
use crate::{Flaw, FormatError, Location};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size in bytes of every block of a quota file, regardless of the volume's block size.
pub const QUOTA_BLOCK_SIZE: usize = 1024;
/// A block of a quota file.
pub type QuotaBlock = [u8; QUOTA_BLOCK_SIZE];
/// Block of the tree's root.
pub const QUOTA_ROOT: u32 = 1;
/// Number of levels of the tree, including the root; numbers of the last level are leaves.
pub const QUOTA_DEPTH: usize = 4;
/// Number of records in a leaf.
pub const RECORDS_PER_LEAF: usize =
    (QUOTA_BLOCK_SIZE - size_of::<RawQuotaLeafHeader>()) / size_of::<RawQuotaRecord>();
/// Default grace time in seconds for exceeding a soft limit: a week.
pub const DEFAULT_GRACE: u32 = 7 * 24 * 60 * 60;

const VERSION: u32 = 1;
const FANOUT: usize = 256;

/// The type of IDs in a quota file.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum QuotaKind {
    /// Per user.
    User,
    /// Per group.
    Group,
    /// Per project.
    Project,
}

impl QuotaKind {
    /// All kinds, in the order of their superblock fields.
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::Project];

    /// The magic number of a file of this kind.
    pub fn magic(self) -> u32 {
        match self {
            Self::User => 0xd9c0_1f11,
            Self::Group => 0xd9c0_1927,
            Self::Project => 0xd9c0_3f14,
        }
    }
}

/// Block 0 as stored; the rest of it is zero.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[allow(missing_docs, reason = "named as quota tools name them; QuotaHeader says what they mean")]
pub struct RawQuotaHeader {
    pub dqh_magic: U32,
    pub dqh_version: U32,
    pub dqi_bgrace: U32,
    pub dqi_igrace: U32,
    pub dqi_flags: U32,
    pub dqi_blocks: U32,
    pub dqi_free_blk: U32,
    pub dqi_free_entry: U32,
}

/// A leaf's first bytes as stored.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[allow(missing_docs, reason = "named as quota tools name them")]
pub struct RawQuotaLeafHeader {
    pub dqdh_next_free: U32,
    pub dqdh_prev_free: U32,
    pub dqdh_entries: U16,
    pub dqdh_pad1: U16,
    pub dqdh_pad2: U32,
}

/// A record as stored.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[allow(missing_docs, reason = "named as quota tools name them; QuotaRecord says what they mean")]
pub struct RawQuotaRecord {
    pub dqb_id: U32,
    pub dqb_pad: U32,
    pub dqb_ihardlimit: U64,
    pub dqb_isoftlimit: U64,
    pub dqb_curinodes: U64,
    pub dqb_bhardlimit: U64,
    pub dqb_bsoftlimit: U64,
    pub dqb_curspace: U64,
    pub dqb_btime: U64,
    pub dqb_itime: U64,
}

const _: () = assert!(size_of::<RawQuotaHeader>() == 32);
const _: () = assert!(offset_of!(RawQuotaHeader, dqi_bgrace) == 8);
const _: () = assert!(size_of::<RawQuotaLeafHeader>() == 16);
const _: () = assert!(size_of::<RawQuotaRecord>() == 72);
const _: () = assert!(RECORDS_PER_LEAF == 14);

/// The decoded block 0.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QuotaHeader {
    /// Grace time in seconds for the soft limit of space.
    pub block_grace: u32,
    /// Grace time in seconds for the soft limit of inodes.
    pub inode_grace: u32,
    /// Flags, none of which ext4 uses.
    pub flags: u32,
    /// Number of blocks of the file, including this one.
    pub blocks: u32,
    /// First block of the list of unused blocks; 0 for none.
    pub free_block: u32,
    /// First leaf of the list of leaves with room; 0 for none.
    pub free_entry: u32,
}

impl QuotaHeader {
    /// Decodes block 0. `file_blocks` is the file's length in blocks of 1 KiB: the header must not
    /// exceed it.
    ///
    /// # Errors
    /// The flaw, with block 0 of the file as its location.
    pub fn decode(
        block: &[u8],
        kind: QuotaKind,
        inode: InodeNo,
        file_blocks: u32,
    ) -> Result<Self, FormatError> {
        let location = Location::Quota(inode, 0);
        let (raw, _) = RawQuotaHeader::read_from_prefix(block)
            .map_err(|_| Flaw::truncated(block.len(), size_of::<RawQuotaHeader>()).at(location))?;
        if raw.dqh_magic.get() != kind.magic() {
            return Err(Flaw::magic(raw.dqh_magic.get(), kind.magic()).at(location));
        }
        if raw.dqh_version.get() != VERSION {
            return Err(Flaw::bad_value("dqh_version", raw.dqh_version.get()).at(location));
        }
        let blocks = raw.dqi_blocks.get();
        if blocks > file_blocks {
            return Err(Flaw::above_limit("dqi_blocks", blocks, file_blocks).at(location));
        }
        if blocks <= QUOTA_ROOT {
            return Err(Flaw::below_limit("dqi_blocks", blocks, QUOTA_ROOT + 1).at(location));
        }
        let header = Self {
            block_grace: raw.dqi_bgrace.get(),
            inode_grace: raw.dqi_igrace.get(),
            flags: raw.dqi_flags.get(),
            blocks,
            free_block: raw.dqi_free_blk.get(),
            free_entry: raw.dqi_free_entry.get(),
        };
        for (field, first) in
            [("dqi_free_blk", header.free_block), ("dqi_free_entry", header.free_entry)]
        {
            if first >= blocks {
                return Err(Flaw::above_limit(field, first, blocks - 1).at(location));
            }
        }
        Ok(header)
    }

    /// Sets the header's fields in block 0. The rest of it is not changed.
    ///
    /// # Errors
    /// [`Flaw::Truncated`].
    pub fn encode_into(&self, kind: QuotaKind, block: &mut [u8]) -> Result<(), Flaw> {
        let found = block.len();
        let (raw, _) = RawQuotaHeader::mut_from_prefix(block)
            .map_err(|_| Flaw::truncated(found, size_of::<RawQuotaHeader>()))?;
        raw.dqh_magic.set(kind.magic());
        raw.dqh_version.set(VERSION);
        raw.dqi_bgrace.set(self.block_grace);
        raw.dqi_igrace.set(self.inode_grace);
        raw.dqi_flags.set(self.flags);
        raw.dqi_blocks.set(self.blocks);
        raw.dqi_free_blk.set(self.free_block);
        raw.dqi_free_entry.set(self.free_entry);
        Ok(())
    }
}

/// Limits and usage of one ID. A limit of 0 means no limit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct QuotaRecord {
    /// The user, group or project ID.
    pub id: u32,
    /// Hard limit: number of inodes.
    pub inode_hard: u64,
    /// Soft limit: number of inodes.
    pub inode_soft: u64,
    /// Number of inodes in use.
    pub inodes: u64,
    /// Hard limit of space in KiB.
    pub block_hard: u64,
    /// Soft limit of space in KiB.
    pub block_soft: u64,
    /// Space in use in bytes.
    pub space: u64,
    /// End of the grace time of space in seconds since 1970; 0 below the soft limit.
    pub block_time: u64,
    /// End of the grace time of inodes in seconds since 1970; 0 below the soft limit.
    pub inode_time: u64,
}

impl QuotaRecord {
    /// Decodes a stored record; `None` for a slot of zeros, which is free.
    pub fn decode(raw: &RawQuotaRecord) -> Option<Self> {
        if raw.as_bytes().iter().all(|&byte| byte == 0) {
            return None;
        }
        let mut record = Self {
            id: raw.dqb_id.get(),
            inode_hard: raw.dqb_ihardlimit.get(),
            inode_soft: raw.dqb_isoftlimit.get(),
            inodes: raw.dqb_curinodes.get(),
            block_hard: raw.dqb_bhardlimit.get(),
            block_soft: raw.dqb_bsoftlimit.get(),
            space: raw.dqb_curspace.get(),
            block_time: raw.dqb_btime.get(),
            inode_time: raw.dqb_itime.get(),
        };
        if record == (Self { inode_time: 1, ..Self::default() }) {
            record.inode_time = 0; // id 0 with nothing to say, kept apart from an unused slot
        }
        Some(record)
    }

    /// Encodes the stored form. A record of zeros, which would read as a free slot, gets an inode
    /// time of 1, as quota tools do.
    pub fn encode(&self) -> RawQuotaRecord {
        let is_empty = *self == Self::default();
        RawQuotaRecord {
            dqb_id: U32::new(self.id),
            dqb_pad: U32::new(0),
            dqb_ihardlimit: U64::new(self.inode_hard),
            dqb_isoftlimit: U64::new(self.inode_soft),
            dqb_curinodes: U64::new(self.inodes),
            dqb_bhardlimit: U64::new(self.block_hard),
            dqb_bsoftlimit: U64::new(self.block_soft),
            dqb_curspace: U64::new(self.space),
            dqb_btime: U64::new(self.block_time),
            dqb_itime: U64::new(if is_empty { 1 } else { self.inode_time }),
        }
    }
}

/// The position of an ID's record, or the existing part of the path to it, for an update in place.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QuotaPath {
    /// Blocks of the path from the root down, as far as it exists: [`QUOTA_DEPTH`] if there is a
    /// record.
    pub nodes: Vec<u32>,
    /// The record, if there is one.
    pub found: Option<FoundRecord>,
}

/// A record and its position.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FoundRecord {
    /// Block of the leaf.
    pub leaf: u32,
    /// Byte of the record in the leaf.
    pub at: usize,
    /// The record.
    pub record: QuotaRecord,
}

/// A reader of a quota file: its header, and the function that reads blocks.
#[derive(Debug)]
pub struct QuotaTree<R> {
    header: QuotaHeader,
    inode: InodeNo,
    read: R,
}

/// The tree of a quota file that is in memory as a whole. Blocks past its end read as zeroes.
///
/// # Errors
/// The header is invalid.
pub fn quota_tree(
    file: &[u8],
    kind: QuotaKind,
    inode: InodeNo,
) -> Result<QuotaTree<impl FnMut(u32) -> Result<QuotaBlock, FormatError>>, FormatError> {
    let blocks = u32::try_from(file.len() / QUOTA_BLOCK_SIZE).unwrap_or(u32::MAX);
    let header = QuotaHeader::decode(file, kind, inode, blocks)?;
    let read = |block: u32| {
        let start = block as usize * QUOTA_BLOCK_SIZE;
        let mut whole = [0; QUOTA_BLOCK_SIZE];
        if let Some(found) = file.get(start..start + QUOTA_BLOCK_SIZE) {
            whole.copy_from_slice(found);
        }
        Ok(whole)
    };
    Ok(QuotaTree::new(header, inode, read))
}

impl<R, E> QuotaTree<R>
where
    R: FnMut(u32) -> Result<QuotaBlock, E>,
    E: From<FormatError>,
{
    /// Creates a reader of the tree of `inode`. `read` returns a block of the file by its number,
    /// and is called only for blocks below the header's count.
    pub fn new(header: QuotaHeader, inode: InodeNo, read: R) -> Self {
        Self { header, inode, read }
    }

    /// Finds an ID's record.
    ///
    /// # Errors
    /// A block number in the tree is invalid, a leaf lacks the record that the tree has, or `read`
    /// failed.
    pub fn find(&mut self, id: u32) -> Result<QuotaPath, E> {
        let mut nodes = Vec::with_capacity(QUOTA_DEPTH);
        let mut next = QUOTA_ROOT;
        for digit in id.to_be_bytes() {
            nodes.push(next);
            let node = (self.read)(next)?;
            match self.child(&node, next, usize::from(digit))? {
                Some(child) => next = child,
                None => return Ok(QuotaPath { nodes, found: None }),
            }
        }
        let leaf = (self.read)(next)?;
        let (at, record) = self.record_of(&leaf, next, id)?;
        Ok(QuotaPath { nodes, found: Some(FoundRecord { leaf: next, at, record }) })
    }

    /// All records in ascending order of IDs.
    ///
    /// # Errors
    /// As for [`find`](Self::find), and a tree that uses a block twice.
    pub fn records(&mut self) -> Result<Vec<QuotaRecord>, E> {
        Ok(self.walk()?.0)
    }

    /// All records in ascending order of IDs, if the leaves have no records that are missing in the
    /// tree.
    ///
    /// # Errors
    /// As for [`records`](Self::records), and a leaf with a record that is missing in the tree: a
    /// reader that searches the leaf for an ID may find that one.
    pub fn sound_records(&mut self) -> Result<Vec<QuotaRecord>, E> {
        let (records, leaves) = self.walk()?;
        for (leaf, named) in leaves {
            let bytes = (self.read)(leaf)?;
            let found = slots(&bytes);
            if found.filter(|(_, raw)| raw.as_bytes().iter().any(|&byte| byte != 0)).count()
                != named
            {
                let flaw = Flaw::Rule("a leaf has a record that the tree does not name");
                return Err(self.flaw(leaf, flaw));
            }
        }
        Ok(records)
    }

    /// All records in ascending order of IDs, and their number in each leaf.
    fn walk(&mut self) -> Result<(Vec<QuotaRecord>, BTreeMap<u32, usize>), E> {
        let mut records = Vec::new();
        let mut leaves = BTreeMap::new();
        let mut visited = BTreeSet::new();
        let mut leaf = (0, [0; QUOTA_BLOCK_SIZE]);
        // Nodes to visit: block, level, and the ID's bytes so far. Each block is a node at most
        // once, which bounds the walk.
        let mut waiting = Vec::from([(QUOTA_ROOT, 0, 0_u32)]);
        while let Some((block, level, digits)) = waiting.pop() {
            if !visited.insert(block) {
                return Err(self.flaw(block, Flaw::Rule("a block of the tree is used twice")));
            }
            let node = (self.read)(block)?;
            let first = waiting.len();
            for digit in 0..FANOUT {
                let Some(child) = self.child(&node, block, digit)? else { continue };
                let digits = digits << 8 | digit as u32;
                if level + 1 < QUOTA_DEPTH {
                    waiting.push((child, level + 1, digits));
                    continue;
                }
                if leaf.0 != child {
                    leaf = (child, (self.read)(child)?);
                }
                records.push(self.record_of(&leaf.1, child, digits)?.1);
                *leaves.entry(child).or_default() += 1;
            }
            waiting[first..].reverse();
        }
        Ok((records, leaves))
    }

    fn child(&self, node: &QuotaBlock, block: u32, digit: usize) -> Result<Option<u32>, E> {
        let numbers = node.as_chunks::<4>().0;
        let child = u32::from_le_bytes(numbers[digit]);
        match child {
            0 => Ok(None),
            _ if child <= QUOTA_ROOT => {
                Err(self.flaw(block, Flaw::below_limit("block number", child, QUOTA_ROOT + 1)))
            }
            _ if child >= self.header.blocks => {
                Err(self
                    .flaw(block, Flaw::above_limit("block number", child, self.header.blocks - 1)))
            }
            _ => Ok(Some(child)),
        }
    }

    /// The first record of an ID in a leaf. Slots of zeros are not records, even of ID 0.
    fn record_of(&self, leaf: &QuotaBlock, block: u32, id: u32) -> Result<(usize, QuotaRecord), E> {
        slots(leaf)
            .find_map(|(at, raw)| {
                QuotaRecord::decode(&raw).filter(|record| record.id == id).map(|found| (at, found))
            })
            .ok_or_else(|| {
                self.flaw(block, Flaw::Rule("the record that the tree names is missing"))
            })
    }

    fn flaw(&self, block: u32, flaw: Flaw) -> E {
        flaw.at(Location::Quota(self.inode, block)).into()
    }
}

/// The slots of a leaf and the byte at which each starts.
pub fn slots(leaf: &QuotaBlock) -> impl Iterator<Item = (usize, RawQuotaRecord)> {
    (0..RECORDS_PER_LEAF).filter_map(|slot| {
        let at = size_of::<RawQuotaLeafHeader>() + slot * size_of::<RawQuotaRecord>();
        Some((at, RawQuotaRecord::read_from_prefix(leaf.get(at..)?).ok()?.0))
    })
}

/// Builds a quota file of these records, with full leaves and the smallest tree: byte for byte the
/// file that quota tools write if they add the records one by one. Grace times are a week.
///
/// # Errors
/// Records that are not in ascending order of IDs, or have an ID twice.
pub fn build_quota_file(kind: QuotaKind, records: &[QuotaRecord]) -> Result<Vec<u8>, FormatError> {
    let refused = |flaw: Flaw| flaw.at(Location::Quota(InodeNo(0), 0));
    if !records.is_sorted_by(|a, b| a.id < b.id) {
        return Err(refused(Flaw::Rule("quota records are not in the order of their ids")));
    }
    let mut file = QuotaFile { blocks: Vec::from([[0; QUOTA_BLOCK_SIZE]; 2]) };
    let (mut leaf, mut used) = (0, RECORDS_PER_LEAF);
    for record in records {
        let node = file.last_node(record.id);
        if used == RECORDS_PER_LEAF {
            (leaf, used) = (file.add_block(), 0);
        }
        file.set_number(node, record.id.to_be_bytes()[QUOTA_DEPTH - 1], leaf);
        let at = size_of::<RawQuotaLeafHeader>() + used * size_of::<RawQuotaRecord>();
        let block = &mut file.blocks[leaf];
        block[at..at + size_of::<RawQuotaRecord>()].copy_from_slice(record.encode().as_bytes());
        used += 1;
        let entries = U16::new(used as u16); // at most 14
        let header = RawQuotaLeafHeader { dqdh_entries: entries, ..Default::default() };
        block[..size_of::<RawQuotaLeafHeader>()].copy_from_slice(header.as_bytes());
    }
    let blocks = u32::try_from(file.blocks.len()).map_err(|_| {
        refused(Flaw::above_limit("dqi_blocks", file.blocks.len() as u64, u32::MAX))
    })?;
    let header = QuotaHeader {
        block_grace: DEFAULT_GRACE,
        inode_grace: DEFAULT_GRACE,
        flags: 0,
        blocks,
        free_block: 0,
        free_entry: if used < RECORDS_PER_LEAF { leaf as u32 } else { 0 },
    };
    header.encode_into(kind, &mut file.blocks[0]).map_err(refused)?;
    Ok(file.blocks.into_flattened())
}

/// A quota file being written in memory.
struct QuotaFile {
    blocks: Vec<QuotaBlock>,
}

impl QuotaFile {
    fn add_block(&mut self) -> usize {
        self.blocks.push([0; QUOTA_BLOCK_SIZE]);
        self.blocks.len() - 1
    }

    /// The node of the last level for an ID, created if it is missing.
    fn last_node(&mut self, id: u32) -> usize {
        let mut node = QUOTA_ROOT as usize;
        for digit in &id.to_be_bytes()[..QUOTA_DEPTH - 1] {
            let at = usize::from(*digit) * 4;
            let number = self.blocks[node].as_chunks::<4>().0[at / 4];
            node = match u32::from_le_bytes(number) {
                0 => {
                    let child = self.add_block();
                    self.set_number(node, *digit, child);
                    child
                }
                child => child as usize,
            };
        }
        node
    }

    fn set_number(&mut self, node: usize, digit: u8, child: usize) {
        let at = usize::from(digit) * 4;
        self.blocks[node][at..at + 4].copy_from_slice(&(child as u32).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INODE: InodeNo = InodeNo::USER_QUOTA;

    fn record(id: u32) -> QuotaRecord {
        QuotaRecord {
            id,
            inodes: u64::from(id % 7) + 1,
            space: u64::from(id) * 512,
            ..Default::default()
        }
    }

    fn tree(
        file: &[u8],
    ) -> Result<QuotaTree<impl FnMut(u32) -> Result<QuotaBlock, FormatError>>, FormatError> {
        let (blocks, _) = file.as_chunks::<QUOTA_BLOCK_SIZE>();
        let header = QuotaHeader::decode(file, QuotaKind::User, INODE, blocks.len() as u32)?;
        Ok(QuotaTree::new(header, INODE, |block| Ok(blocks[block as usize])))
    }

    #[test]
    fn a_file_without_records_is_header_and_root() {
        let file = build_quota_file(QuotaKind::Group, &[]).unwrap();
        assert_eq!(file.len(), 2 * QUOTA_BLOCK_SIZE);
        let header = QuotaHeader::decode(&file, QuotaKind::Group, INODE, 2).unwrap();
        assert_eq!((header.blocks, header.free_entry), (2, 0));
    }

    #[test]
    fn ids_share_leaves_and_nodes() {
        let records: Vec<_> = (0..15).chain([300, 70_000, u32::MAX]).map(record).collect();
        let file = build_quota_file(QuotaKind::User, &records).unwrap();
        // Header, root, 3 + 1 + 2 + 3 nodes, 2 leaves.
        assert_eq!(file.len(), 13 * QUOTA_BLOCK_SIZE);
        assert_eq!(tree(&file).unwrap().records(), Ok(records.clone()));
        let path = tree(&file).unwrap().find(300).unwrap();
        assert_eq!(path.nodes.len(), QUOTA_DEPTH);
        let found = path.found.unwrap();
        assert_eq!(found.record, record(300));
        assert_eq!(found.at, 16 + 72);
    }

    #[test]
    fn a_missing_id_shows_how_far_the_tree_leads() {
        let file = build_quota_file(QuotaKind::User, &[record(5)]).unwrap();
        assert_eq!(
            tree(&file).unwrap().find(0x100),
            Ok(QuotaPath { nodes: [1, 2, 3].into(), found: None })
        );
    }

    #[test]
    fn a_record_of_zeros_is_kept_apart_from_an_unused_slot() {
        let empty = QuotaRecord::default();
        assert_eq!(empty.encode().dqb_itime.get(), 1);
        let file = build_quota_file(QuotaKind::User, &[empty]).unwrap();
        assert_eq!(tree(&file).unwrap().records(), Ok(Vec::from([empty])));
    }

    #[test]
    fn the_header_is_believed_only_within_the_file() {
        let mut file = build_quota_file(QuotaKind::User, &[record(5)]).unwrap();
        let decode = |file: &[u8]| QuotaHeader::decode(file, QuotaKind::User, INODE, 6);
        let at_header = |flaw: Flaw| Err(flaw.at(Location::Quota(INODE, 0)));
        file[20] = 7;
        assert_eq!(decode(&file), at_header(Flaw::above_limit("dqi_blocks", 7_u32, 6_u32)));
        file[20] = 1;
        assert_eq!(decode(&file), at_header(Flaw::below_limit("dqi_blocks", 1_u32, 2_u32)));
        file[4] = 0;
        assert_eq!(decode(&file), at_header(Flaw::bad_value("dqh_version", 0_u32)));
        file[0] = 0;
        assert_eq!(decode(&file), at_header(Flaw::magic(0xd9c0_1f00_u32, 0xd9c0_1f11_u32)));
    }

    #[test]
    fn a_tree_that_loops_is_refused() {
        let mut file = build_quota_file(QuotaKind::User, &[record(5)]).unwrap();
        file[3 * 1024 + 4] = 2; // the node of the third level leads back to the second
        let flaw = Flaw::Rule("a block of the tree is used twice");
        assert_eq!(tree(&file).unwrap().records(), Err(flaw.at(Location::Quota(INODE, 2))));
    }

    #[test]
    fn a_number_past_the_file_is_refused() {
        let mut file = build_quota_file(QuotaKind::User, &[record(5)]).unwrap();
        file[1024] = 6;
        let flaw = Flaw::above_limit("block number", 6_u32, 5_u32);
        assert_eq!(tree(&file).unwrap().find(5), Err(flaw.at(Location::Quota(INODE, 1))));
    }

    #[test]
    fn a_record_that_the_tree_names_must_be_there() {
        let mut file = build_quota_file(QuotaKind::User, &[record(5)]).unwrap();
        file[5 * 1024 + 16] = 6;
        let flaw = Flaw::Rule("the record that the tree names is missing");
        assert_eq!(tree(&file).unwrap().find(5), Err(flaw.at(Location::Quota(INODE, 5))));
    }

    #[test]
    fn a_record_that_no_tree_names_makes_a_file_unsound() {
        let mut file = build_quota_file(QuotaKind::User, &[record(5)]).unwrap();
        assert_eq!(tree(&file).unwrap().sound_records(), Ok(Vec::from([record(5)])));
        file[5 * 1024 + 16 + 3 * 72 + 4] = b'a'; // of the fourth slot, nothing but its padding
        assert_eq!(tree(&file).unwrap().records(), Ok(Vec::from([record(5)])));
        let flaw = Flaw::Rule("a leaf has a record that the tree does not name");
        assert_eq!(tree(&file).unwrap().sound_records(), Err(flaw.at(Location::Quota(INODE, 5))));
    }

    #[test]
    fn records_out_of_order_are_refused() {
        assert!(build_quota_file(QuotaKind::User, &[record(5), record(5)]).is_err());
    }

    proptest! {
        #[test]
        fn a_file_holds_the_records_it_was_built_of(
            ids in prop::collection::btree_set(prop_oneof![0..2000_u32, any::<u32>()], 0..200),
        ) {
            let records: Vec<_> = ids.into_iter().map(record).collect();
            let file = build_quota_file(QuotaKind::User, &records).unwrap();
            prop_assert_eq!(tree(&file).unwrap().sound_records(), Ok(records.clone()));
            for record in records {
                prop_assert_eq!(tree(&file).unwrap().find(record.id).unwrap().found.unwrap().record, record);
            }
        }

        #[test]
        fn any_change_of_a_file_is_read_or_refused(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
            id in any::<u32>(),
        ) {
            let records: Vec<_> = (0..40).chain([300, 70_000]).map(record).collect();
            let mut file = build_quota_file(QuotaKind::User, &records).unwrap();
            for (at, byte) in changes {
                let at = at.index(file.len());
                file[at] = byte;
            }
            if let Ok(mut tree) = tree(&file) {
                let _ = tree.records();
                let _ = tree.find(id);
            }
        }
    }
}
