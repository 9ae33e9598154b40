//! The live journal: frames, handles, transactions, and the workers that commit and checkpoint them.
//!
//! `docs/journal.md` has the states, the lock order, and what is flushed when.

mod cache;
mod checkpoint;
mod commit;
mod core;
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

pub use frame::{Frame, FrameWrite, Seal, Snapshot};
pub use handle::Handle;
pub use hooks::{CommitHooks, NoHooks};
pub use live_log::LogOnDevice;
pub use options::{BatchTime, Options};
pub use phase::Phase;

use crate::{JournalError, recovery};
use cache::Cache;
use core::{Core, Wakers};
use live_log::LiveLog;

/// A live journal. Dropping it stops the workers and nothing else, as a power cut would; [`Journal::close`] ends it well.
pub struct Journal {
    // The workers go first.
    _commit: Worker,
    _checkpoint: Worker,
    core: Arc<Core>,
}

impl Journal {
    /// Starts a journal on a volume: with a log, which must be empty ([`recover_volume`](crate::recover_volume) empties
    /// it), or without, where changes are written home directly when they would have been committed. With a log the
    /// volume's superblock says needs_recovery afterwards.
    ///
    /// # Errors
    /// [`JournalError::NotRecovered`], [`JournalError::TooSmall`], a broken superblock, or a device failed.
    pub fn open(
        device: Arc<dyn Device>,
        geometry: &Geometry,
        log: Option<LogOnDevice>,
        env: &Env,
        options: Options,
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
                // Once, by the worker's own thread.
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

    /// The frame of a block; where it must be read, those of `run` that are not in memory are read with it, as far as there is
    /// room. `run` are blocks that are never forgotten, and is asked for only then.
    ///
    /// # Errors
    /// As [`Journal::read`], for the block alone.
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

    /// The frame of a block if its content is in memory. Data blocks that were journalled (`data=journal`) are newer here
    /// than on the device.
    pub fn cached(&self, block: BlockNo) -> Option<Frame> {
        self.core.cache.peek(block).filter(Frame::is_loaded)
    }

    /// Starts a handle that may dirty `credits` blocks. Waits while the running transaction closes or the log is short of
    /// space. A thread starts no second handle while it has one.
    ///
    /// # Errors
    /// [`JournalError::Aborted`], or more credits than one transaction has ([`Journal::max_credits`]).
    pub fn start(&self, credits: u32) -> Result<Handle<'_>, JournalError> {
        Handle::start(&self.core, credits)
    }

    /// Most credits of one handle.
    pub fn max_credits(&self) -> u32 {
        self.core.max_credits
    }

    /// The transaction that a handle would join now.
    pub fn running(&self) -> Tid {
        self.core.gate.look().tid
    }

    /// The last committed transaction.
    pub fn committed(&self) -> Tid {
        self.core.progress.lock().committed
    }

    /// What the oldest transaction that is not committed does.
    pub fn phase(&self) -> Phase {
        self.core.progress.lock().phase
    }

    /// Asks for the commit of `tid` and does not wait.
    pub fn request_commit(&self, tid: Tid) {
        self.core.request(tid);
    }

    /// Waits until `tid` is committed, and has it committed once others had the time to join it ([`BatchTime`]) (fsync). A thread
    /// that waits holds no handle.
    ///
    /// # Errors
    /// [`JournalError::Aborted`]: then nothing is sure.
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

    /// Commits everything that was changed so far and waits for it (syncfs).
    ///
    /// # Errors
    /// [`JournalError::Aborted`].
    pub fn sync(&self) -> Result<(), JournalError> {
        self.core.latch.check()?;
        let seen = self.core.gate.look();
        let is_idle = seen.handles == 0 && self.core.transaction(seen.tid).is_empty();
        if is_idle && !seen.is_closed {
            // What is committing now counts too.
            return self.core.wait_committed(Tid(seen.tid.0.wrapping_sub(1)));
        }
        self.commit_at_once(seen.tid)
    }

    /// Commits everything and writes all of it home, so that the log is empty (freeze).
    ///
    /// # Errors
    /// [`JournalError::Aborted`], or a device failed now, which aborts the journal.
    pub fn checkpoint(&self) -> Result<(), JournalError> {
        self.sync()?;
        let Some(log) = &self.core.log else { return Ok(()) };
        loop {
            match self.core.checkpoint_batch(log.size()) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => {
                    self.core.abort(error);
                    return self.core.latch.check();
                }
            }
        }
    }

    /// Holds all changes back: handles that would start wait for [`Journal::thaw`], those that there are are waited for, and
    /// everything is committed and home. With a log the journal and the volume's superblock say then that there is nothing to
    /// recover, so that a copy of the device is a clean volume.
    ///
    /// # Errors
    /// As [`Journal::checkpoint`]; then nothing is held back, and the journal is stopped.
    pub fn freeze(&self) -> Result<(), JournalError> {
        self.core.freeze();
        let frozen = self.checkpoint().and_then(|()| self.mark_empty());
        if frozen.is_err() {
            self.core.thaw();
        }
        frozen
    }

    /// Lets changes go on after [`Journal::freeze`].
    ///
    /// # Errors
    /// A device failed, which aborts the journal.
    pub fn thaw(&self) -> Result<(), JournalError> {
        if let Some(log) = &self.core.log {
            let progress = self.core.progress.lock();
            let (next, head) = (progress.committed.next(), progress.head);
            drop(progress);
            // First the flag: a log that has begun without it looks forgotten.
            let marked = recovery::set_needs_recovery(&*self.core.device, true)
                .and_then(|()| log.set_tail(head, next, 0));
            if let Err(error) = marked {
                self.core.abort(error);
            }
        }
        self.core.thaw();
        self.core.latch.check()
    }

    /// Waits while changes are held back, for those who have no handle and take none yet.
    ///
    /// # Errors
    /// [`JournalError::Aborted`].
    pub fn wait_for_thaw(&self) -> Result<(), JournalError> {
        self.core.wait_for_thaw();
        self.core.latch.check()
    }

    /// Stores that the log is empty, and that the volume needs no recovery. A failure stops the
    /// journal: what it has left on the device is not known, and a log that is marked empty is not
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

    /// Ends the journal well: everything is home, the log is marked empty, the volume's superblock loses needs_recovery.
    /// No handle is left. A superblock that the volume holds as a frame is stale afterwards.
    ///
    /// # Errors
    /// As [`Journal::checkpoint`]: then the volume needs recovery.
    pub fn close(self) -> Result<(), JournalError> {
        self.checkpoint()?;
        self.mark_empty()
    }

    /// Stops everything for an error of the volume's own: nothing is written any more, every later call fails.
    pub fn abort(&self, error: JournalError) {
        self.core.abort(error);
    }

    /// The error that stopped the journal.
    pub fn aborted(&self) -> Option<JournalError> {
        self.core.latch.error()
    }

    /// Frames in memory.
    pub fn frames_count(&self) -> usize {
        self.core.cache.len()
    }

    /// Blocks of the log that hold nothing needed; `None` without a log.
    pub fn free_log_blocks(&self) -> Option<u32> {
        self.core.log.as_ref().map(|_| self.core.progress.lock().free)
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
