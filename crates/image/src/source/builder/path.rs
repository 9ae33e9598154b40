//! Paths in the tree that grows: from the root along directories and symlinks.

use std::hash::BuildHasher;

use super::super::error::Flaw;
use super::super::file_type;
use super::super::node::{FileTime, NodeId};
use super::super::split_path::split_path;
use super::{Attributes, NewNode, REMOVED, TreeBuilder};

/// The kernel follows this many symlinks on one path.
const FOLLOW_MAX: usize = 40;

impl TreeBuilder {
    pub(super) fn find_target(&mut self, target: &[u8]) -> Result<NodeId, Flaw> {
        let missing = || Flaw::MissingTarget(target.into());
        let (parent, name) = split(target)?;
        let name = name.ok_or_else(|| Flaw::LinkToDirectory(target.into()))?;
        let parent = self.directory(parent, None)?.ok_or_else(missing)?;
        let node = self.lookup_target(parent, name).ok_or_else(missing)?;
        let found = &self.tree.nodes[node.index()];
        if found.is_directory() {
            return Err(Flaw::LinkToDirectory(target.into()));
        }
        if usize::from(found.store) < self.source_start {
            return Err(missing());
        }
        Ok(node)
    }

    /// As [`Self::lookup`], fast for repeated names.
    fn lookup_target(&mut self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        let hash = self.hash(parent, name);
        if let Some(dirent) = self.target_cache.get(hash) {
            let dirent = &self.tree.dirents[dirent];
            let is_same = dirent.parent == parent && self.tree.names.get(dirent.name) == name;
            if is_same && dirent.node != REMOVED {
                return Some(dirent.node);
            }
        }
        let (dirent, node) = self.lookup(parent, name)?;
        self.target_cache.put(hash, dirent);
        Some(node)
    }

    /// The directory that holds the last component of `path`, made if need be, and that component;
    /// `None` for the root itself.
    pub(super) fn split<'p>(
        &mut self,
        path: &'p [u8],
        attributes: &Attributes,
    ) -> Result<Option<(NodeId, &'p [u8])>, Flaw> {
        let (directory, name) = split(path)?;
        let Some(name) = name else { return Ok(None) };
        let parent = self.directory(directory, Some(attributes.mtime))?;
        let parent = parent.ok_or_else(|| Flaw::NotADirectory(directory.into()))?;
        Ok(Some((parent, name)))
    }

    /// As [`Self::walk`], fast for directories that were found before.
    fn directory(&mut self, path: &[u8], make: Option<FileTime>) -> Result<Option<NodeId>, Flaw> {
        let hash = self.hasher.hash_one(path);
        if let Some(node) = self.directory_cache.get(hash, path) {
            return Ok(Some(node));
        }
        let found = self.walk(path, make)?;
        if let Some(node) = found {
            self.directory_cache.put(hash, path, node);
        }
        Ok(found)
    }

    /// Follows a path of directories. Symlinks are followed within the tree, as in a root directory
    /// of its own. A missing directory is made with time `make`; without it the result is `None`.
    pub(super) fn walk(
        &mut self,
        path: &[u8],
        make: Option<FileTime>,
    ) -> Result<Option<NodeId>, Flaw> {
        // The way from the root, so that `..` has a meaning after a symlink too.
        let mut way = vec![NodeId::ROOT];
        let mut from = 0;
        while let Some((part, next)) = component(path, from)? {
            from = next;
            let at = *way.last().unwrap_or(&NodeId::ROOT);
            match self.lookup(at, part) {
                Some((_, node)) if self.is_directory(node) => way.push(node),
                Some((_, node)) if self.is_symlink(node) => {
                    self.follow(node, &mut way, &path[..next])?;
                }
                Some((dirent, _)) if make.is_some() && dirent >= self.layer_start => {
                    return Err(Flaw::NotADirectory(path[..next].into()));
                }
                _ => {
                    let Some(mtime) = make else { return Ok(None) };
                    let mut attributes = Attributes { mode: 0o755, mtime, ..Default::default() };
                    let placed = self.insert_at(at, part, &mut attributes, NewNode::Directory)?;
                    way.push(placed.node);
                }
            }
        }
        Ok(way.pop())
    }

    pub(super) fn is_directory(&self, node: NodeId) -> bool {
        self.tree.nodes[node.index()].is_directory()
    }

    pub(super) fn is_symlink(&self, node: NodeId) -> bool {
        self.tree.nodes[node.index()].mode & file_type::MASK == file_type::SYMLINK
    }

    /// Continues along a symlink in the last directory of `way`; `path` led to it.
    fn follow(&self, link: NodeId, way: &mut Vec<NodeId>, path: &[u8]) -> Result<(), Flaw> {
        let mut todo: Vec<&[u8]> = Vec::new();
        let mut next = Some(link);
        let mut followed = 0;
        loop {
            if let Some(link) = next.take() {
                followed += 1;
                if followed > FOLLOW_MAX {
                    return Err(Flaw::SymlinkLoop(path.into()));
                }
                let target = self.tree.symlink_target(link);
                if target.starts_with(b"/") {
                    way.truncate(1);
                }
                let parts = target.split(|&byte| byte == b'/').rev();
                todo.extend(parts.filter(|part| !part.is_empty() && *part != b"."));
            }
            let Some(part) = todo.pop() else { return Ok(()) };
            if part == b".." {
                if way.len() == 1 {
                    return Err(Flaw::OutOfTree(path.into()));
                }
                way.pop();
                continue;
            }
            let at = *way.last().unwrap_or(&NodeId::ROOT);
            match self.lookup(at, part) {
                None => return Err(Flaw::DanglingParent(path.into())),
                Some((_, node)) if self.is_symlink(node) => next = Some(node),
                Some((_, node)) if self.is_directory(node) => way.push(node),
                Some(_) => return Err(Flaw::NotADirectory(path.into())),
            }
        }
    }
}

/// The next component of a path from byte `from` on, and where it ends; `.` and empty ones are
/// skipped.
fn component(path: &[u8], from: usize) -> Result<Option<(&[u8], usize)>, Flaw> {
    let mut at = from;
    while at < path.len() {
        let length = path[at..].iter().position(|&byte| byte == b'/').unwrap_or(path.len() - at);
        let part = &path[at..at + length];
        at += length;
        match part {
            [] | b"." => at += 1,
            b".." => return Err(Flaw::DotDot(path.into())),
            _ => return Ok(Some((part, at))),
        }
    }
    Ok(None)
}

/// As [`split_path`].
fn split(path: &[u8]) -> Result<(&[u8], Option<&[u8]>), Flaw> {
    split_path(path).ok_or_else(|| Flaw::DotDot(path.into()))
}
