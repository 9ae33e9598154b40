//! Recovery: what a journal holds comes home.
//!
//! One walk over the log finds the committed transactions with their tags and revoke records ([`scan`]); then the last
//! valid version of each block that no later record revokes is written home. What the walk finds broken is handled as
//! e2fsck does: a transaction that does not verify ends the replay, a logged block that does not is left out, a revoke
//! block that cannot be read keeps everything from being replayed, since what it barred is unknown.
//!
//! The target may be an overlay: then the image keeps every byte, and [`Finish::Leave`] is the way to end.

mod fast_commits;
mod replay;
mod report;
mod scan;

pub use report::{Damage, Recovered};

use std::mem::size_of;

use extant_device::Device;
use extant_offline::{OfflineError, read_primary_superblock};
use extant_ondisk::error_log::{ErrorLog, LoggedError};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, State};
use extant_ondisk::{CompatFeatures, Geometry, IncompatFeatures, Uuid};
use zerocopy::IntoBytes;

use crate::fast_commit;
use crate::{JournalError, JournalPlace, Log};

/// What happens to the journal after the replay.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Finish {
    /// The replayed blocks are flushed, the journal is marked empty, the volume's superblock loses needs_recovery and
    /// takes over an error that the journal recorded.
    Reset,
    /// Journal and superblock stay as they are: for overlays.
    Leave,
}

/// Replays `log` into `target` if the volume's superblock there says needs_recovery. Internal journals lie on `target`
/// itself.
///
/// # Errors
/// The journal's or the volume's superblock is broken or beyond this code, or a device failed; some blocks may have come
/// home then, and recovery can be run again. Damage inside the log is no error: see [`Recovered::damage`].
pub fn recover(
    target: &dyn Device,
    log: &Log<'_>,
    finish: Finish,
) -> Result<Recovered, JournalError> {
    let (mut raw, mut superblock) = log.superblock()?;
    let mut recovered = Recovered { errno: superblock.errno, ..Recovered::default() };
    let volume = read_primary_superblock(target)?;
    let needs_recovery = volume.features().incompat.contains(IncompatFeatures::RECOVER);
    recovered.next_tid = superblock.sequence;
    let mut has_rest = superblock.start != 0;
    if needs_recovery && superblock.start != 0 {
        let found = scan::scan(log, &superblock, &mut recovered)?;
        recovered.next_tid = found.end.next();
        has_rest = found.has_rest;
        replay::replay(target, log, &found, &mut recovered)?;
        // Fast commits continue a log that is whole.
        if recovered.damage.is_empty() {
            let fast = fast_commit::scan(log, &superblock, found.end)?;
            if fast.commits > 0 {
                let changed = fast_commit::replay(target, &fast)?;
                if finish == Finish::Reset {
                    fast_commits::log(target, log, (&mut raw, &mut superblock), &found, &changed)?;
                }
                fast_commits::write_home(target, log, &changed)?;
                recovered.blocks += changed.len() as u64;
                recovered.fast_commits = fast.commits;
            }
        }
    }
    if finish == Finish::Leave {
        return Ok(recovered);
    }
    target.flush()?;
    if superblock.start != 0 || superblock.errno != 0 {
        if has_rest {
            recovered.next_tid = log.first_unused_tid(superblock.log(), recovered.next_tid)?;
        }
        superblock.sequence = recovered.next_tid;
        (superblock.start, superblock.errno) = (0, 0);
        log.write_superblock(&mut raw, &superblock)?;
        log.device.flush()?;
    }
    finish_superblock(target, &recovered)?;
    Ok(recovered)
}

/// Recovers a volume whose journal is found from its superblock: internal, or on the device given. `None` when it has no
/// journal.
///
/// # Errors
/// As [`recover`], and the journal cannot be found or is another volume's.
pub fn recover_volume(
    target: &dyn Device,
    external: Option<&dyn Device>,
    finish: Finish,
) -> Result<Option<Recovered>, JournalError> {
    let raw = read_primary_superblock(target)?;
    let geometry = Geometry::new(&raw)?;
    if !geometry.has_compat(CompatFeatures::HAS_JOURNAL) {
        return Ok(None);
    }
    let (device, place) = if raw.s_journal_inum.get() != 0 {
        (target, JournalPlace::internal(target, &raw, &geometry)?)
    } else if let Some(device) = external {
        (device, JournalPlace::external(device, &raw, &geometry)?)
    } else {
        return Err(JournalError::ExternalJournalNeeded(Uuid(raw.s_journal_uuid)));
    };
    recover(target, &Log { device, place: &place }, finish).map(Some)
}

/// Clears needs_recovery, takes over the journal's error, and sees to it that a check follows damage. The superblock may
/// itself have been replayed, so it is read again.
fn finish_superblock(target: &dyn Device, recovered: &Recovered) -> Result<(), JournalError> {
    const _: () = assert!(size_of::<RawSuperblock>() == 1024);
    let mut raw = read_primary_superblock(target)?;
    let before = raw;
    let mut features = raw.features();
    features.incompat.remove(IncompatFeatures::RECOVER);
    raw.set_features(features);
    let mut state = State::from_bits_retain(raw.s_state.get());
    if recovered.errno != 0 {
        state |= State::ERRORS;
    }
    for damage in &recovered.damage {
        match damage {
            // What was replayed is whole, if not all.
            Damage::Transaction(..) => state |= State::ERRORS,
            Damage::Block(_) | Damage::Revoke(_) => state -= State::CLEAN,
        }
    }
    raw.s_state.set(state.bits());
    if raw.as_bytes() == before.as_bytes() {
        return Ok(());
    }
    raw.seal();
    target.write_at(SUPERBLOCK_OFFSET, raw.as_bytes())?;
    Ok(target.flush()?)
}

/// Records in the volume's superblock that the journal stopped, as `text` says: a volume that is not mounted again shows it too.
/// Where the write that failed has torn the superblock on the device, `newest` takes its place.
pub(crate) fn record_abort(
    device: &dyn Device,
    newest: Option<RawSuperblock>,
    seconds: u64,
    text: &str,
) -> Result<(), JournalError> {
    let mut raw = match (read_primary_superblock(device), newest) {
        (Err(OfflineError::Format(_)), Some(newest)) => newest,
        (stored, _) => stored?,
    };
    let mut log = ErrorLog::default();
    log.push(LoggedError::of_device(text, seconds));
    raw.add_errors(&log);
    raw.seal();
    device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes())?;
    Ok(device.flush()?)
}

/// Sets or clears needs_recovery in the volume's superblock on the device, and flushes it.
pub(crate) fn set_needs_recovery(device: &dyn Device, needs: bool) -> Result<(), JournalError> {
    let mut raw = read_primary_superblock(device)?;
    let mut features = raw.features();
    features.incompat.set(IncompatFeatures::RECOVER, needs);
    raw.set_features(features);
    raw.seal();
    device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes())?;
    Ok(device.flush()?)
}
