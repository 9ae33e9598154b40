//! State that all parts of a live journal share, and the start and end of handles.

use std::collections::VecDeque;
use std::time::Duration;

use extant_device::Device;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use extant_ondisk::{BlockNo, Tid};
use extant_runtime::env::{Env, Waker};
use extant_runtime::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use extant_runtime::sync::{Arc, Condvar, Mutex};
use zerocopy::FromBytes;

use super::cache::Cache;
use super::fast_changes::FastCommits;
use super::frame::Frame;
use super::gate::Gate;
use super::hooks::CommitHooks;
use super::latch::Latch;
use super::live_log::LiveLog;
use super::options::JournalOptions;
use super::phase::Phase;
use super::ranks::{CheckpointLock, ProgressLock, WakersLock};
use super::transaction::Transaction;
use crate::{JournalError, recovery};

/// Errno that an aborted journal records: EIO.
const EIO: i32 = 5;

pub(super) struct Core {
    pub(super) device: Arc<dyn Device>,
    pub(super) block_size: u32,
    pub(super) env: Env,
    pub(super) options: JournalOptions,
    pub(super) hooks: Arc<dyn CommitHooks>,
    pub(super) cache: Cache,
    pub(super) log: Option<LiveLog>,
    pub(super) fast: Option<FastCommits>,
    pub(super) latch: Latch,
    pub(super) gate: Gate,
    /// Whether new handles wait ([`Journal::freeze`](super::Journal::freeze)).
    is_frozen: AtomicBool,
    /// Whether a checkpoint writes the superblock after all other blocks: the kernel reads it, and
    /// the descriptors that it counts, before it replays a log.
    pub(super) superblock_last: AtomicBool,
    transactions: [Transaction; 2],
    /// Maximum number of credits of one transaction.
    pub(super) max_credits: u32,
    /// Number of committed frames not yet checkpointed above which checkpointing begins.
    pub(super) max_pinned: usize,
    pub(super) progress: Mutex<Progress, ProgressLock>,
    /// Notified when a transaction is committed or opened, log space is freed, or the journal
    /// aborts.
    pub(super) progressed: Condvar,
    /// Notified when the last handle leaves a closed gate.
    pub(super) drained: Condvar,
    pub(super) checkpoint: Mutex<(), CheckpointLock>,
    pub(super) wakers: Mutex<Option<Wakers>, WakersLock>,
    /// Average duration of a commit in nanoseconds.
    commit_time: AtomicU64,
}

/// The state of the log, and the requests to the workers.
pub(super) struct Progress {
    /// The last transaction that was committed.
    pub(super) committed: Tid,
    /// The last transaction whose commit was requested.
    pub(super) requested: Tid,
    /// The phase of the transaction after `committed`.
    pub(super) phase: Phase,
    /// The log block where the next transaction begins.
    pub(super) head: u32,
    /// Number of free log blocks.
    pub(super) free: u32,
    /// Committed transactions in the log, oldest first.
    pub(super) finished: VecDeque<Finished>,
    /// Number of frames that these keep.
    pub(super) pinned: usize,
}

/// Wakes the workers.
pub(super) struct Wakers {
    pub(super) commit: Waker,
    pub(super) checkpoint: Waker,
}

/// A committed transaction that is not yet checkpointed.
pub(super) struct Finished {
    pub(super) tid: Tid,
    pub(super) start: u32,
    pub(super) blocks: u32,
    pub(super) frames: Vec<Frame>,
}

impl Core {
    #[expect(clippy::too_many_arguments, reason = "each part is made by another room's rule")]
    pub(super) fn new(
        device: Arc<dyn Device>,
        block_size: u32,
        env: Env,
        options: JournalOptions,
        hooks: Arc<dyn CommitHooks>,
        cache: Cache,
        log: Option<(LiveLog, u32)>,
        first: Tid,
    ) -> Self {
        let frames = usize::try_from(options.memory / u64::from(block_size)).unwrap_or(usize::MAX);
        let quarter = u32::try_from(frames / 4).unwrap_or(u32::MAX).max(MIN_CREDITS);
        let by_log = log.as_ref().map_or(u32::MAX, |(log, _)| {
            // A quarter of the log, less its descriptors, commit block, and an eighth for revoke
            // records.
            let room = log.size() / 4;
            let tags = log.format.tags_per_block();
            let tags = u32::try_from(tags).expect("a block holds fewer tags than bytes");
            room - room / 8 - room.div_ceil(tags.max(1)) - 1
        });
        let head = log.as_ref().map_or(0, |(_, head)| *head);
        let free = log.as_ref().map_or(0, |(log, _)| log.size());
        let before = Tid(first.0.wrapping_sub(1));
        let fast = (log.as_ref())
            .and_then(|(log, _)| log.fast_commit_area())
            .map(|area| FastCommits::new(area, block_size, first));
        Self {
            device,
            block_size,
            env,
            options,
            hooks,
            cache,
            log: log.map(|(log, _)| log),
            fast,
            latch: Latch::default(),
            gate: Gate::new(first),
            is_frozen: AtomicBool::new(false),
            superblock_last: AtomicBool::new(false),
            transactions: <[Transaction; 2]>::default(),
            max_credits: quarter.min(by_log).max(1),
            max_pinned: frames / 4,
            progress: Mutex::ranked(Progress {
                committed: before,
                requested: before,
                phase: Phase::Running,
                head,
                free,
                finished: VecDeque::new(),
                pinned: 0,
            }),
            wakers: Mutex::ranked(None),
            progressed: Condvar::new(),
            drained: Condvar::new(),
            checkpoint: Mutex::ranked(()),
            commit_time: AtomicU64::new(0),
        }
    }

    /// The transaction with that number: the running or the committing one.
    pub(super) fn transaction(&self, tid: Tid) -> &Transaction {
        &self.transactions[(tid.0 % 2) as usize]
    }

    /// Adds a handle with `credits` to the running transaction. This is an atomic addition, unless
    /// it must wait for a closing transaction or for log space.
    pub(super) fn enter(&self, credits: u32) -> Result<Tid, JournalError> {
        if credits > self.max_credits {
            return Err(JournalError::TooManyCredits { asked: credits, limit: self.max_credits });
        }
        loop {
            self.latch.check()?;
            let seen = self.gate.enter();
            // Either the freeze sees this handle at the gate and waits for it, or the handle sees
            // the freeze.
            fence(Ordering::SeqCst);
            if self.is_frozen.load(Ordering::Relaxed) {
                self.leave();
                self.wait_for_thaw();
                continue;
            }
            if seen.is_closed {
                self.leave();
                self.wait_for_next(seen.tid);
                continue;
            }
            let taken = self.gate.credits(seen.tid);
            let before = taken.fetch_add(credits, Ordering::Relaxed);
            if before.saturating_add(credits) <= self.max_credits {
                return Ok(seen.tid);
            }
            taken.fetch_sub(credits, Ordering::Relaxed);
            self.leave();
            self.request(seen.tid);
            self.wait_for_next(seen.tid);
        }
    }

    /// Number of credits of the only handle of a transaction while new handles wait and the log is
    /// empty: all of the log, less descriptors, commit block, and the few blocks that are kept for
    /// handles that overdraw.
    pub(super) fn exclusive_credits(&self) -> u32 {
        const SPARE: u32 = 16;
        self.log.as_ref().map_or(u32::MAX, |log| {
            let room = log.size().saturating_sub(SPARE);
            let tags = u32::try_from(log.format.tags_per_block()).unwrap_or(u32::MAX);
            room.saturating_sub(room.div_ceil(tags.max(1)))
        })
    }

    /// Adds the only handle, while the others wait (see [`Core::freeze`]) and have ended.
    pub(super) fn enter_exclusive(&self, credits: u32) -> Result<Tid, JournalError> {
        let limit = self.exclusive_credits();
        if credits > limit {
            return Err(JournalError::TooManyCredits { asked: credits, limit });
        }
        loop {
            self.latch.check()?;
            let seen = self.gate.enter();
            if seen.is_closed {
                self.leave();
                self.wait_for_next(seen.tid);
                continue;
            }
            self.gate.credits(seen.tid).fetch_add(credits, Ordering::Relaxed);
            return Ok(seen.tid);
        }
    }

    pub(super) fn extend(&self, tid: Tid, more: u32) -> bool {
        let credits = self.gate.credits(tid);
        let before = credits.fetch_add(more, Ordering::Relaxed);
        if before.saturating_add(more) <= self.max_credits {
            return true;
        }
        credits.fetch_sub(more, Ordering::Relaxed);
        false
    }

    /// Takes one credit more than was reserved.
    pub(super) fn overdraw(&self, tid: Tid) {
        self.gate.credits(tid).fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a handle and returns its unused credits.
    pub(super) fn exit(&self, tid: Tid, unused: u32) {
        self.gate.credits(tid).fetch_sub(unused, Ordering::Relaxed);
        self.leave();
    }

    fn leave(&self) {
        if self.gate.leave() {
            // The commit checks the gate under this lock, so it is waiting now or has seen the gate
            // empty.
            drop(self.progress.lock());
            self.drained.notify_all();
        }
    }

    /// Makes new handles wait.
    pub(super) fn freeze(&self) {
        self.is_frozen.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Lets handles start again.
    pub(super) fn thaw(&self) {
        let progress = self.progress.lock();
        self.is_frozen.store(false, Ordering::Relaxed);
        drop(progress);
        self.progressed.notify_all();
    }

    pub(super) fn wait_for_thaw(&self) {
        if !self.is_frozen.load(Ordering::Relaxed) {
            return;
        }
        let mut progress = self.progress.lock();
        self.env.wait_while(&self.progressed, &mut progress, |_| {
            self.is_frozen.load(Ordering::Relaxed) && !self.latch.is_set()
        });
    }

    /// Waits until the gate of another transaction than `tid` is open.
    fn wait_for_next(&self, tid: Tid) {
        let mut progress = self.progress.lock();
        self.env.wait_while(&self.progressed, &mut progress, |_| {
            let seen = self.gate.state();
            (seen.is_closed || seen.tid == tid) && !self.latch.is_set()
        });
    }

    /// Records the time of a transaction's first frame, from which the commit interval counts.
    pub(super) fn first_frame(&self, tid: Tid) {
        self.transaction(tid).set_started(self.env.elapsed());
        self.wake_commit();
    }

    fn wake_commit(&self) {
        if let Some(wakers) = &*self.wakers.lock() {
            wakers.commit.wake();
        }
    }

    pub(super) fn wake_checkpoint(&self) {
        if let Some(wakers) = &*self.wakers.lock() {
            wakers.checkpoint.wake();
        }
    }

    /// Requests the commit of `tid` without waiting for it.
    pub(super) fn request(&self, tid: Tid) {
        let mut progress = self.progress.lock();
        if progress.requested.is_before(tid) {
            progress.requested = tid;
        }
        drop(progress);
        self.wake_commit();
    }

    /// Adds a commit's duration to the average, in which recent commits weigh more.
    pub(super) fn count_commit_time(&self, taken: Duration) {
        let taken = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        let before = self.commit_time.load(Ordering::Relaxed);
        let average = if before == 0 { taken } else { before / 4 * 3 + taken / 4 };
        self.commit_time.store(average, Ordering::Relaxed);
    }

    /// Waits for other operations to join a transaction, unless its commit was requested already.
    pub(super) fn wait_for_batch(&self, tid: Tid) {
        if self.options.batch.max.is_zero() || self.gate.state().tid != tid {
            return;
        }
        if !self.progress.lock().requested.is_before(tid) {
            return;
        }
        let now = self.env.elapsed();
        let age = now.saturating_sub(self.transaction(tid).started().unwrap_or(now));
        let average = Duration::from_nanos(self.commit_time.load(Ordering::Relaxed));
        let wait = self.options.batch.wait(average, age);
        if !wait.is_zero() {
            self.env.sleep_until(now.saturating_add(wait));
        }
    }

    /// Waits until `tid` is committed.
    pub(super) fn wait_committed(&self, tid: Tid) -> Result<(), JournalError> {
        let mut progress = self.progress.lock();
        self.env.wait_while(&self.progressed, &mut progress, |progress| {
            progress.committed.is_before(tid) && !self.latch.is_set()
        });
        if progress.committed.is_before(tid) {
            drop(progress);
            return self.latch.check();
        }
        Ok(())
    }

    /// Records the failure on the device for the next mount and for the checker.
    fn record(&self, error: &JournalError) {
        if let Some(log) = &self.log
            && let Err(second) = log.set_errno(-EIO)
        {
            tracing::error!(%second, "the error could not be recorded in the journal");
        }
        let seconds = self.env.now().seconds.max(0).cast_unsigned();
        let newest = self.newest_superblock();
        let text = error.to_string();
        if let Err(second) = recovery::record_abort(&*self.device, newest, seconds, &text) {
            tracing::error!(%second, "the error could not be recorded in the superblock");
        }
    }

    /// The block with the volume's superblock.
    pub(super) fn superblock_block(&self) -> BlockNo {
        BlockNo(SUPERBLOCK_OFFSET / u64::from(self.block_size))
    }

    /// The volume's superblock in memory.
    fn newest_superblock(&self) -> Option<RawSuperblock> {
        let block_size = u64::from(self.block_size);
        let frame = self.cache.peek(self.superblock_block());
        let bytes = frame.filter(Frame::is_loaded)?.sealed();
        let at = (SUPERBLOCK_OFFSET % block_size) as usize;
        RawSuperblock::read_from_prefix(&bytes[at..]).ok().map(|(raw, _)| raw)
    }

    /// Aborts the journal after the first failed write of the log or of metadata: from then on only
    /// the record of that error is written.
    pub(super) fn abort(&self, error: JournalError) {
        if !self.latch.set(error.clone()) {
            return;
        }
        tracing::error!(%error, "the journal aborts: the volume is read-only now");
        if self.hooks.may_write() {
            self.record(&error);
        }
        drop(self.progress.lock());
        self.progressed.notify_all();
        self.drained.notify_all();
    }
}

/// Number of credits of a transaction even if memory is very short.
const MIN_CREDITS: u32 = 64;
