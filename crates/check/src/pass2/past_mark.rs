//! Inodes beyond a group's high-water mark. The mark may be stale, and inodes in use lie there; or
//! it is right, and records of a file system that was on the device before lie there, since makers
//! leave tables unwritten.

use crate::context::Check;
use crate::store::CheckError;
use crate::tables::Kind;
use extant_ondisk::bitmap;
use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::inode::{self, Inode};
use extant_ondisk::{GroupNo, InodeNo};

/// Evidence for an inode beyond the mark, in addition to its own record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Evidence {
    /// A directory entry of its type.
    Entry,
    /// Its bit in the bitmap on the volume.
    Bit,
    Nothing,
}

/// Called for a record with its place in the table.
type Visitor<'v> = dyn FnMut(u32, InodeNo, &[u8]) -> Result<(), CheckError> + 'v;

impl Check<'_> {
    /// The type of an inode beyond the mark of its group that a directory entry leads to; `None`
    /// where the record is not one of this file system in use.
    pub(super) fn kind_past_mark(&self, ino: InodeNo) -> Result<Option<Kind>, CheckError> {
        let Some((group, at)) = self.geometry.inode_place(ino) else { return Ok(None) };
        if at < self.inodes.opened(group) {
            return Ok(None);
        }
        let record = self.record(ino)?;
        let is_used = self.is_used_past_mark(ino, &record, Evidence::Entry)?;
        Ok(is_used.then(|| Kind::of_mode(u16::from_le_bytes([record[0], record[1]]))))
    }

    /// Inodes of a group up to the last one in use, where that lies beyond the mark; else 0. The
    /// table is read once.
    pub(crate) fn used_past_mark(&self, group: GroupNo) -> Result<u32, CheckError> {
        if let Some(known) = self.past_marks.lock().get(&group) {
            return Ok(*known);
        }
        let end = self.find_used_past_mark(group)?;
        self.past_marks.lock().insert(group, end);
        Ok(end)
    }

    fn find_used_past_mark(&self, group: GroupNo) -> Result<u32, CheckError> {
        let bits = self.stored_inode_bits(group)?;
        let mut end = 0;
        self.for_records_past_mark(
            group,
            self.geometry.inodes_per_group,
            &mut |at, ino, record| {
                if self.is_used_past_mark(ino, record, evidence_of(bits.as_deref(), at))? {
                    end = at + 1;
                }
                Ok(())
            },
        )?;
        Ok(end)
    }

    /// The inode bitmap of a group, where it has one.
    fn stored_inode_bits(&self, group: GroupNo) -> Result<Option<Vec<u8>>, CheckError> {
        let desc = &self.descs[group.0 as usize];
        let is_stored = !desc.flags.contains(GroupFlags::INODE_UNINIT)
            && self.geometry.contains(desc.inode_bitmap, 1);
        is_stored.then(|| self.store.read(desc.inode_bitmap)).transpose()
    }

    /// Visits the records of a group from its mark to `end` that are not zeros.
    fn for_records_past_mark(
        &self,
        group: GroupNo,
        end: u32,
        visit: &mut Visitor<'_>,
    ) -> Result<(), CheckError> {
        let geometry = self.geometry;
        let table = self.descs[group.0 as usize].inode_table;
        let blocks = u64::from(geometry.itable_blocks());
        if !geometry.contains(table, blocks) {
            return Ok(());
        }
        let (per_block, first) = (geometry.inodes_per_block(), self.inodes.opened(group));
        let mut rest = table.0 + u64::from(first / per_block)..table.0 + blocks;
        while let Some(run) = self.store.next_data(rest.clone())? {
            rest.start = run.end;
            for block in run {
                let bytes = self.store.read(extant_ondisk::BlockNo(block))?;
                let before = (block - table.0) as u32 * per_block;
                for (at, record) in
                    (before..).zip(bytes.chunks_exact(usize::from(geometry.inode_size)))
                {
                    if at >= first && at < end && record.iter().any(|byte| *byte != 0) {
                        let ino = InodeNo(group.0 * geometry.inodes_per_group + at + 1);
                        visit(at, ino, record)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a record beyond the mark is an inode of this file system in use.
    fn is_used_past_mark(
        &self,
        ino: InodeNo,
        record: &[u8],
        evidence: Evidence,
    ) -> Result<bool, CheckError> {
        if !self.geometry.has_metadata_csum() {
            return self.makes_sense(ino, record, evidence);
        }
        // The checksum depends on the file system's UUID and on the number.
        let is_in_use = Inode::decode(record, ino, self.geometry)
            .is_ok_and(|inode| inode.links > 0 && inode.file_type().is_some());
        Ok(is_in_use && inode::verify(record, ino, self.geometry).is_ok())
    }

    /// Whether a record could be an inode of this file system in use, whatever its checksum says.
    fn makes_sense(
        &self,
        ino: InodeNo,
        record: &[u8],
        evidence: Evidence,
    ) -> Result<bool, CheckError> {
        let Ok(inode) = Inode::decode(record, ino, self.geometry) else { return Ok(false) };
        if inode.links == 0 || inode.dtime != 0 || inode.file_type().is_none() {
            return Ok(false);
        }
        let made = self.superblock.mkfs_time.cast_signed();
        let is_of_now = evidence != Evidence::Nothing
            || self.is_table_zeroed(ino)
            || made != 0 && inode.ctime.seconds >= made;
        Ok(is_of_now && self.has_possible_map(ino, &inode)?)
    }

    /// Whether a record beyond the mark would be checked as an inode in use although it is not one
    /// of this file system.
    fn is_stranger(
        &self,
        ino: InodeNo,
        record: &[u8],
        evidence: Evidence,
    ) -> Result<bool, CheckError> {
        if self.is_table_zeroed(ino) {
            return Ok(false);
        }
        if !self.geometry.has_metadata_csum() {
            let is_in_use =
                Inode::decode(record, ino, self.geometry).is_ok_and(|inode| inode.links > 0);
            return Ok(is_in_use && !self.makes_sense(ino, record, evidence)?);
        }
        // A valid one with a wrong checksum is left to pass 1.
        Ok(inode::verify(record, ino, self.geometry).is_err()
            && !self.makes_sense(ino, record, evidence)?)
    }

    /// Whether the table was cleared when the file system was made, or by the kernel since.
    fn is_table_zeroed(&self, ino: InodeNo) -> bool {
        let group = self.geometry.inode_place(ino).map(|(group, _)| group);
        group.is_some_and(|group| {
            self.descs[group.0 as usize].flags.contains(GroupFlags::INODE_ZEROED)
        })
    }

    /// Whether blocks of an inode could be its own: none lies off the volume or on the volume's
    /// own.
    fn has_possible_map(&self, ino: InodeNo, inode: &Inode) -> Result<bool, CheckError> {
        if inode.file_acl.0 != 0 && !self.geometry.contains(inode.file_acl, 1) {
            return Ok(false);
        }
        let map = self.read_map(ino, inode)?;
        let is_system = |block| self.blocks.is_system(self.blocks.cluster_of(block));
        let is_off = map.extents.iter().any(|extent| {
            !self.geometry.contains(extent.start, u64::from(extent.len)) || is_system(extent.start)
        });
        let paid = inode.blocks > 0 || map.extents.is_empty();
        Ok(!is_off && paid && !map.nodes.iter().any(|node| is_system(*node)))
    }

    /// Raises a group's mark to its first `end` inodes; the check starts again with what that
    /// shows. Records below the new mark that are not of this file system are cleared first, but
    /// for that of an inode that is `named`.
    pub(crate) fn raise_mark(
        &self,
        group: GroupNo,
        end: u32,
        named: Option<InodeNo>,
    ) -> Result<(), CheckError> {
        let per_group = self.geometry.inodes_per_group;
        let bits = self.stored_inode_bits(group)?;
        let mut strangers = Vec::new();
        self.for_records_past_mark(group, end, &mut |at, ino, record| {
            let evidence = match named {
                Some(named) if named == ino => Evidence::Entry,
                _ => evidence_of(bits.as_deref(), at),
            };
            if self.is_stranger(ino, record, evidence)? {
                strangers.push(ino);
            }
            Ok(())
        })?;
        for ino in strangers {
            let mut record = vec![0; usize::from(self.geometry.inode_size)];
            self.store.write_inode(ino, &mut record)?;
        }
        self.store.flush()?;
        self.store.update_desc(group, |desc| {
            let used = if desc.flags.contains(GroupFlags::INODE_UNINIT) {
                0
            } else {
                per_group.saturating_sub(desc.itable_unused)
            };
            desc.itable_unused = per_group - used.max(end).min(per_group);
            desc.flags.remove(GroupFlags::INODE_UNINIT);
        })?;
        self.need_restart();
        Ok(())
    }
}

fn evidence_of(bits: Option<&[u8]>, at: u32) -> Evidence {
    let has_bit = bits.is_some_and(|bits| bitmap::test(bits, at));
    if has_bit { Evidence::Bit } else { Evidence::Nothing }
}
