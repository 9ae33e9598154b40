//! Inodes in memory: one [`CachedInode`] for each number, with its lock.
//!
//! An operation writes its changes to the inode's record in the same handle, so a cached inode is
//! never newer than its record, and may be evicted when no thread uses it. Delayed data are the
//! exception: the file's times are stored when they are written, and the inode stays until then
//! ([`DelayedData`]). So are times that wait in memory ([`LazyTimes`](super::lazy_times)). Of an
//! inode that is evicted while it is pinned the number of pins stays: a kernel may pin any number
//! of files.

use super::delay::DelayedData;
use super::lost::{ErrorSample, LostData};
use crate::ranks::{InodeCacheLock, InodeLock, LostLock, WritebackLock};
use extant_ondisk::{Geometry, InodeNo};
use extant_reader::hash::ByWord;
use extant_reader::read::inode::{self, LoadedInode};
use extant_reader::{Error, MetadataRead};
use extant_runtime::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use extant_runtime::sync::{Arc, Condvar, Mutex, MutexGuard, ReadGuard, RwLock, WriteGuard};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::ops::{Deref, DerefMut, Range};
use std::time::Duration;

/// Shards of the cache.
const SHARDS: u32 = 64;
/// Inodes that a shard keeps at least.
const MIN_SHARD: usize = 16;
/// Number of newcomers of a shard, inodes that were asked for once, that are kept: they are few
/// enough to stay in the processor's cache if a program goes from file to file. Those that are
/// asked for again within that time are kept for longer.
const NEWCOMERS: usize = 8;
/// Number of inodes that one insertion examines to make room.
const MAX_EXAMINED: usize = 4;

/// The class by which an inode is locked: a thread that holds several takes them in this order, and
/// those of one class by number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LockClass {
    /// The only directory, or of two the ancestor, or else the one with the smaller number.
    Dir,
    /// The other one of two directories.
    SecondDir,
    /// A directory that is named in one of those.
    Child,
    /// Any other file.
    File,
}

impl LockClass {
    fn key(self, number: InodeNo) -> u64 {
        (self as u64) << 32 | u64::from(number.0)
    }
}

/// An inode in memory.
#[derive(Debug)]
pub(crate) struct CachedInode {
    number: InodeNo,
    /// `None` before it was loaded, and after it was freed.
    state: RwLock<Option<State>, InodeLock>,
    /// Number of pins ([`Engine::acquire`](crate::Engine::acquire)).
    pins: AtomicU64,
    /// Number of changes of more than its times so far, plus one, since changes before it was
    /// loaded are unknown.
    changes: AtomicU64,
    /// How many of them are known to be durable.
    synced: AtomicU64,
    /// Whether it was made without a name; guarded by its lock.
    may_be_named: AtomicBool,
    /// Whether it was emptied to be written again; guarded by its lock.
    is_replaced: AtomicBool,
    /// Whether no process has had it open for writing since it was written last, as far as
    /// reported.
    is_closed: AtomicBool,
    /// Whether the background writer, or a thread that waits for memory, writes its delayed data.
    is_written: AtomicBool,
    writeback: Writeback,
    /// Why delayed data were lost, and whether the error was reported.
    lost: Mutex<LostData, LostLock>,
    /// Its attributes were looked through, and it has no capabilities.
    has_no_capabilities: AtomicBool,
    /// Asked for again since its last turn for eviction.
    is_referenced: AtomicBool,
}

/// The state that an inode's lock guards.
#[derive(Debug)]
struct State {
    /// As the record has it, but for times that delayed data changed, or that wait in memory.
    inode: LoadedInode,
    delayed: DelayedData,
    /// When times that wait in memory are stored at the latest; `None` where none wait.
    times_due: Option<Duration>,
    /// For a directory: the number of the state that its names are in
    /// ([`NameCache`](super::names::NameCache)); 0 until it is looked up.
    edition: AtomicU64,
    /// An operation that was undone has changed it: the record is right.
    is_stale: bool,
}

impl State {
    fn new(inode: LoadedInode) -> Self {
        Self {
            inode,
            delayed: DelayedData::default(),
            times_due: None,
            edition: AtomicU64::new(0),
            is_stale: false,
        }
    }

    /// Reads the inode again where an operation on it was taken back.
    fn refresh(&mut self, load: impl FnOnce() -> Result<LoadedInode, Error>) -> Result<(), Error> {
        if !self.is_stale {
            return Ok(());
        }
        let mut inode = load()?;
        if !self.delayed.is_empty() || self.times_due.is_some() {
            // These times are not stored yet.
            inode.inode.mtime = self.inode.mtime;
            inode.inode.ctime = self.inode.ctime;
            inode.inode.version = self.inode.version;
        }
        if self.times_due.is_some() {
            inode.inode.atime = self.inode.atime;
        }
        self.inode = inode;
        self.is_stale = false;
        Ok(())
    }
}

thread_local! {
    /// Operations of this thread that were taken back.
    static UNDONE: Cell<u64> = const { Cell::new(0) };
}

/// An operation of this thread is taken back: what it has changed in the inodes that it has locked
/// is not in their records.
pub(crate) fn record_undone() {
    UNDONE.set(UNDONE.get().wrapping_add(1));
}

/// The state of a writeback that runs without the inode's lock.
///
/// During it the file is locked for all threads except readers and writers that delay further data
/// ([`CachedInode::write_during_writeback`]).
#[derive(Debug, Default)]
struct Writeback {
    state: Mutex<WritebackState, WritebackLock>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WritebackState {
    is_running: bool,
    /// Number of waiters that need the file exclusively.
    waiting: u32,
}

impl Writeback {
    /// Under the inode's lock.
    fn set_running(&self, is_running: bool) {
        self.state.lock().is_running = is_running;
        self.changed.notify_all();
    }

    /// Waits until the writeback has ended; no other begins before [`Self::end_wait`].
    fn wait(&self) {
        let mut state = self.state.lock();
        state.waiting += 1;
        while state.is_running {
            self.changed.wait(&mut state);
        }
    }

    /// A waiter has got the inode's lock.
    fn end_wait(&self) {
        self.state.lock().waiting -= 1;
        self.changed.notify_all();
    }

    /// Waits until no thread waits for the end of a writeback.
    fn yield_to_waiters(&self) {
        let mut state = self.state.lock();
        while state.waiting > 0 {
            self.changed.wait(&mut state);
        }
    }
}

/// An inode locked for reading.
pub(crate) struct InodeRead<'a>(ReadGuard<'a, Option<State>>);

/// An inode locked for changes. Held until the operation that changes it is gone, so that it is
/// known whether that was taken back.
pub(crate) struct InodeWrite<'a> {
    state: WriteGuard<'a, Option<State>>,
    shared: &'a CachedInode,
    /// The value of [`UNDONE`] at the lock.
    undone: u64,
}

impl Drop for InodeWrite<'_> {
    fn drop(&mut self) {
        if UNDONE.get() != self.undone
            && let Some(state) = &mut *self.state
        {
            state.is_stale = true;
        }
    }
}

/// A guard is made only of a loaded inode, and only [`InodeWrite::set_freed`] unloads it, under its
/// lock.
const LOADED: &str = "a locked inode is loaded";

impl Deref for InodeRead<'_> {
    type Target = LoadedInode;
    fn deref(&self) -> &LoadedInode {
        &self.0.as_ref().expect(LOADED).inode
    }
}

impl InodeRead<'_> {
    /// Data that wait for their blocks.
    pub(crate) fn delayed(&self) -> &DelayedData {
        &self.0.as_ref().expect(LOADED).delayed
    }

    /// The number of the state that a directory's names are in: `next` if it is the first lookup
    /// since the directory was locked for changes.
    pub(crate) fn edition(&self, next: impl FnOnce() -> u64) -> u64 {
        let edition = &self.0.as_ref().expect(LOADED).edition;
        // Changes need the lock exclusively; of several concurrent readers, one sets the number
        // first.
        match edition.load(Ordering::Relaxed) {
            0 => {
                let next = next();
                let set = edition.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed);
                set.map_or_else(|first| first, |_| next)
            }
            known => known,
        }
    }
}

impl Deref for InodeWrite<'_> {
    type Target = LoadedInode;
    fn deref(&self) -> &LoadedInode {
        &self.state.as_ref().expect(LOADED).inode
    }
}

impl DerefMut for InodeWrite<'_> {
    fn deref_mut(&mut self) -> &mut LoadedInode {
        &mut self.state.as_mut().expect(LOADED).inode
    }
}

impl<'a> InodeWrite<'a> {
    /// For a loaded inode. The directory's names may change now.
    fn new(shared: &'a CachedInode, mut state: WriteGuard<'a, Option<State>>) -> Self {
        if let Some(state) = &mut *state {
            *state.edition.get_mut() = 0;
        }
        Self { state, shared, undone: UNDONE.get() }
    }
}

impl InodeWrite<'_> {
    /// Data that wait for their blocks.
    pub(crate) fn delayed(&self) -> &DelayedData {
        &self.state.as_ref().expect(LOADED).delayed
    }

    /// The inode and the data that wait for their blocks.
    pub(crate) fn parts(&mut self) -> (&mut LoadedInode, &mut DelayedData) {
        let state = self.state.as_mut().expect(LOADED);
        (&mut state.inode, &mut state.delayed)
    }

    /// When times that wait in memory are stored at the latest; `None` where none wait.
    pub(crate) fn times_due(&self) -> Option<Duration> {
        self.state.as_ref().expect(LOADED).times_due
    }

    /// Times wait in memory until then, or (`None`) none wait any more.
    pub(crate) fn set_times_due(&mut self, due: Option<Duration>) {
        self.state.as_mut().expect(LOADED).times_due = due;
    }

    /// The inode is freed: a thread that waits for the lock finds no inode. It has no delayed data.
    /// Marks of the old file are cleared, so that the next file with its number starts without
    /// them.
    pub(crate) fn set_freed(mut self) {
        debug_assert!(self.delayed().is_empty(), "data of inode {} are forgotten", self.number);
        *self.state = None;
        self.shared.set_new();
    }
}

impl CachedInode {
    /// One that is not loaded.
    fn new(number: InodeNo) -> Self {
        Self {
            number,
            state: RwLock::ranked(None),
            pins: AtomicU64::new(0),
            changes: AtomicU64::new(1),
            synced: AtomicU64::new(0),
            may_be_named: AtomicBool::new(false),
            is_replaced: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            is_written: AtomicBool::new(false),
            writeback: Writeback::default(),
            lost: Mutex::default(),
            has_no_capabilities: AtomicBool::new(false),
            is_referenced: AtomicBool::new(false),
        }
    }

    /// Waits for writers of the inode, and reads it.
    pub(crate) fn read<S: MetadataRead>(
        &self,
        source: &S,
        as_what: LockClass,
    ) -> Result<InodeRead<'_>, Error> {
        loop {
            let state = self.state.read_keyed(as_what.key(self.number));
            if state.as_ref().is_some_and(|state| !state.is_stale) {
                return Ok(InodeRead(state));
            }
            drop(state);
            drop(self.write(source, as_what)?);
        }
    }

    /// Waits for all other holders of the inode, and locks it for changes.
    pub(crate) fn write<S: MetadataRead>(
        &self,
        source: &S,
        as_what: LockClass,
    ) -> Result<InodeWrite<'_>, Error> {
        self.write_with(as_what, |is_known| match is_known {
            // It may be an orphan that is held.
            true => inode::load_any(source, self.number),
            false => inode::load(source, self.number),
        })
    }

    /// As [`Self::write`]; an inode that is not in memory, or has changed only there (true), is
    /// loaded by `load`.
    pub(crate) fn write_with(
        &self,
        as_what: LockClass,
        load: impl FnOnce(bool) -> Result<LoadedInode, Error>,
    ) -> Result<InodeWrite<'_>, Error> {
        let mut state = self.lock_settled(as_what);
        match &mut *state {
            None => *state = Some(State::new(load(false)?)),
            Some(state) => state.refresh(|| load(true))?,
        }
        Ok(InodeWrite::new(self, state))
    }

    /// As [`Self::write`], also during writeback: only blocks that are neither mapped nor under
    /// writeback may be delayed or changed.
    pub(crate) fn write_during_writeback<S: MetadataRead>(
        &self,
        source: &S,
        as_what: LockClass,
    ) -> Result<InodeWrite<'_>, Error> {
        let mut state = self.state.write_keyed(as_what.key(self.number));
        match &mut *state {
            None => *state = Some(State::new(inode::load(source, self.number)?)),
            Some(state) => state.refresh(|| inode::load_any(source, self.number))?,
        }
        Ok(InodeWrite::new(self, state))
    }

    /// The lock, while no writeback of delayed data runs.
    fn lock_settled(&self, as_what: LockClass) -> WriteGuard<'_, Option<State>> {
        let mut state = self.state.write_keyed(as_what.key(self.number));
        while state.as_ref().is_some_and(|state| state.delayed.is_under_writeback()) {
            drop(state);
            self.writeback.wait();
            state = self.state.write_keyed(as_what.key(self.number));
            self.writeback.end_wait();
        }
        state
    }

    /// Gives the lock up while `write` writes delayed data to the device.
    pub(crate) fn write_unlocked<'a, T, S: MetadataRead>(
        &'a self,
        source: &S,
        file: InodeWrite<'a>,
        blocks: Range<u64>,
        geometry: &Geometry,
        write: impl FnOnce() -> T,
    ) -> (InodeWrite<'a>, T) {
        self.begin_writeback(file, blocks, geometry);
        let outcome = write();
        (self.lock_after_writeback(source), outcome)
    }

    /// Begins the writeback of delayed data: the lock is given up until
    /// [`Self::lock_after_writeback`].
    pub(crate) fn begin_writeback(
        &self,
        mut file: InodeWrite<'_>,
        blocks: Range<u64>,
        geometry: &Geometry,
    ) {
        file.parts().1.begin_writeback(blocks, geometry);
        self.writeback.set_running(true);
    }

    /// Locks again after the data were written, or could not be.
    pub(crate) fn lock_after_writeback<S: MetadataRead>(&self, source: &S) -> InodeWrite<'_> {
        let mut state = self.state.write_keyed(LockClass::File.key(self.number));
        // Only times were changed during writeback: these may stay if the record cannot be read.
        if let Some(state) = &mut *state
            && let Err(error) = state.refresh(|| inode::load_any(source, self.number))
        {
            tracing::warn!(%error, inode = %self.number, "an inode was not read again");
        }
        let mut file = InodeWrite::new(self, state);
        file.parts().1.complete_writeback();
        self.writeback.set_running(false);
        file
    }

    /// Whether a thread waits for the end of the writeback and goes first then.
    pub(crate) fn has_writeback_waiters(&self) -> bool {
        self.writeback.state.lock().waiting > 0
    }

    /// Lets the waiters for the last writeback go first.
    pub(crate) fn yield_to_waiters(&self) {
        self.writeback.yield_to_waiters();
    }

    /// Locks it for changes if it is free; `None` if not. Never waits, so the order does not
    /// matter.
    pub(crate) fn try_write<S: MetadataRead>(
        &self,
        source: &S,
        as_what: LockClass,
    ) -> Result<Option<InodeWrite<'_>>, Error> {
        let Some(mut state) = self.state.try_write_keyed(as_what.key(self.number)) else {
            return Ok(None);
        };
        match &mut *state {
            None => *state = Some(State::new(inode::load(source, self.number)?)),
            Some(state) => state.refresh(|| inode::load_any(source, self.number))?,
        }
        let is_under_writeback =
            state.as_ref().is_some_and(|state| state.delayed.is_under_writeback());
        Ok((!is_under_writeback).then_some(InodeWrite::new(self, state)))
    }

    /// As [`Self::write`]; `None` if the inode is not in memory, or its record cannot be read:
    /// callers that wait for its delayed data get the error.
    pub(crate) fn write_if_loaded<S: MetadataRead>(
        &self,
        source: &S,
        as_what: LockClass,
    ) -> Option<InodeWrite<'_>> {
        let mut state = self.lock_settled(as_what);
        if let Err(why) = state.as_mut()?.refresh(|| inode::load_any(source, self.number)) {
            self.set_lost(why);
            return None;
        }
        Some(InodeWrite::new(self, state))
    }

    /// Its number.
    pub(crate) fn number(&self) -> InodeNo {
        self.number
    }

    /// Whether the file was emptied and has not been written to the device since. Guarded by its
    /// lock.
    pub(crate) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Relaxed)
    }

    /// Sets whether the file was emptied and has not been written since.
    pub(crate) fn set_replaced(&self, is_replaced: bool) {
        self.is_replaced.store(is_replaced, Ordering::Relaxed);
    }

    /// Whether it will not grow, since its last writer has closed it.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// The last writer has closed it, or it is written again.
    pub(crate) fn set_closed(&self, is_closed: bool) {
        self.is_closed.store(is_closed, Ordering::Release);
    }

    /// Begins to write the delayed data; false if another thread does so already.
    pub(crate) fn start_writing(&self) -> bool {
        !self.is_written.swap(true, Ordering::Acquire)
    }

    /// The data are written.
    pub(crate) fn end_writing(&self) {
        self.is_written.store(false, Ordering::Release);
    }

    /// Records that delayed data were lost: every open file gets the error once.
    pub(crate) fn set_lost(&self, why: Error) {
        self.lost.lock().set(why);
    }

    /// The sample of a file that is opened now.
    pub(crate) fn error_sample(&self) -> ErrorSample {
        self.lost.lock().sample()
    }

    /// The error of lost data that `sample` has not seen; advances the sample.
    pub(crate) fn check_lost(&self, sample: &mut ErrorSample) -> Result<(), Error> {
        self.lost.lock().check_and_advance(sample)
    }

    /// Clears the marks of a file that is gone, for the next file with its number.
    fn set_new(&self) {
        self.set_unsynced();
        self.set_unlinked();
        self.set_replaced(false);
        self.set_closed(false);
        self.set_has_no_capabilities(false);
        *self.lost.lock() = LostData::default();
    }

    /// Another hold. The inode is locked, so it is not deleted at the same time.
    pub(crate) fn pin(&self, _: &InodeRead<'_>) {
        self.pins.fetch_add(1, Ordering::Relaxed);
    }

    /// A pin on a file whose number was just allocated: no other thread has a right to it yet.
    pub(crate) fn pin_new(&self) {
        self.pins.fetch_add(1, Ordering::Relaxed);
    }

    /// The file was made without a name and may get one.
    pub(crate) fn set_may_be_named(&self, _: &InodeWrite<'_>) {
        self.may_be_named.store(true, Ordering::Relaxed);
    }

    /// Whether a file without links may be given a name: it never had one.
    pub(crate) fn may_be_named(&self) -> bool {
        self.may_be_named.load(Ordering::Relaxed)
    }

    /// Whether it is known that the file has no capabilities. Guarded by its lock.
    pub(crate) fn has_no_capabilities(&self) -> bool {
        self.has_no_capabilities.load(Ordering::Relaxed)
    }

    /// The file was found without capabilities, or its attributes change.
    pub(crate) fn set_has_no_capabilities(&self, has_none: bool) {
        self.has_no_capabilities.store(has_none, Ordering::Relaxed);
    }

    /// The file has lost its last name.
    pub(crate) fn set_unlinked(&self) {
        self.may_be_named.store(false, Ordering::Relaxed);
    }

    /// Removes pins, and returns whether none is left. More than there are are none.
    pub(crate) fn unpin(&self, count: u64) -> bool {
        let before = self.pins.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |pins| {
            Some(pins.saturating_sub(count))
        });
        before.is_ok_and(|before| before > 0 && before <= count)
    }

    /// More than the inode's times changes now. Its lock is held until the change is made.
    pub(crate) fn set_unsynced(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// How many changes of more than the times there are that may not be durable; `None` for none.
    /// They are all made: the inode is locked.
    pub(crate) fn unsynced(&self, _: &InodeRead<'_>) -> Option<u64> {
        let changes = self.changes.load(Ordering::Acquire);
        (self.synced.load(Ordering::Acquire) < changes).then_some(changes)
    }

    /// Records that the first `changes` changes are durable.
    pub(crate) fn set_synced(&self, changes: u64) {
        self.synced.fetch_max(changes, Ordering::AcqRel);
    }

    /// Whether it is pinned.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) > 0
    }

    /// Number of its pins, if all other state that its users rely on is in its record.
    fn pins_if_evictable(&mut self) -> Option<u64> {
        let pins = self.pins.load(Ordering::Acquire);
        let is_replaced = self.is_replaced();
        // An inode without links may belong to another file when it is read again.
        let has_links = self.state.get_mut().as_ref().is_some_and(|state| state.inode.links > 0);
        (pins == 0 || has_links && !is_replaced).then_some(pins)
    }
}

#[derive(Debug, Default)]
struct Shard {
    inodes: HashMap<u32, Arc<CachedInode>, ByWord>,
    /// Holds of those that are not in memory.
    absent: HashMap<u32, u64, ByWord>,
    /// Lost data of inodes that are not in memory, where the error is not yet reported to every
    /// open file.
    lost: HashMap<u32, LostData, ByWord>,
    /// Inodes that were asked for once, in the order in which they came.
    newcomers: VecDeque<u32>,
    /// The others, in the order of their turns for eviction.
    queue: VecDeque<u32>,
}

impl Shard {
    /// Evicts unused inodes if there are too many; returns one of them, for its memory.
    fn make_room(&mut self, limit: usize) -> Option<Arc<CachedInode>> {
        let mut gone = None;
        for _ in 0..MAX_EXAMINED {
            let is_full = self.inodes.len() >= limit;
            let oldest = match self.newcomers.len() >= NEWCOMERS {
                true => self.newcomers.pop_front(),
                false if is_full => self.queue.pop_front(),
                false => break,
            };
            let Some(oldest) = oldest else { break };
            let Some(inode) = self.inodes.get_mut(&oldest) else { continue };
            // It is unused, and no thread can take it while the shard is locked.
            let pins = Arc::get_mut(inode)
                .filter(|inode| !inode.is_referenced.swap(false, Ordering::Relaxed))
                .and_then(CachedInode::pins_if_evictable);
            let Some(pins) = pins else {
                self.queue.push_back(oldest);
                continue;
            };
            if pins > 0 {
                self.absent.insert(oldest, pins);
            }
            gone = self.inodes.remove(&oldest);
            if let Some(gone) = gone.as_mut().and_then(Arc::get_mut) {
                let lost = std::mem::take(gone.lost.get_mut());
                if lost.has_unreported(pins > 0) {
                    self.lost.insert(oldest, lost);
                }
            }
        }
        gone
    }
}

/// The inodes in memory.
#[derive(Debug)]
pub(crate) struct InodeCache {
    shards: Box<[Mutex<Shard, InodeCacheLock>]>,
    shard_limit: usize,
}

impl InodeCache {
    /// A cache that keeps about `inodes` unused inodes.
    pub(crate) fn new(inodes: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            shard_limit: (inodes / SHARDS as usize).max(MIN_SHARD),
        }
    }

    fn shard(&self, number: InodeNo) -> MutexGuard<'_, Shard, InodeCacheLock> {
        self.shards[(number.0 % SHARDS) as usize].lock()
    }

    /// The inode of a number, loaded or not. As long as any thread has it, all get the same.
    pub(crate) fn get(&self, number: InodeNo) -> Arc<CachedInode> {
        let mut shard = self.shard(number);
        if let Some(known) = shard.inodes.get(&number.0) {
            // A flag that is set already is not written again: the line stays shared.
            if !known.is_referenced.load(Ordering::Relaxed) {
                known.is_referenced.store(true, Ordering::Relaxed);
            }
            return known.clone();
        }
        let mut new = CachedInode::new(number);
        // Both are empty most of the time, and nothing is looked for there.
        if !shard.absent.is_empty()
            && let Some(pins) = shard.absent.remove(&number.0)
        {
            new.pins = AtomicU64::new(pins);
        }
        if !shard.lost.is_empty()
            && let Some(lost) = shard.lost.remove(&number.0)
        {
            *new.lost.get_mut() = lost;
        }
        let new = match shard.make_room(self.shard_limit) {
            Some(mut old) => match Arc::get_mut(&mut old) {
                Some(place) => {
                    *place = new;
                    old
                }
                None => Arc::new(new),
            },
            None => Arc::new(new),
        };
        shard.inodes.insert(number.0, new.clone());
        shard.newcomers.push_back(number.0);
        new
    }

    /// Removes pins of an inode that is not in memory, and returns whether none is left; `None` if
    /// it is in memory.
    pub(crate) fn unpin_absent(&self, number: InodeNo, count: u64) -> Option<bool> {
        let mut shard = self.shard(number);
        if shard.inodes.contains_key(&number.0) {
            return None;
        }
        let Some(pins) = shard.absent.get_mut(&number.0) else { return Some(false) };
        *pins = pins.saturating_sub(count);
        let is_last = *pins == 0;
        if is_last {
            shard.absent.remove(&number.0);
            if shard.lost.get(&number.0).is_some_and(|lost| !lost.has_unreported(false)) {
                shard.lost.remove(&number.0);
            }
        }
        Some(is_last)
    }

    /// Whether an inode is pinned.
    pub(crate) fn is_pinned(&self, number: InodeNo) -> bool {
        let shard = self.shard(number);
        let is_pinned = |inode: &Arc<CachedInode>| inode.is_pinned();
        shard.inodes.get(&number.0).is_some_and(is_pinned) || shard.absent.contains_key(&number.0)
    }

    /// The numbers of all pinned inodes.
    pub(crate) fn pinned(&self) -> Vec<InodeNo> {
        let mut pinned = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            pinned.extend(
                shard.inodes.values().filter(|inode| inode.is_pinned()).map(|inode| inode.number),
            );
            pinned.extend(shard.absent.keys().map(|number| InodeNo(*number)));
        }
        pinned.sort_unstable();
        pinned
    }
}

#[cfg(test)]
pub(crate) mod tests;
