//! Names of files inside images: `IMAGE:/path`, or paths with `--image IMAGE`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use extant::rooms::device::{Device, FileDeviceOptions};
use extant::rooms::reader::SuperblockAt;
use extant::rooms::storage::{Access, DeviceUrl, Files, Keys, PathTarget, stat_host};

use crate::commands::Operands;
use crate::failure::Failure;
use crate::output_file::FileId;

/// A file inside an image.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ImagePath {
    /// The image as it was named: messages begin with it.
    pub(crate) name: OsString,
    /// Where the image is.
    pub(crate) image: DeviceUrl,
    /// The path, from `/`.
    pub(crate) path: OsString,
    /// Whether the path was given; else it is that of the root directory.
    pub(crate) is_path_given: bool,
}

impl ImagePath {
    /// Reads `IMAGE:/path`, or `IMAGE` for its root directory.
    pub(crate) fn parse(text: &OsStr) -> Result<Self, Failure> {
        match PathTarget::parse_inside(text, extant::schemes(), stat_host)
            .map_err(Failure::usage)?
        {
            PathTarget::Inside { image, path } => {
                let name = &text.as_bytes()[..text.len() - path.len() - 1];
                let name = OsStr::from_bytes(name).to_owned();
                Ok(Self { name, image, path, is_path_given: true })
            }
            // `./disk.img` is a host path by the rule, and an image all the same.
            PathTarget::Host(_) => Self::root_of(text),
        }
    }

    /// The root directory of the image that is named by all of `text`.
    fn root_of(text: &OsStr) -> Result<Self, Failure> {
        if let Some(failure) = missing_slash(text) {
            return Err(failure);
        }
        let image = DeviceUrl::parse(text, extant::schemes(), stat_host).map_err(Failure::usage)?;
        Ok(Self { name: text.to_owned(), image, path: "/".into(), is_path_given: false })
    }

    /// Refuses an image without a path, for commands that change a file: without a word they would
    /// change the root directory.
    pub(crate) fn check_path_given(&self) -> Result<(), Failure> {
        match self.is_path_given {
            true => Ok(()),
            false => {
                let name = self.name.display();
                let why = format_args!(
                    "{name}: missing path in the image: write {name}:/ for its root directory"
                );
                Err(Failure::usage(why))
            }
        }
    }

    /// Refuses a path, for commands that work on whole images.
    pub(crate) fn check_is_image(&self) -> Result<(), Failure> {
        if !self.is_path_given {
            return Ok(());
        }
        let (name, path) = (self.name.display(), self.path.display());
        let why = format_args!("{name}:{path}: not an image: write {name} for all of it");
        Err(Failure::usage(why))
    }

    /// Refuses `sb=` for a command that reads the journal, of which a backup tells nothing.
    pub(crate) fn check_primary_superblock(&self) -> Result<(), Failure> {
        match self.image.superblock {
            Some(block) => {
                let why = "the journal is read, of which a backup superblock tells nothing";
                let name = self.name.display();
                Err(Failure::usage(format_args!("{name}: sb={block} cannot be used here: {why}")))
            }
            None => Ok(()),
        }
    }

    /// Opens the image for reading: it is never written. The volume on it is read by
    /// [`Self::superblock`].
    pub(crate) fn open(&self) -> Result<Arc<dyn Device>, Failure> {
        open_for_reading(&self.image)
    }

    /// The superblock by which the volume is read.
    pub(crate) fn superblock(&self) -> SuperblockAt {
        self.image.superblock.map_or(SuperblockAt::Primary, SuperblockAt::Block)
    }

    /// The files and devices that the image lies in; those that are not there are left out.
    pub(crate) fn holders(&self) -> Vec<FileId> {
        let files = self.image.files_read();
        files.filter_map(|path| path.metadata().ok()).map(|found| FileId::of(&found)).collect()
    }

    /// Refuses the image as a place for what comes out of it, by any of its names.
    pub(crate) fn refuse_as_output(&self, output: &Path) -> Result<(), Failure> {
        match output.metadata() {
            Ok(found) if self.holders().contains(&FileId::of(&found)) => {
                Err(Failure::at(output, "not overwriting the image being read"))
            }
            _ => Ok(()),
        }
    }

    /// The same file in the base of an overlay; `None` for an image that is not one.
    pub(crate) fn in_base(&self) -> Option<Self> {
        self.image.overlay()?;
        let image = self.image.base();
        Some(Self { name: image.path().as_os_str().to_owned(), image, ..self.clone() })
    }

    /// Opens the files or devices that the image lies in, for reading, and reads nothing of them. A
    /// key is read too.
    pub(crate) fn open_files(&self) -> Result<(Files, Keys), Failure> {
        let image = self.image.without_superblock();
        let files = image.open_files(&FileDeviceOptions::default()).map_err(Failure::new)?;
        Ok((files, self.image.keys().map_err(Failure::new)?))
    }
}

/// The failure of `IMAGE:path` without a slash, where IMAGE is there and a file of the whole name
/// is not.
pub(crate) fn missing_slash(text: &OsStr) -> Option<Failure> {
    if Path::new(text).symlink_metadata().is_ok() {
        return None;
    }
    let bytes = text.as_bytes();
    let colons = (1..bytes.len()).filter(|at| bytes[*at] == b':').rev();
    let (image, path) = colons
        .map(|at| (OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..])))
        .find(|(image, _)| {
            let image = DeviceUrl::parse(image, extant::schemes(), stat_host);
            image.is_ok_and(|image| !image.is_remote() && image.is_there(stat_host))
        })?;
    let (whole, image, path) = (text.display(), image.display(), path.display());
    let why = "path in an image does not begin with a slash";
    Some(Failure::usage(format_args!("{whole}: {why}: write {image}:/{path}")))
}

/// Opens the device of an image that is never written. Its backup superblock is left to the caller.
pub(crate) fn open_for_reading(image: &DeviceUrl) -> Result<Arc<dyn Device>, Failure> {
    let image = image.without_superblock();
    // The error names the file already.
    let opened =
        image.open(Access::ReadOnly, &FileDeviceOptions::default()).map_err(Failure::new)?;
    Ok(opened.device)
}

impl Operands {
    /// All operands as files inside images, at least one.
    pub(crate) fn inside(&self) -> Result<Vec<ImagePath>, Failure> {
        image_paths(self.image.as_deref(), &self.files)
    }
}

/// A file inside an image, or `None` for one of this machine. With `--image` each is a path in it.
pub(crate) fn inside_or_host(
    image: Option<&OsStr>,
    file: &OsString,
) -> Result<Option<ImagePath>, Failure> {
    if image.is_some() {
        return Ok(image_paths(image, std::slice::from_ref(file))?.into_iter().next());
    }
    match PathTarget::parse(file, extant::schemes(), stat_host) {
        Ok(PathTarget::Inside { .. }) => ImagePath::parse(file).map(Some),
        Ok(PathTarget::Host(_)) => missing_slash(file).map_or(Ok(None), Err),
        Err(error) => Err(Failure::usage(error)),
    }
}

/// Operands as files inside images: with `--image` each is a path in it, and none means its root.
pub(crate) fn image_paths(
    image: Option<&OsStr>,
    files: &[OsString],
) -> Result<Vec<ImagePath>, Failure> {
    let Some(image) = image else {
        return files.iter().map(|file| ImagePath::parse(file)).collect();
    };
    let root = ImagePath::root_of(image)?;
    if files.is_empty() {
        return Ok(vec![root]);
    }
    let inside =
        |path: &OsString| ImagePath { path: path.clone(), is_path_given: true, ..root.clone() };
    Ok(files.iter().map(inside).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testkit::Scratch;

    #[test]
    fn an_image_alone_is_its_root() {
        let scratch = Scratch::new();
        let image = scratch.join("disk.img");
        std::fs::write(&image, "").unwrap();
        let name = image.as_os_str();
        let root = ImagePath::parse(name).unwrap();
        assert_eq!((root.image.path(), root.path.as_os_str()), (&*image, OsStr::new("/")));

        let mut file = name.to_owned();
        file.push(":/etc/fstab");
        let file = ImagePath::parse(&file).unwrap();
        assert_eq!(file.path, "/etc/fstab");
        let same = image_paths(Some(name), &["/etc/fstab".into()]).unwrap();
        assert_eq!(same, [file]);
        assert_eq!(image_paths(Some(name), &[]).unwrap(), [root]);
    }

    /// Names as shells complete them.
    #[test]
    fn a_relative_name_leads_into_an_image_unless_it_is_a_files() {
        let scratch = Scratch::new();
        let image = scratch.join("disk.img");
        std::fs::write(&image, "").unwrap();
        let relative = |path: &Path| format!("./{}{}", "../".repeat(30), path.display());
        let text = relative(&image) + ":/etc/fstab";
        let file = ImagePath::parse(OsStr::new(&text)).unwrap();
        assert_eq!(
            (file.path.to_str(), &*file.name),
            (Some("/etc/fstab"), OsStr::new(&relative(&image)))
        );
        assert_eq!(file.image.path(), Path::new(&relative(&image)));

        let whole = scratch.join("disk.img:").join("etc");
        std::fs::create_dir(scratch.join("disk.img:")).unwrap();
        std::fs::write(&whole, "").unwrap();
        let whole = ImagePath::parse(OsStr::new(&relative(&whole))).unwrap();
        assert_eq!(whole.path, "/");
    }

    #[test]
    fn a_name_without_an_image_is_a_usage_error() {
        let failure = ImagePath::parse(OsStr::new("no-such.img:/etc")).unwrap_err();
        assert_eq!(failure.code(), 2);
        assert!(failure.to_string().contains("no-such.img"), "{failure}");
    }
}
