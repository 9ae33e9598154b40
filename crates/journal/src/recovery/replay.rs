//! Writes of the replayed blocks to their home locations.

use std::collections::HashMap;

use extant_device::Device;
use extant_ondisk::jbd2::unescape;
use extant_ondisk::{BlockNo, Flaw, Location};

use super::report::{Damage, Recovered};
use super::scan::{LogContents, LoggedBlock};
use crate::home::write_home;
use crate::log::LogReader;
use crate::{JournalError, Log};

/// Bytes written in one batch.
const BATCH: usize = 4 << 20;

/// Writes the last version of every logged block that is not revoked.
pub(super) fn replay(
    target: &dyn Device,
    log: &Log<'_>,
    found: &LogContents,
    recovered: &mut Recovered,
) -> Result<(), JournalError> {
    let blocks_count = target.size() / u64::from(log.block_size());
    let mut last = HashMap::<BlockNo, &LoggedBlock>::new();
    for block in &found.blocks {
        if found.is_revoked(block) {
            recovered.revoked += 1;
        } else if block.home.0 >= blocks_count {
            let flaw = Flaw::above_limit("t_blocknr", block.home.0, blocks_count);
            recovered.record(Damage::Block(flaw.at(Location::JournalBlock(block.at))));
        } else {
            last.insert(block.home, block);
        }
    }
    // The log is read in log order, in long runs; a batch is then sorted by home location.
    let mut blocks: Vec<_> = last.into_values().collect();
    blocks.sort_unstable_by_key(|block| block.at);
    let size = log.block_size() as usize;
    let mut reader = LogReader::new(*log, log.place.runs.blocks_count());
    let mut bytes = vec![0; BATCH.max(size).min(blocks.len().saturating_mul(size))];
    for some in blocks.chunks(BATCH.div_ceil(size)) {
        for (block, copy) in some.iter().zip(bytes.chunks_exact_mut(size)) {
            copy.copy_from_slice(reader.block(block.at)?);
            if block.is_escaped {
                unescape(copy);
            }
        }
        let mut homes: Vec<_> =
            some.iter().map(|block| block.home).zip(bytes.chunks_exact(size)).collect();
        write_home(target, log.block_size(), &mut homes)?;
        recovered.blocks += some.len() as u64;
    }
    Ok(())
}
