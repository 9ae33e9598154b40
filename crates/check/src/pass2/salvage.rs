//! A chain of records that breaks: what can be followed again is kept.

use super::block::{Chain, encode_rec_len, record_at};
use crate::check::Check;
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use extant_ondisk::dirent::RawDirEntry;
use zerocopy::FromBytes;

pub(crate) fn set_rec_len(bytes: &mut [u8], at: usize, rec_len: usize, block_len: usize) {
    if let Some(rest) = bytes.get_mut(at..)
        && let Ok((raw, _)) = RawDirEntry::mut_from_prefix(rest)
    {
        raw.rec_len.set(encode_rec_len(rec_len, block_len));
    }
}

impl Check<'_> {
    /// Makes the record at `at` one that can be followed, or lets the one before it take its place.
    pub(super) fn salvage(
        &self,
        chain: &Chain<'_>,
        bytes: &mut [u8],
        at: usize,
        before: Option<usize>,
    ) {
        let block_len = chain.format.block_len;
        let left = chain.end - at;
        let before = before.and_then(|before| record_at(bytes, before, &chain.format));
        let broken = record_at(bytes, at, &chain.format);
        if let Some(record) = broken {
            let needed = record.name_len + 8;
            // A name that fits, with a length that runs past the end: the length is cut.
            let runs_over = record.rec_len > left;
            if runs_over && needed <= left && left >= 12 && record.name_len > 0 && record.inode != 0
            {
                set_rec_len(bytes, at, left, block_len);
                return;
            }
            // A length that leads on: the record before takes the place.
            if let Some(before) = before
                && record.rec_len.is_multiple_of(4)
                && record.rec_len >= 4
                && record.rec_len <= left
            {
                set_rec_len(bytes, before.at, before.rec_len + record.rec_len, block_len);
                return;
            }
        }
        // A bare header at the front: what follows moves up to it.
        if before.is_none() && broken.is_some_and(|record| record.rec_len == 8) && left >= 8 + 12 {
            bytes.copy_within(at + 8..chain.end, at);
            bytes[chain.end - 8..chain.end].fill(0);
            return;
        }
        // Nothing leads on from here.
        match before {
            Some(before) => {
                set_rec_len(bytes, before.at, before.rec_len + left, block_len);
            }
            None if left >= 12 => {
                bytes[at..at + 8].fill(0);
                set_rec_len(bytes, at, left, block_len);
            }
            None => {}
        }
    }

    /// A block with fewer than two records has no room for `.` or `..`: it is told; salvage has made what there is.
    pub(super) fn tell_missing_dots(
        &self,
        chain: &mut Chain<'_>,
        records: u32,
    ) -> Result<(), CheckError> {
        chain.is_flawed = true;
        if records == 0 {
            self.tell(Finding::new(Code::MissingDot).dir(chain.dir.inode))?;
        }
        self.tell(Finding::new(Code::MissingDotDot).dir(chain.dir.inode))
    }
}
