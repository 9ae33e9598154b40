//! The scan of the log for committed transactions, their logged blocks and revoke records.

use std::collections::{HashMap, HashSet};

use extant_ondisk::checksum::crc32_be;
use extant_ondisk::jbd2::{
    BlockType, CommitBlock, Header, JournalChecksum, JournalSuperblock, LogFormat, TagFlags, Tags,
    revoke_records, tags,
};
use extant_ondisk::{BlockNo, Flaw, FormatError, Location, Tid};
use extant_runtime::env::WallTime;

use super::report::{Damage, Recovered};
use crate::log::LogReader;
use crate::{JournalError, Log};

/// A logged block of a committed transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoggedBlock {
    pub(super) home: BlockNo,
    pub(super) tid: Tid,
    /// The block number in the journal.
    pub(super) at: u32,
    pub(super) is_escaped: bool,
}

/// The committed transactions of a log.
#[derive(Debug, Default)]
pub(super) struct LogContents {
    /// Logged blocks in log order, except those with errors.
    pub(super) blocks: Vec<LoggedBlock>,
    /// The last transaction that revokes each block, for blocks that were logged before it only.
    pub(super) revoked: HashMap<BlockNo, Tid>,
    /// The first transaction that is not committed.
    pub(super) end: Tid,
    /// The journal block after the last commit block.
    pub(super) head: u32,
    /// Time of the last commit.
    pub(super) last_commit: WallTime,
    /// Whether the scan ended at an error: complete transactions may follow.
    pub(super) has_rest: bool,
}

impl LogContents {
    /// Whether a record of the same or a later transaction revokes the block.
    pub(super) fn is_revoked(&self, block: &LoggedBlock) -> bool {
        self.revoked.get(&block.home).is_some_and(|revoked| !revoked.is_before(block.tid))
    }
}

/// The transaction being read.
struct Open {
    blocks: Vec<LoggedBlock>,
    /// Logged blocks whose checksum is wrong.
    bad: Vec<FormatError>,
    /// The journal blocks of its revoke records.
    revokes: Vec<u32>,
    /// Checksum v1 so far.
    checksum: u32,
    /// A descriptor or revoke block with an error: stale if the commit block is older than the one
    /// before.
    suspect: Option<FormatError>,
    /// A revoke block whose records cannot be read.
    unreadable: Option<FormatError>,
}

impl Open {
    fn new() -> Self {
        Self {
            blocks: Vec::new(),
            bad: Vec::new(),
            revokes: Vec::new(),
            checksum: !0,
            suspect: None,
            unreadable: None,
        }
    }
}

/// The result of reading a commit block.
enum CommitCheck {
    Committed,
    /// Not part of this log: left from an earlier use of these blocks, or never completed.
    Ended,
    Broken(FormatError),
}

/// Scans from the log's start to the first block that does not continue it.
pub(super) fn scan(
    log: &Log<'_>,
    superblock: &JournalSuperblock,
    recovered: &mut Recovered,
) -> Result<LogContents, JournalError> {
    let mut walk = Walk {
        reader: LogReader::new(*log, superblock.log().end),
        format: superblock.log_format(),
        log: superblock.log(),
        at: superblock.start,
        left: superblock.log().end - superblock.log().start,
        last_commit: (0, 0),
    };
    let mut found =
        LogContents { end: superblock.sequence, head: superblock.start, ..LogContents::default() };
    let mut logged = HashSet::new();
    let mut open = Open::new();
    while walk.left > 0 {
        let at = walk.at;
        let Some(header) = Header::of(walk.reader.block(at)?).filter(|head| head.tid == found.end)
        else {
            break;
        };
        match header.block_type {
            BlockType::Descriptor => walk.descriptor(found.end, &mut open)?,
            BlockType::Revoke => walk.revoke(&mut open)?,
            BlockType::Commit => match walk.commit(&mut open)? {
                CommitCheck::Committed => {
                    let open = std::mem::replace(&mut open, Open::new());
                    if let Some(error) = open.unreadable {
                        recovered.record(Damage::Revoke(error));
                        return Ok(LogContents {
                            end: found.end,
                            has_rest: true,
                            ..LogContents::default()
                        });
                    }
                    for error in open.bad {
                        recovered.record(Damage::Block(error));
                    }
                    logged.extend(open.blocks.iter().map(|block| block.home));
                    found.blocks.extend(open.blocks);
                    for at in open.revokes {
                        let records = walk.revoked(at)?.filter(|home| logged.contains(home));
                        found.revoked.extend(records.map(|home| (home, header.tid)));
                    }
                    found.end = found.end.next();
                    (found.head, found.last_commit) = (walk.at, walk.committed_at());
                    recovered.transactions += 1;
                }
                CommitCheck::Ended => {
                    found.has_rest = true;
                    break;
                }
                CommitCheck::Broken(error) => {
                    found.has_rest = true;
                    recovered.record(Damage::Transaction(found.end, error));
                    break;
                }
            },
            BlockType::SuperblockV1 | BlockType::SuperblockV2 => break,
        }
    }
    Ok(found)
}

struct Walk<'a> {
    reader: LogReader<'a>,
    format: LogFormat,
    log: std::ops::Range<u32>,
    at: u32,
    /// Number of blocks that can still belong to the log: the scan never wraps twice.
    left: u32,
    last_commit: (u64, u32),
}

impl Walk<'_> {
    /// Time of the last commit.
    fn committed_at(&self) -> WallTime {
        let (seconds, nanoseconds) = self.last_commit;
        WallTime { seconds: i64::try_from(seconds).unwrap_or(0), nanoseconds }
    }

    fn advance(&mut self) {
        self.at = if self.at + 1 >= self.log.end { self.log.start } else { self.at + 1 };
        self.left = self.left.saturating_sub(1);
    }

    fn descriptor(&mut self, tid: Tid, open: &mut Open) -> Result<(), JournalError> {
        let (at, format) = (self.at, self.format);
        let block = self.reader.block(at)?;
        if format.checksum == JournalChecksum::V1 {
            open.checksum = crc32_be(open.checksum, block);
        }
        if let Err(flaw) = tags(block, &format) {
            open.suspect.get_or_insert(flaw.at(Location::JournalBlock(at)));
        }
        let tags: Vec<_> = Tags::unverified(block, &format).collect();
        self.advance();
        for tag in tags {
            if self.left == 0 {
                break;
            }
            let at = self.at;
            let logged = LoggedBlock {
                home: tag.block,
                tid,
                at,
                is_escaped: tag.flags.contains(TagFlags::ESCAPED),
            };
            let mut is_good = true;
            if format.checksum == JournalChecksum::V1 {
                open.checksum = crc32_be(open.checksum, self.reader.block(at)?);
            } else if format.has_block_checksums() {
                let computed = format.data_checksum(tid, self.reader.block(at)?);
                if computed != tag.checksum {
                    is_good = false;
                    let flaw = Flaw::checksum(tag.checksum, computed);
                    open.bad.push(flaw.at(Location::JournalBlock(at)));
                }
            }
            if is_good {
                open.blocks.push(logged);
            }
            self.advance();
        }
        Ok(())
    }

    fn revoke(&mut self, open: &mut Open) -> Result<(), JournalError> {
        let (at, format) = (self.at, self.format);
        match revoke_records(self.reader.block(at)?, &format) {
            Ok(_) => open.revokes.push(at),
            Err(flaw @ Flaw::Checksum { .. }) => {
                open.suspect.get_or_insert(flaw.at(Location::JournalBlock(at)));
            }
            Err(flaw) => {
                open.unreadable.get_or_insert(flaw.at(Location::JournalBlock(at)));
            }
        }
        self.advance();
        Ok(())
    }

    /// The records of a revoke block that was read before. They are not kept, as a journal may be
    /// full of them.
    fn revoked(&mut self, at: u32) -> Result<impl Iterator<Item = BlockNo> + '_, JournalError> {
        let format = self.format;
        let records = revoke_records(self.reader.block(at)?, &format).ok();
        Ok(records.into_iter().flatten())
    }

    fn commit(&mut self, open: &mut Open) -> Result<CommitCheck, JournalError> {
        let (at, format) = (self.at, self.format);
        let block = self.reader.block(at)?;
        let time = CommitBlock::unverified_time(block).unwrap_or_default();
        let mut broken = open.suspect.take();
        match CommitBlock::decode(block, &format) {
            Ok(commit) => {
                let checksum =
                    commit.transaction_checksum.filter(|stored| *stored != open.checksum);
                if let Some(stored) = checksum {
                    broken.get_or_insert(
                        Flaw::checksum(stored, open.checksum).at(Location::JournalBlock(at)),
                    );
                }
            }
            Err(flaw) => {
                broken.get_or_insert(flaw.at(Location::JournalBlock(at)));
            }
        }
        // With async commit, a commit block alone does not prove that the transaction is complete.
        if format.is_async_commit && (broken.is_some() || !open.bad.is_empty()) {
            return Ok(CommitCheck::Ended);
        }
        if let Some(error) = broken {
            let is_stale = time < self.last_commit;
            return Ok(if is_stale { CommitCheck::Ended } else { CommitCheck::Broken(error) });
        }
        self.last_commit = time;
        self.advance();
        Ok(CommitCheck::Committed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JournalLocation;
    use crate::transaction_blocks::{Built, Flushes};
    use extant_device::MemoryDevice;
    use extant_ondisk::superblock::RawSuperblock;
    use extant_ondisk::{Geometry, GroupNo};
    use extant_testkit::{TempImage, skip, tool};

    /// A log may be full of revoke records of eight bytes each: only those of logged blocks are
    /// kept.
    #[test]
    fn revoke_records_that_bar_nothing_take_no_memory() {
        if tool("mke2fs").is_none() {
            skip!("mke2fs is not installed");
        }
        let image = TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-b", "1024", "-J", "size=4"]);
        let bytes = std::fs::read(image.unwrap().path()).unwrap();
        let raw = RawSuperblock::from_bytes(&bytes[1024..], GroupNo(0)).unwrap();
        let geometry = Geometry::new(&raw).unwrap();
        let device = MemoryDevice::from_bytes(&bytes);
        let place = JournalLocation::internal(&device, &raw, &geometry).unwrap();
        let log = Log { device: &device, place: &place };
        let (_, mut superblock) = log.superblock().unwrap();
        superblock.start = superblock.log().start;
        let format = superblock.log_format();
        let (first, second) = (superblock.sequence, superblock.sequence.next());
        let time = WallTime { seconds: 7, nanoseconds: 0 };
        let logged = [(BlockNo(9000), vec![1; 1024])];
        // More records than there are block numbers.
        let records = (superblock.log().end - superblock.log().start - 100) as usize
            * format.revokes_per_block();
        let revoked: Vec<BlockNo> = (1..=records as u64).map(BlockNo).collect();
        assert!(records > 300_000);
        let nothing: [(BlockNo, Vec<u8>); 0] = [];
        let mut head = superblock.start;
        let range = superblock.log();
        let old = Built::new(&format, first, time, &logged, &[]);
        head += old.write(&log, &range, head, &logged, Flushes::None).unwrap();
        let new = Built::new(&format, second, time, &nothing, &revoked);
        new.write(&log, &range, head, &nothing, Flushes::None).unwrap();

        let mut recovered = Recovered::default();
        let found = scan(&log, &superblock, &mut recovered).unwrap();
        assert_eq!((recovered.transactions, recovered.damage.len()), (2, 0));
        assert_eq!(found.revoked, HashMap::from([(BlockNo(9000), second)]));
        assert!(found.is_revoked(&found.blocks[0]) && found.blocks.len() == 1);
    }
}
