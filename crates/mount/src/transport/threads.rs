//! Threads that answer requests.

use std::io;
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};

/// Starts a thread.
pub(super) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    thread::Builder::new().name(name.to_owned()).spawn(work)
}

/// Starts a thread that answers requests, and sends its result to `ended`.
pub(super) fn spawn_loop(
    name: &str,
    ended: &Sender<io::Result<()>>,
    work: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let ended = ended.clone();
    // The receiver is gone once another thread has failed.
    let work = move || drop(ended.send(work()));
    spawn(name, work).map(drop)
}
