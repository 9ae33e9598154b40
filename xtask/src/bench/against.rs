//! Two builds of ours in turn: what a change costs.

use std::path::Path;

use super::run::Side;
use super::table::{Table, skipped};
use super::{Case, Setting, check, median_of};
use crate::Failure;

/// Pairs below which no two of the sorted ratios enclose the median with 95% certainty.
const LEAST_PAIRS: usize = 6;

/// Runs the wanted cases.
pub(super) fn run(
    cases: &[Case],
    wanted: &[String],
    (now, before): (&Setting, &Setting),
    rounds: usize,
) -> Result<Table, Failure> {
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|it| it == name);
    let mut table = Table::new(&["case", "now, s", "before, s", "now / before", "95% interval"]);
    for case in cases.iter().filter(|case| is_wanted(case.name)) {
        eprintln!("{}: preparing", case.name);
        let sides = (case.prepare)(now).and_then(|pair| Ok((pair, (case.prepare)(before)?)));
        table.add(match sides {
            Ok((now, before)) => row(case.name, rounds, [&now.ours, &before.ours])?,
            Err(why) => skipped(case.name, &why),
        });
    }
    for (name, sides) in check::sides_of_two_builds(is_wanted, now, before)? {
        table.add(row(&name, rounds, sides.each_ref())?);
    }
    Ok(table)
}

/// The setting of the build before: its programs, and a directory of its own.
pub(super) fn before(now: &Setting, programs: &Path) -> Result<Setting, Failure> {
    let extant = programs.join("extant");
    if !extant.exists() {
        return Err(format!("{}: no such file", extant.display()).into());
    }
    let dir = now.dir.join("before");
    std::fs::create_dir_all(&dir)?;
    let programs = Some(programs.to_owned());
    Ok(Setting { extant, dir, programs, tree: now.tree.clone(), shrink: now.shrink })
}

fn row(name: &str, rounds: usize, [now, before]: [&Side; 2]) -> Result<Vec<String>, Failure> {
    // Neither finds caches colder than the other.
    now.run()?;
    before.run()?;
    let (mut seconds, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
    for round in 0..rounds {
        let mut pair = [0.0; 2];
        // Each build goes first in turn.
        for turn in [round % 2, (round + 1) % 2] {
            pair[turn] = [now, before][turn].run()?.seconds;
            seconds[turn].push(pair[turn]);
        }
        eprintln!("{name}: {:.2} s, before {:.2} s", pair[0], pair[1]);
        ratios.push(pair[0] / pair[1]);
    }
    let interval = interval(&ratios).map_or("fewer than 6 pairs".to_owned(), |(least, most)| {
        format!("{least:.2} to {most:.2}")
    });
    let [now, before] = seconds.map(median_of);
    let ratio = median_of(ratios);
    let figures = [now, before, ratio].map(|figure| format!("{figure:.2}"));
    Ok([vec![format!("`{name}`")], figures.to_vec(), vec![interval]].concat())
}

/// The closest two of the ratios between which their median lies with 95% certainty, whatever its
/// distribution: a ratio is above the median as often as below.
fn interval(ratios: &[f64]) -> Option<(f64, f64)> {
    let count = ratios.len();
    if count < LEAST_PAIRS {
        return None;
    }
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    // The chance that at most `left` ratios lie below the median, or above it.
    let (mut left, mut term) = (0, 0.5_f64.powi(count as i32));
    let mut outside = 2.0 * term;
    loop {
        term *= (count - left) as f64 / (left + 1) as f64;
        if outside + 2.0 * term > 0.05 {
            return Some((sorted[left], sorted[count - 1 - left]));
        }
        outside += 2.0 * term;
        left += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_sign_test() {
        let ratios = |count: i32| (1..=count).rev().map(f64::from).collect::<Vec<_>>();
        assert_eq!(interval(&ratios(5)), None);
        // 2 / 2^6 = 3.1% lie outside of all six, 2 (1 + 8) / 2^8 = 7% outside of the inner six of
        // eight, and of ten, 2 (1 + 10) / 2^10 = 2.1% outside of the inner eight.
        assert_eq!(interval(&ratios(6)), Some((1.0, 6.0)));
        assert_eq!(interval(&ratios(8)), Some((1.0, 8.0)));
        assert_eq!(interval(&ratios(10)), Some((2.0, 9.0)));
        assert_eq!(interval(&ratios(25)), Some((8.0, 18.0)));
    }
}
