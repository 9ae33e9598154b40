//! Data of one file that wait for their blocks.

use super::buffers::{BufferPool, new_buffer};
use extant_device::{AlignedBuffer, Request};
use extant_ondisk::Geometry;
use extant_runtime::sync::Arc;
use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::ops::Range;
use std::time::Duration;

/// Bytes of the largest chunk: buffers of one size are interchangeable.
pub(super) const CHUNK: usize = 256 << 10;

/// Data of a file in blocks that are holes in its map. They are zeros where nothing was written.
///
/// Guarded by the inode's lock. A thread that maps a block of the file looks here first: a block is
/// mapped or delayed, never both.
#[derive(Debug, Default)]
pub(crate) struct DelayedData {
    /// By their first block; they do not overlap.
    chunks: BTreeMap<u64, DirtyChunk>,
    /// Runs of blocks that lie together.
    runs: u64,
    /// Where the data end, in bytes of the file. The file reaches at least as far.
    size: u64,
    blocks: u64,
    /// Bytes of memory.
    memory: u64,
    /// With bigalloc: the logical clusters that are reserved, those whose first block of the file
    /// is delayed.
    clusters: BTreeSet<u64>,
    /// Clusters reserved for the blocks.
    pub(super) data_reserved: u64,
    /// Clusters reserved for the growth of the map.
    pub(super) map_reserved: u64,
    /// Bytes of quota reserved for the file's owners.
    pub(super) quota: u64,
    /// The blocks of all chunks of which some are under writeback.
    under_writeback: Option<Range<u64>>,
    /// When they are to be written, on the environment's clock; `None` while the file is not in the
    /// list of files to write.
    pub(super) due: Option<Duration>,
}

/// Data that go to the device unchanged, whatever happens to the file during the write.
#[derive(Debug)]
pub(super) struct Slice {
    buffer: Arc<AlignedBuffer>,
    range: Range<usize>,
}

impl Slice {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }

    /// The request that writes data to their place.
    pub(super) fn request((place, slices): &(u64, Vec<Self>)) -> Request<'_> {
        let slices = slices.iter().map(|slice| IoSlice::new(slice.bytes())).collect();
        Request::write_vectored(*place, slices)
    }
}

/// Data of blocks that follow each other.
#[derive(Debug)]
struct DirtyChunk {
    /// The bytes after `end` are undefined. Shared only during writeback.
    buffer: Arc<AlignedBuffer>,
    /// Bytes at its start that are no longer data.
    skipped: usize,
    /// Where its data end.
    end: usize,
}

impl DirtyChunk {
    /// A chunk without data, with room for `capacity` bytes.
    fn new(capacity: usize, buffers: &BufferPool) -> Self {
        Self { buffer: buffers.take(capacity), skipped: 0, end: 0 }
    }

    /// It gets `len` bytes more, which begin at byte `at` of the file. They are zeros but for those
    /// in `written`, which are about to be written.
    fn grow(&mut self, len: usize, at: u64, written: &Range<u64>) {
        let from = self.end;
        self.end += len;
        // Within the bytes that it gets.
        let place = |byte: u64| from + byte.saturating_sub(at).min(len as u64) as usize;
        let (first, last) = (place(written.start), place(written.end));
        let end = self.end;
        let buffer = self.own_buffer();
        buffer[from..first].fill(0);
        buffer[last.max(first)..end].fill(0);
    }

    /// The buffer for changes; a copy where it is shared.
    fn own_buffer(&mut self) -> &mut AlignedBuffer {
        if Arc::get_mut(&mut self.buffer).is_none() {
            let mut copy = new_buffer(self.buffer.len());
            copy.copy_from_slice(&self.buffer);
            self.buffer = Arc::new(copy);
        }
        Arc::get_mut(&mut self.buffer).expect("a buffer that was just made is not shared")
    }

    fn len(&self) -> usize {
        self.end - self.skipped
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.skipped..self.end]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let range = self.skipped..self.end;
        &mut self.own_buffer()[range]
    }

    fn memory(&self) -> u64 {
        self.buffer.len() as u64
    }
}

/// Part of a range of bytes of a file, delayed or stored.
#[derive(Debug, PartialEq)]
pub(crate) enum DataPart<'d> {
    /// Delayed bytes.
    Delayed(&'d [u8]),
    /// Number of bytes that the volume has.
    Stored(u64),
}

impl DelayedData {
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Where the file ends, if its inode has the size `stored`.
    pub(crate) fn size(&self, stored: u64) -> u64 {
        self.size.max(stored)
    }

    /// Where the delayed data end.
    pub(crate) fn end(&self) -> u64 {
        self.size
    }

    /// Limits the end of the delayed data to `size`.
    pub(crate) fn cut_size(&mut self, size: u64) {
        self.size = self.size.min(size);
    }

    /// Blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Runs of blocks.
    pub(crate) fn runs_count(&self) -> u64 {
        self.runs
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        self.memory
    }

    /// Clusters reserved for the data.
    pub(crate) fn data_reserved(&self) -> u64 {
        self.data_reserved
    }

    /// Whether a block is delayed.
    pub(crate) fn contains(&self, block: u64, geometry: &Geometry) -> bool {
        self.at(block, geometry.block_len()).is_some()
    }

    /// The first delayed block at or after `block`.
    pub(crate) fn next(&self, block: u64, geometry: &Geometry) -> Option<u64> {
        if self.contains(block, geometry) {
            return Some(block);
        }
        self.chunks.range(block..).next().map(|(start, _)| *start)
    }

    /// Whether a range of blocks has a delayed one.
    pub(crate) fn overlaps(&self, blocks: &Range<u64>, geometry: &Geometry) -> bool {
        !self.is_empty() && self.next(blocks.start, geometry).is_some_and(|next| next < blocks.end)
    }

    /// The chunk that a block lies in, and its first block.
    fn at(&self, block: u64, block_len: usize) -> Option<(u64, &DirtyChunk)> {
        let (start, chunk) = self.chunks.range(..=block).next_back()?;
        (block - start < (chunk.len() / block_len) as u64).then_some((*start, chunk))
    }

    /// The runs of delayed blocks in the order of the file.
    pub(crate) fn runs(&self, geometry: &Geometry) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (start, chunk) in &self.chunks {
            let end = start + (chunk.len() / geometry.block_len()) as u64;
            match runs.last_mut() {
                Some(last) if last.end == *start => last.end = end,
                _ => runs.push(*start..end),
            }
        }
        runs
    }

    /// The bytes of delayed blocks, chunk by chunk; they are all delayed.
    pub(super) fn slices(&self, blocks: &Range<u64>, geometry: &Geometry) -> Vec<Slice> {
        let block_len = geometry.block_len();
        let mut slices = Vec::new();
        let mut at = blocks.start;
        while at < blocks.end
            && let Some((start, chunk)) = self.at(at, block_len)
        {
            // Within the chunk.
            let from = chunk.skipped + (at - start) as usize * block_len;
            let after = start + (chunk.len() / block_len) as u64;
            let count = after.min(blocks.end) - at;
            let range = from..from + count as usize * block_len;
            slices.push(Slice { buffer: chunk.buffer.clone(), range });
            at += count;
        }
        slices
    }

    /// Blocks are written from now on while the inode's lock is free. Their chunks stay as they are
    /// until [`Self::complete_writeback`].
    pub(crate) fn begin_writeback(&mut self, blocks: Range<u64>, geometry: &Geometry) {
        let block_len = geometry.block_len();
        let chunk = |block| self.at(block, block_len);
        let start = chunk(blocks.start).map_or(blocks.start, |(start, _)| start);
        let end = chunk(blocks.end.saturating_sub(1))
            .map_or(blocks.end, |(start, chunk)| start + (chunk.len() / block_len) as u64);
        self.under_writeback = Some(start..end);
    }

    /// They were written, or could not be.
    pub(crate) fn complete_writeback(&mut self) {
        self.under_writeback = None;
    }

    /// Whether some blocks are under writeback.
    pub(crate) fn is_under_writeback(&self) -> bool {
        self.under_writeback.is_some()
    }

    /// Whether a block lies in a chunk that stays as it is until the writeback has ended.
    pub(crate) fn is_block_under_writeback(&self, block: u64) -> bool {
        self.under_writeback
            .as_ref()
            .is_some_and(|under_writeback| under_writeback.contains(&block))
    }

    /// A range of bytes, in parts that are delayed and parts that are not.
    pub(crate) fn parts(&self, bytes: Range<u64>, geometry: &Geometry) -> Vec<DataPart<'_>> {
        let bits = geometry.block_bits();
        let mut parts = Vec::new();
        let mut at = bytes.start;
        while at < bytes.end {
            let block = at >> bits;
            let Some((start, chunk)) = self.at(block, geometry.block_len()) else {
                let next = self.chunks.range(block..).next().map_or(u64::MAX, |(next, _)| *next);
                let end = bytes.end.min(next.saturating_mul(1 << bits));
                parts.push(DataPart::Stored(end - at));
                at = end;
                continue;
            };
            // Within the chunk.
            let from = (at - (start << bits)) as usize;
            let len =
                (chunk.len() - from).min(usize::try_from(bytes.end - at).unwrap_or(usize::MAX));
            parts.push(DataPart::Delayed(&chunk.bytes()[from..from + len]));
            at += len as u64;
        }
        parts
    }

    /// Blocks that were holes are delayed from now on, as zeros but for the bytes `written`, which
    /// the caller writes at once.
    pub(crate) fn insert(
        &mut self,
        blocks: Range<u64>,
        written: &Range<u64>,
        geometry: &Geometry,
        buffers: &BufferPool,
    ) {
        let block_len = geometry.block_len();
        let joins = |block: Option<u64>| block.is_some_and(|block| self.contains(block, geometry));
        let (before, after) = (joins(blocks.start.checked_sub(1)), joins(Some(blocks.end)));
        self.runs = self.runs + 1 - u64::from(before) - u64::from(after);
        self.blocks += blocks.end - blocks.start;
        let mut start = blocks.start;
        let mut room = block_len;
        let is_barred = start > 0 && self.is_block_under_writeback(start - 1);
        if before && let Some((first, chunk)) = self.chunks.range_mut(..start).next_back() {
            debug_assert_eq!(first + (chunk.len() / block_len) as u64, start, "the chunk before");
            // Room that an earlier write left.
            let spare = if is_barred { 0 } else { (chunk.buffer.len() - chunk.end) / block_len };
            let taken = (blocks.end - start).min(spare as u64);
            if taken > 0 {
                chunk.grow(taken as usize * block_len, start << geometry.block_bits(), written);
                start += taken;
            }
            room = chunk.buffer.len() * 2;
        }
        while start < blocks.end {
            let left = (blocks.end - start) as usize * block_len;
            // A file that is written from its start on gets ever longer chunks.
            let free = self.chunks.range(start..).next().map_or(u64::MAX, |(next, _)| next - start);
            let free = usize::try_from(free).unwrap_or(usize::MAX).saturating_mul(block_len);
            let capacity = left.max(room.min(free)).min(CHUNK);
            let len = left.min(capacity);
            let mut chunk = DirtyChunk::new(capacity, buffers);
            chunk.grow(len, start << geometry.block_bits(), written);
            self.memory += chunk.memory();
            self.chunks.insert(start, chunk);
            start += (len / block_len) as u64;
            room = capacity * 2;
        }
    }

    /// Writes over delayed blocks: as many of the bytes as lie in one chunk.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8], geometry: &Geometry) -> usize {
        let bits = geometry.block_bits();
        let block = offset >> bits;
        let Some((start, chunk)) = self.chunks.range_mut(..=block).next_back() else { return 0 };
        let from = usize::try_from(offset - (start << bits)).unwrap_or(usize::MAX);
        if from >= chunk.len() {
            return 0;
        }
        let count = bytes.len().min(chunk.len() - from);
        chunk.bytes_mut()[from..from + count].copy_from_slice(&bytes[..count]);
        self.size = self.size.max(offset + count as u64);
        count
    }

    /// Sets delayed bytes of a range within a block to zeros.
    pub(crate) fn zero(&mut self, bytes: Range<u64>, geometry: &Geometry) {
        let bits = geometry.block_bits();
        let block = bytes.start >> bits;
        if let Some((start, chunk)) = self.chunks.range_mut(..=block).next_back() {
            let from = usize::try_from(bytes.start - (start << bits)).unwrap_or(usize::MAX);
            let to = usize::try_from(bytes.end - (start << bits)).unwrap_or(usize::MAX);
            if from < chunk.len() {
                let to = to.min(chunk.len());
                chunk.bytes_mut()[from..to].fill(0);
            }
        }
    }

    /// Blocks are delayed no more.
    pub(crate) fn remove(&mut self, blocks: Range<u64>, geometry: &Geometry, buffers: &BufferPool) {
        let block_len = geometry.block_len();
        let touched: Vec<u64> = self
            .chunks
            .range(..blocks.end)
            .rev()
            .take_while(|(start, chunk)| **start + (chunk.len() / block_len) as u64 > blocks.start)
            .map(|(start, _)| *start)
            .collect();
        for start in touched {
            let Some(mut chunk) = self.chunks.remove(&start) else { continue };
            let end = start + (chunk.len() / block_len) as u64;
            // Within the chunk, so it fits.
            let kept_before = blocks.start.saturating_sub(start) as usize * block_len;
            let kept_after = end.saturating_sub(blocks.end) as usize * block_len;
            self.blocks -= ((chunk.len() - kept_before - kept_after) / block_len) as u64;
            if kept_before > 0 && kept_after > 0 {
                let mut rest = DirtyChunk::new(kept_after, buffers);
                rest.end = kept_after;
                let from = chunk.len() - kept_after;
                rest.bytes_mut().copy_from_slice(&chunk.bytes()[from..]);
                self.memory += rest.memory();
                self.chunks.insert(blocks.end, rest);
            } else if kept_after > 0 {
                chunk.skipped = chunk.end - kept_after;
                self.chunks.insert(blocks.end, chunk);
                continue;
            }
            if kept_before > 0 {
                chunk.end = chunk.skipped + kept_before;
                self.chunks.insert(start, chunk);
                continue;
            }
            self.memory -= chunk.memory();
            buffers.give(chunk.buffer);
        }
        self.runs = self.runs(geometry).len() as u64;
        if self.chunks.is_empty() {
            self.size = 0;
        }
    }

    /// With bigalloc: whether the logical cluster is reserved.
    pub(super) fn has_cluster(&self, cluster: u64) -> bool {
        self.clusters.contains(&cluster)
    }

    /// Marks a logical cluster as reserved.
    pub(super) fn add_cluster(&mut self, cluster: u64) {
        self.clusters.insert(cluster);
    }

    /// Logical clusters that are no longer reserved: of a range those that `is_gone` names.
    pub(super) fn remove_clusters(
        &mut self,
        range: Range<u64>,
        is_gone: impl Fn(&Self, u64) -> bool,
    ) {
        let gone: Vec<u64> = self.clusters.range(range).copied().collect();
        for cluster in gone {
            if is_gone(self, cluster) {
                self.clusters.remove(&cluster);
            }
        }
    }

    /// With bigalloc: how many logical clusters are reserved.
    pub(super) fn clusters_count(&self) -> u64 {
        self.clusters.len() as u64
    }
}
