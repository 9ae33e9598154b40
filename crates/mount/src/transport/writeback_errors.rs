//! Files of which the kernel's cache took more than there is space for.
//!
//! With the writeback cache `write` returns before the server receives the data. `fsync` and
//! `close` do not report data that did not fit, and a program that writes until the volume is full
//! would never end. But before each `write` the kernel sends GETATTR for unknown attributes, with
//! the number of the open file: so it is notified to drop the attributes, and the error is the
//! reply.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use extant_ondisk::InodeNo;
use rustix::io::Errno;

/// Maximum number of recorded files; for further ones only `fsync` and `close` report the error.
const MOST: usize = 1024;

/// Errors of writeback that no program has got yet.
#[derive(Debug, Default)]
pub(super) struct WritebackErrors {
    are_any: AtomicBool,
    files: Mutex<HashMap<InodeNo, Errno>>,
}

impl WritebackErrors {
    /// Records that data of a file from the kernel's cache did not fit.
    pub(super) fn note(&self, file: InodeNo, errno: Errno) {
        let mut files = self.files();
        if files.len() < MOST {
            files.insert(file, errno);
            self.are_any.store(true, Ordering::Relaxed);
        }
    }

    /// Removes and returns a file's error: a program gets it now, or it is obsolete.
    pub(super) fn take(&self, file: InodeNo) -> Option<Errno> {
        if !self.are_any.load(Ordering::Relaxed) {
            return None;
        }
        let mut files = self.files();
        let errno = files.remove(&file);
        self.are_any.store(!files.is_empty(), Ordering::Relaxed);
        errno
    }

    fn files(&self) -> MutexGuard<'_, HashMap<InodeNo, Errno>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_reported_once() {
        let writeback_errors = WritebackErrors::default();
        assert_eq!(writeback_errors.take(InodeNo(12)), None);
        writeback_errors.note(InodeNo(12), Errno::NOSPC);
        writeback_errors.note(InodeNo(13), Errno::DQUOT);
        assert_eq!(writeback_errors.take(InodeNo(12)), Some(Errno::NOSPC));
        assert_eq!(writeback_errors.take(InodeNo(12)), None);
        assert_eq!(writeback_errors.take(InodeNo(13)), Some(Errno::DQUOT));
        assert!(!writeback_errors.are_any.load(Ordering::Relaxed));
    }
}
