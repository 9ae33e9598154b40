//! A differential of repairs: random damage to volumes of many feature sets, repaired by us and by e2fsck. A trial depends on its
//! seed and its number. Of each are compared: exit codes of `-n`, `-p` and `-y`, a second run, what e2fsck finds afterwards, and
//! the original paths and contents that are left.
//!
//! `EXTANT_DIFFERENTIAL=N` runs N trials, `EXTANT_DIFFERENTIAL=120s` as many as 120 seconds take, `EXTANT_SEED=N` by another seed, `EXTANT_TRIAL=N` one trial, `EXTANT_KEEP=DIR` keeps
//! the damaged volume of each trial in which ours did worse.

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

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use bases::{BASES, Base};
use counters::Counters;
use extant_testkit::{is_root, skip, tool, tree::Random};
use judge::Verdict;
use kinds::Site;

/// Trials of an ordinary test run.
const FEW: u64 = 24;
/// Ours may keep less in one of that many trials.
const WORSE_IN: u64 = 2000;
const THREADS: usize = 2;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// How long trials are to be run, where a time is given.
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

/// Writes an image, zeros as holes.
fn write_sparse(image: &Path, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(image).expect("there is room");
    file.set_len(bytes.len() as u64).expect("there is room");
    for (at, chunk) in bytes.chunks(4096).enumerate() {
        if chunk.iter().any(|byte| *byte != 0) {
            file.write_all_at(chunk, at as u64 * 4096).expect("there is room");
        }
    }
}

/// A trial that was run.
struct Trial {
    number: u64,
    base: &'static str,
    kind: &'static str,
    done: String,
    verdict: Verdict,
}

impl Trial {
    fn run(bases: &[OnceLock<Base>], dir: &Path, seed: u64, number: u64) -> Self {
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
        let index = random.below(bases.len() as u64) as usize;
        let base = bases[index].get_or_init(|| bases::make(index, dir));
        let image = dir.join(format!("{number}.img"));
        write_sparse(&image, &base.bytes);
        let mut site =
            Site { image: &image, targets: &base.targets, older: &base.older, log: &base.log };
        let (kind, done) = kinds::damage(&mut site, &mut random);
        let damaged = std::fs::read(&image).expect("it is there");
        let verdict = judge::judge(&image, &damaged, base, number);
        if let (true, Some(keep)) = (verdict.is_worse(), std::env::var_os("EXTANT_KEEP")) {
            write_sparse(&Path::new(&keep).join(format!("{number}.img")), &damaged);
        }
        drop(std::fs::remove_file(&image));
        Self { number, base: BASES[index].0, kind, done, verdict }
    }

    fn report(&self, seed: u64) -> String {
        format!(
            "{} | {} | {}\n  {}\n  EXTANT_SEED={seed} EXTANT_TRIAL={} cargo test --workspace --test differential -- --nocapture\n",
            self.base, self.kind, self.done, self.verdict, self.number
        )
    }
}

#[test]
fn ours_keeps_what_e2fsck_keeps() {
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
    let (start, limit) = (Instant::now(), seconds().map(Duration::from_secs));
    let dir = Memory::new();
    let bases: Vec<OnceLock<Base>> = BASES.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicU64::new(first);
    let counters = Mutex::new(BTreeMap::<&str, Counters>::new());
    let (broken, worse) = (Mutex::new(Vec::new()), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= end || limit.is_some_and(|limit| start.elapsed() > limit) {
                        return;
                    }
                    let trial = Trial::run(&bases, &dir.0, seed, number);
                    if only.is_some() || !trial.verdict.is_even() {
                        eprintln!("{}", trial.report(seed));
                    }
                    if trial.verdict.keeps_less() {
                        worse.fetch_add(1, Ordering::Relaxed);
                    }
                    if !trial.verdict.broken.is_empty() {
                        broken.lock().expect("no panic").push(trial.report(seed));
                    }
                    let mut counters = counters.lock().expect("no panic");
                    counters.entry(trial.kind).or_default().add(&trial.verdict);
                }
            });
        }
    });
    let (counters, broken) =
        (counters.into_inner().expect("no panic"), broken.into_inner().expect("no panic"));
    eprintln!("{}", counters::table(&counters));
    assert!(broken.is_empty(), "{} broken\n{}", broken.len(), broken.join("\n"));
    // A short run says nothing about a rate.
    let (trials, worse): (u64, u64) =
        (counters.values().map(Counters::trials).sum(), worse.into_inner());
    let most = trials / WORSE_IN;
    assert!(trials < WORSE_IN || worse <= most, "ours keeps less in {worse} of {trials} trials");
}
