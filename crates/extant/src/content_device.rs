//! The contents of a file in a volume, as a device.

use std::fmt;
use std::io;
use std::ops::Range;

use extant_device::{
    Device, DeviceError, Operation, Request, RequestKind, check_batch, check_range, run_batch,
};
use extant_engine::ops::FallocateMode;

use crate::file::File;
use crate::path_error::PathError;

/// The contents of a file in a volume, as a device of their size: an image in an image. The file
/// keeps its size; what is discarded becomes a hole.
pub struct ContentDevice {
    file: File,
    size: u64,
    is_read_only: bool,
}

impl ContentDevice {
    /// The device of `file`, which is only read unless it was opened for writing.
    ///
    /// # Errors
    /// The inode is broken.
    pub fn new(file: File) -> Result<Self, PathError> {
        let size = file.metadata()?.len();
        let is_read_only = !file.is_writable();
        Ok(Self { file, size, is_read_only })
    }

    fn read(&self, mut offset: u64, mut buffer: &mut [u8]) -> Result<(), PathError> {
        while !buffer.is_empty() {
            let count = self.file.read_at(buffer, offset)?;
            if count == 0 {
                // Another user has cut the file: what is gone reads as zeroes.
                buffer.fill(0);
                break;
            }
            buffer = &mut buffer[count..];
            offset += count as u64;
        }
        Ok(())
    }

    fn perform(&self, request: &mut Request<'_>) -> Result<(), DeviceError> {
        let (operation, at, length) = (request.operation(), request.offset(), request.length());
        let done = match &mut request.kind {
            RequestKind::Read { offset, buffers } => {
                buffers.fill(*offset, |at, buffer| self.read(at, buffer))
            }
            RequestKind::Write { offset, buffers } => {
                buffers.store(*offset, |at, buffer| self.file.write_all_at(buffer, at))
            }
            RequestKind::Discard { .. } | RequestKind::WriteZeroes { .. } if length == 0 => Ok(()),
            RequestKind::Discard { offset, length }
            | RequestKind::WriteZeroes { offset, length } => {
                self.file.allocate(FallocateMode::PunchHole, *offset, *length)
            }
            RequestKind::Flush if self.is_read_only => Ok(()),
            RequestKind::Flush => self.file.sync_data(),
        };
        done.map_err(|error| DeviceError::io(operation, at, length, to_io(error)))
    }
}

/// With the number of the error, which a server passes on.
fn to_io(error: PathError) -> io::Error {
    io::Error::from_raw_os_error(error.errno())
}

impl Device for ContentDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        run_batch(batch, |request| self.perform(request))
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        check_range(self.size, &range)?;
        if range.is_empty() {
            return Ok(None);
        }
        let failed = |error: PathError| {
            let length = range.end - range.start;
            DeviceError::io(Operation::DataRanges, range.start, length, to_io(error))
        };
        let start = self.file.seek_data(range.start).map_err(failed)?;
        let Some(start) = start.filter(|start| *start < range.end) else { return Ok(None) };
        let end = self.file.seek_hole(start).map_err(failed)?.unwrap_or(range.end);
        Ok(Some(start..end.clamp(start + 1, range.end)))
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn discard_reads_zero(&self) -> bool {
        !self.is_read_only
    }
}

impl fmt::Debug for ContentDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContentDevice").field("file", &self.file).field("size", &self.size).finish()
    }
}
