//! Targets of symbolic links.

use super::data;
use super::inode::LoadedInode;
use super::nokey::nokey_name;
use crate::error::Error;
use crate::source::MetadataRead;
use extant_ondisk::dx_hash::DirHash;
use extant_ondisk::inode::FileType;
use extant_ondisk::{Flaw, Location};

/// The target: from `i_block`, from the inode's inline data, or from a block. An encrypted one is
/// given in the form of names without a key ([`nokey_name`]).
///
/// # Errors
/// [`Error::WrongFileType`], a target longer than a block, or the device failed.
pub fn target<S: MetadataRead>(source: &S, inode: &LoadedInode) -> Result<Vec<u8>, Error> {
    if inode.file_type() != FileType::Symlink {
        return Err(Error::WrongFileType);
    }
    let place = Location::Symlink(inode.number);
    let block_size = source.geometry().block_size;
    if inode.size > u64::from(block_size) {
        return Err(Flaw::above_limit("i_size", inode.size, block_size).at(place).into());
    }
    // At most a block.
    let len = inode.size as usize;
    let stored = if inode.is_fast_symlink(source.geometry()) {
        let limit = inode.i_block.len() as u64;
        inode
            .i_block
            .get(..len)
            .ok_or_else(|| Flaw::above_limit("i_size", inode.size, limit).at(place))?
            .to_vec()
    } else {
        let mut bytes = vec![0; len];
        data::read(source, inode, 0, &mut bytes)?;
        bytes
    };
    if inode.is_encrypted() {
        return encrypted(&stored, place);
    }
    if stored.contains(&0) {
        return Err(Flaw::Rule("target has a NUL byte").at(place).into());
    }
    Ok(stored)
}

/// Two bytes of length, then the encrypted target.
fn encrypted(stored: &[u8], place: Location) -> Result<Vec<u8>, Error> {
    let (len, rest) = stored
        .split_first_chunk::<2>()
        .ok_or_else(|| Flaw::truncated(stored.len(), 2).at(place))?;
    let len = usize::from(u16::from_le_bytes(*len));
    let bytes = rest.get(..len).ok_or_else(|| Flaw::truncated(rest.len(), len).at(place))?;
    Ok(nokey_name(DirHash::default(), bytes))
}
