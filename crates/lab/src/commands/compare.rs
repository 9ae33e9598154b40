//! `extant lab compare`: before and after.

use std::path::{Path, PathBuf};

use crate::compare::{Compared, builds, targets};
use crate::results::Results;
use crate::target::LabTarget;
use comfy_table::Table;

use super::console::{CommandError, Console};

/// Compare two targets, or two directories of results
///
/// All that was measured of both is compared. Differences are in percent of the first, with their
/// 95% intervals (Welch's); a star marks those whose interval excludes zero.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of results of the targets
    #[arg(long, value_name = "DIR", default_value = super::run::OUT)]
    out: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Directory of results, or a target in --out
    #[arg(value_name = "BEFORE")]
    before: String,
    /// Directory of results, or a target in --out
    #[arg(value_name = "AFTER")]
    after: String,
}

impl Args {
    pub(crate) fn run(self, console: &mut Console<'_>) -> Result<(), CommandError> {
        let read = |dir: &Path| Results::read(dir).map_err(CommandError::new);
        let is_dir = |name: &String| Path::new(name).is_dir();
        let compared = match (is_dir(&self.before), is_dir(&self.after)) {
            (true, true) => builds(&read(self.before.as_ref())?, &read(self.after.as_ref())?),
            (false, false) => {
                let results = read(&self.out)?;
                let target = |text: &str| text.parse::<LabTarget>().map_err(CommandError::usage);
                let (before, after) = (target(&self.before)?, target(&self.after)?);
                if before.system.drive() != after.system.drive() {
                    console.warn(
                        "cannot compare times of a simulated drive (virtual clock) with others",
                    )?;
                }
                targets((&results, &before.to_string()), (&results, &after.to_string()))
            }
            _ => {
                return Err(CommandError::usage(
                    "BEFORE and AFTER must both be directories, or both targets",
                ));
            }
        };
        if compared.is_empty() {
            return Err(CommandError::new("no measurements in common"));
        }
        match self.json {
            true => console.json(&compared),
            false => console.line(format_args!("{}", table(&compared))),
        }
    }
}

fn table(compared: &[Compared]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["experiment", "target", "phase", "metric", "before", "after", "difference"]);
    for row in compared {
        let target = match row.before == row.after {
            true => row.before.clone(),
            false => format!("{} → {}", row.before, row.after),
        };
        table.add_row([
            row.experiment.clone(),
            target,
            row.phase_text(),
            row.metric.clone(),
            format!("{:.6}", row.first.mean),
            format!("{:.6}", row.second.mean),
            row.difference_text(),
        ]);
    }
    table
}
