//! Names in copies of damaged directory blocks that are not restored, since they are possibly
//! older: what is known of each before the passes.

use extant_ondisk::dirent::{DirFormat, FileType};
use extant_ondisk::dx_hash::DirHash;
use extant_ondisk::{BlockNo, FileBlock, InodeNo, Tid};

/// A damaged block of a directory with a sound copy that is possibly older, and is not restored.
pub(crate) struct OlderBlock {
    pub(crate) dir: InodeNo,
    pub(crate) at: FileBlock,
    pub(crate) block: BlockNo,
    /// How the directory's records are stored.
    pub(crate) format: DirFormat,
}

/// A name in a copy that is possibly older.
#[derive(Clone, Debug)]
pub(crate) struct OlderName {
    pub(crate) name: Vec<u8>,
    pub(crate) inode: InodeNo,
    pub(crate) file_type: FileType,
    /// The hash of the name, where entries have it.
    pub(crate) hash: Option<DirHash>,
    /// The directory.
    pub(crate) dir: InodeNo,
    /// Its damaged block.
    pub(crate) block: BlockNo,
    /// The block in words.
    pub(crate) what: String,
    /// The transaction that wrote the copy.
    pub(crate) tid: Tid,
    /// The seconds of its commit.
    pub(crate) committed: i64,
    /// The parent that a copy of the first block of `inode` names, where it is a directory with
    /// such a copy.
    pub(crate) parent: Option<InodeNo>,
}
