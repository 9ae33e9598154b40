//! Where the image goes: a file without a name until it is whole, or a block device.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use extant_device::{Direct, FileDevice, OpenOptions};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::error::BuildError;
use crate::NewFile;

/// A block device, or a file that gets its name at the end.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    device: FileDevice,
    /// `None` for a block device.
    unnamed: Option<NewFile>,
}

fn failed(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> BuildError {
    let path = path.to_owned();
    move |source| BuildError::Io { path, action, source }
}

/// Whether the image goes to a block device, and its size then.
pub(super) fn block_device_size(path: &Path) -> Result<Option<u64>, BuildError> {
    use std::os::unix::fs::FileTypeExt;
    let Ok(metadata) = fs::metadata(path) else { return Ok(None) };
    if !metadata.file_type().is_block_device() {
        return Ok(None);
    }
    let device = FileDevice::open(path)?;
    Ok(Some(extant_device::Device::size(&device)))
}

impl Output {
    /// Opens the block device, or makes a file of `bytes` bytes, all hole, in the directory of `path`.
    pub(super) fn new(path: &Path, bytes: u64, is_block: bool) -> Result<Self, BuildError> {
        let options = OpenOptions::new().write(true).direct(Direct::WherePossible);
        if is_block {
            let device = options.open(path)?;
            return Ok(Self { path: path.to_owned(), device, unnamed: None });
        }
        // What is there is replaced at the end; what is in use is not.
        if path.exists() {
            drop(OpenOptions::new().write(true).open(path)?);
        }
        let new = NewFile::create(path).map_err(failed(path, "create it"))?;
        let device = options.size(bytes).open(new.way())?;
        Ok(Self { path: new.path().to_owned(), device, unnamed: Some(new) })
    }

    /// The device to write to.
    pub(super) fn device(&self) -> &FileDevice {
        &self.device
    }

    /// Asks for the room of a range in one piece, so that writers need not wait for each other's allocations. A file
    /// system that cannot do so is asked for it piece by piece later.
    pub(super) fn reserve(&self, offset: u64, length: u64) -> Result<(), BuildError> {
        if self.unnamed.is_none() || length == 0 {
            return Ok(());
        }
        match rustix::fs::fallocate(self.device.file(), FallocateFlags::KEEP_SIZE, offset, length) {
            Err(Errno::NOSPC) => Err(failed(&self.path, "find room for it")(Errno::NOSPC.into())),
            _ => Ok(()),
        }
    }

    /// The image is whole and on the medium: it gets its name.
    pub(super) fn finish(self) -> Result<(), BuildError> {
        let Some(new) = self.unnamed else { return Ok(()) };
        let path = &self.path;
        self.device.file().sync_all().map_err(failed(path, "bring it to the medium"))?;
        let directory = new.directory().to_owned();
        new.publish().map_err(failed(path, "give it its name"))?;
        let directory = File::open(directory).and_then(|directory| directory.sync_all());
        directory.map_err(failed(path, "bring its name to the medium"))
    }
}
