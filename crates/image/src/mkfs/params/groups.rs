//! Fits block groups to the volume: their number, their inodes, and the treatment of a last group
//! that is too small to be worth its metadata.

use extant_ondisk::{CompatFeatures, IncompatFeatures, RoCompatFeatures};

use super::super::error::{MkfsError, Shortage, SizeError};
use super::types::FsParams;

/// A last group needs this many blocks beyond its own metadata, or it is dropped.
const MIN_LAST_GROUP: u64 = 50;
/// Inodes 1 to 10 are reserved and lost+found takes the 11th; one more is the least to be of use.
const MIN_INODES: u64 = 12;
/// Groups are not made smaller than this.
const MIN_BLOCKS_PER_GROUP: u32 = 256;
/// The descriptor table may grow to this many times the volume's size.
const GROWTH: u64 = 1024;

/// Blocks or clusters a group at most: as many as a bitmap of one block has bits, and as 16 bits
/// can count.
pub(super) fn max_per_group(block_size: u32) -> u32 {
    (block_size * 8).min((1 << 16) - 8)
}

/// Options for the groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// Inodes of the volume.
    pub(super) inodes: u64,
    /// `-E resize=`, blocks.
    pub(super) resize_limit: Option<u64>,
    /// sparse_super2: backups.
    pub(super) backups: u8,
    /// Groups may be made smaller, so that more of them hold the inodes.
    pub(super) may_shrink: bool,
}

/// Sets blocks, groups, inodes per group, reserved descriptor blocks, backups and dependent fields.
pub(super) fn fit(params: &mut FsParams, request: Request) -> Result<(), MkfsError> {
    let requested = params.blocks;
    let reserved_part = params.reserved_blocks as f64 / requested.max(1) as f64;
    // Each round drops a last group, shrinks the groups or drops the resize inode: the loop ends.
    loop {
        let per_group = u64::from(params.blocks_per_group);
        params.blocks -= params.blocks % u64::from(params.blocks_per_cluster());
        let grouped = params
            .blocks
            .checked_sub(params.first_data_block)
            .filter(|grouped| *grouped > 0)
            .ok_or(Shortage::Blocks(params.blocks))?;
        params.groups =
            u32::try_from(grouped.div_ceil(per_group)).map_err(|_| SizeError::Groups)?;
        set_backup_groups(params, request.backups);
        match inodes_per_group(params, request.inodes) {
            Some(count) => params.inodes_per_group = count,
            None if request.may_shrink
                && params.blocks_per_cluster() == 1
                && params.blocks_per_group > MIN_BLOCKS_PER_GROUP =>
            {
                params.blocks_per_group -= 8;
                params.blocks = requested;
                continue;
            }
            None => return Err(MkfsError::TooManyInodes),
        }
        params.reserved_gdt_blocks = reserved_gdt_blocks(params, request.resize_limit);
        if descriptors_crowd_groups(params) {
            params.features.compat -= CompatFeatures::RESIZE_INODE;
            params.features.incompat |= IncompatFeatures::META_BG;
            continue;
        }
        let table = u64::from(table_blocks(params));
        if u64::from(1 + leading_descriptors(params)) + 2 + table > per_group {
            return Err(MkfsError::TooManyInodes);
        }
        let rest = grouped % per_group;
        let mut overhead = 2 + table;
        if has_super(params, params.groups - 1) {
            overhead += 1 + u64::from(leading_descriptors(params));
        }
        // e2fsck takes more than half for a corrupt superblock.
        params.reserved_blocks = params.reserved_blocks.min(params.blocks / 2);
        if rest == 0 {
            return Ok(());
        }
        if params.groups == 1 {
            if rest < overhead {
                return Err(Shortage::Blocks(params.blocks).into());
            }
            return Ok(());
        }
        if rest >= overhead + MIN_LAST_GROUP {
            return Ok(());
        }
        params.blocks -= rest;
        // The reserved blocks keep their part, cut off to whole blocks: at most half of 2^48.
        params.reserved_blocks = (reserved_part * params.blocks as f64) as u64;
    }
}

/// Whether growing to `limit` blocks takes descriptor blocks that the volume has not got.
pub(super) fn must_reserve(params: &FsParams, limit: u64) -> bool {
    requested_desc_blocks(params, limit) > 0
}

/// The same as a number; counted, as mke2fs does, with groups without clusters.
fn requested_desc_blocks(params: &FsParams, limit: u64) -> u64 {
    let mut sized = params.clone();
    sized.blocks_per_group /= params.blocks_per_cluster();
    let grouped = params.blocks.saturating_sub(params.first_data_block);
    let groups = grouped.div_ceil(u64::from(sized.blocks_per_group));
    sized.groups = u32::try_from(groups).unwrap_or(u32::MAX);
    more_desc_blocks(&sized, limit)
}

/// Blocks of a group's inode table.
fn table_blocks(params: &FsParams) -> u32 {
    (params.inodes_per_group * u32::from(params.inode_size)).div_ceil(params.block_size)
}

fn desc_blocks(params: &FsParams) -> u32 {
    params.groups.div_ceil(params.block_size / desc_size(params))
}

fn desc_size(params: &FsParams) -> u32 {
    params.desc_size.map_or(32, u32::from)
}

/// Descriptor blocks after a superblock, reserved ones included: all, or with meta_bg at most those
/// before the first meta group and the group's own.
fn leading_descriptors(params: &FsParams) -> u32 {
    let all = desc_blocks(params);
    let stored = if params.features.incompat.contains(IncompatFeatures::META_BG) {
        all.min(params.first_meta_bg.max(1))
    } else {
        all
    };
    stored + u32::from(params.reserved_gdt_blocks)
}

/// Descriptors that would fill more than three quarters of a group are put into meta groups.
fn descriptors_crowd_groups(params: &FsParams) -> bool {
    !params.features.incompat.contains(IncompatFeatures::META_BG)
        && 1 + desc_blocks(params) + u32::from(params.reserved_gdt_blocks)
            > params.blocks_per_group / 4 * 3
}

fn reserved_gdt_blocks(params: &FsParams, resize_limit: Option<u64>) -> u16 {
    if !params.features.compat.contains(CompatFeatures::RESIZE_INODE) {
        return 0;
    }
    // A limit that needs no more blocks than present has no effect.
    let requested = resize_limit.map(|limit| requested_desc_blocks(params, limit));
    let blocks = requested
        .filter(|blocks| *blocks > 0)
        .unwrap_or_else(|| more_desc_blocks(params, params.blocks.saturating_mul(GROWTH)));
    // The resize inode maps them through one double indirect block.
    let most = u64::from(params.block_size / 4);
    u16::try_from(blocks.min(most)).unwrap_or(u16::MAX)
}

/// Descriptor blocks that a volume of `limit` blocks needs beyond those there are.
fn more_desc_blocks(params: &FsParams, limit: u64) -> u64 {
    let groups = limit.min(u64::from(u32::MAX)).saturating_sub(params.first_data_block);
    let groups = groups.div_ceil(u64::from(params.blocks_per_group));
    let blocks = groups.div_ceil(u64::from(params.block_size / desc_size(params)));
    blocks.saturating_sub(u64::from(desc_blocks(params)))
}

/// A multiple of 8 and of whole blocks where it can be; `None` for more than a bitmap holds.
fn inodes_per_group(params: &FsParams, inodes: u64) -> Option<u32> {
    let groups = u64::from(params.groups);
    let inode_size = u64::from(params.inode_size);
    let per_block = u64::from(params.block_size) / inode_size;
    let most = u64::from(params.block_size) * 8;
    let wanted = inodes.max(MIN_INODES).div_ceil(groups);
    if wanted > most {
        return None;
    }
    let whole_blocks = wanted.div_ceil(per_block) * per_block;
    let mut count = (whole_blocks.min(most) & !7).max(8);
    if count * groups < MIN_INODES {
        count += 8;
    }
    u32::try_from(count).ok().filter(|_| count * groups <= u64::from(u32::MAX))
}

/// The first backup lies in group 1, the second in the last.
fn set_backup_groups(params: &mut FsParams, backups: u8) {
    params.backup_groups = [0; 2];
    if !params.features.compat.contains(CompatFeatures::SPARSE_SUPER2) {
        return;
    }
    if backups >= 1 && params.groups > 1 {
        params.backup_groups[0] = 1;
    }
    if backups >= 2 && params.groups > 2 {
        params.backup_groups[1] = params.groups - 1;
    }
}

/// Whether a group starts with a superblock; [`extant_ondisk::Geometry::has_super`] before there is
/// a geometry.
fn has_super(params: &FsParams, group: u32) -> bool {
    let features = params.features;
    if features.compat.contains(CompatFeatures::SPARSE_SUPER2) {
        return group == 0 || params.backup_groups.contains(&group);
    }
    if group <= 1 || !features.ro_compat.contains(RoCompatFeatures::SPARSE_SUPER) {
        return true;
    }
    [3_u32, 5, 7].into_iter().any(|base| {
        let mut left = group;
        while left.is_multiple_of(base) {
            left /= base;
        }
        left == 1
    })
}
