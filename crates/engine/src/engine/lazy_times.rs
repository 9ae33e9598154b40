//! Times that wait in memory (`lazytime`): a change of only an inode's times is stored later, as in
//! mount(8).
//!
//! The inode in memory has the times at once. They are stored with any other change of the inode,
//! by an fsync of the file or a sync of the whole volume
//! ([`Engine::write_times`](super::Engine::write_times)), after a day, and before there are too
//! many such inodes: each stays in memory until its times are stored. Power loss takes the times
//! and nothing else.

use super::inodes::{CachedInode, InodeWrite};
use crate::ranks::TimesListLock;
use extant_ondisk::InodeNo;
use extant_runtime::sync::{Arc, Mutex};
use std::collections::BTreeMap;
use std::time::Duration;

type Waiting = BTreeMap<(Duration, InodeNo), Arc<CachedInode>>;

/// The files whose times wait in memory.
#[derive(Debug)]
pub(crate) struct LazyTimes {
    /// Whether times wait at all.
    pub(crate) is_on: bool,
    /// Files that wait at most.
    most: usize,
    /// By the time when they are stored. Kept in step under the files' locks.
    files: Mutex<Waiting, TimesListLock>,
}

impl LazyTimes {
    /// None wait yet, and never more than half of the `inodes` that memory is meant for.
    pub(crate) fn new(is_on: bool, inodes: usize) -> Self {
        Self { is_on, most: inodes / 2, files: Mutex::default() }
    }

    /// The times of a file wait until then; false where too many do.
    pub(super) fn add(&self, due: Duration, file: &Arc<CachedInode>) -> bool {
        let mut files = self.files.lock();
        let has_room = files.len() < self.most;
        if has_room {
            files.insert((due, file.number()), file.clone());
        }
        has_room
    }

    pub(super) fn remove(&self, due: Duration, number: InodeNo) {
        let file = self.files.lock().remove(&(due, number));
        // Dropped without the list's lock.
        drop(file);
    }

    /// The file is deleted: its times need not be stored.
    pub(crate) fn forget(&self, file: &InodeWrite<'_>) {
        if let Some(due) = file.times_due() {
            self.remove(due, file.number);
        }
    }

    /// When the first are due.
    pub(super) fn first_due(&self) -> Option<Duration> {
        self.files.lock().first_key_value().map(|((due, _), _)| *due)
    }

    /// The files that are due, and where too many wait half of them, in the order of their records.
    pub(super) fn due(&self, now: Duration) -> Vec<(Duration, Arc<CachedInode>)> {
        let files = self.files.lock();
        let surplus = if files.len() < self.most { 0 } else { self.most / 2 };
        let due =
            files.iter().enumerate().take_while(|(at, ((due, _), _))| *due <= now || *at < surplus);
        by_number(due.map(|(_, file)| file))
    }

    /// All files, in the order of their records.
    pub(super) fn all(&self) -> Vec<(Duration, Arc<CachedInode>)> {
        by_number(self.files.lock().iter())
    }
}

fn by_number<'f>(
    files: impl Iterator<Item = (&'f (Duration, InodeNo), &'f Arc<CachedInode>)>,
) -> Vec<(Duration, Arc<CachedInode>)> {
    let mut files: Vec<_> = files.map(|((due, _), file)| (*due, file.clone())).collect();
    files.sort_by_key(|(_, file)| file.number());
    files
}
