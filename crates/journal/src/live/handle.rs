//! Handles: the part of one operation in the running transaction.

use std::cell::Cell;
use std::fmt;

use extant_ondisk::{BlockNo, Tid};

use super::core::Core;
use super::fast_changes::FastChanges;
use super::frame::{Frame, FrameWrite};
use crate::JournalError;

/// The part of one operation in the running transaction: its changes are committed together or not
/// at all. It may dirty as many blocks as it has credits. The transaction cannot be committed
/// before all its handles are dropped, so a handle is short-lived, and its owner must not hold, at
/// the start, a lock that the owner of another handle waits for.
pub struct Handle<'a> {
    core: &'a Core,
    tid: Tid,
    credits: Cell<u32>,
    /// Whether it has changed what it has not described for a fast commit.
    is_undescribed: Cell<bool>,
}

impl<'a> Handle<'a> {
    pub(super) fn start(core: &'a Core, credits: u32) -> Result<Self, JournalError> {
        let tid = core.enter(credits)?;
        Ok(Self { core, tid, credits: Cell::new(credits), is_undescribed: Cell::new(false) })
    }

    pub(super) fn start_exclusive(core: &'a Core, credits: u32) -> Result<Self, JournalError> {
        let tid = core.enter_exclusive(credits)?;
        Ok(Self { core, tid, credits: Cell::new(credits), is_undescribed: Cell::new(false) })
    }

    /// The transaction that the changes belong to: [`Journal::commit`](crate::Journal::commit)
    /// waits for it.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Number of blocks that it may still dirty.
    pub fn credits(&self) -> u32 {
        self.credits.get()
    }

    /// Asks for `more` credits. Returns false if the transaction has no room for them: then the
    /// operation completes a consistent part of its changes and calls [`Handle::restart`].
    pub fn extend(&self, more: u32) -> bool {
        let is_granted = self.core.extend(self.tid, more);
        if is_granted {
            self.credits.set(self.credits.get() + more);
        }
        is_granted
    }

    /// Describes all that the handle has changed, for a fast commit. The locks under which it was
    /// changed must be held.
    pub fn describe(&self, changes: FastChanges) {
        if let Some(fast) = &self.core.fast {
            fast.add(self.tid, changes);
            self.is_undescribed.set(false);
        }
    }

    /// Why the transaction gets no fast commit, whatever the handle describes; `None` if it may get
    /// one.
    pub fn fast_commit_refusal(&self) -> Option<&'static str> {
        self.core.fast.as_ref()?.refusal(self.tid)
    }

    /// The changes of the handle are committed by a transaction, for this reason.
    pub fn refuse_fast_commit(&self, reason: &'static str) {
        if let Some(fast) = &self.core.fast {
            fast.refuse(self.tid, Some(reason));
            self.is_undescribed.set(false);
        }
    }

    /// Takes one credit more than the transaction has room for, to roll back an operation that
    /// cannot be finished. The log reserves room for a few.
    pub fn overdraw(&self) {
        self.core.overdraw(self.tid);
        self.credits.set(self.credits.get() + 1);
    }

    /// Ends this handle and starts another with `credits`, in a later transaction if necessary. The
    /// changes so far may be committed without the later ones.
    ///
    /// # Errors
    /// As [`Journal::start`](crate::Journal::start); the handle has ended then.
    pub fn restart(self, credits: u32) -> Result<Self, JournalError> {
        let core = self.core;
        // The transaction is not asked to close: other handles may fill it.
        drop(self);
        Self::start(core, credits)
    }

    /// Locks a frame for a change. It joins the transaction, which costs a credit unless it was
    /// part of it already.
    ///
    /// # Errors
    /// [`JournalError::Aborted`].
    ///
    /// # Panics
    /// If the frame was forgotten and not created or read again, and in debug builds without
    /// credits: both are programming errors.
    pub fn write<'f>(&self, frame: &'f Frame) -> Result<FrameWrite<'f>, JournalError> {
        if self.core.latch.is_set() {
            self.core.latch.check()?;
        }
        self.is_undescribed.set(true);
        let mut content = frame.lock();
        if content.dirty_in != Some(self.tid) {
            assert!(frame.is_loaded(), "block {} is changed unread", frame.block());
            content.freeze(self.tid);
            content.dirty_in = Some(self.tid);
            self.join(frame);
        }
        Ok(FrameWrite::new(content))
    }

    /// Creates the frame of a block that was just allocated: zeros, not read, part of the
    /// transaction. Costs a credit.
    ///
    /// # Errors
    /// [`JournalError::Aborted`], or the block is not on the volume.
    pub fn create(&self, block: BlockNo) -> Result<Frame, JournalError> {
        self.core.latch.check()?;
        self.is_undescribed.set(true);
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

    /// Whether the frame is part of the transaction: changing it costs no credit.
    pub fn has(&self, frame: &Frame) -> bool {
        frame.lock().dirty_in == Some(self.tid)
    }

    /// Undoes the creation of a block that had no frame before: its content is that of the device.
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
            // The log reserves room for a few blocks more than the credits.
            tracing::error!(?frame, "dirtied without credits");
            self.core.overdraw(self.tid);
        }
        let transaction = self.core.transaction(self.tid);
        transaction.cancel_revoke(frame.block());
        if transaction.add(frame.clone()) {
            self.core.first_frame(self.tid);
        }
    }

    /// Frees a block that was changed through frames, if the transaction commits. Its content is
    /// not logged any more, and a revoke record keeps recovery from writing older versions over
    /// later content of the block. The block must not be allocated again before
    /// [`CommitHooks::committed`](crate::CommitHooks::committed) is called for this transaction,
    /// except by [`Handle::create`]. Costs no credit, but revoke blocks count towards the
    /// transaction's size: an operation that forgets very many blocks asks for credits for them.
    ///
    /// # Errors
    /// [`JournalError::Aborted`], or the block is not on the volume.
    pub fn forget(&self, block: BlockNo) -> Result<(), JournalError> {
        self.core.latch.check()?;
        self.is_undescribed.set(true);
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
                // Counted in addition to the handle's credits.
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
        if self.is_undescribed.get()
            && let Some(fast) = &self.core.fast
        {
            fast.refuse(self.tid, None);
        }
        self.core.exit(self.tid, self.credits.get());
    }
}

impl fmt::Debug for Handle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("tid", &self.tid).field("credits", &self.credits).finish()
    }
}
