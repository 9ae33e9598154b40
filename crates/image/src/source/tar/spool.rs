//! A stream being written to an unlinked file, from which it can be read by position while the rest
//! still arrives.
//!
//! One thread reads the stream, another writes it around the host's page cache: there it would fill
//! gigabytes of memory without use, at several times the cost. The latest bytes stay in memory for
//! the reader of the headers.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use extant_device::AlignedBuffer;

use super::super::error::{EntryName, Flaw};
use super::super::prefetch::{ALIGNMENT, reopened_direct};

/// Bytes taken in and written at a time.
const CHUNK: usize = 2 << 20;

/// Chunks in memory: some on their way to the disk, the others for the reader of headers.
const CHUNKS: usize = 6;

/// The file, and how far it is filled.
pub(super) struct Spool {
    pub(super) file: File,
    /// A second handle of the file, around the page cache.
    pub(super) direct: Option<File>,
    directory: PathBuf,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    /// The end of the stream as it is known here, oldest first.
    chunks: VecDeque<Chunk>,
    /// Bytes taken in.
    received: u64,
    /// Bytes in the file: those of all chunks before the first that is not written.
    written: u64,
    /// No more data come.
    has_ended: bool,
    /// The error that ended it too early, until it was reported.
    stopped: Option<Stopped>,
    /// The reader has ended.
    is_unwanted: bool,
}

struct Chunk {
    start: u64,
    len: usize,
    buffer: Arc<AlignedBuffer>,
}

impl Chunk {
    const fn end(&self) -> u64 {
        self.start + self.len as u64
    }
}

/// The error that ended a stream.
enum Stopped {
    Reading(io::Error),
    Writing(io::Error),
}

impl Drop for Spool {
    fn drop(&mut self) {
        // The threads are not joined: one may be waiting for a pipe. It ends when data arrive.
        self.shared.lock().is_unwanted = true;
        self.shared.moved.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `found` finds something.
    fn wait<T>(&self, mut found: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut state = self.lock();
        loop {
            if let Some(found) = found(&mut state) {
                return found;
            }
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Changes the state and wakes all waiting threads.
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.moved.notify_all();
    }
}

impl Spool {
    /// Starts moving what `reader` gives into a new file in `directory`.
    pub(super) fn start(reader: Box<dyn Read + Send>, directory: &Path) -> Result<Self, Flaw> {
        let directory = match directory.as_os_str().is_empty() {
            true => PathBuf::from("."),
            false => directory.to_owned(),
        };
        let name = EntryName::from(directory.as_path());
        let failed = |source| Flaw::Spool { directory: name.clone(), source };
        let file = tempfile::tempfile_in(&directory).map_err(failed)?;
        let direct = reopened_direct(&file);
        let own = direct.as_ref().map(File::try_clone).transpose().map_err(failed)?;
        let writer = Writer { direct: own, file: file.try_clone().map_err(failed)? };
        let shared = Arc::new(Shared { state: Mutex::default(), moved: Condvar::new() });
        let (takes, writes) = (shared.clone(), shared.clone());
        let thread = |name: &str| thread::Builder::new().name(name.into());
        thread("archive").spawn(move || take_in(reader, &takes)).map_err(Flaw::Read)?;
        let spool = Self { file, direct, directory, shared };
        thread("spool").spawn(move || write_out(writer, &writes)).map_err(failed)?;
        Ok(spool)
    }

    /// Waits until the first `end` bytes can be read, or all there are; returns how many can.
    pub(super) fn wait_for(&self, end: u64) -> Result<u64, Flaw> {
        let (there, stopped) = self.shared.wait(|state| {
            let has_failed = matches!(state.stopped, Some(Stopped::Writing(_)));
            if state.received < end && !state.has_ended && !has_failed {
                return None;
            }
            let is_reported = state.received < end || has_failed;
            Some((state.received, if is_reported { state.stopped.take() } else { None }))
        });
        stopped.map_or(Ok(there), |stopped| Err(self.flaw(stopped)))
    }

    /// Waits for the end of the stream, and until all of it is in the file.
    pub(super) fn finish(&self) -> Result<(), Flaw> {
        let stopped = self.shared.wait(|state| {
            let is_whole = state.has_ended && state.written == state.received;
            (is_whole || state.stopped.is_some()).then(|| state.stopped.take())
        });
        stopped.map_or(Ok(()), |stopped| Err(self.flaw(stopped)))
    }

    /// Reads some of the bytes from `position` on, for a waiting reader.
    pub(super) fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let state = self.shared.lock();
        let known =
            state.chunks.iter().find(|chunk| (chunk.start..chunk.end()).contains(&position));
        if let Some(chunk) = known {
            let bytes = &chunk.buffer[(position - chunk.start) as usize..chunk.len];
            let count = bytes.len().min(buffer.len());
            buffer[..count].copy_from_slice(&bytes[..count]);
            return Ok(count);
        }
        drop(state);
        self.file.read_at(buffer, position)
    }

    fn flaw(&self, stopped: Stopped) -> Flaw {
        let directory: EntryName = self.directory.as_path().into();
        let written = self.shared.lock().written;
        match stopped {
            Stopped::Reading(error) => Flaw::Read(error),
            Stopped::Writing(error) if is_full(&error) => Flaw::SpoolFull { directory, written },
            Stopped::Writing(source) => Flaw::Spool { directory, source },
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn take_in(mut reader: Box<dyn Read + Send>, shared: &Shared) {
    // Room for a chunk: new, or that of the oldest when it is in the file.
    let room = |state: &mut State| {
        if state.is_unwanted || state.stopped.is_some() {
            return Some(None);
        }
        if state.chunks.len() < CHUNKS {
            return Some(Some(None));
        }
        let is_written = state.chunks.front().is_some_and(|chunk| chunk.end() <= state.written);
        is_written.then(|| Some(state.chunks.pop_front()))
    };
    while let Some(old) = shared.wait(room) {
        let mut buffer = old
            .and_then(|chunk| Arc::into_inner(chunk.buffer))
            .unwrap_or_else(|| AlignedBuffer::new(CHUNK, ALIGNMENT));
        let (len, read) = fill(&mut *reader, &mut buffer);
        shared.change(|state| {
            state.chunks.push_back(Chunk { start: state.received, len, buffer: Arc::new(buffer) });
            state.received += len as u64;
            state.has_ended = len < CHUNK;
            if let Err(error) = read {
                state.stopped.get_or_insert(Stopped::Reading(error));
            }
        });
        if len < CHUNK {
            return;
        }
    }
}

fn write_out(mut writer: Writer, shared: &Shared) {
    let next = |state: &mut State| {
        if state.is_unwanted {
            return Some(None);
        }
        let chunk = state.chunks.iter().find(|chunk| chunk.end() > state.written);
        let next = chunk.map(|chunk| (chunk.buffer.clone(), chunk.len, chunk.start));
        (next.is_some() || state.has_ended).then_some(next)
    };
    while let Some((buffer, len, start)) = shared.wait(next) {
        let written = writer.write(&buffer[..len], start);
        drop(buffer);
        let is_broken = written.is_err();
        shared.change(|state| match written {
            Ok(()) => state.written += len as u64,
            Err(error) => state.stopped = Some(Stopped::Writing(error)),
        });
        if is_broken {
            return;
        }
    }
}

/// Two handles of the file: around the page cache and through it.
struct Writer {
    direct: Option<File>,
    file: File,
}

impl Writer {
    fn write(&mut self, bytes: &[u8], start: u64) -> io::Result<()> {
        let (whole, rest) = bytes.split_at(bytes.len() - bytes.len() % ALIGNMENT);
        let direct = self.direct.as_ref().map(|direct| direct.write_all_at(whole, start));
        match direct {
            Some(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => self.direct = None,
            Some(result) => {
                result?;
                return self.file.write_all_at(rest, start + whole.len() as u64);
            }
            None => {}
        }
        self.file.write_all_at(bytes, start)
    }
}

/// Reads until the buffer is full, or the end; bytes before an error are valid.
pub(super) fn fill(reader: &mut dyn Read, buffer: &mut [u8]) -> (usize, io::Result<()>) {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (filled, Err(error)),
        }
    }
    (filled, Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that encode their position, delivered in pieces of varying length.
    struct Stream {
        at: u64,
        end: u64,
    }

    fn byte(at: u64) -> u8 {
        (at ^ (at >> 8) ^ (at >> 17)) as u8
    }

    impl Read for Stream {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.at == u64::MAX {
                return Err(io::Error::other("the line went dead"));
            }
            let count = (self.end - self.at).min(buffer.len() as u64).min(1 + self.at % 70_000);
            for (at, place) in (self.at..self.at + count).zip(buffer) {
                *place = byte(at);
            }
            self.at += count;
            Ok(count as usize)
        }
    }

    #[test]
    fn a_stream_is_read_by_position_while_it_comes_and_afterwards() {
        let end = 9 * CHUNK as u64 + 12_345;
        let directory = tempfile::tempdir().expect("room for a spool");
        let reader = Box::new(Stream { at: 0, end });
        let spool = Spool::start(reader, directory.path()).expect("it starts");
        let compare = |position: u64| {
            let mut bytes = [0; 700];
            let count = spool.read_at(&mut bytes, position).expect("it is there");
            assert!(count > 0, "{position}");
            assert!(
                (position..).zip(&bytes[..count]).all(|(at, found)| byte(at) == *found),
                "{position}"
            );
        };
        for position in (0..end).step_by(99_991) {
            assert!(spool.wait_for(position + 1).expect("no error") > position);
            compare(position);
        }
        assert_eq!(spool.wait_for(u64::MAX).expect("no error"), end);
        spool.finish().expect("all is written");
        assert_eq!(spool.file.metadata().expect("it is open").len(), end);
        // The first chunks are no longer in memory.
        [0, 1, CHUNK as u64 - 1, end - 1].into_iter().for_each(compare);
        let mut all = vec![0; end as usize];
        spool.file.read_exact_at(&mut all, 0).expect("it is whole");
        assert!((0..).zip(&all).all(|(at, found)| byte(at) == *found));
    }

    #[test]
    fn bytes_before_an_error_are_present_and_the_error_is_reported_once() {
        let directory = tempfile::tempdir().expect("room for a spool");
        let dead = Stream { at: u64::MAX, end: 0 };
        let reader = Box::new(Stream { at: 0, end: 5000 }.chain(dead));
        let spool = Spool::start(reader, directory.path()).expect("it starts");
        assert_eq!(spool.wait_for(4096).expect("that much came"), 5000);
        assert!(matches!(spool.wait_for(5001), Err(Flaw::Read(_))));
        assert_eq!(spool.wait_for(u64::MAX).expect("told before"), 5000);
    }
}
