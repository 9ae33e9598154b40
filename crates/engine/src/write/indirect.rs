//! Maps of indirect blocks: pointers set and cleared, blocks of pointers made and given back.

use super::removed::Removed;
use super::space;
use crate::edit::{AllocationRequest, BlockRange, Edit, Purpose};
use extant_ondisk::indirect::{self, DIRECT_BLOCKS, IndirectMap, MAX_LEVELS, SLOTS};
use extant_ondisk::{BlockNo, FileBlock, Flaw, Location};
use extant_reader::read::inode::LoadedInode;
use extant_reader::{BlockKind, Error, MetadataRead};
use std::ops::Range;

/// Blocks of pointers that one step gives back, about: a step is short.
const POINTER_BLOCKS_OF_STEP: u64 = 64;

fn kind(file: &LoadedInode) -> BlockKind {
    BlockKind::Indirect { inode: file.number }
}

/// A block named by a pointer: on the volume, or the map is broken.
fn checked<S: MetadataRead>(
    source: &S,
    file: &LoadedInode,
    block: BlockNo,
) -> Result<BlockNo, Error> {
    if block.0 != 0 && !source.geometry().contains(block, 1) {
        return Err(Flaw::bad_value("pointer", block.0).at(Location::Inode(file.number)).into());
    }
    Ok(block)
}

/// Points the map to a run, block by block. The blocks of pointers that were made for it. A failed
/// call leaves none of the run mapped, and no block of pointers that maps nothing.
pub(super) fn insert<E: Edit>(
    edit: &mut E,
    file: &mut LoadedInode,
    at: FileBlock,
    run: BlockRange,
) -> Result<u64, Error> {
    if u32::try_from(run.start.0 + run.count).is_err() {
        return Err(Error::NotSupported("blocks past 2^32 in a file without extents"));
    }
    let mut made = 0;
    for index in 0..run.count {
        let block = FileBlock(at.0 + index);
        let target = BlockNo(run.start.0 + index);
        if let Err(error) = set(edit, file, block, target, &mut made) {
            let (mut next, mut freed) = (Some(at), 0);
            while let Some(from) = next {
                // The mapped blocks are the caller's to free.
                let back = remove_step(edit, file, from..FileBlock(block.0 + 1), usize::MAX)?;
                back.free_map(edit)?;
                (next, freed) = (back.next, freed + back.map_freed);
            }
            // More than was made: there were blocks of pointers that mapped nothing before.
            space::settle(edit, file, 0, freed.saturating_sub(made))?;
            return Err(error);
        }
    }
    Ok(made)
}

/// Sets one pointer, and makes and counts the blocks on the path to it.
fn set<E: Edit>(
    edit: &mut E,
    file: &mut LoadedInode,
    at: FileBlock,
    target: BlockNo,
    made: &mut u64,
) -> Result<(), Error> {
    let map = IndirectMap::new(edit.geometry().block_size);
    let path = map.path(at).ok_or(Error::FileTooLarge)?;
    if path.levels == 0 {
        indirect::set_pointer(&mut file.inode.i_block, path.slot, target);
        return Ok(());
    }
    // The pointer that is followed: in the inode, then in a block.
    let mut holder: Option<(BlockNo, usize)> = None;
    let mut next = indirect::pointer(&file.i_block, path.slot).unwrap_or_default();
    for position in path.positions.iter().take(path.levels) {
        next = checked(edit, file, next)?;
        if next.0 == 0 {
            next = make(edit, file, target)?;
            *made += 1;
            match holder {
                None => indirect::set_pointer(&mut file.inode.i_block, path.slot, next),
                Some((block, position)) => point(edit, file, block, position, next)?,
            }
        }
        let position = *position as usize;
        holder = Some((next, position));
        let bytes = edit.metadata(next, kind(file))?;
        next = indirect::pointer(&bytes, position).unwrap_or_default();
    }
    if let Some((block, position)) = holder {
        point(edit, file, block, position, target)?;
    }
    Ok(())
}

fn point<E: Edit>(
    edit: &mut E,
    file: &LoadedInode,
    block: BlockNo,
    position: usize,
    target: BlockNo,
) -> Result<(), Error> {
    edit.modify(block, kind(file), |bytes| indirect::set_pointer(bytes, position, target))
}

/// A new block of pointers, near the data that it will point to.
fn make<E: Edit>(edit: &mut E, file: &LoadedInode, goal: BlockNo) -> Result<BlockNo, Error> {
    let request = AllocationRequest {
        inode: file.number,
        purpose: Purpose::Map,
        goal: Some(goal),
        count: 1,
        part: None,
    };
    let block = edit.allocate(request)?.start;
    if u32::try_from(block.0).is_err() {
        edit.free(BlockRange { start: block, count: 1 }, Purpose::Map)?;
        return Err(Error::NotSupported("blocks past 2^32 in a file without extents"));
    }
    edit.create(block, kind(file), |_| ())?;
    Ok(block)
}

/// Takes the blocks of a range out of one subtree, those in `most` groups: the direct blocks, or
/// the blocks that a few blocks of pointers map. Each of these is read once. Blocks of pointers
/// that are left empty are removed too: the caller frees them with the rest.
pub(super) fn remove_step<E: Edit>(
    edit: &mut E,
    file: &mut LoadedInode,
    range: Range<FileBlock>,
    most: usize,
) -> Result<Removed, Error> {
    let map = IndirectMap::new(edit.geometry().block_size);
    let end = range.end.0.min(map.max_blocks());
    let mut removed = Removed::default();
    if range.start.0 >= end {
        return Ok(removed);
    }
    if range.start.0 < DIRECT_BLOCKS {
        let stop = end.min(DIRECT_BLOCKS);
        for slot in range.start.0..stop {
            let slot = slot as usize; // below 12
            let block = indirect::pointer(&file.i_block, slot).unwrap_or_default();
            let block = checked(edit, file, block)?;
            if !push(edit, &mut removed, FileBlock(slot as u64), block, most) {
                removed.next = Some(FileBlock(slot as u64));
                return Ok(removed);
            }
            indirect::set_pointer(&mut file.inode.i_block, slot, BlockNo(0));
        }
        removed.next = (stop < end).then_some(FileBlock(stop));
        return Ok(removed);
    }
    let Some(path) = map.path(range.start) else { return Ok(removed) };
    let root = indirect::pointer(&file.i_block, path.slot).unwrap_or_default();
    let root = checked(edit, file, root)?;
    let slot_start = map.slot_start(path.slot).0;
    let stop = if root.0 == 0 {
        slot_start + map.covered_by(path.levels)
    } else {
        let subtree = Subtree { block: root, levels: path.levels, start: slot_start };
        let cut = Cut { from: range.start.0, to: end, most };
        let (stop, is_empty) = cut_subtree(edit, file, &map, &subtree, &cut, &mut removed)?;
        if is_empty {
            indirect::set_pointer(&mut file.inode.i_block, path.slot, BlockNo(0));
        }
        stop
    };
    removed.next = (stop < end && path.slot < SLOTS).then_some(FileBlock(stop));
    Ok(removed)
}

/// A block of pointers, the levels at and below it (1 to 3), and the first logical block that it
/// maps.
struct Subtree {
    block: BlockNo,
    levels: usize,
    start: u64,
}

/// The range to be cut out.
struct Cut {
    from: u64,
    to: u64,
    most: usize,
}

/// Cuts along the way to `cut.from`. Where the cut stopped, and whether the subtree's block was
/// given back.
fn cut_subtree<E: Edit>(
    edit: &mut E,
    file: &LoadedInode,
    map: &IndirectMap,
    subtree: &Subtree,
    cut: &Cut,
    removed: &mut Removed,
) -> Result<(u64, bool), Error> {
    debug_assert!((1..=MAX_LEVELS).contains(&subtree.levels));
    let bytes = edit.metadata(subtree.block, kind(file))?.to_vec();
    let below = if subtree.levels == 1 { 1 } else { map.covered_by(subtree.levels - 1) };
    let mut pointers: Vec<BlockNo> = indirect::pointers(&bytes).collect();
    let first = ((cut.from - subtree.start) / below) as usize; // a position in the block
    let subtree_end = subtree.start + map.covered_by(subtree.levels);
    let mut stop = subtree_end.min(cut.to);
    for (position, pointer) in pointers.iter_mut().enumerate().skip(first) {
        let start = subtree.start + position as u64 * below;
        if start >= cut.to {
            break;
        }
        // Each block of pointers may lie in a group of its own, and there may be many that map
        // nothing.
        let is_enough =
            removed.map_freed >= POINTER_BLOCKS_OF_STEP || removed.groups.len() >= cut.most;
        if subtree.levels > 1 && is_enough {
            stop = start;
            break;
        }
        let block = checked(edit, file, *pointer)?;
        if block.0 == 0 {
            continue;
        }
        if subtree.levels == 1 {
            if !push(edit, removed, FileBlock(start), block, cut.most) {
                stop = start;
                break;
            }
            *pointer = BlockNo(0);
            continue;
        }
        let child = Subtree { block, levels: subtree.levels - 1, start };
        let cut_here = Cut { from: cut.from.max(start), ..*cut };
        let (child_stop, is_gone) = cut_subtree(edit, file, map, &child, &cut_here, removed)?;
        if is_gone {
            *pointer = BlockNo(0);
        }
        if child_stop < (start + below).min(cut.to) {
            stop = child_stop;
            break;
        }
    }
    if pointers.iter().all(|pointer| pointer.0 == 0) {
        let run = BlockRange { start: subtree.block, count: 1 };
        removed.groups.admit(edit.geometry(), run, usize::MAX);
        removed.map_runs.push(run);
        removed.map_freed += 1;
        return Ok((stop, true));
    }
    edit.modify(subtree.block, kind(file), |bytes| {
        for (position, pointer) in pointers.iter().enumerate() {
            indirect::set_pointer(bytes, position, *pointer);
        }
    })?;
    Ok((stop, false))
}

/// Adds a block to the runs that were taken out. False when it lies in another group than those
/// that a step has.
fn push<E: Edit>(
    edit: &E,
    removed: &mut Removed,
    at: FileBlock,
    block: BlockNo,
    most: usize,
) -> bool {
    if block.0 == 0 {
        return true;
    }
    let run = BlockRange { start: block, count: 1 };
    if !removed.groups.admit(edit.geometry(), run, most) {
        return false;
    }
    if let Some((start, run)) = removed.runs.last_mut()
        && start.0 + run.count == at.0
        && run.start.0 + run.count == block.0
    {
        run.count += 1;
    } else {
        removed.runs.push((at, run));
    }
    true
}
