//! Files of which the kernel's cache took more than there is space for.
//!
//! With the writeback cache `write` returns before the server hears of it. What does not fit then
//! is missed by `fsync` and `close`, and a program that writes until the volume is full never ends.
//! But before each `write` the kernel asks for attributes that it does not know, with the number of
//! the open file: so it is made to forget them, and the error is the answer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use extant_ondisk::InodeNo;
use rustix::io::Errno;

/// Files that are noted at once; of further ones only `fsync` and `close` tell.
const MOST: usize = 1024;

/// What has not fitted, until somebody is told.
#[derive(Debug, Default)]
pub(super) struct Unfit {
    are_any: AtomicBool,
    files: Mutex<HashMap<InodeNo, Errno>>,
}

impl Unfit {
    /// What the kernel wrote of a file did not fit.
    pub(super) fn note(&self, file: InodeNo, errno: Errno) {
        let mut files = self.files();
        if files.len() < MOST {
            files.insert(file, errno);
            self.are_any.store(true, Ordering::Relaxed);
        }
    }

    /// What a file is noted with, which it is no longer: a program is told now, or nobody needs to
    /// be any more.
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
    fn each_is_told_once() {
        let unfit = Unfit::default();
        assert_eq!(unfit.take(InodeNo(12)), None);
        unfit.note(InodeNo(12), Errno::NOSPC);
        unfit.note(InodeNo(13), Errno::DQUOT);
        assert_eq!(unfit.take(InodeNo(12)), Some(Errno::NOSPC));
        assert_eq!(unfit.take(InodeNo(12)), None);
        assert_eq!(unfit.take(InodeNo(13)), Some(Errno::DQUOT));
        assert!(!unfit.are_any.load(Ordering::Relaxed));
    }
}
