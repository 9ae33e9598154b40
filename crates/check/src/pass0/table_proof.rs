//! Proof that a group's inode table lies at a location: contents that cannot be there by chance.

use super::Pass0;
use crate::store::CheckError;
use extant_ondisk::dirent::{DirFormat, dot_entries};
use extant_ondisk::extent::ExtentNode;
use extant_ondisk::inode::{self, Inode};
use extant_ondisk::{BlockNo, FileBlock, GroupNo, InodeNo, indirect};

/// Number of blocks of an inode table that are read: inodes are allocated from its start.
const INODES_READ: u64 = 64;
/// Maximum number of levels of extents.
const MAX_LEVELS: u32 = 5;

impl Pass0<'_> {
    /// Calls `visit` for the records at the start of an inode table that are not all zeros, until
    /// it returns that it is done; whether it is.
    pub(super) fn visit_inodes(
        &self,
        group: GroupNo,
        start: BlockNo,
        mut visit: impl FnMut(InodeNo, &[u8]) -> Result<bool, CheckError>,
    ) -> Result<bool, CheckError> {
        let geometry = self.volume.geometry();
        let first = group.0 * geometry.inodes_per_group + 1;
        let mut numbers = (first..first.saturating_add(geometry.inodes_per_group)).map(InodeNo);
        for at in 0..u64::from(geometry.itable_blocks()).min(INODES_READ) {
            let block = self.read(BlockNo(start.0 + at))?;
            for record in block.chunks_exact(usize::from(geometry.inode_size)) {
                let Some(number) = numbers.next() else { return Ok(false) };
                if record.iter().any(|byte| *byte != 0) && visit(number, record)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Whether a record of an inode table that starts at `start` says its own number: in its
    /// checksum, or as a directory whose first block has that number for `.`. In a table that lies
    /// some blocks away, all numbers are others.
    pub(super) fn proves_itself(&self, group: GroupNo, start: BlockNo) -> Result<bool, CheckError> {
        self.visit_inodes(group, start, |number, record| {
            let geometry = self.volume.geometry();
            if geometry.has_metadata_csum() && inode::verify(record, number, geometry).is_ok() {
                return Ok(true);
            }
            let Ok(inode) = Inode::decode(record, number, geometry) else { return Ok(false) };
            if !inode.is_dir() || inode.links == 0 || inode.dtime != 0 || inode.is_inline() {
                return Ok(false);
            }
            let Some(first) = self.first_block(&inode)? else { return Ok(false) };
            let format = DirFormat::new(geometry, number, inode.generation);
            let dots = dot_entries(&format, &self.read(first)?);
            Ok(dots.is_ok_and(|(dot, parent)| {
                dot == number && (number != InodeNo::ROOT || parent == InodeNo::ROOT)
            }))
        })
    }

    /// The first block of a file, if its map leads to one on the volume.
    fn first_block(&self, inode: &Inode) -> Result<Option<BlockNo>, CheckError> {
        let geometry = self.volume.geometry();
        let is_there = |block: &BlockNo| block.0 != 0 && geometry.contains(*block, 1);
        if !inode.is_extent_mapped() {
            return Ok(indirect::pointers(&inode.i_block).next().filter(is_there));
        }
        let mut node = inode.i_block.to_vec();
        for _ in 0..=MAX_LEVELS {
            let below = match ExtentNode::parse(&node) {
                Some(ExtentNode::Leaf(extents)) => {
                    let first = extents.first().map(|raw| raw.decode());
                    let first = first.filter(|extent| extent.block == FileBlock(0));
                    return Ok(first.map(|extent| extent.start).filter(is_there));
                }
                Some(ExtentNode::Index(indexes, _)) => {
                    indexes.first().map(|raw| raw.decode().leaf).filter(is_there)
                }
                None => None,
            };
            let Some(below) = below else { return Ok(None) };
            node = self.read(below)?;
        }
        Ok(None)
    }
}
