//! A superblock whose power went while it was written: its two sectors are of different versions.
//!
//! The checksum lies in the second sector. A version that was being checkpointed is whole in the
//! log, and is written again when the log is replayed; one that only differed in needs_recovery is
//! known by its checksum.

use crate::error::Error;
use extant_device::{Device, OverlayDevice};
use extant_journal::{Finish, recover_volume};
use extant_offline::read_superblock;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use extant_ondisk::{CompatFeatures, GroupNo, IncompatFeatures};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// A superblock to continue with, if the one on the device has a wrong checksum for a known reason:
/// sealed, and right once the log is replayed. `None` when there is nothing wrong, or something
/// else.
///
/// # Errors
/// The device failed.
pub fn repair_torn_superblock(
    device: &Arc<dyn Device>,
    external: Option<&dyn Device>,
) -> Result<Option<RawSuperblock>, Error> {
    let raw = read_superblock(&**device, SUPERBLOCK_OFFSET)?;
    let features = raw.features();
    let mut sealed = raw;
    sealed.seal();
    let is_other = raw.verify(GroupNo(0)).is_ok()
        || sealed.verify(GroupNo(0)).is_err()
        || !features.compat.contains(CompatFeatures::HAS_JOURNAL)
        // Another process may be writing it now.
        || features.incompat.contains(IncompatFeatures::MMP);
    if is_other {
        return Ok(None);
    }
    let mut toggled = raw;
    let mut other = features;
    other.incompat.toggle(IncompatFeatures::RECOVER);
    toggled.set_features(other);
    if toggled.verify(GroupNo(0)).is_ok() {
        return Ok(Some(toggled));
    }
    if !features.incompat.contains(IncompatFeatures::RECOVER) {
        return Ok(None);
    }
    // Changed in a harmless place, so that it shows whether the log has another version.
    let mut marked = raw;
    marked.s_wtime.set(!raw.s_wtime.get());
    marked.seal();
    let overlay = OverlayDevice::new(device.clone());
    overlay.write_at(SUPERBLOCK_OFFSET, marked.as_bytes())?;
    if recover_volume(&overlay, external, Finish::Leave).is_err() {
        return Ok(None);
    }
    let found = read_superblock(&overlay, SUPERBLOCK_OFFSET)?;
    let is_whole = found.verify(GroupNo(0)).is_ok()
        && found.as_bytes() != marked.as_bytes()
        && found.s_uuid == raw.s_uuid;
    Ok(is_whole.then_some(sealed))
}
