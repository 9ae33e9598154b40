//! A disk whose bytes lie elsewhere in a file, or nowhere.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use extant_device::{
    Cause, Device, DeviceError, Operation, Request, check_batch, check_range, run_reads,
};
use extant_runtime::sync::Mutex;

/// Where bytes of a disk are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Source {
    Zero,
    /// Four bytes, again and again from a multiple of four on.
    Fill([u8; 4]),
    /// From this byte of the file on, or of the file with the data where there is one.
    File(u64),
    /// In memory, from a byte on.
    Held(Arc<[u8]>, usize),
    /// From this byte of the disk below on: zeroes without one, and past its end.
    Below(u64),
}

/// The format of an image: where the bytes of its disk are.
pub(super) trait Map: Send + Sync {
    /// Bytes of the disk.
    fn size(&self) -> u64;

    /// Where the bytes from `at` on are, and how many are there one after the other: at least one.
    ///
    /// # Errors
    /// The file was not read, or its table is damaged.
    fn locate(&self, file: &dyn Device, at: u64) -> Result<(Source, u64), DeviceError>;
}

/// The disk of an image.
pub(super) struct MappedDevice<M> {
    file: Arc<dyn Device>,
    map: M,
    below: Option<Arc<dyn Device>>,
    data: Option<Arc<dyn Device>>,
}

impl<M: Map> MappedDevice<M> {
    pub(super) fn new(file: Arc<dyn Device>, map: M) -> Self {
        Self { file, map, below: None, data: None }
    }

    /// The same on another disk, and with data in a file of their own.
    pub(super) fn with(
        self,
        below: Option<Arc<dyn Device>>,
        data: Option<Arc<dyn Device>>,
    ) -> Self {
        Self { below, data, ..self }
    }

    fn locate(&self, at: u64, end: u64) -> Result<(Source, u64), DeviceError> {
        let (source, length) = self.map.locate(&*self.file, at)?;
        let length = length.clamp(1, end - at);
        let Source::Below(place) = source else { return Ok((source, length)) };
        let below = self.below.as_ref().map_or(0, |below| below.size());
        Ok(match below.saturating_sub(place) {
            0 => (Source::Zero, length),
            rest => (Source::Below(place), length.min(rest)),
        })
    }

    fn read(&self, mut at: u64, mut to: &mut [u8]) -> Result<(), DeviceError> {
        while !to.is_empty() {
            let (source, length) = self.locate(at, at + to.len() as u64)?;
            let (part, rest) = to.split_at_mut(length as usize);
            match source {
                Source::Zero => part.fill(0),
                Source::Fill(pattern) => {
                    for (place, byte) in (at..).zip(part.iter_mut()) {
                        *byte = pattern[(place % 4) as usize];
                    }
                }
                Source::File(place) => {
                    self.data.as_ref().unwrap_or(&self.file).read_at(place, part)?;
                }
                Source::Held(bytes, from) => {
                    part.copy_from_slice(&bytes[from..from + part.len()]);
                }
                Source::Below(place) => {
                    if let Some(below) = &self.below {
                        below.read_at(place, part)?;
                    }
                }
            }
            (at, to) = (at + length, rest);
        }
        Ok(())
    }
}

/// The error of a damaged table.
pub(super) fn damaged(at: u64, what: &str) -> DeviceError {
    let source = io::Error::new(io::ErrorKind::InvalidData, format!("damaged image: {what}"));
    DeviceError::io(Operation::Read, at, 0, source)
}

impl<M: Map> Device for MappedDevice<M> {
    fn size(&self) -> u64 {
        self.map.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        check_batch(self, batch)?;
        run_reads(batch, |offset, buffer| {
            self.read(offset, buffer).map_err(|error| match error.cause {
                Cause::PastEnd { .. } => damaged(0, "data past the end of the file"),
                _ => error,
            })
        })
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        check_range(self.size(), &range)?;
        let (mut at, mut start) = (range.start, None);
        while at < range.end {
            let (source, length) = self.locate(at, range.end)?;
            let is_zero = matches!(source, Source::Zero | Source::Fill([0, 0, 0, 0]));
            match start {
                Some(start) if is_zero => return Ok(Some(start..at)),
                None if !is_zero => start = Some(at),
                _ => {}
            }
            at += length;
        }
        Ok(start.map(|start| start..range.end))
    }

    fn is_read_only(&self) -> bool {
        true
    }
}

impl<M: Map> fmt::Debug for MappedDevice<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedDevice")
            .field("file", &self.file)
            .field("size", &self.map.size())
            .finish_non_exhaustive()
    }
}

/// Bytes of a table that are read together.
const PART: u64 = 4096;

/// A table of numbers in a file, of which the last part that was used is in memory.
pub(super) struct Table {
    start: u64,
    /// Bytes of one number.
    width: u64,
    last: Mutex<Option<(u64, Vec<u8>)>>,
}

impl Table {
    pub(super) fn new(start: u64, width: u64) -> Self {
        Self { start, width, last: Mutex::new(None) }
    }

    /// The bytes of a number, the last ones of eight.
    pub(super) fn get(&self, file: &dyn Device, index: u64) -> Result<[u8; 8], DeviceError> {
        let past = || damaged(self.start, "its table is past the end of the file");
        let at = index.checked_mul(self.width).ok_or_else(past)?;
        let (part, within) = (at / PART, (at % PART) as usize);
        let mut last = self.last.lock();
        if last.as_ref().is_none_or(|(known, _)| *known != part) {
            let start = part.checked_mul(PART).and_then(|at| at.checked_add(self.start));
            let start = start.filter(|start| *start < file.size()).ok_or_else(past)?;
            let mut bytes = vec![0; PART.min(file.size() - start) as usize];
            file.read_at(start, &mut bytes)?;
            *last = Some((part, bytes));
        }
        let bytes =
            last.as_ref().and_then(|(_, bytes)| bytes.get(within..within + self.width as usize));
        let bytes = bytes.ok_or_else(past)?;
        let mut number = [0; 8];
        number[8 - bytes.len()..].copy_from_slice(bytes);
        Ok(number)
    }
}
