//! An image of imago's as a device.

use std::any::Any;
use std::fmt;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use extant_device::{
    Device, DeviceError, FileDevice, Operation, Request, check_batch, check_range, run_reads,
};
use imago::Mapping;

use super::files::Access;

pub(super) struct VmDevice {
    image: Access,
    size: u64,
    /// The files stay locked as long as the device is there.
    files: Vec<Arc<FileDevice>>,
}

impl VmDevice {
    pub(super) fn new(image: Access, files: Vec<Arc<FileDevice>>) -> Self {
        Self { size: image.size(), image, files }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let length = buffer.len() as u64;
        caught(|| self.image.read(buffer, offset))
            .map_err(|source| DeviceError::io(Operation::Read, offset, length, source))
    }

    /// Whether the bytes from `at` on may be other than zeroes, and where that ends: past `at` and
    /// at `end` at most.
    fn mapping(&self, at: u64, end: u64) -> io::Result<(bool, u64)> {
        let (is_data, length) = caught(|| {
            let (mapping, length) = self.image.get_mapping(at, end - at)?;
            Ok((!matches!(mapping, Mapping::Zero { .. } | Mapping::Eof { .. }), length))
        })?;
        match length {
            // Nothing follows.
            0 => Ok((false, end)),
            length => Ok((is_data, at.saturating_add(length).min(end))),
        }
    }
}

impl Device for VmDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        run_reads(batch, |offset, buffer| self.read(offset, buffer))
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        check_range(self.size, &range)?;
        let failed = |source| {
            let length = range.end - range.start;
            DeviceError::io(Operation::DataRanges, range.start, length, source)
        };
        let mut at = range.start;
        while at < range.end {
            let (is_data, end) = self.mapping(at, range.end).map_err(failed)?;
            if is_data {
                return Ok(Some(at..end));
            }
            at = end;
        }
        Ok(None)
    }

    fn is_read_only(&self) -> bool {
        true
    }
}

impl fmt::Debug for VmDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VmDevice")
            .field("size", &self.size)
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

/// Runs a call of imago; a panic is an error.
pub(super) fn caught<T>(call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let message = message_of(&*panic);
        Err(io::Error::new(io::ErrorKind::InvalidData, format!("damaged image: {message}")))
    })
}

fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("imago failed")
}
