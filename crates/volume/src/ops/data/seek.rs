//! Where a file has data and where it has holes.

use crate::error::Error;
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
        self.with_inode(file, |file| self.seek(file, offset, true))
    }

    /// The first byte at or behind `offset` that lies in a hole; the file's end counts as one. `None` at or past the end.
    ///
    /// # Errors
    /// As [`Self::seek_data`].
    pub fn seek_hole(&self, file: InodeNo, offset: u64) -> Result<Option<u64>, Error> {
        self.with_inode(file, |file| self.seek(file, offset, false))
    }

    fn seek(
        &self,
        file: &LoadedInode,
        offset: u64,
        wants_data: bool,
    ) -> Result<Option<u64>, Error> {
        match file.file_type() {
            FileType::Regular => {}
            FileType::Directory => return Err(Error::IsADirectory),
            _ => return Err(Error::WrongFileType),
        }
        if offset >= file.size {
            return Ok(None);
        }
        if file.is_inline() {
            return Ok(Some(if wants_data { offset } else { file.size }));
        }
        let bits = self.geometry().block_bits();
        let mut at = offset;
        while at < file.size {
            let run = map(self, file, FileBlock(at >> bits))?;
            if matches!(run.target, Target::Written(_)) == wants_data {
                return Ok(Some(at));
            }
            at = run.end().0.saturating_mul(1 << bits);
        }
        Ok((!wants_data).then_some(file.size))
    }
}
