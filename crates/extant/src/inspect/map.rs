//! A map of a volume: the number of blocks of each kind, whole and in cells of a picture.

use std::ops::Range;

use extant_layout::groups::leading;
use extant_ondisk::bitmap::{self, BitmapKind, clear_runs};
use extant_ondisk::{BlockNo, Geometry, GroupNo, InodeNo};
use extant_reader::{LoadedInode, VolumeRead};
use serde::Serialize;

/// Cells that a picture has at most.
const MAX_CELLS: u64 = 12_000;
/// Classes of run lengths and of pieces: 1, 2, 3-4, 5-8, ...
pub const CLASSES: usize = 24;

/// The use of a block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BlockUse {
    /// Superblocks and group descriptors.
    Super,
    /// Blocks reserved for more group descriptors.
    Reserved,
    /// Block and inode bitmaps.
    Bitmaps,
    /// Inode tables, the part that was used.
    Tables,
    /// Inode tables, the part that was never used.
    UnusedTables,
    /// The journal.
    Journal,
    /// Directories.
    Directories,
    /// Files in one piece.
    Whole,
    /// Files in several pieces.
    Pieces,
    /// Extended attributes, and the blocks that map files.
    Other,
    /// Free blocks.
    Free,
}

/// All kinds with their names and colours.
pub const KINDS: [(BlockUse, &str, &str); 11] = [
    (BlockUse::Super, "superblocks, descriptors", "#222222"),
    (BlockUse::Reserved, "room for descriptors", "#9e9e9e"),
    (BlockUse::Bitmaps, "bitmaps", "#8e44ad"),
    (BlockUse::Tables, "inode tables, used part", "#1f4e9c"),
    (BlockUse::UnusedTables, "inode tables, never used", "#a9c4ee"),
    (BlockUse::Journal, "journal", "#e67e22"),
    (BlockUse::Directories, "directories", "#f1c40f"),
    (BlockUse::Whole, "files in one piece", "#27a567"),
    (BlockUse::Pieces, "files in several pieces", "#d0312d"),
    (BlockUse::Other, "attributes, maps of files", "#7a5230"),
    (BlockUse::Free, "free", "#f3f3f0"),
];
const COUNT: usize = KINDS.len();

/// Blocks of each kind.
pub type Counts = [u64; COUNT];

/// The map of a volume.
#[derive(Serialize)]
pub struct VolumeMap {
    /// Bytes of a block.
    pub block_size: u32,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of groups.
    pub groups: u32,
    /// Blocks of a group.
    pub blocks_per_group: u32,
    /// Blocks by kind, in the order of `kinds`.
    pub totals: Counts,
    /// The names of the kinds.
    pub kinds: [&'static str; COUNT],
    /// Number of free runs.
    pub free_runs: u64,
    /// The longest free run, in blocks.
    pub longest_free_run: u64,
    /// Free blocks by the length of their run: 1, 2, 3-4, 5-8, ... blocks.
    pub free_by_run: [u64; CLASSES],
    /// Files with blocks.
    pub files: u64,
    /// Files by the number of their pieces: 1, 2, 3-4, 5-8, ...
    pub files_by_pieces: [u64; CLASSES],
    /// Inodes, descriptors and bitmaps that could not be read.
    pub unreadable: u64,
    /// Blocks of a cell.
    pub blocks_per_cell: u64,
    /// Cells from the first block on: blocks of each kind.
    #[serde(skip)]
    pub cells: Vec<Counts>,
    #[serde(skip)]
    first_block: u64,
}

impl VolumeMap {
    /// Reads descriptors, bitmaps, and the maps of all files.
    pub fn of(volume: &impl VolumeRead) -> Self {
        let geometry = volume.geometry();
        let blocks_per_cell = geometry.blocks_count.div_ceil(MAX_CELLS).next_power_of_two();
        let count = geometry.blocks_count.div_ceil(blocks_per_cell);
        let mut map = Self {
            block_size: geometry.block_size,
            blocks: geometry.blocks_count,
            groups: geometry.groups_count,
            blocks_per_group: geometry.blocks_per_group,
            totals: [0; COUNT],
            kinds: KINDS.map(|(_, name, _)| name),
            free_runs: 0,
            longest_free_run: 0,
            free_by_run: [0; CLASSES],
            files: 0,
            files_by_pieces: [0; CLASSES],
            unreadable: 0,
            blocks_per_cell,
            // At most MAX_CELLS.
            cells: vec![[0; COUNT]; count as usize],
            first_block: geometry.first_data_block.0,
        };
        for group in (0..geometry.groups_count).map(GroupNo) {
            map.add_group(volume, geometry, group);
        }
        map.add_rest();
        map
    }

    fn add(&mut self, kind: BlockUse, blocks: Range<u64>) {
        let (mut at, end) = (blocks.start, blocks.end.min(self.blocks));
        while at < end {
            let cell = at / self.blocks_per_cell;
            let next = ((cell + 1) * self.blocks_per_cell).min(end);
            if let Some(counts) = self.cells.get_mut(cell as usize) {
                counts[kind as usize] += next - at;
            }
            self.totals[kind as usize] += next - at;
            at = next;
        }
    }

    fn add_group(&mut self, volume: &impl VolumeRead, geometry: &Geometry, group: GroupNo) {
        let leading = leading(geometry, group);
        if let Some(block) = leading.superblock {
            self.add(BlockUse::Super, block.0..block.0 + 1);
        }
        self.add(BlockUse::Super, leading.descriptors);
        self.add(BlockUse::Reserved, leading.reserved);
        let Ok(desc) = volume.group_desc(group) else {
            self.unreadable += 1;
            return;
        };
        for block in [desc.block_bitmap, desc.inode_bitmap] {
            self.add(BlockUse::Bitmaps, block.0..block.0 + 1);
        }
        let used = desc.itable_used(geometry);
        let table = desc.inode_table.0;
        let used_end = table + u64::from(used.div_ceil(geometry.inodes_per_block()));
        self.add(BlockUse::Tables, table..used_end);
        self.add(BlockUse::UnusedTables, used_end..table + u64::from(geometry.itable_blocks()));
        match volume.bitmap(group, BitmapKind::Block) {
            Ok(bits) => self.add_free(&bits, geometry, group),
            Err(_) => self.unreadable += 1,
        }
        let Ok(bits) = volume.bitmap(group, BitmapKind::Inode) else {
            self.unreadable += 1;
            return;
        };
        for index in (0..used).filter(|&index| bitmap::test(&bits, index)) {
            let number = u64::from(group.0) * u64::from(geometry.inodes_per_group);
            // Inodes have numbers of 32 bits.
            let number = InodeNo((number + u64::from(index) + 1) as u32);
            match volume.any_inode(number) {
                Ok(file) if file.links > 0 => self.add_file(volume, &file),
                _ => {}
            }
        }
    }

    fn add_free(&mut self, bits: &[u8], geometry: &Geometry, group: GroupNo) {
        let start = geometry.group_start(group).0;
        let cluster = u64::from(geometry.blocks_per_cluster);
        for run in clear_runs(bits, 0..geometry.group_clusters(group)) {
            let from = start + u64::from(run.start) * cluster;
            let to = (start + u64::from(run.end) * cluster).min(self.blocks);
            let len = to.saturating_sub(from);
            self.add(BlockUse::Free, from..to);
            self.free_runs += 1;
            self.longest_free_run = self.longest_free_run.max(len);
            self.free_by_run[class(len)] += len;
        }
    }

    fn add_file(&mut self, volume: &impl VolumeRead, file: &LoadedInode) {
        // The blocks of this one are the room for descriptors.
        if file.number == InodeNo::RESIZE || file.inode.file_type().is_none() {
            return;
        }
        let Ok(extents) = volume.extents(file.number) else {
            self.unreadable += 1;
            return;
        };
        let mut runs = Vec::new();
        for mapping in extents {
            match mapping {
                Ok(mapping) => {
                    runs.extend(mapping.physical().map(|BlockNo(at)| at..at + mapping.len));
                }
                Err(_) => {
                    self.unreadable += 1;
                    break;
                }
            }
        }
        if runs.is_empty() {
            return;
        }
        let pieces = 1 + runs.windows(2).filter(|pair| pair[0].end != pair[1].start).count() as u64;
        let kind = if volume.superblock().internal_journal() == Some(file.number) {
            BlockUse::Journal
        } else if file.is_dir() {
            BlockUse::Directories
        } else {
            self.files += 1;
            self.files_by_pieces[class(pieces)] += 1;
            if pieces == 1 { BlockUse::Whole } else { BlockUse::Pieces }
        };
        for run in runs {
            self.add(kind, run);
        }
    }

    /// In use and not met by the walk: extended attributes, nodes of extent trees, blocks of
    /// pointers.
    fn add_rest(&mut self) {
        for at in 0..self.cells.len() {
            let start = at as u64 * self.blocks_per_cell;
            let end = (start + self.blocks_per_cell).min(self.blocks);
            let size = end.saturating_sub(start.max(self.first_block));
            let known: u64 = self.cells[at].iter().sum();
            let rest = size.saturating_sub(known);
            self.cells[at][BlockUse::Other as usize] += rest;
            self.totals[BlockUse::Other as usize] += rest;
        }
    }
}

/// The class of a number: 1, 2, 3-4, 5-8, ...
fn class(number: u64) -> usize {
    (number.max(1).next_power_of_two().trailing_zeros() as usize).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_powers_of_two() {
        let classes = [1, 2, 3, 4, 5, 8, 9].map(class);
        assert_eq!(classes, [0, 1, 2, 2, 3, 3, 4]);
        assert_eq!(class(u64::MAX / 4), CLASSES - 1);
    }

    #[test]
    fn kinds_stand_in_the_order_of_their_numbers() {
        assert!(KINDS.iter().enumerate().all(|(at, (kind, ..))| *kind as usize == at));
    }
}
