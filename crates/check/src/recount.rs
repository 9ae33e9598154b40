//! Changes by repairs of the objects that passes 1 and 2 have counted.

use crate::context::Check;
use crate::report::VolumeStatistics;
use extant_ondisk::InodeNo;
use extant_ondisk::extent::{Extent, ExtentNode};
use extant_ondisk::inode::{FileType, Inode};

impl Check<'_> {
    pub(crate) fn count_made(&self, made: &VolumeStatistics) {
        self.recount.lock().made.add(made);
    }

    pub(crate) fn count_removed(&self, removed: &VolumeStatistics) {
        self.recount.lock().removed.add(removed);
    }

    /// A name was added; not one of `.` and `..`.
    pub(crate) fn count_made_name(&self) {
        self.count_made(&VolumeStatistics { links: 1, ..VolumeStatistics::default() });
    }

    /// A name was removed; not one of `.` and `..`.
    pub(crate) fn count_removed_name(&self) {
        self.count_removed(&VolumeStatistics { links: 1, ..VolumeStatistics::default() });
    }
}

/// The objects that the map of an inode is counted as.
pub(crate) fn of_map(ino: InodeNo, inode: &Inode, extents: &[Extent]) -> VolumeStatistics {
    let mut counted = VolumeStatistics::default();
    let is_apart = extents.windows(2).any(|pair| {
        let end = pair[0].start.0 + u64::from(pair[0].len);
        end != pair[1].start.0
    });
    if is_apart && ino != InodeNo::BAD_BLOCKS {
        counted.fragmented = 1;
        counted.fragmented_directories = u64::from(inode.is_dir());
    }
    if inode.is_extent_mapped()
        && let Some(node) = ExtentNode::parse(&inode.i_block)
        && let Some(count) = counted.extent_depth.get_mut(usize::from(node.depth()))
    {
        *count = 1;
    }
    counted
}

/// Whether it is a file of 2 GiB or more, for which there is a feature.
pub(crate) fn is_large(inode: &Inode) -> bool {
    inode.file_type() == Some(FileType::Regular) && inode.size > 0x7fff_ffff
}
