//! Block frames, transactions, checkpoint and recovery.
//!
//! - [`recover_volume`] and [`recover`] replay what a journal holds: into the volume, or into an overlay by those who
//!   only read.
//! - [`Journal`] is the live journal: [`Frame`]s of blocks, changed through [`Handle`]s, committed in transactions.
//! - [`JournalPlace`] says where a journal is: in an inode of the volume or on a device of its own,
//!   which [`ExternalJournal`] finds.
#![forbid(unsafe_code)]

mod built;
mod error;
mod external;
mod fast_commit;
mod home;
mod live;
mod log;
mod place;
mod recovery;
mod runs;

pub use error::JournalError;
pub use external::{ExternalJournal, NotOpened, change_user};
pub use home::Turn;
pub use live::{
    BatchTime, CommitHooks, Frame, FrameWrite, Handle, Journal, LogOnDevice, NoHooks, Options,
    Phase, Seal, Snapshot,
};
pub use log::Log;
pub use place::JournalPlace;
pub use recovery::{Damage, Finish, Recovered, recover, recover_volume};
pub use runs::{BlockRuns, Run};
