//! Reads, writes and holes of one open file or block device.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::device::{Request, RequestKind};
use crate::error::{Cause, DeviceError, Operation};
use extant_runtime::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::aligned::AlignedBuffer;
use super::around::Around;
use super::direct::DirectFile;
use super::ring::{Ring, Write};
use super::{ioctl, lock, raw, ring};

/// Bytes of a write through the page cache whose way to the medium begins at once, so that the next
/// flush finds little left to do. Shorter ones may be written again before that.
const LONG_WRITE: u64 = 1 << 20;

/// A regular file or a block device. Reads and writes are positioned and vectored; holes are found
/// by the system.
pub struct FileDevice {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) size: AtomicU64,
    pub(super) is_block: bool,
    pub(super) read_only: bool,
    pub(super) sector_size: u32,
    /// Set while requests go around the page cache.
    pub(super) direct: Option<DirectFile>,
    /// For many writes at a time, around the page cache.
    pub(super) ring: Option<Box<Ring>>,
    /// For reads around the page cache that the others go through.
    pub(super) around: Option<Box<Around>>,
    /// Cleared when the file system refuses to punch holes.
    pub(super) punches: AtomicBool,
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        lock::release(&self.file);
    }
}

impl FileDevice {
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

    /// Bytes that offsets, lengths and addresses must be multiples of so that a direct request
    /// needs no copy; 1 through the page cache.
    pub fn direct_alignment(&self) -> usize {
        self.direct.as_ref().map_or(1, DirectFile::alignment)
    }

    /// Makes a regular file `size` bytes long. New bytes are a hole; bytes past the new end are
    /// lost. Not to be called while requests are under way.
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
            let source = io::Error::new(io::ErrorKind::Unsupported, "cannot resize a block device");
            return Err(DeviceError::io(Operation::Resize, 0, size, source));
        }
        self.file
            .set_len(size)
            .map_err(|source| DeviceError::io(Operation::Resize, 0, size, source))?;
        self.size.store(size, Ordering::Release);
        Ok(())
    }

    /// See [`Device::grow`](crate::Device::grow).
    pub(super) fn grow_to(&self, size: u64) -> Result<(), DeviceError> {
        let held = self.size.load(Ordering::Acquire);
        let failed = |source| DeviceError::io(Operation::Resize, 0, size, source);
        let now = match self.is_block {
            true => ioctl::size(&self.file).map_err(|errno| failed(errno.into()))?,
            false => self.file.metadata().map_err(failed)?.len(),
        };
        // A file that ends inside a page has its end read through the page cache: the place of the
        // end must not move while requests are under way.
        if now.max(size) > held
            && self.direct.as_ref().is_some_and(|direct| direct.has_cached_end(held))
        {
            let what = "the file ends inside a page and is read around the page cache";
            return Err(failed(io::Error::new(io::ErrorKind::Unsupported, what)));
        }
        let now = now - now % self.direct_alignment() as u64;
        self.size.fetch_max(now, Ordering::AcqRel);
        if size <= held.max(now) {
            return Ok(());
        }
        if self.is_block {
            let what = format!("the block device has {now} bytes");
            return Err(failed(io::Error::new(io::ErrorKind::StorageFull, what)));
        }
        self.set_len(size.next_multiple_of(self.direct_alignment() as u64))
    }

    /// The place from which a direct file must still go through the page cache: the last page,
    /// where the file ends inside a sector.
    fn cached_from(&self, direct: &DirectFile) -> u64 {
        direct.cached_from(self.size.load(Ordering::Acquire))
    }

    pub(super) fn read_buffers(
        &self,
        offset: u64,
        buffers: &mut [IoSliceMut<'_>],
    ) -> io::Result<()> {
        match &self.direct {
            None => raw::read_exact_at(&self.file, buffers, offset),
            Some(direct) => direct.read(&self.file, self.cached_from(direct), offset, buffers),
        }
    }

    pub(super) fn write_buffers(&self, offset: u64, buffers: &[IoSlice<'_>]) -> io::Result<()> {
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
    pub(super) fn is_short_write(&self, run: &[&mut Request<'_>]) -> bool {
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

    /// Has short writes under way at the same time; returns which of them are done.
    pub(super) fn write_at_once(&self, writes: &mut [Write<'_>]) {
        if let Some(ring) = &self.ring {
            ring.write(&self.file, writes);
        }
    }

    pub(super) fn perform(&self, request: &mut Request<'_>) -> io::Result<()> {
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
