//! How requests and replies are carried. The server does not depend on it.
//!
//! They are read from `/dev/fuse` and written there (see [`readers`]), or, if the kernel offers it,
//! carried by [`ring`]s.
//!
//! [`Fuse`] reads the kernel's messages itself: no crate knows those for files without names,
//! `syncfs`, `statx` and the removal of setuid, nor aligns file data to pages.

mod abi;
mod changes;
mod clone;
mod control;
mod cpu_latency;
mod deferred;
mod dispatch;
mod encode;
mod forget_batch;
mod frozen;
mod handle;
mod init;
mod message;
mod notice;
mod open_files;
mod readers;
mod ring;
mod seek;
mod space;
mod space_events;
mod stale;
mod threads;
mod writeback_errors;
mod writers;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::service::FileService;
use abi::opcode;
use deferred::{DeferQueues, DeferredRequest, send};
use dispatch::{Dispatcher, is_long};
use forget_batch::ForgetBatch;
use frozen::reply_when_thawed;
use handle::{Disposition, handle};
use init::{InitOptions, Negotiated, negotiate};
use message::{OwnedRequest, ReplyBuffer, RequestBuffer};
use open_files::OpenFiles;
use readers::{Reader, Readers};
use seek::reply_to_seeks;
use space::reply_when_space_is_free;
use space_events::SpaceEvents;
use stale::{Stale, drop_stale};
use threads::{spawn, spawn_loop};
use writeback_errors::WritebackErrors;
use writers::Writers;

pub(crate) use clone::FUSE_DEVICE;
pub(crate) use control::{
    EXTANT_IOC_FREEZE, EXTANT_IOC_GROW, EXTANT_IOC_SHUTDOWN, EXTANT_IOC_THAW, GROW_LEN, freeze,
    grow, shutdown, thaw,
};
pub(crate) use cpu_latency::CpuLatencyRequest;
pub(crate) use ring::Rings;

/// A connection to a mount.
pub trait Transport {
    /// Negotiates with the kernel, and answers requests on `threads` threads from then on, until
    /// the mount is gone.
    ///
    /// # Errors
    /// The kernel did not agree, or no thread could be started.
    fn start(
        self,
        server: Arc<dyn FileService>,
        threads: usize,
    ) -> io::Result<JoinHandle<io::Result<()>>>;
}

/// FUSE through a descriptor of `/dev/fuse` that is mounted.
#[derive(Debug)]
pub struct Fuse {
    /// The descriptor.
    pub connection: OwnedFd,
    /// Every thread gets a descriptor of its own, for which `/dev/fuse` is opened again.
    pub clones: bool,
    /// The kernel's cache may keep written data.
    pub writeback_cache: bool,
    /// The kernel checks permissions.
    pub checks: bool,
    /// Processors that this process may use.
    pub processors: usize,
    /// Rings for requests.
    pub(crate) rings: Option<Rings>,
    /// The request for a low CPU latency while requests come.
    pub(crate) cpu_latency: Option<CpuLatencyRequest>,
}

impl Transport for Fuse {
    fn start(
        self,
        server: Arc<dyn FileService>,
        threads: usize,
    ) -> io::Result<JoinHandle<io::Result<()>>> {
        let options = InitOptions {
            rings: self.rings.is_some(),
            writeback_cache: self.writeback_cache,
            checks: self.checks,
        };
        let Some(negotiated) = handshake(&self.connection, &*server, options)? else {
            return thread::Builder::new().spawn(|| Ok(()));
        };
        let first = Arc::new(self.connection);
        let dispatcher = Arc::new(Dispatcher {
            server,
            writers: Writers::default(),
            space_events: SpaceEvents::default(),
            writeback_errors: WritebackErrors::default(),
            open_files: OpenFiles::default(),
            stale: Stale::default(),
            connection: first.clone(),
            negotiated,
        });
        let (seeks, seek_jobs) = channel();
        let (space, space_jobs) = sync_channel(space::MOST);
        let (frozen, frozen_jobs) = channel();
        let mut others = Vec::new();
        let (for_frozen, then) = (dispatcher.clone(), space.clone());
        others.push(spawn("fuse-frozen", move || {
            reply_when_thawed(&for_frozen, &frozen_jobs, &then)
        })?);
        let queues = DeferQueues { space, seeks, frozen };
        let for_seeks = dispatcher.clone();
        others.push(spawn("fuse-seek", move || reply_to_seeks(&for_seeks, &seek_jobs))?);
        let for_space = dispatcher.clone();
        others
            .push(spawn("fuse-space", move || reply_when_space_is_free(&for_space, &space_jobs))?);
        let for_stale = dispatcher.clone();
        others.push(spawn("fuse-stale", move || {
            drop_stale(&for_stale.stale, &for_stale.connection);
        })?);
        let (ended, ends) = channel();
        let mut count = 0;
        let rings = self.rings.filter(|_| negotiated.has_rings);
        let (readers, are_own, clones) = match &rings {
            // Little is left to be read.
            Some(_) => (READERS_WITH_RINGS, false, false),
            None => (threads, true, self.clones),
        };
        let (connections, are_own) = connections(first, readers, are_own, clones);
        // Whether reading waits is a matter of the descriptor: threads that share one all wait.
        let readers = Arc::new(Readers::new(if are_own { 1 } else { readers }, self.processors));
        if let Some(rings) = rings {
            let served_by = (threads, &readers);
            count += rings.start(&dispatcher, &queues, served_by, (&ended, &mut others))?;
        }
        for connection in connections {
            let (dispatcher, queues) = (dispatcher.clone(), queues.clone());
            let readers = readers.clone();
            let read = move || serve(&dispatcher, &connection, &readers, are_own, &queues);
            spawn_loop("fuse", &ended, read)?;
            count += 1;
        }
        others.push(spawn("fuse-watch", move || readers.watch(self.cpu_latency))?);
        drop((queues, ended));
        spawn("fuse-end", move || {
            for _ in 0..count {
                // A failed thread leaves requests without a reply: the mount ends, whatever the
                // others do.
                ends.recv().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))?;
            }
            dispatcher.stale.end();
            dispatcher.server.end_freeze();
            others.into_iter().try_for_each(joined)
        })
    }
}

/// Threads that read from `/dev/fuse` if most requests come by rings.
const READERS_WITH_RINGS: usize = 2;

fn joined<T>(thread: JoinHandle<T>) -> io::Result<T> {
    thread.join().map_err(|_| io::Error::other("a thread panicked"))
}

/// A descriptor for each thread that reads, each its own where that is possible.
fn connections(
    first: Arc<OwnedFd>,
    threads: usize,
    mut are_own: bool,
    clones: bool,
) -> (Vec<Arc<OwnedFd>>, bool) {
    let mut connections = vec![first];
    for _ in 1..threads {
        let first = &connections[0];
        let next = match clones.then(|| clone::clone(first)) {
            Some(Ok(own)) => Arc::new(own),
            // Threads may share one as well.
            Some(Err(_)) | None => {
                are_own = false;
                first.clone()
            }
        };
        connections.push(next);
    }
    (connections, are_own)
}

/// The first request: INIT. `None` when the mount has gone already.
fn handshake(
    connection: &OwnedFd,
    server: &dyn FileService,
    options: InitOptions,
) -> io::Result<Option<Negotiated>> {
    let (mut buffer, mut answer) = (RequestBuffer::new(), ReplyBuffer::new());
    let Some(len) = next(connection, &mut buffer)? else { return Ok(None) };
    let request = buffer.request(len)?;
    if request.header.opcode != opcode::INIT {
        return Err(io::Error::other("FUSE did not begin with INIT"));
    }
    let mut reply = answer.reply();
    let negotiated = negotiate(&request, server, options, &mut reply)?;
    let len = reply.len();
    rustix::io::write(connection, answer.message(request.header.unique, Ok(()), len))?;
    Ok(Some(negotiated))
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

/// How long a thread polls for the next request before it sleeps.
const POLL: Duration = Duration::from_micros(100);
/// After this many polls without a request only each nth is made.
const VAIN_POLLS: u32 = 16;
const RARE_POLL: u32 = 64;
/// Number of requests that were found at once, one after the other, after which another thread is
/// called, if a processor is left for it.
const BURST: u32 = 8;
/// Where they took longer, the thread did not work but waited.
const SLOW_BURST: Duration = Duration::from_micros(250);

/// The result of reading.
enum ReadResult {
    /// A request of `len` bytes.
    Request {
        len: usize,
        /// It was there already.
        at_once: bool,
        /// The thread slept before it came.
        slept: bool,
    },
    /// None, and other threads poll as well.
    Nothing,
    /// The mount has gone.
    End,
}

/// A descriptor of one thread, from which it reads requests.
struct Source<'a> {
    connection: &'a OwnedFd,
    readers: &'a Readers,
    /// No other thread reads from it, so it may poll without blocking.
    is_own: bool,
    waits: bool,
    /// Polls without a request since the last success.
    vain: u32,
}

impl Source<'_> {
    /// Reads a request; without any, calls `before_sleep` before the thread sleeps.
    fn find(
        &mut self,
        buffer: &mut RequestBuffer,
        before_sleep: impl FnOnce(),
    ) -> io::Result<ReadResult> {
        self.readers.starts_reading();
        if self.is_own {
            self.set_waiting(false)?;
            let (mut started, mut at_once) = (None, true);
            let is_worth_it = self.vain < VAIN_POLLS || self.vain.is_multiple_of(RARE_POLL);
            let poll = if is_worth_it { POLL } else { Duration::ZERO };
            loop {
                match rustix::io::read(self.connection, buffer.room()) {
                    Ok(len) => {
                        self.vain = 0;
                        return Ok(ReadResult::Request { len, at_once, slept: false });
                    }
                    // A request that was taken back while it was read; a signal; nothing there.
                    Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                    Err(Errno::NODEV) => return Ok(ReadResult::End),
                    Err(errno) => return Err(errno.into()),
                }
                at_once = false;
                if started.get_or_insert_with(Instant::now).elapsed() >= poll {
                    break;
                }
                // The next caller may wait for this very processor.
                thread::yield_now();
            }
            self.vain = self.vain.wrapping_add(1);
            // It may take long: the watch must see that this thread does not poll.
            self.readers.stops_reading();
            before_sleep();
            self.readers.starts_reading();
            if self.readers.may_leave() {
                self.readers.stops_reading();
                return Ok(ReadResult::Nothing);
            }
            self.set_waiting(true)?;
        }
        Ok(match next(self.connection, buffer)? {
            Some(len) => ReadResult::Request { len, at_once: false, slept: true },
            None => ReadResult::End,
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

/// Requests that were there at once, one after the other.
#[derive(Default)]
struct Burst {
    height: u32,
    since: Option<Instant>,
}

impl Burst {
    /// Counts one more request, or the first after a moment without any; returns the time of the
    /// last ones if there are enough.
    fn grows(&mut self, at_once: bool) -> Option<Duration> {
        if !at_once {
            *self = Self::default();
            return None;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        self.height += 1;
        (self.height > BURST).then(|| {
            *self = Self::default();
            since.elapsed()
        })
    }
}

/// Answers requests until the mount has gone.
fn serve(
    dispatcher: &Dispatcher,
    connection: &Arc<OwnedFd>,
    readers: &Readers,
    is_own: bool,
    queues: &DeferQueues,
) -> io::Result<()> {
    let _reader = Reader(readers);
    let mut source = Source { connection, readers, is_own, waits: true, vain: 0 };
    let (mut buffer, mut answer) = (RequestBuffer::new(), ReplyBuffer::new());
    let mut forgotten = ForgetBatch::default();
    while readers.wait() {
        let mut burst = Burst::default();
        loop {
            let before_sleep = || forgotten.drop_all(dispatcher);
            let (len, at_once, slept) = match source.find(&mut buffer, before_sleep)? {
                ReadResult::Request { len, at_once, slept } => (len, at_once, slept),
                ReadResult::Nothing => break,
                ReadResult::End => return Ok(()),
            };
            let request = buffer.request(len)?;
            readers.has_read(request.header.pid, slept);
            // Only threads that poll before they sleep, so that all counts are dropped in the end.
            if is_own && forgotten.take(dispatcher, &request) {
                continue;
            }
            let is_long = is_long(&request);
            match burst.grows(at_once) {
                _ if at_once && is_long => readers.call(),
                Some(took) if took >= SLOW_BURST => readers.call(),
                Some(_) => readers.call_to_work(),
                None => {}
            }
            if is_long {
                forgotten.drop_all(dispatcher);
            }
            let is_away = is_long && is_own && readers.are_several();
            if is_away {
                readers.leave_for_work();
            }
            let mut reply = answer.reply();
            let disposition = handle(dispatcher, &request, &mut reply);
            let len = reply.len();
            match disposition {
                Disposition::Reply(outcome) => {
                    let unique = request.header.unique;
                    send(dispatcher, connection, unique, outcome, len, &mut answer);
                }
                Disposition::NoReply => {}
                Disposition::Defer(reason) => {
                    let deferred =
                        DeferredRequest::Read(OwnedRequest::of(&request), connection.clone());
                    queues.defer(dispatcher, deferred, reason, &mut answer);
                }
            }
            forgotten.drop_one(dispatcher);
            if is_away && !readers.return_from_work() {
                break;
            }
        }
    }
    Ok(())
}
