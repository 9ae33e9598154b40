//! Files that are open for writing, which the kernel's cache may have in a newer state.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use extant_ondisk::InodeNo;

/// Files that are open for writing.
#[derive(Debug, Default)]
pub(super) struct Writers(Mutex<HashMap<u32, Written>>);

/// A file that is open for writing.
#[derive(Debug, Default)]
struct Written {
    /// How often it is.
    count: u64,
    /// The kernel's cache has requested some of it since.
    is_cached: bool,
}

impl Writers {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Written>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn enter(&self, file: InodeNo) {
        self.lock().entry(file.0).or_default().count += 1;
    }

    /// Whether no process writes the file any more.
    pub(super) fn leave(&self, file: InodeNo) -> bool {
        let mut writers = self.lock();
        let Some(written) = writers.get_mut(&file.0) else { return true };
        written.count -= 1;
        let is_last = written.count == 0;
        if is_last {
            writers.remove(&file.0);
        }
        is_last
    }

    pub(super) fn has(&self, file: InodeNo) -> bool {
        self.lock().contains_key(&file.0)
    }

    /// The kernel's cache reads a file: before it gets what it wants.
    pub(super) fn read_for_cache(&self, file: InodeNo) {
        if let Some(written) = self.lock().get_mut(&file.0) {
            written.is_cached = true;
        }
    }

    /// Whether the kernel's cache may hold what it read of a file since that was opened for
    /// writing.
    pub(super) fn are_cached(&self, file: InodeNo) -> bool {
        self.lock().get(&file.0).is_some_and(|written| written.is_cached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_writers_until_the_last_has_left() {
        let (writers, file) = (Writers::default(), InodeNo(12));
        writers.enter(file);
        writers.enter(file);
        assert!(!writers.leave(file));
        assert!(writers.has(file) && !writers.has(InodeNo(13)));
        assert!(writers.leave(file));
        assert!(writers.leave(file));
        assert!(!writers.has(file));
        writers.read_for_cache(file);
        writers.enter(file);
        assert!(!writers.are_cached(file), "what was read before, the kernel drops itself");
        writers.read_for_cache(file);
        assert!(writers.are_cached(file));
    }
}
