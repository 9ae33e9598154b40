//! A device that ends before the volume does: a truncated image, or a partition that is too small.
//! A check without repairs reads zeros past its end, as e2fsck does. A repair could not write
//! there: the log is replayed, then the repair is refused.

use super::OpenError;
use super::superblock_search::SuperblockCandidate;
use crate::finding::{Code, Finding};
use crate::recorder::Recorder;
use extant_device::{Device, LinearDevice, LinearPart, MemoryDevice};
use extant_journal::{Finish, JournalError, JournalLocation, Log, recover};
use extant_ondisk::{Geometry, IncompatFeatures};
use std::sync::Arc;

/// Whole blocks of the device, where the volume has more.
fn blocks(device: &dyn Device, geometry: &Geometry) -> Option<u64> {
    Some(device.size() >> geometry.block_bits()).filter(|blocks| *blocks < geometry.blocks_count)
}

/// A device that reaches to the end of the volume, which is a finding where the device itself does
/// not.
pub(super) fn to_the_end(
    device: Arc<dyn Device>,
    geometry: &Geometry,
    recorder: &Recorder<'_>,
) -> Result<Arc<dyn Device>, OpenError> {
    let Some(on_device) = blocks(&*device, geometry) else { return Ok(device) };
    let blocks = geometry.blocks_count;
    let finding = Finding::new(Code::DeviceTooSmall).found(blocks).expected(on_device);
    recorder.should_fix(finding)?;
    let whole = with_zeros(&device, geometry).filter(|_| !recorder.may_repair());
    whole.ok_or(OpenError::DeviceTooSmall { blocks, device: on_device })
}

/// Bytes of group descriptors that are read whatever the size of the device is.
const FEW_DESCRIPTORS: u64 = 1 << 20;

/// The device, extended with zeros to the end of the volume. `None` where the group descriptors
/// alone would take a good part of the device: nearly all of the volume is missing, and each of its
/// groups would be a finding.
fn with_zeros(device: &Arc<dyn Device>, geometry: &Geometry) -> Option<Arc<dyn Device>> {
    let descriptors = u64::from(geometry.desc_blocks()) * u64::from(geometry.block_size);
    let has_room = descriptors <= (device.size() / 16).max(FEW_DESCRIPTORS);
    let size = geometry.blocks_count.checked_mul(u64::from(geometry.block_size))?;
    let missing = size.checked_sub(device.size()).filter(|_| has_room)?;
    let zeros = MemoryDevice::with_sectors(missing, device.sector_size());
    let parts = vec![
        LinearPart { device: device.clone(), offset: 0, size: device.size() },
        LinearPart { device: Arc::new(zeros), offset: 0, size: missing },
    ];
    Some(Arc::new(LinearDevice::new(parts).ok()?))
}

/// Replays the log of a volume that is longer than the device; true if it was replayed. The log is
/// not emptied if a part of it, or the home location of one of its blocks, lies past the end of the
/// device, so that all of it can be replayed on a device of full size.
pub(super) fn replay(
    device: &Arc<dyn Device>,
    found: &SuperblockCandidate,
    recorder: &Recorder<'_>,
) -> Result<bool, OpenError> {
    let features = found.raw.features().incompat;
    // With MMP the volume may be in use on another host.
    let waits = features.contains(IncompatFeatures::RECOVER)
        && !features.contains(IncompatFeatures::MMP)
        && found.is_sound_primary()
        && blocks(&**device, &found.geometry).is_some();
    let Some(whole) = with_zeros(device, &found.geometry).filter(|_| waits) else {
        return Ok(false);
    };
    let place = match JournalLocation::internal(&*whole, &found.raw, &found.geometry) {
        Ok(place) => place,
        Err(JournalError::Device(error)) => return Err(error.into()),
        Err(_) => return Ok(false),
    };
    let log = Log { device: &*whole, place: &place };
    if log.superblock().is_err() {
        return Ok(false);
    }
    recorder.should_fix(Finding::new(Code::JournalRecovered))?;
    let on_device = device.size() >> found.geometry.block_bits();
    let is_on_device = place
        .runs
        .runs()
        .iter()
        .all(|run| run.start.0.saturating_add(u64::from(run.count)) <= on_device);
    let recovered = recover(&**device, &log, Finish::Leave)?;
    if is_on_device && recovered.damage.is_empty() {
        recover(&**device, &log, Finish::Reset)?;
    }
    Ok(true)
}
