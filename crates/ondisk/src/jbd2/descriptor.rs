//! Descriptor block: the home locations of the logged blocks after it.

use super::{BlockType, Header, JournalChecksum, LogFormat, RawHeader};
use crate::Flaw;
use crate::types::{BlockNo, Tid, Uuid};
use core::mem::{offset_of, size_of};
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

bitflags::bitflags! {
    /// `t_flags`.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct TagFlags: u16 {
        /// The block began with the journal's magic number, which the log holds as zero.
        const ESCAPED = 0x1;
        /// No UUID follows: it is that of the previous tag.
        const SAME_UUID = 0x2;
        /// The block was deleted by the transaction. Never written.
        const DELETED = 0x4;
        /// The last tag of the descriptor block.
        const LAST = 0x8;
        const _ = !0;
    }
}

/// A tag without checksum v3, as stored. `t_blocknr_high` exists only with 64-bit block numbers;
/// with checksum v2 two unused bytes follow.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
struct RawTag {
    t_blocknr: U32,
    t_checksum: U16,
    t_flags: U16,
    t_blocknr_high: U32,
}

/// A tag with checksum v3, as stored.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
struct RawTag3 {
    t_blocknr: U32,
    t_flags: U32,
    t_blocknr_high: U32,
    t_checksum: U32,
}

const _: () = assert!(offset_of!(RawTag, t_blocknr_high) == 8);
const _: () = assert!(size_of::<RawTag3>() == 16);

/// An entry of a descriptor block: the home location of a logged block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BlockTag {
    /// The home location.
    pub block: BlockNo,
    /// Escaped, last, and so on.
    pub flags: TagFlags,
    /// The checksum of the logged block; only checksums v2 (16 bits) and v3 (32 bits) have one.
    pub checksum: u32,
}

impl BlockTag {
    fn decode(bytes: &[u8], format: &LogFormat) -> Option<Self> {
        let joined = |low: U32, high: u32| BlockNo(u64::from(low.get()) | u64::from(high) << 32);
        if format.checksum == JournalChecksum::V3 {
            let (raw, _) = RawTag3::read_from_prefix(bytes).ok()?;
            let high = if format.is_64bit { raw.t_blocknr_high.get() } else { 0 };
            return Some(Self {
                block: joined(raw.t_blocknr, high),
                // Only the low half has ever been used.
                flags: TagFlags::from_bits_retain((raw.t_flags.get() & 0xffff) as u16),
                checksum: raw.t_checksum.get(),
            });
        }
        let mut padded = [0; size_of::<RawTag>()];
        let stored =
            if format.is_64bit { padded.len() } else { offset_of!(RawTag, t_blocknr_high) };
        padded[..stored].copy_from_slice(bytes.get(..stored)?);
        let raw = RawTag::read_from_bytes(&padded).ok()?;
        Some(Self {
            block: joined(raw.t_blocknr, raw.t_blocknr_high.get()),
            flags: TagFlags::from_bits_retain(raw.t_flags.get()),
            checksum: u32::from(raw.t_checksum.get()),
        })
    }

    fn encode_into(self, bytes: &mut [u8], format: &LogFormat) {
        let (low, high) = ((self.block.0 & 0xffff_ffff) as u32, (self.block.0 >> 32) as u32);
        let flags = self.flags.bits();
        if format.checksum == JournalChecksum::V3 {
            let raw = RawTag3 {
                t_blocknr: low.into(),
                t_flags: u32::from(flags).into(),
                t_blocknr_high: high.into(),
                t_checksum: self.checksum.into(),
            };
            bytes.copy_from_slice(raw.as_bytes());
            return;
        }
        let raw = RawTag {
            t_blocknr: low.into(),
            t_checksum: ((self.checksum & 0xffff) as u16).into(),
            t_flags: flags.into(),
            t_blocknr_high: high.into(),
        };
        bytes.fill(0);
        let stored = if format.is_64bit { size_of::<RawTag>() } else { 8 };
        bytes[..stored].copy_from_slice(&raw.as_bytes()[..stored]);
    }
}

/// The tags of a descriptor block, whose checksum is verified if it has one.
///
/// # Errors
/// [`Flaw::Checksum`], or [`Flaw::Truncated`] if `block` is not a whole block.
pub fn tags<'a>(block: &'a [u8], format: &LogFormat) -> Result<Tags<'a>, Flaw> {
    format.verify_tail(block)?;
    Ok(Tags::unverified(block, format))
}

/// Iterator over the tags of a descriptor block: ends after the one marked last or if no other
/// fits.
#[derive(Clone, Debug)]
pub struct Tags<'a> {
    left: &'a [u8],
    format: LogFormat,
}

impl<'a> Tags<'a> {
    /// The tags of a block whose checksum may be wrong: the scan continues, to find out whether the
    /// transaction was committed.
    pub fn unverified(block: &'a [u8], format: &LogFormat) -> Self {
        let end = block.len().saturating_sub(format.tail_size());
        Self { left: block.get(size_of::<RawHeader>()..end).unwrap_or(&[]), format: *format }
    }
}

impl Iterator for Tags<'_> {
    type Item = BlockTag;

    fn next(&mut self) -> Option<BlockTag> {
        let size = self.format.tag_size();
        let tag = BlockTag::decode(self.left.get(..size)?, &self.format)?;
        let uuid = if tag.flags.contains(TagFlags::SAME_UUID) { 0 } else { size_of::<Uuid>() };
        self.left = if tag.flags.contains(TagFlags::LAST) {
            &[]
        } else {
            self.left.get(size + uuid..).unwrap_or(&[])
        };
        Some(tag)
    }
}

/// Fills a descriptor block.
#[derive(Debug)]
pub struct DescriptorWriter<'a> {
    block: &'a mut [u8],
    format: LogFormat,
    end: usize,
    last: Option<(usize, BlockTag)>,
}

impl<'a> DescriptorWriter<'a> {
    /// Starts a descriptor block of transaction `tid` in `block`, a whole block, which is cleared.
    pub fn new(block: &'a mut [u8], format: &LogFormat, tid: Tid) -> Self {
        assert_eq!(block.len(), format.block_len(), "a descriptor fills a block");
        block.fill(0);
        let header = Header { block_type: BlockType::Descriptor, tid }.encode();
        let end = size_of::<RawHeader>();
        block[..end].copy_from_slice(header.as_bytes());
        Self { block, format: *format, end, last: None }
    }

    /// Adds a tag; this writer sets all flags but ESCAPED. Returns false if the block is full.
    pub fn push(&mut self, home: BlockNo, is_escaped: bool, checksum: u32) -> bool {
        let is_first = self.last.is_none();
        let size = self.format.tag_size();
        let uuid = if is_first { size_of::<Uuid>() } else { 0 };
        if self.end + size + uuid > self.block.len() - self.format.tail_size() {
            return false;
        }
        let mut flags = TagFlags::empty();
        flags.set(TagFlags::ESCAPED, is_escaped);
        flags.set(TagFlags::SAME_UUID, !is_first);
        let tag = BlockTag { block: home, flags, checksum };
        let at = self.end;
        tag.encode_into(&mut self.block[at..at + size], &self.format);
        self.end += size;
        if is_first {
            self.block[self.end..self.end + uuid].copy_from_slice(&self.format.uuid.0);
            self.end += uuid;
        }
        self.last = Some((at, tag));
        true
    }

    /// Marks the last tag and sets the checksum of the block.
    pub fn finish(self) {
        if let Some((at, mut tag)) = self.last {
            tag.flags |= TagFlags::LAST;
            let size = self.format.tag_size();
            tag.encode_into(&mut self.block[at..at + size], &self.format);
        }
        self.format.seal_tail(self.block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn shapes() -> impl Iterator<Item = LogFormat> {
        use JournalChecksum::{None, V1, V2, V3};
        [None, V1, V2, V3].into_iter().flat_map(|checksum| {
            [false, true].map(|is_64bit| LogFormat {
                block_size: 1024,
                checksum,
                is_64bit,
                is_async_commit: false,
                uuid: Uuid([0xab; 16]),
            })
        })
    }

    #[test]
    fn a_full_descriptor_of_every_shape_gives_back_its_tags() {
        for format in shapes() {
            let mut block = vec![0xff; 1024];
            let mut writer = DescriptorWriter::new(&mut block, &format, Tid(5));
            let high = if format.is_64bit { 1 << 40 } else { 0 };
            let mut written = Vec::new();
            loop {
                let home = BlockNo(high + 100 + written.len() as u64);
                let checksum = if format.has_block_checksums() { 0x1234 } else { 0 };
                if !writer.push(home, written.len() % 3 == 1, checksum) {
                    break;
                }
                written.push((home, written.len() % 3 == 1, checksum));
            }
            writer.finish();
            assert_eq!(written.len(), format.tags_per_block(), "{format:?}");
            let found: Vec<_> = tags(&block, &format)
                .unwrap()
                .map(|tag| (tag.block, tag.flags.contains(TagFlags::ESCAPED), tag.checksum))
                .collect();
            assert_eq!(found, written, "{format:?}");
        }
    }

    #[test]
    fn a_flipped_bit_shows_where_descriptors_have_checksums() {
        for format in shapes() {
            let mut block = vec![0; 1024];
            let mut writer = DescriptorWriter::new(&mut block, &format, Tid(5));
            assert!(writer.push(BlockNo(7), false, 0));
            writer.finish();
            block[900] ^= 4;
            assert_eq!(tags(&block, &format).is_err(), format.has_block_checksums(), "{format:?}");
        }
    }

    #[test]
    fn tags_without_a_last_one_end_with_the_block() {
        for format in shapes() {
            // Every tag is followed by a UUID: block number 0, no flags.
            let block = vec![0; 1024];
            let step = format.tag_size() + 16;
            let room = 1024 - 12 - format.tail_size();
            let expected = room / step + usize::from(room % step >= format.tag_size());
            assert_eq!(Tags::unverified(&block, &format).count(), expected, "{format:?}");
        }
    }
}
