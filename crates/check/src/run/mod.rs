//! A whole check: the volume is opened, the passes run where they are due, the volume is closed.

mod bad_blocks;
mod discard;
mod journal;
mod report;

pub use bad_blocks::BadBlocks;
pub use journal::{JournalDevice, find_journal};
use report::{is_correction, is_finished_orphan};

pub use report::{CORRECTED, End, OPERATIONAL, Report, RunError, RunFailure, UNCORRECTED};

use crate::pass0::{self, CheckOpenOptions, Closing, OpenError, Prepared, needs_check};
use crate::policy::RepairPolicy;
use crate::recorder::{Observer, Recorder};
use crate::report::{CheckOptions, PassReport};
use crate::rounds::repair;
use crate::store::CheckError;
use extant_device::Device;
use extant_offline::{OfflineVolume, read_superblock};
use extant_ondisk::superblock::{SUPERBLOCK_OFFSET, State, Superblock};
use extant_ondisk::{Geometry, IncompatFeatures};
use std::sync::Arc;

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// How the volume is opened.
    pub open: CheckOpenOptions,
    /// Options of the passes.
    pub passes: CheckOptions,
    /// The passes run even if the volume says that it is clean (`-f`).
    pub force: bool,
    /// The log is replayed, and the passes do not run (`-E journal_only`).
    pub journal_only: bool,
    /// A new list of bad blocks, before the passes.
    pub bad_blocks: Option<BadBlocks>,
    /// Free clusters are given back to the device where no error is left (`-E discard`).
    pub discard: bool,
}

impl RunOptions {
    /// Whether an option requires all passes.
    fn needs_passes(&self) -> bool {
        let CheckOptions {
            optimize_directories,
            unshare_blocks,
            bmap_to_extent,
            check_encoding,
            placeholders,
            carve,
            ..
        } = self.passes;
        self.force
            || self.bad_blocks.is_some()
            || self.discard
            || optimize_directories
            || unshare_blocks
            || bmap_to_extent
            || check_encoding
            || placeholders
            || carve
    }
}

/// Checks the volume on `device` and repairs what `policy` accepts, as e2fsck does. `observer` is
/// notified of each finding and each step.
///
/// # Errors
/// See [`RunError`]. If the policy ended the run, that is not an error but the report's [`End`].
pub fn run(
    device: &Arc<dyn Device>,
    options: &RunOptions,
    policy: &dyn RepairPolicy,
    observer: &dyn Observer,
) -> Result<Report, RunError> {
    let recorder = Recorder::observed(policy, observer);
    let run = CheckRun { device, options, recorder: &recorder };
    let result = run.run();
    let findings = recorder.into_findings();
    match result {
        Ok(report) => Ok(Report { findings, ..report }),
        Err(RunFailure::Open(OpenError::Check(CheckError::Stopped))) => {
            Ok(Report { findings, ..Report::new(End::NotOpened) })
        }
        Err(failure) => Err(RunError { failure, findings }),
    }
}

/// The state of a run.
struct CheckRun<'a> {
    device: &'a Arc<dyn Device>,
    options: &'a RunOptions,
    recorder: &'a Recorder<'a>,
}

impl<'a> CheckRun<'a> {
    fn observer(&self) -> &'a dyn Observer {
        self.recorder.observer()
    }

    fn open(&self) -> Result<Prepared, OpenError> {
        pass0::open(self.device.clone(), &self.options.open, self.recorder)
    }

    fn run(&self) -> Result<Report, RunFailure> {
        let before = superblock_of(&**self.device);
        let lacks_extents = before
            .as_ref()
            .is_some_and(|it| !it.features.incompat.contains(IncompatFeatures::EXTENTS));
        let was_clean = before.is_none_or(|before| before.state.contains(State::CLEAN));
        if let Some(wanted) = &self.options.bad_blocks {
            // Pass 0 makes the inode table readable, then the volume is opened again.
            self.open()?.close(Closing::Skipped, self.recorder)?;
            wanted.write(self.device, self.observer())?;
        }
        if self.options.passes.bmap_to_extent && lacks_extents && self.recorder.may_repair() {
            self.open()?.close(Closing::Skipped, self.recorder)?;
            admit_extents(self.device)?;
        }
        let ready = self.open()?;
        let superblock = ready.store.superblock();
        self.observer().opened(&superblock);
        if self.options.journal_only {
            ready.close(Closing::Skipped, self.recorder)?;
            let superblock = Some(superblock);
            return Ok(Report { superblock, ..Report::new(End::JournalReplayed) });
        }
        let now = self.options.open.env.now().seconds.max(0).cast_unsigned();
        let reason = needs_check(&superblock, now);
        if reason.is_none() && !self.options.needs_passes() && !ready.needs_passes() {
            return Ok(self.close_clean(ready, superblock)?);
        }
        if let Some(reason) = reason.filter(|_| !self.options.force) {
            self.observer().due(&reason);
        }
        Ok(self.check(ready, was_clean)?)
    }

    /// The volume's clean flag is accepted.
    fn close_clean(&self, ready: Prepared, before: Superblock) -> Result<Report, CheckError> {
        ready.close(Closing::TakenAsClean, self.recorder)?;
        // Free blocks and inodes were counted when the volume was closed.
        let closed = superblock_of(&**self.device).filter(|_| self.recorder.may_repair());
        let superblock = Some(closed.unwrap_or(before));
        let is_corrected = self.is_corrected(false);
        Ok(Report { superblock, is_corrected, ..Report::new(End::Clean) })
    }

    fn check(&self, mut ready: Prepared, was_clean: bool) -> Result<Report, CheckError> {
        let env = &self.options.passes.env;
        let start = env.elapsed();
        let was_clean = was_clean || ready.store.superblock().state.contains(State::CLEAN);
        let checked = repair(&mut ready.store, &self.options.passes, self.recorder);
        self.observer().passes_ran();
        let found = match checked {
            Err(CheckError::Stopped) => {
                ready.close(Closing::ErrorsLeft, self.recorder)?;
                return Ok(Report::new(End::Stopped));
            }
            checked => self.reported(checked?),
        };
        let may_repair = self.recorder.may_repair();
        let left = found.errors_left || ready.has_errors_left();
        // A scan without repairs leaves out some of what it reports.
        let errors_left = match may_repair {
            true => left,
            false => self.recorder.any(|outcome| outcome.finding.code.counts_when_left()),
        };
        let closing = if left { Closing::ErrorsLeft } else { Closing::Clean };
        let traffic = ready.store.traffic();
        ready.close(closing, self.recorder)?;
        if self.options.discard && !left && may_repair {
            discard::free_clusters(self.device)?;
        }
        // Error fields of the superblock are corrected too; those of the journal are not.
        let is_corrected =
            self.is_corrected(found.found_errors) || !was_clean && !left && may_repair;
        Ok(Report {
            errors_left,
            is_corrected,
            may_repair,
            found_errors: found.found_errors,
            superblock: superblock_of(&**self.device),
            time: env.elapsed().saturating_sub(start),
            traffic,
            passes: found.passes,
            statistics: found.statistics,
            discontinuities: found.discontinuities,
            memory: found.memory,
            windows: found.windows,
            rounds: found.rounds,
            ..Report::new(End::Checked)
        })
    }

    /// Reports the findings of a scan, which need no decision.
    fn reported(&self, mut found: PassReport) -> PassReport {
        self.observer().discontinuities(&found.discontinuities);
        if !self.recorder.may_repair() {
            for outcome in std::mem::take(&mut found.findings) {
                self.recorder.should_fix_without_abort(outcome.finding);
            }
        }
        self.observer().passes_reported();
        found
    }

    /// Whether one of the repairs corrected an error; `in_passes` as for [`is_correction`].
    fn is_corrected(&self, in_passes: bool) -> bool {
        let orphans = self.recorder.any(is_finished_orphan);
        self.recorder.any(|outcome| is_correction(outcome, in_passes, orphans))
    }
}

/// Sets the feature of extents, as e2fsck does before it converts block maps. The volume's
/// superblock and descriptors are valid.
fn admit_extents(device: &Arc<dyn Device>) -> Result<(), CheckError> {
    let mut volume = OfflineVolume::open(device.clone())?;
    if volume.raw.s_rev_level.get() == 0 {
        return Ok(());
    }
    volume.update_superblock(|raw| {
        let mut features = raw.features();
        features.incompat |= IncompatFeatures::EXTENTS;
        raw.set_features(features);
    })?;
    volume.commit()?;
    Ok(volume.write_backup_superblocks()?)
}

/// The primary superblock as it is now; `None` where it makes no sense.
fn superblock_of(device: &dyn Device) -> Option<Superblock> {
    let raw = read_superblock(device, SUPERBLOCK_OFFSET).ok()?;
    Geometry::new(&raw).ok()?;
    Some(Superblock::decode(&raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_need_work_run_all_passes() {
        let passes = CheckOptions { unshare_blocks: true, ..CheckOptions::default() };
        let requested = [
            RunOptions { discard: true, ..RunOptions::default() },
            RunOptions { passes, ..RunOptions::default() },
        ];
        assert!(requested.iter().all(RunOptions::needs_passes));
        assert!(!RunOptions::default().needs_passes());
    }
}
