//! Inline data: the content of a small file or directory in its inode.
//!
//! Source: `inlinedata.rst`. The first part is in `i_block`, the rest is the value of the attribute
//! `system.data` in the inode's own attribute space; the attribute exists even if its value is
//! empty. A directory stores its parent's inode number in the first four bytes and has no `.` and
//! `..`; each of the two parts is a separate chain of entries.

use crate::dirent::{DirFormat, Entries, NewEntry};
use crate::types::{FileBlock, InodeNo};
use crate::{Flaw, FormatError, Location};
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

/// Number of bytes in `i_block`.
pub const IN_I_BLOCK: usize = 60;
/// Number of bytes of `i_block` for a directory's parent.
const PARENT_LEN: usize = 4;
/// Minimum length in bytes of a part with an entry.
const MIN_PART: usize = 12;

/// A file's bytes, as the two parts in the inode.
///
/// # Errors
/// The size exceeds the parts.
pub fn file_parts<'a>(
    i_block: &'a [u8; IN_I_BLOCK],
    xattr_value: &'a [u8],
    size: u64,
    inode: InodeNo,
) -> Result<[&'a [u8]; 2], FormatError> {
    let room = IN_I_BLOCK + xattr_value.len();
    let size = usize::try_from(size).ok().filter(|size| *size <= room).ok_or_else(|| {
        Flaw::above_limit("size", size, room as u64).at(Location::InlineData(inode))
    })?;
    let first = size.min(IN_I_BLOCK);
    Ok([&i_block[..first], &xattr_value[..size - first]])
}

/// A decoded inline directory.
#[derive(Clone, Copy, Debug)]
pub struct InlineDir<'a> {
    /// The parent directory.
    pub parent: InodeNo,
    format: DirFormat,
    parts: [&'a [u8]; 2],
}

impl<'a> InlineDir<'a> {
    /// Decodes an inline directory. `format` is that of the directory's blocks, `size` its
    /// `i_size`.
    ///
    /// # Errors
    /// The size is not that of the parts.
    pub fn decode(
        format: &DirFormat,
        i_block: &'a [u8; IN_I_BLOCK],
        xattr_value: &'a [u8],
        size: u64,
    ) -> Result<Self, FormatError> {
        let location = Location::InlineData(format.inode);
        let parts = file_parts(i_block, xattr_value, size, format.inode)?;
        let (parent, records) = U32::read_from_prefix(parts[0])
            .map_err(|_| Flaw::truncated(parts[0].len(), PARENT_LEN).at(location))?;
        if size < IN_I_BLOCK as u64 {
            return Err(Flaw::below_limit("size", size, IN_I_BLOCK as u64).at(location));
        }
        Ok(Self { parent: InodeNo(parent.get()), format: *format, parts: [records, parts[1]] })
    }

    /// All entries, including free ones. Positions count from the start of their part; the first
    /// part is reported as logical block 0, the second as 1.
    pub fn entries(&self) -> impl Iterator<Item = <Entries<'a> as Iterator>::Item> + 'a {
        let [first, second] = self.parts;
        let format = self.format;
        let first = format.inline(first.len()).entries(first, FileBlock(0));
        first.chain(format.inline(second.len()).entries(second, FileBlock(1)))
    }
}

/// Packs a directory for an inode.
#[derive(Debug)]
pub struct InlineDirPacker {
    format: DirFormat,
}

impl InlineDirPacker {
    /// Creates a packer. `format` is that of the directory's blocks.
    pub fn new(format: &DirFormat) -> Self {
        Self { format: *format }
    }

    /// Writes the parent and the entries. `xattr_part` is the attribute's value, with the length to
    /// be stored (0, or 12 and more). Entries are packed into the first part while they fit, then
    /// into the second. Returns false if they do not fit.
    pub fn pack<'n>(
        &self,
        parent: InodeNo,
        i_block: &mut [u8; IN_I_BLOCK],
        xattr_part: &mut [u8],
        records: impl IntoIterator<Item = NewEntry<'n>>,
    ) -> bool {
        let (parent_at, first) = i_block.split_at_mut(PARENT_LEN);
        parent_at.copy_from_slice(&parent.0.to_le_bytes());
        let mut packer = self.format.inline(first.len()).packer(first);
        let mut records = records.into_iter();
        let mut left_over = None;
        for record in records.by_ref() {
            if !packer.push(&record) {
                left_over = Some(record);
                break;
            }
        }
        packer.finish();
        if xattr_part.len() < MIN_PART {
            return left_over.is_none() && xattr_part.is_empty();
        }
        let mut packer = self.format.inline(xattr_part.len()).packer(xattr_part);
        let fits = left_over.into_iter().chain(records).all(|record| packer.push(&record));
        packer.finish();
        fits
    }
}

/// Length in bytes of the attribute value for a directory with entries of these lengths, packed in
/// order: 0 if `i_block` is enough.
pub fn xattr_len_of(rec_lens: impl IntoIterator<Item = usize>) -> usize {
    let (mut first, mut second) = (IN_I_BLOCK - PARENT_LEN, 0);
    for rec_len in rec_lens {
        if second == 0 && rec_len <= first {
            first -= rec_len;
        } else {
            second += rec_len;
        }
    }
    second
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dirent::FileType;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn format() -> DirFormat {
        DirFormat {
            inode: InodeNo(12),
            block_len: 4096,
            has_filetype: true,
            has_stored_hashes: false,
            checksum_seed: Some(3),
        }
    }

    fn record(name: &str) -> NewEntry<'_> {
        NewEntry::new(InodeNo(20), FileType::Regular, name.as_bytes())
    }

    #[test]
    fn records_spill_into_the_attribute() {
        let names = ["one", "two", "three", "four four four four", "five"];
        let needed = xattr_len_of(names.map(|name| format().rec_len(name.len())));
        assert_eq!(needed, 28 + 12);
        let (mut i_block, mut value) = ([0xee; 60], vec![0; needed]);
        let packer = InlineDirPacker::new(&format());
        assert!(packer.pack(InodeNo(2), &mut i_block, &mut value, names.map(record)));
        let dir = InlineDir::decode(&format(), &i_block, &value, 100).unwrap();
        assert_eq!(dir.parent, InodeNo(2));
        let found: Vec<_> = dir.entries().map(|entry| entry.unwrap().name).collect();
        assert_eq!(found, names.map(str::as_bytes));
    }

    #[test]
    fn an_empty_directory_is_one_free_record() {
        let mut i_block = [0; 60];
        let packer = InlineDirPacker::new(&format());
        assert!(packer.pack(InodeNo(2), &mut i_block, &mut [], []));
        let dir = InlineDir::decode(&format(), &i_block, &[], 60).unwrap();
        let entries: Vec<_> = dir.entries().map(Result::unwrap).collect();
        assert_eq!((entries.len(), entries[0].rec_len, entries[0].is_used()), (1, 56, false));
    }

    #[test]
    fn records_that_do_not_fit_are_refused() {
        let packer = InlineDirPacker::new(&format());
        let names = ["a name of forty bytes, one record of 48", "another"];
        assert!(!packer.pack(InodeNo(2), &mut [0; 60], &mut [], names.map(record)));
    }

    #[test]
    fn a_size_beyond_the_parts_is_refused() {
        let expected =
            Flaw::above_limit("size", 71_u32, 70_u32).at(Location::InlineData(InodeNo(9)));
        assert_eq!(file_parts(&[0; 60], &[0; 10], 71, InodeNo(9)), Err(expected));
        let parts = file_parts(&[7; 60], &[8; 10], 64, InodeNo(9)).unwrap();
        assert_eq!(parts, [&[7; 60][..], &[8; 4]]);
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_records_or_an_error(
            i_block in proptest::array::uniform32(any::<u8>()),
            value in proptest::collection::vec(any::<u8>(), 0..80),
            size in 0_u64..200,
        ) {
            let mut whole = [0; 60];
            whole[..32].copy_from_slice(&i_block);
            if let Ok(dir) = InlineDir::decode(&format(), &whole, &value, size) {
                prop_assert!(dir.entries().count() <= 14);
            }
        }
    }
}
