//! `extant lab summary`: several results on one page of text.

use std::path::PathBuf;

use super::console::{CommandError, Console};

/// Summarize results on one page
///
/// The page shows how engine, mount and checker compare, and which of the documents' findings hold.
/// It is Markdown, made from the samples in the directories; differences that are significant
/// are marked. With --out a page with pictures is written too.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Output file; index.html is written next to it; standard output by default
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Directories of results, as made by `lab run`
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
}

impl Args {
    pub(crate) fn run(self, console: &mut Console<'_>) -> Result<(), CommandError> {
        if let Some(out) = self.out {
            let index =
                crate::report::write_summary(&self.dirs, &out).map_err(CommandError::new)?;
            return console.line(format_args!("{}", index.display()));
        }
        let page = crate::report::summary(&self.dirs).map_err(CommandError::new)?;
        console.line(format_args!("{}", page.trim_end()))
    }
}
