//! A part of another device: a linear run of it.

use std::fmt;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use extant_runtime::sync::atomic::{AtomicU64, Ordering};

use crate::device::{Device, Request, RequestStatus, check_batch, check_range};
use crate::error::{DeviceError, Operation};

/// Bytes `start..start + size` of another device, as a device of its own. Errors count from the
/// slice's start.
#[derive(Debug)]
pub struct SliceDevice {
    whole: Arc<dyn Device>,
    start: u64,
    /// It only gets longer.
    size: AtomicU64,
    end: Option<Box<dyn SliceEnd>>,
}

/// Says where a slice ends that may get longer while it is open: a partition's table does.
pub trait SliceEnd: fmt::Debug + Send + Sync {
    /// The number of bytes that the slice of `size` bytes from `start` on may have now, if `wanted`
    /// are needed; the whole device may get longer for it.
    ///
    /// # Errors
    /// Fewer than `wanted`, or the device failed.
    fn reach(
        &self,
        whole: &Arc<dyn Device>,
        slice: Range<u64>,
        wanted: u64,
    ) -> Result<u64, DeviceError>;

    /// As [`SliceEnd::reach`], after the end was moved as far as it can be: see
    /// [`Device::extend_partition`]. Only the end of a partition can be moved.
    ///
    /// # Errors
    /// It cannot be moved, or the device failed.
    fn extend(
        &self,
        whole: &Arc<dyn Device>,
        slice: Range<u64>,
        wanted: u64,
    ) -> Result<u64, DeviceError> {
        let _ = (whole, slice);
        Err(DeviceError::not_a_partition(wanted))
    }
}

/// A slice that does not fit its device.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "a slice of {size} bytes at byte {start} extends past the end of the device ({whole} bytes)"
)]
pub struct SliceError {
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// Bytes on the device.
    pub whole: u64,
}

impl SliceDevice {
    /// The `size` bytes from `start` on.
    ///
    /// # Errors
    /// They reach past the end of the device.
    pub fn new(whole: Arc<dyn Device>, start: u64, size: u64) -> Result<Self, SliceError> {
        match start.checked_add(size) {
            Some(end) if end <= whole.size() => {
                Ok(Self { whole, start, size: AtomicU64::new(size), end: None })
            }
            _ => Err(SliceError { start, size, whole: whole.size() }),
        }
    }

    /// The slice gets longer as `end` allows it.
    #[must_use]
    pub fn with_end(mut self, end: impl SliceEnd + 'static) -> Self {
        self.end = Some(Box::new(end));
        self
    }

    fn slice(&self) -> Range<u64> {
        self.start..self.start + self.size()
    }

    /// Has `size` bytes now if these lie on the whole device, and more than before.
    fn set_size(&self, size: u64) {
        if self.start.checked_add(size).is_some_and(|end| end <= self.whole.size()) {
            self.size.fetch_max(size, Ordering::AcqRel);
        }
    }

    /// Where the slice begins on the whole device, in bytes.
    pub fn start(&self) -> u64 {
        self.start
    }

    fn outward(&self, mut error: DeviceError) -> DeviceError {
        error.offset = error.offset.saturating_sub(self.start);
        error
    }
}

impl Device for SliceDevice {
    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn grow(&self, size: u64) -> Result<(), DeviceError> {
        if let Some(end) = &self.end {
            self.whole.grow(0).map_err(|error| self.outward(error))?;
            self.set_size(end.reach(&self.whole, self.slice(), size)?);
        }
        if size <= self.size() {
            return Ok(());
        }
        let what = format!("the part of the image has {} bytes", self.size());
        let full = std::io::Error::new(std::io::ErrorKind::StorageFull, what);
        Err(DeviceError::io(Operation::Resize, 0, size, full))
    }

    fn extend_partition(&self, size: u64) -> Result<(), DeviceError> {
        let Some(end) = &self.end else { return Err(DeviceError::not_a_partition(size)) };
        self.whole.grow(0).map_err(|error| self.outward(error))?;
        self.set_size(end.extend(&self.whole, self.slice(), size)?);
        Ok(())
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        for request in batch.iter_mut() {
            request.set_offset(self.start + request.offset());
        }
        let result = self.whole.submit(batch);
        for request in batch.iter_mut() {
            request.set_offset(request.offset().saturating_sub(self.start));
            if let RequestStatus::Failed(error) = &mut request.status {
                *error = self.outward(error.clone());
            }
        }
        result.map_err(|error| self.outward(error))
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        check_range(self.size(), &range)?;
        if range.is_empty() {
            return Ok(None);
        }
        let run = self.whole.next_data(self.start + range.start..self.start + range.end);
        let run = run.map_err(|error| self.outward(error))?;
        Ok(run.map(|run| run.start - self.start..run.end - self.start))
    }

    fn is_read_only(&self) -> bool {
        self.whole.is_read_only()
    }

    fn sector_size(&self) -> u32 {
        self.whole.sector_size()
    }

    fn will_need(&self, range: Range<u64>) {
        let end = range.end.min(self.size());
        if range.start < end {
            self.whole.will_need(self.start + range.start..self.start + end);
        }
    }

    fn uncached(&self, range: Range<u64>) -> Option<u64> {
        check_range(self.size(), &range).ok()?;
        self.whole.uncached(self.start + range.start..self.start + range.end)
    }

    fn read_around(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let end = offset.checked_add(buffer.len() as u64);
        end.is_some_and(|end| end <= self.size())
            && self.whole.read_around(self.start + offset, buffer)
    }

    fn write_around(&self, offset: u64, buffers: &[IoSlice<'_>]) -> bool {
        let length: u64 = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        let end = offset.checked_add(length);
        end.is_some_and(|end| end <= self.size())
            && self.whole.write_around(self.start + offset, buffers)
    }

    fn discard_reads_zero(&self) -> bool {
        self.whole.discard_reads_zero()
    }

    fn can_discard(&self) -> bool {
        self.whole.can_discard()
    }
}
