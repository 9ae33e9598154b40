//! Inodes of every size.
