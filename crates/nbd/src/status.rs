//! Which bytes of an export are zeroes, as the server answers.

use std::collections::BTreeMap;

use crate::transmission::Extent;

/// Number of extents that are kept.
const KEPT: usize = 64 << 10;

/// The extents of block statuses, until the export is changed.
#[derive(Default)]
pub(crate) struct Statuses {
    /// The first byte of an extent, to its end and whether it is zeroes.
    extents: BTreeMap<u64, (u64, bool)>,
    changes: u64,
}

impl Statuses {
    /// Number of changes of the export so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// The export is changed: nothing is known.
    pub(crate) fn forget(&mut self) {
        self.changes += 1;
        self.extents.clear();
    }

    /// Keeps the extents from `start` on, which the server has told, if the export was not changed
    /// since there were `changes`.
    pub(crate) fn keep(&mut self, changes: u64, start: u64, extents: &[Extent]) {
        if changes != self.changes {
            return;
        }
        if self.extents.len() > KEPT {
            self.extents.clear();
        }
        let mut at = start;
        let mut told = BTreeMap::new();
        for extent in extents {
            let end = at.saturating_add(extent.length);
            told.insert(at, (end, extent.is_zero));
            at = end;
        }
        let older: Vec<u64> = self.extents.range(start..at).map(|(start, _)| *start).collect();
        for start in older {
            self.extents.remove(&start);
        }
        self.extents.append(&mut told);
    }

    /// Whether the bytes from `at` on are zeroes, and where that ends.
    pub(crate) fn at(&self, at: u64) -> Option<(bool, u64)> {
        let (_, (end, is_zero)) = self.extents.range(..=at).next_back()?;
        (*end > at).then_some((*is_zero, *end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(lengths: &[(u64, bool)]) -> Vec<Extent> {
        lengths.iter().map(|&(length, is_zero)| Extent { length, is_zero }).collect()
    }

    #[test]
    fn the_newest_status_of_a_byte_is_known() {
        let mut statuses = Statuses::default();
        statuses.keep(0, 100, &extents(&[(10, true), (20, false)]));
        assert_eq!(statuses.at(99), None);
        assert_eq!(statuses.at(105), Some((true, 110)));
        assert_eq!(statuses.at(129), Some((false, 130)));
        assert_eq!(statuses.at(130), None);
        // One that begins before what is known, and covers it.
        statuses.keep(0, 0, &extents(&[(1000, true)]));
        assert_eq!(statuses.at(120), Some((true, 1000)));
        // One in the middle.
        statuses.keep(0, 500, &extents(&[(10, false)]));
        assert_eq!(statuses.at(505), Some((false, 510)));
        assert_eq!(statuses.at(400), Some((true, 1000)));
    }

    #[test]
    fn what_was_told_before_a_change_is_not_kept() {
        let mut statuses = Statuses::default();
        let before = statuses.changes();
        statuses.forget();
        statuses.keep(before, 0, &extents(&[(1000, true)]));
        assert_eq!(statuses.at(0), None);
        statuses.keep(statuses.changes(), 0, &extents(&[(1000, true)]));
        assert_eq!(statuses.at(0), Some((true, 1000)));
        statuses.forget();
        assert_eq!(statuses.at(0), None);
    }
}
