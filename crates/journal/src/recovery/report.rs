//! The report of a recovery: what was replayed, and the damage found.

use extant_ondisk::{FormatError, Tid};

/// What recovery met that was not right.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Damage {
    /// A transaction does not verify: it and all later ones were not replayed.
    Transaction(Tid, FormatError),
    /// A logged block does not verify, or belongs past the end of the device: it was left out.
    Block(FormatError),
    /// A revoke block does not verify: nothing was replayed.
    Revoke(FormatError),
}

/// What recovery did.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Recovered {
    /// Committed transactions in the log.
    pub transactions: u32,
    /// Blocks written home.
    pub blocks: u64,
    /// Fast commits replayed after them.
    pub fast_commits: u32,
    /// Logged blocks that a revoke record kept from being written.
    pub revoked: u64,
    /// The number of the next transaction, where the journal holds one.
    pub next_tid: Tid,
    /// An error that the journal had recorded (as errno, negative); 0 for none.
    pub errno: i32,
    /// What was not right, in order; of many bad blocks the first few.
    pub damage: Vec<Damage>,
}

/// Damages that are listed at most.
const MAX_LISTED: usize = 64;

impl Recovered {
    pub(super) fn note(&mut self, damage: Damage) {
        tracing::warn!(?damage, "journal recovery");
        if self.damage.len() < MAX_LISTED {
            self.damage.push(damage);
        }
    }
}
