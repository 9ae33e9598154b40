//! A POSIX tree in memory: what each call must do.
//!
//! A step is judged in two moves: [`Model::expect`] says whether it succeeds, [`Model::apply`] takes what the subject
//! answered, checks it and changes the tree. Where several rules forbid a call, any of their errors is right: which one is
//! looked at first is the implementation's.

mod apply;
mod data;
mod expect;
mod reading;
mod tree;

use super::acl::AclEntry;
use super::{Clock, Content, FileId, Stamp};
use crate::Kind;
use reading::Reading;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes of the longest name.
const MAX_NAME: usize = 255;
/// Most names of a file.
const MAX_LINKS: u64 = 65_000;
/// The directory that mke2fs makes: histories leave it alone.
pub(super) const LOST_AND_FOUND: FileId = FileId(u32::MAX);

/// What depends on the volume.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Collapse and insert range take multiples of this: bytes of a block, with bigalloc of a cluster.
    pub granule: u64,
    /// Bytes of a block.
    pub block_size: u64,
    /// New files are mapped by extents: unwritten blocks and moving ranges are possible.
    pub extents: bool,
    /// Bytes of the largest file.
    pub max_size: u64,
    /// Calls may fail for want of space or inodes at any time.
    pub may_fill: bool,
    /// A file is one inode: false where large attribute values take inodes of their own.
    pub counts_inodes: bool,
    /// Large attribute values are stored in inodes of their own: the block is no limit.
    pub large_xattrs: bool,
    /// Times after 2038 can be stored.
    pub wide_times: bool,
    /// A call that is refused may set times all the same: the kernel's fallocate does.
    pub refusals_touch: bool,
    /// Files belong to projects.
    pub projects: bool,
    /// The data of single files may go through the journal: there is one, and the subject lets its user say so.
    pub journalled_files: bool,
    /// The subject tells which ranges have blocks.
    pub tells_extents: bool,
}

impl Default for Rules {
    /// An ext4 volume with blocks of 4 KiB and room.
    fn default() -> Self {
        Self {
            granule: 4096,
            block_size: 4096,
            extents: true,
            max_size: 0xffff_ffff * 4096,
            may_fill: false,
            counts_inodes: true,
            large_xattrs: false,
            wide_times: true,
            refusals_touch: false,
            projects: false,
            journalled_files: false,
            tells_extents: true,
        }
    }
}

/// A file of the model.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the attributes of POSIX")]
pub struct File {
    pub kind: Kind,
    /// Permission bits with setuid, setgid and sticky.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Bytes of a regular file.
    pub size: u64,
    pub content: Content,
    pub target: Vec<u8>,
    pub device: Option<(u32, u32)>,
    /// The names of a directory.
    pub entries: BTreeMap<Vec<u8>, FileId>,
    /// Where the file is named.
    pub names: BTreeSet<(FileId, Vec<u8>)>,
    /// Times it is held open.
    pub held: u32,
    /// It may get a name although it has none: made by tmpfile and not unlinked since.
    pub linkable: bool,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub access_acl: Vec<AclEntry>,
    pub default_acl: Vec<AclEntry>,
    pub mtime: Stamp,
    pub ctime: Stamp,
    /// The last step that changed it in any way.
    pub changed: u32,
    /// Those of [`flags::ALL`](super::flags::ALL) that are set.
    pub flags: u32,
    pub project: u32,
    /// How far a directory was read in pieces.
    pub reading: Option<Reading>,
}

/// Whether a step succeeds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Expected {
    /// It does.
    Success,
    /// It fails with one of these.
    Failure(Vec<Errno>),
    /// Its files are not there (a step before was left out or failed), or the call cannot be made in this state.
    PassedOver,
}

/// The tree.
#[derive(Clone, Debug)]
pub struct Model {
    /// The volume's rules.
    pub rules: Rules,
    /// When the steps were.
    pub clock: Clock,
    files: BTreeMap<FileId, Arc<File>>,
    /// Inodes in use less the files here: told by the first statfs.
    other_inodes: Option<u64>,
}

impl Model {
    /// The tree of a fresh volume: the root and `lost+found`.
    pub fn new(rules: Rules) -> Self {
        let mut model =
            Self { rules, clock: Clock::default(), files: BTreeMap::new(), other_inodes: None };
        let dir = |mode| File {
            kind: Kind::Directory,
            mode,
            mtime: Stamp::Unknown,
            ctime: Stamp::Unknown,
            ..File::new(Kind::Directory, 0)
        };
        let mut root = dir(0o755);
        root.entries.insert(b"lost+found".to_vec(), LOST_AND_FOUND);
        let mut found = dir(0o700);
        found.names.insert((FileId::ROOT, b"lost+found".to_vec()));
        model.files.insert(FileId::ROOT, Arc::new(root));
        model.files.insert(LOST_AND_FOUND, Arc::new(found));
        model
    }

    /// An empty directory whose history is its own.
    #[must_use]
    pub fn without_lost_and_found(mut self) -> Self {
        self.get_mut(FileId::ROOT).entries.remove(&b"lost+found"[..]);
        self.files.remove(&LOST_AND_FOUND);
        self
    }

    /// A file, if it is there.
    pub fn file(&self, id: FileId) -> Option<&File> {
        self.files.get(&id).map(|file| &**file)
    }

    /// All files but `lost+found`.
    pub fn files(&self) -> impl Iterator<Item = (FileId, &File)> {
        self.files.iter().map(|(id, file)| (*id, &**file)).filter(|(id, _)| *id != LOST_AND_FOUND)
    }

    /// The path of a file by its first name, without a slash at the start; `None` where no name leads to it.
    pub fn path(&self, id: FileId) -> Option<Vec<u8>> {
        let (mut at, mut path) = (id, Vec::new());
        while at != FileId::ROOT {
            let (parent, name) = self.file(at)?.names.first()?;
            path = match path.is_empty() {
                true => name.clone(),
                false => [name, &b"/"[..], &path].concat(),
            };
            at = *parent;
        }
        Some(path)
    }

    fn get(&self, id: FileId) -> &File {
        self.file(id).unwrap_or_else(|| panic!("{id:?} was looked up before"))
    }

    fn get_mut(&mut self, id: FileId) -> &mut File {
        let file = self.files.get_mut(&id);
        Arc::make_mut(file.unwrap_or_else(|| panic!("{id:?} was looked up before")))
    }
}

impl File {
    fn new(kind: Kind, mode: u32) -> Self {
        Self {
            kind,
            mode,
            uid: 0,
            gid: 0,
            size: 0,
            content: Content::default(),
            target: Vec::new(),
            device: None,
            entries: BTreeMap::new(),
            names: BTreeSet::new(),
            held: 0,
            linkable: false,
            xattrs: BTreeMap::new(),
            access_acl: Vec::new(),
            default_acl: Vec::new(),
            mtime: Stamp::Unknown,
            ctime: Stamp::Unknown,
            changed: 0,
            flags: 0,
            project: 0,
            reading: None,
        }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Whether all its names are gone.
    pub fn is_nameless(&self, id: FileId) -> bool {
        id != FileId::ROOT && self.names.is_empty()
    }

    /// Bytes that the attributes take in a block, about; lists count as attributes.
    fn xattr_bytes(&self) -> u64 {
        let of = |name: usize, value: usize| {
            (16 + name.next_multiple_of(4) + value.next_multiple_of(4)) as u64
        };
        let lists = [&self.access_acl, &self.default_acl];
        let lists = lists.iter().filter(|acl| !acl.is_empty()).map(|acl| of(0, 4 + 8 * acl.len()));
        let plain = self.xattrs.iter().map(|(name, value)| of(name.len(), value.len()));
        lists.chain(plain).sum()
    }
}
