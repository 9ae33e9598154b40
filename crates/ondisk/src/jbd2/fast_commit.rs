//! Records of the fast-commit area: changes by inode and directory entry instead of by block.
//! Little-endian.
//!
//! A stream of {tag, length, value} records from the area's first block on; a record never crosses
//! a block. A fast commit consists of the records up to a tail, whose checksum covers them; the
//! next one starts in the next block.

use crate::Flaw;
use crate::checksum::Crc32c;
use crate::types::{InodeNo, Tid};
use core::mem::size_of;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The head of a record, as stored.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
struct RawRecordHead {
    fc_tag: U16,
    fc_len: U16,
}

const HEAD_SIZE: usize = size_of::<RawRecordHead>();
const _: () = assert!(HEAD_SIZE == 4);
/// Size in bytes of an extent as in a leaf of an extent tree.
const EXTENT_SIZE: usize = 12;

/// The type of a record, `fc_tag`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum FastCommitTag {
    /// A range of a file is mapped by an extent.
    AddRange,
    /// A range of a file is no longer mapped.
    DelRange,
    /// A new file and its name.
    Create,
    /// A new name of a file.
    Link,
    /// A removed name.
    Unlink,
    /// The fields of an inode.
    Inode,
    /// Filler up to the block's end.
    Pad,
    /// The end of one fast commit.
    Tail,
    /// The start of the area.
    Head,
}

impl FastCommitTag {
    /// Decodes the stored number.
    pub fn decode(stored: u16) -> Option<Self> {
        Some(match stored {
            1 => Self::AddRange,
            2 => Self::DelRange,
            3 => Self::Create,
            4 => Self::Link,
            5 => Self::Unlink,
            6 => Self::Inode,
            7 => Self::Pad,
            8 => Self::Tail,
            9 => Self::Head,
            _ => return None,
        })
    }

    /// The stored number.
    pub fn encode(self) -> u16 {
        match self {
            Self::AddRange => 1,
            Self::DelRange => 2,
            Self::Create => 3,
            Self::Link => 4,
            Self::Unlink => 5,
            Self::Inode => 6,
            Self::Pad => 7,
            Self::Tail => 8,
            Self::Head => 9,
        }
    }
}

/// A directory entry: a name and its inode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FastCommitDentry<'a> {
    /// The directory.
    pub parent: InodeNo,
    /// The file.
    pub inode: InodeNo,
    /// Its name.
    pub name: &'a [u8],
}

/// One record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FastCommitRecord<'a> {
    /// The inode maps this extent, 12 bytes as in a leaf.
    AddRange(InodeNo, [u8; EXTENT_SIZE]),
    /// The inode no longer maps these blocks: first logical block and number of blocks.
    DelRange(InodeNo, u32, u32),
    /// A new file and its name.
    Create(FastCommitDentry<'a>),
    /// A new name of a file.
    Link(FastCommitDentry<'a>),
    /// A removed name.
    Unlink(FastCommitDentry<'a>),
    /// The record of the inode table: 128 bytes and the extra fields.
    Inode(InodeNo, &'a [u8]),
    /// Filler.
    Pad,
    /// End of a fast commit: its transaction and its checksum ([`FastCommitChecksum`]).
    Tail(Tid, u32),
    /// Start of the area: features (none is known) and the transaction.
    Head(u32, Tid),
}

impl<'a> FastCommitRecord<'a> {
    fn decode(tag: FastCommitTag, value: &'a [u8]) -> Result<Self, Flaw> {
        let mut left = value;
        let mut word = || {
            let short = Flaw::truncated(value.len(), value.len() - left.len() + 4);
            let (word, rest) = U32::read_from_prefix(left).map_err(|_| short)?;
            left = rest;
            Ok::<u32, Flaw>(word.get())
        };
        Ok(match tag {
            FastCommitTag::AddRange => {
                let inode = InodeNo(word()?);
                let extent = left
                    .first_chunk()
                    .ok_or(Flaw::truncated(value.len(), size_of::<U32>() + EXTENT_SIZE))?;
                Self::AddRange(inode, *extent)
            }
            FastCommitTag::DelRange => Self::DelRange(InodeNo(word()?), word()?, word()?),
            FastCommitTag::Create | FastCommitTag::Link | FastCommitTag::Unlink => {
                let (parent, inode) = (InodeNo(word()?), InodeNo(word()?));
                let dentry = FastCommitDentry { parent, inode, name: left };
                match tag {
                    FastCommitTag::Create => Self::Create(dentry),
                    FastCommitTag::Link => Self::Link(dentry),
                    _ => Self::Unlink(dentry),
                }
            }
            FastCommitTag::Inode => {
                let inode = InodeNo(word()?);
                Self::Inode(inode, left)
            }
            FastCommitTag::Pad => Self::Pad,
            FastCommitTag::Tail => Self::Tail(Tid(word()?), word()?),
            FastCommitTag::Head => Self::Head(word()?, Tid(word()?)),
        })
    }
}

/// Iterator over the records of one block of the area: byte where each starts, its bytes including
/// the head, and the decoded record. It ends with the block, or after a flaw: later records cannot
/// be found then.
#[derive(Clone, Debug)]
pub struct FastCommitRecords<'a> {
    block: &'a [u8],
    at: usize,
}

impl<'a> FastCommitRecords<'a> {
    /// The records of a block.
    pub fn new(block: &'a [u8]) -> Self {
        Self { block, at: 0 }
    }

    fn read(&self) -> Result<(usize, FastCommitRecord<'a>), Flaw> {
        let left = &self.block[self.at..];
        let (head, rest) = RawRecordHead::read_from_prefix(left)
            .map_err(|_| Flaw::truncated(left.len(), HEAD_SIZE))?;
        let tag = FastCommitTag::decode(head.fc_tag.get())
            .ok_or(Flaw::bad_value("fc_tag", head.fc_tag.get()))?;
        let length = usize::from(head.fc_len.get());
        let value = rest.get(..length).ok_or(Flaw::above_limit(
            "fc_len",
            length as u64,
            rest.len() as u64,
        ))?;
        Ok((HEAD_SIZE + length, FastCommitRecord::decode(tag, value)?))
    }
}

impl<'a> Iterator for FastCommitRecords<'a> {
    type Item = Result<(usize, &'a [u8], FastCommitRecord<'a>), (usize, Flaw)>;

    fn next(&mut self) -> Option<Self::Item> {
        // Fewer bytes than a head at the end of a block are padding without a record.
        if self.block.len() - self.at < HEAD_SIZE {
            return None;
        }
        let at = self.at;
        match self.read() {
            Ok((size, record)) => {
                self.at += size;
                Some(Ok((at, &self.block[at..at + size], record)))
            }
            Err(flaw) => {
                self.at = self.block.len();
                Some(Err((at, flaw)))
            }
        }
    }
}

/// The checksum of a fast commit: crc32c, initially 0, of its records up to and including the
/// tail's tid.
#[derive(Clone, Copy, Debug)]
pub struct FastCommitChecksum(Crc32c);

impl FastCommitChecksum {
    /// The state before the first record.
    #[expect(clippy::new_without_default, reason = "a start is named")]
    pub fn new() -> Self {
        Self(Crc32c::seeded(0))
    }

    /// Feeds a record, including its head; of a tail only the part before its checksum.
    pub fn record(&mut self, bytes: &[u8], record: &FastCommitRecord<'_>) {
        let covered = match record {
            FastCommitRecord::Tail(..) => &bytes[..bytes.len().min(HEAD_SIZE + size_of::<U32>())],
            _ => bytes,
        };
        self.0 = self.0.bytes(covered);
    }

    /// The checksum so far.
    pub fn value(&self) -> u32 {
        self.0.value()
    }
}

/// Appends a record to `area`, whose last block may be partial; after a PAD record if it would
/// cross a block. A tail fills the block; its checksum is the caller's. Returns false if the value
/// is too long for a block.
pub fn push_fast_commit_record(
    area: &mut alloc::vec::Vec<u8>,
    block_size: usize,
    tag: FastCommitTag,
    value: &[u8],
) -> bool {
    let needed = HEAD_SIZE + value.len();
    if needed > block_size {
        return false;
    }
    let head = |area: &mut alloc::vec::Vec<u8>, tag: FastCommitTag, length: usize| {
        area.extend_from_slice(&tag.encode().to_le_bytes());
        // At most a block of 64 KiB less the head.
        area.extend_from_slice(&((length & 0xffff) as u16).to_le_bytes());
    };
    let left = block_size - area.len() % block_size;
    if left < needed {
        if left >= HEAD_SIZE {
            head(area, FastCommitTag::Pad, left - HEAD_SIZE);
        }
        area.resize(area.len().next_multiple_of(block_size), 0);
    }
    let left = block_size - area.len() % block_size;
    let length = if tag == FastCommitTag::Tail { left - HEAD_SIZE } else { value.len() };
    let end = area.len() + HEAD_SIZE + length;
    head(area, tag, length);
    area.extend_from_slice(value);
    area.resize(end, 0);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn records_written_are_read_back_and_never_cross_a_block() {
        let mut area = Vec::new();
        let name = vec![b'n'; 200];
        let mut dentry = vec![2, 0, 0, 0, 12, 0, 0, 0];
        dentry.extend_from_slice(&name);
        for _ in 0..6 {
            assert!(push_fast_commit_record(&mut area, 1024, FastCommitTag::Link, &dentry));
        }
        let tail = [9, 0, 0, 0, 0xef, 0xbe, 0xad, 0xde];
        assert!(push_fast_commit_record(&mut area, 1024, FastCommitTag::Tail, &tail));
        assert!(!push_fast_commit_record(&mut area, 1024, FastCommitTag::Link, &[0; 1021]));
        assert_eq!(area.len(), 2048);
        let link = FastCommitRecord::Link(FastCommitDentry {
            parent: InodeNo(2),
            inode: InodeNo(12),
            name: &name,
        });
        let found: Vec<_> = area
            .chunks(1024)
            .flat_map(FastCommitRecords::new)
            .map(|record| record.unwrap().2)
            .collect();
        let mut expected = vec![link; 4];
        expected.push(FastCommitRecord::Pad);
        expected.extend([link, link, FastCommitRecord::Tail(Tid(9), 0xdead_beef)]);
        assert_eq!(found, expected);
    }

    #[test]
    fn a_length_past_the_block_is_refused() {
        let block = [6, 0, 13, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut records = FastCommitRecords::new(&block);
        let flaw = Flaw::above_limit("fc_len", 13_u32, 12_u32);
        assert_eq!(records.next(), Some(Err((0, flaw))));
        assert_eq!(records.next(), None);
    }
}
