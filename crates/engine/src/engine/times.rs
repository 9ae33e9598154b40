//! Times that wait in memory ([`LazyTimes`](super::lazy_times::LazyTimes)) kept there, and stored.

use super::Engine;
use super::inodes::{CachedInode, InodeWrite, LockClass};
use crate::edit::write_inode;
use crate::ops::credits;
use extant_reader::Error;
use extant_reader::read::inode;
use extant_runtime::env::Next;
use extant_runtime::sync::Arc;
use std::time::Duration;

/// Times are stored at this age (mount(8)).
const EXPIRE: Duration = Duration::from_secs(24 * 60 * 60);
/// The background writer waits so long where it could not store what is due.
const PAUSE: Duration = Duration::from_secs(1);

impl Engine {
    /// Nothing but the times of a file is about to change: whether they may wait in memory. False:
    /// they are to be stored.
    pub(crate) fn keep_times(&self, shared: &Arc<CachedInode>, file: &mut InodeWrite<'_>) -> bool {
        if !self.lazy_times.is_on || file.times_due().is_some() {
            return self.lazy_times.is_on;
        }
        let is_first = self.lazy_times.first_due().is_none();
        let due = self.env.elapsed().saturating_add(EXPIRE);
        let is_kept = self.lazy_times.add(due, shared);
        if is_kept {
            file.set_times_due(Some(due));
        }
        if is_first || !is_kept {
            self.delalloc.wake_writer();
        }
        is_kept
    }

    /// Stores the times of a file that wait in memory. Its lock is not held.
    pub(crate) fn write_times(&self, shared: &CachedInode) -> Result<(), Error> {
        // A volume that takes no changes any more loses them.
        if !self.lazy_times.is_on || self.check_writable().is_err() {
            return Ok(());
        }
        match shared.write_if_loaded(self, LockClass::File) {
            Some(mut file) => self.write_kept(&mut file),
            None => Ok(()),
        }
    }

    fn write_kept(&self, file: &mut InodeWrite<'_>) -> Result<(), Error> {
        let Some(due) = file.times_due() else { return Ok(()) };
        self.lazy_times.remove(due, file.number);
        file.set_times_due(None);
        let stored = inode::load_any(self, file.number)?.inode;
        if stored == file.inode {
            // They were stored with something else.
            return Ok(());
        }
        let mut edit = self.edit(credits::INODE)?;
        write_inode(&mut edit, file.number, &file.inode)?;
        edit.finish();
        Ok(())
    }

    /// Stores all times that wait in memory, as far as there are any now. No lock is held.
    pub(crate) fn write_all_times(&self) -> Result<(), Error> {
        self.write_times_of(self.lazy_times.all())
    }

    /// Continues after an error; returns the first one.
    fn write_times_of(&self, files: Vec<(Duration, Arc<CachedInode>)>) -> Result<(), Error> {
        let mut outcome = Ok(());
        for (due, shared) in files {
            let stored = self.record_corruption(self.write_times(&shared));
            if let Err(error) = &stored {
                tracing::error!(inode = %shared.number(), %error, "times are lost");
            }
            outcome = outcome.and(stored);
            // One that is not in memory any more, or takes no changes.
            self.lazy_times.remove(due, shared.number());
        }
        outcome
    }

    /// One turn of the background writer: what is due, and what is too much.
    pub(crate) fn write_old_times(&self) -> Next {
        let due = self.lazy_times.due(self.env.elapsed());
        // It was logged, and is not tried again.
        let _ = self.write_times_of(due);
        match self.lazy_times.first_due() {
            Some(due) => Next::After(due.saturating_sub(self.env.elapsed()).max(PAUSE)),
            None => Next::WhenWoken,
        }
    }
}
