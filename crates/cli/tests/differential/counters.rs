//! Sums of trials, for each kind of damage.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::judge::{Kept, Verdict};

/// What the trials of one kind came to; pairs are ours and e2fsck's.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counters {
    trials: u64,
    clean: [u64; 2],
    kept: [Kept; 2],
    of: Kept,
    worse: u64,
    better: u64,
    codes_differ: u64,
    second_run: u64,
}

impl Counters {
    pub(crate) fn add(&mut self, verdict: &Verdict) {
        self.trials += 1;
        for side in 0..2 {
            self.clean[side] += u64::from(verdict.sides[side].is_clean);
            self.kept[side].add(&verdict.sides[side].kept);
        }
        self.of.add(&verdict.of);
        self.worse += u64::from(verdict.is_worse());
        self.better += u64::from(verdict.is_better());
        self.codes_differ += u64::from(verdict.codes_differ());
        self.second_run += u64::from(verdict.second != Some(0));
    }

    pub(crate) fn trials(&self) -> u64 {
        self.trials
    }

    fn merge(&mut self, other: &Self) {
        self.trials += other.trials;
        for side in 0..2 {
            self.clean[side] += other.clean[side];
            self.kept[side].add(&other.kept[side]);
        }
        self.of.add(&other.of);
        self.worse += other.worse;
        self.better += other.better;
        self.codes_differ += other.codes_differ;
        self.second_run += other.second_run;
    }

    fn line(&self, name: &str) -> String {
        let [ours, theirs] = self.kept;
        format!(
            "{name:44} {:6} {:6}/{:6} {:8}/{:8} of {:8} {:8}/{:8} of {:8} {:5} {:5} {:5} {:5}\n",
            self.trials,
            self.clean[0],
            self.clean[1],
            ours.names,
            theirs.names,
            self.of.names,
            ours.contents,
            theirs.contents,
            self.of.contents,
            self.worse,
            self.better,
            self.codes_differ,
            self.second_run
        )
    }
}

/// All kinds, and their sum.
pub(crate) fn table(kinds: &BTreeMap<&str, Counters>) -> String {
    let mut text = String::from(
        "kind | trials | clean ours/e2fsck | names kept ours/e2fsck of all | contents kept | worse | better | exit codes differ | second run not 0\n",
    );
    let mut sum = Counters::default();
    for (name, counters) in kinds {
        let _ = write!(text, "{}", counters.line(name));
        sum.merge(counters);
    }
    text + &sum.line("all")
}
