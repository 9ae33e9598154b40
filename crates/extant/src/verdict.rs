//! The outcome of a check in one word.

use extant_check::finding::Code;
use extant_check::pass0::OpenError;
use extant_check::run::{End, OPERATIONAL, Report, RunError, RunFailure};
use extant_ondisk::IncompatFeatures;

/// The state of a volume after a check, in one word. Programs that check many images decide by it
/// what they do with each.
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
        match report.end {
            End::NotOpened if report.exit_code() & OPERATIONAL != 0 => Self::Unreadable,
            End::NotOpened | End::Stopped => Self::Damaged,
            _ if waits => Self::NeedsJournal,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Checker, FileSystem, Formatter, Repairs};
    use extant_device::{Device, MemoryDevice};
    use std::sync::Arc;

    fn verdict(device: &MemoryDevice, repairs: Repairs) -> Verdict {
        let checker = Checker::new().repair(repairs).force(true);
        Verdict::of(&checker.check(Arc::new(device.fork())))
    }

    /// A copy of the device at a moment when the journal holds a committed transaction.
    #[test]
    fn a_log_that_waits_is_no_damage() {
        let device = Arc::new(MemoryDevice::new(8 << 20));
        Formatter::new().format(&*device).expect("it is made");
        assert_eq!(verdict(&device, Repairs::No), Verdict::Clean);
        let fs = FileSystem::on_device(device.clone()).expect("it is opened");
        fs.write("/file", "text").expect("it is written");
        fs.sync().expect("it is committed");
        let waiting = device.fork();
        assert_eq!(verdict(&waiting, Repairs::No), Verdict::NeedsJournal);
        assert_eq!(verdict(&waiting, Repairs::Preen), Verdict::Clean);
    }

    /// The inode table of group 0 begins with the inodes 1 to 10; the root directory is 2.
    #[test]
    fn damage_is_damage_until_it_is_repaired() {
        let device = Arc::new(MemoryDevice::new(8 << 20));
        Formatter::new().format(&*device).expect("it is made");
        let summary = crate::inspect::summary(device.clone()).expect("it is read");
        let table = summary.groups.expect("groups")[0].inode_table * summary.block_size;
        device.write_at(table + 256, &[0x5a; 128]).expect("it is damaged");
        assert_eq!(verdict(&device, Repairs::No), Verdict::Damaged);
        assert_eq!(verdict(&device, Repairs::Preen), Verdict::Damaged);
        assert_eq!(verdict(&device, Repairs::Yes), Verdict::Repaired);
    }

    #[test]
    fn a_device_without_a_superblock_is_unreadable() {
        let device = MemoryDevice::new(8 << 20);
        for repairs in [Repairs::No, Repairs::Preen, Repairs::Yes] {
            assert_eq!(verdict(&device, repairs), Verdict::Unreadable);
        }
    }
}
