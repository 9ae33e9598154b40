//! Reading ahead: for a file that is read in sequence, the device gets a hint of the next bytes, so
//! that they are in the host's cache when they are read.

use super::inode::LoadedInode;
use super::mapping::{MappingTarget, map};
use crate::source::MetadataRead;
use extant_device::Device;
use extant_ondisk::{FileBlock, InodeNo};
use extant_runtime::sync::atomic::{AtomicU64, Ordering};
use std::ops::Range;

/// Number of bytes of one hint, about: several requests of the largest size that disks take.
const STEP: u64 = 4 << 20;
/// Files whose readers are remembered.
const SLOTS: usize = 64;
/// Number of runs of one hint: reading a fragmented file ahead is not sequential on the disk.
const RUNS: usize = 16;

/// The sequential readers. Readers that share a slot, or a file, may make each other forgotten;
/// then less is read ahead.
#[derive(Debug)]
pub struct FileReadAhead {
    slots: [Slot; SLOTS],
}

/// A reader.
#[derive(Debug, Default)]
struct Slot {
    /// The file, and where its last read has ended.
    next: AtomicU64,
    /// The end of the last hint.
    until: AtomicU64,
}

impl Default for FileReadAhead {
    fn default() -> Self {
        Self { slots: std::array::from_fn(|_| Slot::default()) }
    }
}

impl FileReadAhead {
    /// Records a read of a file; returns the bytes to hint to the device.
    fn record(&self, file: InodeNo, offset: u64, count: u64) -> Option<Range<u64>> {
        let slot = &self.slots[file.0 as usize % SLOTS];
        // The offset's lower half is enough to tell a sequence.
        let mark = |at: u64| u64::from(file.0) << 32 | at & u64::from(u32::MAX);
        let end = offset.saturating_add(count);
        let before = slot.next.swap(mark(end), Ordering::Relaxed);
        if offset == 0 || before != mark(offset) {
            slot.until.store(0, Ordering::Relaxed);
            return None;
        }
        let until = slot.until.load(Ordering::Relaxed);
        if until >= end.saturating_add(STEP) {
            return None;
        }
        let ahead = until.max(end)..end.saturating_add(2 * STEP);
        slot.until.store(ahead.end, Ordering::Relaxed);
        Some(ahead)
    }

    /// Records that at most `count` bytes of a file are about to be read; hints the bytes after
    /// them if that makes a sequence.
    pub fn note_read<S: MetadataRead>(
        &self,
        source: &S,
        device: &dyn Device,
        file: &LoadedInode,
        offset: u64,
        count: usize,
    ) {
        let count = (count as u64).min(file.size.saturating_sub(offset));
        let Some(ahead) = self.record(file.number, offset, count) else { return };
        let geometry = source.geometry();
        let bits = geometry.block_bits();
        let end = ahead.end.min(file.size).div_ceil(u64::from(geometry.block_size));
        let mut at = ahead.start >> bits;
        for _ in 0..RUNS {
            if at >= end || file.is_inline() {
                return;
            }
            // A reader of the broken block gets the error.
            let Ok(run) = map(source, file, FileBlock(at)) else { return };
            let len = run.len.min(end - at);
            if let MappingTarget::Written(start) = run.target {
                let from = geometry.byte_of(start);
                device.will_need(from..from.saturating_add(len << bits));
            }
            at += len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeNo = InodeNo(12);

    #[test]
    fn a_sequence_is_read_ahead_step_by_step() {
        let ahead = FileReadAhead::default();
        assert_eq!(ahead.record(FILE, 0, 1 << 20), None);
        let first = ahead.record(FILE, 1 << 20, 1 << 20);
        assert_eq!(first, Some(2 << 20..(2 << 20) + 2 * STEP));
        let windows = (2_u64..40).filter_map(|at| ahead.record(FILE, at << 20, 1 << 20));
        // Each time it starts where the last one ended.
        let mut until = first.unwrap().end;
        for range in windows {
            assert_eq!(range.start, until);
            assert!(range.end - range.start >= STEP);
            until = range.end;
        }
        assert!(until >= 40 << 20);
    }

    #[test]
    fn what_is_no_sequence_is_not() {
        let ahead = FileReadAhead::default();
        for at in [0, 8 << 20, 4 << 20, 0, 5 << 20] {
            assert_eq!(ahead.record(FILE, at, 4096), None);
        }
        assert_eq!(ahead.record(InodeNo(13), (5 << 20) + 4096, 4096), None);
    }
}
