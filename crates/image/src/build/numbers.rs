//! Inode numbers: the root has its own, all other nodes get consecutive ones, a directory's files
//! together.

use extant_ondisk::InodeNo;

use crate::source::{NodeId, NodeKind, Tree};

/// Which node has which inode.
#[derive(Debug)]
pub(super) struct Numbers {
    /// By node.
    of_node: Vec<u32>,
    /// Nodes in the order of their inodes, from [`Self::first`] on.
    in_order: Vec<NodeId>,
    /// The first inode of `in_order`.
    first: u32,
}

/// A directory and the one that holds it; the root holds itself.
pub(super) type Directory = (NodeId, NodeId);

impl Numbers {
    /// Numbers all nodes: a directory is entered after its parent's entries are numbered, the first
    /// by name first. The root gets its own number, and so does lost+found if the tree has one.
    /// Also lists all directories.
    pub(super) fn assign(
        tree: &Tree,
        lost_found: Option<NodeId>,
        first: u32,
    ) -> (Self, Vec<Directory>) {
        let mut of_node = vec![0; tree.node_count()];
        let mut in_order = Vec::with_capacity(tree.node_count());
        of_node[NodeId::ROOT.index()] = InodeNo::ROOT.0;
        if let Some(node) = lost_found {
            of_node[node.index()] = InodeNo::FIRST_ORDINARY.0;
        }
        let mut open = vec![NodeId::ROOT];
        let mut directories = vec![(NodeId::ROOT, NodeId::ROOT)];
        while let Some(directory) = open.pop() {
            let children_at = open.len();
            for dirent in tree.dirents(directory) {
                let node = dirent.node();
                let number = &mut of_node[node.index()];
                if *number == 0 {
                    // Nodes are numbered by 32 bits, and the reserved inodes with them are counted
                    // by the caller.
                    *number = first.saturating_add(in_order.len() as u32);
                    in_order.push(node);
                }
                if tree.node(node).kind() == NodeKind::Directory {
                    open.push(node);
                    directories.push((node, directory));
                }
            }
            open[children_at..].reverse();
        }
        (Self { of_node, in_order, first }, directories)
    }

    /// The inode of a node; 0 for a node without a name.
    pub(super) fn of(&self, node: NodeId) -> InodeNo {
        InodeNo(self.of_node[node.index()])
    }

    /// The nodes of a range of inodes, as far as they are ordinary ones.
    pub(super) fn nodes(
        &self,
        inodes: std::ops::Range<u32>,
    ) -> impl Iterator<Item = (InodeNo, NodeId)> + '_ {
        let index =
            |inode: u32| (inode.saturating_sub(self.first) as usize).min(self.in_order.len());
        let range = index(inodes.start)..index(inodes.end);
        let at = self.first + range.start as u32;
        self.in_order[range].iter().zip(at..).map(|(node, inode)| (InodeNo(inode), *node))
    }

    /// The first inode that no node has.
    pub(super) fn end(&self) -> u32 {
        self.first.saturating_add(self.in_order.len() as u32)
    }

    /// Nodes whose entries are numbered.
    pub(super) fn count(&self) -> u64 {
        self.in_order.len() as u64
    }
}
