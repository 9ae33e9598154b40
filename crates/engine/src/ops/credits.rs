//! How many blocks the parts of an operation may dirty at most.

use crate::alloc::group::GROUP_CREDITS;
use crate::engine::Engine;
use crate::write::dir::INSERT_CREDITS;
use extant_ondisk::indirect::IndirectMap;
use extant_ondisk::{Geometry, IncompatFeatures};
use extant_reader::read::inode::LoadedInode;

/// An inode's record.
pub(crate) const INODE: u32 = 1;
/// A block of a bitmap and its descriptor.
pub(crate) const BITMAP: u32 = 2;
/// A block of attributes given up.
pub(crate) const XATTR_BLOCK: u32 = 1 + BITMAP;
/// The blocks that quotas of three kinds may change: for each a record, and for a new record a
/// leaf, the nodes above it and the header.
pub(crate) const QUOTA: u32 = 3 * 6;
/// The superblock.
pub(crate) const SUPERBLOCK: u32 = 1;
/// The charge of an operation to the quotas of users, groups and projects.
pub(crate) fn quotas(engine: &Engine) -> u32 {
    if engine.has_quotas() { QUOTA } else { 0 }
}

/// Blocks that a directory may grow by when a name is added: leaf, node, level. More splits than
/// that extend the handle.
const DIR_GROWTH: u32 = 3;
/// Levels of pointer blocks.
const INDIRECT_LEVELS: u32 = 3;

/// One more mapped block: its bitmap, and on each level of the map a block and its split, with
/// their bitmaps.
pub(crate) fn map_block(file: &LoadedInode) -> u32 {
    let levels = if file.is_extent_mapped() {
        // The root's depth, at most 5; the split of the root adds a level.
        u32::from(u16::from_le_bytes([file.i_block[6], file.i_block[7]])).min(5) + 1
    } else {
        INDIRECT_LEVELS
    };
    BITMAP + levels * (2 + BITMAP)
}

/// A run of blocks mapped, or marked as written: in a map of pointers as many blocks of them as the
/// run takes.
pub(crate) fn map_run(geometry: &Geometry, file: &LoadedInode, blocks: u64) -> u32 {
    if file.is_extent_mapped() {
        return map_block(file);
    }
    let blocks_of_pointers =
        blocks / IndirectMap::new(geometry.block_size).pointers_per_block() + 1;
    let of_run = u32::try_from(blocks_of_pointers).unwrap_or(u32::MAX);
    map_block(file).saturating_add(of_run.saturating_mul(1 + BITMAP))
}

/// A name added to a directory.
pub(crate) fn insert_name(dir: &LoadedInode) -> u32 {
    INODE + INSERT_CREDITS + DIR_GROWTH * map_block(dir)
}

/// A name taken out, or pointed elsewhere.
pub(crate) const REMOVE_NAME: u32 = 1 + INODE;

/// An inode taken or given back.
pub(crate) const INODE_NUMBER: u32 = GROUP_CREDITS + INODE;

/// Groups that one step of a removal frees blocks of; the last run may reach into as many more, and
/// so may blocks of the map.
pub(crate) const GROUPS_OF_STEP: usize = 8;

/// Blocks of a file that one step of a removal frees at most where each is revoked.
pub(crate) const REVOKED_OF_STEP: u64 = 2048;
/// Blocks of revoke records that this takes, of the smallest blocks.
const REVOKES: u32 = 18;

/// One step of a removal: the groups that are freed from, and the nodes on the path.
pub(crate) fn remove_step(file: &LoadedInode) -> u32 {
    // At most eight.
    let groups = GROUPS_OF_STEP as u32;
    groups * 2 * BITMAP + map_block(file) + INODE + REVOKES
}

/// An attribute set to a value of `len` bytes, or removed: the inode, its old and its new block; an
/// inode for the value, and one for the value before; the quotas.
pub(crate) fn set_xattr(geometry: &Geometry, len: usize) -> u32 {
    let blocks = XATTR_BLOCK * 2 + INODE + QUOTA;
    if !geometry.has_incompat(IncompatFeatures::EA_INODE) {
        return blocks;
    }
    // At most 64 blocks and a few: values of attributes are small.
    let value = len.div_ceil(geometry.block_len()) as u32;
    let levels = INDIRECT_LEVELS * (2 + BITMAP);
    blocks + 2 * (INODE_NUMBER + BITMAP + levels + 1) + value * 2
}
