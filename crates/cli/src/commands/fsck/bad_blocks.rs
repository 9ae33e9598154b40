//! `-c`, `-k`, `-l`, `-L`: the list of bad blocks, before the passes see it.

use std::sync::Arc;

use extant_device::Device;
use extant_image::mkfs::bad_blocks::{by_reading, by_rewriting, read_list};
use extant_layout::RunSet;
use extant_offline::OfflineVolume;

use super::console::Console;
use super::{Args, unbroken};
use crate::failure::Failure;

/// Writes the list as the options want it: found by reading, added to, or replaced. The volume is sound as far as its
/// superblock, descriptors and journal go.
pub(super) fn update(
    args: &Args,
    device: &Arc<dyn Device>,
    console: &Console,
) -> Result<(), Failure> {
    let mut volume = OfflineVolume::open(device.clone()).map_err(Failure::new)?;
    let geometry = volume.geometry().clone();
    let old = volume.bad_blocks().map_err(Failure::new)?;
    let mut bad = RunSet::new();
    let (block_size, blocks) = (geometry.block_size, geometry.blocks_count);
    let found = match args.check_blocks {
        0 => None,
        1 => {
            console.say("Checking for bad blocks (read-only test)");
            Some(by_reading(&**device, 0, block_size, blocks))
        }
        _ => {
            console.say("Checking for bad blocks (non-destructive read-write test)");
            Some(by_rewriting(&**device, block_size, blocks, unbroken))
        }
    };
    if let Some(found) = found {
        insert(&mut bad, &found.map_err(Failure::new)?);
    }
    if let Some(file) = args.set_bad_blocks.as_ref().or(args.add_bad_blocks.as_ref()) {
        insert(&mut bad, &read_list(file, geometry.blocks_count).map_err(Failure::new)?);
    }
    let keeps = args.keep || args.add_bad_blocks.is_some();
    if keeps {
        insert(&mut bad, &old);
    }
    if bad.iter().eq(old.iter()) {
        return Ok(());
    }
    console.say(&format!("{}: Updating bad block inode.", console.name()));
    volume.set_bad_blocks(&bad).map_err(Failure::new)?;
    volume.commit().map_err(Failure::new)
}

fn insert(bad: &mut RunSet, more: &RunSet) {
    for run in more.iter() {
        bad.insert(run);
    }
}
