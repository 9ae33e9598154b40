//! Subtracts the usage of deleted orphans from the quota files.

use super::Pass0;
use crate::store::CheckError;
use extant_offline::OfflineError;
use extant_ondisk::inode::{FileType, Inode, InodeFlags};
use extant_ondisk::quota::{
    FoundRecord, QUOTA_BLOCK_SIZE, QuotaBlock, QuotaHeader, QuotaKind, QuotaRecord, QuotaTree,
};
use extant_ondisk::superblock::Superblock;
use extant_ondisk::{BlockNo, Flaw, InodeNo, Location, RoCompatFeatures};
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

/// Usage that one id no longer has.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Freed {
    /// Bytes.
    pub(super) space: u64,
    /// Number of inodes.
    pub(super) inodes: u64,
}

/// Usage freed by finished orphans, by id, in the order of [`QuotaKind::ALL`].
pub(super) type FreedByOwner = [BTreeMap<u32, Freed>; 3];

/// Adds what an orphan no longer uses to that of its user, group and project. Values of attributes
/// are charged to the files that refer to them.
pub(super) fn note_freed(all: &mut FreedByOwner, inode: &Inode, freed: Freed) {
    if inode.flags.contains(InodeFlags::EA_INODE) {
        return;
    }
    for (by_id, id) in all.iter_mut().zip([inode.uid, inode.gid, inode.project.unwrap_or(0)]) {
        let sum = by_id.entry(id).or_default();
        sum.space = sum.space.saturating_add(freed.space);
        sum.inodes += freed.inodes;
    }
}

impl Pass0<'_> {
    /// Takes what orphans used off the quota files. The passes count the usage where a file is
    /// broken or says less.
    pub(super) fn uncharge(&mut self, all: &FreedByOwner) -> Result<(), CheckError> {
        if !self.volume.raw.features().ro_compat.contains(RoCompatFeatures::QUOTA) {
            return Ok(());
        }
        let superblock = Superblock::decode(&self.volume.raw);
        let files =
            [superblock.usr_quota_inode, superblock.grp_quota_inode, superblock.prj_quota_inode];
        for ((kind, number), freed) in QuotaKind::ALL.into_iter().zip(files).zip(all) {
            let Some(number) = number else { continue };
            match self.uncharge_in(kind, number, freed) {
                Ok(true) => {}
                Err(OfflineError::Device(error)) => return Err(error.into()),
                Ok(false) | Err(_) => self.state.needs_passes = true,
            }
        }
        Ok(())
    }

    /// Changes the records of one quota file in place. Whether each of them said at least what was
    /// freed.
    fn uncharge_in(
        &self,
        kind: QuotaKind,
        number: InodeNo,
        freed: &BTreeMap<u32, Freed>,
    ) -> Result<bool, OfflineError> {
        if freed.is_empty() {
            return Ok(true);
        }
        let geometry = self.volume.geometry();
        let record = self.volume.read_inode(number)?;
        let inode = Inode::decode(&record, number, geometry)?;
        if inode.file_type() != Some(FileType::Regular) || inode.links == 0 || inode.is_inline() {
            return Ok(false);
        }
        let map = self.volume.read_map(number, &inode)?;
        // Where a block of the quota file lies: a block of the volume and the byte in it.
        let place = |block: u32| -> Result<(BlockNo, usize), OfflineError> {
            let byte = u64::from(block) * QUOTA_BLOCK_SIZE as u64;
            let at = byte >> geometry.block_bits();
            let mut written = map.extents.iter().filter(|extent| !extent.is_unwritten);
            let found = written
                .find(|extent| (extent.block.0..extent.end().0).contains(&at))
                .map(|extent| BlockNo(extent.start.0 + (at - extent.block.0)));
            let found = found.ok_or_else(|| {
                Flaw::Rule("a block of the tree is a hole").at(Location::Quota(number, block))
            })?;
            Ok((found, byte as usize & (geometry.block_len() - 1)))
        };
        let read = |block: u32| -> Result<QuotaBlock, OfflineError> {
            let (found, at) = place(block)?;
            let mut bytes = [0; QUOTA_BLOCK_SIZE];
            bytes.copy_from_slice(&self.volume.read(found)?[at..at + QUOTA_BLOCK_SIZE]);
            Ok(bytes)
        };
        let blocks = u32::try_from(inode.size / QUOTA_BLOCK_SIZE as u64).unwrap_or(u32::MAX);
        let header = QuotaHeader::decode(&read(0)?, kind, number, blocks)?;
        let mut tree = QuotaTree::new(header, number, read);
        let mut is_enough = true;
        for (id, freed) in freed {
            let Some(FoundRecord { leaf, at, record }) = tree.find(*id)?.found else {
                is_enough = false;
                continue;
            };
            is_enough &= record.space >= freed.space && record.inodes >= freed.inodes;
            let (block, start) = place(leaf)?;
            let mut bytes = self.volume.read(block)?;
            let stored = less(record, *freed).encode();
            bytes[start + at..start + at + stored.as_bytes().len()]
                .copy_from_slice(stored.as_bytes());
            self.volume.write(block, &bytes)?;
        }
        Ok(is_enough)
    }
}

/// The record of an id that uses less. A grace time ends where the use is within the soft limit.
fn less(mut record: QuotaRecord, freed: Freed) -> QuotaRecord {
    record.space = record.space.saturating_sub(freed.space);
    record.inodes = record.inodes.saturating_sub(freed.inodes);
    if record.space <= record.block_soft.saturating_mul(1024) {
        record.block_time = 0;
    }
    if record.inodes <= record.inode_soft {
        record.inode_time = 0;
    }
    record
}
