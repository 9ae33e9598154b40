//! Nodes, names and their places in a tree.

use std::ops::Range;

use super::file_type;
use super::xattr::XattrSetId;

/// Number of a node in its tree: 0 is the root, then in the order of arrival, without gaps.
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

/// Kinds of nodes.
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

/// A time of a file: seconds since 1970, before it negative, and the nanoseconds that follow them.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FileTime {
    /// Whole seconds, rounded down.
    pub seconds: i64,
    /// 0 to 999,999,999, always forwards from `seconds`.
    pub nanoseconds: u32,
}

/// The times of a node that only some images take from the source.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OtherTimes {
    /// Last access.
    pub access: FileTime,
    /// Last change of the inode.
    pub change: FileTime,
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
    /// Regular: position in an archive's store, or a packed `HostName`; symlink: the target's place
    /// among the names; directory: first dirent and their count, packed when the tree is finished.
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
    /// Its type.
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

    /// Modification time, clamped if requested.
    pub const fn mtime(&self) -> FileTime {
        FileTime { seconds: self.mtime_seconds, nanoseconds: self.mtime_nanoseconds }
    }

    /// Bytes of a regular file or of a symlink's target; 0 for all else.
    pub fn size(&self) -> u64 {
        match self.kind() {
            NodeKind::Regular | NodeKind::Symlink => self.size,
            _ => 0,
        }
    }

    /// Names of the node in the tree; for a directory 2 and its subdirectories, which may pass
    /// ext4's limit.
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

    pub(super) fn dirent_range(&self) -> Range<usize> {
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

/// One name of one node in one directory. 12 bytes; [`Tree::name`](super::Tree::name) gives the
/// name.
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

/// A run of a regular file that has data; gaps between runs are holes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Segment {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes, never 0.
    pub length: u64,
    /// First byte in the store's file; in a source directory the same as `offset`.
    pub position: u64,
}

/// All names, each a length byte and its bytes; symlink targets lie between them without the
/// length.
#[derive(Debug, Default)]
pub(super) struct Names(pub(super) Vec<u8>);

impl Names {
    pub(super) fn get(&self, name: NameRef) -> &[u8] {
        let at = name.0 as usize;
        let len = usize::from(self.0[at]);
        &self.0[at + 1..at + 1 + len]
    }
}

/// As [`Tree::path_of`](super::Tree::path_of); a loop of parents, which only unreachable dirents
/// can form, ends after `MAX_DEPTH`.
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
