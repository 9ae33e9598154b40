//! `extant info`: superblock and groups, as dumpe2fs shows them.

use std::ffi::OsString;

use crate::failure::Failure;
use crate::session::Session;

/// Show the superblock and the block groups, as dumpe2fs does
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The bad blocks that the volume lists
    #[arg(short)]
    bad_blocks: bool,
    /// Features that are not known do not stop it
    #[arg(short)]
    force: bool,
    /// The groups in a form that programs read
    #[arg(short)]
    groups: bool,
    /// The superblock only
    #[arg(short = 'h')]
    header_only: bool,
    /// The multiple mount protection block
    #[arg(short)]
    mmp: bool,
    /// Another superblock: superblock=BLOCK, blocksize=BYTES
    #[arg(short = 'o', value_name = "SUPERBLOCK", value_delimiter = ',')]
    superblock: Vec<String>,
    /// Block numbers of the groups in hexadecimal
    #[arg(short = 'x')]
    hexadecimal: bool,
    /// The version
    #[arg(short = 'V')]
    version: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// The image
    #[arg(value_name = "IMAGE", required_unless_present = "version")]
    image: Option<OsString>,
}

impl Args {
    pub(crate) fn run(self, _session: &mut Session) -> Result<(), Failure> {
        Err(Failure::not_built("showing a superblock"))
    }
}
