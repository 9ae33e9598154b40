//! Where free blocks and inodes are.
//!
//! The truth is on the volume: bitmaps and descriptors, changed through [`Edit`](crate::edit::Edit)
//! by the functions of [`group`]. In memory there is state that the volume does not have: clusters
//! that are free there but must not be used yet ([`busy`]), a [`buddy`] for groups that were
//! searched, an [`index`] of all groups by their largest chunk, the [`preallocation`] of files that
//! grow, and the volume-wide counts.
//!
//! The entry point is [`Allocator`]: [`Allocator::claim`] finds a run and claims it,
//! [`Allocator::take`] marks it as in use, [`Allocator::free`] gives blocks back. Each group has
//! its lock, so that operations in different groups never meet.

mod allocator;
mod buddy;
mod busy;
pub(crate) mod group;
mod index;
pub(crate) mod inode_group;
mod inodes;
mod memory;
mod policy;
mod preallocation;
mod search;
#[cfg(test)]
mod testing;
mod try_limits;

pub(crate) use allocator::{Allocator, AllocatorOptions, Budget, Claim, pieces_of, run_of};
use extant_ondisk::InodeNo;
pub use policy::AllocatorKind;

/// A wish for an inode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct InodeRequest {
    /// The directory that it is for.
    pub parent: InodeNo,
    /// Whether it becomes a directory. Directories are spread over the volume, other files lie with
    /// their directory.
    pub is_dir: bool,
    /// Whether the parent's subdirectories are unrelated to each other: it is the root, or marked
    /// so.
    pub is_top: bool,
}
