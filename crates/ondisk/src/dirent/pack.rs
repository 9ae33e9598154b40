//! Records packed into a new block of a directory.

use super::{DirFormat, MAX_NAME_LEN, NewEntry};

/// Packs records into a block, one after the other.
#[derive(Debug)]
pub struct DirPacker<'a> {
    pub(super) format: DirFormat,
    pub(super) block: &'a mut [u8],
    pub(super) end: usize,
    /// Where the last record starts.
    pub(super) last: Option<usize>,
}

impl DirPacker<'_> {
    /// Adds a record; false when it does not fit any more.
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

    /// Lets the last record reach to the end of the room. The block is complete but for the seal.
    pub fn finish(self) {
        if let Some(last) = self.last {
            let rec_len = self.format.room() - last;
            self.format.set_rec_len(self.block, last, rec_len);
        }
    }
}
