//! All experiments at a scale that is settled here, each with its report, and one page for all of them.

use std::path::{Path, PathBuf};

use extant_lab::experiment::{Experiment, Settings};
use extant_lab::target::Target;

use crate::failure::{At, Failure};
use crate::say;
use crate::session::Session;

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
    /// What is measured; the experiment's own where there are none.
    pub(super) targets: Vec<Target>,
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
    session: &mut Session,
) -> Result<(), Failure> {
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
        let page = extant_lab::report::write(&dir).map_err(Failure::new)?;
        say!(session, "{}", page.display())?;
        session.out.flush()?;
        dirs.push(dir);
    }
    let page = out.join(PAGE);
    let text = extant_lab::report::summary(&dirs).map_err(Failure::new)?;
    std::fs::write(&page, text).at(&page)?;
    say!(session, "{}", page.display())
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
