//! The device: a run of bytes, read and written in batches.
//!
//! The rules every device keeps:
//! - A batch is checked first. If one of its requests reaches past the end, or changes a read-only
//!   device, nothing of the batch is carried out, and only that request has the error.
//! - Requests between two flushes are unordered, in the batch and against other threads' batches.
//!   Two that overlap and of which one writes have no defined result, unless the first had returned
//!   before the second was submitted.
//! - A [`RequestKind::Flush`] orders: what came before it in the batch, and every request that had
//!   returned before the batch was submitted, is on the medium when the flush is done, and what
//!   comes after it in the batch is not begun before.
//! - A request is carried out wholly or it fails; a failed write may have changed any part of its
//!   range, and nothing else. A failure does not stop the other requests, but the next flush of the
//!   batch and all requests after it are not tried ([`Cause::NotTried`]): a commit block never
//!   overtakes the blocks that it commits.
//! - After `submit`, each request has its own [`RequestStatus`]; `submit` returns the first failure
//!   in the batch's order.
//! - Discarded bytes read as zeroes only if [`Device::discard_reads_zero`] is true.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Cause, DeviceError, Operation};

/// A run of bytes that can be read, written and flushed. See the [module](self) for the rules.
pub trait Device: Send + Sync + fmt::Debug {
    /// Bytes on the device.
    fn size(&self) -> u64;

    /// Carries out the requests and records each one's status.
    ///
    /// # Errors
    /// The first failure in the order of the batch.
    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError>;

    /// The first run of bytes in `range` that may hold something other than zeroes, cut to `range`;
    /// `None` where the rest reads as zeroes. A device that does not know returns `range` itself.
    ///
    /// # Errors
    /// The range reaches past the end, or the system failed.
    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError>;

    /// Whether requests that change the device are refused.
    fn is_read_only(&self) -> bool;

    /// Bytes that reach the medium together or not at all: a power cut does not tear them. 512 or
    /// 4096 in practice; a power of two.
    fn sector_size(&self) -> u32 {
        512
    }

    /// Whether a discarded range reads as zeroes afterwards.
    fn discard_reads_zero(&self) -> bool {
        false
    }

    /// Whether a discard gives space back to what holds the device.
    fn can_discard(&self) -> bool {
        self.discard_reads_zero()
    }

    /// Makes the device at least `size` bytes long; requests may be under way. The size of a file
    /// or block device is read again first, for another program may have made it longer. Then a
    /// file gets longer, and its new bytes read as zeroes; deciphered they are noise.
    ///
    /// # Errors
    /// The device cannot get longer, or the system refused. Its size is as before then.
    fn grow(&self, size: u64) -> Result<(), DeviceError> {
        if size <= self.size() {
            return Ok(());
        }
        let what = format!(
            "it has {} bytes, and this kind of device cannot get longer while it is open",
            self.size()
        );
        let source = std::io::Error::new(std::io::ErrorKind::Unsupported, what);
        Err(DeviceError::io(Operation::Resize, 0, size, source))
    }

    /// Lets the partition that the device is, the last one of a GPT, reach to the end of its image,
    /// and have at least `size` bytes: an image file gets longer for it. The table is on the medium
    /// when this returns; after a power cut one of its two copies is valid.
    ///
    /// # Errors
    /// The device is not a partition, its table cannot be changed for it, or the system refused.
    fn extend_partition(&self, size: u64) -> Result<(), DeviceError> {
        Err(DeviceError::not_a_partition(size))
    }

    /// Hints that bytes will be read soon, so that a device may prefetch them. Never waits and
    /// never fails; does nothing where there is nothing to fetch ahead into.
    fn will_need(&self, range: Range<u64>) {
        let _ = range;
    }

    /// About how many bytes of `range` a read would fetch from the medium, for the system's cache
    /// does not hold them; `None` if that is unknown, or if [`Device::read_around`] would do
    /// nothing.
    fn uncached(&self, range: Range<u64>) -> Option<u64> {
        let _ = range;
        None
    }

    /// Fills `buffer` from the bytes at `offset`, around the system's cache: for what is read once
    /// and in large pieces. Place, length and address are multiples of 4096; a device that asks for
    /// more does nothing. False: no valid data were read, and an ordinary read gets them or the
    /// error.
    fn read_around(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let _ = (offset, buffer);
        false
    }

    /// Writes the buffers one after the other at `offset`, around the system's cache: for much that
    /// is not read soon. Place, and length and address of each buffer, are multiples of 4096.
    /// False: not all was written, or nothing; an ordinary write does it or gets the error.
    fn write_around(&self, offset: u64, buffers: &[IoSlice<'_>]) -> bool {
        let _ = (offset, buffers);
        false
    }

    /// The runs of `range` that may hold data, in order, neither touching nor overlapping. The list
    /// grows with the fragments in the range: for a whole device of unknown shape, walk
    /// [`data_runs`] instead.
    ///
    /// # Errors
    /// As [`Device::next_data`].
    fn data_ranges(&self, range: Range<u64>) -> Result<Vec<Range<u64>>, DeviceError> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        let mut rest = range;
        while let Some(run) = self.next_data(rest.clone())? {
            rest.start = run.end;
            match runs.last_mut() {
                Some(last) if last.end == run.start => last.end = run.end,
                _ => runs.push(run),
            }
        }
        Ok(runs)
    }

    /// Fills `buffer` from the bytes at `offset`.
    ///
    /// # Errors
    /// Past the end, or the system failed.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.submit(&mut [Request::read(offset, buffer)])
    }

    /// Fills the buffers one after the other from the bytes at `offset`.
    ///
    /// # Errors
    /// As [`Device::read_at`].
    fn read_vectored_at(
        &self,
        offset: u64,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Result<(), DeviceError> {
        let buffers = buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
        self.submit(&mut [Request::read_vectored(offset, buffers)])
    }

    /// Writes `data` at `offset`.
    ///
    /// # Errors
    /// Past the end, read-only, or the system failed.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.submit(&mut [Request::write(offset, data)])
    }

    /// Writes the buffers one after the other at `offset`.
    ///
    /// # Errors
    /// As [`Device::write_at`].
    fn write_vectored_at(&self, offset: u64, buffers: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        self.submit(&mut [Request::write_vectored(offset, buffers.to_vec())])
    }

    /// Puts everything written so far on the medium.
    ///
    /// # Errors
    /// The system failed; what was written since the last flush may be lost.
    fn flush(&self) -> Result<(), DeviceError> {
        self.submit(&mut [Request::flush()])
    }

    /// Discards a range; [`Device::discard_reads_zero`] is whether it reads as zeroes then.
    ///
    /// # Errors
    /// Past the end, read-only, or the system failed. A device that cannot discard does nothing.
    fn discard(&self, range: Range<u64>) -> Result<(), DeviceError> {
        self.submit(&mut [Request::discard(range)])
    }

    /// Makes a range read as zeroes, without moving the zeroes where the device can.
    ///
    /// # Errors
    /// Past the end, read-only, or the system failed.
    fn write_zeroes(&self, range: Range<u64>) -> Result<(), DeviceError> {
        self.submit(&mut [Request::write_zeroes(range)])
    }
}

macro_rules! forward_device {
    ($($held:ty),*) => {$(
        impl<D: Device + ?Sized> Device for $held {
            fn size(&self) -> u64 {
                (**self).size()
            }
            fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
                (**self).submit(batch)
            }
            fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
                (**self).next_data(range)
            }
            fn is_read_only(&self) -> bool {
                (**self).is_read_only()
            }
            fn grow(&self, size: u64) -> Result<(), DeviceError> {
                (**self).grow(size)
            }
            fn extend_partition(&self, size: u64) -> Result<(), DeviceError> {
                (**self).extend_partition(size)
            }
            fn will_need(&self, range: Range<u64>) {
                (**self).will_need(range);
            }
            fn uncached(&self, range: Range<u64>) -> Option<u64> {
                (**self).uncached(range)
            }
            fn read_around(&self, offset: u64, buffer: &mut [u8]) -> bool {
                (**self).read_around(offset, buffer)
            }
            fn write_around(&self, offset: u64, buffers: &[IoSlice<'_>]) -> bool {
                (**self).write_around(offset, buffers)
            }
            fn sector_size(&self) -> u32 {
                (**self).sector_size()
            }
            fn discard_reads_zero(&self) -> bool {
                (**self).discard_reads_zero()
            }
            fn can_discard(&self) -> bool {
                (**self).can_discard()
            }
        }
    )*};
}
forward_device!(Arc<D>, Box<D>, &D);

/// Walks the runs of `range` that may hold data, one question to the device a run: nothing is kept,
/// so a device of any size and fragmentation may be walked. Ends after the first error.
pub fn data_runs<D: Device + ?Sized>(
    device: &D,
    range: Range<u64>,
) -> impl Iterator<Item = Result<Range<u64>, DeviceError>> {
    let mut rest = Some(range);
    std::iter::from_fn(move || {
        let left = rest.take()?;
        match device.next_data(left.clone()) {
            Ok(Some(run)) => {
                rest = Some(run.end..left.end);
                Some(Ok(run))
            }
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        }
    })
}

/// A request of a batch, with its status.
#[derive(Debug)]
pub struct Request<'a> {
    /// The kind of the request, with its buffers.
    pub kind: RequestKind<'a>,
    /// The status; [`RequestStatus::Pending`] before the batch is submitted.
    pub status: RequestStatus,
}

/// The kind of a request. Offsets and lengths are bytes; a length of 0 is allowed and does nothing.
#[derive(Debug)]
pub enum RequestKind<'a> {
    /// Fill the buffers from `offset` on.
    Read {
        /// First byte.
        offset: u64,
        /// Filled one after the other.
        buffers: ReadBuffers<'a>,
    },
    /// Write the buffers from `offset` on.
    Write {
        /// First byte.
        offset: u64,
        /// Written one after the other.
        buffers: WriteBuffers<'a>,
    },
    /// The range is not needed any more.
    Discard {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// The range is to read as zeroes.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// All earlier writes are to be on the medium.
    Flush,
}

/// The status of a request.
#[derive(Clone, Debug, Default)]
pub enum RequestStatus {
    /// Not submitted, or in a batch that was refused whole for another request's sake.
    #[default]
    Pending,
    /// Carried out wholly.
    Done,
    /// Not carried out, or in part.
    Failed(DeviceError),
}

impl RequestStatus {
    /// Whether the request was carried out.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }
}

/// The buffers of one read: mostly a single one, which costs no allocation.
#[derive(Debug)]
pub enum ReadBuffers<'a> {
    /// One buffer.
    One(IoSliceMut<'a>),
    /// Several, filled in order.
    Many(Vec<IoSliceMut<'a>>),
}

impl<'a> ReadBuffers<'a> {
    /// The buffers in order.
    pub fn slices(&self) -> &[IoSliceMut<'a>] {
        match self {
            Self::One(buffer) => std::slice::from_ref(buffer),
            Self::Many(buffers) => buffers,
        }
    }

    /// The buffers in order, to be filled.
    pub fn slices_mut(&mut self) -> &mut [IoSliceMut<'a>] {
        match self {
            Self::One(buffer) => std::slice::from_mut(buffer),
            Self::Many(buffers) => buffers,
        }
    }

    /// Bytes in all buffers.
    pub fn length(&self) -> u64 {
        self.slices().iter().map(|buffer| buffer.len() as u64).sum()
    }

    /// Fills each buffer by `read`, from its place on: the first one's is `offset`.
    ///
    /// # Errors
    /// The first failure, after which none is filled.
    pub fn fill<E>(
        &mut self,
        mut offset: u64,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.slices_mut().iter_mut().try_for_each(|buffer| {
            let at = offset;
            offset += buffer.len() as u64;
            read(at, buffer)
        })
    }
}

/// The buffers of one write: mostly a single one, which costs no allocation.
#[derive(Clone, Debug)]
pub enum WriteBuffers<'a> {
    /// One buffer.
    One(IoSlice<'a>),
    /// Several, written in order.
    Many(Vec<IoSlice<'a>>),
}

impl<'a> WriteBuffers<'a> {
    /// The buffers in order.
    pub fn slices(&self) -> &[IoSlice<'a>] {
        match self {
            Self::One(buffer) => std::slice::from_ref(buffer),
            Self::Many(buffers) => buffers,
        }
    }

    /// Bytes in all buffers.
    pub fn length(&self) -> u64 {
        self.slices().iter().map(|buffer| buffer.len() as u64).sum()
    }

    /// Writes each buffer by `write` to its place: the first one's is `offset`.
    ///
    /// # Errors
    /// The first failure, after which none is written.
    pub fn store<E>(
        &self,
        mut offset: u64,
        mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.slices().iter().try_for_each(|buffer| {
            let at = offset;
            offset += buffer.len() as u64;
            write(at, buffer)
        })
    }
}

impl<'a> Request<'a> {
    fn new(kind: RequestKind<'a>) -> Self {
        Self { kind, status: RequestStatus::Pending }
    }

    /// A read into one buffer.
    pub fn read(offset: u64, buffer: &'a mut [u8]) -> Self {
        Self::new(RequestKind::Read { offset, buffers: ReadBuffers::One(IoSliceMut::new(buffer)) })
    }

    /// A read into several buffers.
    pub fn read_vectored(offset: u64, buffers: Vec<IoSliceMut<'a>>) -> Self {
        Self::new(RequestKind::Read { offset, buffers: ReadBuffers::Many(buffers) })
    }

    /// A write from one buffer.
    pub fn write(offset: u64, data: &'a [u8]) -> Self {
        Self::new(RequestKind::Write { offset, buffers: WriteBuffers::One(IoSlice::new(data)) })
    }

    /// A write from several buffers.
    pub fn write_vectored(offset: u64, buffers: Vec<IoSlice<'a>>) -> Self {
        Self::new(RequestKind::Write { offset, buffers: WriteBuffers::Many(buffers) })
    }

    /// A discard. An inverted range is empty.
    pub fn discard(range: Range<u64>) -> Self {
        let length = range.end.saturating_sub(range.start);
        Self::new(RequestKind::Discard { offset: range.start, length })
    }

    /// A write of zeroes. An inverted range is empty.
    pub fn write_zeroes(range: Range<u64>) -> Self {
        let length = range.end.saturating_sub(range.start);
        Self::new(RequestKind::WriteZeroes { offset: range.start, length })
    }

    /// A flush.
    pub fn flush() -> Self {
        Self::new(RequestKind::Flush)
    }

    /// The kind of the request, without the buffers.
    pub fn operation(&self) -> Operation {
        match self.kind {
            RequestKind::Read { .. } => Operation::Read,
            RequestKind::Write { .. } => Operation::Write,
            RequestKind::Discard { .. } => Operation::Discard,
            RequestKind::WriteZeroes { .. } => Operation::WriteZeroes,
            RequestKind::Flush => Operation::Flush,
        }
    }

    /// First byte; 0 for a flush.
    pub fn offset(&self) -> u64 {
        match self.kind {
            RequestKind::Read { offset, .. }
            | RequestKind::Write { offset, .. }
            | RequestKind::Discard { offset, .. }
            | RequestKind::WriteZeroes { offset, .. } => offset,
            RequestKind::Flush => 0,
        }
    }

    /// Bytes; 0 for a flush.
    pub fn length(&self) -> u64 {
        match &self.kind {
            RequestKind::Read { buffers, .. } => buffers.length(),
            RequestKind::Write { buffers, .. } => buffers.length(),
            RequestKind::Discard { length, .. } | RequestKind::WriteZeroes { length, .. } => {
                *length
            }
            RequestKind::Flush => 0,
        }
    }

    /// Whether the request changes bytes; a flush does not.
    pub fn is_change(&self) -> bool {
        matches!(self.operation(), Operation::Write | Operation::Discard | Operation::WriteZeroes)
    }

    /// This request's error for `cause`.
    pub fn error(&self, cause: Cause) -> DeviceError {
        DeviceError {
            operation: self.operation(),
            offset: self.offset(),
            length: self.length(),
            cause,
        }
    }

    /// Moves the request: a device that is a layer on another counts differently.
    pub(crate) fn set_offset(&mut self, to: u64) {
        match &mut self.kind {
            RequestKind::Read { offset, .. }
            | RequestKind::Write { offset, .. }
            | RequestKind::Discard { offset, .. }
            | RequestKind::WriteZeroes { offset, .. } => *offset = to,
            RequestKind::Flush => {}
        }
    }
}

/// Checks a batch by the rules of the [module](self), before anything is carried out. The request
/// at fault gets the error as its status.
///
/// # Errors
/// A request reaches past `device.size()`, or changes a read-only device.
pub fn check_batch<D: Device + ?Sized>(
    device: &D,
    batch: &mut [Request<'_>],
) -> Result<(), DeviceError> {
    let size = device.size();
    for request in batch.iter_mut() {
        request.status = RequestStatus::Pending;
    }
    for request in batch {
        let fits = request.offset().checked_add(request.length()).is_some_and(|end| end <= size);
        let cause = if !fits {
            Cause::PastEnd { size }
        } else if request.is_change() && device.is_read_only() {
            Cause::ReadOnly
        } else {
            continue;
        };
        let error = request.error(cause);
        request.status = RequestStatus::Failed(error.clone());
        return Err(error);
    }
    Ok(())
}

/// Checks a range for [`Device::next_data`].
pub fn check_range(size: u64, range: &Range<u64>) -> Result<(), DeviceError> {
    if range.end <= size {
        return Ok(());
    }
    Err(DeviceError {
        operation: Operation::DataRanges,
        offset: range.start,
        length: range.end.saturating_sub(range.start),
        cause: Cause::PastEnd { size },
    })
}

/// Carries out a checked batch one request after the other through `perform`, keeping the rules of
/// the [module](self) for outcomes and flushes. A device with nothing to gain from a batch is this
/// and a `perform`.
///
/// # Errors
/// The first failure.
pub fn run_batch(
    batch: &mut [Request<'_>],
    mut perform: impl FnMut(&mut Request<'_>) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    let mut first_failure = None;
    let mut stopped = false;
    for request in batch {
        stopped |= first_failure.is_some() && matches!(request.kind, RequestKind::Flush);
        let result = if stopped { Err(request.error(Cause::NotTried)) } else { perform(request) };
        match result {
            Ok(()) => request.status = RequestStatus::Done,
            Err(error) => {
                request.status = RequestStatus::Failed(error.clone());
                first_failure.get_or_insert(error);
            }
        }
        // A failed flush is itself a barrier that did not hold.
        stopped |= first_failure.is_some() && matches!(request.kind, RequestKind::Flush);
    }
    first_failure.map_or(Ok(()), Err)
}

/// Carries out a checked batch of a device whose changes stay in memory, by what reads, writes and
/// zeroes bytes there. A discarded range is zeroed, and a flush has nothing to do.
///
/// # Errors
/// The first failure.
pub fn run_in_memory(
    batch: &mut [Request<'_>],
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), DeviceError>,
    mut write: impl FnMut(u64, &[u8]) -> Result<(), DeviceError>,
    mut zero: impl FnMut(Range<u64>) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    run_batch(batch, |request| match &mut request.kind {
        RequestKind::Read { offset, buffers } => buffers.fill(*offset, &mut read),
        RequestKind::Write { offset, buffers } => buffers.store(*offset, &mut write),
        RequestKind::Discard { length: 0, .. } | RequestKind::WriteZeroes { length: 0, .. } => {
            Ok(())
        }
        RequestKind::Discard { offset, length } | RequestKind::WriteZeroes { offset, length } => {
            zero(*offset..*offset + *length)
        }
        RequestKind::Flush => Ok(()),
    })
}

/// Carries out a checked batch of a device that is only read, by `read`, which fills bytes from a
/// place on. A failure is given the place of its request: one of a file below means nothing to the
/// caller.
///
/// # Errors
/// The first failure.
pub fn run_reads(
    batch: &mut [Request<'_>],
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    run_batch(batch, |request| {
        let done = match &mut request.kind {
            RequestKind::Read { offset, buffers } => buffers.fill(*offset, &mut read),
            RequestKind::Flush => Ok(()),
            _ => Err(request.error(Cause::ReadOnly)),
        };
        done.map_err(|error| request.error(error.cause))
    })
}
