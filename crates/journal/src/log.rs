//! Reads and writes of journal blocks by their numbers in the journal.

use std::io::IoSlice;
use std::ops::Range;

use extant_device::{Device, Request};
use extant_ondisk::jbd2::{Header, JournalSuperblock, RawJournalSuperblock};
use extant_ondisk::{Flaw, FormatError, Location, Tid};
use zerocopy::IntoBytes;

use crate::place::beyond;
use crate::{JournalError, JournalLocation};

/// A journal: a device and the location of the journal's blocks on it.
#[derive(Clone, Copy, Debug)]
pub struct Log<'a> {
    /// The volume's device, or the journal's own.
    pub device: &'a dyn Device,
    /// The location of the journal's blocks on the device.
    pub place: &'a JournalLocation,
}

impl Log<'_> {
    /// Block size in bytes.
    pub(crate) fn block_size(&self) -> u32 {
        self.place.block_size
    }

    /// The byte ranges of `count` journal blocks from `at`.
    ///
    /// # Errors
    /// The journal ends before that.
    fn byte_ranges(&self, at: u32, count: u32) -> Result<Vec<Range<u64>>, FormatError> {
        let size = u64::from(self.block_size());
        let (mut ranges, mut found) = (Vec::new(), 0);
        for (start, blocks) in self.place.runs.pieces(at, count) {
            let off_device = || Flaw::above_limit("block", start.0, self.device.size() / size);
            let from = start.0.checked_mul(size);
            let to = from.and_then(|from| from.checked_add(u64::from(blocks) * size));
            let (Some(from), Some(to)) = (from, to) else {
                return Err(off_device().at(Location::JournalBlock(at + found)));
            };
            ranges.push(from..to);
            found += blocks;
        }
        if found != count {
            let end = self.place.runs.blocks_count();
            return Err(beyond(at.saturating_add(found), end));
        }
        Ok(ranges)
    }

    /// Fills `buffer`, whole blocks, from journal block `at` on, without wrapping.
    pub(crate) fn read(&self, at: u32, mut buffer: &mut [u8]) -> Result<(), JournalError> {
        let count = blocks_of(buffer.len(), self.block_size());
        let mut batch = Vec::new();
        for range in self.byte_ranges(at, count)? {
            // No longer than the buffer.
            let (now, later) = buffer.split_at_mut((range.end - range.start) as usize);
            batch.push(Request::read(range.start, now));
            buffer = later;
        }
        Ok(self.device.submit(&mut batch)?)
    }

    /// The writes of `blocks`, each a whole block, to journal blocks from `at` on, without
    /// wrapping.
    pub(crate) fn writes<'b>(
        &self,
        at: u32,
        blocks: &[&'b [u8]],
    ) -> Result<Vec<Request<'b>>, FormatError> {
        let count = u32::try_from(blocks.len()).expect("a log has fewer than 2^32 blocks");
        let (mut batch, mut left) = (Vec::new(), blocks);
        for range in self.byte_ranges(at, count)? {
            let count = (range.end - range.start) / u64::from(self.block_size());
            let (now, later) = left.split_at(count as usize);
            let mut offset = range.start;
            for some in now.chunks(crate::home::MAX_BUFFERS) {
                let buffers = some.iter().map(|bytes| IoSlice::new(bytes)).collect();
                batch.push(Request::write_vectored(offset, buffers));
                offset += some.len() as u64 * u64::from(self.block_size());
            }
            left = later;
        }
        Ok(batch)
    }

    /// Reads and verifies the journal superblock, including that its block size is the volume's and
    /// that the journal has as many blocks as it claims.
    ///
    /// # Errors
    /// The device failed, or a flaw of [`Location::JournalSuperblock`].
    pub fn superblock(&self) -> Result<(RawJournalSuperblock, JournalSuperblock), JournalError> {
        let mut block = vec![0; self.block_size() as usize];
        self.read(self.place.superblock_at, &mut block)?;
        let raw = RawJournalSuperblock::from_bytes(&block)?;
        raw.verify()?;
        let superblock = JournalSuperblock::decode(&raw)?;
        let flaw = if superblock.block_size != self.block_size() {
            Flaw::bad_value("s_blocksize", superblock.block_size)
        } else if superblock.blocks_count > self.place.runs.blocks_count() {
            let (found, limit) = (superblock.blocks_count, self.place.runs.blocks_count());
            Flaw::above_limit("s_maxlen", found, limit)
        } else {
            return Ok((raw, superblock));
        };
        Err(flaw.at(Location::JournalSuperblock).into())
    }

    /// The first transaction number that is safe to use after a log that is not empty is discarded.
    /// It is higher than `least` and all numbers in the log: otherwise the rest of the old log
    /// could continue a new transaction of the same length. Reads the whole log.
    ///
    /// # Errors
    /// The journal ends before the log, or the device failed.
    pub fn first_unused_tid(&self, log: Range<u32>, least: Tid) -> Result<Tid, JournalError> {
        let mut reader = LogReader::new(*self, log.end);
        let mut next = least;
        for at in log {
            if let Some(header) = Header::of(reader.block(at)?)
                && !header.tid.is_before(next)
            {
                // Fast commits have the number after the last transaction's.
                next = header.tid.next().next();
            }
        }
        Ok(next)
    }

    /// Writes the journal superblock: `raw` with the fields of `superblock` and its checksum.
    /// Nothing is flushed.
    pub(crate) fn write_superblock(
        &self,
        raw: &mut RawJournalSuperblock,
        superblock: &JournalSuperblock,
    ) -> Result<(), JournalError> {
        superblock.encode_into(raw);
        raw.seal();
        // All changes, including the checksum, are in the first 512 bytes: one sector, which a
        // power cut does not tear.
        let changed = if self.device.sector_size() <= 512 { 512 } else { raw.as_bytes().len() };
        self.write_superblock_bytes(&raw.as_bytes()[..changed])
    }

    /// Writes the first bytes of the journal superblock. Nothing is flushed.
    pub(crate) fn write_superblock_bytes(&self, bytes: &[u8]) -> Result<(), JournalError> {
        let start =
            self.byte_ranges(self.place.superblock_at, 1)?.first().map_or(0, |range| range.start);
        Ok(self.device.write_at(start, bytes)?)
    }
}

fn blocks_of(length: usize, block_size: u32) -> u32 {
    u32::try_from(length / block_size as usize).expect("a log has fewer than 2^32 blocks")
}

/// Reads a log block by block, with readahead for sequential reads.
pub(crate) struct LogReader<'a> {
    log: Log<'a>,
    /// The end of the log, where readahead ends.
    end: u32,
    window: Vec<u8>,
    from: u32,
    held: u32,
}

/// Readahead in bytes.
const WINDOW: u32 = 1 << 20;

impl<'a> LogReader<'a> {
    /// Creates a reader that ends at journal block `end`.
    pub(crate) fn new(log: Log<'a>, end: u32) -> Self {
        Self { log, end, window: Vec::new(), from: 0, held: 0 }
    }

    /// Returns a block of the log.
    pub(crate) fn block(&mut self, at: u32) -> Result<&[u8], JournalError> {
        let size = self.log.block_size() as usize;
        if at < self.from || at - self.from >= self.held {
            let count =
                (WINDOW / self.log.block_size()).max(1).min(self.end.saturating_sub(at)).max(1);
            self.held = 0;
            self.window.resize(count as usize * size, 0);
            self.log.read(at, &mut self.window)?;
            (self.from, self.held) = (at, count);
        }
        let start = (at - self.from) as usize * size;
        Ok(&self.window[start..start + size])
    }
}
