//! Which blocks an upper file has.

use std::collections::BTreeSet;
use std::ops::Range;

use extant_device::{Device, DeviceError};

use super::header::{BITMAP_AT, Header};

/// Bytes of the bitmap that are written together: each write is of whole pages.
const PAGE: usize = 4096;
/// Bytes that are read together.
const READ: u64 = 1 << 20;

/// The bitmap in memory. Bits are set and never cleared.
pub(super) struct Blocks {
    bits: Vec<u8>,
    count: u64,
    /// Pages with bits that are not in the file yet.
    dirty: BTreeSet<usize>,
}

impl Blocks {
    pub(super) fn read(header: &Header, upper: &dyn Device) -> Result<Self, DeviceError> {
        let size = header.bitmap_size();
        let mut bits = vec![0; size as usize];
        let mut rest = BITMAP_AT..BITMAP_AT + size;
        while let Some(data) = upper.next_data(rest.clone())? {
            let data = data.start..data.end.min(data.start + READ);
            let place = (data.start - BITMAP_AT) as usize..(data.end - BITMAP_AT) as usize;
            upper.read_at(data.start, &mut bits[place])?;
            rest.start = data.end;
        }
        Ok(Self { bits, count: header.blocks(), dirty: BTreeSet::new() })
    }

    pub(super) fn has(&self, block: u64) -> bool {
        self.bits[(block / 8) as usize] & (1 << (block % 8)) != 0
    }

    pub(super) fn has_all(&self, blocks: Range<u64>) -> bool {
        blocks.is_empty() || self.run(blocks.clone()) == (true, blocks.end)
    }

    /// Whether the file has the first block of a range, and the end of the run that is alike.
    pub(super) fn run(&self, blocks: Range<u64>) -> (bool, u64) {
        let has = self.has(blocks.start);
        let same = if has { 0xff } else { 0 };
        let mut at = blocks.start;
        while at < blocks.end {
            if at.is_multiple_of(8) && self.bits[(at / 8) as usize] == same {
                at += 8;
            } else if self.has(at) == has {
                at += 1;
            } else {
                break;
            }
        }
        (has, at.min(blocks.end))
    }

    pub(super) fn set(&mut self, blocks: Range<u64>) {
        let mut at = blocks.start;
        while at < blocks.end {
            let byte = (at / 8) as usize;
            let is_whole = at.is_multiple_of(8) && at + 8 <= blocks.end;
            let mask = if is_whole { 0xff } else { 1 << (at % 8) };
            if self.bits[byte] & mask != mask {
                self.bits[byte] |= mask;
                self.dirty.insert(byte / PAGE);
            }
            at += if is_whole { 8 } else { 1 };
        }
    }

    /// Takes the pages that the file does not have yet, as they are now.
    pub(super) fn take_dirty(&mut self) -> Vec<(usize, Vec<u8>)> {
        let dirty = std::mem::take(&mut self.dirty);
        let page = |number: usize| {
            let start = number * PAGE;
            (number, self.bits[start..self.bits.len().min(start + PAGE)].to_vec())
        };
        dirty.into_iter().map(page).collect()
    }

    /// Pages that were not written after all.
    pub(super) fn put_back(&mut self, pages: &[(usize, Vec<u8>)]) {
        self.dirty.extend(pages.iter().map(|(number, _)| *number));
    }

    /// The runs of blocks that the file has.
    pub(super) fn runs(&self) -> impl Iterator<Item = Range<u64>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            while at < self.count {
                let start = at;
                let (has, end) = self.run(start..self.count);
                at = end;
                if has {
                    return Some(start..end);
                }
            }
            None
        })
    }
}

/// Writes pages of the bitmap.
pub(super) fn write_pages(
    pages: &[(usize, Vec<u8>)],
    upper: &dyn Device,
) -> Result<(), DeviceError> {
    let mut pages = pages.iter();
    pages.try_for_each(|(number, page)| upper.write_at(BITMAP_AT + (number * PAGE) as u64, page))
}
