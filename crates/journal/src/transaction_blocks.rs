//! The blocks of one transaction as they are written to a log.

use std::ops::{Deref, Range};

use extant_device::Request;
use extant_ondisk::checksum::crc32_be;
use extant_ondisk::jbd2::{
    CommitBlock, DescriptorWriter, JournalChecksum, LogFormat, RevokeWriter, escape, needs_escape,
};
use extant_ondisk::{BlockNo, FormatError, Tid};
use extant_runtime::env::WallTime;

use crate::{JournalError, Log};

/// Which flushes order a transaction in the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Flushes {
    /// None.
    None,
    /// One after the commit block: checksums show whether the blocks that it commits were written.
    After,
    /// Before and after the commit block.
    Both,
}

/// The block of a log in `range` that is `count` blocks after `at`, wrapping at the end.
pub(crate) fn around(range: &Range<u32>, at: u32, count: u32) -> u32 {
    let from_start = u64::from(at - range.start) + u64::from(count);
    // Below the log's size, which has 32 bits.
    range.start + (from_start % u64::from(range.end - range.start)) as u32
}

/// Number of log blocks of a transaction with `blocks` metadata blocks and `revoked` revoke
/// records.
pub(crate) fn needed(format: &LogFormat, blocks: u32, revoked: u32) -> u32 {
    let tags = u32::try_from(format.tags_per_block()).expect("fewer than a block's bytes");
    blocks
        .saturating_add(blocks.div_ceil(tags))
        .saturating_add(revoked.div_ceil(revokes_per_block(format)))
        .saturating_add(1)
}

/// Revoke records that a block holds, at least one.
pub(crate) fn revokes_per_block(format: &LogFormat) -> u32 {
    let count = format.revokes_per_block();
    u32::try_from(count).expect("fewer than a block's bytes").max(1)
}

/// The writes of `pieces` to consecutive log blocks from `at`, wrapping at the end.
fn requests<'b>(
    log: &Log<'_>,
    range: &Range<u32>,
    at: u32,
    pieces: &[&'b [u8]],
) -> Result<Vec<Request<'b>>, FormatError> {
    let to_end = ((range.end - at) as usize).min(pieces.len());
    let mut requests = log.writes(at, &pieces[..to_end])?;
    requests.extend(log.writes(range.start, &pieces[to_end..])?);
    Ok(requests)
}

/// A transaction for the log: the blocks that the log adds, and the order of all blocks.
pub(crate) struct Built {
    own: Vec<Vec<u8>>,
    order: Vec<LogBlock>,
}

#[derive(Clone, Copy)]
enum LogBlock {
    Own(usize),
    Block(usize),
}

impl Built {
    /// The transaction `tid`, committed at `time`.
    pub(crate) fn new<B: Deref<Target = [u8]>>(
        format: &LogFormat,
        tid: Tid,
        time: WallTime,
        blocks: &[(BlockNo, B)],
        revoked: &[BlockNo],
    ) -> Self {
        let mut built = Self { own: Vec::new(), order: Vec::new() };
        for some in revoked.chunks(format.revokes_per_block()) {
            let mut block = vec![0; format.block_len()];
            let mut writer = RevokeWriter::new(&mut block, format, tid);
            for home in some {
                let has_room = writer.push(*home);
                assert!(has_room, "a revoke block holds {}", format.revokes_per_block());
            }
            writer.finish();
            built.add(block);
        }
        let mut checksum = !0;
        for (at, some) in blocks.chunks(format.tags_per_block()).enumerate() {
            built.described(format, tid, at * format.tags_per_block(), some, &mut checksum);
        }
        let commit = CommitBlock {
            tid,
            seconds: u64::try_from(time.seconds).unwrap_or(0),
            nanoseconds: time.nanoseconds,
            transaction_checksum: Some(checksum),
        };
        let mut block = vec![0; format.block_len()];
        commit.encode(&mut block, format);
        built.add(block);
        built
    }

    /// Adds a descriptor block and the blocks that it describes. `first` is the index in the
    /// transaction of the first of them.
    fn described<B: Deref<Target = [u8]>>(
        &mut self,
        format: &LogFormat,
        tid: Tid,
        first: usize,
        blocks: &[(BlockNo, B)],
        checksum: &mut u32,
    ) {
        let data_checksum = format.data_checksums(tid);
        let mut descriptor = vec![0; format.block_len()];
        let at = self.order.len();
        let mut writer = DescriptorWriter::new(&mut descriptor, format, tid);
        for (index, (home, data)) in blocks.iter().enumerate() {
            let is_escaped = needs_escape(data);
            let piece = if is_escaped {
                let mut copy = data.to_vec();
                escape(&mut copy);
                self.own.push(copy);
                LogBlock::Own(self.own.len() - 1)
            } else {
                LogBlock::Block(first + index)
            };
            let logged: &[u8] = match piece {
                LogBlock::Own(own) => &self.own[own],
                LogBlock::Block(_) => data,
            };
            let has_room = writer.push(*home, is_escaped, data_checksum.of(logged));
            assert!(has_room, "a descriptor block holds {}", format.tags_per_block());
            self.order.push(piece);
        }
        writer.finish();
        if format.checksum == JournalChecksum::V1 {
            *checksum = crc32_be(*checksum, &descriptor);
            for (piece, (_, data)) in self.order[at..].iter().zip(blocks) {
                let logged: &[u8] = match *piece {
                    LogBlock::Own(own) => &self.own[own],
                    LogBlock::Block(_) => data,
                };
                *checksum = crc32_be(*checksum, logged);
            }
        }
        self.own.push(descriptor);
        self.order.insert(at, LogBlock::Own(self.own.len() - 1));
    }

    fn add(&mut self, block: Vec<u8>) {
        self.own.push(block);
        self.order.push(LogBlock::Own(self.own.len() - 1));
    }

    /// All blocks in log order.
    fn pieces<'a, B: Deref<Target = [u8]>>(&'a self, blocks: &'a [(BlockNo, B)]) -> Vec<&'a [u8]> {
        let piece = |piece: &LogBlock| match *piece {
            LogBlock::Own(own) => &self.own[own][..],
            LogBlock::Block(block) => &blocks[block].1[..],
        };
        self.order.iter().map(piece).collect()
    }

    /// Writes the transaction at block `head` of the log in `range`, wrapping at the end. Returns
    /// the number of blocks that it takes.
    pub(crate) fn write<B: Deref<Target = [u8]>>(
        &self,
        log: &Log<'_>,
        range: &Range<u32>,
        head: u32,
        blocks: &[(BlockNo, B)],
        flushes: Flushes,
    ) -> Result<u32, JournalError> {
        let pieces = self.pieces(blocks);
        let count = u32::try_from(pieces.len()).expect("a transaction is shorter than the log");
        let (commit, before) = pieces.split_last().expect("every transaction has a commit block");
        let mut batch = requests(log, range, head, before)?;
        if flushes == Flushes::Both {
            batch.push(Request::flush());
        }
        batch.extend(requests(log, range, around(range, head, count - 1), &[*commit])?);
        if flushes != Flushes::None {
            batch.push(Request::flush());
        }
        log.device.submit(&mut batch)?;
        Ok(count)
    }
}
