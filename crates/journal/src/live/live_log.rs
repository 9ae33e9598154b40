//! The log of a live journal: its features, its start, and the write of the next transaction.

use std::ops::Range;

use extant_device::Device;
use extant_ondisk::jbd2::{
    DEFAULT_FAST_COMMIT_BLOCKS, JournalCompat, JournalIncompat, JournalSuperblock, LogFormat,
    RawJournalSuperblock,
};
use extant_ondisk::{BlockNo, Geometry, IncompatFeatures, Tid};
use extant_runtime::sync::{Arc, Mutex};

use super::frame::Snapshot;
use super::options::JournalOptions;
use super::ranks::SuperblockLock;
use crate::transaction_blocks::{Built, Flushes, around, needed, revokes_per_block};
use crate::{JournalError, JournalLocation, Log};
use extant_runtime::env::WallTime;

/// Minimum number of log blocks; the kernel requires 1,024 for the journal.
const MIN_LOG: u32 = 64;

/// A journal open for writing, and its device.
#[derive(Clone, Debug)]
pub struct OpenLog {
    /// The volume's device, or the journal's own.
    pub device: Arc<dyn Device>,
    /// The location of the journal on that device.
    pub place: JournalLocation,
    /// Whether the device is an external one.
    pub is_external: bool,
}

pub(super) struct LiveLog {
    pub(super) on: OpenLog,
    pub(super) format: LogFormat,
    range: Range<u32>,
    fast_commit_area: Range<u32>,
    has_barriers: bool,
    superblock: Mutex<(RawJournalSuperblock, JournalSuperblock), SuperblockLock>,
}

impl LiveLog {
    /// Opens a journal whose log is empty, sets its features, and marks it as in use from `head`
    /// on: the first transaction is written there. Before that, `mark_volume` sets needs_recovery
    /// in the volume's superblock: without it, mount and checker would ignore the log.
    pub(super) fn open(
        on: OpenLog,
        geometry: &Geometry,
        options: &JournalOptions,
        mark_volume: impl FnOnce() -> Result<(), JournalError>,
    ) -> Result<(Self, u32, Tid), JournalError> {
        let log = Log { device: &*on.device, place: &on.place };
        let (mut raw, mut superblock) = log.superblock()?;
        if superblock.start != 0 {
            return Err(JournalError::NotRecovered);
        }
        superblock.set_features(geometry, options);
        if options.fast_commits {
            set_fast_commits(&mut superblock, &mut raw);
        }
        let range = superblock.log();
        if range.end - range.start < MIN_LOG {
            return Err(JournalError::TooSmall(range.end - range.start));
        }
        let is_in_log = range.contains(&superblock.head);
        let head = if is_in_log { superblock.head } else { range.start };
        let first = superblock.sequence;
        (superblock.start, superblock.head) = (head, 0);
        clear_fast_commits(&log, &superblock.fast_commit_area())?;
        mark_volume()?;
        log.write_superblock(&mut raw, &superblock)?;
        on.device.flush()?;
        let format = superblock.log_format();
        let fast_commit_area = match options.fast_commits {
            true => superblock.fast_commit_area(),
            false => 0..0,
        };
        let superblock = Mutex::ranked((raw, superblock));
        let has_barriers = options.barriers;
        Ok((Self { on, format, range, fast_commit_area, has_barriers, superblock }, head, first))
    }

    /// The blocks for fast commits; `None` without any.
    pub(super) fn fast_commit_area(&self) -> Option<Range<u32>> {
        (!self.fast_commit_area.is_empty()).then(|| self.fast_commit_area.clone())
    }

    /// Overwrites the start of the area: it has no fast commits then. Nothing is flushed.
    pub(super) fn clear_fast_commit_area(&self) -> Result<(), JournalError> {
        clear_fast_commits(
            &Log { device: &*self.on.device, place: &self.on.place },
            &self.fast_commit_area,
        )
    }

    /// Number of blocks of the log.
    pub(super) fn size(&self) -> u32 {
        self.range.end - self.range.start
    }

    /// The block `count` blocks after `at`, wrapping at the end.
    pub(super) fn after(&self, at: u32, count: u32) -> u32 {
        around(&self.range, at, count)
    }

    /// Number of log blocks of a transaction of `frames` frames and `revoked` revoke records.
    pub(super) fn needed(&self, frames: u32, revoked: u32) -> u32 {
        needed(&self.format, frames, revoked)
    }

    /// Revoke records that a block holds, at least one.
    pub(super) fn revokes_per_block(&self) -> u32 {
        revokes_per_block(&self.format)
    }

    /// The journal has no area for fast commits from the next [`Self::set_tail`] on, as after an
    /// unmount by the kernel.
    pub(super) fn drop_fast_commits(&self) {
        if !self.fast_commit_area.is_empty() {
            self.superblock.lock().1.incompat.remove(JournalIncompat::FAST_COMMIT);
        }
    }

    /// Stores the start of the log and the transaction there, or (with 0) that the log is empty.
    pub(super) fn set_tail(
        &self,
        start: u32,
        sequence: Tid,
        head: u32,
    ) -> Result<(), JournalError> {
        self.update(|superblock| {
            (superblock.start, superblock.sequence, superblock.head) = (start, sequence, head);
        })?;
        if self.has_barriers {
            self.on.device.flush()?;
        }
        Ok(())
    }

    /// Stores the error that aborted the journal.
    pub(super) fn set_errno(&self, errno: i32) -> Result<(), JournalError> {
        self.update(|superblock| superblock.errno = errno)?;
        Ok(self.on.device.flush()?)
    }

    fn update(&self, change: impl FnOnce(&mut JournalSuperblock)) -> Result<(), JournalError> {
        let mut held = self.superblock.lock();
        let (raw, superblock) = &mut *held;
        change(superblock);
        Log { device: &*self.on.device, place: &self.on.place }.write_superblock(raw, superblock)
    }

    /// Writes a transaction at `head` and makes it durable. Returns the number of blocks that it
    /// takes.
    pub(super) fn write(
        &self,
        tid: Tid,
        time: WallTime,
        blocks: &[(BlockNo, Snapshot)],
        revoked: &[BlockNo],
        head: u32,
    ) -> Result<u32, JournalError> {
        let log = Log { device: &*self.on.device, place: &self.on.place };
        let flushes = match (self.has_barriers, self.format.is_async_commit) {
            (false, _) => Flushes::None,
            (true, true) => Flushes::After,
            (true, false) => Flushes::Both,
        };
        let built = Built::new(&self.format, tid, time, blocks, revoked);
        built.write(&log, &self.range, head, blocks, flushes)
    }
}

/// Overwrites the first block of the fast-commit area.
fn clear_fast_commits(log: &Log<'_>, area: &Range<u32>) -> Result<(), JournalError> {
    if area.is_empty() {
        return Ok(());
    }
    let zeros = vec![0; log.block_size() as usize];
    Ok(log.device.submit(&mut log.writes(area.start, &[&zeros])?)?)
}

/// Gives a journal whose log is empty an area for fast commits, of the size that mkfs stored, if it
/// leaves most of the log.
fn set_fast_commits(superblock: &mut JournalSuperblock, raw: &mut RawJournalSuperblock) {
    if !superblock.is_v2 || superblock.incompat.contains(JournalIncompat::FAST_COMMIT) {
        return;
    }
    let stored = raw.s_num_fc_blks.get();
    let blocks = if stored == 0 { DEFAULT_FAST_COMMIT_BLOCKS } else { stored };
    if blocks < (superblock.blocks_count - superblock.first) / 2 {
        raw.s_num_fc_blks.set(blocks);
        superblock.fast_commit_blocks = blocks;
        superblock.incompat |= JournalIncompat::FAST_COMMIT;
    }
}

/// Sets the journal's features for a volume and mount options, as the kernel does on mount.
pub(crate) trait SetFeatures {
    fn set_features(&mut self, geometry: &Geometry, options: &JournalOptions);
}

impl SetFeatures for JournalSuperblock {
    fn set_features(&mut self, geometry: &Geometry, options: &JournalOptions) {
        if !self.is_v2 {
            return;
        }
        self.incompat |= JournalIncompat::REVOKE;
        self.incompat.set(
            JournalIncompat::BIT64,
            geometry.has_incompat(IncompatFeatures::BIT64)
                || self.incompat.contains(JournalIncompat::BIT64),
        );
        self.compat.remove(JournalCompat::CHECKSUM);
        self.incompat.remove(
            JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3 | JournalIncompat::ASYNC_COMMIT,
        );
        self.incompat.set(JournalIncompat::ASYNC_COMMIT, options.async_commit);
        if geometry.has_metadata_csum() {
            self.incompat |= JournalIncompat::CSUM_V3;
        } else if options.checksum || options.async_commit {
            self.compat |= JournalCompat::CHECKSUM;
        }
    }
}
