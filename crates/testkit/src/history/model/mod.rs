//! A POSIX tree in memory: the expected results of calls.
//!
//! A step is checked in two parts: [`Model::expect`] decides whether it succeeds, [`Model::apply`]
//! takes the subject's answer, checks it and changes the tree. If several rules forbid a call, any
//! of their errors is right: implementations check them in different orders.

mod apply;
mod data;
mod expect;
mod reading;
mod tree;

use super::acl::AclEntry;
use super::{Clock, Content, FileId, Stamp};
use crate::Kind;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum length of a name in bytes.
const MAX_NAME: usize = 255;
/// Maximum number of links of a file.
const MAX_LINKS: u64 = 65_000;
/// The directory that mke2fs creates: histories do not change it.
pub(super) const LOST_AND_FOUND: FileId = FileId(u32::MAX);

/// The properties of the volume.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Unit of collapse and insert range in bytes: a block, with bigalloc a cluster.
    pub granule: u64,
    /// Block size in bytes.
    pub block_size: u64,
    /// Whether new files have extents, which allows unwritten blocks and moving ranges.
    pub extents: bool,
    /// Maximum file size in bytes.
    pub max_size: u64,
    /// Whether calls may fail for lack of space or inodes at any time.
    pub may_fill: bool,
    /// Whether a file uses one inode: false if large attribute values use their own inodes.
    pub counts_inodes: bool,
    /// Whether large attribute values are stored in their own inodes and so not limited by the
    /// block.
    pub large_xattrs: bool,
    /// Whether times after 2038 can be stored.
    pub wide_times: bool,
    /// Whether a call that fails may set times anyway: the kernel's fallocate does.
    pub refusals_touch: bool,
    /// Whether files belong to projects.
    pub projects: bool,
    /// Whether single files can have data journalling: there is a journal, and the subject allows
    /// the flag.
    pub journalled_files: bool,
    /// Whether the subject returns the ranges with blocks.
    pub shows_extents: bool,
}

impl Default for Rules {
    /// An ext4 volume with blocks of 4 KiB and enough space.
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
            shows_extents: true,
        }
    }
}

/// The progress of reading a directory: each name that exists all the time must be read exactly
/// once.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Names that exist since the start and are not read yet.
    left: BTreeSet<Vec<u8>>,
    /// Names that were read and exist since.
    read: BTreeSet<Vec<u8>>,
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
    /// Size of a regular file in bytes.
    pub size: u64,
    pub content: Content,
    pub target: Vec<u8>,
    pub device: Option<(u32, u32)>,
    /// The entries of a directory.
    pub entries: BTreeMap<Vec<u8>, FileId>,
    /// The directories and names of the file.
    pub names: BTreeSet<(FileId, Vec<u8>)>,
    /// Number of times it is open.
    pub held: u32,
    /// Whether it may get a name although it has none: created by tmpfile and not unlinked since.
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
    /// The progress of reading the directory in pieces.
    pub reading: Option<Reading>,
}

/// The expected result of a step.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Expected {
    /// It succeeds.
    Success,
    /// It fails with one of these.
    Failure(Vec<Errno>),
    /// Its files do not exist (an earlier step was left out or failed), or the call cannot be made
    /// in this state.
    PassedOver,
}

/// The tree.
#[derive(Clone, Debug)]
pub struct Model {
    /// The volume's rules.
    pub rules: Rules,
    /// The times of the steps.
    pub clock: Clock,
    files: BTreeMap<FileId, Arc<File>>,
    /// Number of inodes in use except those of the files here: set at the first statfs.
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

    /// An empty directory as the root of a history.
    #[must_use]
    pub fn without_lost_and_found(mut self) -> Self {
        self.get_mut(FileId::ROOT).entries.remove(&b"lost+found"[..]);
        self.files.remove(&LOST_AND_FOUND);
        self
    }

    /// A file, if it exists.
    pub fn file(&self, id: FileId) -> Option<&File> {
        self.files.get(&id).map(|file| &**file)
    }

    /// All files but `lost+found`.
    pub fn files(&self) -> impl Iterator<Item = (FileId, &File)> {
        self.files.iter().map(|(id, file)| (*id, &**file)).filter(|(id, _)| *id != LOST_AND_FOUND)
    }

    /// The path of a file by its first name, without a leading slash; `None` if it has no name.
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

    /// Whether all its names are removed.
    pub fn is_unlinked(&self, id: FileId) -> bool {
        id != FileId::ROOT && self.names.is_empty()
    }

    /// Approximate size of the attributes in a block in bytes; ACLs count as attributes.
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
