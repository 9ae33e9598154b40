//! All experiments at a fixed scale, each with its report, and one page for all of them.

use std::path::{Path, PathBuf};

use crate::experiment::{Experiment, Settings};
use crate::target::LabTarget;

use super::console::{CommandError, Console};

/// How an experiment is run.
pub(super) struct Scale {
    /// The experiment.
    pub(super) name: &'static str,
    /// Its directory below that of all.
    pub(super) dir: &'static str,
    pub(super) sizes: f64,
    pub(super) counts: f64,
    pub(super) runs: u32,
    /// Seconds of what is timed; shrunk with the sizes otherwise.
    pub(super) time: Option<f64>,
    /// The targets; the experiment's own if there are none.
    pub(super) targets: Vec<LabTarget>,
    /// Steps of filling instead of the experiment's, in per cent of the inodes.
    pub(super) steps: &'static [f64],
    pub(super) warms_up: bool,
}

/// The page about all of them.
const PAGE: &str = "README.md";

/// Runs them one after the other, each in a directory of its own below `out`.
pub(super) fn perform(
    scales: Vec<Scale>,
    out: &Path,
    console: &mut Console<'_>,
) -> Result<(), CommandError> {
    let mut dirs: Vec<PathBuf> = Vec::new();
    for scale in scales {
        let dir = out.join(scale.dir);
        let settings = Settings {
            sizes: scale.sizes,
            counts: scale.counts,
            runs: Some(scale.runs),
            time: scale.time,
            targets: scale.targets.clone(),
            ..Settings::default()
        };
        let experiments = Experiment::built_in().into_iter();
        let chosen = experiments.filter(|one| one.name == scale.name).map(|one| scale.of(one));
        super::run::perform(chosen.collect(), settings, &dir, 1)?;
        let page = crate::report::write(&dir).map_err(CommandError::new)?;
        console.line(format_args!("{}", page.display()))?;
        console.flush()?;
        dirs.push(dir);
    }
    let page = out.join(PAGE);
    let index = crate::report::write_summary(&dirs, &page).map_err(CommandError::new)?;
    console.line(format_args!("{}", page.display()))?;
    console.line(format_args!("{}", index.display()))
}

impl Scale {
    fn of(&self, mut experiment: Experiment) -> Experiment {
        if !self.warms_up {
            experiment.warm_up = 0;
        }
        match self.steps {
            [] => experiment,
            steps => experiment.with_steps(steps).expect("steps of ours are steps"),
        }
    }
}
