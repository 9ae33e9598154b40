//! Tar archives: POSIX (v7, ustar, pax), GNU (old and new) and star, read entry by entry into a
//! [`Sink`]: the tree of a build, or the caller of [`super::Archive::unpack`].
//!
//! The reader is our own, because a build needs positions, sparse maps of all formats and raw pax
//! records of an archive, and ten million headers must pass in seconds.

mod forward;
mod header;
pub(super) mod input;
mod pax;
mod spool;

use header::{Header, more_sparse};
use input::{BLOCK, Input};
use pax::{Extended, Record, decimal, records};

use super::builder::{Attributes, DataPlace, NewNode, TreeBuilder};
use super::error::{EntryName, Flaw, SourceError};
use super::node::Segment;

/// More than all extended attributes of an inode and a long sparse map need.
const EXTENDED_MAX: u64 = 64 << 20;
/// More than any path that the kernel takes.
const LONG_NAME_MAX: u64 = 1 << 20;

/// The kind of the archive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Flavor {
    /// All names are ordinary names. The end-of-archive block must be present.
    Archive,
    /// A layer of an OCI image: `.wh.` names remove files below. Its digest proves that it is
    /// complete.
    Layer,
}

/// Takes the entries of an archive in their order.
pub(super) trait Sink {
    type Error: From<Flaw>;

    /// A regular file, whose stored bytes are next in `input`: they must be read or passed over.
    fn put_file(
        &mut self,
        input: &mut Input,
        path: &[u8],
        attributes: &mut Attributes,
        file: &StoredFile,
    ) -> Result<(), Self::Error>;

    /// A file of another type.
    fn put(
        &mut self,
        input: &mut Input,
        path: &[u8],
        attributes: &mut Attributes,
        new: NewNode<'_>,
    ) -> Result<(), Self::Error>;

    /// A further name of the file at `target`.
    fn put_link(
        &mut self,
        input: &mut Input,
        path: &[u8],
        target: &[u8],
        attributes: &mut Attributes,
    ) -> Result<(), Self::Error>;

    /// A whiteout of a layer: it hides a name of a directory, or without one all names.
    fn hide(&mut self, directory: &[u8], name: Option<&[u8]>) -> Result<(), Self::Error>;
}

/// The contents of a regular file as an archive has them.
#[derive(Clone, Debug)]
pub(super) struct StoredFile {
    /// Number of bytes in the archive.
    pub(super) stored: u64,
    /// Number of bytes of the file, with its holes.
    pub(super) size: u64,
    /// Offset and length of each segment, the holes left out; `None`: all of it is stored.
    map: Option<Vec<(u64, u64)>>,
}

impl StoredFile {
    /// The segments of a sparse file whose bytes are stored from `position` on; `None` where it has
    /// no hole.
    pub(super) fn segments(&self, position: u64) -> Result<Option<Vec<Segment>>, Flaw> {
        let Some(map) = &self.map else { return Ok(None) };
        let segments = segments_of(map, self.stored, self.size, position)?;
        let is_dense = matches!(segments[..], [Segment { length, .. }] if length == self.size);
        Ok((!is_dense && self.size > 0).then_some(segments))
    }
}

impl Sink for TreeBuilder {
    type Error = Flaw;

    fn put_file(
        &mut self,
        input: &mut Input,
        path: &[u8],
        attributes: &mut Attributes,
        file: &StoredFile,
    ) -> Result<(), Flaw> {
        let position = input.data(file.stored)?;
        let segments = file.segments(position)?;
        let data = DataPlace::Archive(position);
        let new = NewNode::Regular { size: file.size, data, sparse: segments.as_deref() };
        self.insert(path, attributes, new).map(drop)
    }

    fn put(
        &mut self,
        _: &mut Input,
        path: &[u8],
        attributes: &mut Attributes,
        new: NewNode<'_>,
    ) -> Result<(), Flaw> {
        self.insert(path, attributes, new).map(drop)
    }

    fn put_link(
        &mut self,
        _: &mut Input,
        path: &[u8],
        target: &[u8],
        attributes: &mut Attributes,
    ) -> Result<(), Flaw> {
        self.link(path, target, attributes)
    }

    fn hide(&mut self, directory: &[u8], name: Option<&[u8]>) -> Result<(), Flaw> {
        self.whiteout(directory, name)
    }
}

/// Why the reading of an archive stopped, and where.
pub(super) struct Stopped<E> {
    pub(super) error: E,
    pub(super) place: TarPosition,
}

/// How far an archive was read.
pub(super) struct TarPosition {
    entry: Option<EntryName>,
    /// Of the entry's first header block.
    header: u64,
    reached: u64,
}

impl TarPosition {
    /// The error of the archive, where `flaw` is what stopped it.
    pub(super) fn error(self, archive: &str, flaw: Flaw) -> SourceError {
        let position = match flaw {
            Flaw::Truncated(_) | Flaw::Read(_) | Flaw::NoEnd => self.reached,
            _ => self.header,
        };
        archive_error(archive, self.entry, position, flaw)
    }
}

/// Reads an archive as the next layer of the tree.
pub(super) fn read(
    builder: &mut TreeBuilder,
    name: &str,
    input: &mut Input,
    flavor: Flavor,
) -> Result<(), SourceError> {
    let at_start = |flaw| archive_error(name, None, 0, flaw);
    let store = input.store(name).map_err(|error| at_start(Flaw::Read(error)))?;
    builder.add_store(store).map_err(at_start)?;
    entries(builder, input, flavor).map_err(|stopped| stopped.place.error(name, stopped.error))?;
    builder.end_layer();
    let end = input.position();
    input.finish().map_err(|flaw| archive_error(name, None, end, flaw))
}

/// Gives a sink all entries of an archive.
pub(super) fn entries<S: Sink>(
    sink: &mut S,
    input: &mut Input,
    flavor: Flavor,
) -> Result<(), Stopped<S::Error>> {
    let mut reader = Reader {
        sink,
        input,
        flavor,
        extended: Extended::default(),
        global: Vec::new(),
        header: Header([0; BLOCK]),
        link_data: 0,
        entry: EntryState { path: Vec::new(), position: 0 },
    };
    let result = reader.run();
    let EntryState { path, position } = std::mem::take(&mut reader.entry);
    let reached = reader.input.position();
    result.map_err(|error| {
        let entry = (!path.is_empty()).then_some(EntryName(path));
        Stopped { error, place: TarPosition { entry, header: position, reached } }
    })
}

/// The name of the first entry but the root directory, as its header has it: extended headers are
/// passed over. `None` where the archive has no entry, or does not begin with a header.
pub(super) fn first_name(input: &mut Input) -> Result<Option<Vec<u8>>, Flaw> {
    let mut header = Header([0; BLOCK]);
    while input.block(&mut header.0)? && header.check().is_ok() && !header.is_zero() {
        let name = header.name();
        let is_entry = !matches!(header.type_flag(), b'x' | b'X' | b'g' | b'L' | b'K' | b'V');
        if is_entry && !matches!(&*name, b"." | b"./") {
            return Ok(Some(name.into_owned()));
        }
        input.skip(header.size()?)?;
    }
    Ok(None)
}

/// An error of the archive as a whole, or of the entry that is named.
pub(super) fn archive_error(
    archive: &str,
    entry: Option<EntryName>,
    position: u64,
    flaw: Flaw,
) -> SourceError {
    SourceError::Archive { archive: archive.to_owned(), entry, position, flaw }
}

struct Reader<'a, S> {
    sink: &'a mut S,
    input: &'a mut Input,
    flavor: Flavor,
    /// For the next entry.
    extended: Extended,
    /// Records of global headers, for all entries that follow.
    global: Vec<Record>,
    header: Header,
    /// Bytes that the last entry, a hard link, claims to have: few archivers store them, most do
    /// not.
    link_data: u64,
    entry: EntryState,
}

/// For messages.
#[derive(Default)]
struct EntryState {
    path: Vec<u8>,
    /// Of the entry's first header block.
    position: u64,
}

impl<S: Sink> Reader<'_, S> {
    fn run(&mut self) -> Result<(), S::Error> {
        loop {
            if !self.extended.present {
                self.entry.position = self.input.position();
                self.entry.path.clear();
            }
            let at = self.input.position();
            if !self.input.block(&mut self.header.0)? {
                return Ok(self.end_without_block(at)?);
            }
            let checked = self.header.check();
            // The block of zeros has no checksum.
            if checked.is_err() && self.header.is_zero() {
                return Ok(self.end()?);
            }
            match checked {
                Ok(()) => {
                    self.link_data = 0;
                    self.header_block()?;
                }
                Err(_) if self.link_data > 0 => self.skip_link_data()?,
                Err(_) if at == 0 => return Err(Flaw::NotTar.into()),
                Err(flaw) => return Err(flaw.into()),
            }
        }
    }

    fn end_without_block(&self, at: u64) -> Result<(), Flaw> {
        match self.flavor {
            Flavor::Layer if at > 0 => self.end(),
            _ => Err(Flaw::NoEnd),
        }
    }

    fn end(&self) -> Result<(), Flaw> {
        if self.extended.present { Err(Flaw::LoneExtension) } else { Ok(()) }
    }

    /// The block that was just read was the first of a hard link's contents.
    fn skip_link_data(&mut self) -> Result<(), Flaw> {
        let size = std::mem::take(&mut self.link_data);
        self.input.skip(size.saturating_sub(BLOCK as u64))
    }

    fn header_block(&mut self) -> Result<(), S::Error> {
        match self.header.type_flag() {
            b'x' | b'X' => {
                let data = self.extension("pax header", EXTENDED_MAX)?;
                self.begin_extended()?;
                for record in records(&data) {
                    let (key, value) = record?;
                    self.extended.apply(key, value)?;
                }
                if let Some(path) = &self.extended.path {
                    self.entry.path.clone_from(path);
                }
            }
            b'g' => {
                let data = self.extension("global pax header", EXTENDED_MAX)?;
                for record in records(&data) {
                    let (key, value) = record?;
                    self.global.retain(|(other, _)| other != key);
                    if !value.is_empty() {
                        self.global.push((key.to_vec(), value.to_vec()));
                    }
                }
            }
            b'L' => {
                let name = self.long_name()?;
                self.entry.path.clone_from(&name);
                self.extended.path = Some(name);
            }
            b'K' => self.extended.link_path = Some(self.long_name()?),
            // A label of the whole archive.
            b'V' => self.input.skip(self.header.size()?)?,
            _ => {
                if !self.global.is_empty() {
                    self.begin_extended()?;
                }
                let mut extended = std::mem::take(&mut self.extended);
                self.entry(&mut extended)?;
            }
        }
        Ok(())
    }

    /// Global records come first, so that the entry's own override them.
    fn begin_extended(&mut self) -> Result<(), Flaw> {
        if !self.extended.present {
            self.extended.present = true;
            for (key, value) in &self.global {
                self.extended.apply(key, value)?;
            }
        }
        Ok(())
    }

    fn long_name(&mut self) -> Result<Vec<u8>, Flaw> {
        let mut name = self.extension("long name", LONG_NAME_MAX)?;
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        name.truncate(end);
        self.begin_extended()?;
        Ok(name)
    }

    fn extension(&mut self, what: &'static str, limit: u64) -> Result<Vec<u8>, Flaw> {
        let size = self.header.size()?;
        if size > limit {
            return Err(Flaw::TooLarge { what, size, limit });
        }
        let mut data = Vec::new();
        self.input.bytes(&mut data, size)?;
        Ok(data)
    }

    fn entry(&mut self, extended: &mut Extended) -> Result<(), S::Error> {
        let path = match extended.sparse.name.take().or_else(|| extended.path.take()) {
            Some(path) => path,
            None => {
                // The state's buffer is taken for the name and given back below: no allocation for
                // each entry.
                let mut path = std::mem::take(&mut self.entry.path);
                path.clear();
                path.extend_from_slice(&self.header.name());
                path
            }
        };
        let result = self.entry_at(&path, extended);
        self.entry.path = path;
        result
    }

    fn entry_at(&mut self, path: &[u8], extended: &mut Extended) -> Result<(), S::Error> {
        if path.is_empty() {
            return Err(Flaw::NoName.into());
        }
        let flag = self.header.type_flag();
        let size = match extended.size {
            Some(size) => size,
            None => self.header.size()?,
        };
        if self.flavor == Flavor::Layer && self.whiteout(path)? {
            return Ok(self.input.skip(if flag == b'0' || flag == 0 { size } else { 0 })?);
        }
        let mut attributes = self.attributes(extended)?;
        let new = match flag {
            b'0' | b'7' | 0 if path.ends_with(b"/") && size == 0 => NewNode::Directory,
            b'0' | b'7' | 0 => {
                return self.regular(path, &mut attributes, size, &mut extended.sparse);
            }
            b'S' => return self.old_gnu_sparse(path, &mut attributes, size),
            b'1' => {
                self.link_data = size;
                let header = self.header.link_name();
                let target = extended.link_path.as_deref().unwrap_or(header);
                return self.sink.put_link(self.input, path, target, &mut attributes);
            }
            b'2' => {
                let header = self.header.link_name();
                NewNode::Symlink(extended.link_path.as_deref().unwrap_or(header))
            }
            b'3' | b'4' => {
                let (major, minor) = self.header.device()?;
                let major = extended.dev_major.unwrap_or(major);
                let minor = extended.dev_minor.unwrap_or(minor);
                match flag {
                    b'3' => NewNode::CharDevice { major, minor },
                    _ => NewNode::BlockDevice { major, minor },
                }
            }
            b'5' => NewNode::Directory,
            b'6' => NewNode::Fifo,
            // A directory of an incremental archive; its contents are a list of names.
            b'D' => {
                self.input.skip(size)?;
                NewNode::Directory
            }
            _ => return Err(Flaw::EntryType { flag, what: unsupported(flag) }.into()),
        };
        self.sink.put(self.input, path, &mut attributes, new)
    }

    fn attributes(&self, extended: &mut Extended) -> Result<Attributes, Flaw> {
        let or = |given: Option<u64>, header: fn(&Header) -> Result<u64, Flaw>| {
            given.map_or_else(|| header(&self.header), Ok)
        };
        Ok(Attributes {
            mode: self.header.mode()?,
            uid: or(extended.uid, Header::uid)?,
            gid: or(extended.gid, Header::gid)?,
            mtime: extended.mtime.map_or_else(|| self.header.mtime(), Ok)?,
            atime: extended.atime,
            ctime: extended.ctime,
            xattrs: std::mem::take(&mut extended.xattrs),
        })
    }

    /// Whether the entry is a whiteout; then it is noted.
    fn whiteout(&mut self, path: &[u8]) -> Result<bool, S::Error> {
        const MARK: &[u8] = b".wh.";
        const OPAQUE: &[u8] = b".wh..wh..opq";
        let start = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let (directory, name) = path.split_at(start);
        let Some(hidden) = name.strip_prefix(MARK) else { return Ok(false) };
        match name {
            OPAQUE => self.sink.hide(directory, None)?,
            // Other names of this form are AUFS's own bookkeeping.
            _ if hidden.starts_with(MARK) => {}
            _ if hidden.is_empty() => return Err(Flaw::Whiteout.into()),
            _ => self.sink.hide(directory, Some(hidden))?,
        }
        Ok(true)
    }

    fn regular(
        &mut self,
        path: &[u8],
        attributes: &mut Attributes,
        size: u64,
        sparse: &mut pax::SparseRecords,
    ) -> Result<(), S::Error> {
        let file = if sparse.is_in_data()? {
            let (map, taken) = self.map_in_data(size)?;
            let real_size = sparse.real_size.ok_or(Flaw::SparseMap("no GNU.sparse.realsize"))?;
            let stored = size.checked_sub(taken);
            let stored = stored.ok_or(Flaw::SparseMap("it is longer than the entry"))?;
            StoredFile { stored, size: real_size, map: Some(map) }
        } else if let Some(map) = sparse.map.take() {
            let real_size = sparse.real_size.ok_or(Flaw::SparseMap("no GNU.sparse.size"))?;
            StoredFile { stored: size, size: real_size, map: Some(map) }
        } else {
            StoredFile { stored: size, size, map: None }
        };
        self.sink.put_file(self.input, path, attributes, &file)
    }

    /// Format 1.0: decimal numbers, one a line, first how many segments; filled up to a block.
    /// Gives the bytes taken.
    fn map_in_data(&mut self, size: u64) -> Result<(Vec<(u64, u64)>, u64), Flaw> {
        let mut lines = MapLines { block: [0; BLOCK], at: BLOCK, taken: 0, size };
        let count = lines.number(self.input)?;
        let mut map = Vec::new();
        for _ in 0..count {
            map.push((lines.number(self.input)?, lines.number(self.input)?));
        }
        Ok((map, lines.taken))
    }

    fn old_gnu_sparse(
        &mut self,
        path: &[u8],
        attributes: &mut Attributes,
        stored: u64,
    ) -> Result<(), S::Error> {
        let mut map = Vec::new();
        let mut more = self.header.sparse(&mut map)?;
        let size = self.header.real_size()?;
        let mut block = [0; BLOCK];
        while more {
            if !self.input.block(&mut block)? {
                return Err(Flaw::Truncated("a sparse map").into());
            }
            more = more_sparse(&block, &mut map)?;
        }
        let file = StoredFile { stored, size, map: Some(map) };
        self.sink.put_file(self.input, path, attributes, &file)
    }
}

/// The meaning of a type flag that is not read.
fn unsupported(flag: u8) -> &'static str {
    match flag {
        b'M' => "continued from another volume",
        b'N' => "old GNU long names",
        b'A' => "Solaris ACL",
        b'I' => "inode without contents",
        _ => "unknown",
    }
}

/// Checks a sparse map and gives each segment its position; segments that touch become one.
fn segments_of(
    map: &[(u64, u64)],
    stored: u64,
    size: u64,
    position: u64,
) -> Result<Vec<Segment>, Flaw> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut end = 0;
    let mut used = 0;
    for &(offset, length) in map {
        if offset < end {
            return Err(Flaw::SparseMap("its segments overlap or are not in order"));
        }
        let segment_end = offset.checked_add(length).filter(|&end| end <= size);
        let segment_end = segment_end.ok_or(Flaw::SparseMap("it goes past the file's size"))?;
        if used + length > stored {
            return Err(Flaw::SparseMap("it has more bytes than the entry"));
        }
        match segments.last_mut() {
            _ if length == 0 => {}
            Some(last) if offset == end => last.length += length,
            _ => segments.push(Segment { offset, length, position: position + used }),
        }
        end = segment_end;
        used += length;
    }
    if used != stored {
        return Err(Flaw::SparseMap("it has fewer bytes than the entry"));
    }
    Ok(segments)
}

struct MapLines {
    block: [u8; BLOCK],
    at: usize,
    taken: u64,
    /// Of the entry: the map cannot be longer.
    size: u64,
}

impl MapLines {
    fn number(&mut self, input: &mut Input) -> Result<u64, Flaw> {
        /// More digits than any number of 64 bits.
        const DIGITS_MAX: usize = 20;
        let mut line = [0; DIGITS_MAX];
        for count in 0..=DIGITS_MAX {
            let byte = self.byte(input)?;
            if byte == b'\n' {
                let number = decimal(&line[..count]);
                return number.ok_or(Flaw::SparseMap("a line of it is not a number"));
            }
            let slot = line.get_mut(count);
            *slot.ok_or(Flaw::SparseMap("a line of it is too long"))? = byte;
        }
        Err(Flaw::SparseMap("a line of it is too long"))
    }

    fn byte(&mut self, input: &mut Input) -> Result<u8, Flaw> {
        if self.at == BLOCK {
            if self.taken >= self.size {
                return Err(Flaw::SparseMap("it is longer than the entry"));
            }
            if !input.block(&mut self.block)? {
                return Err(Flaw::Truncated("a sparse map"));
            }
            self.at = 0;
            self.taken += BLOCK as u64;
        }
        self.at += 1;
        Ok(self.block[self.at - 1])
    }
}
