//! The changes of operations as they describe them for fast commits, until one is written.

use std::collections::BTreeMap;
use std::ops::Range;

use extant_ondisk::extent::Extent;
use extant_ondisk::{InodeNo, Tid};
use extant_runtime::sync::Mutex;

use super::ranks::{FastChangesLock, FastCommitLock};

/// A range of a file as it is mapped after an operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FastRange {
    /// The file maps this extent.
    Mapped(Extent),
    /// The file does not map these logical blocks: the first, and how many.
    Unmapped(u32, u32),
}

/// A file as it is after an operation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FastFile {
    /// Its inode.
    pub inode: InodeNo,
    /// The first bytes of its record: 128 and the extra fields. Attributes in the inode are not
    /// part of them.
    pub record: Vec<u8>,
    /// Ranges that the operation mapped or unmapped, in order.
    pub ranges: Vec<FastRange>,
}

/// The change of a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FastNameChange {
    /// A new file got it.
    Create,
    /// A file that has other names got it.
    Link,
    /// It was removed.
    Unlink,
}

/// A name that an operation changed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FastName {
    /// The change.
    pub change: FastNameChange,
    /// The directory.
    pub dir: InodeNo,
    /// The file.
    pub inode: InodeNo,
    /// The name.
    pub name: Vec<u8>,
}

/// All that an operation changed, for a fast commit. Bitmaps, counts, extent trees and directory
/// blocks follow from it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FastChanges {
    /// Names, in order.
    pub names: Vec<FastName>,
    /// Files.
    pub files: Vec<FastFile>,
    /// Whether what was written to the device must be durable before the fast commit; where ranges
    /// are mapped it is in any case.
    pub needs_flush: bool,
}

/// Why a transaction was committed where a caller asked for a fast commit.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FastCommitCounts {
    /// Fast commits.
    pub fast: u64,
    /// Transactions instead, by reason.
    pub full: BTreeMap<&'static str, u64>,
}

/// The reason where the area is too short.
pub(super) const AREA_FULL: &str = "fast-commit area full";
/// Bytes of a record of a name besides the name.
const NAME: usize = 12;
/// Bytes of a record of a range.
const RANGE: usize = 20;
/// The reason where an operation has not said what it changed.
const NOT_DESCRIBED: &str = "a change that fast commits do not describe";

/// Fast commits of a transaction from which on it pays to empty the log first.
const ENOUGH: u32 = 4;
/// Transactions that are passed over at most.
const MOST_PASSED: u32 = 64;

/// The changes of one transaction since its last fast commit.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) tid: Tid,
    /// Number of operations of the transaction so far.
    pub(super) operations: u64,
    /// Bytes of all that was described, about.
    bytes: usize,
    pub(super) needs_flush: bool,
    pub(super) refused: Option<&'static str>,
    pub(super) names: Vec<FastName>,
    pub(super) files: BTreeMap<InodeNo, FastFile>,
}

impl Changes {
    /// The transaction gets no fast commit any more.
    pub(super) fn refuse(&mut self, reason: &'static str) {
        self.refused.get_or_insert(reason);
        (self.names, self.files) = (Vec::new(), BTreeMap::new());
    }

    /// Adds those of an operation, unless all of them would take more than `most` bytes.
    fn add(&mut self, changes: FastChanges, most: usize) {
        self.operations += 1;
        if self.refused.is_some() {
            return;
        }
        self.bytes += changes.names.iter().map(|name| NAME + name.name.len()).sum::<usize>();
        self.bytes += changes
            .files
            .iter()
            .map(|file| file.record.len() + RANGE * file.ranges.len())
            .sum::<usize>();
        if self.bytes > most {
            return self.refuse(AREA_FULL);
        }
        self.needs_flush |=
            changes.needs_flush || changes.files.iter().any(|file| !file.ranges.is_empty());
        self.names.extend(changes.names);
        for file in changes.files {
            let known = self.files.entry(file.inode).or_insert_with(|| FastFile {
                inode: file.inode,
                record: Vec::new(),
                ranges: Vec::new(),
            });
            known.record = file.record;
            known.ranges.extend(file.ranges);
        }
    }
}

/// The fast commits in the area.
pub(super) struct Written {
    pub(super) tid: Tid,
    /// Blocks of the area in use.
    pub(super) blocks: u32,
    /// Operations of the transaction that are durable.
    pub(super) operations: u64,
    /// Fast commits of the transaction.
    pub(super) commits: u32,
    /// Whether the transaction gets none, since those before had few.
    pub(super) is_passed_over: bool,
    /// Transactions that are still to be passed over, and how many will be next time.
    to_pass: u32,
    next_pass: u32,
    pub(super) counts: FastCommitCounts,
}

impl Written {
    /// Begins the fast commits of a transaction. The first one waits until the log is empty, which
    /// pays only if some follow.
    pub(super) fn begin(&mut self, tid: Tid) {
        match self.commits {
            0 => {}
            1..ENOUGH => {
                self.to_pass = self.next_pass;
                self.next_pass = (self.next_pass * 2).min(MOST_PASSED);
            }
            _ => self.next_pass = 1,
        }
        self.is_passed_over = self.to_pass > 0;
        self.to_pass = self.to_pass.saturating_sub(1);
        (self.tid, self.blocks, self.operations, self.commits) = (tid, 0, 0, 0);
    }
}

/// The fast commits of a journal.
pub(super) struct FastCommits {
    pub(super) area: Range<u32>,
    /// Bytes that the area holds.
    most_bytes: usize,
    changes: [Mutex<Changes, FastChangesLock>; 2],
    pub(super) written: Mutex<Written, FastCommitLock>,
}

impl FastCommits {
    /// Fast commits in `area` of the journal; the running transaction is `first`.
    pub(super) fn new(area: Range<u32>, block_size: u32, first: Tid) -> Self {
        let changes = Mutex::<Changes, FastChangesLock>::ranked;
        let most = u64::from(area.end - area.start) * u64::from(block_size);
        let fast = Self {
            area,
            most_bytes: usize::try_from(most).unwrap_or(usize::MAX),
            changes: [changes(Changes::default()), changes(Changes::default())],
            written: Mutex::ranked(Written {
                tid: first,
                blocks: 0,
                operations: 0,
                commits: 0,
                is_passed_over: false,
                to_pass: 0,
                next_pass: 1,
                counts: FastCommitCounts::default(),
            }),
        };
        fast.reset(first);
        fast
    }

    pub(super) fn changes_of(&self, tid: Tid) -> &Mutex<Changes, FastChangesLock> {
        &self.changes[(tid.0 % 2) as usize]
    }

    /// Begins the changes of a transaction.
    pub(super) fn reset(&self, tid: Tid) {
        *self.changes_of(tid).lock() = Changes { tid, ..Changes::default() };
    }

    pub(super) fn add(&self, tid: Tid, changes: FastChanges) {
        self.changes_of(tid).lock().add(changes, self.most_bytes);
    }

    /// Why a transaction gets no fast commit, whatever is described.
    pub(super) fn refusal(&self, tid: Tid) -> Option<&'static str> {
        self.changes_of(tid).lock().refused
    }

    pub(super) fn refuse(&self, tid: Tid, reason: Option<&'static str>) {
        let mut changes = self.changes_of(tid).lock();
        changes.operations += 1;
        changes.refuse(reason.unwrap_or(NOT_DESCRIBED));
    }

    pub(super) fn counts(&self) -> FastCommitCounts {
        self.written.lock().counts.clone()
    }
}
