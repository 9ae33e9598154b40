//! `extant lab list`: the experiments that there are.

use std::path::PathBuf;

use crate::experiment::Experiment;
use serde::Serialize;

use super::console::{CommandError, Console};
use super::run::experiments;

/// List the experiments
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Add the experiments of a TOML file; one with the name of a built-in replaces it
    #[arg(long, value_name = "FILE")]
    experiments: Option<PathBuf>,
    /// Print them in full, as a file for --experiments
    #[arg(long, conflicts_with = "json")]
    toml: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Only these experiments
    #[arg(value_name = "EXPERIMENT")]
    names: Vec<String>,
}

/// As files have them.
#[derive(Serialize)]
struct Table {
    experiment: Vec<Experiment>,
}

impl Args {
    pub(crate) fn run(self, console: &mut Console<'_>) -> Result<(), CommandError> {
        let all = experiments(self.experiments.as_deref())?;
        let chosen = match self.names.is_empty() {
            true => all,
            false => super::run::chosen(&all, &self.names)?,
        };
        if self.json {
            return console.json(&chosen);
        }
        if self.toml {
            let text = toml::to_string(&Table { experiment: chosen }).map_err(CommandError::new)?;
            return console.line(format_args!("{}", text.trim_end()));
        }
        for experiment in chosen {
            console.line(format_args!("{:<17} {}", experiment.name, experiment.title))?;
        }
        Ok(())
    }
}
