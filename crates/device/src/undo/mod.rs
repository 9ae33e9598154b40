//! Undo: what is overwritten on a device is kept in a file, from which the device can be put back.
//!
//! [`UndoDevice`] is a layer on a device. The first time that a unit of it is to change, the unit's
//! old bytes go to the undo file, and that is synced, before the change is passed on. [`apply()`]
//! puts them back. The file's format is that of e2fsprogs ([`mod@format`]).

mod apply;
mod file;
pub mod format;
mod log;

pub use apply::{Applied, ApplyOptions, Check, Restored, apply};
pub use file::UndoWriter;

use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::device::{Device, Request, check_batch};
use crate::errno;
use crate::error::DeviceError;
use extant_runtime::sync::Mutex;

/// The errors of an undo file.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The system failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The undo file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Something in front of the volume is to be overwritten, which no undo file can keep.
    #[error("{}: cannot keep byte {at} of the device, which lies in front of the volume", path.display())]
    BelowVolume {
        /// The undo file.
        path: PathBuf,
        /// Where on the device.
        at: u64,
    },
    /// The file is no undo file, or its header is broken.
    #[error("{}: not an undo file: {problem}", path.display())]
    NotUndo {
        /// The file.
        path: PathBuf,
        /// The mistake in it.
        problem: &'static str,
    },
    /// The undo file was made of another device, or the device was changed since.
    #[error("{}: the undo file does not belong to this image: {problem}", path.display())]
    OtherImage {
        /// The undo file.
        path: PathBuf,
        /// The field that differs.
        problem: &'static str,
    },
    /// A record in the middle of the file is broken: what follows cannot be trusted.
    #[error("{}: corrupt record at byte {at}", path.display())]
    Broken {
        /// The undo file.
        path: PathBuf,
        /// Where in it.
        at: u64,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl UndoError {
    /// The number that a system call returns for it.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Io { source, .. } => errno::of_io(source),
            Self::NotUndo { .. } | Self::OtherImage { .. } | Self::BelowVolume { .. } => {
                errno::EINVAL
            }
            Self::Broken { .. } => errno::EUCLEAN,
            Self::Device(error) => error.errno(),
        }
    }
}

/// The environment's variable that names a directory for undo files.
pub const DIRECTORY_VARIABLE: &str = "E2FSPROGS_UNDO_DIR";
/// The directory where that is not set.
pub const DEFAULT_DIRECTORY: &str = "/var/lib/e2fsprogs";

/// Bytes read or written together at most.
const CHUNK: u64 = 1 << 20;

/// The directory that turns undo files of automatic names off.
const NO_DIRECTORY: &str = "none";

/// The request of an option `-z`.
#[derive(Clone, Copy, Debug)]
pub struct UndoRequest<'a> {
    /// The value of the option; empty for an automatic name.
    pub path: &'a OsStr,
    /// The directory for automatic names.
    pub directory: Option<&'a OsStr>,
    /// The image, as it was named.
    pub image: &'a OsStr,
    /// The program of e2fsprogs that does such work.
    pub program: &'a str,
    /// Whether a program of e2fsprogs was called by its name.
    pub is_compat: bool,
}

impl UndoRequest<'_> {
    /// The undo file. `None` for the directory `none`, and by a name of e2fsprogs, as there, if
    /// the directory is missing. A program of e2fsprogs begins an undo file of an automatic name
    /// again: an older one is removed.
    ///
    /// # Errors
    /// The older one cannot be removed.
    pub fn path(&self) -> Result<Option<PathBuf>, UndoError> {
        let Self { path, directory, image, program, is_compat } = *self;
        if !path.is_empty() {
            return Ok(Some(path.into()));
        }
        let default = OsStr::new(if is_compat { DEFAULT_DIRECTORY } else { "." });
        let directory = directory.unwrap_or(default);
        if directory == NO_DIRECTORY || (is_compat && !Path::new(directory).is_dir()) {
            return Ok(None);
        }
        let mut name = OsString::from(format!("{program}-"));
        name.push(Path::new(image).file_name().unwrap_or(image));
        name.push(".e2undo");
        let path = Path::new(directory).join(name);
        if is_compat {
            match std::fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(UndoError::Io { path, source });
                }
                _ => {}
            }
        }
        Ok(Some(path))
    }
}

/// The lines by which programs of e2fsprogs say that there is an undo file; an empty one follows.
pub fn announcement(path: &Path, image: &OsStr) -> String {
    let (path, image) = (path.display(), image.display());
    format!(
        "Overwriting existing filesystem; this can be undone using the command:\n    e2undo {path} {image}\n"
    )
}

/// Where a volume begins, in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FsOffset {
    /// On the device that is written.
    pub on_device: u64,
    /// In the file or block device that the device is a part of.
    pub in_file: u64,
}

/// A device whose changes can be undone.
#[derive(Debug)]
pub struct UndoDevice {
    inner: Arc<dyn Device>,
    writer: Mutex<UndoWriter>,
}

impl UndoDevice {
    /// Keeps what is overwritten on `inner` in the undo file at `path`. An undo file of the same
    /// volume that is there is continued: it goes on to undo what was done first.
    ///
    /// # Errors
    /// The file cannot be made, there is another file, or the device cannot be read.
    pub fn open(
        inner: Arc<dyn Device>,
        path: impl Into<PathBuf>,
        volume: FsOffset,
    ) -> Result<Self, UndoError> {
        let writer = UndoWriter::open(path.into(), &*inner, volume, None)?;
        Ok(Self { inner, writer: Mutex::new(writer) })
    }

    /// The same for a volume that is made now, with blocks of `block_size` bytes.
    ///
    /// # Errors
    /// As [`UndoDevice::open`].
    pub fn open_for_new_volume(
        inner: Arc<dyn Device>,
        path: impl Into<PathBuf>,
        volume: FsOffset,
        block_size: u32,
    ) -> Result<Self, UndoError> {
        let writer = UndoWriter::open(path.into(), &*inner, volume, Some(block_size))?;
        Ok(Self { inner, writer: Mutex::new(writer) })
    }

    /// Ends the undo file: from now on it belongs to the device as it is now. Without this it can
    /// still be applied, with a weaker check of the device.
    ///
    /// # Errors
    /// The file or the device failed.
    pub fn finish(&self) -> Result<(), UndoError> {
        self.inner.flush()?;
        self.writer.lock().finish(&*self.inner)
    }

    /// Ends the undo file of a command that was refused: a new one in which nothing is kept is
    /// removed.
    ///
    /// # Errors
    /// The file or the device failed.
    pub fn finish_refused(&self) -> Result<(), UndoError> {
        self.finish()?;
        self.writer.lock().remove_if_empty()
    }

    fn keep(&self, batch: &[Request<'_>]) -> Result<(), DeviceError> {
        let changes = batch.iter().filter(|request| request.is_change() && request.length() > 0);
        let ranges: Vec<Range<u64>> =
            changes.map(|request| request.offset()..request.offset() + request.length()).collect();
        let Some(first) = ranges.first() else { return Ok(()) };
        let place = first.clone();
        self.writer.lock().keep(&*self.inner, &ranges).map_err(|error| match error {
            UndoError::Device(error) => error,
            other => DeviceError::io(
                crate::error::Operation::Write,
                place.start,
                place.end - place.start,
                io::Error::other(other.to_string()),
            ),
        })
    }
}

impl Device for UndoDevice {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        self.keep(batch)?;
        self.inner.submit(batch)
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        self.inner.next_data(range)
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }

    fn will_need(&self, range: Range<u64>) {
        self.inner.will_need(range);
    }

    fn uncached(&self, range: Range<u64>) -> Option<u64> {
        self.inner.uncached(range)
    }

    fn read_around(&self, offset: u64, buffer: &mut [u8]) -> bool {
        self.inner.read_around(offset, buffer)
    }

    fn discard_reads_zero(&self) -> bool {
        self.inner.discard_reads_zero()
    }
}

#[cfg(test)]
mod tests;
