//! One connection of a client after the handshake: requests that are under way at the same time,
//! and their replies.

use std::collections::BTreeMap;
use std::io::{BufReader, BufWriter, IoSlice, Read, Write};

use crate::error::NbdError;
use crate::handshake::ExportInfo;
use crate::proto::{
    CHUNK_DONE, CHUNK_MAGIC, RequestHeader, SIMPLE_REPLY_MAGIC, STATE_ZERO, chunk, command,
    read_u16, read_u32, read_u64, skip,
};
use crate::stream::Stream;

/// Requests under way at the same time on one connection. Replies without data are small, and so
/// are requests without data: neither side waits for the other to read while it writes.
const UNDER_WAY: usize = 16;
/// The longest payload of a chunk that is an error.
const ERROR_MAX: u32 = 64 << 10;
/// The longest payload of a block status: 512 Ki extents.
const STATUS_MAX: u32 = 4 + 8 * (512 << 10);

/// A part of a request of the device.
pub(crate) struct Transfer<'b, 'd> {
    /// Which request of the caller it is a part of.
    pub(crate) of: usize,
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) data: TransferData<'b, 'd>,
}

pub(crate) enum TransferData<'b, 'd> {
    Read(&'b mut [u8]),
    Write(Vec<IoSlice<'d>>),
    /// A command without data.
    Command(u16),
}

impl TransferData<'_, '_> {
    pub(crate) fn is_flush(&self) -> bool {
        matches!(self, Self::Command(command::FLUSH))
    }
}

/// A run of bytes that a server tells to be zeroes, or not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Extent {
    pub(crate) length: u64,
    pub(crate) is_zero: bool,
}

#[derive(Debug)]
pub(crate) struct Connection {
    input: BufReader<Stream>,
    output: BufWriter<Stream>,
    info: ExportInfo,
    next_cookie: u64,
}

/// The head of a reply.
enum Reply {
    Simple { error: u32 },
    Chunk { is_last: bool, kind: u16, length: u32 },
}

impl Connection {
    pub(crate) fn new(stream: Stream, info: ExportInfo) -> Result<Self, NbdError> {
        let output = BufWriter::with_capacity(64 << 10, stream.try_clone()?);
        let input = BufReader::with_capacity(64 << 10, stream);
        Ok(Self { input, output, info, next_cookie: 0 })
    }

    fn send(&mut self, piece: &Transfer<'_, '_>, flags: u16) -> Result<u64, NbdError> {
        self.next_cookie += 1;
        let command = match &piece.data {
            TransferData::Read(_) => command::READ,
            TransferData::Write(_) => command::WRITE,
            TransferData::Command(command) => *command,
        };
        let (cookie, offset, length) = (self.next_cookie, piece.offset, piece.length);
        let header = RequestHeader { flags, command, cookie, offset, length };
        self.output.write_all(&header.bytes())?;
        if let TransferData::Write(buffers) = &piece.data {
            for buffer in buffers {
                self.output.write_all(buffer)?;
            }
        }
        Ok(cookie)
    }

    fn reply(&mut self) -> Result<(u64, Reply), NbdError> {
        match read_u32(&mut self.input)? {
            SIMPLE_REPLY_MAGIC => {
                let error = read_u32(&mut self.input)?;
                Ok((read_u64(&mut self.input)?, Reply::Simple { error }))
            }
            CHUNK_MAGIC if self.info.is_structured => {
                let (flags, kind) = (read_u16(&mut self.input)?, read_u16(&mut self.input)?);
                let cookie = read_u64(&mut self.input)?;
                let length = read_u32(&mut self.input)?;
                Ok((cookie, Reply::Chunk { is_last: flags & CHUNK_DONE != 0, kind, length }))
            }
            magic => Err(NbdError::protocol(format!("unknown magic {magic:#x} of a reply"))),
        }
    }

    /// Carries out the pieces with the numbers in `which`, all of them reads or none; `done` is
    /// called with each one's number, the piece and the server's error, which is 0 for none.
    ///
    /// # Errors
    /// The connection is lost, or of no use any more. Pieces that were not reported may have been
    /// carried out.
    pub(crate) fn run(
        &mut self,
        pieces: &mut [Transfer<'_, '_>],
        which: &[usize],
        flags: u16,
        done: &mut dyn FnMut(usize, &Transfer<'_, '_>, u32),
    ) -> Result<(), NbdError> {
        // By cookie: the piece, bytes of it that came, the first error.
        let mut under_way: BTreeMap<u64, (usize, u64, u32)> = BTreeMap::new();
        let mut next = 0;
        loop {
            let has_room = under_way.len() < UNDER_WAY;
            if has_room && next < which.len() {
                let cookie = self.send(&pieces[which[next]], flags)?;
                under_way.insert(cookie, (which[next], 0, 0));
                next += 1;
                continue;
            }
            self.output.flush()?;
            if under_way.is_empty() {
                return Ok(());
            }
            let (cookie, reply) = self.reply()?;
            let Some(&mut (index, ref mut came, ref mut failed)) = under_way.get_mut(&cookie)
            else {
                return Err(NbdError::protocol("a reply to no request"));
            };
            let piece = &mut pieces[index];
            let is_last = match reply {
                Reply::Simple { error } => {
                    if error != 0 {
                        *failed = error;
                    } else if let TransferData::Read(buffer) = &mut piece.data {
                        if self.info.is_structured {
                            return Err(NbdError::protocol("data in a simple reply"));
                        }
                        self.input.read_exact(buffer)?;
                        *came = u64::from(piece.length);
                    }
                    true
                }
                Reply::Chunk { is_last, kind, length } => {
                    let chunk = chunk_of(&mut self.input, piece, kind, length)?;
                    *came += chunk.came;
                    if *failed == 0 {
                        *failed = chunk.error;
                    }
                    is_last
                }
            };
            if is_last {
                let is_whole = match piece.data {
                    TransferData::Read(_) => *came == u64::from(piece.length),
                    _ => *came == 0,
                };
                if *failed == 0 && !is_whole {
                    return Err(NbdError::protocol("a reply without all of its data"));
                }
                done(index, piece, *failed);
                under_way.remove(&cookie);
            }
        }
    }

    /// The block status of the server from `offset` on: at least one extent, or its error.
    pub(crate) fn block_status(
        &mut self,
        offset: u64,
        length: u32,
    ) -> Result<Result<Vec<Extent>, u32>, NbdError> {
        let data = TransferData::Command(command::BLOCK_STATUS);
        let sent = self.send(&Transfer { of: 0, offset, length, data }, 0)?;
        self.output.flush()?;
        let (mut extents, mut failed) = (Vec::new(), 0);
        loop {
            let (cookie, reply) = self.reply()?;
            if cookie != sent {
                return Err(NbdError::protocol("a reply to no request"));
            }
            let is_last = match reply {
                Reply::Simple { error } => {
                    failed = if error == 0 { crate::proto::errors::EINVAL } else { error };
                    true
                }
                Reply::Chunk { is_last, kind: chunk::BLOCK_STATUS, length: bytes } => {
                    if !(12..=STATUS_MAX).contains(&bytes) || bytes % 8 != 4 || !extents.is_empty()
                    {
                        return Err(NbdError::protocol("a block status of an invalid length"));
                    }
                    let context = read_u32(&mut self.input)?;
                    if Some(context) != self.info.allocation {
                        return Err(NbdError::protocol("a block status of another context"));
                    }
                    for _ in 0..bytes / 8 {
                        let length = u64::from(read_u32(&mut self.input)?);
                        let is_zero = read_u32(&mut self.input)? & STATE_ZERO != 0;
                        if length == 0 {
                            return Err(NbdError::protocol("an extent of no bytes"));
                        }
                        extents.push(Extent { length, is_zero });
                    }
                    is_last
                }
                Reply::Chunk { is_last, kind, length } => {
                    let error = error_of(&mut self.input, kind, length)?;
                    if failed == 0 {
                        failed = error;
                    }
                    is_last
                }
            };
            if is_last {
                break;
            }
        }
        match (failed, extents.is_empty()) {
            (0, false) => Ok(Ok(extents)),
            (0, true) => Err(NbdError::protocol("a block status without extents")),
            (error, _) => Ok(Err(error)),
        }
    }

    /// Tells the server that nothing follows.
    pub(crate) fn disconnect(&mut self) {
        let data = TransferData::Command(command::DISCONNECT);
        // The end of the connection says the same.
        let _ = self.send(&Transfer { of: 0, offset: 0, length: 0, data }, 0);
        let _ = self.output.flush();
    }
}

/// The contribution of a chunk to its request.
#[derive(Default)]
struct Came {
    /// Bytes of the piece.
    came: u64,
    error: u32,
}

fn chunk_of(
    input: &mut impl Read,
    piece: &mut Transfer<'_, '_>,
    kind: u16,
    length: u32,
) -> Result<Came, NbdError> {
    let start = piece.offset;
    let TransferData::Read(buffer) = &mut piece.data else {
        return Ok(Came { came: 0, error: error_of(input, kind, length)? });
    };
    let (offset, count) = match kind {
        chunk::OFFSET_DATA if length > 8 => (read_u64(input)?, u64::from(length) - 8),
        chunk::OFFSET_HOLE if length == 12 => (read_u64(input)?, u64::from(read_u32(input)?)),
        _ => return Ok(Came { came: 0, error: error_of(input, kind, length)? }),
    };
    let end = offset.checked_add(count).filter(|end| *end <= start + buffer.len() as u64);
    let Some(end) = end.filter(|_| offset >= start && count > 0) else {
        return Err(NbdError::protocol("data outside of the request"));
    };
    let part = &mut buffer[(offset - start) as usize..(end - start) as usize];
    match kind {
        chunk::OFFSET_DATA => input.read_exact(part)?,
        _ => part.fill(0),
    }
    Ok(Came { came: count, error: 0 })
}

/// The error of a chunk that is one, or 0 of one that says nothing.
fn error_of(input: &mut impl Read, kind: u16, length: u32) -> Result<u32, NbdError> {
    if kind == chunk::NONE && length == 0 {
        return Ok(0);
    }
    if kind < chunk::FIRST_ERROR || !(6..=ERROR_MAX).contains(&length) {
        return Err(NbdError::protocol(format!("chunk {kind} of {length} bytes")));
    }
    let error = read_u32(input)?;
    skip(input, u64::from(length) - 4)?;
    match error {
        0 => Err(NbdError::protocol("an error without a number")),
        error => Ok(error),
    }
}
