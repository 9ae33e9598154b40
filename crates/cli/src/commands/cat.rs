//! `extant cat`: contents of files in an image.

use super::Operands;
use crate::failure::Failure;
use crate::session::Session;

/// Write files of an image to standard output
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    operands: Operands,
}

impl Args {
    pub(crate) fn run(self, _session: &mut Session) -> Result<(), Failure> {
        Err(Failure::not_built("reading a file of an image"))
    }
}
