//! A device whose unreadable sectors read as zeros and are listed.

use std::ops::Range;
use std::sync::Arc;

use rangemap::RangeSet;

use crate::device::{Device, Request, RequestKind, check_batch, check_range, run_batch};
use crate::errno;
use crate::error::{Cause, DeviceError};
use extant_runtime::sync::Mutex;

/// Reads of another device that cannot fail for its medium: a sector that the medium does not give
/// reads as zeros, and [`Self::unreadable`] lists it. It is not read a second time. The device
/// below is never written.
///
/// Only errors of the medium are passed over (`EIO`, `ENODATA`, `EILSEQ`, `EREMOTEIO`): a device
/// that is gone or a connection that is lost stays an error.
#[derive(Debug)]
pub struct LossyDevice<D = Arc<dyn Device>> {
    base: D,
    size: u64,
    unreadable: Mutex<RangeSet<u64>>,
}

impl<D: Device> LossyDevice<D> {
    /// A device of the size of the one below.
    pub fn new(base: D) -> Self {
        let size = base.size();
        Self { base, size, unreadable: Mutex::default() }
    }

    /// Bytes that are known to be unreadable. They are not read. Those past the end are left out.
    #[must_use]
    pub fn with_unreadable(self, ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut unreadable = self.unreadable.lock();
        let cut = |range: Range<u64>| range.start..range.end.min(self.size);
        let ranges = ranges.into_iter().map(cut).filter(|range| !range.is_empty());
        unreadable.extend(ranges);
        drop(unreadable);
        self
    }

    /// The device with a size of `size`, if it is shorter: the bytes that it lacks are unreadable.
    #[must_use]
    pub fn extended_to(mut self, size: u64) -> Self {
        if size > self.size {
            self.unreadable.lock().insert(self.size..size);
            self.size = size;
        }
        self
    }

    /// The bytes that could not be read so far, in the order of the device.
    pub fn unreadable(&self) -> Vec<Range<u64>> {
        self.unreadable.lock().iter().cloned().collect()
    }

    /// The parts of a range that are not known to be unreadable.
    fn readable(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        self.unreadable.lock().gaps(range).collect()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let range = offset..offset + buffer.len() as u64;
        let readable = self.readable(&range);
        if readable != [range] {
            buffer.fill(0);
        }
        for part in readable {
            let within = (part.start - offset) as usize..(part.end - offset) as usize;
            self.read_part(part.start, &mut buffer[within])?;
        }
        Ok(())
    }

    /// Reads what can be read of a part: one that fails is read in halves, down to a sector.
    fn read_part(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let Err(error) = self.base.read_at(offset, buffer) else { return Ok(()) };
        if !is_of_medium(&error) {
            return Err(error);
        }
        let sector = u64::from(self.base.sector_size().max(1));
        let end = offset + buffer.len() as u64;
        let middle = (offset + (end - offset) / 2) / sector * sector;
        let middle = if middle > offset { middle } else { (offset / sector + 1) * sector };
        if middle < end {
            let (first, second) = buffer.split_at_mut((middle - offset) as usize);
            self.read_part(offset, first)?;
            return self.read_part(middle, second);
        }
        buffer.fill(0);
        let start = offset / sector * sector;
        self.unreadable.lock().insert(start..(start + sector).max(end).min(self.size));
        Ok(())
    }
}

/// Whether a read failed because the medium does not give the bytes.
fn is_of_medium(error: &DeviceError) -> bool {
    let numbers = [libc::EIO, libc::ENODATA, libc::EILSEQ, libc::EREMOTEIO];
    match &error.cause {
        Cause::Io(source) => numbers.contains(&errno::of_io(source)),
        Cause::PastEnd { .. } | Cause::ReadOnly | Cause::NotTried => false,
    }
}

impl<D: Device> Device for LossyDevice<D> {
    fn size(&self) -> u64 {
        self.size
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        run_batch(batch, |request| match &mut request.kind {
            RequestKind::Read { offset, buffers } => {
                buffers.fill(*offset, |at, buffer| self.read(at, buffer))
            }
            // A flush has nothing to do, and changes were refused.
            _ => Ok(()),
        })
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        check_range(self.size, &range)?;
        let below = range.start..range.end.min(self.base.size());
        if below.is_empty() {
            return Ok(None);
        }
        // A search that fails finds no holes.
        Ok(self.base.next_data(below.clone()).unwrap_or(Some(below)))
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn sector_size(&self) -> u32 {
        self.base.sector_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryDevice, Operation};
    use std::io;

    /// A device with sectors that cannot be read.
    #[derive(Debug)]
    struct Bad {
        inner: MemoryDevice,
        sectors: Vec<u64>,
        errno: i32,
    }

    impl Device for Bad {
        fn size(&self) -> u64 {
            self.inner.size()
        }

        fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
            run_batch(batch, |request| {
                let touched = request.offset()..request.offset() + request.length();
                let is_bad = |it: &u64| *it * 512 < touched.end && (*it + 1) * 512 > touched.start;
                if self.sectors.iter().any(is_bad) {
                    let error = io::Error::from_raw_os_error(self.errno);
                    let length = request.length();
                    return Err(DeviceError::io(Operation::Read, touched.start, length, error));
                }
                self.inner.submit(std::slice::from_mut(request))
            })
        }

        fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
            self.inner.next_data(range)
        }

        fn is_read_only(&self) -> bool {
            true
        }
    }

    fn bad(sectors: &[u64], errno: i32) -> Bad {
        let inner = MemoryDevice::new(64 << 10);
        inner.write_at(0, &[7; 64 << 10]).expect("memory");
        Bad { inner, sectors: sectors.to_vec(), errno }
    }

    #[test]
    fn a_bad_sector_reads_as_zeros_and_the_sectors_around_it_are_read() {
        let device = LossyDevice::new(bad(&[3, 4, 90], libc::EIO));
        let mut bytes = vec![0; 64 << 10];
        device.read_at(0, &mut bytes).expect("nothing fails");
        for (sector, bytes) in bytes.chunks(512).enumerate() {
            let expected = if [3, 4, 90].contains(&sector) { 0 } else { 7 };
            assert!(bytes.iter().all(|byte| *byte == expected), "{sector}");
        }
        assert_eq!(device.unreadable(), [1536..2560, 46080..46592]);
        let mut few = [1; 100];
        device.read_at(1500, &mut few).expect("nothing fails");
        assert!(few[..36] == [7; 36] && few[36..] == [0; 64]);
    }

    #[test]
    fn bytes_that_are_known_to_be_unreadable_are_not_read() {
        let device = LossyDevice::new(bad(&[2], libc::EIO));
        let device = device.with_unreadable([1000..1100, 63 << 10..1 << 40]);
        let mut bytes = [1; 1100];
        device.read_at(0, &mut bytes[..1024]).expect("nothing fails");
        assert!(bytes[..1000] == [7; 1000] && bytes[1000..1024] == [0; 24]);
        assert_eq!(device.unreadable(), [1000..1100, 63 << 10..64 << 10]);
    }

    #[test]
    fn what_a_short_device_lacks_reads_as_zeros() {
        let device = LossyDevice::new(bad(&[], 0)).extended_to(65 << 10);
        let mut bytes = [1; 2048];
        device.read_at(63 << 10, &mut bytes).expect("nothing fails");
        assert!(bytes[..1024] == [7; 1024] && bytes[1024..] == [0; 1024]);
        assert_eq!(device.unreadable(), vec![64 << 10..65 << 10; 1]);
        assert!(device.write_at(0, &[0]).is_err());
    }

    #[test]
    fn a_device_that_is_gone_stays_an_error() {
        let device = LossyDevice::new(bad(&[0], libc::ENODEV));
        assert!(device.read_at(0, &mut [0; 512]).is_err());
        assert!(device.unreadable().is_empty());
    }
}
