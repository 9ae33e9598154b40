//! Pages that may have grown old in the kernel's cache.
//!
//! A write with O_DIRECT bypasses the kernel's cache: the kernel drops the pages before it sends
//! WRITE, and once more after the reply to a synchronous call. For an asynchronous one (io_uring,
//! libaio) nothing is dropped at its end: a page that was read during the write may hold old data
//! as long as the kernel keeps it. So after such a write to a file that others read through the
//! cache the kernel is notified to drop the range.
//!
//! A separate thread sends the notification: the kernel waits for pages that are being read or
//! written, which other threads must answer; among them the very write, if the kernel could not
//! drop the pages before and wrote through its cache instead. So the reply comes first, and a page
//! may be old for a moment after it.

use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::notice;

/// Ranges of files, by FUSE's numbers, that are to be dropped.
#[derive(Debug, Default)]
pub(super) struct Stale {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    /// One range for each file: it grows by ranges that are added before the notification.
    ranges: HashMap<u64, Range<u64>>,
    has_ended: bool,
}

impl Stale {
    /// A range of a file was written past the cache.
    pub(super) fn note(&self, node: u64, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut waiting = self.lock();
        let whole = waiting.ranges.entry(node).or_insert(range.clone());
        *whole = whole.start.min(range.start)..whole.end.max(range.end);
        drop(waiting);
        self.changed.notify_one();
    }

    /// No more requests come.
    pub(super) fn end(&self) {
        self.lock().has_ended = true;
        self.changed.notify_one();
    }

    /// The ranges to drop now; waits for some; `None` at the end.
    fn next(&self) -> Option<HashMap<u64, Range<u64>>> {
        let is_idle = |waiting: &mut Waiting| waiting.ranges.is_empty() && !waiting.has_ended;
        let waiting = self.changed.wait_while(self.lock(), is_idle);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        (!waiting.has_ended).then(|| std::mem::take(&mut waiting.ranges))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has the kernel at the other end of `connection` drop such ranges, until no more requests come.
pub(super) fn drop_stale(stale: &Stale, connection: &OwnedFd) {
    while let Some(ranges) = stale.next() {
        for (node, range) in ranges {
            // Where the kernel does not know the file any more it has no pages of it.
            let _ = notice::drop_range(connection, node, &range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_before_a_notification_are_one_range_for_each_file() {
        let stale = Stale::default();
        stale.note(12, 4096..8192);
        stale.note(12, 0..0);
        stale.note(13, 0..10);
        stale.note(12, 65536..131_072);
        let expected = HashMap::from([(12, 4096..131_072), (13, 0..10)]);
        assert_eq!(stale.next(), Some(expected));
        stale.end();
        assert_eq!(stale.next(), None);
    }
}
