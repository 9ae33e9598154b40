//! Features and fields of a volume that is not in use, changed in place.

use std::ffi::OsStr;
use std::sync::Arc;

use extant_device::{Device, FileDeviceOptions};
use extant_image::mkfs::{Prompt, UuidChoice};
use extant_image::tune::{self, Request, TuneError};
use extant_journal::ExternalJournal;
use extant_runtime::env::Env;

/// Changes a volume as tune2fs does. Nothing is written before [`Self::apply`].
///
/// # Costs
/// A field of the superblock costs some reads and a write of each of its copies that has the field.
/// A feature costs what it changes: a journal its blocks, quotas a look at each inode. Metadata
/// checksums, and a UUID that they start from, cost a look at all metadata, which are written again
/// and are in memory until then. The thread is that of the caller.
///
/// ```
/// use extant::{Formatter, MemoryDevice, Tuner, inspect};
/// use std::sync::Arc;
///
/// let device = Arc::new(MemoryDevice::new(8 << 20));
/// Formatter::new().format(&*device)?;
/// Tuner::new().feature("quota").label("renamed").apply(device.clone())?;
///
/// let summary = inspect::summary(device)?;
/// assert_eq!(summary.label.text(), "renamed");
/// assert!(summary.features.iter().any(|name| name == "quota"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Tuner {
    request: Request,
    journal: Option<Arc<dyn Device>>,
}

impl Tuner {
    /// Changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The changes of a request as [`Request::set`] fills it: for tune2fs's own options.
    pub fn of_request(request: Request) -> Self {
        Self { request, journal: None }
    }

    /// Switches a feature on, or off with `^` in front of its name (`-O`). Later calls add to
    /// earlier ones.
    #[must_use]
    pub fn feature(mut self, name: &str) -> Self {
        let features = self.request.features.get_or_insert_default();
        if !features.is_empty() {
            features.push(',');
        }
        features.push_str(name);
        self
    }

    /// The volume's label (`-L`), of at most 16 bytes.
    #[must_use]
    pub fn label(mut self, label: impl Into<Vec<u8>>) -> Self {
        self.request.label = Some(label.into());
        self
    }

    /// The volume's UUID (`-U`).
    #[must_use]
    pub fn uuid(mut self, uuid: UuidChoice) -> Self {
        self.request.uuid = Some(uuid);
        self
    }

    /// Per cent of the blocks that are reserved for root (`-m`).
    #[must_use]
    pub fn reserved_percent(mut self, percent: f64) -> Self {
        self.request.reserved_ratio = Some(percent);
        self
    }

    /// Any other option of tune2fs, by its letter and with its value.
    ///
    /// # Errors
    /// A value that the option does not take.
    ///
    /// # Panics
    /// For a letter without a value.
    pub fn option(mut self, letter: char, value: impl AsRef<OsStr>) -> Result<Self, TuneError> {
        let now = Env::threads().now().seconds;
        self.request.set(letter, value.as_ref(), u64::try_from(now).unwrap_or_default())?;
        Ok(self)
    }

    /// The device of a journal that is not inside the volume. Without it the machine's block
    /// devices are searched.
    #[must_use]
    pub fn external_journal(mut self, device: Arc<dyn Device>) -> Self {
        self.journal = Some(device);
        self
    }

    /// Makes the changes. A journal that must be replayed is replayed first. The warnings are
    /// returned.
    ///
    /// # Errors
    /// A change that tune2fs refuses; a volume that is in use or damaged; failures of the device.
    /// After a refusal the volume is as it was.
    pub fn apply(&self, device: Arc<dyn Device>) -> Result<Vec<String>, TuneError> {
        let (found, why) = match &self.journal {
            Some(journal) => (Some(journal.clone()), None),
            None => ExternalJournal::find_for(&*device, &FileDeviceOptions::new().write(true))
                .map_err(|error| TuneError::Value(error.into()))?,
        };
        let env = Env::threads();
        let now = u64::try_from(env.now().seconds).unwrap_or_default();
        let mut warnings = Warnings::default();
        let outcome = tune::run(&device, found.as_deref(), &env, &self.request, now, &mut warnings);
        outcome.map_err(|error| match (error, why) {
            (TuneError::Journal(error), Some(why)) if error.wants_device() => why.into(),
            (error, _) => error,
        })?;
        device.flush()?;
        Ok(warnings.0)
    }
}

/// A dialogue without a user: questions are answered with no.
#[derive(Default)]
struct Warnings(Vec<String>);

impl Prompt for Warnings {
    fn say(&mut self, _: &str) {}

    fn warn(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }

    fn confirm(&mut self, _: &str) -> bool {
        false
    }
}
