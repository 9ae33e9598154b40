//! A Python file object as the device of a volume: any file of `io` or of fsspec.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use extant::rooms::device::{Device, Operation, Request, RequestKind, check_batch, check_range};
use extant::{DeviceError, rooms::device::run_batch};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Zeroes that are written at once.
const ZEROES: usize = 1 << 20;

/// A seekable binary file object. One request uses it at a time, for it has one position.
pub(crate) struct FileObject {
    file: Mutex<Py<PyAny>>,
    size: u64,
    is_writable: bool,
}

impl fmt::Debug for FileObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size, is_writable, .. } = self;
        let mut shown = f.debug_struct("FileObject");
        shown.field("size", size).field("is_writable", is_writable).finish_non_exhaustive()
    }
}

impl FileObject {
    /// The device has the size that the file has now.
    ///
    /// # Errors
    /// The object cannot seek.
    pub(crate) fn new(file: &Bound<'_, PyAny>, is_writable: bool) -> PyResult<Self> {
        let size = file.call_method1("seek", (0, 2))?.extract::<Option<u64>>()?;
        let size = match size {
            Some(size) => size,
            // Objects of other libraries may return nothing.
            None => file.call_method0("tell")?.extract()?,
        };
        Ok(Self { file: Mutex::new(file.clone().unbind()), size, is_writable })
    }

    /// Runs a call on the object, attached to the interpreter. The lock is taken first: no thread
    /// that waits for it is attached, for the library's calls run detached.
    fn with<T>(&self, call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> io::Result<T> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let attached = Python::try_attach(|py| {
            call(file.bind(py)).map_err(|error| {
                let number = error.value(py).getattr("errno").and_then(|errno| errno.extract());
                match number {
                    Ok(number) => io::Error::from_raw_os_error(number),
                    Err(_) => io::Error::other(error.to_string()),
                }
            })
        });
        attached.unwrap_or_else(|| Err(io::Error::other("the interpreter has ended")))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.with(|file| {
            file.call_method1("seek", (offset,))?;
            let mut filled = 0;
            while filled < buffer.len() {
                let read = file.call_method1("read", (buffer.len() - filled,))?;
                // A file that does not block and has no bytes returns nothing.
                let Some(read) = read.extract::<Option<Bound<'_, PyBytes>>>()? else { break };
                let read = read.as_bytes();
                let count = read.len().min(buffer.len() - filled);
                if count == 0 {
                    break;
                }
                buffer[filled..filled + count].copy_from_slice(&read[..count]);
                filled += count;
            }
            Ok(filled)
        })
        .and_then(|filled| match filled == buffer.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        })
    }

    fn write(&self, offset: u64, mut bytes: &[u8]) -> io::Result<()> {
        self.with(|file| {
            file.call_method1("seek", (offset,))?;
            while !bytes.is_empty() {
                let written = file.call_method1("write", (PyBytes::new(file.py(), bytes),))?;
                let count = written.extract::<Option<usize>>()?.unwrap_or(0).min(bytes.len());
                if count == 0 {
                    return Ok(false);
                }
                bytes = &bytes[count..];
            }
            Ok(true)
        })
        .and_then(|is_whole| match is_whole {
            true => Ok(()),
            false => Err(io::ErrorKind::WriteZero.into()),
        })
    }

    fn flush(&self) -> io::Result<()> {
        self.with(|file| {
            file.call_method0("flush")?;
            // A file of the machine is on its medium after fsync; others have no descriptor.
            if let Ok(descriptor) = file.call_method0("fileno") {
                file.py().import("os")?.call_method1("fsync", (descriptor,))?;
            }
            Ok(())
        })
    }

    fn perform(&self, request: &mut Request<'_>) -> Result<(), DeviceError> {
        let (operation, offset, length) = (request.operation(), request.offset(), request.length());
        let failed = |error| DeviceError::io(operation, offset, length, error);
        match &mut request.kind {
            RequestKind::Read { offset, buffers } => {
                let mut at = *offset;
                for buffer in buffers.slices_mut() {
                    self.read(at, buffer).map_err(failed)?;
                    at += buffer.len() as u64;
                }
            }
            RequestKind::Write { offset, buffers } => {
                let mut at = *offset;
                for buffer in buffers.slices() {
                    self.write(at, buffer).map_err(failed)?;
                    at += buffer.len() as u64;
                }
            }
            RequestKind::WriteZeroes { offset, length } => {
                let zeroes = vec![0; ZEROES.min(usize::try_from(*length).unwrap_or(ZEROES))];
                let (mut at, end) = (*offset, *offset + *length);
                while at < end {
                    let piece = &zeroes[..zeroes.len().min((end - at) as usize)];
                    self.write(at, piece).map_err(failed)?;
                    at += piece.len() as u64;
                }
            }
            // A file object has no way to take bytes back.
            RequestKind::Discard { .. } => {}
            RequestKind::Flush => self.flush().map_err(failed)?,
        }
        Ok(())
    }
}

impl Device for FileObject {
    fn size(&self) -> u64 {
        self.size
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        run_batch(batch, |request| match request.operation() {
            // Nothing waits in a file that is not written.
            Operation::Flush if !self.is_writable => Ok(()),
            _ => self.perform(request),
        })
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        check_range(self.size, &range)?;
        Ok(Some(range).filter(|range| !range.is_empty()))
    }

    fn is_read_only(&self) -> bool {
        !self.is_writable
    }
}
