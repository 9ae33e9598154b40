//! Pass 4: link counts, and files without a name.

use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::recount;
use crate::report::VolumeStatistics;
use crate::store::CheckError;
use crate::tables::{DirFlags, Kind, Mark};
use extant_ondisk::inode::{Inode, InodeFlags, MANY_LINKS};
use extant_ondisk::{GroupNo, IncompatFeatures, InodeNo, RoCompatFeatures};

/// Maximum link count of a directory.
const MAX_LINKS: u32 = 65000;
/// Inodes that are worth the start of a thread.
const SHARE: u64 = 1 << 16;

impl Check<'_> {
    pub(crate) fn pass4(&mut self) -> Result<(), CheckError> {
        let groups = self.window.groups.clone();
        let whole = u64::from(groups.end - groups.start);
        let shares = usize::try_from(self.inodes.all_opened() / SHARE).unwrap_or(usize::MAX);
        let this: &Self = self;
        this.for_all((groups.end - groups.start) as usize, shares, |at| {
            let mut wrong = Vec::new();
            this.inodes.for_used(GroupNo(groups.start + at as u32), |ino, state, links| {
                let is_special = state.has(Mark::EA_INODE)
                    || state.has(Mark::SUSPECT)
                    || state.names() > MAX_LINKS;
                if state.names() != u32::from(links) || is_special {
                    wrong.push(ino);
                }
            });
            for ino in wrong {
                this.check_links(ino)?;
            }
            this.progress(4, 1, whole);
            Ok(())
        })
    }

    /// Inodes in use without a name.
    pub(crate) fn is_nameless(&self, ino: InodeNo) -> bool {
        ino < self.geometry.first_inode && ino != InodeNo::ROOT
            || [
                self.superblock.usr_quota_inode,
                self.superblock.grp_quota_inode,
                self.superblock.prj_quota_inode,
                self.superblock.orphan_file_inode,
                self.superblock.internal_journal(),
            ]
            .contains(&Some(ino))
    }

    fn check_links(&self, ino: InodeNo) -> Result<(), CheckError> {
        let Some(mut state) = self.inodes.state(ino).filter(|state| state.is_used()) else {
            return Ok(());
        };
        if ino == InodeNo::ROOT && state.has(Mark::SUSPECT) {
            self.check_suspect(ino, Some((ino, b".")))?; // no other entry names the root
        }
        if self.is_nameless(ino) && state.names() == 0 {
            return Ok(());
        }
        let is_value =
            state.has(Mark::EA_INODE) || state.names() == 0 && self.ea_inodes.references(ino) > 0;
        if is_value && !self.check_ea_inode(ino)? {
            return Ok(());
        }
        if state.names() == 0 {
            if self.copies.lock().remove(&ino) {
                let mut record = self.record(ino)?;
                return self.write_cleared(ino, &mut record);
            }
            if state.has(Mark::SUSPECT) && self.check_suspect(ino, None)? {
                return Ok(());
            }
            if self.connect_unattached(ino)? {
                return Ok(());
            }
            let Some(after) = self.inodes.state(ino).filter(|after| after.is_used()) else {
                return Ok(());
            };
            state = after;
            if state.names() == 0 {
                return Ok(()); // it was left without a name
            }
        }
        let links = self.inodes.links(ino);
        let is_dir = state.kind() == Kind::Directory;
        let mut expected = state.names();
        if is_dir && expected > MAX_LINKS {
            self.check_many_links(ino)?;
            expected = u32::from(MANY_LINKS);
        }
        // A count that was given up stays so, even where the feature went since.
        let is_indexed = || self.dirs.get(ino).is_some_and(|dir| dir.has(DirFlags::INDEXED));
        if is_dir && links == MANY_LINKS && is_indexed() {
            return Ok(());
        }
        if u32::from(links) == expected {
            return Ok(());
        }
        let finding = Finding::new(Code::LinkCountWrong)
            .inode(ino)
            .found(u64::from(links))
            .expected(u64::from(expected));
        if self.should_fix(finding)? {
            self.change_inode(ino, |inode| {
                inode.links = u16::try_from(expected).unwrap_or(u16::MAX);
            })?;
            self.inodes.set_links(ino, u16::try_from(expected).unwrap_or(u16::MAX));
        }
        Ok(())
    }

    /// A directory has more subdirectories than are counted: the volume says that there may be
    /// such.
    fn check_many_links(&self, ino: InodeNo) -> Result<(), CheckError> {
        let features = self.store.raw_superblock().s_feature_ro_compat.get();
        let has_feature = features & RoCompatFeatures::DIR_NLINK.bits() != 0;
        if has_feature
            || !self.should_fix(Finding::new(Code::ManyLinksFeatureMissing).inode(ino))?
        {
            return Ok(());
        }
        self.store.update_superblock(|raw| {
            let features = raw.s_feature_ro_compat.get() | RoCompatFeatures::DIR_NLINK.bits();
            raw.s_feature_ro_compat.set(features);
        })
    }

    /// Reads an inode, changes it and writes it.
    pub(crate) fn change_inode(
        &self,
        ino: InodeNo,
        change: impl FnOnce(&mut Inode),
    ) -> Result<(), CheckError> {
        let mut record = self.record(ino)?;
        let Ok(mut inode) = Inode::decode(&record, ino, self.geometry) else { return Ok(()) };
        change(&mut inode);
        inode.encode_into(&mut record, self.geometry);
        self.store.write_inode(ino, &mut record)
    }

    /// An inode with the flag of values. True if its link count is to be checked like a file's.
    fn check_ea_inode(&self, ino: InodeNo) -> Result<bool, CheckError> {
        let record = self.record(ino)?;
        let Ok(inode) = Inode::decode(&record, ino, self.geometry) else { return Ok(false) };
        let (found, met) = (inode.ea_inode_references(), self.ea_inodes.references(ino));
        let names = self.inodes.state(ino).map_or(0, |state| state.names());
        let numbers = 1..=i64::from(self.geometry.inodes_count);
        if met == 0 && names == 0 && numbers.contains(&inode.mtime.seconds) {
            // Lustre's form: its owner is named, not counted.
            return Ok(false);
        }
        let has_values = self.geometry.has_incompat(IncompatFeatures::EA_INODE);
        if met == 0 && names == 0 && !has_values {
            // A file without a name, as any other.
            return Ok(true);
        }
        if met == 0 {
            // A file with a name, or one whose content is not a value.
            if self.should_fix(Finding::new(Code::EaInodeIsFile).inode(ino))? {
                self.change_inode(ino, |inode| inode.flags.remove(InodeFlags::EA_INODE))?;
                self.inodes.unmark(ino, Mark::EA_INODE);
            }
            return Ok(true);
        }
        if found != met {
            let finding = Finding::new(Code::EaInodeRefcount).inode(ino).found(found).expected(met);
            if self.should_fix(finding)? {
                self.change_inode(ino, |inode| inode.set_ea_inode_references(met))?;
            }
        }
        Ok(false)
    }

    /// A file without a name: cleared if it is empty, else put into lost+found. True if no more
    /// checks are needed.
    fn connect_unattached(&self, ino: InodeNo) -> Result<bool, CheckError> {
        let record = self.record(ino)?;
        let Ok(inode) = Inode::decode(&record, ino, self.geometry) else { return Ok(true) };
        // As in e2fsck, a file of one hole is empty too. On a volume with inline data, a file
        // without blocks is not.
        let is_empty = !self.geometry.has_incompat(IncompatFeatures::INLINE_DATA)
            && inode.blocks == 0
            && inode.file_acl.0 == 0
            && inode.file_type() == Some(extant_ondisk::inode::FileType::Regular);
        if is_empty && self.should_fix(Finding::new(Code::UnattachedEmpty).inode(ino))? {
            self.deallocate(ino)?;
            self.count_removed(&VolumeStatistics {
                inodes: 1,
                regular: 1,
                large: u64::from(recount::is_large(&inode)),
                ..recount::of_map(ino, &inode, &[])
            });
            return Ok(true);
        }
        if is_empty && !self.is_repair() {
            return Ok(true);
        }
        if self.should_fix(Finding::new(Code::UnattachedInode).inode(ino))? {
            return Ok(!self.reconnect(ino)?);
        }
        Ok(true)
    }
}
