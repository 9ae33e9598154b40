//! The journal superblock: size, start and features of the log.

use super::{
    BlockType, Header, JOURNAL_MAGIC, JournalChecksum, JournalCompat, JournalIncompat,
    JournalRoCompat, LogFormat, RawHeader,
};
use crate::checksum::Crc32c;
use crate::types::{Tid, Uuid};
use crate::{Flaw, FormatError, Location};
use alloc::vec;
use alloc::vec::Vec;
use core::mem::{offset_of, size_of};
use core::ops::Range;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `s_checksum_type` of crc32c, the only one of checksum v2 and v3.
const CHECKSUM_TYPE_CRC32C: u8 = 4;
/// Maximum number of users of an external journal.
const MAX_USERS: u32 = 48;
/// Number of blocks of the fast-commit area if the superblock has 0.
pub const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;

/// The superblock as stored, big-endian: 1,024 bytes at the start of the journal.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[allow(missing_docs, reason = "the kernel's field names, documented in journal.rst")]
pub struct RawJournalSuperblock {
    pub s_header: RawHeader,
    pub s_blocksize: U32,
    pub s_maxlen: U32,
    pub s_first: U32,
    pub s_sequence: U32,
    pub s_start: U32,
    pub s_errno: U32,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_nr_users: U32,
    pub s_dynsuper: U32,
    pub s_max_transaction: U32,
    pub s_max_trans_data: U32,
    pub s_checksum_type: u8,
    pub s_padding2: [u8; 3],
    pub s_num_fc_blks: U32,
    pub s_head: U32,
    pub s_padding: [U32; 40],
    pub s_checksum: U32,
    pub s_users: [[u8; 16]; MAX_USERS as usize],
}

const _: () = assert!(size_of::<RawJournalSuperblock>() == 1024);
const _: () = assert!(offset_of!(RawJournalSuperblock, s_feature_compat) == 0x24);
const _: () = assert!(offset_of!(RawJournalSuperblock, s_num_fc_blks) == 0x54);
const _: () = assert!(offset_of!(RawJournalSuperblock, s_head) == 0x58);
const _: () = assert!(offset_of!(RawJournalSuperblock, s_checksum) == 0xfc);
const _: () = assert!(offset_of!(RawJournalSuperblock, s_users) == 0x100);

impl RawJournalSuperblock {
    /// Copies the first 1,024 bytes of the journal.
    ///
    /// # Errors
    /// [`Flaw::Truncated`] if there are fewer.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        Self::read_from_prefix(bytes).map(|(raw, _)| raw).map_err(|_| {
            Flaw::truncated(bytes.len(), size_of::<Self>()).at(Location::JournalSuperblock)
        })
    }

    /// Whether it has the fields from `s_feature_compat` on.
    fn is_v2(&self) -> bool {
        self.s_header.h_blocktype.get() == BlockType::SuperblockV2.encode()
    }

    fn incompat(&self) -> JournalIncompat {
        let stored = if self.is_v2() { self.s_feature_incompat.get() } else { 0 };
        JournalIncompat::from_bits_retain(stored)
    }

    fn has_checksum(&self) -> bool {
        self.incompat().intersects(JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3)
    }

    /// Verifies the magic number, the block type, and the checksum if there is one.
    ///
    /// # Errors
    /// [`Flaw::Magic`], a block type other than a superblock, an unknown checksum type,
    /// [`Flaw::Checksum`].
    pub fn verify(&self) -> Result<(), FormatError> {
        self.flaw().map_or(Ok(()), |flaw| Err(flaw.at(Location::JournalSuperblock)))
    }

    fn flaw(&self) -> Option<Flaw> {
        let (magic, kind) = (self.s_header.h_magic.get(), self.s_header.h_blocktype.get());
        if magic != JOURNAL_MAGIC {
            return Some(Flaw::magic(magic, JOURNAL_MAGIC));
        }
        if !matches!(
            BlockType::decode(kind),
            Some(BlockType::SuperblockV1 | BlockType::SuperblockV2)
        ) {
            return Some(Flaw::bad_value("h_blocktype", kind));
        }
        if !self.has_checksum() {
            return None;
        }
        if self.s_checksum_type != CHECKSUM_TYPE_CRC32C {
            return Some(Flaw::bad_value("s_checksum_type", self.s_checksum_type));
        }
        let (found, computed) = (self.s_checksum.get(), self.checksum());
        (found != computed).then(|| Flaw::checksum(found, computed))
    }

    /// Sets the list of volumes that use the journal, at most 48.
    pub fn set_users(&mut self, users: &[Uuid]) {
        let users = &users[..users.len().min(self.s_users.len())];
        self.s_users = [[0; 16]; MAX_USERS as usize];
        for (stored, user) in self.s_users.iter_mut().zip(users) {
            *stored = user.0;
        }
        // At most 48.
        self.s_nr_users.set(users.len() as u32);
    }

    /// Sets the checksum; the last step before the bytes are written.
    pub fn seal(&mut self) {
        if self.has_checksum() {
            self.s_checksum.set(self.checksum());
        }
    }

    /// Covers all 1,024 bytes, in which the checksum field counts as zero; the initial value is ~0,
    /// not the journal's seed.
    fn checksum(&self) -> u32 {
        let (front, back) = self.as_bytes().split_at(offset_of!(Self, s_checksum));
        let field = size_of::<U32>();
        Crc32c::new().bytes(front).zeros(field).bytes(&back[field..]).value()
    }
}

/// A decoded superblock with valid values.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct JournalSuperblock {
    /// Whether its version is 2: version 1 has no features and no UUID.
    pub is_v2: bool,
    /// Block size in bytes.
    pub block_size: u32,
    /// Number of blocks of the journal, including the superblock and the fast-commit area.
    pub blocks_count: u32,
    /// First block of the log.
    pub first: u32,
    /// Number of the first transaction expected in the log.
    pub sequence: Tid,
    /// Block where the log starts; 0 if it is empty.
    pub start: u32,
    /// Error that aborted the journal, as a negative errno (-5 for EIO); 0 for none.
    pub errno: i32,
    /// Compatible features.
    pub compat: JournalCompat,
    /// Incompatible features.
    pub incompat: JournalIncompat,
    /// Read-only compatible features.
    pub ro_compat: JournalRoCompat,
    /// UUID of the journal; initial value of its crc32c checksums.
    pub uuid: Uuid,
    /// Number of blocks of the fast-commit area; 0 without the feature.
    pub fast_commit_blocks: u32,
    /// First unused block of the log, stored only if the log is empty; 0 for unknown.
    pub head: u32,
    /// Volumes that use the journal, if it is external.
    pub users: Vec<Uuid>,
}

impl JournalSuperblock {
    /// The superblock of a new journal of one volume: nothing is in the log, which begins after it.
    pub fn empty(block_size: u32, blocks_count: u32) -> Self {
        Self {
            is_v2: true,
            block_size,
            blocks_count,
            first: 1,
            sequence: Tid(1),
            start: 0,
            errno: 0,
            compat: JournalCompat::empty(),
            incompat: JournalIncompat::empty(),
            ro_compat: JournalRoCompat::empty(),
            uuid: Uuid::NIL,
            fast_commit_blocks: 0,
            head: 0,
            users: vec![Uuid::NIL],
        }
    }

    /// Decodes the fields and checks that they are consistent: `first` and `start` are in the log,
    /// and the fast-commit area leaves room for it. [`RawJournalSuperblock::verify`] verifies the
    /// checksum.
    ///
    /// # Errors
    /// A flaw of [`Location::JournalSuperblock`], or unsupported features.
    pub fn decode(raw: &RawJournalSuperblock) -> Result<Self, FormatError> {
        let beyond = raw.incompat().difference(JournalIncompat::READABLE);
        if !beyond.is_empty() {
            return Err(FormatError::UnsupportedJournal(beyond));
        }
        Self::of_figures(raw).map_err(|flaw| flaw.at(Location::JournalSuperblock))
    }

    fn of_figures(raw: &RawJournalSuperblock) -> Result<Self, Flaw> {
        let (is_v2, incompat) = (raw.is_v2(), raw.incompat());
        let word = |field: U32| if is_v2 { field.get() } else { 0 };
        let compat = JournalCompat::from_bits_retain(word(raw.s_feature_compat));
        let ro_compat = JournalRoCompat::from_bits_retain(word(raw.s_feature_ro_compat));

        if incompat.contains(JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3) {
            return Err(Flaw::Rule("checksum v2 and v3 are both set"));
        }
        // The kernel and e2fsck reject this: commit blocks would have two checksums in one field.
        if raw.has_checksum() && compat.contains(JournalCompat::CHECKSUM) {
            return Err(Flaw::Rule("checksum v1 and a later one are both set"));
        }
        let block_size = raw.s_blocksize.get();
        if !block_size.is_power_of_two() || !(1024..=65536).contains(&block_size) {
            return Err(Flaw::bad_value("s_blocksize", block_size));
        }
        let (blocks_count, first) = (raw.s_maxlen.get(), raw.s_first.get());
        if first == 0 {
            return Err(Flaw::below_limit("s_first", 0_u32, 1_u32));
        }
        let fast_commit_blocks = match (incompat.contains(JournalIncompat::FAST_COMMIT), raw) {
            (false, _) => 0,
            (true, raw) if raw.s_num_fc_blks.get() == 0 => DEFAULT_FAST_COMMIT_BLOCKS,
            (true, raw) => raw.s_num_fc_blks.get(),
        };
        let log_end = blocks_count.checked_sub(fast_commit_blocks).ok_or(Flaw::above_limit(
            "s_num_fc_blks",
            fast_commit_blocks,
            blocks_count,
        ))?;
        // A log of one block cannot hold a transaction.
        if log_end.checked_sub(first).is_none_or(|blocks| blocks < 2) {
            return Err(Flaw::below_limit("s_maxlen", blocks_count, u64::from(first) + 2));
        }
        let start = raw.s_start.get();
        if start != 0 && !(first..log_end).contains(&start) {
            return Err(Flaw::bad_value("s_start", start));
        }
        let head = word(raw.s_head);
        let users_count = word(raw.s_nr_users);
        if users_count > MAX_USERS {
            return Err(Flaw::above_limit("s_nr_users", users_count, MAX_USERS));
        }

        Ok(Self {
            is_v2,
            block_size,
            blocks_count,
            first,
            sequence: Tid(raw.s_sequence.get()),
            start,
            errno: raw.s_errno.get().cast_signed(),
            compat,
            incompat,
            ro_compat,
            uuid: if is_v2 { Uuid(raw.s_uuid) } else { Uuid::NIL },
            fast_commit_blocks,
            head: if (first..log_end).contains(&head) { head } else { 0 },
            users: raw.s_users.iter().take(users_count as usize).copied().map(Uuid).collect(),
        })
    }

    /// Sets the fields that change while a journal is in use, and its features. Every other byte is
    /// not changed. Sizes, UUID and users are set when a journal is created: [`Self::encode`].
    pub fn encode_into(&self, raw: &mut RawJournalSuperblock) {
        raw.s_sequence.set(self.sequence.0);
        raw.s_start.set(self.start);
        raw.s_errno.set(self.errno.cast_unsigned());
        if self.is_v2 {
            raw.s_feature_compat.set(self.compat.bits());
            raw.s_feature_incompat.set(self.incompat.bits());
            raw.s_feature_ro_compat.set(self.ro_compat.bits());
            raw.s_head.set(self.head);
            if raw.has_checksum() {
                raw.s_checksum_type = CHECKSUM_TYPE_CRC32C;
            }
        }
    }

    /// Encodes the superblock of a new journal, without its checksum. At most 48 users are stored.
    pub fn encode(&self) -> RawJournalSuperblock {
        let mut raw = RawJournalSuperblock::read_from_bytes(&[0; 1024])
            .expect("1,024 bytes, whatever they are, make a raw superblock");
        let block_type = if self.is_v2 { BlockType::SuperblockV2 } else { BlockType::SuperblockV1 };
        raw.s_header = Header { block_type, tid: Tid(0) }.encode();
        raw.s_blocksize.set(self.block_size);
        raw.s_maxlen.set(self.blocks_count);
        raw.s_first.set(self.first);
        if self.is_v2 {
            raw.s_uuid = self.uuid.0;
            raw.s_num_fc_blks.set(self.fast_commit_blocks);
            raw.set_users(&self.users);
        }
        self.encode_into(&mut raw);
        raw
    }

    /// As [`Self::encode`], with its checksum.
    pub fn encode_sealed(&self) -> RawJournalSuperblock {
        let mut raw = self.encode();
        raw.seal();
        raw
    }

    /// The type of the log's checksums. v2 and v3 take precedence over v1.
    pub fn checksum(&self) -> JournalChecksum {
        if self.incompat.contains(JournalIncompat::CSUM_V3) {
            JournalChecksum::V3
        } else if self.incompat.contains(JournalIncompat::CSUM_V2) {
            JournalChecksum::V2
        } else if self.compat.contains(JournalCompat::CHECKSUM) {
            JournalChecksum::V1
        } else {
            JournalChecksum::None
        }
    }

    /// The format of the log's blocks.
    pub fn log_format(&self) -> LogFormat {
        LogFormat {
            block_size: self.block_size,
            checksum: self.checksum(),
            is_64bit: self.incompat.contains(JournalIncompat::BIT64),
            is_async_commit: self.incompat.contains(JournalIncompat::ASYNC_COMMIT),
            uuid: self.uuid,
        }
    }

    /// Journal blocks of the log, which wraps from the end to the start of this range.
    pub fn log(&self) -> Range<u32> {
        self.first..self.blocks_count - self.fast_commit_blocks
    }

    /// Journal blocks of the fast-commit area. The block between the log and the area is not used.
    pub fn fast_commit_area(&self) -> Range<u32> {
        if self.fast_commit_blocks == 0 {
            return self.blocks_count..self.blocks_count;
        }
        (self.log().end + 1).min(self.blocks_count)..self.blocks_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> JournalSuperblock {
        JournalSuperblock {
            is_v2: true,
            block_size: 4096,
            blocks_count: 1024,
            first: 1,
            sequence: Tid(1),
            start: 0,
            errno: 0,
            compat: JournalCompat::empty(),
            incompat: JournalIncompat::CSUM_V3 | JournalIncompat::BIT64,
            ro_compat: JournalRoCompat::empty(),
            uuid: Uuid([3; 16]),
            fast_commit_blocks: 0,
            head: 0,
            users: [Uuid([4; 16])].into(),
        }
    }

    fn sealed(journal: &JournalSuperblock) -> RawJournalSuperblock {
        let mut raw = journal.encode();
        raw.seal();
        raw
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        let journal = JournalSuperblock { errno: -5, start: 17, head: 40, ..sample() };
        let raw = sealed(&journal);
        assert_eq!(raw.verify(), Ok(()));
        assert_eq!(JournalSuperblock::decode(&raw), Ok(journal));
    }

    #[test]
    fn a_flipped_bit_shows_in_the_checksum() {
        let mut raw = sealed(&sample());
        raw.s_users[47][15] ^= 1;
        assert!(matches!(
            raw.verify(),
            Err(FormatError::Corrupt { flaw: Flaw::Checksum { .. }, .. })
        ));
    }

    #[test]
    fn version_1_has_no_features_and_keeps_its_unused_bytes() {
        let mut raw = sealed(&sample());
        raw.s_header.h_blocktype.set(BlockType::SuperblockV1.encode());
        assert_eq!(raw.verify(), Ok(()));
        let mut journal = JournalSuperblock::decode(&raw).unwrap();
        assert_eq!((journal.checksum(), journal.uuid), (JournalChecksum::None, Uuid::NIL));
        journal.sequence = Tid(9);
        journal.encode_into(&mut raw);
        assert_eq!(raw.s_sequence.get(), 9);
        assert_eq!(raw.s_feature_incompat.get(), sample().incompat.bits());
    }

    #[test]
    fn the_log_and_the_fast_commit_area_leave_one_block_between() {
        let mut journal = sample();
        journal.incompat |= JournalIncompat::FAST_COMMIT;
        let decoded = JournalSuperblock::decode(&journal.encode()).unwrap();
        assert_eq!(decoded.fast_commit_blocks, 256);
        assert_eq!(decoded.log(), 1..768);
        assert_eq!(decoded.fast_commit_area(), 769..1024);
    }

    #[test]
    fn figures_that_no_log_can_have_are_refused() {
        let refused = |change: fn(&mut RawJournalSuperblock)| {
            let mut raw = sample().encode();
            change(&mut raw);
            JournalSuperblock::decode(&raw).unwrap_err()
        };
        let at = |flaw: Flaw| flaw.at(Location::JournalSuperblock);
        assert_eq!(
            refused(|raw| raw.s_first.set(0)),
            at(Flaw::below_limit("s_first", 0_u32, 1_u32))
        );
        assert_eq!(refused(|raw| raw.s_start.set(1024)), at(Flaw::bad_value("s_start", 1024_u32)));
        assert_eq!(
            refused(|raw| raw.s_maxlen.set(2)),
            at(Flaw::below_limit("s_maxlen", 2_u32, 3_u32))
        );
        // A sum of the two would not fit 32 bits.
        let last = refused(|raw| {
            raw.s_first.set(u32::MAX);
            raw.s_maxlen.set(u32::MAX);
        });
        assert_eq!(last, at(Flaw::below_limit("s_maxlen", u32::MAX, u64::from(u32::MAX) + 2)));
        assert_eq!(
            refused(|raw| raw.s_nr_users.set(49)),
            at(Flaw::above_limit("s_nr_users", 49_u32, 48_u32))
        );
        assert_eq!(
            refused(|raw| raw.s_feature_incompat.set(0x40)),
            FormatError::UnsupportedJournal(JournalIncompat::from_bits_retain(0x40))
        );
        assert_eq!(
            refused(|raw| {
                raw.s_feature_incompat.set(0x20);
                raw.s_num_fc_blks.set(u32::MAX);
            }),
            at(Flaw::above_limit("s_num_fc_blks", u32::MAX, 1024_u32))
        );
    }
}
