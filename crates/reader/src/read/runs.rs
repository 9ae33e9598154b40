//! The runs of a file's blocks, as callers get them.

use super::inline;
use super::inode::LoadedInode;
use super::mapping::{Mapping, MappingTarget};
use crate::error::Error;
use crate::source::MetadataRead;
use extant_ondisk::{Geometry, MAX_FILE_BLOCKS};
use std::ops::Range;

/// The runs that end with the last mapped one or the file's end, whichever is later, of all runs of
/// the file.
pub fn to_end<I: Iterator<Item = Result<Mapping, Error>>>(
    geometry: &Geometry,
    file: &LoadedInode,
    all: I,
) -> impl Iterator<Item = Result<Mapping, Error>> + use<I> {
    let end = file.size.div_ceil(u64::from(geometry.block_size));
    all.filter_map(move |run| match run {
        Ok(run) if run.is_hole() && run.block.0 >= end => None,
        // The hole after the last mapped run reaches to the format's end.
        Ok(run) if run.is_hole() && run.end().0 == MAX_FILE_BLOCKS => {
            Some(Ok(Mapping { len: end - run.block.0, ..run }))
        }
        other => Some(other),
    })
}

/// The byte ranges that may hold something other than zeros, of a file whose runs up to its end are
/// given.
///
/// # Errors
/// Broken attributes in the inode of a file with inline data.
pub fn data_segments<S: MetadataRead, I: Iterator<Item = Result<Mapping, Error>>>(
    source: &S,
    file: &LoadedInode,
    runs: I,
) -> Result<impl Iterator<Item = Result<Range<u64>, Error>> + use<S, I>, Error> {
    let (size, bits) = (file.size, source.geometry().block_bits());
    let inline_len = if file.is_inline() { inline::inline_len(source, file)? } else { 0 };
    let inline = (inline_len > 0).then_some(Ok(0..inline_len));
    let mapped = runs.filter_map(move |run| match run {
        Ok(Mapping { block, len, target: MappingTarget::Written(_) }) => {
            let end = (block.0 + len) << bits;
            Some(Ok(block.0 << bits..end.min(size)))
        }
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    });
    Ok(inline.into_iter().chain(mapped))
}
