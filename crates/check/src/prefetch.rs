//! Reading ahead of the passes: what the page cache does not hold is read around it.
//!
//! A scan reads most blocks once. For a large piece that is not in the cache, allocating pages and
//! copying from them takes as much time as the reading on a fast disk, so threads read it directly
//! into memory of our own while other pieces are checked. Cached data are read from the cache, and
//! small pieces are left to the system, which has many of them in flight at once.

use extant_device::{AlignedBuffer, Device};
use extant_runtime::sync::thread::{JoinHandle, spawn};
use extant_runtime::sync::{Condvar, Mutex};
use std::collections::{HashMap, VecDeque};
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Pieces that are read at the same time: the disk has the next one when it is done with one.
const READERS: usize = 4;
/// Minimum bytes of a piece that is read on its own.
const LEAST: u64 = 64 << 10;
/// Direct reads need such an alignment; [`Device::read_around`] accepts it.
const ALIGNMENT: usize = 4096;

/// Pieces under way. A caller requests one and takes it later, by the same range.
pub(crate) struct CheckPrefetch {
    /// `None`: nothing is read ahead here.
    shared: Option<Arc<Shared>>,
    readers: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    device: Arc<dyn Device>,
    state: Mutex<State>,
    /// A piece was requested, or all is over.
    requested: Condvar,
    /// A reader is done with a piece.
    done: Condvar,
    /// The device does not read around the cache after all.
    has_failed: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Pieces that no reader has begun, the oldest first.
    queue: VecDeque<Range<u64>>,
    /// All pieces that were requested and not taken.
    pieces: HashMap<Range<u64>, ReadWindow>,
    /// Buffers to be used again.
    spare: Vec<AlignedBuffer>,
    is_over: bool,
}

enum ReadWindow {
    Requested,
    Reading,
    /// Read; `None` where it could not be.
    Done(Option<AlignedBuffer>),
}

impl CheckPrefetch {
    /// Reads ahead from `device`, if that `is_wanted`. Threads start with the first piece that is
    /// not in the cache.
    pub(crate) fn new(device: &Arc<dyn Device>, is_wanted: bool) -> Self {
        let shared = is_wanted.then(|| {
            Arc::new(Shared {
                device: device.clone(),
                state: Mutex::default(),
                requested: Condvar::new(),
                done: Condvar::new(),
                has_failed: AtomicBool::new(false),
            })
        });
        Self { shared, readers: Mutex::default() }
    }

    /// Requests bytes of the device. False: nothing is done about them here, and the caller may
    /// advise the system that they will be needed.
    pub(crate) fn request(&self, range: Range<u64>) -> bool {
        let Some(shared) = &self.shared else { return false };
        let length = range.end.saturating_sub(range.start);
        if length < LEAST || shared.has_failed.load(Relaxed) {
            return false;
        }
        let Some(uncached) = shared.device.uncached(range.clone()) else { return false };
        if uncached <= length / 2 {
            return uncached == 0;
        }
        self.start(shared);
        let mut state = shared.state.lock();
        if state.pieces.contains_key(&range) {
            return true;
        }
        state.pieces.insert(range.clone(), ReadWindow::Requested);
        state.queue.push_back(range);
        drop(state);
        shared.requested.notify_one();
        true
    }

    /// The bytes requested by the same range, once they are read; `None` if they were not
    /// requested, or must be read in the usual way.
    pub(crate) fn take(&self, range: &Range<u64>) -> Option<Taken<'_>> {
        let shared = self.shared.as_ref()?;
        let mut state = shared.state.lock();
        loop {
            match state.pieces.get(range)? {
                ReadWindow::Requested => {
                    // No thread has started to read it.
                    state.pieces.remove(range);
                    state.queue.retain(|other| other != range);
                    let mut buffer = state.buffer(range);
                    drop(state);
                    let is_read = shared.read(range, &mut buffer);
                    let taken = shared.taken(buffer, range);
                    return is_read.then_some(taken);
                }
                ReadWindow::Reading => shared.done.wait(&mut state),
                ReadWindow::Done(_) => {
                    let Some(ReadWindow::Done(buffer)) = state.pieces.remove(range) else {
                        return None;
                    };
                    return buffer.map(|buffer| shared.taken(buffer, range));
                }
            }
        }
    }

    fn start(&self, shared: &Arc<Shared>) {
        let mut readers = self.readers.lock();
        if readers.is_empty() {
            readers.extend((0..READERS).map(|_| {
                let shared = shared.clone();
                spawn(move || shared.read_all())
            }));
        }
    }
}

impl Drop for CheckPrefetch {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.state.lock().is_over = true;
            shared.requested.notify_all();
        }
        for reader in self.readers.get_mut().drain(..) {
            // One that panicked has said so.
            let _ = reader.join();
        }
    }
}

impl State {
    /// A buffer with room for `range`.
    fn buffer(&mut self, range: &Range<u64>) -> AlignedBuffer {
        let length = length(range);
        let fits = self.spare.iter().position(|buffer| buffer.len() >= length);
        match fits {
            Some(at) => self.spare.swap_remove(at),
            // Few sizes, so that buffers are used again.
            None => AlignedBuffer::new(length.next_power_of_two(), ALIGNMENT),
        }
    }
}

impl Shared {
    /// Reads piece after piece, until all is over.
    fn read_all(&self) {
        let mut state = self.state.lock();
        while !state.is_over {
            let Some(range) = state.queue.pop_front() else {
                self.requested.wait(&mut state);
                continue;
            };
            state.pieces.insert(range.clone(), ReadWindow::Reading);
            let mut buffer = state.buffer(&range);
            drop(state);
            let is_read = self.read(&range, &mut buffer);
            state = self.state.lock();
            state.pieces.insert(range, ReadWindow::Done(is_read.then_some(buffer)));
            self.done.notify_all();
        }
    }

    fn read(&self, range: &Range<u64>, buffer: &mut AlignedBuffer) -> bool {
        let is_read = self.device.read_around(range.start, &mut buffer[..length(range)]);
        if !is_read {
            self.has_failed.store(true, Relaxed);
        }
        is_read
    }

    fn taken(&self, buffer: AlignedBuffer, range: &Range<u64>) -> Taken<'_> {
        Taken { shared: self, buffer: Some(buffer), length: length(range) }
    }
}

/// Bytes of a requested range: a piece of memory.
fn length(range: &Range<u64>) -> usize {
    (range.end - range.start) as usize
}

/// The bytes of a piece. Its buffer is used again afterwards.
pub(crate) struct Taken<'a> {
    shared: &'a Shared,
    buffer: Option<AlignedBuffer>,
    length: usize,
}

impl Deref for Taken<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[..self.length])
    }
}

impl DerefMut for Taken<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let length = self.length;
        self.buffer.as_mut().map_or(&mut [], |buffer| &mut buffer[..length])
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.shared.state.lock().spare.extend(self.buffer.take());
    }
}
