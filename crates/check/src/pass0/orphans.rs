//! Orphans: inodes whose deletion or truncation was interrupted, in the list that starts in the
//! superblock and in the orphan file. Finishing them is part of recovery, not a repair.

use super::orphan_file::{forget_orphan_file, is_empty};
use super::orphan_quota::{Freed, FreedByOwner, note_freed};
use super::{OpenError, Pass0};
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use extant_offline::{FileMap, OfflineError};
use extant_ondisk::inode::{FileType, Inode};
use extant_ondisk::orphan_file::{OrphanFileFormat, orphans, set_orphan};
use extant_ondisk::superblock::State;
use extant_ondisk::xattr::{RawXattrHeader, seal_block, verify_block};
use extant_ondisk::{CompatFeatures, IncompatFeatures, InodeNo, RoCompatFeatures};
use std::collections::BTreeSet;
use zerocopy::{FromBytes, IntoBytes};

impl Pass0<'_> {
    /// Finishes what was cut off. Where nothing may be written, the passes see the inodes as they
    /// are.
    pub(super) fn check_orphans(&mut self) -> Result<(), OpenError> {
        self.check_orphan_file()?;
        if !self.may_repair() {
            if self.is_orphan_file_needless() {
                let number = InodeNo(self.volume.raw.s_orphan_file_inum.get());
                self.report(Finding::new(Code::OrphanFileWithoutJournal).inode(number))?;
            }
            return Ok(());
        }
        let before = self.recorder.count();
        let mut freed = FreedByOwner::default();
        let state = self.volume.raw.s_state.get();
        let has_to_hide = self.has_listed_orphans() && state & State::CLEAN.bits() != 0;
        // Neither bitmaps nor quota files are right in between: a run that is cut off is followed
        // by the passes.
        if has_to_hide {
            self.set_state(state & !State::CLEAN.bits())?;
        }
        self.release_list(&mut freed)?;
        self.release_file(&mut freed)?;
        self.uncharge(&freed)?;
        if has_to_hide {
            self.volume.commit()?;
            self.set_state(state)?;
        }
        self.drop_orphan_file()?;
        self.state.has_orphans = self.recorder.count() > before;
        Ok(())
    }

    /// Whether the superblock says that orphans are to be finished.
    fn has_listed_orphans(&self) -> bool {
        let features = self.volume.raw.features();
        self.volume.raw.s_last_orphan.get() != 0
            || features.compat.contains(CompatFeatures::ORPHAN_FILE)
                && features.ro_compat.contains(RoCompatFeatures::ORPHAN_PRESENT)
    }

    /// Writes the state of the volume, after all that was written before.
    fn set_state(&mut self, state: u16) -> Result<(), CheckError> {
        self.volume.update_superblock(|raw| raw.s_state.set(state))?;
        Ok(self.volume.commit()?)
    }

    /// Only a journal makes use of the orphan file.
    fn drop_orphan_file(&mut self) -> Result<(), CheckError> {
        if !self.is_orphan_file_needless() {
            return Ok(());
        }
        let number = InodeNo(self.volume.raw.s_orphan_file_inum.get());
        if !self.should_fix(Finding::new(Code::OrphanFileWithoutJournal).inode(number))? {
            return Ok(());
        }
        self.state.needs_passes = true;
        if self.orphan(number).is_some() {
            self.volume.remove_file(number)?;
        }
        self.forget_orphan_file()
    }

    fn is_orphan_file_needless(&self) -> bool {
        let compat = self.volume.raw.features().compat;
        compat.contains(CompatFeatures::ORPHAN_FILE)
            && !compat.contains(CompatFeatures::HAS_JOURNAL)
            // The removed journal is made again after the passes.
            && self.state.lost_journal.is_none()
    }

    pub(super) fn forget_orphan_file(&mut self) -> Result<(), CheckError> {
        Ok(self.volume.update_superblock(forget_orphan_file)?)
    }

    fn release_list(&mut self, freed: &mut FreedByOwner) -> Result<(), CheckError> {
        let mut next = InodeNo(self.volume.raw.s_last_orphan.get());
        if next.0 == 0 {
            return Ok(());
        }
        let mut seen = BTreeSet::new();
        while next.0 != 0 {
            let following = match self.orphan(next) {
                Some((record, inode)) if seen.insert(next.0) => {
                    let following = InodeNo(inode.dtime);
                    self.release(next, record, inode, freed)?;
                    following
                }
                _ => {
                    self.state.needs_passes = true;
                    let finding = Finding::new(Code::OrphanListIllegal).inode(next);
                    if !self.should_fix(finding)? {
                        return Ok(());
                    }
                    break;
                }
            };
            next = following;
        }
        self.volume.update_superblock(|raw| raw.s_last_orphan.set(0))?;
        Ok(self.volume.commit()?)
    }

    /// An inode that may be in an orphan list.
    pub(super) fn orphan(&self, number: InodeNo) -> Option<(Vec<u8>, Inode)> {
        let geometry = self.volume.geometry();
        if number < geometry.first_inode || number.0 > geometry.inodes_count {
            return None;
        }
        let record = self.volume.read_inode(number).ok()?;
        let inode = Inode::decode(&record, number, geometry).ok()?;
        inode.file_type()?;
        Some((record, inode))
    }

    fn release_file(&mut self, freed: &mut FreedByOwner) -> Result<(), CheckError> {
        let raw = self.volume.raw;
        let features = raw.features();
        if !features.compat.contains(CompatFeatures::ORPHAN_FILE)
            || !features.ro_compat.contains(RoCompatFeatures::ORPHAN_PRESENT)
        {
            return Ok(());
        }
        let number = InodeNo(raw.s_orphan_file_inum.get());
        let Some((_, file)) = self.orphan(number) else {
            // The passes check the file itself.
            self.state.needs_passes = true;
            return Ok(());
        };
        let Ok(map) = self.volume.read_map(number, &file) else {
            self.state.needs_passes = true;
            return Ok(());
        };
        let format = OrphanFileFormat::new(self.volume.geometry(), number, file.generation);
        for (at, block) in map.blocks().collect::<Vec<_>>() {
            let mut bytes = self.read(block)?;
            if format.verify(&bytes, at, block).is_err() {
                self.state.needs_passes = true;
                continue;
            }
            let listed: Vec<(usize, InodeNo)> = orphans(&bytes)
                .enumerate()
                .filter_map(|(slot, orphan)| Some((slot, orphan?)))
                .collect();
            if listed.is_empty() && is_empty(&format, &bytes, block) {
                continue;
            }
            for (slot, orphan) in listed {
                match self.orphan(orphan) {
                    Some((record, inode)) => self.release(orphan, record, inode, freed)?,
                    None => {
                        self.state.needs_passes = true;
                        if !self.should_fix(Finding::new(Code::OrphanListIllegal).inode(orphan))? {
                            continue;
                        }
                    }
                }
                set_orphan(&mut bytes, slot, None);
            }
            format.seal(&mut bytes, block);
            self.volume.commit()?;
            self.volume.write(block, &bytes)?;
        }
        self.volume.update_superblock(|raw| {
            let mut features = raw.features();
            features.ro_compat -= RoCompatFeatures::ORPHAN_PRESENT;
            raw.set_features(features);
        })?;
        Ok(self.volume.commit()?)
    }

    /// Deletes an inode without links, cuts another to its size.
    fn release(
        &mut self,
        number: InodeNo,
        mut record: Vec<u8>,
        mut inode: Inode,
        freed: &mut FreedByOwner,
    ) -> Result<(), CheckError> {
        let code = if inode.links == 0 { Code::OrphanCleared } else { Code::OrphanTruncated };
        let detail = format!(
            "(uid={}, gid={}, mode={:07o}, size={})",
            inode.uid, inode.gid, inode.mode, inode.size
        );
        self.report(Finding::new(code).inode(number).detail(detail))?;
        // Values of attributes in inodes of their own are found by the passes.
        if self.volume.raw.features().incompat.contains(IncompatFeatures::EA_INODE) {
            self.state.needs_passes = true;
        }
        let before = inode.space(self.volume.geometry());
        let outcome = if inode.links == 0 {
            self.delete(number, &mut inode)
        } else {
            self.cut(number, &mut inode)
        };
        match outcome {
            Ok(()) if inode.links == 0 => {
                note_freed(freed, &inode, Freed { space: before, inodes: 1 });
            }
            Ok(()) => {
                let space = before.saturating_sub(inode.space(self.volume.geometry()));
                note_freed(freed, &inode, Freed { space, inodes: 0 });
            }
            Err(OfflineError::Device(error)) => return Err(error.into()),
            // A broken map is for the passes, which find the inode as it is.
            Err(_) => self.state.needs_passes = true,
        }
        inode.encode_into(&mut record, self.volume.geometry());
        Ok(self.volume.write_inode(number, &mut record)?)
    }

    fn delete(&mut self, number: InodeNo, inode: &mut Inode) -> Result<(), OfflineError> {
        // 32 bits, as i_dtime has; never 0.
        inode.dtime = ((self.now() & 0xffff_ffff) as u32).max(1);
        let map = self.volume.read_map(number, inode)?;
        self.volume.free_blocks_of(map.all().collect::<Vec<_>>())?;
        if inode.file_acl.0 != 0 {
            self.release_xattr_block(inode)?;
        }
        self.volume.free_inode(number, inode.file_type() == Some(FileType::Directory))
    }

    /// The last user of a block of attributes takes it along.
    fn release_xattr_block(&mut self, inode: &Inode) -> Result<(), OfflineError> {
        let block = inode.file_acl;
        if !self.volume.geometry().contains(block, 1) {
            return Ok(());
        }
        let mut bytes = self.volume.read(block)?;
        if verify_block(&bytes, block, self.volume.geometry()).is_err() {
            self.state.needs_passes = true;
            return Ok(());
        }
        let Ok((header, _)) = RawXattrHeader::mut_from_prefix(&mut bytes) else { return Ok(()) };
        let users = header.h_refcount.get();
        if users <= 1 {
            return self.volume.free_blocks_of(std::iter::once(block.0..block.0 + 1));
        }
        header.h_refcount.set(users - 1);
        debug_assert!(!header.as_bytes().is_empty());
        seal_block(&mut bytes, block, self.volume.geometry());
        self.volume.write(block, &bytes)
    }

    fn cut(&mut self, number: InodeNo, inode: &mut Inode) -> Result<(), OfflineError> {
        inode.dtime = 0;
        if !self.volume.has_map(inode) {
            return Ok(());
        }
        let block_size = u64::from(self.volume.geometry().block_size);
        let ratio = u64::from(self.volume.geometry().blocks_per_cluster);
        let mut map = self.volume.read_map(number, inode)?;
        let mut of_xattrs = u64::from(inode.file_acl.0 != 0) * ratio;
        if self.volume.raw.features().incompat.contains(IncompatFeatures::EA_INODE) {
            // A file is charged for values of its attributes that have inodes of their own.
            let mapped = (self.clusters(&map) + map.nodes.len() as u64) * ratio * block_size;
            of_xattrs = inode.space(self.volume.geometry()).saturating_sub(mapped) / block_size;
        }
        let gone = map.truncate(inode.size.div_ceil(block_size));
        let (root, unused) = self.volume.write_map(number, inode, &map)?;
        inode.i_block = root;
        // A cluster that begins before the cut is still in use.
        let origin = self.volume.geometry().first_data_block.0;
        let whole = |run: std::ops::Range<u64>| {
            let start = origin + (run.start - origin).next_multiple_of(ratio);
            start.min(run.end)..run.end
        };
        self.volume.free_blocks_of(gone.into_iter().map(whole))?;
        self.volume.free_blocks_of(unused.iter().map(|node| node.0..node.0 + 1))?;
        let nodes = (map.nodes.len() - unused.len()) as u64;
        let space = (self.clusters(&map) + nodes) * ratio + of_xattrs;
        inode.set_space(self.volume.geometry(), space);
        Ok(())
    }

    /// Number of clusters that the data of a map lies in.
    fn clusters(&self, map: &FileMap) -> u64 {
        let origin = self.volume.geometry().first_data_block.0;
        let ratio = u64::from(self.volume.geometry().blocks_per_cluster);
        let mut clusters = BTreeSet::new();
        for run in map.data() {
            clusters.extend((run.start - origin) / ratio..(run.end - origin).div_ceil(ratio));
        }
        clusters.len() as u64
    }
}
