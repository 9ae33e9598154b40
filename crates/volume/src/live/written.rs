//! What is written to a volume's devices: the superblock counts it over the volume's life (`s_kbytes_written`). Once another host has
//! taken the volume, or it was shut down, nothing is.

use super::status::Status;
use extant_device::sync::atomic::{AtomicU64, Ordering};
use extant_device::{Device, DeviceError, Operation, Request};
use std::ops::Range;
use std::sync::Arc;

/// A device, and the bytes that were written to it. It takes no writes any more when another host has taken the volume.
#[derive(Debug)]
pub(crate) struct CountedDevice {
    inner: Arc<dyn Device>,
    /// Bytes that [`Self::take_kib`] has not given yet.
    written: AtomicU64,
    status: Arc<Status>,
}

impl CountedDevice {
    pub(crate) fn new(inner: Arc<dyn Device>, status: Arc<Status>) -> Self {
        Self { inner, written: AtomicU64::new(0), status }
    }

    /// Whole KiB that were written since this was asked last.
    pub(crate) fn take_kib(&self) -> u64 {
        let bytes = self.written.load(Ordering::Relaxed) / 1024 * 1024;
        self.written.fetch_sub(bytes, Ordering::Relaxed);
        bytes / 1024
    }
}

impl Device for CountedDevice {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        let changes = |request: &Request<'_>| request.operation() != Operation::Read;
        if let Some(refusal) = self.status.refusal()
            && batch.iter().any(changes)
        {
            return Err(refusal);
        }
        let writes = batch.iter().filter(|request| request.operation() == Operation::Write);
        let bytes: u64 = writes.map(Request::length).sum();
        if bytes > 0 {
            self.written.fetch_add(bytes, Ordering::Relaxed);
        }
        self.inner.submit(batch)
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        self.inner.next_data(range)
    }

    fn data_ranges(&self, range: Range<u64>) -> Result<Vec<Range<u64>>, DeviceError> {
        self.inner.data_ranges(range)
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn will_need(&self, range: Range<u64>) {
        self.inner.will_need(range);
    }

    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }

    fn discard_reads_zero(&self) -> bool {
        self.inner.discard_reads_zero()
    }
}
