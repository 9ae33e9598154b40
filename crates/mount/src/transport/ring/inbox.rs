//! Requests handed to other threads than their ring's, and the inbox for their replies.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::super::handle::Reason;
use super::super::message::Request;
use super::slot::Slot;

/// Replies that other threads have completed, waiting for their ring's thread.
#[derive(Debug)]
pub(super) struct Inbox {
    done: Mutex<Vec<(usize, Slot)>>,
    pub(super) bell: OwnedFd,
    /// Slots of the queue, and how many of them hold requests that wait for others.
    depth: usize,
    waiting: AtomicUsize,
}

impl Inbox {
    pub(super) fn new(depth: usize) -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { done: Mutex::default(), bell, depth, waiting: AtomicUsize::new(0) })
    }

    /// Notes that one more request waits for others, where enough slots are left for those.
    ///
    /// At least one slot always has a request that does not wait: its reply brings the next from
    /// the queue, so that every request is handled in the end. Requests that wait for space leave
    /// that one slot; those that wait for the kernel's writeback, which may wait for space in turn,
    /// leave half.
    pub(super) fn begins_to_wait(&self, reason: Reason) -> bool {
        let most = match reason {
            Reason::Cache(_) => self.depth / 2,
            Reason::Space(_) | Reason::Frozen => self.depth - 1,
        };
        let one_more = |waiting| (waiting < most).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Undoes that: the reply is complete.
    pub(super) fn has_waited(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn put(&self, index: usize, slot: Slot) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.push((index, slot));
        drop(done);
        // It takes a number of any size until the thread reads it.
        let _ = rustix::io::write(&self.bell, &[1; 8]);
    }

    pub(super) fn take(&self) -> Vec<(usize, Slot)> {
        // Before: a reply that is added after the read rings again.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        std::mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A request in its slot, away from its ring's thread.
#[derive(Debug)]
pub(in super::super) struct RingRequest {
    pub(super) index: usize,
    pub(super) slot: Slot,
    pub(super) inbox: Arc<Inbox>,
}

impl RingRequest {
    pub(in super::super) fn request(&self) -> Request<'_> {
        self.slot.request()
    }

    /// Sends the reply to a request that has waited.
    pub(in super::super) fn answer(mut self, outcome: Result<(), Errno>, content: &[u8]) {
        self.slot.fill(content);
        self.slot.finish(outcome, content.len());
        self.inbox.has_waited();
        self.inbox.put(self.index, self.slot);
    }
}
