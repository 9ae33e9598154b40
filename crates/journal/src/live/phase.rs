//! The phases of a commit.

/// What the transaction after the last committed one does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// Takes handles.
    Running,
    /// Takes no more handles, waits for those that it has.
    Locked,
    /// [`CommitHooks::before_commit`](super::CommitHooks::before_commit) is called.
    Flush,
    /// Its blocks are written to the log.
    Commit,
}
