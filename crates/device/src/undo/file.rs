//! Writing an undo file.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rangemap::RangeSet;

use super::format::{
    Header, Key, MAX_DATA_BLOCKS, MIN_BLOCK_SIZE, Sum, encode_keys, with_inverted_magic,
};
use super::log::{UndoLog, superblock};
use super::{CHUNK, FsOffset, UndoError};
use crate::device::Device;

/// Bytes kept together. Larger than a block, since neighbours of a repaired block are often
/// repaired next, and each unit costs a sync.
const UNIT: u64 = 1 << 15;

/// An undo file that is being written.
#[derive(Debug)]
pub struct UndoWriter {
    path: PathBuf,
    file: File,
    header: Header,
    /// Whether it was made by this writer.
    is_new: bool,
    /// Where the file system begins on the device.
    start: u64,
    /// File system blocks that are kept already.
    kept: RangeSet<u64>,
    /// The key block that is being filled, and its keys.
    key_block: u64,
    keys: Vec<Key>,
    /// The next free block of the file.
    end_block: u64,
    /// The file after each sync of keys.
    #[cfg(test)]
    pub(super) synced: Vec<Vec<u8>>,
}

impl UndoWriter {
    /// Starts the undo file at `path`, or continues one of the same volume. Places are counted in
    /// blocks of `block_size`, or where that is not given in those of the volume: the programs that
    /// continue the file count in blocks of the volume that they find then.
    ///
    /// # Errors
    /// The file cannot be made, what is there is not an undo file of this volume, or the device
    /// cannot be read.
    pub fn open(
        path: PathBuf,
        device: &dyn Device,
        volume: FsOffset,
        block_size: Option<u32>,
    ) -> Result<Self, UndoError> {
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let with_path = |source| UndoError::Io { path: path.clone(), source };
        let is_new = !path.exists();
        let file = opened.open(&path).map_err(with_path)?;
        if file.metadata().map_err(with_path)?.len() > 0 {
            return Self::continued(UndoLog::read(&path, file)?, path, device, volume);
        }
        let now = superblock(device, volume.on_device)?;
        let fs_block_size = block_size.unwrap_or_else(|| block_size_of(&now));
        let header = Header {
            keys: 0,
            superblock: 1,
            key_block: 2,
            block_size: fs_block_size,
            fs_block_size,
            superblock_sum: 0,
            is_finished: false,
            offset: Some(volume.in_file).filter(|offset| *offset > 0),
        };
        let mut writer = Self {
            path,
            file,
            is_new,
            key_block: header.key_block,
            end_block: header.key_block + 1,
            header,
            start: volume.on_device,
            kept: RangeSet::new(),
            keys: Vec::new(),
            #[cfg(test)]
            synced: Vec::new(),
        };
        writer.write_keys()?;
        writer.write_head(device)?;
        writer.with_path(writer.file.sync_all())?;
        // The name itself must survive, too.
        let parent = match writer.path.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let synced = File::open(parent).and_then(|directory| directory.sync_all());
        writer.with_path(synced)?;
        Ok(writer)
    }

    fn continued(
        log: UndoLog,
        path: PathBuf,
        device: &dyn Device,
        volume: FsOffset,
    ) -> Result<Self, UndoError> {
        if log.header.offset.unwrap_or(0) != volume.in_file {
            return Err(log.other_image("another offset"));
        }
        if let Some(problem) = log.mismatch(&superblock(device, volume.on_device)?)? {
            return Err(log.other_image(problem));
        }
        let block = u64::from(log.header.fs_block_size);
        let mut kept = RangeSet::new();
        for old in &log.kept {
            if !log.header.is_finished && !log.is_whole(old)? {
                return Err(log.broken(old.at));
            }
            kept.insert(old.offset / block..old.end().div_ceil(block));
        }
        let (key_block, count) = log.last_key_block;
        let keys = log.kept[log.kept.len() - count..].iter().map(|kept| kept.key).collect();
        let keys_in_all = log.kept.len() as u64;
        let end_block = log.end_block;
        let header = Header { keys: keys_in_all, is_finished: false, ..log.header.clone() };
        let file = log.into_file();
        let start = volume.on_device;
        let writer = Self {
            path,
            file,
            is_new: false,
            header,
            start,
            kept,
            key_block,
            keys,
            end_block,
            #[cfg(test)]
            synced: Vec::new(),
        };
        writer.with_path(writer.file.write_all_at(&writer.header.encode(), 0))?;
        writer.with_path(writer.file.sync_data())?;
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
        let block = u64::from(self.header.fs_block_size);
        let unit = UNIT.max(block);
        let at_once = CHUNK.min(MAX_DATA_BLOCKS * u64::from(self.header.block_size)) / block;
        let size = device.size().saturating_sub(self.start);
        let mut is_new = false;
        for range in ranges {
            let Some(first) = range.start.checked_sub(self.start) else {
                return Err(UndoError::BelowVolume { path: self.path.clone(), at: range.start });
            };
            let end = (range.end - self.start).div_ceil(unit) * unit;
            let blocks = first / unit * unit / block..end.min(size).div_ceil(block);
            let missing: Vec<Range<u64>> = self.kept.gaps(&blocks).collect();
            for blocks in missing {
                let mut from = blocks.start;
                while from < blocks.end {
                    let to = blocks.end.min(from + at_once.max(1));
                    self.keep_blocks(device, from, (to * block).min(size) - from * block)?;
                    self.kept.insert(from..to);
                    from = to;
                }
                is_new = true;
            }
        }
        if is_new { self.sync_keys() } else { Ok(()) }
    }

    /// Writes the last key block and the header; they and the data are on the medium afterwards.
    fn sync_keys(&mut self) -> Result<(), UndoError> {
        self.write_keys()?;
        self.with_path(self.file.write_all_at(&self.header.encode(), 0))?;
        self.with_path(self.file.sync_data())?;
        #[cfg(test)]
        self.synced.extend(std::fs::read(&self.path));
        Ok(())
    }

    /// Adds a key and its data: at most a chunk from a file system block on.
    fn keep_blocks(
        &mut self,
        device: &dyn Device,
        block: u64,
        length: u64,
    ) -> Result<(), UndoError> {
        if self.keys.len() == self.header.keys_per_block() {
            // Of a file that was cut off only the last key block may be torn.
            self.sync_keys()?;
            self.keys.clear();
            self.key_block = self.end_block;
            self.end_block += 1;
        }
        let from = self.start + block * u64::from(self.header.fs_block_size);
        let at = self.end_block * u64::from(self.header.block_size);
        let data = self.old_data(device, from..from + length)?;
        let sum = match &data {
            Some(data) => Sum::of(data),
            None => Sum::of_zeroes(length),
        };
        // At most a chunk.
        let key = Key { block, sum, length: length as u32 };
        self.end_block += key.data_blocks(self.header.block_size);
        if let Some(data) = data {
            self.with_path(self.file.write_all_at(&data, at))?;
        }
        // Zeroes are a hole.
        let end = self.end_block * u64::from(self.header.block_size);
        self.with_path(self.file.set_len(end))?;
        self.keys.push(key);
        self.header.keys += 1;
        Ok(())
    }

    /// The contents of the device there; `None` if all is zero.
    fn old_data(
        &self,
        device: &dyn Device,
        range: Range<u64>,
    ) -> Result<Option<Vec<u8>>, UndoError> {
        if device.next_data(range.clone())?.is_none() {
            return Ok(None);
        }
        // At most a chunk.
        let mut data = vec![0; (range.end - range.start) as usize];
        device.read_at(range.start, &mut data)?;
        Ok(Some(data).filter(|data| data.iter().any(|byte| *byte != 0)))
    }

    fn write_keys(&self) -> Result<(), UndoError> {
        let bytes = encode_keys(&self.keys, self.header.block_size);
        let at = self.key_block * u64::from(self.header.block_size);
        self.with_path(self.file.write_all_at(&bytes, at))
    }

    /// Writes the device's superblock as it is now, and the header.
    fn write_head(&mut self, device: &dyn Device) -> Result<(), UndoError> {
        let now = superblock(device, self.start)?;
        self.header.superblock_sum = Sum::of(&now);
        let at = self.header.superblock * u64::from(self.header.block_size);
        let header = self.header.encode();
        let outcome = self.file.write_all_at(&with_inverted_magic(&now), at);
        self.with_path(outcome.and_then(|()| self.file.write_all_at(&header, 0)))
    }

    /// Ends the file with the superblock of the device as it is now.
    ///
    /// # Errors
    /// The file or the device failed.
    pub fn finish(&mut self, device: &dyn Device) -> Result<(), UndoError> {
        self.header.is_finished = true;
        self.write_head(device)?;
        self.with_path(self.file.sync_all())
    }

    /// Removes the file if this writer made it and nothing is kept in it: nothing was changed.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove_if_empty(&self) -> Result<(), UndoError> {
        match self.is_new && self.header.keys == 0 {
            true => self.with_path(std::fs::remove_file(&self.path)),
            false => Ok(()),
        }
    }
}

/// The size of a file system block that the superblock gives, or the smallest.
fn block_size_of(superblock: &[u8]) -> u32 {
    let shift = u32::from(superblock[0x18]);
    let is_ext = superblock[0x38..0x3a] == [0x53, 0xef] && superblock[0x19..0x1c] == [0; 3];
    if is_ext && shift <= 6 { MIN_BLOCK_SIZE << shift } else { MIN_BLOCK_SIZE }
}
