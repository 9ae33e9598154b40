//! A set of blocks, stored as runs: the blocks in use on a volume, in memory proportional to the
//! number of runs and not to the size of the volume.

use std::collections::BTreeMap;
use std::ops::Range;

/// Block numbers as disjoint runs that are not adjacent.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RunSet {
    /// Start of each run to its end (exclusive).
    runs: BTreeMap<u64, u64>,
    count: u64,
}

impl RunSet {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of blocks in the set.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Adds a run, some of whose blocks may be in the set already.
    pub fn insert(&mut self, run: Range<u64>) {
        if run.is_empty() {
            return;
        }
        let (mut start, mut end) = (run.start, run.end);
        // Most runs follow the one before them and do not touch a later one.
        let mut around = self.runs.range_mut(..=end);
        if let Some((_, known_end)) = around.next_back()
            && *known_end == start
        {
            self.count += end - start;
            *known_end = end;
            return;
        }
        // Runs that overlap or touch the new one are merged with it.
        while let Some((&known, &known_end)) =
            self.runs.range(..=end).next_back().filter(|(_, known_end)| **known_end >= start)
        {
            self.runs.remove(&known);
            self.count -= known_end - known;
            start = start.min(known);
            end = end.max(known_end);
        }
        self.runs.insert(start, end);
        self.count += end - start;
    }

    /// Whether a block is in the set.
    pub fn contains(&self, block: u64) -> bool {
        self.run_at(block).is_some()
    }

    /// The run that contains a block.
    pub fn run_at(&self, block: u64) -> Option<Range<u64>> {
        let (&start, &end) = self.runs.range(..=block).next_back()?;
        (block < end).then_some(start..end)
    }

    /// Whether no block of a range is in the set.
    pub fn is_free(&self, range: Range<u64>) -> bool {
        self.runs.range(..range.end).next_back().is_none_or(|(_, &end)| end <= range.start)
    }

    /// Number of blocks of a range in the set.
    pub fn count_in(&self, range: Range<u64>) -> u64 {
        self.runs_in(range).map(|run| run.end - run.start).sum()
    }

    /// The runs of a range, cut to it, in order.
    pub fn runs_in(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.run_at(range.start).map_or(range.start, |run| run.start);
        let end = range.end.max(first);
        self.runs
            .range(first..end)
            .map(move |(&start, &end)| start.max(range.start)..end.min(range.end))
    }

    /// All runs in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.runs.iter().map(|(&start, &end)| start..end)
    }

    /// The first gap in a range: the free blocks up to the next run.
    pub fn next_gap(&self, range: Range<u64>) -> Option<Range<u64>> {
        let start = self.run_at(range.start).map_or(range.start, |run| run.end);
        if start >= range.end {
            return None;
        }
        let end = self.runs.range(start..range.end).next().map_or(range.end, |(&next, _)| next);
        Some(start..end)
    }

    /// The start of the first gap in a range with at least `length` blocks.
    pub fn first_fit(&self, range: Range<u64>, length: u64) -> Option<u64> {
        let mut from = range.start;
        while let Some(gap) = self.next_gap(from..range.end) {
            if gap.end - gap.start >= length {
                return Some(gap.start);
            }
            from = gap.end;
        }
        None
    }

    /// The blocks of this set that are not in another one.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut rest = Self::new();
        for run in self.iter() {
            let mut at = run.start;
            for taken in other.runs_in(run.clone()) {
                rest.insert(at..taken.start);
                at = taken.end;
            }
            rest.insert(at..run.end);
        }
        rest
    }

    /// Extends every run to whole clusters of `blocks` blocks, counted from block `origin`.
    #[must_use]
    pub fn in_clusters(&self, origin: u64, blocks: u64) -> Self {
        let mut grown = Self::new();
        for run in self.iter() {
            let start = run.start - run.start.saturating_sub(origin) % blocks;
            let rest = run.end.saturating_sub(origin) % blocks;
            let end = if rest == 0 { run.end } else { run.end + (blocks - rest) };
            grown.insert(start..end);
        }
        grown
    }
}

impl FromIterator<Range<u64>> for RunSet {
    fn from_iter<T: IntoIterator<Item = Range<u64>>>(runs: T) -> Self {
        let mut set = Self::new();
        runs.into_iter().for_each(|run| set.insert(run));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set<const N: usize>(runs: [Range<u64>; N]) -> RunSet {
        let mut set = RunSet::new();
        for run in runs {
            set.insert(run);
        }
        set
    }

    #[test]
    fn blocks_of_another_set_are_left_out() {
        let all = set([2..10, 20..30]);
        assert_eq!(all.without(&set([0..3, 5..6, 9..25, 40..50])), set([3..5, 6..9, 25..30]));
        assert_eq!(all.without(&RunSet::new()), all);
        assert_eq!(all.without(&all), RunSet::new());
    }

    #[test]
    fn runs_that_touch_become_one() {
        let runs = set([10..20, 30..40, 20..30, 5..6]);
        assert_eq!(runs.iter().collect::<Vec<_>>(), [5..6, 10..40]);
        assert_eq!(runs.count(), 31);
        assert_eq!(set([10..20, 12..14]).count(), 10);
        assert_eq!(set([10..20, 0..50]).run_at(0), Some(0..50));
    }

    #[test]
    fn gaps_are_found_from_inside_and_outside_of_runs() {
        let runs = set([10..20, 25..40]);
        assert_eq!(runs.next_gap(0..50), Some(0..10));
        assert_eq!(runs.next_gap(12..50), Some(20..25));
        assert_eq!(runs.next_gap(30..40), None);
        assert_eq!(runs.first_fit(0..100, 12), Some(40));
        assert_eq!(runs.first_fit(0..45, 12), None);
        assert!(runs.is_free(20..25));
        assert!(!runs.is_free(24..26));
        assert_eq!(runs.count_in(15..30), 10);
        assert_eq!(runs.runs_in(15..26).collect::<Vec<_>>(), [15..20, 25..26]);
    }

    #[test]
    fn clusters_take_whole_what_is_touched() {
        let runs = set([3..5, 17..18, 32..33]).in_clusters(0, 16);
        assert_eq!((runs.run_at(0), runs.count()), (Some(0..48), 48));
        assert_eq!(set([16..20, 20..32]).in_clusters(0, 16), set([16..24, 24..32]));
    }
}
