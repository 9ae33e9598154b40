//! Writing an undo file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use rangemap::RangeSet;

use super::UndoError;
use super::format::{HEADER_LEN, Header, Kind, MARK_AT, MARK_LEN, Record, UNIT};
use crate::device::Device;

/// An undo file that is being written.
#[derive(Debug)]
pub struct UndoWriter {
    path: PathBuf,
    file: File,
    /// Units that are kept already.
    kept: RangeSet<u64>,
    records: u32,
}

/// The device's mark; zeroes where it is too short.
pub(super) fn mark(device: &dyn Device) -> Result<Vec<u8>, UndoError> {
    let mut mark = vec![0; MARK_LEN];
    if device.size() >= MARK_AT + MARK_LEN as u64 {
        device.read_at(MARK_AT, &mut mark)?;
    }
    Ok(mark)
}

impl UndoWriter {
    /// Starts the undo file at `path`, which must not be there yet.
    ///
    /// # Errors
    /// The file cannot be made, or the device cannot be read.
    pub fn create(path: PathBuf, device: &dyn Device) -> Result<Self, UndoError> {
        let made = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = made.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => UndoError::Exists { path: path.clone() },
            _ => UndoError::Io { path: path.clone(), source },
        })?;
        let mut writer = Self { path, file, kept: RangeSet::new(), records: 0 };
        let header = Header { unit: UNIT, device_size: device.size(), mark: mark(device)? };
        let bytes = header.encode();
        debug_assert_eq!(bytes.len(), HEADER_LEN);
        let outcome = writer.file.write_all(&bytes).and_then(|()| writer.file.sync_all());
        writer.with_path(outcome)?;
        // The name itself must survive, too.
        let parent = match writer.path.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let synced = File::open(parent).and_then(|directory| directory.sync_all());
        writer.with_path(synced)?;
        Ok(writer)
    }

    /// The file, to be swapped by a test.
    #[cfg(test)]
    pub(super) fn file_mut(&mut self) -> &mut File {
        &mut self.file
    }

    fn with_path<T>(&self, outcome: io::Result<T>) -> Result<T, UndoError> {
        outcome.map_err(|source| UndoError::Io { path: self.path.clone(), source })
    }

    /// Keeps the units that `ranges` touch, as far as they are not kept yet. They are on the medium
    /// afterwards.
    ///
    /// # Errors
    /// The file or the device failed; nothing may be overwritten then.
    pub fn keep(&mut self, device: &dyn Device, ranges: &[Range<u64>]) -> Result<(), UndoError> {
        let unit = u64::from(UNIT);
        let mut is_new = false;
        for range in ranges {
            let units = range.start / unit..range.end.div_ceil(unit);
            let missing: Vec<Range<u64>> = self.kept.gaps(&units).collect();
            for number in missing.into_iter().flatten() {
                self.keep_unit(device, number)?;
                self.kept.insert(number..number + 1);
                is_new = true;
            }
        }
        if is_new {
            self.with_path(self.file.sync_data())?;
        }
        Ok(())
    }

    fn keep_unit(&mut self, device: &dyn Device, number: u64) -> Result<(), UndoError> {
        let offset = number * u64::from(UNIT);
        let length = u64::from(UNIT).min(device.size().saturating_sub(offset));
        if device.next_data(offset..offset + length)?.is_none() {
            return self.append(Kind::Hole, offset, length, &[]);
        }
        // At most a unit.
        let mut data = vec![0; length as usize];
        device.read_at(offset, &mut data)?;
        if data.iter().all(|byte| *byte == 0) {
            return self.append(Kind::Hole, offset, length, &[]);
        }
        self.append(Kind::Old, offset, length, &data)
    }

    fn append(
        &mut self,
        kind: Kind,
        offset: u64,
        length: u64,
        data: &[u8],
    ) -> Result<(), UndoError> {
        // At most a unit.
        let data_len = data.len() as u32;
        let record = Record { kind, data_len, offset, length, number: self.records };
        let bytes = [&record.encode(data)[..], data].concat();
        let outcome = self.file.write_all(&bytes);
        self.with_path(outcome)?;
        self.records += 1;
        Ok(())
    }

    /// Ends the file with the mark of the device as it is now.
    ///
    /// # Errors
    /// The file or the device failed.
    pub fn finish(&mut self, device: &dyn Device) -> Result<(), UndoError> {
        let mark = mark(device)?;
        self.append(Kind::End, MARK_AT, MARK_LEN as u64, &mark)?;
        self.with_path(self.file.sync_all())
    }
}
