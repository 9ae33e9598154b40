//! Holes of files that are open for writing.
//!
//! The kernel asks for data and holes without having written what its cache holds: a hole here may
//! be data there. Files that nobody has open for writing are not in its cache in any newer state,
//! since it writes before it closes. For the others it is told to drop what it keeps, and writes
//! what was changed before it does. That takes requests of its own, so a thread apart tells it,
//! while those that answer go on.

use std::sync::mpsc::Receiver;

use rustix::fs::SeekFrom;

use super::dispatch::Dispatcher;
use super::later::Later;
use super::message::ReplyBuffer;
use super::notice;

/// Answers such questions, one after the other, until nobody asks any more.
pub(super) fn answer_seeks(dispatcher: &Dispatcher, jobs: &Receiver<(Later, SeekFrom)>) {
    let mut buffer = ReplyBuffer::new();
    for (later, wanted) in jobs {
        let request = later.request();
        // Where the kernel does not know the file any more nobody waits either.
        let _ = notice::drop_cache(&dispatcher.connection, request.header.nodeid);
        let mut reply = buffer.reply();
        let found = request.inode().and_then(|file| dispatcher.server.seek(file, wanted));
        let outcome = found.and_then(|at| reply.put(&at));
        let len = reply.len();
        later.answer(dispatcher, outcome, len, &mut buffer);
    }
}
