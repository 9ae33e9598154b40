//! `extant rm` and `extant rmdir`: names taken away.

use std::path::Path;

use extant::rooms::reader::Error as Cause;

use super::Operands;
use crate::editor::{Edited, In, Opening};
use crate::failure::Failure;
use crate::say;
use crate::session::Session;

/// Remove files
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Recurse into directories
    #[arg(short, visible_short_alias = 'R')]
    recursive: bool,
    /// Ignore nonexistent files
    #[arg(short)]
    force: bool,
    /// Print each operand removed
    #[arg(short)]
    verbose: bool,
    #[command(flatten)]
    operands: Operands,
    #[command(flatten)]
    opening: Opening,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        self.operands.edit_each(self.opening, session, |image, path, session| {
            self.remove(image, path, session)
        })
    }

    fn remove(&self, image: &Edited, path: &Path, session: &mut Session) -> Result<(), Failure> {
        let found = match image.fs.symlink_metadata(path) {
            Err(error) if self.force && matches!(error.cause(), Cause::NotFound) => return Ok(()),
            found => found.within(image)?,
        };
        if !found.is_dir() {
            image.fs.remove_file(path).within(image)?;
        } else if self.recursive {
            image.fs.remove_dir_all(path).within(image)?;
        } else {
            return Err(image.failure(path, "a directory, left alone without -r"));
        }
        told(self.verbose, image, path, session)
    }
}

/// Remove empty directories
#[derive(Debug, clap::Args)]
pub(crate) struct RmdirArgs {
    /// Print each directory removed
    #[arg(short)]
    verbose: bool,
    #[command(flatten)]
    operands: Operands,
    #[command(flatten)]
    opening: Opening,
}

impl RmdirArgs {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        self.operands.edit_each(self.opening, session, |image, path, session| {
            image.fs.remove_dir(path).within(image)?;
            told(self.verbose, image, path, session)
        })
    }
}

fn told(verbose: bool, image: &Edited, path: &Path, session: &mut Session) -> Result<(), Failure> {
    match verbose {
        true => say!(session, "removed {}", image.place(path)),
        false => Ok(()),
    }
}
