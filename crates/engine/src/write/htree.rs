//! Indexed directories: the index made, kept on insert, and grown by a level.

use super::dir_block::{Record, append_leaf, insert_into, records_of, set_indexed};
use crate::edit::Edit;
use extant_ondisk::dirent::{DirFormat, NewEntry, dot_entries};
use extant_ondisk::dx_hash::{DirHash, DirHasher};
use extant_ondisk::htree::{HtreeRoot, IndexKind};
use extant_ondisk::{FileBlock, Flaw, InodeNo, Location};
use extant_reader::read::dir_block::{self, format};
use extant_reader::read::htree::{self, HtreePath, Level};
use extant_reader::read::inode::LoadedInode;
use extant_reader::{BlockKind, Error, MetadataRead};

/// Splits that one insertion may need: a leaf, then a node on each level, a new level, and a second
/// split of a leaf whose halves are uneven. More means that the index does not behave.
const MOST_SPLITS: usize = 16;

/// The kind by which an index block is read and sealed.
pub(crate) fn block_kind(dir: &LoadedInode, at: FileBlock, kind: IndexKind) -> BlockKind {
    BlockKind::HtreeBlock { inode: dir.number, generation: dir.generation, at, kind }
}

/// The hash that a name is filed under by the directory's hash function.
fn hash_of<S: MetadataRead>(
    source: &S,
    dir: &LoadedInode,
    hasher: &DirHasher,
    name: &[u8],
) -> DirHash {
    match source.info().casefold.filter(|_| dir.is_casefolded()) {
        Some(casefold) => hasher.hash(&casefold.key(name)),
        None => hasher.hash(name),
    }
}

/// Puts a record where its hash belongs, and makes room there first if need be.
pub(super) fn insert<E: Edit>(
    edit: &mut E,
    dir: &mut LoadedInode,
    new: &NewEntry<'_>,
) -> Result<(), Error> {
    let hash = hash_of(edit, dir, &htree::hasher(edit, dir)?, new.name).hash;
    for _ in 0..MOST_SPLITS {
        let path = htree::descend(edit, dir, hash)?;
        if insert_into(edit, dir, path.leaf, new)? {
            return Ok(());
        }
        make_room(edit, dir, &path)?;
    }
    let place = Location::Htree(dir.number, FileBlock(0));
    Err(Flaw::Rule("splitting leaves makes no room").at(place).into())
}

/// Makes an index for a directory of one block: its records move to a leaf, and the block becomes
/// the root.
pub(super) fn build<E: Edit>(edit: &mut E, dir: &mut LoadedInode) -> Result<(), Error> {
    let bytes = dir_block::block(edit, dir, FileBlock(0))?;
    let entries = records_of(edit, dir, FileBlock(0), &bytes)?;
    let parent = parent_of(edit, dir)?;
    let Some(hasher) = edit.info().default_hasher else {
        return Err(Error::NotSupported("an index with the volume's default hash"));
    };
    let (leaf, leaf_place) = append_leaf(edit, dir)?;
    let records = format(edit, dir);
    let leaf_kind = dir_block::block_kind(edit, dir, leaf);
    edit.create(leaf_place, leaf_kind, |block| pack(&records, block, &entries))?;

    let index = htree::format(edit, dir);
    let root = HtreeRoot { hash_version: hasher.stored_version(), indirect_levels: 0 };
    let root_place = dir_block::block_place(edit, dir, FileBlock(0))?;
    let root_kind = block_kind(dir, FileBlock(0), IndexKind::Root);
    edit.create(root_place, root_kind, |block| {
        index.write_root(block, parent, root, std::iter::once((0, stored(leaf))));
    })?;
    set_indexed(dir)
}

/// A directory's block numbers are 32 bits: [`append_leaf`] gives no others.
fn stored(block: FileBlock) -> u32 {
    block.stored().unwrap_or(u32::MAX)
}

/// The directory that `..` names.
fn parent_of<S: MetadataRead>(source: &S, dir: &LoadedInode) -> Result<InodeNo, Error> {
    let bytes = dir_block::block(source, dir, FileBlock(0))?;
    Ok(dot_entries(&format(source, dir), &bytes)?.1)
}

fn pack<'r, 'b: 'r>(
    records: &DirFormat,
    block: &mut [u8],
    entries: impl IntoIterator<Item = &'r Record<'b>>,
) {
    let mut packer = records.packer(block);
    for Record { found, name } in entries {
        let fits = packer.push(&NewEntry::new(found.inode, found.file_type, name));
        assert!(fits, "records that were in one block fit in one");
    }
    packer.finish();
}

/// One step towards room for a record below `path`: the leaf is split when the node above has room
/// for another entry, else a node, else the tree grows by a level.
fn make_room<E: Edit>(edit: &mut E, dir: &mut LoadedInode, path: &HtreePath) -> Result<(), Error> {
    let index = htree::format(edit, dir);
    // The deepest level with room for one more entry.
    let mut with_room = None;
    for (depth, level) in path.levels.iter().enumerate().rev() {
        let bytes = htree::index_block(edit, dir, level.at, level.kind)?;
        if !index.node(&bytes, level.at, level.kind)?.is_full() {
            with_room = Some(depth);
            break;
        }
    }
    match with_room {
        Some(depth) if depth + 1 == path.levels.len() => split_leaf(edit, dir, path),
        Some(depth) => split_node(edit, dir, &path.levels[depth], &path.levels[depth + 1]),
        None if path.root.indirect_levels < index.max_levels => add_level(edit, dir, path),
        None => Err(Error::DirectoryFull),
    }
}

/// Moves the upper half of a leaf, by hash, to a new one after it.
fn split_leaf<E: Edit>(edit: &mut E, dir: &mut LoadedInode, path: &HtreePath) -> Result<(), Error> {
    let records = format(edit, dir);
    let hasher = htree::hasher(edit, dir)?;
    let bytes = dir_block::block(edit, dir, path.leaf)?;
    let mut by_hash: Vec<_> = records_of(edit, dir, path.leaf, &bytes)?
        .into_iter()
        .map(|record| (hash_of(edit, dir, &hasher, record.name), record))
        .collect();
    by_hash.sort_by_key(|(hash, _)| (hash.hash, hash.minor));
    let Some(at) = halfway(&records, &by_hash) else {
        let place = Location::DirBlock(dir.number, path.leaf);
        return Err(Flaw::Rule("a leaf that is full with fewer than two records").at(place).into());
    };
    let first_above = by_hash[at].0.hash;
    let is_continuation = by_hash[at - 1].0.hash == first_above;
    let (lower, upper) = by_hash.split_at(at);

    let (new_leaf, new_place) = append_leaf(edit, dir)?;
    let new_kind = dir_block::block_kind(edit, dir, new_leaf);
    edit.create(new_place, new_kind, |block| {
        pack(&records, block, upper.iter().map(|(_, record)| record))
    })?;
    let old_place = dir_block::block_place(edit, dir, path.leaf)?;
    let old_kind = dir_block::block_kind(edit, dir, path.leaf);
    edit.modify(old_place, old_kind, |block| {
        pack(&records, block, lower.iter().map(|(_, record)| record))
    })?;

    let Some(above) = path.levels.last() else {
        return Err(Flaw::Rule("an index without a root").at(Location::Inode(dir.number)).into());
    };
    let hash = first_above | u32::from(is_continuation);
    add_entry(edit, dir, above, hash, new_leaf)
}

/// Where the upper half begins: the halves have about as many bytes, and neither is empty.
fn halfway(records: &DirFormat, by_hash: &[(DirHash, Record<'_>)]) -> Option<usize> {
    if by_hash.len() < 2 {
        return None;
    }
    let size = |(_, record): &(DirHash, Record<'_>)| records.rec_len_of(record.name);
    let total: usize = by_hash.iter().map(size).sum();
    let mut below = 0;
    for (at, entry) in by_hash.iter().enumerate() {
        if below + size(entry) > total / 2 {
            return Some(at.clamp(1, by_hash.len() - 1));
        }
        below += size(entry);
    }
    Some(by_hash.len() - 1)
}

/// Adds an entry after the one that was followed on this level; there is room.
fn add_entry<E: Edit>(
    edit: &mut E,
    dir: &LoadedInode,
    level: &Level,
    hash: u32,
    below: FileBlock,
) -> Result<(), Error> {
    let index = htree::format(edit, dir);
    let place = dir_block::block_place(edit, dir, level.at)?;
    let kind = block_kind(dir, level.at, level.kind);
    let added = edit.modify(place, kind, |block| {
        index.insert(block, level.at, level.kind, level.position, hash, stored(below))
    })??;
    assert!(added, "the caller looked for a node with room");
    Ok(())
}

/// Moves the upper half of a node's entries to a new node, which the node above points to from now
/// on.
fn split_node<E: Edit>(
    edit: &mut E,
    dir: &mut LoadedInode,
    above: &Level,
    full: &Level,
) -> Result<(), Error> {
    let index = htree::format(edit, dir);
    let bytes = htree::index_block(edit, dir, full.at, full.kind)?;
    let entries: Vec<(u32, u32)> = raw_entries(&index.node(&bytes, full.at, full.kind)?);
    let half = entries.len() / 2;
    if half == 0 {
        let place = Location::Htree(dir.number, full.at);
        return Err(Flaw::Rule("a full node with one entry").at(place).into());
    }
    let (lower, upper) = entries.split_at(half);
    let hash = upper[0].0;

    let (new_node, new_place) = append_leaf(edit, dir)?;
    let new_kind = block_kind(dir, new_node, IndexKind::Node);
    edit.create(new_place, new_kind, |block| index.write_node(block, upper.iter().copied()))?;
    let old_place = dir_block::block_place(edit, dir, full.at)?;
    let old_kind = block_kind(dir, full.at, full.kind);
    edit.modify(old_place, old_kind, |block| index.write_node(block, lower.iter().copied()))?;
    add_entry(edit, dir, above, hash, new_node)
}

/// Entries as they are stored: the continuation bit in the hash.
fn raw_entries(node: &extant_ondisk::htree::HtreeNode<'_>) -> Vec<(u32, u32)> {
    node.entries()
        .map(|entry| (entry.hash | u32::from(entry.is_continuation), stored(entry.block)))
        .collect()
}

/// Moves all of the root's entries to a new node, the only one below the root then.
fn add_level<E: Edit>(edit: &mut E, dir: &mut LoadedInode, path: &HtreePath) -> Result<(), Error> {
    let index = htree::format(edit, dir);
    let bytes = htree::index_block(edit, dir, FileBlock(0), IndexKind::Root)?;
    let (root, node) = index.root(&bytes)?;
    let entries = raw_entries(&node);
    let parent = parent_of(edit, dir)?;
    let (new_node, new_place) = append_leaf(edit, dir)?;
    let new_kind = block_kind(dir, new_node, IndexKind::Node);
    edit.create(new_place, new_kind, |block| index.write_node(block, entries.iter().copied()))?;
    let root = HtreeRoot { indirect_levels: path.root.indirect_levels + 1, ..root };
    let root_place = dir_block::block_place(edit, dir, FileBlock(0))?;
    let root_kind = block_kind(dir, FileBlock(0), IndexKind::Root);
    edit.modify(root_place, root_kind, |block| {
        index.write_root(block, parent, root, std::iter::once((0, stored(new_node))));
    })
}
