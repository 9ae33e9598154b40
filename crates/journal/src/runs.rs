//! The blocks of a journal on its device.

use extant_ondisk::BlockNo;

/// A range of journal blocks that are contiguous on the device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BlockRange {
    /// First journal block.
    pub first: u32,
    /// The block of the device that holds it.
    pub start: BlockNo,
    /// Number of blocks.
    pub count: u32,
}

/// The journal's blocks in order, without gaps.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct BlockRuns {
    runs: Vec<BlockRange>,
}

impl BlockRuns {
    /// Creates a list without blocks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds blocks at the end. Returns false if the journal would have 2^32 blocks or more.
    #[must_use]
    pub fn push(&mut self, start: BlockNo, count: u32) -> bool {
        let first = self.blocks_count();
        if first.checked_add(count).is_none() {
            return false;
        }
        match self.runs.last_mut() {
            Some(last) if last.start.checked_add(u64::from(last.count)) == Some(start) => {
                last.count += count;
            }
            _ if count > 0 => self.runs.push(BlockRange { first, start, count }),
            _ => {}
        }
        true
    }

    /// Number of blocks of the journal.
    pub fn blocks_count(&self) -> u32 {
        self.runs.last().map_or(0, |last| last.first + last.count)
    }

    /// Whether a block of the device is in the journal twice.
    pub(crate) fn map_twice(&self) -> bool {
        let mut sorted: Vec<&BlockRange> = self.runs.iter().collect();
        sorted.sort_unstable_by_key(|run| run.start);
        let end = |run: &BlockRange| run.start.0.saturating_add(u64::from(run.count));
        sorted.windows(2).any(|two| end(two[0]) > two[1].start.0)
    }

    /// The ranges in order.
    pub fn runs(&self) -> &[BlockRange] {
        &self.runs
    }

    /// The ranges of `count` journal blocks from `at`, each as its first device block and its
    /// number of blocks. Ends at the end of the journal.
    pub fn pieces(&self, at: u32, count: u32) -> impl Iterator<Item = (BlockNo, u32)> + '_ {
        let after = self.runs.partition_point(|run| run.first <= at);
        let end = at.saturating_add(count);
        self.runs[after.saturating_sub(1)..].iter().map_while(move |run| {
            let from = run.first.max(at);
            let to = (run.first + run.count).min(end);
            let start = run.start.checked_add(u64::from(from.checked_sub(run.first)?))?;
            (from < to).then(|| (start, to - from))
        })
    }

    /// Whether a block of the device belongs to the journal.
    pub fn holds(&self, block: BlockNo) -> bool {
        self.runs
            .iter()
            .any(|run| block.0.checked_sub(run.start.0).is_some_and(|at| at < u64::from(run.count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_the_runs() {
        let mut runs = BlockRuns::new();
        assert!(runs.push(BlockNo(100), 5));
        assert!(runs.push(BlockNo(105), 5));
        assert!(runs.push(BlockNo(50), 3));
        assert_eq!(runs.runs().len(), 2);
        assert_eq!(runs.blocks_count(), 13);
        let pieces = |at, count| runs.pieces(at, count).collect::<Vec<_>>();
        assert_eq!(pieces(0, 13), [(BlockNo(100), 10), (BlockNo(50), 3)]);
        assert_eq!(pieces(8, 3), [(BlockNo(108), 2), (BlockNo(50), 1)]);
        assert_eq!(pieces(10, 9), [(BlockNo(50), 3)]);
        assert_eq!(pieces(13, 1), []);
        assert!(runs.holds(BlockNo(109)) && !runs.holds(BlockNo(110)));
        assert!(!runs.push(BlockNo(0), u32::MAX));
    }
}
