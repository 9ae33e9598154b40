//! The settings of a directory of results.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::error::{RunError, failed};
use super::plan::{GuestMachine, Plan};
use crate::clock::Clock;
use crate::cpu::Cpu;
use crate::environment::Environment;
use crate::experiment::{Experiment, Settings};
use crate::sample::{CELL_SECONDS, SAMPLES, read};

/// The file's name.
pub const MANIFEST: &str = "run.json";

/// Experiments, settings and machine of a directory of results.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Manifest {
    /// The experiments as they were run.
    pub experiments: Vec<Experiment>,
    /// Changes by the command line.
    pub settings: Settings,
    /// The machine.
    pub environment: Environment,
    /// The command line.
    pub command: Vec<String>,
    /// The version of extant.
    pub version: String,
    /// The program's SHA-256: which build it was. Results of before there was this have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// Seconds since 1970.
    pub started: u64,
    /// Cost of measuring one phase, in seconds: it is inside every phase's figure.
    pub overhead_seconds: f64,
    /// Cost of timing one call, in seconds: if calls are timed each, it is inside the figure of all
    /// of them.
    #[serde(default)]
    pub call_overhead_seconds: f64,
    /// The guest that it was done in, if it was; `environment` is its host's then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestMachine>,
}

impl Manifest {
    /// Reads a directory's.
    ///
    /// # Errors
    /// It is missing, or of another version.
    pub fn read(dir: &Path) -> Result<Self, RunError> {
        let path = dir.join(MANIFEST);
        let text = fs::read(&path).map_err(failed(path.display()))?;
        serde_json::from_slice(&text).map_err(|error| failed(path.display())(error.into()))
    }

    /// Writes a plan's, unless there is the same. One that differs is replaced where nothing was
    /// measured with it.
    pub(super) fn keep(plan: &Plan, is_in_guest: bool) -> Result<(), RunError> {
        let path = plan.out.join(MANIFEST);
        let new = Self::of(plan).map_err(failed(plan.program.display()))?;
        if path.exists() {
            match Self::read(&plan.out)?.other_than(&new, is_in_guest) {
                None => return Ok(()),
                Some(what) if is_begun(&plan.out)? => {
                    return Err(RunError::Other { path: plan.out.clone(), what });
                }
                Some(_) => {}
            }
        }
        let mut text = serde_json::to_vec_pretty(&new).expect("plain data");
        text.push(b'\n');
        // Whole or not at all, wherever it is cut off.
        let half = path.with_extension("new");
        let written = File::create(&half).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_data()
        });
        written.and_then(|()| fs::rename(&half, &path)).map_err(failed(path.display()))
    }

    fn of(plan: &Plan) -> io::Result<Self> {
        let guest = plan.guest.as_ref();
        Ok(Self {
            experiments: plan.experiments.clone(),
            settings: plan.settings.clone(),
            environment: Environment::here(&plan.out),
            command: plan.command.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            build: Some(sha256(&plan.program)?),
            started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |past| past.as_secs()),
            overhead_seconds: guest.map_or_else(overhead, |guest| guest.overhead_seconds),
            call_overhead_seconds: guest
                .map_or_else(call_overhead, |guest| guest.call_overhead_seconds),
            guest: plan.guest.clone(),
        })
    }

    /// A difference that makes samples of these two incomparable.
    fn other_than(&self, new: &Self, is_in_guest: bool) -> Option<&'static str> {
        let is_other_build =
            self.build.as_ref().zip(new.build.as_ref()).is_some_and(|(old, new)| old != new);
        let is_other_machine = match (&self.guest, &new.guest) {
            (Some(old), Some(new)) => {
                old.accelerator != new.accelerator || !old.environment.is_like(&new.environment)
            }
            // Cells report themselves that there is no guest.
            (Some(_), None) => !is_in_guest,
            (None, Some(_)) => true,
            (None, None) => !self.environment.is_like(&new.environment),
        };
        match () {
            () if self.experiments != new.experiments => Some("experiments"),
            () if self.settings != new.settings => Some("settings"),
            () if is_other_build || self.version != new.version => Some("builds of extant"),
            () if is_other_machine => Some("machines"),
            () => None,
        }
    }
}

/// Whether a directory has figures.
fn is_begun(dir: &Path) -> Result<bool, RunError> {
    let path = dir.join(SAMPLES);
    let samples = read(&path).map_err(failed(path.display()))?;
    Ok(samples.iter().any(|sample| sample.metric == CELL_SECONDS))
}

/// The SHA-256 of a file, in hexadecimal digits.
fn sha256(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut piece)?;
        if count == 0 {
            break;
        }
        hash.update(&piece[..count]);
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Cost of taking the time and the processors' counters of an empty phase.
pub(crate) fn overhead() -> f64 {
    const TIMES: u32 = 50;
    let start = Instant::now();
    for _ in 0..TIMES {
        let before = Cpu::now();
        black_box(Cpu::now().since(before));
    }
    start.elapsed().as_secs_f64() / f64::from(TIMES)
}

/// Cost of reading the clock before a call and after it.
pub(crate) fn call_overhead() -> f64 {
    const TIMES: u32 = 20_000;
    let clock = Clock::default();
    let start = Instant::now();
    for _ in 0..TIMES {
        let before = clock.now();
        black_box(clock.since(before));
    }
    start.elapsed().as_secs_f64() / f64::from(TIMES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use crate::sample::{Sample, Store};

    fn plan(out: &Path, program: &str) -> Plan {
        let program = out.join(program);
        fs::write(&program, program.as_os_str().as_encoded_bytes()).expect("written");
        Plan {
            experiments: Experiment::built_in(),
            settings: Settings::default(),
            out: out.to_owned(),
            program,
            command: vec!["extant".to_owned()],
            guest: None,
            jobs: 1,
        }
    }

    fn guest(accelerator: &str) -> GuestMachine {
        GuestMachine {
            environment: Environment::here(Path::new("/")),
            accelerator: accelerator.to_owned(),
            clock: String::new(),
            disk: String::new(),
            overhead_seconds: 1.0,
            call_overhead_seconds: 0.5,
        }
    }

    /// Figures of two builds, or of two machines, are not put together; where there are none yet,
    /// nothing is in the way.
    #[test]
    fn results_are_of_one_build_and_one_machine() {
        let dir = tempfile::tempdir().expect("a place for the test");
        let first = plan(dir.path(), "first");
        let second = plan(dir.path(), "second");
        let other = |plan: &Plan, is_in_guest| match Manifest::keep(plan, is_in_guest) {
            Ok(()) => None,
            Err(RunError::Other { what, .. }) => Some(what),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(other(&first, false), None);
        assert_eq!(other(&second, false), None, "nothing was measured with the first");
        assert_eq!(other(&first, false), None);
        let kept = Manifest::read(dir.path()).expect("it is there");
        assert_eq!(kept.build, sha256(&first.program).ok());
        assert!(kept.overhead_seconds > 0.0 && kept.call_overhead_seconds > 0.0);

        let sample = Sample {
            experiment: "copy-remove".to_owned(),
            target: "engine".to_owned(),
            run: 1,
            phase: "cell".to_owned(),
            metric: CELL_SECONDS.to_owned(),
            value: 1.0,
            unit: "s".to_owned(),
            at: None,
            why: None,
        };
        Store::open(dir.path()).and_then(|mut store| store.add(vec![sample])).expect("kept");
        assert_eq!(other(&first, false), None);
        assert_eq!(other(&second, false), Some("builds of extant"));
        let in_guest = Plan { guest: Some(guest("KVM")), ..first.clone() };
        assert_eq!(other(&in_guest, true), Some("machines"));

        fs::remove_file(dir.path().join(MANIFEST)).expect("it was there");
        assert_eq!(other(&in_guest, true), None);
        let slower = Plan { guest: Some(guest("emulation (TCG)")), ..first.clone() };
        assert_eq!(other(&slower, true), Some("machines"));
        assert_eq!(other(&first, true), None, "a guest that does not start: cells say so");
        assert_eq!(other(&first, false), Some("machines"));
    }

    #[test]
    fn a_build_is_known_by_the_programs_sha256() {
        let dir = tempfile::tempdir().expect("a place for the test");
        let path = dir.path().join("abc");
        fs::write(&path, "abc").expect("written");
        let found = sha256(&path).expect("it is there");
        assert_eq!(found, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
