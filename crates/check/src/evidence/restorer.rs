//! Blocks as they are and as the log has them, and the repair of one.

use crate::finding::Finding;
use crate::older_names::OlderBlock;
use crate::recorder::Recorder;
use crate::store::{CheckError, Store};
use extant_evidence::{BlockCopy, Evidence};
use extant_layout::RunSet;
use extant_ondisk::{BlockNo, Geometry, InodeNo, Tid};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// The state of a restoring: what was proposed, and what is known of the volume.
pub(super) struct Restorer<'a> {
    pub(super) store: &'a Store,
    pub(super) geometry: &'a Geometry,
    pub(super) evidence: &'a Evidence,
    /// Blocks with copies, in ascending order.
    pub(super) homes: Vec<BlockNo>,
    pub(super) recorder: &'a Recorder<'a>,
    /// Blocks as restored, where nothing is written.
    pub(super) overlay: HashMap<BlockNo, Vec<u8>>,
    /// Blocks of files with sound inodes, where they must be known.
    pub(super) claims: Option<RunSet>,
    /// Blocks whose repair was refused: several files may lead to them.
    pub(super) refused: HashSet<BlockNo>,
    /// Blocks of directories with copies that are possibly older, which are not restored.
    pub(super) older_blocks: Vec<OlderBlock>,
    /// The replay of this run left blocks out: some are older than others.
    pub(super) is_mixed: bool,
    /// Inodes that have records from copies that are possibly older, with the transactions.
    pub(super) older_inodes: HashMap<InodeNo, Tid>,
    pub(super) restored: u64,
}

impl Restorer<'_> {
    /// A block as it is, or as it would be restored.
    pub(super) fn block(&self, block: BlockNo) -> Result<Vec<u8>, CheckError> {
        match self.overlay.get(&block) {
            Some(bytes) => Ok(bytes.clone()),
            None => self.store.read(block),
        }
    }

    /// The blocks of a range that have copies.
    pub(super) fn homes_in(&self, blocks: Range<u64>) -> Vec<BlockNo> {
        let from = self.homes.partition_point(|home| home.0 < blocks.start);
        self.homes[from..].iter().copied().take_while(|home| home.0 < blocks.end).collect()
    }

    /// The newest copy of a block with its bytes. A log that cannot be read there proves nothing.
    pub(super) fn copy_of(&self, block: BlockNo) -> Option<(BlockCopy, Vec<u8>)> {
        let copy = *self.evidence.newest(block)?;
        let bytes = self.evidence.read(&copy).ok()?;
        Some((copy, bytes)).filter(|(_, bytes)| bytes.len() == self.geometry.block_len())
    }

    /// Proposes to restore a block, and does it if that is accepted.
    pub(super) fn propose(
        &mut self,
        finding: Finding,
        block: BlockNo,
        bytes: Vec<u8>,
    ) -> Result<bool, CheckError> {
        if self.refused.contains(&block) {
            return Ok(false);
        }
        if self.recorder.should_fix(finding)? {
            if self.restored == 0 {
                self.store.mark_unclean()?;
            }
            self.store.write(block, &bytes)?;
            self.restored += 1;
            return Ok(true);
        }
        let is_assumed = !self.recorder.may_repair();
        match is_assumed {
            true => drop(self.overlay.insert(block, bytes)),
            false => drop(self.refused.insert(block)),
        }
        Ok(is_assumed)
    }
}
