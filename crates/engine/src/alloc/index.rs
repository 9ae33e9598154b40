//! Groups by the order of their largest free chunk: one is chosen by looking at a few words,
//! however many there are.
//!
//! Unknown groups are taken for empty: the first lookup of a group's descriptor or bitmap corrects
//! it. So nothing of the groups is read when the volume is opened, and each group is misjudged once
//! at most.

use crate::growable::Growable;
use extant_ondisk::GroupNo;
use extant_runtime::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::ops::Range;
use std::sync::OnceLock;

/// Bits of a word.
const WORD: u32 = u64::BITS;

/// A set of groups: bits, and above them levels of bits that summarize them. Changed without a
/// lock: a reader may miss a group that is added at the same time, nothing else.
///
/// It is made longer by further sets, each at least as long as all before it.
#[derive(Debug)]
pub(crate) struct GroupSet {
    /// The lowest first; the last one is a single word.
    levels: Vec<Box<[AtomicU64]>>,
    /// Number of groups that it has room for.
    room: u32,
    /// The groups after these.
    next: OnceLock<Box<Self>>,
}

impl GroupSet {
    /// A set for `groups` groups, with all of them or none.
    pub(crate) fn new(groups: u32, is_full: bool) -> Self {
        let mut levels = Vec::new();
        let mut bits = groups.max(1);
        loop {
            let words = bits.div_ceil(WORD);
            let word = |at: u32| {
                let left = bits - at * WORD;
                let all = if left >= WORD { u64::MAX } else { (1 << left) - 1 };
                AtomicU64::new(if is_full { all } else { 0 })
            };
            levels.push((0..words).map(word).collect());
            if words == 1 {
                return Self { levels, room: groups.max(1), next: OnceLock::new() };
            }
            bits = words;
        }
    }

    /// Makes room for `groups` groups. One thread at a time does.
    pub(crate) fn grow(&self, groups: u32) {
        let (mut set, mut room) = (self, self.room);
        while let Some(next) = set.next.get() {
            room += next.room;
            set = next;
        }
        if groups > room {
            let added = (groups - room).max(room).min(u32::MAX - room);
            set.next.get_or_init(|| Box::new(Self::new(added, false)));
        }
    }

    /// The set that has room for a group, and the group's number in it.
    #[inline]
    fn part_of(&self, group: u32) -> Option<(&Self, u32)> {
        let (mut set, mut at) = (self, group);
        while at >= set.room {
            at -= set.room;
            set = set.next.get()?;
        }
        Some((set, at))
    }

    /// Adds a group.
    pub(crate) fn insert(&self, group: GroupNo) {
        if let Some((set, at)) = self.part_of(group.0) {
            set.mark(0, at);
        }
    }

    /// Sets a bit of a level, and those above it.
    fn mark(&self, from: usize, mut at: u32) {
        for level in &self.levels[from..] {
            level[(at / WORD) as usize].fetch_or(1 << (at % WORD), Ordering::SeqCst);
            at /= WORD;
        }
    }

    /// Takes a group out.
    pub(crate) fn remove(&self, group: GroupNo) {
        if let Some((set, at)) = self.part_of(group.0) {
            set.remove_here(at);
        }
    }

    fn remove_here(&self, mut at: u32) {
        for (number, level) in self.levels.iter().enumerate() {
            let bit = 1 << (at % WORD);
            let left = level[(at / WORD) as usize].fetch_and(!bit, Ordering::SeqCst) & !bit;
            if number > 0 && self.levels[number - 1][at as usize].load(Ordering::SeqCst) != 0 {
                // Another thread has added a group below at the same time.
                self.mark(number, at);
                return;
            }
            if left != 0 {
                return;
            }
            at /= WORD;
        }
    }

    /// The first group of a range.
    pub(crate) fn next_in(&self, groups: Range<u32>) -> Option<GroupNo> {
        let (mut set, mut first) = (self, 0);
        loop {
            // The room of all sets together has 32 bits.
            let end = first + set.room;
            if groups.start < end {
                let here = groups.start.max(first) - first..groups.end.min(end) - first;
                if let Some(found) = set.next_here(here) {
                    return Some(GroupNo(first + found.0));
                }
            }
            if groups.end <= end {
                return None;
            }
            (set, first) = (set.next.get()?, end);
        }
    }

    fn next_here(&self, groups: Range<u32>) -> Option<GroupNo> {
        let (mut number, mut at) = (0, groups.start);
        // Up to a level with a set bit, down to it; further on if it was cleared at the same time.
        loop {
            let word = self.levels.get(number)?.get((at / WORD) as usize)?.load(Ordering::SeqCst);
            let rest = word & u64::MAX << (at % WORD);
            if rest == 0 {
                at = at / WORD + 1;
                number += 1;
                continue;
            }
            at = at / WORD * WORD + rest.trailing_zeros();
            if number == 0 {
                return Some(GroupNo(at)).filter(|group| group.0 < groups.end);
            }
            number -= 1;
            at *= WORD;
        }
    }

    /// Whether a group is in it.
    #[cfg(test)]
    fn contains(&self, group: GroupNo) -> bool {
        self.next_in(group.0..group.0 + 1).is_some()
    }
}

/// The groups by the order of their largest free chunk, as far as it is known.
#[derive(Debug)]
pub(crate) struct OrderIndex {
    /// For each group the order and one; 0 for a full group.
    orders: Growable<AtomicU8>,
    /// The groups of each order.
    sets: Vec<GroupSet>,
}

impl OrderIndex {
    /// An index of groups that are all taken for empty: their largest chunk is of order `largest`.
    pub(crate) fn new(groups: u32, largest: u32) -> Self {
        // At most 19.
        let stored = largest as u8 + 1;
        Self {
            orders: Growable::new(groups as usize, |_| AtomicU8::new(stored)),
            sets: (0..=largest).map(|order| GroupSet::new(groups, order == largest)).collect(),
        }
    }

    /// Adds groups, taken for empty, up to a number of all. One thread at a time does.
    pub(crate) fn grow(&self, groups: Range<u32>) {
        self.orders.grow(groups.end as usize, |_| AtomicU8::new(0));
        self.sets.iter().for_each(|set| set.grow(groups.end));
        groups.for_each(|group| self.set(GroupNo(group), Some(self.top())));
    }

    /// The order of an empty group.
    pub(crate) fn top(&self) -> u32 {
        // At most 20 sets.
        self.sets.len() as u32 - 1
    }

    /// The order that a group is filed under.
    pub(crate) fn order(&self, group: GroupNo) -> Option<u32> {
        let stored = self.orders.get(group.0 as usize)?.load(Ordering::Relaxed);
        u32::from(stored).checked_sub(1)
    }

    /// Files a group under its new order. The caller holds its lock.
    pub(crate) fn set(&self, group: GroupNo, order: Option<u32>) {
        let Some(slot) = self.orders.get(group.0 as usize) else { return };
        let order = order.map(|order| order.min(self.top()));
        // At most 20.
        let stored = order.map_or(0, |order| order as u8 + 1);
        let before = slot.load(Ordering::Relaxed);
        if before == stored {
            return;
        }
        slot.store(stored, Ordering::Relaxed);
        // Inserted before it is removed, so that no search misses it.
        if let Some(order) = order {
            self.sets[order as usize].insert(group);
        }
        if let Some(order) = u32::from(before).checked_sub(1) {
            self.sets[order as usize].remove(group);
        }
    }

    /// A group has a free chunk of this order, perhaps a larger one. The caller holds its lock.
    pub(crate) fn raise(&self, group: GroupNo, order: u32) {
        if self.order(group).is_none_or(|known| known < order) {
            self.set(group, Some(order));
        }
    }

    /// The first group of a range whose order lies in `orders`.
    pub(crate) fn next_in(&self, orders: Range<u32>, groups: Range<u32>) -> Option<GroupNo> {
        let mut end = groups.end;
        let mut first = None;
        for set in &self.sets[(orders.start as usize).min(self.sets.len())..]
            [..(orders.end.min(self.top() + 1).saturating_sub(orders.start)) as usize]
        {
            if let Some(found) = set.next_in(groups.start..end) {
                (first, end) = (Some(found), found.0);
            }
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_set_finds_what_was_put_in(
            groups in prop_oneof![1_u32..200, 4_000_u32..10_000],
            is_full in any::<bool>(),
            changes in prop::collection::vec((any::<u32>(), any::<bool>()), 0..100),
            from in any::<u32>(),
        ) {
            let set = GroupSet::new(groups, is_full);
            let mut model: BTreeSet<u32> = BTreeSet::new();
            if is_full {
                model.extend(0..groups);
            }
            for (group, adds) in changes {
                let group = group % groups;
                if adds {
                    set.insert(GroupNo(group));
                    model.insert(group);
                } else {
                    set.remove(GroupNo(group));
                    model.remove(&group);
                }
                prop_assert_eq!(set.contains(GroupNo(group)), adds);
            }
            let from = from % groups;
            let next = model.range(from..).next().map(|group| GroupNo(*group));
            prop_assert_eq!(set.next_in(from..groups), next);
            let near = next.filter(|group| group.0 < from + 10);
            prop_assert_eq!(set.next_in(from..from + 10), near);
        }
    }

    #[test]
    fn a_set_that_was_emptied_is_empty_on_all_levels() {
        let set = GroupSet::new(10_000, true);
        for group in 0..10_000 {
            set.remove(GroupNo(group));
        }
        assert_eq!(set.next_in(0..10_000), None);
        assert!(set.levels.iter().flatten().all(|word| word.load(Ordering::Relaxed) == 0));
        set.insert(GroupNo(9_999));
        assert_eq!(set.next_in(0..10_000), Some(GroupNo(9_999)));
    }

    #[test]
    fn groups_that_are_added_are_found_and_those_before_stay() {
        let index = OrderIndex::new(3, 15);
        index.set(GroupNo(1), Some(4));
        let mut count = 3;
        for added in [1, 2, 700, 1, 5000] {
            index.grow(count..count + added);
            index.set(GroupNo(count), None);
            count += added;
        }
        assert_eq!(index.order(GroupNo(1)), Some(4));
        assert_eq!(index.next_in(4..5, 0..count), Some(GroupNo(1)));
        // Groups 3, 4, 6, 706 and 707 are full.
        let empty = |from| index.next_in(15..16, from..count);
        assert_eq!(empty(3), Some(GroupNo(5)));
        assert_eq!(empty(6), Some(GroupNo(7)));
        assert_eq!(empty(706), Some(GroupNo(708)));
        assert_eq!(empty(count - 1), Some(GroupNo(count - 1)));
        assert_eq!(index.next_in(0..16, count..count + 100), None);
    }

    #[test]
    fn the_nearest_group_of_any_order_asked_for_is_found() {
        let index = OrderIndex::new(1000, 15);
        assert_eq!(index.next_in(9..16, 5..1000), Some(GroupNo(5)));
        for group in 0..1000 {
            index.set(GroupNo(group), (group > 0).then_some(group % 8));
        }
        assert_eq!(index.next_in(9..16, 0..1000), None);
        assert_eq!(index.next_in(6..16, 0..1000), Some(GroupNo(6)));
        assert_eq!(index.next_in(6..16, 7..1000), Some(GroupNo(7)));
        assert_eq!(index.next_in(0..1, 0..1000), Some(GroupNo(8)));
        index.raise(GroupNo(0), 3);
        index.raise(GroupNo(7), 3);
        assert_eq!((index.order(GroupNo(0)), index.order(GroupNo(7))), (Some(3), Some(7)));
    }
}
