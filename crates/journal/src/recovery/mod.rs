//! Recovery: replay of a journal.
//!
//! One scan of the log finds the committed transactions with their tags and revoke records
//! ([`scan`]). Then the last valid version of each block that no later record revokes is written to
//! its home location. Damage in the log is handled as e2fsck does: a transaction with an error ends
//! the replay, a logged block with an error is skipped, and a revoke block that cannot be read
//! prevents any replay, since it is unknown which blocks it revokes.
//!
//! The target may be an overlay: then the image is not changed, and recovery ends with
//! [`Finish::Leave`].

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

use crate::fast_commit::{self, FastCommits, Replayed};
use crate::{JournalError, JournalLocation, Log};

/// The state of the journal after the replay.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Finish {
    /// The replayed blocks are flushed, the journal is marked empty, and the volume's superblock
    /// loses needs_recovery and takes over an error that the journal recorded.
    Reset,
    /// Journal and superblock are not changed: for overlays.
    Leave,
}

/// Replays `log` into `target` if the volume's superblock there has needs_recovery set. Internal
/// journals are on `target` itself.
///
/// # Errors
/// The journal's or the volume's superblock is invalid or not supported, or a device failed. Some
/// blocks may have been written by then, and recovery can be repeated. Damage inside the log is not
/// an error: see [`Recovered::damage`].
pub fn recover(
    target: &dyn Device,
    log: &Log<'_>,
    finish: Finish,
) -> Result<Recovered, JournalError> {
    recover_with(target, log, finish, |target, fast| {
        let changed = fast_commit::replay(target, fast)?;
        Ok(Replayed { changed, restored: Vec::new(), left_out: Vec::new() })
    })
}

/// Replays `log` as [`recover`], on a damaged volume: fast commits that cannot be replayed are left
/// out, and inodes that their tables have lost are taken from fast commits. A check must follow.
///
/// # Errors
/// As [`recover`].
pub fn recover_damaged(
    target: &dyn Device,
    log: &Log<'_>,
    finish: Finish,
) -> Result<Recovered, JournalError> {
    recover_with(target, log, finish, fast_commit::replay_possible)
}

fn recover_with(
    target: &dyn Device,
    log: &Log<'_>,
    finish: Finish,
    replay_fast: impl Fn(&dyn Device, &FastCommits) -> Result<Replayed, JournalError>,
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
                let Replayed { changed, restored, left_out } = replay_fast(target, &fast)?;
                if finish == Finish::Reset {
                    fast_commits::log(target, log, (&mut raw, &mut superblock), &found, &changed)?;
                }
                fast_commits::write_home(target, log, &changed)?;
                recovered.blocks += changed.len() as u64;
                recovered.fast_commits = fast.commits;
                (recovered.restored_inodes, recovered.left_out) = (restored, left_out);
            }
        }
    }
    if finish == Finish::Leave {
        return Ok(recovered);
    }
    if needs_recovery || superblock.start != 0 || superblock.errno != 0 {
        target.flush()?;
    }
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

/// Recovers a volume whose superblock names its journal: internal, or on the device given. `None`
/// if it has no journal.
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
        (target, JournalLocation::internal(target, &raw, &geometry)?)
    } else if let Some(device) = external {
        (device, JournalLocation::external(device, &raw, &geometry)?)
    } else {
        return Err(JournalError::ExternalJournalNeeded(Uuid(raw.s_journal_uuid)));
    };
    recover(target, &Log { device, place: &place }, finish).map(Some)
}

/// Clears needs_recovery, takes over the journal's error, and after damage requests a check of the
/// volume. The superblock is read again, as it may have been replayed itself.
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
            // The replayed part is consistent, but may be incomplete.
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

/// Records `text`, the error that aborted the journal, in the volume's superblock, so that it is
/// known without another mount. If the failed write tore the superblock on the device, `newest`
/// replaces it.
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
