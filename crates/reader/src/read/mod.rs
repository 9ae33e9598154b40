//! Reading the format: functions over [`MetadataRead`](crate::MetadataRead).
//!
//! They decide nothing about where blocks come from, and they do bounded work on any bytes: trees
//! have the depth that their root states, walks end when more blocks were met than the volume has,
//! and nothing is allocated by a number from disk alone.

pub mod ahead;
pub mod data;
pub mod dir;
pub mod dir_block;
pub mod group;
pub mod htree;
pub mod inline;
pub mod inode;
pub mod inode_tables;
pub mod mapping;
pub mod nokey;
pub mod path;
pub mod quota;
pub mod runs;
pub mod seek;
pub mod statfs;
pub mod symlink;
pub mod xattr;
