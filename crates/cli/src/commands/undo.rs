//! `extant undo`: puts an image back that was changed with an undo file (`-z`).

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use extant::rooms::device::FileDeviceOptions;
use extant::rooms::device::undo::{Check, DIRECTORY_VARIABLE, apply};
use extant::rooms::storage::{Access, open};

use crate::failure::Failure;
use crate::say;
use crate::session::Session;
use crate::waiting::Waiting;

/// Put an image back as it was before a command that was run with -z
///
/// The undo file is read whole and checked before anything is written. Applying it twice is safe.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Even if the image was changed since, or looks like another one of the same size
    #[arg(short)]
    force: bool,
    /// Check the file, write nothing
    #[arg(short = 'n')]
    dry_run: bool,
    /// Say what was put back
    #[arg(short)]
    verbose: bool,
    #[command(flatten)]
    waiting: Waiting,
    /// The undo file
    #[arg(value_name = "FILE")]
    undo_file: PathBuf,
    /// The image
    #[arg(value_name = "IMAGE")]
    image: OsString,
}

/// Where `-z PATH` goes.
pub(crate) fn path(path: &OsString, image: &OsStr, program: &str) -> PathBuf {
    let directory = std::env::var_os(DIRECTORY_VARIABLE);
    extant::rooms::device::undo::path(path, directory.as_deref(), image, program)
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let access = if self.dry_run { Access::ReadOnly } else { Access::ReadWrite };
        let options = self.waiting.on(FileDeviceOptions::new());
        let opened =
            open(&self.image, extant::schemes(), access, &options).map_err(Failure::new)?;
        let check = if self.force { Check::SizeOnly } else { Check::Same };
        let applied =
            apply(&self.undo_file, &*opened.device, check, self.dry_run).map_err(Failure::new)?;
        opened.finish().map_err(Failure::new)?;
        if !applied.is_finished {
            session.remark("the undo file ends early: the work that it undoes was cut off")?;
        }
        if self.verbose || self.dry_run {
            let done = if self.dry_run { "would be put back" } else { "put back" };
            let (records, bytes) = (applied.records, applied.bytes);
            say!(session, "{records} pieces, {bytes} bytes {done}")?;
        }
        Ok(())
    }
}
