//! A device whose requests take long, with pages of it in memory.
//!
//! A request to a server costs a round trip, whatever its length: bytes are fetched in pages, pages
//! that follow each other in one request, and a reader that goes on is given ever longer runs. What
//! [`Device::will_need`] names is fetched by threads of its own. The device is only read; its bytes
//! do not change while it is open.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use extant_device::{
    Cause, Device, DeviceError, Request, RequestKind, RequestStatus, check_batch, run_batch,
};
use extant_runtime::sync::thread::spawn;
use extant_runtime::sync::{Condvar, Mutex};

/// Bytes that are fetched and kept together: few enough to take less time than a round trip.
pub(crate) const PAGE: u64 = 256 << 10;
/// Pages of one request.
const RUN: u64 = 16;
/// Pages that are kept.
const PAGES_KEPT: usize = 512;
/// Pages that wait to be fetched ahead.
const HINTED_MAX: usize = PAGES_KEPT / 2;
/// Requests that are fetched ahead at the same time.
const READERS: usize = 4;
/// Reads of this length go to the device as they are.
const LONG: u64 = 4 << 20;

/// A device with pages of it in memory.
pub(crate) struct FarDevice {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Arc<dyn Device>,
    /// Number of pages of the device.
    pages: u64,
    state: Mutex<State>,
    /// A page has come, or was not read.
    came: Condvar,
    /// Pages are to be fetched ahead, or all is over.
    hinted: Condvar,
}

#[derive(Default)]
struct State {
    pages: HashMap<u64, Page>,
    /// Pages that a thread is fetching.
    loading: HashSet<u64>,
    /// Pages to be fetched ahead.
    hinted: BTreeSet<u64>,
    /// Number of uses of pages so far.
    uses: u64,
    has_readers: bool,
    is_over: bool,
}

struct Page {
    bytes: Arc<[u8]>,
    last_use: u64,
    /// Number of pages that were fetched with it.
    run: u64,
}

/// Pages that were wanted: their bytes, or why there are none.
type Loaded = HashMap<u64, Result<Arc<[u8]>, Cause>>;

impl FarDevice {
    /// A device in front of `inner`. `start` are the bytes that the device begins with, as far as
    /// they are known.
    pub(crate) fn new(inner: Arc<dyn Device>, start: &[u8]) -> Self {
        let mut state = State::default();
        let pages = inner.size().div_ceil(PAGE);
        if start.len() as u64 >= PAGE.min(inner.size()) && pages > 0 {
            let bytes = &start[..PAGE.min(inner.size()) as usize];
            state.pages.insert(0, Page { bytes: bytes.into(), last_use: 0, run: 1 });
        }
        let (came, hinted) = (Condvar::new(), Condvar::new());
        let shared = Shared { inner, pages, state: Mutex::new(state), came, hinted };
        Self { shared: Arc::new(shared) }
    }
}

impl Drop for FarDevice {
    fn drop(&mut self) {
        // Threads end by themselves: the reply of a server may take long.
        self.shared.state.lock().is_over = true;
        self.shared.hinted.notify_all();
    }
}

impl State {
    fn get(&mut self, page: u64) -> Option<Arc<[u8]>> {
        self.uses += 1;
        let found = self.pages.get_mut(&page)?;
        found.last_use = self.uses;
        Some(found.bytes.clone())
    }

    fn is_missing(&self, page: u64) -> bool {
        !self.pages.contains_key(&page) && !self.loading.contains(&page)
    }

    /// Makes runs of pages that are missing, and marks them as being fetched. A run that goes on
    /// where an earlier one has ended is twice as long as that.
    fn begin(&mut self, missing: &[u64], pages: u64) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for &page in missing {
            match runs.last_mut() {
                Some(last) if last.end == page && page - last.start < RUN => last.end += 1,
                _ => runs.push(page..page + 1),
            }
        }
        for index in 0..runs.len() {
            let Range { start, mut end } = runs[index].clone();
            let limit = runs.get(index + 1).map_or(pages, |next| next.start).min(start + RUN);
            let before = start.checked_sub(1).and_then(|page| self.pages.get(&page));
            let wanted = start + before.map_or(0, |page| page.run * 2);
            while end < limit
                && self.is_missing(end)
                && (end < wanted || self.hinted.contains(&end))
            {
                end += 1;
            }
            self.mark(start..end);
            runs[index].end = end;
        }
        runs
    }

    fn mark(&mut self, run: Range<u64>) {
        for page in run {
            self.hinted.remove(&page);
            self.loading.insert(page);
        }
    }

    /// The next run that was hinted.
    fn next_hinted(&mut self) -> Option<Range<u64>> {
        while let Some(start) = self.hinted.pop_first() {
            if !self.is_missing(start) {
                continue;
            }
            let mut end = start + 1;
            while end - start < RUN && self.hinted.contains(&end) && self.is_missing(end) {
                end += 1;
            }
            self.mark(start..end);
            return Some(start..end);
        }
        None
    }

    fn keep(&mut self, page: u64, bytes: Arc<[u8]>, run: u64) {
        self.uses += 1;
        self.pages.insert(page, Page { bytes, last_use: self.uses, run });
        if self.pages.len() > PAGES_KEPT {
            // An eighth at once: the search goes through all of them.
            let mut uses: Vec<u64> = self.pages.values().map(|page| page.last_use).collect();
            let (_, limit, _) = uses.select_nth_unstable(PAGES_KEPT / 8);
            let limit = *limit;
            self.pages.retain(|_, page| page.last_use >= limit);
        }
    }
}

impl Shared {
    fn bytes_of(&self, pages: &Range<u64>) -> Range<u64> {
        pages.start * PAGE..(pages.end * PAGE).min(self.inner.size())
    }

    /// Pages, from memory or from the device.
    fn load(&self, wanted: &BTreeSet<u64>) -> Loaded {
        let mut found = Loaded::new();
        loop {
            let mut state = self.state.lock();
            let (mut missing, mut is_waiting) = (Vec::new(), false);
            for &page in wanted {
                if found.contains_key(&page) {
                    continue;
                }
                match state.get(page) {
                    Some(bytes) => drop(found.insert(page, Ok(bytes))),
                    None if state.loading.contains(&page) => is_waiting = true,
                    None => missing.push(page),
                }
            }
            if missing.is_empty() {
                if !is_waiting {
                    return found;
                }
                self.came.wait(&mut state);
                continue;
            }
            let runs = state.begin(&missing, self.pages);
            drop(state);
            found.extend(self.fetch(&runs));
        }
    }

    /// Fetches runs of pages that are marked.
    fn fetch(&self, runs: &[Range<u64>]) -> Loaded {
        let places: Vec<Range<u64>> = runs.iter().map(|run| self.bytes_of(run)).collect();
        let room = |place: &Range<u64>| vec![0; (place.end - place.start) as usize];
        let mut buffers: Vec<Vec<u8>> = places.iter().map(room).collect();
        let read = |(place, buffer)| {
            let place: &Range<u64> = place;
            let buffer: &mut Vec<u8> = buffer;
            Request::read(place.start, buffer)
        };
        let mut batch: Vec<Request<'_>> = places.iter().zip(&mut buffers).map(read).collect();
        // Each request has its own outcome.
        let _ = self.inner.submit(&mut batch);
        let outcome = |request: Request<'_>| match request.status {
            RequestStatus::Done => None,
            RequestStatus::Failed(error) => Some(error.cause),
            RequestStatus::Pending => Some(Cause::NotTried),
        };
        let outcomes: Vec<Option<Cause>> = batch.into_iter().map(outcome).collect();
        let mut found = Loaded::new();
        let mut state = self.state.lock();
        for ((run, bytes), outcome) in runs.iter().zip(&buffers).zip(outcomes) {
            for (page, bytes) in run.clone().zip(bytes.chunks(PAGE as usize)) {
                state.loading.remove(&page);
                let bytes: Arc<[u8]> = bytes.into();
                match &outcome {
                    None => {
                        state.keep(page, bytes.clone(), run.end - run.start);
                        found.insert(page, Ok(bytes));
                    }
                    Some(cause) => drop(found.insert(page, Err(cause.clone()))),
                }
            }
        }
        drop(state);
        self.came.notify_all();
        found
    }

    /// Fetches what is hinted, until all is over.
    fn read_ahead(&self) {
        loop {
            let mut state = self.state.lock();
            let run = loop {
                if state.is_over {
                    return;
                }
                match state.next_hinted() {
                    Some(run) => break run,
                    None => self.hinted.wait(&mut state),
                }
            };
            drop(state);
            // A reader of these pages gets the error.
            self.fetch(&[run]);
        }
    }

    /// Reads of whole pages, and of parts of them.
    fn read(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        let mut wanted = BTreeSet::new();
        for request in batch.iter() {
            if let RequestKind::Read { .. } = request.kind {
                let (start, length) = (request.offset(), request.length());
                wanted.extend(start / PAGE..(start + length).div_ceil(PAGE));
            }
        }
        let pages = self.load(&wanted);
        run_batch(batch, |request| {
            let mut failure = None;
            match &mut request.kind {
                RequestKind::Read { offset, buffers } => {
                    let mut at = *offset;
                    for buffer in buffers.slices_mut() {
                        failure = failure.or(copy(&pages, at, buffer));
                        at += buffer.len() as u64;
                    }
                }
                RequestKind::Flush => {}
                _ => failure = Some(Cause::ReadOnly),
            }
            match failure {
                None => Ok(()),
                // The bad place may be outside of what is asked for.
                Some(cause) if is_of_medium(&cause) => {
                    self.inner.submit(std::slice::from_mut(request))
                }
                Some(cause) => Err(request.error(cause)),
            }
        })
    }
}

/// Whether a place of the device is bad, and not the way to it.
fn is_of_medium(cause: &Cause) -> bool {
    matches!(cause, Cause::Io(error) if error.raw_os_error().is_some())
}

/// Fills a buffer from pages.
fn copy(pages: &Loaded, mut at: u64, mut to: &mut [u8]) -> Option<Cause> {
    while !to.is_empty() {
        let within = (at % PAGE) as usize;
        let bytes = match pages.get(&(at / PAGE)) {
            Some(Ok(bytes)) => bytes,
            Some(Err(cause)) => return Some(cause.clone()),
            None => return Some(Cause::NotTried),
        };
        let count = to.len().min(bytes.len().saturating_sub(within));
        if count == 0 {
            return Some(Cause::NotTried);
        }
        let (part, rest) = to.split_at_mut(count);
        part.copy_from_slice(&bytes[within..within + count]);
        (at, to) = (at + count as u64, rest);
    }
    None
}

impl Device for FarDevice {
    fn size(&self) -> u64 {
        self.shared.inner.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        let is_long = |request: &Request<'_>| request.length() >= LONG;
        if !batch.iter().any(is_long) {
            return self.shared.read(batch);
        }
        let mut first_failure = None;
        for request in batch.chunks_mut(1) {
            let done = match is_long(&request[0]) {
                true => self.shared.inner.submit(request),
                false => self.shared.read(request),
            };
            first_failure = first_failure.or(done.err());
        }
        first_failure.map_or(Ok(()), Err)
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        self.shared.inner.next_data(range)
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn sector_size(&self) -> u32 {
        self.shared.inner.sector_size()
    }

    fn will_need(&self, range: Range<u64>) {
        let shared = &self.shared;
        let end = range.end.min(self.size()).div_ceil(PAGE);
        let mut state = shared.state.lock();
        for page in range.start / PAGE..end {
            if state.hinted.len() >= HINTED_MAX {
                break;
            }
            if state.is_missing(page) {
                state.hinted.insert(page);
            }
        }
        if state.hinted.is_empty() {
            return;
        }
        if !std::mem::replace(&mut state.has_readers, true) {
            for _ in 0..READERS {
                let shared = shared.clone();
                spawn(move || shared.read_ahead());
            }
        }
        drop(state);
        shared.hinted.notify_one();
    }
}

impl fmt::Debug for FarDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FarDevice").field(&self.shared.inner).finish()
    }
}

#[cfg(test)]
#[path = "far_tests.rs"]
mod tests;
