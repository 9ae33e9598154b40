//! The files of a disk image.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant_device::FileDevice;
use imago::FormatAccess;
use imago::file::File as ImageFile;

use crate::url::UrlError;

/// Which of the files that an image names may be opened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowed {
    pub(super) backing: bool,
    pub(super) data_file: bool,
    pub(super) extents: bool,
}

/// A file of an image.
#[derive(Clone, Debug)]
pub(super) struct NamedFile {
    /// How the image before it names it, made absolute by that one's directory.
    pub(super) path: PathBuf,
    pub(super) file: Arc<FileDevice>,
    pub(super) role: Role,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    Qcow2,
    /// Data without a format: a backing file, an extent.
    Raw,
    /// The data of the image in front of it.
    DataFile,
    Descriptor,
    /// A sparse extent of VMDK.
    Sparse,
    /// An image that names no other file.
    Alone,
}

/// An opened image of imago's.
pub(super) type Access = FormatAccess<ImageFile>;

impl NamedFile {
    /// The file for imago. It is not opened again, so that no path is needed.
    pub(super) fn for_imago(&self) -> io::Result<ImageFile> {
        let options = imago::StorageOpenOptions::new().filename(&self.path);
        let options = options.direct(self.file.is_direct());
        ImageFile::from_open_file(self.file.file().try_clone()?, options)
    }
}

/// Opens a file that an image names.
pub(super) type OpenFile<'a> = &'a dyn Fn(&Path) -> Result<Arc<FileDevice>, UrlError>;

/// A name in an image, as a path: relative to the directory of the image.
pub(super) fn in_directory_of(image: &Path, name: &str) -> PathBuf {
    image.parent().unwrap_or(Path::new("")).join(name)
}
