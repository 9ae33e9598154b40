//! A server of devices.
//!
//! Every connection has a thread. Requests of one connection are carried out one after the other;
//! several connections see each other's writes, and a flush of one is a flush of all.

use std::fs;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use extant_device::{Cause, Device, DeviceError};
use extant_runtime::sync::Mutex;
use extant_runtime::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::address::Address;
use crate::proto::{
    ALLOCATION, CHUNK_DONE, CHUNK_MAGIC, FIXED_NEWSTYLE, FLAG_FUA, FLAG_REQ_ONE, INFO_BLOCK_SIZE,
    INFO_EXPORT, INIT_MAGIC, NAME_MAX, NO_ZEROES, OPTION_MAGIC, OPTION_MAX, OPTION_REPLY_MAGIC,
    PAYLOAD_MAX, RequestHeader, SIMPLE_REPLY_MAGIC, STATE_HOLE, STATE_ZERO, chunk, command, errors,
    export, option, push_name, read_bytes, read_u32, read_u64, reply, skip,
};
use crate::stream::Stream;

/// Connections at the same time.
const CONNECTIONS_MAX: usize = 16;
/// Options of one handshake: a client has no use for more.
const OPTIONS_MAX: usize = 256;
/// How long a client may take for its handshake, and to take a reply.
const PATIENCE: Duration = Duration::from_secs(60);
/// Extents of one block status.
const EXTENTS_MAX: usize = 4096;
/// Between two looks for a new connection, or for the end.
const PAUSE: Duration = Duration::from_millis(20);
/// The block size that clients should use.
const PREFERRED_BLOCK: u32 = 4096;
/// The number of the only context.
const ALLOCATION_ID: u32 = 1;

/// A device that is offered.
#[derive(Clone, Debug)]
pub struct Export {
    /// The name that clients ask for; clients that name none get it too.
    pub name: String,
    /// The device.
    pub device: Arc<dyn Device>,
    /// Whether changes are refused.
    pub read_only: bool,
}

/// Where a server listens.
#[derive(Debug)]
pub enum Listener {
    /// On a port.
    Tcp(TcpListener),
    /// On a socket of this machine, which is removed in the end.
    Unix(UnixListener, PathBuf),
}

/// A server, before it runs.
#[derive(Debug)]
pub struct Server {
    export: Export,
    listener: Listener,
}

/// A server that runs.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
    socket: Option<PathBuf>,
}

#[derive(Debug)]
struct Shared {
    export: Export,
    stops: AtomicBool,
    /// Connections so far.
    count: AtomicU64,
    clients: Mutex<Vec<(u64, Stream)>>,
}

impl Listener {
    /// Listens at an address. The mode of a socket of this machine is the umask's; a socket that a
    /// server has left is replaced.
    ///
    /// # Errors
    /// The address is in use, or cannot be used.
    pub fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp { host, port } => {
                let addresses: Vec<SocketAddr> =
                    (host.as_str(), *port).to_socket_addrs()?.collect();
                Ok(Self::Tcp(TcpListener::bind(&addresses[..])?))
            }
            Address::Unix(path) => {
                let listener = match UnixListener::bind(path) {
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left(path) => {
                        fs::remove_file(path)?;
                        UnixListener::bind(path)?
                    }
                    listener => listener?,
                };
                Ok(Self::Unix(listener, path.clone()))
            }
        }
    }

    /// The address, with the port that the system has chosen.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn address(&self) -> io::Result<Address> {
        Ok(match self {
            Self::Tcp(listener) => {
                let address = listener.local_addr()?;
                Address::Tcp { host: address.ip().to_string(), port: address.port() }
            }
            Self::Unix(_, path) => Address::Unix(path.clone()),
        })
    }

    fn accept(&self) -> io::Result<Stream> {
        let stream = match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                Stream::Unix(stream)
            }
        };
        stream.set_timeouts(Some(PATIENCE))?;
        Ok(stream)
    }
}

/// Whether a socket was left by a server that is gone.
fn is_left(path: &Path) -> bool {
    let tried = std::os::unix::net::UnixStream::connect(path);
    tried.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

impl Server {
    /// A server of `export`.
    pub fn new(export: Export, listener: Listener) -> Self {
        Self { export, listener }
    }

    /// Begins to serve, in threads of its own.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn start(self) -> io::Result<Running> {
        let Self { export, listener } = self;
        match &listener {
            Listener::Tcp(listener) => listener.set_nonblocking(true)?,
            Listener::Unix(listener, _) => listener.set_nonblocking(true)?,
        }
        let socket = match &listener {
            Listener::Unix(_, path) => Some(path.clone()),
            Listener::Tcp(_) => None,
        };
        let (stops, count) = (AtomicBool::new(false), AtomicU64::new(0));
        let shared = Arc::new(Shared { export, stops, count, clients: Mutex::new(Vec::new()) });
        let of_acceptor = shared.clone();
        let accept = move || accept_all(&listener, &of_acceptor);
        let acceptor = thread::Builder::new().name("nbd-accept".to_owned()).spawn(accept)?;
        Ok(Running { shared, acceptor: Some(acceptor), socket })
    }
}

impl Running {
    /// Number of clients that are connected.
    pub fn clients(&self) -> usize {
        self.shared.clients.lock().len()
    }

    /// Number of clients so far.
    pub fn clients_so_far(&self) -> u64 {
        self.shared.count.load(Ordering::Relaxed)
    }

    /// Takes no more clients, waits for requests that are being carried out, and ends. The device
    /// is not flushed: no client was told that it is.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.stops.store(true, Ordering::Relaxed);
        if let Some(acceptor) = self.acceptor.take() {
            // It waits for the threads of connections.
            let _ = acceptor.join();
        }
        if let Some(socket) = self.socket.take() {
            let _ = fs::remove_file(socket);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn accept_all(listener: &Listener, shared: &Arc<Shared>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    while !shared.stops.load(Ordering::Relaxed) {
        threads.retain(|thread| !thread.is_finished());
        let stream = match listener.accept() {
            Ok(stream) if threads.len() < CONNECTIONS_MAX => stream,
            Ok(stream) => {
                tracing::warn!("too many connections");
                stream.shut_down();
                continue;
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::WouldBlock {
                    tracing::warn!(%error, "cannot take a connection");
                }
                thread::sleep(PAUSE);
                continue;
            }
        };
        match connection(stream, shared) {
            Ok(thread) => threads.push(thread),
            Err(error) => tracing::warn!(%error, "cannot serve a connection"),
        }
    }
    for (_, stream) in shared.clients.lock().iter() {
        stream.shut_down();
    }
    for thread in threads {
        let _ = thread.join();
    }
}

fn connection(stream: Stream, shared: &Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let number = shared.count.fetch_add(1, Ordering::Relaxed);
    shared.clients.lock().push((number, stream.try_clone()?));
    let of_client = shared.clone();
    let serve = move || {
        if let Err(error) = serve(&stream, &of_client) {
            tracing::debug!(%error, "a client is gone");
        }
        stream.shut_down();
        of_client.clients.lock().retain(|(other, _)| *other != number);
    };
    thread::Builder::new().name("nbd-client".to_owned()).spawn(serve)
}

/// A client from its handshake to its end.
fn serve(stream: &Stream, shared: &Shared) -> io::Result<()> {
    let mut session = Session {
        input: BufReader::with_capacity(64 << 10, stream.try_clone()?),
        output: BufWriter::with_capacity(64 << 10, stream.try_clone()?),
        export: &shared.export,
        is_structured: false,
        has_allocation: false,
    };
    if !session.handshake()? {
        return Ok(());
    }
    // A client may be silent as long as it likes.
    if let Stream::Tcp(stream) = stream {
        stream.set_read_timeout(None)?;
    } else if let Stream::Unix(stream) = stream {
        stream.set_read_timeout(None)?;
    }
    session.transmit(&shared.stops)
}

struct Session<'s> {
    input: BufReader<Stream>,
    output: BufWriter<Stream>,
    export: &'s Export,
    is_structured: bool,
    has_allocation: bool,
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Session<'_> {
    fn is_read_only(&self) -> bool {
        self.export.read_only || self.export.device.is_read_only()
    }

    fn flags(&self) -> u16 {
        let mut flags = export::HAS_FLAGS | export::SEND_DF | export::CAN_MULTI_CONN;
        flags |= export::SEND_FLUSH | export::SEND_FUA;
        if self.is_read_only() {
            return flags | export::READ_ONLY;
        }
        flags |= export::SEND_WRITE_ZEROES;
        if self.export.device.can_discard() {
            flags |= export::SEND_TRIM;
        }
        flags
    }

    fn has_name(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.export.name.as_bytes()
    }

    /// Whether requests follow.
    fn handshake(&mut self) -> io::Result<bool> {
        self.output.write_all(&INIT_MAGIC.to_be_bytes())?;
        self.output.write_all(&OPTION_MAGIC.to_be_bytes())?;
        self.output.write_all(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes())?;
        self.output.flush()?;
        let flags = read_u32(&mut self.input)?;
        if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
            return Err(invalid("unknown flags of a client"));
        }
        for _ in 0..OPTIONS_MAX {
            if read_u64(&mut self.input)? != OPTION_MAGIC {
                return Err(invalid("wrong magic of an option"));
            }
            let option = read_u32(&mut self.input)?;
            let length = read_u32(&mut self.input)?;
            if length > OPTION_MAX {
                skip(&mut self.input, u64::from(length))?;
                self.answer(option, reply::TOO_BIG, b"the option is too long")?;
                continue;
            }
            let data = read_bytes(&mut self.input, length)?;
            match option {
                option::EXPORT_NAME => {
                    if !self.has_name(&data) {
                        return Err(invalid("unknown export"));
                    }
                    self.output.write_all(&self.export.device.size().to_be_bytes())?;
                    self.output.write_all(&self.flags().to_be_bytes())?;
                    if flags & u32::from(NO_ZEROES) == 0 {
                        self.output.write_all(&[0; 124])?;
                    }
                    self.output.flush()?;
                    return Ok(true);
                }
                option::ABORT => {
                    self.answer(option, reply::ACK, &[])?;
                    return Ok(false);
                }
                option::LIST if data.is_empty() => {
                    let mut name = Vec::new();
                    push_name(&mut name, self.export.name.as_bytes());
                    self.answer(option, reply::SERVER, &name)?;
                    self.answer(option, reply::ACK, &[])?;
                }
                option::STRUCTURED_REPLY if data.is_empty() => {
                    self.is_structured = true;
                    self.answer(option, reply::ACK, &[])?;
                }
                option::LIST | option::STRUCTURED_REPLY => {
                    self.answer(option, reply::INVALID, b"the option has no data")?;
                }
                option::INFO | option::GO => {
                    if self.info(option, &data)? && option == option::GO {
                        return Ok(true);
                    }
                }
                option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                    self.contexts(option, &data)?;
                }
                _ => self.answer(option, reply::UNSUPPORTED, b"not supported")?,
            }
        }
        Err(invalid("too many options"))
    }

    fn answer(&mut self, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
        self.output.write_all(&OPTION_REPLY_MAGIC.to_be_bytes())?;
        self.output.write_all(&option.to_be_bytes())?;
        self.output.write_all(&kind.to_be_bytes())?;
        self.output.write_all(&(data.len() as u32).to_be_bytes())?;
        self.output.write_all(data)?;
        // A part of a reply goes with the next one.
        match kind {
            reply::INFO | reply::SERVER | reply::META_CONTEXT => Ok(()),
            _ => self.output.flush(),
        }
    }

    /// Tells of the export; whether there is one of the name.
    fn info(&mut self, option: u32, data: &[u8]) -> io::Result<bool> {
        let mut rest = data;
        let Some(name) = name_of(&mut rest) else {
            self.answer(option, reply::INVALID, b"invalid name")?;
            return Ok(false);
        };
        let count = rest
            .split_at_checked(2)
            .map(|(count, rest)| (usize::from(u16::from_be_bytes([count[0], count[1]])), rest));
        let Some((_, requests)) = count.filter(|(count, rest)| rest.len() == count * 2) else {
            self.answer(option, reply::INVALID, b"invalid requests of information")?;
            return Ok(false);
        };
        if !self.has_name(name) {
            self.answer(option, reply::UNKNOWN, b"unknown export")?;
            return Ok(false);
        }
        let size = self.export.device.size();
        let mut info = INFO_EXPORT.to_be_bytes().to_vec();
        info.extend(size.to_be_bytes());
        info.extend(self.flags().to_be_bytes());
        self.answer(option, reply::INFO, &info)?;
        if requests.chunks(2).any(|request| request == INFO_BLOCK_SIZE.to_be_bytes()) {
            let mut info = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
            for size in [1, PREFERRED_BLOCK, PAYLOAD_MAX] {
                info.extend(size.to_be_bytes());
            }
            self.answer(option, reply::INFO, &info)?;
        }
        self.answer(option, reply::ACK, &[])?;
        Ok(true)
    }

    /// Lists or chooses contexts.
    fn contexts(&mut self, option: u32, data: &[u8]) -> io::Result<()> {
        let is_chosen = option == option::SET_META_CONTEXT;
        if is_chosen {
            self.has_allocation = false;
        }
        let mut rest = data;
        let name = name_of(&mut rest);
        let queries = rest.split_at_checked(4).and_then(|(count, mut rest)| {
            let count = u32::from_be_bytes(count.try_into().ok()?);
            // Each has four bytes at least.
            let queries: Option<Vec<&[u8]>> = (count as usize <= rest.len() / 4)
                .then(|| (0..count).map(|_| name_of(&mut rest)).collect())?;
            queries.filter(|_| rest.is_empty())
        });
        let (Some(name), Some(queries)) = (name, queries) else {
            return self.answer(option, reply::INVALID, b"invalid query of contexts");
        };
        if is_chosen && !self.is_structured {
            return self.answer(option, reply::INVALID, b"structured replies come first");
        }
        if !self.has_name(name) {
            return self.answer(option, reply::UNKNOWN, b"unknown export");
        }
        let is_ours = |query: &&[u8]| *query == ALLOCATION || (!is_chosen && **query == *b"base:");
        if queries.iter().any(is_ours) || (queries.is_empty() && !is_chosen) {
            self.has_allocation |= is_chosen;
            let id = if is_chosen { ALLOCATION_ID } else { 0 };
            let context = [&id.to_be_bytes(), ALLOCATION].concat();
            self.answer(option, reply::META_CONTEXT, &context)?;
        }
        self.answer(option, reply::ACK, &[])
    }

    fn transmit(&mut self, stops: &AtomicBool) -> io::Result<()> {
        let mut buffer = Vec::new();
        while !stops.load(Ordering::Relaxed) {
            let Some(request) = RequestHeader::read(&mut self.input)? else { return Ok(()) };
            if request.command == command::DISCONNECT {
                return Ok(());
            }
            if request.command == command::WRITE {
                if request.length > PAYLOAD_MAX {
                    // To read and drop it would cost as much as to write it.
                    return Err(invalid("a write that is too long"));
                }
                buffer.resize(request.length as usize, 0);
                self.input.read_exact(&mut buffer)?;
            }
            self.request(&request, &mut buffer)?;
            // The next request may be here already.
            if self.input.buffer().is_empty() {
                self.output.flush()?;
            }
        }
        self.output.flush()
    }

    /// Carries out one request; an error is of the connection.
    fn request(&mut self, request: &RequestHeader, buffer: &mut Vec<u8>) -> io::Result<()> {
        let device = &*self.export.device;
        let end = request.offset.checked_add(u64::from(request.length));
        let fits = end.is_some_and(|end| end <= device.size());
        let range = request.offset..end.unwrap_or(u64::MAX);
        let is_change =
            [command::WRITE, command::TRIM, command::WRITE_ZEROES].contains(&request.command);
        let refused = match request.command {
            command::FLUSH if request.offset == 0 && request.length == 0 => None,
            command::FLUSH => Some(errors::EINVAL),
            command::READ if request.length > PAYLOAD_MAX => Some(errors::EOVERFLOW),
            _ if is_change && self.is_read_only() => Some(errors::EPERM),
            command::WRITE if !fits => Some(errors::ENOSPC),
            _ if !fits => Some(errors::EINVAL),
            command::BLOCK_STATUS if !self.has_allocation || request.length == 0 => {
                Some(errors::EINVAL)
            }
            _ => None,
        };
        if let Some(error) = refused {
            return self.finish(request, Err(error));
        }
        let done = match request.command {
            command::READ => {
                buffer.resize(request.length as usize, 0);
                return match device.read_at(request.offset, buffer) {
                    Ok(()) => self.data(request, buffer),
                    Err(error) => self.finish(request, Err(number_of(&error))),
                };
            }
            command::BLOCK_STATUS => {
                let is_one = request.flags & FLAG_REQ_ONE != 0;
                return match extents(device, range, if is_one { 1 } else { EXTENTS_MAX }) {
                    Ok(extents) => self.status(request, &extents),
                    Err(error) => self.finish(request, Err(number_of(&error))),
                };
            }
            command::WRITE => device.write_at(request.offset, buffer),
            command::TRIM => device.discard(range),
            command::WRITE_ZEROES => device.write_zeroes(range),
            command::FLUSH if self.is_read_only() => Ok(()),
            command::FLUSH => device.flush(),
            _ => return self.finish(request, Err(errors::EINVAL)),
        };
        let is_sure = is_change && request.flags & FLAG_FUA != 0;
        let done = if is_sure { done.and_then(|()| device.flush()) } else { done };
        self.finish(request, done.map_err(|error| number_of(&error)))
    }

    fn chunk(&mut self, request: &RequestHeader, kind: u16, length: usize) -> io::Result<()> {
        self.output.write_all(&CHUNK_MAGIC.to_be_bytes())?;
        self.output.write_all(&CHUNK_DONE.to_be_bytes())?;
        self.output.write_all(&kind.to_be_bytes())?;
        self.output.write_all(&request.cookie.to_be_bytes())?;
        self.output.write_all(&(length as u32).to_be_bytes())
    }

    /// The reply without data.
    fn finish(&mut self, request: &RequestHeader, done: Result<(), u32>) -> io::Result<()> {
        let error = done.err().unwrap_or(0);
        let takes_simple = request.command != command::READ;
        if !self.is_structured || (takes_simple && error == 0) {
            self.output.write_all(&SIMPLE_REPLY_MAGIC.to_be_bytes())?;
            self.output.write_all(&error.to_be_bytes())?;
            return self.output.write_all(&request.cookie.to_be_bytes());
        }
        self.chunk(request, chunk::ERROR, 6)?;
        self.output.write_all(&error.to_be_bytes())?;
        // The length of a message.
        self.output.write_all(&0_u16.to_be_bytes())
    }

    fn data(&mut self, request: &RequestHeader, data: &[u8]) -> io::Result<()> {
        if !self.is_structured {
            self.finish(request, Ok(()))?;
            return self.output.write_all(data);
        }
        if data.is_empty() {
            return self.chunk(request, chunk::NONE, 0);
        }
        self.chunk(request, chunk::OFFSET_DATA, 8 + data.len())?;
        self.output.write_all(&request.offset.to_be_bytes())?;
        self.output.write_all(data)
    }

    fn status(&mut self, request: &RequestHeader, extents: &[(u32, u32)]) -> io::Result<()> {
        self.chunk(request, chunk::BLOCK_STATUS, 4 + 8 * extents.len())?;
        self.output.write_all(&ALLOCATION_ID.to_be_bytes())?;
        for (length, state) in extents {
            self.output.write_all(&length.to_be_bytes())?;
            self.output.write_all(&state.to_be_bytes())?;
        }
        Ok(())
    }
}

/// Lengths and states of the extents of a range, as many as are wanted.
fn extents(
    device: &dyn Device,
    range: std::ops::Range<u64>,
    most: usize,
) -> Result<Vec<(u32, u32)>, DeviceError> {
    const HOLE: u32 = STATE_HOLE | STATE_ZERO;
    let mut extents = Vec::new();
    let mut at = range.start;
    while at < range.end && extents.len() < most {
        let data = device.next_data(at..range.end)?.unwrap_or(range.end..range.end);
        for (end, state) in [(data.start, HOLE), (data.end, 0)] {
            if at < end && extents.len() < most {
                // A request has less than 4 GiB.
                extents.push(((end - at) as u32, state));
                at = end;
            }
        }
    }
    Ok(extents)
}

/// A name with its length before it.
fn name_of<'d>(data: &mut &'d [u8]) -> Option<&'d [u8]> {
    let (length, rest) = data.split_at_checked(4)?;
    let length = u32::from_be_bytes(length.try_into().ok()?) as usize;
    let (name, rest) = rest.split_at_checked(length)?;
    *data = rest;
    (length <= NAME_MAX).then_some(name)
}

/// The number of an error on the wire.
fn number_of(error: &DeviceError) -> u32 {
    match (&error.cause, error.errno().unsigned_abs()) {
        (Cause::PastEnd { .. }, _) => errors::EINVAL,
        (Cause::ReadOnly, _) => errors::EPERM,
        (_, number @ (errors::EPERM | errors::ENOMEM | errors::EINVAL | errors::ENOSPC)) => number,
        (_, errors::ENOTSUP) => errors::ENOTSUP,
        _ => errors::EIO,
    }
}
