//! `extant lab summary`: several results on one page of text.

use std::path::PathBuf;

use super::console::{At, CommandError, Console};

/// Summarize results on one page
///
/// The page shows how engine, mount and checker compare, and which of the documents' findings hold.
/// It is Markdown, made from the samples in the directories; differences that are not significant
/// are marked.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Output file; standard output by default
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Directories of results, as made by `lab run`
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
