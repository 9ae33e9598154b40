//! Requests that would change a frozen volume.
//!
//! Each would occupy a thread until the volume thaws, and none would be left for the thaw. So they
//! are deferred, and a separate thread answers them, one after the other, after the thaw.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError};

use rustix::io::Errno;

use super::deferred::DeferredRequest;
use super::dispatch::Dispatcher;
use super::handle::{Disposition, Reason, handle};
use super::message::ReplyBuffer;

/// Answers such requests until the senders are gone. One that finds no space goes to the queue
/// `space`.
pub(super) fn reply_when_thawed(
    dispatcher: &Dispatcher,
    jobs: &Receiver<DeferredRequest>,
    space: &SyncSender<DeferredRequest>,
) {
    let mut buffer = ReplyBuffer::new();
    for deferred in jobs {
        let (disposition, len) = loop {
            drop(dispatcher.server.wait_for_change());
            let mut reply = buffer.reply();
            match handle(dispatcher, &deferred.request(), &mut reply) {
                // Frozen again.
                Disposition::Defer(Reason::Frozen) => {}
                disposition => break (disposition, reply.len()),
            }
        };
        let (deferred, outcome) = match disposition {
            Disposition::Defer(Reason::Space(errno)) => match space.try_send(deferred) {
                Ok(()) => continue,
                Err(TrySendError::Full(deferred) | TrySendError::Disconnected(deferred)) => {
                    (deferred, Err(errno))
                }
            },
            Disposition::Reply(outcome) => (deferred, outcome),
            // Changes get a reply, and are never SEEK_HOLE.
            Disposition::NoReply | Disposition::Defer(_) => (deferred, Err(Errno::IO)),
        };
        deferred.answer(dispatcher, outcome, len, &mut buffer);
    }
}
