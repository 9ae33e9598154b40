//! Finding an external journal from the fields of the volume's superblock.
//!
//! The UUID decides. The device with the number in the superblock is read first, as the kernel's
//! mount takes that one. Device numbers change between boots, so if it is missing or holds
//! something else, every other block device of the machine is read. e2fsck finds the journal by its
//! UUID too. 1 KiB of each device is read, and nothing is written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant_device::{Device, FileDevice, FileDeviceOptions, FileError, block_devices};
use extant_ondisk::jbd2::{JOURNAL_MAGIC, RawJournalSuperblock};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_MAGIC, SUPERBLOCK_OFFSET};
use extant_ondisk::{CompatFeatures, Geometry, GroupNo, IncompatFeatures, Uuid};
use zerocopy::{FromZeros, IntoBytes};

use crate::{JournalError, JournalLocation, Log};

/// Why a journal's own device was not opened.
#[derive(Debug, thiserror::Error)]
pub enum NotOpened {
    /// It is not known which device it is.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The device cannot be opened.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The device of an external journal; without one, the reason if it is known.
pub type FoundJournal = (Option<Arc<dyn Device>>, Option<JournalError>);

/// A journal on a device of its own, as the volume's superblock names it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ExternalJournal {
    /// The UUID of the journal's device.
    pub uuid: Uuid,
    /// The UUID of the volume, which the journal lists among its users.
    pub volume: Uuid,
    /// The device number at the last mount, in the form of [`block_devices::number_of`]; 0 for a
    /// file.
    pub device_number: u32,
}

impl ExternalJournal {
    /// The external journal that a superblock names. `None` if the volume has no journal or an
    /// internal one.
    pub fn named_by(superblock: &RawSuperblock) -> Option<Self> {
        let compat = superblock.features().compat;
        let is_external =
            compat.contains(CompatFeatures::HAS_JOURNAL) && superblock.s_journal_inum.get() == 0;
        Self::outside(superblock).filter(|_| is_external)
    }

    /// The external journal that a superblock names, also if the volume has an internal one.
    fn outside(superblock: &RawSuperblock) -> Option<Self> {
        (superblock.s_journal_uuid != [0; 16]).then(|| Self {
            uuid: Uuid(superblock.s_journal_uuid),
            volume: Uuid(superblock.s_uuid),
            device_number: superblock.s_journal_dev.get(),
        })
    }

    /// As [`Self::named_by`], for the volume on a device. Only the superblock is read. `None` too
    /// if that is invalid: opening the volume reports why. Its checksum is not verified, since
    /// replaying the log repairs a torn superblock.
    pub fn of_volume(volume: &dyn Device) -> Option<Self> {
        Self::named_by(&superblock_at(volume, SUPERBLOCK_OFFSET)?)
    }

    /// The external journal that the superblock at a byte of the device names, also if the volume
    /// has an internal one: for a check, which reads the superblock again.
    pub fn of_superblock_at(volume: &dyn Device, offset: u64) -> Option<Self> {
        let raw = superblock_at(volume, offset)?;
        let has_journal = raw.features().compat.contains(CompatFeatures::HAS_JOURNAL);
        Self::outside(&raw).filter(|_| has_journal)
    }

    /// As [`Self::of_volume`], but only if the volume cannot be read without its journal: the log
    /// must be replayed, or the superblock is not valid.
    pub fn needed_to_read(volume: &dyn Device) -> Option<Self> {
        let raw = superblock_at(volume, SUPERBLOCK_OFFSET)?;
        let needs_recovery = raw.features().incompat.contains(IncompatFeatures::RECOVER);
        Self::named_by(&raw).filter(|_| needs_recovery || raw.verify(GroupNo(0)).is_err())
    }

    /// The block device that holds the journal; `None` where no such device can be read.
    ///
    /// # Errors
    /// The only such device does not list the volume, or there are two, neither of which has the
    /// number that the superblock stores.
    pub fn find(&self) -> Result<Option<PathBuf>, JournalError> {
        let by_number = block_devices::path_of(self.device_number).ok();
        let by_number = by_number.filter(|_| self.device_number != 0);
        if let Some(path) = by_number.filter(|path| self.examine(path) == Some(true)) {
            return Ok(Some(path));
        }
        let mut unlisted = None;
        let mut listed = Vec::new();
        for path in block_devices::all() {
            match self.examine(&path) {
                Some(true) => listed.push(path),
                Some(false) if unlisted.is_none() => unlisted = Some(path),
                _ => {}
            }
        }
        let uuid = self.uuid;
        match (listed.as_slice(), unlisted) {
            ([one, other, ..], _) => {
                let devices = [one.clone(), other.clone()];
                Err(JournalError::OnTwoDevices { uuid, devices })
            }
            ([], Some(device)) => Err(JournalError::NotListed { uuid, device }),
            (found, _) => Ok(found.first().cloned()),
        }
    }

    /// Finds and opens the journal's device. `None` if it is not found.
    ///
    /// # Errors
    /// As [`Self::find`]; or it was found and cannot be opened so: it may be in use.
    pub fn open(&self, options: &FileDeviceOptions) -> Result<Option<Arc<FileDevice>>, NotOpened> {
        Ok(self.find()?.map(|path| options.open(path).map(Arc::new)).transpose()?)
    }

    /// Finds and opens the external journal of the volume on a device. That it is not found is not
    /// an error here: a clean volume may not need it.
    ///
    /// # Errors
    /// It was found and cannot be opened: for example, it is in use.
    pub fn find_for(
        volume: &dyn Device,
        options: &FileDeviceOptions,
    ) -> Result<FoundJournal, FileError> {
        let Some(journal) = Self::of_volume(volume) else { return Ok((None, None)) };
        match journal.open(options) {
            Ok(found) => Ok((found.map(|device| device as Arc<dyn Device>), None)),
            Err(NotOpened::Journal(why)) => Ok((None, Some(why))),
            Err(NotOpened::File(error)) => Err(error),
        }
    }

    /// Whether a block device is this journal, and then whether it lists the volume: an image may
    /// name any journal. `None` where it is another, or cannot be read.
    fn examine(&self, path: &Path) -> Option<bool> {
        let mut raw = RawSuperblock::new_zeroed();
        block_devices::peek(path, SUPERBLOCK_OFFSET, raw.as_mut_bytes()).ok()?;
        if !self.is_superblock_of(&raw) {
            return None;
        }
        let mut journal = RawJournalSuperblock::new_zeroed();
        let at = journal_superblock_at(&raw);
        block_devices::peek(path, at, journal.as_mut_bytes()).ok()?;
        Some(self.is_listed_in(&journal))
    }

    /// Whether the volume is among the users of a journal. An invalid journal superblock lists no
    /// users: the checker recreates it.
    fn is_listed_in(&self, journal: &RawJournalSuperblock) -> bool {
        let count = journal.s_nr_users.get() as usize;
        journal.s_header.h_magic.get() != JOURNAL_MAGIC
            || journal.s_users.iter().take(count).any(|user| *user == self.volume.0)
    }

    /// Whether a superblock is that of this journal's device. A wrong checksum is accepted: the
    /// checker fixes it.
    fn is_superblock_of(&self, raw: &RawSuperblock) -> bool {
        raw.s_magic.get() == SUPERBLOCK_MAGIC
            && raw.features().incompat.contains(IncompatFeatures::JOURNAL_DEV)
            && raw.s_uuid == self.uuid.0
    }
}

/// Byte offset of the journal superblock on its device: it is in the block after the file system
/// superblock.
fn journal_superblock_at(raw: &RawSuperblock) -> u64 {
    let block_size = 1024_u64.checked_shl(raw.s_log_block_size.get()).unwrap_or(0);
    block_size.max(2 * SUPERBLOCK_OFFSET)
}

fn superblock_at(volume: &dyn Device, offset: u64) -> Option<RawSuperblock> {
    let mut raw = RawSuperblock::new_zeroed();
    volume.read_at(offset, raw.as_mut_bytes()).ok()?;
    Some(raw).filter(|raw| raw.s_magic.get() == SUPERBLOCK_MAGIC)
}

/// Replaces the UUID of the volume whose superblock is given in the journal device's list of users,
/// or removes it. A list without the volume is not changed.
///
/// # Errors
/// The device is not the volume's journal, or it failed.
pub fn change_user(
    device: &dyn Device,
    superblock: &RawSuperblock,
    geometry: &Geometry,
    new: Option<Uuid>,
) -> Result<(), JournalError> {
    let place = JournalLocation::external(device, superblock, geometry)?;
    let log = Log { device, place: &place };
    let (mut raw, journal) = log.superblock()?;
    let old = Uuid(superblock.s_uuid);
    if !journal.users.contains(&old) {
        return Ok(());
    }
    let others = journal.users.iter().copied().filter(|user| *user != old);
    let users: Vec<_> = others.chain(new).collect();
    raw.set_users(&users);
    raw.seal();
    log.write_superblock_bytes(raw.as_bytes())?;
    Ok(device.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_ondisk::Features;

    const JOURNAL: ExternalJournal =
        ExternalJournal { uuid: Uuid([7; 16]), volume: Uuid([9; 16]), device_number: 0x701 };

    fn volume() -> RawSuperblock {
        let mut raw = RawSuperblock::new_zeroed();
        raw.s_magic.set(SUPERBLOCK_MAGIC);
        raw.s_rev_level.set(1);
        let compat = CompatFeatures::HAS_JOURNAL;
        raw.set_features(Features { compat, ..raw.features() });
        raw.s_uuid = [9; 16];
        raw.s_journal_uuid = [7; 16];
        raw.s_journal_dev.set(0x701);
        raw
    }

    #[test]
    fn a_superblock_names_a_journal_unless_it_has_it_inside_or_none() {
        assert_eq!(ExternalJournal::named_by(&volume()), Some(JOURNAL));
        let mut inside = volume();
        inside.s_journal_inum.set(8);
        assert_eq!(ExternalJournal::named_by(&inside), None);
        let mut without = volume();
        without.set_features(Features { compat: CompatFeatures::empty(), ..without.features() });
        assert_eq!(ExternalJournal::named_by(&without), None);
    }

    #[test]
    fn a_journal_is_known_by_its_feature_and_its_uuid() {
        let mut raw = volume();
        raw.s_uuid = [7; 16];
        assert!(!JOURNAL.is_superblock_of(&raw), "a volume of the same UUID");
        raw.set_features(Features { incompat: IncompatFeatures::JOURNAL_DEV, ..raw.features() });
        assert!(JOURNAL.is_superblock_of(&raw));
        raw.s_uuid[15] = 8;
        assert!(!JOURNAL.is_superblock_of(&raw), "another's journal");
        (raw.s_uuid[15], raw.s_magic) = (7, 0.into());
        assert!(!JOURNAL.is_superblock_of(&raw), "no superblock");
    }
    #[test]
    fn a_journal_is_for_the_volumes_that_it_lists() {
        let mut journal = RawJournalSuperblock::new_zeroed();
        assert!(JOURNAL.is_listed_in(&journal), "it is not a journal's superblock");
        journal.s_header.h_magic.set(JOURNAL_MAGIC);
        assert!(!JOURNAL.is_listed_in(&journal));
        journal.set_users(&[Uuid([8; 16]), JOURNAL.volume]);
        assert!(JOURNAL.is_listed_in(&journal));
        journal.s_nr_users.set(1);
        assert!(!JOURNAL.is_listed_in(&journal), "beyond the last");
    }
}
