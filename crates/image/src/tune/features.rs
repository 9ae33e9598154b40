//! `-O`: features switched on and off in place, each with what it needs.

use extant_ondisk::inode::{Inode, InodeFlags};
use extant_ondisk::quota::QuotaKind;
use extant_ondisk::{
    CompatFeatures, Features, GroupNo, IncompatFeatures, MetadataChecksum, RoCompatFeatures,
};

use super::error::{ChangeError, FeatureChange, RequestError, TuneError, Unsupported, Work};
use super::work::{Mounted, Tune};
use super::{records, repack, rewrite};
use crate::mkfs::features::{ENCRYPT_ALGORITHMS, Edit, edits};

/// Features that can be set on a volume that exists, from tune2fs(8).
fn settable() -> Features {
    Features {
        compat: CompatFeatures::HAS_JOURNAL
            | CompatFeatures::DIR_INDEX
            | CompatFeatures::FAST_COMMIT
            | CompatFeatures::STABLE_INODES
            | CompatFeatures::ORPHAN_FILE,
        incompat: IncompatFeatures::FILETYPE
            | IncompatFeatures::EXTENTS
            | IncompatFeatures::FLEX_BG
            | IncompatFeatures::EA_INODE
            | IncompatFeatures::LARGEDIR
            | IncompatFeatures::ENCRYPT
            | IncompatFeatures::MMP
            | IncompatFeatures::CSUM_SEED
            | IncompatFeatures::CASEFOLD,
        ro_compat: RoCompatFeatures::LARGE_FILE
            | RoCompatFeatures::HUGE_FILE
            | RoCompatFeatures::DIR_NLINK
            | RoCompatFeatures::EXTRA_ISIZE
            | RoCompatFeatures::SPARSE_SUPER
            | RoCompatFeatures::GDT_CSUM
            | RoCompatFeatures::METADATA_CSUM
            | RoCompatFeatures::QUOTA
            | RoCompatFeatures::PROJECT
            | RoCompatFeatures::READONLY
            | RoCompatFeatures::VERITY,
    }
}

/// Features that can be cleared.
fn clearable() -> Features {
    Features {
        compat: CompatFeatures::HAS_JOURNAL
            | CompatFeatures::DIR_INDEX
            | CompatFeatures::RESIZE_INODE
            | CompatFeatures::FAST_COMMIT
            | CompatFeatures::ORPHAN_FILE,
        incompat: IncompatFeatures::FILETYPE
            | IncompatFeatures::FLEX_BG
            | IncompatFeatures::MMP
            | IncompatFeatures::CSUM_SEED
            | IncompatFeatures::CASEFOLD,
        ro_compat: RoCompatFeatures::LARGE_FILE
            | RoCompatFeatures::HUGE_FILE
            | RoCompatFeatures::DIR_NLINK
            | RoCompatFeatures::EXTRA_ISIZE
            | RoCompatFeatures::GDT_CSUM
            | RoCompatFeatures::METADATA_CSUM
            | RoCompatFeatures::QUOTA
            | RoCompatFeatures::PROJECT
            | RoCompatFeatures::READONLY,
    }
}

/// The wanted features, and those of them that were named explicitly.
struct Wanted {
    features: Features,
    cleared: Features,
    /// The journal is replaced by a new one.
    new_journal: bool,
    /// The same of the orphan file.
    new_orphan_file: bool,
}

fn compat(feature: CompatFeatures) -> Features {
    Features { compat: feature, ..Features::default() }
}

fn incompat(feature: IncompatFeatures) -> Features {
    Features { incompat: feature, ..Features::default() }
}

fn ro_compat(feature: RoCompatFeatures) -> Features {
    Features { ro_compat: feature, ..Features::default() }
}

fn refuse(change: FeatureChange, features: Features) -> TuneError {
    if features.incompat.contains(IncompatFeatures::BIT64) {
        return TuneError::Unsupported(Unsupported::Bit64(change));
    }
    ChangeError::Feature { change, features }.into()
}

impl Tune<'_> {
    fn wanted(&mut self) -> Result<Wanted, TuneError> {
        let now = self.features();
        let mut wanted = Wanted {
            features: now,
            cleared: Features::default(),
            new_journal: false,
            new_orphan_file: false,
        };
        for edit in edits(self.request.features.as_deref().unwrap_or_default())? {
            match edit {
                Edit::Set(feature) if settable().contains(feature) => {
                    wanted.features = wanted.features.union(feature);
                    wanted.cleared = wanted.cleared.difference(feature);
                }
                Edit::Clear(feature) if clearable().contains(feature) => {
                    wanted.features = wanted.features.difference(feature);
                    wanted.cleared = wanted.cleared.union(feature);
                }
                // A feature that is set already need not be changed, whatever it is.
                Edit::Set(feature) if feature == incompat(IncompatFeatures::BIT64) => {
                    if !now.contains(feature) {
                        self.name_resize2fs(FeatureChange::Set, feature)?;
                    }
                }
                Edit::Set(feature) => return Err(refuse(FeatureChange::Set, feature)),
                Edit::Clear(feature) if feature == incompat(IncompatFeatures::BIT64) => {
                    if now.contains(feature) {
                        self.name_resize2fs(FeatureChange::Clear, feature)?;
                    }
                }
                Edit::Clear(feature) => return Err(refuse(FeatureChange::Clear, feature)),
                Edit::ClearAll => {
                    return Err(RequestError::ClearAll.into());
                }
            }
        }
        if self.request.journal.wanted {
            let has_journal = now.compat.contains(CompatFeatures::HAS_JOURNAL);
            wanted.new_journal =
                has_journal && wanted.cleared.compat.contains(CompatFeatures::HAS_JOURNAL);
            if has_journal && !wanted.new_journal {
                return Err(ChangeError::HasJournal.into());
            }
            wanted.features = wanted.features.union(compat(CompatFeatures::HAS_JOURNAL));
        }
        if self.request.extended.encoding.is_some() {
            if now.incompat.contains(IncompatFeatures::CASEFOLD) {
                return Err(ChangeError::HasEncoding.into());
            }
            wanted.features = wanted.features.union(incompat(IncompatFeatures::CASEFOLD));
        }
        if self.request.extended.orphan_file_size.is_some() {
            wanted.new_orphan_file = now.compat.contains(CompatFeatures::ORPHAN_FILE)
                && !wanted.cleared.compat.contains(CompatFeatures::ORPHAN_FILE);
            wanted.features = wanted.features.union(compat(CompatFeatures::ORPHAN_FILE));
        }
        Ok(wanted)
    }

    /// Leaves a change of `64bit` to resize2fs, in tune2fs's words where these are wanted.
    fn name_resize2fs(
        &mut self,
        change: FeatureChange,
        feature: Features,
    ) -> Result<(), TuneError> {
        let Some(name) = &self.request.name_for_resize2fs else {
            return Err(refuse(change, feature));
        };
        let (letter, verb) = match change {
            FeatureChange::Set => ('b', "enable"),
            FeatureChange::Clear => ('s', "disable"),
        };
        let text = format!("Please run `resize2fs -{letter} {name}' to {verb} 64-bit mode.");
        self.say(&text);
        Ok(())
    }

    /// The features that `-O` requests, and those that `-j`, `-J` and `-E` imply.
    pub(super) fn edit_features(&mut self) -> Result<(), TuneError> {
        let wanted = self.wanted()?;
        let now = self.features();
        let (mut on, mut off) = (wanted.features.difference(now), now.difference(wanted.features));
        self.check_before(&on, &off)?;
        if self.mounted == Mounted::ByKernel {
            self.refuse_unmounted_only(&on, &off, &wanted)?;
        }
        if wanted.features == now && !wanted.new_journal && !wanted.new_orphan_file {
            return Ok(());
        }
        if wanted.new_orphan_file {
            off.compat |= CompatFeatures::ORPHAN_FILE;
            on.compat |= CompatFeatures::ORPHAN_FILE;
        }
        if wanted.new_journal {
            off.compat |= CompatFeatures::HAS_JOURNAL;
            // The orphan file is removed with the journal that it needs.
            let both = CompatFeatures::HAS_JOURNAL | CompatFeatures::ORPHAN_FILE;
            on.compat |= wanted.features.compat & both;
        }
        if on != Features::default() {
            self.upgrade_revision()?;
        }
        self.clear(&off)?;
        self.edit_checksums(&on, &wanted)?;
        self.set(&on)
    }

    fn check_before(&self, on: &Features, off: &Features) -> Result<(), TuneError> {
        self.orphan_file_size()?;
        if self.request.uuid.is_some() {
            self.need_free_uuid()?;
        }
        let has_csum_after = self.features().ro_compat.contains(RoCompatFeatures::METADATA_CSUM)
            && !off.ro_compat.contains(RoCompatFeatures::METADATA_CSUM)
            || on.ro_compat.contains(RoCompatFeatures::METADATA_CSUM);
        if on.incompat.contains(IncompatFeatures::CSUM_SEED) && !has_csum_after {
            return Err(ChangeError::SeedWithoutChecksums.into());
        }
        let after = self.features().difference(*off).union(*on).compat;
        if on.compat.contains(CompatFeatures::ORPHAN_FILE)
            && !after.contains(CompatFeatures::HAS_JOURNAL)
        {
            return Err(ChangeError::OrphanFileWithoutJournal.into());
        }
        if off.incompat.contains(IncompatFeatures::FLEX_BG) {
            self.need_own_tables()?;
        }
        let is_for_projects = self.quota_words()?.contains(&(QuotaKind::Project, true));
        if (on.ro_compat.contains(RoCompatFeatures::PROJECT) || is_for_projects)
            && self.volume.geometry().inode_size <= 128
        {
            return Err(ChangeError::InodesTooSmallForProject.into());
        }
        Ok(())
    }

    /// Without flex_bg every group has its tables inside.
    fn need_own_tables(&self) -> Result<(), TuneError> {
        let geometry = self.volume.geometry();
        let is_inside = |group| {
            let desc = self.volume.desc(group);
            [desc.block_bitmap, desc.inode_bitmap, desc.inode_table]
                .into_iter()
                .all(|block| geometry.group_of(block) == Some(group))
        };
        if (0..geometry.groups_count).map(GroupNo).all(is_inside) {
            return Ok(());
        }
        Err(ChangeError::TablesOutsideGroup.into())
    }

    /// Features whose files or checksums lie outside the superblock.
    fn refuse_unmounted_only(
        &self,
        on: &Features,
        off: &Features,
        wanted: &Wanted,
    ) -> Result<(), TuneError> {
        let edited = on.union(*off);
        let rows = [
            (ro_compat(RoCompatFeatures::QUOTA | RoCompatFeatures::PROJECT), "the quota feature"),
            (incompat(IncompatFeatures::CASEFOLD), "the casefold feature"),
            (incompat(IncompatFeatures::MMP), "the multiple mount protection feature"),
            (compat(CompatFeatures::HAS_JOURNAL), "the has_journal feature"),
            (compat(CompatFeatures::ORPHAN_FILE), "the orphan_file feature"),
            (ro_compat(RoCompatFeatures::GDT_CSUM), "the uninit_bg feature"),
            (ro_compat(RoCompatFeatures::METADATA_CSUM), "the metadata_csum feature"),
        ];
        for (features, what) in rows {
            if edited.intersection(features) != Features::default() {
                self.need_unmounted(what)?;
            }
        }
        if off.ro_compat.contains(RoCompatFeatures::HUGE_FILE) {
            self.need_unmounted("the huge_file feature")?;
        }
        if off.compat.intersects(CompatFeatures::DIR_INDEX | CompatFeatures::FAST_COMMIT) {
            self.need_unmounted("this feature")?;
        }
        if wanted.new_journal {
            self.need_unmounted("the has_journal feature")?;
        }
        if wanted.new_orphan_file {
            self.need_unmounted("the orphan_file feature")?;
        }
        Ok(())
    }

    fn clear(&mut self, off: &Features) -> Result<(), TuneError> {
        let mut off = *off;
        if off.compat.contains(CompatFeatures::HAS_JOURNAL) {
            self.remove_journal()?;
            if self.features().compat.contains(CompatFeatures::ORPHAN_FILE) {
                // It rests on the journal.
                off.compat |= CompatFeatures::ORPHAN_FILE;
            }
        }
        if off.compat.contains(CompatFeatures::ORPHAN_FILE) {
            self.remove_orphan_file()?;
        }
        if off.incompat.contains(IncompatFeatures::MMP) {
            self.remove_mmp()?;
        }
        if off.ro_compat.contains(RoCompatFeatures::QUOTA) {
            for kind in QuotaKind::ALL {
                self.remove_quota(kind)?;
            }
        } else if off.ro_compat.contains(RoCompatFeatures::PROJECT) {
            self.remove_quota(QuotaKind::Project)?;
        }
        if off.incompat.contains(IncompatFeatures::CASEFOLD) {
            self.need_no_folded_directory()?;
            self.change(|raw| {
                raw.s_encoding.set(0);
                raw.s_encoding_flags.set(0);
            })?;
        }
        if off.compat.contains(CompatFeatures::FAST_COMMIT) {
            self.clear_fast_commits()?;
        }
        // Counts that the passes of a check repair.
        self.wants_check |= off.compat.contains(CompatFeatures::RESIZE_INODE)
            || off.incompat.contains(IncompatFeatures::FILETYPE)
            || off.ro_compat.intersects(RoCompatFeatures::LARGE_FILE | RoCompatFeatures::HUGE_FILE);
        let is_unindexed = off.compat.contains(CompatFeatures::DIR_INDEX);
        if is_unindexed {
            match self.features().checksum() {
                MetadataChecksum::Crc32c => self.need_check_since_mount(Work::ClearDirIndex)?,
                _ => self.need_sound_volume(Work::ClearDirIndex)?,
            }
        }
        let plain = off.difference(checksum_features());
        self.change(|raw| raw.set_features(raw.features().difference(plain)))?;
        if is_unindexed {
            self.volume.commit()?;
            let geometry = self.volume.geometry().clone();
            repack::all_linear(&mut self.volume, &geometry)?;
            self.refresh_quotas()?;
        }
        Ok(())
    }

    /// uninit_bg, metadata_csum and its seed: one rewriting for all of them.
    fn edit_checksums(&mut self, on: &Features, wanted: &Wanted) -> Result<(), TuneError> {
        let now = self.features();
        let mut after = now.union(on.intersection(checksum_features()));
        after = after.difference(wanted.cleared.intersection(checksum_features()));
        if after.ro_compat.contains(RoCompatFeatures::METADATA_CSUM) {
            // The newer checksum replaces the older.
            after.ro_compat -= RoCompatFeatures::GDT_CSUM;
        } else if now.ro_compat.contains(RoCompatFeatures::METADATA_CSUM) {
            after.incompat -= IncompatFeatures::CSUM_SEED;
            if !wanted.cleared.ro_compat.contains(RoCompatFeatures::GDT_CSUM) {
                after.ro_compat |= RoCompatFeatures::GDT_CSUM;
            }
        }
        if after == now {
            return Ok(());
        }
        let seed = self.volume.raw.checksum_seed();
        let changed = move |raw: &mut extant_ondisk::superblock::RawSuperblock| {
            raw.set_features(after);
            let has_crc = after.checksum() == MetadataChecksum::Crc32c;
            raw.s_checksum_type =
                if has_crc { extant_ondisk::superblock::CHECKSUM_TYPE_CRC32C } else { 0 };
            let has_seed = after.incompat.contains(IncompatFeatures::CSUM_SEED);
            raw.s_checksum_seed.set(if has_seed { seed } else { 0 });
        };
        let mut trial = self.volume.raw;
        changed(&mut trial);
        if after.checksum() == now.checksum() && trial.checksum_seed() == seed {
            // Only where the seed is kept has changed.
            return self.change(changed);
        }
        self.need_unmounted("the metadata_csum feature")?;
        match [now.checksum(), after.checksum()].contains(&MetadataChecksum::Crc32c) {
            true => self.need_check_since_mount(Work::ChangeChecksums)?,
            false => self.need_sound_volume(Work::ChangeChecksums)?,
        }
        if after.checksum() == MetadataChecksum::Crc32c
            && now.checksum() != MetadataChecksum::Crc32c
        {
            self.say_weak_checksums(&now.union(*on));
        }
        rewrite::checksums(&mut self.volume, changed)?;
        match after.ro_compat.contains(RoCompatFeatures::METADATA_CSUM)
            == now.ro_compat.contains(RoCompatFeatures::METADATA_CSUM)
        {
            true => Ok(()),
            false => self.refresh_quotas(),
        }
    }

    /// Names the features without which the checksums cover less, as tune2fs does.
    fn say_weak_checksums(&mut self, features: &Features) {
        if !features.incompat.contains(IncompatFeatures::EXTENTS) {
            self.say(
                "Extents are not enabled.  The file extent tree can be checksummed, whereas block \
                 maps cannot.  Not enabling extents reduces the coverage of metadata \
                 checksumming.  Re-run with -O extent to rectify.",
            );
        }
        if !features.incompat.contains(IncompatFeatures::BIT64) {
            self.say(
                "64-bit filesystem support is not enabled.  The larger fields afforded by this \
                 feature enable full-strength checksumming.  Run resize2fs -b to rectify.",
            );
        }
    }

    fn set(&mut self, on: &Features) -> Result<(), TuneError> {
        let made = compat(CompatFeatures::HAS_JOURNAL | CompatFeatures::ORPHAN_FILE)
            .union(incompat(IncompatFeatures::MMP))
            .union(ro_compat(RoCompatFeatures::QUOTA | RoCompatFeatures::PROJECT));
        let plain = on.difference(checksum_features()).difference(made);
        if plain.incompat.contains(IncompatFeatures::FILETYPE)
            || plain.ro_compat.contains(RoCompatFeatures::SPARSE_SUPER)
        {
            self.wants_check = true;
        }
        let extended = self.request.extended.clone();
        self.change(|raw| {
            raw.set_features(raw.features().union(plain));
            if plain.incompat.contains(IncompatFeatures::ENCRYPT) {
                raw.s_encrypt_algos = ENCRYPT_ALGORITHMS;
            }
            if plain.incompat.contains(IncompatFeatures::CASEFOLD) {
                const UTF8_12_1: u16 = 1;
                raw.s_encoding.set(extended.encoding.unwrap_or(UTF8_12_1));
                raw.s_encoding_flags.set(extended.encoding_flags.unwrap_or(0));
            }
        })?;
        if on.compat.contains(CompatFeatures::HAS_JOURNAL) {
            self.add_journal()?;
        }
        if on.compat.contains(CompatFeatures::ORPHAN_FILE) {
            self.add_orphan_file()?;
        }
        if on.incompat.contains(IncompatFeatures::MMP) {
            self.add_mmp()?;
        }
        // If -Q names quotas, the feature is set too.
        let is_said = self.request.quota.is_some();
        if on.ro_compat.contains(RoCompatFeatures::QUOTA) && !is_said {
            self.add_quota(QuotaKind::User)?;
            self.add_quota(QuotaKind::Group)?;
        }
        let has_project = self.features().ro_compat.contains(RoCompatFeatures::PROJECT);
        if on.ro_compat.contains(RoCompatFeatures::PROJECT)
            || (on.ro_compat.contains(RoCompatFeatures::QUOTA) && has_project && !is_said)
        {
            self.add_quota(QuotaKind::Project)?;
        }
        Ok(())
    }

    fn need_no_folded_directory(&mut self) -> Result<(), TuneError> {
        let geometry = self.volume.geometry().clone();
        records::each_record(&mut self.volume, &geometry, |_, number, record| {
            let Ok(inode) = Inode::decode(record, number, &geometry) else { return Ok(false) };
            if inode.links > 0 && inode.is_dir() && inode.flags.contains(InodeFlags::CASEFOLD) {
                return Err(ChangeError::FoldedDirectory(number).into());
            }
            Ok(false)
        })
    }
}

fn checksum_features() -> Features {
    incompat(IncompatFeatures::CSUM_SEED)
        .union(ro_compat(RoCompatFeatures::GDT_CSUM | RoCompatFeatures::METADATA_CSUM))
}
