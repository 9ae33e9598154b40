//! How requests come in and answers go out. The server does not know.
//!
//! [`Fuse`] reads the kernel's messages itself: no crate knows those for files without names, `syncfs`, `statx` and the removal of
//! setuid, nor places what files hold at pages.

mod abi;
mod clone;
mod dispatch;
mod encode;
mod message;
mod readers;
mod seek;
mod space;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::server::Server;
use abi::opcode;
use dispatch::{Agreement, Dispatcher, agree, is_long};
use message::{Reply, RequestBuffer};
use readers::{Reader, Readers};
use seek::{Writers, answer_seeks};
use space::{SpaceJob, answer_when_there_is_space};

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
        let mut are_own = true;
        for _ in 1..threads {
            let first = &connections[0];
            let next = match self.clones.then(|| clone::clone(first)) {
                Some(Ok(own)) => Arc::new(own),
                // Threads may share one as well.
                Some(Err(_)) | None => {
                    are_own = false;
                    first.clone()
                }
            };
            connections.push(next);
        }
        // Whether reading waits is a matter of the descriptor: threads that share one all wait.
        let readers = Arc::new(Readers::new(if are_own { 1 } else { threads }));
        let (seeks, jobs) = channel();
        let (space, waiting) = sync_channel(space::MOST);
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
            let (readers, space) = (readers.clone(), space.clone());
            loops.push(named.spawn(move || serve(dispatcher, &readers, are_own, &space))?);
        }
        drop((seeks, space));
        let named = thread::Builder::new().name("fuse-space".to_owned());
        let spacer = named.spawn(move || answer_when_there_is_space(&waiting))?;
        let named = thread::Builder::new().name("fuse-seek".to_owned());
        let seeker = named.spawn(move || answer_seeks(&server, &jobs))?;
        let named = thread::Builder::new().name("fuse-watch".to_owned());
        let watch = named.spawn(move || readers.watch())?;
        thread::Builder::new().name("fuse-end".to_owned()).spawn(move || {
            let ended = loops.into_iter().map(joined).fold(Ok(()), Result::and);
            ended.and(
                [seeker, spacer, watch].into_iter().map(joined_plain).fold(Ok(()), Result::and),
            )
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

/// How long a thread looks for the next request before it sleeps.
const LOOK: Duration = Duration::from_micros(100);
/// After so many looks in vain only each so many-th is made.
const VAIN_LOOKS: u32 = 16;
const RARE_LOOK: u32 = 64;
/// So many requests that were there at once, one after the other, are work for another thread.
const PILE: u32 = 8;

/// What a thread finds when it looks for a request.
enum Found {
    /// One of so many bytes.
    Request {
        len: usize,
        /// It was there already.
        at_once: bool,
        /// The thread slept before it came.
        slept: bool,
    },
    /// None, and others look as well.
    Nothing,
    /// The mount has gone.
    End,
}

/// A descriptor of one thread, from which it reads requests.
struct Source<'a> {
    connection: &'a OwnedFd,
    readers: &'a Readers,
    /// Nobody else reads from it, so that it may look without waiting.
    is_own: bool,
    waits: bool,
    /// Looks in vain since the last that was not.
    vain: u32,
}

impl Source<'_> {
    fn find(&mut self, buffer: &mut RequestBuffer) -> io::Result<Found> {
        self.readers.starts_reading();
        if self.is_own {
            self.set_waiting(false)?;
            let (mut started, mut at_once) = (None, true);
            let is_worth_it = self.vain < VAIN_LOOKS || self.vain.is_multiple_of(RARE_LOOK);
            let look = if is_worth_it { LOOK } else { Duration::ZERO };
            loop {
                match rustix::io::read(self.connection, buffer.room()) {
                    Ok(len) => {
                        self.vain = 0;
                        return Ok(Found::Request { len, at_once, slept: false });
                    }
                    // A request that was taken back while it was read; a signal; nothing there.
                    Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                    Err(Errno::NODEV) => return Ok(Found::End),
                    Err(errno) => return Err(errno.into()),
                }
                at_once = false;
                if started.get_or_insert_with(Instant::now).elapsed() >= look {
                    break;
                }
                // Who asks next may wait for this very processor.
                thread::yield_now();
            }
            self.vain = self.vain.wrapping_add(1);
            if self.readers.may_go() {
                self.readers.stops_reading();
                return Ok(Found::Nothing);
            }
            self.set_waiting(true)?;
        }
        Ok(match next(self.connection, buffer)? {
            Some(len) => Found::Request { len, at_once: false, slept: true },
            None => Found::End,
        })
    }

    fn set_waiting(&mut self, waits: bool) -> io::Result<()> {
        if self.waits != waits {
            let flags = if waits { OFlags::empty() } else { OFlags::NONBLOCK };
            rustix::fs::fcntl_setfl(self.connection, flags)?;
            self.waits = waits;
        }
        Ok(())
    }
}

/// Answers requests until the mount has gone.
fn serve(
    dispatcher: Dispatcher,
    readers: &Readers,
    is_own: bool,
    space: &SyncSender<SpaceJob>,
) -> io::Result<()> {
    let dispatcher = Arc::new(dispatcher);
    let _reader = Reader(readers);
    let mut source =
        Source { connection: &dispatcher.connection, readers, is_own, waits: true, vain: 0 };
    let (mut buffer, mut reply) = (RequestBuffer::new(), Reply::new());
    while readers.wait() {
        let mut pile = 0;
        loop {
            let (len, at_once, slept) = match source.find(&mut buffer)? {
                Found::Request { len, at_once, slept } => (len, at_once, slept),
                Found::Nothing => break,
                Found::End => return Ok(()),
            };
            let request = buffer.request(len)?;
            readers.has_read(request.header.pid, slept);
            pile = if at_once { pile + 1 } else { 0 };
            let is_long = is_long(&request);
            if pile > PILE || at_once && is_long {
                pile = 0;
                readers.call();
            }
            let is_away = is_long && is_own && readers.are_several();
            if is_away {
                readers.go();
            }
            reply.clear();
            if let Some(outcome) = space::dispatch(&dispatcher, &request, &mut reply, space) {
                dispatcher.answer(&request, outcome, &mut reply);
            }
            if is_away && !readers.come_back() {
                break;
            }
        }
    }
    Ok(())
}
