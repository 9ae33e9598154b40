//! Sums of trials, for each kind of damage.

use std::collections::BTreeMap;
use std::fmt;

use crate::judge::{Kept, Verdict};
use crate::kinds::Kind;

/// Results of the trials of one kind; pairs are ours and e2fsck's.
#[derive(Default)]
pub(crate) struct Counters {
    trials: u64,
    clean: [u64; 2],
    kept: [Kept; 2],
    of: Kept,
    less: u64,
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
        self.less += u64::from(verdict.keeps_less());
        self.worse += u64::from(verdict.is_worse());
        self.better += u64::from(verdict.is_better());
        self.codes_differ += u64::from(verdict.codes_differ());
        self.second_run += u64::from(verdict.leaves_something());
    }

    pub(crate) fn trials(&self) -> u64 {
        self.trials
    }

    /// Trials in which ours kept less.
    pub(crate) fn less(&self) -> u64 {
        self.less
    }

    fn line(&self, name: &str) -> String {
        let [ours, theirs] = self.kept;
        format!(
            "{name:30} {:6} {:6}/{:6} {:8}/{:8} of {:8} {:8}/{:8} of {:8} {:5} {:5} {:5} {:5}\n",
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

/// An option, and what ours and e2fsck end with.
type CodePair = (&'static str, Option<i32>, Option<i32>);

/// Trials that are named for a pair of exit codes.
const NAMED: usize = 5;

/// The trials of a run: sums by structure, by what was done to it, of all, and pairs of exit codes
/// that differ.
#[derive(Default)]
pub(crate) struct Sums {
    structures: BTreeMap<&'static str, Counters>,
    acts: BTreeMap<&'static str, Counters>,
    all: Counters,
    /// Number of trials with each pair, and the first of them.
    codes: BTreeMap<CodePair, (u64, Vec<u64>)>,
}

impl Sums {
    pub(crate) fn add(&mut self, kind: Kind, verdict: &Verdict, number: u64) {
        self.structures.entry(kind.structure).or_default().add(verdict);
        self.acts.entry(kind.act).or_default().add(verdict);
        self.all.add(verdict);
        let [ours, theirs] = &verdict.sides;
        for (at, option) in ["-n", "-p", "-y"].into_iter().enumerate() {
            if ours.codes[at] != theirs.codes[at] {
                let pair = (option, ours.codes[at], theirs.codes[at]);
                let (count, first) = self.codes.entry(pair).or_default();
                *count += 1;
                if first.len() < NAMED {
                    first.push(number);
                }
            }
        }
    }

    pub(crate) fn all(&self) -> &Counters {
        &self.all
    }
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "damage | trials | clean ours/e2fsck | names kept ours/e2fsck of all | contents kept \
             | worse | better | exit codes differ | repaired, and a second run not 0"
        )?;
        for (name, counters) in self.structures.iter().chain(&self.acts) {
            f.write_str(&counters.line(name))?;
        }
        f.write_str(&self.all.line("all"))?;
        for ((option, ours, theirs), (count, first)) in &self.codes {
            let [ours, theirs] = [ours, theirs].map(|code| code.unwrap_or(-1));
            writeln!(f, "{option}: ours {ours}, e2fsck {theirs}: {count} (trials {first:?})")?;
        }
        Ok(())
    }
}
