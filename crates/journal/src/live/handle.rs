//! A handle: one operation's share of the running transaction.

use std::cell::Cell;
use std::fmt;

use extant_ondisk::{BlockNo, Tid};

use super::core::Core;
use super::frame::{Frame, FrameWrite};
use crate::JournalError;

/// One operation's share of the running transaction: what it changes is committed together or not at all. It may dirty
/// as many blocks as it has credits. The transaction cannot be committed before all its handles are dropped, so a handle
/// is short, and no lock may be held at its start that another handle's owner waits for.
pub struct Handle<'a> {
    core: &'a Core,
    tid: Tid,
    credits: Cell<u32>,
}

impl<'a> Handle<'a> {
    pub(super) fn start(core: &'a Core, credits: u32) -> Result<Self, JournalError> {
        let tid = core.enter(credits)?;
        Ok(Self { core, tid, credits: Cell::new(credits) })
    }

    /// The transaction that the changes belong to: [`Journal::commit`](crate::Journal::commit) waits for it.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Blocks that it may still dirty.
    pub fn credits(&self) -> u32 {
        self.credits.get()
    }

    /// Asks for `more` credits; false when the transaction has no room for them: then the operation comes to a state that
    /// may be committed, and calls [`Handle::restart`].
    pub fn extend(&self, more: u32) -> bool {
        let is_granted = self.core.extend(self.tid, more);
        if is_granted {
            self.credits.set(self.credits.get() + more);
        }
        is_granted
    }

    /// Gets one credit more than the transaction has room for: to take back what cannot be finished. The log keeps room for a few.
    pub fn overdraw(&self) {
        self.core.overdraw(self.tid);
        self.credits.set(self.credits.get() + 1);
    }

    /// Ends this share and starts another with `credits`, in a later transaction if need be. What was changed so far may
    /// be committed alone.
    ///
    /// # Errors
    /// As [`Journal::start`](crate::Journal::start); the handle is gone then.
    pub fn restart(self, credits: u32) -> Result<Self, JournalError> {
        let core = self.core;
        // The transaction is not asked to close: others may fill it.
        drop(self);
        Self::start(core, credits)
    }

    /// The frame to be changed: it becomes part of the transaction, and costs a credit unless it was already.
    ///
    /// # Errors
    /// [`JournalError::Aborted`].
    ///
    /// # Panics
    /// When the frame was forgotten and not created or read again, and in debug builds without credits: our own mistakes.
    pub fn write<'f>(&self, frame: &'f Frame) -> Result<FrameWrite<'f>, JournalError> {
        if self.core.latch.is_set() {
            self.core.latch.check()?;
        }
        let mut content = frame.lock();
        if content.dirty_in != Some(self.tid) {
            assert!(frame.is_loaded(), "block {} is changed unread", frame.block());
            content.freeze(self.tid);
            content.dirty_in = Some(self.tid);
            self.join(frame);
        }
        Ok(FrameWrite::new(content))
    }

    /// The frame of a block that was just allocated: zeros, not read, part of the transaction. Costs a credit.
    ///
    /// # Errors
    /// [`JournalError::Aborted`], or the block is not on the volume.
    pub fn create(&self, block: BlockNo) -> Result<Frame, JournalError> {
        self.core.latch.check()?;
        let frame = self.core.cache.frame(block)?;
        let mut content = frame.lock();
        let is_new = content.dirty_in != Some(self.tid);
        if is_new {
            content.freeze(self.tid);
            content.dirty_in = Some(self.tid);
        }
        frame.set_loaded(&mut content, self.core.cache.empty());
        if is_new {
            self.join(&frame);
        }
        drop(content);
        Ok(frame)
    }

    /// Whether the frame is part of the transaction: to change it costs no credit.
    pub fn has(&self, frame: &Frame) -> bool {
        frame.lock().dirty_in == Some(self.tid)
    }

    /// Takes back that a block was created which had no frame: the device has what it holds.
    ///
    /// # Errors
    /// As [`Handle::create`].
    pub fn uncreate(&self, block: BlockNo) -> Result<(), JournalError> {
        self.core.latch.check()?;
        if let Some(frame) = self.core.cache.peek(block) {
            let mut content = frame.lock();
            content.dirty_in = None;
            frame.set_unloaded(&mut content);
        }
        Ok(())
    }

    fn join(&self, frame: &Frame) {
        let left = self.credits.get();
        debug_assert!(left > 0, "{frame:?} is dirtied without credits");
        if left > 0 {
            self.credits.set(left - 1);
        } else {
            // The log keeps room for a few too many.
            tracing::error!(?frame, "dirtied without credits");
            self.core.overdraw(self.tid);
        }
        let transaction = self.core.transaction(self.tid);
        transaction.cancel_revoke(frame.block());
        if transaction.add(frame.clone()) {
            self.core.first_frame(self.tid);
        }
    }

    /// A block that was changed through frames is free from now on (if the transaction commits):
    /// its content is not logged any more, and a revoke record keeps recovery from writing older
    /// versions over what may lie there later. The block must not be allocated again before
    /// [`CommitHooks::committed`](crate::CommitHooks::committed) tells of this transaction, unless
    /// by [`Handle::create`]. Costs no credit, but blocks of revoke records count with the
    /// transaction: who forgets very many has asked for as many credits more.
    ///
    /// # Errors
    /// [`JournalError::Aborted`], or the block is not on the volume.
    pub fn forget(&self, block: BlockNo) -> Result<(), JournalError> {
        self.core.latch.check()?;
        if let Some(frame) = self.core.cache.peek(block) {
            let mut content = frame.lock();
            content.freeze(self.tid);
            content.dirty_in = None;
            frame.set_unloaded(&mut content);
        }
        if let Some(log) = &self.core.log {
            let transaction = self.core.transaction(self.tid);
            let before = transaction.revoke(block);
            if before.is_some_and(|before| before.is_multiple_of(log.revokes_per_block())) {
                // Counted with the transaction, beside the handle's credits.
                self.core.overdraw(self.tid);
            }
            if transaction.started().is_none() {
                self.core.first_frame(self.tid);
            }
        }
        Ok(())
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        self.core.exit(self.tid, self.credits.get());
    }
}

impl fmt::Debug for Handle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("tid", &self.tid).field("credits", &self.credits).finish()
    }
}
