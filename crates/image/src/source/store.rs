//! Stores of file contents: archives and spools read by position, and directories of the host.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use super::error::EntryName;
use super::node::{NameRef, Names};
use super::unreadable;

/// Something that holds contents.
#[derive(Debug)]
pub(super) enum Store {
    /// A seekable archive, or the spool of one that is not.
    Archive {
        /// As it was given, for messages.
        name: String,
        file: File,
        /// A second handle of a spool, to be read around the page cache.
        direct: Option<File>,
    },
    Directory(HostTree),
}

/// A source directory: its descriptor, and how each of its directories is reached from it.
#[derive(Debug)]
pub(super) struct HostTree {
    pub(super) path: PathBuf,
    pub(super) root: OwnedFd,
    /// The first is the root, which has no name.
    pub(super) directories: Vec<HostDirectory>,
}

/// A directory's own name and the directory that holds it.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostDirectory {
    pub(super) parent: u32,
    pub(super) name: NameRef,
}

/// A file of a source directory: the directory's number and the name, as a node's `data`.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostName {
    pub(super) directory: u32,
    pub(super) name: NameRef,
}

impl HostName {
    pub(super) const fn packed(self) -> u64 {
        ((self.directory as u64) << 32) | self.name.0 as u64
    }

    pub(super) const fn unpacked(data: u64) -> Self {
        Self { directory: (data >> 32) as u32, name: NameRef(data as u32) }
    }
}

/// Longest relative path that is opened in one call; the kernel's PATH_MAX is 4096 with its NUL.
const STEP_MAX: usize = 3072;

impl HostTree {
    /// The components from the root down to `directory`.
    fn components<'n>(&self, directory: u32, names: &'n Names) -> Vec<&'n [u8]> {
        let mut parts = Vec::new();
        let mut at = directory;
        while at != 0 {
            let own = self.directories[at as usize];
            parts.push(names.get(own.name));
            at = own.parent;
        }
        parts.reverse();
        parts
    }

    /// The path of a directory from the root on, each name with a slash after it.
    pub(super) fn path_below_root(&self, directory: u32, names: &Names) -> Vec<u8> {
        let parts = self.components(directory, names).into_iter();
        parts.flat_map(|part| part.iter().copied().chain([b'/'])).collect()
    }

    /// The path on the host, for messages.
    pub(super) fn display(&self, directory: u32, name: &[u8], names: &Names) -> EntryName {
        let mut path = self.path.as_os_str().as_encoded_bytes().to_vec();
        let last = (!name.is_empty()).then_some(name);
        for part in self.components(directory, names).into_iter().chain(last) {
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(part);
        }
        EntryName(path)
    }

    /// Opens a directory, however deep it lies.
    pub(super) fn open_directory(&self, directory: u32, names: &Names) -> io::Result<OwnedFd> {
        self.open_below(self.components(directory, names), DIRECTORY_FLAGS)
    }

    pub(super) fn open_file(&self, name: HostName, names: &Names) -> io::Result<OwnedFd> {
        let own = names.get(name.name);
        let mut parts = self.components(name.directory, names);
        parts.push(own);
        match self.open_below(parts, FILE_FLAGS) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let directory = self.open_directory(name.directory, names)?;
                unreadable::copy(directory.as_fd(), own).ok_or(error)
            }
            result => result,
        }
    }

    /// Opens the file at the path of these components, never through a symlink, in as few steps as
    /// the kernel's limit for one path allows.
    fn open_below(&self, parts: Vec<&[u8]>, flags: OFlags) -> io::Result<OwnedFd> {
        let mut reached: Option<OwnedFd> = None;
        let mut step = Vec::new();
        for part in parts {
            if step.len() + part.len() > STEP_MAX {
                let from = reached.as_ref().unwrap_or(&self.root);
                reached = Some(open_beneath(from.as_fd(), &step, DIRECTORY_FLAGS)?);
                step.clear();
            }
            if !step.is_empty() {
                step.push(b'/');
            }
            step.extend_from_slice(part);
        }
        if step.is_empty() {
            step.push(b'.');
        }
        let from = reached.as_ref().unwrap_or(&self.root);
        Ok(open_beneath(from.as_fd(), &step, flags)?)
    }
}

const DIRECTORY_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Without waiting, should the file have become a pipe.
const FILE_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// openat2 if the kernel has it: no component may be a symlink. Without it only the last one is
/// checked.
fn open_beneath(from: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    match openat2(from, path, flags, Mode::empty(), resolve) {
        // Some sandboxes refuse calls that they do not know with EPERM.
        Err(Errno::NOSYS | Errno::PERM) => openat(from, path, flags, Mode::empty()),
        result => result,
    }
}

/// Opens a file of a directory.
pub(super) fn open_regular(directory: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    openat(directory, name, FILE_FLAGS, Mode::empty())
}
