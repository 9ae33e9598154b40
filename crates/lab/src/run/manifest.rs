//! What a directory of results was made with.

use std::fs;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::{Plan, RunError, failed};
use crate::cpu::Cpu;
use crate::environment::Environment;
use crate::experiment::{Experiment, Settings};

/// The file's name.
pub const MANIFEST: &str = "run.json";

/// Experiments, settings and machine of a directory of results.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Manifest {
    /// The experiments as they were run.
    pub experiments: Vec<Experiment>,
    /// What the command line changed.
    pub settings: Settings,
    /// The machine.
    pub environment: Environment,
    /// The command line.
    pub command: Vec<String>,
    /// The version of extant.
    pub version: String,
    /// Seconds since 1970.
    pub started: u64,
    /// What measuring one phase costs by itself, in seconds: it is inside every phase's figure.
    pub overhead_seconds: f64,
    /// The guest that it was done in, if it was; `environment` is its host's then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestMachine>,
}

/// A virtual machine that cells run in.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct GuestMachine {
    /// What it is, seen from inside.
    pub environment: Environment,
    /// What runs its processors: `KVM`, or `emulation (TCG)`.
    pub accelerator: String,
    /// Where its times come from.
    pub clock: String,
    /// What its disk is on the host.
    pub disk: String,
    /// What measuring one phase costs in there, in seconds.
    pub overhead_seconds: f64,
}

impl Manifest {
    /// Reads a directory's.
    ///
    /// # Errors
    /// There is none, or it is none of this version.
    pub fn read(dir: &Path) -> Result<Self, RunError> {
        let path = dir.join(MANIFEST);
        let text = fs::read(&path).map_err(failed(path.display()))?;
        serde_json::from_slice(&text).map_err(|error| failed(path.display())(error.into()))
    }

    /// Writes a plan's, or compares it with the one that is there.
    pub(super) fn keep(plan: &Plan) -> Result<(), RunError> {
        let path = plan.out.join(MANIFEST);
        if path.exists() {
            let found = Self::read(&plan.out)?;
            let other = |what| Err(RunError::Other { path: plan.out.clone(), what });
            if found.experiments != plan.experiments {
                return other("experiments");
            }
            if found.settings != plan.settings {
                return other("settings");
            }
            return Ok(());
        }
        let manifest = Self {
            experiments: plan.experiments.clone(),
            settings: plan.settings.clone(),
            environment: Environment::here(&plan.out),
            command: plan.command.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |past| past.as_secs()),
            overhead_seconds: match &plan.guest {
                Some(guest) => guest.overhead_seconds,
                None => overhead(),
            },
            guest: plan.guest.clone(),
        };
        let mut text = serde_json::to_vec_pretty(&manifest).expect("plain data");
        text.push(b'\n');
        fs::write(&path, text).map_err(failed(path.display()))
    }
}

/// What taking the time and the processors' counters of an empty phase costs.
pub(crate) fn overhead() -> f64 {
    const TIMES: u32 = 50;
    let start = Instant::now();
    for _ in 0..TIMES {
        let before = Cpu::now();
        std::hint::black_box(Cpu::now().since(before));
    }
    start.elapsed().as_secs_f64() / f64::from(TIMES)
}
