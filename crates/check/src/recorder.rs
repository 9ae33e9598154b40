//! Every finding passes through here: the policy decides, the observer is notified, the repair is
//! counted.

use crate::finding::{Code, Finding, Subject};
use crate::policy::{Decision, RepairPolicy};
use crate::report::{Discontinuity, HandledFinding};
use crate::store::CheckError;
use extant_ondisk::superblock::Superblock;
use extant_runtime::sync::Mutex;
use std::collections::HashSet;

/// How blocks are tested for whether they hold what is written there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BlockTest {
    /// By reading each (`-c`).
    Read,
    /// By writing each, reading it back and putting back what was there (`-cc`).
    Rewrite,
}

/// Is notified of the steps of a check. Each method does nothing by default.
pub trait Observer: Sync {
    /// A finding, before the policy decides about it.
    fn found(&self, _finding: &Finding) {}

    /// The same finding once that is decided.
    fn decided(&self, _outcome: &HandledFinding, _decision: Decision) {}

    /// All blocks are now tested.
    fn testing_blocks(&self, _test: BlockTest) {}

    /// The list of bad blocks is about to be written.
    fn bad_blocks_change(&self) {}

    /// Does work that must not be interrupted: a block holds the test's pattern.
    fn uninterrupted(&self, work: &mut dyn FnMut()) {
        work();
    }

    /// The volume is ready for the passes.
    fn opened(&self, _superblock: &Superblock) {}

    /// The passes run because the superblock requires them; the reason.
    fn due(&self, _reason: &str) {}

    /// The passes are over, or were ended.
    fn passes_ran(&self) {}

    /// Discontinuities of files: after the repairs, before the findings of a scan.
    fn discontinuities(&self, _discontinuities: &[Discontinuity]) {}

    /// All findings of the passes are reported.
    fn passes_reported(&self) {}
}

/// Does nothing.
struct NoObserver;

impl Observer for NoObserver {}

/// The findings so far, and whether they were repaired.
pub struct Recorder<'a> {
    policy: &'a dyn RepairPolicy,
    observer: &'a dyn Observer,
    findings: Mutex<Vec<HandledFinding>>,
    refused: Mutex<Refused>,
}

/// Repairs that were refused: they are not proposed again in later rounds.
#[derive(Default)]
struct Refused {
    earlier: HashSet<(Code, Subject)>,
    this_round: HashSet<(Code, Subject)>,
}

/// The parts of a finding that are the same in the next round. Pass 5 has one finding of each code
/// for a group; its numbers follow from the repairs of other passes.
fn identity(finding: &Finding) -> (Code, Subject) {
    let Subject { group, .. } = finding.subject;
    match finding.code.row().pass {
        5 => (finding.code, Subject { group, ..Subject::default() }),
        _ => (finding.code, finding.subject.clone()),
    }
}

impl<'a> Recorder<'a> {
    /// A recorder without an observer.
    pub fn new(policy: &'a dyn RepairPolicy) -> Self {
        Self::observed(policy, &NoObserver)
    }

    /// A recorder that notifies `observer` of every finding.
    pub fn observed(policy: &'a dyn RepairPolicy, observer: &'a dyn Observer) -> Self {
        Self { policy, observer, findings: Mutex::default(), refused: Mutex::default() }
    }

    /// Whether any repair can be accepted at all.
    pub fn may_repair(&self) -> bool {
        self.policy.may_repair()
    }

    /// Whether a finding is to be repaired now.
    ///
    /// # Errors
    /// [`CheckError::Stopped`] when the policy ends the run.
    pub fn should_fix(&self, finding: Finding) -> Result<bool, CheckError> {
        match self.record(finding) {
            (_, Decision::Abort) => Err(CheckError::Stopped),
            (repaired, _) => Ok(repaired),
        }
    }

    /// The passes begin again: they find once more what was refused.
    pub(crate) fn begin_round(&self) {
        let Refused { earlier, this_round } = &mut *self.refused.lock();
        earlier.extend(this_round.drain());
    }

    /// Records a finding where nothing can be stopped any more; whether it is to be repaired.
    pub(crate) fn should_fix_without_abort(&self, finding: Finding) -> bool {
        self.record(finding).0
    }

    /// Only where the policy says so, the finding has a repair, and something may be written.
    fn record(&self, finding: Finding) -> (bool, Decision) {
        if self.was_refused(&finding) {
            return (false, Decision::Skip);
        }
        self.observer.found(&finding);
        let decision = self.policy.decide(&finding);
        let has_repair = !finding.code.row().prompt.is_empty();
        let repaired = decision == Decision::Fix && has_repair && self.may_repair();
        if decision == Decision::Skip && has_repair && self.may_repair() {
            self.refused.lock().this_round.insert(identity(&finding));
        }
        let outcome = HandledFinding { finding, repaired };
        self.observer.decided(&outcome, decision);
        self.findings.lock().push(outcome);
        (repaired, decision)
    }

    fn was_refused(&self, finding: &Finding) -> bool {
        let refused = self.refused.lock();
        !refused.earlier.is_empty() && refused.earlier.contains(&identity(finding))
    }

    pub(crate) fn observer(&self) -> &'a dyn Observer {
        self.observer
    }

    /// Number of findings.
    pub(crate) fn count(&self) -> usize {
        self.findings.lock().len()
    }

    /// Whether a finding since there were `before` of them is such a one.
    pub(crate) fn any_since(
        &self,
        before: usize,
        is_meant: impl Fn(&HandledFinding) -> bool,
    ) -> bool {
        self.findings.lock()[before..].iter().any(is_meant)
    }

    /// Whether all findings since there were `before` of them are repaired and of codes that are
    /// meant, and none was refused.
    pub(crate) fn all_is_repaired_since(
        &self,
        before: usize,
        is_meant: impl Fn(Code) -> bool,
    ) -> bool {
        let Refused { earlier, this_round } = &*self.refused.lock();
        earlier.is_empty()
            && this_round.is_empty()
            && !self.any_since(before, |it| !it.repaired || !is_meant(it.finding.code))
    }

    /// Whether any finding is such a one.
    pub(crate) fn any(&self, is_meant: impl Fn(&HandledFinding) -> bool) -> bool {
        self.any_since(0, is_meant)
    }

    /// The findings since there were `before` of them.
    pub(crate) fn since(&self, before: usize) -> Vec<HandledFinding> {
        self.findings.lock()[before..].to_vec()
    }

    /// All findings, in the order in which they were found.
    pub fn findings(&self) -> Vec<HandledFinding> {
        self.since(0)
    }

    /// All findings, in the order in which they were found.
    pub fn into_findings(self) -> Vec<HandledFinding> {
        self.findings.into_inner()
    }

    /// All findings, in the order of [`Finding::order`], whatever the threads.
    pub(crate) fn into_sorted(self) -> Vec<Finding> {
        let findings = self.into_findings();
        let mut found: Vec<_> = findings.into_iter().map(|outcome| outcome.finding).collect();
        found.sort_by_cached_key(Finding::order);
        found
    }
}
