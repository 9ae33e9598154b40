//! Fast commits: what the running transaction had done already, told by inode and name.

mod scan;

pub(crate) use scan::scan;
