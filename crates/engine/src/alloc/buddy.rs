//! The free space of one group in powers of two.
//!
//! On level `k` a bit is an aligned chunk of 2^k clusters and is set when all of them are free. A
//! chunk that is free on one level is made of two that are free on the level below, so that a
//! change touches a word or two on each level, and a chunk of any size is found by looking at words
//! of its level alone.

use std::ops::Range;

/// Bits of a word.
const WORD: u32 = u64::BITS;

/// Free clusters of a group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Buddy {
    /// Words of all levels, the lowest first.
    words: Box<[u64]>,
    levels: Vec<Level>,
    clusters: u32,
}

/// One level's place among the words.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Level {
    start: usize,
    words: usize,
    /// Set bits.
    chunks: u32,
}

impl Buddy {
    /// The buddy of a group with `clusters` clusters, whose block bitmap is `busy`. Clusters that
    /// `busy` has no bits for are not free.
    pub(crate) fn new(busy: &[u8], clusters: u32) -> Self {
        let mut levels = Vec::new();
        let mut start = 0;
        for order in 0..=clusters.max(1).ilog2() {
            let words = (clusters >> order).div_ceil(WORD) as usize;
            levels.push(Level { start, words, chunks: 0 });
            start += words;
        }
        let mut buddy = Self { words: vec![0; start].into(), levels, clusters };
        let mut bytes = busy.chunks(8);
        for at in 0..buddy.levels[0].words {
            let mut word = [0xff; 8];
            if let Some(chunk) = bytes.next() {
                word[..chunk.len()].copy_from_slice(chunk);
            }
            // A group has at most 2^19 clusters.
            let left = clusters - at as u32 * WORD;
            let mask = if left >= WORD { u64::MAX } else { (1 << left) - 1 };
            buddy.words[at] = !u64::from_le_bytes(word) & mask;
        }
        let lowest = buddy.levels[0].words;
        buddy.levels[0].chunks = buddy.words[..lowest].iter().map(|word| word.count_ones()).sum();
        for order in 1..buddy.levels.len() {
            let words = buddy.levels[order].words;
            buddy.join_words(order, 0..words);
        }
        buddy
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.words.len() * size_of::<u64>() + self.levels.len() * size_of::<Level>()) as u64
    }

    /// Free clusters.
    #[cfg(test)]
    pub(crate) fn free(&self) -> u32 {
        self.levels[0].chunks
    }

    /// The order of the largest free chunk; `None` when nothing is free.
    pub(crate) fn largest_order(&self) -> Option<u32> {
        // At most 20 levels.
        self.levels.iter().rposition(|level| level.chunks > 0).map(|order| order as u32)
    }

    /// The first free chunk of an order that begins in a range of clusters.
    pub(crate) fn chunk_in(&self, order: u32, clusters: Range<u32>) -> Option<u32> {
        let level = self.levels.get(order as usize)?;
        let end = clusters.end.min(self.clusters).div_ceil(1 << order);
        let first = clusters.start.div_ceil(1 << order);
        let words = &self.words[level.start..level.start + level.words];
        next_set(words, first..end).map(|chunk| chunk << order)
    }

    /// The run of free clusters from `at` on, at most `most` of them; empty when it is in use.
    pub(crate) fn run_from(&self, at: u32, most: u32) -> Range<u32> {
        let stop = self.clusters.min(at.saturating_add(most));
        if at >= stop {
            return at..at;
        }
        let words = &self.words[..self.levels[0].words];
        at..next_clear(words, at..stop).unwrap_or(stop)
    }

    /// The whole run of free clusters around one that is free.
    pub(crate) fn run_around(&self, at: u32) -> Range<u32> {
        let end = self.run_from(at, u32::MAX).end;
        let words = &self.words[..self.levels[0].words];
        let start = last_clear(words, at).map_or(0, |busy| busy + 1);
        start.min(at)..end
    }

    /// Whether all clusters of a range are free.
    pub(crate) fn is_free(&self, clusters: &Range<u32>) -> bool {
        self.run_from(clusters.start, clusters.end - clusters.start).end == clusters.end
    }

    /// Clusters are no longer free.
    pub(crate) fn take(&mut self, clusters: Range<u32>) {
        debug_assert!(self.is_free(&clusters), "{clusters:?} are taken twice");
        self.change(clusters, false);
    }

    /// Clusters are free from now on.
    pub(crate) fn give(&mut self, clusters: Range<u32>) {
        self.change(clusters, true);
    }

    fn change(&mut self, clusters: Range<u32>, is_free: bool) {
        if clusters.is_empty() || clusters.end > self.clusters {
            return;
        }
        let (first, last) = (clusters.start / WORD, (clusters.end - 1) / WORD);
        let mut chunks = self.levels[0].chunks;
        for at in first..=last {
            let from = clusters.start.max(at * WORD) - at * WORD;
            let to = clusters.end.min((at + 1) * WORD) - at * WORD;
            let mask = u64::MAX >> (WORD - (to - from)) << from;
            let word = &mut self.words[at as usize];
            chunks -= word.count_ones();
            if is_free {
                *word |= mask;
            } else {
                *word &= !mask;
            }
            chunks += word.count_ones();
        }
        self.levels[0].chunks = chunks;
        for order in 1..self.levels.len() {
            let words = self.levels[order].words;
            // Words of the level; a chunk that the group's end cuts off has none.
            let first = ((clusters.start >> order) / WORD) as usize;
            let last = (((clusters.end - 1) >> order) / WORD) as usize;
            if first >= words || !self.join_words(order, first..(last + 1).min(words)) {
                break;
            }
        }
    }

    /// Recomputes words of a level from those below; returns whether any of them changed.
    fn join_words(&mut self, order: usize, words: Range<usize>) -> bool {
        let below = self.levels[order - 1];
        let start = self.levels[order].start;
        let mut chunks = self.levels[order].chunks;
        let mut has_changed = false;
        for at in words {
            let low = pairs(self.words[below.start + 2 * at]);
            let high = if 2 * at + 1 < below.words {
                pairs(self.words[below.start + 2 * at + 1])
            } else {
                0
            };
            let new = low | high << 32;
            let old = std::mem::replace(&mut self.words[start + at], new);
            has_changed |= old != new;
            chunks = chunks - old.count_ones() + new.count_ones();
        }
        self.levels[order].chunks = chunks;
        has_changed
    }
}

/// Bit `i` is set where bits `2i` and `2i + 1` both are.
fn pairs(word: u64) -> u64 {
    let mut both = word & word >> 1 & 0x5555_5555_5555_5555;
    // Every second bit moves up to its neighbour, then pairs of them, and so on.
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff_u64),
    ] {
        both = (both | both >> shift) & mask;
    }
    both
}

/// The first set bit of a range.
fn next_set(words: &[u64], bits: Range<u32>) -> Option<u32> {
    next(words, bits, 0)
}

/// The first clear bit of a range.
fn next_clear(words: &[u64], bits: Range<u32>) -> Option<u32> {
    next(words, bits, u64::MAX)
}

fn next(words: &[u64], bits: Range<u32>, invert: u64) -> Option<u32> {
    if bits.is_empty() {
        return None;
    }
    let first = bits.start / WORD;
    let mut mask = u64::MAX << (bits.start % WORD);
    for (at, word) in (first..).zip(&words[(first as usize).min(words.len())..]) {
        if at * WORD >= bits.end {
            return None;
        }
        let found = (word ^ invert) & mask;
        if found != 0 {
            return Some(at * WORD + found.trailing_zeros()).filter(|bit| *bit < bits.end);
        }
        mask = u64::MAX;
    }
    None
}

/// The last clear bit below one.
fn last_clear(words: &[u64], before: u32) -> Option<u32> {
    let last = before / WORD;
    let mut mask = !(u64::MAX << (before % WORD));
    for at in (0..=last).rev() {
        let found = !words.get(at as usize)? & mask;
        if found != 0 {
            return Some(at * WORD + (WORD - 1 - found.leading_zeros()));
        }
        mask = u64::MAX;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_ondisk::bitmap;
    use proptest::prelude::*;

    /// The largest free aligned chunk, cluster by cluster.
    fn slow_largest(busy: &[u8], clusters: u32) -> Option<u32> {
        (0..=clusters.ilog2()).rfind(|order| {
            (0..clusters >> order).any(|chunk| {
                let first = chunk << order;
                (first..first + (1 << order)).all(|bit| !bitmap::test(busy, bit))
            })
        })
    }

    fn groups() -> impl Strategy<Value = (Vec<u8>, u32)> {
        let byte = prop_oneof![3 => Just(0_u8), 2 => Just(0xff), 1 => any::<u8>()];
        prop::collection::vec(byte, 1..64).prop_flat_map(|busy| {
            let bits = busy.len() as u32 * 8;
            (Just(busy), 1..=bits)
        })
    }

    proptest! {
        #[test]
        fn a_buddy_knows_its_bitmap((busy, clusters) in groups()) {
            let buddy = Buddy::new(&busy, clusters);
            prop_assert_eq!(buddy.free(), clusters - bitmap::count_set(&busy, 0..clusters));
            prop_assert_eq!(buddy.largest_order(), slow_largest(&busy, clusters));
            for run in bitmap::clear_runs(&busy, 0..clusters) {
                let middle = run.start + (run.end - run.start) / 2;
                prop_assert_eq!(buddy.run_around(middle), run.clone());
                prop_assert_eq!(buddy.run_from(run.start, u32::MAX), run.clone());
                prop_assert_eq!(buddy.run_from(run.start, 1), run.start..run.start + 1);
            }
        }

        #[test]
        fn a_changed_buddy_is_that_of_the_changed_bitmap(
            (mut busy, clusters) in groups(),
            changes in prop::collection::vec((any::<u32>(), 1_u32..100, any::<bool>()), 0..20),
        ) {
            let mut buddy = Buddy::new(&busy, clusters);
            for (at, len, is_free) in changes {
                let start = at % clusters;
                let end = (start + len).min(clusters);
                if is_free {
                    bitmap::clear_range(&mut busy, start..end);
                    buddy.give(start..end);
                } else if bitmap::next_set(&busy, start..end).is_none() {
                    bitmap::set_range(&mut busy, start..end);
                    buddy.take(start..end);
                }
            }
            prop_assert_eq!(buddy, Buddy::new(&busy, clusters));
        }

        #[test]
        fn a_chunk_that_is_found_is_the_first_free_one((busy, clusters) in groups(), order in 0_u32..8, from in 0_u32..512) {
            let buddy = Buddy::new(&busy, clusters);
            let slow = (0..clusters >> order).map(|chunk| chunk << order).find(|first| {
                *first >= from && (*first..first + (1 << order)).all(|bit| !bitmap::test(&busy, bit))
            });
            prop_assert_eq!(buddy.chunk_in(order, from..clusters), slow);
        }
    }

    #[test]
    fn an_empty_group_is_one_chunk_and_what_the_end_cuts_off() {
        let buddy = Buddy::new(&[0; 4096], 32768);
        assert_eq!((buddy.largest_order(), buddy.free()), (Some(15), 32768));
        let buddy = Buddy::new(&[0; 4096], 32767);
        assert_eq!((buddy.largest_order(), buddy.free()), (Some(14), 32767));
        assert_eq!(Buddy::new(&[0xff; 4096], 32768).largest_order(), None);
    }
}
