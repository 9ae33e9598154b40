//! Where a file's blocks lie: giving it blocks and taking them away, through extent trees and
//! indirect maps.

use super::{extents, indirect, space};
use crate::edit::{AllocationRequest, BlockRange, Edit, FilePart, Purpose, default_goal};
use extant_ondisk::extent::Extent;
use extant_ondisk::indirect::IndirectMap;
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::{BlockNo, FileBlock, Flaw, Geometry, Location, MAX_FILE_BLOCKS};
use extant_reader::read::inode::LoadedInode;
use extant_reader::read::mapping::{MappingTarget, map};
use extant_reader::{Error, MetadataRead};
use std::ops::Range;

/// The contents of newly mapped blocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ExtentState {
    /// The bytes that the caller writes to them.
    Written,
    /// Nothing: they read as zeroes. Only extents have this state.
    Unwritten,
}

/// Gives the file blocks for a hole, and maps them from `at` on: as many of `request.count` as the
/// hole and one free run have room for, at least one. Without a goal the blocks are placed after
/// the file's own. The caller writes the contents of the blocks.
///
/// # Errors
/// [`Error::NoSpace`], [`Error::FileTooLarge`], a broken map, or the change failed. A failed call
/// has given no blocks.
pub fn allocate<E: Edit>(
    edit: &mut E,
    file: &mut LoadedInode,
    at: FileBlock,
    request: AllocationRequest,
    state: ExtentState,
) -> Result<BlockRange, Error> {
    let plan = plan(edit, file, at, request, state)?;
    let taken = match plan {
        Plan::Shared(_) => None,
        Plan::Fresh { request, .. } => Some(edit.allocate(request)?),
    };
    let run = plan.run(taken);
    if let Err(error) = place(edit, file, at, run, taken, state) {
        if let Some(taken) = taken {
            edit.free(taken, request.purpose)?;
        }
        return Err(error);
    }
    Ok(run)
}

/// Where the blocks for a hole come from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Plan {
    /// With bigalloc: from a cluster that the file has already.
    Shared(BlockRange),
    /// From free space.
    Fresh {
        /// The request to the allocator: with bigalloc for more than will be mapped.
        request: AllocationRequest,
        /// Blocks at the start of the first cluster that lie before the hole's.
        skipped: u64,
        /// How many blocks to map at most.
        most: u64,
    },
}

impl Plan {
    /// The run to be mapped, once the clusters are there.
    ///
    /// # Panics
    /// If a plan that needs clusters got none, which is a bug.
    pub fn run(&self, taken: Option<BlockRange>) -> BlockRange {
        match (*self, taken) {
            (Self::Shared(run), _) => run,
            (Self::Fresh { skipped, most, .. }, Some(taken)) => {
                let count = taken.count.saturating_sub(skipped).min(most);
                assert!(count > 0, "a cluster holds the block it was taken for");
                BlockRange { start: BlockNo(taken.start.0 + skipped), count }
            }
            (plan, None) => panic!("{plan:?} got no clusters"),
        }
    }
}

/// Plans the clusters for a hole from `at` on: as [`allocate`] does it, for callers that take it
/// and fill it first, and map it with [`place`] then.
///
/// # Errors
/// [`Error::FileTooLarge`], unwritten blocks in a file without extents, or a broken map.
///
/// # Panics
/// If `at` is mapped, which is a bug.
pub fn plan<S: MetadataRead>(
    source: &S,
    file: &LoadedInode,
    at: FileBlock,
    request: AllocationRequest,
    state: ExtentState,
) -> Result<Plan, Error> {
    let is_extent_mapped = file.is_extent_mapped();
    let limit = limit(source.geometry(), is_extent_mapped);
    if at.0 >= limit {
        return Err(Error::FileTooLarge);
    }
    if state == ExtentState::Unwritten && !is_extent_mapped {
        return Err(Error::NotSupported("unwritten blocks in a file without extents"));
    }
    let hole = map(source, file, at)?;
    if !hole.is_hole() {
        // A directory whose size ends before its map.
        let flaw = Flaw::bad_value("block past the end that is mapped", at.0);
        return Err(flaw.at(Location::Inode(file.number)).into());
    }
    let most = request.count.clamp(1, u64::from(Extent::max_len(state == ExtentState::Unwritten)));
    // Pointers tell of a hole only as far as one block of them reaches.
    let most = most.min(hole.len).min(limit - at.0);
    if let Some(run) = shared_cluster(source, file, at)? {
        return Ok(Plan::Shared(BlockRange { count: run.count.min(most), ..run }));
    }
    let goal = match request.goal {
        Some(goal) => goal,
        None => goal_after(source, file, at)?,
    };
    let per_cluster = u64::from(source.geometry().blocks_per_cluster);
    let skipped = at.0 % per_cluster;
    let mut end = at.0 + most;
    if !end.is_multiple_of(per_cluster) && has_blocks_in_cluster(source, file, FileBlock(end))? {
        // The last cluster is mapped already, below the blocks after the hole.
        end -= end % per_cluster;
    }
    if end < at.0 + request.count && end % per_cluster < end - at.0 {
        // There is more to come: it begins with a cluster of its own.
        end -= end % per_cluster;
    }
    let most = end - at.0;
    let part = request.part.or_else(|| grown(source.geometry(), file, at, request, state));
    let request = AllocationRequest { goal: Some(goal), count: skipped + most, part, ..request };
    Ok(Plan::Fresh { request, skipped, most })
}

/// The part of the file that the allocator gets for contents that are written now. Fallocate gives
/// its own size.
fn grown(
    geometry: &Geometry,
    file: &LoadedInode,
    at: FileBlock,
    request: AllocationRequest,
    state: ExtentState,
) -> Option<FilePart> {
    if request.purpose != Purpose::Data || state == ExtentState::Unwritten {
        return None;
    }
    let end = (at.0 + request.count).saturating_mul(u64::from(geometry.block_size));
    let first = at.0 - at.0 % u64::from(geometry.blocks_per_cluster);
    Some(FilePart { at: FileBlock(first), file_size: file.size.max(end), grows: true })
}

/// Maps a run that was planned, and counts it and what was taken for it.
///
/// # Errors
/// [`Error::NoSpace`] where the map must grow, [`Error::FileTooLarge`], a broken map, or the change
/// failed. A failed call has mapped nothing, and what was taken is still the caller's.
pub fn place<E: Edit>(
    edit: &mut E,
    file: &mut LoadedInode,
    at: FileBlock,
    run: BlockRange,
    taken: Option<BlockRange>,
    state: ExtentState,
) -> Result<(), Error> {
    let taken = taken.map_or(0, |taken| taken.count);
    space::add(edit, file, taken)?;
    match insert(edit, file, at, run, state) {
        Ok(map_added) => space::settle(edit, file, map_added, 0),
        Err(error) => {
            space::settle(edit, file, 0, taken)?;
            Err(error)
        }
    }
}

/// Blocks that a file of this kind has at most.
pub fn max_blocks(geometry: &Geometry, file: &LoadedInode) -> u64 {
    limit(geometry, file.is_extent_mapped())
}

/// Blocks that the file's map can reach.
fn limit(geometry: &Geometry, is_extent_mapped: bool) -> u64 {
    if is_extent_mapped {
        MAX_FILE_BLOCKS
    } else {
        IndirectMap::new(geometry.block_size).max_blocks()
    }
}

/// Whether any block of the cluster that `at` lies in is mapped.
pub(crate) fn has_blocks_in_cluster<S: MetadataRead>(
    source: &S,
    file: &LoadedInode,
    at: FileBlock,
) -> Result<bool, Error> {
    Ok(mapped_in_cluster(source, file, at)?.is_some())
}

/// A mapped block of the cluster that `at` lies in: logical and physical.
fn mapped_in_cluster<S: MetadataRead>(
    source: &S,
    file: &LoadedInode,
    at: FileBlock,
) -> Result<Option<(FileBlock, BlockNo)>, Error> {
    let per_cluster = u64::from(source.geometry().blocks_per_cluster);
    let end = at.0 - at.0 % per_cluster + per_cluster;
    let mut next = FileBlock(end - per_cluster);
    while next.0 < end {
        let mapping = map(source, file, next)?;
        if let Some(physical) = mapping.physical() {
            return Ok(Some((next, physical)));
        }
        next = mapping.end();
    }
    Ok(None)
}

/// With bigalloc: where `at` must go because its cluster belongs to the file already, and how many
/// blocks of it are free.
fn shared_cluster<S: MetadataRead>(
    source: &S,
    file: &LoadedInode,
    at: FileBlock,
) -> Result<Option<BlockRange>, Error> {
    let per_cluster = u64::from(source.geometry().blocks_per_cluster);
    if per_cluster == 1 {
        return Ok(None);
    }
    let Some((logical, physical)) = mapped_in_cluster(source, file, at)? else { return Ok(None) };
    let first = at.0 - at.0 % per_cluster;
    let cluster_start = physical.0 - (logical.0 - first);
    let count = map(source, file, at)?.len.min(first + per_cluster - at.0);
    Ok(Some(BlockRange { start: BlockNo(cluster_start + (at.0 - first)), count }))
}

/// After the block before `at`, at the distance it has in the file; else near the inode.
fn goal_after<S: MetadataRead>(
    source: &S,
    file: &LoadedInode,
    at: FileBlock,
) -> Result<BlockNo, Error> {
    if at.0 > 0 {
        let before = map(source, file, FileBlock(at.0 - 1))?;
        if let Some(goal) = before.physical().and_then(|block| block.checked_add(1)) {
            return Ok(goal);
        }
    }
    default_goal(source, file.number)
}

/// Maps a run; the number of metadata blocks that the map took for it.
fn insert<E: Edit>(
    edit: &mut E,
    file: &mut LoadedInode,
    at: FileBlock,
    run: BlockRange,
    state: ExtentState,
) -> Result<u64, Error> {
    if file.is_extent_mapped() {
        let is_unwritten = state == ExtentState::Unwritten;
        // The request was for an extent's longest run at most.
        let new = Extent { block: at, len: run.count as u32, start: run.start, is_unwritten };
        extents::insert(edit, file, new)
    } else {
        indirect::insert(edit, file, at, run)
    }
}

/// Takes away the blocks of a range, as many as one step may: of one leaf of the tree, or of a few
/// blocks of pointers, those that lie in about `most` groups. Where the next step begins; `None`
/// when the range is a hole now.
///
/// # Errors
/// A broken map, or the change failed.
pub fn remove_step<E: Edit>(
    edit: &mut E,
    file: &mut LoadedInode,
    range: Range<FileBlock>,
    most: usize,
) -> Result<Option<FileBlock>, Error> {
    let purpose = contents(file);
    let removed = if file.is_extent_mapped() {
        extents::remove_step(edit, file, range, most)?
    } else {
        indirect::remove_step(edit, file, range, most)?
    };
    let mut freed = removed.map_freed;
    let mut gone = removed.map_gone();
    // Runs come in the order of the file; two of them may have lain in one cluster.
    let mut done = 0;
    for (at, run) in &removed.runs {
        let Some((run, blocks)) = unshared(edit, file, *at, *run, &mut done)? else { continue };
        gone.push((run, purpose));
        freed += blocks;
    }
    edit.free_all(&gone)?;
    space::settle(edit, file, removed.map_added, freed)?;
    Ok(removed.next)
}

/// The purpose of a file's blocks: those of directories and of attributes' values are metadata,
/// journalled and so revoked.
fn contents(file: &LoadedInode) -> Purpose {
    let journalled = InodeFlags::JOURNAL_DATA | InodeFlags::EA_INODE;
    if file.is_dir() || file.flags.intersects(journalled) {
        Purpose::Metadata
    } else {
        Purpose::Data
    }
}

/// The clusters of a run that is no longer mapped, but for those that other blocks of the file
/// still lie in, and those before the logical cluster `done`, which an earlier run had. Also the
/// number of blocks that the file is charged for them.
fn unshared<S: MetadataRead>(
    source: &S,
    file: &LoadedInode,
    at: FileBlock,
    run: BlockRange,
    done: &mut u64,
) -> Result<Option<(BlockRange, u64)>, Error> {
    let per_cluster = u64::from(source.geometry().blocks_per_cluster);
    if per_cluster == 1 {
        return Ok(Some((run, run.count)));
    }
    // The logical clusters that the run touches; only the first and the last can be shared.
    let mut first = at.0 / per_cluster;
    let mut end = (at.0 + run.count).div_ceil(per_cluster);
    let starts_at = |cluster: u64| FileBlock(cluster * per_cluster);
    if first < *done || has_blocks_in_cluster(source, file, starts_at(first))? {
        first += 1;
    }
    if end > first && has_blocks_in_cluster(source, file, starts_at(end - 1))? {
        end -= 1;
    }
    if first >= end {
        return Ok(None);
    }
    *done = end;
    let start = run.start.0 + first * per_cluster - at.0;
    let count = ((end - first) * per_cluster).min(source.geometry().blocks_count - start);
    Ok(Some((BlockRange { start: BlockNo(start), count }, (end - first) * per_cluster)))
}

/// Marks mapped blocks of a range as written or unwritten, as many as one leaf maps. Where the next
/// step begins.
///
/// # Errors
/// [`Error::NoSpace`] where the tree must grow, a file without extents, a broken tree, or the
/// change failed.
pub fn set_state_step<E: Edit>(
    edit: &mut E,
    file: &mut LoadedInode,
    range: Range<FileBlock>,
    state: ExtentState,
) -> Result<Option<FileBlock>, Error> {
    if !file.is_extent_mapped() {
        return Err(Error::NotSupported("unwritten blocks in a file without extents"));
    }
    let (grown, next) =
        extents::set_state_step(edit, file, range, state == ExtentState::Unwritten)?;
    space::settle(edit, file, grown, 0)?;
    Ok(next)
}

/// The unwritten extent that a block lies in, from its first block on: marked as written as a whole
/// it takes no room in the tree.
///
/// # Errors
/// A broken tree, or the device failed.
pub fn unwritten_extent<S: MetadataRead>(
    source: &S,
    file: &LoadedInode,
    at: FileBlock,
) -> Result<Option<Extent>, Error> {
    if !file.is_extent_mapped() {
        return Ok(None);
    }
    let extent = extents::extent_at(source, file, at)?;
    Ok(extent.filter(|extent| extent.is_unwritten))
}

/// The block after those that the leaf of a block's extent may map.
///
/// # Errors
/// A broken tree, or the device failed.
pub fn leaf_end<S: MetadataRead>(
    source: &S,
    file: &LoadedInode,
    at: FileBlock,
) -> Result<FileBlock, Error> {
    let path = extents::path_to(source, file, at)?;
    Ok(FileBlock(path.last().map_or(MAX_FILE_BLOCKS, |leaf| leaf.limits.blocks.end)))
}

/// Runs of the file that are mapped, in a range: for callers that write to them.
///
/// # Errors
/// A broken map, or the device failed.
pub fn is_mapped<S: MetadataRead>(
    source: &S,
    file: &LoadedInode,
    at: FileBlock,
) -> Result<bool, Error> {
    Ok(map(source, file, at)?.target != MappingTarget::Hole)
}
