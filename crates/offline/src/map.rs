//! A file's block map: read whole, truncated, and written again.

use std::collections::HashSet;

use extant_device::Device;
use extant_layout::pack::MappingTree;
use extant_ondisk::extent::{Extent, ROOT_SIZE};
use extant_ondisk::inode::{FileType, Inode};
use extant_ondisk::{BlockNo, FileBlock, InodeNo};

use crate::{MapError, MapPart, MapWalk, MappedFile, OfflineError, OfflineVolume};

/// A file's block map.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FileMap {
    /// Runs of data blocks in file order.
    pub extents: Vec<Extent>,
    /// Extent nodes or indirect blocks.
    pub nodes: Vec<BlockNo>,
}

impl FileMap {
    /// The runs of data blocks on the device.
    pub fn data(&self) -> impl Iterator<Item = std::ops::Range<u64>> + '_ {
        self.extents.iter().map(|extent| extent.start.0..extent.start.0 + u64::from(extent.len))
    }

    /// The runs of all blocks of the file.
    pub fn all(&self) -> impl Iterator<Item = std::ops::Range<u64>> + '_ {
        self.data().chain(self.nodes.iter().map(|node| node.0..node.0 + 1))
    }

    /// Logical and physical number of each data block, in file order, including unwritten ones.
    pub fn blocks(&self) -> impl Iterator<Item = (FileBlock, BlockNo)> + '_ {
        self.extents.iter().flat_map(|extent| {
            (0..u64::from(extent.len))
                .map(move |at| (FileBlock(extent.block.0 + at), BlockNo(extent.start.0 + at)))
        })
    }

    /// Removes the extents from logical block `end` on. Returns their blocks.
    pub fn truncate(&mut self, end: u64) -> Vec<std::ops::Range<u64>> {
        let mut gone = Vec::new();
        self.extents.retain_mut(|extent| {
            let keep = end.saturating_sub(extent.block.0).min(u64::from(extent.len));
            let run_end = extent.start.0 + u64::from(extent.len);
            if extent.start.0 + keep < run_end {
                gone.push(extent.start.0 + keep..run_end);
            }
            extent.len = keep as u32; // no longer than it was
            extent.len > 0
        });
        gone
    }

    fn push(&mut self, block: u64, start: BlockNo) {
        match self.extents.last_mut() {
            Some(last)
                if last.end().0 == block
                    && last.start.0 + u64::from(last.len) == start.0
                    && last.len < extant_ondisk::extent::MAX_WRITTEN_LEN =>
            {
                last.len += 1;
            }
            _ => self.extents.push(Extent {
                block: FileBlock(block),
                len: 1,
                start,
                is_unwritten: false,
            }),
        }
    }
}

impl<D: Device> OfflineVolume<D> {
    /// Whether an inode has a block map instead of inline data, a fast symlink target or a device
    /// number.
    pub fn has_map(&self, inode: &Inode) -> bool {
        match inode.file_type() {
            Some(FileType::Regular | FileType::Directory) => !inode.is_inline(),
            Some(FileType::Symlink) => !inode.is_inline() && !inode.is_fast_symlink(&self.geometry),
            Some(_) => false,
            None => inode.mode == 0 && !inode.is_inline(),
        }
    }

    /// A walk over the map of a file that has one ([`Self::has_map`]).
    pub fn walk_map(&self, number: InodeNo, inode: &Inode) -> MapWalk<'_> {
        let file = MappedFile::of_inode(number, inode);
        MapWalk::new(&self.device, &self.geometry, file, self.is_strict)
    }

    /// Reads the map of a file.
    ///
    /// # Errors
    /// It is invalid, or the device failed.
    pub fn read_map(&self, number: InodeNo, inode: &Inode) -> Result<FileMap, OfflineError> {
        let mut map = FileMap::default();
        if !self.has_map(inode) {
            return Ok(map);
        }
        let file = MappedFile::of_inode(number, inode);
        let mut met = HashSet::new();
        for part in self.walk_map(number, inode) {
            match part? {
                MapPart::Node { at, .. } => {
                    // An empty extent node could be visited repeatedly.
                    if file.is_extents && !met.insert(at) {
                        return Err(MapError::Broken(number).into());
                    }
                    map.nodes.push(at);
                }
                MapPart::Data(extent) if file.is_extents => map.extents.push(extent),
                MapPart::Data(extent) => map.push(extent.block.0, extent.start),
            }
            // More blocks than the volume has: the map has a loop.
            let held = map.nodes.len() + map.extents.len();
            if !file.is_extents && held as u64 > self.geometry.blocks_count {
                return Err(MapError::Broken(number).into());
            }
        }
        Ok(map)
    }

    /// Writes a map of the inode's kind to the given nodes. Returns `i_block` and the nodes left
    /// over.
    ///
    /// # Errors
    /// It needs more nodes, or the device failed.
    /// It needs more nodes, or the device failed.
    pub fn write_map(
        &self,
        number: InodeNo,
        inode: &Inode,
        map: &FileMap,
    ) -> Result<([u8; ROOT_SIZE], Vec<BlockNo>), OfflineError> {
        let tree = MappingTree::from_extents(&map.extents, inode.is_extent_mapped());
        let needed = tree.blocks(self.geometry.block_size).ok_or(MapError::Broken(number))?;
        // No map has more nodes than an address space.
        let needed = usize::try_from(needed).map_err(|_| MapError::Broken(number))?;
        let (used, left) =
            map.nodes.split_at_checked(needed).ok_or(MapError::TooFragmented(number))?;
        let mut written = Vec::new();
        let places = used.iter().copied();
        let root = tree.write(number, inode.generation, &self.geometry, places, |block, bytes| {
            written.push((block, bytes.to_vec()));
        });
        for (block, bytes) in written {
            self.write(block, &bytes)?;
        }
        Ok((root, left.to_vec()))
    }
}
