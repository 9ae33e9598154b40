//! Journals on devices of their own: making one, and attaching one to a new volume.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use extant_device::{Device, DeviceError, FileDevice, FileDeviceOptions, block_devices};
use extant_ondisk::jbd2::{JournalSuperblock, RawJournalSuperblock};
use extant_ondisk::superblock::RawSuperblock;
use extant_ondisk::{GroupNo, IncompatFeatures, Uuid};
use zerocopy::IntoBytes;

use super::error::{JournalDeviceError, MkfsError};
use super::identity::Identity;
use super::inodes::journal_superblock;
use super::params::FsParams;
use super::superblock::raw_superblock;
use super::volume::NewVolume;

const SUPERBLOCK_AT: u64 = 1024;

/// The location of the journal's own superblock: the block after the volume's.
fn journal_block(block_size: u32) -> u64 {
    SUPERBLOCK_AT / u64::from(block_size) + 1
}

/// Makes a journal device: a superblock with that feature, followed by an empty log.
pub(super) fn make(
    device: &dyn Device,
    offset: u64,
    params: &FsParams,
    identity: &Identity,
) -> Result<(), DeviceError> {
    let Some(journal) = params.journal else { return Ok(()) };
    let block_size = u64::from(params.block_size);
    let size = params.blocks * block_size;
    for run in extant_device::data_runs(device, offset..offset + size) {
        device.write_zeroes(run?)?;
    }
    let block = journal_block(params.block_size);
    let first = u32::try_from(block + 1).expect("a block number of 2 or 3");
    let log = journal_superblock(params, journal, identity.uuid, first);
    device.write_at(offset + block * block_size, log.as_bytes())?;
    device.flush()?;
    let mut raw = raw_superblock(params, identity);
    raw.seal();
    device.write_at(offset + SUPERBLOCK_AT, raw.as_bytes())?;
    device.flush()
}

/// A journal device that was found and fits.
#[derive(Debug)]
pub(crate) struct ExternalJournal {
    pub(crate) path: PathBuf,
    block_size: u32,
    pub(crate) uuid: Uuid,
    /// As `s_journal_dev` stores it; 0 for a file.
    pub(crate) device_number: u32,
}

/// Finds the device that `-J device=` names, by path, `UUID=` or `LABEL=`.
///
/// # Errors
/// It cannot be read, or is not a journal with blocks of `wanted` bytes.
pub(crate) fn find(name: &OsStr, wanted: u32) -> Result<ExternalJournal, MkfsError> {
    let path = path_of(name);
    let not_one = |problem| MkfsError::JournalDevice { path: path.clone(), problem };
    let device = FileDevice::open(&path)?;
    let mut bytes = [0; 1024];
    device.read_at(SUPERBLOCK_AT, &mut bytes)?;
    let raw = RawSuperblock::from_bytes(&bytes, GroupNo(0))
        .and_then(|raw| raw.verify(GroupNo(0)).map(|()| raw))
        .map_err(|error| not_one(JournalDeviceError::NoSuperblock(error)))?;
    if !raw.features().incompat.contains(IncompatFeatures::JOURNAL_DEV) {
        return Err(not_one(JournalDeviceError::FileSystem));
    }
    let block_size = 1024_u32.checked_shl(raw.s_log_block_size.get()).unwrap_or(0);
    if block_size != wanted {
        return Err(not_one(JournalDeviceError::BlockSize { journal: block_size, volume: wanted }));
    }
    let device_number = block_devices::number_of(&path).unwrap_or(0);
    Ok(ExternalJournal { block_size, uuid: Uuid(raw.s_uuid), device_number, path })
}

/// `UUID=` and `LABEL=` by the links that udev keeps.
fn path_of(name: &OsStr) -> PathBuf {
    let bytes = name.as_bytes();
    for (prefix, directory) in
        [(&b"UUID="[..], "/dev/disk/by-uuid"), (&b"LABEL="[..], "/dev/disk/by-label")]
    {
        if let Some(rest) = bytes.strip_prefix(prefix) {
            return Path::new(directory).join(OsStr::from_bytes(rest));
        }
    }
    PathBuf::from(name)
}

impl ExternalJournal {
    /// Names it as the journal of a volume.
    pub(crate) fn name_in(&self, volume: &mut NewVolume) {
        volume.superblock.journal_uuid = self.uuid;
        volume.superblock.journal_dev = self.device_number;
    }

    /// Opens its device for writing.
    pub(crate) fn open(&self) -> Result<FileDevice, MkfsError> {
        Ok(FileDeviceOptions::new().write(true).open(&self.path)?)
    }

    /// Enters a volume into the journal's list of users.
    pub(crate) fn add_user(&self, device: &dyn Device, volume: Uuid) -> Result<(), MkfsError> {
        let at = journal_block(self.block_size) * u64::from(self.block_size);
        let mut bytes = [0; 1024];
        device.read_at(at, &mut bytes)?;
        let refused = |problem| MkfsError::JournalDevice { path: self.path.clone(), problem };
        let failed = |error| refused(JournalDeviceError::Log(error));
        let raw = RawJournalSuperblock::from_bytes(&bytes).map_err(failed)?;
        raw.verify().map_err(failed)?;
        let mut decoded = JournalSuperblock::decode(&raw).map_err(failed)?;
        decoded.users.retain(|user| *user != volume);
        decoded.users.push(volume);
        /// Users that the format has room for.
        const MAX_USERS: usize = 48;
        if decoded.users.len() > MAX_USERS {
            return Err(refused(JournalDeviceError::Users(MAX_USERS)));
        }
        let mut raw = decoded.encode();
        raw.seal();
        device.write_at(at, raw.as_bytes())?;
        device.flush()?;
        Ok(())
    }
}
