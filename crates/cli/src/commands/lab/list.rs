//! `extant lab list`: the experiments that there are.

use std::path::PathBuf;

use extant_lab::experiment::Experiment;
use serde::Serialize;

use super::run::experiments;
use crate::failure::Failure;
use crate::say;
use crate::session::Session;

/// List the experiments
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Experiments of a file (TOML) as well; one of a built-in's name stands for that
    #[arg(long, value_name = "FILE")]
    experiments: Option<PathBuf>,
    /// Whole, as a file for --experiments
    #[arg(long, conflicts_with = "json")]
    toml: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Only these
    #[arg(value_name = "EXPERIMENT")]
    names: Vec<String>,
}

/// As files have them.
#[derive(Serialize)]
struct Table {
    experiment: Vec<Experiment>,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let all = experiments(self.experiments.as_deref())?;
        let chosen = match self.names.is_empty() {
            true => all,
            false => super::run::chosen(&all, &self.names)?,
        };
        if self.json {
            return session.out.json(&chosen);
        }
        if self.toml {
            let text = toml::to_string(&Table { experiment: chosen }).map_err(Failure::new)?;
            return say!(session, "{}", text.trim_end());
        }
        for experiment in chosen {
            say!(session, "{:<17} {}", experiment.name, experiment.title)?;
        }
        Ok(())
    }
}
