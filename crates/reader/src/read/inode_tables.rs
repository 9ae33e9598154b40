//! Inode tables read in runs: files that are used together lie together there, and a disk reads a
//! run as fast as a block of it.

use super::group;
use crate::cache::BlockCache;
use crate::source::{BlockKind, MetadataRead};
use extant_device::Device;
use extant_ondisk::{BlockNo, Geometry, GroupNo};
use std::ops::Range;
use std::sync::Arc;

/// A run takes at most this part of the memory for blocks: files in no order would push out all
/// else.
const SHARE: u64 = 256;

/// How many blocks of a table are read at once: as many as are wanted, as far as memory goes.
pub fn longest_run(wanted: u32, memory: u64, block_size: u32) -> u32 {
    let room = memory / SHARE / u64::from(block_size);
    // At most what is wanted.
    room.min(u64::from(wanted)) as u32
}

/// The run around a block: one of those that a table falls into, each as long as is wanted, cut
/// where the table ends; the block alone where it is not of the table.
fn run_around(block: u64, longest: u32, table: &Range<u64>) -> Range<u64> {
    let longest = u64::from(longest.max(1));
    if longest == 1 || !table.contains(&block) {
        return block..block + 1;
    }
    // Blocks have 48 bits.
    let start = block - block % longest;
    start.max(table.start)..(start + longest).min(table.end)
}

/// The blocks of a group's inode table that are read with one of it, at most `longest`: as far as
/// inodes were ever used. If the descriptor is broken, the block alone: a caller that needs the
/// descriptor gets the error.
pub fn run_of_table<S: MetadataRead>(
    source: &S,
    longest: u32,
    block: BlockNo,
    group: GroupNo,
) -> Range<u64> {
    let alone = block.0..block.0 + 1;
    if longest <= 1 {
        return alone;
    }
    let Ok(desc) = group::descriptor(source, group) else { return alone };
    let geometry = source.geometry();
    let used = desc.itable_used(geometry).div_ceil(geometry.inodes_per_block());
    // The table lies on the volume, as the descriptor was checked for.
    let table = desc.inode_table.0..desc.inode_table.0 + u64::from(used);
    run_around(block.0, longest, &table)
}

/// A block of a table, with the neighbours in its run that the cache does not have. `None` where
/// there is nothing to read with it, or that could not be read: then it is read alone.
pub(crate) fn read_run(
    geometry: &Geometry,
    (device, cache): (&dyn Device, &BlockCache),
    block: BlockNo,
    group: GroupNo,
    run: &Range<u64>,
) -> Option<Arc<[u8]>> {
    let is_missing = |at: &u64| !cache.holds(BlockNo(*at));
    let before = (run.start..block.0).rev().take_while(is_missing).count() as u64;
    let after = (block.0 + 1..run.end).take_while(is_missing).count() as u64;
    if before + after == 0 {
        return None;
    }
    let first = block.0 - before;
    let count = usize::try_from(before + 1 + after).ok()?;
    let mut bytes = vec![0; count * geometry.block_len()];
    device.read_at(geometry.byte_of(BlockNo(first)), &mut bytes).ok()?;
    let mut found = None;
    for (at, bytes) in (first..).map(BlockNo).zip(bytes.chunks_exact(geometry.block_len())) {
        if at == block {
            found = Some(bytes.into());
        } else {
            cache.keep(at, BlockKind::InodeTable { group }, bytes.into());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_aligned_and_end_with_the_table() {
        let table = 1000..1100;
        assert_eq!(run_around(1030, 32, &table), 1024..1056);
        assert_eq!(run_around(1024, 32, &table), 1024..1056);
        assert_eq!(run_around(1000, 32, &table), 1000..1024);
        assert_eq!(run_around(1099, 32, &table), 1088..1100);
        assert_eq!(run_around(1050, 4096, &table), 1000..1100);
        for alone in [(1050, 0), (1050, 1), (999, 32), (1100, 32)] {
            assert_eq!(run_around(alone.0, alone.1, &table), alone.0..alone.0 + 1);
        }
    }

    #[test]
    fn little_memory_shortens_runs_to_one_block() {
        assert_eq!(longest_run(32, 64 << 20, 4096), 32);
        assert_eq!(longest_run(32, 8 << 20, 4096), 8);
        assert_eq!(longest_run(32, 8 << 20, 65_536), 0);
        assert_eq!(longest_run(1 << 20, 64 << 20, 4096), 64);
        assert_eq!(longest_run(0, 64 << 20, 4096), 0);
    }
}
