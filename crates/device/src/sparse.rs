//! Bytes kept in memory by chunks, for devices that are mostly empty.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use extant_runtime::sync::RwLock;

/// Bytes in a chunk: small enough for scattered bitmaps, large enough for streams.
pub(crate) const CHUNK: u64 = 16 * 1024;
const SHARDS: usize = 64;
/// Neighbouring chunks share a shard by this many (a power of two), so that one request takes few
/// locks.
const CHUNKS_TOGETHER: u64 = 16;

/// The chunks that were ever written. Shared between forks until one of them writes.
pub(crate) struct SparseBytes {
    shards: Vec<RwLock<BTreeMap<u64, Arc<[u8]>>>>,
}

/// The part of a request that lies in one chunk.
#[derive(Clone, Debug)]
pub(crate) struct ChunkRange {
    pub(crate) chunk: u64,
    /// Bytes within the chunk.
    pub(crate) within: Range<usize>,
}

impl ChunkRange {
    pub(crate) fn is_whole_chunk(&self) -> bool {
        self.within == (0..CHUNK as usize)
    }
    pub(crate) fn len(&self) -> usize {
        self.within.len()
    }
}

/// Cuts a range of bytes at chunk borders.
pub(crate) fn chunk_ranges(range: Range<u64>) -> impl Iterator<Item = ChunkRange> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        let chunk = at / CHUNK;
        let start = at % CHUNK;
        let end = CHUNK.min(start + (range.end - at));
        at += end - start;
        Some(ChunkRange { chunk, within: start as usize..end as usize })
    })
}

fn zero_chunk() -> Arc<[u8]> {
    Arc::from(vec![0; CHUNK as usize])
}

impl SparseBytes {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| RwLock::new(BTreeMap::new())).collect() }
    }

    /// A copy that shares every chunk until one side writes it.
    pub(crate) fn fork(&self) -> Self {
        Self { shards: self.shards.iter().map(|shard| RwLock::new(shard.read().clone())).collect() }
    }

    fn shard(&self, chunk: u64) -> &RwLock<BTreeMap<u64, Arc<[u8]>>> {
        &self.shards[(chunk / CHUNKS_TOGETHER) as usize % SHARDS]
    }

    /// Copies the piece out; false where the chunk was never written.
    pub(crate) fn read(&self, range: &ChunkRange, to: &mut [u8]) -> bool {
        match self.shard(range.chunk).read().get(&range.chunk) {
            Some(chunk) => {
                to.copy_from_slice(&chunk[range.within.clone()]);
                true
            }
            None => false,
        }
    }

    pub(crate) fn contains(&self, chunk: u64) -> bool {
        self.shard(chunk).read().contains_key(&chunk)
    }

    /// Writes the piece. `fill` gives the rest of a chunk that was never written; it runs under the
    /// chunk's lock, so that two writers of one chunk do not lose each other's bytes.
    pub(crate) fn write<E>(
        &self,
        range: &ChunkRange,
        from: &[u8],
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut shard = self.shard(range.chunk).write();
        match shard.get_mut(&range.chunk) {
            Some(chunk) => Arc::make_mut(chunk)[range.within.clone()].copy_from_slice(from),
            None if range.is_whole_chunk() => {
                shard.insert(range.chunk, Arc::from(from));
            }
            None => {
                let mut chunk = zero_chunk();
                let bytes = Arc::make_mut(&mut chunk);
                fill(bytes)?;
                bytes[range.within.clone()].copy_from_slice(from);
                shard.insert(range.chunk, chunk);
            }
        }
        Ok(())
    }

    /// Zeroes the piece where its chunk was ever written; false where it was not.
    pub(crate) fn zero_written(&self, range: &ChunkRange) -> bool {
        match self.shard(range.chunk).write().get_mut(&range.chunk) {
            Some(chunk) => {
                Arc::make_mut(chunk)[range.within.clone()].fill(0);
                true
            }
            None => false,
        }
    }

    /// Forgets every chunk in the range of chunk numbers.
    pub(crate) fn remove(&self, chunks: Range<u64>) {
        if chunks.is_empty() {
            return;
        }
        for shard in &self.shards {
            let mut shard = shard.write();
            let mut tail = shard.split_off(&chunks.start);
            let mut keep = tail.split_off(&chunks.end);
            shard.append(&mut keep);
        }
    }

    /// The first run of written chunks that touches `chunks`, cut to it.
    pub(crate) fn next_run(&self, chunks: Range<u64>) -> Option<Range<u64>> {
        if chunks.is_empty() {
            return None;
        }
        let first = |shard: &RwLock<BTreeMap<u64, Arc<[u8]>>>| {
            shard.read().range(chunks.clone()).next().map(|(chunk, _)| *chunk)
        };
        let start = self.shards.iter().filter_map(first).min()?;
        let mut end = start + 1;
        while end < chunks.end && self.contains(end) {
            end += 1;
        }
        Some(start..end)
    }

    /// Bytes held in memory.
    pub(crate) fn held(&self) -> u64 {
        self.shards.iter().map(|shard| shard.read().len() as u64 * CHUNK).sum()
    }
}
