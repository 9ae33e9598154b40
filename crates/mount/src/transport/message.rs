//! A request as received, and the reply under construction.
//!
//! Both lie in buffers, placed so that what is written or read of a file starts at a page: the
//! kernel and the device move whole pages then.

use std::ops::Range;

use extant_device::AlignedBuffer;
use extant_ondisk::InodeNo;
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::abi::{InHeader, OutHeader, WriteIn};
use crate::attr::inode_of;
use crate::mountpoint::MAX_REQUEST;
use crate::server::Caller;

const PAGE: usize = 4096;
const IN_HEADER: usize = size_of::<InHeader>();
const OUT_HEADER: usize = size_of::<OutHeader>();
/// Offset of a request: the payload of WRITE then starts at a page.
const REQUEST_AT: usize = PAGE - IN_HEADER - size_of::<WriteIn>();
/// Offset of a reply: the payload of READ then starts at a page.
const REPLY_AT: usize = PAGE - OUT_HEADER;

/// Room for requests.
#[derive(Debug)]
pub(super) struct RequestBuffer(AlignedBuffer);

impl RequestBuffer {
    pub(super) fn new() -> Self {
        // The kernel requires room for a message of its largest size, with a page for the headers.
        Self(AlignedBuffer::new(PAGE + MAX_REQUEST as usize + PAGE, PAGE))
    }

    /// Where the kernel puts a request.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.0[REQUEST_AT..]
    }

    /// The request of `len` bytes that the kernel put there.
    ///
    /// # Errors
    /// It is shorter than its header's length, which no kernel sends.
    pub(super) fn request(&self, len: usize) -> Result<Request<'_>, Errno> {
        let bytes = self.0.get(REQUEST_AT..REQUEST_AT + len).ok_or(Errno::IO)?;
        let (header, _) = InHeader::read_from_prefix(bytes).map_err(|_| Errno::IO)?;
        // Bytes after the arguments belong to protocol extensions that were not negotiated.
        let extensions = usize::from(header.total_extlen) * 8;
        let end = (header.len as usize).checked_sub(extensions).ok_or(Errno::IO)?;
        let rest = bytes.get(IN_HEADER..end).ok_or(Errno::IO)?;
        Ok(Request { header, arguments: Arguments { first: None, rest } })
    }
}

/// A request that outlives its buffer.
#[derive(Debug)]
pub(super) struct OwnedRequest {
    header: InHeader,
    arguments: Box<[u8]>,
}

impl OwnedRequest {
    /// Of one that was read.
    pub(super) fn of(request: &Request<'_>) -> Self {
        Self { header: request.header, arguments: request.arguments.rest.into() }
    }

    pub(super) fn request(&self) -> Request<'_> {
        let arguments = Arguments { first: None, rest: &self.arguments };
        Request { header: self.header, arguments }
    }
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) header: InHeader,
    arguments: Arguments<'a>,
}

impl<'a> Request<'a> {
    /// One whose first argument lies apart from the others.
    pub(super) fn split(header: InHeader, first: &'a [u8], rest: &'a [u8]) -> Self {
        Self { header, arguments: Arguments { first: Some(first), rest } }
    }

    /// The inode that it is about. The kernel sends numbers only that it was given; another one is
    /// stale.
    pub(super) fn inode(&self) -> Result<InodeNo, Errno> {
        node(self.header.nodeid)
    }

    pub(super) fn caller(&self) -> Caller {
        Caller { uid: self.header.uid, gid: self.header.gid }
    }

    pub(super) fn arguments(&self) -> Arguments<'a> {
        self.arguments
    }
}

/// The inode of a number that a request carries.
pub(super) fn node(number: u64) -> Result<InodeNo, Errno> {
    inode_of(number).ok_or(Errno::STALE)
}

/// The arguments of a request, taken from the front.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arguments<'a> {
    /// The first, where it lies apart.
    first: Option<&'a [u8]>,
    rest: &'a [u8],
}

impl<'a> Arguments<'a> {
    pub(super) fn take<T: FromBytes + Immutable + KnownLayout>(&mut self) -> Result<T, Errno> {
        if let Some(first) = self.first.take() {
            let (value, _) = T::read_from_prefix(first).map_err(|_| Errno::INVAL)?;
            return Ok(value);
        }
        let (value, rest) = T::read_from_prefix(self.rest).map_err(|_| Errno::INVAL)?;
        self.rest = rest;
        Ok(value)
    }

    /// A name, which a zero byte ends.
    pub(super) fn name(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or(Errno::INVAL)?;
        let name = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(name)
    }

    pub(super) fn bytes(&mut self, len: u32) -> Result<&'a [u8], Errno> {
        let (bytes, rest) = self.rest.split_at_checked(len as usize).ok_or(Errno::INVAL)?;
        self.rest = rest;
        Ok(bytes)
    }
}

/// A buffer for replies.
#[derive(Debug)]
pub(super) struct ReplyBuffer {
    buffer: AlignedBuffer,
    looked_up: Vec<InodeNo>,
}

impl ReplyBuffer {
    pub(super) fn new() -> Self {
        let buffer = AlignedBuffer::new(PAGE + MAX_REQUEST as usize, PAGE);
        Self { buffer, looked_up: Vec::new() }
    }

    /// A new reply in this buffer.
    pub(super) fn reply(&mut self) -> Reply<'_> {
        Reply::over(&mut self.buffer[PAGE..], &mut self.looked_up)
    }

    /// A new reply whose bytes go elsewhere.
    pub(super) fn reply_into<'b>(&'b mut self, room: &'b mut [u8]) -> Reply<'b> {
        Reply::over(room, &mut self.looked_up)
    }

    /// The first `len` bytes of the reply.
    pub(super) fn content(&self, len: usize) -> &[u8] {
        &self.buffer[PAGE..PAGE + len]
    }

    /// Files whose lookup count the kernel increments when it gets the reply.
    pub(super) fn looked_up(&self) -> &[InodeNo] {
        &self.looked_up
    }

    /// The whole message: a reply of `len` bytes to the request `unique`, or an error in its place.
    pub(super) fn message(&mut self, unique: u64, outcome: Result<(), Errno>, len: usize) -> &[u8] {
        let whole: Range<usize> = REPLY_AT..PAGE + outcome.map_or(0, |()| len);
        // A message is at most a little over MAX_REQUEST bytes.
        let header = OutHeader::new(unique, outcome, whole.len() as u32);
        self.buffer[REPLY_AT..PAGE].copy_from_slice(header.as_bytes());
        &self.buffer[whole]
    }
}

impl OutHeader {
    /// The header of a reply or of an error; `len` includes it.
    pub(super) fn new(unique: u64, outcome: Result<(), Errno>, len: u32) -> Self {
        Self { len, error: outcome.map_or_else(|errno| -errno.raw_os_error(), |()| 0), unique }
    }
}

/// A reply under construction.
#[derive(Debug)]
pub(super) struct Reply<'b> {
    room: &'b mut [u8],
    len: usize,
    /// Files whose lookup count the kernel increments when it gets the reply.
    looked_up: &'b mut Vec<InodeNo>,
}

impl<'b> Reply<'b> {
    fn over(room: &'b mut [u8], looked_up: &'b mut Vec<InodeNo>) -> Self {
        looked_up.clear();
        Self { room, len: 0, looked_up }
    }

    /// Starts over.
    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.looked_up.clear();
    }

    /// The free part after the present bytes, at most `len` bytes.
    pub(super) fn room(&mut self, len: usize) -> &mut [u8] {
        let end = self.room.len().min(self.len + len);
        &mut self.room[self.len..end]
    }

    /// Adds `len` bytes that were written into the free part.
    pub(super) fn advance(&mut self, len: usize) {
        self.len += len;
    }

    pub(super) fn put_bytes(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let room = self.room(bytes.len());
        if room.len() < bytes.len() {
            return Err(Errno::TOOBIG);
        }
        room.copy_from_slice(bytes);
        self.advance(bytes.len());
        Ok(())
    }

    pub(super) fn put<T: IntoBytes + Immutable>(&mut self, value: &T) -> Result<(), Errno> {
        self.put_bytes(value.as_bytes())
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Records that the reply increments the lookup count of a file.
    pub(super) fn count_lookup(&mut self, inode: InodeNo) {
        self.looked_up.push(inode);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(opcode: u32, arguments: &[u8]) -> (RequestBuffer, usize) {
        let mut buffer = RequestBuffer::new();
        let len = IN_HEADER + arguments.len();
        let words = [len as u32, opcode, 7, 0, 12, 0, 1000, 100, 1, 0];
        buffer.room()[..IN_HEADER].copy_from_slice(words.as_bytes());
        buffer.room()[IN_HEADER..len].copy_from_slice(arguments);
        (buffer, len)
    }

    #[test]
    fn names_are_taken_up_to_their_zero_byte() {
        let (buffer, len) = raw(11, b"one\0two\0");
        let request = buffer.request(len).expect("whole");
        assert_eq!(request.inode(), Ok(InodeNo(12)));
        assert_eq!(request.caller(), Caller { uid: 1000, gid: 100 });
        let mut arguments = request.arguments();
        assert_eq!((arguments.name(), arguments.name()), (Ok(&b"one"[..]), Ok(&b"two"[..])));
        assert_eq!(arguments.name(), Err(Errno::INVAL));
        assert_eq!(arguments.take::<WriteIn>().map(|_| ()), Err(Errno::INVAL));
    }

    #[test]
    fn a_request_that_is_cut_short_is_refused() {
        let (buffer, len) = raw(11, b"one\0");
        assert_eq!(buffer.request(len - 1).map(|_| ()), Err(Errno::IO));
        assert_eq!(buffer.request(IN_HEADER - 1).map(|_| ()), Err(Errno::IO));
    }

    #[test]
    fn what_is_written_and_read_of_files_starts_at_a_page() {
        let (buffer, len) = raw(16, &[0; size_of::<WriteIn>() + 5]);
        let mut arguments = buffer.request(len).expect("whole").arguments();
        arguments.take::<WriteIn>().expect("there");
        assert_eq!(arguments.bytes(5).expect("there").as_ptr() as usize % PAGE, 0);
        assert_eq!(ReplyBuffer::new().reply().room(1).as_ptr() as usize % PAGE, 0);
    }

    #[test]
    fn a_reply_has_its_length_or_an_error_alone() {
        let mut buffer = ReplyBuffer::new();
        let mut reply = buffer.reply();
        reply.put_bytes(b"four").expect("room");
        let len = reply.len();
        assert_eq!(buffer.message(9, Ok(()), len)[..8], [20, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(buffer.message(9, Ok(()), len)[16..], *b"four");
        let error = buffer.message(9, Err(Errno::NOENT), len);
        assert_eq!(error, [16u32, (-2i32).cast_unsigned(), 9, 0].as_bytes());
    }

    #[test]
    fn the_first_argument_may_lie_apart() {
        let (buffer, len) = raw(45, &[]);
        let header = buffer.request(len).expect("whole").header;
        let first = [7u64, 9].as_bytes().to_vec();
        let request = Request::split(header, &first, b"one\0two\0");
        let mut arguments = request.arguments();
        assert_eq!(arguments.take::<u64>(), Ok(7));
        assert_eq!((arguments.name(), arguments.name()), (Ok(&b"one"[..]), Ok(&b"two"[..])));
        assert_eq!(arguments.bytes(1), Err(Errno::INVAL));
    }
}
