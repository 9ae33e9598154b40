//! The blocks that the inodes of a volume use: read once, before sizes are tried.

use std::collections::BTreeMap;

use extant_offline::OfflineVolume;
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::extent::Extent;
use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::inode::{self, Inode};
use extant_ondisk::{BlockNo, CompatFeatures, GroupNo, InodeNo, indirect};

use super::error::ResizeError;
use super::resize_inode::DOUBLE_SLOT;

/// The map of a file.
#[derive(Clone, Debug)]
pub(super) struct ScannedFile {
    pub(super) number: InodeNo,
    pub(super) is_extents: bool,
    pub(super) extents: Vec<Extent>,
    /// Extent nodes or indirect blocks.
    pub(super) nodes: Vec<BlockNo>,
}

/// The inodes in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Scan {
    /// Files with blocks, by number.
    pub(super) files: Vec<ScannedFile>,
    /// Blocks of extended attributes, and the inodes that use them.
    pub(super) xattr_blocks: BTreeMap<BlockNo, Vec<InodeNo>>,
    /// Number of inodes in use, without the reserved ones.
    pub(super) inodes: u32,
}

/// Whether a group's inodes were never used.
pub(super) fn has_no_inodes(volume: &OfflineVolume, group: GroupNo) -> bool {
    volume.geometry().has_uninit_groups()
        && volume.desc(group).flags.contains(GroupFlags::INODE_UNINIT)
}

/// Bytes of records that are read at a time.
const READ: usize = 256 * 1024;

/// Calls `visit` for every inode in use, with its record. It may change that record alone.
pub(super) fn each_inode(
    volume: &mut OfflineVolume,
    mut visit: impl FnMut(&mut OfflineVolume, InodeNo, Vec<u8>) -> Result<(), ResizeError>,
) -> Result<(), ResizeError> {
    let geometry = volume.geometry().clone();
    let per_group = geometry.inodes_per_group;
    for group in (0..geometry.groups_count).map(GroupNo) {
        if has_no_inodes(volume, group) {
            continue;
        }
        let bits = volume.bitmap(BitmapKind::Inode, group)?.to_vec();
        let size = usize::from(geometry.inode_size);
        let (mut at, mut read, mut records) = (0, 0..0, Vec::new());
        while let Some(bit) = bitmap::next_set(&bits, at..per_group) {
            at = bit + 1;
            let number = InodeNo(group.0 * per_group + bit + 1);
            if !read.contains(&bit) {
                let count = u32::try_from(READ / size).map_or(1, |count| count.max(1));
                read = bit..per_group.min(bit + count);
                records = match volume.read_inodes(number, read.end - read.start) {
                    Ok(records) => records,
                    // A sector of records that are not in use may be bad.
                    Err(_) => {
                        read = bit..bit + 1;
                        volume.read_inode(number)?
                    }
                };
            }
            let from = (bit - read.start) as usize * size;
            visit(volume, number, records[from..from + size].to_vec())?;
        }
    }
    Ok(())
}

impl Scan {
    pub(super) fn of(volume: &mut OfflineVolume) -> Result<Self, ResizeError> {
        let mut scan = Self::default();
        each_inode(volume, |volume, number, record| scan.add(volume, number, &record))?;
        Ok(scan)
    }

    fn add(
        &mut self,
        volume: &OfflineVolume,
        number: InodeNo,
        record: &[u8],
    ) -> Result<(), ResizeError> {
        let geometry = volume.geometry();
        let is_reserved = number < geometry.first_inode;
        self.inodes += u32::from(!is_reserved);
        if record.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let decoded = Inode::decode(record, number, geometry)?;
        if decoded.mode != 0 {
            inode::verify(record, number, geometry)?;
        }
        if number == InodeNo::RESIZE {
            if geometry.has_compat(CompatFeatures::RESIZE_INODE) {
                let double = indirect::pointer(&decoded.i_block, DOUBLE_SLOT);
                let nodes = double.filter(|block| block.0 != 0).into_iter().collect();
                self.files.push(ScannedFile {
                    number,
                    is_extents: false,
                    extents: Vec::new(),
                    nodes,
                });
            }
            return Ok(());
        }
        let map = volume.read_map(number, &decoded)?;
        if number == InodeNo::BAD_BLOCKS {
            return match map.extents.is_empty() {
                true => Ok(()),
                false => Err(ResizeError::Barred("a list of bad blocks")),
            };
        }
        if decoded.file_acl.0 != 0 {
            self.xattr_blocks.entry(decoded.file_acl).or_default().push(number);
        }
        if !map.extents.is_empty() || !map.nodes.is_empty() {
            self.files.push(ScannedFile {
                number,
                is_extents: decoded.is_extent_mapped(),
                extents: map.extents,
                nodes: map.nodes,
            });
        }
        Ok(())
    }
}
