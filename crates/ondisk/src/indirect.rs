//! Indirect block maps of ext2 and ext3 files.
//!
//! Source: the kernel's `blockmap.rst`. 12 of the 15 numbers in `i_block` are data blocks; the
//! others are a single, a double and a triple indirect block. A block of pointers has no magic
//! number or checksum; 0 is a hole.

use crate::types::{BlockNo, FileBlock, MAX_FILE_BLOCKS};

/// Number of data blocks that the inode itself points to.
pub const DIRECT_BLOCKS: u64 = 12;
/// Number of block numbers in `i_block`.
pub const SLOTS: usize = 15;
/// Number of levels of the triple indirect block.
pub const MAX_LEVELS: usize = 3;
/// Size of a pointer in bytes.
const POINTER_SIZE: usize = 4;

/// Arithmetic of block maps for a block size.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct IndirectMap {
    pointer_bits: u32,
}

/// The path to a data block: a slot of `i_block`, then a pointer in each indirect block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MapPath {
    /// 0 to 11 for data blocks, 12 to 14 for the single to the triple indirect block.
    pub slot: usize,
    /// Number of indirect blocks on the path: 0 to 3.
    pub levels: usize,
    /// Positions in them, from the inode down; only the first `levels` are used.
    pub positions: [u32; MAX_LEVELS],
}

impl IndirectMap {
    /// For a block size in bytes: a power of two, as in `Geometry`.
    pub fn new(block_size: u32) -> Self {
        Self { pointer_bits: block_size.trailing_zeros() - 2 }
    }

    /// Number of pointers per block.
    pub fn pointers_per_block(&self) -> u64 {
        1 << self.pointer_bits
    }

    /// Maximum number of blocks of a file: those that three levels map, up to the format's limit.
    pub fn max_blocks(&self) -> u64 {
        let per_block = self.pointers_per_block();
        (DIRECT_BLOCKS + per_block + per_block.pow(2) + per_block.pow(3)).min(MAX_FILE_BLOCKS)
    }

    /// The path to a logical block; `None` past [`Self::max_blocks`].
    pub fn path(&self, block: FileBlock) -> Option<MapPath> {
        if block.0 >= self.max_blocks() {
            return None;
        }
        if block.0 < DIRECT_BLOCKS {
            // Below 12, so it fits.
            return Some(MapPath { slot: block.0 as usize, levels: 0, positions: [0; MAX_LEVELS] });
        }
        let mut at = block.0 - DIRECT_BLOCKS;
        for levels in 1..=MAX_LEVELS {
            let covered = self.covered_by(levels);
            if at < covered {
                let mut positions = [0; MAX_LEVELS];
                for (index, position) in positions.iter_mut().take(levels).enumerate() {
                    let shift = self.pointer_bits * (levels - 1 - index) as u32;
                    // Masked to the number of pointers per block: at most 14 bits.
                    *position = (at >> shift & (self.pointers_per_block() - 1)) as u32;
                }
                let slot = DIRECT_BLOCKS as usize + levels - 1;
                return Some(MapPath { slot, levels, positions });
            }
            at -= covered;
        }
        None
    }

    /// Number of data blocks below an indirect block of `levels` levels (1 to 3, including itself).
    pub fn covered_by(&self, levels: usize) -> u64 {
        1 << (self.pointer_bits * levels as u32)
    }

    /// First logical block of a slot of `i_block`.
    pub fn slot_start(&self, slot: usize) -> FileBlock {
        let before = (1..=MAX_LEVELS)
            .take(slot.saturating_sub(DIRECT_BLOCKS as usize))
            .map(|levels| self.covered_by(levels))
            .sum::<u64>();
        FileBlock(before + (slot as u64).min(DIRECT_BLOCKS))
    }

    /// Number of indirect blocks of a file without holes with `data_blocks` data blocks.
    pub fn metadata_blocks(&self, data_blocks: u64) -> u64 {
        let mut left = data_blocks.saturating_sub(DIRECT_BLOCKS);
        let mut needed = 0;
        for levels in 1..=MAX_LEVELS {
            let here = left.min(self.covered_by(levels));
            needed += (1..=levels).map(|level| here.div_ceil(self.covered_by(level))).sum::<u64>();
            left -= here;
        }
        needed
    }
}

/// The pointer at a position of an indirect block or of `i_block`; `None` past its end. 0 is a
/// hole.
pub fn pointer(bytes: &[u8], position: usize) -> Option<BlockNo> {
    let at = position.checked_mul(POINTER_SIZE)?;
    let bytes = bytes.get(at..)?.first_chunk::<POINTER_SIZE>()?;
    Some(BlockNo(u64::from(u32::from_le_bytes(*bytes))))
}

/// All pointers of an indirect block or of `i_block`.
pub fn pointers(bytes: &[u8]) -> impl ExactSizeIterator<Item = BlockNo> + '_ {
    let (pointers, _) = bytes.as_chunks::<POINTER_SIZE>();
    pointers.iter().map(|bytes| BlockNo(u64::from(u32::from_le_bytes(*bytes))))
}

/// Sets the pointer at a position.
///
/// # Panics
/// If the position is past the end, or the block number does not fit in 32 bits: a programming
/// error, not disk damage.
pub fn set_pointer(bytes: &mut [u8], position: usize, block: BlockNo) {
    let stored = u32::try_from(block.0).expect("an indirect map holds block numbers of 32 bits");
    let at = position * POINTER_SIZE;
    bytes[at..at + POINTER_SIZE].copy_from_slice(&stored.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZES: [u32; 7] = [1024, 2048, 4096, 8192, 16384, 32768, 65536];

    #[test]
    fn the_ranges_are_those_of_the_documents_for_4_kib() {
        let map = IndirectMap::new(4096);
        let path = |block| map.path(FileBlock(block)).map(|path| (path.slot, path.positions));
        assert_eq!(path(11), Some((11, [0, 0, 0])));
        assert_eq!(path(12), Some((12, [0, 0, 0])));
        assert_eq!(path(1035), Some((12, [1023, 0, 0])));
        assert_eq!(path(1036), Some((13, [0, 0, 0])));
        assert_eq!(path(1_049_611), Some((13, [1023, 1023, 0])));
        assert_eq!(path(1_049_612), Some((14, [0, 0, 0])));
        assert_eq!(path(1_074_791_435), Some((14, [1023, 1023, 1023])));
        assert_eq!(path(1_074_791_436), None);
    }

    #[test]
    fn large_blocks_end_where_the_format_does() {
        let map = IndirectMap::new(65536);
        assert_eq!(map.max_blocks(), MAX_FILE_BLOCKS);
        assert!(map.path(FileBlock(MAX_FILE_BLOCKS - 1)).is_some());
        assert_eq!(map.path(FileBlock(MAX_FILE_BLOCKS)), None);
        assert_eq!(map.path(FileBlock(u64::MAX)), None);
    }

    #[test]
    fn metadata_blocks_are_those_of_full_and_started_levels() {
        let map = IndirectMap::new(1024);
        let counts = [0, 12, 13, 268, 269, 12 + 256 + 65536, 12 + 256 + 65536 + 1];
        assert_eq!(
            counts.map(|data| map.metadata_blocks(data)),
            [0, 0, 1, 1, 3, 1 + 257, 1 + 257 + 3]
        );
    }

    #[test]
    fn a_pointer_past_the_end_is_none() {
        assert_eq!(pointer(&[1, 0, 0, 0, 2], 1), None);
        assert_eq!(pointer(&[1, 0, 0, 0], 0), Some(BlockNo(1)));
        assert_eq!(pointer(&[], usize::MAX), None);
    }

    proptest! {
        #[test]
        fn a_path_leads_back_to_its_block(size in prop::sample::select(&SIZES), block in 0_u64..1 << 32) {
            let map = IndirectMap::new(size);
            if let Some(path) = map.path(FileBlock(block)) {
                let below = path.positions[..path.levels]
                    .iter()
                    .fold(0, |at, &position| at * map.pointers_per_block() + u64::from(position));
                prop_assert_eq!(map.slot_start(path.slot).0 + below, block);
            } else {
                prop_assert!(block >= map.max_blocks());
            }
        }

        #[test]
        fn one_more_block_needs_as_many_maps_as_its_path_starts(size in prop::sample::select(&SIZES), blocks in 0_u64..20_000_000) {
            let map = IndirectMap::new(size);
            let Some(path) = map.path(FileBlock(blocks)) else { return Ok(()) };
            let started = (0..path.levels)
                .filter(|&level| path.positions[level..path.levels].iter().all(|&at| at == 0))
                .count() as u64;
            prop_assert_eq!(map.metadata_blocks(blocks + 1), map.metadata_blocks(blocks) + started);
        }
    }
}
