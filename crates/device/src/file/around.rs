//! Reads and writes around the page cache of a file that is otherwise used through it: for what is
//! read or written once, in large pieces. Making pages for it and copying from them takes as long
//! as a fast disk does.

use std::fs::{self, File};
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::with_exposed_provenance_mut;

use rustix::fs::OFlags;
use rustix::mm::{MapFlags, ProtFlags};

use super::direct::direct_alignment;
use super::raw;

/// One page in this number is looked up: pages enter and leave the cache in runs, and a lookup of
/// each takes as long as a checksum of its contents.
const PAGES_A_QUESTION: usize = 32;

/// The file once more, and which of its pages are in memory.
pub(super) struct Around {
    /// Opened O_DIRECT.
    file: File,
    /// Offsets and lengths are multiples of this.
    sector: u64,
    /// Addresses are multiples of this.
    memory: usize,
    pages: Pages,
}

impl Around {
    /// `None` where the file system has no direct access, or does not tell what is in memory.
    /// `file` is the open file at `path`, of `size` bytes, which may be written; for a block device
    /// with its sector size.
    pub(super) fn open(
        path: &Path,
        file: &File,
        size: u64,
        write: bool,
        logical_sector: Option<u32>,
    ) -> Option<Self> {
        let direct = fs::OpenOptions::new()
            .read(true)
            .write(write)
            .custom_flags(OFlags::DIRECT.bits().cast_signed())
            .open(path)
            .ok()?;
        let (one, other) = (file.metadata().ok()?, direct.metadata().ok()?);
        // Another file may lie under the name by now.
        if (one.dev(), one.ino()) != (other.dev(), other.ino()) {
            return None;
        }
        let (sector, memory) = direct_alignment(&direct, logical_sector);
        let pages = Pages::of(file, size).ok()?;
        Some(Self { file: direct, sector, memory, pages })
    }

    /// Bytes of `range` that are not in memory, about; `None` where the system does not tell.
    pub(super) fn uncached(&self, range: &Range<u64>) -> Option<u64> {
        self.pages.missing(range)
    }

    /// Fills `buffer` from the bytes at `offset`; false where that cannot be done around the page
    /// cache.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let fits = offset.is_multiple_of(self.sector)
            && (buffer.len() as u64).is_multiple_of(self.sector)
            && buffer.as_ptr().addr().is_multiple_of(self.memory);
        fits && raw::read_exact_at(&self.file, &mut [IoSliceMut::new(buffer)], offset).is_ok()
    }

    /// Writes the buffers at `offset`; false where that cannot be done around the page cache.
    pub(super) fn write(&self, offset: u64, buffers: &[IoSlice<'_>]) -> bool {
        let fits = |buffer: &IoSlice<'_>| {
            (buffer.len() as u64).is_multiple_of(self.sector)
                && buffer.as_ptr().addr().is_multiple_of(self.memory)
        };
        offset.is_multiple_of(self.sector)
            && buffers.iter().all(fits)
            && raw::write_all_at(&self.file, buffers, offset).is_ok()
    }
}

/// A mapping of a whole file that is never touched: the system reports which of its pages are in
/// memory.
struct Pages {
    /// Its address: a name for it in calls of the system.
    start: usize,
    length: usize,
    page: usize,
}

impl Pages {
    #[allow(unsafe_code)]
    fn of(file: &File, size: u64) -> io::Result<Self> {
        let length = usize::try_from(size).map_err(io::Error::other)?;
        // SAFETY: a new mapping at a place that the system chooses. No access to it is allowed, so
        // that no reference into it can be made and a file that becomes shorter raises no signal.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
                file,
                0,
            )?
        };
        let start = start.expose_provenance();
        Ok(Self { start, length, page: rustix::param::page_size() })
    }

    /// Bytes of `range` that are not in memory, by some of its pages; `None` past the end, or where
    /// the system refuses.
    fn missing(&self, range: &Range<u64>) -> Option<u64> {
        let end = usize::try_from(range.end).ok().filter(|end| *end <= self.length)?;
        let start = usize::try_from(range.start).ok()? / self.page * self.page;
        let (mut asked, mut missing) = (0, 0);
        for at in (start..end).step_by(PAGES_A_QUESTION * self.page) {
            asked += 1;
            missing += u64::from(!self.is_in_memory(at)?);
        }
        Some((range.end - range.start) * missing / asked.max(1))
    }

    /// Whether the page at the byte `at`, a multiple of the page, is in memory.
    #[allow(unsafe_code)]
    fn is_in_memory(&self, at: usize) -> Option<bool> {
        let mut state = 0;
        let length = self.page.min(self.length - at);
        // SAFETY: mincore(2) writes a byte for each page of the range, which is one and lies in the
        // mapping, which lives as long as `self`.
        let answer = unsafe {
            libc::mincore(with_exposed_provenance_mut(self.start + at), length, &raw mut state)
        };
        (answer == 0).then_some(state & 1 != 0)
    }
}

impl Drop for Pages {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more.
        let unmapped =
            unsafe { rustix::mm::munmap(with_exposed_provenance_mut(self.start), self.length) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours is taken back");
    }
}
