//! Changes that stay in memory until the switch to the new size, over a device whose free blocks
//! are written at once.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use extant_device::{Device, DeviceError, Request, check_batch, check_range, run_in_memory};
use extant_layout::RunSet;
use extant_ondisk::{BlockNo, Geometry};
use extant_runtime::sync::RwLock;

/// A device that reads as its base with the changes made to it. Blocks that the volume uses are
/// changed in memory; blocks that it does not use are written to the base.
pub(super) struct Staged {
    base: Arc<dyn Device>,
    block_size: u64,
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    /// Blocks that the volume on the base does not use.
    unused: RunSet,
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl Staged {
    pub(super) fn new(base: Arc<dyn Device>, geometry: &Geometry) -> Self {
        Self { base, block_size: u64::from(geometry.block_size), state: RwLock::default() }
    }

    /// Blocks that the volume does not use: writes to them go to the base.
    pub(super) fn add_unused(&self, blocks: Range<u64>) {
        self.state.write().unused.insert(blocks);
    }

    /// All blocks that were unused are used from now on.
    pub(super) fn clear_unused(&self) {
        self.state.write().unused = RunSet::new();
    }

    /// Number of blocks that are in memory.
    pub(super) fn held(&self) -> usize {
        self.state.read().blocks.len()
    }

    /// The blocks that differ from the base, in order. They leave the memory.
    pub(super) fn take_changes(&self) -> Result<Vec<(BlockNo, Vec<u8>)>, DeviceError> {
        let blocks = std::mem::take(&mut self.state.write().blocks);
        let mut changes = Vec::new();
        let mut before = vec![0; self.length()];
        for (block, bytes) in blocks {
            self.base.read_at(block * self.block_size, &mut before)?;
            if before[..] != bytes[..] {
                changes.push((BlockNo(block), bytes.into_vec()));
            }
        }
        Ok(changes)
    }

    /// The block size as a length in memory: at most 64 KiB.
    fn length(&self) -> usize {
        self.block_size as usize
    }

    fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        let end = offset + to.len() as u64;
        let state = self.state.read();
        let last = end.saturating_sub(1) / self.block_size;
        let is_one = offset / self.block_size == last;
        if !(is_one && state.blocks.contains_key(&last)) {
            self.base.read_at(offset, to)?;
        }
        for (block, bytes) in
            state.blocks.range(offset / self.block_size..end.div_ceil(self.block_size))
        {
            let start = block * self.block_size;
            let (from, until) = (offset.max(start), end.min(start + self.block_size));
            // Within the block, and within the buffer.
            to[(from - offset) as usize..(until - offset) as usize]
                .copy_from_slice(&bytes[(from - start) as usize..(until - start) as usize]);
        }
        Ok(())
    }

    /// The parts of a range that are unused blocks (true) or not (false), in order.
    fn parts(&self, range: Range<u64>) -> Vec<(bool, Range<u64>)> {
        let blocks = range.start / self.block_size..range.end.div_ceil(self.block_size);
        let bytes = |run: Range<u64>| {
            (run.start * self.block_size).max(range.start)
                ..(run.end * self.block_size).min(range.end)
        };
        let (mut parts, mut at) = (Vec::new(), blocks.start);
        for run in self.state.read().unused.runs_in(blocks.clone()) {
            if at < run.start {
                parts.push((false, bytes(at..run.start)));
            }
            at = run.end;
            parts.push((true, bytes(run)));
        }
        if at < blocks.end {
            parts.push((false, bytes(at..blocks.end)));
        }
        parts
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        for (is_unused, part) in self.parts(offset..offset + from.len() as u64) {
            let bytes = &from[(part.start - offset) as usize..(part.end - offset) as usize];
            match is_unused {
                true => self.base.write_at(part.start, bytes)?,
                false => self.stage(part.start, bytes)?,
            }
        }
        Ok(())
    }

    fn stage(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        let end = offset + from.len() as u64;
        for block in offset / self.block_size..end.div_ceil(self.block_size) {
            let start = block * self.block_size;
            let (first, until) = (offset.max(start), end.min(start + self.block_size));
            let part = &from[(first - offset) as usize..(until - offset) as usize];
            if part.len() == self.length() {
                self.state.write().blocks.insert(block, part.into());
                continue;
            }
            let within = (first - start) as usize..(until - start) as usize;
            if let Some(whole) = self.state.write().blocks.get_mut(&block) {
                whole[within].copy_from_slice(part);
                continue;
            }
            let mut whole = vec![0; self.length()];
            self.base.read_at(start, &mut whole)?;
            whole[within].copy_from_slice(part);
            self.state.write().blocks.insert(block, whole.into());
        }
        Ok(())
    }

    fn zero(&self, range: Range<u64>) -> Result<(), DeviceError> {
        /// Bytes staged at once.
        const PIECE: u64 = 1 << 20;
        for (is_unused, part) in self.parts(range) {
            if is_unused {
                self.base.write_zeroes(part)?;
                continue;
            }
            let mut at = part.start;
            while at < part.end {
                let end = part.end.min(at + PIECE);
                self.stage(at, &vec![0; (end - at) as usize])?;
                at = end;
            }
        }
        Ok(())
    }
}

impl Device for Staged {
    fn size(&self) -> u64 {
        self.base.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        // The switch writes the changes in memory, and flushes.
        run_in_memory(
            batch,
            |offset, to| self.read(offset, to),
            |offset, from| self.write(offset, from),
            |range| self.zero(range),
        )
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        check_range(self.size(), &range)?;
        let state = self.state.read();
        let blocks = range.start / self.block_size..range.end.div_ceil(self.block_size);
        let staged = state.blocks.range(blocks).next().map(|(block, _)| {
            let start = (block * self.block_size).max(range.start);
            start..((block + 1) * self.block_size).min(range.end)
        });
        let stored = self.base.next_data(range)?;
        Ok(match (staged, stored) {
            (Some(one), Some(other)) if one.start < other.start => Some(one),
            (one, other) => other.or(one),
        })
    }

    fn is_read_only(&self) -> bool {
        self.base.is_read_only()
    }

    fn sector_size(&self) -> u32 {
        self.base.sector_size()
    }
}

impl fmt::Debug for Staged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staged").field("base", &self.base).field("held", &self.held()).finish()
    }
}
