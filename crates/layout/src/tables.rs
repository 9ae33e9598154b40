//! Locations of a new volume's bitmaps and inode tables: in their groups, together in their flex
//! group, or all at the start. The rules are those of mke2fs, inferred from the images it makes.

use std::ops::Range;

use extant_ondisk::{BlockNo, Geometry, GroupNo, IncompatFeatures};

use crate::RunSet;
use crate::groups::leading;

/// One group's metadata.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GroupTables {
    /// The block bitmap's block.
    pub block_bitmap: BlockNo,
    /// The inode bitmap's block.
    pub inode_bitmap: BlockNo,
    /// First block of the inode table.
    pub inode_table: BlockNo,
}

/// The metadata of all groups, and the blocks in use.
#[derive(Clone, Debug)]
pub struct Tables {
    /// By group.
    pub groups: Vec<GroupTables>,
    /// Blocks in use: superblocks, descriptors, bitmaps, tables, and the blocks that were in use
    /// before.
    pub used: RunSet,
}

/// Options for the layout of the tables.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TableRules {
    /// RAID stride in blocks: bitmaps of different groups are put on different disks. 0 for none.
    pub stride: u32,
    /// Whether all tables are at the volume's start.
    pub packed: bool,
}

/// There is no room for a group's tables.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("block group {0} has no room for its bitmaps and inode table")]
pub struct NoRoom(pub GroupNo);

/// Places the tables of every group around blocks that must not be used, such as bad ones
/// (`barred`).
pub fn place_tables(
    geometry: &Geometry,
    rules: TableRules,
    barred: &RunSet,
) -> Result<Tables, NoRoom> {
    place_tables_from(geometry, GroupNo(0), rules, barred)
}

/// Places the tables of the groups from `first` on, which are added to a volume whose other blocks
/// in use are `barred`. [`Tables::groups`] begins with that of `first`.
pub fn place_tables_from(
    geometry: &Geometry,
    first: GroupNo,
    rules: TableRules,
    barred: &RunSet,
) -> Result<Tables, NoRoom> {
    let mut used = barred.clone();
    for group in (first.0..geometry.groups_count).map(GroupNo) {
        let leading = leading(geometry, group).blocks();
        // Block 0 of a volume whose superblock is in block 1 belongs to it, too.
        let start = if group.0 == 0 { geometry.group_start(group).0 } else { leading.start };
        used.insert(start..leading.end);
    }
    let mut tables = Tables { groups: Vec::new(), used };
    if rules.packed {
        tables.place_packed(geometry, first)?;
        return Ok(tables);
    }
    let flex = flex_bg_size(geometry);
    for group in (first.0..geometry.groups_count).map(GroupNo) {
        let placed = if flex > 1 {
            tables.place_in_flex_group(geometry, group, first, flex)
        } else {
            tables.place_in_group(geometry, group, rules.stride)
        };
        tables.groups.push(placed.ok_or(NoRoom(group))?);
    }
    Ok(tables)
}

fn flex_bg_size(geometry: &Geometry) -> u32 {
    if geometry.has_incompat(IncompatFeatures::FLEX_BG) { geometry.groups_per_flex } else { 1 }
}

fn group_range(geometry: &Geometry, group: GroupNo) -> Range<u64> {
    let start = geometry.group_start(group).0;
    start..start + u64::from(geometry.group_blocks(group))
}

impl Tables {
    fn take(&mut self, range: Range<u64>, length: u64) -> Option<BlockNo> {
        let start = self.used.first_fit(range, length)?;
        self.used.insert(start..start + length);
        Some(BlockNo(start))
    }

    /// Takes the first fit from `goal` on, or else from the range's start.
    fn take_near(&mut self, goal: u64, range: Range<u64>, length: u64) -> Option<BlockNo> {
        if goal < range.end
            && let Some(block) = self.take(goal.max(range.start)..range.end, length)
        {
            return Some(block);
        }
        self.take(range, length)
    }

    /// Packed layout at the volume's start: the block bitmaps of all groups, then all inode
    /// bitmaps, then all inode tables, around superblocks and descriptors.
    fn place_packed(&mut self, geometry: &Geometry, first: GroupNo) -> Result<(), NoRoom> {
        let volume = geometry.first_data_block.0..geometry.blocks_count;
        let mut goal = volume.start;
        let mut row = |length: u64| -> Result<Vec<BlockNo>, NoRoom> {
            let groups = (first.0..geometry.groups_count).map(GroupNo);
            groups
                .map(|group| {
                    let place =
                        self.take_near(goal, volume.clone(), length).ok_or(NoRoom(group))?;
                    goal = place.0 + length;
                    Ok(place)
                })
                .collect()
        };
        let (block_bitmaps, inode_bitmaps) = (row(1)?, row(1)?);
        let inode_tables = row(u64::from(geometry.itable_blocks()))?;
        let bitmaps = block_bitmaps.into_iter().zip(inode_bitmaps);
        self.groups = bitmaps
            .zip(inode_tables)
            .map(|((block_bitmap, inode_bitmap), inode_table)| GroupTables {
                block_bitmap,
                inode_bitmap,
                inode_table,
            })
            .collect();
        Ok(())
    }

    /// In the group: bitmaps, then the table. With a stride the bitmaps are after the table, one
    /// stride further in each group.
    fn place_in_group(
        &mut self,
        geometry: &Geometry,
        group: GroupNo,
        stride: u32,
    ) -> Option<GroupTables> {
        let range = group_range(geometry, group);
        let table_blocks = u64::from(geometry.itable_blocks());
        let first_free = self.used.next_gap(range.clone())?.start;
        let mut goal = first_free;
        if stride > 0 {
            let last = range.end - 1;
            let after_table = first_free + table_blocks;
            let room = last.checked_sub(after_table).map_or(1, |room| room + 1);
            goal = after_table + u64::from(stride) * u64::from(group.0) % room;
            if goal >= last {
                goal = first_free;
            }
        }
        // The group's last block ends the search: a bitmap that finds no room before it starts
        // over.
        let mut take = || self.take(goal..range.end - 1, 1).or_else(|| self.take(range.clone(), 1));
        let block_bitmap = take()?;
        let inode_bitmap = take()?;
        let inode_table = self.take_near(first_free, range, table_blocks)?;
        Some(GroupTables { block_bitmap, inode_bitmap, inode_table })
    }

    /// In the flex group: its block bitmaps in a row, then its inode bitmaps, then its inode
    /// tables. Those of its groups before `from` are elsewhere.
    fn place_in_flex_group(
        &mut self,
        geometry: &Geometry,
        group: GroupNo,
        from: GroupNo,
        flex: u32,
    ) -> Option<GroupTables> {
        let start = group.0 - group.0 % flex;
        let first = GroupNo(start.max(from.0));
        let last = GroupNo(start.saturating_add(flex - 1).min(geometry.groups_count - 1));
        let range = geometry.group_start(first).0..group_range(geometry, last).end;
        // Rows have room for each group of a flex group, even if it has one group only.
        let members = last.0 - first.0 + 1;
        let row = u64::from(if members == 1 { flex } else { members });
        let table_blocks = u64::from(geometry.itable_blocks());
        let beyond = geometry.first_data_block.0..geometry.blocks_count;
        let mut take = |goal: u64, length: u64| {
            self.take_near(goal, range.clone(), length)
                .or_else(|| self.take_near(goal, beyond.clone(), length))
        };
        if group == first {
            let block_bitmap = take(range.start, 1)?;
            let inode_bitmap = take(block_bitmap.0 + row, 1)?;
            let inode_table = take(block_bitmap.0 + 2 * row, table_blocks)?;
            return Some(GroupTables { block_bitmap, inode_bitmap, inode_table });
        }
        let before = *self.groups.last()?;
        let mut take = |goal: u64, length: u64| {
            self.take_near(goal, range.clone(), length)
                .or_else(|| self.take_near(goal, beyond.clone(), length))
        };
        Some(GroupTables {
            block_bitmap: take(before.block_bitmap.0 + 1, 1)?,
            inode_bitmap: take(before.inode_bitmap.0 + 1, 1)?,
            inode_table: take(before.inode_table.0 + table_blocks, table_blocks)?,
        })
    }
}

/// Whether a group's block bitmap can be left uninitialized: every block in use there is the
/// group's own metadata, which follows from the geometry. `used` is in whole clusters. The caller
/// must still store the bitmap of a group with inodes in use.
pub fn is_block_uninit(
    geometry: &Geometry,
    tables: &GroupTables,
    used: &RunSet,
    group: GroupNo,
) -> bool {
    let range = group_range(geometry, group);
    let cut = |start: BlockNo, length: u64| {
        start.0.max(range.start)..start.0.saturating_add(length).min(range.end)
    };
    let table_blocks = u64::from(geometry.itable_blocks());
    let mut own = [
        leading(geometry, group).blocks(),
        cut(tables.block_bitmap, 1),
        cut(tables.inode_bitmap, 1),
        cut(tables.inode_table, table_blocks),
    ];
    own.sort_unstable_by_key(|run| run.start);
    let (origin, ratio) = (geometry.first_data_block.0, u64::from(geometry.blocks_per_cluster));
    let mut counted_to = range.start;
    let mut count = 0;
    for run in own.iter().filter(|run| !run.is_empty()) {
        let start = run.start - run.start.saturating_sub(origin) % ratio;
        let end = origin + run.end.saturating_sub(origin).next_multiple_of(ratio);
        let (start, end) = (start.max(counted_to), end.min(range.end));
        count += end.saturating_sub(start);
        counted_to = counted_to.max(end);
    }
    count == used.count_in(range)
}

/// Minimum number of blocks of a volume for a journal by default.
pub const MIN_VOLUME_WITH_JOURNAL: u64 = 2048;

/// Default number of journal blocks for a volume of `volume` blocks, inferred from mke2fs's images;
/// `None` if a journal does not fit.
pub fn default_journal_blocks(volume: u64) -> Option<u64> {
    const KIB: u64 = 1024;
    match volume {
        _ if volume < MIN_VOLUME_WITH_JOURNAL => None,
        _ if volume < 32 * KIB => Some(KIB),
        _ if volume < 256 * KIB => Some(4 * KIB),
        _ if volume < 512 * KIB => Some(8 * KIB),
        _ if volume < 4096 * KIB => Some(16 * KIB),
        _ if volume < 8192 * KIB => Some(32 * KIB),
        _ if volume < 16384 * KIB => Some(64 * KIB),
        _ if volume < 32768 * KIB => Some(128 * KIB),
        _ => Some(256 * KIB),
    }
}

/// The goal for an extent-mapped journal: the middle of the volume, to keep seeks short, in the
/// emptiest group there.
pub fn journal_goal(geometry: &Geometry, used: &RunSet) -> BlockNo {
    let half = (geometry.blocks_count - geometry.first_data_block.0) / 2;
    let middle = geometry.group_of(BlockNo(half)).unwrap_or(GroupNo(0));
    let flex = flex_bg_size(geometry);
    let last = geometry.groups_count - 1;
    let free = |group: GroupNo| {
        let range = group_range(geometry, group);
        (range.end - range.start) - used.count_in(range)
    };
    let around = if flex > 1 && middle.0 > flex {
        // The first group of a flex group holds its tables, which may fill it.
        let first = middle.0 - middle.0 % flex;
        let first = (first..=last).find(|group| free(GroupNo(*group)) > 0).unwrap_or(0);
        first..=(first + 1).min(last)
    } else {
        middle.0.saturating_sub(1)..=(middle.0 + 1).min(last)
    };
    let mut best = GroupNo(*around.start());
    for group in around.map(GroupNo) {
        if free(group) > free(best) {
            best = group;
        }
    }
    geometry.group_start(best)
}
