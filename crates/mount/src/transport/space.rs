//! Requests that find no space while files without names are held.
//!
//! `unlink` returns before the kernel sends FORGET, and `close` before RELEASE: space that a
//! program has freed becomes free some requests later. So a request that finds none is deferred for
//! a moment, and for longer as long as files are closed and forgotten. A separate thread retries,
//! while those that read requests handle FORGET and RELEASE.

use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use super::deferred::DeferredRequest;
use super::dispatch::Dispatcher;
use super::message::ReplyBuffer;
use super::space_events::wants_space;

/// Requests that are put off at once; further ones fail at once. Each may be as long as requests
/// are.
pub(super) const MOST: usize = 8;
/// How long a request is deferred, and how often without files being freed; how often if no file
/// was unlinked since others waited in vain; how often at all.
const PAUSE: Duration = Duration::from_millis(1);
const TRIES: u32 = 400;
const TRIES_AGAIN: u32 = 10;
const ALL_TRIES: u32 = 10_000;

/// How long a request is put off.
#[derive(Debug)]
struct Patience {
    /// Tries without news, and how many there may be.
    vain: u32,
    most: u32,
    all: u32,
    endings: Option<u64>,
}

impl Patience {
    /// `is_again` where the same files were waited for in vain.
    fn new(is_again: bool, endings: Option<u64>) -> Self {
        Self { vain: 0, most: if is_again { TRIES_AGAIN } else { TRIES }, all: 0, endings }
    }

    /// One more try was in vain; whether another may follow. `endings` are those before it.
    fn is_left(&mut self, endings: Option<u64>) -> bool {
        self.all += 1;
        let has_news = endings.is_none() || endings != self.endings;
        self.vain = if has_news { 0 } else { self.vain + 1 };
        self.endings = endings;
        self.vain < self.most && self.all < ALL_TRIES
    }
}

/// Retries such requests, one after the other, until the senders are gone.
pub(super) fn reply_when_space_is_free(dispatcher: &Dispatcher, jobs: &Receiver<DeferredRequest>) {
    let mut buffer = ReplyBuffer::new();
    let (space_events, server) = (&dispatcher.space_events, &dispatcher.server);
    let mut in_vain = None;
    for deferred in jobs {
        let removals = space_events.removals();
        let mut patience = Patience::new(in_vain == Some(removals), space_events.endings());
        let (outcome, len) = loop {
            thread::sleep(PAUSE);
            // Sampled before the attempt: space freed during it is noticed.
            let (left, endings) = (server.open_unlinked_count(), space_events.endings());
            let mut reply = buffer.reply();
            let change = server.wait_for_change();
            let outcome = dispatcher.dispatch(&deferred.request(), &mut reply);
            drop(change);
            let is_vain = outcome.is_err_and(wants_space);
            if !is_vain || left == 0 || !patience.is_left(endings) {
                in_vain = (is_vain && left > 0).then_some(removals);
                // Only requests that take space come here: they are answered now.
                break (outcome.map(|_| ()), reply.len());
            }
        };
        deferred.answer(dispatcher, outcome, len, &mut buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_lasts_as_long_as_files_come_free_but_not_for_ever() {
        let tries = |is_again, endings: fn(u32) -> Option<u64>| {
            let mut patience = Patience::new(is_again, Some(0));
            1 + (1..).take_while(|number| patience.is_left(endings(*number))).count()
        };
        assert_eq!(tries(false, |_| Some(0)), TRIES as usize);
        assert_eq!(tries(true, |_| Some(0)), TRIES_AGAIN as usize);
        let hundred = |number: u32| Some(u64::from(number.min(100)));
        assert_eq!(tries(true, hundred), 100 + TRIES_AGAIN as usize);
        assert_eq!(tries(true, |_| None), ALL_TRIES as usize);
    }
}
