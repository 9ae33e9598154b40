//! Delayed allocation: data written into holes stay in memory, and get their blocks when they
//! are written to the device.
//!
//! A call that writes takes what its data will need off the free space ([`reserve`]): clusters for
//! the data, what the map may grow by at worst, and the owners' quotas. So it is the call that
//! fails for want of space, never the writing later, and what turns out not to be needed is given
//! back. Data go to the device when a caller waits for them, when they are old, or when they take
//! too much memory ([`memory`]): file by file and in the file's order, each run as one request for
//! space ([`writeback`]), and those of small files together ([`batch`]).
//!
//! A file's size on the volume grows when the data up to it are written: after power loss a file
//! ends where its data do.

mod batch;
mod buffers;
mod dirty;
pub(crate) mod memory;
mod reserve;
mod writeback;

use buffers::BufferPool;
pub(crate) use dirty::{DataPart, DelayedData};

use crate::engine::inodes::CachedInode;
use crate::ranks::{DelayListLock, LostLock};
use extant_ondisk::InodeNo;
use extant_reader::Error;
use extant_runtime::env::Waker;
use extant_runtime::sync::atomic::{AtomicU32, Ordering};
use extant_runtime::sync::{Arc, Mutex};
use memory::DelayedMemory;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

/// Number of threads waiting for memory that write at once.
const MOST_HELPERS: u32 = 16;

/// The delayed data of a volume.
#[derive(Debug)]
pub(crate) struct DelayedAllocation {
    /// Whether data are delayed at all.
    pub(crate) is_on: bool,
    pub(crate) memory: DelayedMemory,
    /// Buffers for the next data.
    pub(crate) buffers: BufferPool,
    /// The files that have delayed data, by the time when these are to be written. Kept in step
    /// under the files' locks.
    files: Mutex<BTreeMap<(Duration, InodeNo), Arc<CachedInode>>, DelayListLock>,
    /// The error of lost data of any file, until the next sync of the volume reports it.
    lost: Mutex<Option<Error>, LostLock>,
    waker: Mutex<Option<Waker>, LostLock>,
    /// Number of threads waiting for memory that write.
    helpers: AtomicU32,
}

impl DelayedAllocation {
    /// No data yet; delayed ones take their part of `memory` bytes.
    pub(crate) fn new(is_on: bool, memory: u64) -> Self {
        let memory = DelayedMemory::new(memory);
        Self {
            is_on,
            buffers: BufferPool::new(memory.limit()),
            memory,
            files: Mutex::default(),
            lost: Mutex::default(),
            waker: Mutex::default(),
            helpers: AtomicU32::new(0),
        }
    }

    /// Sets the background writer.
    pub(crate) fn set_writer(&self, waker: Waker) {
        *self.waker.lock() = Some(waker);
    }

    /// Makes the background writer look.
    pub(crate) fn wake_writer(&self) {
        let waker = self.waker.lock().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// A file has delayed data, to be written at that time. Its lock is held.
    fn add(&self, due: Duration, file: &Arc<CachedInode>) {
        let mut files = self.files.lock();
        files.insert((due, file.number()), file.clone());
        let is_first = files.keys().next().is_some_and(|key| key.1 == file.number());
        drop(files);
        if is_first {
            self.wake_writer();
        }
    }

    /// A file has no delayed data any more. Its lock is held.
    fn remove(&self, due: Duration, number: InodeNo) {
        let file = self.files.lock().remove(&(due, number));
        // Dropped without the list's lock.
        drop(file);
    }

    /// When data are to be written first.
    fn first_due(&self) -> Option<Duration> {
        self.files.lock().first_key_value().map(|((due, _), _)| *due)
    }

    /// The first file whose data are due by `until` and that no other thread has started to write.
    /// [`CachedInode::end_writing`] follows.
    fn start_first(&self, until: Duration) -> Option<Arc<CachedInode>> {
        self.start_each(until).next()
    }

    /// Files as [`Self::start_first`] gives them, each after the one before in the list.
    fn start_each(&self, until: Duration) -> impl Iterator<Item = Arc<CachedInode>> {
        let mut from = Bound::Unbounded;
        std::iter::from_fn(move || {
            let files = self.files.lock();
            let due = files.range((from, Bound::Unbounded));
            let mut due = due.take_while(|((due, _), _)| *due <= until);
            let (at, file) = due.find(|(_, file)| file.start_writing())?;
            from = Bound::Excluded(*at);
            Some(file.clone())
        })
    }

    /// The first file whose data no thread writes yet. [`Self::end_part`] follows. `None` where
    /// enough write.
    fn take_part(&self) -> Option<Arc<CachedInode>> {
        if self.helpers.fetch_add(1, Ordering::Relaxed) < MOST_HELPERS
            && let Some(file) = self.start_first(Duration::MAX)
        {
            return Some(file);
        }
        self.helpers.fetch_sub(1, Ordering::Relaxed);
        None
    }

    fn end_part(&self, file: &CachedInode) {
        file.end_writing();
        self.helpers.fetch_sub(1, Ordering::Relaxed);
    }

    /// All files that have delayed data.
    fn all(&self) -> Vec<Arc<CachedInode>> {
        self.files.lock().values().cloned().collect()
    }

    /// Data were lost: the next caller that waits for all data gets the error.
    fn set_lost(&self, why: Error) {
        self.lost.lock().get_or_insert(why);
    }

    /// Returns the error of lost data once.
    pub(crate) fn take_lost(&self) -> Result<(), Error> {
        self.lost.lock().take().map_or(Ok(()), Err)
    }
}
