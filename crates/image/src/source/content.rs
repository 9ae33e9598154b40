//! Contents of the files of a tree.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{FileType, fstat};

use super::error::{EntryName, Flaw, SourceError};
use super::node::{Names, NodeId, NodeKind, path_of};
use super::prefetch::SourcePrefetch;
use super::store::{HostName, HostTree, Store};
use super::tree::Tree;

impl Tree {
    /// Opens a regular file's contents for reading by position; in a source directory this opens
    /// the file.
    ///
    /// # Errors
    /// [`SourceError`] naming the file, if it cannot be opened or has changed its size.
    pub fn open(&self, id: NodeId) -> Result<Content<'_>, SourceError> {
        Content::of(self, id)
    }
}

/// An open regular file of a tree. Reading is by position and needs no `&mut`, so that threads may
/// share it.
#[derive(Debug)]
pub struct Content<'t> {
    tree: &'t Tree,
    node: NodeId,
    /// `None` in an archive, which the store keeps open.
    opened: Option<File>,
}

impl<'t> Content<'t> {
    fn of(tree: &'t Tree, id: NodeId) -> Result<Self, SourceError> {
        let node = tree.node(id);
        assert_eq!(node.kind(), NodeKind::Regular, "contents of node {id:?}");
        let opened = match &tree.stores[usize::from(node.store)] {
            Store::Archive { .. } => None,
            Store::Directory(host) => {
                let name = HostName::unpacked(node.data);
                let failed =
                    |error| SourceError::io(display(host, name, &tree.names), "open", error);
                Some(File::from(host.open_file(name, &tree.names).map_err(failed)?))
            }
        };
        let content = Self { tree, node: id, opened };
        content.check_unchanged()?;
        Ok(content)
    }

    /// The file of [`super::Segment::position`].
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
    /// If the range exceeds the file's size.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), SourceError> {
        let read = |bytes: &mut [u8], position| self.file().read_exact_at(bytes, position);
        self.read_by(read, buffer, offset)
    }

    /// As [`Self::read_exact_at`], for one that reads many files in their order: small reads of a
    /// spool become large ones.
    ///
    /// # Errors
    /// As [`Self::read_exact_at`].
    ///
    /// # Panics
    /// As [`Self::read_exact_at`].
    pub fn read_with(
        &self,
        ahead: &mut SourcePrefetch,
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

    /// Checks that a file of the host still has the size in the tree: call it after the last read.
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
        SourceError::io(self.place(), "read", error)
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
