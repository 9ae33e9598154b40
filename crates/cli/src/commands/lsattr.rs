//! `extant lsattr`: the flags of files that chattr sets, as lsattr shows them.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;

use crate::failure::Failure;
use crate::flagged_files::{FlaggedFiles, OfHost, OfImage, STAT, Step, walk};
use crate::image_path::{ImagePath, inside_or_host};
use crate::reader::Images;
use crate::session::Session;
use crate::{err_line, say};

/// lsattr's exit code for every failure.
const FAILED: u8 = 1;
/// Columns of a file's name in front of long names.
const NAME_WIDTH: usize = 28;

/// List file attributes, as lsattr does
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Recurse into directories
    #[arg(short = 'R')]
    recursive: bool,
    /// Print the version, too
    #[arg(short = 'V')]
    version: bool,
    /// List names that begin with a dot, too
    #[arg(short)]
    all: bool,
    /// List directories themselves, not what is in them
    #[arg(short)]
    directory: bool,
    /// Print long names instead of letters
    #[arg(short)]
    long: bool,
    /// Print the project
    #[arg(short)]
    project: bool,
    /// Print the version of the file (generation)
    #[arg(short = 'v')]
    generation: bool,
    /// Image; the operands are then paths in it
    #[arg(long, value_name = "IMAGE")]
    image: Option<OsString>,
    /// IMAGE:/path, or a file of this machine; the working directory by default
    #[arg(value_name = "FILE")]
    files: Vec<OsString>,
    /// Do not restrict this process (landlock, seccomp)
    #[arg(long)]
    no_sandbox: bool,
}

impl Args {
    pub(crate) fn run(mut self, session: &mut Session) -> Result<(), Failure> {
        if self.version {
            err_line!("{}", session.version());
        }
        if self.files.is_empty() {
            self.files.push(if self.image.is_some() { "/".into() } else { ".".into() });
        }
        let inside = |file| inside_or_host(self.image.as_deref(), file);
        let inside: Vec<_> = self.files.iter().map(inside).collect();
        let of_images: Vec<ImagePath> = inside.iter().flatten().flatten().cloned().collect();
        // The sandbox takes this machine's files away.
        let no_sandbox = self.no_sandbox || of_images.len() < self.files.len();
        let mut images = Images::restricted(&of_images, no_sandbox, session)?;
        for (file, inside) in self.files.iter().zip(inside) {
            let listed = match inside {
                Ok(Some(inside)) => images.named(&inside).and_then(|(image, paths)| {
                    let files = OfImage::read(&inside.name, &image);
                    paths.iter().try_for_each(|path| {
                        self.list_operand(&files, path, session)
                            .or_else(|failure| session.error(failure.with_usual_code(FAILED)))
                    })
                }),
                Ok(None) => self.list_operand(&OfHost, file.as_bytes(), session),
                Err(failure) => Err(failure),
            };
            if let Err(failure) = listed {
                session.error(failure.with_usual_code(FAILED))?;
            }
        }
        Ok(())
    }

    fn list_operand<F: FlaggedFiles>(
        &self,
        files: &F,
        path: &[u8],
        session: &mut Session,
    ) -> Result<(), Failure> {
        let found = files.find(path).map_err(|error| files.failure(&error, STAT, path))?;
        if !found.is_dir || self.directory {
            return self.list(files, path, session)?;
        }
        walk(files, path, session, &mut |step, session| match step {
            Step::File { name, .. } if name.starts_with(b".") && !self.all => Ok(false),
            Step::File { path, found, .. } => {
                if let Err(failure) = self.list(files, path, session)? {
                    // As lsattr: only what an operand names counts for the exit code.
                    session.warn(failure)?;
                }
                Ok(self.recursive && found.is_dir)
            }
            Step::Enter(path) => {
                session.out.bytes(b"\n")?;
                session.out.name(&files.place(path))?;
                session.out.bytes(b":\n")?;
                Ok(true)
            }
            Step::Leave => {
                session.out.bytes(b"\n")?;
                Ok(true)
            }
        })
    }

    /// Prints the line of a file. The inner result is why it has none.
    fn list<F: FlaggedFiles>(
        &self,
        files: &F,
        path: &[u8],
        session: &mut Session,
    ) -> Result<Result<(), Failure>, Failure> {
        let (line, names) = match self.line(files, path) {
            Ok(line) => line,
            Err((doing, error)) => return Ok(Err(files.failure(&error, doing, path))),
        };
        let place = files.place(path);
        session.out.bytes(line.as_bytes())?;
        session.out.name(&place)?;
        match names {
            Some(names) => {
                let blanks = " ".repeat(NAME_WIDTH.saturating_sub(place.len()));
                say!(session, "{blanks} {names}")?;
            }
            None => session.out.bytes(b"\n")?,
        }
        Ok(Ok(()))
    }

    /// The columns in front of a file's name, and the long names after it.
    fn line<F: FlaggedFiles>(
        &self,
        files: &F,
        path: &[u8],
    ) -> Result<(String, Option<String>), (&'static str, io::Error)> {
        let reading = |doing| move |error| (doing, error);
        // First, as it is what files without flags are refused for.
        let flags = files.flags(path).map_err(reading("While reading flags on"))?;
        let mut line = String::new();
        if self.project {
            let project = files.project(path).map_err(reading("While reading project on"))?;
            line += &format!("{project:>5} ");
        }
        if self.generation {
            let version = files.version(path).map_err(reading("While reading version on"))?;
            line += &format!("{version:<10} ");
        }
        if !self.long {
            return Ok((line + &flags.letters() + " ", None));
        }
        let names = flags.names();
        Ok((line, Some(if names.is_empty() { "---".to_owned() } else { names.join(", ") })))
    }
}
