//! The frames and revoke records of a transaction, until it is committed.

use std::collections::HashSet;
use std::time::Duration;

use extant_ondisk::BlockNo;
use extant_runtime::sync::Mutex;
use extant_runtime::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::cache::ByBlock;
use super::frame::Frame;
use super::ranks::{FrameListLock, RevokeLock};

/// Number of shards of the lists: threads that add different frames rarely contend.
const SHARDS: u64 = 16;

/// One of the two transactions in memory: the running and the committing one alternate.
#[derive(Default)]
pub(super) struct Transaction {
    frames: [Mutex<Vec<Frame>, FrameListLock>; SHARDS as usize],
    frames_count: AtomicU32,
    revoked: [Mutex<HashSet<u64, ByBlock>, RevokeLock>; SHARDS as usize],
    revoked_count: AtomicU32,
    /// Time of the first frame in nanoseconds of the runtime's clock, plus one; 0 before.
    started: AtomicU64,
}

impl Transaction {
    /// Adds a frame that is not in it yet. Returns true for the first one.
    pub(super) fn add(&self, frame: Frame) -> bool {
        self.frames[shard(frame.block())].lock().push(frame);
        self.frames_count.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Adds a revoke record. Returns the number of records before, or `None` if the block had one.
    pub(super) fn revoke(&self, block: BlockNo) -> Option<u32> {
        let is_new = self.revoked[shard(block)].lock().insert(block.0);
        is_new.then(|| self.revoked_count.fetch_add(1, Ordering::Release))
    }

    /// Removes a revoke record: the block is in use again.
    pub(super) fn cancel_revoke(&self, block: BlockNo) {
        if self.revoked_count() > 0 && self.revoked[shard(block)].lock().remove(&block.0) {
            self.revoked_count.fetch_sub(1, Ordering::Release);
        }
    }

    pub(super) fn frames_count(&self) -> u32 {
        self.frames_count.load(Ordering::Relaxed)
    }

    pub(super) fn revoked_count(&self) -> u32 {
        self.revoked_count.load(Ordering::Acquire)
    }

    /// Whether there is nothing to commit.
    pub(super) fn is_empty(&self) -> bool {
        self.frames_count() == 0 && self.revoked_count() == 0
    }

    pub(super) fn set_started(&self, now: Duration) {
        let nanoseconds = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX - 1);
        self.started.store(nanoseconds + 1, Ordering::Relaxed);
    }

    /// Time of its first frame.
    pub(super) fn started(&self) -> Option<Duration> {
        self.started.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_nanos)
    }

    /// Takes the frames out; a frame may be listed twice.
    pub(super) fn take_frames(&self) -> Vec<Frame> {
        self.frames.iter().flat_map(|shard| std::mem::take(&mut *shard.lock())).collect()
    }

    /// Takes the revoke records out, sorted.
    pub(super) fn take_revoked(&self) -> Vec<BlockNo> {
        let mut blocks: Vec<_> = self
            .revoked
            .iter()
            .flat_map(|shard| std::mem::take(&mut *shard.lock()))
            .map(BlockNo)
            .collect();
        blocks.sort_unstable();
        blocks
    }

    /// Empties it for the transaction after the next. It must have no handle.
    pub(super) fn reset(&self) {
        self.frames_count.store(0, Ordering::Relaxed);
        self.revoked_count.store(0, Ordering::Relaxed);
        self.started.store(0, Ordering::Relaxed);
    }
}

fn shard(block: BlockNo) -> usize {
    (block.0 % SHARDS) as usize
}
