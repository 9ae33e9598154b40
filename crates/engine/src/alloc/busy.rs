//! Clusters of a group that are free on the volume and must not be given out.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of clusters: freed by a transaction that is not committed, claimed by a write whose data
/// are under way, or preallocated. Neighbours are joined.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct BusyClusters(BTreeMap<u32, u32>);

impl BusyClusters {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges in order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        self.0.iter().map(|(start, end)| *start..*end)
    }

    /// The first of some clusters that is there.
    pub(crate) fn first_of(&self, clusters: Range<u32>) -> Option<u32> {
        let before = self.0.range(..=clusters.start).next_back();
        match before.filter(|(_, end)| **end > clusters.start) {
            Some(_) => Some(clusters.start),
            None => self.0.range(clusters).next().map(|(start, _)| *start),
        }
    }

    /// Adds clusters. On a sound volume none of them is there yet.
    pub(crate) fn add(&mut self, clusters: Range<u32>) {
        if clusters.is_empty() {
            return;
        }
        let Range { mut start, mut end } = clusters;
        while let Some((before, stop)) = self.0.range(..=end).next_back().map(|(a, b)| (*a, *b))
            && stop >= start
        {
            self.0.remove(&before);
            start = start.min(before);
            end = end.max(stop);
        }
        self.0.insert(start, end);
    }

    /// Takes clusters out again, wherever they are there.
    pub(crate) fn remove(&mut self, clusters: Range<u32>) {
        let mut at = clusters.end;
        while let Some((start, end)) = self.0.range(..at).next_back().map(|(a, b)| (*a, *b)) {
            if end <= clusters.start {
                break;
            }
            self.0.remove(&start);
            if end > clusters.end {
                self.0.insert(clusters.end, end);
            }
            if start < clusters.start {
                self.0.insert(start, clusters.start);
            }
            at = start;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ranges_are_a_set_of_clusters(changes in prop::collection::vec((0_u32..200, 1_u32..20, any::<bool>()), 0..60)) {
            let (mut busy, mut set) = (BusyClusters::default(), BTreeSet::new());
            for (start, len, adds) in changes {
                let range = start..start + len;
                if !adds {
                    busy.remove(range.clone());
                    set.retain(|cluster| !range.contains(cluster));
                } else {
                    let first = set.range(range.clone()).next().copied();
                    prop_assert_eq!(busy.first_of(range.clone()), first);
                    busy.add(range.clone());
                    set.extend(range);
                }
                let all: Vec<u32> = busy.ranges().flatten().collect();
                prop_assert_eq!(all, set.iter().copied().collect::<Vec<_>>());
                let ranges: Vec<_> = busy.ranges().collect();
                prop_assert!(ranges.windows(2).all(|two| two[0].end < two[1].start), "{ranges:?}");
            }
        }
    }
}
