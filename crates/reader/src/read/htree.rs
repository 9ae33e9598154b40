//! Looking a name up by a directory's index.

use super::dir_block::{self, EntryLocation, Wanted};
use super::inode::{LoadedInode, dir_blocks};
use crate::error::Error;
use crate::source::{BlockKind, MetadataRead};
use extant_ondisk::dx_hash::{DirHasher, HashVersion};
use extant_ondisk::htree::{HtreeEntry, HtreeFormat, HtreeRoot, IndexKind};
use extant_ondisk::{FileBlock, Flaw, Location};
use std::ops::{Deref, DerefMut};

/// The hash function of an indexed directory, from the root of its index.
///
/// # Errors
/// A broken root, one that needs the encryption key, or the device failed.
pub fn hasher<S: MetadataRead>(source: &S, dir: &LoadedInode) -> Result<DirHasher, Error> {
    let format = format(source, dir);
    let root = index_block(source, dir, FileBlock(0), IndexKind::Root)?;
    let (root, _) = format.root(&root)?;
    hasher_of(source, root.hash_version)
}

fn hasher_of<S: MetadataRead>(source: &S, version: HashVersion) -> Result<DirHasher, Error> {
    let info = source.info();
    Ok(DirHasher::new(version.with_signedness(info.hash_is_unsigned), info.hash_seed)?)
}

/// How the index blocks are read.
pub fn format<S: MetadataRead>(source: &S, dir: &LoadedInode) -> HtreeFormat {
    HtreeFormat::new(source.geometry(), dir.number, dir.generation)
}

/// An index block, checked.
///
/// # Errors
/// A broken block or map, or the device failed.
pub fn index_block<S: MetadataRead>(
    source: &S,
    dir: &LoadedInode,
    at: FileBlock,
    kind: IndexKind,
) -> Result<S::Block, Error> {
    let place = dir_block::block_place(source, dir, at)?;
    let (inode, generation) = (dir.number, dir.generation);
    source.metadata(place, BlockKind::HtreeBlock { inode, generation, at, kind })
}

/// A level of the way down: which index block, and which of its entries was followed.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    /// The index block.
    pub at: FileBlock,
    /// Root or node.
    pub kind: IndexKind,
    /// The entry that was followed.
    pub position: usize,
}

/// Number of index blocks on the path to a leaf: the root and two levels below it, the most of the
/// format.
const MOST_LEVELS: usize = 3;

/// The index blocks on a way, the root first.
#[derive(Clone, Copy, Debug)]
pub struct Levels {
    levels: [Level; MOST_LEVELS],
    count: usize,
}

impl Levels {
    fn new(root: Level) -> Self {
        Self { levels: [root; MOST_LEVELS], count: 1 }
    }

    /// False for one more than there can be.
    fn push(&mut self, level: Level) -> bool {
        let place = self.levels.get_mut(self.count);
        self.count += usize::from(place.is_some());
        place.map(|place| *place = level).is_some()
    }
}

impl Deref for Levels {
    type Target = [Level];
    fn deref(&self) -> &[Level] {
        &self.levels[..self.count]
    }
}

impl DerefMut for Levels {
    fn deref_mut(&mut self) -> &mut [Level] {
        &mut self.levels[..self.count]
    }
}

/// The way from the root to the leaf of a hash.
#[derive(Clone, Debug)]
pub struct HtreePath {
    /// The root's fields.
    pub root: HtreeRoot,
    /// The index blocks, the root first.
    pub levels: Levels,
    /// The leaf: the first that may hold names of the hash.
    pub leaf: FileBlock,
    /// Whether the next leaf may hold names of the hash too.
    pub hash_continues: bool,
}

/// Goes down to the leaf of a hash.
///
/// # Errors
/// A broken index, or the device failed.
pub fn descend<S: MetadataRead>(
    source: &S,
    dir: &LoadedInode,
    hash: u32,
) -> Result<HtreePath, Error> {
    descend_by(source, dir, |_| Ok(hash)).map(|(_, path)| path)
}

/// Goes down to the leaf of the hash that the directory's hash function gives; the hash too.
///
/// # Errors
/// As [`descend`], and those of `hash`.
pub(crate) fn descend_by<S: MetadataRead>(
    source: &S,
    dir: &LoadedInode,
    hash: impl FnOnce(HashVersion) -> Result<u32, Error>,
) -> Result<(u32, HtreePath), Error> {
    let format = format(source, dir);
    let blocks = dir_blocks(source, dir)?;
    let bytes = index_block(source, dir, FileBlock(0), IndexKind::Root)?;
    let (root, node) = format.root(&bytes)?;
    let hash = hash(root.hash_version)?;
    let position = node.search(hash);
    let mut levels = Levels::new(Level { at: FileBlock(0), kind: IndexKind::Root, position });
    let mut next = target(&node, position, blocks, dir, FileBlock(0))?;
    let mut hash_continues = node.entry(position + 1).is_some_and(|entry| continues(&entry, hash));
    for _ in 0..root.indirect_levels {
        let bytes = index_block(source, dir, next, IndexKind::Node)?;
        let node = format.node(&bytes, next, IndexKind::Node)?;
        let position = node.search(hash);
        if !levels.push(Level { at: next, kind: IndexKind::Node, position }) {
            return Err(Flaw::Rule("an index of too many levels")
                .at(Location::Inode(dir.number))
                .into());
        }
        next = target(&node, position, blocks, dir, next)?;
        // After the last entry of a node, the order continues in the next node.
        if let Some(entry) = node.entry(position + 1) {
            hash_continues = continues(&entry, hash);
        }
    }
    Ok((hash, HtreePath { root, levels, leaf: next, hash_continues }))
}

/// Goes down to the leaf that a name belongs to, compared as it is; the name's hash too.
///
/// # Errors
/// As [`descend`].
pub fn descend_to<S: MetadataRead>(
    source: &S,
    dir: &LoadedInode,
    name: &[u8],
) -> Result<(u32, HtreePath), Error> {
    descend_by(source, dir, |version| Ok(hasher_of(source, version)?.hash(name).hash))
}

/// The name, or `None` when no leaf that may hold it does.
///
/// # Errors
/// A broken index or leaf, or the device failed.
pub(super) fn lookup<S: MetadataRead>(
    source: &S,
    dir: &LoadedInode,
    wanted: &Wanted<'_>,
) -> Result<Option<EntryLocation>, Error> {
    let (hash, path) = match wanted {
        Wanted::Exact(name) => descend_to(source, dir, name)?,
        Wanted::Folded(name, casefold) => descend_to(source, dir, &casefold.key(name))?,
        Wanted::NoKey(..) => return Ok(None),
    };
    let format = format(source, dir);
    let blocks = dir_blocks(source, dir)?;
    let HtreePath { mut levels, leaf: mut next, hash_continues, .. } = path;

    let records = dir_block::format(source, dir);
    // Names of one hash may fill several leaves; a directory has no more leaves than blocks.
    for _ in 0..blocks.0 {
        let bytes = dir_block::block(source, dir, next)?;
        if let Some(found) = dir_block::search_block(&records, &bytes, next, wanted)? {
            return Ok(Some(found));
        }
        if !hash_continues {
            return Ok(None);
        }
        match continuation(source, dir, &format, &mut levels, hash, blocks)? {
            Some(leaf) => next = leaf,
            None => return Ok(None),
        }
    }
    Ok(None)
}

/// The next leaf, if names of the hash continue there.
pub fn continuation<S: MetadataRead>(
    source: &S,
    dir: &LoadedInode,
    format: &HtreeFormat,
    path: &mut [Level],
    hash: u32,
    blocks: FileBlock,
) -> Result<Option<FileBlock>, Error> {
    next_leaf(source, dir, format, path, blocks, |entry| continues(entry, hash))
}

/// Whether the names of a hash continue below an entry.
fn continues(entry: &HtreeEntry, hash: u32) -> bool {
    entry.is_continuation && entry.hash == hash
}

/// The leaf after the one that `path` leads to, if there is one and `is_wanted` holds for its entry
/// in the index; `path` leads to it then.
///
/// # Errors
/// A broken index, or the device failed.
pub fn next_leaf<S: MetadataRead>(
    source: &S,
    dir: &LoadedInode,
    format: &HtreeFormat,
    path: &mut [Level],
    blocks: FileBlock,
    is_wanted: impl Fn(&HtreeEntry) -> bool,
) -> Result<Option<FileBlock>, Error> {
    // Up to the lowest level that has another entry.
    for depth in (0..path.len()).rev() {
        let Level { at, kind, position } = path[depth];
        let bytes = index_block(source, dir, at, kind)?;
        let node = format.node(&bytes, at, kind)?;
        let Some(entry) = node.entry(position + 1) else { continue };
        if !is_wanted(&entry) {
            return Ok(None);
        }
        path[depth].position += 1;
        let mut next = target(&node, position + 1, blocks, dir, at)?;
        // And down again by the first entries.
        for level in &mut path[depth + 1..] {
            let bytes = index_block(source, dir, next, IndexKind::Node)?;
            let node = format.node(&bytes, next, IndexKind::Node)?;
            *level = Level { at: next, kind: IndexKind::Node, position: 0 };
            next = target(&node, 0, blocks, dir, next)?;
        }
        return Ok(Some(next));
    }
    Ok(None)
}

/// The block that an entry points to: one of the directory's, and not its root.
fn target(
    node: &extant_ondisk::htree::HtreeNode<'_>,
    position: usize,
    blocks: FileBlock,
    dir: &LoadedInode,
    at: FileBlock,
) -> Result<FileBlock, Error> {
    let place = Location::Htree(dir.number, at);
    let to = node
        .entry(position)
        .map(|entry| entry.block)
        .ok_or_else(|| Flaw::Rule("the index has no entry to follow").at(place))?;
    if to.0 == 0 || to >= blocks {
        return Err(Flaw::bad_value("block of an index entry", to.0).at(place).into());
    }
    Ok(to)
}
