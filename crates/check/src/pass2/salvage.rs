//! A chain of records that breaks: what can be followed again is kept.

use super::block::{Chain, Record, SHORTEST, record_at};
use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use crate::tables::{DirFlags, Kind};
use extant_ondisk::InodeNo;
use extant_ondisk::dirent::{DirFormat, RawDirEntry};
use std::ops::Range;
use zerocopy::FromBytes;

pub(crate) fn set_rec_len(bytes: &mut [u8], at: usize, rec_len: usize, format: &DirFormat) {
    if let Some(rest) = bytes.get_mut(at..)
        && let Ok((raw, _)) = RawDirEntry::mut_from_prefix(rest)
    {
        raw.rec_len.set(format.encode_rec_len(rec_len));
    }
}

impl Check<'_> {
    /// Makes the record at `at` one that can be followed, or lets the one before it take its place.
    pub(super) fn salvage(
        &self,
        chain: &mut Chain<'_>,
        bytes: &mut [u8],
        at: usize,
        before: Option<usize>,
    ) {
        let format = chain.format;
        let left = chain.end - at;
        let before = before.and_then(|before| record_at(bytes, before, &chain.format));
        let broken = record_at(bytes, at, &chain.format);
        if let Some(length) = self.length_by_names(chain, bytes, at) {
            set_rec_len(bytes, at, length, &format);
            return;
        }
        if let Some(next) = self.next_chain(chain, bytes, at) {
            self.bridge(chain, bytes, at..next, before);
            return;
        }
        if let Some(record) = broken {
            let needed = record.name_len + 8;
            // A name that fits, with a length that runs past the end: the length is cut.
            let runs_over = record.rec_len > left;
            if runs_over && needed <= left && left >= 12 && record.name_len > 0 && record.inode != 0
            {
                set_rec_len(bytes, at, left, &format);
                return;
            }
            // A length that leads on: the record before takes the place.
            if let Some(before) = before
                && record.rec_len.is_multiple_of(4)
                && record.rec_len >= 4
                && record.rec_len <= left
            {
                set_rec_len(bytes, before.at, before.rec_len + record.rec_len, &format);
                return;
            }
        }
        // A bare header at the start: the bytes after it move up to it.
        if before.is_none() && broken.is_some_and(|record| record.rec_len == 8) && left >= 8 + 12 {
            bytes.copy_within(at + 8..chain.end, at);
            bytes[chain.end - 8..chain.end].fill(0);
            return;
        }
        // Nothing leads on from here: a name keeps the rest of the block, or else the record before
        // gets it.
        if broken.is_some_and(|it| it.name_len + 8 <= left && self.is_name(chain, bytes, &it)) {
            set_rec_len(bytes, at, left, &format);
            return;
        }
        match before {
            Some(before) => {
                set_rec_len(bytes, before.at, before.rec_len + left, &format);
            }
            None if left >= 12 => {
                bytes[at..at + 8].fill(0);
                set_rec_len(bytes, at, left, &format);
            }
            None => {}
        }
    }

    /// The length that the name of a broken record needs, if another name follows it, whatever that
    /// record's length is.
    fn length_by_names(&self, chain: &Chain<'_>, bytes: &[u8], at: usize) -> Option<usize> {
        let broken = record_at(bytes, at, &chain.format)?;
        let length = (broken.name_len + 8).next_multiple_of(4);
        let next = record_at(bytes, at + length, &chain.format)?;
        let fits = next.at + next.name_len + 8 <= chain.end;
        (fits && self.is_name(chain, bytes, &broken) && self.is_name(chain, bytes, &next))
            .then_some(length)
    }

    /// The offset where records begin again after a broken one: with a name of an inode in use that
    /// has no more room than it needs, or that leads to a record or to the end. If none is found
    /// after one record, later ones have none either.
    fn next_chain(&self, chain: &mut Chain<'_>, bytes: &[u8], at: usize) -> Option<usize> {
        if chain.is_searched {
            return None;
        }
        for place in (at + SHORTEST..chain.end).step_by(4) {
            let Some(record) = record_at(bytes, place, &chain.format) else { break };
            if record.can_be(chain.end)
                && (record.rec_len == (record.name_len + 8).next_multiple_of(4)
                    || self.leads_on(chain, bytes, &record))
                && self.is_name(chain, bytes, &record)
            {
                return Some(place);
            }
        }
        chain.is_searched = true;
        None
    }

    /// Whether a record ends where another one begins, or where all end.
    fn leads_on(&self, chain: &Chain<'_>, bytes: &[u8], record: &Record) -> bool {
        let next = record.at + record.rec_len;
        next == chain.end
            || record_at(bytes, next, &chain.format).is_some_and(|next| {
                next.can_be(chain.end) && next.inode <= self.geometry.inodes_count
            })
    }

    /// Whether a record names an inode that pass 1 found in use, as one of its type.
    fn is_name(&self, chain: &Chain<'_>, bytes: &[u8], record: &Record) -> bool {
        let name = record.name(bytes);
        let is_encrypted = chain.dir.has(DirFlags::ENCRYPTED);
        let is_possible = self.is_nameable(InodeNo(record.inode))
            && !name.is_empty()
            && name.len() == record.name_len
            && (is_encrypted || !name.iter().any(|byte| matches!(byte, 0 | b'/')));
        if !is_possible {
            return false;
        }
        let kind = self.kind_in_use(InodeNo(record.inode)).ok().flatten();
        kind.is_some_and(|kind| {
            !chain.format.has_filetype || kind == Kind::decode(record.file_type)
        })
    }

    /// The type of an inode in use, below or beyond the mark of its group.
    fn kind_in_use(&self, ino: InodeNo) -> Result<Option<Kind>, CheckError> {
        if self.inodes.is_used(ino) {
            return self.kind_of(ino);
        }
        if !self.inodes.is_in_window(ino) {
            return Ok(None);
        }
        self.kind_past_mark(ino)
    }

    /// Makes what is broken lead to the next record: under its own name where that is left, else as
    /// part of the one before.
    fn bridge(
        &self,
        chain: &Chain<'_>,
        bytes: &mut [u8],
        broken: Range<usize>,
        before: Option<Record>,
    ) {
        let format = chain.format;
        let length = broken.end - broken.start;
        let own = record_at(bytes, broken.start, &chain.format).filter(|record| {
            let is_dot = chain.has_dots && broken.start < 2 * SHORTEST;
            record.name_len + 8 <= length && (is_dot || self.is_name(chain, bytes, record))
        });
        match (own, before) {
            (None, Some(before)) => {
                set_rec_len(bytes, before.at, before.rec_len + length, &format);
            }
            (own, _) => {
                if own.is_none() {
                    bytes[broken.start..broken.start + 8].fill(0);
                }
                set_rec_len(bytes, broken.start, length, &format);
            }
        }
    }

    /// A block with fewer than two records has no room for `.` or `..`: reported here; salvage has
    /// made what fits.
    pub(super) fn report_missing_dots(
        &self,
        chain: &mut Chain<'_>,
        records: u32,
    ) -> Result<(), CheckError> {
        chain.is_flawed = true;
        if records == 0 {
            self.report(Finding::new(Code::MissingDot).dir(chain.dir.inode))?;
        }
        self.report(Finding::new(Code::MissingDotDot).dir(chain.dir.inode))
    }
}
