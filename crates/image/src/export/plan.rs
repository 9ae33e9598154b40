//! The archive as a list of chunks: headers as bytes, data as where they are.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use extant_ondisk::InodeNo;
use extant_ondisk::acl::Acl;
use extant_ondisk::inode::FileType;
use extant_reader::{AclKind, Error, LoadedInode, VolumeRead};

use super::header::{Member, MemberKind, RECORD, sparse_map};

/// Bytes of a chunk: read at once, written at once.
const CHUNK: usize = 1 << 20;
/// Holes smaller than this are written as zeros: a header of a sparse file costs about as much.
const LEAST_HOLE: u64 = 4096;

/// Something that the archive lacks, or has in another form than the volume.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// The path from the exported root, with a leading slash.
    pub path: Vec<u8>,
    /// The problem.
    pub what: String,
    /// Whether something is lost. A socket, which no archive can hold, is not counted as lost.
    pub is_loss: bool,
}

/// A piece of the archive that is read and written at once.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) parts: Vec<ChunkPart>,
    /// The bytes that [`ChunkPart::Bytes`] are ranges of.
    pub(super) text: Vec<u8>,
    pub(super) len: usize,
    pub(super) members: u64,
    pub(super) problems: Vec<Problem>,
}

/// A piece of a chunk.
#[derive(Debug)]
pub(super) enum ChunkPart {
    Bytes(Range<usize>),
    Data { file: Arc<LoadedInode>, path: Arc<[u8]>, offset: u64, len: usize },
    Zeros(usize),
}

/// Walks the tree and sends chunks on.
pub(super) struct Planner<'v, V, F> {
    volume: &'v V,
    /// Takes a chunk; false if the receiver has ended.
    send: F,
    chunk: Chunk,
    is_wanted: bool,
    /// The first name of every file with several.
    first_names: HashMap<InodeNo, Vec<u8>>,
    /// Directories that were walked: a damaged volume may hold loops.
    walked: HashSet<InodeNo>,
}

/// A name that is still to be walked: its path with a leading slash.
struct Waiting {
    parent: Arc<[u8]>,
    name: Vec<u8>,
    inode: InodeNo,
}

impl<'v, V: VolumeRead, F: FnMut(Chunk) -> bool> Planner<'v, V, F> {
    pub(super) fn new(volume: &'v V, send: F) -> Self {
        Self {
            volume,
            send,
            chunk: Chunk::default(),
            is_wanted: true,
            first_names: HashMap::new(),
            walked: HashSet::new(),
        }
    }

    /// Plans the tree below `start`, directories before what they hold, names in byte order.
    pub(super) fn run(mut self, start: LoadedInode, name: &[u8]) {
        let mut waiting = Vec::new();
        if start.is_dir() {
            self.walked.insert(start.number);
            let number = start.number;
            self.member(start, Vec::new());
            self.enter(number, Vec::new().into(), &mut waiting);
        } else {
            self.member(start, [b"/", name].concat());
        }
        while let Some(Waiting { parent, name, inode }) = waiting.pop() {
            if !self.is_wanted {
                return;
            }
            let path = [&parent[..], b"/", &name].concat();
            let file = match self.volume.inode(inode) {
                Ok(file) => file,
                Err(error) => {
                    self.lose(path, error);
                    continue;
                }
            };
            let is_dir = file.is_dir();
            if is_dir && !self.walked.insert(inode) {
                self.lose(path, "directory already written under another name; skipped");
                continue;
            }
            self.member(file, path.clone());
            if is_dir {
                self.enter(inode, path.into(), &mut waiting);
            }
        }
        self.hand_on();
    }

    fn enter(&mut self, dir: InodeNo, path: Arc<[u8]>, waiting: &mut Vec<Waiting>) {
        let first = waiting.len();
        match self.volume.read_dir(dir, 0) {
            Ok(entries) => {
                for entry in entries {
                    match entry {
                        Ok(entry) if matches!(&entry.name[..], b"." | b"..") => {}
                        Ok(entry) => waiting.push(Waiting {
                            parent: path.clone(),
                            name: entry.name,
                            inode: entry.inode,
                        }),
                        Err(error) => {
                            let what = self.volume.read_dir_message(dir, &error);
                            self.lose(path.to_vec(), what);
                        }
                    }
                }
            }
            Err(error) => self.lose(path.to_vec(), error),
        }
        // The last name is popped first.
        waiting[first..].sort_by(|a, b| b.name.cmp(&a.name));
    }

    fn lose(&mut self, path: Vec<u8>, what: impl ToString) {
        self.chunk.problems.push(Problem { path, what: what.to_string(), is_loss: true });
    }

    /// Plans one member. `path` has a leading slash, or is empty for the root.
    fn member(&mut self, file: LoadedInode, path: Vec<u8>) {
        let kind = match file.file_type() {
            FileType::Regular => MemberKind::Regular,
            FileType::Directory => MemberKind::Directory,
            FileType::Symlink => MemberKind::Symlink,
            FileType::CharDevice => MemberKind::CharDevice,
            FileType::BlockDevice => MemberKind::BlockDevice,
            FileType::Fifo => MemberKind::Fifo,
            FileType::Socket => {
                let what = "socket ignored".to_owned();
                self.chunk.problems.push(Problem { path, what, is_loss: false });
                return;
            }
        };
        if file.is_encrypted() && kind == MemberKind::Regular {
            return self.lose(path, "cannot read encrypted contents");
        }
        let mut name = [b".", &path[..]].concat();
        if kind == MemberKind::Directory {
            name.push(b'/');
        } else if file.links > 1
            && let Some(first) = self.first_names.get(&file.number)
        {
            let first = first.clone();
            return self.hard_link(&file, &name, &first);
        }
        let link = match kind {
            MemberKind::Symlink => self.volume.read_link(file.number),
            _ => Ok(Vec::new()),
        };
        let link = match link {
            Ok(link) => link,
            Err(error) => return self.lose(path, error),
        };
        let attributes = match Attributes::of(self.volume, &file) {
            Ok(attributes) => attributes,
            Err(error) => {
                self.lose(path.clone(), format_args!("extended attributes not written: {error}"));
                Attributes::default()
            }
        };
        let data = match Data::of(self.volume, &file, kind) {
            Ok(data) => data,
            Err(error) => return self.lose(path, error),
        };
        let member = Member {
            kind,
            path: &name,
            link: &link,
            mode: file.permissions(),
            uid: file.uid,
            gid: file.gid,
            mtime: file.mtime,
            stored_size: data.map.len() as u64 + data.len(),
            sparse_size: (!data.map.is_empty()).then_some(file.size),
            device: file.device().map(|device| (device.major, device.minor)),
            xattrs: &attributes.xattrs,
            access_acl: attributes.access.as_ref(),
            default_acl: attributes.default.as_ref(),
        };
        self.head(&member);
        if kind != MemberKind::Directory && file.links > 1 {
            // Only a member that is in the archive can be linked to.
            self.first_names.insert(file.number, name);
        }
        self.bytes(&data.map);
        self.data(file, path, &data.segments);
    }

    fn hard_link(&mut self, file: &LoadedInode, name: &[u8], first: &[u8]) {
        self.head(&Member {
            kind: MemberKind::HardLink,
            path: name,
            link: first,
            mode: file.permissions(),
            uid: file.uid,
            gid: file.gid,
            mtime: file.mtime,
            stored_size: 0,
            sparse_size: None,
            device: None,
            xattrs: &[],
            access_acl: None,
            default_acl: None,
        });
    }

    fn head(&mut self, member: &Member<'_>) {
        let mut text = Vec::with_capacity(2 * RECORD);
        member.write(&mut text);
        self.bytes(&text);
        self.chunk.members += 1;
    }

    fn bytes(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let start = self.chunk.text.len();
        self.chunk.text.extend(bytes);
        let end = self.chunk.text.len();
        match self.chunk.parts.last_mut() {
            Some(ChunkPart::Bytes(range)) if range.end == start => range.end = end,
            _ => self.chunk.parts.push(ChunkPart::Bytes(start..end)),
        }
        self.chunk.len += bytes.len();
        self.hand_on_full();
    }

    /// Plans the segments one after the other, and zeros to the end of the record.
    fn data(&mut self, file: LoadedInode, path: Vec<u8>, segments: &[Range<u64>]) {
        let (file, path) = (Arc::new(file), Arc::<[u8]>::from(path));
        let mut total = 0_u64;
        for segment in segments {
            let mut offset = segment.start;
            while offset < segment.end && self.is_wanted {
                let room = CHUNK.saturating_sub(self.chunk.len).max(1) as u64;
                let len = (segment.end - offset).min(room);
                self.chunk.parts.push(ChunkPart::Data {
                    file: file.clone(),
                    path: path.clone(),
                    offset,
                    len: len as usize, // at most CHUNK
                });
                self.chunk.len += len as usize;
                offset += len;
                self.hand_on_full();
            }
            total += segment.end - segment.start;
        }
        let padding = (total.next_multiple_of(RECORD as u64) - total) as usize;
        if padding > 0 {
            self.chunk.parts.push(ChunkPart::Zeros(padding));
            self.chunk.len += padding;
            self.hand_on_full();
        }
    }

    fn hand_on_full(&mut self) {
        if self.chunk.len >= CHUNK {
            self.hand_on();
        }
    }

    fn hand_on(&mut self) {
        let chunk = std::mem::take(&mut self.chunk);
        self.is_wanted = self.is_wanted && (self.send)(chunk);
    }
}

/// The data of a file after its header.
#[derive(Default)]
struct Data {
    /// The map of a sparse file; empty for others.
    map: Vec<u8>,
    segments: Vec<Range<u64>>,
}

impl Data {
    fn of<V: VolumeRead>(volume: &V, file: &LoadedInode, kind: MemberKind) -> Result<Self, Error> {
        if kind != MemberKind::Regular || file.size == 0 {
            return Ok(Self::default());
        }
        let whole = Self { map: Vec::new(), segments: std::iter::once(0..file.size).collect() };
        // A file that has all its blocks has no holes. The count may be too high, never too low;
        // but one that is higher than the volume is a lie, and so may be the size.
        let geometry = volume.geometry();
        let all = geometry.blocks_count.saturating_mul(u64::from(geometry.block_size));
        let has_all_blocks = (file.size..=all).contains(&file.space(geometry));
        if has_all_blocks && !has_room_past(file) {
            return Ok(whole);
        }
        let mut segments: Vec<Range<u64>> = Vec::new();
        for segment in volume.data_segments(file.number)? {
            let segment = segment?;
            match segments.last_mut() {
                Some(last) if segment.start - last.end < LEAST_HOLE => last.end = segment.end,
                None if segment.start < LEAST_HOLE => segments.push(0..segment.end),
                _ => segments.push(segment),
            }
        }
        let holes = file.size - segments.iter().map(|it| it.end - it.start).sum::<u64>();
        if holes < LEAST_HOLE {
            return Ok(whole);
        }
        Ok(Self { map: sparse_map(&segments, file.size), segments })
    }

    fn len(&self) -> u64 {
        self.segments.iter().map(|segment| segment.end - segment.start).sum()
    }
}

/// Whether counted blocks may hold no data: unwritten ones, or some past the end. Only extents show
/// it.
fn has_room_past(file: &LoadedInode) -> bool {
    file.is_extent_mapped()
}

/// Extended attributes, access control lists apart.
#[derive(Default)]
struct Attributes {
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    access: Option<Acl>,
    default: Option<Acl>,
}

impl Attributes {
    fn of<V: VolumeRead>(volume: &V, file: &LoadedInode) -> Result<Self, Error> {
        if file.xattr_space.is_empty() && file.file_acl.0 == 0 {
            return Ok(Self::default());
        }
        let mut found = Self::default();
        for info in volume.xattrs(file.number)? {
            match &info.name[..] {
                b"system.posix_acl_access" => {
                    found.access = volume.acl(file.number, AclKind::Access)?;
                }
                b"system.posix_acl_default" => {
                    found.default = volume.acl(file.number, AclKind::Default)?;
                }
                name => {
                    let value = volume.xattr(file.number, name)?;
                    found.xattrs.push((info.name, value));
                }
            }
        }
        found.xattrs.sort();
        Ok(found)
    }
}
