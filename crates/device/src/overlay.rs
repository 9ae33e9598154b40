//! Writes kept in memory over a device that stays as it is.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rangemap::RangeSet;

use crate::device::{Device, Request, check_batch, check_range, run_in_memory};
use crate::error::{DeviceError, Operation};
use crate::sparse::{CHUNK, ChunkRange, SparseBytes, chunk_ranges};
use extant_runtime::sync::RwLock;

/// A device that reads as its base until it is written; writes stay in memory. The base is never
/// written, so it may be read-only, and it must not change while the overlay exists.
pub struct OverlayDevice<D = Arc<dyn Device>> {
    base: D,
    changed: SparseBytes,
    /// Chunks that read as zeroes, where `changed` does not have them.
    zeroed: RwLock<RangeSet<u64>>,
    /// Bytes that changes may take in memory.
    limit: Option<u64>,
    is_full: AtomicBool,
}

impl<D: Device> OverlayDevice<D> {
    /// An overlay without changes.
    pub fn new(base: D) -> Self {
        Self {
            base,
            changed: SparseBytes::new(),
            zeroed: RwLock::default(),
            limit: None,
            is_full: AtomicBool::new(false),
        }
    }

    /// Lets changes take at most this many bytes of memory: a write that takes more fails with
    /// [`io::ErrorKind::OutOfMemory`].
    #[must_use]
    pub fn with_limit(mut self, bytes: u64) -> Self {
        self.limit = Some(bytes);
        self
    }

    /// Whether a write failed since changes would have taken more memory than allowed.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// The device below.
    pub fn base(&self) -> &D {
        &self.base
    }

    /// A second overlay of the same base with the same changes, independent from now on. Costs a
    /// pointer for each chunk changed.
    pub fn fork(&self) -> Self
    where
        D: Clone,
    {
        Self {
            base: self.base.clone(),
            changed: self.changed.fork(),
            zeroed: RwLock::new(self.zeroed.read().clone()),
            limit: self.limit,
            is_full: AtomicBool::new(self.is_full()),
        }
    }

    /// Bytes of memory taken by changes.
    pub fn held(&self) -> u64 {
        self.changed.held()
    }

    /// Runs of bytes in the order of the device, apart from each other: outside of them the overlay
    /// reads as its base. Within them it may, too.
    pub fn changed(&self) -> Vec<Range<u64>> {
        let mut chunks = self.zeroed.read().clone();
        let (mut at, end) = (0, self.base.size().div_ceil(CHUNK));
        while let Some(run) = self.changed.next_run(at..end) {
            at = run.end;
            chunks.insert(run);
        }
        let bytes = |run: &Range<u64>| run.start * CHUNK..self.chunk_bytes(run.end - 1).end;
        chunks.iter().map(bytes).collect()
    }

    /// Bytes `chunk` has: the last one may be cut by the end of the device.
    fn chunk_bytes(&self, chunk: u64) -> Range<u64> {
        chunk * CHUNK..((chunk + 1) * CHUNK).min(self.base.size())
    }

    /// Reads a range that the batch check admitted.
    fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        // Neighbouring chunks that only the base has are read together.
        let mut from_base: Option<(u64, Range<usize>)> = None;
        let mut at = 0;
        for piece in chunk_ranges(offset..offset + to.len() as u64) {
            let part = at..at + piece.len();
            at = part.end;
            let is_ours = self.changed.read(&piece, &mut to[part.clone()]);
            let is_zero = !is_ours && self.zeroed.read().contains(&piece.chunk);
            if is_zero {
                to[part.clone()].fill(0);
            }
            if !is_ours && !is_zero {
                let start = offset + part.start as u64;
                match &mut from_base {
                    Some((_, run)) => run.end = part.end,
                    None => from_base = Some((start, part)),
                }
            } else if let Some((start, run)) = from_base.take() {
                self.base.read_at(start, &mut to[run])?;
            }
        }
        match from_base {
            Some((start, run)) => self.base.read_at(start, &mut to[run]),
            None => Ok(()),
        }
    }

    fn write(&self, offset: u64, mut from: &[u8]) -> Result<(), DeviceError> {
        let length = from.len() as u64;
        if let Some(limit) = self.limit
            && self.held().saturating_add(length) > limit
        {
            self.is_full.store(true, Ordering::Relaxed);
            let why = format!("the changes take more than {limit} bytes of memory");
            let error = io::Error::new(io::ErrorKind::OutOfMemory, why);
            return Err(DeviceError::io(Operation::Write, offset, length, error));
        }
        for piece in chunk_ranges(offset..offset + from.len() as u64) {
            let (part, rest) = from.split_at(piece.len());
            self.changed.write(&piece, part, |chunk| self.fill(&piece, chunk))?;
            from = rest;
        }
        Ok(())
    }

    /// The contents of a chunk before its first change.
    fn fill(&self, piece: &ChunkRange, chunk: &mut [u8]) -> Result<(), DeviceError> {
        if self.zeroed.read().contains(&piece.chunk) {
            return Ok(());
        }
        let bytes = self.chunk_bytes(piece.chunk);
        self.base.read_at(bytes.start, &mut chunk[..(bytes.end - bytes.start) as usize])
    }

    fn zero(&self, range: Range<u64>) -> Result<(), DeviceError> {
        // The device's end completes its last chunk.
        let end = if range.end == self.base.size() {
            range.end.div_ceil(CHUNK)
        } else {
            range.end / CHUNK
        };
        let whole = range.start.div_ceil(CHUNK)..end;
        if whole.start >= whole.end {
            return self.zero_by_hand(range);
        }
        self.zero_by_hand(range.start..whole.start * CHUNK)?;
        self.zero_by_hand((whole.end * CHUNK).min(range.end)..range.end)?;
        self.zeroed.write().insert(whole.clone());
        self.changed.remove(whole);
        Ok(())
    }

    fn zero_by_hand(&self, range: Range<u64>) -> Result<(), DeviceError> {
        let zeroes = [0; CHUNK as usize];
        for piece in chunk_ranges(range) {
            self.changed.write(&piece, &zeroes[..piece.len()], |chunk| self.fill(&piece, chunk))?;
        }
        Ok(())
    }
}

impl<D: Device> Device for OverlayDevice<D> {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        run_in_memory(
            batch,
            |offset, to| self.read(offset, to),
            |offset, from| self.write(offset, from),
            |range| self.zero(range),
        )
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        check_range(self.size(), &range)?;
        let mut at = range.start;
        loop {
            if at >= range.end {
                return Ok(None);
            }
            let chunks = at / CHUNK..range.end.div_ceil(CHUNK);
            let cut =
                |run: Range<u64>| (run.start * CHUNK).max(at)..(run.end * CHUNK).min(range.end);
            let ours = self.changed.next_run(chunks).map(cut);
            if let Some(ours) = ours.as_ref().filter(|ours| ours.start == at) {
                return Ok(Some(ours.clone()));
            }
            // Up to our next run, the base decides, except where it was zeroed.
            let limit = ours.as_ref().map_or(range.end, |ours| ours.start);
            let zeroed = self.zeroed.read();
            if let Some(zero) = zeroed.get(&(at / CHUNK)) {
                at = (zero.end * CHUNK).min(limit);
                continue;
            }
            let next_zero = zeroed.overlapping(at / CHUNK..limit.div_ceil(CHUNK)).next();
            let limit = next_zero.map_or(limit, |zero| (zero.start * CHUNK).min(limit));
            drop(zeroed);
            if let Some(run) = self.base.next_data(at..limit)? {
                return Ok(Some(run));
            }
            at = limit;
        }
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn sector_size(&self) -> u32 {
        self.base.sector_size()
    }

    fn discard_reads_zero(&self) -> bool {
        true
    }

    fn will_need(&self, range: Range<u64>) {
        self.base.will_need(range);
    }
}

impl<D: Device> fmt::Debug for OverlayDevice<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverlayDevice")
            .field("base", &self.base)
            .field("held", &self.held())
            .finish()
    }
}
