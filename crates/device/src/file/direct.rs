//! Requests around the page cache (O_DIRECT): whole sectors to and from aligned memory, with a copy
//! where the caller's request is not like that.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};

use rustix::fs::{AtFlags, StatxFlags};

use super::aligned::AlignedBuffer;
use super::raw;
use extant_runtime::sync::{Mutex, MutexGuard};

/// Bytes copied at once for a request that is not aligned.
const WINDOW: u64 = 1 << 20;
/// Locks for sectors that are read, changed in part and written back.
const EDGE_LOCKS: usize = 64;

/// The alignment of direct requests if the system does not report it: no disk has larger sectors.
const SAFE_DIRECT_ALIGNMENT: u64 = 4096;

/// Multiples that direct requests must keep: of offsets and lengths, and of addresses. Linux 6.1
/// reports them by statx (statx(2), STATX_DIOALIGN); before that, a block device's logical sector
/// (BLKSSZGET) is known to do.
pub(super) fn direct_alignment(file: &File, logical_sector: Option<u32>) -> (u64, usize) {
    let reported = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        .ok()
        .filter(|statx| {
            StatxFlags::from_bits_retain(statx.stx_mask).contains(StatxFlags::DIOALIGN)
                && statx.stx_dio_offset_align.is_power_of_two()
                && statx.stx_dio_mem_align.is_power_of_two()
        });
    match (reported, logical_sector) {
        (Some(statx), _) => {
            (u64::from(statx.stx_dio_offset_align), statx.stx_dio_mem_align as usize)
        }
        (None, Some(sector)) => (u64::from(sector), sector as usize),
        (None, None) => (SAFE_DIRECT_ALIGNMENT, SAFE_DIRECT_ALIGNMENT as usize),
    }
}

/// The state of a direct file in addition to the file itself.
pub(super) struct DirectFile {
    /// The same file through the page cache, for the last page of a file that ends inside a sector.
    /// Absent for block devices, which end with a sector.
    cached: Option<File>,
    /// Offsets and lengths are multiples of this.
    sector: u64,
    /// Addresses are multiples of this.
    memory: usize,
    page: u64,
    edges: Vec<Mutex<()>>,
}

/// One step of an unaligned request: whole sectors on the file, and the requested part of them.
struct Window {
    start: u64,
    end: u64,
    asked_start: u64,
    asked_end: u64,
}

impl DirectFile {
    pub(super) fn new(cached: Option<File>, sector: u64, memory: usize) -> Self {
        assert!(
            sector.is_power_of_two() && memory.is_power_of_two(),
            "alignment {sector}, {memory}"
        );
        let page = (rustix::param::page_size() as u64).max(sector);
        let edges = (0..EDGE_LOCKS).map(|_| Mutex::new(())).collect();
        Self { cached, sector, memory, page, edges }
    }

    pub(super) fn alignment(&self) -> usize {
        self.memory.max(self.sector as usize)
    }

    /// First byte that goes through the page cache in a file of `size` bytes.
    pub(super) fn cached_from(&self, size: u64) -> u64 {
        if size.is_multiple_of(self.sector) || self.cached.is_none() {
            u64::MAX
        } else {
            size - size % self.page
        }
    }

    /// Whether the end of a file of `size` bytes is read through the page cache.
    pub(super) fn has_cached_end(&self, size: u64) -> bool {
        self.cached_from(size) != u64::MAX
    }

    pub(super) fn read(
        &self,
        file: &File,
        cached_from: u64,
        offset: u64,
        buffers: &mut [IoSliceMut<'_>],
    ) -> io::Result<()> {
        let length: u64 = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        let fits = |buffer: &IoSliceMut<'_>| self.fits(buffer.as_ptr() as usize, buffer.len());
        if self.is_whole(offset) && offset + length <= cached_from && buffers.iter().all(fits) {
            return raw::read_exact_at(file, buffers, offset);
        }
        let mut to = Scatter { buffers, index: 0, at: 0 };
        self.each_window(cached_from, offset, length, |window, bounce| {
            if window.start >= cached_from {
                let part = &mut bounce[..(window.asked_end - window.asked_start) as usize];
                raw::read_exact_at(
                    self.cached(),
                    &mut [IoSliceMut::new(part)],
                    window.asked_start,
                )?;
                to.put(part);
            } else {
                let part = &mut bounce[..(window.end - window.start) as usize];
                raw::read_exact_at(file, &mut [IoSliceMut::new(part)], window.start)?;
                to.put(&part[window.asked()]);
            }
            Ok(())
        })
    }

    pub(super) fn write(
        &self,
        file: &File,
        cached_from: u64,
        offset: u64,
        buffers: &[IoSlice<'_>],
    ) -> io::Result<()> {
        let length: u64 = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        let fits = |buffer: &IoSlice<'_>| self.fits(buffer.as_ptr() as usize, buffer.len());
        if self.is_whole(offset) && offset + length <= cached_from && buffers.iter().all(fits) {
            return raw::write_all_at(file, buffers, offset);
        }
        let mut from = Gather { buffers, index: 0, at: 0 };
        self.each_window(cached_from, offset, length, |window, bounce| {
            if window.start >= cached_from {
                let part = &mut bounce[..(window.asked_end - window.asked_start) as usize];
                from.take(part);
                return raw::write_all_at(self.cached(), &[IoSlice::new(part)], window.asked_start);
            }
            let part = &mut bounce[..(window.end - window.start) as usize];
            let sector = self.sector as usize;
            let head = (window.asked_start > window.start).then_some(window.start);
            let tail = (window.asked_end < window.end).then_some(window.end - self.sector);
            let _held = self.lock_edges(head, tail);
            if head.is_some() {
                raw::read_exact_at(
                    file,
                    &mut [IoSliceMut::new(&mut part[..sector])],
                    window.start,
                )?;
            }
            if let Some(tail) = tail.filter(|tail| head != Some(*tail)) {
                let last = part.len() - sector;
                raw::read_exact_at(file, &mut [IoSliceMut::new(&mut part[last..])], tail)?;
            }
            from.take(&mut part[window.asked()]);
            raw::write_all_at(file, &[IoSlice::new(part)], window.start)
        })
    }

    pub(super) fn is_whole(&self, bytes: u64) -> bool {
        bytes.is_multiple_of(self.sector)
    }

    fn fits(&self, address: usize, len: usize) -> bool {
        address.is_multiple_of(self.memory) && self.is_whole(len as u64)
    }

    fn cached(&self) -> &File {
        self.cached.as_ref().expect("cached_from() is past every offset without a cached file")
    }

    /// Two writers of different parts of one sector must not write back each other's old bytes.
    fn lock_edges(&self, head: Option<u64>, tail: Option<u64>) -> [Option<MutexGuard<'_, ()>>; 2] {
        let lock_of = |sector: u64| (sector / self.sector) as usize % EDGE_LOCKS;
        let (head, tail) = (head.map(lock_of), tail.map(lock_of));
        let (first, second) = match (head, tail) {
            (Some(a), Some(b)) if a == b => (Some(a), None),
            (Some(a), Some(b)) => (Some(a.min(b)), Some(a.max(b))),
            (one, other) => (one, other),
        };
        [first.map(|index| self.edges[index].lock()), second.map(|index| self.edges[index].lock())]
    }

    /// Walks a request by windows of whole sectors, cut where the page cache takes over.
    fn each_window(
        &self,
        cached_from: u64,
        offset: u64,
        length: u64,
        mut step: impl FnMut(&Window, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let end = offset + length;
        let room = WINDOW.min(length.next_multiple_of(self.sector) + self.sector);
        let mut bounce = AlignedBuffer::new(room as usize, self.alignment());
        let mut at = offset;
        while at < end {
            let start = at - at % self.sector;
            let mut asked_end = end.min(start + room);
            if at < cached_from {
                asked_end = asked_end.min(cached_from);
            }
            let window = Window {
                start,
                end: asked_end.next_multiple_of(self.sector),
                asked_start: at,
                asked_end,
            };
            step(&window, &mut bounce)?;
            at = asked_end;
        }
        Ok(())
    }
}

impl Window {
    /// The requested part, within the window.
    fn asked(&self) -> std::ops::Range<usize> {
        (self.asked_start - self.start) as usize..(self.asked_end - self.start) as usize
    }
}

/// Hands bytes out to buffers, one after the other.
struct Scatter<'a, 'b> {
    buffers: &'a mut [IoSliceMut<'b>],
    index: usize,
    at: usize,
}

impl Scatter<'_, '_> {
    fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let buffer = &mut self.buffers[self.index][self.at..];
            let count = buffer.len().min(bytes.len());
            buffer[..count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            self.at += count;
            if self.at == self.buffers[self.index].len() {
                (self.index, self.at) = (self.index + 1, 0);
            }
        }
    }
}

/// Collects bytes from buffers, one after the other.
struct Gather<'a, 'b> {
    buffers: &'a [IoSlice<'b>],
    index: usize,
    at: usize,
}

impl Gather<'_, '_> {
    fn take(&mut self, mut to: &mut [u8]) {
        while !to.is_empty() {
            let buffer = &self.buffers[self.index][self.at..];
            let count = buffer.len().min(to.len());
            to[..count].copy_from_slice(&buffer[..count]);
            to = &mut to[count..];
            self.at += count;
            if self.at == self.buffers[self.index].len() {
                (self.index, self.at) = (self.index + 1, 0);
            }
        }
    }
}
