//! Commit block: ends a transaction and commits it.

use super::{BlockType, Header, JournalChecksum, LogFormat, RawHeader};
use crate::Flaw;
use crate::checksum::Crc32c;
use crate::types::Tid;
use core::mem::{offset_of, size_of};
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `h_chksum_type` of CRC-32: checksum v1.
const CHECKSUM_TYPE_CRC32: u8 = 1;
/// `h_chksum_size` of CRC-32.
const CRC32_SIZE: u8 = 4;

/// The start of a commit block as stored; the rest of the block is zero.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[allow(missing_docs, reason = "the kernel's field names, documented in journal.rst")]
pub struct RawCommitBlock {
    pub h_header: RawHeader,
    pub h_chksum_type: u8,
    pub h_chksum_size: u8,
    pub h_padding: [u8; 2],
    pub h_chksum: [U32; 8],
    pub h_commit_sec: U64,
    pub h_commit_nsec: U32,
}

const CHECKSUM_AT: usize = 0x10;
const _: () = assert!(offset_of!(RawCommitBlock, h_chksum) == CHECKSUM_AT);
const _: () = assert!(offset_of!(RawCommitBlock, h_commit_sec) == 0x30);
const _: () = assert!(size_of::<RawCommitBlock>() == 0x3c);

/// A decoded commit block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CommitBlock {
    /// The transaction that it ends.
    pub tid: Tid,
    /// Commit time in seconds since 1970.
    pub seconds: u64,
    /// Nanoseconds of that second.
    pub nanoseconds: u32,
    /// Checksum v1 of the transaction's descriptors and logged blocks in log order; `None` when
    /// none is stored.
    pub transaction_checksum: Option<u32>,
}

impl CommitBlock {
    /// Decodes a commit block, and verifies the checksum of the block itself (v2, v3). The caller
    /// compares the checksum of the transaction (v1). A block of which a power cut let only the
    /// first sector through is valid: that sector has all fields, and the rest would be zeros.
    ///
    /// # Errors
    /// [`Flaw::Truncated`], [`Flaw::Checksum`]; with checksum v1 a checksum of unknown type or
    /// size.
    pub fn decode(block: &[u8], format: &LogFormat) -> Result<Self, Flaw> {
        let needed = format.block_len().max(size_of::<RawCommitBlock>());
        let short = || Flaw::truncated(block.len(), needed);
        let block = block.get(..needed).ok_or_else(short)?;
        let (raw, _) = RawCommitBlock::read_from_prefix(block).map_err(|_| short())?;
        let stored = raw.h_chksum[0].get();
        if format.has_block_checksums() {
            let computed = block_checksum(block, format);
            if stored != computed && stored != torn_checksum(block, format) {
                return Err(Flaw::checksum(stored, computed));
            }
        }
        let transaction_checksum = match (raw.h_chksum_type, raw.h_chksum_size, stored) {
            _ if format.checksum != JournalChecksum::V1 => None,
            // Written before the feature was set.
            (0, 0, 0) => None,
            (CHECKSUM_TYPE_CRC32, CRC32_SIZE, stored) => Some(stored),
            (kind, _, _) => return Err(Flaw::bad_value("h_chksum_type", kind)),
        };
        Ok(Self {
            tid: Tid(raw.h_header.h_sequence.get()),
            seconds: raw.h_commit_sec.get(),
            nanoseconds: raw.h_commit_nsec.get(),
            transaction_checksum,
        })
    }

    /// Writes a commit block with its checksum to `block`, a whole block, which is cleared.
    pub fn encode(&self, block: &mut [u8], format: &LogFormat) {
        assert_eq!(block.len(), format.block_len(), "a commit fills a block");
        let with_v1 = self.transaction_checksum.filter(|_| format.checksum == JournalChecksum::V1);
        let mut raw = RawCommitBlock {
            h_header: Header { block_type: BlockType::Commit, tid: self.tid }.encode(),
            h_chksum_type: 0,
            h_chksum_size: 0,
            h_padding: [0; 2],
            h_chksum: [U32::ZERO; 8],
            h_commit_sec: self.seconds.into(),
            h_commit_nsec: self.nanoseconds.into(),
        };
        if let Some(checksum) = with_v1 {
            (raw.h_chksum_type, raw.h_chksum_size) = (CHECKSUM_TYPE_CRC32, CRC32_SIZE);
            raw.h_chksum[0].set(checksum);
        }
        block.fill(0);
        block[..size_of::<RawCommitBlock>()].copy_from_slice(raw.as_bytes());
        if format.has_block_checksums() {
            let checksum = block_checksum(block, format);
            block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_be_bytes());
        }
    }

    /// The time of a block whose checksum may be wrong: it distinguishes a stale block from a
    /// corrupt one.
    pub fn unverified_time(block: &[u8]) -> Option<(u64, u32)> {
        let (raw, _) = RawCommitBlock::read_from_prefix(block).ok()?;
        Some((raw.h_commit_sec.get(), raw.h_commit_nsec.get()))
    }
}

/// Checksum v2 and v3 of a commit block: of the whole block, in which the checksum field counts as
/// zero.
fn block_checksum(block: &[u8], format: &LogFormat) -> u32 {
    let (front, back) = block.split_at(CHECKSUM_AT);
    Crc32c::seeded(format.seed()).bytes(front).zeros(4).bytes(&back[4..]).value()
}

/// Number of bytes that a power cut never tears: the smallest sector.
const SECTOR: usize = 512;

/// The checksum that the block had when its first sector was written, followed by zeros.
fn torn_checksum(block: &[u8], format: &LogFormat) -> u32 {
    let (first, rest) = block.split_at(SECTOR.min(block.len()));
    let (front, back) = first.split_at(CHECKSUM_AT);
    let crc = Crc32c::seeded(format.seed()).bytes(front).zeros(4).bytes(&back[4..]);
    crc.zeros(rest.len()).value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Uuid;
    use alloc::vec;

    #[test]
    fn a_commit_block_of_every_checksum_version_is_read_back() {
        use JournalChecksum::{None, V1, V2, V3};
        for checksum in [None, V1, V2, V3] {
            let format = LogFormat {
                block_size: 1024,
                checksum,
                is_64bit: true,
                is_async_commit: false,
                uuid: Uuid([1; 16]),
            };
            let transaction_checksum = (checksum == V1).then_some(0xdead_beef);
            let commit =
                CommitBlock { tid: Tid(3), seconds: 1 << 33, nanoseconds: 5, transaction_checksum };
            let mut block = vec![0xee; 1024];
            commit.encode(&mut block, &format);
            assert_eq!(CommitBlock::decode(&block, &format), Ok(commit));
            // Only the first sector was written.
            block[512..].fill(0xaa);
            assert_eq!(CommitBlock::decode(&block, &format), Ok(commit));
            block[500] ^= 1;
            let is_seen = matches!(checksum, V2 | V3);
            assert_eq!(CommitBlock::decode(&block, &format).is_err(), is_seen, "{checksum:?}");
            assert!(CommitBlock::decode(&block[..100], &format).is_err());
        }
    }
}
