//! `extant lab report`: a page of the measurements.

use std::path::PathBuf;

use super::console::{CommandError, Console};

/// Make a page, figures and CSV of results
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of results; report.html, samples.csv and figures/ are written to it
    #[arg(long, value_name = "DIR", default_value = super::run::OUT)]
    out: PathBuf,
}

impl Args {
    pub(crate) fn run(self, console: &mut Console<'_>) -> Result<(), CommandError> {
        let page = crate::report::write(&self.out).map_err(CommandError::new)?;
        console.line(format_args!("{}", page.display()))
    }
}
