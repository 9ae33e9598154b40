//! Packing of entries into a new directory block.

use super::{DirFormat, MAX_NAME_LEN, NewEntry};

/// Packs entries into a block in sequence.
#[derive(Debug)]
pub struct DirPacker<'a> {
    pub(super) format: DirFormat,
    pub(super) block: &'a mut [u8],
    pub(super) end: usize,
    /// Position of the last entry.
    pub(super) last: Option<usize>,
}

impl DirPacker<'_> {
    /// Adds an entry. Returns false if it does not fit.
    pub fn push(&mut self, new: &NewEntry<'_>) -> bool {
        let rec_len = self.format.rec_len_of(new.name);
        if new.name.is_empty()
            || new.name.len() > MAX_NAME_LEN
            || self.format.room() - self.end < rec_len
        {
            return false;
        }
        self.format.write(&mut self.block[self.end..self.end + rec_len], rec_len, new);
        self.last = Some(self.end);
        self.end += rec_len;
        true
    }

    /// Extends the last entry to the end of the room. Only the checksum is not set.
    pub fn finish(self) {
        if let Some(last) = self.last {
            let rec_len = self.format.room() - last;
            self.format.set_rec_len(self.block, last, rec_len);
        }
    }
}
