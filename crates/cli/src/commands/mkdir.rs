//! `extant mkdir`: directories made.

use std::path::Path;

use extant::rooms::reader::Error as Cause;

use super::Operands;
use crate::failure::Failure;
use crate::mode::ModeChange;
use crate::say;
use crate::session::Session;
use crate::writable_image::{In, OpenArgs, WritableImage, edit_each};

/// Make directories
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Make parent directories as needed; no error if the directory exists
    #[arg(short)]
    parents: bool,
    /// Mode, as in chmod; by default rwx for all minus the umask
    #[arg(short, value_name = "MODE", allow_hyphen_values = true)]
    mode: Option<String>,
    /// Print each directory made
    #[arg(short)]
    verbose: bool,
    #[command(flatten)]
    operands: Operands,
    #[command(flatten)]
    open_args: OpenArgs,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let mode = self.mode.as_deref().map(ModeChange::parse).transpose()?;
        edit_each(&self.operands.inside()?, self.open_args, session, |image, path, session| {
            self.make(image, path, mode.as_ref(), session)
        })
    }

    fn make(
        &self,
        image: &WritableImage,
        path: &Path,
        mode: Option<&ModeChange>,
        session: &mut Session,
    ) -> Result<(), Failure> {
        if self.parents {
            if image.fs.metadata(path).is_ok_and(|found| found.is_dir()) {
                return Ok(());
            }
            if let Some(parent) = path.parent() {
                image.fs.create_dir_all(parent).within(image)?;
            }
        }
        match image.fs.create_dir(path) {
            Err(error) if self.parents && matches!(error.cause(), Cause::Exists) => {
                return Err(image.failure(path, "file exists"));
            }
            outcome => outcome.within(image)?,
        }
        if let Some(mode) = mode {
            // As mkdir(1) reads it: changes of rwx for all, no umask.
            image.fs.set_permissions(path, mode.applied(0o777, true, 0)).within(image)?;
        }
        match self.verbose {
            true => say!(session, "made {}", image.place(path)),
            false => Ok(()),
        }
    }
}
