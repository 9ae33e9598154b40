//! Ranges of bytes split into blocks, and zeros written to parts of blocks.

use crate::edit::Edit;
use crate::engine::Engine;
use crate::engine::operation::Operation;
use crate::write::mapping::max_blocks;
use extant_device::Request;
use extant_ondisk::inode::SECTOR;
use extant_ondisk::{
    BlockNo, FileBlock, Geometry, IncompatFeatures, MAX_FILE_BLOCKS, RoCompatFeatures,
};
use extant_reader::read::inode::LoadedInode;
use extant_reader::read::mapping::{MappingTarget, map};
use extant_reader::{BlockKind, Error};
use std::ops::Range;

/// Zeros for parts of blocks: as many bytes as the largest block has.
pub(super) static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Bytes of the longest file of this kind. Contents in the inode get a map of extents where the
/// volume has such maps.
pub(super) fn max_size(geometry: &Geometry, file: &LoadedInode) -> u64 {
    let gets_extents = file.is_inline() && geometry.has_incompat(IncompatFeatures::EXTENTS);
    let blocks = if gets_extents { MAX_FILE_BLOCKS } else { max_blocks(geometry, file) };
    blocks.saturating_mul(u64::from(geometry.block_size)).min(volume_max_size(geometry))
}

/// Bytes of the longest file of any kind on the volume. Without huge_file the sectors of a file are
/// counted in 32 bits.
pub(super) fn volume_max_size(geometry: &Geometry) -> u64 {
    let block_size = u64::from(geometry.block_size);
    let counted = match geometry.has_ro_compat(RoCompatFeatures::HUGE_FILE) {
        true => MAX_FILE_BLOCKS,
        false => u64::from(u32::MAX) / (block_size / SECTOR),
    };
    counted.saturating_mul(block_size).min(i64::MAX.cast_unsigned())
}

/// The blocks that a range of bytes touches.
pub(super) fn touched(geometry: &Geometry, bytes: &Range<u64>) -> Range<FileBlock> {
    let end = bytes.end.div_ceil(u64::from(geometry.block_size));
    FileBlock(bytes.start >> geometry.block_bits())..FileBlock(end)
}

/// The blocks that lie in a range of bytes wholly.
pub(super) fn whole(geometry: &Geometry, bytes: &Range<u64>) -> Range<FileBlock> {
    let start = FileBlock(bytes.start.div_ceil(u64::from(geometry.block_size)));
    start..FileBlock(bytes.end >> geometry.block_bits()).max(start)
}

/// Parts of blocks that hold data and are to be zeros: block and bytes in it.
pub(super) type Edges = Vec<(BlockNo, Range<usize>)>;

impl Engine {
    /// Where the bytes of a range in blocks that it does not fill hold data: at most two places.
    pub(super) fn edges(&self, file: &LoadedInode, bytes: &Range<u64>) -> Result<Edges, Error> {
        let geometry = self.geometry();
        let size = u64::from(geometry.block_size);
        let inner = whole(geometry, bytes);
        let mut edges = Edges::new();
        for at in [bytes.start / size, bytes.end / size] {
            let block = at * size..(at + 1) * size;
            let part = bytes.start.max(block.start)..bytes.end.min(block.end);
            let is_known = edges.len() == 1 && bytes.start / size == bytes.end / size;
            if part.is_empty() || inner.contains(&FileBlock(at)) || is_known {
                continue;
            }
            if let MappingTarget::Written(place) = map(self, file, FileBlock(at))?.target {
                // Within a block, so they fit.
                let part = (part.start - block.start) as usize..(part.end - block.start) as usize;
                edges.push((place, part));
            }
        }
        Ok(edges)
    }

    /// Bytes between the file's end and `to` that share its last block: what is there must read as
    /// zeros once the file is longer.
    pub(super) fn gap(&self, file: &LoadedInode, to: u64) -> Result<Edges, Error> {
        let size = u64::from(self.geometry().block_size);
        let end = file.size.next_multiple_of(size).min(to);
        if end <= file.size { Ok(Edges::new()) } else { self.edges(file, &(file.size..end)) }
    }

    /// Writes zeros to parts of blocks on the device.
    pub(super) fn zero_on_device(&self, edges: &Edges) -> Result<(), Error> {
        if edges.is_empty() {
            return Ok(());
        }
        let mut batch: Vec<_> = edges.iter().map(|edge| self.zeros(edge)).collect();
        Ok(self.device.submit(&mut batch)?)
    }

    /// The request that writes zeros to a part of a block.
    pub(super) fn zeros<'z>(&self, (block, part): &(BlockNo, Range<usize>)) -> Request<'z> {
        let at = self.geometry().byte_of(*block) + part.start as u64;
        Request::write(at, &ZEROS[part.clone()])
    }
}

/// Sets parts of blocks to zeros through the journal.
pub(super) fn zero_in_frames(edit: &mut Operation<'_>, edges: &Edges) -> Result<(), Error> {
    for (block, part) in edges {
        edit.modify(*block, BlockKind::Contents, |bytes| bytes[part.clone()].fill(0))?;
    }
    Ok(())
}
