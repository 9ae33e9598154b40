//! Reading the superblock and the descriptor table from the device.

use extant_device::{Device, DeviceError};
use extant_layout::DescriptorTable;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, State};
use extant_ondisk::{Flaw, FormatError, Geometry, GroupNo, IncompatFeatures, Location};
use zerocopy::{FromZeros, IntoBytes};

use crate::OfflineError;

/// A superblock's backup in a group: it has the group's number, is marked as possibly in use, and
/// never has needs_recovery set, since only the primary tracks that.
pub fn backup_superblock(primary: &RawSuperblock, group: GroupNo) -> RawSuperblock {
    let mut raw = *primary;
    // Backups are in groups below 2^16, or there are none; the field has no more bits.
    raw.s_block_group_nr.set((group.0 & 0xffff) as u16);
    raw.s_state.set(raw.s_state.get() & !State::CLEAN.bits());
    let mut features = raw.features();
    features.incompat -= IncompatFeatures::RECOVER;
    if raw.s_rev_level.get() > 0 {
        raw.set_features(features);
    }
    raw.seal();
    raw
}

/// Reads and verifies the primary superblock.
///
/// # Errors
/// [`FormatError::NotExt`] if there is no superblock, another [`FormatError`] if it is invalid, or
/// the device failed.
pub fn read_primary_superblock(device: &dyn Device) -> Result<RawSuperblock, OfflineError> {
    let raw = read_superblock(device, SUPERBLOCK_OFFSET)?;
    raw.verify(GroupNo(0)).map_err(FormatError::of_primary)?;
    Ok(raw)
}

/// Reads the superblock or a backup at a byte offset of the device, without verifying it.
///
/// # Errors
/// The device ends before it ([`FormatError::NotExt`] for the primary one), or failed.
pub fn read_superblock(device: &dyn Device, at: u64) -> Result<RawSuperblock, OfflineError> {
    let mut raw = RawSuperblock::new_zeroed();
    let left = device.size().saturating_sub(at);
    if left < size_of::<RawSuperblock>() as u64 {
        let flaw = Flaw::truncated(left as usize, size_of::<RawSuperblock>());
        let error = flaw.at(Location::Superblock(GroupNo(0)));
        return Err(if at == SUPERBLOCK_OFFSET { error.of_primary() } else { error }.into());
    }
    device.read_at(at, raw.as_mut_bytes())?;
    Ok(raw)
}

/// Reads the primary descriptor table.
///
/// # Errors
/// The device failed.
pub fn read_table(
    device: &dyn Device,
    geometry: &Geometry,
) -> Result<DescriptorTable, DeviceError> {
    DescriptorTable::read(geometry, |index, block| {
        device.read_at(geometry.byte_of(geometry.desc_block(index)), block)
    })
}
