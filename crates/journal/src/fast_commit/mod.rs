//! Fast commits: changes of the running transaction, logged per inode and directory entry.

mod damaged;
mod file;
mod inline;
mod names;
mod replay;
mod scan;
mod volume;

pub(crate) use damaged::Replayed;
pub(crate) use replay::{replay, replay_possible};
pub(crate) use scan::{FastCommits, scan};
