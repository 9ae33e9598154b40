//! A file's content with its holes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Page size in bytes: the smallest block size of the format.
const PAGE: u64 = 1024;

/// Bytes that are zero except for some pages. Clones share their pages.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Content {
    /// No page is all zeros.
    pages: BTreeMap<u64, Arc<[u8]>>,
}

impl Content {
    /// Writes bytes at an offset.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut at = offset;
        let mut left = bytes;
        while !left.is_empty() {
            let (page, within) = (at / PAGE, (at % PAGE) as usize);
            let count = left.len().min(PAGE as usize - within);
            self.change(page, |old| old[within..within + count].copy_from_slice(&left[..count]));
            left = &left[count..];
            at += count as u64;
        }
    }

    /// Zeros a range.
    pub fn zero(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let touched = range.start / PAGE..=(range.end - 1) / PAGE;
        let pages: Vec<u64> = self.pages.range(touched).map(|(page, _)| *page).collect();
        for page in pages {
            let start = range.start.max(page * PAGE) - page * PAGE;
            let end = range.end.min((page + 1) * PAGE) - page * PAGE;
            self.change(page, |old| old[start as usize..end as usize].fill(0));
        }
    }

    /// Removes a range; later content moves down. Whole pages.
    pub fn collapse(&mut self, range: Range<u64>) {
        assert!(range.start.is_multiple_of(PAGE) && range.end.is_multiple_of(PAGE), "{range:?}");
        self.zero(range.clone());
        let moved = self.pages.split_off(&(range.start / PAGE));
        let by = (range.end - range.start) / PAGE;
        self.pages.extend(moved.into_iter().map(|(page, bytes)| (page - by, bytes)));
    }

    /// Inserts zeros; later content moves up. Whole pages.
    pub fn insert(&mut self, offset: u64, len: u64) {
        assert!(offset.is_multiple_of(PAGE) && len.is_multiple_of(PAGE), "{offset} {len}");
        let moved = self.pages.split_off(&(offset / PAGE));
        self.pages.extend(moved.into_iter().map(|(page, bytes)| (page + len / PAGE, bytes)));
    }

    /// The bytes of a range.
    pub fn read(&self, range: Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.fill(range.start, &mut bytes);
        bytes
    }

    /// The bytes from an offset on.
    pub fn fill(&self, offset: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        let end = offset + bytes.len() as u64;
        for (page, content) in self.pages.range(offset / PAGE..end.div_ceil(PAGE)) {
            let from = offset.max(page * PAGE);
            let to = end.min((page + 1) * PAGE);
            bytes[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&content[(from - page * PAGE) as usize..][..(to - from) as usize]);
        }
    }

    /// Whether a range is all zeros.
    pub fn is_zero(&self, range: Range<u64>) -> bool {
        range.is_empty()
            || self.pages.range(range.start / PAGE..=(range.end - 1) / PAGE).all(|(page, bytes)| {
                let start = range.start.max(page * PAGE) - page * PAGE;
                let end = range.end.min((page + 1) * PAGE) - page * PAGE;
                bytes[start as usize..end as usize].iter().all(|byte| *byte == 0)
            })
    }

    /// Ranges outside of which all bytes are zero.
    pub fn ranges(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for page in self.pages.keys() {
            match ranges.last_mut() {
                Some(last) if last.end == page * PAGE => last.end += PAGE,
                _ => ranges.push(page * PAGE..(page + 1) * PAGE),
            }
        }
        ranges
    }

    fn change(&mut self, page: u64, change: impl FnOnce(&mut [u8])) {
        let mut bytes = match self.pages.get(&page) {
            Some(old) => old.to_vec(),
            None => vec![0; PAGE as usize],
        };
        change(&mut bytes);
        if bytes.iter().all(|byte| *byte == 0) {
            self.pages.remove(&page);
        } else {
            self.pages.insert(page, bytes.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_move_with_ranges() {
        let mut content = Content::default();
        content.write(1000, &[7; 2000]);
        assert_eq!(content.ranges().first(), Some(&(0..3072)));
        content.insert(1024, 2048);
        assert_eq!(content.read(998..1002), [0, 0, 7, 7]);
        assert!(content.is_zero(1024..3072) && !content.is_zero(1024..3073));
        assert_eq!(content.read(5046..5050), [7, 7, 0, 0]);
        content.collapse(1024..3072);
        assert_eq!(content.read(1000..3000), [7; 2000]);
        content.zero(500..2048);
        assert_eq!(content.ranges().first(), Some(&(2048..3072)));
    }
}
