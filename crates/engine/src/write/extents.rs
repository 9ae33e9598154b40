//! Extent trees: runs put in, cut, marked and taken out, nodes split, dropped and pulled up.

use super::removed::Removed;
use crate::edit::{AllocationRequest, BlockRange, Edit, Purpose};
use extant_ondisk::extent::{
    Extent, ExtentIndex, MAX_DEPTH, NodeEntries, NodeLimits, NodeOwner, OwnedNode, ROOT_SIZE,
    capacity,
};
use extant_ondisk::{BlockNo, FileBlock, Flaw, MAX_FILE_BLOCKS};
use extant_reader::read::inode::LoadedInode;
use extant_reader::{BlockKind, Error, MetadataRead};
use std::ops::Range;

/// A node on the path from the root to a leaf.
#[derive(Debug)]
pub(super) struct Step {
    /// Where it lies; `None` for the root.
    block: Option<BlockNo>,
    node: OwnedNode,
    /// The limits that the node above sets.
    pub(super) limits: NodeLimits,
    /// Which of its entries leads on, in an index.
    position: usize,
}

impl Step {
    pub(super) fn extents(&self) -> &[Extent] {
        match &self.node.entries {
            NodeEntries::Leaf(extents) => extents,
            NodeEntries::Index(..) => &[],
        }
    }

    fn indexes(&self) -> &[ExtentIndex] {
        match &self.node.entries {
            NodeEntries::Index(indexes, _) => indexes,
            NodeEntries::Leaf(_) => &[],
        }
    }
}

/// The nodes from the root to the leaf that maps, or would map, a block.
pub(super) fn path_to<S: MetadataRead>(
    source: &S,
    file: &LoadedInode,
    at: FileBlock,
) -> Result<Vec<Step>, Error> {
    let mut owner = NodeOwner { inode: file.number, generation: file.generation, block: None };
    let mut limits = NodeLimits::ROOT;
    let mut node = OwnedNode::decode(&file.i_block, &owner, &limits, source.geometry())?;
    let mut path = Vec::new();
    // A node's depth is checked to be one less than the depth above it.
    loop {
        let NodeEntries::Index(indexes, below) = &node.entries else {
            path.push(Step { block: owner.block, node, limits, position: 0 });
            return Ok(path);
        };
        let position = indexes.partition_point(|index| index.block <= at).saturating_sub(1);
        let Some(index) = indexes.get(position) else {
            return Err(Flaw::Rule("an index without entries").at(owner.location()).into());
        };
        let end = indexes.get(position + 1).map_or(limits.blocks.end, |next| next.block.0);
        let child = NodeLimits { depth: Some(*below), blocks: index.block.0..end };
        let leaf = index.leaf;
        path.push(Step { block: owner.block, node, limits, position });
        owner.block = Some(leaf);
        limits = child;
        let bytes = source.metadata(leaf, kind(file, &limits))?;
        node = OwnedNode::decode(&bytes, &owner, &limits, source.geometry())?;
    }
}

fn kind(file: &LoadedInode, limits: &NodeLimits) -> BlockKind {
    BlockKind::ExtentNode {
        inode: file.number,
        generation: file.generation,
        depth: limits.depth.unwrap_or(0),
        from: limits.blocks.start,
        to: limits.blocks.end,
    }
}

/// The whole extent that maps a block.
pub(super) fn extent_at<S: MetadataRead>(
    source: &S,
    file: &LoadedInode,
    at: FileBlock,
) -> Result<Option<Extent>, Error> {
    let path = path_to(source, file, at)?;
    let extents = path.last().map_or(&[][..], Step::extents);
    Ok(extents.iter().find(|extent| extent.contains(at)).copied())
}

/// Puts a run into the tree; it overlaps none that is there. The number of nodes that the tree grew
/// by.
pub(super) fn insert<E: Edit>(
    edit: &mut E,
    file: &mut LoadedInode,
    new: Extent,
) -> Result<u64, Error> {
    let path = path_to(edit, file, new.block)?;
    let mut extents = path.last().map(|leaf| leaf.extents().to_vec()).unwrap_or_default();
    let at = extents.partition_point(|extent| extent.block < new.block);
    extents.insert(at, new);
    merge_around(&mut extents, at);
    store(edit, file, path, extents)
}

/// Joins the run at a position with its neighbours where they continue each other.
pub(super) fn merge_around(extents: &mut Vec<Extent>, at: usize) {
    for left in [at, at.wrapping_sub(1)] {
        if let (Some(a), Some(b)) = (extents.get(left), extents.get(left.wrapping_add(1)))
            && a.is_continued_by(b)
        {
            extents[left].len += b.len;
            extents.remove(left + 1);
        }
    }
}

/// The part of a run in a range of blocks, and the rest before and after it.
fn cut(
    extent: Extent,
    range: &Range<FileBlock>,
) -> (Option<Extent>, Option<Extent>, Option<Extent>) {
    let part = |from: FileBlock, to: FileBlock| {
        (from < to).then(|| Extent {
            block: from,
            // A part of a run's length, so it fits.
            len: (to.0 - from.0) as u32,
            start: BlockNo(extent.start.0 + (from.0 - extent.block.0)),
            is_unwritten: extent.is_unwritten,
        })
    };
    let from = range.start.clamp(extent.block, extent.end());
    let to = range.end.clamp(from, extent.end());
    (part(extent.block, from), part(from, to), part(to, extent.end()))
}

/// Where the leaf after this one begins, when the range reaches there.
fn next_leaf(path: &[Step], range: &Range<FileBlock>) -> Option<FileBlock> {
    let end = path.last().map_or(MAX_FILE_BLOCKS, |leaf| leaf.limits.blocks.end);
    (range.start.0 < end && end < range.end.0.min(MAX_FILE_BLOCKS)).then_some(FileBlock(end))
}

/// Takes the blocks of a range out of one leaf, those in `most` groups.
pub(super) fn remove_step<E: Edit>(
    edit: &mut E,
    file: &mut LoadedInode,
    range: Range<FileBlock>,
    most: usize,
) -> Result<Removed, Error> {
    let path = path_to(edit, file, range.start)?;
    let mut next = next_leaf(&path, &range);
    let old = path.last().map(|leaf| leaf.extents().to_vec()).unwrap_or_default();
    let mut kept = Vec::with_capacity(old.len() + 1);
    let mut removed = Removed::default();
    for (index, extent) in old.iter().enumerate() {
        let (before, inside, after) = cut(*extent, &range);
        if let Some(part) = inside {
            let run = BlockRange { start: part.start, count: u64::from(part.len) };
            if !removed.groups.admit(edit.geometry(), run, most) {
                next = Some(part.block);
                kept.extend_from_slice(&old[index..]);
                break;
            }
            removed.runs.push((part.block, run));
        }
        kept.extend(before);
        kept.extend(after);
    }
    removed.next = next;
    if !removed.runs.is_empty() {
        (removed.map_added, removed.map_freed) = shrink(edit, file, path, kept)?;
    }
    Ok(removed)
}

/// Marks the mapped blocks of a range in one leaf. The number of nodes that the tree grew by, and
/// where the next step begins.
pub(super) fn set_state_step<E: Edit>(
    edit: &mut E,
    file: &mut LoadedInode,
    range: Range<FileBlock>,
    is_unwritten: bool,
) -> Result<(u64, Option<FileBlock>), Error> {
    let path = path_to(edit, file, range.start)?;
    let next = next_leaf(&path, &range);
    let old = path.last().map(|leaf| leaf.extents().to_vec()).unwrap_or_default();
    let mut new: Vec<Extent> = Vec::with_capacity(old.len() + 2);
    let longest = Extent::max_len(is_unwritten);
    for extent in &old {
        let (before, inside, after) = cut(*extent, &range);
        let marked = inside.map(|part| Extent { is_unwritten, ..part });
        // A written run may be one block longer than an unwritten one can be.
        let (marked, rest) = match marked {
            Some(part) if part.len > longest => {
                let at = FileBlock(part.block.0 + u64::from(longest));
                let (front, back, _) = cut(part, &(at..part.end()));
                (front, back)
            }
            other => (other, None),
        };
        for part in [before, marked, rest, after].into_iter().flatten() {
            match new.last_mut() {
                Some(last) if last.is_continued_by(&part) => last.len += part.len,
                _ => new.push(part),
            }
        }
    }
    if new == old {
        return Ok((0, next));
    }
    Ok((store(edit, file, path, new)?, next))
}

/// Writes a leaf's new runs, at least one, and all changes above it. The blocks that the tree grew
/// by, which are taken before anything is changed.
pub(super) fn store<E: Edit>(
    edit: &mut E,
    file: &mut LoadedInode,
    mut path: Vec<Step>,
    extents: Vec<Extent>,
) -> Result<u64, Error> {
    let block_len = edit.geometry().block_len();
    let needed = nodes_needed(&path, extents.len());
    if needed == path.len() && path.len() > usize::from(MAX_DEPTH) {
        return Err(Error::FileTooLarge);
    }
    let mut pool = take_nodes(edit, file, &path, needed)?;
    let old = path.last().map_or(&[][..], Step::extents);
    if let Some(range) = changed_range(old, &extents) {
        edit.map_changed(file.number, range);
    }
    // A file that grows at its end fills its nodes; others are halved.
    let old_end = path.last().and_then(|leaf| leaf.extents().last()).map(|extent| extent.block);
    let mut at_end = extents.last().map(|extent| extent.block) > old_end;
    let mut entries = NodeEntries::Leaf(extents);
    while let Some(step) = path.pop() {
        let (left, right) = split(entries, usize::from(step.node.max), at_end);
        match (step.block, right) {
            (None, None) => {
                write_root(file, OwnedNode { entries: left, ..step.node });
                break;
            }
            (None, Some(right)) => {
                // The root's entries move to a node of their own.
                let all = joined(left, right);
                let below = depth_of(&all);
                let key = first_key(&all);
                let leaf = pool.pop().expect("a node was taken for the root's entries");
                let node = OwnedNode { entries: all, ..OwnedNode::empty_leaf(block_len) };
                write_node(edit, file, leaf, &node)?;
                let pointer = ExtentIndex { block: key, leaf, unused: 0 };
                let entries = NodeEntries::Index(vec![pointer], below);
                write_root(file, OwnedNode { entries, ..step.node });
                break;
            }
            (Some(block), right) => {
                let key = first_key(&left);
                write_node(edit, file, block, &OwnedNode { entries: left, ..step.node })?;
                let Some(above) = path.last_mut() else { break };
                let position = above.position;
                let NodeEntries::Index(indexes, below) = &mut above.node.entries else { break };
                let is_same_key = indexes[position].block == key;
                if is_same_key && right.is_none() {
                    break;
                }
                indexes[position].block = key;
                at_end = position + 1 == indexes.len();
                if let Some(right) = right {
                    let leaf = pool.pop().expect("a node was taken for every split");
                    let key = first_key(&right);
                    indexes.insert(position + 1, ExtentIndex { block: key, leaf, unused: 0 });
                    let node = OwnedNode { entries: right, ..OwnedNode::empty_leaf(block_len) };
                    write_node(edit, file, leaf, &node)?;
                }
                entries = NodeEntries::Index(std::mem::take(indexes), *below);
            }
        }
    }
    assert!(pool.is_empty(), "as many nodes were taken as were needed");
    Ok(needed as u64 * node_blocks(edit))
}

/// The logical blocks that two lists of runs may map differently.
fn changed_range(old: &[Extent], new: &[Extent]) -> Option<Range<FileBlock>> {
    let first = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[first..], &new[first..]);
    let same = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    let changed = old[..old.len() - same].iter().chain(&new[..new.len() - same]);
    let start = changed.clone().map(|extent| extent.block).min()?;
    Some(start..changed.map(Extent::end).max()?)
}

/// Number of nodes that must be added so that a leaf can hold `extents` runs: one for each split on
/// the path up.
fn nodes_needed(path: &[Step], extents: usize) -> usize {
    let mut count = extents;
    let mut needed = 0;
    for (depth, step) in path.iter().enumerate().rev() {
        if count <= usize::from(step.node.max) {
            break;
        }
        needed += 1;
        // The node above gets one more pointer; above the root a level is added.
        count = depth.checked_sub(1).map_or(0, |above| path[above].indexes().len() + 1);
    }
    needed
}

fn take_nodes<E: Edit>(
    edit: &mut E,
    file: &LoadedInode,
    path: &[Step],
    needed: usize,
) -> Result<Vec<BlockNo>, Error> {
    let goal =
        path.iter().rev().find_map(|step| step.block).or_else(|| {
            path.last().and_then(|leaf| leaf.extents().first()).map(|extent| extent.start)
        });
    let request =
        AllocationRequest { inode: file.number, purpose: Purpose::Map, goal, count: 1, part: None };
    let mut pool = Vec::with_capacity(needed);
    for _ in 0..needed {
        match edit.allocate(request) {
            Ok(run) => pool.push(run.start),
            Err(error) => {
                for block in pool {
                    edit.free(node_run(edit, block), Purpose::Map)?;
                }
                return Err(error);
            }
        }
    }
    Ok(pool)
}

/// Blocks that one node takes: a whole cluster.
fn node_blocks<E: Edit>(edit: &E) -> u64 {
    u64::from(edit.geometry().blocks_per_cluster)
}

fn node_run<E: Edit>(edit: &E, block: BlockNo) -> BlockRange {
    BlockRange { start: block, count: node_blocks(edit) }
}

/// Entries that fit, and the rest: all that fit stay where entries are added at the end, else each
/// gets half.
fn split(entries: NodeEntries, max: usize, at_end: bool) -> (NodeEntries, Option<NodeEntries>) {
    fn halves<T>(mut all: Vec<T>, max: usize, at_end: bool) -> (Vec<T>, Option<Vec<T>>) {
        let count = all.len();
        if count <= max {
            return (all, None);
        }
        let at = if at_end { max } else { count / 2 };
        let right = all.split_off(at);
        (all, Some(right))
    }
    match entries {
        NodeEntries::Leaf(extents) => {
            let (left, right) = halves(extents, max, at_end);
            (NodeEntries::Leaf(left), right.map(NodeEntries::Leaf))
        }
        NodeEntries::Index(indexes, below) => {
            let (left, right) = halves(indexes, max, at_end);
            let index = |indexes| NodeEntries::Index(indexes, below);
            (index(left), right.map(index))
        }
    }
}

fn joined(left: NodeEntries, right: NodeEntries) -> NodeEntries {
    match (left, right) {
        (NodeEntries::Leaf(mut left), NodeEntries::Leaf(right)) => {
            left.extend(right);
            NodeEntries::Leaf(left)
        }
        (NodeEntries::Index(mut left, below), NodeEntries::Index(right, _)) => {
            left.extend(right);
            NodeEntries::Index(left, below)
        }
        (left, _) => left,
    }
}

fn depth_of(entries: &NodeEntries) -> u16 {
    match entries {
        NodeEntries::Leaf(_) => 0,
        NodeEntries::Index(_, below) => below + 1,
    }
}

fn first_key(entries: &NodeEntries) -> FileBlock {
    match entries {
        NodeEntries::Leaf(extents) => extents.first().map(|extent| extent.block),
        NodeEntries::Index(indexes, _) => indexes.first().map(|index| index.block),
    }
    .unwrap_or_default()
}

fn write_root(file: &mut LoadedInode, node: OwnedNode) {
    let max = capacity(ROOT_SIZE);
    OwnedNode { max, ..node }.encode_into(&mut file.inode.i_block);
}

fn write_node<E: Edit>(
    edit: &mut E,
    file: &LoadedInode,
    block: BlockNo,
    node: &OwnedNode,
) -> Result<(), Error> {
    let key = first_key(&node.entries).0;
    let limits = NodeLimits { depth: Some(depth_of(&node.entries)), blocks: key..MAX_FILE_BLOCKS };
    // Written whole, so the old contents are not read.
    edit.create(block, kind(file, &limits), |bytes| node.encode_into(bytes))
}

/// Writes what is left of a leaf's runs, drops nodes that are left empty, and pulls the last node's
/// entries up into the root when they fit there. The blocks that the tree grew by (a run cut in two
/// may need a node), and those it gave back.
fn shrink<E: Edit>(
    edit: &mut E,
    file: &mut LoadedInode,
    mut path: Vec<Step>,
    extents: Vec<Extent>,
) -> Result<(u64, u64), Error> {
    if !extents.is_empty() {
        let added = store(edit, file, path, extents)?;
        return Ok((added, pull_up(edit, file)? * node_blocks(edit)));
    }
    let old = path.last().map_or(&[][..], Step::extents);
    if let Some(range) = changed_range(old, &[]) {
        edit.map_changed(file.number, range);
    }
    let mut freed = 0;
    while let Some(step) = path.pop() {
        let Some(block) = step.block else {
            write_root(file, OwnedNode::empty_leaf(ROOT_SIZE));
            return Ok((0, freed));
        };
        edit.free(node_run(edit, block), Purpose::Map)?;
        freed += node_blocks(edit);
        let Some(above) = path.last_mut() else { break };
        let position = above.position;
        let NodeEntries::Index(indexes, _) = &mut above.node.entries else { break };
        indexes.remove(position);
        if !indexes.is_empty() {
            store_index(edit, file, path)?;
            break;
        }
    }
    Ok((0, freed + pull_up(edit, file)? * node_blocks(edit)))
}

/// Writes an index that lost an entry, and the keys above it where its first entry went.
fn store_index<E: Edit>(
    edit: &mut E,
    file: &mut LoadedInode,
    mut path: Vec<Step>,
) -> Result<(), Error> {
    while let Some(step) = path.pop() {
        let key = first_key(&step.node.entries);
        let Some(block) = step.block else {
            write_root(file, step.node);
            return Ok(());
        };
        write_node(edit, file, block, &step.node)?;
        let Some(above) = path.last_mut() else { return Ok(()) };
        let position = above.position;
        let NodeEntries::Index(indexes, _) = &mut above.node.entries else { return Ok(()) };
        if indexes[position].block == key {
            return Ok(());
        }
        indexes[position].block = key;
    }
    Ok(())
}

/// While the root points to one node whose entries fit in the root, they move up. The number of
/// nodes given back.
fn pull_up<E: Edit>(edit: &mut E, file: &mut LoadedInode) -> Result<u64, Error> {
    let mut freed = 0;
    loop {
        let path = path_to(edit, file, FileBlock(0))?;
        let [root, child, ..] = path.as_slice() else { return Ok(freed) };
        let count = child.extents().len().max(child.indexes().len());
        let (1, Some(block)) = (root.indexes().len(), child.block) else { return Ok(freed) };
        if count > usize::from(capacity(ROOT_SIZE)) {
            return Ok(freed);
        }
        let generation = root.node.generation;
        write_root(file, OwnedNode { generation, ..child.node.clone() });
        edit.free(node_run(edit, block), Purpose::Map)?;
        freed += 1;
    }
}
