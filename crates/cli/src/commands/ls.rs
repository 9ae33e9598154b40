//! `extant ls`: names in directories of an image.

use super::Operands;
use crate::failure::Failure;
use crate::session::Session;

/// List files in an image
///
/// Owners are shown as numbers: the names of this machine say nothing about the image.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Types, modes, links, owners, sizes and times
    #[arg(short)]
    long: bool,
    /// Names that begin with a dot too, `.` and `..` among them
    #[arg(short)]
    all: bool,
    /// Names that begin with a dot too, but for `.` and `..`
    #[arg(short = 'A')]
    almost_all: bool,
    /// Directories below directories
    #[arg(short = 'R')]
    recursive: bool,
    /// The inode's number before each name
    #[arg(short)]
    inode: bool,
    /// Sizes in powers of 1024
    #[arg(short = 'h')]
    human: bool,
    /// One name a line, as always in a pipe
    #[arg(short = '1')]
    one_a_line: bool,
    /// Directories themselves, not what they hold
    #[arg(short)]
    directory: bool,
    /// Newest first
    #[arg(short = 't', conflicts_with = "by_size")]
    by_time: bool,
    /// Largest first
    #[arg(short = 'S')]
    by_size: bool,
    /// The other way round
    #[arg(short)]
    reverse: bool,
    /// Everything about each entry, as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    operands: Operands,
}

impl Args {
    pub(crate) fn run(self, _session: &mut Session) -> Result<(), Failure> {
        Err(Failure::not_built("listing an image"))
    }
}
