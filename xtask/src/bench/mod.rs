//! `cargo xtask bench`: ours and a peer in the same run, as interleaved pairs; medians and the
//! ratio.

mod against;
mod cases;
mod check;
mod data;
mod far;
mod live;
mod mounted;
mod python;
mod repair;
mod resize;
mod run;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::{Failure, machine};
use run::{Latency, Measurement, Side};
use table::Table;

/// Measure next to a peer in the same run: interleaved pairs, medians, the ratio
#[derive(clap::Args)]
pub(crate) struct Bench {
    /// Names of cases; all without any
    cases: Vec<String>,
    /// All cases
    #[arg(long, conflicts_with = "cases")]
    all: bool,
    /// Print the tables as one JSON document, with the machine, the peers and the commit
    #[arg(long)]
    json: bool,
    /// Pairs of runs for each case
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Where the inputs and images go; needs some 30 GB for all cases
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// A tree to build from, instead of one that is made like /usr
    #[arg(long)]
    tree: Option<PathBuf>,
    /// Another binary than the release build of this checkout
    #[arg(long, value_name = "FILE")]
    extant: Option<PathBuf>,
    /// Measure next to another build of ours in place of the peers: the directory of its release
    /// build, with `extant` and `examples`
    #[arg(long, value_name = "DIR", conflicts_with = "extant")]
    before: Option<PathBuf>,
    /// Make every case this many times smaller
    #[arg(long, default_value_t = 1)]
    shrink: u64,
    /// List the cases
    #[arg(long)]
    list: bool,
}

/// The input of a case.
pub(crate) struct Setting {
    extant: PathBuf,
    dir: PathBuf,
    /// Where the programs of another build lie; `None`: this checkout's, built where needed.
    programs: Option<PathBuf>,
    tree: Option<PathBuf>,
    shrink: u64,
}

impl Setting {
    /// The program that makes calls on names.
    fn name_calls(&self) -> Result<PathBuf, Failure> {
        self.example("extant-engine", "name_calls")
    }

    fn example(&self, package: &str, name: &str) -> Result<PathBuf, Failure> {
        match &self.programs {
            Some(programs) => Ok(programs.join("examples").join(name)),
            None => machine::release_example(package, name),
        }
    }
}

/// Makes what a case needs.
type Prepare = dyn Fn(&Setting) -> Result<Pair, Failure>;

/// One comparison.
pub(crate) struct Case {
    name: &'static str,
    /// The work, for the table.
    what: &'static str,
    /// The peer, for the table.
    peer: &'static str,
    /// Ours may take at most this share of the peer's time; None: measured, not judged.
    bar: Option<f64>,
    /// Makes the inputs and says how each side runs; an error is the reason to skip.
    prepare: Box<Prepare>,
}

/// The two sides of a case.
pub(crate) struct Pair {
    ours: Side,
    /// None where the bar is an absolute figure.
    theirs: Option<Side>,
    /// The contents of the input, for the table.
    input: String,
    /// Kept alive until both sides have run.
    _held: Vec<Box<dyn std::any::Any>>,
}

impl Bench {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let all =
            [cases::all(), resize::all(), live::all(), data::all(), mounted::all(), python::all()];
        let cases: Vec<Case> = all.into_iter().flatten().collect();
        if self.list {
            cases.iter().for_each(|case| println!("{:<20} {}", case.name, case.what));
            let others = check::names().chain([repair::NAME, far::NAME]);
            others.for_each(|(name, what)| println!("{name:<20} {what}"));
            return Ok(ExitCode::SUCCESS);
        }
        let is_known = |name: &&String| {
            let mut others = check::names().chain([repair::NAME, far::NAME]);
            cases.iter().any(|it| it.name == **name) || others.any(|(it, _)| it == **name)
        };
        if let Some(name) = self.cases.iter().find(|name| !is_known(name)) {
            return Err(format!("no case is called {name:?}; see --list").into());
        }
        let dir = self.dir.clone().unwrap_or_else(|| machine::target_dir().join("bench"));
        std::fs::create_dir_all(&dir)?;
        let scratch = tempfile::Builder::new().prefix("bench-").tempdir_in(&dir)?;
        let setting = Setting {
            extant: match &self.extant {
                Some(binary) => binary.clone(),
                None => machine::release_binary()?,
            },
            dir: scratch.path().to_owned(),
            programs: None,
            tree: self.tree.clone(),
            shrink: self.shrink.max(1),
        };
        let rounds = self.rounds.max(1);
        let tables = match &self.before {
            Some(programs) => {
                let before = against::before(&setting, programs)?;
                vec![against::run(&cases, &self.cases, (&setting, &before), rounds)?]
            }
            None => self.measure(&cases, &setting, rounds)?,
        };
        table::print(&tables, &setting, rounds, self.json);
        Ok(ExitCode::SUCCESS)
    }

    fn measure(
        &self,
        cases: &[Case],
        setting: &Setting,
        rounds: usize,
    ) -> Result<Vec<Table>, Failure> {
        let mut pairs = Table::new(&PAIRS);
        for case in cases {
            if self.cases.is_empty() || self.cases.iter().any(|name| name == case.name) {
                let row = measure(case, setting, rounds);
                pairs.add(row.unwrap_or_else(|why| table::skipped(case.name, &why)));
            }
        }
        let mut tables = vec![pairs];
        tables.extend(check::run(setting, &self.cases, rounds)?);
        tables.extend(repair::run(setting, &self.cases, rounds)?);
        tables.extend(far::run(setting, &self.cases)?);
        Ok(tables)
    }
}

/// Columns of the table of pairs.
const PAIRS: [&str; 11] = [
    "case",
    "what",
    "ours, s",
    "peer",
    "peer, s",
    "ours / peer",
    "bar",
    "memory, MiB",
    "CPU s, ours",
    "CPU s, peer",
    "p50 and p99, µs, ours / peer",
];

fn measure(case: &Case, setting: &Setting, rounds: usize) -> Result<Vec<String>, Failure> {
    eprintln!("{}: preparing", case.name);
    let pair = (case.prepare)(setting)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // Each side goes first in turn, so that neither always finds the caches warm.
        for turn in [round % 2 == 0, round % 2 != 0] {
            if turn {
                ours.push(pair.ours.run()?);
                eprintln!("{}: ours {:.2} s", case.name, ours[ours.len() - 1].seconds);
            } else if let Some(side) = &pair.theirs {
                theirs.push(side.run()?);
                eprintln!("{}: {} {:.2} s", case.name, case.peer, theirs[theirs.len() - 1].seconds);
            }
        }
    }
    let memory = ours.iter().map(|outcome| outcome.peak_bytes).max().unwrap_or(0) >> 20;
    let latency = [median_latency(&ours), median_latency(&theirs)]
        .map(|latency| latency.map(|it| format!("{:.0}, {:.0}", it.p50, it.p99)));
    let latency = latency.into_iter().flatten().collect::<Vec<_>>().join(" / ");
    let of_peer =
        |figure: f64| if theirs.is_empty() { String::new() } else { format!("{figure:.2}") };
    let (our_time, their_time) = (median(&ours), median(&theirs));
    Ok(vec![
        format!("`{}`", case.name),
        format!("{} ({})", case.what, pair.input),
        format!("{our_time:.2}"),
        case.peer.to_owned(),
        of_peer(their_time),
        of_peer(our_time / their_time),
        case.bar.map_or(String::new(), |bar| format!("≤ {bar:.2}")),
        memory.to_string(),
        format!("{:.2}", median_cpu(&ours)),
        of_peer(median_cpu(&theirs)),
        latency,
    ])
}

fn median(outcomes: &[Measurement]) -> f64 {
    median_of(outcomes.iter().map(|outcome| outcome.seconds).collect())
}

fn median_cpu(outcomes: &[Measurement]) -> f64 {
    median_of(outcomes.iter().map(|outcome| outcome.cpu_seconds).collect())
}

/// `None` where no side told.
fn median_latency(outcomes: &[Measurement]) -> Option<Latency> {
    let told: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.latency).collect();
    let of = |which: fn(&Latency) -> f64| median_of(told.iter().map(which).collect());
    (!told.is_empty()).then(|| Latency { p50: of(|it| it.p50), p99: of(|it| it.p99) })
}

/// Not a number without any.
fn median_of(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    if seconds.is_empty() {
        return f64::NAN;
    }
    let middle = seconds.len() / 2;
    match seconds.len() % 2 {
        0 => (seconds[middle - 1] + seconds[middle]) / 2.0,
        _ => seconds[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        let outcomes = |seconds: &[f64]| {
            let outcome = |seconds: &f64| Measurement {
                seconds: *seconds,
                peak_bytes: 0,
                cpu_seconds: 0.0,
                latency: None,
            };
            seconds.iter().map(outcome).collect::<Vec<_>>()
        };
        assert_eq!(median(&outcomes(&[9.0, 1.0, 2.0])), 2.0);
        assert_eq!(median(&outcomes(&[4.0, 1.0, 2.0, 100.0])), 3.0);
    }
}
