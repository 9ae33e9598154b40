//! Revoke block: lists blocks that must not be replayed from this transaction or any earlier one.

use super::{BlockType, Header, LogFormat, RawHeader};
use crate::Flaw;
use crate::types::{BlockNo, Tid};
use core::mem::size_of;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The start of a revoke block, as stored. `r_count` is in bytes, including these 16.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
struct RawRevokeHeader {
    r_header: RawHeader,
    r_count: U32,
}

/// Byte where the records start.
const RECORDS_AT: usize = 16;
const _: () = assert!(size_of::<RawRevokeHeader>() == RECORDS_AT);

impl LogFormat {
    /// Maximum number of records in a revoke block.
    pub fn revokes_per_block(&self) -> usize {
        self.block_len().saturating_sub(RECORDS_AT + self.tail_size()) / self.revoke_size()
    }
}

/// The records of a revoke block, whose checksum is verified if it has one.
///
/// # Errors
/// [`Flaw::Truncated`] if `block` is not a whole block, [`Flaw::Checksum`], or a count that exceeds
/// the block.
pub fn revoke_records<'a>(block: &'a [u8], format: &LogFormat) -> Result<RevokeRecords<'a>, Flaw> {
    format.verify_tail(block)?;
    let (raw, _) = RawRevokeHeader::read_from_prefix(block)
        .map_err(|_| Flaw::truncated(block.len(), RECORDS_AT))?;
    let limit = block.len() - format.tail_size();
    let count = raw.r_count.get() as usize;
    if count > limit {
        return Err(Flaw::above_limit("r_count", count as u64, limit as u64));
    }
    let records = block.get(RECORDS_AT..count).unwrap_or(&[]);
    Ok(RevokeRecords { left: records, size: format.revoke_size() })
}

/// Iterator over the blocks that a revoke block lists.
#[derive(Clone, Debug)]
pub struct RevokeRecords<'a> {
    left: &'a [u8],
    size: usize,
}

impl Iterator for RevokeRecords<'_> {
    type Item = BlockNo;

    fn next(&mut self) -> Option<BlockNo> {
        let (record, left) = self.left.split_at_checked(self.size)?;
        self.left = left;
        Some(BlockNo(record.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))))
    }
}

/// Fills a revoke block.
#[derive(Debug)]
pub struct RevokeWriter<'a> {
    block: &'a mut [u8],
    format: LogFormat,
    end: usize,
}

impl<'a> RevokeWriter<'a> {
    /// Starts a revoke block of transaction `tid` in `block`, a whole block, which is cleared.
    pub fn new(block: &'a mut [u8], format: &LogFormat, tid: Tid) -> Self {
        assert_eq!(block.len(), format.block_len(), "a revoke block fills a block");
        block.fill(0);
        let header = Header { block_type: BlockType::Revoke, tid }.encode();
        block[..size_of::<RawHeader>()].copy_from_slice(header.as_bytes());
        Self { block, format: *format, end: RECORDS_AT }
    }

    /// Adds a record. Returns false if the block is full.
    pub fn push(&mut self, revoked: BlockNo) -> bool {
        let size = self.format.revoke_size();
        if self.end + size > self.block.len() - self.format.tail_size() {
            return false;
        }
        let number = revoked.0.to_be_bytes();
        self.block[self.end..self.end + size].copy_from_slice(&number[number.len() - size..]);
        self.end += size;
        true
    }

    /// Stores the count and sets the checksum of the block.
    pub fn finish(self) {
        let count = u32::try_from(self.end).expect("a block is at most 64 KiB");
        self.block[size_of::<RawHeader>()..RECORDS_AT].copy_from_slice(&count.to_be_bytes());
        self.format.seal_tail(self.block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jbd2::JournalChecksum;
    use crate::types::Uuid;
    use alloc::vec;
    use alloc::vec::Vec;

    fn format(checksum: JournalChecksum, is_64bit: bool) -> LogFormat {
        LogFormat {
            block_size: 1024,
            checksum,
            is_64bit,
            is_async_commit: false,
            uuid: Uuid([1; 16]),
        }
    }

    #[test]
    fn a_full_block_gives_back_its_records() {
        for (checksum, is_64bit) in [
            (JournalChecksum::None, false),
            (JournalChecksum::None, true),
            (JournalChecksum::V2, true),
            (JournalChecksum::V3, false),
        ] {
            let format = format(checksum, is_64bit);
            let mut block = vec![0xff; 1024];
            let mut writer = RevokeWriter::new(&mut block, &format, Tid(1));
            let mut written = Vec::new();
            let high = if is_64bit { 5 << 32 } else { 0 };
            while writer.push(BlockNo(high + written.len() as u64)) {
                written.push(BlockNo(high + written.len() as u64));
            }
            writer.finish();
            assert_eq!(written.len(), format.revokes_per_block());
            let found: Vec<_> = revoke_records(&block, &format).unwrap().collect();
            assert_eq!(found, written);
        }
    }

    #[test]
    fn a_count_past_the_block_is_refused() {
        let format = format(JournalChecksum::None, false);
        let mut block = vec![0; 1024];
        RevokeWriter::new(&mut block, &format, Tid(1)).finish();
        assert_eq!(revoke_records(&block, &format).unwrap().count(), 0);
        block[12..16].copy_from_slice(&1025_u32.to_be_bytes());
        let flaw = revoke_records(&block, &format).unwrap_err();
        assert_eq!(flaw, Flaw::above_limit("r_count", 1025_u32, 1024_u32));
    }
}
