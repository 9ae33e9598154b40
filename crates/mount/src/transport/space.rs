//! Requests that find no space while files without names are held.
//!
//! `unlink` returns before the kernel forgets the file, and `close` before it says that nobody has the file open: space that a program
//! has freed comes free some requests later. So who finds none then is put off for a moment. A thread apart tries again, while those
//! that read requests see what is forgotten.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use super::dispatch::{Dispatcher, Outcome};
use super::message::{OwnedRequest, Reply, Request};

/// Requests that are put off at once; further ones fail at once. Each may be as long as requests are.
pub(super) const MOST: usize = 8;
/// How long and how often one is put off; how often where the same number of files was waited for in vain before.
const PAUSE: Duration = Duration::from_millis(1);
const TRIES: u32 = 400;
const TRIES_AGAIN: u32 = 10;

/// A request that found no space.
#[derive(Debug)]
pub(super) struct SpaceJob {
    dispatcher: Arc<Dispatcher>,
    request: OwnedRequest,
}

/// Does what a request wants, unless it is put off (`None`): it found no space where there may be some soon.
pub(super) fn dispatch(
    dispatcher: &Arc<Dispatcher>,
    request: &Request<'_>,
    reply: &mut Reply,
    jobs: &SyncSender<SpaceJob>,
) -> Option<Result<Outcome, Errno>> {
    let outcome = dispatcher.dispatch(request, reply);
    if !wants_space(outcome) {
        return Some(outcome);
    }
    if dispatcher.server.nameless_count() == 0 {
        // The last of them may have gone since.
        reply.clear();
        return Some(dispatcher.dispatch(request, reply));
    }
    let job = SpaceJob { dispatcher: dispatcher.clone(), request: OwnedRequest::of(request) };
    jobs.try_send(job).is_err().then_some(outcome)
}

fn wants_space(outcome: Result<Outcome, Errno>) -> bool {
    matches!(outcome, Err(Errno::NOSPC | Errno::DQUOT))
}

/// Tries such requests again, one after the other, until nobody reads any more.
pub(super) fn answer_when_there_is_space(jobs: &Receiver<SpaceJob>) {
    let mut reply = Reply::new();
    let mut in_vain = None;
    for SpaceJob { dispatcher, request } in jobs {
        let request = request.request();
        let nameless = || dispatcher.server.nameless_count();
        let tries = if in_vain == Some(nameless()) { TRIES_AGAIN } else { TRIES };
        for tried in 1..=tries {
            thread::sleep(PAUSE);
            reply.clear();
            // Asked before: what comes free meanwhile is found.
            let left = nameless();
            let outcome = dispatcher.dispatch(&request, &mut reply);
            let is_vain = wants_space(outcome);
            if !is_vain || tried == tries || left == 0 {
                in_vain = is_vain.then_some(left);
                dispatcher.answer(&request, outcome, &mut reply);
                break;
            }
        }
    }
}
