//! Files that are left out of the tree when all sources are in it.

use super::super::exclude::Excludes;
use super::super::node::{Dirent, NodeId};
use super::layer::Children;
use super::{REMOVED, TreeBuilder};

impl TreeBuilder {
    /// Removes the names that are excluded; all below them are out of reach then. A file with
    /// another name stays.
    pub(in crate::source) fn exclude(&mut self, excludes: &Excludes) {
        if excludes.is_empty() {
            return;
        }
        let children = Children::of(&self.tree);
        let mut open = vec![(NodeId::ROOT, Vec::new())];
        while let Some((directory, parent)) = open.pop() {
            for &dirent in children.dirents(directory) {
                let dirent = dirent as usize;
                let Dirent { name, node, .. } = self.tree.dirents[dirent];
                if node == REMOVED {
                    continue;
                }
                let path = [&parent[..], self.tree.names.get(name)].concat();
                if excludes.matches(&path) {
                    self.remove(dirent);
                } else if self.is_directory(node) {
                    open.push((node, [&path[..], b"/"].concat()));
                }
            }
        }
    }
}
