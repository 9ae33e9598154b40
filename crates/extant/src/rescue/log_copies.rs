//! The copies of blocks that the log holds, by the place of the block.

use std::collections::HashMap;
use std::sync::Arc;

use extant_device::Device;
use extant_journal::{JournalLocation, Log, LogHistory, LoggedCopy};
use extant_ondisk::{BlockNo, CompatFeatures, Geometry, IncompatFeatures, Tid};

use super::RescueError;
use crate::inspect::{RawView, locate_journal};

/// A commit of the log: they are counted from 0, the oldest first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Commit(pub(super) usize);

/// A log and its copies.
#[derive(Debug, Default)]
pub(super) struct LogCopies {
    log: Option<(Arc<dyn Device>, JournalLocation)>,
    history: LogHistory,
    /// The copies of a block in the order of their commits.
    by_home: HashMap<BlockNo, Vec<(Commit, LoggedCopy)>>,
}

impl LogCopies {
    /// None on a volume without a journal.
    pub(super) fn read(view: &RawView, geometry: &Geometry) -> Result<Self, RescueError> {
        if !geometry.has_compat(CompatFeatures::HAS_JOURNAL) {
            return Ok(Self::default());
        }
        let (device, place) = locate_journal(view, geometry)?;
        let log = Log { device: &*device, place: &place };
        let (_, mut superblock) = log.superblock()?;
        if !view.superblock.features.incompat.contains(IncompatFeatures::RECOVER) {
            superblock.start = 0;
        }
        let history = LogHistory::read(&log, &superblock)?;
        let mut by_home: HashMap<_, Vec<_>> = HashMap::new();
        for (at, transaction) in history.transactions.iter().enumerate() {
            for copy in &transaction.copies {
                by_home.entry(copy.home).or_default().push((Commit(at), *copy));
            }
        }
        Ok(Self { log: Some((device, place)), history, by_home })
    }

    /// The blocks that have copies, in order.
    pub(super) fn homes(&self) -> Vec<BlockNo> {
        let mut homes: Vec<_> = self.by_home.keys().copied().collect();
        homes.sort_unstable();
        homes
    }

    /// The copies of a block, the oldest first.
    pub(super) fn of(&self, home: BlockNo) -> &[(Commit, LoggedCopy)] {
        self.by_home.get(&home).map_or(&[], Vec::as_slice)
    }

    /// Whether a block was part of the metadata in this commit or a later one.
    pub(super) fn has_since(&self, home: BlockNo, commit: Commit) -> bool {
        self.of(home).last().is_some_and(|(last, _)| *last >= commit)
    }

    pub(super) fn bytes(&self, copy: &LoggedCopy) -> Result<Vec<u8>, RescueError> {
        match &self.log {
            Some((device, place)) => Ok(copy.read(&Log { device: &**device, place })?),
            None => Ok(Vec::new()),
        }
    }

    /// The number of the transaction of a commit.
    pub(super) fn tid(&self, commit: Commit) -> Option<u32> {
        self.history.transactions.get(commit.0).map(|transaction| transaction.tid.0)
    }

    /// When a commit was made, in seconds since 1970; `None` where that was not stored.
    pub(super) fn time(&self, commit: Commit) -> Option<i64> {
        let committed = self.history.transactions.get(commit.0)?.committed.seconds;
        (committed != 0).then_some(committed)
    }

    /// Whether the log holds all commits from this one on.
    pub(super) fn is_complete_from(&self, commit: Commit) -> bool {
        let tid = |commit: Commit| self.history.transactions.get(commit.0).map(|it| it.tid);
        let is_not_before =
            |from: Tid| tid(commit).is_some_and(|tid| tid.0.wrapping_sub(from.0) < u32::MAX / 2);
        self.history.complete_from.is_some_and(is_not_before)
    }
}
