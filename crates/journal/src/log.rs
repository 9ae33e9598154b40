//! The journal's blocks as one row: reading and writing them, wherever they lie.

use std::io::IoSlice;
use std::ops::Range;

use extant_device::{Device, Request};
use extant_ondisk::jbd2::{Header, JournalSuperblock, RawJournalSuperblock};
use extant_ondisk::{Flaw, FormatError, Place, Tid};
use zerocopy::IntoBytes;

use crate::place::beyond;
use crate::{JournalError, JournalPlace};

/// A journal: a device and the runs of its blocks there.
#[derive(Clone, Copy, Debug)]
pub struct Log<'a> {
    /// The volume's device, or the journal's own.
    pub device: &'a dyn Device,
    /// Where the journal's blocks lie on it.
    pub place: &'a JournalPlace,
}

impl Log<'_> {
    /// Bytes a block.
    pub(crate) fn block_size(&self) -> u32 {
        self.place.block_size
    }

    /// The byte ranges of `count` journal blocks from `at`.
    ///
    /// # Errors
    /// The journal does not reach so far.
    fn byte_ranges(&self, at: u32, count: u32) -> Result<Vec<Range<u64>>, FormatError> {
        let size = u64::from(self.block_size());
        let (mut ranges, mut found) = (Vec::new(), 0);
        for (start, blocks) in self.place.runs.pieces(at, count) {
            let off_device = || Flaw::above_limit("block", start.0, self.device.size() / size);
            let from = start.0.checked_mul(size);
            let to = from.and_then(|from| from.checked_add(u64::from(blocks) * size));
            let (Some(from), Some(to)) = (from, to) else {
                return Err(off_device().at(Place::JournalBlock(at + found)));
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

    /// Fills `buffer`, whole blocks, from journal block `at` on. The log does not wrap here.
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

    /// The writes of `blocks`, each a whole block, to journal block `at` and those after it. The log does not wrap here.
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

    /// Reads and checks the superblock of the journal: also that its block size is the volume's and that the journal has
    /// the blocks it speaks of.
    ///
    /// # Errors
    /// The device failed, or a flaw of [`Place::JournalSuperblock`].
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
        Err(flaw.at(Place::JournalSuperblock).into())
    }

    /// The first number that a new transaction may have where a log is given up that holds some: it lies behind `least` and all
    /// numbers in the log, else what is left of those would go on where a new transaction of the same length ends. All of it is read.
    ///
    /// # Errors
    /// The journal does not reach so far, or the device failed.
    pub fn first_unused_tid(&self, log: Range<u32>, least: Tid) -> Result<Tid, JournalError> {
        let mut reader = LogReader::new(*self, log.end);
        let mut next = least;
        for at in log {
            if let Some(header) = Header::of(reader.block(at)?)
                && !header.tid.is_before(next)
            {
                // Fast commits have the number behind the last transaction's.
                next = header.tid.next().next();
            }
        }
        Ok(next)
    }

    /// Writes the superblock of the journal: `raw` with the fields of `superblock`, sealed. Nothing is flushed.
    pub(crate) fn write_superblock(
        &self,
        raw: &mut RawJournalSuperblock,
        superblock: &JournalSuperblock,
    ) -> Result<(), JournalError> {
        superblock.encode_into(raw);
        raw.seal();
        // All that changes, checksum included, lies in the first 512 bytes: one sector, which power loss does not tear.
        let changed = if self.device.sector_size() <= 512 { 512 } else { raw.as_bytes().len() };
        self.write_superblock_bytes(&raw.as_bytes()[..changed])
    }

    /// Writes the first bytes of the journal's superblock. Nothing is flushed.
    pub(crate) fn write_superblock_bytes(&self, bytes: &[u8]) -> Result<(), JournalError> {
        let start =
            self.byte_ranges(self.place.superblock_at, 1)?.first().map_or(0, |range| range.start);
        Ok(self.device.write_at(start, bytes)?)
    }
}

fn blocks_of(length: usize, block_size: u32) -> u32 {
    u32::try_from(length / block_size as usize).expect("a log has fewer than 2^32 blocks")
}

/// Reads a log block by block, ahead where it goes on.
pub(crate) struct LogReader<'a> {
    log: Log<'a>,
    /// The window ends where the log does.
    end: u32,
    window: Vec<u8>,
    from: u32,
    held: u32,
}

/// Bytes read ahead.
const WINDOW: u32 = 1 << 20;

impl<'a> LogReader<'a> {
    /// Reads up to journal block `end`.
    pub(crate) fn new(log: Log<'a>, end: u32) -> Self {
        Self { log, end, window: Vec::new(), from: 0, held: 0 }
    }

    /// A block of the log.
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
