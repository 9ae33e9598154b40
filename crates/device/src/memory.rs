//! A device in memory, sparse: only chunks that were written take space.

use std::convert::Infallible;
use std::fmt;
use std::ops::Range;

use crate::device::{Device, Request, check_batch, check_range, run_in_memory};
use crate::error::DeviceError;
use crate::sparse::{CHUNK, SparseBytes, chunk_ranges};

/// A device in memory. Never-written bytes read as zeroes and take no space, so 64 TiB with a few
/// megabytes written is fine. Threads that work on different places do not wait for each other.
pub struct MemoryDevice {
    bytes: SparseBytes,
    size: u64,
    sector_size: u32,
}

impl MemoryDevice {
    /// An empty device of `size` bytes and 512-byte sectors.
    pub fn new(size: u64) -> Self {
        Self::with_sectors(size, 512)
    }

    /// An empty device whose sectors have `sector_size` bytes, a power of two.
    pub fn with_sectors(size: u64, sector_size: u32) -> Self {
        assert!(sector_size.is_power_of_two(), "sector size {sector_size}");
        Self { bytes: SparseBytes::new(), size, sector_size }
    }

    /// A device that holds `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let device = Self::new(bytes.len() as u64);
        device.write(0, bytes);
        device
    }

    /// All bytes of the device, holes as zeroes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all =
            vec![0; usize::try_from(self.size).expect("a device copied to memory fits in memory")];
        self.read(0, &mut all);
        all
    }

    /// A second device with the same bytes, independent from now on. Costs a pointer for each chunk
    /// written.
    pub fn fork(&self) -> Self {
        Self { bytes: self.bytes.fork(), size: self.size, sector_size: self.sector_size }
    }

    /// Bytes of memory taken.
    pub fn held(&self) -> u64 {
        self.bytes.held()
    }

    fn read(&self, offset: u64, mut to: &mut [u8]) {
        for piece in chunk_ranges(offset..offset + to.len() as u64) {
            let (part, rest) = to.split_at_mut(piece.len());
            if !self.bytes.read(&piece, part) {
                part.fill(0);
            }
            to = rest;
        }
    }

    fn write(&self, offset: u64, mut from: &[u8]) {
        for piece in chunk_ranges(offset..offset + from.len() as u64) {
            let (part, rest) = from.split_at(piece.len());
            let Ok(()) = self.bytes.write(&piece, part, |_| Ok::<(), Infallible>(()));
            from = rest;
        }
    }

    fn zero(&self, range: Range<u64>) {
        let whole = range.start.div_ceil(CHUNK)..range.end / CHUNK;
        if whole.start >= whole.end {
            chunk_ranges(range).for_each(|piece| {
                self.bytes.zero_written(&piece);
            });
            return;
        }
        for edge in [range.start..whole.start * CHUNK, whole.end * CHUNK..range.end] {
            chunk_ranges(edge).for_each(|piece| {
                self.bytes.zero_written(&piece);
            });
        }
        self.bytes.remove(whole);
    }
}

impl Device for MemoryDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        run_in_memory(
            batch,
            |offset, to| {
                self.read(offset, to);
                Ok(())
            },
            |offset, from| {
                self.write(offset, from);
                Ok(())
            },
            |range| {
                self.zero(range);
                Ok(())
            },
        )
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        check_range(self.size, &range)?;
        if range.is_empty() {
            return Ok(None);
        }
        let run = self.bytes.next_run(range.start / CHUNK..range.end.div_ceil(CHUNK));
        Ok(run.map(|run| (run.start * CHUNK).max(range.start)..(run.end * CHUNK).min(range.end)))
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn discard_reads_zero(&self) -> bool {
        true
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDevice")
            .field("size", &self.size)
            .field("held", &self.held())
            .finish()
    }
}
