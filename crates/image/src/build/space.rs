//! The free clusters of a new volume, numbered consecutively: a file's place is then one number,
//! from which its blocks follow.

use std::ops::Range;

use extant_layout::RunSet;
use extant_ondisk::Geometry;

/// A run of free clusters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct FreeRun {
    /// Number of its first cluster among all free ones.
    first: u64,
    /// First block.
    block: u64,
    /// Clusters.
    len: u64,
}

/// Free clusters in the order of the device. Numbers past the last one are taken to follow it, so
/// that a demand can be counted to its end even where it does not fit.
#[derive(Clone, Debug)]
pub(super) struct Space {
    runs: Vec<FreeRun>,
    total: u64,
    cluster_blocks: u64,
}

/// A run of clusters with the place that it has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ClusterRun {
    /// Number of the first cluster.
    pub(super) first: u64,
    /// First block.
    pub(super) block: u64,
    /// Clusters.
    pub(super) len: u64,
}

impl Space {
    /// The clusters of the volume outside of `used`, which is in whole clusters.
    pub(super) fn new(geometry: &Geometry, used: &RunSet) -> Self {
        let cluster_blocks = u64::from(geometry.blocks_per_cluster);
        let (mut runs, mut total) = (Vec::new(), 0);
        let mut at = geometry.first_data_block.0;
        while let Some(gap) = used.next_gap(at..geometry.blocks_count) {
            let len = (gap.end - gap.start).div_ceil(cluster_blocks);
            runs.push(FreeRun { first: total, block: gap.start, len });
            total += len;
            at = gap.end;
        }
        Self { runs, total, cluster_blocks }
    }

    /// Free clusters.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Where a range of free clusters lies, run by run.
    pub(super) fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = ClusterRun> + '_ {
        let index = self.runs.partition_point(|run| run.first <= range.start).saturating_sub(1);
        let (mut at, mut index) = (range.start, index);
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let run = self.runs.get(index).copied();
            let run = run.unwrap_or(FreeRun { first: at, block: 0, len: 0 });
            let is_last = index + 1 >= self.runs.len();
            let end = if is_last { range.end } else { range.end.min(run.first + run.len) };
            let block = run.block + (at - run.first) * self.cluster_blocks;
            let piece = ClusterRun { first: at, block, len: end - at };
            (at, index) = (end, index + 1);
            Some(piece)
        })
    }

    /// Whether a range lies in one run.
    pub(super) fn is_one_run(&self, range: &Range<u64>) -> bool {
        let index = self.runs.partition_point(|run| run.first <= range.start);
        self.runs.get(index).is_none_or(|next| range.end <= next.first)
    }

    /// The first block of a free cluster.
    pub(super) fn block(&self, cluster: u64) -> u64 {
        self.pieces(cluster..cluster + 1).next().map_or(0, |piece| piece.block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> Space {
        let run = |first, block, len| FreeRun { first, block, len };
        Space {
            runs: vec![run(0, 100, 10), run(10, 200, 5), run(15, 300, 1)],
            total: 16,
            cluster_blocks: 1,
        }
    }

    fn blocks(range: Range<u64>) -> Vec<(u64, u64)> {
        space().pieces(range).map(|piece| (piece.block, piece.len)).collect()
    }

    #[test]
    fn ranges_are_cut_where_free_runs_end() {
        assert_eq!(blocks(0..10), [(100, 10)]);
        assert_eq!(blocks(9..11), [(109, 1), (200, 1)]);
        assert_eq!(blocks(12..16), [(202, 3), (300, 1)]);
        assert_eq!(blocks(3..3), []);
        assert!(space().is_one_run(&(0..10)) && space().is_one_run(&(10..15)));
        assert!(!space().is_one_run(&(9..11)));
    }

    #[test]
    fn numbers_past_the_end_follow_the_last_run() {
        assert_eq!(blocks(14..20), [(204, 1), (300, 5)]);
        assert!(space().is_one_run(&(17..30)));
    }

    #[test]
    fn clusters_have_the_blocks_that_they_are_made_of() {
        let runs = vec![FreeRun { first: 0, block: 160, len: 4 }];
        let space = Space { runs, total: 4, cluster_blocks: 16 };
        assert_eq!(space.block(3), 208);
    }
}
