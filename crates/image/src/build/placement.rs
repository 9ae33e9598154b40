//! Where everything of the tree lies: one after the other in the free space, directories first,
//! file data in the order of the sources.
//!
//! Every cluster of a volume that fits exactly is used, so a file is cut where the free space is
//! cut by a group's metadata, and nowhere else.

use std::ops::Range;

use extant_layout::pack::{ExtentTree, FileExtent, MappingTree, extent_blocks, indirect_blocks};
use extant_ondisk::extent::{MAX_WRITTEN_LEN, ROOT_SIZE};
use extant_ondisk::{BlockNo, FileBlock, Geometry, InodeNo};

use super::requirements::{DirRequirements, Requirements, Shape};
use super::space::Space;
use crate::source::NodeId;

/// Extents that need no block of their own.
const ROOT_EXTENTS: u64 = 4;

/// First clusters, numbered as in [`Space`].
#[derive(Debug, Default)]
pub(super) struct Placement {
    /// As `Requirements::dirs`; an inline directory has the place of the next.
    pub(super) dirs: Vec<u64>,
    /// One cluster for each of `Requirements::symlinks`.
    pub(super) symlinks: u64,
    /// One cluster for each block of attributes.
    pub(super) attributes: u64,
    /// As `Attributes::ea_files`.
    pub(super) ea_files: Vec<u64>,
    /// As `Requirements::files`.
    pub(super) files: Vec<u64>,
    /// Where file data begin.
    pub(super) data: u64,
    /// The end of it all.
    pub(super) end: u64,
}

impl Placement {
    /// Places everything, past the end of the space if necessary: see [`Self::end`].
    pub(super) fn new(requirements: &Requirements<'_>, space: &Space) -> Self {
        let shape = &requirements.shape;
        let mut placement = Self::default();
        let mut at = 0;
        for dir in &requirements.dirs {
            placement.dirs.push(at);
            at += file_clusters(shape, space, at, dir_ranges(dir));
        }
        placement.symlinks = at;
        at += requirements.symlinks.len() as u64;
        placement.attributes = at;
        at += requirements.attributes.blocks.len() as u64;
        for file in &requirements.attributes.ea_files {
            placement.ea_files.push(at);
            at += file_clusters(shape, space, at, ea_ranges(shape, file.size));
        }
        placement.data = at;
        placement.files.reserve_exact(requirements.files.len());
        for &file in &requirements.files {
            placement.files.push(at);
            at += file_clusters(shape, space, at, requirements.ranges(file));
        }
        placement.end = at;
        placement
    }

    /// The place of a symbolic link's block.
    pub(super) fn symlink(&self, requirements: &Requirements<'_>, node: NodeId) -> Option<u64> {
        requirements.symlinks.binary_search(&node).ok().map(|index| self.symlinks + index as u64)
    }

    /// The place of a regular file's data.
    pub(super) fn file(&self, requirements: &Requirements<'_>, node: NodeId) -> Option<u64> {
        requirements.files.binary_search(&node).ok().map(|index| self.files[index])
    }
}

/// A directory's blocks, as the ranges of a file.
pub(super) fn dir_ranges(dir: &DirRequirements) -> impl Iterator<Item = (FileBlock, u64)> + use<> {
    let blocks = u64::from(dir.plan.blocks());
    (blocks > 0).then_some((FileBlock(0), blocks)).into_iter()
}

/// A value's blocks, as the ranges of a file.
pub(super) fn ea_ranges(
    shape: &Shape,
    size: u32,
) -> impl Iterator<Item = (FileBlock, u64)> + use<> {
    let blocks = u64::from(size).div_ceil(shape.block_size);
    (blocks > 0).then_some((FileBlock(0), blocks)).into_iter()
}

/// Clusters that a file from `start` on takes, its map's included.
fn file_clusters(
    shape: &Shape,
    space: &Space,
    start: u64,
    ranges: impl Iterator<Item = (FileBlock, u64)>,
) -> u64 {
    let mapping = Mapping::new(shape, space, start, ranges);
    mapping.data_clusters + mapping.map_clusters
}

/// A mapped file: its clusters, followed by those of its map.
#[derive(Debug)]
pub(super) struct Mapping<'s> {
    shape: &'s Shape,
    space: &'s Space,
    start: u64,
    /// Clusters of data.
    pub(super) data_clusters: u64,
    /// Clusters of the map.
    pub(super) map_clusters: u64,
    /// First logical block, blocks, first cluster. Empty for a file in one piece, which `whole` has
    /// then.
    ranges: Vec<(FileBlock, u64, u64)>,
    whole: Option<(FileBlock, u64)>,
}

impl<'s> Mapping<'s> {
    /// Of a file with data in these ranges, whose first cluster is `start`.
    pub(super) fn new(
        shape: &'s Shape,
        space: &'s Space,
        start: u64,
        mut ranges: impl Iterator<Item = (FileBlock, u64)>,
    ) -> Self {
        let mut mapping = Self {
            shape,
            space,
            start,
            data_clusters: 0,
            map_clusters: 0,
            ranges: Vec::new(),
            whole: ranges.next(),
        };
        let Some(first) = mapping.whole else { return mapping };
        let clusters = |blocks: u64| blocks.div_ceil(shape.cluster_blocks);
        mapping.data_clusters = clusters(first.1);
        for (block, blocks) in ranges {
            if let Some((first_block, first_blocks)) = mapping.whole.take() {
                mapping.ranges.push((first_block, first_blocks, start));
            }
            mapping.ranges.push((block, blocks, start + mapping.data_clusters));
            mapping.data_clusters += clusters(blocks);
        }
        mapping.map_clusters = mapping.count_map();
        mapping
    }

    fn count_map(&self) -> u64 {
        let block_size = self.shape.block_size as u32; // at most 64 KiB
        if !self.shape.has_extents {
            // Its own caller has refused files that such a map cannot hold.
            let ranges = self.ranges().map(|(block, blocks, _)| (block, blocks));
            return indirect_blocks(ranges, block_size).unwrap_or(0);
        }
        if let Some((_, blocks)) = self.whole
            && blocks <= ROOT_EXTENTS * u64::from(MAX_WRITTEN_LEN)
            && self.space.is_one_run(&self.data())
        {
            return 0;
        }
        extent_blocks(ExtentTree::new(self.runs()).extents().len() as u64, block_size)
    }

    fn ranges(&self) -> impl Iterator<Item = (FileBlock, u64, u64)> + '_ {
        let whole = self.whole.map(|(block, blocks)| (block, blocks, self.start));
        whole.into_iter().chain(self.ranges.iter().copied())
    }

    /// Clusters of the data.
    pub(super) fn data(&self) -> Range<u64> {
        self.start..self.start + self.data_clusters
    }

    /// Clusters of the map, one block used in each.
    pub(super) fn map(&self) -> Range<u64> {
        let start = self.start + self.data_clusters;
        start..start + self.map_clusters
    }

    /// The data's runs in the order of the file.
    pub(super) fn runs(&self) -> impl Iterator<Item = FileExtent> + '_ {
        let cluster_blocks = self.shape.cluster_blocks;
        self.ranges().flat_map(move |(first, blocks, start)| {
            let clusters = start..start + blocks.div_ceil(cluster_blocks);
            self.space.pieces(clusters).map(move |piece| {
                let at = (piece.first - start) * cluster_blocks;
                FileExtent {
                    block: FileBlock(first.0 + at),
                    len: (piece.len * cluster_blocks).min(blocks - at),
                    start: BlockNo(piece.block),
                }
            })
        })
    }

    /// The parts of the data that lie in a range of clusters: first logical block, clusters.
    pub(super) fn within(
        &self,
        clusters: Range<u64>,
    ) -> impl Iterator<Item = (FileBlock, Range<u64>)> + '_ {
        let whole = self.whole.map(|(block, blocks)| (block, blocks, self.start));
        let first = self.ranges.partition_point(|(_, _, start)| *start <= clusters.start);
        let ranges = self.ranges[first.saturating_sub(1)..].iter().copied();
        let in_order = whole.into_iter().chain(ranges);
        in_order.take_while(move |(_, _, start)| *start < clusters.end).filter_map(
            move |(first, blocks, start)| {
                let end = start + blocks.div_ceil(self.shape.cluster_blocks);
                let (from, to) = (start.max(clusters.start), end.min(clusters.end));
                let skipped = from.saturating_sub(start) * self.shape.cluster_blocks;
                (from < to).then_some((FileBlock(first.0 + skipped), from..to))
            },
        )
    }

    /// Writes the map's blocks to `sink` and returns `i_block`.
    pub(super) fn write_map(
        &self,
        inode: InodeNo,
        geometry: &Geometry,
        sink: impl FnMut(BlockNo, &[u8]),
    ) -> [u8; ROOT_SIZE] {
        let places = self.map().map(|cluster| BlockNo(self.space.block(cluster)));
        let tree = MappingTree::new(self.runs(), self.shape.has_extents);
        tree.write(inode, 0, geometry, places, sink)
    }

    /// Blocks in use, in whole clusters.
    pub(super) fn blocks(&self) -> u64 {
        (self.data_clusters + self.map_clusters) * self.shape.cluster_blocks
    }
}
