//! The units that are run, of a few kinds: each a test that goes on with another seed each time.

use std::path::Path;
use std::process::Command;

use super::state::{State, Sums};
use crate::fuzz::{self, Harness};
use crate::suites::{Build, Suite};
use crate::{Failure, suites};

/// A kind of test.
#[derive(Debug, PartialEq)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// Its part of the time, relative to the others.
    share: f64,
    /// The suite and the tests that it runs; of fuzz harnesses there is no list.
    suite: &'static str,
    tests: &'static [&'static str],
}

pub(crate) const KINDS: [Kind; 6] = [
    Kind {
        name: "cuts",
        share: 4.0,
        suite: "histories",
        tests: &[
            "power::cuts::calls_on_names_survive_power_loss_whole",
            "power::cuts::calls_on_attributes_survive_power_loss_whole",
            "power::cuts::contents_survive_power_loss_and_nothing_stale_is_shown",
            "power::cuts::contents_that_are_not_delayed_survive_power_loss_too",
            "power::cuts::every_call_survives_power_loss_in_every_mode",
            "power::cuts::other_ways_to_commit_survive_power_loss_too",
        ],
    },
    Kind { name: FUZZ, share: 4.0, suite: fuzz::SUITE, tests: &[] },
    Kind {
        name: DIFFERENTIAL,
        share: 2.0,
        suite: "differential",
        tests: &["ours_keeps_what_e2fsck_keeps"],
    },
    Kind {
        name: "kills",
        share: 1.0,
        suite: "mount",
        tests: &["mounting::kills::a_server_killed_at_any_moment_of_work_keeps_what_was_fsynced"],
    },
    Kind {
        name: "load",
        share: 2.0,
        suite: "mount",
        tests: &[
            "mounting::load::what_was_acknowledged_survives_failing_disks_and_killed_servers_under_load",
        ],
    },
    Kind {
        name: "histories",
        share: 1.0,
        suite: "histories",
        tests: &[
            "random::names_are_what_the_model_says",
            "random::names_are_what_the_model_says_with_threads",
            "random::attributes_are_what_the_model_says",
            "random::contents_are_what_the_model_says",
            "random::every_call_does_what_the_model_says_with_reopening",
            "random::crowded_directories_are_what_the_model_says",
        ],
    },
];

pub(crate) const FUZZ: &str = "fuzz";
pub(crate) const DIFFERENTIAL: &str = "differential";

/// Inputs that each harness gets before others get more.
const INPUTS: u64 = 1_000_000;
/// Seconds of a harness's slice.
const FUZZ_SLICE: u64 = 30;
/// Seconds of a slice of the differential: each makes its volumes first.
const DIFFERENTIAL_SLICE: u64 = 120;
/// Seconds that a round of load takes in addition.
const LOAD_SECONDS: u64 = 30;
/// Seconds after which a slice has failed. Failing histories are made smaller within it.
const LIMIT: u64 = 1800;

/// A test that slices are run of.
pub(crate) struct Unit {
    /// The kind, the crate's directory and the test.
    pub(crate) name: String,
    pub(crate) kind: &'static Kind,
    how: How,
}

enum How {
    /// A test that takes the number of its first history, or of its run, from the environment.
    Seeded(Suite, String),
    Harness(Harness),
}

impl Unit {
    fn new(kind: &'static Kind, room: &str, test: &str, how: How) -> Self {
        Self { name: format!("{}/{room}/{test}", kind.name), kind, how }
    }

    /// The name as one part of a path.
    pub(crate) fn file_name(&self) -> String {
        self.name.replace(['/', ':'], "-")
    }

    /// A slice with this seed that takes `seconds` at most, where the length of a slice is free.
    /// `corpora` and `kept` are directories for inputs, and for the images of trials that went
    /// worse.
    pub(crate) fn command(
        &self,
        seed: u64,
        seconds: u64,
        corpora: &Path,
        kept: &Path,
    ) -> Result<Command, Failure> {
        let (suite, test) = match &self.how {
            How::Harness(harness) => {
                let place = corpora.join(harness.file_name());
                // libFuzzer takes 0 for a seed from the clock.
                return harness.command(&place, seed + 1, seconds.clamp(1, FUZZ_SLICE));
            }
            How::Seeded(suite, test) => (suite, test),
        };
        let mut command = suite.command(test, LIMIT);
        command.env("EXTANT_SEED", seed.to_string()).env("EXTANT_HISTORIES", "1");
        command.env("EXTANT_LOAD_SECONDS", LOAD_SECONDS.to_string());
        if self.kind.name == DIFFERENTIAL {
            let seconds = seconds.clamp(1, DIFFERENTIAL_SLICE);
            command.env("EXTANT_DIFFERENTIAL", format!("{seconds}s")).env("EXTANT_KEEP", kept);
        }
        Ok(command)
    }

    /// The result of a slice; `None` where it counted nothing, as a test that was skipped.
    pub(crate) fn sums(&self, output: &str) -> Option<Sums> {
        let mut sums = Sums::of(output);
        if let How::Harness(_) = self.how {
            sums.counts.insert("inputs".into(), fuzz::inputs(output)?);
        }
        (!sums.counts.is_empty()).then_some(sums)
    }

    /// The harness, where it is one.
    pub(crate) fn harness(&self) -> Option<&Harness> {
        match &self.how {
            How::Harness(harness) => Some(harness),
            How::Seeded(..) => None,
        }
    }

    /// Whether it has what each unit gets before others get more.
    fn is_behind(&self, state: &State) -> bool {
        let inputs = state.progress(&self.name).counts.get("inputs").copied().unwrap_or(0);
        self.harness().is_some() && inputs < INPUTS
    }
}

/// Builds the suites and lists the units whose names begin with one of `only`, all units where that
/// is empty.
pub(crate) fn all(only: &[String], build: Build) -> Result<Vec<Unit>, Failure> {
    let is_wanted =
        |unit: &Unit| only.is_empty() || only.iter().any(|it| unit.name.starts_with(it));
    // A kind is built where a unit of it may be wanted.
    let is_kind_wanted = |kind: &Kind| {
        let of = |it: &String| it.starts_with(kind.name) || kind.name.starts_with(&**it);
        only.is_empty() || only.iter().any(of)
    };
    let mut units = Vec::new();
    let mut names: Vec<_> = KINDS
        .iter()
        .filter(|kind| kind.name != FUZZ && is_kind_wanted(kind))
        .map(|kind| kind.suite)
        .collect();
    names.sort_unstable();
    names.dedup();
    let seeded =
        if names.is_empty() { Vec::new() } else { suites::build(&names, Build::Optimized)? };
    for kind in KINDS.iter().filter(|kind| is_kind_wanted(kind)) {
        if kind.name == FUZZ {
            let harnesses = fuzz::harnesses(build)?.into_iter();
            units.extend(harnesses.map(|harness| {
                let (room, test) = (harness.suite.room.clone(), harness.test.clone());
                Unit::new(kind, &room, &test, How::Harness(harness))
            }));
            continue;
        }
        let suite = seeded.iter().find(|suite| suite.name == kind.suite);
        let suite = suite.ok_or_else(|| format!("there is no suite {}", kind.suite))?;
        let there = suite.tests()?;
        for test in kind.tests {
            if !there.iter().any(|it| it == test) {
                return Err(format!("the suite {} has no test {test}", kind.suite).into());
            }
            let how = How::Seeded(suite.clone(), (*test).to_owned());
            units.push(Unit::new(kind, &suite.room, test, how));
        }
    }
    units.retain(is_wanted);
    if units.is_empty() {
        let kinds: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
        return Err(format!(
            "no test has a name that begins so; the kinds are {}",
            kinds.join(", ")
        )
        .into());
    }
    Ok(units)
}

/// The unit that is next: of the kind that had least of its share in this run, the one that had
/// least time in all runs. `seconds` are those of a kind in this run.
pub(crate) fn next<'a>(
    units: &'a [Unit],
    state: &State,
    seconds: impl Fn(&Kind) -> f64,
) -> Option<&'a Unit> {
    let used = |kind: &Kind| seconds(kind) / kind.share;
    let kinds = units.iter().map(|unit| unit.kind);
    let kind = kinds.min_by(|a, b| used(a).total_cmp(&used(b)))?;
    let time = |unit: &Unit| (!unit.is_behind(state), state.progress(&unit.name).seconds);
    units.iter().filter(|unit| unit.kind == kind).min_by(|a, b| {
        let (a, b) = (time(a), time(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn units() -> Vec<Unit> {
        let suite = |message: &str| Suite::of(message).expect("it is one");
        let message = |room: &str| {
            format!(
                r#"{{"manifest_path":"/w/crates/{room}/Cargo.toml","executable":"/w/fuzz",
                    "target":{{"kind":["test"],"name":"fuzz"}},"profile":{{"test":true}}}}"#
            )
        };
        let suite = suite(&message("ondisk"));
        let harness = |test: &str| {
            let harness = Harness::new(suite.clone(), test, Build::Guided);
            Unit::new(&KINDS[1], "ondisk", test, How::Harness(harness))
        };
        let seeded = How::Seeded(suite.clone(), "cut".into());
        vec![Unit::new(&KINDS[0], "volume", "cut", seeded), harness("quick"), harness("slow")]
    }

    #[test]
    fn kinds_take_turns_by_their_shares_and_units_by_their_time() {
        let (units, mut state) = (units(), State::default());
        let mut seconds = BTreeMap::new();
        let mut run = |state: &mut State, expected: &str, taken: f64, inputs: u64| {
            let unit = next(&units, state, |kind| seconds.get(kind.name).copied().unwrap_or(0.0));
            let unit = unit.expect("there are units");
            assert_eq!(unit.name, expected);
            *seconds.entry(unit.kind.name).or_insert(0.0) += taken;
            state.add(&unit.name, taken, Sums::of(&format!("soak: inputs={inputs}")));
        };
        run(&mut state, "cuts/volume/cut", 100.0, 0);
        run(&mut state, "fuzz/ondisk/quick", 30.0, INPUTS);
        run(&mut state, "fuzz/ondisk/slow", 30.0, 10);
        // It took as long, but it has not tried as much.
        run(&mut state, "fuzz/ondisk/slow", 30.0, INPUTS);
        run(&mut state, "fuzz/ondisk/quick", 30.0, INPUTS);
        run(&mut state, "cuts/volume/cut", 100.0, 0);
    }

    #[test]
    fn a_test_that_was_skipped_counts_nothing() {
        let units = units();
        assert_eq!(units[0].sums("test a ... skipped: no mke2fs here\n"), None);
        assert_eq!(units[1].sums("test a ... skipped: no mke2fs here\n"), None);
        let sums = units[0].sums("soak: cuts=3\n").expect("it counts");
        assert_eq!(sums.counts, [("cuts".into(), 3)].into());
    }
}
