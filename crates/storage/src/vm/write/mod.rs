//! A qcow2 image that is written. By QEMU's `docs/interop/qcow2.rst`.
//!
//! **The order of writes.** Data go to their place in the file at once: to clusters that the file
//! refers to, or to new ones. L2 tables and reference counts are changed in memory, and a flush
//! brings them to the file:
//! 1. blocks of counts, new L2 tables; a flush. New blocks of counts are named in their table; a
//!    flush.
//! 2. L2 tables and the L1 table, which refer to the new clusters; a flush.
//! 3. clusters that nothing refers to any more are counted less, and freed ones are given out
//!    again.
//!
//! After a power cut at any point each reference has a count, so that the file has at most clusters
//! that are counted and not used, which `qemu-img check -r leaks` frees, and the disk is that of
//! the last flush, with writes after it to clusters that it had.
//!
//! A cluster with more than one reference, as an internal snapshot makes them, is copied before it
//! is changed, and so is an L2 table. Each table is compared with the counts when it is read.

mod counts;
mod create;
mod failure;
mod file;
mod state;
mod tables;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use extant_device::{
    Device, DeviceError, FileDevice, Request, RequestKind, check_batch, check_range, run_batch,
};
use extant_runtime::sync::RwLock;

use super::clusters;
use super::error::VmImageError;
use super::files::{NamedFile, Role};
use super::mapped::Source;
use super::qcow2::Header;
use failure::damaged_file;
use file::GrowingFile;
use state::State;

pub(super) use create::create;

/// Takes a run of the disk and its place; whether the next one is wanted.
type Visit<'a> = dyn FnMut(&State, Range<u64>, Source) -> Result<bool, DeviceError> + 'a;

/// The disk of an image.
pub(super) struct WritableImage {
    size: u64,
    state: RwLock<State>,
}

/// Opens an image whose first file is written, with its backing files.
pub(super) fn open(files: &[NamedFile]) -> Result<Arc<dyn Device>, VmImageError> {
    let (first, others) =
        files.split_first().ok_or(VmImageError::OtherFormat { format: "qcow2" })?;
    if others.iter().any(|file| file.role == Role::DataFile) {
        let what = "writing an image with a data file".to_owned();
        return Err(VmImageError::Unsupported { what });
    }
    let below = match others.is_empty() {
        true => None,
        false => Some(clusters::open(others, None)?),
    };
    let file: Arc<FileDevice> = first.file.clone();
    Ok(Arc::new(WritableImage::open(GrowingFile::of_file(file), below)?))
}

/// The disk of a qcow2 image that lies on a device of a fixed size, such as a block device, on
/// another disk where it has a backing file. It is written.
///
/// # Errors
/// The image is damaged, or has what is not written.
pub fn open_qcow2_on(
    file: Arc<dyn Device>,
    below: Option<Arc<dyn Device>>,
) -> Result<Arc<dyn Device>, VmImageError> {
    Ok(Arc::new(WritableImage::open(GrowingFile::of_size(file), below)?))
}

impl WritableImage {
    fn open(file: GrowingFile, below: Option<Arc<dyn Device>>) -> Result<Self, VmImageError> {
        let header = Header::read(&*file.device)?;
        header.check_writable()?;
        let state = State::open(file, below, &header)?;
        Ok(Self { size: header.size, state: RwLock::new(state) })
    }

    /// Calls `work` with the place of each run of a range. Runs end at clusters.
    fn for_each_run(&self, range: Range<u64>, work: &mut Visit<'_>) -> Result<(), DeviceError> {
        let mut at = range.start;
        while at < range.end {
            let goes_on = {
                let state = self.state.read();
                match state.locate(at, range.end)? {
                    Some((source, length)) => {
                        let run = at..at + length;
                        at = run.end;
                        Some(work(&state, run, source)?)
                    }
                    None => None,
                }
            };
            let goes_on = match goes_on {
                Some(goes_on) => goes_on,
                None => {
                    // The table is read, and used before another one can take its place.
                    let mut state = self.state.write();
                    state.load(at)?;
                    let Some((source, length)) = state.locate(at, range.end)? else {
                        return Err(damaged_file(at, "an L2 table"));
                    };
                    let run = at..at + length;
                    at = run.end;
                    work(&state, run, source)?
                }
            };
            if !goes_on {
                return Ok(());
            }
        }
        Ok(())
    }

    fn read(&self, at: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        let end = at + to.len() as u64;
        self.for_each_run(at..end, &mut |state, run, source| {
            let part = &mut to[(run.start - at) as usize..(run.end - at) as usize];
            state.read_source(source, part)?;
            Ok(true)
        })
    }

    fn write(&self, mut at: u64, mut from: &[u8]) -> Result<(), DeviceError> {
        while !from.is_empty() {
            let written = {
                let state = self.state.read();
                state.write_in_place(at, from)?
            };
            let written = match written {
                0 => self.state.write().write_piece(at, from)?,
                written => written,
            };
            (at, from) = (at + written as u64, &from[written..]);
        }
        Ok(())
    }
}

impl Device for WritableImage {
    fn size(&self) -> u64 {
        self.size
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        run_batch(batch, |request| {
            let (operation, offset, length) =
                (request.operation(), request.offset(), request.length());
            let done = match &mut request.kind {
                RequestKind::Read { offset, buffers } => {
                    buffers.fill(*offset, |at, buffer| self.read(at, buffer))
                }
                RequestKind::Write { offset, buffers } => {
                    buffers.store(*offset, |at, buffer| self.write(at, buffer))
                }
                RequestKind::Discard { .. } => {
                    self.state.write().clear(offset..offset + length, false)
                }
                RequestKind::WriteZeroes { .. } => {
                    self.state.write().clear(offset..offset + length, true)
                }
                RequestKind::Flush => self.state.write().sync(),
            };
            // A place in the file means nothing to the caller.
            done.map_err(|error| DeviceError { operation, offset, length, cause: error.cause })
        })
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        check_range(self.size, &range)?;
        let mut found: Option<Range<u64>> = None;
        self.for_each_run(range, &mut |state, run, source| {
            let data = state.data_in(&run, &source)?;
            match (&mut found, data) {
                (Some(found), Some(data)) if data.start == found.end => found.end = data.end,
                (Some(_), _) => return Ok(false),
                (None, data) => found = data,
            }
            // Whether the next run may go on with this one.
            Ok(found.as_ref().is_none_or(|found| found.end == run.end))
        })?;
        Ok(found)
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn can_discard(&self) -> bool {
        true
    }
}

impl Drop for WritableImage {
    fn drop(&mut self) {
        // Writes that were not flushed stay, as in a file. A failure was not asked for.
        if let Err(error) = self.state.get_mut().sync() {
            tracing::warn!(%error, "qcow2: writing the tables of the image");
        }
    }
}

impl fmt::Debug for WritableImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WritableImage").field("size", &self.size).finish_non_exhaustive()
    }
}
