//! A device that fails on request. The [recorder](crate::Recorder)'s module has the fault model.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use extant_device::{Device, Request, RequestKind, check_batch, run_batch};
use extant_device::{DeviceError, Operation};
use extant_runtime::sync::Mutex;

/// A failure to come: which requests it meets, and what happens to them.
#[derive(Clone, Debug)]
pub struct Fault {
    operation: Option<Operation>,
    range: Option<Range<u64>>,
    passes: u64,
    times: u64,
    effect: Effect,
}

/// The effect of a fault on a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effect {
    /// It fails with this error, and nothing is done.
    Error(io::ErrorKind),
    /// A write puts its first bytes, this many, on the device and fails. Other requests fail with
    /// nothing done.
    Short(u64),
    /// It reports success, and nothing is done: a lost write, a flush that lies. A read leaves its
    /// buffers as they were.
    Ignored,
    /// A read that covers this byte of the device gets it with these bits flipped. Other requests
    /// are carried out.
    FlippedBits {
        /// The byte on the device.
        at: u64,
        /// The bits.
        mask: u8,
    },
}

impl Fault {
    /// A fault that meets every request.
    pub fn new(effect: Effect) -> Self {
        Self { operation: None, range: None, passes: 0, times: u64::MAX, effect }
    }

    /// Writes fail for lack of space; the rest works.
    pub fn full() -> Self {
        Self::new(Effect::Error(io::ErrorKind::StorageFull)).on(Operation::Write)
    }

    /// Meets only this operation.
    pub fn on(mut self, operation: Operation) -> Self {
        self.operation = Some(operation);
        self
    }

    /// Meets only requests that touch the range. A flush touches none.
    pub fn within(mut self, range: Range<u64>) -> Self {
        self.range = Some(range);
        self
    }

    /// Number of matching requests that pass before it acts.
    pub fn after(mut self, passes: u64) -> Self {
        self.passes = passes;
        self
    }

    /// Number of requests after which it ends.
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    fn meets(&self, request: &Request<'_>) -> bool {
        let touches = |range: &Range<u64>| {
            request.offset() < range.end && range.start < request.offset() + request.length()
        };
        self.operation.is_none_or(|operation| operation == request.operation())
            && self.range.as_ref().is_none_or(touches)
    }
}

/// A device with faults. Without one it is the device below, except that batches are taken apart.
#[derive(Debug)]
pub struct FaultyDevice {
    inner: Arc<dyn Device>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    faults: Vec<Fault>,
    /// Requests that a fault met.
    met: u64,
}

impl FaultyDevice {
    /// A device without faults so far.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self { inner, state: Mutex::default() }
    }

    /// Adds a fault. If several match a request, the first one added acts.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.state.lock().faults.clear();
    }

    /// Requests that a fault met so far.
    pub fn faults_met(&self) -> u64 {
        self.state.lock().met
    }

    /// The effect on this request, counted.
    fn effect(&self, request: &Request<'_>) -> Option<Effect> {
        let mut state = self.state.lock();
        for fault in state.faults.iter_mut().filter(|fault| fault.times > 0 && fault.meets(request))
        {
            if fault.passes > 0 {
                fault.passes -= 1;
                continue;
            }
            fault.times -= 1;
            let effect = fault.effect;
            state.met += 1;
            return Some(effect);
        }
        None
    }

    fn perform(&self, request: &mut Request<'_>) -> Result<(), DeviceError> {
        let failed = |request: &Request<'_>, kind: io::ErrorKind| {
            let source = io::Error::new(kind, format!("injected: {kind}"));
            DeviceError::io(request.operation(), request.offset(), request.length(), source)
        };
        match self.effect(request) {
            None => self.inner.submit(std::slice::from_mut(request)),
            Some(Effect::Error(kind)) => Err(failed(request, kind)),
            Some(Effect::Short(bytes)) => {
                if let RequestKind::Write { offset, buffers } = &request.kind {
                    let data: Vec<u8> =
                        buffers.slices().iter().flat_map(|buffer| buffer.iter().copied()).collect();
                    let part = bytes.min(data.len() as u64) as usize;
                    self.inner.write_at(*offset, &data[..part])?;
                }
                Err(failed(request, io::ErrorKind::Other))
            }
            Some(Effect::Ignored) => Ok(()),
            Some(Effect::FlippedBits { at, mask }) => {
                self.inner.submit(std::slice::from_mut(request))?;
                flip(request, at, mask);
                Ok(())
            }
        }
    }
}

fn flip(request: &mut Request<'_>, at: u64, mask: u8) {
    let RequestKind::Read { offset, buffers } = &mut request.kind else { return };
    let Some(mut skip) = at.checked_sub(*offset) else { return };
    for buffer in buffers.slices_mut() {
        if skip < buffer.len() as u64 {
            buffer[skip as usize] ^= mask;
            return;
        }
        skip -= buffer.len() as u64;
    }
}

impl Device for FaultyDevice {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        run_batch(batch, |request| self.perform(request))
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        self.inner.next_data(range)
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }

    fn discard_reads_zero(&self) -> bool {
        self.inner.discard_reads_zero()
    }
}
