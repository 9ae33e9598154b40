//! How requests come in and answers go out. The server does not know.
//!
//! [`Fuse`] reads the kernel's messages itself: no crate knows those for files without names, `syncfs`, `statx` and the removal of
//! setuid, nor places what files hold at pages.

mod abi;
mod clone;
mod dispatch;
mod encode;
mod message;
mod seek;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

use rustix::io::Errno;

use crate::server::Server;
use abi::opcode;
use dispatch::{Agreement, Dispatcher, Outcome, agree};
use message::{Reply, RequestBuffer};
use seek::{Writers, answer_seeks};

pub(crate) use clone::FUSE_DEVICE;

/// A connection to a mount.
pub trait Transport {
    /// Agrees with the kernel on what both can, and answers requests on `threads` threads from then on, until the mount is gone.
    ///
    /// # Errors
    /// The kernel did not agree, or no thread could be started.
    fn start(self, server: Arc<Server>, threads: usize) -> io::Result<JoinHandle<io::Result<()>>>;
}

/// FUSE through a descriptor of `/dev/fuse` that is mounted.
#[derive(Debug)]
pub struct Fuse {
    /// The descriptor.
    pub connection: OwnedFd,
    /// Every thread gets a descriptor of its own, for which `/dev/fuse` is opened again.
    pub clones: bool,
}

impl Transport for Fuse {
    fn start(self, server: Arc<Server>, threads: usize) -> io::Result<JoinHandle<io::Result<()>>> {
        let Some(agreement) = meet(&self.connection, &server)? else {
            return thread::Builder::new().spawn(|| Ok(()));
        };
        let mut connections = vec![Arc::new(self.connection)];
        for _ in 1..threads {
            let first = &connections[0];
            let next = match self.clones.then(|| clone::clone(first)) {
                Some(Ok(own)) => Arc::new(own),
                // Threads may share one as well.
                Some(Err(_)) | None => first.clone(),
            };
            connections.push(next);
        }
        let (seeks, jobs) = channel();
        let writers = Arc::new(Writers::default());
        let mut loops = Vec::new();
        for connection in connections {
            let dispatcher = Dispatcher {
                server: server.clone(),
                connection,
                writers: writers.clone(),
                seeks: seeks.clone(),
                has_long_setxattr: agreement.has_long_setxattr,
            };
            let named = thread::Builder::new().name("fuse".to_owned());
            loops.push(named.spawn(move || serve(&dispatcher))?);
        }
        drop(seeks);
        let named = thread::Builder::new().name("fuse-seek".to_owned());
        let seeker = named.spawn(move || answer_seeks(&server, &jobs))?;
        thread::Builder::new().name("fuse-end".to_owned()).spawn(move || {
            let ended = loops.into_iter().map(joined).fold(Ok(()), Result::and);
            ended.and(joined_plain(seeker))
        })
    }
}

fn joined(thread: JoinHandle<io::Result<()>>) -> io::Result<()> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}

fn joined_plain(thread: JoinHandle<()>) -> io::Result<()> {
    thread.join().map_err(|_| io::Error::other("a thread panicked"))
}

/// The first request: INIT. `None` when the mount has gone already.
fn meet(connection: &OwnedFd, server: &Server) -> io::Result<Option<Agreement>> {
    let (mut buffer, mut reply) = (RequestBuffer::new(), Reply::new());
    let Some(len) = next(connection, &mut buffer)? else { return Ok(None) };
    let request = buffer.request(len)?;
    if request.header.opcode != opcode::INIT {
        return Err(io::Error::other("FUSE did not begin with INIT"));
    }
    let agreement = agree(&request, server, &mut reply)?;
    rustix::io::write(connection, reply.message(request.header.unique, Ok(())))?;
    Ok(Some(agreement))
}

/// Waits for a request: its length, or `None` when the mount has gone.
fn next(connection: &OwnedFd, buffer: &mut RequestBuffer) -> io::Result<Option<usize>> {
    loop {
        match rustix::io::read(connection, buffer.room()) {
            Ok(len) => return Ok(Some(len)),
            // A request that was taken back while it was read; a signal; nothing there.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::NODEV) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Answers requests until the mount has gone.
fn serve(dispatcher: &Dispatcher) -> io::Result<()> {
    let (mut buffer, mut reply) = (RequestBuffer::new(), Reply::new());
    while let Some(len) = next(&dispatcher.connection, &mut buffer)? {
        let request = buffer.request(len)?;
        reply.clear();
        let outcome = match dispatcher.dispatch(&request, &mut reply) {
            Ok(Outcome::Silent) => continue,
            Ok(Outcome::Answered) => Ok(()),
            Err(errno) => Err(errno),
        };
        let message = reply.message(request.header.unique, outcome);
        // Where nobody waits for the answer any more, or there is none, the kernel holds nothing.
        let is_sent = rustix::io::write(&*dispatcher.connection, message).is_ok();
        if !is_sent || outcome.is_err() {
            dispatcher.take_back(&reply);
        }
    }
    Ok(())
}
