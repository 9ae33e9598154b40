//! A tar archive that is unpacked elsewhere, entry by entry, in its own order.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::builder::{Attributes, FILE_MAX, NewNode, check_target, device};
use super::error::{EntryName, Flaw, SourceError};
use super::file_type;
use super::node::{DeviceNumber, FileTime, Segment};
use super::open_archive::{input_of, opened, standard_input};
use super::owner::Owners;
use super::tar::input::Input;
use super::tar::{Flavor, Sink, StoredFile, archive_error, entries};
use super::unpack::{self, Packing};

/// A tar archive, plain or packed by gzip, zstd or xz, that is read once.
pub struct Archive {
    name: EntryName,
    input: Input,
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archive").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How the entries of an archive are given.
#[derive(Clone, Debug, Default)]
pub struct Unpacking {
    /// Owners of the files.
    pub owners: Owners,
    /// SOURCE_DATE_EPOCH: seconds since 1970; later times become this one.
    pub latest: Option<i64>,
}

/// One entry of an archive, with attributes as they are to be stored.
#[derive(Debug)]
pub struct Member<'a> {
    /// Its path as the archive has it.
    pub path: &'a [u8],
    /// Its type.
    pub kind: MemberKind<'a>,
    /// Permission bits, with set-id and sticky; with an access list those of the list.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification.
    pub mtime: FileTime,
    /// Last access, where the archive has it.
    pub atime: Option<FileTime>,
    /// Full names and values of extended attributes, access control lists in the form of
    /// `setxattr`.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Names of extended attributes that ext4 cannot hold.
    pub ignored_xattrs: Vec<Vec<u8>>,
}

/// Types of entries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MemberKind<'a> {
    /// A file with contents.
    Regular {
        /// Number of bytes, with the holes.
        size: u64,
    },
    /// A directory.
    Directory,
    /// A symbolic link, and its target.
    Symlink(&'a [u8]),
    /// A further name of a file, and the path of its first one.
    HardLink(&'a [u8]),
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
    /// A named pipe.
    Fifo,
}

/// Why the unpacking ends early.
#[derive(Debug)]
pub enum Halt<E> {
    /// The archive is damaged.
    Archive(Flaw),
    /// The caller says so.
    Caller(E),
}

/// The function that is called for every entry.
pub type Each<'c, E> = &'c mut dyn FnMut(Member<'_>, &mut Contents<'_>) -> Result<(), Halt<E>>;

impl<E> From<Flaw> for Halt<E> {
    fn from(flaw: Flaw) -> Self {
        Self::Archive(flaw)
    }
}

impl Archive {
    /// Opens a file, a block device or a named pipe.
    ///
    /// # Errors
    /// It cannot be read, or is packed in a way that is not read here.
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        let (name, file) = opened(path)?;
        Self::of_file(name, file)
    }

    /// Standard input.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn standard_input() -> Result<Self, SourceError> {
        let (name, file) = standard_input()?;
        Self::of_file(name, file)
    }

    fn of_file(name: EntryName, file: File) -> Result<Self, SourceError> {
        let input = input_of(&name, file, Input::forward)?;
        Ok(Self { name, input })
    }

    /// The bytes of a reader, called `name` in messages.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn of_reader(name: &str, reader: impl Read + Send + 'static) -> Result<Self, SourceError> {
        let name = EntryName(name.as_bytes().to_vec());
        let peeked = unpack::peek(reader);
        let (start, reader) =
            peeked.map_err(|error| SourceError::io(name.clone(), "read", error))?;
        let input = Packing::of(&start)
            .and_then(|packing| unpack::unpacked(packing, reader))
            .and_then(Input::forward);
        let input = input.map_err(|flaw| archive_error(&name.to_string(), None, 0, flaw))?;
        Ok(Self { name, input })
    }

    /// Number of bytes of the unpacked archive, where they are known before.
    pub const fn size(&self) -> Option<u64> {
        self.input.size()
    }

    /// Calls `each` for every entry, in the archive's order. Contents that it does not read are
    /// passed over.
    ///
    /// # Errors
    /// A [`SourceError`] that names the entry and the byte where the archive is damaged, or the
    /// error of `each`.
    pub fn unpack<E>(mut self, options: &Unpacking, each: Each<'_, E>) -> Result<(), Halted<E>> {
        let name = self.name.to_string();
        let latest = options.latest.map(|seconds| FileTime { seconds, nanoseconds: 0 });
        let mut caller = Caller { owners: &options.owners, latest, each };
        entries(&mut caller, &mut self.input, Flavor::Archive).map_err(|stopped| match stopped
            .error
        {
            Halt::Archive(Flaw::NotTar) => {
                Halted::Archive(stopped.place.error(&name, Flaw::NotArchive))
            }
            Halt::Archive(flaw) => Halted::Archive(stopped.place.error(&name, flaw)),
            Halt::Caller(error) => Halted::Caller(error),
        })?;
        let end = self.input.position();
        let finished = self.input.finish();
        finished.map_err(|flaw| Halted::Archive(archive_error(&name, None, end, flaw)))
    }
}

/// Why an archive was not unpacked to its end.
#[derive(Debug)]
pub enum Halted<E> {
    /// The archive cannot be read or is damaged.
    Archive(SourceError),
    /// The caller ended it.
    Caller(E),
}

/// The contents of the entry at hand, from front to back.
pub struct Contents<'i> {
    input: &'i mut Input,
    /// Segments that were not read yet, the last first.
    segments: Vec<Segment>,
}

impl fmt::Debug for Contents<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contents").field("segments", &self.segments).finish_non_exhaustive()
    }
}

/// A part of a file's contents.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ContentChunk {
    /// Where it begins in the file.
    pub offset: u64,
    /// Its bytes: at least one.
    pub bytes: Vec<u8>,
}

impl Contents<'_> {
    /// The next bytes of the file, at most `most`; holes are left out. `None` at the end.
    ///
    /// # Errors
    /// The archive ends, or cannot be read.
    pub fn next(&mut self, most: usize) -> Result<Option<ContentChunk>, Flaw> {
        let Some(segment) = self.segments.last_mut() else { return Ok(None) };
        let len = segment.length.min(most as u64);
        let mut bytes = vec![0; len as usize];
        self.input.contents(&mut bytes)?;
        let offset = segment.offset;
        segment.offset += len;
        segment.length -= len;
        if segment.length == 0 {
            self.segments.pop();
        }
        Ok(Some(ContentChunk { offset, bytes }))
    }

    /// Bytes of the unpacked archive that have been read.
    pub const fn position(&self) -> u64 {
        self.input.position()
    }
}

/// Hands entries to the caller.
struct Caller<'c, E> {
    owners: &'c Owners,
    latest: Option<FileTime>,
    each: Each<'c, E>,
}

impl<E> Caller<'_, E> {
    fn call(
        &mut self,
        input: &mut Input,
        path: &[u8],
        attributes: &mut Attributes,
        (kind, file_type): (MemberKind<'_>, u16),
        segments: Vec<Segment>,
    ) -> Result<(), Halt<E>> {
        let mut mode = file_type | attributes.mode & 0o7777;
        let (xattrs, ignored_xattrs) = attributes.xattrs.take_stored(&mut mode, self.owners)?;
        let (uid, gid) = self.owners.apply(attributes.uid, attributes.gid)?;
        let clamped = |time: FileTime| self.latest.map_or(time, |latest| latest.min(time));
        let member = Member {
            path,
            kind,
            permissions: mode & 0o7777,
            uid,
            gid,
            mtime: clamped(attributes.mtime),
            atime: attributes.atime.map(clamped),
            xattrs,
            ignored_xattrs,
        };
        let mut contents = Contents { input, segments };
        (self.each)(member, &mut contents)?;
        for segment in std::mem::take(&mut contents.segments) {
            input.pass(segment.length)?;
        }
        Ok(())
    }
}

impl<E> Sink for Caller<'_, E> {
    type Error = Halt<E>;

    fn put_file(
        &mut self,
        input: &mut Input,
        path: &[u8],
        attributes: &mut Attributes,
        file: &StoredFile,
    ) -> Result<(), Halt<E>> {
        if file.size > FILE_MAX {
            return Err(Flaw::FileTooLarge(file.size).into());
        }
        let whole = || match file.size {
            0 => Vec::new(),
            length => vec![Segment { offset: 0, length, position: input.position() }],
        };
        let mut segments = file.segments(input.position())?.unwrap_or_else(whole);
        segments.reverse();
        let kind = (MemberKind::Regular { size: file.size }, file_type::REGULAR);
        self.call(input, path, attributes, kind, segments)?;
        Ok(input.pad(file.stored)?)
    }

    fn put(
        &mut self,
        input: &mut Input,
        path: &[u8],
        attributes: &mut Attributes,
        new: NewNode<'_>,
    ) -> Result<(), Halt<E>> {
        let kind = match new {
            NewNode::Directory => (MemberKind::Directory, file_type::DIRECTORY),
            NewNode::Symlink(target) => {
                check_target(target)?;
                (MemberKind::Symlink(target), file_type::SYMLINK)
            }
            NewNode::CharDevice { major, minor } => {
                (MemberKind::CharDevice(device(major, minor)?), file_type::CHAR)
            }
            NewNode::BlockDevice { major, minor } => {
                (MemberKind::BlockDevice(device(major, minor)?), file_type::BLOCK)
            }
            NewNode::Fifo => (MemberKind::Fifo, file_type::FIFO),
            NewNode::Regular { .. } | NewNode::Socket => {
                unreachable!("no entry of an archive is put so")
            }
        };
        self.call(input, path, attributes, kind, Vec::new())
    }

    fn put_link(
        &mut self,
        input: &mut Input,
        path: &[u8],
        target: &[u8],
        attributes: &mut Attributes,
    ) -> Result<(), Halt<E>> {
        let kind = (MemberKind::HardLink(target), file_type::REGULAR);
        self.call(input, path, attributes, kind, Vec::new())
    }

    fn hide(&mut self, _: &[u8], _: Option<&[u8]>) -> Result<(), Halt<E>> {
        unreachable!("an archive that is no layer has no whiteouts")
    }
}
