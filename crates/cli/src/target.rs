//! Files of this machine that a command writes.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use extant::rooms::image::AtomicFile;

use crate::failure::{At, Failure};

/// A file to be written: without a name until it is whole, so that a failure leaves no half file.
/// What is no regular file (a pipe, a tape) is written as it is.
pub(crate) struct Target {
    path: PathBuf,
    place: Place,
}

enum Place {
    Special(File),
    New(AtomicFile),
}

impl Target {
    /// Begins it.
    pub(crate) fn create(output: &Path) -> Result<Self, Failure> {
        let is_special = output.metadata().is_ok_and(|metadata| !metadata.is_file());
        let place = match is_special {
            true => Place::Special(File::options().write(true).open(output).at(output)?),
            false => Place::New(AtomicFile::create(output).at(output)?),
        };
        Ok(Self { path: output.to_owned(), place })
    }

    /// What is written to.
    pub(crate) fn file(&self) -> &File {
        match &self.place {
            Place::Special(file) => file,
            Place::New(new) => new.file(),
        }
    }

    /// The file is whole.
    pub(crate) fn keep(self) -> Result<(), Failure> {
        match self.place {
            Place::Special(_) => Ok(()),
            Place::New(new) => new.persist().at(&self.path),
        }
    }
}

/// What tells a file from all others, whatever name it has.
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
