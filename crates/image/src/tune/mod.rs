//! `extant tune`: changes parameters of a volume in place, as tune2fs does.
//!
//! [`run`] applies a [`Request`] to a volume that no other program has open ([`run_mounted`] to one
//! that the kernel has mounted): first plain fields of the superblock, then features, each with its
//! consequences (a journal, quota files, checksums of everything), then requests about journal,
//! quota and UUID. All of this is done in memory (`pending.rs`): a refusal, however late, leaves
//! the volume as it was. The changes are written at the end (`write.rs`).

mod error;
mod features;
mod fields;
mod files;
mod marks;
mod mmp;
mod mounted;
mod names;
mod pending;
mod records;
mod repack;
mod request;
mod rewrite;
mod work;
mod write;

pub use error::{
    ChangeError, ExtendedError, FeatureChange, RequestError, TuneError, Unsupported, Work,
};
pub use mounted::run_mounted;
pub use request::{Extended, MaxMounts, Request};

use std::sync::Arc;

use extant_device::Device;
use extant_journal::{Finish, recover_volume};
use extant_offline::{OfflineVolume, read_primary_superblock};
use extant_ondisk::{CompatFeatures, Features, IncompatFeatures};
use extant_runtime::env::{Env, WallTime};

use crate::mkfs::Prompt;
use crate::mkfs::external_journal::{self, ExternalJournal};
use pending::Pending;
use work::{Mounted, Tune};
use write::Writer;

/// Changes a volume as requested. `journal` is the device of an external journal, `env` the clock
/// for waiting for another user of the volume.
///
/// # Errors
/// A request that tune2fs refuses or that is not supported (by name), a volume that is in use or
/// damaged, and failures of the device. After a refusal the volume is as it was. After a failure of
/// the device while the changes are written, the journal's replay makes them or not; without a
/// journal that has room for them a part of them may be done, and the superblock says that e2fsck
/// must check the volume.
pub fn run(
    device: &Arc<dyn Device>,
    journal: Option<&dyn Device>,
    env: &Env,
    request: &Request,
    now: u64,
    prompt: &mut dyn Prompt,
) -> Result<(), TuneError> {
    let mut volume = OfflineVolume::open_strict(device.clone())?;
    refuse_foreign(&volume.raw.features())?;
    request.check()?;
    let attached = attached(&volume, request)?;
    let opened = attached.as_ref().map(ExternalJournal::open).transpose()?;
    let journal = opened.as_ref().map(|device| device as &dyn Device).or(journal);
    let before = mmp::bytes(&volume)?;
    mmp::claim(&mut volume, env, request, now, prompt)?;
    let mut held = DelayedReports { prompt, lines: Vec::new() };
    if request.extended.clear_mmp {
        held.say("Resetting the MMP block\n");
    }
    let journals = Journals { device: journal, attached: attached.as_ref() };
    let changed = Changed::by(device, journals, request, now, &mut held);
    let outcome = match (changed, before) {
        (Ok(changed), _) => {
            let seconds = i64::try_from(now).unwrap_or(i64::MAX);
            let time = WallTime { seconds, nanoseconds: 0 };
            changed.write(device, journal, time).map(|()| held.release())
        }
        (Err(error), Some((block, bytes))) => {
            volume.write(block, &bytes)?;
            device.flush()?;
            return Err(error);
        }
        (Err(error), None) => return Err(error),
    };
    // The volume is no longer in use by this process, failed or not.
    let released = OfflineVolume::open(device.clone()).and_then(|volume| volume.release_mmp(now));
    outcome.and(released.map_err(TuneError::from))
}

/// The journal that `-J device=` names, for a volume without one; a volume that has one is refused
/// later.
fn attached(
    volume: &OfflineVolume,
    request: &Request,
) -> Result<Option<ExternalJournal>, TuneError> {
    let Some(name) = request.journal.device.as_deref() else { return Ok(None) };
    if !volume.raw.features().compat.contains(CompatFeatures::HAS_JOURNAL) {
        return Ok(Some(external_journal::find(name, volume.geometry().block_size)?));
    }
    // Taking off one and attaching another are two changes of devices.
    let is_replaced = |list: &str| list.contains("^has_journal");
    match request.features.as_deref().is_some_and(is_replaced) {
        true => Err(TuneError::Unsupported(Unsupported::ExternalJournal)),
        false => Err(ChangeError::HasJournal.into()),
    }
}

/// A journal that is not inside the volume.
#[derive(Clone, Copy)]
struct Journals<'a> {
    /// Its device.
    device: Option<&'a dyn Device>,
    /// The journal, where the volume is to get it.
    attached: Option<&'a ExternalJournal>,
}

/// Keeps reports of changes until these are written: after a refusal none of them is true.
struct DelayedReports<'a> {
    prompt: &'a mut dyn Prompt,
    /// The texts, and whether each is a warning.
    lines: Vec<(String, bool)>,
}

impl DelayedReports<'_> {
    fn release(self) {
        for (text, is_warning) in self.lines {
            match is_warning {
                true => self.prompt.warn(&text),
                false => self.prompt.say(&text),
            }
        }
    }
}

impl Prompt for DelayedReports<'_> {
    fn say(&mut self, text: &str) {
        self.lines.push((text.to_owned(), false));
    }

    fn warn(&mut self, text: &str) {
        self.lines.push((text.to_owned(), true));
    }

    fn confirm(&mut self, question: &str) -> bool {
        self.prompt.confirm(question)
    }
}

/// A request that can be done, with all its changes in memory.
struct Changed<'a> {
    /// The changes to the volume. Their base is the volume after the replay of its journal.
    volume: Arc<Pending<Arc<dyn Device>>>,
    /// The changes to the device of an external journal.
    journal: Option<Pending<&'a dyn Device>>,
    /// Whether the journal is replayed first.
    is_replayed: bool,
}

impl<'a> Changed<'a> {
    fn by(
        device: &Arc<dyn Device>,
        journals: Journals<'a>,
        request: &Request,
        now: u64,
        prompt: &mut DelayedReports<'_>,
    ) -> Result<Self, TuneError> {
        let mut journal = journals.device.map(Pending::new);
        let mut base = device.clone();
        let mut is_replayed = false;
        if read_primary_superblock(device)?.features().incompat.contains(IncompatFeatures::RECOVER)
        {
            let replayed: Arc<dyn Device> = Arc::new(Pending::new(base.clone()));
            match recover_volume(&*replayed, as_device(&journal), Finish::Reset) {
                Ok(_) => {
                    base = replayed;
                    is_replayed = true;
                    match request.is_of_tune2fs() {
                        true => prompt.say("Recovering journal.\n"),
                        false => prompt.warn("the journal was replayed first"),
                    }
                }
                Err(error) if request.force > 1 => {
                    journal = journals.device.map(Pending::new);
                    let text = "the journal is not replayed: its changes may undo these";
                    prompt.warn(&format!("{text}: {error}"));
                }
                Err(error) => return Err(error.into()),
            }
        }
        let mounted = Mounted::No;
        let journals = Journals { device: as_device(&journal), attached: journals.attached };
        let pending = changes(base, journals, mounted, request, now, prompt)?;
        Ok(Self { volume: pending, journal, is_replayed })
    }

    fn write(
        self,
        device: &Arc<dyn Device>,
        journal: Option<&dyn Device>,
        time: WallTime,
    ) -> Result<(), TuneError> {
        if self.is_replayed {
            recover_volume(&**device, journal, Finish::Reset)?;
        }
        let external = self.journal.as_ref().filter(|journal| !journal.is_empty());
        if self.volume.is_empty() && external.is_none() {
            return Ok(device.flush()?);
        }
        Writer { device, journal, changes: &self.volume, to_journal: external }.write(time)
    }
}

/// The changes that a request makes to a device, in memory.
fn changes(
    base: Arc<dyn Device>,
    journals: Journals<'_>,
    mounted: Mounted,
    request: &Request,
    now: u64,
    prompt: &mut dyn Prompt,
) -> Result<Arc<Pending<Arc<dyn Device>>>, TuneError> {
    let pending = Arc::new(Pending::new(base));
    let volume = OfflineVolume::open_strict(pending.clone() as Arc<dyn Device>)?;
    let Journals { device: journal, attached } = journals;
    let wants_check = false;
    let mut tune = Tune { volume, journal, attached, request, mounted, now, prompt, wants_check };
    tune.set_fields()?;
    tune.edit_features()?;
    tune.edit_quotas()?;
    tune.set_uuid()?;
    tune.volume.commit()?;
    // As with tune2fs, features that are there already change nothing, not even the time.
    let is_changed = !request.is_about_features() || tune.wants_check || !pending.is_empty();
    if is_changed {
        tune.finish()?;
    }
    Ok(pending)
}

fn as_device<'a>(journal: &'a Option<Pending<&dyn Device>>) -> Option<&'a dyn Device> {
    journal.as_ref().map(|journal| journal as &dyn Device)
}

fn refuse_foreign(features: &Features) -> Result<(), TuneError> {
    if features.incompat.contains(IncompatFeatures::JOURNAL_DEV) {
        return Err(TuneError::Unsupported(Unsupported::JournalDevice));
    }
    Ok(())
}
