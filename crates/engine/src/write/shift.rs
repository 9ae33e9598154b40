//! Runs of extents moved within a file: towards its start when a range is taken out, towards its
//! end when one is put in.
//!
//! Each step moves the runs of one leaf and leaves a whole tree. Nothing but [`split_at`] takes
//! blocks.

use super::extents::{merge_around, path_to, store};
use super::space;
use crate::edit::Edit;
use extant_ondisk::extent::{Extent, MAX_DEPTH};
use extant_ondisk::{FileBlock, MAX_FILE_BLOCKS};
use extant_reader::read::inode::LoadedInode;
use extant_reader::{Error, MetadataRead};

/// Blocks that one step may change: a node on each level.
pub const CREDITS: u32 = MAX_DEPTH as u32 + 1;

/// Moves the runs from `from` on by `by` blocks towards the start, as many as one leaf maps. The
/// `by` blocks before `from` are a hole. Where the next step begins.
///
/// # Errors
/// A file without extents, a broken tree, or the change failed.
pub fn collapse_step<E: Edit>(
    edit: &mut E,
    file: &mut LoadedInode,
    from: FileBlock,
    by: u64,
) -> Result<Option<FileBlock>, Error> {
    needs_extents(file)?;
    let path = path_to(edit, file, from)?;
    let Some(leaf) = path.last() else { return Ok(None) };
    let next =
        (leaf.limits.blocks.end < MAX_FILE_BLOCKS).then_some(FileBlock(leaf.limits.blocks.end));
    let mut extents = leaf.extents().to_vec();
    let first = extents.partition_point(|extent| extent.block < from);
    if first == extents.len() {
        return Ok(next);
    }
    for extent in &mut extents[first..] {
        extent.block = FileBlock(extent.block.0 - by);
    }
    merge_around(&mut extents, first);
    store(edit, file, path, extents)?;
    Ok(next)
}

/// Cuts the run that `at` lies in, so that a run begins there.
///
/// # Errors
/// [`Error::NoSpace`] where the tree must grow, or as [`collapse_step`]. A failed call has changed
/// nothing.
pub fn split_at<E: Edit>(edit: &mut E, file: &mut LoadedInode, at: FileBlock) -> Result<(), Error> {
    needs_extents(file)?;
    let path = path_to(edit, file, at)?;
    let mut extents = path.last().map(|leaf| leaf.extents().to_vec()).unwrap_or_default();
    let inside = |extent: &Extent| extent.block < at && at < extent.end();
    let Some(position) = extents.iter().position(inside) else { return Ok(()) };
    let whole = extents[position];
    // Parts of a run's length, so they fit.
    let before = (at.0 - whole.block.0) as u32;
    let start = extant_ondisk::BlockNo(whole.start.0 + u64::from(before));
    let after = Extent { block: at, len: whole.len - before, start, ..whole };
    extents[position].len = before;
    extents.insert(position + 1, after);
    let grown = store(edit, file, path, extents)?;
    space::settle(edit, file, grown, 0)
}

/// Moves the runs from `from` on by `by` blocks towards the end, as many as one leaf maps, the last
/// leaf first: `before` is where the step before ended, [`MAX_FILE_BLOCKS`] for the first. No run
/// has `from` inside ([`split_at`]), and none reaches too far ([`mapped_end`]). Where the next step
/// ends.
///
/// # Errors
/// As [`collapse_step`].
pub fn expand_step<E: Edit>(
    edit: &mut E,
    file: &mut LoadedInode,
    from: FileBlock,
    by: u64,
    before: FileBlock,
) -> Result<Option<FileBlock>, Error> {
    needs_extents(file)?;
    let path = path_to(edit, file, FileBlock(before.0.saturating_sub(1)))?;
    let Some(leaf) = path.last() else { return Ok(None) };
    let start = FileBlock(leaf.limits.blocks.start);
    if start >= before {
        // Before the first leaf there is only a hole: this one was moved already.
        return Ok(None);
    }
    let next = (start > from).then_some(start);
    let mut extents = leaf.extents().to_vec();
    let first = extents.partition_point(|extent| extent.block < from);
    if first == extents.len() {
        return Ok(next);
    }
    for extent in &mut extents[first..] {
        extent.block = FileBlock(extent.block.0 + by);
    }
    store(edit, file, path, extents)?;
    Ok(next)
}

/// The block after the last that is mapped.
///
/// # Errors
/// A file without extents, a broken tree, or the device failed.
pub fn mapped_end<S: MetadataRead>(source: &S, file: &LoadedInode) -> Result<FileBlock, Error> {
    needs_extents(file)?;
    let path = path_to(source, file, FileBlock(MAX_FILE_BLOCKS - 1))?;
    let last = path.last().and_then(|leaf| leaf.extents().last());
    Ok(last.map_or(FileBlock(0), Extent::end))
}

fn needs_extents(file: &LoadedInode) -> Result<(), Error> {
    if file.is_extent_mapped() {
        return Ok(());
    }
    Err(Error::NotSupported("moving the blocks of a file without extents"))
}
