//! The outcome of a check in one word.

use extant_check::finding::Code;
use extant_check::pass0::OpenError;
use extant_check::run::{End, OPERATIONAL, Report, RunError, RunFailure};
use extant_ondisk::IncompatFeatures;
use extant_ondisk::superblock::State;

/// The state of a volume after a check, in one word: by it a program that checks many images
/// decides about each.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Verdict {
    /// No error was found.
    Clean,
    /// Errors were corrected, and none is left.
    Repaired,
    /// The journal has not been replayed: the check wrote nothing, or the journal's own device is
    /// not there. Findings before the replay need not be errors.
    NeedsJournal,
    /// Errors are left.
    Damaged,
    /// There is no volume that can be checked: not a superblock, a feature that is not supported, a
    /// device that fails or is in use.
    Unreadable,
}

impl Verdict {
    /// The verdict of a check.
    ///
    /// ```
    /// use extant::{Checker, Formatter, MemoryDevice, Verdict};
    /// use std::sync::Arc;
    ///
    /// let device = Arc::new(MemoryDevice::new(8 << 20));
    /// assert_eq!(Verdict::of(&Checker::new().check(device.clone())), Verdict::Unreadable);
    /// Formatter::new().format(&*device)?;
    /// assert_eq!(Verdict::of(&Checker::new().check(device)).name(), "clean");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn of(outcome: &Result<Report, RunError>) -> Self {
        match outcome {
            Ok(report) => Self::of_report(report),
            Err(error) => Self::of_error(error),
        }
    }

    /// The verdict of a check that has a report.
    pub fn of_report(report: &Report) -> Self {
        let waits = report.superblock.as_ref().is_some_and(|superblock| {
            superblock.features.incompat.contains(IncompatFeatures::RECOVER)
        });
        let has_errors = report
            .superblock
            .as_ref()
            .is_some_and(|superblock| superblock.state.contains(State::ERRORS));
        match report.end {
            End::NotOpened if report.exit_code() & OPERATIONAL != 0 => Self::Unreadable,
            End::NotOpened | End::Stopped => Self::Damaged,
            _ if waits => Self::NeedsJournal,
            End::JournalReplayed if has_errors => Self::Damaged,
            _ if report.errors_left => Self::Damaged,
            _ if report.is_corrected => Self::Repaired,
            _ => Self::Clean,
        }
    }

    /// The verdict of a check that failed.
    pub fn of_error(error: &RunError) -> Self {
        match &error.failure {
            RunFailure::Open(OpenError::Journal(error)) if error.wants_device() => {
                Self::NeedsJournal
            }
            // The passes began, and the device failed: findings before that are there.
            _ if error.findings.iter().any(|found| is_error(found.finding.code)) => Self::Damaged,
            _ => Self::Unreadable,
        }
    }

    /// The word: `clean`, `repaired`, `needs_journal`, `damaged` or `unreadable`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Repaired => "repaired",
            Self::NeedsJournal => "needs_journal",
            Self::Damaged => "damaged",
            Self::Unreadable => "unreadable",
        }
    }
}

/// Whether a finding says more than that the superblock is not one.
fn is_error(code: Code) -> bool {
    code != Code::SuperblockInvalid && code.counts_when_left()
}
