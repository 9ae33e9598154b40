//! Changing the format: functions over [`Edit`](crate::edit::Edit).
//!
//! They decide nothing about journals, locks or where free blocks are. Each leaves the volume
//! consistent when it returns; its caller holds the inode's lock and writes the inode afterwards
//! ([`write_inode`](crate::edit::write_inode)): the fields change in the
//! [`LoadedInode`](extant_reader::LoadedInode) at hand.

pub mod acl;
pub mod dir;
mod dir_block;
mod extents;
pub(crate) mod htree;
mod indirect;
pub mod inline;
pub mod map_conversion;
pub mod mapping;
pub mod orphans;
pub mod quota;
mod removed;
pub mod shift;
pub mod space;
pub(crate) mod value;
pub mod xattr;
