//! Reading an undo file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::format::{
    HEADER_LEN, Header, Key, SUPERBLOCK_AT, SUPERBLOCK_LEN, Sum, decode_keys, with_inverted_magic,
};
use super::{CHUNK, UndoError};
use crate::device::Device;

/// The superblock's field of the volume's UUID.
const UUID: std::ops::Range<usize> = 0x68..0x78;

pub(super) type SuperblockBytes = [u8; SUPERBLOCK_LEN];

/// Old contents that an undo file keeps.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Kept {
    /// First byte in the file system.
    pub(super) offset: u64,
    /// Bytes.
    pub(super) length: u64,
    /// Where the data begin in the undo file.
    pub(super) at: u64,
    pub(super) key: Key,
}

impl Kept {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.length
    }

    fn covers_superblock(&self) -> bool {
        self.offset <= SUPERBLOCK_AT && SUPERBLOCK_AT + SUPERBLOCK_LEN as u64 <= self.end()
    }
}

/// An undo file that was read.
#[derive(Debug)]
pub(super) struct UndoLog {
    path: PathBuf,
    file: File,
    file_len: u64,
    pub(super) header: Header,
    /// The superblock as the command left it, or as it was when the file was made.
    pub(super) superblock: SuperblockBytes,
    /// In the order in which they were kept.
    pub(super) kept: Vec<Kept>,
    /// The key block that the last keys are in, and how many.
    pub(super) last_key_block: (u64, usize),
    /// The block after the last data.
    pub(super) end_block: u64,
}

/// The superblock of the volume that begins at `start`; zeroes where the device is too short.
pub(super) fn superblock(device: &dyn Device, start: u64) -> Result<SuperblockBytes, UndoError> {
    let mut bytes = [0; SUPERBLOCK_LEN];
    let end = start.saturating_add(SUPERBLOCK_AT + SUPERBLOCK_LEN as u64);
    if device.size() >= end {
        device.read_at(start + SUPERBLOCK_AT, &mut bytes)?;
    }
    Ok(bytes)
}

impl UndoLog {
    /// Reads the header, the superblock and all keys.
    pub(super) fn read(path: &Path, file: File) -> Result<Self, UndoError> {
        let not_undo = |problem| UndoError::NotUndo { path: path.to_owned(), problem };
        let io = |source: io::Error| match source.kind() {
            io::ErrorKind::UnexpectedEof => not_undo("too short"),
            _ => UndoError::Io { path: path.to_owned(), source },
        };
        let file_len = file.metadata().map_err(io)?.len();
        let mut head = [0; HEADER_LEN];
        file.read_exact_at(&mut head, 0).map_err(io)?;
        let header = Header::decode(&head).map_err(not_undo)?;
        let block_size = u64::from(header.block_size);
        let byte_of = |block: u64| {
            let at = block.checked_mul(block_size).filter(|at| *at < file_len);
            at.ok_or(not_undo("too short"))
        };
        let mut stored = [0; SUPERBLOCK_LEN];
        file.read_exact_at(&mut stored, byte_of(header.superblock)?).map_err(io)?;
        let superblock = with_inverted_magic(&stored);
        // A file that was cut off may have one of the two only.
        if header.is_finished && Sum::of(&superblock) != header.superblock_sum {
            return Err(not_undo("superblock checksum does not match"));
        }
        let mut log = Self {
            path: path.to_owned(),
            file,
            file_len,
            last_key_block: (header.key_block, 0),
            end_block: header.key_block.saturating_add(1),
            header,
            superblock,
            kept: Vec::new(),
        };
        log.read_keys()?;
        Ok(log)
    }

    fn read_keys(&mut self) -> Result<(), UndoError> {
        let block_size = self.header.block_size;
        let mut left = self.header.keys;
        let mut at = self.header.key_block;
        while left > 0 {
            let byte = at.checked_mul(u64::from(block_size)).ok_or_else(|| self.broken(0))?;
            let count = left.min(self.header.keys_per_block() as u64);
            // A key block that was cut off while it was rewritten has old and new bytes; each of
            // its keys is judged by the checksum of its data.
            let may_be_torn = left == count && !self.header.is_finished;
            let mut bytes = vec![0; block_size as usize];
            if may_be_torn && self.file_len.saturating_sub(byte) < u64::from(block_size) {
                // The sync that made the file longer did not end, so nothing was overwritten.
                break;
            }
            self.read_at(byte, &mut bytes, byte)?;
            // At most those of a block.
            let (keys, is_whole) = decode_keys(&bytes, count as usize);
            left -= count;
            if !is_whole && !may_be_torn {
                return Err(self.broken(byte));
            }
            let mut data = at + 1;
            for key in keys {
                // A crash may leave zeroes where the last keys were to come.
                if key.length == 0 && may_be_torn {
                    break;
                }
                let begin = data * u64::from(block_size);
                let offset = key.block.checked_mul(u64::from(self.header.fs_block_size));
                let kept = offset.and_then(|offset| {
                    let length = u64::from(key.length);
                    let is_possible = length > 0
                        && offset.checked_add(length).is_some()
                        && (begin.checked_add(length)? <= self.file_len || may_be_torn);
                    is_possible.then_some(Kept { offset, length, at: begin, key })
                });
                let Some(kept) = kept else { return Err(self.broken(begin)) };
                self.kept.push(kept);
                self.last_key_block = (at, self.last_key_block_count(at) + 1);
                data += key.data_blocks(block_size);
            }
            at = data;
            self.end_block = data;
        }
        Ok(())
    }

    fn last_key_block_count(&self, at: u64) -> usize {
        let (block, count) = self.last_key_block;
        if block == at { count } else { 0 }
    }

    /// Bytes of the file, of which a missing one means that the record at `place` is broken.
    pub(super) fn read_at(&self, at: u64, bytes: &mut [u8], place: u64) -> Result<(), UndoError> {
        self.file.read_exact_at(bytes, at).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => self.broken(place),
            _ => UndoError::Io { path: self.path.clone(), source },
        })
    }

    pub(super) fn broken(&self, at: u64) -> UndoError {
        UndoError::Broken { path: self.path.clone(), at }
    }

    pub(super) fn other_image(&self, problem: &'static str) -> UndoError {
        UndoError::OtherImage { path: self.path.clone(), problem }
    }

    pub(super) fn into_file(self) -> File {
        self.file
    }

    /// Calls `take` with the kept data, a chunk at a time, and with where they lie in the file
    /// system.
    pub(super) fn chunks(
        &self,
        kept: &Kept,
        mut take: impl FnMut(u64, &[u8]) -> Result<(), UndoError>,
    ) -> Result<(), UndoError> {
        let mut buffer = vec![0; CHUNK.min(kept.length) as usize];
        let mut done = 0;
        while done < kept.length {
            let now = CHUNK.min(kept.length - done) as usize;
            self.read_at(kept.at + done, &mut buffer[..now], kept.at)?;
            take(kept.offset + done, &buffer[..now])?;
            done += now as u64;
        }
        Ok(())
    }

    /// Whether the kept data are those that the key was made of.
    pub(super) fn is_whole(&self, kept: &Kept) -> Result<bool, UndoError> {
        if kept.at + kept.length > self.file_len {
            return Ok(false);
        }
        let mut sum = Sum::new();
        self.chunks(kept, |_, bytes| {
            sum.update(bytes);
            Ok(())
        })?;
        Ok(sum.value() == kept.key.sum)
    }

    /// The superblock before the command, where it is kept.
    pub(super) fn old_superblock(&self) -> Result<Option<SuperblockBytes>, UndoError> {
        let Some(kept) = self.kept.iter().find(|kept| kept.covers_superblock()) else {
            return Ok(None);
        };
        let mut bytes = [0; SUPERBLOCK_LEN];
        self.read_at(kept.at + (SUPERBLOCK_AT - kept.offset), &mut bytes, kept.at)?;
        Ok(Some(bytes))
    }

    /// How a superblock differs from those that the file knows.
    pub(super) fn mismatch(
        &self,
        now: &SuperblockBytes,
    ) -> Result<Option<&'static str>, UndoError> {
        if *now == self.superblock {
            return Ok(None);
        }
        // An undo was done, or cut off.
        let old = self.old_superblock()?;
        if old.as_ref() == Some(now) {
            return Ok(None);
        }
        // The command was cut off: any state between is possible.
        let known = [Some(&self.superblock), old.as_ref()];
        let is_known = known.into_iter().flatten().any(|known| known[UUID] == now[UUID]);
        Ok(match (self.header.is_finished, is_known) {
            (true, _) => Some("modified since, or another image"),
            (false, true) => None,
            (false, false) => Some("another volume"),
        })
    }
}
