//! `extant lab large`: all experiments as large as half an hour allows.

use std::path::PathBuf;

use crate::target::LabTarget;

use super::console::{CommandError, Console};
use super::scaled::{self, Scale};

/// Run all experiments at the largest size for half an hour each, and report
///
/// Each experiment is as large as half an hour on two processors and 35 GB of disk allow; the
/// book's page on the lab has the arithmetic. `hard-links-whole` is the whole archive, on the
/// targets that finish it within that time; `hard-links` is a part of it, and `hard-links-small` a
/// smaller one, on all. An interrupted run is resumed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Output directory; each experiment has a subdirectory
    #[arg(long, value_name = "DIR", default_value = "lab-large")]
    out: PathBuf,
    /// Only these: copy-remove, low-memory, hard-links, hard-links-small, hard-links-whole,
    /// sequential-write, check-time
    #[arg(value_name = "EXPERIMENT")]
    names: Vec<String>,
}

/// Targets that take the whole archive in half an hour.
const WHOLE: &str = "engine,ext4:noatime,xfs:noatime,btrfs:noatime";

/// Targets that take a fortieth of it in some minutes: fuse2fs needs more than ten for each run.
const PART: &str = "engine,extant,ext4:noatime,xfs:noatime,btrfs:noatime";

impl Args {
    pub(crate) fn run(self, console: &mut Console<'_>) -> Result<(), CommandError> {
        let all = scales();
        let known: Vec<&str> = all.iter().map(|scale| scale.dir).collect();
        if let Some(name) = self.names.iter().find(|name| !known.contains(&name.as_str())) {
            let known = known.join(", ");
            return Err(CommandError::usage(format_args!(
                "unknown experiment {name} (expected {known})"
            )));
        }
        let is_chosen = |scale: &Scale| {
            self.names.is_empty() || self.names.iter().any(|name| name == scale.dir)
        };
        scaled::perform(all.into_iter().filter(is_chosen).collect(), &self.out, console)
    }
}

fn scales() -> Vec<Scale> {
    let scale = |name, sizes, counts, runs| Scale {
        name,
        dir: name,
        sizes,
        counts,
        runs,
        time: None,
        targets: Vec::new(),
        steps: &[],
        warms_up: true,
    };
    let links = |dir, targets, counts, runs| Scale {
        dir,
        targets: LabTarget::list(targets).expect("targets of ours"),
        ..scale("hard-links", 0.000_001, counts, runs)
    };
    vec![
        scale("copy-remove", 1.0, 1.0, 4),
        scale("low-memory", 0.025, 1.0, 4),
        links("hard-links", PART, 0.025, 4),
        Scale { dir: "hard-links-small", ..scale("hard-links", 0.000_001, 0.0025, 4) },
        links("hard-links-whole", WHOLE, 1.0, 1),
        Scale { time: Some(3.0), ..scale("sequential-write", 0.01, 1.0, 4) },
        scale("check-time", 1.0, 0.003, 3),
    ]
}
