//! `extant map`: a picture of what lies where in an image.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::failure::Failure;
use crate::session::Session;

/// Draw what lies where: groups, metadata, data, free space, fragmentation
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A scalable picture; what is made unless the output's name says otherwise
    #[arg(long, group = "form")]
    svg: bool,
    /// A picture in pixels
    #[arg(long, group = "form")]
    png: bool,
    /// A page with the picture and its figures
    #[arg(long, group = "form")]
    html: bool,
    /// The figures behind the picture, as JSON
    #[arg(long, group = "form")]
    json: bool,
    /// Where it goes; standard output without it
    #[arg(short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The image
    #[arg(value_name = "IMAGE")]
    image: OsString,
}

impl Args {
    pub(crate) fn run(self, _session: &mut Session) -> Result<(), Failure> {
        Err(Failure::not_built("drawing a map"))
    }
}
