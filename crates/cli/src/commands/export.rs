//! `extant export`: the tree of an image as a tar archive.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::failure::Failure;
use crate::session::Session;

/// Write the tree of an image as a tar archive
///
/// Extended attributes, ACLs, nanoseconds and holes are kept, in PAX and GNU headers.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The archive; standard output without it
    #[arg(short, value_name = "FILE.tar")]
    output: Option<PathBuf>,
    /// The image, or a directory in it
    #[arg(value_name = "IMAGE[:/PATH]")]
    image: OsString,
}

impl Args {
    pub(crate) fn run(self, _session: &mut Session) -> Result<(), Failure> {
        Err(Failure::not_built("exporting an image"))
    }
}
