//! The policy that decides which findings are repaired.

use crate::finding::{Code, Finding, Severity};

/// The decision about a finding.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decision {
    /// Repair it now.
    Fix,
    /// Leave it; the volume is not clean.
    Skip,
    /// Leave it and end the run.
    Abort,
}

/// The decision of preening (`-p`) about a code: it fixes safe ones, and the first other one ends
/// the run.
pub fn preen_decision(code: Code) -> Decision {
    if code.is_left_by_preening() {
        return Decision::Skip;
    }
    match code.row().severity {
        Severity::Note | Severity::Safe => Decision::Fix,
        Severity::Damage | Severity::Fatal => Decision::Abort,
    }
}

/// The decision of `-y` about a code: the default of its prompt.
pub fn yes_decision(code: Code) -> Decision {
    if code.row().default { Decision::Fix } else { Decision::Skip }
}

/// Says what is done about a finding.
pub trait RepairPolicy: Sync {
    /// Decides. Each finding of a repair is passed here at most once a round, and not in the rounds
    /// after one in which its repair was refused.
    fn decide(&self, finding: &Finding) -> Decision;

    /// Whether any repair can be accepted at all: where not, details that only a repair needs are
    /// not collected.
    fn may_repair(&self) -> bool;
}

/// A policy that decides without a user.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AutoPolicy {
    /// `-n`: no to all, nothing is written.
    No,
    /// `-y`: yes to all questions whose default is yes.
    Yes,
    /// `-p`: what is safe; the first finding that is not ends the run.
    Preen,
}

impl RepairPolicy for AutoPolicy {
    fn decide(&self, finding: &Finding) -> Decision {
        match self {
            Self::No => Decision::Skip,
            Self::Yes => yes_decision(finding.code),
            Self::Preen => preen_decision(finding.code),
        }
    }

    fn may_repair(&self) -> bool {
        !matches!(self, Self::No)
    }
}
