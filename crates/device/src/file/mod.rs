//! A regular file or a block device of the system.

mod access;
mod aligned;
mod around;
mod atomic;
mod batch;
mod direct;
mod extents;
mod ioctl;
mod lock;
mod open;
mod raw;
mod ring;

use std::fmt;
use std::io::IoSlice;
use std::ops::Range;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::block_devices;
use crate::device::{Device, Request, check_batch, check_range};
use crate::error::{DeviceError, Operation};
use extant_runtime::sync::atomic::Ordering;

pub use access::FileDevice;
pub use aligned::AlignedBuffer;
pub use atomic::{AtomicFile, new_name};
pub use extents::{ExtentsQuery, FileExtent, block_size_of, device_block_of, file_extents};
pub(crate) use ioctl::grow_mounted;
pub use lock::Holder;
pub(crate) use lock::mount_of;
pub use open::{Direct, FileDeviceOptions, FileError, LoopBacking};

impl Device for FileDevice {
    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        batch::run(self, batch)
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        check_range(self.size(), &range)?;
        if range.is_empty() {
            return Ok(None);
        }
        if self.is_block {
            return Ok(Some(range));
        }
        let error = |errno: Errno| {
            DeviceError::io(
                Operation::DataRanges,
                range.start,
                range.end - range.start,
                errno.into(),
            )
        };
        let start = match rustix::fs::seek(&self.file, SeekFrom::Data(range.start)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // The file system does not report its holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(range)),
            Err(errno) => return Err(error(errno)),
        };
        if start >= range.end {
            return Ok(None);
        }
        let end = rustix::fs::seek(&self.file, SeekFrom::Hole(start)).map_err(error)?;
        // Another program may have punched between the two calls; a run has at least one byte in
        // any case, so that a walk makes progress.
        let end = end.min(range.end).max(start + 1);
        Ok(Some(start..end))
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn grow(&self, size: u64) -> Result<(), DeviceError> {
        self.grow_to(size)
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn will_need(&self, range: Range<u64>) {
        let length = range.end.saturating_sub(range.start);
        if let Some(length) = std::num::NonZeroU64::new(length)
            && self.direct.is_none()
        {
            // A hint: a system that does not take it reads later.
            let advice = rustix::fs::Advice::WillNeed;
            let _ = rustix::fs::fadvise(&self.file, range.start, Some(length), advice);
        }
    }

    fn uncached(&self, range: Range<u64>) -> Option<u64> {
        self.around.as_ref()?.uncached(&range)
    }

    fn read_around(&self, offset: u64, buffer: &mut [u8]) -> bool {
        self.around.as_ref().is_some_and(|around| around.read(offset, buffer))
    }

    fn write_around(&self, offset: u64, buffers: &[IoSlice<'_>]) -> bool {
        let length: u64 = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        let end = offset.checked_add(length);
        !self.read_only
            && end.is_some_and(|end| end <= self.size())
            && self.around.as_ref().is_some_and(|around| around.write(offset, buffers))
    }

    fn discard_reads_zero(&self) -> bool {
        !self.is_block && self.punches.load(Ordering::Relaxed)
    }

    fn can_discard(&self) -> bool {
        match self.is_block {
            true => block_devices::can_discard(&self.path),
            false => self.punches.load(Ordering::Relaxed),
        }
    }
}

impl fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileDevice")
            .field("path", &self.path)
            .field("size", &self.size())
            .field("read_only", &self.read_only)
            .field("direct", &self.is_direct())
            .finish_non_exhaustive()
    }
}
