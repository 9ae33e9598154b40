//! The live journal: frames, handles, transactions, and the workers that commit and checkpoint
//! them.
//!
//! `docs/src/internals/journal.md` has the states, the lock order, and what is flushed when.

mod cache;
mod checkpoint;
mod commit;
mod core;
mod fast_changes;
mod fast_commit;
mod frame;
mod gate;
mod handle;
mod hooks;
mod latch;
mod live_log;
mod options;
mod phase;
mod ranks;
#[cfg(all(test, feature = "shuttle"))]
mod shuttle_tests;
mod transaction;

use std::fmt;
use std::ops::Range;

use extant_device::Device;
use extant_ondisk::{BlockNo, Geometry, Tid};
use extant_runtime::env::{Env, Next, Worker};
use extant_runtime::sync::Arc;
use extant_runtime::sync::atomic::Ordering;

pub use fast_changes::{
    FastChanges, FastCommitCounts, FastFile, FastName, FastNameChange, FastRange,
};
pub use frame::{Frame, FrameWrite, Seal, Snapshot};
pub use handle::Handle;
pub use hooks::{CommitHooks, NoHooks};
pub use live_log::OpenLog;
pub(crate) use live_log::SetFeatures;
pub use options::{BatchTime, JournalOptions};
pub use phase::Phase;

use crate::{JournalError, recovery};
use cache::Cache;
use checkpoint::Tail;
use core::{Core, Wakers};
use live_log::LiveLog;

/// A live journal. Dropping it only stops the workers and leaves the device as after a power cut;
/// [`Journal::close`] ends it cleanly.
pub struct Journal {
    // Dropped first, so that the workers stop first.
    _commit: Worker,
    _checkpoint: Worker,
    core: Arc<Core>,
}

impl Journal {
    /// Starts a journal on a volume. With a log, that must be empty
    /// ([`recover_volume`](crate::recover_volume) empties it), and the volume's superblock has
    /// needs_recovery set afterwards. Without a log, a commit writes changes directly to their home
    /// locations.
    ///
    /// # Errors
    /// [`JournalError::NotRecovered`], [`JournalError::TooSmall`], an invalid superblock, or a
    /// device failed.
    pub fn open(
        device: Arc<dyn Device>,
        geometry: &Geometry,
        log: Option<OpenLog>,
        env: &Env,
        options: JournalOptions,
        hooks: Arc<dyn CommitHooks>,
    ) -> Result<Self, JournalError> {
        let frames = usize::try_from(options.memory / u64::from(geometry.block_size));
        let cache = Cache::new(
            device.clone(),
            geometry.block_size,
            geometry.blocks_count,
            frames.unwrap_or(usize::MAX) / 2,
        );
        let (log, first) = match log {
            Some(on) => {
                let (log, head, first) = LiveLog::open(on, geometry, &options, || {
                    recovery::set_needs_recovery(&*device, true)
                })?;
                (Some((log, head)), first)
            }
            None => (None, Tid(1)),
        };
        let io_priority = options.io_priority;
        let core = Arc::new(Core::new(
            device,
            geometry.block_size,
            env.clone(),
            options,
            hooks,
            cache,
            log,
            first,
        ));
        let spawn = |name, mut priority: Option<u8>, step: fn(&Core) -> Next| {
            let (weak, world) = (Arc::downgrade(&core), env.clone());
            env.spawn(name, move || {
                // Once, in the worker's own thread.
                if let Some(level) = priority.take()
                    && let Err(error) = world.set_io_priority(level)
                {
                    tracing::warn!(%error, "journal_ioprio= was not set");
                }
                weak.upgrade().map_or(Next::Done, |core| step(&core))
            })
        };
        let commit = spawn("commit", io_priority, Core::commit_step);
        let checkpoint = spawn("checkpoint", None, Core::checkpoint_step);
        *core.wakers.lock() =
            Some(Wakers { commit: commit.waker(), checkpoint: checkpoint.waker() });
        Ok(Self { _commit: commit, _checkpoint: checkpoint, core })
    }

    /// The frame of a block, read if it is not in memory.
    ///
    /// # Errors
    /// The block is not on the volume, or the device failed.
    pub fn read(&self, block: BlockNo) -> Result<Frame, JournalError> {
        self.core.cache.read(block)
    }

    /// The frame of a block. If it must be read, those of `run` that are not in memory are read
    /// with it, as far as the cache has room. `run` is called only then, and gives blocks that are
    /// never forgotten.
    ///
    /// # Errors
    /// As [`Journal::read`], for `block` only.
    pub fn read_with(
        &self,
        block: BlockNo,
        run: impl FnOnce() -> Range<u64>,
    ) -> Result<Frame, JournalError> {
        self.core.cache.read_with(block, run)
    }

    /// The frames of several blocks, read as one batch.
    ///
    /// # Errors
    /// As [`Journal::read`].
    pub fn read_many(&self, blocks: &[BlockNo]) -> Result<Vec<Frame>, JournalError> {
        self.core.cache.read_many(blocks)
    }

    /// The frame of a block if its content is in memory. Data blocks that were journalled
    /// (`data=journal`) are newer here than on the device.
    pub fn cached(&self, block: BlockNo) -> Option<Frame> {
        self.core.cache.peek(block).filter(Frame::is_loaded)
    }

    /// Starts a handle that may dirty `credits` blocks. Waits while the running transaction closes
    /// or the log is short of space. A thread must not start a second handle while it has one.
    ///
    /// # Errors
    /// [`JournalError::Aborted`], or more credits than [`Journal::max_credits`].
    pub fn start(&self, credits: u32) -> Result<Handle<'_>, JournalError> {
        Handle::start(&self.core, credits)
    }

    /// Maximum number of credits of one handle.
    pub fn max_credits(&self) -> u32 {
        self.core.max_credits
    }

    /// The transaction that a handle would join now.
    pub fn running(&self) -> Tid {
        self.core.gate.state().tid
    }

    /// The last committed transaction.
    pub fn committed(&self) -> Tid {
        self.core.progress.lock().committed
    }

    /// The phase of the oldest transaction that is not committed.
    pub fn phase(&self) -> Phase {
        self.core.progress.lock().phase
    }

    /// Requests the commit of `tid` without waiting for it.
    pub fn request_commit(&self, tid: Tid) {
        self.core.request(tid);
    }

    /// Commits `tid` and waits for it, after a time for other operations to join ([`BatchTime`]);
    /// this is fsync. The calling thread must not hold a handle.
    ///
    /// # Errors
    /// [`JournalError::Aborted`]: then it is not known whether `tid` is durable.
    pub fn commit(&self, tid: Tid) -> Result<(), JournalError> {
        self.core.wait_for_batch(tid);
        self.commit_at_once(tid)
    }

    fn commit_at_once(&self, tid: Tid) -> Result<(), JournalError> {
        if self.core.progress.lock().committed.is_before(tid) {
            self.core.request(tid);
        }
        self.core.wait_committed(tid)
    }

    /// Makes all changes so far durable, as [`Journal::sync`] does, by a fast commit where the
    /// volume has them and all changes can be described so; this is fsync.
    ///
    /// # Errors
    /// [`JournalError::Aborted`].
    pub fn sync_fast(&self) -> Result<(), JournalError> {
        if self.core.fast_commit()? {
            return Ok(());
        }
        self.sync()
    }

    /// Whether fsync may write fast commits: handles say what they change then.
    pub fn has_fast_commits(&self) -> bool {
        self.core.fast.is_some()
    }

    /// Fast commits so far, and what was committed by transactions instead; `None` where the volume
    /// has no fast commits.
    pub fn fast_commit_counts(&self) -> Option<FastCommitCounts> {
        self.core.fast.as_ref().map(|fast| fast.counts())
    }

    /// Commits all changes so far and waits for it (syncfs).
    ///
    /// # Errors
    /// [`JournalError::Aborted`].
    pub fn sync(&self) -> Result<(), JournalError> {
        self.core.latch.check()?;
        let seen = self.core.gate.state();
        let is_idle = seen.handles == 0 && self.core.transaction(seen.tid).is_empty();
        if is_idle && !seen.is_closed {
            // A transaction that is being committed counts too.
            return self.core.wait_committed(Tid(seen.tid.0.wrapping_sub(1)));
        }
        self.commit_at_once(seen.tid)
    }

    /// Commits everything and checkpoints all of it, so that the log is empty (freeze).
    ///
    /// # Errors
    /// [`JournalError::Aborted`], or a device fails, which aborts the journal.
    pub fn checkpoint(&self) -> Result<(), JournalError> {
        self.checkpoint_all(Tail::Stored)
    }

    fn checkpoint_all(&self, tail: Tail) -> Result<(), JournalError> {
        self.sync()?;
        self.core.checkpoint_committed(tail)
    }

    /// Blocks all changes: new handles wait for [`Journal::thaw`], current handles are waited for,
    /// and everything is committed and checkpointed. With a log, the journal and the volume's
    /// superblock then have nothing to recover, so that a copy of the device is a clean volume.
    ///
    /// # Errors
    /// As [`Journal::checkpoint`]; then changes are not blocked, and the journal is aborted.
    pub fn freeze(&self) -> Result<(), JournalError> {
        self.core.freeze();
        let frozen = self.checkpoint_all(Tail::Left).and_then(|()| self.mark_empty());
        if frozen.is_err() {
            self.core.thaw();
        }
        frozen
    }

    /// Allows changes again after [`Journal::freeze`].
    ///
    /// # Errors
    /// A device fails, which aborts the journal.
    pub fn thaw(&self) -> Result<(), JournalError> {
        if let Some(log) = &self.core.log {
            let progress = self.core.progress.lock();
            let (next, head) = (progress.committed.next(), progress.head);
            drop(progress);
            // First the flag: without it, mount and checker would ignore the log.
            let marked = recovery::set_needs_recovery(&*self.core.device, true)
                .and_then(|()| log.set_tail(head, next, 0));
            if let Err(error) = marked {
                self.core.abort(error);
            }
        }
        self.core.thaw();
        self.core.latch.check()
    }

    /// Blocks new handles as [`Journal::freeze`] does, for a change of the volume as a whole by one
    /// handle ([`ExclusiveJournal::start`]): everything is committed and checkpointed, and blocks
    /// on the device have the contents of their frames. Changes continue when the value is dropped.
    /// A checkpoint writes the superblock last, after the blocks that it counts. The journal stays
    /// in use: needs_recovery is not cleared.
    ///
    /// # Errors
    /// As [`Journal::checkpoint`]; then changes are not blocked.
    pub fn exclusive(&self) -> Result<ExclusiveJournal<'_>, JournalError> {
        self.core.freeze();
        self.core.superblock_last.store(true, Ordering::Release);
        let exclusive = ExclusiveJournal { journal: self };
        self.checkpoint()?;
        Ok(exclusive)
    }

    /// Waits while changes are blocked, for callers without a handle.
    ///
    /// # Errors
    /// [`JournalError::Aborted`].
    pub fn wait_for_thaw(&self) -> Result<(), JournalError> {
        self.core.wait_for_thaw();
        self.core.latch.check()
    }

    /// Stores that the log is empty and that the volume needs no recovery. A failure aborts the
    /// journal: the state on the device is unknown then, and a log that is marked empty is not
    /// replayed.
    fn mark_empty(&self) -> Result<(), JournalError> {
        let core = &self.core;
        let Some(log) = &core.log else { return Ok(()) };
        let progress = core.progress.lock();
        let (next, head) = (progress.committed.next(), progress.head);
        drop(progress);
        let marked = log
            .set_tail(0, next, head)
            .and_then(|()| recovery::set_needs_recovery(&*core.device, false));
        if let Err(error) = marked {
            core.abort(error);
        }
        core.latch.check()
    }

    /// Closes the journal cleanly: everything is checkpointed, the log is marked empty, and
    /// needs_recovery is cleared in the volume's superblock. There must be no handle. A frame of
    /// the superblock is stale afterwards.
    ///
    /// # Errors
    /// As [`Journal::checkpoint`]: then the volume needs recovery.
    pub fn close(self) -> Result<(), JournalError> {
        self.checkpoint_all(Tail::Left)?;
        if let Some(log) = &self.core.log {
            log.drop_fast_commits();
        }
        self.mark_empty()
    }

    /// Aborts the journal for an error of the volume: it writes nothing more, and every later call
    /// fails.
    pub fn abort(&self, error: JournalError) {
        self.core.abort(error);
    }

    /// The error that aborted the journal.
    pub fn aborted(&self) -> Option<JournalError> {
        self.core.latch.error()
    }

    /// Number of frames in memory.
    pub fn frames_count(&self) -> usize {
        self.core.cache.len()
    }

    /// Number of free log blocks; `None` without a log.
    pub fn free_log_blocks(&self) -> Option<u32> {
        self.core.log.as_ref().map(|_| self.core.progress.lock().free)
    }
}

/// A journal whose other handles wait. See [`Journal::exclusive`].
#[derive(Debug)]
pub struct ExclusiveJournal<'a> {
    journal: &'a Journal,
}

impl<'a> ExclusiveJournal<'a> {
    /// Maximum number of credits of a handle: nearly all of the log.
    pub fn max_credits(&self) -> u32 {
        self.journal.core.exclusive_credits()
    }

    /// Starts a handle that may dirty `credits` blocks.
    ///
    /// # Errors
    /// [`JournalError::Aborted`], or more credits than [`ExclusiveJournal::max_credits`].
    pub fn start(&self, credits: u32) -> Result<Handle<'a>, JournalError> {
        Handle::start_exclusive(&self.journal.core, credits)
    }

    /// The volume has this number of blocks from now on: frames of the new ones can be read.
    pub fn grow(&self, blocks_count: u64) {
        self.journal.core.cache.grow(blocks_count);
    }

    /// Commits the handles that have ended, and writes all blocks to their home locations.
    ///
    /// # Errors
    /// As [`Journal::checkpoint`].
    pub fn checkpoint(&self) -> Result<(), JournalError> {
        self.journal.checkpoint()
    }
}

impl Drop for ExclusiveJournal<'_> {
    fn drop(&mut self) {
        self.journal.core.superblock_last.store(false, Ordering::Release);
        self.journal.core.thaw();
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal")
            .field("running", &self.running())
            .field("max_credits", &self.max_credits())
            .finish_non_exhaustive()
    }
}
