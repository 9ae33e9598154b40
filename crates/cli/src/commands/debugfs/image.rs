//! The volume that requests are about.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use extant::InodeNo;
use extant::debug::{DebugChoice, DebugError, DebugVolume};
use extant::inspect::RawView;
use extant::rooms::device::{Device, FileDeviceOptions};
use extant::rooms::ondisk::superblock::Superblock;
use extant::rooms::storage::{Access, DeviceUrl, Opened, stat_host};

use super::host::host_error;
use super::words::number;
use crate::failure::Failure;
use crate::named_view::NamedView;

/// Options of an open.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenRequest {
    pub(super) is_writable: bool,
    pub(super) is_catastrophic: bool,
    pub(super) ignores_checksums: bool,
    pub(super) forces: bool,
    pub(super) is_direct: bool,
    pub(super) block_size: Option<u32>,
    pub(super) superblock: Option<u64>,
}

/// An open volume.
pub(super) struct OpenImage {
    /// As it was named.
    pub(super) name: OsString,
    pub(super) volume: DebugVolume,
    pub(super) is_writable: bool,
    /// The directory at which paths with a slash begin.
    pub(super) root: InodeNo,
    /// The directory at which other paths begin.
    pub(super) cwd: InodeNo,
    device: Arc<dyn Device>,
    opened: Opened,
}

/// A volume was not opened.
pub(super) enum NotOpened {
    /// `debugfs: why while trying to open NAME`.
    Trying(String),
    /// `NAME: why`.
    Named(String),
}

impl From<DebugError> for NotOpened {
    fn from(error: DebugError) -> Self {
        Self::Trying(error.to_string())
    }
}

impl OpenImage {
    /// Opens a volume. The flag is true if its superblock has a wrong checksum.
    pub(super) fn open(name: &OsStr, request: &OpenRequest) -> Result<(Self, bool), NotOpened> {
        if request.superblock.is_some() && request.block_size.is_none() {
            let why = "if you specify the superblock, you must also specify the block size";
            return Err(NotOpened::Named(why.to_owned()));
        }
        let is_writable = request.is_writable && !request.is_catastrophic;
        let access = if is_writable { Access::ReadWrite } else { Access::ReadOnly };
        let opened = open_device(name, access, request)?;
        let choice = DebugChoice {
            block_size: request.block_size,
            superblock: request.superblock,
            ignores_checksums: request.ignores_checksums,
            is_catastrophic: request.is_catastrophic,
            forces: request.forces,
            is_writable,
        };
        let device = opened.device.clone();
        let (volume, is_damaged) = DebugVolume::open(device.clone(), &choice)?;
        let (root, cwd) = (InodeNo::ROOT, InodeNo::ROOT);
        let name = name.to_owned();
        Ok((Self { name, volume, is_writable, root, cwd, device, opened }, is_damaged))
    }

    /// The inode that a word names.
    pub(super) fn inode_of(&self, spec: &[u8]) -> Result<InodeNo, DebugError> {
        let within = spec.strip_prefix(b"<").and_then(|rest| rest.strip_suffix(b">"));
        if let Some(stored) = within.and_then(number) {
            let number = u32::try_from(stored).map_err(|_| DebugError::NotFound)?;
            let is_inode = self.volume.geometry().inode_place(InodeNo(number)).is_some();
            return if is_inode { Ok(InodeNo(number)) } else { Err(DebugError::NotFound) };
        }
        self.volume.resolve(self.root, self.cwd, spec)
    }

    /// The volume as `dumpe2fs` shows it.
    pub(super) fn view(&self) -> NamedView {
        let raw = *self.volume.raw();
        let superblock = Superblock::decode(&raw);
        NamedView::of(&self.name, RawView { device: self.device.clone(), raw, superblock })
    }

    /// Ends it well.
    pub(super) fn close(self) -> Result<(), Failure> {
        self.opened.finish().map_err(Failure::new)
    }
}

fn open_device(name: &OsStr, access: Access, request: &OpenRequest) -> Result<Opened, NotOpened> {
    let url = DeviceUrl::parse(name, extant::schemes(), stat_host)
        .map_err(|error| NotOpened::Named(error.to_string()))?;
    // The file's own error has the words of the system.
    if let Err(error) = std::fs::metadata(url.path())
        && !url.is_simulated()
    {
        return Err(NotOpened::Trying(host_error(&error)));
    }
    let direct = match request.is_direct {
        true => extant::Direct::WherePossible,
        false => extant::Direct::Off,
    };
    let options = FileDeviceOptions::default().direct(direct);
    url.open(access, &options).map_err(|error| NotOpened::Named(error.to_string()))
}
