//! Builds whole extent trees: leaves are filled from left to right, with the fewest levels.

use super::FileExtent;
use extant_ondisk::extent::{
    Extent, ExtentIndex, MAX_WRITTEN_LEN, NodeEntries, NodeOwner, OwnedNode, ROOT_SIZE, capacity,
    seal,
};
use extant_ondisk::{BlockNo, FileBlock, Geometry, InodeNo};

/// Number of blocks of a tree of `extents` extents, in addition to the root in the inode.
pub fn extent_blocks(extents: u64, block_size: u32) -> u64 {
    let root = u64::from(capacity(ROOT_SIZE));
    let node = u64::from(capacity(block_size as usize));
    let (mut level, mut blocks) = (extents, 0);
    while level > root {
        level = level.div_ceil(node);
        blocks += level;
    }
    blocks
}

/// A file's extents, for writing.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ExtentTree {
    extents: Vec<Extent>,
}

impl ExtentTree {
    /// Creates a tree from runs in logical order: adjacent runs are merged, long ones split to the
    /// maximum length of an extent.
    pub fn new(runs: impl IntoIterator<Item = FileExtent>) -> Self {
        let mut tree = Self::default();
        for run in runs {
            tree.push(run);
        }
        tree
    }

    /// Creates a tree from extents in logical order: they are not merged, and unwritten ones stay
    /// unwritten.
    pub fn from_extents(extents: Vec<Extent>) -> Self {
        Self { extents }
    }

    /// Number of extents that [`Self::new`] makes of a single run.
    pub fn count_for(len: u64) -> u64 {
        len.div_ceil(u64::from(MAX_WRITTEN_LEN))
    }

    fn push(&mut self, run: FileExtent) {
        let (mut done, len) = (0, run.len);
        if let Some(last) = self.extents.last_mut()
            && last.end() == run.block
            && last.start.0 + u64::from(last.len) == run.start.0
        {
            let joined = len.min(u64::from(MAX_WRITTEN_LEN - last.len));
            last.len += joined as u32; // at most MAX_WRITTEN_LEN
            done = joined;
        }
        while done < len {
            let now = (len - done).min(u64::from(MAX_WRITTEN_LEN));
            self.extents.push(Extent {
                block: FileBlock(run.block.0 + done),
                len: now as u32, // at most MAX_WRITTEN_LEN
                start: BlockNo(run.start.0 + done),
                is_unwritten: false,
            });
            done += now;
        }
    }

    /// The extents in order.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Number of blocks of the tree in addition to the root.
    pub fn blocks(&self, block_size: u32) -> u64 {
        extent_blocks(self.extents.len() as u64, block_size)
    }

    /// Writes the nodes to the given blocks, from the leaves up, and passes each with its checksum
    /// to `sink`. Returns the root for `i_block`.
    ///
    /// # Panics
    /// If there are fewer `blocks` than [`Self::blocks`].
    pub fn write(
        &self,
        inode: InodeNo,
        generation: u32,
        geometry: &Geometry,
        blocks: impl IntoIterator<Item = BlockNo>,
        mut sink: impl FnMut(BlockNo, &[u8]),
    ) -> [u8; ROOT_SIZE] {
        let mut root = [0; ROOT_SIZE];
        let mut places = blocks.into_iter();
        let node_max = capacity(geometry.block_len());
        let mut entries = NodeEntries::Leaf(self.extents.clone());
        let mut bytes = vec![0; geometry.block_len()];
        loop {
            let root_max = capacity(ROOT_SIZE);
            if count(&entries) <= usize::from(root_max) {
                OwnedNode { max: root_max, generation: 0, entries }.encode_into(&mut root);
                return root;
            }
            let (nodes, below) = split(entries, usize::from(node_max));
            let mut pointers = Vec::with_capacity(nodes.len());
            for entries in nodes {
                let block = places.next().expect("as many blocks as the tree was said to take");
                pointers.push(ExtentIndex { block: first_block(&entries), leaf: block, unused: 0 });
                bytes.fill(0);
                OwnedNode { max: node_max, generation: 0, entries }.encode_into(&mut bytes);
                let owner = NodeOwner { inode, generation, block: Some(block) };
                seal(&mut bytes, &owner, geometry);
                sink(block, &bytes);
            }
            entries = NodeEntries::Index(pointers, below);
        }
    }
}

fn count(entries: &NodeEntries) -> usize {
    match entries {
        NodeEntries::Leaf(extents) => extents.len(),
        NodeEntries::Index(indexes, _) => indexes.len(),
    }
}

fn first_block(entries: &NodeEntries) -> FileBlock {
    match entries {
        NodeEntries::Leaf(extents) => extents.first().map_or(FileBlock(0), |extent| extent.block),
        NodeEntries::Index(indexes, _) => indexes.first().map_or(FileBlock(0), |index| index.block),
    }
}

/// Splits a level into full nodes. Returns them and the depth of the nodes.
fn split(entries: NodeEntries, max: usize) -> (Vec<NodeEntries>, u16) {
    match entries {
        NodeEntries::Leaf(extents) => {
            (extents.chunks(max).map(|part| NodeEntries::Leaf(part.to_vec())).collect(), 0)
        }
        NodeEntries::Index(indexes, below) => {
            let nodes = indexes.chunks(max);
            (nodes.map(|part| NodeEntries::Index(part.to_vec(), below)).collect(), below + 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::sample;
    use extant_ondisk::extent::{ExtentNode, NodeLimits, child_limits, verify};
    use std::collections::BTreeMap;

    fn run(block: u64, len: u64, start: u64) -> FileExtent {
        FileExtent { block: FileBlock(block), len, start: BlockNo(start) }
    }

    fn extent(block: u64, len: u32, start: u64) -> Extent {
        Extent { block: FileBlock(block), len, start: BlockNo(start), is_unwritten: false }
    }

    #[test]
    fn neighbours_join_and_long_runs_are_cut() {
        let tree = ExtentTree::new([run(0, 10, 100), run(10, 40_000, 110), run(50_000, 1, 7)]);
        let expected =
            [extent(0, 32_768, 100), extent(32_768, 7_242, 32_868), extent(50_000, 1, 7)];
        assert_eq!(tree.extents(), expected);
    }

    #[test]
    fn tree_sizes_grow_level_by_level() {
        // 4 in the inode, 340 in a block of 4 KiB, 84 in one of 1 KiB.
        let sizes = [0, 4, 5, 340, 341, 1360, 1361].map(|extents| extent_blocks(extents, 4096));
        assert_eq!(sizes, [0, 0, 1, 1, 2, 4, 6]);
        assert_eq!(extent_blocks(84 * 84 * 4, 1024), 84 * 4 + 4);
    }

    /// Reads a tree back with all checks.
    fn read(
        node: &[u8],
        owner: NodeOwner,
        limits: &NodeLimits,
        blocks: &BTreeMap<u64, Vec<u8>>,
        geometry: &Geometry,
        found: &mut Vec<Extent>,
    ) {
        verify(node, &owner, geometry).unwrap();
        match ExtentNode::check(node, &owner, limits, geometry).unwrap() {
            ExtentNode::Leaf(extents) => found.extend(extents.iter().map(|raw| raw.decode())),
            ExtentNode::Index(indexes, below) => {
                for position in 0..indexes.len() {
                    let (index, limits) = child_limits(indexes, below, position, limits).unwrap();
                    let owner = NodeOwner { block: Some(index.leaf), ..owner };
                    read(&blocks[&index.leaf.0], owner, &limits, blocks, geometry, found);
                }
            }
        }
    }

    #[test]
    fn trees_of_any_depth_read_back() {
        let geometry = sample::geometry(1024, true);
        for count in [0, 1, 4, 5, 84, 85, 400, 8_000, 30_000_u64] {
            let tree =
                ExtentTree::new((0..count).map(|at| run(at * 2, 1, 20_000 + (at * 7) % 9_999)));
            let needed = tree.blocks(1024);
            let mut blocks = BTreeMap::new();
            let places = (0..needed).map(|at| BlockNo(300 + at));
            let root = tree.write(InodeNo(12), 9, &geometry, places, |block, bytes| {
                blocks.insert(block.0, bytes.to_vec());
            });
            assert_eq!(blocks.len() as u64, needed);
            let owner = NodeOwner { inode: InodeNo(12), generation: 9, block: None };
            let mut found = Vec::new();
            read(&root, owner, &NodeLimits::ROOT, &blocks, &geometry, &mut found);
            assert_eq!(found, tree.extents(), "{count} extents");
        }
    }
}
