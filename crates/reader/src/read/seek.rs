//! Where a file has data and where it has holes.

use super::inode::LoadedInode;
use super::mapping::{MappingTarget, map};
use crate::error::Error;
use crate::source::MetadataRead;
use extant_ondisk::FileBlock;
use extant_ondisk::inode::FileType;

/// The aim of a search in a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Seek {
    /// Bytes that may hold data. Unwritten blocks hold none.
    Data,
    /// A hole; the file's end counts as one.
    Hole,
}

/// The first byte at or after `offset` of the wanted kind, in a file of `size` bytes.
/// `next_pending` gives the first block from one on whose data are in memory alone. `None` at or
/// past the end, and where no data follow.
///
/// # Errors
/// [`Error::IsADirectory`], [`Error::WrongFileType`], a broken map, or the device failed.
pub fn seek<S: MetadataRead>(
    source: &S,
    file: &LoadedInode,
    size: u64,
    wanted: (Seek, u64),
    next_pending: impl Fn(u64) -> Option<u64>,
) -> Result<Option<u64>, Error> {
    match file.file_type() {
        FileType::Regular => {}
        FileType::Directory => return Err(Error::IsADirectory),
        _ => return Err(Error::WrongFileType),
    }
    let (what, offset) = wanted;
    if offset >= size {
        return Ok(None);
    }
    if file.is_inline() {
        return Ok(Some(if what == Seek::Data { offset } else { file.size }));
    }
    let bits = source.geometry().block_bits();
    let mut at = offset;
    while at < size {
        let block = at >> bits;
        let next = next_pending(block);
        let (is_data, end) = if next == Some(block) {
            (true, block + 1)
        } else {
            let run = map(source, file, FileBlock(block))?;
            let is_data = matches!(run.target, MappingTarget::Written(_));
            (is_data, run.end().0.min(next.unwrap_or(u64::MAX)))
        };
        if is_data == (what == Seek::Data) {
            return Ok(Some(at));
        }
        at = end.saturating_mul(1 << bits);
    }
    Ok((what == Seek::Hole).then_some(size))
}
