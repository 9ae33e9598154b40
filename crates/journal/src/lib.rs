//! Block frames, transactions, checkpoint and recovery.
//!
//! - [`recover_volume`] and [`recover`] replay a journal: into the volume, or into an overlay for a
//!   reader.
//! - [`Journal`] is the live journal: [`Frame`]s of blocks, changed through [`Handle`]s, committed
//!   in transactions.
//! - [`OneTransaction`] changes a volume that is not in use, in one step; [`TemporaryLog`] one
//!   without a journal.
//! - [`LogHistory`] lists the transactions that a log still holds.
//! - [`JournalLocation`] is the location of a journal: in an inode of the volume or on an external
//!   device, which [`ExternalJournal`] finds.
#![forbid(unsafe_code)]

mod error;
mod external;
mod fast_commit;
mod home;
mod live;
mod log;
mod log_history;
mod one_transaction;
mod place;
mod recovery;
mod runs;
mod temporary;
mod transaction_blocks;

pub use error::JournalError;
pub use external::{ExternalJournal, FoundJournal, NotOpened, change_user};
pub use home::Turn;
pub use live::{
    BatchTime, CommitHooks, ExclusiveJournal, FastChanges, FastCommitCounts, FastFile, FastName,
    FastNameChange, FastRange, Frame, FrameWrite, Handle, Journal, JournalOptions, NoHooks,
    OpenLog, Phase, Seal, Snapshot,
};
pub use log::Log;
pub use log_history::{LogHistory, LoggedCopy, LoggedTransaction};
pub use one_transaction::{OneTransaction, ReplayBy, changes_checksums};
pub use place::JournalLocation;
pub use recovery::{Damage, Finish, Recovered, recover, recover_damaged, recover_volume};
pub use runs::{BlockRange, BlockRuns};
pub use temporary::TemporaryLog;
