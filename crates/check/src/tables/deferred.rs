//! Work that pass 1 defers to its end.

use extant_ondisk::InodeNo;

/// Inodes whose maps are to be rewritten, by the reason.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    /// Invalid parts are left out.
    pub(crate) rebuild: Vec<InodeNo>,
    /// Everything from a logical block on is left out.
    pub(crate) drop_from: Vec<(InodeNo, u64)>,
    /// Unwritten extents become written ones.
    pub(crate) write_out: Vec<InodeNo>,
    /// The blocks after a hole move up.
    pub(crate) close_holes: Vec<InodeNo>,
    /// Bigalloc: extents at a wrong place of their cluster are moved.
    pub(crate) misaligned: Vec<InodeNo>,
    /// Maps of indirect blocks become extents.
    pub(crate) to_extents: Vec<InodeNo>,
}
