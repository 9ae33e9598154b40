//! A volume that the kernel has mounted on this host.
//!
//! The kernel's copy of the superblock is the page of the device's cache that a write through that
//! cache changes, so that it sees new fields at once and writes them with its own. Only the bytes
//! that differ are written: the others may have been changed by the kernel in the meantime. Nothing
//! else of the volume can be changed under it, not even the multiple-mount protection, which is the
//! kernel's.

use std::sync::Arc;

use extant_device::Device;
use extant_offline::read_primary_superblock;
use extant_ondisk::{Geometry, RoCompatFeatures};
use zerocopy::IntoBytes;

use super::error::{ChangeError, TuneError};
use super::request::Request;
use super::work::{Mounted, Tune};
use super::write::{PRIMARY, lies_in_superblocks};
use super::{DelayedReports, Journals, changes, refuse_foreign};
use crate::mkfs::Prompt;

/// Number of tries to leave a checksum that fits a superblock which the kernel changes, too.
const SEAL_TRIES: usize = 3;

/// Changes a volume that the kernel has mounted on this host, as requested. The device must go
/// through the page cache.
///
/// # Errors
/// As [`super::run`], and all that changes more than the superblock. After a refusal the volume is
/// as it was.
pub fn run_mounted(
    device: &Arc<dyn Device>,
    request: &Request,
    now: u64,
    prompt: &mut dyn Prompt,
) -> Result<(), TuneError> {
    let superblock = read_primary_superblock(device)?;
    refuse_foreign(&superblock.features())?;
    request.check()?;
    if request.extended.clear_mmp {
        return Err(ChangeError::OnlyUnmounted("the multiple mount protection block").into());
    }
    let mut held = DelayedReports { prompt, lines: Vec::new() };
    let journals = Journals { device: None, attached: None };
    let changed = changes(device.clone(), journals, Mounted::ByKernel, request, now, &mut held)?;
    if !lies_in_superblocks(&changed, &Geometry::new(&superblock)?) {
        return Err(ChangeError::OnlyUnmounted("more than the superblock").into());
    }
    // The backups first.
    changed.write_edits_to(&**device, |at| !PRIMARY.contains(&at))?;
    changed.write_edits_to(&**device, |at| PRIMARY.contains(&at))?;
    seal(&**device)?;
    device.flush()?;
    held.release();
    Ok(())
}

/// Stores the checksum that fits what is there: the kernel may have written fields of its own since
/// they were read.
fn seal(device: &dyn Device) -> Result<(), TuneError> {
    for _ in 0..SEAL_TRIES {
        let stored = read_primary_superblock(device)?;
        if !stored.features().ro_compat.contains(RoCompatFeatures::METADATA_CSUM) {
            return Ok(());
        }
        let mut sealed = stored;
        sealed.seal();
        if sealed.as_bytes() == stored.as_bytes() {
            return Ok(());
        }
        let checksum = PRIMARY.end - size_of::<u32>() as u64;
        let bytes = &sealed.as_bytes()[size_of_val(&sealed) - size_of::<u32>()..];
        device.write_at(checksum, bytes)?;
    }
    Ok(())
}

impl Tune<'_> {
    /// Structures outside the superblock cannot be changed under the kernel.
    pub(super) fn need_unmounted(&self, what: &'static str) -> Result<(), TuneError> {
        match self.mounted {
            Mounted::No => Ok(()),
            Mounted::ByKernel => Err(ChangeError::OnlyUnmounted(what).into()),
        }
    }
}
