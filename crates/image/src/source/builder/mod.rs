//! The tree while it grows: sources and layers laid over each other, entry by entry, each in
//! constant time.

mod assign;
mod caches;
mod excluded;
mod finish;
mod layer;
mod path;

use std::hash::{BuildHasher, RandomState};

pub(super) use assign::Assignments;
use caches::{DirectoryCache, TargetCache, Whiteout};
use hashbrown::HashTable;

use super::error::Flaw;
use super::file_type;
use super::node::{
    DeviceNumber, Dirent, FileTime, NameRef, Names, Node, NodeId, OtherTimes, Segment,
};
use super::options::{ReadOptions, RootAttributes};
use super::owner::Owners;
use super::store::{HostName, Store};
use super::tree::Tree;
use super::xattr::{XattrList, XattrSetId, XattrSets};

/// ext4 stores the length of a name in one byte.
const NAME_MAX: usize = 255;
/// PATH_MAX without its NUL.
const TARGET_MAX: usize = 4095;
/// 2^32 - 1 blocks of the largest size that ext4 has.
pub(super) const FILE_MAX: u64 = (u32::MAX as u64) << 16;

/// A dirent that was replaced or removed.
const REMOVED: NodeId = NodeId(u32::MAX);

/// Attributes of an entry's node, apart from its type.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    /// Permission bits, with set-id and sticky.
    pub(super) mode: u16,
    /// As in the source, before the owner options.
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) mtime: FileTime,
    /// `None`: as the modification.
    pub(super) atime: Option<FileTime>,
    pub(super) ctime: Option<FileTime>,
    pub(super) xattrs: XattrList,
}

/// The kind of node that an entry makes.
#[derive(Clone, Copy, Debug)]
pub(super) enum NewNode<'a> {
    Directory,
    Regular {
        size: u64,
        data: DataPlace,
        /// `None`: all of it is data.
        sparse: Option<&'a [Segment]>,
    },
    Symlink(&'a [u8]),
    CharDevice {
        major: u64,
        minor: u64,
    },
    BlockDevice {
        major: u64,
        minor: u64,
    },
    Fifo,
    Socket,
}

/// Where a regular file's data are in the store that was added last.
#[derive(Clone, Copy, Debug)]
pub(super) enum DataPlace {
    /// The first byte of the data.
    Archive(u64),
    /// The file has its own name, in the directory of that number.
    Host { directory: u32 },
}

/// Where an entry has got to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) node: NodeId,
    pub(super) name: NameRef,
}

#[derive(Debug)]
pub(super) struct TreeBuilder {
    tree: Tree,
    owners: Owners,
    /// SOURCE_DATE_EPOCH: no later time gets into the tree.
    latest: Option<FileTime>,
    /// Whether times of access and change are kept.
    all_times: bool,
    /// The root's attributes, where the sources do not give them.
    root: Option<RootAttributes>,
    /// Dirents by parent and name: the low half of the hash, and the dirent's index.
    index: HashTable<(u32, u32)>,
    hasher: RandomState,
    /// Dirents from here on are of this layer.
    layer_start: usize,
    /// Nodes of stores from here on are of this source.
    source_start: usize,
    /// Paths that a layer removes from those below it.
    whiteouts: Vec<Whiteout>,
    directory_cache: DirectoryCache,
    target_cache: TargetCache,
    /// Whether something was removed or replaced, so that nodes may be out of reach.
    disturbed: bool,
    root_is_given: bool,
}

impl TreeBuilder {
    pub(super) fn new(options: &ReadOptions) -> Self {
        let latest = options.latest.map(|seconds| FileTime { seconds, nanoseconds: 0 });
        let root = Node {
            mtime_seconds: 0,
            size: 0,
            data: 0,
            mtime_nanoseconds: 0,
            uid: 0,
            gid: 0,
            links: 0,
            xattrs: XattrSetId::NONE,
            map: 0,
            mode: file_type::DIRECTORY | 0o755,
            store: 0,
        };
        let tree = Tree {
            nodes: vec![root],
            other_times: if options.all_times { vec![OtherTimes::default()] } else { Vec::new() },
            dirents: Vec::new(),
            names: Names::default(),
            xattrs: XattrSets::default(),
            segments: Vec::new(),
            maps: Vec::new(),
            stores: Vec::new(),
            lost_found_label: None,
            warnings: Vec::new(),
        };
        Self {
            tree,
            owners: options.owners.clone(),
            latest,
            all_times: options.all_times,
            root: options.root.clone(),
            index: HashTable::new(),
            hasher: RandomState::new(),
            layer_start: 0,
            source_start: 0,
            whiteouts: Vec::new(),
            directory_cache: DirectoryCache::default(),
            target_cache: TargetCache::default(),
            disturbed: false,
            root_is_given: false,
        }
    }

    /// Starts a new source: its hard links lead to its own files.
    pub(super) fn begin_source(&mut self) {
        self.source_start = self.tree.stores.len();
        self.begin_layer();
    }

    /// Starts a new layer on top of all before it.
    pub(super) fn begin_layer(&mut self) {
        self.layer_start = self.tree.dirents.len();
        self.directory_cache.clear();
    }

    /// Adds the store that the data of the next nodes lie in.
    pub(super) fn add_store(&mut self, store: Store) -> Result<(), Flaw> {
        let limit = usize::from(u16::MAX);
        if self.tree.stores.len() >= limit {
            return Err(Flaw::TreeLimit { what: "sources and layers", limit: limit as u64 });
        }
        self.tree.stores.push(store);
        Ok(())
    }

    /// Adds a warning for the user.
    pub(super) fn warn(&mut self, warning: String) {
        self.tree.warnings.push(warning);
    }

    /// The store that was added last, and its names.
    pub(super) fn last_store(&self) -> (Option<&Store>, &Names) {
        (self.tree.stores.last(), &self.tree.names)
    }

    pub(super) fn last_store_mut(&mut self) -> Option<&mut Store> {
        self.tree.stores.last_mut()
    }

    /// Puts a node at `path`, in place of an existing one; a directory over a directory only
    /// changes its attributes. `path` is relative to the root, whatever it begins with. Missing
    /// parent directories are made.
    pub(super) fn insert(
        &mut self,
        path: &[u8],
        attributes: &mut Attributes,
        new: NewNode<'_>,
    ) -> Result<NodeId, Flaw> {
        let Some((parent, name)) = self.split(path, attributes)? else {
            if !matches!(new, NewNode::Directory) {
                return Err(Flaw::RootNotDirectory);
            }
            self.root_is_given = true;
            self.describe(NodeId::ROOT, attributes)?;
            return Ok(NodeId::ROOT);
        };
        self.insert_at(parent, name, attributes, new).map(|placed| placed.node)
    }

    /// As [`Self::insert`], below a directory that is known already.
    pub(super) fn insert_at(
        &mut self,
        parent: NodeId,
        name: &[u8],
        attributes: &mut Attributes,
        new: NewNode<'_>,
    ) -> Result<Placed, Flaw> {
        check_name(name)?;
        let found = self.lookup(parent, name);
        if let (NewNode::Directory, Some((dirent, node))) = (&new, found)
            && self.is_directory(node)
        {
            self.describe(node, attributes)?;
            if dirent < self.layer_start {
                self.set_dirent(parent, self.tree.dirents[dirent].name, found, node)?;
            }
            return Ok(Placed { node, name: self.tree.dirents[dirent].name });
        }
        let name = match found {
            Some((dirent, _)) => self.tree.dirents[dirent].name,
            None => add_name(&mut self.tree.names, name)?,
        };
        let node = self.make(attributes, new, name)?;
        self.set_dirent(parent, name, found, node)?;
        Ok(Placed { node, name })
    }

    /// Gives the node at `target`, which must be of this source and no directory, a further name.
    pub(super) fn link(
        &mut self,
        path: &[u8],
        target: &[u8],
        attributes: &Attributes,
    ) -> Result<(), Flaw> {
        let node = self.find_target(target)?;
        let Some((parent, name)) = self.split(path, attributes)? else {
            return Err(Flaw::RootNotDirectory);
        };
        self.link_at(parent, name, node)
    }

    /// As [`Self::link`], with directory and node known already.
    pub(super) fn link_at(
        &mut self,
        parent: NodeId,
        name: &[u8],
        node: NodeId,
    ) -> Result<(), Flaw> {
        check_name(name)?;
        let found = self.lookup(parent, name);
        if found.is_some_and(|(dirent, old)| old == node && dirent >= self.layer_start) {
            return Ok(());
        }
        let name = match found {
            Some((dirent, _)) => self.tree.dirents[dirent].name,
            None => add_name(&mut self.tree.names, name)?,
        };
        self.set_dirent(parent, name, found, node)
    }

    /// The dirent of that name, and its node.
    fn lookup(&self, parent: NodeId, name: &[u8]) -> Option<(usize, NodeId)> {
        let hash = self.hash(parent, name);
        let Tree { dirents, names, .. } = &self.tree;
        let (_, index) = self.index.find(spread(hash), |&(other, index)| {
            let dirent = &dirents[index as usize];
            other == hash && dirent.parent == parent && names.get(dirent.name) == name
        })?;
        Some((*index as usize, dirents[*index as usize].node))
    }

    fn hash(&self, parent: NodeId, name: &[u8]) -> u32 {
        self.hasher.hash_one((parent.0, name)) as u32
    }

    /// Gives `node` the name; `found` is the result of [`Self::lookup`] for the name.
    fn set_dirent(
        &mut self,
        parent: NodeId,
        name: NameRef,
        found: Option<(usize, NodeId)>,
        node: NodeId,
    ) -> Result<(), Flaw> {
        if let Some((dirent, old)) = found {
            self.disturbed = true;
            if self.is_directory(old) || self.is_symlink(old) {
                self.directory_cache.clear();
            }
            if dirent >= self.layer_start {
                self.tree.dirents[dirent].node = node;
                return Ok(());
            }
        }
        let number = u32::try_from(self.tree.dirents.len())
            .map_err(|_| Flaw::TreeLimit { what: "names", limit: u64::from(u32::MAX) })?;
        let hash = self.hash(parent, self.tree.names.get(name));
        self.tree.dirents.push(Dirent { parent, name, node });
        if let Some((dirent, _)) = found {
            // The dirent of an earlier layer gives way to one of this layer.
            self.tree.dirents[dirent].node = REMOVED;
            let same = |&(_, other): &(u32, u32)| other as usize == dirent;
            if let Some(entry) = self.index.find_mut(spread(hash), same) {
                entry.1 = number;
            }
            return Ok(());
        }
        self.index.insert_unique(spread(hash), (hash, number), |&(hash, _)| spread(hash));
        Ok(())
    }

    /// Sets the attributes of a node of known type.
    fn describe(&mut self, id: NodeId, attributes: &mut Attributes) -> Result<(), Flaw> {
        let node = &mut self.tree.nodes[id.index()];
        let mut mode = node.mode & file_type::MASK | attributes.mode & 0o7777;
        node.xattrs = self.tree.xattrs.intern(&mut attributes.xattrs, &mut mode, &self.owners)?;
        node.mode = mode;
        (node.uid, node.gid) = self.owners.apply(attributes.uid, attributes.gid)?;
        let clamped = |time: FileTime| self.latest.map_or(time, |latest| latest.min(time));
        let mtime = clamped(attributes.mtime);
        (node.mtime_seconds, node.mtime_nanoseconds) = (mtime.seconds, mtime.nanoseconds);
        if let Some(times) = self.tree.other_times.get_mut(id.index()) {
            let given = |time: Option<FileTime>| clamped(time.unwrap_or(attributes.mtime));
            *times =
                OtherTimes { access: given(attributes.atime), change: given(attributes.ctime) };
        }
        Ok(())
    }

    fn make(
        &mut self,
        attributes: &mut Attributes,
        new: NewNode<'_>,
        name: NameRef,
    ) -> Result<NodeId, Flaw> {
        let limit = Flaw::TreeLimit { what: "files", limit: u64::from(u32::MAX) };
        let id = u32::try_from(self.tree.nodes.len()).ok().filter(|&id| NodeId(id) != REMOVED);
        let id = NodeId(id.ok_or(limit)?);
        let store = self.tree.stores.len().saturating_sub(1) as u16;
        let (kind, size, data, map) = self.content_of(new, name)?;
        self.tree.nodes.push(Node {
            mtime_seconds: 0,
            size,
            data,
            mtime_nanoseconds: 0,
            uid: 0,
            gid: 0,
            links: 0,
            xattrs: XattrSetId::NONE,
            map,
            mode: kind,
            store,
        });
        if self.all_times {
            self.tree.other_times.push(OtherTimes::default());
        }
        if let Err(flaw) = self.describe(id, attributes) {
            self.tree.nodes.pop();
            self.tree.other_times.truncate(id.index());
            return Err(flaw);
        }
        if id == NodeId(1) && !self.root_is_given {
            // A root without an entry of its own: it takes the time of the first entry, as other
            // implied directories do.
            let first = self.tree.nodes[1].mtime();
            let root = &mut self.tree.nodes[0];
            (root.mtime_seconds, root.mtime_nanoseconds) = (first.seconds, first.nanoseconds);
            (root.uid, root.gid) = self.owners.apply(0, 0)?;
        }
        Ok(id)
    }

    /// Type bits, size, data and map of a node.
    fn content_of(
        &mut self,
        new: NewNode<'_>,
        name: NameRef,
    ) -> Result<(u16, u64, u64, u32), Flaw> {
        Ok(match new {
            NewNode::Directory => (file_type::DIRECTORY, 0, 0, 0),
            NewNode::Fifo => (file_type::FIFO, 0, 0, 0),
            NewNode::Socket => (file_type::SOCKET, 0, 0, 0),
            NewNode::CharDevice { major, minor } => {
                (file_type::CHAR, device(major, minor)?.encoded().into(), 0, 0)
            }
            NewNode::BlockDevice { major, minor } => {
                (file_type::BLOCK, device(major, minor)?.encoded().into(), 0, 0)
            }
            NewNode::Symlink(target) => {
                check_target(target)?;
                let at = reserve_name(&self.tree.names, target.len())?;
                self.tree.names.0.extend_from_slice(target);
                (file_type::SYMLINK, target.len() as u64, at.into(), 0)
            }
            NewNode::Regular { size, .. } if size > FILE_MAX => {
                return Err(Flaw::FileTooLarge(size));
            }
            NewNode::Regular { size, data, sparse } => {
                let map = sparse.map_or(Ok(0), |segments| self.add_map(segments))?;
                let data = match data {
                    DataPlace::Archive(position) => position,
                    DataPlace::Host { directory } => HostName { directory, name }.packed(),
                };
                (file_type::REGULAR, size, data, map)
            }
        })
    }

    /// One more than the index of the new map.
    fn add_map(&mut self, segments: &[Segment]) -> Result<u32, Flaw> {
        let limit = || Flaw::TreeLimit { what: "sparse file segments", limit: u64::from(u32::MAX) };
        let start = self.tree.segments.len();
        let end = u32::try_from(start + segments.len()).map_err(|_| limit())?;
        self.tree.segments.extend_from_slice(segments);
        self.tree.maps.push(start as u32..end);
        u32::try_from(self.tree.maps.len()).map_err(|_| limit())
    }
}

/// The table takes the bucket from the low bits and a tag from the high ones.
const fn spread(hash: u32) -> u64 {
    (hash as u64) << 32 | hash as u64
}

/// Checks a device number.
pub(super) fn device(major: u64, minor: u64) -> Result<DeviceNumber, Flaw> {
    let fits = major <= DeviceNumber::MAX_MAJOR.into() && minor <= DeviceNumber::MAX_MINOR.into();
    if !fits {
        return Err(Flaw::DeviceNumber { major, minor });
    }
    Ok(DeviceNumber { major: major as u32, minor: minor as u32 })
}

/// Checks the target of a symbolic link.
pub(super) fn check_target(target: &[u8]) -> Result<(), Flaw> {
    if target.is_empty() || target.len() > TARGET_MAX {
        return Err(Flaw::TargetLength(target.len()));
    }
    if target.contains(&0) {
        return Err(Flaw::NulInName);
    }
    Ok(())
}

fn check_name(name: &[u8]) -> Result<(), Flaw> {
    match name {
        [] | b"." => Err(Flaw::NoName),
        b".." => Err(Flaw::DotDot(name.into())),
        _ if name.len() > NAME_MAX => Err(Flaw::NameTooLong(name.len())),
        _ if name.contains(&0) => Err(Flaw::NulInName),
        _ => Ok(()),
    }
}

fn reserve_name(names: &Names, more: usize) -> Result<u32, Flaw> {
    let at = names.0.len();
    let limit = Flaw::TreeLimit { what: "bytes of names", limit: u64::from(u32::MAX) };
    if u32::try_from(at + more + 1).is_err() {
        return Err(limit);
    }
    Ok(at as u32)
}

/// `name` was checked: it has at most 255 bytes.
fn add_name(names: &mut Names, name: &[u8]) -> Result<NameRef, Flaw> {
    let at = reserve_name(names, name.len())?;
    names.0.push(name.len() as u8);
    names.0.extend_from_slice(name);
    Ok(NameRef(at))
}
