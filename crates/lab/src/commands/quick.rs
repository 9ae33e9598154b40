//! `extant lab quick`: all experiments, small.

use std::path::PathBuf;

use crate::target::LabTarget;

use super::console::{CommandError, Console};
use super::scaled::{self, Scale};

/// The targets: as root at least six of them run.
const TARGETS: &str = "engine,extant,ext4,ext3,xfs,btrfs,fuse2fs";
const RUNS: u32 = 2;

/// Fewer steps of filling than the document has, in per cent of the inodes.
const STEPS: [f64; 3] = [0.0, 40.0, 80.0];

/// Factors of each experiment, sizes and counts, so that all of them together take some minutes;
/// and the rows of its document's matrix that its main findings are held against.
const SCALES: [(&str, f64, f64, &[&str]); 5] = [
    ("copy-remove", 0.01, 0.01, &["engine::-O ^64bit", "engine::-O 64bit"]),
    (
        "low-memory",
        0.01,
        0.1,
        &[
            "engine:data=ordered,nodelalloc,nomballoc:-t ext3",
            "engine:data=ordered,nodelalloc,nomballoc:-t ext3 -O extent",
            "engine:data=ordered,nodelalloc,mballoc:-t ext3 -O extent",
            "engine:data=ordered,delalloc,mballoc:-t ext3 -O extent",
        ],
    ),
    (
        "hard-links",
        0.000_001,
        0.001,
        &["ext4:noatime", "xfs:noatime", "btrfs:noatime", "engine@hdd7200"],
    ),
    (
        "sequential-write",
        0.03,
        0.0625,
        &[
            "engine:data=writeback,nodelalloc,nomballoc:-t ext3 -I 256",
            "engine:data=writeback:-I 256 -O ^metadata_csum,^flex_bg",
            "engine:data=writeback:-I 256 -O ^metadata_csum,^flex_bg,uninit_bg",
            "engine:data=writeback,nomballoc:-I 256 -O ^metadata_csum,^flex_bg,uninit_bg",
            "engine:data=writeback:-I 256 -O ^metadata_csum,uninit_bg -G 64",
        ],
    ),
    ("check-time", 1.0, 0.0001, &[]),
];

/// Run all experiments small, on seven targets, and report
///
/// It takes some minutes. The report names what cannot run here. Of the documents' matrices of
/// options it runs the rows that decide their main findings, unless --targets is given.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Output directory; each experiment has a subdirectory
    #[arg(long, value_name = "DIR", default_value = "lab-quick")]
    out: PathBuf,
    /// Targets, separated by commas
    #[arg(long, value_name = "TARGET,...")]
    targets: Option<String>,
}

impl Args {
    pub(crate) fn run(self, console: &mut Console<'_>) -> Result<(), CommandError> {
        let list = |text: &str| LabTarget::list(text).map_err(CommandError::usage);
        let common = list(self.targets.as_deref().unwrap_or(TARGETS))?;
        let scale = |(name, sizes, counts, rows): (&'static str, f64, f64, &[&str])| {
            let mut targets = common.clone();
            if self.targets.is_none() {
                let rows: Result<Vec<LabTarget>, _> = rows.iter().map(|row| row.parse()).collect();
                targets.extend(rows.map_err(CommandError::usage)?);
            }
            let steps: &[f64] = &STEPS;
            Ok::<Scale, CommandError>(Scale {
                name,
                dir: name,
                sizes,
                counts,
                runs: RUNS,
                time: None,
                targets,
                steps,
                warms_up: false,
            })
        };
        let scales: Result<Vec<Scale>, CommandError> = SCALES.into_iter().map(scale).collect();
        scaled::perform(scales?, &self.out, console)
    }
}
