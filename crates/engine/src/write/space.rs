//! The space that a file uses: `i_blocks`, and with it the quotas of its owners. Changed here only,
//! so that both always agree.

use crate::edit::{Edit, Limits, Usage};
use extant_ondisk::inode::{InodeFlags, SECTOR};
use extant_ondisk::{Geometry, RoCompatFeatures};
use extant_reader::Error;
use extant_reader::read::inode::LoadedInode;

/// Counts blocks that the file gets.
///
/// # Errors
/// [`Error::FileTooLarge`] past what the field holds, or as [`Edit::charge`]. Nothing is counted
/// then.
pub fn add<E: Edit>(edit: &mut E, file: &mut LoadedInode, blocks: u64) -> Result<(), Error> {
    let usage = Usage { space: bytes(edit.geometry(), blocks), inodes: 0 };
    change(edit, file, usage, Limits::Enforced)
}

/// Counts what a step that is done has changed: blocks that the file got, and blocks that it gave
/// back. No limit refuses it; a count that was too low already stops at 0.
///
/// # Errors
/// As [`Edit::charge`].
pub fn settle<E: Edit>(
    edit: &mut E,
    file: &mut LoadedInode,
    got: u64,
    gave: u64,
) -> Result<(), Error> {
    let geometry = edit.geometry();
    let usage = Usage { space: bytes(geometry, got) - bytes(geometry, gave), inodes: 0 };
    change(edit, file, usage, Limits::Ignored)
}

/// Charges or releases usage of a file: bytes of whole blocks, and inodes that belong to it in
/// addition to its own.
///
/// # Errors
/// If limits are enforced, [`Error::FileTooLarge`] past the field's maximum, or as
/// [`Edit::charge`]. Nothing is counted then.
pub fn change<E: Edit>(
    edit: &mut E,
    file: &mut LoadedInode,
    usage: Usage,
    limits: Limits,
) -> Result<(), Error> {
    if usage.is_none() {
        return Ok(());
    }
    let (blocks, is_in_blocks) = count(file, usage.space, edit.geometry());
    if blocks > most(edit.geometry()) && limits == Limits::Enforced {
        return Err(Error::FileTooLarge);
    }
    edit.charge(file, usage, limits)?;
    file.inode.blocks = blocks.min(most(edit.geometry()));
    if is_in_blocks {
        file.inode.flags |= InodeFlags::HUGE_FILE;
    }
    Ok(())
}

/// The largest value of `i_blocks`.
fn most(geometry: &Geometry) -> u64 {
    let has_high = geometry.has_ro_compat(RoCompatFeatures::HUGE_FILE);
    if has_high { (1 << 48) - 1 } else { u64::from(u32::MAX) }
}

/// `i_blocks` increased by `bytes`, and whether it counts blocks then: where the count in sectors
/// ends, one in blocks begins.
fn count(file: &LoadedInode, bytes: i64, geometry: &Geometry) -> (u64, bool) {
    let has_huge_file = geometry.has_ro_compat(RoCompatFeatures::HUGE_FILE);
    let was_in_blocks = has_huge_file && file.flags.contains(InodeFlags::HUGE_FILE);
    let per_block = u64::from(geometry.block_size);
    let unit = if was_in_blocks { per_block } else { SECTOR };
    let units = file.blocks.saturating_add_signed(bytes / unit.cast_signed());
    if units > most(geometry) && has_huge_file && !was_in_blocks {
        return (units.div_ceil(per_block / SECTOR), true);
    }
    (units, was_in_blocks)
}

/// Blocks of the volume in bytes: at most 2^48 blocks of 64 KiB, so it fits.
fn bytes(geometry: &Geometry, blocks: u64) -> i64 {
    (blocks * u64::from(geometry.block_size)).cast_signed()
}
