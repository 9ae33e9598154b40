//! Where file contents are: archives and spools read by position, and directories of the host.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;

use super::ahead::ReadAhead;
use super::error::{EntryName, Flaw, SourceError};
use super::tree::{NameRef, Names, NodeId, NodeKind, Tree, path_of};

/// Something that holds contents.
#[derive(Debug)]
pub(super) enum Store {
    /// A seekable archive, or the spool of one that is not.
    Archive {
        /// As it was given, for messages.
        name: String,
        file: File,
        /// A spool once more, to be read around the page cache.
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

    const fn unpacked(data: u64) -> Self {
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

    fn open_file(&self, name: HostName, names: &Names) -> io::Result<OwnedFd> {
        let mut parts = self.components(name.directory, names);
        parts.push(names.get(name.name));
        self.open_below(parts, FILE_FLAGS)
    }

    /// Opens what lies at the path of these components, never through a symlink, in as few steps as the kernel's limit
    /// for one path allows.
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

/// openat2 where the kernel has it: no component may be a symlink. Without it only the last one is looked at.
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

/// An open regular file of a tree. Reading is by position and needs no `&mut`, so that threads may share it.
#[derive(Debug)]
pub struct Content<'t> {
    tree: &'t Tree,
    node: NodeId,
    /// `None` in an archive, which the store keeps open.
    opened: Option<File>,
}

impl<'t> Content<'t> {
    pub(super) fn open(tree: &'t Tree, id: NodeId) -> Result<Self, SourceError> {
        let node = tree.node(id);
        assert_eq!(node.kind(), NodeKind::Regular, "contents of node {id:?}");
        let opened = match &tree.stores[usize::from(node.store)] {
            Store::Archive { .. } => None,
            Store::Directory(host) => {
                let name = HostName::unpacked(node.data);
                let failed =
                    |error| SourceError::io(display(host, name, &tree.names), "open it", error);
                Some(File::from(host.open_file(name, &tree.names).map_err(failed)?))
            }
        };
        let content = Self { tree, node: id, opened };
        content.check_unchanged()?;
        Ok(content)
    }

    /// The file that [`super::Segment::position`] speaks of.
    pub fn file(&self) -> &File {
        match (&self.opened, &self.tree.stores[usize::from(self.tree.node(self.node).store)]) {
            (Some(file), _) | (None, Store::Archive { file, .. }) => file,
            (None, Store::Directory(_)) => unreachable!("a host file is opened before it is read"),
        }
    }

    /// Fills `buffer` from `offset` of the file on; holes read as zeros.
    ///
    /// # Errors
    /// [`SourceError`] naming the file, if it cannot be read or ends before its size.
    ///
    /// # Panics
    /// If the range goes past the file's size.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), SourceError> {
        let read = |bytes: &mut [u8], position| self.file().read_exact_at(bytes, position);
        self.read_by(read, buffer, offset)
    }

    /// As [`Self::read_exact_at`], for one that reads many files in their order: small reads of a spool become large ones.
    ///
    /// # Errors
    /// As [`Self::read_exact_at`].
    ///
    /// # Panics
    /// As [`Self::read_exact_at`].
    pub fn read_with(
        &self,
        ahead: &mut ReadAhead,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<(), SourceError> {
        let store = self.tree.node(self.node).store;
        match &self.tree.stores[usize::from(store)] {
            Store::Archive { direct: Some(direct), .. } => {
                let read = |bytes: &mut [u8], at| ahead.read_exact_at(store, direct, bytes, at);
                self.read_by(read, buffer, offset)
            }
            _ => self.read_exact_at(buffer, offset),
        }
    }

    /// `read` fills bytes from a position of [`Self::file`] on.
    fn read_by(
        &self,
        mut read: impl FnMut(&mut [u8], u64) -> io::Result<()>,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<(), SourceError> {
        let size = self.tree.node(self.node).size();
        let end = offset.checked_add(buffer.len() as u64).filter(|&end| end <= size);
        let end = end.unwrap_or_else(|| {
            panic!("read of {} bytes at {offset} of a file of {size}", buffer.len())
        });
        let mut at = offset;
        let (whole, mapped) = self.tree.segment_lists(self.node);
        let first = mapped.partition_point(|segment| segment.offset + segment.length <= offset);
        for segment in whole.iter().chain(&mapped[first..]) {
            if segment.offset >= end {
                break;
            }
            let from = segment.offset.max(offset);
            let to = (segment.offset + segment.length).min(end);
            let range = |from: u64, to: u64| (from - offset) as usize..(to - offset) as usize;
            buffer[range(at, from)].fill(0);
            let position = segment.position + (from - segment.offset);
            read(&mut buffer[range(from, to)], position).map_err(|error| self.failed(error))?;
            at = to;
        }
        buffer[(at - offset) as usize..].fill(0);
        Ok(())
    }

    /// Says whether a file of the host still has the size that the tree says: call it after the last read.
    ///
    /// # Errors
    /// [`Flaw::Changed`] or [`Flaw::Replaced`], naming the file.
    pub fn check_unchanged(&self) -> Result<(), SourceError> {
        let Some(file) = &self.opened else { return Ok(()) };
        let stat = fstat(file).map_err(|error| self.failed(error.into()))?;
        let (before, after) = (self.tree.node(self.node).size(), stat.st_size as u64);
        let flaw = if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            Flaw::Replaced
        } else if before != after {
            Flaw::Changed { before, after }
        } else {
            return Ok(());
        };
        Err(SourceError::Path { path: self.place(), flaw })
    }

    fn failed(&self, error: io::Error) -> SourceError {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            let before = self.tree.node(self.node).size();
            let after = self.file().metadata().map_or(0, |metadata| metadata.len());
            let flaw = match self.opened {
                Some(_) => Flaw::Changed { before, after },
                None => Flaw::Truncated("the contents of a file"),
            };
            return SourceError::Path { path: self.place(), flaw };
        }
        SourceError::io(self.place(), "read it", error)
    }

    /// The host's path, or the archive and the path in the image.
    fn place(&self) -> EntryName {
        let node = self.tree.node(self.node);
        match &self.tree.stores[usize::from(node.store)] {
            Store::Directory(host) => {
                display(host, HostName::unpacked(node.data), &self.tree.names)
            }
            Store::Archive { name, .. } => {
                let mut place = format!("{name}: entry ").into_bytes();
                place.extend(path_of(&self.tree.dirents, &self.tree.names, self.node));
                EntryName(place)
            }
        }
    }
}

fn display(host: &HostTree, name: HostName, names: &Names) -> EntryName {
    host.display(name.directory, names.get(name.name), names)
}
