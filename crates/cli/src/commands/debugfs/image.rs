//! The volume that requests are about.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use extant::debug::{DebugChoice, DebugError, DebugVolume};
use extant::inspect::RawView;
use extant::rooms::device::undo::UndoDevice;
use extant::rooms::device::{Device, FileDeviceOptions, OverlayDevice};
use extant::rooms::ondisk::IncompatFeatures;
use extant::rooms::ondisk::superblock::{RawSuperblock, Superblock};
use extant::rooms::runtime::env::{Env, WallTime};
use extant::rooms::storage::{Access, DeviceUrl, Opened, stat_host};
use extant::{InodeNo, Volume, VolumeOptions};

use super::edit;
use super::host::host_error;
use super::words::number;
use crate::commands::undo;
use crate::failure::Failure;
use crate::named_view::NamedView;
use crate::time;
use crate::writable_image::has_journal;

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
    pub(super) undo: Option<OsString>,
    /// Whether the program was called by the name debugfs.
    pub(super) is_compat: bool,
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
    choice: DebugChoice,
    /// Whether changes go through the volume's journal.
    has_journal: bool,
    /// The volume while the engine has it: what `volume` shows is stale then.
    live: Option<Volume>,
    /// The time in place of the clock.
    now: Option<i64>,
    device: Arc<dyn Device>,
    undo: Option<Arc<UndoDevice>>,
    opened: Opened,
}

/// A volume was not opened.
pub(super) enum NotOpened {
    /// `debugfs: why while trying to open NAME`.
    Trying(String),
    /// A line that names the file itself.
    Line(String),
}

impl NotOpened {
    fn line(error: impl std::fmt::Display) -> Self {
        Self::Line(format!("debugfs: {error}"))
    }
}

impl From<DebugError> for NotOpened {
    fn from(error: DebugError) -> Self {
        Self::Trying(error.to_string())
    }
}

/// Facts about a volume that was opened, for the user.
#[derive(Default)]
pub(super) struct OpenNotices {
    /// Whether the checksum of its superblock is wrong.
    pub(super) is_damaged: bool,
    /// Why changes are not journalled.
    pub(super) warning: Option<String>,
    /// The lines about an undo file by the name debugfs.
    pub(super) announcement: Option<String>,
}

impl OpenImage {
    /// Opens a volume. One that will be changed has its journal replayed.
    pub(super) fn open(
        name: &OsStr,
        request: &OpenRequest,
    ) -> Result<(Self, OpenNotices), NotOpened> {
        if request.superblock.is_some() && request.block_size.is_none() {
            let why = "if you specify the superblock, you must also specify the block size";
            return Err(NotOpened::Line(format!("{}: {why}", name.display())));
        }
        let is_writable = request.is_writable && !request.is_catastrophic;
        let access = if is_writable { Access::ReadWrite } else { Access::ReadOnly };
        Self::open_on(open_device(name, access, request)?, name, request)
    }

    /// The same on a device that is open.
    pub(super) fn open_on(
        opened: Opened,
        name: &OsStr,
        request: &OpenRequest,
    ) -> Result<(Self, OpenNotices), NotOpened> {
        let is_writable = request.is_writable && !request.is_catastrophic;
        let choice = DebugChoice {
            block_size: request.block_size,
            superblock: request.superblock,
            ignores_checksums: request.ignores_checksums,
            is_catastrophic: request.is_catastrophic,
            forces: request.forces,
            is_writable,
        };
        let (volume, is_damaged) = DebugVolume::open(opened.device.clone(), &choice)?;
        let mut image = Self {
            name: name.to_owned(),
            volume,
            is_writable,
            root: InodeNo::ROOT,
            cwd: InodeNo::ROOT,
            choice,
            has_journal: false,
            live: None,
            now: fixed_time()?,
            device: opened.device.clone(),
            undo: None,
            opened,
        };
        let mut notes = OpenNotices { is_damaged, ..OpenNotices::default() };
        if is_writable {
            edit::check_mmp(&image.volume).map_err(NotOpened::Trying)?;
            if let Some(path) = &request.undo {
                let path = undo::path(path, name, "debugfs", request.is_compat);
                if let Some(path) = path.map_err(NotOpened::line)? {
                    if request.is_compat {
                        notes.announcement = Some(undo::announcement(&path, name));
                    }
                    let kept = Arc::new(undo::keep(&image.opened, path).map_err(NotOpened::line)?);
                    image.device = kept.clone();
                    image.undo = Some(kept);
                }
            }
            (image.has_journal, notes.warning) = edit::prepare(&image.device, &image.volume);
            image.refresh()?;
        }
        Ok((image, notes))
    }

    /// Reads superblock and descriptors again.
    fn refresh(&mut self) -> Result<(), DebugError> {
        self.volume = DebugVolume::open(self.device.clone(), &self.choice)?.0;
        Ok(())
    }

    /// The clock of what is changed.
    fn env(&self) -> Env {
        match self.now {
            Some(seconds) if !self.opened.is_simulated() => {
                Env::threads_at(WallTime { seconds, nanoseconds: 0 })
            }
            _ => self.opened.env.clone(),
        }
    }

    /// Now, in seconds since 1970.
    pub(super) fn seconds(&self) -> i64 {
        self.now.unwrap_or_else(|| self.opened.env.now().seconds)
    }

    /// Sets the time in place of the clock.
    pub(super) fn set_now(&mut self, now: Option<i64>) -> Result<(), String> {
        self.settle()?;
        self.now = now;
        Ok(())
    }

    /// Whether the engine has the volume.
    pub(super) fn is_live(&self) -> bool {
        self.live.is_some()
    }

    /// Whether names in some directories are the same in either case.
    pub(super) fn folds_case(&self) -> bool {
        self.volume.geometry().has_incompat(IncompatFeatures::CASEFOLD)
    }

    /// The volume in the engine's hands: for changes that files see.
    pub(super) fn live(&mut self) -> Result<&Volume, String> {
        let volume = match self.live.take() {
            Some(volume) => volume,
            None => {
                let aborts_on_lost_data = has_journal(&*self.device);
                let options = VolumeOptions { aborts_on_lost_data, ..VolumeOptions::default() };
                Volume::open(self.device.clone(), &self.env(), &options)
                    .map_err(|error| error.to_string())?
            }
        };
        Ok(self.live.insert(volume))
    }

    /// Takes the volume back from the engine: all that it changed is on the device then.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        let Some(volume) = self.live.take() else { return Ok(()) };
        let before = *self.volume.raw();
        volume.close().map_err(|error| error.to_string())?;
        self.refresh().map_err(|error| error.to_string())?;
        self.forget_mount(&before).map_err(|error| error.to_string())
    }

    /// The engine counts its opening as a mount; debugfs mounts nothing.
    fn forget_mount(&mut self, before: &RawSuperblock) -> Result<(), DebugError> {
        let editor = self.volume.editor_mut();
        editor.update_superblock(|raw| {
            raw.s_mnt_count = before.s_mnt_count;
            (raw.s_mtime, raw.s_mtime_hi) = (before.s_mtime, before.s_mtime_hi);
        })?;
        Ok(editor.commit()?)
    }

    /// Changes the volume as it is stored, in one transaction where there is a journal.
    pub(super) fn change<T>(
        &mut self,
        change: impl FnOnce(&mut DebugVolume) -> Result<T, DebugError>,
    ) -> Result<T, String> {
        self.settle()?;
        let overlay = Arc::new(OverlayDevice::new(self.device.clone()));
        let said = |error: &dyn std::fmt::Display| error.to_string();
        let opened = DebugVolume::open(overlay.clone(), &self.choice);
        let (mut volume, _) = opened.map_err(|error| said(&error))?;
        let done = change(&mut volume).map_err(|error| said(&error))?;
        let now = u64::try_from(self.seconds()).unwrap_or_default();
        let editor = volume.editor_mut();
        editor
            .update_superblock(|raw| raw.set_write_time(now))
            .and_then(|()| editor.commit())
            .map_err(|error| said(&error))?;
        edit::store(&self.device, &overlay, &self.volume, &self.env(), self.has_journal)?;
        self.refresh().map_err(|error| said(&error))?;
        Ok(done)
    }

    /// The inode that a word names.
    pub(super) fn inode_of(&self, spec: &[u8]) -> Result<InodeNo, DebugError> {
        match self.numbered(spec) {
            Some(number) => number,
            None => self.volume.resolve(self.root, self.cwd, spec),
        }
    }

    /// The inode of a word of the form `<N>`.
    pub(super) fn numbered(&self, spec: &[u8]) -> Option<Result<InodeNo, DebugError>> {
        let within = spec.strip_prefix(b"<").and_then(|rest| rest.strip_suffix(b">"))?;
        let stored = number(within)?;
        let number = u32::try_from(stored).ok().map(InodeNo);
        let number = number.filter(|number| self.volume.geometry().inode_place(*number).is_some());
        Some(number.ok_or(DebugError::NotFound))
    }

    /// The volume as `dumpe2fs` shows it.
    pub(super) fn view(&self) -> NamedView {
        let raw = *self.volume.raw();
        let superblock = Superblock::decode(&raw);
        let device = self.device.clone();
        NamedView::of(&self.name, RawView { device, raw, superblock, bad_checksum: None })
    }

    /// Ends it well.
    pub(super) fn close(mut self) -> Result<(), Failure> {
        let settled = self.settle().map_err(Failure::new);
        let kept = match &self.undo {
            Some(undo) => undo.finish().map_err(Failure::new),
            None => Ok(()),
        };
        settled.and(kept).and(self.opened.finish().map_err(Failure::new))
    }
}

/// The time that the environment gives in place of the clock.
fn fixed_time() -> Result<Option<i64>, NotOpened> {
    let theirs = std::env::var("E2FSPROGS_FAKE_TIME").ok().and_then(|it| it.parse().ok());
    let ours = time::epoch().map_err(NotOpened::line)?;
    Ok(ours.or(theirs))
}

/// Opens the device of a volume.
pub(super) fn open_device(
    name: &OsStr,
    access: Access,
    request: &OpenRequest,
) -> Result<Opened, NotOpened> {
    let url = DeviceUrl::parse(name, extant::schemes(), stat_host).map_err(NotOpened::line)?;
    // The file's own error has the words of the system.
    if let Err(error) = std::fs::metadata(url.path())
        && !url.is_simulated()
        && !url.is_remote()
    {
        return Err(NotOpened::Trying(host_error(&error)));
    }
    let direct = match request.is_direct {
        true => extant::Direct::WherePossible,
        false => extant::Direct::Off,
    };
    let options = FileDeviceOptions::default().direct(direct);
    url.open(access, &options).map_err(NotOpened::line)
}
