//! Messages of a cell's process: it reads the cell and writes about its work.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Settings};
use crate::sample::{Sample, unit_of};
use crate::target::LabTarget;

/// One run of an experiment on a target.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Cell {
    /// The experiment.
    pub experiment: Experiment,
    /// Settings of the command line that change the experiment.
    pub settings: Settings,
    /// The target that is measured.
    pub target: LabTarget,
    /// Which run; 0 warms up.
    pub run: u32,
    /// A directory of its own: for the image and the mount point.
    pub scratch: PathBuf,
    /// The command `extant`.
    pub program: PathBuf,
    /// Whether its mounts end with it. Without that it mounts nothing.
    pub isolated: bool,
    /// The members of a control group that limits memory: it joins them first.
    pub joins: Option<PathBuf>,
    /// Number of the job among those that run at once, from 0 on; `None`: it is alone.
    pub job: Option<usize>,
}

/// A message from the process of a cell.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// The current phase.
    Phase(String),
    /// A measured sample.
    Sample(Sample),
    /// Why it ended without having done all.
    Failed(String),
    /// It has done all.
    Done,
}

impl Cell {
    /// A figure of it.
    pub(crate) fn sample(&self, phase: &str, metric: &str, value: f64) -> Sample {
        Sample {
            experiment: self.experiment.name.clone(),
            target: self.target.to_string(),
            run: self.run,
            phase: phase.to_owned(),
            metric: metric.to_owned(),
            value,
            unit: unit_of(metric).to_owned(),
            at: None,
            why: None,
        }
    }

    /// Bytes of memory that it is limited to.
    pub fn memory(&self) -> Option<u64> {
        self.settings.memory.or(self.experiment.memory.map(|bytes| bytes.0))
    }
}
