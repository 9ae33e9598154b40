//! Putting a device back.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use super::UndoError;
use super::file::mark;
use super::format::{HEADER_LEN, Header, Kind, RECORD_LEN, Record, UUID_IN_MARK};
use crate::device::Device;

/// How much an undo file must fit the device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Check {
    /// The device must be the one, and unchanged since the undo file was finished.
    Same,
    /// The device must have the size; whether it is another one or changed since is reported in
    /// [`Applied::mismatch`] (`-f`).
    SizeOnly,
}

/// The units that were restored.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Applied {
    /// Records.
    pub records: u64,
    /// Bytes of the device.
    pub bytes: u64,
    /// Whether the file ends as it should; else the work that it undoes was cut off.
    pub is_finished: bool,
    /// How the device differs from the one that the undo file belongs to.
    pub mismatch: Option<&'static str>,
}

struct Reader<'a> {
    path: &'a Path,
    file: BufReader<File>,
    at: u64,
    unit: u32,
}

impl Reader<'_> {
    fn io<T>(&self, outcome: std::io::Result<T>) -> Result<T, UndoError> {
        outcome.map_err(|source| UndoError::Io { path: self.path.to_owned(), source })
    }

    /// Fills the buffer; false at the end of the file.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<bool, UndoError> {
        match self.file.read_exact(buffer) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => self.io(Err(error)),
        }
    }

    /// The next record; `None` at the end, where one may be torn.
    fn next(&mut self, number: u32) -> Result<Option<(Record, Vec<u8>)>, UndoError> {
        let broken = UndoError::Broken { path: self.path.to_owned(), at: self.at };
        let mut head = [0; RECORD_LEN];
        if !self.fill(&mut head)? {
            return Ok(None);
        }
        let record = Record::decode(&head, self.unit).filter(|record| record.number == number);
        let Some(record) = record else {
            // A crash may leave zeroes where a record was to come; nothing else.
            let is_torn = head.iter().all(|byte| *byte == 0);
            return if is_torn { Ok(None) } else { Err(broken) };
        };
        // At most a unit, as `decode` saw to.
        let mut data = vec![0; record.data_len as usize];
        if !self.fill(&mut data)? {
            return Ok(None);
        }
        if !Record::is_whole(&head, &data) {
            let mut next = [0; 1];
            let is_last = !self.fill(&mut next)?;
            return if is_last { Ok(None) } else { Err(broken) };
        }
        self.at += (RECORD_LEN + data.len()) as u64;
        Ok(Some((record, data)))
    }

    fn rewind(&mut self) -> Result<(), UndoError> {
        self.at = HEADER_LEN as u64;
        let outcome = self.file.seek(SeekFrom::Start(self.at));
        self.io(outcome).map(|_| ())
    }
}

/// Puts the units of `device` back that the undo file at `path` kept. The file is read whole and
/// checked before anything is written; with `dry_run` nothing is.
///
/// # Errors
/// The file is no undo file, or broken, or of another device; or one of the two failed. Applying
/// again is safe.
pub fn apply(
    path: &Path,
    device: &dyn Device,
    check: Check,
    dry_run: bool,
) -> Result<Applied, UndoError> {
    let opened = File::open(path);
    let file = opened.map_err(|source| UndoError::Io { path: path.to_owned(), source })?;
    let mut reader = Reader {
        path,
        file: BufReader::new(file),
        at: HEADER_LEN as u64,
        unit: super::format::UNIT,
    };
    let not_undo = |problem| UndoError::NotUndo { path: path.to_owned(), problem };
    let mut head = vec![0; HEADER_LEN];
    if !reader.fill(&mut head)? {
        return Err(not_undo("too short"));
    }
    let header = Header::decode(&head).map_err(not_undo)?;
    reader.unit = header.unit;
    let other = |problem| UndoError::OtherImage { path: path.to_owned(), problem };
    if header.device_size != device.size() {
        return Err(other("the size differs"));
    }

    let mut applied = Applied::default();
    let mut end_mark = None;
    let mut number = 0;
    while let Some((record, data)) = reader.next(number)? {
        number += 1;
        let end = record.offset.checked_add(record.length);
        if end.is_none_or(|end| end > header.device_size) {
            return Err(UndoError::Broken { path: path.to_owned(), at: reader.at });
        }
        if record.kind == Kind::End {
            end_mark = Some(data);
            break;
        }
        applied.records += 1;
        applied.bytes += record.length;
    }
    applied.is_finished = end_mark.is_some();
    let now = mark(device)?;
    // If the work was interrupted, or an undo was, the superblock may be the old one or any state
    // between.
    let is_known = now == header.mark || now[UUID_IN_MARK] == header.mark[UUID_IN_MARK];
    applied.mismatch = match &end_mark {
        Some(mark) if *mark == now || now == header.mark => None,
        Some(_) => Some("modified since, or another image"),
        None if is_known => None,
        None => Some("another volume"),
    };
    if let Some(problem) = applied.mismatch.filter(|_| check == Check::Same) {
        return Err(other(problem));
    }
    if dry_run {
        return Ok(applied);
    }

    reader.rewind()?;
    // Backwards would put the mark back last; the mark's unit is held until the end instead, so
    // that an undo that was cut off is known again.
    let mut last = None;
    for number in 0..applied.records {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let Some((record, data)) = reader.next(number)? else { break };
        let holds_mark = record.offset <= super::format::MARK_AT
            && super::format::MARK_AT < record.offset + record.length;
        if holds_mark && last.is_none() {
            last = Some((record, data));
            continue;
        }
        put_back(device, &record, &data)?;
    }
    device.flush()?;
    if let Some((record, data)) = last {
        put_back(device, &record, &data)?;
        device.flush()?;
    }
    Ok(applied)
}

fn put_back(device: &dyn Device, record: &Record, data: &[u8]) -> Result<(), UndoError> {
    match record.kind {
        Kind::Old => device.write_at(record.offset, data)?,
        Kind::Hole => device.write_zeroes(record.offset..record.offset + record.length)?,
        Kind::End => {}
    }
    Ok(())
}
