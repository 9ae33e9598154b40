//! `extant stat`: everything an inode says.

use super::Operands;
use crate::failure::Failure;
use crate::session::Session;

/// Show what an inode says: type, mode, owner, sizes, times, flags, attributes
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file that a symlink points to
    #[arg(short = 'L')]
    dereference: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    operands: Operands,
}

impl Args {
    pub(crate) fn run(self, _session: &mut Session) -> Result<(), Failure> {
        Err(Failure::not_built("reading an inode of an image"))
    }
}
