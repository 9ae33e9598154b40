//! Open files.

use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::{Arc, PoisonError, RwLock};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::{Failure, closed};
use crate::fs::StatTuple;
use crate::fs::stat_tuple;

/// Bytes that one call reads at most: a raw file may return fewer than were asked for.
const LONGEST_READ: usize = 16 << 20;

/// An open file. The class `extant_ext4.File` has the calls of `io.RawIOBase`.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct File {
    file: RwLock<Option<Arc<extant::File>>>,
}

impl File {
    pub(crate) fn new(file: extant::File) -> Self {
        Self { file: RwLock::new(Some(Arc::new(file))) }
    }

    /// Runs a call on the file, detached from the interpreter.
    fn run<T: Send, E: Send + Into<Failure>>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&extant::File) -> Result<T, E> + Send,
    ) -> PyResult<T> {
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner).clone();
        let file = file.ok_or_else(|| closed("file"))?;
        // The file is dropped detached too, if it was closed in the meantime.
        let outcome = py.detach(move || call(&file));
        outcome.map_err(|error| PyErr::from(error.into()))
    }
}

/// The bytes that a caller gave: those of `bytes` itself, or a copy of another buffer.
fn bytes_of<'a>(data: &'a Bound<'_, PyAny>, copy: &'a mut Vec<u8>) -> PyResult<&'a [u8]> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(bytes.as_bytes());
    }
    *copy = PyBuffer::<u8>::get(data)?.to_vec(data.py())?;
    Ok(copy)
}

#[pymethods]
impl File {
    /// At most `size` bytes from the position on.
    fn read<'py>(&self, py: Python<'py>, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let mut bytes = vec![0; size.min(LONGEST_READ)];
        let count = self.run(py, |mut file| file.read(&mut bytes))?;
        Ok(PyBytes::new(py, &bytes[..count]))
    }

    /// All bytes from the position on.
    fn readall<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.run(py, |mut file| {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map(|_| bytes)
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// At most `size` bytes at `offset`; the position stays.
    fn pread<'py>(
        &self,
        py: Python<'py>,
        size: usize,
        offset: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut bytes = vec![0; size.min(LONGEST_READ)];
        let count = self.run(py, |file| file.read_at(&mut bytes, offset))?;
        Ok(PyBytes::new(py, &bytes[..count]))
    }

    /// Writes bytes at the position, or at the end of a file for appending; the number written.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut copy = Vec::new();
        let bytes = bytes_of(data, &mut copy)?;
        self.run(py, |mut file| file.write(bytes))
    }

    /// Writes bytes at `offset`; the position stays.
    fn pwrite(&self, py: Python<'_>, data: &Bound<'_, PyAny>, offset: u64) -> PyResult<usize> {
        let mut copy = Vec::new();
        let bytes = bytes_of(data, &mut copy)?;
        self.run(py, |file| file.write_at(bytes, offset))
    }

    /// Moves the position; the new one.
    fn seek(&self, py: Python<'_>, offset: i64, whence: i32) -> PyResult<u64> {
        let before = || PyValueError::new_err(format!("negative seek value {offset}"));
        let to = match whence {
            0 => SeekFrom::Start(u64::try_from(offset).map_err(|_| before())?),
            1 => SeekFrom::Current(offset),
            2 => SeekFrom::End(offset),
            other => return Err(PyValueError::new_err(format!("invalid whence ({other})"))),
        };
        self.run(py, |mut file| file.seek(to))
    }

    /// Makes the file shorter or longer.
    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        self.run(py, |file| file.set_len(size))
    }

    /// Waits until contents and metadata are on the device, or contents alone.
    fn fsync(&self, py: Python<'_>, data_only: bool) -> PyResult<()> {
        self.run(py, |file| if data_only { file.sync_data() } else { file.sync_all() })
    }

    /// The fields of `os.stat_result`.
    fn stat(&self, py: Python<'_>) -> PyResult<StatTuple> {
        self.run(py, |file| file.metadata().map(|metadata| stat_tuple(&metadata)))
    }

    /// Ends the use of the file.
    fn close(&self, py: Python<'_>) {
        let file = self.file.write().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(move || drop(file));
    }
}
