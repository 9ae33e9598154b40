//! A tree as a snapshot, and short ways to read sources.

use std::io;
use std::path::Path;

use extant_image::source::*;
use extant_testkit::{Entry, Kind, TreeSnapshot, content_digest};

/// Options that spool into the system's temporary directory.
pub(crate) fn options() -> ReadOptions {
    ReadOptions { spool: std::env::temp_dir(), ..ReadOptions::default() }
}

pub(crate) fn read(sources: &[Source]) -> Result<Tree, SourceError> {
    read_sources(sources, &options())
}

/// The node at a path that must be there.
#[track_caller]
pub(crate) fn find(tree: &Tree, path: &str) -> NodeId {
    path.split('/').fold(NodeId::ROOT, |at, name| {
        tree.lookup(at, name.as_bytes()).unwrap_or_else(|| panic!("{path} is not there")).node()
    })
}

pub(crate) fn contents(tree: &Tree, node: NodeId) -> Vec<u8> {
    let mut bytes = vec![0xaa; tree.node(node).size() as usize];
    tree.open(node).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// All of a tree, contents by digest.
pub(crate) fn snapshot(tree: &Tree) -> TreeSnapshot {
    let mut shown = TreeSnapshot::default();
    let mut names = vec![Vec::new(); tree.node_count()];
    shown.entries.insert(Vec::new(), entry(tree, NodeId::ROOT));
    let mut open = vec![(Vec::new(), NodeId::ROOT)];
    while let Some((path, directory)) = open.pop() {
        for dirent in tree.dirents(directory) {
            let separator: &[u8] = if path.is_empty() { b"" } else { b"/" };
            let path = [&path, separator, tree.name(dirent)].concat();
            shown.entries.insert(path.clone(), entry(tree, dirent.node()));
            if tree.node(dirent.node()).kind() == NodeKind::Directory {
                open.push((path, dirent.node()));
            } else {
                names[dirent.node().index()].push(path);
            }
        }
    }
    shown.group_hard_links(names);
    shown
}

fn entry(tree: &Tree, id: NodeId) -> Entry {
    let node = tree.node(id);
    let kind = match node.kind() {
        NodeKind::Regular => Kind::File,
        NodeKind::Directory => Kind::Directory,
        NodeKind::Symlink => Kind::Symlink,
        NodeKind::BlockDevice => Kind::BlockDevice,
        NodeKind::CharDevice => Kind::CharDevice,
        NodeKind::Fifo => Kind::Fifo,
        NodeKind::Socket => Kind::Socket,
    };
    Entry {
        kind,
        mode: u32::from(node.mode()) & 0o7777,
        uid: node.uid(),
        gid: node.gid(),
        size: node.size(),
        links: node.links().into(),
        mtime: (node.mtime().seconds, node.mtime().nanoseconds.into()),
        rdev: node.device().map(|device| (device.major, device.minor)),
        xattrs: tree.xattrs(id).map(|xattr| (xattr.name.to_vec(), xattr.value.to_vec())).collect(),
        target: (kind == Kind::Symlink).then(|| tree.symlink_target(id).to_vec()),
        content: (kind == Kind::File).then(|| {
            let content = tree.open(id).unwrap();
            let ranges =
                tree.segments(id).map(|segment| segment.offset..segment.offset + segment.length);
            content_digest(node.size(), ranges, |at, piece| {
                content.read_exact_at(piece, at).map_err(io::Error::other)
            })
            .unwrap()
        }),
        same_as: None,
    }
}

/// Bytes of data that a tree has, holes left out.
pub(crate) fn data_bytes(tree: &Tree) -> u64 {
    let segments = |(id, _)| tree.segments(id).map(|segment| segment.length).sum::<u64>();
    tree.nodes().map(segments).sum()
}

pub(crate) fn archive(path: &Path) -> Source {
    Source::Archive(path.to_owned())
}
