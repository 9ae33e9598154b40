//! Maps of indirect blocks that could not be read.

use std::ops::Range;

use extant_device::Device;
use extant_ondisk::indirect::{self, DIRECT_BLOCKS, IndirectMap, MAX_LEVELS};
use extant_ondisk::{BlockNo, FileBlock, Geometry};
use rangemap::RangeSet;

/// A walk over the indirect blocks of a file, for those of which nothing is known: they have no
/// checksums, and zeros in them are holes.
pub(super) struct UnreadMap<'a> {
    device: &'a dyn Device,
    geometry: &'a Geometry,
    areas: &'a RangeSet<u64>,
    /// Number of indirect blocks that may still be read: not more than the volume has.
    budget: u64,
    unknown: RangeSet<u64>,
}

impl<'a> UnreadMap<'a> {
    /// `areas`: the bytes of the device that cannot be read.
    pub(super) fn new(
        device: &'a dyn Device,
        geometry: &'a Geometry,
        areas: &'a RangeSet<u64>,
    ) -> Self {
        let budget = geometry.blocks_count;
        Self { device, geometry, areas, budget, unknown: RangeSet::new() }
    }

    /// The blocks of a file whose pointers were not read, up to `end`.
    pub(super) fn blocks(mut self, i_block: &[u8], end: FileBlock) -> RangeSet<u64> {
        let map = IndirectMap::new(self.geometry.block_size);
        for levels in 1..=MAX_LEVELS {
            let slot = DIRECT_BLOCKS as usize + levels - 1;
            let start = map.slot_start(slot).0;
            let Some(block) = indirect::pointer(i_block, slot) else { continue };
            self.walk(&map, block, levels, start, end.0);
        }
        self.unknown
    }

    /// Walks over an indirect block with a number of levels below it, whose first logical block is
    /// `start`.
    fn walk(&mut self, map: &IndirectMap, block: BlockNo, levels: usize, start: u64, end: u64) {
        if start >= end || block.0 == 0 || !self.geometry.contains(block, 1) || self.budget == 0 {
            return;
        }
        self.budget -= 1;
        // Blocks below one pointer.
        let below = map.covered_by(levels) / map.pointers_per_block();
        let at = self.geometry.byte_of(block);
        let size = u64::from(self.geometry.block_size);
        for area in self.areas.overlapping(&(at..at + size)) {
            let from = (area.start.max(at) - at) / 4;
            let to = (area.end.min(at + size) - at).div_ceil(4);
            let range: Range<u64> = start + from * below..(start + to * below).min(end);
            if !range.is_empty() {
                self.unknown.insert(range);
            }
        }
        let mut bytes = vec![0; size as usize];
        if levels == 1 || self.device.read_at(at, &mut bytes).is_err() {
            return;
        }
        for (index, block) in indirect::pointers(&bytes).enumerate() {
            self.walk(map, block, levels - 1, start + index as u64 * below, end);
        }
    }
}
