//! Clearing an inode that has claimed its blocks: after pass 1.

use crate::check::Check;
use crate::store::CheckError;
use extant_ondisk::inode::Inode;
use extant_ondisk::{BlockNo, InodeNo};

impl Check<'_> {
    /// Makes an inode unused and gives back what it claims. Files with blocks that others claim too were dealt with in pass
    /// 1D, so that here every claim is the inode's own.
    pub(crate) fn deallocate(&self, ino: InodeNo) -> Result<(), CheckError> {
        let mut record = self.record(ino)?;
        if let Ok(inode) = Inode::decode(&record, ino, self.geometry) {
            let twice = self.blocks.twice();
            let map = self.read_map(ino, &inode)?;
            let blocks = map.extents.iter().flat_map(|extent| {
                (0..u64::from(extent.len)).map(move |at| BlockNo(extent.start.0 + at))
            });
            for block in blocks.chain(map.nodes.iter().copied()) {
                let cluster = self.blocks.cluster_of(block);
                if twice.as_ref().is_none_or(|twice| !twice.contains(cluster.0)) {
                    self.blocks.release(cluster);
                }
            }
            self.release_xattrs(ino, &record)?;
        }
        self.write_cleared(ino, &mut record)
    }
}
