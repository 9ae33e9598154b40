//! The last step: dirents in order, links counted, nothing kept that cannot be reached.

use rayon::iter::ParallelIterator;
use rayon::slice::ParallelSliceMut;

use super::super::error::{EntryName, Flaw, SourceError};
use super::super::file_type;
use super::super::node::{FileTime, NodeId, OtherTimes, path_of};
use super::super::options::RootAttributes;
use super::super::owner::Owners;
use super::super::tree::Tree;
use super::super::xattr::XattrList;
use super::{Assignments, REMOVED, TreeBuilder};

/// ext4 counts at most this many names of one inode (directories have a way round it).
const LINKS_MAX: u32 = 65_000;

impl TreeBuilder {
    /// Sorts, counts links, drops what is out of reach, and gives the files the attributes that are
    /// assigned to their paths.
    pub(in crate::source) fn finish(
        self,
        assignments: Option<&Assignments>,
    ) -> Result<Tree, SourceError> {
        let Self {
            mut tree, owners, root, disturbed, index, directory_cache, target_cache, ..
        } = self;
        drop((index, directory_cache, target_cache));
        if let Some(given) = root {
            set_root(&mut tree, given, &owners)?;
        }
        if disturbed {
            tree.dirents.retain(|dirent| dirent.node != REMOVED);
        }
        sort_by_parent(&mut tree);
        if disturbed {
            drop_unreachable(&mut tree);
        }
        let names = &tree.names;
        tree.dirents.par_chunk_by_mut(|a, b| a.parent == b.parent).for_each(|siblings| {
            siblings.sort_unstable_by(|a, b| names.get(a.name).cmp(names.get(b.name)));
        });
        count_links(&mut tree)?;
        if let Some(assignments) = assignments {
            assignments.apply(&mut tree)?;
        }
        tree.xattrs.finish();
        tree.names.0.shrink_to_fit();
        Ok(tree)
    }
}

fn set_root(tree: &mut Tree, given: RootAttributes, owners: &Owners) -> Result<(), SourceError> {
    let mut mode = file_type::DIRECTORY | given.permissions & 0o7777;
    let time = FileTime { seconds: given.time, nanoseconds: 0 };
    let root = &mut tree.nodes[0];
    if let Some(label) = given.selinux {
        let mut list = XattrList::default();
        for attribute in tree.xattrs.get(root.xattrs) {
            list.add(attribute.name, attribute.value);
        }
        list.add(b"security.selinux", label.as_bytes());
        let set = tree.xattrs.intern(&mut list, &mut mode, owners);
        root.xattrs = set.map_err(|flaw| SourceError::path(EntryName(b"/".to_vec()), flaw))?;
    }
    root.mode = file_type::DIRECTORY | given.permissions & 0o7777;
    (root.uid, root.gid) = given.owner;
    (root.mtime_seconds, root.mtime_nanoseconds) = (time.seconds, time.nanoseconds);
    if let Some(times) = tree.other_times.first_mut() {
        *times = OtherTimes { access: time, change: time };
    }
    Ok(())
}

/// Groups the dirents by directory and gives each directory its range.
fn sort_by_parent(tree: &mut Tree) {
    tree.dirents.par_sort_unstable_by_key(|dirent| dirent.parent);
    let mut start = 0;
    for siblings in tree.dirents.chunk_by(|a, b| a.parent == b.parent) {
        let end = start + siblings.len();
        tree.nodes[siblings[0].parent.index()].set_dirents(start..end);
        start = end;
    }
}

/// Keeps the nodes that can be reached from the root, and renumbers them in the same order.
fn drop_unreachable(tree: &mut Tree) {
    const UNREACHED: u32 = u32::MAX;
    let mut numbers = vec![UNREACHED; tree.nodes.len()];
    numbers[0] = 0;
    let mut open = vec![NodeId::ROOT];
    while let Some(directory) = open.pop() {
        for dirent in tree.dirents(directory) {
            let number = &mut numbers[dirent.node.index()];
            if *number == UNREACHED {
                *number = 0;
                if tree.node(dirent.node).is_directory() {
                    open.push(dirent.node);
                }
            }
        }
    }
    let mut count = 0;
    for number in &mut numbers {
        if *number != UNREACHED {
            *number = count;
            count += 1;
        }
    }
    tree.dirents.retain_mut(|dirent| {
        let parent = numbers[dirent.parent.index()];
        dirent.node = NodeId(numbers[dirent.node.index()]);
        dirent.parent = NodeId(parent);
        parent != UNREACHED
    });
    let mut number = numbers.iter();
    tree.nodes.retain(|_| number.next() != Some(&UNREACHED));
    let mut number = numbers.iter();
    tree.other_times.retain(|_| number.next() != Some(&UNREACHED));
    for node in tree.nodes.iter_mut().filter(|node| node.is_directory()) {
        node.set_dirents(0..0);
    }
    sort_by_parent(tree);
}

fn count_links(tree: &mut Tree) -> Result<(), SourceError> {
    for node in &mut tree.nodes {
        node.links = if node.is_directory() { 2 } else { 0 };
    }
    for dirent in &tree.dirents {
        let node = &mut tree.nodes[dirent.node.index()];
        let counted = if node.is_directory() { dirent.parent } else { dirent.node };
        tree.nodes[counted.index()].links += 1;
    }
    for (id, node) in tree.nodes() {
        if !node.is_directory() && node.links > LINKS_MAX {
            let path = EntryName(path_of(&tree.dirents, &tree.names, id));
            return Err(SourceError::path(path, Flaw::TooManyLinks(node.links)));
        }
    }
    Ok(())
}
