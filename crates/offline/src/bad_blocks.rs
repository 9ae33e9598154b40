//! Bad blocks: found by reading (and writing) the whole device.

use extant_device::{Device, DeviceError};
use extant_layout::RunSet;

/// Bytes tried at once; only where that fails block by block.
const PIECE: u64 = 1 << 20;
/// The bytes that the write test writes and expects to read.
const PATTERNS: [u8; 4] = [0xaa, 0x55, 0xff, 0x00];

/// Tests every block by reading it.
///
/// # Errors
/// None but what the device's own arithmetic refuses: a block that cannot be read is what is looked
/// for.
pub fn by_reading(
    device: &dyn Device,
    offset: u64,
    block_size: u32,
    blocks: u64,
) -> Result<RunSet, DeviceError> {
    let read = |start: u64, length: u64| {
        let mut buffer = vec![0; usize::try_from(length).unwrap_or(0)];
        Ok(device.read_at(start, &mut buffer).is_ok())
    };
    search(offset, block_size, blocks, read)
}

/// Tests every block by writing patterns and reading them back. The contents are overwritten.
///
/// # Errors
/// As [`by_reading`], and where the device cannot be flushed.
pub fn by_writing(
    device: &dyn Device,
    offset: u64,
    block_size: u32,
    blocks: u64,
) -> Result<RunSet, DeviceError> {
    let mut bad = RunSet::new();
    for pattern in PATTERNS {
        let length = |length: u64| usize::try_from(length).unwrap_or(0);
        let found = search(offset, block_size, blocks, |start, bytes| {
            Ok(device.write_at(start, &vec![pattern; length(bytes)]).is_ok())
        })?;
        device.flush()?;
        for run in found.iter() {
            bad.insert(run);
        }
        let found = search(offset, block_size, blocks, |start, bytes| {
            let mut buffer = vec![!pattern; length(bytes)];
            let read = device.read_at(start, &mut buffer).is_ok();
            Ok(read && buffer.iter().all(|byte| *byte == pattern))
        })?;
        for run in found.iter() {
            bad.insert(run);
        }
    }
    Ok(bad)
}

/// Tests every block by writing other bytes, reading them back and putting back what was there. A
/// block that cannot be read is bad and is not written. Each piece is tested inside `whole`, which
/// may bar a program from ending half way.
///
/// # Errors
/// As [`by_reading`].
pub fn by_rewriting(
    device: &dyn Device,
    block_size: u32,
    blocks: u64,
    whole: impl Fn(&mut dyn FnMut()),
) -> Result<RunSet, DeviceError> {
    search(0, block_size, blocks, |start, length| {
        let mut is_good = false;
        whole(&mut || is_good = is_rewritable(device, start, length, block_size));
        Ok(is_good)
    })
}

/// Whether all bits of a range can change and change back.
fn is_rewritable(device: &dyn Device, start: u64, length: u64, block_size: u32) -> bool {
    let mut was = vec![0; usize::try_from(length).unwrap_or(0)];
    if device.read_at(start, &mut was).is_err() {
        return false;
    }
    let reads_back = |bytes: &[u8]| {
        let mut found = vec![0; bytes.len()];
        device.flush().is_ok() && device.read_at(start, &mut found).is_ok() && found == bytes
    };
    let other: Vec<u8> = was.iter().map(|byte| !byte).collect();
    let took_other = device.write_at(start, &other).is_ok() && reads_back(&other);
    if device.write_at(start, &was).is_ok() && reads_back(&was) {
        return took_other;
    }
    // One bad block must not keep its neighbours from what they had.
    for (at, block) in (start..).step_by(block_size as usize).zip(was.chunks(block_size as usize)) {
        let _ = device.write_at(at, block);
    }
    let _ = device.flush();
    false
}

fn search(
    offset: u64,
    block_size: u32,
    blocks: u64,
    is_good: impl Fn(u64, u64) -> Result<bool, DeviceError>,
) -> Result<RunSet, DeviceError> {
    let block_size = u64::from(block_size);
    let step = (PIECE / block_size).max(1);
    let mut bad = RunSet::new();
    let mut block = 0;
    while block < blocks {
        let count = step.min(blocks - block);
        if !is_good(offset + block * block_size, count * block_size)? {
            for single in block..block + count {
                if !is_good(offset + single * block_size, block_size)? {
                    bad.insert(single..single + 1);
                }
            }
        }
        block += count;
    }
    Ok(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_device::{MemoryDevice, Operation};
    use extant_sim::{Effect, Fault, FaultyDevice};
    use std::io::ErrorKind;
    use std::sync::Arc;

    const BLOCK: u64 = 1024;

    /// Every block holds its number, one refuses to be written, one reads as something else.
    #[test]
    fn rewriting_finds_blocks_that_do_not_take_bytes_and_leaves_the_others_as_they_were() {
        let inner = Arc::new(MemoryDevice::new(3 * PIECE));
        let blocks = inner.size() / BLOCK;
        for block in 0..blocks {
            inner.write_at(block * BLOCK, &block.to_le_bytes().repeat(128)).unwrap();
        }
        let before = read_all(&*inner);
        let device = FaultyDevice::new(inner.clone());
        let refused = Fault::new(Effect::Error(ErrorKind::Other)).on(Operation::Write);
        device.inject(refused.within(70 * BLOCK..71 * BLOCK));
        let flipped = Fault::new(Effect::FlippedBits { at: 1500 * BLOCK + 9, mask: 4 });
        device.inject(flipped.on(Operation::Read));
        let found = by_rewriting(&device, 1024, blocks, |work| work()).unwrap();
        assert_eq!(found.iter().collect::<Vec<_>>(), [70..71, 1500..1501]);
        let after = read_all(&*inner);
        // A used block may hold other data that happen to match; this is not detected.
        let changed = |block: &u64| {
            let range = (block * BLOCK) as usize..((block + 1) * BLOCK) as usize;
            *block != 1500 && before[range.clone()] != after[range]
        };
        assert_eq!((0..blocks).find(changed), None);
    }

    fn read_all(device: &dyn Device) -> Vec<u8> {
        let mut bytes = vec![0; device.size() as usize];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    }
}
