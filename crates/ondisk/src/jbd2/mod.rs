//! The journal's format (jbd2): big-endian, except for the records of fast commits.
//!
//! A journal is a superblock and a log. A transaction in the log consists of descriptor blocks,
//! each followed by the blocks it describes, revoke blocks, and a commit block that commits it. The
//! format of the blocks depends on the journal's features: [`LogFormat`] has the parameters that
//! follow from them.
//!
//! Source: the kernel's `journal.rst`; the rest (tag sizes, checksum v1, the fast-commit area) was
//! inferred from images that the kernel and debugfs wrote, see `docs/src/internals/on-disk.md`.

mod commit;
mod descriptor;
mod fast_commit;
mod features;
mod revoke;
mod superblock;

pub use commit::{CommitBlock, RawCommitBlock};
pub use descriptor::{BlockTag, DescriptorWriter, TagFlags, Tags, tags};
pub use fast_commit::{
    FastCommitChecksum, FastCommitDentry, FastCommitRecord, FastCommitRecords, FastCommitTag,
    push_fast_commit_record,
};
pub use features::{JournalCompat, JournalIncompat, JournalRoCompat};
pub use revoke::{RevokeRecords, RevokeWriter, revoke_records};
pub use superblock::{DEFAULT_FAST_COMMIT_BLOCKS, JournalSuperblock, RawJournalSuperblock};

use crate::Flaw;
use crate::checksum::Crc32c;
use crate::types::{Tid, Uuid};
use core::mem::size_of;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First word of every journal block except logged blocks.
pub const JOURNAL_MAGIC: u32 = 0xc03b_3998;
/// Size in bytes of the checksum at the end of descriptor and revoke blocks, with checksum v2 and
/// v3.
pub const TAIL_SIZE: usize = 4;

/// The type of a journal block, `h_blocktype`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum BlockType {
    /// Has the home locations of the blocks after it.
    Descriptor,
    /// Ends a transaction and commits it.
    Commit,
    /// Superblock without features.
    SuperblockV1,
    /// Superblock.
    SuperblockV2,
    /// Lists blocks that must not be replayed.
    Revoke,
}

impl BlockType {
    /// Decodes the stored number.
    pub fn decode(stored: u32) -> Option<Self> {
        Some(match stored {
            1 => Self::Descriptor,
            2 => Self::Commit,
            3 => Self::SuperblockV1,
            4 => Self::SuperblockV2,
            5 => Self::Revoke,
            _ => return None,
        })
    }

    /// The stored number.
    pub fn encode(self) -> u32 {
        match self {
            Self::Descriptor => 1,
            Self::Commit => 2,
            Self::SuperblockV1 => 3,
            Self::SuperblockV2 => 4,
            Self::Revoke => 5,
        }
    }
}

/// The first 12 bytes of a journal block, as stored.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[allow(missing_docs, reason = "the kernel's field names, documented in journal.rst")]
pub struct RawHeader {
    pub h_magic: U32,
    pub h_blocktype: U32,
    pub h_sequence: U32,
}

const _: () = assert!(size_of::<RawHeader>() == 12);

/// The decoded first 12 bytes of a journal block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header {
    /// The type of the block.
    pub block_type: BlockType,
    /// The transaction it belongs to.
    pub tid: Tid,
}

impl Header {
    /// The header of a block; `None` if the magic number is wrong or the type is unknown: such a
    /// block ends the log.
    pub fn of(block: &[u8]) -> Option<Self> {
        let (raw, _) = RawHeader::read_from_prefix(block).ok()?;
        if raw.h_magic.get() != JOURNAL_MAGIC {
            return None;
        }
        let block_type = BlockType::decode(raw.h_blocktype.get())?;
        Some(Self { block_type, tid: Tid(raw.h_sequence.get()) })
    }

    /// Encodes the stored form.
    pub fn encode(self) -> RawHeader {
        RawHeader {
            h_magic: U32::new(JOURNAL_MAGIC),
            h_blocktype: U32::new(self.block_type.encode()),
            h_sequence: U32::new(self.tid.0),
        }
    }
}

/// The type of the log's checksums.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum JournalChecksum {
    /// None.
    #[default]
    None,
    /// CRC-32 of the whole transaction in its commit block.
    V1,
    /// crc32c in every block, its low half in tags.
    V2,
    /// crc32c in every block and tag.
    V3,
}

impl JournalChecksum {
    /// The version, as the kernel's documentation counts them.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::V1 => "v1",
            Self::V2 => "v2",
            Self::V3 => "v3",
        }
    }
}

/// Format of the blocks of a log, from the journal's superblock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LogFormat {
    /// Block size in bytes.
    pub block_size: u32,
    /// The type of the log's checksums.
    pub checksum: JournalChecksum,
    /// Whether block numbers have 64 bits.
    pub is_64bit: bool,
    /// Whether commit blocks are written without waiting for the rest.
    pub is_async_commit: bool,
    /// UUID of the journal, as written into tags.
    pub uuid: Uuid,
}

impl LogFormat {
    /// The block size as a length in memory.
    pub fn block_len(&self) -> usize {
        self.block_size as usize
    }

    /// Whether blocks and tags have their own checksums (v2 and v3).
    pub fn has_block_checksums(&self) -> bool {
        matches!(self.checksum, JournalChecksum::V2 | JournalChecksum::V3)
    }

    /// Initial value of crc32c checksums in the log.
    pub fn seed(&self) -> u32 {
        Crc32c::new().bytes(&self.uuid.0).value()
    }

    /// Size in bytes of a tag without the UUID that may follow it. With checksum v2 a tag is two
    /// bytes longer than documented.
    pub fn tag_size(&self) -> usize {
        match (self.checksum, self.is_64bit) {
            (JournalChecksum::V3, _) => 16,
            (JournalChecksum::V2, true) => 14,
            (JournalChecksum::V2, false) => 10,
            (_, true) => 12,
            (_, false) => 8,
        }
    }

    /// Size in bytes of the checksum at the end of descriptor and revoke blocks.
    pub fn tail_size(&self) -> usize {
        if self.has_block_checksums() { TAIL_SIZE } else { 0 }
    }

    /// Maximum number of tags in a descriptor block: a UUID follows the first one.
    pub fn tags_per_block(&self) -> usize {
        self.block_len()
            .saturating_sub(size_of::<RawHeader>() + size_of::<Uuid>() + self.tail_size())
            / self.tag_size()
    }

    /// Size of a revoke record in bytes.
    pub fn revoke_size(&self) -> usize {
        if self.is_64bit { 8 } else { 4 }
    }

    /// The checksum of a logged block as stored in the log (escaped), for its tag; v2 uses the low
    /// half.
    pub fn data_checksum(&self, tid: Tid, logged: &[u8]) -> u32 {
        self.data_checksums(tid).of(logged)
    }

    /// The checksums of a transaction's logged blocks, whose common start is computed once.
    pub fn data_checksums(&self, tid: Tid) -> DataChecksums {
        DataChecksums { start: Crc32c::seeded(self.seed()).be32(tid.0), version: self.checksum }
    }

    /// The checksum at the end of a block: (stored, computed). `None` without such checksums or for
    /// a short block.
    fn tail_checksum(&self, block: &[u8]) -> Option<(u32, u32)> {
        if !self.has_block_checksums() {
            return None;
        }
        let (body, tail) = block.split_last_chunk::<TAIL_SIZE>()?;
        let computed = Crc32c::seeded(self.seed()).bytes(body).zeros(TAIL_SIZE).value();
        Some((u32::from_be_bytes(*tail), computed))
    }

    /// Verifies the checksum at the end of a whole block, if it has one.
    fn verify_tail(&self, block: &[u8]) -> Result<(), Flaw> {
        if block.len() != self.block_len() {
            return Err(Flaw::truncated(block.len(), self.block_len()));
        }
        match self.tail_checksum(block) {
            Some((found, computed)) if found != computed => Err(Flaw::checksum(found, computed)),
            _ => Ok(()),
        }
    }

    /// Sets the checksum at the end of a descriptor or revoke block, if it has one.
    fn seal_tail(&self, block: &mut [u8]) {
        if let Some((_, computed)) = self.tail_checksum(block)
            && let Some(tail) = block.last_chunk_mut::<TAIL_SIZE>()
        {
            *tail = computed.to_be_bytes();
        }
    }
}

/// Computes the checksums of logged blocks for their tags: [`LogFormat::data_checksums`].
#[derive(Clone, Copy, Debug)]
pub struct DataChecksums {
    start: Crc32c,
    version: JournalChecksum,
}

impl DataChecksums {
    /// The checksum of a block as stored in the log (escaped); 0 if tags have none.
    pub fn of(&self, logged: &[u8]) -> u32 {
        match self.version {
            JournalChecksum::None | JournalChecksum::V1 => 0,
            JournalChecksum::V2 => self.start.bytes(logged).value() & 0xffff,
            JournalChecksum::V3 => self.start.bytes(logged).value(),
        }
    }
}

/// Whether a block must be escaped in the log: it begins with the journal's magic number.
pub fn needs_escape(block: &[u8]) -> bool {
    block.first_chunk::<4>() == Some(&JOURNAL_MAGIC.to_be_bytes())
}

/// Escapes a block for the log: replaces the magic number by zeros. [`unescape`] restores it.
pub fn escape(block: &mut [u8]) {
    if let Some(start) = block.first_chunk_mut::<4>() {
        *start = [0; 4];
    }
}

/// Restores the magic number in a block whose tag has [`TagFlags::ESCAPED`].
pub fn unescape(block: &mut [u8]) {
    if let Some(start) = block.first_chunk_mut::<4>() {
        *start = JOURNAL_MAGIC.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(checksum: JournalChecksum, is_64bit: bool) -> LogFormat {
        LogFormat {
            block_size: 1024,
            checksum,
            is_64bit,
            is_async_commit: false,
            uuid: Uuid([7; 16]),
        }
    }

    #[test]
    fn tags_have_the_sizes_that_debugfs_writes() {
        let sizes = [JournalChecksum::None, JournalChecksum::V1, JournalChecksum::V2]
            .map(|checksum| [false, true].map(|wide| format(checksum, wide).tag_size()));
        assert_eq!(sizes, [[8, 12], [8, 12], [10, 14]]);
        assert_eq!(format(JournalChecksum::V3, false).tag_size(), 16);
        assert_eq!(format(JournalChecksum::V3, true).tag_size(), 16);
    }

    #[test]
    fn an_escaped_block_gets_its_first_word_back() {
        let mut block = [9; 16];
        block[..4].copy_from_slice(&JOURNAL_MAGIC.to_be_bytes());
        let before = block;
        assert!(needs_escape(&block));
        escape(&mut block);
        assert!(!needs_escape(&block));
        unescape(&mut block);
        assert_eq!(block, before);
    }

    #[test]
    fn a_block_without_the_magic_or_of_unknown_type_is_no_journal_block() {
        let header = Header { block_type: BlockType::Commit, tid: Tid(9) };
        let mut raw = header.encode();
        assert_eq!(Header::of(raw.as_bytes()), Some(header));
        raw.h_blocktype.set(6);
        assert_eq!(Header::of(raw.as_bytes()), None);
        raw.h_blocktype.set(2);
        raw.h_magic.set(JOURNAL_MAGIC + 1);
        assert_eq!(Header::of(raw.as_bytes()), None);
        assert_eq!(Header::of(&[0xc0, 0x3b]), None);
    }
}
