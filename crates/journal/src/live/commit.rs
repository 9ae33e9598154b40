//! The commit of a transaction, in the phases running, locked, flush, commit and finished.

use std::time::Duration;

use extant_ondisk::{BlockNo, Tid};
use extant_runtime::env::Next;
use extant_runtime::sync::atomic::Ordering;

use super::checkpoint::Tail;
use super::core::{Core, Finished};
use super::frame::{Frame, Snapshot};
use super::phase::Phase;
use crate::JournalError;
use crate::home::{Turn, write_in_turns};

impl Core {
    /// One run of the commit worker: commits the running transaction if that was requested or it is
    /// old enough.
    pub(super) fn commit_step(&self) -> Next {
        if self.latch.is_set() {
            return Next::Done;
        }
        let running = self.gate.state().tid;
        let is_requested = !self.progress.lock().requested.is_before(running);
        if !is_requested {
            match self.due_in(running) {
                None => return Next::WhenWoken,
                Some(wait) if !wait.is_zero() => return Next::After(wait),
                Some(_) => {}
            }
        }
        if let Err(error) = self.commit_running(running) {
            self.abort(error);
            return Next::Done;
        }
        Next::After(Duration::ZERO)
    }

    /// Time until the running transaction must be committed; `None` if it is empty.
    fn due_in(&self, running: Tid) -> Option<Duration> {
        let transaction = self.transaction(running);
        if transaction.is_empty() {
            return None;
        }
        let age = self.env.elapsed().saturating_sub(transaction.started().unwrap_or_default());
        Some(self.options.commit_interval.saturating_sub(age))
    }

    fn commit_running(&self, tid: Tid) -> Result<(), JournalError> {
        let begun = self.env.elapsed();
        self.lock(tid);
        let transaction = self.transaction(tid);
        let needed = self
            .log
            .as_ref()
            .map_or(0, |log| log.needed(transaction.frames_count(), transaction.revoked_count()));
        self.make_room(needed)?;
        let is_next_open = self.open_next(needed);

        self.set_phase(Phase::Flush);
        self.hooks.before_commit(tid)?;

        self.set_phase(Phase::Commit);
        let (frames, turns, blocks) = self.take_versions(tid);
        let revoked = transaction.take_revoked();
        let taken = match &self.log {
            Some(log) => {
                if self.options.barriers && log.on.is_external {
                    self.device.flush()?;
                }
                let head = self.progress.lock().head;
                let taken = log.write(tid, self.env.now(), &blocks, &revoked, head)?;
                self.clear_fast_commits(tid)?;
                taken
            }
            None => {
                let homes: Vec<(Turn, BlockNo, &[u8])> = turns
                    .into_iter()
                    .zip(&blocks)
                    .map(|(turn, (home, data))| (turn, *home, &data[..]))
                    .collect();
                write_in_turns(&*self.device, self.block_size, &homes)?;
                if self.options.barriers {
                    self.device.flush()?;
                }
                0
            }
        };
        self.finish(tid, frames, blocks, &revoked, taken);
        self.count_commit_time(self.env.elapsed().saturating_sub(begun));
        if !is_next_open {
            self.make_room(self.log.as_ref().map_or(0, |log| log.size() / 4))?;
            let is_open = self.open_next(0);
            assert!(is_open, "room was made for the next transaction");
        }
        self.progressed.notify_all();
        Ok(())
    }

    /// The locked phase: admits no new handle and waits for the current ones to end.
    fn lock(&self, tid: Tid) {
        let mut progress = self.progress.lock();
        progress.phase = Phase::Locked;
        self.gate.close();
        self.env.wait_while(&self.drained, &mut progress, |_| self.gate.state().handles > 0);
        debug_assert_eq!(self.gate.state().tid, tid);
    }

    fn set_phase(&self, phase: Phase) {
        self.progress.lock().phase = phase;
    }

    /// Ensures that the log has `needed` free blocks, by checkpointing older transactions.
    fn make_room(&self, needed: u32) -> Result<(), JournalError> {
        let Some(log) = &self.log else { return Ok(()) };
        if needed > log.size() - 1 {
            return Err(JournalError::TooLarge { needed, size: log.size() });
        }
        while self.progress.lock().free < needed + 1 {
            if !self.checkpoint_batch(needed + 1, Tail::Stored)? {
                let free = self.progress.lock().free;
                assert!(free > needed, "an empty log has {free} free blocks");
            }
        }
        Ok(())
    }

    /// Opens the next transaction if the log has room for it in addition to the `committing` blocks
    /// of this one.
    fn open_next(&self, committing: u32) -> bool {
        let progress = self.progress.lock();
        if let Some(log) = &self.log
            && progress.free < committing.saturating_add(log.size() / 4).saturating_add(1)
        {
            return false;
        }
        let next = self.gate.state().tid.next();
        self.transaction(next).reset();
        if let Some(fast) = &self.fast {
            fast.reset(next);
        }
        self.gate.credits(next).store(0, Ordering::Relaxed);
        self.gate.open_next();
        drop(progress);
        self.progressed.notify_all();
        true
    }

    /// Takes the version of each frame that belongs to `tid`, and its turn. Forgotten blocks have
    /// none.
    fn take_versions(&self, tid: Tid) -> (Vec<Frame>, Vec<Turn>, Vec<(BlockNo, Snapshot)>) {
        let mut frames = self.transaction(tid).take_frames();
        frames.sort_unstable_by_key(Frame::block);
        let (mut turns, mut blocks) = (Vec::new(), Vec::with_capacity(frames.len()));
        frames.retain(|frame| match frame.lock().take(tid) {
            Some((data, turn)) => {
                turns.push(turn);
                blocks.push((frame.block(), data));
                true
            }
            None => false,
        });
        (frames, turns, blocks)
    }

    /// The finished phase: the versions wait for their checkpoint; older versions of revoked blocks
    /// are dropped.
    fn finish(
        &self,
        tid: Tid,
        frames: Vec<Frame>,
        blocks: Vec<(BlockNo, Snapshot)>,
        revoked: &[BlockNo],
        taken: u32,
    ) {
        if self.log.is_some() {
            for (frame, (_, data)) in frames.iter().zip(blocks) {
                frame.lock().home = Some((tid, data));
            }
            self.exclude_from_checkpoint(revoked);
        }
        // Before the threads that wait for this commit continue: most of them wait for the space
        // that it frees.
        self.hooks.committed(tid);
        let mut progress = self.progress.lock();
        if let Some(log) = &self.log {
            let start = progress.head;
            progress.head = log.after(start, taken);
            progress.free -= taken;
            progress.pinned += frames.len();
            progress.finished.push_back(Finished { tid, start, blocks: taken, frames });
            if progress.free < log.size() / 2 || progress.pinned > self.max_pinned {
                self.wake_checkpoint();
            }
        }
        progress.committed = tid;
        progress.phase = Phase::Running;
        drop(progress);
        self.progressed.notify_all();
    }

    /// Drops older versions of blocks that a committed transaction revokes: these blocks may be
    /// reused now, and a checkpoint must not overwrite them.
    fn exclude_from_checkpoint(&self, revoked: &[BlockNo]) {
        let mut under_way = Vec::new();
        for block in revoked {
            if let Some(frame) = self.cache.peek(*block) {
                let mut content = frame.lock();
                if content.is_being_written {
                    under_way.push(frame.clone());
                } else {
                    content.home = None;
                }
            }
        }
        if !under_way.is_empty() {
            let _checkpoint = self.checkpoint.lock();
            for frame in under_way {
                frame.lock().home = None;
            }
        }
    }
}
