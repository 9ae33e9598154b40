//! `extant tune`: changes parameters of a volume in place, as tune2fs does.
//!
//! [`run`] applies a [`Request`] to a volume that no other program has open: first plain fields of
//! the superblock, then features, each with its consequences (a journal, quota files, checksums of
//! everything), then requests about journal, quota and UUID. Data written before the end are
//! harmless without it, except checksums: while those are rewritten the superblock says "not
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

use crate::mkfs::Prompt;
use work::Tune;

/// Changes a volume as requested. `journal` is the device of an external journal, `env` the clock
/// for waiting for another user of the volume.
///
/// # Errors
/// A request that tune2fs refuses or that is not supported (by name), a volume that is in use or
/// damaged, and failures of the device. Refusals that need only the superblock come before any
/// change. A later one (no room for a journal, a casefolded directory) may leave parts of the same
/// request done, and a volume that e2fsck must check.
pub fn run(
    device: &Arc<dyn Device>,
    journal: Option<&dyn Device>,
    env: &Env,
    request: &Request,
    now: u64,
    prompt: &mut dyn Prompt,
) -> Result<(), TuneError> {
    let mut volume = OfflineVolume::open(device.clone()).map_err(TuneError::unusable)?;
    refuse_foreign(&volume.raw.features())?;
    request.check()?;
    mmp::claim(&mut volume, env, request, now, prompt)?;
    let outcome = tune(volume, (device, journal), request, now, prompt);
    // Whatever the result, the volume is no longer in use by this process.
    let released = OfflineVolume::open(device.clone()).and_then(|volume| volume.release_mmp(now));
    outcome.and(released.map_err(TuneError::from))
}

fn tune(
    mut volume: OfflineVolume,
    (device, journal): (&Arc<dyn Device>, Option<&dyn Device>),
    request: &Request,
    now: u64,
    prompt: &mut dyn Prompt,
) -> Result<(), TuneError> {
    if volume.raw.features().incompat.contains(IncompatFeatures::RECOVER) {
        match request.force {
            0 | 1 => {
                recover_volume(&**device, journal, Finish::Reset)?;
                prompt.warn("the journal was replayed first");
            }
            _ => prompt.warn("the journal is not replayed: its changes may undo these"),
        }
        volume = OfflineVolume::open(device.clone()).map_err(TuneError::unusable)?;
    }
    let mut tune = Tune { volume, journal, request, now, prompt, wants_check: false };
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
