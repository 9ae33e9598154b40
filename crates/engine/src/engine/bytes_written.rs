//! The bytes written to a volume's devices: the superblock counts them over the volume's life
//! (`s_kbytes_written`). While the volume is frozen nothing is; and nothing is any more once
//! another host has taken it, or it was shut down.

use super::health::Health;
use crate::ranks::WriteGateLock;
use extant_device::{Device, DeviceError, Operation, Request};
use extant_runtime::sync::atomic::{AtomicU64, Ordering};
use extant_runtime::sync::{Condvar, Mutex};
use std::ops::Range;
use std::sync::Arc;

/// Set while writes are held back; the writes in progress are counted above it.
const CLOSED: u64 = 1;
const ONE_WRITE: u64 = 2;

/// Blocks all writes while it is closed.
#[derive(Debug, Default)]
struct WriteGate {
    word: AtomicU64,
    lock: Mutex<(), WriteGateLock>,
    changed: Condvar,
}

/// A write in progress.
struct Passed<'a>(&'a WriteGate);

impl WriteGate {
    /// Waits until the gate is open.
    fn pass(&self) -> Passed<'_> {
        loop {
            let before = self.word.fetch_add(ONE_WRITE, Ordering::AcqRel);
            let passed = Passed(self);
            if before & CLOSED == 0 {
                return passed;
            }
            drop(passed);
            let mut held = self.lock.lock();
            while self.word.load(Ordering::Acquire) & CLOSED != 0 {
                self.changed.wait(&mut held);
            }
        }
    }

    /// Blocks new writes, and waits until writes in progress are done.
    fn close(&self) {
        self.word.fetch_or(CLOSED, Ordering::AcqRel);
        let mut held = self.lock.lock();
        while self.word.load(Ordering::Acquire) >= ONE_WRITE {
            self.changed.wait(&mut held);
        }
    }

    fn open(&self) {
        let held = self.lock.lock();
        self.word.fetch_and(!CLOSED, Ordering::AcqRel);
        drop(held);
        self.changed.notify_all();
    }
}

impl Drop for Passed<'_> {
    fn drop(&mut self) {
        let before = self.0.word.fetch_sub(ONE_WRITE, Ordering::AcqRel);
        if before == CLOSED | ONE_WRITE {
            // `close` checks the count under this lock: without it the wakeup could come between
            // its check and its wait.
            drop(self.0.lock.lock());
            self.0.changed.notify_all();
        }
    }
}

/// A device, and the bytes that were written to it. It takes no writes any more when another host
/// has taken the volume.
#[derive(Debug)]
pub(crate) struct CountedDevice {
    inner: Arc<dyn Device>,
    gate: WriteGate,
    /// Bytes that [`Self::take_kib`] has not given yet.
    written: AtomicU64,
    health: Arc<Health>,
}

impl CountedDevice {
    pub(crate) fn new(inner: Arc<dyn Device>, health: Arc<Health>) -> Self {
        Self { inner, gate: WriteGate::default(), written: AtomicU64::new(0), health }
    }

    /// Blocks new writes, and waits until writes in progress are done. Operations have ended before
    /// (the journal is frozen), so that none of them waits here.
    pub(crate) fn hold_writes(&self) {
        self.gate.close();
    }

    /// Allows writes again.
    pub(crate) fn let_writes_pass(&self) {
        self.gate.open();
    }

    /// Whole KiB that were written since the last call.
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
        let writes =
            |request: &Request<'_>| changes(request) && request.operation() != Operation::Flush;
        let _passed = batch.iter().any(writes).then(|| self.gate.pass());
        if let Some(refusal) = self.health.refusal()
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

    fn grow(&self, size: u64) -> Result<(), DeviceError> {
        self.inner.grow(size)
    }

    fn extend_partition(&self, size: u64) -> Result<(), DeviceError> {
        self.inner.extend_partition(size)
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
