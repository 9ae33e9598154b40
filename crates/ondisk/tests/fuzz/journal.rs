//! The journal: superblock, descriptor, commit and revoke blocks, fast-commit records.

use bolero::TypeGenerator;
use extant_ondisk::jbd2::{
    CommitBlock, DescriptorWriter, FastCommitChecksum, FastCommitRecords, FastCommitTag, Header,
    JournalChecksum, JournalCompat, JournalIncompat, JournalRoCompat, JournalSuperblock, LogFormat,
    RawJournalSuperblock, RevokeWriter, Tags, push_fast_commit_record, revoke_records, tags,
};
use extant_ondisk::{BlockNo, Tid, Uuid};
use extant_testkit::fuzz::{Damage, FUZZ_TIME};
use zerocopy::IntoBytes;

/// Choices for the format of a log.
#[derive(Clone, Debug, TypeGenerator)]
struct Log {
    checksum: Sum,
    is_64bit: bool,
    is_async: bool,
    is_large: bool,
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Sum {
    None,
    V1,
    V2,
    V3,
}

impl Log {
    fn format(&self) -> LogFormat {
        LogFormat {
            block_size: if self.is_large { 65536 } else { 1024 },
            checksum: match self.checksum {
                Sum::None => JournalChecksum::None,
                Sum::V1 => JournalChecksum::V1,
                Sum::V2 => JournalChecksum::V2,
                Sum::V3 => JournalChecksum::V3,
            },
            is_64bit: self.is_64bit,
            is_async_commit: self.is_async,
            uuid: Uuid([3; 16]),
        }
    }

    fn superblock(&self) -> JournalSuperblock {
        let mut incompat = JournalIncompat::REVOKE;
        incompat.set(JournalIncompat::BIT64, self.is_64bit);
        incompat.set(JournalIncompat::ASYNC_COMMIT, self.is_async);
        incompat.set(JournalIncompat::FAST_COMMIT, self.is_large);
        incompat.set(JournalIncompat::CSUM_V2, matches!(self.checksum, Sum::V2));
        incompat.set(JournalIncompat::CSUM_V3, matches!(self.checksum, Sum::V3));
        let mut compat = JournalCompat::empty();
        compat.set(JournalCompat::CHECKSUM, matches!(self.checksum, Sum::V1));
        JournalSuperblock {
            is_v2: true,
            block_size: self.format().block_size,
            blocks_count: 4096,
            first: 1,
            sequence: Tid(17),
            start: 25,
            errno: 0,
            compat,
            incompat,
            ro_compat: JournalRoCompat::empty(),
            uuid: Uuid([3; 16]),
            fast_commit_blocks: if self.is_large { 256 } else { 0 },
            head: 0,
            users: vec![Uuid([4; 16])],
        }
    }
}

#[test]
fn journal_superblock() {
    bolero::check!().with_type::<(Log, Damage, bool)>().with_test_time(FUZZ_TIME).for_each(
        |(log, damage, is_mended)| {
            let mut raw = log.superblock().encode();
            raw.seal();
            assert_eq!(raw.verify(), Ok(()));
            assert_eq!(JournalSuperblock::decode(&raw), Ok(log.superblock()));

            let damaged = damage.to(raw.as_bytes());
            let Ok(mut raw) = RawJournalSuperblock::from_bytes(&damaged) else { return };
            if *is_mended {
                raw.seal();
            }
            let _ = raw.verify();
            let Ok(superblock) = JournalSuperblock::decode(&raw) else { return };
            let log = superblock.log();
            assert!(log.start < log.end && log.end <= superblock.blocks_count);
            assert!(superblock.start == 0 || log.contains(&superblock.start));
            let area = superblock.fast_commit_area();
            assert!(log.end <= area.start && area.end <= superblock.blocks_count);
            assert!(superblock.users.len() <= 48);
            let mut again = raw;
            superblock.encode_into(&mut again);
            assert_eq!(JournalSuperblock::decode(&again), Ok(superblock));
        },
    );
}

#[test]
fn descriptor_block() {
    type Input = (Log, Vec<(u32, bool)>, Damage);
    bolero::check!().with_type::<Input>().with_test_time(FUZZ_TIME).for_each(
        |(log, homes, damage)| {
            let format = log.format();
            let mut block = vec![0; format.block_len()];
            let mut writer = DescriptorWriter::new(&mut block, &format, Tid(9));
            let pushed = homes.iter().filter(|(home, is_escaped)| {
                writer.push(BlockNo(u64::from(*home)), *is_escaped, home.wrapping_mul(7))
            });
            let pushed = pushed.count();
            writer.finish();
            if pushed > 0 {
                assert_eq!(tags(&block, &format).unwrap().count(), pushed);
            }
            let damaged = damage.to(&block);
            let _ = Header::of(&damaged);
            assert!(Tags::unverified(&damaged, &format).count() <= damaged.len() / 8);
            if let Ok(tags) = tags(&damaged, &format) {
                assert!(tags.count() <= format.block_len() / format.tag_size());
            }
        },
    );
}

#[test]
fn revoke_block() {
    type Input = (Log, Vec<u32>, Damage);
    bolero::check!().with_type::<Input>().with_test_time(FUZZ_TIME).for_each(
        |(log, revoked, damage)| {
            let format = log.format();
            let mut block = vec![0; format.block_len()];
            let mut writer = RevokeWriter::new(&mut block, &format, Tid(9));
            let homes = revoked.iter().map(|home| BlockNo(u64::from(*home)));
            let homes: Vec<_> = homes.filter(|home| writer.push(*home)).collect();
            writer.finish();
            assert!(revoke_records(&block, &format).unwrap().eq(homes));
            if let Ok(records) = revoke_records(&damage.to(&block), &format) {
                assert!(records.count() <= format.revokes_per_block());
            }
        },
    );
}

#[test]
fn commit_block() {
    type Input = (Log, u64, u32, Damage);
    bolero::check!().with_type::<Input>().with_test_time(FUZZ_TIME).for_each(
        |(log, seconds, nanoseconds, damage)| {
            let format = log.format();
            let commit = CommitBlock {
                tid: Tid(9),
                seconds: *seconds,
                nanoseconds: *nanoseconds,
                transaction_checksum: (format.checksum == JournalChecksum::V1).then_some(77),
            };
            let mut block = vec![0; format.block_len()];
            commit.encode(&mut block, &format);
            assert_eq!(CommitBlock::decode(&block, &format), Ok(commit));
            let damaged = damage.to(&block);
            let _ = (Header::of(&damaged), CommitBlock::unverified_time(&damaged));
            let _ = CommitBlock::decode(&damaged, &format);
        },
    );
}

#[test]
fn fast_commit_records() {
    type Input = (Vec<(u8, Vec<u8>)>, Damage);
    bolero::check!().with_type::<Input>().with_test_time(FUZZ_TIME).for_each(
        |(records, damage)| {
            let mut area = Vec::new();
            for (tag, value) in records {
                let Some(tag) = FastCommitTag::decode(u16::from(*tag % 10)) else { continue };
                assert!(push_fast_commit_record(&mut area, 1024, tag, value));
            }
            for block in damage.to(&area).chunks(1024) {
                let mut checksum = FastCommitChecksum::new();
                let mut reached = 0;
                for record in FastCommitRecords::new(block) {
                    let Ok((at, bytes, record)) = record else { break };
                    assert_eq!(at, reached);
                    reached += bytes.len();
                    checksum.record(bytes, &record);
                }
                assert!(reached <= block.len());
                let _ = checksum.value();
            }
        },
    );
}
