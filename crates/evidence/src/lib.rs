//! The copies of a volume's blocks that its journal's log still holds, read-only.
//!
//! A log is not erased: after a clean unmount it still holds what was written last to most metadata
//! blocks. [`Evidence`] finds the log, even where the inode of the journal, its descriptor or the
//! superblock is lost, and has the committed copies of each block, with their age: whether the
//! log proves that the block was not written again by way of the journal.
#![forbid(unsafe_code)]

mod locate;

use std::collections::HashMap;
use std::sync::Arc;

use extant_device::Device;
use extant_journal::{
    JournalError, JournalLocation, Log, LogHistory, LoggedCopy, LoggedTransaction,
};
use extant_ondisk::jbd2::JournalSuperblock;
use extant_ondisk::superblock::{RawSuperblock, Superblock};
use extant_ondisk::{BlockNo, Geometry, Tid};
use extant_runtime::env::WallTime;

/// The age of a copy, as far as the log proves it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Age {
    /// The log holds every transaction from that of the copy to the last one, and no check was made
    /// after it: the block was not written later.
    Certain,
    /// A later transaction with the block may have been overwritten in the log, or the block was
    /// changed without the journal.
    PossiblyOlder,
}

/// A copy of a block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BlockCopy {
    /// The block of the volume.
    pub home: BlockNo,
    /// The transaction.
    pub tid: Tid,
    /// The time of its commit; 0 where that was not stored.
    pub committed: WallTime,
    /// Its age.
    pub age: Age,
    copy: LoggedCopy,
}

impl BlockCopy {
    /// Whether the block was not written later.
    pub fn is_certain(&self) -> bool {
        self.age == Age::Certain
    }

    /// Whether the transaction was committed after a time, in seconds since 1970 and nanoseconds.
    pub fn is_after(&self, seconds: i64, nanoseconds: u32) -> bool {
        (self.committed.seconds, self.committed.nanoseconds) > (seconds, nanoseconds)
    }
}

/// The committed copies of blocks that a log holds.
pub struct Evidence {
    device: Arc<dyn Device>,
    place: JournalLocation,
    /// Of each block the oldest first.
    copies: HashMap<BlockNo, Vec<BlockCopy>>,
    is_empty_log: bool,
}

impl std::fmt::Debug for Evidence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Evidence").field("blocks", &self.copies.len()).finish_non_exhaustive()
    }
}

impl Evidence {
    /// Reads the log of the volume on `device`: by the map of the journal's inode, or by its copy
    /// in `superblock` or in a backup, or, where none leads to a log, by a search of the device.
    /// `external` is the device of a journal that is not on the volume. `superblock` may be a
    /// backup.
    ///
    /// `None` if no log is found, or it cannot be read.
    pub fn gather(
        device: &Arc<dyn Device>,
        external: Option<&Arc<dyn Device>>,
        superblock: &RawSuperblock,
        geometry: &Geometry,
    ) -> Option<Self> {
        let found = locate::find(device, external, superblock, geometry)?;
        let log = Log { device: &*found.device, place: &found.place };
        let history = match LogHistory::read(&log, &found.superblock) {
            Ok(history) => history,
            Err(error) => {
                tracing::warn!(%error, "the log is not used as evidence");
                return None;
            }
        };
        // Copies found by a guess of the log's place are never certain.
        let certain_from = history.complete_from.filter(|_| !found.is_guess);
        let copies = copies(&history, &found.superblock, |it| {
            let is_complete = certain_from.is_some_and(|from| !it.tid.is_before(from));
            if is_complete && is_after_checks(it, superblock) {
                Age::Certain
            } else {
                Age::PossiblyOlder
            }
        });
        let is_empty_log = found.superblock.start == 0;
        Some(Self { device: found.device, place: found.place, copies, is_empty_log })
    }

    /// The same where a replay ended before a transaction: the volume is as it was then. Of a
    /// block, copies from that transaction on count only where there is no other, and are never
    /// certain.
    #[must_use]
    pub fn replayed_up_to(mut self, end: Tid) -> Self {
        for copies in self.copies.values_mut() {
            if copies.first().is_some_and(|first| first.tid.is_before(end)) {
                copies.retain(|copy| copy.tid.is_before(end));
            } else {
                copies.iter_mut().for_each(|copy| copy.age = Age::PossiblyOlder);
            }
        }
        self
    }

    /// The newest copy of a block; `None` also where a later revoke record bars it.
    pub fn newest(&self, block: BlockNo) -> Option<&BlockCopy> {
        self.copies.get(&block)?.last()
    }

    /// The copy of a block as it was after a transaction: of that one, or of the last one before it
    /// that the log holds; `None` also where a later revoke record bars it.
    pub fn copy_at(&self, block: BlockNo, tid: Tid) -> Option<&BlockCopy> {
        self.copies.get(&block)?.iter().rev().find(|copy| !tid.is_before(copy.tid))
    }

    /// The blocks with copies, in ascending order.
    pub fn homes(&self) -> Vec<BlockNo> {
        let mut homes: Vec<_> = self.copies.keys().copied().collect();
        homes.sort_unstable();
        homes
    }

    /// Whether nothing in the log waits for a replay.
    pub fn is_replayed(&self) -> bool {
        self.is_empty_log
    }

    /// The bytes of a copy.
    ///
    /// # Errors
    /// The device failed.
    pub fn read(&self, copy: &BlockCopy) -> Result<Vec<u8>, JournalError> {
        copy.copy.read(&Log { device: &*self.device, place: &self.place })
    }
}

/// Whether a transaction was committed after the last check, which may have changed blocks without
/// the journal. A new volume has the time of its making as that of a check.
fn is_after_checks(transaction: &LoggedTransaction, superblock: &RawSuperblock) -> bool {
    let superblock = Superblock::decode(superblock);
    if superblock.last_check == superblock.mkfs_time {
        return true;
    }
    u64::try_from(transaction.committed.seconds).is_ok_and(|at| at > superblock.last_check)
}

/// The copies in transactions whose blocks are in place, or will be by a replay. Later ones
/// are of a log that was damaged, or of a file system before this one.
fn copies(
    history: &LogHistory,
    superblock: &JournalSuperblock,
    age: impl Fn(&LoggedTransaction) -> Age,
) -> HashMap<BlockNo, Vec<BlockCopy>> {
    let mut copies: HashMap<BlockNo, Vec<BlockCopy>> = HashMap::new();
    let is_valid = |it: &&LoggedTransaction| {
        it.needs_replay || it.tid != superblock.sequence && it.tid.is_before(superblock.sequence)
    };
    for transaction in history.transactions.iter().filter(is_valid) {
        let age = age(transaction);
        for copy in &transaction.copies {
            let found = BlockCopy {
                home: copy.home,
                tid: transaction.tid,
                committed: transaction.committed,
                age,
                copy: *copy,
            };
            copies.entry(copy.home).or_default().push(found);
        }
        for block in &transaction.revoked {
            copies.remove(block);
        }
    }
    copies
}
