//! A stream on its way into an unlinked file, from which it can be read by position while the rest still comes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::super::error::{EntryName, Flaw};

/// Bytes that are moved before the reader hears of them.
const STEP: u64 = 4 << 20;
/// Bytes unpacked at a time.
const CHUNK: usize = 512 * 1024;

/// What comes: moved from pipe to file by the kernel where it can be.
pub(in crate::source) enum Incoming {
    /// Plain bytes: some that were read already, then those of a pipe.
    Pipe(Vec<u8>, File),
    /// Bytes that must be unpacked or looked at on their way.
    Reader(Box<dyn Read + Send>),
}

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
    /// Starts moving `incoming` into a new file in `directory`.
    pub(super) fn start(incoming: Incoming, directory: &Path) -> Result<Self, Flaw> {
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
            .spawn(move || move_all(incoming, own, &theirs))
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

fn move_all(mut incoming: Incoming, mut file: File, shared: &Shared) {
    let mut buffer = Vec::new();
    loop {
        let step = match &mut incoming {
            Incoming::Pipe(start, pipe) if start.is_empty() => from_pipe(pipe, &mut file),
            Incoming::Pipe(start, _) => {
                let start = std::mem::take(start);
                file.write_all(&start).map(|()| start.len() as u64).map_err(Stopped::Writing)
            }
            Incoming::Reader(reader) => through(reader, &mut buffer, &mut file),
        };
        let mut state = shared.lock();
        match step {
            Ok(0) => state.has_ended = true,
            Ok(count) => state.written += count,
            Err(stopped) => (state.has_ended, state.stopped) = (true, Some(stopped)),
        }
        shared.moved.notify_all();
        if state.has_ended || state.is_unwanted {
            return;
        }
    }
}

/// One step from a pipe. The error tells which side failed: a pipe is never full.
fn from_pipe(pipe: &File, file: &mut File) -> Result<u64, Stopped> {
    io::copy(&mut pipe.take(STEP), file).map_err(|error| match error.kind() {
        _ if is_full(&error) => Stopped::Writing(error),
        io::ErrorKind::FileTooLarge => Stopped::Writing(error),
        _ => Stopped::Reading(error),
    })
}

/// One step through memory. What came before an error of the reader is good.
fn through(reader: &mut dyn Read, buffer: &mut Vec<u8>, file: &mut File) -> Result<u64, Stopped> {
    buffer.resize(CHUNK, 0);
    let count = loop {
        match reader.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Stopped::Reading(error)),
            Ok(count) => break count,
        }
    };
    file.write_all(&buffer[..count]).map_err(Stopped::Writing)?;
    Ok(count as u64)
}
