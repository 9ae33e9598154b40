//! The phases of a commit.

/// The phase of the transaction after the last committed one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// It takes handles.
    Running,
    /// It takes no more handles and waits for those that it has.
    Locked,
    /// [`CommitHooks::before_commit`](super::CommitHooks::before_commit) is called.
    Flush,
    /// Its blocks are written to the log.
    Commit,
}
