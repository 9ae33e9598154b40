//! Where in a group, and how much: pure functions over buddies and figures.
//!
//! The [search](super::search) decides which group is tried, and the
//! [preallocations](super::preallocation) use the space beyond the request.

use super::buddy::Buddy;
use std::ops::Range;

/// Bytes of a file up to which it counts as small: its blocks come from a preallocation that small
/// files of a flex group share.
const SMALL: u64 = 64 << 10;
/// A file gets a preallocation this many times its size: one that grows to any length has few
/// extents.
const GROWTH: u64 = 16;
/// A preallocation takes at most this part of the free clusters outside all preallocations, and
/// less if many files share them.
const SHARE: u64 = 64;
/// Bytes of a preallocation that small files share.
const GROUP_PREALLOCATION: u64 = 2 << 20;
/// Runs of a group that are compared for the best fit.
const MAX_EXAMINED: u32 = 16;

/// The search for free blocks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AllocatorKind {
    /// The multi-block allocator (`mballoc`): whole runs, near the goal or where they fit, and
    /// space kept in front of files that grow.
    #[default]
    MultiBlock,
    /// The plain one (`nomballoc`): a block (with bigalloc a cluster) at a time, the first that is
    /// free from the goal on.
    Plain,
}

/// The search within a group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SearchRequest {
    /// Clusters that are needed.
    pub needed: u32,
    /// Clusters that are taken if they are free in one run, at least `needed`: the excess becomes a
    /// preallocation.
    pub wanted: u32,
    /// Where runs begin and end on a striped disk.
    pub stripe: Stripe,
}

/// Clusters of a stripe, and where the first one begins in the group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Stripe {
    /// Clusters; 1 without a stripe.
    pub clusters: u32,
    /// The first cluster of the group that a stripe begins with.
    pub first: u32,
}

impl Stripe {
    /// No stripe.
    #[cfg(test)]
    const NONE: Self = Self { clusters: 1, first: 0 };

    /// For a group whose first cluster has this number on the volume.
    pub(crate) fn of_group(clusters: u32, first_cluster: u64) -> Self {
        let clusters = clusters.max(1);
        let after = first_cluster % u64::from(clusters);
        // Less than a stripe.
        let first = ((u64::from(clusters) - after) % u64::from(clusters)) as u32;
        Self { clusters, first }
    }

    /// The part of a run that is whole stripes, if `clusters` clusters are whole stripes and fit.
    fn aligned(self, run: Range<u32>, clusters: u32) -> Option<Range<u32>> {
        if self.clusters <= 1 || clusters < self.clusters {
            return None;
        }
        let from = run.start.max(self.first);
        let start = (from - self.first).next_multiple_of(self.clusters) + self.first;
        let whole = (run.end.saturating_sub(start)).min(clusters);
        let whole = whole - whole % self.clusters;
        (whole > 0).then(|| start..start + whole)
    }
}

/// The order of the smallest chunk that holds `clusters` clusters, at most `top`.
pub(crate) fn order_for(clusters: u32, top: u32) -> u32 {
    clusters.max(1).next_power_of_two().ilog2().min(top)
}

/// The order of the largest aligned chunk in a range of clusters, at least 0.
pub(crate) fn order_in(clusters: &Range<u32>) -> u32 {
    let count = (clusters.end - clusters.start).max(1);
    let fits = |order: &u32| {
        let start = clusters.start.next_multiple_of(1 << order);
        start + (1 << order) <= clusters.end
    };
    (0..=count.ilog2()).rev().find(fits).unwrap_or(0)
}

/// Whether a file of `bytes` bytes is small.
pub(crate) fn is_small(bytes: u64) -> bool {
    bytes < SMALL
}

/// Number of clusters of a preallocation for a file that is about to have `bytes` bytes, in
/// addition to the clusters needed now. `free_clusters` is the number of free clusters outside the
/// preallocations: each takes a part of the rest, so that some is always left.
pub(crate) fn preallocation_size(
    bytes: u64,
    cluster_size: u64,
    free_clusters: u64,
    group_clusters: u32,
    preallocations: u64,
) -> u32 {
    let by_size = bytes.saturating_mul(GROWTH) / cluster_size;
    let most = u64::from(group_clusters).min(free_clusters / SHARE.max(preallocations));
    // At most the clusters of a group.
    by_size.min(most) as u32
}

/// Clusters of a preallocation that small files share, in whole stripes.
pub(crate) fn group_preallocation_size(
    cluster_size: u64,
    free_clusters: u64,
    group_clusters: u32,
    stripe: u32,
) -> u32 {
    let most = u64::from(group_clusters).min(free_clusters / SHARE);
    // At most the clusters of a group.
    let clusters = (GROUP_PREALLOCATION / cluster_size).min(most) as u32;
    if clusters < stripe { clusters } else { clusters - clusters % stripe.max(1) }
}

/// The free run from the goal on.
pub(crate) fn at_goal(buddy: &Buddy, at: u32, search: &SearchRequest) -> Option<Range<u32>> {
    Some(buddy.run_from(at, search.wanted)).filter(|run| !run.is_empty())
}

/// The place in a group, from a cluster on where it can be: a run that holds all that is wanted,
/// the first one; else the one that fits best.
pub(crate) fn in_group(buddy: &Buddy, from: u32, search: &SearchRequest) -> Option<Range<u32>> {
    let largest = buddy.largest_order()?;
    let chunk_near = |order| {
        buddy.chunk_in(order, from..u32::MAX).or_else(|| buddy.chunk_in(order, 0..u32::MAX))
    };
    let order = order_for(search.wanted, u32::MAX);
    if order == 0 {
        return chunk_near(0).map(|at| at..at + 1);
    }
    if order <= largest {
        return chunk_near(order).map(|at| leading_part(buddy.run_around(at), from, search));
    }
    let mut best: Option<Range<u32>> = None;
    let mut at = 0;
    for _ in 0..MAX_EXAMINED {
        let Some(chunk) = buddy.chunk_in(largest, at..u32::MAX) else { break };
        let run = buddy.run_around(chunk);
        at = run.end;
        if best.as_ref().is_none_or(|best| fits_better(&run, best, search.wanted)) {
            best = Some(run);
        }
    }
    best.map(|run| leading_part(run, 0, search))
}

/// Whether a run fits better than another: it is long enough and shorter, or not long enough and
/// longer.
fn fits_better(run: &Range<u32>, than: &Range<u32>, wanted: u32) -> bool {
    let (run, than) = (run.end - run.start, than.end - than.start);
    if than >= wanted { run >= wanted && run < than } else { run > than }
}

/// The part of a free run that is taken: its start, or from `from` on if all wanted clusters lie
/// after it; whole stripes if there are any.
fn leading_part(run: Range<u32>, from: u32, search: &SearchRequest) -> Range<u32> {
    let start =
        if run.contains(&from) && run.end - from >= search.wanted { from } else { run.start };
    let run = start..run.end;
    if let Some(whole) = search.stripe.aligned(run.clone(), search.wanted)
        && whole.end - whole.start >= search.needed
    {
        return whole;
    }
    run.start..run.end.min(run.start + search.wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_ondisk::bitmap;

    /// A group of 1,024 clusters of which these are free.
    fn with_free(runs: &[Range<u32>]) -> Buddy {
        let mut busy = [0xff; 128];
        for run in runs {
            bitmap::clear_range(&mut busy, run.clone());
        }
        Buddy::new(&busy, 1024)
    }

    fn search(needed: u32, wanted: u32) -> SearchRequest {
        SearchRequest { needed, wanted, stripe: Stripe::NONE }
    }

    #[test]
    fn the_first_run_that_holds_all_is_taken_from_its_start() {
        let buddy = with_free(&[3..7, 100..140, 300..900]);
        assert_eq!(in_group(&buddy, 0, &search(4, 4)), Some(100..104));
        assert_eq!(in_group(&buddy, 0, &search(1, 16)), Some(100..116));
        assert_eq!(in_group(&buddy, 200, &search(1, 16)), Some(300..316));
        assert_eq!(in_group(&buddy, 500, &search(1, 16)), Some(500..516));
        assert_eq!(in_group(&buddy, 1000, &search(1, 256)), Some(300..556));
    }

    #[test]
    fn single_clusters_come_from_the_goal_on_and_then_from_the_start() {
        let buddy = with_free(&[3..7, 100..140]);
        assert_eq!(in_group(&buddy, 5, &search(1, 1)), Some(5..6));
        assert_eq!(in_group(&buddy, 8, &search(1, 1)), Some(100..101));
        assert_eq!(in_group(&buddy, 141, &search(1, 1)), Some(3..4));
        assert_eq!(in_group(&with_free(&[]), 0, &search(1, 1)), None);
    }

    #[test]
    fn without_a_chunk_the_run_that_fits_best_is_taken() {
        // Neither has an aligned chunk of 64.
        let buddy = with_free(&[3..63, 65..127, 129..190]);
        assert_eq!(in_group(&buddy, 0, &search(1, 61)), Some(129..190));
        assert_eq!(in_group(&buddy, 0, &search(1, 64)), Some(65..127));
        assert_eq!(in_group(&buddy, 0, &search(1, 62)), Some(65..127));
    }

    #[test]
    fn large_runs_are_whole_stripes() {
        let stripe = Stripe::of_group(24, 1000);
        assert_eq!(stripe, Stripe { clusters: 24, first: 8 });
        let buddy = with_free(&[0..1, 100..900]);
        let search = |needed, wanted| SearchRequest { needed, wanted, stripe };
        // 104 is the first multiple of 24 after 8 in the run.
        assert_eq!(in_group(&buddy, 0, &search(48, 48)), Some(104..152));
        assert_eq!(in_group(&buddy, 0, &search(24, 60)), Some(104..152));
        assert_eq!(in_group(&buddy, 0, &search(60, 60)), Some(100..160));
        assert_eq!(in_group(&buddy, 0, &search(16, 16)), Some(100..116));
    }

    #[test]
    fn a_window_grows_with_the_file_up_to_a_share_of_what_is_free() {
        assert_eq!(preallocation_size(64 << 10, 4096, 1 << 20, 32768, 0), 256);
        assert_eq!(preallocation_size(1 << 30, 4096, 1 << 30, 32768, 0), 32768);
        assert_eq!(preallocation_size(1 << 30, 4096, 6400, 32768, 0), 100);
        assert_eq!(preallocation_size(1 << 30, 4096, 6400, 32768, 64), 100);
        assert_eq!(preallocation_size(1 << 30, 4096, 6400, 32768, 128), 50);
        assert_eq!(preallocation_size(u64::MAX, 4096, 10, 32768, 0), 0);
        assert_eq!(group_preallocation_size(4096, 1 << 20, 32768, 24), 504);
        assert_eq!(group_preallocation_size(4096, 640, 32768, 24), 10);
    }

    #[test]
    fn a_range_has_the_chunk_that_is_aligned_in_it() {
        assert_eq!(
            [0..16, 1..16, 7..24, 5..6, 3..5].map(|range| order_in(&range)),
            [4, 3, 3, 0, 0]
        );
    }

    #[test]
    fn an_order_holds_what_it_is_for() {
        assert_eq!([1, 2, 3, 4, 5, 255].map(|count| order_for(count, 6)), [0, 1, 2, 2, 3, 6]);
    }
}
