//! `extant lab report`: a page of the measurements.

use std::path::PathBuf;

use super::console::{CommandError, Console};

/// Make a page, figures and CSV of the results in a directory
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the results are; report.html, samples.csv and figures/ come beside them
    #[arg(long, value_name = "DIR", default_value = super::run::OUT)]
    out: PathBuf,
}

impl Args {
    pub(crate) fn run(self, console: &mut Console<'_>) -> Result<(), CommandError> {
        let page = crate::report::write(&self.out).map_err(CommandError::new)?;
        console.line(format_args!("{}", page.display()))
    }
}
