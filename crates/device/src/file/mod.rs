//! A regular file or a block device of the system.

mod aligned;
mod around;
mod batch;
mod direct;
mod ioctl;
mod lock;
mod open;
mod raw;
mod ring;

use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use crate::device::{Device, Request, RequestKind, check_batch, check_range};
use crate::error::{Cause, DeviceError, Operation};
use extant_runtime::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use aligned::AlignedBuffer;
pub use lock::Holder;
pub use open::{Direct, FileError, LoopBacking, OpenOptions};

use around::Around;
use direct::DirectFile;
use ring::{Ring, Write};

/// Bytes of a write through the page cache whose way to the medium begins at once, so that the next flush finds little left to do. Shorter
/// ones may be written again before that.
const LONG_WRITE: u64 = 1 << 20;

/// A regular file or a block device. Reads and writes are positioned and vectored; holes are asked of the system.
pub struct FileDevice {
    file: File,
    path: PathBuf,
    size: AtomicU64,
    is_block: bool,
    read_only: bool,
    sector_size: u32,
    /// Set while requests go around the page cache.
    direct: Option<DirectFile>,
    /// For many writes at a time, around the page cache.
    ring: Option<Box<Ring>>,
    /// For reads around the page cache that the others go through.
    around: Option<Box<Around>>,
    /// Cleared when the file system refuses to punch holes.
    punches: AtomicBool,
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        lock::release(&self.file);
    }
}

impl FileDevice {
    /// Opens a file or block device for reading, through the page cache and without a lock.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FileError> {
        OpenOptions::new().open(path)
    }

    /// Makes a new file of `size` bytes, all hole, for reading and writing.
    ///
    /// # Errors
    /// The file is there already, or as [`OpenOptions::open`].
    pub fn create_new(path: impl AsRef<Path>, size: u64) -> Result<Self, FileError> {
        OpenOptions::new().write(true).create_new(true).size(size).open(path)
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a block device, as opposed to a regular file.
    pub fn is_block_device(&self) -> bool {
        self.is_block
    }

    /// Whether requests go around the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// The open file, for what a device does not do (its times, its name).
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Bytes that offsets, lengths and addresses must be multiples of so that a direct request needs no copy; 1 through
    /// the page cache.
    pub fn direct_alignment(&self) -> usize {
        self.direct.as_ref().map_or(1, DirectFile::alignment)
    }

    /// Makes a regular file `size` bytes long. New bytes are a hole; bytes past the new end are lost. Not to be called
    /// while requests are under way.
    ///
    /// # Errors
    /// A block device, a read-only file, or the system refused.
    pub fn set_len(&self, size: u64) -> Result<(), DeviceError> {
        let error =
            |cause| DeviceError { operation: Operation::Resize, offset: 0, length: size, cause };
        if self.read_only {
            return Err(error(Cause::ReadOnly));
        }
        if self.is_block {
            let source =
                io::Error::new(io::ErrorKind::Unsupported, "a block device keeps its size");
            return Err(DeviceError::io(Operation::Resize, 0, size, source));
        }
        self.file
            .set_len(size)
            .map_err(|source| DeviceError::io(Operation::Resize, 0, size, source))?;
        self.size.store(size, Ordering::Release);
        Ok(())
    }

    /// The place from which a direct file must still go through the page cache: the last page, where the file ends
    /// inside a sector.
    fn cached_from(&self, direct: &DirectFile) -> u64 {
        direct.cached_from(self.size.load(Ordering::Acquire))
    }

    fn read_buffers(&self, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        match &self.direct {
            None => raw::read_exact_at(&self.file, buffers, offset),
            Some(direct) => direct.read(&self.file, self.cached_from(direct), offset, buffers),
        }
    }

    fn write_buffers(&self, offset: u64, buffers: &[IoSlice<'_>]) -> io::Result<()> {
        match &self.direct {
            None => {
                raw::write_all_at(&self.file, buffers, offset)?;
                let length = buffers.iter().map(|buffer| buffer.len() as u64).sum();
                if length >= LONG_WRITE {
                    raw::start_writing(&self.file, offset, length);
                }
                Ok(())
            }
            Some(direct) => direct.write(&self.file, self.cached_from(direct), offset, buffers),
        }
    }

    /// Whether requests that lie side by side are a write for [`Self::write_at_once`].
    fn is_short_write(&self, run: &[&mut Request<'_>]) -> bool {
        let Some(direct) = self.direct.as_ref().filter(|_| self.ring.is_some()) else {
            return false;
        };
        let offset = run[0].offset();
        let length: u64 = run.iter().map(|request| request.length()).sum();
        run[0].operation() == Operation::Write
            && length <= ring::LONGEST as u64
            && direct.is_whole(offset)
            && direct.is_whole(length)
            && offset + length <= self.cached_from(direct)
    }

    /// Has short writes under way at the same time; which of them are done, they say.
    fn write_at_once(&self, writes: &mut [Write<'_>]) {
        if let Some(ring) = &self.ring {
            ring.write(&self.file, writes);
        }
    }

    fn perform(&self, request: &mut Request<'_>) -> io::Result<()> {
        match &mut request.kind {
            RequestKind::Read { offset, buffers } => {
                self.read_buffers(*offset, buffers.slices_mut())
            }
            RequestKind::Write { offset, buffers } => self.write_buffers(*offset, buffers.slices()),
            RequestKind::Discard { offset, length } => self.discard_range(*offset, *length),
            RequestKind::WriteZeroes { offset, length } => self.zero_range(*offset, *length),
            RequestKind::Flush if self.read_only => Ok(()),
            RequestKind::Flush => Ok(rustix::fs::fdatasync(&self.file)?),
        }
    }

    fn discard_range(&self, offset: u64, length: u64) -> io::Result<()> {
        if length == 0 {
            return Ok(());
        }
        if self.is_block {
            let Some((start, length)) = self.whole_sectors(offset, length) else { return Ok(()) };
            return match ioctl::discard(&self.file, start, length) {
                Err(Errno::OPNOTSUPP) => Ok(()),
                result => Ok(result?),
            };
        }
        self.punch(offset, length).map(|_| ())
    }

    /// Punches a hole into a regular file; false where its file system cannot.
    fn punch(&self, offset: u64, length: u64) -> io::Result<bool> {
        if !self.punches.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, offset, length) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.punches.store(false, Ordering::Relaxed);
                Ok(false)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn zero_range(&self, offset: u64, length: u64) -> io::Result<()> {
        if length == 0 {
            return Ok(());
        }
        if !self.is_block {
            if self.punch(offset, length)? {
                return Ok(());
            }
            let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
            return match rustix::fs::fallocate(&self.file, flags, offset, length) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeroes_by_hand(offset, length),
                result => Ok(result?),
            };
        }
        let Some((start, inner)) = self.whole_sectors(offset, length) else {
            return self.write_zeroes_by_hand(offset, length);
        };
        self.write_zeroes_by_hand(offset, start - offset)?;
        match ioctl::zero_out(&self.file, start, inner) {
            Err(Errno::OPNOTSUPP | Errno::NOTTY) => self.write_zeroes_by_hand(start, inner)?,
            result => result?,
        }
        self.write_zeroes_by_hand(start + inner, offset + length - (start + inner))
    }

    fn write_zeroes_by_hand(&self, offset: u64, length: u64) -> io::Result<()> {
        const PIECE: u64 = 1 << 20;
        let zeroes = AlignedBuffer::new(PIECE.min(length) as usize, self.direct_alignment());
        let mut at = offset;
        while at < offset + length {
            let count = PIECE.min(offset + length - at) as usize;
            self.write_buffers(at, &[IoSlice::new(&zeroes[..count])])?;
            at += count as u64;
        }
        Ok(())
    }

    /// The whole sectors inside a range: start and length.
    fn whole_sectors(&self, offset: u64, length: u64) -> Option<(u64, u64)> {
        let sector = u64::from(self.sector_size);
        let start = offset.checked_next_multiple_of(sector)?;
        let end = (offset + length) / sector * sector;
        (start < end).then(|| (start, end - start))
    }
}

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
            // The file system does not know its holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(range)),
            Err(errno) => return Err(error(errno)),
        };
        if start >= range.end {
            return Ok(None);
        }
        let end = rustix::fs::seek(&self.file, SeekFrom::Hole(start)).map_err(error)?;
        // Another program may have punched between the two questions; a run has at least one byte all the same, so that
        // who walks goes forward.
        let end = end.min(range.end).max(start + 1);
        Ok(Some(start..end))
    }

    fn is_read_only(&self) -> bool {
        self.read_only
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

    fn discard_reads_zero(&self) -> bool {
        !self.is_block && self.punches.load(Ordering::Relaxed)
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
