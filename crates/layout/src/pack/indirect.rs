//! Builds whole indirect block maps, for files of ext2 and ext3 volumes.

use super::FileExtent;
use extant_ondisk::indirect::{DIRECT_BLOCKS, IndirectMap, SLOTS, set_pointer};
use extant_ondisk::{BlockNo, FileBlock};

/// Length of `i_block` in bytes.
const I_BLOCK_LEN: usize = SLOTS * 4;

/// Number of indirect blocks of a file with data in these logical blocks: ranges in ascending
/// order, as (first, count). `None` if the file is too large for such a map.
pub fn indirect_blocks(
    ranges: impl IntoIterator<Item = (FileBlock, u64)>,
    block_size: u32,
) -> Option<u64> {
    let map = IndirectMap::new(block_size);
    // Index of the last indirect block counted at each level, counted from 0 over the whole file.
    let mut last = [None::<u64>; 3];
    let mut blocks = 0;
    for (first, count) in ranges {
        let end = first.0.checked_add(count)?;
        if end > map.max_blocks() {
            return None;
        }
        for levels in 1..=3_usize {
            let zone_start = map.slot_start(DIRECT_BLOCKS as usize + levels - 1).0;
            let zone_end = zone_start + map.covered_by(levels);
            let (from, to) = (first.0.max(zone_start), end.min(zone_end));
            if from >= to {
                continue;
            }
            for level in 1..=levels {
                // Blocks of this level are adjacent in their zone; zones do not share blocks.
                let number = |block: u64| (block - zone_start) / map.covered_by(level) + zone_start;
                let (lowest, highest) = (number(from), number(to - 1));
                let counted = last[level - 1].filter(|&last| last >= lowest).map_or(0, |_| 1);
                blocks += highest - lowest + 1 - counted;
                last[level - 1] = Some(highest);
            }
        }
    }
    Some(blocks)
}

/// Writes the map of one file.
#[derive(Debug)]
pub struct IndirectTree {
    map: IndirectMap,
    block_len: usize,
}

/// An indirect block that is being filled.
struct Open {
    place: BlockNo,
    bytes: Vec<u8>,
    /// The first logical block that it maps.
    first: u64,
}

impl IndirectTree {
    /// Creates a writer for blocks of this size in bytes.
    pub fn new(block_size: u32) -> Self {
        Self { map: IndirectMap::new(block_size), block_len: block_size as usize }
    }

    /// Writes the indirect blocks to the given locations, in the order of a sequential read of the
    /// file, and passes each complete block to `sink`. Returns `i_block`.
    ///
    /// # Panics
    /// If there are fewer locations than [`indirect_blocks`] returned, or a run is past the largest
    /// file.
    pub fn write(
        &self,
        runs: impl IntoIterator<Item = FileExtent>,
        places: impl IntoIterator<Item = BlockNo>,
        mut sink: impl FnMut(BlockNo, &[u8]),
    ) -> [u8; I_BLOCK_LEN] {
        let mut i_block = [0; I_BLOCK_LEN];
        let mut places = places.into_iter();
        // The open block of each level above the data: 0 is the one with pointers to data blocks.
        let mut open: [Option<Open>; 3] = [None, None, None];
        for run in runs {
            for step in 0..run.len {
                let (logical, physical) = (run.block.0 + step, BlockNo(run.start.0 + step));
                let path = self.map.path(FileBlock(logical)).expect("within the largest file");
                let zone_start = self.map.slot_start(path.slot).0;
                for level in (0..path.levels).rev() {
                    let covered = self.map.covered_by(level + 1);
                    let first = zone_start + (logical - zone_start) / covered * covered;
                    if open[level].as_ref().is_some_and(|open| open.first == first) {
                        continue;
                    }
                    for open in &mut open[..=level] {
                        if let Some(full) = open.take() {
                            sink(full.place, &full.bytes);
                        }
                    }
                    let place = places.next().expect("as many places as the map was said to take");
                    match open.get_mut(level + 1).filter(|_| level + 1 < path.levels) {
                        Some(parent) => {
                            let parent = parent.as_mut().expect("opened before its children");
                            let position = path.positions[path.levels - 2 - level];
                            set_pointer(&mut parent.bytes, position as usize, place);
                        }
                        None => set_pointer(&mut i_block, path.slot, place),
                    }
                    open[level] = Some(Open { place, bytes: vec![0; self.block_len], first });
                }
                match path.levels {
                    0 => set_pointer(&mut i_block, path.slot, physical),
                    levels => {
                        let leaf = open[0].as_mut().expect("opened above");
                        let position = path.positions[levels - 1];
                        set_pointer(&mut leaf.bytes, position as usize, physical);
                    }
                }
            }
        }
        for open in open.into_iter().flatten() {
            sink(open.place, &open.bytes);
        }
        i_block
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_ondisk::indirect::pointer;
    use std::collections::BTreeMap;

    fn read(
        map: &IndirectMap,
        i_block: &[u8],
        blocks: &BTreeMap<u64, Vec<u8>>,
        logical: u64,
    ) -> BlockNo {
        let path = map.path(FileBlock(logical)).unwrap();
        let mut at = pointer(i_block, path.slot).unwrap();
        for &position in &path.positions[..path.levels] {
            if at.0 == 0 {
                return at;
            }
            at = pointer(&blocks[&at.0], position as usize).unwrap();
        }
        at
    }

    fn check(runs: &[FileExtent]) {
        let map = IndirectMap::new(1024);
        let ranges = runs.iter().map(|run| (run.block, run.len));
        let needed = indirect_blocks(ranges, 1024).unwrap();
        let mut blocks = BTreeMap::new();
        let places = (0..needed).map(|at| BlockNo(1_000_000 + at));
        let tree = IndirectTree::new(1024);
        let i_block = tree.write(runs.iter().copied(), places, |block, bytes| {
            assert!(blocks.insert(block.0, bytes.to_vec()).is_none(), "block {block} twice");
        });
        assert_eq!(blocks.len() as u64, needed, "{runs:?}");
        for run in runs {
            for step in [0, run.len / 2, run.len - 1] {
                let found = read(&map, &i_block, &blocks, run.block.0 + step);
                assert_eq!(found, BlockNo(run.start.0 + step));
            }
        }
        let after = runs.last().unwrap();
        let after = after.block.0 + after.len;
        assert_eq!(read(&map, &i_block, &blocks, after), BlockNo(0));
    }

    fn run(block: u64, len: u64, start: u64) -> FileExtent {
        FileExtent { block: FileBlock(block), len, start: BlockNo(start) }
    }

    #[test]
    fn dense_files_of_every_level_read_back() {
        for len in [1, 12, 13, 268, 269, 525, 12 + 256 + 65_536, 12 + 256 + 65_536 + 70_000] {
            check(&[run(0, len, 500)]);
            let counted = indirect_blocks([(FileBlock(0), len)], 1024);
            assert_eq!(counted, Some(IndirectMap::new(1024).metadata_blocks(len)), "{len}");
        }
    }

    #[test]
    fn sparse_files_take_only_the_blocks_on_the_way() {
        check(&[run(5, 1, 500), run(13, 3, 600), run(300, 1, 700), run(301, 1, 900)]);
        check(&[run(12 + 256 + 65_536 + 256 * 300 + 7, 2, 500)]);
        let far = 12 + 256 + 65_536;
        let ranges = [(FileBlock(0), 1), (FileBlock(far), 1), (FileBlock(far + 256), 1)];
        assert_eq!(indirect_blocks(ranges, 1024), Some(4));
    }

    #[test]
    fn files_past_three_levels_are_refused() {
        let most = IndirectMap::new(1024).max_blocks();
        assert!(indirect_blocks([(FileBlock(most - 1), 1)], 1024).is_some());
        assert_eq!(indirect_blocks([(FileBlock(most), 1)], 1024), None);
    }
}
