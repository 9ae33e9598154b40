//! The superblock and the descriptor table of a volume, as they lie on the device.

use extant_device::{Device, DeviceError};
use extant_layout::DescriptorTable;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, State};
use extant_ondisk::{Flaw, FormatError, Geometry, GroupNo, IncompatFeatures, Place};
use zerocopy::{FromZeros, IntoBytes};

use crate::OfflineError;

/// The superblock as its backup in a group has it: it says where it lies, that the volume may be in
/// use, and never that its journal waits for recovery, since the primary knows that better.
pub fn backup_superblock(primary: &RawSuperblock, group: GroupNo) -> RawSuperblock {
    let mut raw = *primary;
    // Backups lie in groups below 2^16 or not at all; the field has no more bits.
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
/// [`FormatError::NotExt`] where there is no such superblock, another [`FormatError`] where it is
/// broken, or the device failed.
pub fn read_primary_superblock(device: &dyn Device) -> Result<RawSuperblock, OfflineError> {
    let raw = read_superblock(device, SUPERBLOCK_OFFSET)?;
    raw.verify(GroupNo(0)).map_err(FormatError::of_primary)?;
    Ok(raw)
}

/// Reads the superblock or a backup at a byte of the device. Nothing of it is verified.
///
/// # Errors
/// The device ends before it ([`FormatError::NotExt`] for the primary one), or failed.
pub fn read_superblock(device: &dyn Device, at: u64) -> Result<RawSuperblock, OfflineError> {
    let mut raw = RawSuperblock::new_zeroed();
    let left = device.size().saturating_sub(at);
    if left < size_of::<RawSuperblock>() as u64 {
        let flaw = Flaw::truncated(left as usize, size_of::<RawSuperblock>());
        let error = flaw.at(Place::Superblock(GroupNo(0)));
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
