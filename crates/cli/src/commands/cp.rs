//! `extant cp`: files out of an image.

use std::ffi::OsString;

use crate::failure::Failure;
use crate::session::Session;

/// Copy files out of an image
///
/// Holes stay holes. Copying into an image is not built yet.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directories with all they hold; symlinks and devices as such
    #[arg(short, visible_short_alias = 'R')]
    recursive: bool,
    /// Keep modes, owners where allowed, times, extended attributes and ACLs
    #[arg(short)]
    preserve: bool,
    /// All of `-r -p`, and hard links among the copied files stay hard links
    #[arg(short)]
    archive: bool,
    /// Leave files that exist as they are
    #[arg(short)]
    no_clobber: bool,
    /// Name each file that is copied
    #[arg(short)]
    verbose: bool,
    /// The image, spelled out: the sources are then paths inside it
    #[arg(long, value_name = "IMAGE")]
    image: Option<OsString>,
    /// IMAGE:/path
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<OsString>,
    /// A directory of this machine, or a new name
    #[arg(value_name = "TARGET")]
    target: OsString,
}

impl Args {
    pub(crate) fn run(self, _session: &mut Session) -> Result<(), Failure> {
        Err(Failure::not_built("copying out of an image"))
    }
}
