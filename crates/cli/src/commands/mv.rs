//! `extant mv`: files renamed.

use std::ffi::OsString;
use std::path::Path;

use extant::rooms::engine::RenameFlags;

use super::ln::below_directory;
use crate::failure::Failure;
use crate::image_path::image_paths;
use crate::say;
use crate::session::Session;
use crate::writable_image::{In, NoMatch, OpenArgs, WritableImage, edit_each_named, one_image};

/// Move and rename files
///
/// An existing file of the new name is replaced atomically.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Do not overwrite an existing file
    #[arg(short)]
    no_clobber: bool,
    /// Treat TARGET as the new name, not as a directory to move into
    #[arg(short = 'T')]
    no_target_directory: bool,
    /// Print the name of each file renamed
    #[arg(short)]
    verbose: bool,
    /// Image; the operands are then paths in it
    #[arg(long, value_name = "IMAGE")]
    image: Option<OsString>,
    /// IMAGE:/path
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<OsString>,
    /// IMAGE:/path: directory, or new name
    #[arg(value_name = "TARGET")]
    target: OsString,
    #[command(flatten)]
    open_args: OpenArgs,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let sources = image_paths(self.image.as_deref(), &self.sources)?;
        let target = image_paths(self.image.as_deref(), std::slice::from_ref(&self.target))?;
        target[0].check_path_given()?;
        for source in &sources {
            one_image(source, &target[0])?;
        }
        let target = Path::new(&target[0].path);
        edit_each_named(
            &sources,
            self.open_args,
            NoMatch::Fails,
            session,
            |image, source, is_only, session| self.rename(image, source, target, !is_only, session),
        )
    }

    fn rename(
        &self,
        image: &WritableImage,
        source: &Path,
        target: &Path,
        several: bool,
        session: &mut Session,
    ) -> Result<(), Failure> {
        if several && !image.fs.metadata(target).is_ok_and(|found| found.is_dir()) {
            return Err(image.failure(target, "target is not a directory"));
        }
        let name = match self.no_target_directory && !several {
            true => target.to_owned(),
            false => below_directory(image, target, source)?,
        };
        if self.no_clobber && image.fs.symlink_metadata(&name).is_ok() {
            return Ok(());
        }
        image.fs.rename_with(source, &name, RenameFlags::default()).within(image)?;
        match self.verbose {
            true => say!(session, "{} -> {}", image.place(source), image.place(&name)),
            false => Ok(()),
        }
    }
}
