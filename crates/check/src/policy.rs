//! Who decides what is done about a finding.

use crate::finding::{Code, Finding, Severity};

/// What is to be done about a finding.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Judgement {
    /// Repair it now.
    Repair,
    /// Leave it; the volume is not clean.
    Leave,
    /// Leave it and end the run.
    Stop,
}

/// What preening (`-p`) does about a finding of a kind: it repairs what is safe, and the first that
/// is not ends the run.
pub fn preened(code: Code) -> Judgement {
    if code.is_left_by_preening() {
        return Judgement::Leave;
    }
    match code.row().severity {
        Severity::Note | Severity::Safe => Judgement::Repair,
        Severity::Damage | Severity::Fatal => Judgement::Stop,
    }
}

/// What `-y` does about a finding of a kind: it takes the default of the question.
pub fn answered_yes(code: Code) -> Judgement {
    if code.row().default { Judgement::Repair } else { Judgement::Leave }
}

/// Says what is done about a finding.
pub trait RepairPolicy: Sync {
    /// Decides. Everything that a repair finds passes through here exactly once a round.
    fn decide(&self, finding: &Finding) -> Judgement;

    /// Whether any repair can be accepted at all: where not, details that only a repair needs are
    /// not collected.
    fn may_repair(&self) -> bool;
}

/// Who answers the questions of a repair.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answers {
    /// `-n`: no to all, nothing is written.
    No,
    /// `-y`: yes to all questions whose default is yes.
    Yes,
    /// `-p`: what is safe; the first finding that is not ends the run.
    Preen,
}

impl RepairPolicy for Answers {
    fn decide(&self, finding: &Finding) -> Judgement {
        match self {
            Self::No => Judgement::Leave,
            Self::Yes => answered_yes(finding.code),
            Self::Preen => preened(finding.code),
        }
    }

    fn may_repair(&self) -> bool {
        !matches!(self, Self::No)
    }
}
