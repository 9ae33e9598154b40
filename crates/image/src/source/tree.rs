//! The tree that an image is built from: every name, inode and data position of all sources, held compactly.
//!
//! A million files cost about 90 bytes each, name included; a further hard link costs a dirent (12 bytes) and its
//! name. Contents stay where they are: a node says at which position of which store its data lie, and
//! [`Tree::open`] reads them, from any number of threads.
//!
//! The order is part of the meaning, and never depends on the host, on threads or on hash seeds:
//! - [`Tree::dirents`] lists a directory by the bytes of its names;
//! - node numbers follow the order of arrival: archives as they are written, directories level by level with sorted
//!   names, the root first. Walking [`Tree::nodes`] therefore reads each archive or spool from front to back.

use std::ops::Range;

use super::error::SourceError;
use super::store::{Content, Store};
use super::xattr::{XattrSetId, XattrSets, Xattrs};

/// File type bits of a mode, as in `stat`: the values that ext4 stores.
pub(super) mod file_type {
    pub(in crate::source) const MASK: u16 = 0o170_000;
    pub(in crate::source) const SOCKET: u16 = 0o140_000;
    pub(in crate::source) const SYMLINK: u16 = 0o120_000;
    pub(in crate::source) const REGULAR: u16 = 0o100_000;
    pub(in crate::source) const BLOCK: u16 = 0o060_000;
    pub(in crate::source) const DIRECTORY: u16 = 0o040_000;
    pub(in crate::source) const CHAR: u16 = 0o020_000;
    pub(in crate::source) const FIFO: u16 = 0o010_000;
}

/// Number of a node in its [`Tree`]: 0 is the root, then in the order of arrival, without gaps.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The root directory.
    pub const ROOT: Self = Self(0);

    /// The number as an index into the caller's own tables.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a node is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum NodeKind {
    /// A file with contents.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// A modification time: seconds since 1970, before it negative, and the nanoseconds that follow them.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Mtime {
    /// Whole seconds, rounded down.
    pub seconds: i64,
    /// 0 to 999,999,999, always forwards from `seconds`.
    pub nanoseconds: u32,
}

/// A device number that ext4 can store.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct DeviceNumber {
    /// At most [`Self::MAX_MAJOR`].
    pub major: u32,
    /// At most [`Self::MAX_MINOR`].
    pub minor: u32,
}

impl DeviceNumber {
    /// Twelve bits, as Linux has them.
    pub const MAX_MAJOR: u32 = 0xfff;
    /// Twenty bits, as Linux has them.
    pub const MAX_MINOR: u32 = 0xf_ffff;

    /// The 32-bit form (`new_encode_dev`): low minor, major, high minor.
    pub const fn encoded(self) -> u32 {
        (self.minor & 0xff) | (self.major << 8) | ((self.minor & !0xff) << 12)
    }

    const fn decoded(encoded: u32) -> Self {
        Self {
            major: (encoded >> 8) & 0xfff,
            minor: (encoded & 0xff) | ((encoded >> 12) & 0xfff00),
        }
    }
}

/// One inode to be: everything but its names. 56 bytes.
#[derive(Clone, Debug)]
pub struct Node {
    pub(super) mtime_seconds: i64,
    /// Regular: bytes; symlink: length of the target; device: its number, encoded; else 0.
    pub(super) size: u64,
    /// Regular: position in an archive's store, or a packed `HostName`; symlink: the target's place among the
    /// names; directory: first dirent and their count, packed when the tree is finished.
    pub(super) data: u64,
    pub(super) mtime_nanoseconds: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) links: u32,
    pub(super) xattrs: XattrSetId,
    /// 0: the file is one segment; else one more than the index of its sparse map.
    pub(super) map: u32,
    pub(super) mode: u16,
    pub(super) store: u16,
}

const _: () = assert!(size_of::<Node>() == 56);

impl Node {
    /// What it is.
    pub fn kind(&self) -> NodeKind {
        match self.mode & file_type::MASK {
            file_type::REGULAR => NodeKind::Regular,
            file_type::DIRECTORY => NodeKind::Directory,
            file_type::SYMLINK => NodeKind::Symlink,
            file_type::CHAR => NodeKind::CharDevice,
            file_type::BLOCK => NodeKind::BlockDevice,
            file_type::FIFO => NodeKind::Fifo,
            file_type::SOCKET => NodeKind::Socket,
            other => unreachable!("a node of type {other:o} was made"),
        }
    }

    /// Type and permission bits, as in `stat` and as ext4 stores them.
    pub const fn mode(&self) -> u16 {
        self.mode
    }

    /// Owner, after the owner options were applied.
    pub const fn uid(&self) -> u32 {
        self.uid
    }

    /// Group, after the owner options were applied.
    pub const fn gid(&self) -> u32 {
        self.gid
    }

    /// Modification time, clamped when that was asked for.
    pub const fn mtime(&self) -> Mtime {
        Mtime { seconds: self.mtime_seconds, nanoseconds: self.mtime_nanoseconds }
    }

    /// Bytes of a regular file or of a symlink's target; 0 for all else.
    pub fn size(&self) -> u64 {
        match self.kind() {
            NodeKind::Regular | NodeKind::Symlink => self.size,
            _ => 0,
        }
    }

    /// Names of the node in the tree; for a directory 2 and its subdirectories, which may pass ext4's limit.
    pub const fn links(&self) -> u32 {
        self.links
    }

    /// Number of the device; `None` unless it is one.
    pub fn device(&self) -> Option<DeviceNumber> {
        match self.kind() {
            NodeKind::CharDevice | NodeKind::BlockDevice => {
                Some(DeviceNumber::decoded(u32::try_from(self.size).unwrap_or(u32::MAX)))
            }
            _ => None,
        }
    }

    /// The node's set of extended attributes; equal sets have equal numbers.
    pub const fn xattr_set(&self) -> XattrSetId {
        self.xattrs
    }

    pub(super) const fn is_directory(&self) -> bool {
        self.mode & file_type::MASK == file_type::DIRECTORY
    }

    pub(super) fn set_dirents(&mut self, range: Range<usize>) {
        self.data = ((range.start as u64) << 32) | (range.end - range.start) as u64;
    }

    fn dirent_range(&self) -> Range<usize> {
        if !self.is_directory() {
            return 0..0;
        }
        let start = (self.data >> 32) as usize;
        start..start + (self.data & 0xffff_ffff) as usize
    }
}

/// Place of a name among all names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct NameRef(pub(super) u32);

/// One name of one node in one directory. 12 bytes; [`Tree::name`] gives the name.
#[derive(Clone, Copy, Debug)]
pub struct Dirent {
    pub(super) parent: NodeId,
    pub(super) name: NameRef,
    pub(super) node: NodeId,
}

impl Dirent {
    /// The directory that holds it.
    pub const fn parent(&self) -> NodeId {
        self.parent
    }

    /// The node that it names.
    pub const fn node(&self) -> NodeId {
        self.node
    }
}

/// A run of a regular file that has data; what lies between runs is a hole.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Segment {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes, never 0.
    pub length: u64,
    /// First byte in the store's file; in a source directory the same as `offset`.
    pub position: u64,
}

/// All names, each a length byte and its bytes; symlink targets lie between them without the length.
#[derive(Debug, Default)]
pub(super) struct Names(pub(super) Vec<u8>);

impl Names {
    pub(super) fn get(&self, name: NameRef) -> &[u8] {
        let at = name.0 as usize;
        let len = usize::from(self.0[at]);
        &self.0[at + 1..at + 1 + len]
    }
}

/// Everything that was read from the sources, laid over each other. See the module for its order.
#[derive(Debug)]
pub struct Tree {
    pub(super) nodes: Vec<Node>,
    /// By parent, then by the bytes of the name.
    pub(super) dirents: Vec<Dirent>,
    pub(super) names: Names,
    pub(super) xattrs: XattrSets,
    pub(super) segments: Vec<Segment>,
    /// Sparse maps: ranges of `segments`.
    pub(super) maps: Vec<Range<u32>>,
    pub(super) stores: Vec<Store>,
}

impl Tree {
    /// How many nodes there are, the root included.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// How many names there are in all directories; `.` and `..` are not among them.
    pub fn dirent_count(&self) -> usize {
        self.dirents.len()
    }

    /// All nodes in the order of arrival, which is also the order of their data in each store.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(index, node)| (NodeId(index as u32), node))
    }

    /// The node of that number.
    ///
    /// # Panics
    /// If the number is not one of this tree.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// A directory's entries by the bytes of their names; empty for any other node.
    pub fn dirents(&self, directory: NodeId) -> &[Dirent] {
        &self.dirents[self.node(directory).dirent_range()]
    }

    /// A dirent's name: 1 to 255 bytes, neither `.` nor `..`, without `/` and NUL.
    pub fn name(&self, dirent: &Dirent) -> &[u8] {
        self.names.get(dirent.name)
    }

    /// The entry of that name in a directory.
    pub fn lookup(&self, directory: NodeId, name: &[u8]) -> Option<&Dirent> {
        let dirents = self.dirents(directory);
        let found = dirents.binary_search_by(|dirent| self.name(dirent).cmp(name)).ok()?;
        Some(&dirents[found])
    }

    /// Where a symlink leads: 1 to 4095 bytes; empty for any other node.
    pub fn symlink_target(&self, id: NodeId) -> &[u8] {
        let node = self.node(id);
        if node.kind() != NodeKind::Symlink {
            return &[];
        }
        let at = node.data as usize;
        &self.names.0[at..at + node.size as usize]
    }

    /// A node's extended attributes by the bytes of their names. POSIX ACLs are in the kernel's binary form
    /// (version 2) under `system.posix_acl_access` and `system.posix_acl_default`.
    pub fn xattrs(&self, id: NodeId) -> Xattrs<'_> {
        self.xattrs.get(self.node(id).xattrs)
    }

    /// The attributes of a set.
    ///
    /// # Panics
    /// If the set is not one of this tree.
    pub fn xattr_set(&self, set: XattrSetId) -> Xattrs<'_> {
        self.xattrs.get(set)
    }

    /// All distinct sets of extended attributes; [`XattrSetId::NONE`] is the empty one.
    pub fn xattr_sets(&self) -> impl ExactSizeIterator<Item = (XattrSetId, Xattrs<'_>)> {
        self.xattrs.iter()
    }

    /// Names of extended attributes that ext4 has no place for, and how many nodes had them: they were left out.
    pub fn ignored_xattrs(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.xattrs.ignored()
    }

    /// The parts of a regular file that have data, in order; empty for any other node.
    pub fn segments(&self, id: NodeId) -> impl ExactSizeIterator<Item = Segment> + use<'_> {
        let (whole, mapped) = self.segment_lists(id);
        let count = usize::from(whole.is_some()) + mapped.len();
        (0..count).map(move |index| whole.unwrap_or_else(|| mapped[index]))
    }

    /// The only segment of a dense file, or those of a sparse one.
    pub(super) fn segment_lists(&self, id: NodeId) -> (Option<Segment>, &[Segment]) {
        let node = self.node(id);
        if node.kind() != NodeKind::Regular || node.size == 0 {
            return (None, &[]);
        }
        if node.map != 0 {
            let range = &self.maps[node.map as usize - 1];
            return (None, &self.segments[range.start as usize..range.end as usize]);
        }
        let position = match self.stores[usize::from(node.store)] {
            Store::Archive { .. } => node.data,
            Store::Directory(_) => 0,
        };
        (Some(Segment { offset: 0, length: node.size, position }), &[])
    }

    /// Whether the whole file is data: one segment, or none because it is empty.
    pub fn is_dense(&self, id: NodeId) -> bool {
        self.node(id).map == 0
    }

    /// Opens a regular file's contents for reading by position; in a source directory this opens the file.
    ///
    /// # Errors
    /// [`SourceError`] naming the file, if it cannot be opened or has changed its size.
    pub fn open(&self, id: NodeId) -> Result<Content<'_>, SourceError> {
        Content::open(self, id)
    }

    /// The first path of a node in the image, for messages: it searches all dirents.
    pub fn path_of(&self, id: NodeId) -> Vec<u8> {
        path_of(&self.dirents, &self.names, id)
    }
}

/// As [`Tree::path_of`]; a loop of parents, which only unreachable dirents can form, ends after `MAX_DEPTH`.
pub(super) fn path_of(dirents: &[Dirent], names: &Names, id: NodeId) -> Vec<u8> {
    const MAX_DEPTH: usize = 1 << 16;
    let mut parts = Vec::new();
    let mut at = id;
    while at != NodeId::ROOT && parts.len() < MAX_DEPTH {
        let Some(dirent) = dirents.iter().find(|dirent| dirent.node == at) else { break };
        parts.push(names.get(dirent.name));
        at = dirent.parent;
    }
    let mut path = Vec::new();
    for part in parts.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(part);
    }
    if path.is_empty() { b"/".to_vec() } else { path }
}
