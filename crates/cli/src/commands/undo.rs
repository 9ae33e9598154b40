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

/// Restore an image to its state before a command run with -z
///
/// The whole undo file is checked before anything is written. Applying it twice is safe.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Force: skip the check that the image is unchanged since the undo file was written
    #[arg(short)]
    force: bool,
    /// Dry run: only check the undo file
    #[arg(short = 'n')]
    dry_run: bool,
    /// Print what was restored
    #[arg(short)]
    verbose: bool,
    #[command(flatten)]
    waiting: Waiting,
    /// Undo file
    #[arg(value_name = "FILE")]
    undo_file: PathBuf,
    /// Image
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
        if let Some(problem) = applied.mismatch {
            let file = self.undo_file.display();
            session.warn(format_args!(
                "{file}: the undo file does not belong to this image: {problem}: ignored because of -f"
            ))?;
        }
        if !applied.is_finished && applied.records == 0 {
            // As e2undo ends with a file that a failed command left.
            return Err(Failure::at(&self.undo_file, "undo file is empty: nothing is undone"));
        }
        if !applied.is_finished {
            session.warn("undo file is incomplete: the recorded command was interrupted")?;
        }
        if self.verbose || self.dry_run {
            let done = if self.dry_run { "would be restored" } else { "restored" };
            let (records, bytes) = (applied.records, applied.bytes);
            say!(session, "{records} pieces, {bytes} bytes {done}")?;
        }
        Ok(())
    }
}
