//! Checkpoint: committed blocks are written to their home locations, and log space is freed.

use std::time::Duration;

use extant_ondisk::{BlockNo, Tid};
use extant_runtime::env::Next;
use extant_runtime::sync::atomic::Ordering;

use super::core::Core;
use super::frame::{Frame, Snapshot};
use crate::JournalError;
use crate::home::write_home;

/// The start of the log in the journal superblock, after a checkpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Tail {
    /// Moved and flushed, so that the blocks of the log can be used again.
    Stored,
    /// Left: the log is marked empty next, and no transaction comes before that.
    Left,
}

impl Core {
    /// One run of the checkpoint worker: a batch, if the log is more than half full or too many
    /// frames are pinned.
    pub(super) fn checkpoint_step(&self) -> Next {
        if self.latch.is_set() {
            return Next::Done;
        }
        let Some(log) = &self.log else { return Next::Done };
        let progress = self.progress.lock();
        let is_full = progress.free < log.size() / 2;
        let is_pinned = progress.pinned > self.max_pinned;
        drop(progress);
        if !is_full && !is_pinned {
            return Next::WhenWoken;
        }
        let wanted = if is_pinned { log.size() } else { log.size() / 4 * 3 };
        match self.checkpoint_batch(wanted, Tail::Stored) {
            Ok(true) => Next::After(Duration::ZERO),
            Ok(false) => Next::WhenWoken,
            Err(error) => {
                self.abort(error);
                Next::Done
            }
        }
    }

    /// Checkpoints all committed transactions. An error aborts the journal.
    pub(super) fn checkpoint_committed(&self, tail: Tail) -> Result<(), JournalError> {
        let Some(log) = &self.log else { return Ok(()) };
        loop {
            match self.checkpoint_batch(log.size(), tail) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => {
                    self.abort(error);
                    return self.latch.check();
                }
            }
        }
    }

    /// Checkpoints the oldest transactions until `wanted` log blocks are free. Returns false if
    /// there are none.
    pub(super) fn checkpoint_batch(&self, wanted: u32, tail: Tail) -> Result<bool, JournalError> {
        let Some(log) = &self.log else { return Ok(false) };
        let _one_at_a_time = self.checkpoint.lock();
        self.latch.check()?;
        let mut frames = Vec::new();
        let mut progress = self.progress.lock();
        let (mut free, mut count) = (progress.free, 0);
        let mut last = progress.committed;
        for finished in &mut progress.finished {
            if free >= wanted {
                break;
            }
            free += finished.blocks;
            count += 1;
            last = finished.tid;
            frames.append(&mut finished.frames);
        }
        drop(progress);
        if count == 0 {
            return Ok(false);
        }
        let pinned = frames.len();
        let homes = self.begin_checkpoint(&mut frames, last);
        let mut writes: Vec<(BlockNo, &[u8])> =
            homes.iter().map(|(home, data)| (*home, &data[..])).collect();
        if self.superblock_last.load(Ordering::Acquire) {
            let superblock = self.superblock_block();
            let last: Vec<_> = writes.extract_if(.., |(home, _)| *home == superblock).collect();
            write_home(&*self.device, self.block_size, &mut writes)?;
            self.device.flush()?;
            writes = last;
        }
        write_home(&*self.device, self.block_size, &mut writes)?;
        if self.options.barriers {
            self.device.flush()?;
        }
        for frame in &frames {
            let mut content = frame.lock();
            content.is_being_written = false;
            content.home.take_if(|(tid, _)| !last.is_before(*tid));
        }

        // The log blocks are free only when the journal superblock no longer starts recovery there.
        let progress = self.progress.lock();
        let (start, tid) = match progress.finished.get(count) {
            Some(first) => (first.start, first.tid),
            None => (progress.head, progress.committed.next()),
        };
        drop(progress);
        if tail == Tail::Stored {
            log.set_tail(start, tid, 0)?;
        }
        let mut progress = self.progress.lock();
        progress.pinned -= pinned;
        let freed: u32 = progress.finished.drain(..count).map(|finished| finished.blocks).sum();
        progress.free += freed;
        drop(progress);
        self.progressed.notify_all();
        Ok(true)
    }

    /// Keeps those of `frames` that are to be written now, each once, and takes their versions of
    /// transactions up to `last`.
    fn begin_checkpoint(&self, frames: &mut Vec<Frame>, last: Tid) -> Vec<(BlockNo, Snapshot)> {
        let mut homes = Vec::with_capacity(frames.len());
        frames.retain(|frame| {
            let mut content = frame.lock();
            if content.is_being_written {
                return false;
            }
            match &content.home {
                Some((tid, data)) if !last.is_before(*tid) => {
                    homes.push((frame.block(), data.clone()));
                    content.is_being_written = true;
                    true
                }
                // A later transaction has a newer version, or the block was revoked.
                _ => false,
            }
        });
        homes
    }
}
