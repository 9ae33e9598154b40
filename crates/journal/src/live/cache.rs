//! The frame cache: sharded by block number and bounded. Concurrent readers of a block share one
//! read.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::io::IoSliceMut;
use std::ops::Range;

use extant_device::{Device, DeviceError, Request};
use extant_ondisk::{BlockNo, Flaw, Location};
use extant_runtime::sync::atomic::{AtomicU64, Ordering};
use extant_runtime::sync::{Arc, Mutex, MutexGuard};

use super::frame::{Content, Frame};
use super::ranks::{CacheLock, FrameLock};
use crate::JournalError;
use crate::home::MAX_BUFFERS;

/// Number of shards; adjacent blocks are in different ones.
const SHARDS: u64 = 64;
/// Number of frames that a shard keeps regardless of the limit.
const MIN_SHARD: usize = 8;
/// Maximum number of frames that one insertion examines for eviction.
const MAX_EXAMINED: usize = 8;
/// As [`MAX_EXAMINED`], for a readahead frame, which is not created if the cache is full. When all
/// examined frames were used recently, more are examined, until one of them comes up a second time.
const MAX_EXAMINED_READAHEAD: usize = 64;

/// Hashes block numbers: multiplication by an odd constant (the golden ratio), after Knuth.
#[derive(Default)]
pub(super) struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

pub(super) type ByBlock = BuildHasherDefault<BlockHasher>;

#[derive(Default)]
struct Shard {
    frames: HashMap<u64, Frame, ByBlock>,
    /// Block numbers in the order in which frames are considered for eviction.
    queue: VecDeque<u64>,
}

impl Shard {
    /// Evicts unused frames while the shard is over its limit. Returns whether there is room for
    /// another frame.
    fn make_room(&mut self, limit: usize, max_examined: usize) -> bool {
        for _ in 0..max_examined {
            if self.frames.len() < limit {
                break;
            }
            let Some(oldest) = self.queue.pop_front() else { break };
            if self.frames.get(&oldest).is_some_and(Frame::is_idle) {
                self.frames.remove(&oldest);
            } else {
                self.queue.push_back(oldest);
            }
        }
        self.frames.len() < limit
    }

    fn insert(&mut self, frame: &Frame) {
        self.frames.insert(frame.block().0, frame.clone());
        self.queue.push_back(frame.block().0);
    }
}

pub(super) struct Cache {
    device: Arc<dyn Device>,
    block_size: u32,
    blocks_count: AtomicU64,
    shards: Vec<Mutex<Shard, CacheLock>>,
    shard_limit: usize,
}

impl Cache {
    /// Creates a cache of about `frames` frames.
    pub(super) fn new(
        device: Arc<dyn Device>,
        block_size: u32,
        blocks_count: u64,
        frames: usize,
    ) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let shard_limit = (frames / SHARDS as usize).max(MIN_SHARD);
        let blocks_count = AtomicU64::new(blocks_count);
        Self { device, block_size, blocks_count, shards, shard_limit }
    }

    /// Number of blocks of the volume.
    fn blocks_count(&self) -> u64 {
        self.blocks_count.load(Ordering::Acquire)
    }

    /// The volume has more blocks.
    pub(super) fn grow(&self, blocks_count: u64) {
        self.blocks_count.fetch_max(blocks_count, Ordering::AcqRel);
    }

    fn shard(&self, block: BlockNo) -> MutexGuard<'_, Shard, CacheLock> {
        self.shards[(block.0 % SHARDS) as usize].lock()
    }

    /// The frame of a block, whose content may not be loaded yet.
    pub(super) fn frame(&self, block: BlockNo) -> Result<Frame, JournalError> {
        let blocks_count = self.blocks_count();
        if block.0 >= blocks_count {
            let flaw = Flaw::above_limit("block", block.0, blocks_count.saturating_sub(1));
            return Err(flaw.at(Location::Block(block)).into());
        }
        let mut shard = self.shard(block);
        if let Some(frame) = shard.frames.get(&block.0) {
            frame.reference();
            return Ok(frame.clone());
        }
        shard.make_room(self.shard_limit, MAX_EXAMINED);
        let frame = Frame::new(block);
        frame.reference();
        shard.insert(&frame);
        Ok(frame)
    }

    /// A frame for readahead of a block that has none. `None` if that would evict a frame in use.
    fn new_frame(&self, block: BlockNo) -> Option<Frame> {
        let mut shard = self.shard(block);
        if block.0 >= self.blocks_count()
            || shard.frames.contains_key(&block.0)
            || !shard.make_room(self.shard_limit, MAX_EXAMINED_READAHEAD)
        {
            return None;
        }
        let frame = Frame::new(block);
        shard.insert(&frame);
        Some(frame)
    }

    /// The frame of a block, if it is cached.
    pub(super) fn peek(&self, block: BlockNo) -> Option<Frame> {
        self.shard(block).frames.get(&block.0).cloned()
    }

    /// The frame of a block, read if it is not loaded. Concurrent callers wait for one read.
    pub(super) fn read(&self, block: BlockNo) -> Result<Frame, JournalError> {
        let frame = self.frame(block)?;
        if !frame.is_loaded() {
            let mut content = frame.lock();
            if !frame.is_loaded() {
                let mut data = self.empty();
                self.device.read_at(self.byte_of(block), own(&mut data))?;
                frame.set_loaded(&mut content, data);
            }
        }
        Ok(frame)
    }

    /// As [`Self::read`]. If the block must be read, those of `run` that have no frame yet are read
    /// with it. Other blocks that are in memory are not changed, and a failed read of one is not
    /// reported.
    pub(super) fn read_with(
        &self,
        block: BlockNo,
        run: impl FnOnce() -> Range<u64>,
    ) -> Result<Frame, JournalError> {
        let frame = self.frame(block)?;
        if frame.is_loaded() {
            return Ok(frame);
        }
        let run = run();
        let before = (run.start..run.end.min(block.0)).map(BlockNo);
        let after = (run.start.max(block.0 + 1)..run.end).map(BlockNo);
        let mut frames: Vec<Frame> = before.filter_map(|block| self.new_frame(block)).collect();
        frames.push(frame.clone());
        frames.extend(after.filter_map(|block| self.new_frame(block)));
        if frames.len() > 1 && self.load(&frames.iter().collect::<Vec<_>>()).is_ok() {
            return Ok(frame);
        }
        self.read(block)
    }

    /// The frames of several blocks; those that must be read are read as one batch.
    pub(super) fn read_many(&self, blocks: &[BlockNo]) -> Result<Vec<Frame>, JournalError> {
        let frames =
            blocks.iter().map(|block| self.frame(*block)).collect::<Result<Vec<_>, _>>()?;
        let mut missing: Vec<&Frame> = frames.iter().filter(|frame| !frame.is_loaded()).collect();
        missing.sort_unstable_by_key(|frame| frame.block());
        missing.dedup_by_key(|frame| frame.block());
        self.load(&missing)?;
        Ok(frames)
    }

    /// Reads the frames that are not loaded, adjacent blocks in one request. They are ordered by
    /// block number.
    fn load(&self, missing: &[&Frame]) -> Result<(), DeviceError> {
        // In lock order; another reader may have loaded one already.
        let mut locked: Vec<(&Frame, MutexGuard<'_, Content, FrameLock>)> =
            missing.iter().map(|frame| (*frame, frame.lock())).collect();
        locked.retain(|(frame, _)| !frame.is_loaded());
        if locked.is_empty() {
            return Ok(());
        }
        let mut data: Vec<_> = locked.iter().map(|_| self.empty()).collect();
        let mut requests: Vec<Request<'_>> = Vec::new();
        let mut left = locked.iter().map(|(frame, _)| frame.block()).zip(&mut data).peekable();
        while let Some((first, data)) = left.next() {
            let mut buffers = vec![IoSliceMut::new(own(data))];
            let mut end = first.0 + 1;
            while let Some((_, data)) =
                left.next_if(|(block, _)| block.0 == end && buffers.len() < MAX_BUFFERS)
            {
                buffers.push(IoSliceMut::new(own(data)));
                end += 1;
            }
            requests.push(Request::read_vectored(self.byte_of(first), buffers));
        }
        self.device.submit(&mut requests)?;
        drop(requests);
        for ((frame, content), data) in locked.iter_mut().zip(data) {
            frame.set_loaded(content, data);
        }
        Ok(())
    }

    /// A block of zeros.
    pub(super) fn empty(&self) -> Arc<[u8]> {
        std::iter::repeat_n(0, self.block_size as usize).collect()
    }

    fn byte_of(&self, block: BlockNo) -> u64 {
        block.0 * u64::from(self.block_size)
    }

    /// Number of frames.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().frames.len()).sum()
    }
}

fn own(data: &mut Arc<[u8]>) -> &mut [u8] {
    Arc::get_mut(data).expect("made here, not shared yet")
}
