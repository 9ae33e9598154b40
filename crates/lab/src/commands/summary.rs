//! `extant lab summary`: several results on one page of text.

use std::path::PathBuf;

use super::console::{At, CommandError, Console};

/// Say on one page where engine, mount and checker stand, and which of the documents' findings hold
///
/// The page is Markdown, written from the samples in the directories; differences that chance may
/// have made are marked as such.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the page goes; standard output otherwise
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Directories of results, as `lab run` makes them
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
}

impl Args {
    pub(crate) fn run(self, console: &mut Console<'_>) -> Result<(), CommandError> {
        let page = crate::report::summary(&self.dirs).map_err(CommandError::new)?;
        match self.out {
            Some(out) => std::fs::write(&out, page).at(&out),
            None => console.line(format_args!("{}", page.trim_end())),
        }
    }
}
