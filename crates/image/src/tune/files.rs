//! Files without a name, made and removed: journal, quota files, orphan file.

use std::collections::BTreeMap;

use extant_journal::{ExternalJournal, JournalError, change_user};
use extant_offline::JournalShape;
use extant_ondisk::inode::{Inode, InodeFlags};
use extant_ondisk::jbd2::{JournalSuperblock, RawJournalSuperblock};
use extant_ondisk::orphan_file::{OrphanFileFormat, orphans};
use extant_ondisk::quota::{QuotaKind, QuotaRecord, build_quota_file, quota_tree};
use extant_ondisk::superblock::Superblock;
use extant_ondisk::xattr::{self, ValueRef};
use extant_ondisk::{
    BlockNo, CompatFeatures, Features, IncompatFeatures, InodeNo, RoCompatFeatures, Uuid, inode,
};
use zerocopy::FromBytes;

use super::error::{ChangeError, RequestError, TuneError, Work};
use super::records;
use super::work::Tune;
use crate::mkfs::external_journal::ExternalJournal as AttachedJournal;
use crate::mkfs::numbers;
use crate::mkfs::params::journal;

/// Space and inodes of each id.
type Usage = BTreeMap<u32, (u64, u64)>;

impl Tune<'_> {
    pub(super) fn add_journal(&mut self) -> Result<(), TuneError> {
        self.need_sound_volume(Work::AddJournal)?;
        if let Some(attached) = self.attached {
            return self.attach_journal(attached);
        }
        let geometry = self.volume.geometry().clone();
        let has_fast_commits = geometry.has_compat(CompatFeatures::FAST_COMMIT);
        let options = &self.request.journal;
        let blocks =
            journal::blocks(geometry.blocks_count, geometry.block_size, options, has_fast_commits)?;
        let Some((blocks, fast_commit_blocks)) = blocks else {
            return Err(ChangeError::TooSmallForJournal.into());
        };
        let goal = match options.location.as_deref() {
            Some(text) => {
                let block = numbers::size(text, geometry.block_size)
                    .map(BlockNo)
                    .filter(|block| geometry.contains(*block, 1));
                block.ok_or_else(|| RequestError::JournalLocation(text.to_owned()))?
            }
            None => self.volume.journal_goal()?,
        };
        self.upgrade_revision()?;
        self.volume.make_journal(JournalShape { blocks, fast_commit_blocks, goal }, self.now)?;
        let clusters = u64::from(blocks).div_ceil(u64::from(geometry.blocks_per_cluster));
        self.add_overhead(clusters.cast_signed())?;
        self.say("Creating journal inode: done");
        Ok(())
    }

    /// Makes the volume a user of a journal on another device.
    fn attach_journal(&mut self, attached: &AttachedJournal) -> Result<(), TuneError> {
        let Some(device) = self.journal else {
            return Err(JournalError::ExternalJournalNeeded(attached.uuid).into());
        };
        attached.add_user(device, Uuid(self.volume.raw.s_uuid))?;
        self.upgrade_revision()?;
        self.change(|raw| {
            let mut features = raw.features();
            features.compat |= CompatFeatures::HAS_JOURNAL;
            raw.set_features(features);
            raw.s_journal_inum.set(0);
            raw.s_journal_uuid = attached.uuid.0;
            raw.s_journal_dev.set(attached.device_number);
        })?;
        self.say(&format!("Creating journal on device {}: done", attached.path.display()));
        Ok(())
    }

    /// The inode of a file of the volume's own, with a valid checksum and a valid map.
    fn own_inode(&self, number: InodeNo) -> Result<Inode, TuneError> {
        let geometry = self.volume.geometry();
        let record = self.volume.read_inode(number)?;
        inode::verify(&record, number, geometry)?;
        let inode = Inode::decode(&record, number, geometry)?;
        self.volume.read_map(number, &inode)?;
        Ok(inode)
    }

    /// `s_overhead_blocks`, where it was counted.
    fn add_overhead(&mut self, clusters: i64) -> Result<(), TuneError> {
        let now = u64::from(self.volume.raw.s_overhead_blocks.get());
        let sum = u32::try_from(now.saturating_add_signed(clusters)).unwrap_or(0);
        if now == 0 {
            return Ok(());
        }
        self.change(|raw| raw.s_overhead_blocks.set(sum))
    }

    pub(super) fn remove_journal(&mut self) -> Result<(), TuneError> {
        if self.features().incompat.contains(IncompatFeatures::RECOVER) && self.request.force < 2 {
            return Err(TuneError::NeedsCheck(Work::RemoveDirtyJournal));
        }
        let number = InodeNo(self.volume.raw.s_journal_inum.get());
        if number.0 == 0 {
            self.change_journal_user(None)?;
        } else {
            // tune2fs asks for nothing; the log may be all that a later rescue has to go by.
            if self.request.force == 0 && !self.request.is_of_tune2fs() {
                self.need_sound_volume(Work::RemoveJournal)?;
            }
            let inode = self.own_inode(number)?;
            let clusters = inode.size.div_ceil(self.volume.geometry().cluster_size());
            self.volume.remove_file(number)?;
            self.add_overhead(-clusters.cast_signed())?;
        }
        self.change(|raw| {
            let mut features = raw.features();
            features.compat -= CompatFeatures::HAS_JOURNAL;
            features.incompat -= IncompatFeatures::RECOVER;
            raw.set_features(features);
            raw.s_journal_inum.set(0);
            raw.s_journal_dev.set(0);
            raw.s_journal_uuid = [0; 16];
            raw.s_jnl_blocks.fill(0.into());
        })
    }

    /// Has a journal on a device of its own know the volume by another UUID, or no longer: e2fsck
    /// refuses one that does not list the volume. With `-f` a device that was not found stays as it
    /// is.
    pub(super) fn change_journal_user(&self, new: Option<Uuid>) -> Result<(), TuneError> {
        let raw = &self.volume.raw;
        let Some(named) = ExternalJournal::named_by(raw) else { return Ok(()) };
        match self.journal {
            Some(device) => Ok(change_user(device, raw, self.volume.geometry(), new)?),
            None if self.request.force > 0 => Ok(()),
            None => Err(JournalError::ExternalJournalNeeded(named.uuid).into()),
        }
    }

    /// The blocks that the journal kept for fast commits become ordinary ones.
    pub(super) fn clear_fast_commits(&mut self) -> Result<(), TuneError> {
        let number = InodeNo(self.volume.raw.s_journal_inum.get());
        if number.0 == 0 {
            return Ok(());
        }
        let inode = self.own_inode(number)?;
        let map = self.volume.read_map(number, &inode)?;
        let Some((_, first)) = map.blocks().next() else { return Ok(()) };
        let mut bytes = self.volume.read(first)?;
        let Ok((raw, _)) = RawJournalSuperblock::mut_from_prefix(&mut bytes) else {
            return Ok(());
        };
        let mut journal = JournalSuperblock::decode(raw)?;
        if journal.fast_commit_blocks == 0 {
            return Ok(());
        }
        journal.fast_commit_blocks = 0;
        journal.encode_into(raw);
        raw.seal();
        Ok(self.volume.write(first, &bytes)?)
    }

    /// Requested number of blocks.
    pub(super) fn orphan_file_size(&self) -> Result<Option<u64>, TuneError> {
        let text = self.request.extended.orphan_file_size.as_deref();
        let size = text.map(|text| {
            numbers::size(text, self.volume.geometry().block_size)
                .filter(|blocks| *blocks > 0)
                .ok_or_else(|| RequestError::OrphanFileSize(text.to_owned()).into())
        });
        size.transpose()
    }

    pub(super) fn add_orphan_file(&mut self) -> Result<(), TuneError> {
        self.need_sound_volume(Work::AddOrphanFile)?;
        let geometry = self.volume.geometry().clone();
        let blocks = journal::orphan_file_blocks(self.orphan_file_size()?, geometry.blocks_count);
        let size = u64::from(blocks) * u64::from(geometry.block_size);
        let number = self.volume.take_inode()?;
        let goal = geometry.first_data_block;
        let file = self.volume.make_file(number, size, goal, InodeFlags::empty(), self.now)?;
        let format = OrphanFileFormat::new(&geometry, number, 0);
        for block in file.blocks() {
            let mut bytes = vec![0; geometry.block_len()];
            format.seal(&mut bytes, block);
            self.volume.write(block, &bytes)?;
        }
        self.change(|raw| {
            let mut features = raw.features();
            features.compat |= CompatFeatures::ORPHAN_FILE;
            raw.set_features(features);
            raw.s_orphan_file_inum.set(number.0);
        })
    }

    pub(super) fn remove_orphan_file(&mut self) -> Result<(), TuneError> {
        self.need_sound_volume(Work::RemoveOrphanFile)?;
        if self.features().ro_compat.contains(RoCompatFeatures::ORPHAN_PRESENT) {
            return Err(TuneError::NeedsCheck(Work::RemoveOrphanFileInUse));
        }
        let number = InodeNo(self.volume.raw.s_orphan_file_inum.get());
        if number.0 != 0 {
            let inode = self.own_inode(number)?;
            for (_, block) in self.volume.read_map(number, &inode)?.blocks() {
                if orphans(&self.volume.read(block)?).any(|orphan| orphan.is_some()) {
                    return Err(TuneError::NeedsCheck(Work::RemoveOrphanFileInUse));
                }
            }
            self.volume.remove_file(number)?;
        }
        self.change(|raw| {
            let mut features = raw.features();
            features.compat -= CompatFeatures::ORPHAN_FILE;
            raw.set_features(features);
            raw.s_orphan_file_inum.set(0);
        })
    }

    /// `-Q`: files made and removed; the feature follows them.
    pub(super) fn edit_quotas(&mut self) -> Result<(), TuneError> {
        let words = self.quota_words()?;
        let list = self.request.quota.as_deref().unwrap_or_default();
        for word in list.split(',').filter(|word| !word.is_empty()) {
            let name = word.strip_prefix('^').unwrap_or(word);
            // The letters that were read.
            let (kind, rest) = name.split_at(3);
            if !["", "quota"].contains(&rest) {
                self.prompt.warn(&format!("-Q {word}: taken as {kind}quota"));
            }
        }
        for (kind, is_on) in words {
            self.need_unmounted("the quota feature")?;
            if is_on {
                self.add_quota(kind)?;
            } else {
                self.remove_quota(kind)?;
            }
        }
        Ok(())
    }

    /// The requests of `-Q`: each quota, and whether it is to exist.
    pub(super) fn quota_words(&self) -> Result<Vec<(QuotaKind, bool)>, TuneError> {
        let list = self.request.quota.as_deref().unwrap_or_default();
        let mut words = Vec::new();
        if list.is_empty() {
            return Ok(words);
        }
        for word in list.split(',') {
            let (name, clear) = match word.strip_prefix('^') {
                Some(name) => (name, true),
                None => (word, false),
            };
            // As tune2fs reads it: the letters after these say nothing.
            let kind = match name.get(..3) {
                Some("usr") => QuotaKind::User,
                Some("grp") => QuotaKind::Group,
                Some("prj") => QuotaKind::Project,
                _ => {
                    return Err(RequestError::Quota(word.to_owned()).into());
                }
            };
            words.push((kind, !clear));
        }
        Ok(words)
    }

    fn quota_inode(&self, kind: QuotaKind) -> Option<InodeNo> {
        let superblock = Superblock::decode(&self.volume.raw);
        match kind {
            QuotaKind::User => superblock.usr_quota_inode,
            QuotaKind::Group => superblock.grp_quota_inode,
            QuotaKind::Project => superblock.prj_quota_inode,
        }
    }

    fn set_quota_inode(&mut self, kind: QuotaKind, number: u32) -> Result<(), TuneError> {
        self.change(|raw| match kind {
            QuotaKind::User => raw.s_usr_quota_inum.set(number),
            QuotaKind::Group => raw.s_grp_quota_inum.set(number),
            QuotaKind::Project => raw.s_prj_quota_inum.set(number),
        })
    }

    fn set_ro_compat(&mut self, feature: RoCompatFeatures, is_on: bool) -> Result<(), TuneError> {
        self.change(|raw| {
            let mut features = raw.features();
            features.ro_compat.set(feature, is_on);
            raw.set_features(features);
        })
    }

    /// Makes a quota file of what is in use; nothing where there is one.
    pub(super) fn add_quota(&mut self, kind: QuotaKind) -> Result<(), TuneError> {
        if self.features().compat.contains(CompatFeatures::HAS_JOURNAL)
            && self.features().incompat.contains(IncompatFeatures::RECOVER)
        {
            return Err(TuneError::NeedsCheck(Work::AddQuota));
        }
        self.need_sound_volume(Work::AddQuota)?;
        if kind == QuotaKind::Project && self.volume.geometry().inode_size <= 128 {
            return Err(ChangeError::InodesTooSmallForProject.into());
        }
        self.upgrade_revision()?;
        if self.quota_inode(kind).is_none() {
            let number = match kind {
                QuotaKind::User => InodeNo::USER_QUOTA,
                QuotaKind::Group => InodeNo::GROUP_QUOTA,
                QuotaKind::Project => self.volume.take_inode()?,
            };
            // Named first: the file does not count itself.
            self.set_quota_inode(kind, number.0)?;
            self.write_quota(kind, number, &[])?;
        }
        self.set_ro_compat(RoCompatFeatures::QUOTA, true)?;
        if kind == QuotaKind::Project {
            self.set_ro_compat(RoCompatFeatures::PROJECT, true)?;
        }
        Ok(())
    }

    /// Writes a quota file of what is in use now; limits are taken from `known`.
    fn write_quota(
        &mut self,
        kind: QuotaKind,
        number: InodeNo,
        known: &[QuotaRecord],
    ) -> Result<(), TuneError> {
        let usage = self.usage(kind)?;
        let mut records: BTreeMap<u32, QuotaRecord> = known
            .iter()
            .map(|record| (record.id, QuotaRecord { space: 0, inodes: 0, ..*record }))
            .collect();
        for (id, (space, inodes)) in usage {
            let record = records.entry(id).or_insert(QuotaRecord { id, ..QuotaRecord::default() });
            (record.space, record.inodes) = (space, inodes);
        }
        let records: Vec<_> = records.into_values().collect();
        let bytes = build_quota_file(kind, &records)?;
        let goal = self.volume.geometry().first_data_block;
        let flags = InodeFlags::IMMUTABLE;
        let file = self.volume.make_file(number, bytes.len() as u64, goal, flags, self.now)?;
        Ok(self.volume.write_file(&file, &bytes)?)
    }

    /// Counts again, after directories were packed again.
    pub(super) fn refresh_quotas(&mut self) -> Result<(), TuneError> {
        for kind in QuotaKind::ALL {
            let Some(number) = self.quota_inode(kind) else { continue };
            let known = self.quota_records(kind, number)?;
            self.volume.remove_file(number)?;
            self.write_quota(kind, number, &known)?;
        }
        Ok(())
    }

    fn quota_records(
        &self,
        kind: QuotaKind,
        number: InodeNo,
    ) -> Result<Vec<QuotaRecord>, TuneError> {
        let inode = self.own_inode(number)?;
        let mut bytes = Vec::new();
        for (_, block) in self.volume.read_map(number, &inode)?.blocks() {
            bytes.extend_from_slice(&self.volume.read(block)?);
        }
        Ok(quota_tree(&bytes, kind, number)?.records()?)
    }

    /// Removes a quota file. The feature is cleared with the last one.
    pub(super) fn remove_quota(&mut self, kind: QuotaKind) -> Result<(), TuneError> {
        if let Some(number) = self.quota_inode(kind) {
            self.need_sound_volume(Work::RemoveQuota)?;
            self.own_inode(number)?;
            self.volume.remove_file(number)?;
            self.set_quota_inode(kind, 0)?;
        }
        if kind == QuotaKind::Project {
            self.set_ro_compat(RoCompatFeatures::PROJECT, false)?;
        }
        if QuotaKind::ALL.into_iter().all(|kind| self.quota_inode(kind).is_none()) {
            self.set_ro_compat(RoCompatFeatures::QUOTA, false)?;
        }
        Ok(())
    }

    /// Usage by id as quota files count it: without the volume's own files.
    fn usage(&mut self, kind: QuotaKind) -> Result<Usage, TuneError> {
        let geometry = self.volume.geometry().clone();
        let superblock = Superblock::decode(&self.volume.raw);
        let own = [
            superblock.usr_quota_inode,
            superblock.grp_quota_inode,
            superblock.prj_quota_inode,
            superblock.orphan_file_inode,
            superblock.journal_inode,
        ];
        // Files made in this run are in the records on the device, and the marks in memory.
        self.volume.commit()?;
        let mut usage = Usage::new();
        records::each_record(&mut self.volume, &geometry, |volume, number, record| {
            let Ok(inode) = Inode::decode(record, number, &geometry) else { return Ok(false) };
            let is_reserved = number < geometry.first_inode && number != InodeNo::ROOT;
            if is_reserved || inode.links == 0 || own.contains(&Some(number)) {
                return Ok(false);
            }
            if inode.flags.contains(InodeFlags::EA_INODE) {
                return Ok(false); // paid for by those who refer to it
            }
            let id = match kind {
                QuotaKind::User => inode.uid,
                QuotaKind::Group => inode.gid,
                QuotaKind::Project => inode.project.unwrap_or(0),
            };
            let mut values = 0;
            if geometry.has_incompat(IncompatFeatures::EA_INODE) {
                let area = inode::xattr_area(record, number, &geometry)?;
                values += count_values(&xattr::decode_inode(area, number, &geometry)?);
                if inode.file_acl.0 != 0 {
                    let block = volume.read(inode.file_acl)?;
                    let found = xattr::decode_block(&block, inode.file_acl, &geometry)?;
                    values += count_values(&found);
                }
            }
            let entry = usage.entry(id).or_default();
            entry.0 += inode.space(&geometry);
            entry.1 += 1 + values;
            Ok(false)
        })?;
        Ok(usage)
    }

    /// Features need a revision that has them.
    pub(super) fn upgrade_revision(&mut self) -> Result<(), TuneError> {
        if self.volume.raw.s_rev_level.get() > 0 {
            return Ok(());
        }
        self.change(|raw| {
            raw.s_rev_level.set(1);
            raw.s_first_ino.set(11);
            raw.s_inode_size.set(128);
            raw.set_features(Features::default());
        })
    }
}

/// Values that have inodes of their own.
fn count_values(found: &[xattr::XattrRef<'_>]) -> u64 {
    found.iter().filter(|xattr| matches!(xattr.value, ValueRef::EaInode(_))).count() as u64
}
