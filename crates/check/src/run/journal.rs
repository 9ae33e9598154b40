//! The external journal of a volume that is to be checked.

use std::sync::Arc;

use extant_device::{Device, FileDeviceOptions, block_devices};
use extant_journal::{ExternalJournal, NotOpened};
use extant_ondisk::superblock::SUPERBLOCK_OFFSET;

use crate::pass0::SuperblockChoice;

/// Block sizes at which makers of file systems put the first backup of a superblock.
const BLOCK_SIZES: [u32; 3] = [1024, 2048, 4096];

/// The device of an external journal.
#[derive(Clone, Debug)]
pub struct JournalDevice {
    /// The device.
    pub device: Arc<dyn Device>,
    /// The number of a block device, as the superblock stores it.
    pub number: Option<u32>,
}

/// Finds the external journal of the volume on a device among the machine's block devices, and
/// opens it. `None` if no superblock names one, or no device holds it.
///
/// # Errors
/// The device that holds the journal does not list the volume, there are two such devices, or it
/// cannot be opened.
pub fn find_journal(
    volume: &dyn Device,
    wanted: &SuperblockChoice,
    options: &FileDeviceOptions,
) -> Result<Option<JournalDevice>, NotOpened> {
    let named = |offset| ExternalJournal::of_superblock_at(volume, offset);
    let Some(journal) = superblock_places(wanted).find_map(named) else { return Ok(None) };
    Ok(journal.open(options)?.map(|device| {
        let number = block_devices::number_of(device.path());
        JournalDevice { device, number }
    }))
}

/// Byte offsets of superblocks that may name the journal: the one that is wanted, the primary one,
/// and the first backup.
fn superblock_places(wanted: &SuperblockChoice) -> impl Iterator<Item = u64> {
    let SuperblockChoice { superblock, block_size } = *wanted;
    let sizes = BLOCK_SIZES.into_iter();
    let sizes = sizes.filter(move |size| block_size.is_none_or(|is| is == *size));
    let wanted = sizes.clone().filter_map(move |size| superblock?.checked_mul(u64::from(size)));
    // A group has a bit for each block in one block; blocks of 1 KiB begin after the boot block.
    let backups = sizes.map(|size| {
        let (size, first) = (u64::from(size), u64::from(size == 1024));
        (8 * size + first) * size
    });
    wanted.chain([SUPERBLOCK_OFFSET]).chain(backups)
}
