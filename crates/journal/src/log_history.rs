//! The committed transactions that a log still holds, including those whose blocks have been
//! written home.
//!
//! A log is not erased: transactions remain until later ones are written over them. The oldest one
//! may have lost its first blocks. A copy of a block in the log proves what the block held at that
//! commit; whether it was changed later is known only as far as [`LogHistory::complete_from`] goes,
//! and as the log itself is not damaged.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use extant_ondisk::checksum::crc32_be;
use extant_ondisk::jbd2::{
    BlockType, CommitBlock, FastCommitRecord, FastCommitRecords, Header, JournalChecksum,
    JournalSuperblock, LogFormat, TagFlags, revoke_records, tags, unescape,
};
use extant_ondisk::{BlockNo, Tid};
use extant_runtime::env::WallTime;

use crate::fast_commit::scan;
use crate::log::LogReader;
use crate::transaction_blocks::around;
use crate::{JournalError, Log};

/// The transactions of a log.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LogHistory {
    /// By their numbers, the oldest first.
    pub transactions: Vec<LoggedTransaction>,
    /// The transaction from which on the log holds all, up to the last that was committed; `None`
    /// where it does not hold that one whole. Changes that were not made by way of the journal, as
    /// by a check, are not among them.
    ///
    /// A replay of fast commits changes blocks in place. With fast commits the transactions are
    /// those of the last mount alone, and `None` where there may have been a replay after them.
    pub complete_from: Option<Tid>,
}

/// A committed transaction of which the log holds blocks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LoggedTransaction {
    /// Its number.
    pub tid: Tid,
    /// The journal block of the first of its blocks.
    pub start: u32,
    /// Number of its journal blocks, from `start` on, around the end of the log.
    pub len: u32,
    /// Whether it is known that none of its blocks is missing. Of the oldest one it is only where
    /// the log has not come to its second half: else its first blocks may have been written over.
    pub is_whole: bool,
    /// The time of its commit; 0 where that was not stored.
    pub committed: WallTime,
    /// Its copies of blocks, in log order, except those that fail their checksums.
    pub copies: Vec<LoggedCopy>,
    /// Number of copies that fail their checksums.
    pub bad_copies: u32,
    /// The blocks of its revoke records: no copy of this transaction or an earlier one counts.
    pub revoked: Vec<BlockNo>,
    /// Whether a recovery would read it: its blocks may not be home yet.
    pub needs_replay: bool,
    /// Whether a recovery ends before it: the checksum of the whole transaction differs, or with
    /// asynchronous commits that of a copy. It does so too where its first blocks are missing.
    pub ends_replay: bool,
}

/// A copy of a block in the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LoggedCopy {
    /// The block of the volume.
    pub home: BlockNo,
    /// The journal block that holds the copy.
    pub at: u32,
    /// Whether the copy has zeros where the block begins with the journal's magic number.
    pub is_escaped: bool,
    /// Whether a checksum proves it.
    pub is_verified: bool,
}

impl LoggedCopy {
    /// The bytes of the block.
    ///
    /// # Errors
    /// As of [`LogHistory::read`].
    pub fn read(&self, log: &Log<'_>) -> Result<Vec<u8>, JournalError> {
        let mut bytes = vec![0; log.block_size() as usize];
        log.read(self.at, &mut bytes)?;
        if self.is_escaped {
            unescape(&mut bytes);
        }
        Ok(bytes)
    }
}

impl LogHistory {
    /// Reads the whole log. Only committed transactions are listed, whose descriptor, revoke and
    /// commit blocks have the right checksums.
    ///
    /// # Errors
    /// The device failed, or the journal has fewer blocks than its superblock says.
    pub fn read(log: &Log<'_>, superblock: &JournalSuperblock) -> Result<Self, JournalError> {
        let range = superblock.log();
        let mut parser = Parser {
            reader: LogReader::new(*log, range.end),
            format: superblock.log_format(),
            range: range.clone(),
            broken: HashMap::new(),
        };
        let mut found: Vec<LoggedTransaction> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let Some(transaction) = parser.transaction(at)? else {
                at += 1;
                continue;
            };
            let end = u64::from(at) + u64::from(transaction.len);
            if let Some(wrapped) = end.checked_sub(u64::from(range.end)).filter(|it| *it > 0) {
                // Its end was found before, at the start of the log, as if the rest were missing.
                let tail = u64::from(range.start) + wrapped;
                found.retain(|it| it.tid != transaction.tid || u64::from(it.start) >= tail);
            }
            at = u32::try_from(end).unwrap_or(range.end).min(range.end);
            found.push(transaction);
        }
        let fast_commits = NewestFastCommit::read(log, superblock)?;
        Ok(Self::of_found(found, &parser.broken, superblock, fast_commits))
    }

    fn of_found(
        mut found: Vec<LoggedTransaction>,
        broken: &HashMap<u32, Tid>,
        superblock: &JournalSuperblock,
        fast_commits: NewestFastCommit,
    ) -> Self {
        let range = &superblock.log();
        let end_of = |it: &LoggedTransaction| around(range, it.start, it.len);
        // Numbers wrap around: their order is that of their distance from the superblock's.
        let distance = |tid: Tid| tid.0.wrapping_sub(superblock.sequence.0).cast_signed();
        found.sort_by_key(|it| (distance(it.tid), it.start));
        let ends: HashMap<Tid, u32> = found.iter().map(|it| (it.tid.next(), end_of(it))).collect();
        let mounts: HashMap<Tid, u32> =
            found.iter().map(|it| (next_mount(it.tid), end_of(it))).collect();
        let has_broken: HashSet<Tid> = broken.values().copied().collect();
        for transaction in &mut found {
            let (tid, start) = (transaction.tid, transaction.start);
            // After the one before it, or, of a later mount, at the start of the log.
            let follows =
                |end: &u32| *end == start || start == range.start && !has_broken.contains(&tid);
            let is_first = start == superblock.start && tid == superblock.sequence;
            transaction.is_whole =
                is_first || ends.get(&tid).is_some_and(follows) || mounts.get(&tid) == Some(&start);
        }
        if let Some(at) = first_of_young_log(&found, broken, range, distance) {
            found[at].is_whole = true;
        }
        let mut next = superblock.sequence;
        for transaction in found.iter_mut().filter(|_| superblock.start != 0) {
            if transaction.tid == next && transaction.is_whole && !transaction.ends_replay {
                transaction.needs_replay = true;
                next = next.next();
            }
        }
        // After a recovery that ended at damage, later transactions are in the log: so are those of
        // a file system that was here before.
        let has_later = found.iter().any(|it| distance(it.tid) >= distance(next));
        let complete_from = match has_later {
            false => complete_from(&found, next, superblock, end_of, |last| {
                let is_before = |of: Tid| distance(of) <= distance(last.tid);
                fast_commits.all(is_before) && broken.get(&end_of(last)) != Some(&last.tid.next())
            }),
            true => None,
        };
        // The commit block alone is left of a transaction that was written over.
        found.retain(|it| it.is_whole || it.len > 1);
        Self { transactions: found, complete_from }
    }
}

/// The transaction at the start of a log whose other transactions are in its first half.
///
/// A transaction that is found there may be the end of one that began at the log's end. Its first
/// blocks would have been found, unless later transactions were written over them. No transaction
/// takes half of the log, so that these would be found in its second half.
fn first_of_young_log(
    found: &[LoggedTransaction],
    broken: &HashMap<u32, Tid>,
    log: &Range<u32>,
    distance: impl Fn(Tid) -> i32,
) -> Option<usize> {
    let half = u64::from(log.start) + u64::from(log.end - log.start) / 2;
    let at = found.iter().position(|it| it.start == log.start)?;
    let tid = found[at].tid;
    let end = |it: &LoggedTransaction| u64::from(it.start) + u64::from(it.len);
    let is_young = found[at..].iter().all(|it| end(it) <= half);
    let is_found = broken.iter().all(|(block, of)| {
        *of != tid && (distance(*of) < distance(tid) || u64::from(*block) < half)
    });
    (is_young && is_found).then_some(at)
}

/// The first of the transactions without a gap up to the last one, which is before `next`.
/// `ends_log`: whether no more of the log follows that one.
fn complete_from(
    found: &[LoggedTransaction],
    next: Tid,
    superblock: &JournalSuperblock,
    end_of: impl Fn(&LoggedTransaction) -> u32,
    ends_log: impl Fn(&LoggedTransaction) -> bool,
) -> Option<Tid> {
    let is_complete = |it: &LoggedTransaction| it.is_whole && it.bad_copies == 0 && !it.ends_replay;
    let last = |next: Tid| found.iter().rposition(|it| it.tid.next() == next);
    // The kernel passes over a number when it unmounts.
    let skipped = || last(Tid(next.0.wrapping_sub(1))).filter(|_| superblock.start == 0);
    let ends_at_head = |last: &LoggedTransaction| {
        superblock.start != 0 || superblock.head == 0 || end_of(last) == superblock.head
    };
    let at = last(next).or_else(skipped);
    let at = at.filter(|at| ends_log(&found[*at]) && ends_at_head(&found[*at]))?;
    let mut complete: Option<&LoggedTransaction> = None;
    for transaction in found[..=at].iter().rev().take_while(|it| is_complete(it)) {
        let is_before = |later: &LoggedTransaction| {
            later.tid == transaction.tid.next()
                || later.tid == next_mount(transaction.tid)
                    && later.start == end_of(transaction)
                    && superblock.fast_commit_blocks == 0
        };
        if complete.is_some_and(|later| !is_before(later)) {
            break;
        }
        complete = Some(transaction);
    }
    complete.map(|it| it.tid)
}

/// The number of a transaction that is the first after an unmount and a mount, where `last` was the
/// last one before them. If it starts where that one ends, none of those in between was written:
/// its blocks would be there.
fn next_mount(last: Tid) -> Tid {
    last.next().next().next()
}

/// The transaction of the newest fast commits that the log holds. Each transaction's begin at the
/// start of the area, and a replay leaves them there: only those of a transaction after the last
/// one in the log may have been replayed, and they have its next number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum NewestFastCommit {
    /// There are none.
    None,
    Of(Tid),
    /// The start of the area is damaged.
    Unknown,
}

impl NewestFastCommit {
    fn read(log: &Log<'_>, superblock: &JournalSuperblock) -> Result<Self, JournalError> {
        let area = superblock.fast_commit_area();
        if area.is_empty() {
            return Ok(Self::None);
        }
        let mut block = vec![0; log.block_size() as usize];
        log.read(area.start, &mut block)?;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(Self::None);
        }
        match FastCommitRecords::new(&block).next() {
            Some(Ok((_, _, FastCommitRecord::Head(0, tid)))) => {
                let is_whole = scan(log, superblock, tid)?.commits > 0;
                Ok(if is_whole { Self::Of(tid) } else { Self::Unknown })
            }
            _ => Ok(Self::Unknown),
        }
    }

    /// Whether all fast commits are of such transactions.
    fn all(self, is_such: impl Fn(Tid) -> bool) -> bool {
        match self {
            Self::None => true,
            Self::Of(tid) => is_such(tid),
            Self::Unknown => false,
        }
    }
}

/// Reads one transaction.
struct Parser<'l> {
    reader: LogReader<'l>,
    format: LogFormat,
    range: Range<u32>,
    /// Blocks that belong to a transaction by their headers and are not part of a valid one.
    broken: HashMap<u32, Tid>,
}

impl Parser<'_> {
    fn next(&self, at: u32) -> u32 {
        around(&self.range, at, 1)
    }

    /// The rest of a transaction from a descriptor or revoke block on; `None` where no commit block
    /// follows or a block is not valid.
    fn transaction(&mut self, start: u32) -> Result<Option<LoggedTransaction>, JournalError> {
        let Some(first) = Header::of(self.reader.block(start)?) else { return Ok(None) };
        if self.broken.contains_key(&start) {
            return Ok(None);
        }
        let mut headers = Vec::new();
        let found = self.read(start, first.tid, &mut headers)?;
        if found.is_none() {
            // A transaction from each of them on would not be valid either.
            self.broken.extend(headers.into_iter().map(|at| (at, first.tid)));
        }
        Ok(found)
    }

    fn read(
        &mut self,
        start: u32,
        tid: Tid,
        headers: &mut Vec<u32>,
    ) -> Result<Option<LoggedTransaction>, JournalError> {
        let mut found = LoggedTransaction {
            tid,
            start,
            len: 0,
            is_whole: false,
            committed: WallTime { seconds: 0, nanoseconds: 0 },
            copies: Vec::new(),
            bad_copies: 0,
            revoked: Vec::new(),
            needs_replay: false,
            ends_replay: false,
        };
        let (mut at, mut checksum) = (start, !0);
        let blocks = self.range.end - self.range.start;
        while found.len < blocks {
            let header = Header::of(self.reader.block(at)?).filter(|it| it.tid == tid);
            let Some(header) = header else { return Ok(None) };
            headers.push(at);
            found.len += 1;
            let is_read = match header.block_type {
                BlockType::Descriptor => self.copies(&mut at, &mut found, &mut checksum)?,
                BlockType::Revoke => {
                    let records = revoke_records(self.reader.block(at)?, &self.format);
                    records.is_ok_and(|records| {
                        found.revoked.extend(records);
                        true
                    })
                }
                BlockType::Commit => return self.committed(at, found, checksum),
                BlockType::SuperblockV1 | BlockType::SuperblockV2 => false,
            };
            if !is_read {
                return Ok(None);
            }
            at = self.next(at);
        }
        Ok(None)
    }

    /// Adds the copies after a descriptor block; `at` moves to the last of them. False if the
    /// descriptor block is not valid, or the log is too small for them.
    fn copies(
        &mut self,
        at: &mut u32,
        found: &mut LoggedTransaction,
        checksum: &mut u32,
    ) -> Result<bool, JournalError> {
        let block = self.reader.block(*at)?;
        if self.format.checksum == JournalChecksum::V1 {
            *checksum = crc32_be(*checksum, block);
        }
        let Ok(listed) = tags(block, &self.format).map(Iterator::collect::<Vec<_>>) else {
            return Ok(false);
        };
        for tag in listed {
            *at = self.next(*at);
            found.len += 1;
            if found.len > self.range.end - self.range.start {
                return Ok(false);
            }
            let bytes = self.reader.block(*at)?;
            // A copy has zeros in place of the magic number: this block is of a later use.
            if Header::of(bytes).is_some() {
                return Ok(false);
            }
            let has_checksum = self.format.has_block_checksums();
            if self.format.checksum == JournalChecksum::V1 {
                *checksum = crc32_be(*checksum, bytes);
            } else if has_checksum && self.format.data_checksum(found.tid, bytes) != tag.checksum {
                found.bad_copies += 1;
                continue;
            }
            found.copies.push(LoggedCopy {
                home: tag.block,
                at: *at,
                is_escaped: tag.flags.contains(TagFlags::ESCAPED),
                is_verified: has_checksum,
            });
        }
        Ok(true)
    }

    fn committed(
        &mut self,
        at: u32,
        mut found: LoggedTransaction,
        checksum: u32,
    ) -> Result<Option<LoggedTransaction>, JournalError> {
        let Ok(commit) = CommitBlock::decode(self.reader.block(at)?, &self.format) else {
            return Ok(None);
        };
        // Of a transaction without its first blocks it cannot be compared.
        let is_equal = commit.transaction_checksum.map(|stored| stored == checksum);
        if is_equal == Some(true) {
            found.copies.iter_mut().for_each(|copy| copy.is_verified = true);
        }
        let is_incomplete = self.format.is_async_commit && found.bad_copies > 0;
        found.ends_replay = is_equal == Some(false) || is_incomplete;
        found.committed = WallTime {
            seconds: i64::try_from(commit.seconds).unwrap_or(0),
            nanoseconds: commit.nanoseconds,
        };
        Ok(Some(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transaction_blocks::{Built, Flushes};
    use crate::{BlockRuns, JournalLocation};
    use extant_device::{Device, MemoryDevice};
    use extant_ondisk::Uuid;
    use extant_ondisk::jbd2::{JOURNAL_MAGIC, JournalCompat, JournalIncompat, JournalRoCompat};

    const BLOCK: u32 = 1024;
    /// Blocks of the journal: few, so that the log wraps soon.
    const BLOCKS: u32 = 64;

    /// A journal that fills a device, and the block after the last transaction.
    struct Journal {
        device: MemoryDevice,
        place: JournalLocation,
        superblock: JournalSuperblock,
        head: u32,
    }

    impl Journal {
        fn new(compat: JournalCompat, incompat: JournalIncompat) -> Self {
            let device = MemoryDevice::new(u64::from(BLOCKS * BLOCK));
            let mut runs = BlockRuns::new();
            assert!(runs.push(BlockNo(0), BLOCKS));
            let place = JournalLocation { runs, superblock_at: 0, block_size: BLOCK };
            let superblock = JournalSuperblock {
                is_v2: true,
                block_size: BLOCK,
                blocks_count: BLOCKS,
                first: 1,
                sequence: Tid(u32::MAX - 3),
                start: 0,
                errno: 0,
                compat,
                incompat,
                ro_compat: JournalRoCompat::empty(),
                uuid: Uuid([7; 16]),
                fast_commit_blocks: 0,
                head: 0,
                users: Vec::new(),
            };
            Self { device, place, superblock, head: 1 }
        }

        /// Commits the next transaction: copies of `count` blocks, each with its number in it.
        fn commit(&mut self, count: u64, revoked: &[BlockNo]) {
            let tid = self.superblock.sequence;
            let mut blocks: Vec<_> = (0..count)
                .map(|block| (BlockNo(100 + block), vec![tid.0 as u8; BLOCK as usize]))
                .collect();
            if let Some((_, first)) = blocks.first_mut() {
                first[..4].copy_from_slice(&JOURNAL_MAGIC.to_be_bytes());
            }
            let time = WallTime { seconds: 1000 + i64::from(tid.0 as u8), nanoseconds: 5 };
            let format = self.superblock.log_format();
            let built = Built::new(&format, tid, time, &blocks, revoked);
            let (log, range) = (self.log(), self.superblock.log());
            let len = built.write(&log, &range, self.head, &blocks, Flushes::None).unwrap();
            self.head = around(&range, self.head, len);
            self.superblock.sequence = tid.next();
        }

        fn log(&self) -> Log<'_> {
            Log { device: &self.device, place: &self.place }
        }

        fn history(&self) -> LogHistory {
            LogHistory::read(&self.log(), &self.superblock).unwrap()
        }

        fn flip(&self, block: u32, byte: u64) {
            let mut bytes = [0];
            let at = u64::from(block * BLOCK) + byte;
            self.device.read_at(at, &mut bytes).unwrap();
            self.device.write_at(at, &[bytes[0] ^ 4]).unwrap();
        }
    }

    fn formats() -> [(JournalCompat, JournalIncompat); 4] {
        let none = (JournalCompat::empty(), JournalIncompat::empty());
        [
            none,
            (JournalCompat::CHECKSUM, none.1),
            (none.0, JournalIncompat::CSUM_V2),
            (none.0, JournalIncompat::CSUM_V3 | JournalIncompat::BIT64),
        ]
    }

    #[test]
    fn transactions_stay_until_later_ones_are_written_over_them() {
        for (compat, incompat) in formats() {
            let mut journal = Journal::new(compat, incompat);
            let first = journal.superblock.sequence;
            let checksum = journal.superblock.checksum();
            for number in 1..=20_u32 {
                // 10 blocks with the descriptor and commit block, or with a revoke block.
                let revoked = [BlockNo(100), BlockNo(7)];
                let revoked = if number % 3 == 0 { &revoked[..] } else { &[] };
                journal.commit(if revoked.is_empty() { 8 } else { 7 }, revoked);
                let history = journal.history();
                let tids: Vec<_> = history.transactions.iter().map(|it| it.tid).collect();
                let last = Tid(first.0.wrapping_add(number - 1));
                assert_eq!(tids.last(), Some(&last), "{checksum:?} {number}: {tids:?}");
                let follow = tids.windows(2).all(|pair| pair[0].next() == pair[1]);
                assert!(follow, "{checksum:?} {number}: {tids:?}");
                // The log has room for six, and parts of others.
                let whole = history.transactions.iter().filter(|it| it.is_whole).count();
                assert!(whole + 1 >= number.min(6) as usize, "{checksum:?} {number}: {history:?}");
                assert_eq!(
                    history.complete_from,
                    history.transactions.iter().find(|it| it.is_whole).map(|it| it.tid),
                );
                for transaction in &history.transactions {
                    let (copies, revoked) = (transaction.copies.len(), transaction.revoked.len());
                    if transaction.is_whole {
                        assert!(matches!((copies, revoked), (8, 0) | (7, 2)), "{transaction:?}");
                    }
                    let value = transaction.tid.0 as u8;
                    assert_eq!(transaction.committed.seconds, 1000 + i64::from(value));
                    assert_eq!((transaction.bad_copies, transaction.needs_replay), (0, false));
                    for copy in &transaction.copies {
                        let is_proven = match checksum {
                            JournalChecksum::None => false,
                            JournalChecksum::V1 => !transaction.ends_replay,
                            _ => true,
                        };
                        assert_eq!(copy.is_verified, is_proven);
                        let bytes = copy.read(&journal.log()).unwrap();
                        let expected = match copy.home.0 {
                            100 => JOURNAL_MAGIC.to_be_bytes(),
                            _ => [value; 4],
                        };
                        assert_eq!((&bytes[..4], bytes[9]), (&expected[..], value));
                    }
                }
            }
        }
    }

    /// A recovery reads the transactions from the start that the superblock names.
    #[test]
    fn transactions_that_need_a_replay_are_told_apart() {
        let (compat, incompat) = formats()[3];
        let mut journal = Journal::new(compat, incompat);
        let first = journal.superblock.sequence;
        journal.commit(3, &[]);
        let (start, sequence) = (journal.head, journal.superblock.sequence);
        journal.commit(3, &[]);
        journal.commit(3, &[]);
        (journal.superblock.start, journal.superblock.sequence) = (start, sequence);
        let history = journal.history();
        let needed: Vec<_> = history.transactions.iter().map(|it| it.needs_replay).collect();
        assert_eq!(needed, [false, true, true]);
        // The first transaction is whole: the log is young.
        assert_eq!(history.complete_from, Some(first));
    }

    /// A transaction may have a commit block alone.
    #[test]
    fn empty_transactions_are_part_of_the_sequence() {
        let (compat, incompat) = formats()[3];
        let mut journal = Journal::new(compat, incompat);
        let sequence = journal.superblock.sequence;
        for count in [3, 0, 3] {
            journal.commit(count, &[]);
        }
        let end = journal.superblock.sequence;
        assert_eq!(journal.history().complete_from, Some(sequence));
        (journal.superblock.start, journal.superblock.sequence) = (1, sequence);
        let history = journal.history();
        let copies: Vec<_> = history.transactions.iter().map(|it| it.copies.len()).collect();
        assert_eq!(copies, [3, 0, 3]);
        assert!(history.transactions.iter().all(|it| it.needs_replay && it.is_whole));
        assert_eq!(history.complete_from, Some(sequence));
        // A later transaction without the one before it: a recovery ends too soon.
        journal.flip(6, 500);
        let history = journal.history();
        let needed: Vec<_> = history.transactions.iter().map(|it| it.needs_replay).collect();
        assert_eq!((needed, history.complete_from), (vec![true, false], None));
        // The journal after that recovery.
        (journal.superblock.start, journal.superblock.sequence) = (0, sequence.next().next());
        assert_eq!(journal.history().complete_from, None);
        journal.flip(6, 500);
        (journal.superblock.start, journal.superblock.sequence) = (0, end);
        assert_eq!(journal.history().complete_from, Some(sequence));
    }

    /// A mount that goes on where the one before it ended passes over two numbers.
    #[test]
    fn a_log_is_complete_over_mounts_that_go_on_in_it() {
        let (compat, incompat) = formats()[3];
        for (passed_over, is_known) in [(1, false), (2, true), (3, false)] {
            let mut journal = Journal::new(compat, incompat);
            let first = journal.superblock.sequence;
            journal.commit(3, &[]);
            journal.commit(4, &[]);
            let sequence = journal.superblock.sequence;
            journal.superblock.sequence = Tid(sequence.0.wrapping_add(passed_over));
            let later = journal.superblock.sequence;
            journal.commit(5, &[]);
            let history = journal.history();
            assert_eq!(history.transactions[2].is_whole, is_known);
            let expected = if is_known { Some(first) } else { None };
            assert_eq!(history.complete_from, expected, "{passed_over}: {history:?}");
            // One that begins again at the start of the log leaves transactions that may not be
            // the last ones before it.
            journal.head = 1;
            journal.superblock.sequence =
                Tid(journal.superblock.sequence.0.wrapping_add(passed_over));
            let last = journal.superblock.sequence;
            journal.commit(1, &[]);
            assert_eq!(journal.history().complete_from, Some(last), "{later:?}");
        }
    }

    #[test]
    fn a_log_without_its_last_transaction_is_complete_from_none() {
        let (compat, incompat) = formats()[3];
        let mut journal = Journal::new(compat, incompat);
        journal.commit(3, &[]);
        let second = journal.head;
        journal.commit(3, &[]);
        let last = journal.superblock.sequence;
        assert!(journal.history().complete_from.is_some());
        // One copy.
        journal.flip(second + 2, 77);
        let history = journal.history();
        assert_eq!((history.transactions[1].bad_copies, history.complete_from), (1, None));
        journal.flip(second + 2, 77);
        // The commit block; the descriptor block.
        for block in [second + 4, second] {
            journal.flip(block, 500);
            let history = journal.history();
            assert_eq!((history.transactions.len(), history.complete_from), (1, None));
            journal.flip(block, 500);
        }
        // The kernel passes over one number.
        journal.superblock.sequence = last.next();
        assert!(journal.history().complete_from.is_some());
        // A transaction that has lost all of its headers is not such a number: the log ends later.
        journal.superblock.sequence = last;
        for block in [second, second + 4] {
            journal.device.write_at(u64::from(block * BLOCK), &[0; BLOCK as usize]).unwrap();
        }
        assert!(journal.history().complete_from.is_some());
        journal.superblock.head = journal.head;
        assert_eq!(journal.history().complete_from, None);
        journal.superblock.head = second;
        assert!(journal.history().complete_from.is_some());
        journal.superblock.head = 0;
        journal.superblock.sequence = last.next().next();
        assert_eq!(journal.history().complete_from, None);
    }

    #[test]
    fn logs_of_any_bytes_are_read() {
        let mut random = fastrand::Rng::with_seed(5);
        for (compat, incompat) in formats() {
            let mut journal = Journal::new(compat, incompat);
            (0..9).for_each(|_| journal.commit(5, &[BlockNo(3)]));
            for _ in 0..3000 {
                let block = random.u32(1..BLOCKS);
                match random.u8(0..4) {
                    0 => {
                        let from = random.u32(1..BLOCKS);
                        let mut bytes = vec![0; BLOCK as usize];
                        journal.device.read_at(u64::from(from * BLOCK), &mut bytes).unwrap();
                        journal.device.write_at(u64::from(block * BLOCK), &bytes).unwrap();
                    }
                    1 => journal.flip(block, random.u64(0..20)),
                    2 => journal.flip(block, random.u64(0..u64::from(BLOCK))),
                    _ => journal.commit(random.u64(0..30), &[]),
                }
                let history = journal.history();
                // A transaction around the end may cover blocks of others.
                let most = 2 * u64::from(BLOCKS);
                let copies = |it: &LoggedTransaction| it.copies.len() as u64;
                assert!(history.transactions.iter().map(copies).sum::<u64>() < most);
            }
        }
    }
}
