//! An inode under check, and the counts of its map.

use crate::finding::{Code, Finding};
use crate::tables::Mark;
use extant_ondisk::InodeNo;
use extant_ondisk::inode::Inode;

/// An inode under check. Changes of the rules go to `inode`, and to `record` for fields that the
/// decoded form lacks.
pub(crate) struct Visit<'r> {
    pub(crate) ino: InodeNo,
    pub(crate) record: &'r mut [u8],
    pub(crate) inode: Inode,
    /// Something was repaired: the record is written at the end.
    pub(crate) dirty: bool,
    /// The inode was cleared.
    pub(crate) cleared: bool,
    pub(crate) marks: Mark,
    /// The checksum stored is not that of the record as read.
    pub(crate) bad_checksum: bool,
    /// The same is true of all other records of its block of the table.
    pub(crate) is_alone: bool,
}

impl Visit<'_> {
    pub(crate) fn finding(&self, code: Code) -> Finding {
        Finding::new(code).inode(self.ino)
    }
}

/// Counts of a map.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MapCounts {
    /// Clusters of data and nodes.
    pub(crate) clusters: u64,
    /// Logical block after the last, unwritten ones too.
    pub(crate) end: u64,
    /// Logical block after the last written one.
    pub(crate) written_end: u64,
    /// Runs of neighbouring blocks.
    pub(crate) runs: u64,
    /// The map is to be rewritten after the pass.
    pub(crate) rebuild: bool,
    /// Levels below the root.
    pub(crate) depth: u16,
    /// The map lies on the volume's own metadata: its size is not checked.
    pub(crate) is_unsure: bool,
}
