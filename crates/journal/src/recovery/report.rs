//! The report of a recovery: what was replayed, and the damage found.

use extant_ondisk::{FormatError, InodeNo, Tid};

/// Damage that recovery found in a log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Damage {
    /// A transaction has an error: it and all later ones were not replayed.
    Transaction(Tid, FormatError),
    /// A logged block has an error, or its home location is past the end of the device: it was
    /// skipped.
    Block(FormatError),
    /// A revoke block has an error: nothing was replayed.
    Revoke(FormatError),
}

/// The result of a recovery.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Recovered {
    /// Number of committed transactions in the log.
    pub transactions: u32,
    /// Number of blocks written to their home locations.
    pub blocks: u64,
    /// Number of fast commits replayed after them.
    pub fast_commits: u32,
    /// Inodes that their tables have lost, and that were taken from fast commits: only of
    /// [`recover_damaged`](crate::recover_damaged).
    pub restored_inodes: Vec<InodeNo>,
    /// Inodes with changes in fast commits that could not be replayed, and why: only of
    /// [`recover_damaged`](crate::recover_damaged).
    pub left_out: Vec<(InodeNo, String)>,
    /// Number of logged blocks that were not written because of a revoke record.
    pub revoked: u64,
    /// The number of the next transaction, if the journal stores one.
    pub next_tid: Tid,
    /// An error that the journal had recorded (as errno, negative); 0 for none.
    pub errno: i32,
    /// The damage found, in log order; at most the first few bad blocks.
    pub damage: Vec<Damage>,
}

/// Maximum number of damages that are listed.
const MAX_LISTED: usize = 64;

impl Recovered {
    pub(super) fn record(&mut self, damage: Damage) {
        tracing::warn!(?damage, "journal recovery");
        if self.damage.len() < MAX_LISTED {
            self.damage.push(damage);
        }
    }
}
