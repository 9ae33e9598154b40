//! The output: a file without a name until it is complete, or an existing device.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use extant_device::{Device, Direct, FileDevice, FileDeviceOptions};
use extant_storage::{Access, DeviceUrl, HostFile, Opened, Schemes, UrlError, stat_host};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::error::BuildError;
use crate::AtomicFile;

/// An existing device, or a file that gets its name at the end.
#[derive(Debug)]
pub(super) enum Output {
    /// A block device, a partition, a slice, or a layered device.
    There(Opened),
    /// An image in a file that was made for it.
    Made(Opened, Partial),
    /// A new file.
    New {
        /// Its name at the end.
        path: PathBuf,
        /// Where it is written.
        device: FileDevice,
        /// Its place without a name.
        unnamed: Box<AtomicFile>,
    },
}

/// The file of an image that is not complete: removed, unless it is kept.
#[derive(Debug)]
pub(super) struct Partial(Option<PathBuf>);

impl Partial {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // A failure to remove it is ignored.
            let _ = fs::remove_file(path);
        }
    }
}

/// The kind of the output.
#[derive(Debug)]
pub(super) enum OutputKind {
    /// Written where it is; it keeps its size.
    There(Opened),
    /// An image in a file that is made, in the size of the volume.
    Missing(DeviceUrl),
    /// Made, or replaced at the end.
    File,
}

fn failed(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> BuildError {
    let path = path.to_owned();
    move |source| BuildError::Io { path, action, source }
}

/// Opens an existing output: a block device, or the part of a file that a device URL names.
pub(super) fn kind(
    path: &Path,
    schemes: &Schemes,
    wait: Duration,
) -> Result<OutputKind, BuildError> {
    use std::os::unix::fs::FileTypeExt;
    let url = DeviceUrl::parse(path.as_os_str(), schemes, stat_host)?;
    let is_block = |path| fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    if !url.is_part() && !is_block(path) {
        return Ok(OutputKind::File);
    }
    if url.can_be_made() && stat_host(url.path()) == HostFile::Nothing {
        return Ok(OutputKind::Missing(url));
    }
    let options = FileDeviceOptions::new().direct(Direct::WherePossible).wait(wait);
    Ok(OutputKind::There(url.open(Access::ReadWrite, &options)?))
}

impl Output {
    /// The existing output; or a file of `bytes` bytes, all hole, in the directory of `path`.
    pub(super) fn new(
        path: &Path,
        bytes: u64,
        kind: OutputKind,
        wait: Duration,
    ) -> Result<Self, BuildError> {
        match kind {
            OutputKind::There(opened) => return Ok(Self::There(opened)),
            OutputKind::Missing(url) => {
                let options = FileDeviceOptions::new().create(true).size(bytes);
                let opened = url.open(Access::ReadWrite, &options)?;
                return Ok(Self::Made(opened, Partial(Some(url.path().to_owned()))));
            }
            OutputKind::File => {}
        }
        let options = FileDeviceOptions::new().write(true).direct(Direct::WherePossible);
        // An existing file is replaced at the end; one in use is refused.
        if path.exists() {
            drop(FileDeviceOptions::new().write(true).wait(wait).open(path)?);
        }
        let unnamed = AtomicFile::create(path).map_err(failed(path, "create"))?;
        unnamed.file().set_len(bytes).map_err(failed(path, "extend"))?;
        let device = options.open(unnamed.proc_path())?;
        let path = unnamed.path().to_owned();
        Ok(Self::New { path, device, unnamed: Box::new(unnamed) })
    }

    /// The device to write to.
    pub(super) fn device(&self) -> &dyn Device {
        match self {
            Self::There(opened) | Self::Made(opened, _) => &*opened.device,
            Self::New { device, .. } => device,
        }
    }

    /// Whether it runs on a clock of its own and is used by one thread.
    pub(super) fn is_simulated(&self) -> bool {
        matches!(self, Self::There(opened) if opened.is_simulated())
    }

    /// Allocates a range in one piece, so that writers need not wait for each other's allocations.
    /// On a file system that cannot do so, each write allocates.
    pub(super) fn reserve(&self, offset: u64, length: u64) -> Result<(), BuildError> {
        let Self::New { path, device, .. } = self else { return Ok(()) };
        if length == 0 {
            return Ok(());
        }
        match rustix::fs::fallocate(device.file(), FallocateFlags::KEEP_SIZE, offset, length) {
            Err(Errno::NOSPC) => Err(failed(path, "allocate space")(Errno::NOSPC.into())),
            _ => Ok(()),
        }
    }

    /// The image is whole and on the medium: it gets its name.
    pub(super) fn finish(self) -> Result<(), BuildError> {
        let (path, device, new) = match self {
            Self::There(opened) => return Ok(opened.finish().map_err(UrlError::from)?),
            Self::Made(opened, partial) => {
                opened.finish().map_err(UrlError::from)?;
                partial.keep();
                return Ok(());
            }
            Self::New { path, device, unnamed } => (path, device, unnamed),
        };
        let path = &path;
        device.file().sync_all().map_err(failed(path, "sync"))?;
        let directory = new.directory().to_owned();
        new.persist().map_err(failed(path, "rename"))?;
        let directory = File::open(directory).and_then(|directory| directory.sync_all());
        directory.map_err(failed(path, "sync the directory"))
    }
}
