//! Metadata blocks in memory: sharded, bounded, each checked once as what it is used for.

use crate::error::Error;
use crate::source::BlockKind;
use extant_ondisk::BlockNo;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::sync::Arc;

/// A checked block.
#[derive(Clone, Debug)]
struct Checked {
    kind: BlockKind,
    bytes: Arc<[u8]>,
}

#[derive(Clone, Copy, Debug)]
struct ByBytes;

impl Weighter<BlockNo, Checked> for ByBytes {
    fn weight(&self, _: &BlockNo, block: &Checked) -> u64 {
        block.bytes.len() as u64
    }
}

/// The cache of a volume that is only read.
#[derive(Debug)]
pub(crate) struct BlockCache {
    blocks: Cache<BlockNo, Checked, ByBytes>,
}

impl BlockCache {
    /// A cache that holds at most `bytes` bytes of blocks.
    pub(crate) fn new(bytes: u64, block_size: u32) -> Self {
        let blocks = (bytes / u64::from(block_size)).max(1);
        // An estimate for sizing tables; 2^24 blocks would be 64 GiB of the usual size.
        let estimated = blocks.min(1 << 24) as usize;
        Self { blocks: Cache::with_weighter(estimated, bytes, ByBytes) }
    }

    /// The block checked as `kind`: from memory, or read. A block that is cached as another kind is
    /// checked again. Two threads that miss at once may both read: harmless, and no thread waits
    /// for another's device.
    pub(crate) fn get(
        &self,
        block: BlockNo,
        kind: BlockKind,
        read: impl FnOnce() -> Result<Arc<[u8]>, Error>,
        check: impl FnOnce(&[u8]) -> Result<(), Error>,
    ) -> Result<Arc<[u8]>, Error> {
        let bytes = match self.blocks.get(&block) {
            Some(known) if known.kind == kind => return Ok(known.bytes),
            Some(known) => known.bytes,
            None => read()?,
        };
        check(&bytes)?;
        self.blocks.insert(block, Checked { kind, bytes: bytes.clone() });
        Ok(bytes)
    }

    /// Whether a block is in memory.
    pub(crate) fn holds(&self, block: BlockNo) -> bool {
        self.blocks.contains_key(&block)
    }

    /// Keeps a block that was read together with another one; it is stored as `kind`, whatever its
    /// bytes are.
    pub(crate) fn keep(&self, block: BlockNo, kind: BlockKind, bytes: Arc<[u8]>) {
        self.blocks.insert(block, Checked { kind, bytes });
    }
}
