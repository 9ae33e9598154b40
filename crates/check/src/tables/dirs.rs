//! The directories: who they are, what their parent is, where their blocks lie.

use extant_ondisk::InodeNo;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

bitflags::bitflags! {
    /// Flags of a directory.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub(crate) struct DirFlags: u8 {
        /// Its records lie in the inode.
        const INLINE = 1;
        /// It has a hashed index.
        const INDEXED = 2;
        /// Names are compared without case.
        const CASEFOLD = 4;
        /// Names are encrypted.
        const ENCRYPTED = 8;
        /// It is to be packed again in pass 3A.
        const REBUILD = 16;
        /// It has more than one entry.
        const LINKED_TWICE = 32;
        /// Pass 3 found the way from it to the root.
        const CONNECTED = 64;
        /// It lies on the way that pass 3 follows.
        const VISITED = 128;
    }
}

/// One directory.
#[derive(Debug)]
pub(crate) struct DirInfo {
    pub(crate) inode: InodeNo,
    /// Where its checksums start.
    pub(crate) checksum_seed: u32,
    /// Blocks of the file.
    pub(crate) blocks: u32,
    /// The inode that `..` names; 0 if it names none.
    pub(crate) dotdot: AtomicU32,
    /// The directory whose entry leads here; 0 for none.
    pub(crate) parent: AtomicU32,
    flags: AtomicU8,
}

impl DirInfo {
    pub(crate) fn new(inode: InodeNo, checksum_seed: u32, blocks: u32, flags: DirFlags) -> Self {
        Self {
            inode,
            checksum_seed,
            blocks,
            dotdot: AtomicU32::new(0),
            parent: AtomicU32::new(0),
            flags: AtomicU8::new(flags.bits()),
        }
    }

    pub(crate) fn has(&self, flag: DirFlags) -> bool {
        self.flags.load(Relaxed) & flag.bits() != 0
    }

    pub(crate) fn set(&self, flag: DirFlags) {
        self.flags.fetch_or(flag.bits(), Relaxed);
    }

    pub(crate) fn unset(&self, flag: DirFlags) {
        self.flags.fetch_and(!flag.bits(), Relaxed);
    }

    pub(crate) fn parent(&self) -> InodeNo {
        InodeNo(self.parent.load(Relaxed))
    }

    pub(crate) fn dotdot(&self) -> InodeNo {
        InodeNo(self.dotdot.load(Relaxed))
    }
}

/// In place of a physical block: the logical block is a hole.
pub(crate) const NO_BLOCK: u64 = 0;

/// A block of a directory.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct DirBlock {
    /// Where it lies; [`NO_BLOCK`] for a hole.
    pub(crate) block: u64,
    /// The directory.
    pub(crate) dir: InodeNo,
    /// Which of its blocks. Directories have at most 2^32 of them.
    pub(crate) at: u32,
}

/// All directories, in the order of their inodes.
#[derive(Debug, Default)]
pub(crate) struct DirTable {
    dirs: Vec<DirInfo>,
    /// Directories added by the repair.
    added: Vec<DirInfo>,
}

impl DirTable {
    pub(crate) fn new(mut dirs: Vec<DirInfo>) -> Self {
        // Stable: each worker's are in order, and runs in order are merged.
        dirs.sort_by_key(|dir| dir.inode);
        dirs.dedup_by_key(|dir| dir.inode);
        Self { dirs, added: Vec::new() }
    }

    pub(crate) fn get(&self, inode: InodeNo) -> Option<&DirInfo> {
        match self.dirs.binary_search_by_key(&inode, |dir| dir.inode) {
            Ok(at) => self.dirs.get(at),
            Err(_) => self.added.iter().find(|dir| dir.inode == inode),
        }
    }

    /// Directories that pass 1 found.
    pub(crate) fn len(&self) -> usize {
        self.dirs.len()
    }

    /// One of them, in the order of inodes.
    pub(crate) fn at(&self, at: usize) -> Option<&DirInfo> {
        self.dirs.get(at)
    }

    pub(crate) fn add(&mut self, dir: DirInfo) {
        self.added.push(dir);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &DirInfo> {
        self.dirs.iter().chain(&self.added)
    }
}
