//! Bad blocks: read from a list, or found by reading (and writing) the whole device.

use std::path::Path;

use extant_device::{Device, DeviceError};
use extant_layout::RunSet;

use super::error::MkfsError;

/// Bytes tried at once; only where that fails block by block.
const PIECE: u64 = 1 << 20;
/// What the writing test writes and expects back.
const PATTERNS: [u8; 4] = [0xaa, 0x55, 0xff, 0x00];

/// Reads numbers of blocks, one a line. Blocks past the end are left out, as mke2fs does.
///
/// # Errors
/// The file cannot be read, or holds something else.
pub fn read_list(path: &Path, blocks: u64) -> Result<RunSet, MkfsError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| MkfsError::Io { path: path.to_owned(), source })?;
    let mut bad = RunSet::new();
    for word in text.split_whitespace() {
        let block: u64 = word.parse().map_err(|_| {
            MkfsError::Invalid(format!("{}: not a block number: {word}", path.display()))
        })?;
        if block < blocks {
            bad.insert(block..block + 1);
        }
    }
    Ok(bad)
}

/// Tests every block by reading it.
///
/// # Errors
/// None but what the device's own arithmetic refuses: a block that cannot be read is what is looked for.
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

/// Tests every block by writing patterns and reading them back. What was there is lost.
pub(super) fn by_writing(
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
