//! Fast commits: changes of the running transaction, logged per inode and directory entry.

mod file;
mod names;
mod replay;
mod scan;
mod volume;

pub(crate) use replay::replay;
pub(crate) use scan::scan;
