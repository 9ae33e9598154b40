//! Fast commits: what the running transaction had done already, told by inode and name.

mod file;
mod names;
mod replay;
mod scan;
mod volume;

pub(crate) use replay::replay;
pub(crate) use scan::scan;
