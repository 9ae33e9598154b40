//! Runs of one or several devices, joined into one: device-mapper's linear target.

use std::ops::Range;
use std::sync::Arc;

use crate::device::{
    Device, ReadBuffers, Request, RequestKind, RequestStatus, WriteBuffers, check_batch,
    check_range, run_batch,
};
use crate::error::DeviceError;
use crate::slice::SliceError;

/// A run of a device that becomes a part of a [`LinearDevice`].
#[derive(Clone, Debug)]
pub struct LinearPart {
    /// The device.
    pub device: Arc<dyn Device>,
    /// First byte on it.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// Runs of devices, one after the other. Errors count from its own start.
#[derive(Debug)]
pub struct LinearDevice {
    /// With the byte at which each begins; none is empty.
    parts: Vec<(u64, LinearPart)>,
    /// Each device once.
    devices: Vec<Arc<dyn Device>>,
    size: u64,
}

/// Where a request lies that lies in one part.
struct Segment {
    part: usize,
    offset: u64,
}

impl LinearDevice {
    /// Joins the parts in their order. That no two lie on each other is for the caller to see to.
    ///
    /// # Errors
    /// A part reaches past the end of its device, or the sum is beyond all numbers.
    pub fn new(parts: Vec<LinearPart>) -> Result<Self, SliceError> {
        let mut placed = Vec::with_capacity(parts.len());
        let mut devices: Vec<Arc<dyn Device>> = Vec::new();
        let mut size = 0_u64;
        for part in parts {
            let whole = part.device.size();
            let error = SliceError { start: part.offset, size: part.size, whole };
            if part.offset.checked_add(part.size).is_none_or(|end| end > whole) {
                return Err(error);
            }
            if !devices.iter().any(|device| Arc::ptr_eq(device, &part.device)) {
                devices.push(part.device.clone());
            }
            if part.size > 0 {
                let start = size;
                size = size.checked_add(part.size).ok_or(error)?;
                placed.push((start, part));
            }
        }
        Ok(Self { parts: placed, devices, size })
    }

    /// The part that holds byte `at`, which lies on the device.
    fn part_at(&self, at: u64) -> usize {
        self.parts.partition_point(|(start, _)| *start <= at).saturating_sub(1)
    }

    /// Where a run lies that does not cross from one part to the next.
    fn segment(&self, offset: u64, length: u64) -> Option<Segment> {
        let part = self.part_at(offset);
        let (start, held) = self.parts.get(part)?;
        let within = offset - start;
        (within.checked_add(length)? <= held.size)
            .then(|| Segment { part, offset: held.offset + within })
    }

    /// The runs of a range, each within a part: the part's device, the place on it, and the bytes.
    fn runs(&self, range: Range<u64>) -> impl Iterator<Item = (&LinearPart, Range<u64>)> {
        let first = self.part_at(range.start);
        self.parts[first.min(self.parts.len())..].iter().map_while(move |(start, part)| {
            let from = range.start.max(*start);
            let to = range.end.min(start + part.size);
            (from < to).then(|| (part, from - start + part.offset..to - start + part.offset))
        })
    }

    /// One device only, and no request that crosses: the batch goes to it whole.
    fn submit_whole(&self, batch: &mut [Request<'_>]) -> Option<Result<(), DeviceError>> {
        let [device] = &self.devices[..] else { return None };
        let places: Option<Vec<u64>> = batch
            .iter()
            .map(|request| match request.kind {
                RequestKind::Flush => Some(0),
                _ => self.segment(request.offset(), request.length()).map(|segment| segment.offset),
            })
            .collect();
        let own: Vec<u64> = batch.iter().map(Request::offset).collect();
        for (request, segment) in batch.iter_mut().zip(places?) {
            request.set_offset(segment);
        }
        let result = device.submit(batch);
        let mut first = None;
        for (request, own) in batch.iter_mut().zip(own) {
            request.set_offset(own);
            if let RequestStatus::Failed(error) = &request.status {
                let error = request.error(error.cause.clone());
                first.get_or_insert(error.clone());
                request.status = RequestStatus::Failed(error);
            }
        }
        Some(result.map_err(|error| first.unwrap_or(error)))
    }

    fn perform(&self, request: &mut Request<'_>) -> Result<(), DeviceError> {
        let (offset, length) = (request.offset(), request.length());
        let range = offset..offset + length;
        match &mut request.kind {
            RequestKind::Read { buffers, .. } => match self.segment(offset, length) {
                Some(segment) => self.parts[segment.part]
                    .1
                    .device
                    .read_vectored_at(segment.offset, buffers.slices_mut()),
                None => self.read_across(range, buffers),
            },
            RequestKind::Write { buffers, .. } => match self.segment(offset, length) {
                Some(segment) => self.parts[segment.part]
                    .1
                    .device
                    .write_vectored_at(segment.offset, buffers.slices()),
                None => self.write_across(range, buffers),
            },
            RequestKind::Discard { .. } => {
                self.runs(range).try_for_each(|(part, run)| part.device.discard(run))
            }
            RequestKind::WriteZeroes { .. } => {
                self.runs(range).try_for_each(|(part, run)| part.device.write_zeroes(run))
            }
            RequestKind::Flush => self.devices.iter().try_for_each(|device| device.flush()),
        }
    }

    fn read_across(
        &self,
        range: Range<u64>,
        buffers: &mut ReadBuffers<'_>,
    ) -> Result<(), DeviceError> {
        let mut at = range.start;
        for buffer in buffers.slices_mut() {
            let mut rest: &mut [u8] = buffer;
            for (part, run) in self.runs(at..at + rest.len() as u64) {
                let (now, later) = rest.split_at_mut((run.end - run.start) as usize);
                part.device.read_at(run.start, now)?;
                at += now.len() as u64;
                rest = later;
            }
        }
        Ok(())
    }

    fn write_across(
        &self,
        range: Range<u64>,
        buffers: &WriteBuffers<'_>,
    ) -> Result<(), DeviceError> {
        let mut at = range.start;
        for buffer in buffers.slices() {
            let mut rest: &[u8] = buffer;
            for (part, run) in self.runs(at..at + rest.len() as u64) {
                let (now, later) = rest.split_at((run.end - run.start) as usize);
                part.device.write_at(run.start, now)?;
                at += now.len() as u64;
                rest = later;
            }
        }
        Ok(())
    }
}

impl Device for LinearDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        if let Some(result) = self.submit_whole(batch) {
            return result;
        }
        run_batch(batch, |request| {
            let result = self.perform(request);
            result.map_err(|error| request.error(error.cause))
        })
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        check_range(self.size, &range)?;
        let mut at = range.start;
        for (part, run) in self.runs(range) {
            let found = part.device.next_data(run.clone()).map_err(|mut error| {
                error.offset = at;
                error
            })?;
            if let Some(found) = found {
                let start = at + (found.start - run.start);
                return Ok(Some(start..start + (found.end - found.start)));
            }
            at += run.end - run.start;
        }
        Ok(None)
    }

    fn is_read_only(&self) -> bool {
        self.devices.iter().any(|device| device.is_read_only())
    }

    fn sector_size(&self) -> u32 {
        self.devices.iter().map(|device| device.sector_size()).max().unwrap_or(512)
    }

    fn will_need(&self, range: Range<u64>) {
        for (part, run) in self.runs(range) {
            part.device.will_need(run);
        }
    }

    fn discard_reads_zero(&self) -> bool {
        self.devices.iter().all(|device| device.discard_reads_zero())
    }

    fn can_discard(&self) -> bool {
        self.devices.iter().all(|device| device.can_discard())
    }
}
