//! The plan of a run: its cells, in their order.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::scratch::SCRATCH;
use crate::cell::{Cell, REAL_STEPS};
use crate::environment::Environment;
use crate::experiment::{Experiment, Settings, Work};
use crate::target::LabTarget;

/// The cells to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The experiments, in their order.
    pub experiments: Vec<Experiment>,
    /// Changes of them.
    pub settings: Settings,
    /// Where results go.
    pub out: PathBuf,
    /// The command `extant`.
    pub program: PathBuf,
    /// The command line, for the report.
    pub command: Vec<String>,
    /// The guest that cells run in, if they do.
    pub guest: Option<GuestMachine>,
    /// Number of cells that run at once on this machine: more than one if [`must_be_alone`] has no
    /// objection.
    pub jobs: usize,
}

/// A virtual machine that cells run in.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct GuestMachine {
    /// Its description from inside.
    pub environment: Environment,
    /// Its processors: `KVM`, or `emulation (TCG)`.
    pub accelerator: String,
    /// Where its times come from.
    pub clock: String,
    /// Its disk on the host.
    pub disk: String,
    /// Cost of measuring one phase inside, in seconds.
    pub overhead_seconds: f64,
    /// Cost of timing one call inside, in seconds.
    #[serde(default)]
    pub call_overhead_seconds: f64,
}

impl Plan {
    /// All cells in their order; run 0 warms up.
    pub(super) fn cells(&self, isolated: bool) -> Vec<Cell> {
        let mut cells = Vec::new();
        for experiment in &self.experiments {
            let runs = self.settings.runs.unwrap_or(experiment.runs);
            let warm_ups = (0..experiment.warm_up).map(|_| 0);
            for run in warm_ups.chain(1..=runs) {
                let targets = targets(experiment, &self.settings).iter();
                // A simulated drive is as cold in every run.
                let targets = targets.filter(|it| run > 0 || it.system.drive().is_none());
                cells.extend(targets.map(|target| Cell {
                    experiment: experiment.clone(),
                    settings: self.settings.clone(),
                    target: target.clone(),
                    run,
                    scratch: self.out.join(SCRATCH),
                    program: self.program.clone(),
                    isolated,
                    joins: None,
                    job: None,
                }));
            }
        }
        cells
    }
}

/// Why cells must not run concurrently: measurements by this machine's clock would take longer.
pub fn must_be_alone(experiments: &[Experiment], settings: &Settings) -> Option<String> {
    experiments.iter().find_map(|experiment| {
        let name = &experiment.name;
        let is_real = |target: &&LabTarget| target.system.drive().is_none();
        if let Some(target) = targets(experiment, settings).iter().find(is_real) {
            return Some(format!(
                "{name} on {target} is measured by this machine's clock: only cells on simulated drives (engine@DRIVE) can run at once"
            ));
        }
        let Work::CheckTime(work) = experiment.work() else { return None };
        let percent = REAL_STEPS.iter().find(|percent| work.steps.contains(percent))?;
        Some(format!(
            "{name}: at {percent}% e2fsck is measured by this machine's clock: cells cannot run concurrently"
        ))
    })
}

/// The targets of an experiment.
fn targets<'e>(experiment: &'e Experiment, settings: &'e Settings) -> &'e [LabTarget] {
    match settings.targets.is_empty() {
        true => &experiment.targets,
        false => &settings.targets,
    }
}
