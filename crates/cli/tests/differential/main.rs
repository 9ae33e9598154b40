//! A differential of repairs: random damage to volumes of many feature sets, repaired by us and by
//! e2fsck. A trial depends on its seed and its number. Compared are: exit codes of `-n`, `-p` and
//! `-y`, a second run, what e2fsck finds afterwards, and the original paths and contents that are
//! left.
//!
//! `EXTANT_DIFFERENTIAL=N` runs N trials, `EXTANT_DIFFERENTIAL=120s` as many as 120 seconds take,
//! `EXTANT_SEED=N` runs them by another seed, `EXTANT_TRIAL=N` one trial. `EXTANT_KEEP=DIR` keeps
//! the damaged volume, and what was lost, of each trial that is reported.

#[path = "../../../check/tests/random_damage/aim.rs"]
mod aim;
mod bases;
#[path = "../../../check/tests/common/mod.rs"]
mod common;
mod counters;
#[path = "../../../check/tests/random_damage/cross.rs"]
mod cross;
mod judge;
mod kinds;
#[path = "../../../check/tests/random_damage/rich.rs"]
mod rich;
mod sparse;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use bases::{BASES, Base};
use counters::Sums;
use extant_testkit::{is_root, skip, tool, tree::Random};
use judge::Verdict;
use kinds::{Kind, Site};
use sparse::Sparse;

/// Trials of an ordinary test run.
const FEW: u64 = 24;
/// Ours may keep less in one of that many trials.
const WORSE_IN: u64 = 2000;
/// Number of trials from which on the rate is held to exactly.
const LONG: u64 = 20_000;
/// Number of rare trials that a shorter run may have above its share.
const BY_CHANCE: u64 = 3;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// In how many of some trials ours may keep less.
fn most_worse(trials: u64) -> u64 {
    trials / WORSE_IN + if trials < LONG { BY_CHANCE } else { 0 }
}

/// How long the test is to run, where a time is given; making the volumes counts.
fn seconds() -> Option<u64> {
    std::env::var("EXTANT_DIFFERENTIAL").ok()?.strip_suffix('s')?.parse().ok()
}

/// A directory in memory, where this machine has one; removed when dropped.
struct Memory(PathBuf);

impl Memory {
    fn new() -> Self {
        let shared = Path::new("/dev/shm");
        let parent = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
        let dir = parent.join(format!("extant-differential-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a new directory");
        Self(dir)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A trial that was run.
struct Trial {
    number: u64,
    base: &'static str,
    kind: Kind,
    done: String,
    verdict: Verdict,
}

impl Trial {
    fn run(bases: &[OnceLock<Base>], dir: &Path, seed: u64, number: u64) -> (Self, Sparse) {
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
        let index = random.below(bases.len() as u64) as usize;
        let base = bases[index].get_or_init(|| bases::make(index, dir));
        let image = dir.join(format!("{number}.img"));
        base.image.write(&image);
        let site =
            Site { image: &image, targets: &base.targets, older: &base.older, log: &base.log };
        let (kind, done) = kinds::damage(&site, &mut random);
        let damaged = Sparse::read(&image);
        let verdict = judge::judge(&image, &damaged, base, number);
        drop(std::fs::remove_file(&image));
        (Self { number, base: BASES[index].0, kind, done, verdict }, damaged)
    }

    /// Keeps the damaged volume with its report.
    fn keep(&self, dir: &Path, seed: u64, damaged: &Sparse) {
        std::fs::create_dir_all(dir).expect("a directory");
        let image = dir.join(format!("{seed}-{}.img", self.number));
        damaged.write(&image);
        let text = self.report(seed) + &self.verdict.lost.join("\n");
        std::fs::write(image.with_extension("txt"), text).expect("there is room");
    }

    fn report(&self, seed: u64) -> String {
        format!(
            "{} | {}: {} | {}\n  {}\n  EXTANT_SEED={seed} EXTANT_TRIAL={} cargo test --workspace --test differential -- --nocapture\n",
            self.base, self.kind.structure, self.kind.act, self.done, self.verdict, self.number
        )
    }
}

#[test]
fn ours_keeps_what_e2fsck_keeps() {
    let start = Instant::now();
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    if !is_root() {
        skip!("loop mounts need root");
    }
    let (seed, only) = (number("EXTANT_SEED").unwrap_or(1), number("EXTANT_TRIAL"));
    let (first, end) = match (only, seconds()) {
        (Some(only), _) => (only, only + 1),
        (None, Some(_)) => (0, u64::MAX),
        (None, None) => (0, number("EXTANT_DIFFERENTIAL").unwrap_or(FEW)),
    };
    let limit = seconds().map(Duration::from_secs);
    // Time of the longest trial so far: none starts that may end after the limit.
    let longest = Mutex::new(Duration::ZERO);
    let dir = Memory::new();
    let bases: Vec<OnceLock<Base>> = BASES.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicU64::new(first);
    let (sums, broken) = (Mutex::new(Sums::default()), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let since = start.elapsed();
                    let until = since + *longest.lock().expect("no panic");
                    if number >= end || limit.is_some_and(|limit| until > limit) {
                        return;
                    }
                    let (trial, damaged) = Trial::run(&bases, &dir.0, seed, number);
                    let took = start.elapsed() - since;
                    let mut longest = longest.lock().expect("no panic");
                    *longest = took.max(*longest);
                    drop(longest);
                    if only.is_some() || !trial.verdict.is_even() {
                        eprintln!("{}", trial.report(seed));
                        if let Some(keep) = std::env::var_os("EXTANT_KEEP") {
                            trial.keep(Path::new(&keep), seed, &damaged);
                        }
                    }
                    if trial.verdict.keeps_less() {
                        println!("soak: remark EXTANT_SEED={seed} EXTANT_TRIAL={number}");
                    }
                    if !trial.verdict.broken.is_empty() {
                        broken.lock().expect("no panic").push(trial.report(seed));
                    }
                    sums.lock().expect("no panic").add(trial.kind, &trial.verdict, number);
                }
            });
        }
    });
    let (sums, broken) =
        (sums.into_inner().expect("no panic"), broken.into_inner().expect("no panic"));
    eprintln!("{sums}");
    let (trials, less) = (sums.all().trials(), sums.all().less());
    println!("soak: trials={trials} worse={less}");
    assert!(broken.is_empty(), "{} broken\n{}", broken.len(), broken.join("\n"));
    assert!(less <= most_worse(trials), "ours keeps less in {less} of {trials} trials");
}
