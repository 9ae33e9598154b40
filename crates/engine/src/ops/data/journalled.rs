//! Data that go through the journal: written as frames in the operation that maps them, read from
//! frames where they are newer.

use super::super::{Credentials, credits};
use super::range::{touched, zero_in_frames};
use super::write_plan::set_state;
use super::{set_size, touch};
use crate::edit::{AllocationRequest, Edit, Purpose, write_inode};
use crate::engine::Engine;
use crate::engine::inodes::{CachedInode, InodeWrite};
use crate::engine::operation::Operation;
use crate::write::mapping::{self, ExtentState};
use extant_ondisk::{BlockNo, FileBlock, GroupNo};
use extant_reader::read::data;
use extant_reader::read::inode::LoadedInode;
use extant_reader::read::mapping::{MappingTarget, map};
use extant_reader::{BlockKind, DataPiece, Error, MetadataRead, VolumeInfo};
use std::sync::Arc;

/// Blocks that one operation writes at most.
const BLOCKS_PER_PLAN: u64 = 64;
/// Runs that it maps at most.
const RUNS_PER_PLAN: u32 = 8;

/// A volume whose journalled data are read as the last operation left them.
struct Newest<'v>(&'v Engine);

impl MetadataRead for Newest<'_> {
    type Block = Arc<[u8]>;

    fn info(&self) -> &VolumeInfo {
        self.0.info()
    }

    fn metadata(&self, block: BlockNo, kind: BlockKind) -> Result<Arc<[u8]>, Error> {
        self.0.metadata(block, kind)
    }

    fn inode_table(&self, group: GroupNo) -> Result<BlockNo, Error> {
        self.0.inode_table(group)
    }

    /// Frames are looked up before the device is read: one that is gone by then was checkpointed
    /// before.
    fn data(&self, pieces: &mut [DataPiece<'_>]) -> Result<(), Error> {
        let (bits, size) = (self.geometry().block_bits(), u64::from(self.geometry().block_size));
        let mut newer = Vec::new();
        for (index, piece) in pieces.iter().enumerate() {
            let end = piece.offset + piece.buffer.len() as u64;
            for block in piece.offset >> bits..end.div_ceil(size) {
                if let Some(frame) = self.0.journal.cached(BlockNo(block)) {
                    newer.push((index, block, frame.snapshot()));
                }
            }
        }
        self.0.data(pieces)?;
        for (index, block, bytes) in newer {
            let piece = &mut pieces[index];
            let end = piece.offset + piece.buffer.len() as u64;
            let (from, to) = ((block << bits).max(piece.offset), ((block + 1) << bits).min(end));
            // Parts of a block and of the buffer.
            let part = (from - (block << bits)) as usize..(to - (block << bits)) as usize;
            let into = (from - piece.offset) as usize..(to - piece.offset) as usize;
            piece.buffer[into].copy_from_slice(&bytes[part]);
        }
        Ok(())
    }
}

impl Engine {
    /// Reads a file's bytes, from frames where they are newer.
    pub(crate) fn read_newest(
        &self,
        file: &LoadedInode,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Error> {
        data::read(&Newest(self), file, offset, buffer)
    }

    /// Writes some of the bytes, from the first on; how many.
    pub(super) fn write_journalled(
        &self,
        shared: &Arc<CachedInode>,
        file: &mut InodeWrite<'_>,
        offset: u64,
        bytes: &[u8],
        by: &Credentials,
    ) -> Result<usize, Error> {
        let geometry = self.geometry();
        let bits = geometry.block_bits();
        let blocks = touched(geometry, &(offset..offset + bytes.len() as u64));
        let most = u64::from(self.journal.max_credits() / 4).clamp(1, BLOCKS_PER_PLAN);
        let last = blocks.end.0.min(blocks.start.0 + most);
        let end = (offset + bytes.len() as u64).min(last << bits);
        let gap = self.gap(file, offset)?;
        // At most BLOCKS_PER_PLAN blocks, and a gap.
        let data_credits = (last - blocks.start.0) as u32 + 1;
        let map_credits = RUNS_PER_PLAN * credits::map_block(file);
        let credits = data_credits
            + map_credits
            + credits::INODE
            + credits::SUPERBLOCK
            + credits::quotas(self);
        let mut edit = self.edit(credits)?.privileged(by.is_privileged);
        zero_in_frames(&mut edit, &gap)?;
        let before = file.inode.clone();
        let mut at = offset;
        let mut runs = 0;
        let mut failure = None;
        while at < end && runs < RUNS_PER_PLAN {
            // Parts of the slice.
            let data = &bytes[(at - offset) as usize..(end - offset) as usize];
            match edit.attempt(file, |edit, file| self.write_run(edit, file, at, data)) {
                Ok(count) => at += count,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
            runs += 1;
        }
        if let Some(error) = failure
            && at == offset
        {
            return Err(error);
        }
        let is_overwriting = at <= file.size && file.inode == before;
        if !(is_overwriting && self.touch_lazily(shared, file, by)) {
            touch(&edit, file, by);
            let size = file.size.max(at);
            set_size(&mut edit, file, size)?;
            write_inode(&mut edit, file.number, &file.inode)?;
        }
        edit.finish();
        // A part of the slice's length.
        Ok((at - offset) as usize)
    }

    /// Writes bytes to the run that `offset` lies in, which is made where there is a hole; how
    /// many.
    fn write_run(
        &self,
        edit: &mut Operation<'_>,
        file: &mut LoadedInode,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u64, Error> {
        let bits = self.geometry().block_bits();
        let first = FileBlock(offset >> bits);
        let blocks = touched(self.geometry(), &(offset..offset + bytes.len() as u64));
        let mapping = map(edit, file, first)?;
        let count = mapping.len.min(blocks.end.0 - first.0);
        let (start, count, is_new) = match mapping.target {
            MappingTarget::Written(start) => (start, count, false),
            MappingTarget::Unwritten(start) => {
                let range = first..FileBlock(first.0 + count);
                set_state(edit, file, range, ExtentState::Written)?;
                (start, count, true)
            }
            MappingTarget::Hole => {
                let request = AllocationRequest {
                    inode: file.number,
                    purpose: Purpose::Data,
                    goal: None,
                    count,
                    part: None,
                };
                let run = mapping::allocate(edit, file, first, request, ExtentState::Written)?;
                (run.start, run.count, true)
            }
        };
        let end = (offset + bytes.len() as u64).min((first.0 + count) << bits);
        for index in 0..count {
            let block_start = (first.0 + index) << bits;
            let (from, to) = (offset.max(block_start), end.min(block_start + (1 << bits)));
            // Parts of the slice and of a block.
            let data = &bytes[(from - offset) as usize..(to - offset) as usize];
            let part = (from - block_start) as usize..(to - block_start) as usize;
            let block = BlockNo(start.0 + index);
            let fill = |bytes: &mut [u8]| bytes[part.clone()].copy_from_slice(data);
            if is_new || part.len() == self.geometry().block_len() {
                edit.create(block, BlockKind::Contents, fill)?;
            } else {
                edit.modify(block, BlockKind::Contents, fill)?;
            }
        }
        Ok(end - offset)
    }

    /// Gives a block to a hole and writes the bytes to its start.
    pub(super) fn create_journalled(
        &self,
        edit: &mut Operation<'_>,
        file: &mut LoadedInode,
        at: FileBlock,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let count = self.write_run(edit, file, at.0 << self.geometry().block_bits(), bytes)?;
        debug_assert_eq!(count, bytes.len() as u64, "the bytes fit in a block");
        Ok(())
    }
}
