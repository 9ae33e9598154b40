//! Plain fields of the superblock.

use extant_ondisk::superblock::{DefaultMountOptions, State, SuperFlags};
use extant_ondisk::{Features, IncompatFeatures, MetadataChecksum, RoCompatFeatures, Uuid};

use super::error::{ChangeError, RequestError, TuneError, Unsupported, Work};
use super::request::MaxMounts;
use super::rewrite;
use super::work::Tune;
use crate::mkfs::UuidChoice;
use crate::mkfs::identity::{cut, random, random_uuid, time_uuid};
use crate::mkfs::params::mount_option;

impl Tune<'_> {
    pub(super) fn set_fields(&mut self) -> Result<(), TuneError> {
        self.set_inode_size()?;
        self.set_counts()?;
        self.set_reserved()?;
        self.set_names()?;
        self.set_mount_options()?;
        self.set_extended()
    }

    /// Inode tables do not grow in place; a size that the volume has already changes nothing.
    fn set_inode_size(&self) -> Result<(), TuneError> {
        let Some(size) = self.request.inode_size else { return Ok(()) };
        self.need_unmounted("the inode size")?;
        let now = self.volume.geometry().inode_size;
        if size == now {
            return Err(ChangeError::SameInodeSize(size).into());
        }
        if size < now {
            return Err(ChangeError::SmallerInodes.into());
        }
        if u32::from(size) > self.volume.geometry().block_size {
            let max = self.volume.geometry().block_size;
            return Err(ChangeError::InodeSize { size, max }.into());
        }
        if self.features().incompat.contains(IncompatFeatures::FLEX_BG) {
            return Err(ChangeError::InodeSizeWithFlexBg.into());
        }
        Err(TuneError::Unsupported(Unsupported::InodeSize))
    }

    fn set_counts(&mut self) -> Result<(), TuneError> {
        let request = self.request;
        if let Some(wanted) = request.max_mounts {
            let count = match wanted {
                MaxMounts::Count(0) => -1,
                MaxMounts::Count(count) => count,
                MaxMounts::Random => 20 + i32::from(random::<1>()?[0] % 20),
            };
            self.say(&format!("Setting maximal mount count to {count}"));
            // The field has 16 bits; -1 is all of them.
            self.change(|raw| raw.s_max_mnt_count.set(count as u16))?;
        }
        if let Some(count) = request.mount_count {
            self.say(&format!("Setting current mount count to {}", count.cast_signed()));
            self.change(|raw| raw.s_mnt_count.set(count))?;
        }
        if let Some(policy) = request.errors {
            let number = policy.encode();
            self.say(&format!("Setting error behavior to {number}"));
            self.change(|raw| raw.s_errors.set(number))?;
        }
        if let Some(seconds) = request.interval {
            self.say(&format!("Setting interval between checks to {seconds} seconds"));
            self.change(|raw| raw.s_checkinterval.set(seconds))?;
        }
        if let Some(time) = request.last_check {
            let text = request.last_check_text.clone().unwrap_or_else(|| time.to_string());
            self.say(&format!("Setting time filesystem last checked to {text}"));
            self.change(|raw| raw.set_check_time(time))?;
        }
        Ok(())
    }

    fn set_reserved(&mut self) -> Result<(), TuneError> {
        let request = self.request;
        let blocks = self.volume.geometry().blocks_count;
        if let Some(ratio) = request.reserved_ratio {
            // At most half of 2^64 blocks; the fraction is cut off.
            let reserved = (ratio * blocks as f64 / 100.0) as u64;
            self.say(&format!(
                "Setting reserved blocks percentage to {ratio}% ({reserved} blocks)"
            ));
            self.reserve(reserved)?;
        }
        if let Some(reserved) = request.reserved_blocks {
            if reserved > blocks / 2 {
                return Err(ChangeError::ReservedBlocks(reserved).into());
            }
            self.say(&format!("Setting reserved blocks count to {reserved}"));
            self.reserve(reserved)?;
        }
        // The fields have 16 bits.
        let narrow = |id: u32| u16::try_from(id).map_err(|_| RequestError::Id(id));
        if let Some(id) = request.reserved_uid {
            let id = narrow(id)?;
            self.say(&format!("Setting reserved blocks uid to {id}"));
            self.change(|raw| raw.s_def_resuid.set(id))?;
        }
        if let Some(id) = request.reserved_gid {
            let id = narrow(id)?;
            self.say(&format!("Setting reserved blocks gid to {id}"));
            self.change(|raw| raw.s_def_resgid.set(id))?;
        }
        Ok(())
    }

    fn reserve(&mut self, blocks: u64) -> Result<(), TuneError> {
        let is_64bit = self.features().incompat.contains(IncompatFeatures::BIT64);
        self.change(|raw| {
            raw.s_r_blocks_count_lo.set((blocks & 0xffff_ffff) as u32);
            if is_64bit {
                raw.s_r_blocks_count_hi.set((blocks >> 32) as u32);
            }
        })
    }

    fn set_names(&mut self) -> Result<(), TuneError> {
        let request = self.request;
        if let Some(label) = &request.label {
            if label.len() > 16 {
                self.prompt.warn("Warning: label too long, truncating.");
            }
            self.change(|raw| raw.s_volume_name = cut(label))?;
        }
        if let Some(path) = &request.last_mounted {
            self.change(|raw| raw.s_last_mounted = cut(path))?;
        }
        Ok(())
    }

    /// `-o`: names set, `^names` cleared. The journal modes are one field of two bits.
    fn set_mount_options(&mut self) -> Result<(), TuneError> {
        let Some(list) = &self.request.mount_options else { return Ok(()) };
        let modes = DefaultMountOptions::DATA_JOURNAL | DefaultMountOptions::DATA_ORDERED;
        let mut options =
            DefaultMountOptions::from_bits_retain(self.volume.raw.s_default_mount_opts.get());
        for word in list.split([',', ' ']).filter(|word| !word.is_empty()) {
            let (name, clear) = match word.strip_prefix(['^', '-']) {
                Some(name) => (name, true),
                None => (word.strip_prefix('+').unwrap_or(word), false),
            };
            let flag = mount_option(&name.to_ascii_lowercase())
                .ok_or_else(|| RequestError::MountOptions(list.clone()))?;
            if modes.contains(flag) {
                options -= modes;
            }
            options.set(flag, !clear);
        }
        self.change(|raw| raw.s_default_mount_opts.set(options.bits()))
    }

    fn set_extended(&mut self) -> Result<(), TuneError> {
        let extended = self.request.extended.clone();
        if let Some((version, name)) = extended.hash_alg {
            self.say(&format!("Setting default hash algorithm to {name} ({version})"));
            self.change(|raw| raw.s_def_hash_version = version)?;
        }
        if let Some(blocks) = extended.stride {
            self.say(&format!("Setting stride size to {blocks}"));
            self.change(|raw| raw.s_raid_stride.set(blocks))?;
        }
        if let Some(blocks) = extended.stripe_width {
            self.say(&format!("Setting stripe width to {blocks}"));
            self.change(|raw| raw.s_raid_stripe_width.set(blocks))?;
        }
        if let Some(options) = extended.mount_opts {
            self.say(&format!("Setting extended default mount options to '{options}'"));
            self.change(|raw| raw.s_mount_opts = cut(options.as_bytes()))?;
        }
        if extended.force_fsck {
            self.say("Setting filesystem error flag to force fsck.");
            let errors = State::ERRORS.bits();
            self.change(|raw| raw.s_state.set(raw.s_state.get() | errors))?;
        }
        if let Some(is_test) = extended.test_fs {
            let verb = if is_test { "Setting" } else { "Clearing" };
            self.say(&format!("{verb} test filesystem flag"));
            self.change(|raw| {
                let mut flags = SuperFlags::from_bits_retain(raw.s_flags.get());
                flags.set(SuperFlags::TEST_FILESYS, is_test);
                raw.s_flags.set(flags.bits());
            })?;
        }
        if let Some(seconds) = extended.mmp_update_interval {
            self.need_unmounted("the multiple mount protection interval")?;
            self.set_mmp_interval(seconds)?;
        }
        Ok(())
    }

    /// Where inodes are stable, so is the UUID.
    pub(super) fn need_free_uuid(&self) -> Result<(), TuneError> {
        if self.features().compat.contains(extant_ondisk::CompatFeatures::STABLE_INODES) {
            return Err(ChangeError::StableInodes.into());
        }
        Ok(())
    }

    /// `-U`: if checksums start from the UUID, all of them are written again.
    pub(super) fn set_uuid(&mut self) -> Result<(), TuneError> {
        let Some(choice) = self.request.uuid else { return Ok(()) };
        let features = self.features();
        self.need_free_uuid()?;
        let uuid = match choice {
            UuidChoice::Random => random_uuid()?,
            UuidChoice::Time => time_uuid()?,
            UuidChoice::Clear => Uuid::NIL,
            UuidChoice::Given(uuid) => Uuid(uuid.into_bytes()),
        };
        let rests = rests_on_uuid(&features);
        if rests {
            self.need_unmounted("the UUID")?;
            match features.checksum() {
                MetadataChecksum::Crc32c => self.need_check_since_mount(Work::ChangeUuid)?,
                _ => self.need_sound_volume(Work::ChangeUuid)?,
            }
        }
        self.change_journal_user(Some(uuid))?;
        if !rests {
            return self.change(|raw| raw.s_uuid = uuid.0);
        }
        rewrite::checksums(&mut self.volume, |raw| raw.s_uuid = uuid.0)
    }
}

/// Whether anything but the superblock depends on the UUID.
fn rests_on_uuid(features: &Features) -> bool {
    let has_seed = features.incompat.contains(IncompatFeatures::CSUM_SEED);
    let hashes_values = features.incompat.contains(IncompatFeatures::EA_INODE);
    match features.checksum() {
        MetadataChecksum::None => hashes_values && !has_seed,
        MetadataChecksum::Crc32c => !has_seed,
        _ => features.ro_compat.contains(RoCompatFeatures::GDT_CSUM) || hashes_values,
    }
}
