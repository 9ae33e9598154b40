//! Layers of an image: whiteouts remove files of lower layers.

use std::collections::HashSet;

use super::super::error::Flaw;
use super::super::node::{Dirent, NodeId};
use super::super::tree::Tree;
use super::caches::Whiteout;
use super::{REMOVED, TreeBuilder, check_name, spread};

impl TreeBuilder {
    /// A whiteout of the layers below; `name` is the hidden name, `None` hides all that `directory`
    /// has.
    pub(in crate::source) fn whiteout(
        &mut self,
        directory: &[u8],
        name: Option<&[u8]>,
    ) -> Result<(), Flaw> {
        let Some(parent) = self.walk(directory, None)? else { return Ok(()) };
        let Some(name) = name else {
            self.whiteouts.push(Whiteout::Opaque(parent));
            return Ok(());
        };
        check_name(name)?;
        if let Some((dirent, _)) = self.lookup(parent, name) {
            let name = self.tree.dirents[dirent].name;
            self.whiteouts.push(Whiteout::Name { parent, name });
        }
        Ok(())
    }

    /// Applies the layer's whiteouts: files of the layer itself below them stay.
    pub(in crate::source) fn end_layer(&mut self) {
        self.directory_cache.clear();
        if self.whiteouts.is_empty() {
            return;
        }
        let children = Children::of(&self.tree);
        let mut seen = HashSet::new();
        for whiteout in std::mem::take(&mut self.whiteouts) {
            match whiteout {
                Whiteout::Opaque(directory) => self.hide_below(&children, &mut seen, directory),
                Whiteout::Name { parent, name } => {
                    let name = self.tree.names.get(name).to_vec();
                    if let Some((dirent, node)) = self.lookup(parent, &name) {
                        if self.is_directory(node) {
                            self.hide_below(&children, &mut seen, node);
                        }
                        self.hide(&children, dirent);
                    }
                }
            }
        }
    }

    /// Removes the contents of a directory that are not of this layer, the deepest first.
    /// Directories that were `seen` have nothing more to remove: each is visited once, however many
    /// whiteouts a layer has.
    fn hide_below(&mut self, children: &Children, seen: &mut HashSet<NodeId>, directory: NodeId) {
        let mut order = Vec::new();
        let mut open = vec![directory];
        while let Some(node) = open.pop() {
            if !seen.insert(node) {
                continue;
            }
            for &dirent in children.dirents(node) {
                let child = self.tree.dirents[dirent as usize].node;
                if child == REMOVED {
                    continue;
                }
                order.push(dirent as usize);
                if self.is_directory(child) {
                    open.push(child);
                }
            }
        }
        for dirent in order.into_iter().rev() {
            self.hide(children, dirent);
        }
    }

    /// Removes a dirent unless it is of this layer or a directory that still holds something.
    fn hide(&mut self, children: &Children, dirent: usize) {
        let node = self.tree.dirents[dirent].node;
        let is_held = |&child: &u32| self.tree.dirents[child as usize].node != REMOVED;
        if dirent >= self.layer_start
            || node == REMOVED
            || children.dirents(node).iter().any(is_held)
        {
            return;
        }
        self.remove(dirent);
    }

    pub(super) fn remove(&mut self, dirent: usize) {
        let Dirent { parent, name, .. } = self.tree.dirents[dirent];
        let hash = self.hash(parent, self.tree.names.get(name));
        let same = |&(_, index): &(u32, u32)| index as usize == dirent;
        if let Ok(found) = self.index.find_entry(spread(hash), same) {
            found.remove();
        }
        self.tree.dirents[dirent].node = REMOVED;
        self.disturbed = true;
    }
}

/// All dirents of each directory while the tree grows, those of later layers too.
pub(super) struct Children {
    starts: Vec<u32>,
    dirents: Vec<u32>,
}

impl Children {
    pub(super) fn of(tree: &Tree) -> Self {
        let mut starts = vec![0_u32; tree.nodes.len() + 1];
        for dirent in &tree.dirents {
            starts[dirent.parent.index() + 1] += 1;
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut next = starts.clone();
        let mut dirents = vec![0; tree.dirents.len()];
        for (index, dirent) in tree.dirents.iter().enumerate() {
            let slot = &mut next[dirent.parent.index()];
            dirents[*slot as usize] = index as u32;
            *slot += 1;
        }
        Self { starts, dirents }
    }

    pub(super) fn dirents(&self, directory: NodeId) -> &[u32] {
        let range = |index: usize| self.starts[index] as usize;
        &self.dirents[range(directory.index())..range(directory.index() + 1)]
    }
}
