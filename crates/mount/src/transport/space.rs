//! Requests that find no space while files without names are held.
//!
//! `unlink` returns before the kernel forgets the file, and `close` before it says that nobody has the file open: space that a program
//! has freed comes free some requests later. So who finds none then is put off for a moment. A thread apart tries again, while those
//! that read requests see what is forgotten.

use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use super::dispatch::Dispatcher;
use super::later::{Later, wants_space};
use super::message::ReplyBuffer;

/// Requests that are put off at once; further ones fail at once. Each may be as long as requests are.
pub(super) const MOST: usize = 8;
/// How long and how often one is put off; how often where the same number of files was waited for in vain before.
const PAUSE: Duration = Duration::from_millis(1);
const TRIES: u32 = 400;
const TRIES_AGAIN: u32 = 10;

/// Tries such requests again, one after the other, until nobody reads any more.
pub(super) fn answer_when_there_is_space(dispatcher: &Dispatcher, jobs: &Receiver<Later>) {
    let mut buffer = ReplyBuffer::new();
    let mut in_vain = None;
    for later in jobs {
        let nameless = || dispatcher.server.nameless_count();
        let tries = if in_vain == Some(nameless()) { TRIES_AGAIN } else { TRIES };
        let mut tried = 0;
        let (outcome, len) = loop {
            tried += 1;
            thread::sleep(PAUSE);
            // Asked before: what comes free meanwhile is found.
            let left = nameless();
            let mut reply = buffer.reply();
            let outcome = dispatcher.dispatch(&later.request(), &mut reply);
            let is_vain = outcome.is_err_and(wants_space);
            if !is_vain || tried == tries || left == 0 {
                in_vain = is_vain.then_some(left);
                // Only what takes space comes here: it is answered now.
                break (outcome.map(|_| ()), reply.len());
            }
        };
        later.answer(dispatcher, outcome, len, &mut buffer);
    }
}
