//! Files without a directory entry: the journal, the orphan file, quota files.

use std::ops::Range;

use extant_layout::RunSet;
use extant_layout::pack::{MappingTree, dense_runs};
use extant_layout::tables::journal_goal;
use extant_ondisk::bitmap::{BitmapKind, runs};
use extant_ondisk::extent::ROOT_SIZE;
use extant_ondisk::inode::{Inode, InodeFlags};
use extant_ondisk::jbd2::{JournalSuperblock, RawJournalSuperblock};
use extant_ondisk::time::Timestamp;
use extant_ondisk::{
    BlockNo, CompatFeatures, GroupNo, IncompatFeatures, InodeNo, RoCompatFeatures, Uuid,
};
use zerocopy::IntoBytes;

use crate::{MapError, OfflineError, OfflineVolume};

/// Mode of a regular file that only its owner may read or write.
const HIDDEN_FILE: u16 = 0o100_600;

/// The size and location of a new journal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct JournalShape {
    /// Number of blocks, including those for fast commits.
    pub blocks: u32,
    /// Number of blocks for fast commits, at the end.
    pub fast_commit_blocks: u32,
    /// Allocation goal.
    pub goal: BlockNo,
}

/// A file that was created.
#[derive(Clone, Debug)]
pub struct CreatedFile {
    /// The inode as written.
    pub inode: Inode,
    /// Data blocks in file order.
    pub data: Vec<Range<u64>>,
}

impl CreatedFile {
    /// The data blocks one by one.
    pub fn blocks(&self) -> impl Iterator<Item = BlockNo> + '_ {
        self.data.iter().flat_map(Clone::clone).map(BlockNo)
    }
}

impl OfflineVolume {
    /// Allocates blocks for a file of `size` bytes without holes, maps them and writes its inode;
    /// the caller writes the contents. The inode must be free or about to be overwritten; it is
    /// marked in use.
    ///
    /// # Errors
    /// There is not enough space, or the device failed.
    pub fn make_file(
        &mut self,
        number: InodeNo,
        size: u64,
        goal: BlockNo,
        flags: InodeFlags,
        now: u64,
    ) -> Result<CreatedFile, OfflineError> {
        let block_size = u64::from(self.geometry.block_size);
        let ratio = u64::from(self.geometry.blocks_per_cluster);
        let count = size.div_ceil(block_size);
        let data = self.take_blocks(goal, count)?;
        let has_extents = self.geometry.has_incompat(IncompatFeatures::EXTENTS);
        let tree = MappingTree::new(dense_runs(data.iter().cloned()), has_extents);
        let (i_block, nodes) = self.write_new_map(number, &tree, goal)?;
        let space = count.next_multiple_of(ratio) + nodes * ratio;
        let mut inode = self.hidden_inode(i_block, now);
        inode.size = size;
        inode.flags |= flags;
        if has_extents {
            inode.flags |= InodeFlags::EXTENTS;
        }
        inode.set_space(&self.geometry, space);
        let mut record = vec![0; usize::from(self.geometry.inode_size)];
        inode.encode_into(&mut record, &self.geometry);
        self.mark_inode(number, false)?;
        self.write_inode(number, &mut record)?;
        if size > i32::MAX as u64 {
            self.update_superblock(|raw| {
                let mut features = raw.features();
                features.ro_compat |= RoCompatFeatures::LARGE_FILE;
                raw.set_features(features);
            })?;
        }
        Ok(CreatedFile { inode, data })
    }

    /// Writes a map to newly allocated blocks. Returns `i_block` and the number of these blocks.
    fn write_new_map(
        &mut self,
        number: InodeNo,
        tree: &MappingTree,
        goal: BlockNo,
    ) -> Result<([u8; ROOT_SIZE], u64), OfflineError> {
        let needed = tree.blocks(self.geometry.block_size).ok_or(MapError::Broken(number))?;
        let mut places = Vec::new();
        for _ in 0..needed {
            places.extend(self.take_blocks(goal, 1)?.into_iter().flatten().map(BlockNo));
        }
        let mut written = Vec::new();
        let i_block = tree.write(number, 0, &self.geometry, places, |block, bytes| {
            written.push((block, bytes.to_vec()));
        });
        for (block, bytes) in written {
            self.write(block, &bytes)?;
        }
        Ok((i_block, needed))
    }

    fn hidden_inode(&self, i_block: [u8; ROOT_SIZE], now: u64) -> Inode {
        let time = Timestamp::new(i64::try_from(now).unwrap_or(i64::MAX), 0);
        Inode { i_block, ..Inode::new(&self.geometry, HIDDEN_FILE, time) }
    }

    /// Frees the blocks of a file without a directory entry, and clears its record. If its map is
    /// invalid, no blocks are freed: the next check finds them.
    /// # Errors
    /// The device failed, or a bitmap lies off the volume.
    pub fn remove_file(&mut self, number: InodeNo) -> Result<(), OfflineError> {
        let mut record = self.read_inode(number)?;
        let inode = Inode::decode(&record, number, &self.geometry)?;
        match self.read_map(number, &inode) {
            Ok(map) => self.free_blocks_of(map.all().collect::<Vec<_>>())?,
            Err(OfflineError::Device(error)) => return Err(error.into()),
            Err(_) => {}
        }
        record.fill(0);
        self.write_inode(number, &mut record)?;
        if number >= self.geometry.first_inode {
            self.free_inode(number, false)?;
        }
        Ok(())
    }

    /// The blocks in the bad blocks inode.
    ///
    /// # Errors
    /// The inode is invalid, or the device failed.
    pub fn bad_blocks(&self) -> Result<RunSet, OfflineError> {
        let mut bad = RunSet::new();
        let record = self.read_inode(InodeNo::BAD_BLOCKS)?;
        let inode = Inode::decode(&record, InodeNo::BAD_BLOCKS, &self.geometry)?;
        for run in self.read_map(InodeNo::BAD_BLOCKS, &inode)?.data() {
            bad.insert(run);
        }
        Ok(bad)
    }

    /// Replaces the list of bad blocks. Blocks that files or metadata use stay in use by them too:
    /// the next check relocates these.
    ///
    /// # Errors
    /// More blocks than indirect blocks can list, not enough space, or the device failed.
    pub fn set_bad_blocks(&mut self, bad: &RunSet) -> Result<(), OfflineError> {
        let number = InodeNo::BAD_BLOCKS;
        let mut record = self.read_inode(number)?;
        let mut inode = Inode::decode(&record, number, &self.geometry)?;
        let old = self.read_map(number, &inode)?;
        let gone: Vec<_> = old.all().flatten().filter(|block| !bad.contains(*block)).collect();
        self.free_blocks_of(gone.into_iter().map(|block| block..block + 1))?;
        self.claim_blocks(bad.iter())?;
        let count = bad.count();
        let tree = MappingTree::new(dense_runs(bad.iter()), false);
        let goal = self.geometry.first_data_block;
        let (i_block, nodes) = self.write_new_map(number, &tree, goal)?;
        inode.i_block = i_block;
        inode.size = count * u64::from(self.geometry.block_size);
        // Each block is charged as a cluster, even if several are in one, as e2fsck counts them.
        let blocks = (count + nodes) * u64::from(self.geometry.blocks_per_cluster);
        inode.set_space(&self.geometry, blocks);
        inode.encode_into(&mut record, &self.geometry);
        self.write_inode(number, &mut record)
    }

    /// The allocation goal for a journal: in the middle if files have extents, otherwise as early
    /// as possible.
    ///
    /// # Errors
    /// A bitmap cannot be read.
    pub fn journal_goal(&mut self) -> Result<BlockNo, OfflineError> {
        let geometry = self.geometry.clone();
        if !geometry.has_incompat(IncompatFeatures::EXTENTS) {
            return Ok(geometry.first_data_block);
        }
        // Only the bitmaps of groups around the middle are read.
        let middle = geometry
            .group_of(BlockNo(geometry.first_data_block.0 + geometry.blocks_count / 2))
            .unwrap_or(GroupNo(0));
        let mut used = RunSet::new();
        let ratio = u64::from(geometry.blocks_per_cluster);
        let last = geometry.groups_count - 1;
        for group in (middle.0.saturating_sub(1)..=(middle.0 + 1).min(last)).map(GroupNo) {
            let start = geometry.group_start(group).0;
            let bits = 0..geometry.group_clusters(group);
            let bitmap = self.bitmap(BitmapKind::Block, group)?;
            for run in runs(bitmap, bits).filter(|run| run.is_set) {
                let (from, to) =
                    (u64::from(run.bits.start) * ratio, u64::from(run.bits.end) * ratio);
                used.insert(start + from..start + to);
            }
        }
        Ok(journal_goal(&geometry, &used))
    }

    /// Creates the volume's journal in its inode and registers it in the superblock, with a copy of
    /// its map.
    ///
    /// # Errors
    /// There is not enough space, or the device failed.
    pub fn make_journal(&mut self, shape: JournalShape, now: u64) -> Result<(), OfflineError> {
        let size = u64::from(shape.blocks) * u64::from(self.geometry.block_size);
        let number = InodeNo::JOURNAL;
        let file = self.make_file(number, size, shape.goal, InodeFlags::empty(), now)?;
        for run in &file.data {
            let range = BlockNo(run.start)..BlockNo(run.end);
            let bytes = self.geometry.byte_of(range.start)..self.geometry.byte_of(range.end);
            self.device.write_zeroes(bytes)?;
        }
        let first = file.data.first().map_or(0, |run| run.start);
        let mut block = vec![0; self.geometry.block_len()];
        let raw = JournalSuperblock {
            uuid: Uuid(self.raw.s_uuid),
            fast_commit_blocks: shape.fast_commit_blocks,
            ..JournalSuperblock::empty(self.geometry.block_size, shape.blocks)
        }
        .encode_sealed();
        block[..size_of::<RawJournalSuperblock>()].copy_from_slice(raw.as_bytes());
        self.write(BlockNo(first), &block)?;
        let inode = file.inode;
        self.update_superblock(|raw| {
            let mut features = raw.features();
            features.compat |= CompatFeatures::HAS_JOURNAL;
            raw.set_features(features);
            raw.s_rev_level.set(raw.s_rev_level.get().max(1));
            raw.s_journal_inum.set(number.0);
            raw.s_journal_dev.set(0);
            raw.s_journal_uuid = [0; 16];
            back_up_journal(raw, &inode);
        })
    }

    /// Writes a file's contents; the rest of its last block is zero.
    ///
    /// # Errors
    /// The device failed.
    pub fn write_file(&self, file: &CreatedFile, bytes: &[u8]) -> Result<(), OfflineError> {
        let mut parts = bytes.chunks(self.geometry.block_len());
        for block in file.blocks() {
            let mut whole = parts.next().unwrap_or_default().to_vec();
            whole.resize(self.geometry.block_len(), 0);
            self.write(block, &whole)?;
        }
        Ok(())
    }
}

/// Copies the journal inode's map and size to the superblock.
pub fn back_up_journal(raw: &mut extant_ondisk::superblock::RawSuperblock, inode: &Inode) {
    raw.s_jnl_backup_type = 1;
    let words = inode.i_block.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
    for (stored, word) in raw.s_jnl_blocks.iter_mut().zip(words) {
        stored.set(word);
    }
    raw.s_jnl_blocks[15].set((inode.size >> 32) as u32);
    raw.s_jnl_blocks[16].set((inode.size & 0xffff_ffff) as u32);
}
