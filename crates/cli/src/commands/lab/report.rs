//! `extant lab report`: a page of what was measured.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::say;
use crate::session::Session;

/// Make a page, figures and CSV of the results in a directory
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the results are; report.html, samples.csv and figures/ come beside them
    #[arg(long, value_name = "DIR", default_value = super::run::OUT)]
    out: PathBuf,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let page = extant_lab::report::write(&self.out).map_err(Failure::new)?;
        say!(session, "{}", page.display())
    }
}
