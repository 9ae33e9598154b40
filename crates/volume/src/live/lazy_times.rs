//! Times that wait in memory (`lazytime`): a change of nothing but an inode's times is stored later, as mount(8) says.
//!
//! The inode in memory has the times at once. They are stored with any other change of the inode, by an fsync of the file or a
//! sync of the whole volume ([`Volume::write_times`], [`Volume::write_all_times`]), after a day, and before there are too many
//! such inodes: each stays in memory until its times are stored. Power loss takes the times and nothing else.

use super::Live;
use super::inodes::{InodeWrite, LiveInode, LockAs};
use crate::edit::write_inode;
use crate::error::Error;
use crate::ops::credits;
use crate::ranks::TimesListLock;
use crate::read::inode;
use crate::volume::Volume;
use extant_device::env::Next;
use extant_device::sync::{Arc, Mutex};
use extant_ondisk::InodeNo;
use std::collections::BTreeMap;
use std::time::Duration;

/// Times are stored at this age (mount(8)).
const EXPIRE: Duration = Duration::from_secs(24 * 60 * 60);
/// The background writer waits so long where it could not store what is due.
const PAUSE: Duration = Duration::from_secs(1);

type Waiting = BTreeMap<(Duration, InodeNo), Arc<LiveInode>>;

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
    fn add(&self, due: Duration, file: &Arc<LiveInode>) -> bool {
        let mut files = self.files.lock();
        let has_room = files.len() < self.most;
        if has_room {
            files.insert((due, file.number()), file.clone());
        }
        has_room
    }

    fn remove(&self, due: Duration, number: InodeNo) {
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
    fn first_due(&self) -> Option<Duration> {
        self.files.lock().first_key_value().map(|((due, _), _)| *due)
    }

    /// The files that are due, and where too many wait half of them, in the order of their records.
    fn due(&self, now: Duration) -> Vec<(Duration, Arc<LiveInode>)> {
        let files = self.files.lock();
        let surplus = if files.len() < self.most { 0 } else { self.most / 2 };
        let due =
            files.iter().enumerate().take_while(|(at, ((due, _), _))| *due <= now || *at < surplus);
        by_number(due.map(|(_, file)| file))
    }

    /// All files, in the order of their records.
    fn all(&self) -> Vec<(Duration, Arc<LiveInode>)> {
        by_number(self.files.lock().iter())
    }
}

fn by_number<'f>(
    files: impl Iterator<Item = (&'f (Duration, InodeNo), &'f Arc<LiveInode>)>,
) -> Vec<(Duration, Arc<LiveInode>)> {
    let mut files: Vec<_> = files.map(|((due, _), file)| (*due, file.clone())).collect();
    files.sort_by_key(|(_, file)| file.number());
    files
}

impl Volume {
    /// Nothing but the times of a file is about to change: whether they may wait in memory. False: they are to be stored.
    pub(crate) fn keep_times(
        &self,
        live: &Live,
        shared: &Arc<LiveInode>,
        file: &mut InodeWrite<'_>,
    ) -> bool {
        if !live.lazy_times.is_on || file.times_due().is_some() {
            return live.lazy_times.is_on;
        }
        let is_first = live.lazy_times.first_due().is_none();
        let due = live.env.elapsed().saturating_add(EXPIRE);
        let is_kept = live.lazy_times.add(due, shared);
        if is_kept {
            file.set_times_due(Some(due));
        }
        if is_first || !is_kept {
            live.delays.wake_writer();
        }
        is_kept
    }

    /// Stores the times of a file that wait in memory. Its lock is not held.
    pub(crate) fn write_times(&self, live: &Live, shared: &LiveInode) -> Result<(), Error> {
        // A volume that takes no changes any more loses them.
        if !live.lazy_times.is_on || self.writable().is_err() {
            return Ok(());
        }
        match shared.write_if_loaded(self, LockAs::File) {
            Some(mut file) => self.write_kept(live, &mut file),
            None => Ok(()),
        }
    }

    fn write_kept(&self, live: &Live, file: &mut InodeWrite<'_>) -> Result<(), Error> {
        let Some(due) = file.times_due() else { return Ok(()) };
        live.lazy_times.remove(due, file.number);
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
    pub(crate) fn write_all_times(&self, live: &Live) -> Result<(), Error> {
        self.write_times_of(live, live.lazy_times.all())
    }

    /// Goes on after an error; returns the first one.
    fn write_times_of(
        &self,
        live: &Live,
        files: Vec<(Duration, Arc<LiveInode>)>,
    ) -> Result<(), Error> {
        let mut outcome = Ok(());
        for (due, shared) in files {
            let stored = self.noted(self.write_times(live, &shared));
            if let Err(error) = &stored {
                tracing::error!(inode = %shared.number(), %error, "times are lost");
            }
            outcome = outcome.and(stored);
            // One that is not in memory any more, or takes no changes.
            live.lazy_times.remove(due, shared.number());
        }
        outcome
    }

    /// One turn of the background writer: what is due, and what is too much.
    pub(super) fn write_old_times(&self, live: &Live) -> Next {
        let due = live.lazy_times.due(live.env.elapsed());
        // It was logged, and is not tried again.
        let _ = self.write_times_of(live, due);
        match live.lazy_times.first_due() {
            Some(due) => Next::After(due.saturating_sub(live.env.elapsed()).max(PAUSE)),
            None => Next::WhenWoken,
        }
    }
}
