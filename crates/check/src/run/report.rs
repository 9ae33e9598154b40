//! How a run ended.

use crate::finding::{Code, Severity};
use crate::pass0::OpenError;
use crate::report::{Discontinuity, HandledFinding, PassStatistics, VolumeStatistics};
use crate::store::{CheckError, Traffic};
use extant_device::errno;
use extant_ondisk::superblock::Superblock;
use std::time::Duration;

/// e2fsck's exit code, or a part of it: errors were corrected.
pub const CORRECTED: u8 = 1;
/// Errors were left uncorrected.
pub const UNCORRECTED: u8 = 4;
/// The check could not do its work.
pub const OPERATIONAL: u8 = 8;

/// How far a run came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// The policy ended the run before the passes started.
    NotOpened,
    /// The log was replayed: the options ask for no more.
    JournalReplayed,
    /// The volume said that it is clean, and no check was due.
    Clean,
    /// The policy ended the passes.
    Stopped,
    /// The passes ran to their end.
    Checked,
}

/// Results of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// How far it came.
    pub end: End,
    /// All findings, in the order in which they were reported.
    pub findings: Vec<HandledFinding>,
    /// Time and traffic of the last round, by pass.
    pub passes: Vec<PassStatistics>,
    /// Objects in use, if the passes ran to their end.
    pub statistics: VolumeStatistics,
    /// Where files are not in one run, by inode: empty unless
    /// [`CheckOptions::list_discontinuities`](crate::CheckOptions::list_discontinuities).
    pub discontinuities: Vec<Discontinuity>,
    /// Bytes that the tables took at most.
    pub memory: u64,
    /// How often the passes went over the disk, each time for other groups; 0 where none ran.
    pub windows: usize,
    /// How often the passes ran to repair, with those that were begun again.
    pub rounds: u32,
    /// The primary superblock in the end; `None` where it makes no sense or the run was ended.
    pub superblock: Option<Superblock>,
    /// How long the passes and the closing took.
    pub time: Duration,
    /// Bytes that the passes read and wrote.
    pub traffic: Traffic,
    /// Whether errors are left that the exit code reports.
    pub errors_left: bool,
    /// Whether errors were corrected that the exit code reports.
    pub is_corrected: bool,
    /// Whether any repair could be accepted.
    pub(super) may_repair: bool,
    /// Whether the passes found errors, and not only work that the options ask for.
    pub(super) found_errors: bool,
}

impl Report {
    pub(super) fn new(end: End) -> Self {
        Self {
            end,
            findings: Vec::new(),
            passes: Vec::new(),
            statistics: VolumeStatistics::default(),
            discontinuities: Vec::new(),
            memory: 0,
            windows: 0,
            rounds: 0,
            superblock: None,
            time: Duration::ZERO,
            traffic: Traffic::default(),
            errors_left: false,
            is_corrected: false,
            may_repair: false,
            found_errors: false,
        }
    }

    /// Whether anything was repaired.
    pub fn is_modified(&self) -> bool {
        self.findings.iter().any(|outcome| outcome.repaired)
    }

    /// e2fsck's exit code: 0, [`CORRECTED`], or, where errors are left, [`UNCORRECTED`] alone. A
    /// run that the policy ended before there was a superblock is [`OPERATIONAL`].
    pub fn exit_code(&self) -> u8 {
        match self.end {
            End::NotOpened if self.has_found(Code::SuperblockInvalid) => OPERATIONAL,
            End::NotOpened | End::Stopped => UNCORRECTED,
            End::JournalReplayed => 0,
            End::Clean | End::Checked if self.errors_left => UNCORRECTED,
            End::Clean | End::Checked => u8::from(self.is_corrected) * CORRECTED,
        }
    }

    /// Whether a finding is one of those that the exit code reports. [`CORRECTED`] also reports a
    /// volume that did not say that it was clean, for which there is no finding.
    pub fn counts(&self, outcome: &HandledFinding) -> bool {
        let code = outcome.finding.code;
        let is_left = match self.end {
            End::JournalReplayed => return false,
            End::NotOpened | End::Stopped => code.row().severity > Severity::Safe,
            End::Clean | End::Checked if !self.errors_left => {
                let orphans = self.findings.iter().any(is_finished_orphan);
                return is_correction(outcome, self.found_errors, orphans);
            }
            _ if self.may_repair => code.row().severity > Severity::Note,
            _ => code.counts_when_left(),
        };
        is_left && !outcome.repaired
    }

    fn has_found(&self, code: Code) -> bool {
        self.findings.iter().any(|outcome| outcome.finding.code == code)
    }
}

/// Whether a finding is an orphan that was finished.
pub(super) fn is_finished_orphan(outcome: &HandledFinding) -> bool {
    matches!(outcome.finding.code, Code::OrphanCleared | Code::OrphanTruncated)
}

/// Whether a repair corrected an error. `in_passes` says whether the passes found one at all: else
/// their changes are work that the options ask for. Finished `orphans` change the usage in quota
/// files.
pub(super) fn is_correction(outcome: &HandledFinding, in_passes: bool, orphans: bool) -> bool {
    let code = outcome.finding.code;
    let is_at_work = code.row().pass == 0 || in_passes;
    let follows = orphans && code == Code::QuotaWrong;
    outcome.repaired && code.is_correction() && is_at_work && !follows
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum RunFailure {
    /// The volume cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The work after the passes failed.
    #[error(transparent)]
    Check(#[from] CheckError),
}

impl RunFailure {
    /// The number that a system call returns for it (`ENOENT` is 2).
    pub fn errno(&self) -> i32 {
        match self {
            Self::Open(error) => error.errno(),
            Self::Check(error) => error.errno(),
        }
    }

    /// The kind of error in std's words.
    pub fn kind(&self) -> std::io::ErrorKind {
        errno::kind(self.errno())
    }
}

/// A run that failed.
#[derive(Debug, thiserror::Error)]
#[error("{failure}")]
pub struct RunError {
    /// Why.
    #[source]
    pub failure: RunFailure,
    /// The findings before the failure, and whether they were repaired.
    pub findings: Vec<HandledFinding>,
}

impl RunError {
    /// The number that a system call returns for it (`ENOENT` is 2).
    pub fn errno(&self) -> i32 {
        self.failure.errno()
    }

    /// The kind of error in std's words.
    pub fn kind(&self) -> std::io::ErrorKind {
        errno::kind(self.errno())
    }
}
