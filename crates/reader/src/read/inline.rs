//! Inline data: the contents of a file or directory that lie in its inode.

use super::inode::LoadedInode;
use crate::error::Error;
use crate::source::MetadataRead;
use extant_ondisk::inline_data::file_parts;
use extant_ondisk::xattr::{ValueRef, decode_inode};

/// The value of `system.data`: the part of inline data that `i_block` had no room for.
///
/// # Errors
/// Broken attributes in the inode.
pub fn inline_data<S: MetadataRead>(
    source: &S,
    inode: &LoadedInode,
) -> Result<Option<Vec<u8>>, Error> {
    let found = decode_inode(&inode.xattr_space, inode.number, source.geometry())?;
    let data = found.iter().find(|xattr| xattr.name.is_inline_data());
    Ok(data.and_then(|xattr| match xattr.value {
        ValueRef::Stored(value) => Some(value.to_vec()),
        ValueRef::EaInode(_) => None,
    }))
}

/// Bytes at the start of inline data that the inode holds; what follows them is a hole.
///
/// # Errors
/// Broken attributes in the inode.
pub fn inline_len<S: MetadataRead>(source: &S, inode: &LoadedInode) -> Result<u64, Error> {
    let rest = inline_data(source, inode)?.unwrap_or_default();
    Ok(inode.size.min(inline_room(inode, &rest)))
}

fn inline_room(inode: &LoadedInode, rest: &[u8]) -> u64 {
    (inode.i_block.len() + rest.len()) as u64
}

/// The inode may hold fewer bytes than the file has: mke2fs 1.47.0 stores a file that is all hole
/// so. The others are zeros, as for the kernel and e2fsck.
pub(super) fn read_inline<S: MetadataRead>(
    source: &S,
    inode: &LoadedInode,
    offset: u64,
    buffer: &mut [u8],
) -> Result<(), Error> {
    let rest = inline_data(source, inode)?.unwrap_or_default();
    let held = inode.size.min(inline_room(inode, &rest));
    let [first, second] = file_parts(&inode.i_block, &rest, held, inode.number)?;
    // Inline data are smaller than a block, so the offset fits wherever it is not past the end.
    let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
    let bytes = first.iter().chain(second).skip(skipped);
    buffer.fill(0);
    buffer.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    Ok(())
}
