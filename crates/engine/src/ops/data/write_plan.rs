//! Write plans: runs of blocks that are claimed, filled, and mapped in one operation.

use super::super::{Credentials, credits};
use super::range::ZEROS;
use super::set_size;
use crate::alloc::{Budget, Claim};
use crate::edit::{AllocationRequest, BlockRange, Purpose, write_inode};
use crate::engine::Engine;
use crate::engine::faults::Step;
use crate::engine::operation::Operation;
use crate::write::mapping::{self, ExtentState, Plan};
use extant_ondisk::{BlockNo, FileBlock};
use extant_reader::Error;
use extant_reader::read::inode::LoadedInode;
use extant_reader::read::mapping::{MappingTarget, map};
use std::ops::Range;

/// Number of runs that one plan maps at most.
const RUNS_PER_PLAN: usize = 64;

/// A run of blocks that a plan writes.
pub(super) struct Segment {
    pub(super) blocks: Range<u64>,
    pub(super) start: BlockNo,
    pub(super) state: PreviousState,
}

impl Segment {
    /// Its first block in the file, and its run.
    fn placed(&self) -> (FileBlock, BlockRange) {
        let count = self.blocks.end - self.blocks.start;
        (FileBlock(self.blocks.start), BlockRange { start: self.start, count })
    }
}

/// The earlier state of the blocks.
pub(super) enum PreviousState {
    /// In use, and holding data.
    Written,
    /// In use, reading as zeros.
    Unwritten,
    /// A hole. The clusters are claimed, unless the file had them.
    Hole(Option<Claim>),
}

/// Blocks that are written together.
pub(crate) struct WritePlan {
    pub(super) segments: Vec<Segment>,
    credits: u32,
}

impl WritePlan {
    /// A plan without blocks.
    pub(crate) fn new(engine: &Engine) -> Self {
        let credits = credits::INODE + credits::SUPERBLOCK + credits::quotas(engine);
        Self { segments: Vec::new(), credits }
    }

    /// From the first block to the one after the last.
    pub(crate) fn range(&self) -> Range<u64> {
        let start = self.segments.first().map_or(0, |segment| segment.blocks.start);
        start..self.segments.last().map_or(0, |segment| segment.blocks.end)
    }

    /// Number of blocks that the operation that maps them may dirty.
    pub(crate) fn credits(&self) -> u32 {
        self.credits
    }

    /// The runs of blocks with their places.
    pub(crate) fn places(&self) -> impl Iterator<Item = (Range<u64>, BlockNo)> {
        self.segments.iter().map(|segment| (segment.blocks.clone(), segment.start))
    }

    /// Whether it does more than overwrite.
    pub(super) fn maps_something(&self) -> bool {
        self.segments.iter().any(|segment| !matches!(segment.state, PreviousState::Written))
    }

    /// With bigalloc: whether a block lies after the last run, but in the cluster in which it ends.
    /// The map does not contain that cluster before the run is mapped.
    fn ends_in_cluster_of(&self, block: u64, per_cluster: u64) -> bool {
        self.segments.last().is_some_and(|last| {
            last.blocks.end != block && (last.blocks.end - 1) / per_cluster == block / per_cluster
        })
    }
}

impl Engine {
    /// Finds the runs that a range of blocks lies in, and has `claim` set space aside for its
    /// holes. False if the plan is full, or space has run out after something was found.
    pub(crate) fn plan_blocks(
        &self,
        file: &LoadedInode,
        blocks: Range<u64>,
        write_plan: &mut WritePlan,
        mut claim: impl FnMut(AllocationRequest) -> Result<Claim, Error>,
    ) -> Result<bool, Error> {
        let most_credits = self.journal.max_credits() / 2;
        let per_cluster = u64::from(self.geometry().blocks_per_cluster);
        if write_plan.ends_in_cluster_of(blocks.start, per_cluster) {
            return Ok(false);
        }
        let mut goal = None;
        let mut at = blocks.start;
        while at < blocks.end {
            let mapping = map(self, file, FileBlock(at))?;
            let mut len = mapping.len.min(blocks.end - at);
            let cost = credits::map_run(self.geometry(), file, len);
            let is_full = write_plan.segments.len() >= RUNS_PER_PLAN
                || !write_plan.segments.is_empty() && write_plan.credits + cost > most_credits;
            if is_full {
                return Ok(false);
            }
            let (start, state) = match mapping.target {
                // Blocks that are overwritten would stay overwritten if the blocks before them
                // could not be mapped.
                MappingTarget::Written(_) if write_plan.maps_something() => return Ok(false),
                MappingTarget::Written(start) => (start, PreviousState::Written),
                MappingTarget::Unwritten(start) => (start, PreviousState::Unwritten),
                MappingTarget::Hole => {
                    let request = AllocationRequest {
                        inode: file.number,
                        purpose: Purpose::Data,
                        goal,
                        count: len,
                        part: None,
                    };
                    let before = write_plan.segments.last().map(Segment::placed);
                    let (run, claim) = match self.rest_of_cluster(before, FileBlock(at), len) {
                        Some(run) => (run, None),
                        None => {
                            let state = ExtentState::Written;
                            let plan = mapping::plan(self, file, FileBlock(at), request, state)?;
                            let claim = match claim_for(&plan, &mut claim) {
                                // Fallback: what has been planned so far is written first.
                                Err(Error::NoSpace) if !write_plan.segments.is_empty() => {
                                    return Ok(false);
                                }
                                other => other?,
                            };
                            (plan.run(claim.as_ref().map(Claim::run)), claim)
                        }
                    };
                    len = run.count;
                    goal = run.start.checked_add(run.count);
                    (run.start, PreviousState::Hole(claim))
                }
            };
            if !matches!(state, PreviousState::Written) {
                write_plan.credits += cost;
            }
            write_plan.segments.push(Segment { blocks: at..at + len, start, state });
            at += len;
        }
        Ok(true)
    }

    /// With bigalloc: the part of a hole in the last cluster of the run before it, which the map
    /// does not contain yet.
    pub(super) fn rest_of_cluster(
        &self,
        before: Option<(FileBlock, BlockRange)>,
        at: FileBlock,
        most: u64,
    ) -> Option<BlockRange> {
        let skipped = at.0 % u64::from(self.geometry().blocks_per_cluster);
        let (start, run) = before.filter(|_| skipped > 0)?;
        let left = u64::from(self.geometry().blocks_per_cluster) - skipped;
        let follows = start.0 + run.count == at.0;
        follows
            .then(|| BlockRange { start: BlockNo(run.start.0 + run.count), count: left.min(most) })
    }

    /// Sets free space aside.
    pub(super) fn claim(
        &self,
        request: AllocationRequest,
        by: &Credentials,
    ) -> Result<Claim, Error> {
        self.faults.meet(Step::Space)?;
        let budget = Budget::Free { is_privileged: by.is_privileged };
        self.allocator.claim(self, request, budget)
    }

    /// Maps runs that were filled. The first byte that could not be mapped, and why; the bytes
    /// after it are not mapped either.
    pub(super) fn place_segments(
        &self,
        edit: &mut Operation<'_>,
        file: &mut LoadedInode,
        segments: Vec<Segment>,
    ) -> Result<(), (u64, Error)> {
        for segment in segments {
            let first = segment.blocks.start << self.geometry().block_bits();
            let (at, run) = segment.placed();
            match segment.state {
                PreviousState::Written => {}
                PreviousState::Unwritten => {
                    self.set_written(edit, file, at..FileBlock(segment.blocks.end))?;
                }
                PreviousState::Hole(claim) => edit
                    .attempt(file, |edit, file| {
                        take_and_place(edit, file, at, run, claim, ExtentState::Written)
                    })
                    .map_err(|error| (first, error))?,
            }
        }
        Ok(())
    }

    /// Maps delayed data that were written, and stores that the file has them: it ends at `size` at
    /// least. Why only a part of them has its places.
    pub(crate) fn map_plan(
        &self,
        edit: &mut Operation<'_>,
        file: &mut LoadedInode,
        write_plan: WritePlan,
        size: u64,
    ) -> Result<Option<Error>, Error> {
        let placed = self.place_segments(edit, file, write_plan.segments);
        let covered = placed.as_ref().err().map_or(size, |(covered, _)| size.min(*covered));
        let size = file.size.max(covered);
        set_size(edit, file, size)?;
        write_inode(edit, file.number, &file.inode)?;
        Ok(placed.err().map(|(_, error)| error))
    }

    /// Marks unwritten blocks that were filled as written. Where that failed, in bytes, and why:
    /// the blocks before are marked.
    fn set_written(
        &self,
        edit: &mut Operation<'_>,
        file: &mut LoadedInode,
        blocks: Range<FileBlock>,
    ) -> Result<(), (u64, Error)> {
        let mut next = Some(blocks.start);
        while let Some(from) = next {
            let range = from..blocks.end;
            let step = edit.attempt(file, |edit, file| {
                mapping::set_state_step(edit, file, range.clone(), ExtentState::Written)
            });
            next = match step {
                // Fallback: the extent stays whole.
                Err(Error::NoSpace) => {
                    edit.attempt(file, |edit, file| self.set_extent_written(edit, file, range))
                }
                step => step,
            }
            .map_err(|error| (from.0 << self.geometry().block_bits(), error))?;
        }
        Ok(())
    }

    /// The same if the tree has no room for the parts of an extent, and the volume has none for the
    /// tree: the rest of the extent is filled with zeros and all of it marked, if it ends before
    /// the file does, since only unwritten blocks may lie after its end. Where the next step
    /// begins.
    fn set_extent_written(
        &self,
        edit: &mut Operation<'_>,
        file: &mut LoadedInode,
        blocks: Range<FileBlock>,
    ) -> Result<Option<FileBlock>, Error> {
        let file_end = file.size.div_ceil(u64::from(self.geometry().block_size));
        let file_end = FileBlock(file_end).max(blocks.end);
        let extent = mapping::unwritten_extent(self, file, blocks.start)?;
        let extent = extent.filter(|extent| extent.end() <= file_end).ok_or(Error::NoSpace)?;
        let end = blocks.end.min(extent.end());
        self.zero_run(extent.start, blocks.start.0 - extent.block.0)?;
        let after = BlockNo(extent.start.0 + (end.0 - extent.block.0));
        self.zero_run(after, extent.end().0 - end.0)?;
        set_state(edit, file, extent.block..extent.end(), ExtentState::Written)?;
        Ok((end < blocks.end).then_some(end))
    }

    /// Writes zeros to a run of blocks on the device.
    fn zero_run(&self, start: BlockNo, count: u64) -> Result<(), Error> {
        let geometry = self.geometry();
        let from = geometry.byte_of(start);
        let to = from + count * u64::from(geometry.block_size);
        for at in (from..to).step_by(ZEROS.len()) {
            // At most the length of a slice.
            let length = (to - at).min(ZEROS.len() as u64) as usize;
            self.device.write_at(at, &ZEROS[..length])?;
        }
        Ok(())
    }
}

/// Claims the clusters that a plan needs.
pub(super) fn claim_for(
    plan: &Plan,
    claim: impl FnOnce(AllocationRequest) -> Result<Claim, Error>,
) -> Result<Option<Claim>, Error> {
    match plan {
        Plan::Shared(_) => Ok(None),
        Plan::Fresh { request, .. } => claim(*request).map(Some),
    }
}

/// Takes a claim and maps a run of it.
pub(super) fn take_and_place(
    edit: &mut Operation<'_>,
    file: &mut LoadedInode,
    at: FileBlock,
    run: BlockRange,
    claim: Option<Claim>,
    state: ExtentState,
) -> Result<(), Error> {
    let engine = edit.engine();
    let taken = claim.map(|claim| engine.allocator.take(edit, claim)).transpose()?;
    mapping::place(edit, file, at, run, taken, state)
}

/// Marks mapped blocks of a range in one operation.
pub(super) fn set_state(
    edit: &mut Operation<'_>,
    file: &mut LoadedInode,
    blocks: Range<FileBlock>,
    state: ExtentState,
) -> Result<(), Error> {
    let mut next = Some(blocks.start);
    while let Some(from) = next {
        next = mapping::set_state_step(edit, file, from..blocks.end, state)?;
    }
    Ok(())
}
