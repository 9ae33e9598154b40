//! An export of a server, as a device.

use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::time::Duration;

use extant_device::{
    Cause, Device, DeviceError, Operation, Request, RequestKind, RequestStatus, check_batch,
    check_range,
};
use extant_runtime::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use extant_runtime::sync::{Mutex, RwLock};

use crate::address::Address;
use crate::error::NbdError;
use crate::handshake::ExportInfo;
use crate::link::{Connector, Established};
use crate::options::ClientOptions;
use crate::pool::Pool;
use crate::proto::{FLAG_FUA, command, errors, export};
use crate::status::Statuses;
use crate::transmission::{Transfer, TransferData};
use crate::unflushed::Unflushed;

/// Bytes of one read or write on the wire: several are under way at the same time.
const PIECE: u32 = 1 << 20;
/// Bytes of one command without data: below 2^31, so that no server sees a negative number.
const COMMAND: u64 = 1 << 30;
/// Bytes whose status is asked for at once at least.
const STATUS_AHEAD: u64 = 64 << 20;
/// Bytes of zeroes that are sent where the server does not make them.
const ZEROES: usize = 1 << 20;
/// Linux's numbers that the protocol uses, for errors of a server.
const ENOSPC: i32 = 28;

/// An export, connected.
///
/// **A connection that is lost** is made again, for as long as [`ClientOptions::reconnect`] allows:
/// to the same export with the same size and flags, or every later request fails. Then requests
/// that were under way are repeated. The protocol's document says that a server may lose what it
/// has confirmed and not flushed when it ends, and nothing tells a client whether the server that
/// answers is the same process: the changes since the last flush are kept, 32 MiB of them and then
/// the server is asked to flush, and they are carried out again in their order before anything
/// else. A change whose repetition fails, or a server that has no flush, is an error (EIO) of the
/// next flush: no write is lost without one.
pub struct Client {
    name: String,
    pub(crate) info: ExportInfo,
    read_only: bool,
    pub(crate) reconnect: Duration,
    pub(crate) wanted: usize,
    pub(crate) connector: Connector,
    pub(crate) pool: RwLock<Pool>,
    pub(crate) next: AtomicUsize,
    pub(crate) unflushed: Mutex<Unflushed>,
    /// Whether a change was confirmed that is not kept, as the server has no flush.
    pub(crate) has_changes: AtomicBool,
    statuses: Mutex<Statuses>,
    /// Held while a block is read, changed and written: for servers with large blocks.
    partial: Mutex<()>,
}

impl Client {
    /// Connects to the export `name`.
    ///
    /// # Errors
    /// See [`NbdError`].
    pub fn connect(
        address: &Address,
        name: &str,
        options: &ClientOptions,
    ) -> Result<Self, NbdError> {
        let connector = Connector::start(address, name, options)?;
        let Established { connections, info } = connector.establish(options.connections)?;
        if info.flags & export::READ_ONLY != 0 && !options.read_only {
            return Err(NbdError::ReadOnly);
        }
        if !options.read_only && info.flags & (export::SEND_FLUSH | export::SEND_FUA) == 0 {
            tracing::warn!("the NBD server has no flush: when data are durable is not known");
        }
        Ok(Self {
            name: format!("{address}/{name}"),
            info,
            read_only: options.read_only,
            reconnect: options.reconnect,
            wanted: options.connections,
            connector,
            pool: RwLock::new(Pool::new(connections)),
            next: AtomicUsize::new(0),
            unflushed: Mutex::default(),
            has_changes: AtomicBool::new(false),
            statuses: Mutex::default(),
            partial: Mutex::new(()),
        })
    }

    /// Number of connections.
    pub fn connections(&self) -> usize {
        self.pool.read().connections.len()
    }

    fn has(&self, flag: u16) -> bool {
        self.info.flags & flag != 0
    }

    /// Whether a range is of whole blocks of the server.
    fn is_aligned(&self, offset: u64, length: u64) -> bool {
        let block = u64::from(self.info.block_min);
        offset.is_multiple_of(block) && length.is_multiple_of(block)
    }

    fn piece_max(&self) -> u32 {
        // Both are multiples of a block.
        self.info.payload_max.min(PIECE).max(self.info.block_min)
    }

    /// Carries out requests without a flush between them, all of them reads or none.
    fn run_together(&self, requests: &mut [Request<'_>]) {
        let mut outcomes: Vec<Result<(), io::Error>> = requests.iter().map(|_| Ok(())).collect();
        let mut pieces = Vec::new();
        let mut apart = Vec::new();
        for (of, request) in requests.iter_mut().enumerate() {
            let (offset, length) = (request.offset(), request.length());
            if length == 0 {
                continue;
            }
            if self.is_aligned(offset, length) && self.buffers_are_aligned(request) {
                self.cut(of, request, &mut pieces);
            } else {
                apart.push(of);
            }
        }
        if !pieces.is_empty() {
            self.send(pieces, &mut outcomes);
        }
        for of in apart {
            outcomes[of] = self.run_apart(&mut requests[of]);
        }
        for (request, outcome) in requests.iter_mut().zip(outcomes) {
            request.status = match outcome {
                Ok(()) => RequestStatus::Done,
                Err(error) => {
                    RequestStatus::Failed(request.error(Cause::Io(std::sync::Arc::new(error))))
                }
            };
        }
    }

    /// Whether the buffers of a request can be sent one by one.
    fn buffers_are_aligned(&self, request: &Request<'_>) -> bool {
        let block = self.info.block_min as usize;
        match &request.kind {
            RequestKind::Read { buffers, .. } => {
                buffers.slices().iter().all(|buffer| buffer.len().is_multiple_of(block))
            }
            RequestKind::Write { buffers, .. } => {
                buffers.slices().iter().all(|buffer| buffer.len().is_multiple_of(block))
            }
            _ => true,
        }
    }

    fn cut<'b, 'd: 'b>(
        &self,
        of: usize,
        request: &'b mut Request<'d>,
        pieces: &mut Vec<Transfer<'b, 'b>>,
    ) {
        let max = self.piece_max() as usize;
        match &mut request.kind {
            RequestKind::Read { offset, buffers } => {
                let mut at = *offset;
                for buffer in buffers.slices_mut() {
                    for part in buffer.chunks_mut(max) {
                        let length = part.len() as u32;
                        pieces.push(Transfer {
                            of,
                            offset: at,
                            length,
                            data: TransferData::Read(part),
                        });
                        at += u64::from(length);
                    }
                }
            }
            RequestKind::Write { offset, buffers } => {
                let (mut start, mut length, mut data) = (*offset, 0, Vec::new());
                for buffer in buffers.slices() {
                    let mut rest: &[u8] = buffer;
                    while !rest.is_empty() {
                        let (part, after) = rest.split_at(rest.len().min(max - length));
                        data.push(IoSlice::new(part));
                        (length, rest) = (length + part.len(), after);
                        if length == max {
                            let whole = TransferData::Write(std::mem::take(&mut data));
                            pieces.push(Transfer {
                                of,
                                offset: start,
                                length: max as u32,
                                data: whole,
                            });
                            (start, length) = (start + max as u64, 0);
                        }
                    }
                }
                if length > 0 {
                    let data = TransferData::Write(data);
                    pieces.push(Transfer { of, offset: start, length: length as u32, data });
                }
            }
            RequestKind::Discard { offset, length } if self.has(export::SEND_TRIM) => {
                cut_command(of, command::TRIM, *offset..*offset + *length, pieces);
            }
            RequestKind::WriteZeroes { offset, length } if self.has(export::SEND_WRITE_ZEROES) => {
                cut_command(of, command::WRITE_ZEROES, *offset..*offset + *length, pieces);
            }
            RequestKind::WriteZeroes { offset, length } => {
                let mut at = *offset;
                while at < *offset + *length {
                    let count = (*offset + *length - at).min(max.min(ZEROES) as u64);
                    let data = TransferData::Write(zeroes(count as usize));
                    pieces.push(Transfer { of, offset: at, length: count as u32, data });
                    at += count;
                }
            }
            RequestKind::Discard { .. } | RequestKind::Flush => {}
        }
    }

    fn send(&self, mut pieces: Vec<Transfer<'_, '_>>, outcomes: &mut [Result<(), io::Error>]) {
        let is_change = pieces.iter().any(|piece| !matches!(piece.data, TransferData::Read(_)));
        // A server without a flush makes each change durable.
        let is_sure = is_change && !self.has(export::SEND_FLUSH) && self.has(export::SEND_FUA);
        let flags = if is_sure { FLAG_FUA } else { 0 };
        let mut waiting: Vec<usize> = (0..pieces.len()).collect();
        let mut failed = None;
        // After a loss each piece is alone: a server may hang up on one of them.
        let mut is_alone = false;
        while !waiting.is_empty() && failed.is_none() {
            let which = match is_alone {
                true => waiting[..1].to_vec(),
                false => waiting.clone(),
            };
            let sent = self.with(|connection, number| {
                is_alone |= number > 0;
                let which: Vec<usize> =
                    which.iter().copied().filter(|index| waiting.contains(index)).collect();
                let which = if is_alone { &which[..which.len().min(1)] } else { &which[..] };
                connection.run(&mut pieces, which, flags, &mut |index, piece, error| {
                    waiting.retain(|other| *other != index);
                    if error != 0 && outcomes[piece.of].is_ok() {
                        outcomes[piece.of] = Err(server_error(error));
                    }
                    if is_change && error == 0 && !is_sure {
                        self.keep(piece);
                    }
                })
            });
            if let Err(error) = sent {
                match is_alone && !self.is_down() {
                    // This one fails at each try: the others are tried.
                    true => {
                        let index = waiting.remove(0);
                        let outcome = &mut outcomes[pieces[index].of];
                        if outcome.is_ok() {
                            *outcome = Err(error);
                        }
                    }
                    false => failed = Some(error),
                }
            }
        }
        for index in waiting {
            let outcome = &mut outcomes[pieces[index].of];
            if let (Some(error), true) = (&failed, outcome.is_ok()) {
                *outcome = Err(io::Error::new(error.kind(), error.to_string()));
            }
        }
        if is_change && self.unflushed.lock().is_much() {
            // A failure is that of the next flush.
            let flushed = self.flush_server();
            self.unflushed.lock().is_uncertain |= flushed.is_err();
        }
    }

    /// Keeps a change that the server has confirmed and may lose.
    fn keep(&self, piece: &Transfer<'_, '_>) {
        match (self.has(export::SEND_FLUSH), piece.data.is_flush()) {
            (_, true) => {}
            (true, false) if !self.reconnect.is_zero() => self.unflushed.lock().add(piece),
            _ => self.has_changes.store(true, Ordering::Relaxed),
        }
    }

    /// A request that does not fit the blocks of the server: whole blocks are read, and written
    /// after a change.
    fn run_apart(&self, request: &mut Request<'_>) -> Result<(), io::Error> {
        let block = u64::from(self.info.block_min);
        let (start, end) = (request.offset(), request.offset() + request.length());
        let whole = start / block * block..end.next_multiple_of(block).min(self.info.size);
        if matches!(request.kind, RequestKind::Discard { .. }) {
            // Whole blocks only.
            let inner = start.next_multiple_of(block)..end / block * block;
            return match inner.start < inner.end {
                true => self.one(Request::discard(inner)),
                false => Ok(()),
            };
        }
        let _partial = self.partial.lock();
        // In pieces: a range of zeroes may be long.
        let step = u64::from(self.piece_max());
        let mut at = whole.start;
        while at < whole.end {
            let part = at..(at + step).min(whole.end);
            let mut bytes = vec![0; (part.end - part.start) as usize];
            self.one(Request::read(part.start, &mut bytes))?;
            let inner = start.max(part.start)..end.min(part.end);
            let place = (inner.start - part.start) as usize..(inner.end - part.start) as usize;
            match &mut request.kind {
                RequestKind::Read { buffers, .. } => {
                    let mut skipped = start;
                    for buffer in buffers.slices_mut() {
                        let to = skipped.max(inner.start)
                            ..(skipped + buffer.len() as u64).min(inner.end);
                        if to.start < to.end {
                            let from =
                                (to.start - part.start) as usize..(to.end - part.start) as usize;
                            let within = (to.start - skipped) as usize..(to.end - skipped) as usize;
                            buffer[within].copy_from_slice(&bytes[from]);
                        }
                        skipped += buffer.len() as u64;
                    }
                }
                RequestKind::Write { buffers, .. } => {
                    let mut skipped = start;
                    for buffer in buffers.slices() {
                        let from = skipped.max(inner.start)
                            ..(skipped + buffer.len() as u64).min(inner.end);
                        if from.start < from.end {
                            let to = (from.start - part.start) as usize
                                ..(from.end - part.start) as usize;
                            let within =
                                (from.start - skipped) as usize..(from.end - skipped) as usize;
                            bytes[to].copy_from_slice(&buffer[within]);
                        }
                        skipped += buffer.len() as u64;
                    }
                    self.one(Request::write(part.start, &bytes))?;
                }
                _ => {
                    bytes[place].fill(0);
                    self.one(Request::write(part.start, &bytes))?;
                }
            }
            at = part.end;
        }
        Ok(())
    }

    /// One request that fits the blocks of the server.
    fn one(&self, mut request: Request<'_>) -> Result<(), io::Error> {
        let mut outcomes = [Ok(())];
        let mut pieces = Vec::new();
        self.cut(0, &mut request, &mut pieces);
        if !pieces.is_empty() {
            self.send(pieces, &mut outcomes);
        }
        let [outcome] = outcomes;
        outcome
    }

    fn flush_all(&self) -> Result<(), io::Error> {
        if self.read_only {
            return Ok(());
        }
        let flushed = self.flush_server();
        match std::mem::take(&mut self.unflushed.lock().is_uncertain) {
            true => Err(io::Error::other(
                "writes since the last flush may be lost: the connection to the NBD server was lost",
            )),
            false => flushed,
        }
    }

    fn flush_server(&self) -> Result<(), io::Error> {
        if !self.has(export::SEND_FLUSH) {
            return Ok(());
        }
        let mark = self.unflushed.lock().mark();
        let failed = self.with(|connection, _| {
            let data = TransferData::Command(command::FLUSH);
            let mut pieces = [Transfer { of: 0, offset: 0, length: 0, data }];
            let mut failed = 0;
            connection.run(&mut pieces, &[0], 0, &mut |_, _, error| failed = error)?;
            Ok(failed)
        })?;
        // Of a flush that fails, the caller is told.
        self.unflushed.lock().drop_to(mark);
        match failed {
            0 => Ok(()),
            error => Err(server_error(error)),
        }
    }

    /// Whether the bytes from `at` on are zeroes, and where that ends, as the server has told.
    fn known(&self, at: u64) -> Option<(bool, u64)> {
        self.statuses.lock().at(at)
    }

    /// Asks for it, and for what follows: a question takes a round trip. `None` where the server
    /// does not tell.
    fn ask(&self, at: u64, end: u64) -> Result<Option<(bool, u64)>, io::Error> {
        let block = u64::from(self.info.block_min);
        let start = at / block * block;
        let end = end.max(at.saturating_add(STATUS_AHEAD)).min(self.info.size);
        let length = (end.next_multiple_of(block).min(self.info.size) - start).min(COMMAND);
        let length = length / block * block;
        if length == 0 {
            return Ok(None);
        }
        let changes = self.statuses.lock().changes();
        let answer = self.with(|connection, _| connection.block_status(start, length as u32))?;
        let Ok(extents) = answer else { return Ok(None) };
        self.statuses.lock().keep(changes, start, &extents);
        Ok(self.known(at))
    }
}

fn cut_command(of: usize, command: u16, range: Range<u64>, pieces: &mut Vec<Transfer<'_, '_>>) {
    let mut at = range.start;
    while at < range.end {
        let length = (range.end - at).min(COMMAND) as u32;
        pieces.push(Transfer { of, offset: at, length, data: TransferData::Command(command) });
        at += u64::from(length);
    }
}

/// `count` zeroes, as slices of fewer that the program holds.
fn zeroes(count: usize) -> Vec<IoSlice<'static>> {
    static BYTES: [u8; 64 << 10] = [0; 64 << 10];
    let slice = |at: usize| IoSlice::new(&BYTES[..BYTES.len().min(count - at)]);
    (0..count).step_by(BYTES.len()).map(slice).collect()
}

/// The error that a server reports.
fn server_error(number: u32) -> io::Error {
    match number {
        errors::EPERM | errors::EIO | errors::ENOMEM | errors::EINVAL => {
            io::Error::from_raw_os_error(number as i32)
        }
        errors::ENOSPC => io::Error::from_raw_os_error(ENOSPC),
        errors::ENOTSUP => io::ErrorKind::Unsupported.into(),
        errors::ESHUTDOWN => {
            io::Error::new(io::ErrorKind::ConnectionAborted, "the NBD server is shutting down")
        }
        // Others are not known, as the protocol says.
        _ => io::Error::from_raw_os_error(errors::EINVAL as i32),
    }
}

impl Device for Client {
    fn size(&self) -> u64 {
        self.info.size
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        if batch.iter().any(Request::is_change) {
            self.statuses.lock().forget();
        }
        let mut first_failure: Option<DeviceError> = None;
        let mut is_stopped = false;
        let mut at = 0;
        while at < batch.len() {
            if matches!(batch[at].kind, RequestKind::Flush) {
                is_stopped |= first_failure.is_some();
                let request = &mut batch[at];
                let outcome = match is_stopped {
                    true => Err(request.error(Cause::NotTried)),
                    false => self
                        .flush_all()
                        .map_err(|error| request.error(Cause::Io(std::sync::Arc::new(error)))),
                };
                request.status = match outcome {
                    Ok(()) => RequestStatus::Done,
                    Err(error) => {
                        first_failure.get_or_insert(error.clone());
                        is_stopped = true;
                        RequestStatus::Failed(error)
                    }
                };
                at += 1;
                continue;
            }
            let is_change = batch[at].is_change();
            let is_alike = |request: &Request<'_>| {
                !matches!(request.kind, RequestKind::Flush) && request.is_change() == is_change
            };
            let end = at + batch[at..].iter().take_while(|request| is_alike(request)).count();
            let together = &mut batch[at..end];
            match is_stopped {
                true => {
                    for request in together.iter_mut() {
                        request.status = RequestStatus::Failed(request.error(Cause::NotTried));
                    }
                }
                false => self.run_together(together),
            }
            for request in together {
                if let RequestStatus::Failed(error) = &request.status {
                    first_failure.get_or_insert(error.clone());
                }
            }
            at = end;
        }
        if batch.iter().any(Request::is_change) {
            self.statuses.lock().forget();
        }
        first_failure.map_or(Ok(()), Err)
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        check_range(self.size(), &range)?;
        if range.is_empty() {
            return Ok(None);
        }
        if self.info.allocation.is_none() {
            return Ok(Some(range));
        }
        let mut at = range.start;
        let mut start = None;
        while at < range.end {
            let found = match self.known(at) {
                Some(known) => Some(known),
                None => self.ask(at, range.end).map_err(|source| {
                    let length = range.end - range.start;
                    DeviceError::io(Operation::DataRanges, range.start, length, source)
                })?,
            };
            let Some((is_zero, end)) = found else {
                return Ok(Some(start.unwrap_or(at)..range.end));
            };
            match (is_zero, start) {
                (false, None) => start = Some(at),
                (true, Some(start)) => return Ok(Some(start..at)),
                _ => {}
            }
            // Extents have at least one byte, so that this ends.
            at = end.min(range.end);
        }
        Ok(start.map(|start| start..range.end))
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn can_discard(&self) -> bool {
        !self.read_only && self.has(export::SEND_TRIM)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        for connection in &mut self.pool.get_mut().connections {
            connection.get_mut().disconnect();
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("name", &self.name)
            .field("size", &self.info.size)
            .field("connections", &self.connections())
            .finish_non_exhaustive()
    }
}
