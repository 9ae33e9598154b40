//! `extant rm` and `extant rmdir`: names taken away.

use std::path::{Component, Path};

use extant::rooms::reader::Error as Cause;

use super::Operands;
use crate::failure::Failure;
use crate::say;
use crate::session::Session;
use crate::writable_image::{In, NoMatch, OpenArgs, WritableImage};

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
    open_args: OpenArgs,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let no_match = if self.force { NoMatch::Ignored } else { NoMatch::Fails };
        self.operands.edit_each(self.open_args, no_match, session, |image, path, session| {
            self.remove(image, path, session)
        })
    }

    fn remove(
        &self,
        image: &WritableImage,
        path: &Path,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let found = match image.fs.symlink_metadata(path) {
            Err(error) if self.force && matches!(error.cause(), Cause::NotFound) => return Ok(()),
            found => found.within(image)?,
        };
        if found.is_dir() && self.recursive {
            check_is_not_root(image, path)?;
        }
        if !found.is_dir() {
            image.fs.remove_file(path).within(image)?;
        } else if self.recursive {
            image.fs.remove_dir_all(path).within(image)?;
        } else {
            return Err(image.failure(path, "is a directory; use -r"));
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
    open_args: OpenArgs,
}

impl RmdirArgs {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let no_match = NoMatch::Fails;
        self.operands.edit_each(self.open_args, no_match, session, |image, path, session| {
            check_is_not_root(image, path)?;
            image.fs.remove_dir(path).within(image)?;
            told(self.verbose, image, path, session)
        })
    }
}

/// Refuses `/` by any spelling that is seen in the path.
fn check_is_not_root(image: &WritableImage, path: &Path) -> Result<(), Failure> {
    match path.components().any(|part| matches!(part, Component::Normal(_))) {
        true => Ok(()),
        false => Err(image.failure(path, "cannot remove the root directory")),
    }
}

fn told(
    verbose: bool,
    image: &WritableImage,
    path: &Path,
    session: &mut Session,
) -> Result<(), Failure> {
    match verbose {
        true => say!(session, "removed {}", image.place(path)),
        false => Ok(()),
    }
}
