//! `extant ln`: other names, and symbolic links.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::image_path::image_paths;
use crate::session::Session;
use crate::writable_image::{In, OpenArgs, WritableImage, edit_each, one_image};

/// Make hard and symbolic links
///
/// TARGET of a symbolic link is stored as given. TARGET of a hard link is a file of the same image.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Make a symbolic link
    #[arg(short)]
    symbolic: bool,
    /// Remove an existing file of that name
    #[arg(short)]
    force: bool,
    /// Image; the operands are then paths in it
    #[arg(long, value_name = "IMAGE")]
    image: Option<OsString>,
    /// IMAGE:/path; with -s any text
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// IMAGE:/path: new name, or a directory to make the link in
    #[arg(value_name = "NAME")]
    name: OsString,
    #[command(flatten)]
    open_args: OpenArgs,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let names = image_paths(self.image.as_deref(), std::slice::from_ref(&self.name))?;
        let target = if self.symbolic {
            self.target.clone()
        } else {
            let target = image_paths(self.image.as_deref(), std::slice::from_ref(&self.target))?;
            target[0].check_path_given()?;
            one_image(&target[0], &names[0])?.0.to_owned()
        };
        edit_each(&names, self.open_args, session, |image, name, _| {
            self.link(image, Path::new(&target), name)
        })
    }

    fn link(&self, image: &WritableImage, target: &Path, name: &Path) -> Result<(), Failure> {
        let name = below_directory(image, name, target)?;
        if self.force && image.fs.symlink_metadata(&name).is_ok_and(|found| !found.is_dir()) {
            let same =
                |path: &Path| image.fs.symlink_metadata(path).map(|found| found.inode()).ok();
            if !self.symbolic && same(target) == same(&name) {
                return Err(image.failure(&name, "source and target are the same file"));
            }
            image.fs.remove_file(&name).within(image)?;
        }
        if self.symbolic {
            image.fs.symlink(target, &name).within(image)
        } else {
            if image.fs.symlink_metadata(target).within(image)?.is_dir() {
                return Err(image.failure(target, "hard link not allowed for directory"));
            }
            image.fs.hard_link(target, &name).within(image)
        }
    }
}

/// A name, or where it is a directory that is there, the name that `of` ends in in that directory.
pub(super) fn below_directory(
    image: &WritableImage,
    name: &Path,
    of: &Path,
) -> Result<PathBuf, Failure> {
    let is_dir = image.fs.metadata(name).is_ok_and(|found| found.is_dir());
    if !is_dir {
        if !image.fs.symlink_metadata(of).is_ok_and(|found| found.is_dir()) {
            image.check_names_file(name)?;
        }
        return Ok(name.to_owned());
    }
    let last = of.file_name().ok_or_else(|| image.failure(of, "path has no file name"))?;
    Ok(name.join(last))
}
