//! `extant tree`: a directory and all below it, drawn.

use super::Operands;
use crate::failure::Failure;
use crate::session::Session;

/// Draw the tree of files below a directory of an image
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names that begin with a dot too
    #[arg(short)]
    all: bool,
    /// Directories only
    #[arg(short)]
    directories: bool,
    /// The whole path before each name
    #[arg(short)]
    full_path: bool,
    /// The size before each name
    #[arg(short)]
    size: bool,
    /// Sizes in powers of 1024
    #[arg(short = 'h')]
    human: bool,
    /// No deeper than this many levels
    #[arg(short = 'L', value_name = "LEVELS", value_parser = clap::value_parser!(u32).range(1..))]
    levels: Option<u32>,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    operands: Operands,
}

impl Args {
    pub(crate) fn run(self, _session: &mut Session) -> Result<(), Failure> {
        Err(Failure::not_built("walking an image"))
    }
}
