//! Checks and repairs.

use std::sync::Arc;
use std::{fmt, io};

use extant_check::pass0::OpenError;
use extant_check::run::{Report, RunError, RunFailure, RunOptions, find_journal, run};
use extant_check::{AutoPolicy, Finding, Observer};
use extant_device::{Device, FileDeviceOptions};
use extant_journal::NotOpened;
use extant_ondisk::Uuid;
use extant_storage::Opened;

type OnFinding = Arc<dyn Fn(&Finding) + Send + Sync>;

/// Checks a volume, and repairs it as e2fsck does. Without [`Self::repair`] nothing is written.
///
/// # Costs
/// A volume that says that it is clean costs a few reads, unless [`Self::force`] is set. A check
/// reads all metadata in use once, none of the contents, by one thread for each processor unless
/// [`Self::threads`] is set. It has bits for each block and inode and some bytes for each
/// directory, 15 MiB for a million files; [`Self::memory`] bounds them, and the passes are run for
/// a part of the groups at a time then.
///
/// ```
/// use extant::{Checker, Formatter, MemoryDevice, Repairs};
/// use std::sync::Arc;
///
/// let device = Arc::new(MemoryDevice::new(8 << 20));
/// Formatter::new().format(&*device)?;
/// let report = Checker::new().repair(Repairs::Preen).force(true).check(device)?;
/// assert_eq!(report.exit_code(), 0);
/// assert!(report.findings.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Checker {
    options: RunOptions,
    answers: AutoPolicy,
    on_finding: Option<OnFinding>,
}

impl fmt::Debug for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Checker");
        shown.field("answers", &self.answers).finish_non_exhaustive()
    }
}

impl Default for Checker {
    fn default() -> Self {
        Self::new()
    }
}

impl Checker {
    /// A check that writes nothing. A volume that says that it is clean is believed, unless
    /// [`Self::force`] is set.
    pub fn new() -> Self {
        Self { options: RunOptions::default(), answers: AutoPolicy::No, on_finding: None }
    }

    /// The repairs that are made.
    #[must_use]
    pub fn repair(mut self, repairs: AutoPolicy) -> Self {
        self.answers = repairs;
        self
    }

    /// Whether the passes run even if the volume says that it is clean (`-f`).
    #[must_use]
    pub fn force(mut self, force: bool) -> Self {
        self.options.force = force;
        self
    }

    /// Number of threads; 0: one for each processor.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.options.passes.threads = threads;
        self
    }

    /// Bytes that the tables of the check may take. A check that needs more runs its passes
    /// several times, each time for some groups.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.options.passes.memory = Some(bytes);
        self
    }

    /// Whether damaged metadata is restored from the copies that the journal's log still holds, as
    /// it is unless this is set to false.
    #[must_use]
    pub fn journal_evidence(mut self, uses: bool) -> Self {
        self.options.open.journal_evidence = uses;
        self
    }

    /// A name whose inode is lost is kept with an empty file.
    #[must_use]
    pub fn placeholders(mut self, keeps: bool) -> Self {
        self.options.passes.placeholders = keeps;
        self
    }

    /// Runs of blocks that the bitmaps have in use and nothing claims become files in
    /// `lost+found`.
    #[must_use]
    pub fn carve(mut self, carves: bool) -> Self {
        self.options.passes.carve = carves;
        self
    }

    /// A function that is called for each finding, before it is repaired.
    #[must_use]
    pub fn on_finding(mut self, call: impl Fn(&Finding) + Send + Sync + 'static) -> Self {
        self.on_finding = Some(Arc::new(call));
        self
    }

    /// The device of a journal that is not inside the volume. Without it the machine's block
    /// devices are searched.
    #[must_use]
    pub fn external_journal(mut self, device: Arc<dyn Device>) -> Self {
        self.options.open.journal = Some(device);
        self
    }

    /// Checks the volume on an opened image, by the clock of the image.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn check_image(&self, opened: &Opened) -> Result<Report, RunError> {
        let mut by_its_clock = self.clone();
        by_its_clock.options.passes.env = opened.env.clone();
        if opened.is_simulated() {
            by_its_clock.options.passes.threads = 1;
        }
        by_its_clock.check(opened.device.clone())
    }

    /// Checks the volume on a device.
    ///
    /// # Errors
    /// There is no volume that can be checked, its journal cannot be found, or the device failed.
    /// Findings are no errors: they are in the report.
    pub fn check(&self, device: Arc<dyn Device>) -> Result<Report, RunError> {
        let failed =
            |failure: OpenError| RunError { failure: failure.into(), findings: Vec::new() };
        let mut options = self.options.clone();
        let open = &mut options.open;
        open.env = options.passes.env.clone();
        open.checks_times = options.force;
        open.fresh_uuid = random_uuid().map_err(|error| failed(OpenError::NoRandomness(error)))?;
        let mut why = None;
        if open.journal.is_none() {
            let files = FileDeviceOptions::new().write(!matches!(self.answers, AutoPolicy::No));
            match find_journal(&*device, &open.superblock, &files) {
                Ok(None) => {}
                Ok(Some(found)) => {
                    (open.journal, open.journal_number) = (Some(found.device), found.number);
                }
                // Whether the volume needs it is seen later.
                Err(NotOpened::Journal(error)) => why = Some(error),
                Err(NotOpened::File(error)) => return Err(failed(error.into())),
            }
        }
        let calls = Calls(self.on_finding.as_deref());
        run(&device, &options, &self.answers, &calls).map_err(|error| match (&error.failure, why) {
            (RunFailure::Open(OpenError::Journal(missing)), Some(why))
                if missing.wants_device() =>
            {
                RunError { failure: OpenError::Journal(why).into(), ..error }
            }
            _ => error,
        })
    }
}

/// A random UUID, of version 4.
///
/// # Errors
/// The system gives no random bytes.
pub fn random_uuid() -> io::Result<Uuid> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(Uuid(bytes))
}

/// Passes findings on.
struct Calls<'a>(Option<&'a (dyn Fn(&Finding) + Send + Sync)>);

impl Observer for Calls<'_> {
    fn found(&self, finding: &Finding) {
        if let Some(call) = self.0 {
            call(finding);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formatter::{Formatter, FsType};
    use crate::inspect;
    use extant_device::MemoryDevice;

    #[test]
    fn a_volume_without_a_uuid_gets_a_random_one() {
        let device = Arc::new(MemoryDevice::new(8 << 20));
        let formatter = Formatter::new().fs_type(FsType::Ext2).uuid("clear");
        formatter.format(&*device).expect("it is made");
        let checker = Checker::new().repair(AutoPolicy::Yes).force(true);
        let report = checker.check(device.clone()).expect("it is checked");
        assert_eq!(report.exit_code(), 1, "{:?}", report.findings);
        let uuid = inspect::summary(device.clone()).expect("it is read").uuid;
        assert_eq!((uuid.len(), &uuid[14..15]), (36, "4"), "{uuid}");
        assert_eq!(checker.check(device).expect("again").exit_code(), 0);
    }
}
