//! Changes of a file's map, block by block.

use std::ops::ControlFlow;

use extant_offline::{FileMap, MapError, OfflineError};
use extant_ondisk::extent::Extent;
use extant_ondisk::inode::{Inode, InodeFlags, SECTOR};
use extant_ondisk::{BlockNo, FileBlock, RoCompatFeatures};

use super::{DebugError, DebugVolume, MapStep, RawRecord};

/// Where an inode's size is: its lower half and its higher one.
const SIZE_AT: (usize, usize) = (0x04, 0x6c);
/// Where its number of blocks is: the lower part and the higher one.
const BLOCKS_AT: (usize, usize) = (0x1c, 0x74);
/// Where its map is.
const I_BLOCK_AT: usize = 0x28;
/// Logical blocks that a map of extents can have.
const MAX_LOGICAL: u64 = u32::MAX as u64;
/// Physical blocks that an extent can name, and those that an indirect block can.
const MAX_PHYSICAL: (u64, u64) = ((1 << 48) - 1, u32::MAX as u64);

impl DebugVolume {
    /// Maps a logical block to a physical one; 0 makes a hole. Nodes that the map needs in addition
    /// are allocated; the data blocks are neither allocated nor freed. The record is written.
    ///
    /// # Errors
    /// The file has no map, or one that is damaged; a number is too large for it; no block is free;
    /// the device failed.
    pub fn set_block(
        &mut self,
        record: &mut RawRecord,
        logical: u64,
        physical: u64,
    ) -> Result<(), DebugError> {
        let mut map = self.file_map(record)?;
        self.put(record, &mut map, logical, physical)
    }

    /// The physical block of a logical one, and whether it is unwritten. A hole gets a block.
    ///
    /// # Errors
    /// As [`Self::set_block`].
    pub fn allocate_block(
        &mut self,
        record: &mut RawRecord,
        logical: u64,
    ) -> Result<(u64, bool), DebugError> {
        let mut map = self.file_map(record)?;
        let block = FileBlock(logical);
        let found =
            map.extents.iter().find_map(|it| Some((it.physical(block)?.0, it.is_unwritten)));
        if let Some(found) = found {
            return Ok(found);
        }
        let ratio = u64::from(self.geometry().blocks_per_cluster);
        let in_cluster = logical % ratio;
        // A cluster that the file has already is not allocated again.
        let first = logical - in_cluster;
        let shared = (first..first.saturating_add(ratio)).find_map(|other| {
            let held = map.extents.iter().find_map(|it| it.physical(FileBlock(other)))?;
            held.0.checked_sub(other - first)
        });
        if !record.is_extents() {
            // As theirs: the indirect blocks come before the data.
            self.put(record, &mut map, logical, self.geometry().blocks_count - 1)?;
        }
        let cluster = match shared {
            Some(cluster) => cluster,
            None => self.take_cluster(record, &map, logical)?,
        };
        self.put(record, &mut map, logical, cluster + in_cluster)?;
        Ok((cluster + in_cluster, false))
    }

    /// Gives a directory one more block, without names.
    ///
    /// # Errors
    /// It is no directory, its entries are in the inode, or as [`Self::allocate_block`].
    pub fn expand_dir(&mut self, record: &mut RawRecord) -> Result<(), DebugError> {
        if !record.is_dir() {
            return Err(DebugError::NotADirectory);
        }
        if record.is_inline() {
            return Err(DebugError::InlineDirectory);
        }
        let size = u64::from(self.geometry().block_size);
        let logical = record.size().div_ceil(size);
        let (physical, _) = self.allocate_block(record, logical)?;
        let mut bytes = vec![0; self.geometry().block_len()];
        let format = self.dir_format(record);
        format.clear(&mut bytes);
        format.seal(&mut bytes);
        self.write_block(BlockNo(physical), &bytes)?;
        let size = record.size().saturating_add(size).to_le_bytes();
        record.set_bytes(SIZE_AT.0, &size[..4]);
        record.set_bytes(SIZE_AT.1, &size[4..]);
        self.write_inode(record)
    }

    /// The map of a file, as far as it can be written again.
    fn file_map(&self, record: &RawRecord) -> Result<FileMap, DebugError> {
        if record.is_inline() {
            return Err(DebugError::InlineFile);
        }
        let inode = self.decoded(record)?;
        if !self.editor.has_map(&inode) {
            return Err(DebugError::InvalidArgument);
        }
        let mut map = FileMap::default();
        self.walk_blocks(record, &mut |step| {
            match step {
                MapStep::Node { at, .. } => map.nodes.push(BlockNo(at)),
                MapStep::Data { logical, start, len, is_unwritten } => map.extents.push(Extent {
                    block: FileBlock(logical),
                    // An extent has at most 32,768 blocks.
                    len: len as u32,
                    start: BlockNo(start),
                    is_unwritten,
                }),
            }
            ControlFlow::Continue(())
        })?;
        let is_ordered = map.extents.windows(2).all(|pair| pair[0].end() <= pair[1].block);
        let is_whole = map.extents.iter().all(|extent| extent.len > 0);
        if !is_ordered || !is_whole {
            return Err(DebugError::ExtentHeader);
        }
        Ok(map)
    }

    fn decoded(&self, record: &RawRecord) -> Result<Inode, DebugError> {
        Ok(Inode::decode(&record.bytes, record.number, self.geometry())?)
    }

    /// Changes one block of a map, and writes the map and the record.
    fn put(
        &mut self,
        record: &mut RawRecord,
        map: &mut FileMap,
        logical: u64,
        physical: u64,
    ) -> Result<(), DebugError> {
        let most = if record.is_extents() { MAX_PHYSICAL.0 } else { MAX_PHYSICAL.1 };
        if logical > MAX_LOGICAL {
            return Err(DebugError::TooBig);
        }
        if physical > most {
            return Err(DebugError::InvalidArgument);
        }
        replace(&mut map.extents, logical, physical);
        let inode = self.decoded(record)?;
        loop {
            match self.editor.write_map(record.number, &inode, map) {
                Ok((root, left)) => {
                    for node in left {
                        map.nodes.retain(|it| *it != node);
                        self.editor.free_blocks_of(std::iter::once(node.0..node.0 + 1))?;
                        self.count_clusters(record, -1);
                    }
                    record.set_bytes(I_BLOCK_AT, &root);
                    return self.write_inode(record);
                }
                Err(OfflineError::Map(MapError::TooFragmented(_))) => {
                    let node = self.take_cluster(record, map, logical)?;
                    map.nodes.push(BlockNo(node));
                }
                Err(OfflineError::Map(MapError::Broken(_))) => return Err(DebugError::TooBig),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Allocates a cluster for a file, near what it has before a logical block.
    fn take_cluster(
        &mut self,
        record: &mut RawRecord,
        map: &FileMap,
        logical: u64,
    ) -> Result<u64, DebugError> {
        let geometry = self.geometry();
        let before = map.extents.iter().rfind(|it| it.block.0 < logical).map(|it| it.start);
        let home =
            geometry.inode_place(record.number).map(|(group, _)| geometry.group_start(group));
        let goal = before.or(home).unwrap_or(geometry.first_data_block);
        let found = self.editor.take_blocks(goal, 1)?;
        let first = found.first().map(|run| run.start).ok_or(DebugError::NoBlock)?;
        self.count_clusters(record, 1);
        Ok(first)
    }

    /// Counts clusters that a file got or lost.
    fn count_clusters(&self, record: &mut RawRecord, change: i64) {
        let geometry = self.geometry();
        let in_blocks = record.flags().contains(InodeFlags::HUGE_FILE);
        let unit = if in_blocks { u64::from(geometry.block_size) } else { SECTOR };
        let each = (geometry.cluster_size() / unit).cast_signed();
        let now = record.blocks(geometry).saturating_add_signed(each.saturating_mul(change));
        let stored = now.to_le_bytes();
        record.set_bytes(BLOCKS_AT.0, &stored[..4]);
        if geometry.has_ro_compat(RoCompatFeatures::HUGE_FILE) {
            record.set_bytes(BLOCKS_AT.1, &stored[4..6]);
        }
    }
}

/// Maps one block of a list of extents in order; physical block 0 takes it out.
fn replace(extents: &mut Vec<Extent>, logical: u64, physical: u64) {
    let block = FileBlock(logical);
    if let Some(at) = extents.iter().position(|it| it.contains(block)) {
        let old = extents.remove(at);
        // Within the extent.
        let head = (logical - old.block.0) as u32;
        let tail = old.len - head - 1;
        let skipped = u64::from(head) + 1;
        let (next, rest) = (FileBlock(logical + 1), BlockNo(old.start.0.saturating_add(skipped)));
        let parts =
            [Extent { len: head, ..old }, Extent { block: next, len: tail, start: rest, ..old }];
        let parts = parts.into_iter().filter(|part| part.len > 0);
        extents.splice(at..at, parts);
    }
    if physical == 0 {
        return;
    }
    let at = extents.partition_point(|it| it.block < block);
    let new = Extent { block, len: 1, start: BlockNo(physical), is_unwritten: false };
    extents.insert(at, new);
    // With the one after it, then with the one before it.
    for at in [at, at.wrapping_sub(1)] {
        if let (Some(left), Some(right)) = (extents.get(at), extents.get(at.wrapping_add(1)))
            && left.is_continued_by(right)
        {
            let len = right.len;
            extents[at].len += len;
            extents.remove(at + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(block: u64, len: u32, start: u64) -> Extent {
        Extent { block: FileBlock(block), len, start: BlockNo(start), is_unwritten: false }
    }

    #[test]
    fn a_block_is_taken_out_of_its_extent_and_joins_its_neighbours() {
        let mut extents = vec![extent(0, 10, 100), extent(20, 1, 200)];
        replace(&mut extents, 4, 0);
        assert_eq!(extents, [extent(0, 4, 100), extent(5, 5, 105), extent(20, 1, 200)]);
        replace(&mut extents, 4, 104);
        assert_eq!(extents, [extent(0, 10, 100), extent(20, 1, 200)]);
        replace(&mut extents, 0, 7);
        assert_eq!(extents, [extent(0, 1, 7), extent(1, 9, 101), extent(20, 1, 200)]);
        replace(&mut extents, 30, 0);
        replace(&mut extents, 21, 201);
        assert_eq!(extents, [extent(0, 1, 7), extent(1, 9, 101), extent(20, 2, 200)]);
    }
}
