//! `extant build`: an image from directories, archives and OCI layouts.

use std::ffi::OsString;
use std::path::PathBuf;

use super::mkfs::Format;
use crate::failure::Failure;
use crate::session::Session;

/// Build an image from directories, tar archives and OCI layouts, laid over each other
///
/// The same sources and options give the same bytes. No root is needed. The image is as small as it
/// can be, unless --size says otherwise.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The image to make
    #[arg(short, value_name = "IMAGE")]
    output: PathBuf,
    /// The volume's size: N, Nk, NM, NG, NT, or auto for an exact fit
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    size: String,
    #[command(flatten)]
    format: Format,
    /// Every file belongs to these numbers
    #[arg(long, value_name = "UID:GID", conflicts_with = "map_owner")]
    owner: Option<String>,
    /// Files of the first pair of numbers belong to the second; may be repeated
    #[arg(long, value_name = "UID:GID=UID:GID")]
    map_owner: Vec<String>,
    /// The volume's UUID; from the content without it
    #[arg(short = 'U', long, value_name = "UUID")]
    uuid: Option<String>,
    /// The seed of the directory hashes; from the content without it
    #[arg(long, value_name = "UUID")]
    hash_seed: Option<String>,
    /// Threads that read and write; the bytes do not depend on it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Say nothing but errors
    #[arg(short)]
    quiet: bool,
    /// What was built, as JSON
    #[arg(long)]
    json: bool,
    /// A directory, a tar archive (plain, gzip, zstd, xz; - is standard input) or an OCI layout
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<OsString>,
}

impl Args {
    pub(crate) fn run(self, _session: &mut Session) -> Result<(), Failure> {
        Err(Failure::not_built("building an image"))
    }
}
