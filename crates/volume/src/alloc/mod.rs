//! Where free blocks and inodes are.
//!
//! The truth is on the volume: bitmaps and descriptors, changed through [`Edit`](crate::edit::Edit) by the functions of
//! [`group`]. In memory there is what the volume does not know: clusters that are free there but must not be used yet
//! (`GroupState`), and the volume-wide counts.
//!
//! The choice is plain: the first free run from the goal on. It is made one group after the other under that group's lock, so
//! that operations in different groups never meet.

pub(crate) mod group;
pub(crate) mod inodes;
mod pending;

use extant_ondisk::InodeNo;
pub(crate) use pending::{Allocator, Claim};

/// A wish for an inode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct InodeRequest {
    /// The directory that it is for.
    pub parent: InodeNo,
    /// Whether it becomes a directory. Those are spread over the volume, other files lie with their directory.
    pub is_dir: bool,
    /// Whether the parent's subdirectories are unrelated to each other: it is the root, or marked so.
    pub is_top: bool,
}
