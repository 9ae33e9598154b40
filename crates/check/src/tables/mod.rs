//! Tables that a check keeps between its passes: claims of clusters, types of inodes, directories.
//!
//! Everything is allocated group by group, only where something is in use, and counted against the
//! limit of memory.

mod blocks;
mod deferred;
mod dirs;
mod inodes;
mod policies;
mod shared;
mod window;
mod xattrs;

pub(crate) use blocks::{BlockTable, Stored};
pub(crate) use deferred::Deferred;
pub(crate) use dirs::{DirBlock, DirFlags, DirInfo, DirTable, NO_BLOCK};
pub(crate) use inodes::{InodeTable, Kind, Mark};
pub(crate) use policies::PolicyTable;
pub(crate) use shared::SharedClusters;
pub(crate) use window::{Carry, Window, Windows};
pub(crate) use xattrs::{EaInodes, XattrBlock, XattrBlocks};

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes that the facts of an inode take.
pub(crate) const BYTES_OF_INODE: usize = 6;

/// Space and inodes in use by each user, group and project.
pub(crate) type Usage = [BTreeMap<u32, (u64, u64)>; 3];

/// Bytes that tables take, against the limit.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicU64,
    peak: AtomicU64,
    limit: u64,
}

impl Budget {
    pub(crate) fn new(limit: Option<u64>) -> Self {
        Self { used: AtomicU64::new(0), peak: AtomicU64::new(0), limit: limit.unwrap_or(u64::MAX) }
    }

    pub(crate) fn take(&self, bytes: usize) {
        let used = self.used.fetch_add(bytes as u64, Relaxed) + bytes as u64;
        self.peak.fetch_max(used, Relaxed);
    }

    pub(crate) fn is_exceeded(&self) -> bool {
        self.used.load(Relaxed) > self.limit
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Relaxed)
    }
}
