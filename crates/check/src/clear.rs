//! Clearing an inode that has claimed its blocks: after pass 1.

use crate::context::Check;
use crate::store::CheckError;
use crate::tables::{Kind, Mark};
use extant_ondisk::inode::{Inode, InodeFlags};
use extant_ondisk::{BlockNo, InodeNo};

/// The bits of a mode that are kept. Setuid and setgid are cleared with the content that they were
/// set for.
const PERMISSIONS: u16 = 0o1777;
/// Bytes of a record before its extra fields.
const FIELDS: usize = 128;

impl Check<'_> {
    /// Makes an inode unused and releases its claims. Pass 1D has handled files with blocks that
    /// others claim too, so that here every claim is the inode's own.
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

    /// Empties an inode in which another one's record lies: it becomes what its name says that it
    /// was, as far as that can be without content; else a file.
    pub(crate) fn empty_copy(&self, ino: InodeNo, said: Kind) -> Result<(), CheckError> {
        let mut record = self.record(ino)?;
        let Ok(mut inode) = Inode::decode(&record, ino, self.geometry) else { return Ok(()) };
        let kind = match said {
            Kind::Unknown => Kind::of_mode(inode.mode), // entries without types
            _ => said,
        };
        let (kind, type_bits) = match kind {
            Kind::Directory => (kind, 0x4000),
            Kind::Fifo => (kind, 0x1000),
            Kind::Socket => (kind, 0xc000),
            _ => (Kind::Regular, 0x8000),
        };
        inode.mode = type_bits | inode.mode & PERMISSIONS;
        inode.flags = InodeFlags::empty();
        inode.i_block.fill(0);
        if matches!(kind, Kind::Regular | Kind::Directory) {
            self.clear_map(&mut inode);
        }
        (inode.size, inode.blocks, inode.file_acl, inode.dtime) = (0, 0, BlockNo(0), 0);
        // The attributes in it are the other one's.
        let rest = FIELDS + usize::from(inode.extra_isize);
        if let Some(attributes) = record.get_mut(rest..) {
            attributes.fill(0);
        }
        inode.encode_into(&mut record, self.geometry);
        self.store.write_inode(ino, &mut record)?;
        self.inodes.note(ino, kind, Mark::USED, inode.links);
        if kind == Kind::Directory {
            self.need_restart(); // pass 1 gives it a block
        }
        Ok(())
    }
}
