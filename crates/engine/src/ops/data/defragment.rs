//! Files and directories whose runs of blocks are brought together.
//!
//! The blocks of a few runs are copied to one free run, and then mapped there in place of the old
//! ones, in one operation: power loss leaves them at the old place or at the new one, whole. The
//! copy is on the device before the map changes. Runs are left where they are if no free run is
//! longer.

use super::super::credits;
use super::write_plan::take_and_place;
use crate::alloc::{Budget, Claim};
use crate::edit::{AllocationRequest, BlockRange, Edit, Purpose, default_goal, write_inode};
use crate::engine::Engine;
use crate::engine::inodes::LockClass;
use crate::engine::operation::Operation;
use crate::write::htree;
use crate::write::mapping::{self, ExtentState};
use extant_ondisk::extent::Extent;
use extant_ondisk::htree::IndexKind;
use extant_ondisk::inode::FileType;
use extant_ondisk::{
    BlockNo, CompatFeatures, FileBlock, Flaw, GroupNo, InodeNo, Location, MAX_FILE_BLOCKS,
};
use extant_reader::read::dir_block::{block_kind, format, is_indexed};
use extant_reader::read::inode::LoadedInode;
use extant_reader::read::mapping::{Mapping, MappingTarget, extents, map};
use extant_reader::{Error, MetadataRead};
use std::ops::Range;

/// Runs that one operation brings together at most.
const RUNS_OF_MOVE: usize = 64;
/// Blocks of a directory that one operation moves at most: each is in the journal.
const DIR_BLOCKS_OF_MOVE: u64 = 32;
/// Bytes that are copied at a time, in blocks of any size.
const COPIED_AT_ONCE: u64 = 4 << 20;

/// The runs of a file, which a read of it goes through: blocks that follow each other in the file
/// and on the volume are one run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Defragmented {
    /// Before.
    pub runs_before: u64,
    /// Now.
    pub runs_after: u64,
    /// Blocks that have another place now.
    pub moved: u64,
}

/// Blocks that follow each other in the file, all of them written.
#[derive(Debug)]
struct Stretch {
    runs: Vec<Mapping>,
}

impl Stretch {
    fn start(&self) -> FileBlock {
        self.runs.first().map_or(FileBlock(0), |run| run.block)
    }

    fn end(&self) -> FileBlock {
        self.runs.last().map_or(FileBlock(0), Mapping::end)
    }

    /// Its first runs that have at most `most` blocks in all.
    fn within(&self, most: u64) -> &[Mapping] {
        let mut blocks = 0;
        let count = self.runs.iter().take_while(|run| {
            blocks += run.len;
            blocks <= most
        });
        &self.runs[..count.count()]
    }
}

impl Engine {
    /// Brings the runs of a file or a directory together where free space has longer runs. Nothing
    /// else of it changes, its times neither. Runs that were preallocated stay where they are.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for a file whose data are journalled, and for one without extents;
    /// an error of a device or of a map. The file is whole then, and a part of it may have been
    /// moved.
    pub fn defragment(&self, file: InodeNo) -> Result<Defragmented, Error> {
        self.with_space(|| {
            let file = self.inodes.get(file);
            let class = match file.read(self, LockClass::File)?.file_type() {
                FileType::Directory => LockClass::Dir,
                _ => LockClass::File,
            };
            let mut inode = file.write(self, class)?;
            self.check_writable()?;
            if !matches!(inode.file_type(), FileType::Regular | FileType::Directory) {
                return Err(Error::WrongFileType);
            }
            if inode.is_inline() {
                return Ok(Defragmented::default());
            }
            if !inode.is_extent_mapped() {
                return Err(Error::NotSupported("defragmentation of a file without extents"));
            }
            if !inode.is_dir() {
                if self.is_journalled(&inode) {
                    let what = "defragmentation of a file whose data are journalled";
                    return Err(Error::NotSupported(what));
                }
                self.write_back(&file, &mut inode);
            }
            let runs_before = self.runs_of(&inode)?;
            let mut moved = 0;
            let mut next = (runs_before > 1).then_some(FileBlock(0));
            while let Some(from) = next {
                let Some(stretch) = self.stretch(&inode, from)? else { break };
                next = Some(self.join_runs(&mut inode, &stretch, &mut moved)?);
            }
            Ok(Defragmented { runs_before, runs_after: self.runs_of(&inode)?, moved })
        })
    }

    /// The number of runs that the blocks of a file or a directory are in; 0 without blocks. Data
    /// that have no blocks yet are written first.
    ///
    /// # Errors
    /// A broken map, or the device failed.
    pub fn count_runs(&self, file: InodeNo) -> Result<u64, Error> {
        let file = self.inodes.get(file);
        self.write_back_file(&file);
        let inode = file.read(self, LockClass::File)?;
        if inode.is_inline() {
            return Ok(0);
        }
        self.runs_of(&inode)
    }

    fn runs_of(&self, file: &LoadedInode) -> Result<u64, Error> {
        let (mut count, mut after) = (0, None);
        for run in extents(self, file.clone(), FileBlock(0), FileBlock(MAX_FILE_BLOCKS)) {
            let run = run?;
            if let Some(start) = run.physical() {
                count += u64::from(after != Some((run.block, start)));
                after = Some((run.end(), BlockNo(start.0 + run.len)));
            }
        }
        Ok(count)
    }

    /// The next written blocks from `from` on, as many runs as one look takes.
    fn stretch(&self, file: &LoadedInode, from: FileBlock) -> Result<Option<Stretch>, Error> {
        let mut runs: Vec<Mapping> = Vec::new();
        let mut blocks = 0;
        for run in extents(self, file.clone(), from, FileBlock(MAX_FILE_BLOCKS)) {
            let run = run?;
            let follows = runs.last().is_none_or(|last| last.end() == run.block);
            let is_written = matches!(run.target, MappingTarget::Written(_));
            match (is_written && follows, runs.is_empty()) {
                (true, _) => runs.push(run),
                (false, true) => continue,
                (false, false) => break,
            }
            blocks += run.len;
            if blocks >= u64::from(Extent::max_len(false)) {
                break;
            }
        }
        Ok((!runs.is_empty()).then_some(Stretch { runs }))
    }

    /// Brings the first runs of a stretch together, as many as the longest free run has room for.
    /// Where the next stretch begins.
    fn join_runs(
        &self,
        file: &mut LoadedInode,
        stretch: &Stretch,
        moved: &mut u64,
    ) -> Result<FileBlock, Error> {
        let [first, _, ..] = &stretch.runs[..] else { return Ok(stretch.end()) };
        let per_cluster = u64::from(self.geometry().blocks_per_cluster);
        let start = stretch.start();
        if !start.0.is_multiple_of(per_cluster) {
            // The cluster belongs to other blocks, too.
            return Ok(first.end());
        }
        let free = match self.claim_run(file, stretch.end().0 - start.0, None) {
            Ok(claim) => claim.run(),
            Err(Error::NoSpace) => return Ok(stretch.end()),
            Err(error) => return Err(error),
        };
        let mut runs = stretch.within(free.count);
        // A run is not cut within a cluster.
        while let [before @ .., last] = runs
            && !self.ends_cluster(file, last.end())?
        {
            runs = before;
        }
        if runs.len() < 2 {
            return Ok(first.end());
        }
        let end = runs.last().map_or(start, Mapping::end);
        let mut at = start;
        while at < end {
            let goal = BlockNo(free.start.0 + (at.0 - start.0));
            let part = self.part(file, at..end)?;
            if part.is_empty() {
                break;
            }
            let count = part.end.0 - part.start.0;
            let claim = match self.claim_run(file, count, Some(goal)) {
                Ok(claim) => claim,
                Err(Error::NoSpace) => break,
                Err(error) => return Err(error),
            };
            // Another has taken of it.
            if claim.run().start != goal || claim.run().count < count {
                break;
            }
            match self.move_blocks(file, part.clone(), claim) {
                Err(Error::NoSpace) => break,
                done => done?,
            }
            *moved += count;
            at = part.end;
        }
        Ok(at.max(first.end()))
    }

    /// Sets a free run aside.
    fn claim_run(
        &self,
        file: &LoadedInode,
        count: u64,
        goal: Option<BlockNo>,
    ) -> Result<Claim, Error> {
        let goal = match goal {
            Some(goal) => goal,
            None => default_goal(self, file.number)?,
        };
        let purpose = if file.is_dir() { Purpose::Metadata } else { Purpose::Data };
        let request =
            AllocationRequest { inode: file.number, purpose, goal: Some(goal), count, part: None };
        self.allocator.claim(self, request, Budget::Free { is_privileged: true })
    }

    /// The part at the start of a range of written blocks that one operation can move: of one leaf
    /// of the map, in a few groups, and of whole clusters.
    fn part(
        &self,
        file: &LoadedInode,
        blocks: Range<FileBlock>,
    ) -> Result<Range<FileBlock>, Error> {
        let geometry = self.geometry();
        let most = match file.is_dir() {
            true => DIR_BLOCKS_OF_MOVE.min(u64::from(self.journal.max_credits()) / 8),
            false => u64::from(geometry.group_blocks(GroupNo(0))) * credits::GROUPS_OF_STEP as u64,
        };
        let leaf_end = mapping::leaf_end(self, file, blocks.start)?;
        let limit = blocks.end.min(leaf_end).min(FileBlock(blocks.start.0 + most.max(1)));
        let (mut groups, mut end) = (Vec::<u32>::new(), blocks.start);
        for run in extents(self, file.clone(), blocks.start, limit).take(RUNS_OF_MOVE) {
            let run = run?;
            let Some(start) = run.physical() else { break };
            let last = BlockNo(start.0.saturating_add(run.len - 1));
            let (Some(first), Some(last)) = (geometry.group_of(start), geometry.group_of(last))
            else {
                let flaw = Flaw::bad_value("block outside the volume", start.0);
                return Err(flaw.at(Location::Inode(file.number)).into());
            };
            groups.extend(first.0..=last.0);
            groups.sort_unstable();
            groups.dedup();
            if groups.len() > credits::GROUPS_OF_STEP && end > blocks.start {
                break;
            }
            end = run.end();
        }
        if !self.ends_cluster(file, end)? {
            let rest = end.0 % u64::from(geometry.blocks_per_cluster);
            end = FileBlock(end.0 - rest).max(blocks.start);
        }
        Ok(blocks.start..end)
    }

    /// Whether no block from `end` on lies in the cluster of the block before it.
    fn ends_cluster(&self, file: &LoadedInode, end: FileBlock) -> Result<bool, Error> {
        let per_cluster = u64::from(self.geometry().blocks_per_cluster);
        let rest = end.0 % per_cluster;
        if rest == 0 {
            return Ok(true);
        }
        let hole = map(self, file, end)?;
        Ok(hole.is_hole() && hole.len >= per_cluster - rest)
    }

    /// Copies blocks to a free run, and maps them there.
    fn move_blocks(
        &self,
        file: &mut LoadedInode,
        blocks: Range<FileBlock>,
        claim: Claim,
    ) -> Result<(), Error> {
        let has_journal = self.geometry().has_compat(CompatFeatures::HAS_JOURNAL);
        let run = BlockRange { start: claim.run().start, count: blocks.end.0 - blocks.start.0 };
        if !file.is_dir() {
            self.copy_data(file, &blocks, run.start)?;
            if !has_journal {
                // The map may reach the device at any time.
                self.flush_or_stop()?;
            }
        }
        // At most the number of blocks of a directory that are moved at once.
        let copies = if file.is_dir() { run.count as u32 } else { 0 };
        let own = credits::INODE + credits::SUPERBLOCK + credits::quotas(self);
        let all = own + credits::remove_step(file) + credits::map_block(file) + copies;
        let mut edit = self.edit(all)?.privileged(true);
        edit.refuse_fast_commit("blocks moved within a file");
        let moved = edit.attempt(file, |edit, file| {
            if file.is_dir() {
                copy_dir_blocks(edit, file, &blocks, run.start)?;
            }
            let mut next = Some(blocks.start);
            while let Some(from) = next {
                next = self.remove_step(edit, file, from..blocks.end)?;
            }
            take_and_place(edit, file, blocks.start, run, Some(claim), ExtentState::Written)
        });
        write_inode(&mut edit, file.number, &file.inode)?;
        edit.finish();
        moved?;
        if !has_journal {
            // The old blocks must not be used again before the map is on the device.
            self.commit_all()?;
        }
        Ok(())
    }

    /// Copies the data of blocks to a run on the device.
    fn copy_data(
        &self,
        file: &LoadedInode,
        blocks: &Range<FileBlock>,
        to: BlockNo,
    ) -> Result<(), Error> {
        let geometry = self.geometry();
        let mut buffer = Vec::new();
        for run in extents(self, file.clone(), blocks.start, blocks.end) {
            let run = run?;
            let Some(from) = run.physical() else { continue };
            let to = geometry.byte_of(BlockNo(to.0 + (run.block.0 - blocks.start.0)));
            let (from, length) = (geometry.byte_of(from), run.len << geometry.block_bits());
            for at in (0..length).step_by(COPIED_AT_ONCE as usize) {
                buffer.resize((length - at).min(COPIED_AT_ONCE) as usize, 0);
                self.device.read_at(from + at, &mut buffer)?;
                self.device.write_at(to + at, &buffer)?;
            }
        }
        Ok(())
    }
}

/// The kind of an index block of a directory; `None` for one of records. Of a node the only record
/// fills the block.
fn index_kind(
    edit: &Operation<'_>,
    dir: &LoadedInode,
    at: FileBlock,
    bytes: &[u8],
) -> Option<IndexKind> {
    if !is_indexed(edit, dir) {
        return None;
    }
    if at.0 == 0 {
        return Some(IndexKind::Root);
    }
    let first = format(edit, dir).entries(bytes, at).next()?.ok()?;
    (first.inode.is_none() && first.rec_len == bytes.len()).then_some(IndexKind::Node)
}

/// Copies the blocks of a directory to a run, through the journal.
fn copy_dir_blocks(
    edit: &mut Operation<'_>,
    dir: &LoadedInode,
    blocks: &Range<FileBlock>,
    to: BlockNo,
) -> Result<(), Error> {
    for at in blocks.start.0..blocks.end.0 {
        let kind = block_kind(edit, dir, FileBlock(at));
        let Some(from) = map(edit, dir, FileBlock(at))?.physical() else { continue };
        let bytes = edit.metadata(from, kind)?.to_vec();
        let to = BlockNo(to.0 + (at - blocks.start.0));
        // An index block is sealed as what it is.
        let kind = match index_kind(edit, dir, FileBlock(at), &bytes) {
            Some(index) => htree::block_kind(dir, FileBlock(at), index),
            None => kind,
        };
        edit.create(to, kind, |copy| copy.copy_from_slice(&bytes))?;
    }
    Ok(())
}
