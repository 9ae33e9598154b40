//! The superblock's fields that `Geometry` does not check.

use super::Pass0;
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use extant_ondisk::inode::RawInode;
use extant_ondisk::superblock::{RawSuperblock, Superblock};
use extant_ondisk::{CompatFeatures, IncompatFeatures, InodeNo, Uuid};
use extant_ondisk::{MetadataChecksum, RoCompatFeatures};
use zerocopy::FromBytes;

/// `s_rev_level` of volumes with features: the last one that there is.
const DYNAMIC_REVISION: u32 = 1;
/// `s_creator_os` of the Hurd.
const HURD: u32 = 1;
/// The extra fields of an inode that the format started with.
const LEAST_EXTRA: u16 = 4;

impl Pass0<'_> {
    pub(super) fn check_fields(&mut self) -> Result<(), CheckError> {
        self.check_form()?;
        self.check_features()?;
        self.check_uuid()?;
        self.check_extra_isize()?;
        self.check_quota_inodes()?;
        if self.options.checks_times {
            self.check_times()?;
        }
        self.check_counts()
    }

    fn change(
        &mut self,
        finding: Finding,
        change: impl FnOnce(&mut RawSuperblock),
    ) -> Result<(), CheckError> {
        if self.should_fix(finding)? {
            self.volume.update_superblock(change)?;
        }
        Ok(())
    }

    /// Fields that determine how the rest is read.
    fn check_form(&mut self) -> Result<(), CheckError> {
        let raw = &self.volume.raw;
        let revision = raw.s_rev_level.get();
        if revision > DYNAMIC_REVISION {
            let finding = Finding::new(Code::RevisionTooHigh)
                .found(u64::from(revision))
                .expected(u64::from(DYNAMIC_REVISION));
            self.change(finding, |raw| raw.s_rev_level.set(DYNAMIC_REVISION))?;
        }
        let raw = &self.volume.raw;
        let has_clusters = raw.features().ro_compat.contains(RoCompatFeatures::BIGALLOC);
        let are_blocks = raw.s_log_cluster_size == raw.s_log_block_size
            && raw.s_clusters_per_group == raw.s_blocks_per_group;
        if !has_clusters && !are_blocks {
            let finding = Finding::new(Code::ClustersWithoutBigalloc)
                .found(u64::from(raw.s_clusters_per_group.get()))
                .expected(u64::from(raw.s_blocks_per_group.get()));
            self.change(finding, |raw| {
                raw.s_log_cluster_size = raw.s_log_block_size;
                raw.s_clusters_per_group = raw.s_blocks_per_group;
            })?;
        }
        Ok(())
    }

    fn check_features(&mut self) -> Result<(), CheckError> {
        let features = self.volume.raw.features();
        let (compat, incompat, ro_compat) =
            (features.compat, features.incompat, features.ro_compat);
        if ro_compat.contains(RoCompatFeatures::METADATA_CSUM | RoCompatFeatures::GDT_CSUM) {
            self.change(Finding::new(Code::ChecksumFeaturesBoth), |raw| {
                let mut features = raw.features();
                features.ro_compat -= RoCompatFeatures::GDT_CSUM;
                raw.set_features(features);
            })?;
        }
        if incompat.contains(IncompatFeatures::CSUM_SEED)
            && !ro_compat.contains(RoCompatFeatures::METADATA_CSUM)
        {
            self.change(Finding::new(Code::ChecksumSeedNeedless), |raw| {
                let mut features = raw.features();
                features.incompat -= IncompatFeatures::CSUM_SEED;
                raw.set_features(features);
                raw.s_checksum_seed.set(0);
            })?;
        }
        if compat.contains(CompatFeatures::RESIZE_INODE)
            && incompat.contains(IncompatFeatures::META_BG)
        {
            self.change(Finding::new(Code::ResizeInodeWithMetaBg), |raw| {
                let mut features = raw.features();
                features.compat -= CompatFeatures::RESIZE_INODE;
                raw.set_features(features);
                raw.s_reserved_gdt_blocks.set(0);
            })?;
        }
        let raw = &self.volume.raw;
        let reserved = raw.s_reserved_gdt_blocks.get();
        if reserved != 0 && !raw.features().compat.contains(CompatFeatures::RESIZE_INODE) {
            let finding = Finding::new(Code::ReservedGdtNeedless).found(u64::from(reserved));
            self.change(finding, |raw| raw.s_reserved_gdt_blocks.set(0))?;
        }
        if self.volume.raw.s_creator_os.get() == HURD
            && incompat.contains(IncompatFeatures::FILETYPE)
        {
            self.change(Finding::new(Code::HurdFiletype), |raw| {
                let mut features = raw.features();
                features.incompat -= IncompatFeatures::FILETYPE;
                raw.set_features(features);
            })?;
        }
        let has_file = compat.contains(CompatFeatures::ORPHAN_FILE);
        let number = self.volume.raw.s_orphan_file_inum.get();
        if number != 0 && !has_file {
            let finding = Finding::new(Code::OrphanFileWithoutFeature).inode(InodeNo(number));
            self.change(finding, |raw| raw.s_orphan_file_inum.set(0))?;
        }
        if ro_compat.contains(RoCompatFeatures::ORPHAN_PRESENT) && !has_file {
            self.change(Finding::new(Code::OrphanPresentWithoutFile), |raw| {
                let mut features = raw.features();
                features.ro_compat -= RoCompatFeatures::ORPHAN_PRESENT;
                raw.set_features(features);
            })?;
        }
        Ok(())
    }

    /// A volume of the time before UUIDs. Where checksums start with it, a nil one is as good as
    /// any.
    fn check_uuid(&mut self) -> Result<(), CheckError> {
        let raw = &self.volume.raw;
        let is_in_checksums = raw.features().checksum() != MetadataChecksum::None;
        if !Uuid(raw.s_uuid).is_nil() || is_in_checksums || !self.may_repair() {
            return Ok(());
        }
        let fresh = self.options.fresh_uuid;
        self.change(Finding::new(Code::UuidMissing), |raw| raw.s_uuid = fresh.0)
    }

    fn check_extra_isize(&mut self) -> Result<(), CheckError> {
        let raw = &self.volume.raw;
        let inode_size = self.volume.geometry().inode_size;
        if inode_size <= 128 || raw.s_rev_level.get() == 0 {
            return Ok(());
        }
        let room = inode_size - 128;
        let is_bad =
            |size: u16| size != 0 && (size < LEAST_EXTRA || size > room || !size.is_multiple_of(4));
        let (least, wanted) = (raw.s_min_extra_isize.get(), raw.s_want_extra_isize.get());
        let good = room.min(32);
        for (value, name, is_least) in [(least, "required", true), (wanted, "desired", false)] {
            if !is_bad(value) {
                continue;
            }
            let finding = Finding::new(Code::ExtraIsizeBad)
                .detail(name.to_owned())
                .found(u64::from(value))
                .expected(u64::from(good));
            self.change(finding, |raw| {
                if is_least {
                    raw.s_min_extra_isize.set(good);
                } else {
                    raw.s_want_extra_isize.set(good);
                }
            })?;
        }
        Ok(())
    }

    fn check_quota_inodes(&mut self) -> Result<(), CheckError> {
        let raw = &self.volume.raw;
        let has_quota = raw.features().ro_compat.contains(RoCompatFeatures::QUOTA);
        let quotas = [
            ("user", raw.s_usr_quota_inum.get(), Some(InodeNo::USER_QUOTA)),
            ("group", raw.s_grp_quota_inum.get(), Some(InodeNo::GROUP_QUOTA)),
            ("project", raw.s_prj_quota_inum.get(), None),
        ];
        for (name, number, reserved) in quotas {
            let number = InodeNo(number);
            // One file cannot serve two quotas; that of projects has no reserved number.
            let is_shared = reserved.is_some_and(|reserved| reserved != number)
                && quotas.iter().any(|(other, of, _)| *other != name && *of == number.0);
            let code = if number.0 == 0 {
                None
            } else if has_quota {
                let is_possible = self.can_be_file(number) || reserved == Some(number);
                (!is_possible || is_shared).then_some(Code::QuotaInodeBad)
            } else if [InodeNo::USER_QUOTA, InodeNo::GROUP_QUOTA].contains(&number) {
                None // not other files
            } else if self.is_file(number) {
                // The number hides the file from the passes of others.
                Some(Code::QuotaInodeHidesFile)
            } else {
                (!self.can_be_file(number)).then_some(Code::QuotaNumberNeedless)
            };
            let Some(code) = code else { continue };
            let finding =
                Finding::new(code).inode(number).detail(name.to_owned()).found(number.0.into());
            // If nothing is written, the passes check the file of that number as if it had been.
            if self.should_fix(finding)? || !self.may_repair() {
                self.volume.update_superblock(|raw| match name {
                    "user" => raw.s_usr_quota_inum.set(0),
                    "group" => raw.s_grp_quota_inum.set(0),
                    _ => raw.s_prj_quota_inum.set(0),
                })?;
            }
        }
        Ok(())
    }

    fn can_be_file(&self, number: InodeNo) -> bool {
        let geometry = self.volume.geometry();
        (geometry.first_inode.0..=geometry.inodes_count).contains(&number.0)
    }

    /// Whether an inode is the root or a file in use.
    fn is_file(&self, number: InodeNo) -> bool {
        let has_links = || {
            let record = self.volume.read_inode(number).ok()?;
            let (raw, _) = RawInode::ref_from_prefix(&record).ok()?;
            Some(raw.i_links_count.get() > 0)
        };
        number == InodeNo::ROOT || self.can_be_file(number) && has_links() == Some(true)
    }

    fn check_times(&mut self) -> Result<(), CheckError> {
        let superblock = Superblock::decode(&self.volume.raw);
        let now = self.now();
        let limit = now.saturating_add(self.options.time_fudge);
        let times =
            [("mount", superblock.mount_time, true), ("write", superblock.write_time, false)];
        for (name, time, is_mount) in times {
            if time <= limit {
                continue;
            }
            let finding =
                Finding::new(Code::TimeInFuture).detail(name.to_owned()).found(time).expected(now);
            self.change(finding, |raw| {
                if is_mount {
                    raw.set_mount_time(now);
                } else {
                    raw.set_write_time(now);
                }
            })?;
        }
        Ok(())
    }

    fn check_counts(&mut self) -> Result<(), CheckError> {
        let superblock = Superblock::decode(&self.volume.raw);
        let blocks = superblock.blocks_count;
        if superblock.reserved_blocks > blocks / 2 {
            let right = blocks / 20;
            let finding = Finding::new(Code::ReservedBlocksTooMany)
                .found(superblock.reserved_blocks)
                .expected(right);
            self.change(finding, |raw| {
                raw.s_r_blocks_count_lo.set((right & 0xffff_ffff) as u32);
                raw.s_r_blocks_count_hi.set((right >> 32) as u32);
            })?;
        }
        Ok(())
    }
}
