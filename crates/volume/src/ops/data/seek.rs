//! Where a file has data and where it has holes.

use crate::error::Error;
use crate::live::delay::Delayed;
use crate::read::inode::LoadedInode;
use crate::read::mapping::{Target, map};
use crate::volume::Volume;
use extant_ondisk::inode::FileType;
use extant_ondisk::{FileBlock, InodeNo};

impl Volume {
    /// The first byte at or behind `offset` that may hold data; `None` where only a hole or the file's end follows. Unwritten
    /// blocks are a hole.
    ///
    /// # Errors
    /// [`Error::IsADirectory`], [`Error::WrongFileType`], a broken map, or the device failed.
    pub fn seek_data(&self, file: InodeNo, offset: u64) -> Result<Option<u64>, Error> {
        self.with_file(file, |file, delayed| self.seek(file, delayed, offset, true))
    }

    /// The first byte at or behind `offset` that lies in a hole; the file's end counts as one. `None` at or past the end.
    ///
    /// # Errors
    /// As [`Self::seek_data`].
    pub fn seek_hole(&self, file: InodeNo, offset: u64) -> Result<Option<u64>, Error> {
        self.with_file(file, |file, delayed| self.seek(file, delayed, offset, false))
    }

    fn seek(
        &self,
        file: &LoadedInode,
        delayed: &Delayed,
        offset: u64,
        wants_data: bool,
    ) -> Result<Option<u64>, Error> {
        match file.file_type() {
            FileType::Regular => {}
            FileType::Directory => return Err(Error::IsADirectory),
            _ => return Err(Error::WrongFileType),
        }
        let size = delayed.size(file.size);
        if offset >= size {
            return Ok(None);
        }
        if file.is_inline() {
            return Ok(Some(if wants_data { offset } else { file.size }));
        }
        let bits = self.geometry().block_bits();
        let mut at = offset;
        while at < size {
            let block = at >> bits;
            let next = delayed.next(block, self.geometry());
            let (is_data, end) = if next == Some(block) {
                (true, block + 1)
            } else {
                let run = map(self, file, FileBlock(block))?;
                let is_data = matches!(run.target, Target::Written(_));
                (is_data, run.end().0.min(next.unwrap_or(u64::MAX)))
            };
            if is_data == wants_data {
                return Ok(Some(at));
            }
            at = end.saturating_mul(1 << bits);
        }
        Ok((!wants_data).then_some(size))
    }
}
