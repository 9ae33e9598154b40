//! `extant tune`: changes what a volume says of itself, in place, as tune2fs does.
//!
//! [`run`] holds a [`Request`] against a volume that nobody else has open: first plain fields of
//! the superblock, then features, each with what it needs (a journal, quota files, checksums of
//! everything), then what was asked for journal, quota and UUID. What is written before the end is
//! harmless without it, but for checksums: while those are rewritten the superblock says "not
//! clean", so that a crash is followed by a check.

mod error;
mod features;
mod fields;
mod files;
mod marks;
mod mmp;
mod names;
mod records;
mod repack;
mod request;
mod rewrite;
mod work;

pub use error::{
    ChangeError, ExtendedError, FeatureChange, RequestError, TuneError, Unsupported, Work,
};
pub use request::{Extended, MaxMounts, Request};

use std::sync::Arc;

use extant_device::Device;
use extant_journal::{Finish, recover_volume};
use extant_offline::OfflineVolume;
use extant_ondisk::{Features, IncompatFeatures};
use extant_runtime::env::Env;

use crate::mkfs::Dialogue;
use work::Tune;

/// Changes a volume as asked. `journal` is the device of a journal that is not inside the volume,
/// `env` the clock that waiting for another program's use of the volume goes by.
///
/// # Errors
/// What tune2fs refuses, what is not built (by name), a volume that is in use or damaged, and
/// failures of the device. Refusals that need no more than the superblock come before anything is
/// changed. A later one (no room for a journal, a folded directory) may leave parts of the same
/// request done, and a volume for e2fsck to look at.
pub fn run(
    device: &Arc<dyn Device>,
    journal: Option<&dyn Device>,
    env: &Env,
    request: &Request,
    now: u64,
    dialogue: &mut dyn Dialogue,
) -> Result<(), TuneError> {
    let mut volume = OfflineVolume::open(device.clone()).map_err(TuneError::unusable)?;
    refuse_foreign(&volume.raw.features())?;
    request.check()?;
    mmp::claim(&mut volume, env, request, now, dialogue)?;
    let outcome = tune(volume, (device, journal), request, now, dialogue);
    // Whatever came of it, the volume is not ours any longer.
    let released = OfflineVolume::open(device.clone()).and_then(|volume| volume.release_mmp(now));
    outcome.and(released.map_err(TuneError::from))
}

fn tune(
    mut volume: OfflineVolume,
    (device, journal): (&Arc<dyn Device>, Option<&dyn Device>),
    request: &Request,
    now: u64,
    dialogue: &mut dyn Dialogue,
) -> Result<(), TuneError> {
    if volume.raw.features().incompat.contains(IncompatFeatures::RECOVER) {
        match request.force {
            0 | 1 => {
                recover_volume(&**device, journal, Finish::Reset)?;
                dialogue.warn("the journal was replayed first");
            }
            _ => dialogue.warn("the journal is not replayed: its changes may undo these"),
        }
        volume = OfflineVolume::open(device.clone()).map_err(TuneError::unusable)?;
    }
    let mut tune = Tune { volume, journal, request, now, dialogue, wants_check: false };
    tune.set_fields()?;
    tune.edit_features()?;
    tune.edit_quotas()?;
    tune.set_uuid()?;
    tune.finish()
}

fn refuse_foreign(features: &Features) -> Result<(), TuneError> {
    if features.incompat.contains(IncompatFeatures::JOURNAL_DEV) {
        return Err(TuneError::Unsupported(Unsupported::JournalDevice));
    }
    Ok(())
}
