//! `extant lab quick`: all experiments, small.

use std::path::PathBuf;

use extant_lab::experiment::{Experiment, Settings};
use extant_lab::target::Target;

use crate::failure::Failure;
use crate::say;
use crate::session::Session;

/// What is measured: at least six of them run where root does.
const TARGETS: &str = "engine,extant,ext4,ext3,xfs,btrfs,fuse2fs";
const RUNS: u32 = 2;

/// Fewer steps of filling than the document has, in per cent of the inodes.
const STEPS: [f64; 3] = [0.0, 40.0, 80.0];

/// Factors of each experiment, sizes and counts, so that all of them together take some minutes.
const SCALES: [(&str, f64, f64); 5] = [
    ("copy-remove", 0.01, 0.01),
    ("low-memory", 0.01, 0.1),
    ("hard-links", 0.000_001, 0.001),
    ("sequential-write", 0.03, 0.0625),
    ("check-time", 1.0, 0.0001),
];

/// Run all experiments small, on seven targets, and report
///
/// It takes some minutes. What cannot run here is named in the report.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where results go; each experiment has a directory of its own below
    #[arg(long, value_name = "DIR", default_value = "lab-quick")]
    out: PathBuf,
    /// What is measured, separated by commas
    #[arg(long, value_name = "TARGET,...", default_value = TARGETS)]
    targets: String,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let targets = Target::list(&self.targets).map_err(Failure::usage)?;
        for (name, sizes, counts) in SCALES {
            let of_name = |experiment: &Experiment| experiment.name == name;
            let chosen: Vec<_> = Experiment::built_in().into_iter().filter(of_name).collect();
            let chosen = chosen.into_iter().map(shorter).collect();
            let settings = Settings {
                sizes,
                counts,
                runs: Some(RUNS),
                targets: targets.clone(),
                ..Settings::default()
            };
            let out = self.out.join(name);
            super::run::perform(chosen, settings, &out)?;
            let page = extant_lab::report::write(&out).map_err(Failure::new)?;
            say!(session, "{}", page.display())?;
            session.out.flush()?;
        }
        Ok(())
    }
}

/// The same experiment without warming up, and with fewer steps.
fn shorter(mut experiment: Experiment) -> Experiment {
    experiment.warm_up = 0;
    if let Some(work) = &mut experiment.check_time {
        work.steps = STEPS.to_vec();
    }
    experiment
}
