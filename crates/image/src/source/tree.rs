//! The tree that an image is built from: every name, inode and data position of all sources, held
//! compactly.
//!
//! A million files cost about 90 bytes each, name included; a further hard link costs a dirent (12
//! bytes) and its name. Contents stay in the sources: a node has the store and the position of its
//! data, and [`Tree::open`] reads them, from any number of threads.
//!
//! The order is part of the meaning, and never depends on the host, on threads or on hash seeds:
//! - [`Tree::dirents`] lists a directory by the bytes of its names;
//! - node numbers follow the order of arrival: archives as they are written, directories level by
//!   level with sorted names, the root first. Walking [`Tree::nodes`] therefore reads each archive
//!   or spool from front to back.

use std::ops::Range;

use super::node::{Dirent, Names, Node, NodeId, NodeKind, OtherTimes, Segment, path_of};
use super::store::Store;
use super::xattr::{XattrSetId, XattrSets, Xattrs};

/// Everything that was read from the sources, laid over each other. See the module for its order.
#[derive(Debug)]
pub struct Tree {
    pub(super) nodes: Vec<Node>,
    /// Of each node; empty where they were not asked for.
    pub(super) other_times: Vec<OtherTimes>,
    /// By parent, then by the bytes of the name.
    pub(super) dirents: Vec<Dirent>,
    pub(super) names: Names,
    pub(super) xattrs: XattrSets,
    pub(super) segments: Vec<Segment>,
    /// Sparse maps: ranges of `segments`.
    pub(super) maps: Vec<Range<u32>>,
    pub(super) stores: Vec<Store>,
    /// The attribute `security.selinux` of the lost+found that the image gets, where the tree has
    /// none.
    pub(super) lost_found_label: Option<Vec<u8>>,
    pub(super) warnings: Vec<String>,
}

impl Tree {
    /// How many nodes there are, the root included.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The times of access and change of a node, where they were asked for.
    pub fn other_times(&self, id: NodeId) -> Option<OtherTimes> {
        self.other_times.get(id.index()).copied()
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

    /// A node's extended attributes by the bytes of their names. POSIX ACLs are in the kernel's
    /// binary form (version 2) under `system.posix_acl_access` and `system.posix_acl_default`.
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

    /// Names of extended attributes that ext4 has no place for, and how many nodes had them: they
    /// were left out.
    pub fn ignored_xattrs(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.xattrs.ignored()
    }

    /// The label of the lost+found that an image gets where the tree has none: the value of its
    /// attribute `security.selinux`.
    pub fn lost_found_label(&self) -> Option<&[u8]> {
        self.lost_found_label.as_deref()
    }

    /// Warnings about the files that gave labels and owners.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
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

    /// The first path of a node in the image, for messages: it searches all dirents.
    pub fn path_of(&self, id: NodeId) -> Vec<u8> {
        path_of(&self.dirents, &self.names, id)
    }
}
