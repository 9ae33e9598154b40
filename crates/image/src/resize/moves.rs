//! Which clusters move where.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use extant_ondisk::extent::Extent;
use extant_ondisk::{BlockNo, FileBlock, Geometry};

/// Runs of free clusters, of which the one that fits best is taken.
#[derive(Clone, Debug, Default)]
pub(super) struct FreeRuns {
    /// Length and start.
    by_length: BTreeSet<(u64, u64)>,
}

impl FreeRuns {
    pub(super) fn insert(&mut self, run: Range<u64>) {
        if !run.is_empty() {
            self.by_length.insert((run.end - run.start, run.start));
        }
    }

    /// Takes the smallest run that has `length` clusters, or else parts of the longest ones. `None`
    /// if there are fewer.
    pub(super) fn take(&mut self, length: u64) -> Option<Vec<Range<u64>>> {
        let (mut taken, mut left) = (Vec::new(), length);
        while left > 0 {
            let best = self.by_length.range((left, 0)..).next();
            let (found, start) = *best.or_else(|| self.by_length.last())?;
            self.by_length.remove(&(found, start));
            let now = found.min(left);
            taken.push(start..start + now);
            self.insert(start + now..start + found);
            left -= now;
        }
        Some(taken)
    }
}

/// The clusters that move, by their old places.
#[derive(Clone, Debug, Default)]
pub(super) struct Moves {
    /// First cluster of a run to its length and its new place.
    runs: BTreeMap<u64, (u64, u64)>,
    ratio: u64,
    origin: u64,
}

impl Moves {
    pub(super) fn new(geometry: &Geometry) -> Self {
        Self {
            runs: BTreeMap::new(),
            ratio: u64::from(geometry.blocks_per_cluster),
            origin: geometry.first_data_block.0,
        }
    }

    /// The clusters of a run of blocks.
    pub(super) fn clusters(&self, blocks: &Range<u64>) -> Range<u64> {
        let start = blocks.start.saturating_sub(self.origin) / self.ratio;
        start..blocks.end.saturating_sub(self.origin).div_ceil(self.ratio)
    }

    /// The blocks of a run of clusters.
    pub(super) fn blocks(&self, clusters: &Range<u64>) -> Range<u64> {
        self.origin + clusters.start * self.ratio..self.origin + clusters.end * self.ratio
    }

    /// Moves a run of clusters to the given ones, as many.
    pub(super) fn insert(&mut self, run: Range<u64>, to: Vec<Range<u64>>) {
        let mut at = run.start;
        for part in to {
            let length = part.end - part.start;
            self.runs.insert(at, (length, part.start));
            at += length;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// All runs: blocks of before, and the first block of after.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Range<u64>, u64)> + '_ {
        self.runs.iter().map(|(&start, &(length, to))| {
            (self.blocks(&(start..start + length)), self.origin + to * self.ratio)
        })
    }

    /// The block's new place, and the number of blocks that move with it; or that stay with it, at
    /// most `limit`.
    fn place(&self, block: u64, limit: u64) -> (u64, u64) {
        let Some(at) = block.checked_sub(self.origin) else { return (block, limit) };
        let (cluster, within) = (at / self.ratio, at % self.ratio);
        if let Some((&start, &(length, to))) = self.runs.range(..=cluster).next_back()
            && cluster < start + length
        {
            let place = self.origin + (to + cluster - start) * self.ratio + within;
            let left = (start + length - cluster) * self.ratio - within;
            return (place, left.min(limit));
        }
        let next = self.runs.range(cluster + 1..).next();
        let left = next.map_or(limit, |(&start, _)| self.origin + start * self.ratio - block);
        (block, left.min(limit))
    }

    /// The new place of a block.
    pub(super) fn block(&self, block: BlockNo) -> BlockNo {
        BlockNo(self.place(block.0, 1).0)
    }

    /// The parts of a run that move (with their new places), in order.
    pub(super) fn parts(&self, run: Range<u64>) -> Vec<(Range<u64>, u64)> {
        let (mut parts, mut at) = (Vec::new(), run.start);
        while at < run.end {
            let (place, length) = self.place(at, run.end - at);
            if place != at {
                parts.push((at..at + length, place));
            }
            at += length;
        }
        parts
    }

    /// An extent after the move: in several parts if it was split.
    pub(super) fn extent(&self, extent: &Extent) -> Vec<Extent> {
        let mut parts: Vec<Extent> = Vec::new();
        let mut at = 0;
        while at < u64::from(extent.len) {
            let (start, length) = self.place(extent.start.0 + at, u64::from(extent.len) - at);
            let part = Extent {
                block: FileBlock(extent.block.0 + at),
                len: length as u32, // no longer than the extent
                start: BlockNo(start),
                is_unwritten: extent.is_unwritten,
            };
            match parts.last_mut() {
                Some(last) if last.is_continued_by(&part) => last.len += part.len,
                _ => parts.push(part),
            }
            at += length;
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_that_fits_best_is_taken_and_else_the_longest() {
        let mut free = FreeRuns::default();
        for run in [0..10, 20..25, 30..33] {
            free.insert(run);
        }
        assert_eq!(free.take(4).as_deref(), Some(&[Range { start: 20, end: 24 }][..]));
        assert_eq!(free.take(12), Some(vec![0..10, 30..32]));
        assert_eq!(free.take(3), None);
    }

    #[test]
    fn an_extent_is_split_where_its_clusters_part() {
        let mut moves = Moves { runs: BTreeMap::new(), ratio: 4, origin: 0 };
        moves.insert(10..12, vec![2..3, 7..8]);
        let extent =
            Extent { block: FileBlock(2), len: 8, start: BlockNo(38), is_unwritten: false };
        let parts = moves.extent(&extent);
        let places: Vec<_> =
            parts.iter().map(|part| (part.block.0, part.start.0, part.len)).collect();
        assert_eq!(places, [(2, 38, 2), (4, 8, 4), (8, 28, 2)]);
        assert_eq!(moves.parts(36..46), [(40..44, 8), (44..46, 28)]);
        assert_eq!(moves.block(BlockNo(45)), BlockNo(29));
    }
}
