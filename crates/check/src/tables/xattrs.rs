//! Blocks of extended attributes that several inodes share, and inodes that hold values: who refers
//! to them how often.

use super::Budget;
use crate::finding::Finding;
use extant_ondisk::{BlockNo, InodeNo};
use extant_runtime::sync::Mutex;
use std::collections::BTreeMap;

/// Data about a shared block.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct XattrBlock {
    /// References as the block says.
    pub(crate) stored: u32,
    /// References met.
    pub(crate) met: u32,
    /// Whether its content was found sound.
    pub(crate) is_sound: bool,
    /// The hash of an entry that says another than it has, where that is what is not sound.
    pub(crate) bad_hash: Option<u32>,
    /// Bytes of the values in inodes of their own that its entries name: each inode that refers to
    /// it is charged for them.
    pub(crate) ea_bytes: u64,
    /// How many such inodes.
    pub(crate) ea_inodes: u64,
    /// The lowest inode that refers to it.
    lowest: u32,
}

const SHARDS: usize = 16;

/// Memory that a map of few numbers takes for each, in addition to them.
const MAP_ROOM: usize = 16;

/// The blocks of extended attributes met so far. The first to meet one checks it, under the lock of
/// its shard.
#[derive(Default)]
pub(crate) struct XattrBlocks {
    shards: [Mutex<BTreeMap<u64, XattrBlock>>; SHARDS],
    /// Findings of a scan in blocks.
    deferred_findings: Mutex<BTreeMap<u64, Vec<Finding>>>,
}

impl XattrBlocks {
    /// Counts a reference; `check` is called for the first one.
    ///
    /// # Errors
    /// The errors of `check`.
    pub(crate) fn refer<E>(
        &self,
        block: BlockNo,
        inode: InodeNo,
        budget: &Budget,
        check: impl FnOnce() -> Result<XattrBlock, E>,
    ) -> Result<XattrBlock, E> {
        let mut shard = self.shards[block.0 as usize % SHARDS].lock();
        if let Some(known) = shard.get_mut(&block.0) {
            known.met += 1;
            known.lowest = known.lowest.min(inode.0);
            return Ok(*known);
        }
        budget.take(size_of::<XattrBlock>() + MAP_ROOM);
        let known = XattrBlock { met: 1, lowest: inode.0, ..check()? };
        shard.insert(block.0, known);
        Ok(known)
    }

    /// All blocks, in order.
    pub(crate) fn all(&self) -> Vec<(BlockNo, XattrBlock)> {
        let mut all: Vec<_> = self
            .shards
            .iter()
            .flat_map(|shard| {
                shard
                    .lock()
                    .iter()
                    .map(|(block, known)| (BlockNo(*block), *known))
                    .collect::<Vec<_>>()
            })
            .collect();
        all.sort_unstable_by_key(|(block, _)| *block);
        all
    }

    /// Keeps what was found in a block until all who refer to it are known.
    pub(crate) fn report_later(&self, block: BlockNo, found: Vec<Finding>) {
        self.deferred_findings.lock().insert(block.0, found);
    }

    /// The findings, each block's with the lowest inode that refers to it.
    pub(crate) fn take_findings(&self) -> Vec<(InodeNo, Vec<Finding>)> {
        let findings = std::mem::take(&mut *self.deferred_findings.lock());
        findings
            .into_iter()
            .map(|(block, found)| {
                let lowest = self.get(BlockNo(block)).map_or(0, |known| known.lowest);
                (InodeNo(lowest), found)
            })
            .collect()
    }

    /// Data about a block.
    pub(crate) fn get(&self, block: BlockNo) -> Option<XattrBlock> {
        self.shards[block.0 as usize % SHARDS].lock().get(&block.0).copied()
    }

    /// A reference is taken back.
    pub(crate) fn unrefer(&self, block: BlockNo) {
        if let Some(known) = self.shards[block.0 as usize % SHARDS].lock().get_mut(&block.0) {
            known.met = known.met.saturating_sub(1);
        }
    }
}

/// References to inodes that hold values.
#[derive(Default)]
pub(crate) struct EaInodes {
    met: Mutex<BTreeMap<InodeNo, u64>>,
}

impl EaInodes {
    pub(crate) fn refer(&self, inode: InodeNo, budget: &Budget) {
        let mut met = self.met.lock();
        let references = met.entry(inode).or_default();
        if *references == 0 {
            budget.take(size_of::<(InodeNo, u64)>() + MAP_ROOM);
        }
        *references += 1;
    }

    pub(crate) fn unrefer(&self, inode: InodeNo) {
        if let Some(met) = self.met.lock().get_mut(&inode) {
            *met = met.saturating_sub(1);
        }
    }

    pub(crate) fn references(&self, inode: InodeNo) -> u64 {
        self.met.lock().get(&inode).copied().unwrap_or(0)
    }
}
