//! Fitting block groups to the volume: how many, how many inodes each, and what becomes of a last
//! group that is too small to be worth its metadata.

use extant_ondisk::{CompatFeatures, IncompatFeatures, RoCompatFeatures};

use super::super::error::{MkfsError, Shortage, SizeError};
use super::types::Figures;

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

/// What the options ask of the groups.
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

/// Sets blocks, groups, inodes a group, reserved descriptor blocks, backups and what depends on
/// them.
pub(super) fn fit(figures: &mut Figures, request: Request) -> Result<(), MkfsError> {
    let asked = figures.blocks;
    let reserved_part = figures.reserved_blocks as f64 / asked.max(1) as f64;
    // Each round drops a last group, shrinks the groups or gives up the resize inode: all of them
    // end.
    loop {
        let per_group = u64::from(figures.blocks_per_group);
        figures.blocks -= figures.blocks % u64::from(figures.blocks_per_cluster());
        let grouped = figures
            .blocks
            .checked_sub(figures.first_data_block)
            .filter(|grouped| *grouped > 0)
            .ok_or(Shortage::Blocks(figures.blocks))?;
        figures.groups =
            u32::try_from(grouped.div_ceil(per_group)).map_err(|_| SizeError::Groups)?;
        set_backup_groups(figures, request.backups);
        match inodes_per_group(figures, request.inodes) {
            Some(count) => figures.inodes_per_group = count,
            None if request.may_shrink
                && figures.blocks_per_cluster() == 1
                && figures.blocks_per_group > MIN_BLOCKS_PER_GROUP =>
            {
                figures.blocks_per_group -= 8;
                figures.blocks = asked;
                continue;
            }
            None => return Err(MkfsError::TooManyInodes),
        }
        figures.reserved_gdt_blocks = reserved_gdt_blocks(figures, request.resize_limit);
        if descriptors_crowd_groups(figures) {
            figures.features.compat -= CompatFeatures::RESIZE_INODE;
            figures.features.incompat |= IncompatFeatures::META_BG;
            continue;
        }
        let table = u64::from(table_blocks(figures));
        if u64::from(1 + leading_descriptors(figures)) + 2 + table > per_group {
            return Err(MkfsError::TooManyInodes);
        }
        let rest = grouped % per_group;
        let mut overhead = 2 + table;
        if has_super(figures, figures.groups - 1) {
            overhead += 1 + u64::from(leading_descriptors(figures));
        }
        // More than half is what e2fsck takes for a broken superblock.
        figures.reserved_blocks = figures.reserved_blocks.min(figures.blocks / 2);
        if rest == 0 {
            return Ok(());
        }
        if figures.groups == 1 {
            if rest < overhead {
                return Err(Shortage::Blocks(figures.blocks).into());
            }
            return Ok(());
        }
        if rest >= overhead + MIN_LAST_GROUP {
            return Ok(());
        }
        figures.blocks -= rest;
        // The reserved blocks keep their part, cut off to whole blocks: at most half of 2^48.
        figures.reserved_blocks = (reserved_part * figures.blocks as f64) as u64;
    }
}

/// Whether growing to `limit` blocks takes descriptor blocks that the volume has not got.
pub(super) fn must_reserve(figures: &Figures, limit: u64) -> bool {
    asked_desc_blocks(figures, limit) > 0
}

/// The same as a number; counted, as mke2fs does, with groups that know nothing of clusters.
fn asked_desc_blocks(figures: &Figures, limit: u64) -> u64 {
    let mut sized = figures.clone();
    sized.blocks_per_group /= figures.blocks_per_cluster();
    let grouped = figures.blocks.saturating_sub(figures.first_data_block);
    let groups = grouped.div_ceil(u64::from(sized.blocks_per_group));
    sized.groups = u32::try_from(groups).unwrap_or(u32::MAX);
    more_desc_blocks(&sized, limit)
}

/// Blocks of a group's inode table.
fn table_blocks(figures: &Figures) -> u32 {
    (figures.inodes_per_group * u32::from(figures.inode_size)).div_ceil(figures.block_size)
}

fn desc_blocks(figures: &Figures) -> u32 {
    figures.groups.div_ceil(figures.block_size / desc_size(figures))
}

fn desc_size(figures: &Figures) -> u32 {
    figures.desc_size.map_or(32, u32::from)
}

/// Descriptor blocks behind a superblock, those reserved included: all, or with meta_bg at most
/// those before the first meta group and the group's own.
fn leading_descriptors(figures: &Figures) -> u32 {
    let all = desc_blocks(figures);
    let stored = if figures.features.incompat.contains(IncompatFeatures::META_BG) {
        all.min(figures.first_meta_bg.max(1))
    } else {
        all
    };
    stored + u32::from(figures.reserved_gdt_blocks)
}

/// Descriptors that fill more than three quarters of a group leave no room: they go to meta groups.
fn descriptors_crowd_groups(figures: &Figures) -> bool {
    !figures.features.incompat.contains(IncompatFeatures::META_BG)
        && 1 + desc_blocks(figures) + u32::from(figures.reserved_gdt_blocks)
            > figures.blocks_per_group / 4 * 3
}

fn reserved_gdt_blocks(figures: &Figures, resize_limit: Option<u64>) -> u16 {
    if !figures.features.compat.contains(CompatFeatures::RESIZE_INODE) {
        return 0;
    }
    // A limit that needs no more blocks than there are says nothing.
    let asked = resize_limit.map(|limit| asked_desc_blocks(figures, limit));
    let blocks = asked
        .filter(|blocks| *blocks > 0)
        .unwrap_or_else(|| more_desc_blocks(figures, figures.blocks.saturating_mul(GROWTH)));
    // The resize inode maps them through one double indirect block.
    let most = u64::from(figures.block_size / 4);
    u16::try_from(blocks.min(most)).unwrap_or(u16::MAX)
}

/// Descriptor blocks that a volume of `limit` blocks needs beyond those there are.
fn more_desc_blocks(figures: &Figures, limit: u64) -> u64 {
    let groups = limit.min(u64::from(u32::MAX)).saturating_sub(figures.first_data_block);
    let groups = groups.div_ceil(u64::from(figures.blocks_per_group));
    let blocks = groups.div_ceil(u64::from(figures.block_size / desc_size(figures)));
    blocks.saturating_sub(u64::from(desc_blocks(figures)))
}

/// A multiple of 8 and of whole blocks where it can be; `None` for more than a bitmap holds.
fn inodes_per_group(figures: &Figures, inodes: u64) -> Option<u32> {
    let groups = u64::from(figures.groups);
    let inode_size = u64::from(figures.inode_size);
    let per_block = u64::from(figures.block_size) / inode_size;
    let most = u64::from(figures.block_size) * 8;
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
fn set_backup_groups(figures: &mut Figures, backups: u8) {
    figures.backup_groups = [0; 2];
    if !figures.features.compat.contains(CompatFeatures::SPARSE_SUPER2) {
        return;
    }
    if backups >= 1 && figures.groups > 1 {
        figures.backup_groups[0] = 1;
    }
    if backups >= 2 && figures.groups > 2 {
        figures.backup_groups[1] = figures.groups - 1;
    }
}

/// Whether a group starts with a superblock; [`extant_ondisk::Geometry::has_super`] before there is
/// a geometry.
fn has_super(figures: &Figures, group: u32) -> bool {
    let features = figures.features;
    if features.compat.contains(CompatFeatures::SPARSE_SUPER2) {
        return group == 0 || figures.backup_groups.contains(&group);
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
