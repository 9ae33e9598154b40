//! The superblock of another size: groups, descriptor blocks, backups, reserved blocks.

use extant_layout::groups::leading;
use extant_ondisk::MAX_BLOCKS;
use extant_ondisk::superblock::{RawSuperblock, Superblock};
use extant_ondisk::{CompatFeatures, FormatError, Geometry, GroupNo, IncompatFeatures};

use super::error::ResizeError;

/// A last group needs this many blocks beyond its own metadata, or it is dropped.
const MIN_LAST_GROUP: u64 = 50;

/// The change of a volume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Target {
    /// A number of blocks.
    Blocks(u64),
    /// The same size. Tables of the groups that a cut to this number of blocks takes away lie
    /// beyond it.
    TablesBeyond(u64),
    /// 64bit on or off.
    Bit64(bool),
}

/// A volume of another size: the superblock, but for its free counts, and the geometry.
#[derive(Clone, Debug)]
pub(super) struct Resized {
    pub(super) raw: RawSuperblock,
    pub(super) geometry: Geometry,
}

impl Resized {
    pub(super) fn of(raw: &RawSuperblock, target: Target) -> Result<Self, ResizeError> {
        match target {
            Target::Blocks(blocks) => Self::new(raw, blocks),
            Target::TablesBeyond(_) => Ok(Self { raw: *raw, geometry: Geometry::new(raw)? }),
            Target::Bit64(is_on) => Ok(Self::with_64bit(raw, is_on)?),
        }
    }

    /// The superblock with descriptors of 64 bytes, or of 32. Blocks that are added to the table
    /// are taken from the reserved ones first.
    fn with_64bit(raw: &RawSuperblock, is_on: bool) -> Result<Self, FormatError> {
        let old = Geometry::new(raw)?;
        let mut raw = *raw;
        let mut features = raw.features();
        features.incompat.set(IncompatFeatures::BIT64, is_on);
        raw.set_features(features);
        raw.s_desc_size.set(if is_on { 64 } else { 0 });
        // Not used without 64bit, whatever they hold.
        raw.s_blocks_count_hi.set(0);
        raw.s_r_blocks_count_hi.set(0);
        raw.s_free_blocks_count_hi.set(0);
        let now = Geometry::new(&raw)?.desc_blocks();
        let before = old.desc_blocks();
        if features.incompat.contains(IncompatFeatures::META_BG) {
            raw.s_first_meta_bg.set(raw.s_first_meta_bg.get().min(now));
        } else if features.compat.contains(CompatFeatures::RESIZE_INODE) {
            let reserved = u32::from(old.reserved_gdt_blocks);
            let left = (reserved + before).saturating_sub(now).min(most_reserved(&old));
            raw.s_reserved_gdt_blocks.set(left as u16); // at most u16::MAX
        }
        let geometry = Geometry::new(&raw)?;
        Ok(Self { raw, geometry })
    }

    /// The superblock for `blocks` blocks. Parts of clusters are cut off, and a last group that
    /// would be too small for its metadata.
    pub(super) fn new(raw: &RawSuperblock, blocks: u64) -> Result<Self, ResizeError> {
        let old = Geometry::new(raw)?;
        let most = largest(&old);
        let mut blocks = blocks - blocks % u64::from(old.blocks_per_cluster);
        if blocks > most {
            return Err(ResizeError::TooLarge { blocks, most });
        }
        let least = old.first_data_block.0 + 1;
        if blocks < least {
            return Err(ResizeError::TooSmall { blocks, least });
        }
        loop {
            // The reserved inodes need their groups.
            let per_group = u64::from(old.blocks_per_group);
            let groups = (blocks - old.first_data_block.0).div_ceil(per_group);
            let reserved = u64::from(old.first_inode.0.div_ceil(old.inodes_per_group));
            if groups < reserved {
                let least = old.first_data_block.0 + (reserved - 1) * per_group + 1;
                return Err(ResizeError::TooSmall { blocks, least });
            }
            let resized = Self::of_blocks(raw, &old, blocks)?;
            let geometry = &resized.geometry;
            let last = GroupNo(geometry.groups_count - 1);
            let held = u64::from(geometry.group_blocks(last));
            let own = leading(geometry, last).blocks();
            let needed = 2 + u64::from(geometry.itable_blocks()) + (own.end - own.start);
            if held == u64::from(geometry.blocks_per_group) {
                return Ok(resized);
            }
            if last.0 == 0 {
                return match held < needed {
                    true => Err(ResizeError::TooSmall { blocks, least: least + needed }),
                    false => Ok(resized),
                };
            }
            if held >= needed + MIN_LAST_GROUP {
                return Ok(resized);
            }
            blocks -= held;
        }
    }

    fn of_blocks(raw: &RawSuperblock, old: &Geometry, blocks: u64) -> Result<Self, FormatError> {
        let mut raw = *raw;
        let before = Superblock::decode(&raw);
        let grouped = blocks - old.first_data_block.0;
        let groups = grouped.div_ceil(u64::from(old.blocks_per_group));
        // Checked against the largest size.
        let groups = u32::try_from(groups).unwrap_or(u32::MAX);
        raw.s_blocks_count_lo.set((blocks & 0xffff_ffff) as u32);
        raw.s_blocks_count_hi.set((blocks >> 32) as u32);
        raw.s_inodes_count.set(groups.saturating_mul(old.inodes_per_group));
        // The same part of the blocks, cut off to whole blocks. Counts have 48 bits.
        let part = before.reserved_blocks as f64 / before.blocks_count.max(1) as f64;
        let reserved = (part * blocks as f64) as u64;
        raw.s_r_blocks_count_lo.set((reserved & 0xffff_ffff) as u32);
        raw.s_r_blocks_count_hi.set((reserved >> 32) as u32);
        set_descriptor_blocks(&mut raw, old, groups);
        set_backup_groups(&mut raw, old, groups);
        let geometry = Geometry::new(&raw)?;
        Ok(Self { raw, geometry })
    }
}

/// The largest size of a volume by its features, in blocks.
pub(super) fn largest(geometry: &Geometry) -> u64 {
    let of_numbers = match geometry.has_incompat(IncompatFeatures::BIT64) {
        true => MAX_BLOCKS,
        false => u64::from(u32::MAX),
    };
    let groups = u64::from(u32::MAX / geometry.inodes_per_group);
    let of_inodes =
        geometry.first_data_block.0 + groups.saturating_mul(u64::from(geometry.blocks_per_group));
    let most = of_numbers.min(of_inodes);
    most - most % u64::from(geometry.blocks_per_cluster)
}

/// The blocks that the resize inode can map.
fn most_reserved(geometry: &Geometry) -> u32 {
    (geometry.block_size / 4).min(u32::from(u16::MAX))
}

/// Descriptor blocks that are added take the place of reserved ones. Where these are too few, the
/// blocks after them are in their meta groups.
fn set_descriptor_blocks(raw: &mut RawSuperblock, old: &Geometry, groups: u32) {
    let mut features = raw.features();
    let (before, now) = (old.desc_blocks(), groups.div_ceil(old.descs_per_block()));
    if features.incompat.contains(IncompatFeatures::META_BG) {
        // Superblocks are followed by no more descriptor blocks than there are.
        let first = raw.s_first_meta_bg.get().min(now);
        raw.s_first_meta_bg.set(first);
        return;
    }
    let has_reserved = features.compat.contains(CompatFeatures::RESIZE_INODE);
    let reserved = if has_reserved { u32::from(old.reserved_gdt_blocks) } else { 0 };
    if now <= before {
        // Blocks that are no longer needed are reserved again, as far as these can be mapped.
        if has_reserved {
            let freed = (reserved + before - now).min(most_reserved(old));
            raw.s_reserved_gdt_blocks.set(freed as u16); // at most u16::MAX
        }
        return;
    }
    if let Some(left) = reserved.checked_sub(now - before) {
        raw.s_reserved_gdt_blocks.set(left as u16); // no more than before
        return;
    }
    features.compat -= CompatFeatures::RESIZE_INODE;
    features.incompat |= IncompatFeatures::META_BG;
    raw.set_features(features);
    raw.s_reserved_gdt_blocks.set(0);
    raw.s_first_meta_bg.set(before + reserved);
}

/// With sparse_super2 the first backup is in group 1, the second in the last group. A volume that
/// gets smaller loses the second one: the start of the group that is last then is in use.
fn set_backup_groups(raw: &mut RawSuperblock, old: &Geometry, groups: u32) {
    if !old.has_compat(CompatFeatures::SPARSE_SUPER2) {
        return;
    }
    let [mut first, mut second] = old.backup_groups;
    let was_last = old.groups_count - 1;
    if old.groups_count == 1 && groups > 1 {
        first = 1;
    }
    if groups == 1 {
        first = 0;
    }
    if second >= groups {
        second = 0;
    }
    let is_missing = second == 0 && old.groups_count <= 2;
    if groups > old.groups_count && groups > 2 && first != 0 && (second == was_last || is_missing) {
        second = groups - 1;
    }
    for (stored, group) in raw.s_backup_bgs.iter_mut().zip([first, second]) {
        stored.set(group);
    }
}
