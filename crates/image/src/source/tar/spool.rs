//! A stream on its way into an unlinked file, from which it can be read by position while the rest still comes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::super::error::{EntryName, Flaw};

/// Bytes written at a time: large ones are cheapest, for the host's page cache takes them in large pieces. (Moving pages with
/// splice was half as fast: it goes page by page.)
const CHUNK: usize = 1 << 20;

/// The file, and how far it is filled.
pub(super) struct Spool {
    pub(super) file: File,
    directory: PathBuf,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    written: u64,
    /// No more comes.
    has_ended: bool,
    /// Why it ended too early, until somebody was told.
    stopped: Option<Stopped>,
    /// Nobody reads any more.
    is_unwanted: bool,
}

/// Why a stream did not come through.
enum Stopped {
    Reading(io::Error),
    Writing(io::Error),
}

impl Drop for Spool {
    fn drop(&mut self) {
        // The thread is not joined: it may be waiting for a pipe. It ends when something comes.
        self.shared.lock().is_unwanted = true;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spool {
    /// Starts moving what `reader` gives into a new file in `directory`.
    pub(super) fn start(reader: Box<dyn Read + Send>, directory: &Path) -> Result<Self, Flaw> {
        let directory = match directory.as_os_str().is_empty() {
            true => PathBuf::from("."),
            false => directory.to_owned(),
        };
        let failed = |source| Flaw::Spool { directory: directory.as_path().into(), source };
        let file = tempfile::tempfile_in(&directory).map_err(failed)?;
        let own = file.try_clone().map_err(failed)?;
        let shared = Arc::new(Shared { state: Mutex::default(), moved: Condvar::new() });
        let theirs = shared.clone();
        thread::Builder::new()
            .name("archive".into())
            .spawn(move || move_all(reader, own, &theirs))
            .map_err(Flaw::Read)?;
        Ok(Self { file, directory, shared })
    }

    /// Waits until the first `end` bytes are in the file, or all there are; says how many are.
    pub(super) fn wait_for(&self, end: u64) -> Result<u64, Flaw> {
        let mut state = self.shared.lock();
        while state.written < end && !state.has_ended {
            state = self.shared.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let stopped = if state.written < end { state.stopped.take() } else { None };
        stopped.map_or(Ok(state.written), |stopped| Err(self.flaw(stopped, state.written)))
    }

    fn flaw(&self, stopped: Stopped, written: u64) -> Flaw {
        let directory: EntryName = self.directory.as_path().into();
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

fn move_all(mut reader: Box<dyn Read + Send>, mut file: File, shared: &Shared) {
    let mut buffer = vec![0; CHUNK];
    loop {
        let (count, read) = fill(&mut *reader, &mut buffer);
        let written = file.write_all(&buffer[..count]);
        let mut state = shared.lock();
        if written.is_ok() {
            state.written += count as u64;
        }
        let step = written.map_err(Stopped::Writing).and(read.map_err(Stopped::Reading));
        match step {
            Ok(()) => state.has_ended = count < CHUNK,
            Err(stopped) => (state.has_ended, state.stopped) = (true, Some(stopped)),
        }
        shared.moved.notify_all();
        if state.has_ended || state.is_unwanted {
            return;
        }
    }
}

/// Reads until the buffer is full, or the end; what came before an error is good.
fn fill(reader: &mut dyn Read, buffer: &mut [u8]) -> (usize, io::Result<()>) {
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
