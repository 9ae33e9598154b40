//! Holes of files that are open for writing.
//!
//! The kernel sends SEEK_DATA and SEEK_HOLE without having written back its cache: a hole here may
//! be data there. Files that no process has open for writing have no newer data in the cache, since
//! the kernel writes back before RELEASE. For the others it is notified to drop its cache, and
//! writes dirty pages back before it does. That takes requests of its own, so a separate thread
//! sends the notification, while those that answer requests continue.

use std::sync::mpsc::Receiver;

use rustix::fs::SeekFrom;

use super::deferred::DeferredRequest;
use super::dispatch::Dispatcher;
use super::message::ReplyBuffer;
use super::notice;

/// Answers such requests, one after the other, until the senders are gone.
pub(super) fn reply_to_seeks(
    dispatcher: &Dispatcher,
    jobs: &Receiver<(DeferredRequest, SeekFrom)>,
) {
    let mut buffer = ReplyBuffer::new();
    for (deferred, wanted) in jobs {
        let request = deferred.request();
        // If the kernel no longer knows the file, no caller waits either.
        let _ = notice::drop_cache(&dispatcher.connection, request.header.nodeid);
        let mut reply = buffer.reply();
        let found = request.inode().and_then(|file| dispatcher.server.seek(file, wanted));
        let outcome = found.and_then(|at| reply.put(&at));
        let len = reply.len();
        deferred.answer(dispatcher, outcome, len, &mut buffer);
    }
}
