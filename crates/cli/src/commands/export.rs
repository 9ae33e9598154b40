//! `extant export`: the tree of an image as a tar archive.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use extant::rooms::image::export::{Options, Summary, export};
use extant::rooms::reader::{Follow, LoadedInode};

use crate::failure::{At, Failure};
use crate::image_path::ImagePath;
use crate::output_file::OutputFile;
use crate::reader::{Image, Images};
use crate::salvage::SalvageArgs;
use crate::session::Session;

/// Write the files as a tar archive
///
/// Extended attributes, ACLs, nanoseconds and holes are kept, in PAX and GNU headers.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Output archive; standard output by default, or with -
    #[arg(short, value_name = "FILE.tar")]
    output: Option<PathBuf>,
    /// Image, or a directory in it
    #[arg(value_name = "IMAGE[:/PATH]")]
    image: OsString,
    /// Do not restrict this process (landlock, seccomp)
    #[arg(long)]
    no_sandbox: bool,
    #[command(flatten)]
    salvage: SalvageArgs,
    /// This process writes the archive of this name for another one of the same command, which
    /// keeps it if it is whole
    #[arg(long, hide = true, value_name = "FILE.tar")]
    writes_for_another: Option<PathBuf>,
}

/// How the process that writes says that there is no archive; that files are missing in it is told
/// by 1, as by the command.
const NO_ARCHIVE: u8 = 8;

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        match self.output.as_ref().filter(|output| output.as_os_str() != "-") {
            None => {
                let code = |failure: Failure| match self.writes_for_another {
                    Some(_) => failure.with_code(NO_ARCHIVE),
                    None => failure,
                };
                self.write_to_stdout(session).map_err(code)
            }
            Some(output) => self.write_to(output, session),
        }
    }

    fn write_to_stdout(&self, session: &mut Session) -> Result<(), Failure> {
        let inside = ImagePath::parse(&self.image)?;
        if session.out.is_terminal() {
            return Err(Failure::usage(
                "standard output: refusing to write an archive to a terminal: use -o FILE",
            ));
        }
        let operands = std::slice::from_ref(&inside);
        let mut images = Images::salvaging(operands, self.no_sandbox, &self.salvage, session)?;
        let image = images.of(&inside)?;
        let path = inside.path.as_bytes();
        let start = image.resolve(path, Follow::Yes)?;
        let outcome = write_archive(&image, path, start, &mut stdout()?, session)?;
        let archive = self.writes_for_another.as_deref().unwrap_or(Path::new("standard output"));
        outcome.map(|_| ()).map_err(|error| not_written(archive, &error))?;
        images.report_salvage(session)
    }

    /// A process of its own reads the image: this one must still give the archive its name.
    fn write_to(&self, output: &Path, session: &mut Session) -> Result<(), Failure> {
        ImagePath::parse(&self.image)?.refuse_as_output(output)?;
        let target = OutputFile::create(output)?;
        session.out.flush()?;
        let mut writer = Command::new("/proc/self/exe");
        writer.arg0("extant").args(["export", "--writes-for-another"]).arg(output);
        writer.args(self.salvage.words());
        if self.no_sandbox {
            writer.arg("--no-sandbox");
        }
        let stdout = target.file().try_clone().at(output)?;
        writer.arg("--").arg(&self.image).stdin(Stdio::null()).stdout(stdout);
        match writer.status().at("/proc/self/exe")?.code() {
            Some(0) => target.keep(),
            Some(1) => target.keep().and(Err(Failure::silent(1))),
            // The errors have been printed.
            _ => Err(Failure::silent(1)),
        }
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
            true => session.error(failure),
            false => session.warn(failure),
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
