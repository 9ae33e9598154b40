//! Directories read.

use crate::fs::Inner;
use crate::metadata::Metadata;
use crate::path_error::PathError;
use extant_ondisk::InodeNo;
use extant_ondisk::dirent::FileType as EntryType;
use extant_ondisk::inode::FileType;
use extant_reader::{DirEntry as RawEntry, Error as Cause, VolumeRead};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Entries that are read at once.
const BATCH: usize = 256;

/// The entries of a directory, without `.` and `..`, in the volume's order.
///
/// Names made or removed during the listing may or may not show; every other name shows once. A
/// corrupt block of the directory is an error among the entries, which continue after it.
#[derive(Debug)]
pub struct ReadDir {
    inner: Arc<Inner>,
    dir: InodeNo,
    path: Arc<Path>,
    waiting: VecDeque<Result<RawEntry, Cause>>,
    /// Where the next batch begins; `None` at the end.
    next: Option<u64>,
}

impl ReadDir {
    pub(crate) fn new(inner: Arc<Inner>, dir: InodeNo, path: &Path) -> Self {
        Self { inner, dir, path: path.into(), waiting: VecDeque::new(), next: Some(0) }
    }

    fn fill(&mut self, from: u64) -> Result<(), Cause> {
        self.next = None;
        let mut count = 0;
        for found in self.inner.volume().read_dir(self.dir, from)? {
            if let Ok(entry) = &found {
                self.next = Some(entry.cookie);
                count += 1;
            }
            if !matches!(&found, Ok(entry) if matches!(&entry.name[..], b"." | b"..")) {
                self.waiting.push_back(found);
            }
            // A batch ends with an entry: the errors after its cookie belong to the next one.
            if count == BATCH {
                return Ok(());
            }
        }
        self.next = None;
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry, PathError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(found) = self.waiting.pop_front() {
                let named = |found: RawEntry| DirEntry {
                    inner: self.inner.clone(),
                    dir: self.path.clone(),
                    inode: found.inode,
                    file_type: found.file_type,
                    name: OsString::from_vec(found.name),
                };
                return Some(found.map(named).map_err(|cause| PathError::at(&self.path, cause)));
            }
            let from = self.next?;
            if let Err(cause) = self.fill(from) {
                return Some(Err(PathError::at(&self.path, cause)));
            }
        }
    }
}

/// A name of a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    inner: Arc<Inner>,
    dir: Arc<Path>,
    inode: InodeNo,
    file_type: EntryType,
    name: OsString,
}

impl DirEntry {
    /// The name.
    pub fn file_name(&self) -> &OsStr {
        &self.name
    }

    /// The directory's path, as it was given, with the name.
    pub fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }

    /// Number of the inode.
    pub fn inode(&self) -> InodeNo {
        self.inode
    }

    /// The file type that the directory stores; only where it stores none, the inode is read.
    ///
    /// # Errors
    /// As [`Self::metadata`].
    pub fn file_type(&self) -> Result<FileType, PathError> {
        Ok(match self.file_type {
            EntryType::Unknown => return self.metadata().map(|metadata| metadata.file_type()),
            EntryType::Regular => FileType::Regular,
            EntryType::Directory => FileType::Directory,
            EntryType::CharDevice => FileType::CharDevice,
            EntryType::BlockDevice => FileType::BlockDevice,
            EntryType::Fifo => FileType::Fifo,
            EntryType::Socket => FileType::Socket,
            EntryType::Symlink => FileType::Symlink,
        })
    }

    /// The file itself: a symbolic link is not followed.
    ///
    /// # Errors
    /// The file was removed since, or is broken.
    pub fn metadata(&self) -> Result<Metadata, PathError> {
        self.inner.metadata(self.inode).map_err(|cause| PathError::at(&self.path(), cause))
    }

    /// The name's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.name.as_bytes()
    }
}
