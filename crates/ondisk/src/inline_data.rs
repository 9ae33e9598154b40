//! Data kept in the inode.
