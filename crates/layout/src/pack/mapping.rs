//! A file's block map as an extent tree or indirect blocks.

use std::ops::Range;

use extant_ondisk::extent::{Extent, ROOT_SIZE};
use extant_ondisk::{BlockNo, FileBlock, Geometry, InodeNo};

use super::{ExtentTree, FileExtent, IndirectTree, extent_blocks, indirect_blocks};

/// A file's block map, for writing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum MappingTree {
    /// An extent tree.
    Extents(ExtentTree),
    /// Indirect blocks, given as the runs in logical order.
    Indirect(Vec<FileExtent>),
}

impl MappingTree {
    /// Creates a map from runs in logical order.
    pub fn new(runs: impl IntoIterator<Item = FileExtent>, has_extents: bool) -> Self {
        if has_extents {
            Self::Extents(ExtentTree::new(runs))
        } else {
            Self::Indirect(runs.into_iter().collect())
        }
    }

    /// Creates a map from extents: they are not merged, and in an extent tree unwritten ones stay
    /// unwritten.
    pub fn from_extents(extents: &[Extent], has_extents: bool) -> Self {
        if has_extents {
            return Self::Extents(ExtentTree::from_extents(extents.to_vec()));
        }
        let run = |extent: &Extent| FileExtent {
            block: extent.block,
            len: u64::from(extent.len),
            start: extent.start,
        };
        Self::Indirect(extents.iter().map(run).collect())
    }

    /// Number of blocks of the map in addition to `i_block`; `None` for a file too large for
    /// indirect blocks.
    pub fn blocks(&self, block_size: u32) -> Option<u64> {
        match self {
            Self::Extents(tree) => Some(extent_blocks(tree.extents().len() as u64, block_size)),
            Self::Indirect(runs) => {
                indirect_blocks(runs.iter().map(|run| (run.block, run.len)), block_size)
            }
        }
    }

    /// Writes the map's blocks to the given locations and passes each to `sink`. Returns `i_block`.
    ///
    /// # Panics
    /// If there are fewer locations than [`Self::blocks`].
    pub fn write(
        &self,
        inode: InodeNo,
        generation: u32,
        geometry: &Geometry,
        places: impl IntoIterator<Item = BlockNo>,
        sink: impl FnMut(BlockNo, &[u8]),
    ) -> [u8; ROOT_SIZE] {
        match self {
            Self::Extents(tree) => tree.write(inode, generation, geometry, places, sink),
            Self::Indirect(runs) => {
                let tree = IndirectTree::new(geometry.block_size);
                tree.write(runs.iter().copied(), places, sink)
            }
        }
    }
}

/// The runs of a file without holes whose data blocks are `data`, in file order.
pub fn dense_runs(data: impl IntoIterator<Item = Range<u64>>) -> Vec<FileExtent> {
    let mut at = 0;
    let run = |blocks: Range<u64>| {
        let (block, len) = (FileBlock(at), blocks.end - blocks.start);
        at += len;
        FileExtent { block, len, start: BlockNo(blocks.start) }
    };
    data.into_iter().map(run).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use extant_ondisk::indirect::IndirectMap;

    #[test]
    fn both_kinds_map_the_same_runs() {
        let geometry = sample::geometry(1024, false);
        let runs = dense_runs([100..110, 200..300]);
        let logical: Vec<_> = runs.iter().map(|run| (run.block.0, run.len)).collect();
        assert_eq!(logical, [(0, 10), (10, 100)]);
        let extents = MappingTree::new(runs.clone(), true);
        assert_eq!(extents.blocks(geometry.block_size), Some(0));
        let indirect = MappingTree::new(runs, false);
        assert_eq!(indirect.blocks(geometry.block_size), Some(1));
        let mut written = Vec::new();
        let i_block = indirect.write(InodeNo(12), 0, &geometry, [BlockNo(500)], |block, bytes| {
            written.push((block, bytes[..4].to_vec()));
        });
        assert_eq!(i_block[..4], 100_u32.to_le_bytes());
        assert_eq!(i_block[12 * 4..13 * 4], 500_u32.to_le_bytes());
        assert_eq!(written, [(BlockNo(500), 202_u32.to_le_bytes().to_vec())]);
    }

    #[test]
    fn a_file_past_the_last_indirect_block_has_no_map() {
        let past = IndirectMap::new(1024).max_blocks();
        let run = |len| [FileExtent { block: FileBlock(0), len, start: BlockNo(1) }];
        assert!(MappingTree::new(run(past), false).blocks(1024).is_some());
        assert_eq!(MappingTree::new(run(past + 1), false).blocks(1024), None);
    }
}
