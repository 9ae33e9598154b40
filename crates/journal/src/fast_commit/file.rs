//! A file that fast commits name, with its inode and its whole map in memory.

use std::ops::Range;

use extant_layout::pack::MappingTree;
use extant_ondisk::extent::{self, Extent, MAX_UNWRITTEN_LEN, MAX_WRITTEN_LEN, OwnedNode};
use extant_ondisk::inode::{I_BLOCK_SIZE, Inode, InodeFlags, SECTOR};
use extant_ondisk::{BlockNo, FileBlock, InodeNo, Location, RoCompatFeatures};

use super::volume::{Volume, allocate, run};
use crate::JournalError;

/// Byte range of `i_block` in an inode record.
const I_BLOCK: Range<usize> = 0x28..0x28 + I_BLOCK_SIZE;
/// Bytes of an inode record before its extra fields.
const FIELDS: usize = 128;

pub(super) struct File {
    pub(super) number: InodeNo,
    pub(super) record: Vec<u8>,
    pub(super) inode: Inode,
    /// The extents, ordered by logical block.
    pub(super) extents: Vec<Extent>,
    /// Blocks of its extent tree, or its indirect blocks.
    pub(super) tree: Vec<BlockNo>,
}

impl File {
    /// Loads an inode in use.
    pub(super) fn load(volume: &mut Volume<'_>, number: InodeNo) -> Result<Self, JournalError> {
        let record = volume.read_inode(number)?;
        if !volume.is_inode_used(number)? {
            return Err(JournalError::FastCommit("record of an inode that is not in use"));
        }
        if record.iter().all(|byte| *byte == 0) {
            return Err(JournalError::FastCommit("inode in use that its table has lost"));
        }
        extant_ondisk::inode::verify(&record, number, volume.geometry())?;
        Self::of_record(volume, number, record)
    }

    /// The inode as a fast commit holds it, where its table has lost it.
    pub(super) fn of_logged(
        volume: &Volume<'_>,
        number: InodeNo,
        logged: &[u8],
    ) -> Result<Self, JournalError> {
        let mut record = vec![0; usize::from(volume.geometry().inode_size)];
        let length = logged.len().min(record.len());
        if length < FIELDS {
            return Err(JournalError::FastCommit("a logged inode of less than 128 bytes"));
        }
        record[..length].copy_from_slice(&logged[..length]);
        let file = Self::of_record(volume, number, record)?;
        if file.inode.links == 0 || file.inode.file_type().is_none() {
            return Err(JournalError::FastCommit("a logged inode that is not in use"));
        }
        Ok(file)
    }

    fn of_record(
        volume: &Volume<'_>,
        number: InodeNo,
        record: Vec<u8>,
    ) -> Result<Self, JournalError> {
        let inode = Inode::decode(&record, number, volume.geometry())?;
        let mut file = Self { number, record, inode, extents: Vec::new(), tree: Vec::new() };
        let has_map = volume.has_map(&file.inode);
        if file.inode.is_extent_mapped() && !has_map {
            return Err(JournalError::FastCommit("extents of a file that cannot have any"));
        }
        if has_map {
            let map = volume.read_map(number, &file.inode)?;
            (file.extents, file.tree) = (map.extents, map.nodes);
        }
        Ok(file)
    }

    /// Takes the fields of a logged inode. `i_block` is kept where it is a map.
    pub(super) fn take_fields(
        &mut self,
        volume: &Volume<'_>,
        logged: &[u8],
    ) -> Result<(), JournalError> {
        let length = logged.len().min(self.record.len());
        if length < FIELDS {
            return Err(JournalError::FastCommit("a logged inode of less than 128 bytes"));
        }
        let before = self.record[I_BLOCK].to_vec();
        self.record[..length].copy_from_slice(&logged[..length]);
        self.inode = Inode::decode(&self.record, self.number, volume.geometry())?;
        if volume.has_map(&self.inode) {
            self.inode.i_block.copy_from_slice(&before);
        }
        Ok(())
    }

    /// Removes all extents. Returns the blocks that they mapped.
    pub(super) fn clear_map(&mut self) -> Vec<(BlockNo, u64)> {
        let data = self.extents.drain(..).map(|extent| (extent.start, u64::from(extent.len)));
        data.chain(self.tree.drain(..).map(|block| (block, 1))).collect()
    }

    /// Unmaps logical blocks. Returns the blocks that they were mapped to.
    pub(super) fn unmap(&mut self, first: u64, count: u64) -> Vec<(BlockNo, u64)> {
        let end = first.saturating_add(count);
        let (mut kept, mut gone) = (Vec::with_capacity(self.extents.len() + 1), Vec::new());
        for extent in self.extents.drain(..) {
            let (start, stop) = (extent.block.0.max(first), extent.end().0.min(end));
            if start >= stop {
                kept.push(extent);
                continue;
            }
            let piece = |from: u64, to: u64| Extent {
                block: FileBlock(from),
                // Part of an extent.
                len: (to - from) as u32,
                start: BlockNo(extent.start.0 + (from - extent.block.0)),
                ..extent
            };
            if extent.block.0 < start {
                kept.push(piece(extent.block.0, start));
            }
            gone.push((piece(start, stop).start, stop - start));
            if stop < extent.end().0 {
                kept.push(piece(stop, extent.end().0));
            }
        }
        self.extents = kept;
        gone
    }

    /// Maps an extent. Returns the blocks that it replaces.
    pub(super) fn map(&mut self, new: Extent) -> Vec<(BlockNo, u64)> {
        let gone = self.unmap(new.block.0, u64::from(new.len));
        let at = self.extents.partition_point(|extent| extent.block < new.block);
        self.extents.insert(at, new);
        gone
    }

    /// Marks all its blocks in use, whether or not they are free.
    pub(super) fn claim(&self, volume: &mut Volume<'_>) -> Result<(), JournalError> {
        let data = self.extents.iter().map(|extent| run(extent.start, u64::from(extent.len)));
        let acl = (self.inode.file_acl.0 != 0).then_some(self.inode.file_acl);
        let others = self.tree.iter().copied().chain(acl).map(|block| run(block, 1));
        Ok(volume.claim_blocks(data.chain(others))?)
    }

    /// Writes the map and the inode.
    pub(super) fn store(&mut self, volume: &mut Volume<'_>) -> Result<(), JournalError> {
        if volume.has_map(&self.inode) {
            extent::join(&mut self.extents);
            debug_assert!(self.extents.iter().all(|extent| {
                extent.len <= if extent.is_unwritten { MAX_UNWRITTEN_LEN } else { MAX_WRITTEN_LEN }
            }));
            let tree = MappingTree::from_extents(&self.extents, self.inode.is_extent_mapped());
            let too_large = JournalError::FastCommit("range past the largest file");
            let needed = tree.blocks(volume.geometry().block_size).ok_or(too_large)?;
            if let Some(missing) = needed.checked_sub(self.tree.len() as u64) {
                let goal = self.extents.first().map_or(BlockNo(0), |extent| extent.start);
                for _ in 0..missing {
                    self.tree.push(allocate(volume, goal)?);
                }
            }
            if !self.inode.is_extent_mapped() && self.end() > 1 << 32 {
                return Err(JournalError::FastCommit("indirect blocks of a file past block 2^32"));
            }
            let unused = self.tree.split_off(usize::try_from(needed).unwrap_or(usize::MAX));
            volume.free_blocks_of(unused.into_iter().map(|block| run(block, 1)))?;
            let mut nodes = Vec::new();
            let places = self.tree.iter().copied();
            let generation = self.inode.generation;
            let geometry = volume.geometry();
            let root = tree.write(self.number, generation, geometry, places, |block, bytes| {
                nodes.push((block, bytes.to_vec()));
            });
            for (block, bytes) in nodes {
                volume.write(block, &bytes)?;
            }
            self.inode.i_block.copy_from_slice(&root);
            self.count_blocks(volume);
        }
        self.inode.encode_into(&mut self.record, volume.geometry());
        Ok(volume.write_inode(self.number, &mut self.record)?)
    }

    /// The block of the volume after the last one that the map has.
    fn end(&self) -> u64 {
        let data = self.extents.iter().map(|it| it.start.0.saturating_add(u64::from(it.len)));
        data.chain(self.tree.iter().map(|block| block.0 + 1)).max().unwrap_or(0)
    }

    /// Sets `i_blocks`: the clusters of data, map and attributes.
    fn count_blocks(&mut self, volume: &Volume<'_>) {
        let geometry = volume.geometry();
        let data = self.extents.iter().map(|extent| (extent.start, u64::from(extent.len)));
        let other = self
            .tree
            .iter()
            .copied()
            .chain((self.inode.file_acl.0 != 0).then_some(self.inode.file_acl));
        let mut clusters: Vec<_> = data
            .chain(other.map(|block| (block, 1)))
            .map(|(start, count)| {
                let last = BlockNo(start.0 + count.saturating_sub(1));
                (geometry.cluster_of(start).0, geometry.cluster_of(last).0 + 1)
            })
            .collect();
        clusters.sort_unstable();
        let (mut total, mut end) = (0, 0);
        for (first, stop) in clusters {
            total += stop.saturating_sub(first.max(end));
            end = end.max(stop);
        }
        let is_in_blocks = self.inode.flags.contains(InodeFlags::HUGE_FILE)
            && geometry.has_ro_compat(RoCompatFeatures::HUGE_FILE);
        let unit = if is_in_blocks { u64::from(geometry.block_size) } else { SECTOR };
        self.inode.blocks = total.saturating_mul(geometry.cluster_size()) / unit;
    }

    /// Creates an inode in a free record, whose old content is ignored.
    pub(super) fn fresh(volume: &mut Volume<'_>, number: InodeNo) -> Result<Self, JournalError> {
        let mut record = volume.read_inode(number)?;
        record.fill(0);
        let mut inode = Inode::decode(&record, number, volume.geometry())?;
        OwnedNode::empty_leaf(I_BLOCK_SIZE).encode_into(&mut inode.i_block);
        record[I_BLOCK].copy_from_slice(&inode.i_block);
        Ok(Self { number, record, inode, extents: Vec::new(), tree: Vec::new() })
    }

    /// The location of its mapping, for messages.
    pub(super) fn location(&self) -> Location {
        Location::ExtentNode(self.number, None)
    }
}
