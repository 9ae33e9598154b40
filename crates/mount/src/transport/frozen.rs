//! Requests that would change a frozen volume.
//!
//! Each would occupy a thread until the volume thaws, and none would be left for the thaw. So they
//! are deferred, and a separate thread answers them, one after the other, after the thaw.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError};

use rustix::io::Errno;

use super::defer::{Reason, Verdict, judge};
use super::dispatch::Dispatcher;
use super::later::Later;
use super::message::ReplyBuffer;

/// Answers such requests until the senders are gone. One that finds no space goes to the queue
/// `space`.
pub(super) fn answer_when_thawed(
    dispatcher: &Dispatcher,
    jobs: &Receiver<Later>,
    space: &SyncSender<Later>,
) {
    let mut buffer = ReplyBuffer::new();
    for later in jobs {
        let (verdict, len) = loop {
            drop(dispatcher.server.wait_for_change());
            let mut reply = buffer.reply();
            match judge(dispatcher, &later.request(), &mut reply) {
                // Frozen once more.
                Verdict::Later(Reason::Frozen) => {}
                verdict => break (verdict, reply.len()),
            }
        };
        let (later, outcome) = match verdict {
            Verdict::Later(Reason::Space(errno)) => match space.try_send(later) {
                Ok(()) => continue,
                Err(TrySendError::Full(later) | TrySendError::Disconnected(later)) => {
                    (later, Err(errno))
                }
            },
            Verdict::Answer(outcome) => (later, outcome),
            // Changes get a reply, and are no SEEK_HOLE.
            Verdict::Silent | Verdict::Later(_) => (later, Err(Errno::IO)),
        };
        later.answer(dispatcher, outcome, len, &mut buffer);
    }
}
