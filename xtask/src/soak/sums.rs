//! The table that docs/src/internals/testing.md holds.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::state::{Progress, State};
use super::units::{DIFFERENTIAL, FUZZ, KINDS};

/// Trials of the differential from which on its rate is judged, and one in how many may go worse.
const TRIALS: u64 = 20_000;
const WORSE_IN: u64 = 2_000;

/// The sums of all runs: a line for each kind, and one for each harness.
pub(crate) fn table(state: &State) -> String {
    let mut text = String::from("| kind | runs | hours | counted |\n|---|---|---|---|\n");
    for kind in &KINDS {
        let of: Vec<_> = units(state, kind.name).collect();
        let mut sum = Progress::default();
        for (_, unit) in &of {
            sum.slices += unit.slices;
            sum.seconds += unit.seconds;
            for (name, count) in &unit.counts {
                *sum.counts.entry(name.clone()).or_default() += count;
            }
        }
        let mut counted: Vec<_> =
            sum.counts.iter().map(|(name, count)| format!("{} {name}", grouped(*count))).collect();
        if kind.name == FUZZ {
            counted.push(format!("{} harnesses", of.len()));
        }
        let hours = sum.seconds / 3600.0;
        let (slices, counted) = (grouped(sum.slices), counted.join(", "));
        let _ = writeln!(text, "| {} | {slices} | {hours:.2} | {counted} |", kind.name);
    }
    text += "\n| harness | inputs |\n|---|---|\n";
    for (name, unit) in units(state, FUZZ) {
        let inputs = unit.counts.get("inputs").copied().unwrap_or(0);
        let _ = writeln!(text, "| {name} | {} |", grouped(inputs));
    }
    text
}

/// The units of a kind, named without it.
fn units<'a>(state: &'a State, kind: &str) -> impl Iterator<Item = (&'a str, &'a Progress)> {
    let units = state.units.iter();
    units.filter_map(move |(name, unit)| Some((name.strip_prefix(kind)?.strip_prefix('/')?, unit)))
}

/// Why the trials of the differential are too many that went worse, if they are.
pub(crate) fn too_many_worse(state: &State) -> Option<String> {
    let sum = |name: &str| -> u64 {
        units(state, DIFFERENTIAL).filter_map(|(_, unit)| unit.counts.get(name)).sum()
    };
    let (trials, worse) = (sum("trials"), sum("worse"));
    let is_too_many = trials >= TRIALS && worse.saturating_mul(WORSE_IN) > trials;
    is_too_many.then(|| {
        format!(
            "differential: ours keeps less in {worse} of {trials} trials, at most 1 of {WORSE_IN} is allowed"
        )
    })
}

/// 1234567 as 1,234,567.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// Counts as a progress line shows them.
pub(crate) fn in_words(counts: &BTreeMap<String, u64>) -> String {
    let words = counts.iter().map(|(name, count)| format!("{} {name}", grouped(*count)));
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::state::Sums;
    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_kind_and_harness() {
        let mut state = State::default();
        state.add("cuts/volume/a", 1800.0, Sums::of("soak: cuts=1234 histories=5"));
        state.add("cuts/volume/b", 1800.0, Sums::of("soak: cuts=6"));
        state.add("fuzz/ondisk/inodes::a", 30.0, Sums::of("soak: inputs=1000000"));
        state.add("fuzz/ondisk/inodes::b", 6.0, Sums::of("soak: inputs=7"));
        let expected = "| kind | runs | hours | counted |\n|---|---|---|---|\n\
            | cuts | 2 | 1.00 | 1,240 cuts, 5 histories |\n\
            | fuzz | 2 | 0.01 | 1,000,007 inputs, 2 harnesses |\n\
            | differential | 0 | 0.00 |  |\n\
            | kills | 0 | 0.00 |  |\n\
            | load | 0 | 0.00 |  |\n\
            | histories | 0 | 0.00 |  |\n\n\
            | harness | inputs |\n|---|---|\n\
            | ondisk/inodes::a | 1,000,000 |\n\
            | ondisk/inodes::b | 7 |\n";
        assert_eq!(table(&state), expected);
    }

    #[test]
    fn the_rate_of_worse_trials_is_judged_over_many() {
        let with = |trials: u64, worse: u64| {
            let mut state = State::default();
            let sums = Sums::of(&format!("soak: trials={trials} worse={worse}"));
            state.add("differential/cli/a", 1.0, sums);
            too_many_worse(&state).is_some()
        };
        assert!(!with(19_999, 30));
        assert!(!with(20_000, 10));
        assert!(with(20_000, 11));
        assert!(!with(22_000, 11));
    }

    #[test]
    fn large_numbers_are_grouped() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")];
        cases.into_iter().for_each(|(number, text)| assert_eq!(grouped(number), text));
    }
}
