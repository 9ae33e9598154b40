//! Files of this machine that a command writes.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use extant::rooms::image::AtomicFile;

use crate::failure::{At, Failure};

/// A file to be written: without a name until it is whole, so that a failure leaves no half file.
/// A pipe or a device is written in place.
pub(crate) struct OutputFile {
    path: PathBuf,
    kind: OutputKind,
}

enum OutputKind {
    Special(File),
    New(AtomicFile),
}

impl OutputFile {
    /// Begins it.
    pub(crate) fn create(output: &Path) -> Result<Self, Failure> {
        let is_special = output.metadata().is_ok_and(|metadata| !metadata.is_file());
        let kind = match is_special {
            true => OutputKind::Special(File::options().write(true).open(output).at(output)?),
            false => OutputKind::New(AtomicFile::create(output).at(output)?),
        };
        Ok(Self { path: output.to_owned(), kind })
    }

    /// The file to write to.
    pub(crate) fn file(&self) -> &File {
        match &self.kind {
            OutputKind::Special(file) => file,
            OutputKind::New(new) => new.file(),
        }
    }

    /// The file is whole.
    pub(crate) fn keep(self) -> Result<(), Failure> {
        match self.kind {
            OutputKind::Special(_) => Ok(()),
            OutputKind::New(new) => new.persist().at(&self.path),
        }
    }
}

/// Identity of a file, whatever its name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FileId {
    /// The number of a block device.
    Block(u64),
    /// The device that a file lies on, and its inode.
    File(u64, u64),
}

impl FileId {
    pub(crate) fn of(found: &Metadata) -> Self {
        match found.file_type().is_block_device() {
            true => Self::Block(found.rdev()),
            false => Self::File(found.dev(), found.ino()),
        }
    }
}
