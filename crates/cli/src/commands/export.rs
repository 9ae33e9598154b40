//! `extant export`: the tree of an image as a tar archive.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use extant_image::export::{Options, Summary, export};
use extant_volume::{Follow, LoadedInode};

use crate::failure::{At, Failure};
use crate::inside::Inside;
use crate::reader::Image;
use crate::session::Session;
use crate::target::Target;

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
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let inside = Inside::parse(&self.image)?;
        let image = Image::open(&inside)?;
        let path = inside.path.as_bytes();
        let start = image.resolve(path, Follow::Yes)?;
        match &self.output {
            None => {
                if session.out.is_terminal() {
                    return Err(Failure::usage(
                        "an archive is not for a terminal: name a file with -o",
                    ));
                }
                write_archive(&image, path, start, &mut stdout()?, session)?
                    .map_err(|error| not_written(Path::new("standard output"), &error))?;
            }
            Some(output) => {
                let target = Target::create(output)?;
                let outcome = write_archive(&image, path, start, &mut target.file(), session)?;
                outcome.map_err(|error| not_written(output, &error))?;
                target.keep()?;
            }
        }
        Ok(())
    }
}

/// Standard output without the buffer that looks for ends of lines.
fn stdout() -> Result<File, Failure> {
    let stdout = io::stdout().as_fd().try_clone_to_owned();
    stdout.map(File::from).at("standard output")
}

/// Problems are told as they come; those that lose something end in a failure.
fn write_archive(
    image: &Image,
    path: &[u8],
    start: LoadedInode,
    out: &mut dyn Write,
    session: &mut Session,
) -> Result<io::Result<Summary>, Failure> {
    let name = path.rsplit(|&byte| byte == b'/').find(|name| !name.is_empty()).unwrap_or(path);
    let root = if start.is_dir() { path.strip_suffix(b"/").unwrap_or(path) } else { b"" };
    let mut told = Ok(());
    let summary = export(&image.volume, start, name, out, Options::default(), &mut |problem| {
        let place = [root, &problem.path].concat();
        let failure = image.failure(&place, &problem.what);
        let outcome = match problem.is_loss {
            true => session.complain(failure),
            false => session.remark(failure),
        };
        told = std::mem::replace(&mut told, Ok(())).and(outcome);
    });
    told.map(|()| summary)
}

fn not_written(output: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::broken_pipe(),
        _ => Failure::at(output, error),
    }
}
