//! The bytes of files.

use super::inline::read_inline;
use super::inode::LoadedInode;
use super::mapping::{MappingTarget, map};
use crate::error::Error;
use crate::source::{BlockKind, DataPiece, MetadataRead};
use extant_ondisk::inode::FileType;
use extant_ondisk::{FileBlock, Flaw, Location};

/// Whether a file's bytes can be read.
///
/// # Errors
/// [`Error::IsADirectory`], [`Error::WrongFileType`], [`Error::Encrypted`].
pub fn check_readable(file: &LoadedInode) -> Result<(), Error> {
    match file.file_type() {
        FileType::Regular => {}
        FileType::Directory => return Err(Error::IsADirectory),
        _ => return Err(Error::WrongFileType),
    }
    if file.is_encrypted() {
        return Err(Error::Encrypted(file.number));
    }
    Ok(())
}

/// Reads at most `buffer.len()` bytes from a byte of the file on and returns their number: fewer
/// only at its end. Holes and unwritten blocks are zeros. Runs that lie together are read together,
/// all of them in one batch.
///
/// # Errors
/// A broken map, or the device failed.
pub fn read<S: MetadataRead>(
    source: &S,
    inode: &LoadedInode,
    offset: u64,
    buffer: &mut [u8],
) -> Result<usize, Error> {
    let left = inode.size.saturating_sub(offset);
    // At most the buffer's length.
    let count = left.min(buffer.len() as u64) as usize;
    let buffer = &mut buffer[..count];
    if inode.is_inline() {
        read_inline(source, inode, offset, buffer)?;
        return Ok(count);
    }
    read_blocks(source, inode, offset, buffer)?;
    Ok(count)
}

/// Reads a whole file whose contents go through the journal, as the value of an attribute does:
/// block by block as metadata.
///
/// # Errors
/// A broken map, or the device failed.
pub fn read_journalled<S: MetadataRead>(
    source: &S,
    inode: &LoadedInode,
    buffer: &mut [u8],
) -> Result<(), Error> {
    if inode.is_inline() {
        return read_inline(source, inode, 0, buffer);
    }
    let block_len = source.geometry().block_len();
    for (at, piece) in (0..).map(FileBlock).zip(buffer.chunks_mut(block_len)) {
        match map(source, inode, at)?.target {
            MappingTarget::Written(block) => {
                let bytes = source.metadata(block, BlockKind::Contents)?;
                piece.copy_from_slice(&bytes[..piece.len()]);
            }
            MappingTarget::Hole | MappingTarget::Unwritten(_) => piece.fill(0),
        }
    }
    Ok(())
}

/// Reads a file's blocks, of any number.
pub fn read_blocks<S: MetadataRead>(
    source: &S,
    inode: &LoadedInode,
    offset: u64,
    mut buffer: &mut [u8],
) -> Result<(), Error> {
    let geometry = source.geometry();
    let (bits, block_size) = (geometry.block_bits(), u64::from(geometry.block_size));
    let mut at = offset;
    let mut pieces: Vec<DataPiece<'_>> = Vec::new();
    // Where the pending run starts on the volume, and how many bytes it has.
    let mut run: Option<(u64, usize)> = None;
    let mut waiting = 0_usize;
    let total = buffer.len();
    while waiting < total {
        let mapping = map(source, inode, FileBlock(at >> bits))?;
        let in_block = at & (block_size - 1);
        let mapped = mapping.len.saturating_mul(block_size).saturating_sub(in_block);
        if mapped == 0 {
            return Err(Flaw::Rule("the file is mapped by empty runs")
                .at(Location::Inode(inode.number))
                .into());
        }
        let len = mapped.min((total - waiting) as u64) as usize;
        let start = match mapping.target {
            MappingTarget::Written(block) => Some(geometry.byte_of(block) + in_block),
            MappingTarget::Hole | MappingTarget::Unwritten(_) => None,
        };
        run = match (run, start) {
            (Some((from, before)), Some(start)) if from + before as u64 == start => {
                Some((from, before + len))
            }
            (before, start) => {
                if let Some((from, before)) = before {
                    let (piece, rest) = std::mem::take(&mut buffer).split_at_mut(before);
                    pieces.push(DataPiece { offset: from, buffer: piece });
                    buffer = rest;
                }
                match start {
                    Some(start) => Some((start, len)),
                    None => {
                        let (zeros, rest) = std::mem::take(&mut buffer).split_at_mut(len);
                        zeros.fill(0);
                        buffer = rest;
                        None
                    }
                }
            }
        };
        waiting += len;
        at += len as u64;
    }
    if let Some((from, before)) = run {
        let piece = &mut buffer[..before];
        pieces.push(DataPiece { offset: from, buffer: piece });
    }
    if pieces.is_empty() { Ok(()) } else { source.data(&mut pieces) }
}
