//! Entries and values in one region: the space after an inode's fields, or a block.
//!
//! Entries grow from the front, values from the back; four zero bytes end the entries.

use super::{
    EaValue, MAX_VALUE_SIZE, NameIndex, RawXattrEntry, RawXattrHeader, Value, ValueRef,
    XATTR_MAGIC, Xattr, XattrNameRef, XattrRef, block_hash, name_hash, padded,
};
use crate::features::IncompatFeatures;
use crate::types::{BlockNo, InodeNo};
use crate::{Flaw, FormatError, Geometry, Location};
use alloc::vec::Vec;
use core::mem::size_of;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

/// Size in bytes of the magic number before the entries of an inode.
const INODE_HEADER: usize = 4;
const BLOCK_HEADER: usize = size_of::<RawXattrHeader>();
/// Size in bytes of the zero word after the last entry.
const TERMINATOR: usize = 4;

/// The attributes do not fit.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("attributes need {needed} bytes, {room} available")]
pub struct NoRoom {
    /// Bytes needed for entries and values.
    pub needed: usize,
    /// Bytes available.
    pub room: usize,
}

/// Room in bytes for entries and values in the space after an inode's fields.
pub fn room_in_inode(space: usize) -> usize {
    space.saturating_sub(INODE_HEADER + TERMINATOR)
}

/// Room in bytes for entries and values in a block.
pub fn room_in_block(block_size: usize) -> usize {
    block_size.saturating_sub(BLOCK_HEADER + TERMINATOR)
}

/// The attributes in `space`, which is everything after the inode's `i_extra_isize`. Empty without
/// the magic number.
///
/// # Errors
/// An entry or a value with an invalid position, reported for the inode.
pub fn decode_inode<'a>(
    space: &'a [u8],
    inode: InodeNo,
    geometry: &Geometry,
) -> Result<Vec<XattrRef<'a>>, FormatError> {
    let Some((magic, entries)) = space.split_first_chunk::<INODE_HEADER>() else {
        return Ok(Vec::new());
    };
    if u32::from_le_bytes(*magic) != XATTR_MAGIC {
        return Ok(Vec::new());
    }
    let region = Region { bytes: entries, first_entry: 0, has_ea_inodes: has_ea_inodes(geometry) };
    region.decode().map_err(|flaw| flaw.at(Location::InodeXattr(inode)))
}

/// The attributes of a block. [`verify_block`](super::verify_block) must be called before.
///
/// # Errors
/// An entry or a value with an invalid position, reported for the block.
pub fn decode_block<'a>(
    block: &'a [u8],
    no: BlockNo,
    geometry: &Geometry,
) -> Result<Vec<XattrRef<'a>>, FormatError> {
    let region =
        Region { bytes: block, first_entry: BLOCK_HEADER, has_ea_inodes: has_ea_inodes(geometry) };
    region.decode().map_err(|flaw| flaw.at(Location::XattrBlock(no)))
}

/// Whether entries are in the order for a block: by index, then length, then name, without
/// duplicates.
pub fn is_sorted(entries: &[XattrRef<'_>]) -> bool {
    entries.is_sorted_by(|a, b| a.name < b.name)
}

fn has_ea_inodes(geometry: &Geometry) -> bool {
    geometry.has_incompat(IncompatFeatures::EA_INODE)
}

/// Bytes with entries from `first_entry` on. Value offsets count from the start of the bytes.
struct Region<'a> {
    bytes: &'a [u8],
    first_entry: usize,
    has_ea_inodes: bool,
}

impl<'a> Region<'a> {
    fn decode(&self) -> Result<Vec<XattrRef<'a>>, Flaw> {
        let mut raw_entries = Vec::new();
        let mut at = self.first_entry;
        loop {
            let rest = self.bytes.get(at..).unwrap_or_default();
            let end_mark = rest.first_chunk::<TERMINATOR>();
            if *end_mark.ok_or(Flaw::Rule("attribute list not terminated"))? == [0; TERMINATOR] {
                break;
            }
            let (raw, names) = RawXattrEntry::read_from_prefix(rest)
                .map_err(|_| Flaw::Rule("attribute entry extends past the end"))?;
            let suffix = names
                .get(..usize::from(raw.e_name_len))
                .ok_or(Flaw::Rule("attribute name extends past the end"))?;
            raw_entries.push((raw, suffix));
            at += size_of::<RawXattrEntry>() + padded(suffix.len());
        }
        let values_from = at + TERMINATOR;
        let mut taken = Vec::new();
        let mut entries = Vec::with_capacity(raw_entries.len());
        for (raw, suffix) in raw_entries {
            let value = self.value(&raw, suffix, values_from)?;
            let mut hashed: &[u8] = &[];
            if let ValueRef::Stored(bytes) = value
                && !bytes.is_empty()
            {
                let start = usize::from(raw.e_value_offs.get());
                let end = start + padded(bytes.len());
                taken.push((start, end));
                hashed = &self.bytes[start..end]; // a value's padding lies in the region, as the value does
            }
            let name = XattrNameRef { index: NameIndex(raw.e_name_index), suffix };
            entries.push(XattrRef { name, value, hash: raw.e_hash.get(), hashed });
        }
        taken.sort_unstable();
        if taken.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            return Err(Flaw::Rule("attribute values overlap"));
        }
        Ok(entries)
    }

    fn value(
        &self,
        raw: &RawXattrEntry,
        suffix: &[u8],
        values_from: usize,
    ) -> Result<ValueRef<'a>, Flaw> {
        let size = raw.e_value_size.get();
        if size > MAX_VALUE_SIZE {
            return Err(Flaw::above_limit("e_value_size", size, MAX_VALUE_SIZE));
        }
        let inode = InodeNo(raw.e_value_inum.get());
        if inode.0 != 0 {
            if !self.has_ea_inodes {
                return Err(Flaw::bad_value("e_value_inum", inode.0));
            }
            let hash = raw.e_hash.get() ^ name_hash(suffix).rotate_left(16);
            return Ok(ValueRef::EaInode(EaValue { inode, size, hash }));
        }
        let start = usize::from(raw.e_value_offs.get());
        if start > self.bytes.len() {
            return Err(Flaw::Rule("attribute value extends past the end"));
        }
        if size == 0 {
            return Ok(ValueRef::Stored(&[]));
        }
        if start < values_from {
            return Err(Flaw::below_limit("e_value_offs", start as u64, values_from as u64));
        }
        let size = size as usize; // at most MAX_VALUE_SIZE
        if start + padded(size) > self.bytes.len() {
            return Err(Flaw::Rule("attribute value extends past the end"));
        }
        Ok(ValueRef::Stored(&self.bytes[start..start + size]))
    }
}

/// Writes attributes in the given order into the space after an inode's fields; without attributes
/// the space is set to zeros.
///
/// # Errors
/// [`NoRoom`]; nothing is written then.
pub fn encode_inode<'a>(
    entries: impl IntoIterator<Item = &'a Xattr>,
    space: &mut [u8],
) -> Result<(), NoRoom> {
    let entries: Vec<_> = entries.into_iter().collect();
    check_room(&entries, room_in_inode(space.len()))?;
    space.fill(0);
    if entries.is_empty() {
        return Ok(());
    }
    let (magic, region) = space.split_at_mut(INODE_HEADER);
    magic.copy_from_slice(&XATTR_MAGIC.to_le_bytes());
    // The kernel does not store hashes of values inside the inode, and e2fsck verifies every hash
    // that is not 0.
    encode(&entries, region, 0, |xattr| match xattr.value {
        Value::Stored(_) => 0,
        Value::EaInode(_) => xattr.entry_hash(),
    });
    Ok(())
}

/// Writes attributes, sorted, and the header into a block. The checksum is not set
/// ([`seal_block`](super::seal_block)); `h_reserved` is not changed.
///
/// # Errors
/// [`NoRoom`]; nothing is written then.
pub fn encode_block<'a>(
    entries: impl IntoIterator<Item = &'a Xattr>,
    refcount: u32,
    block: &mut [u8],
) -> Result<(), NoRoom> {
    let mut entries: Vec<_> = entries.into_iter().collect();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    check_room(&entries, room_in_block(block.len()))?;
    block[BLOCK_HEADER..].fill(0);
    encode(&entries, block, BLOCK_HEADER, Xattr::entry_hash);
    if let Ok((header, _)) = RawXattrHeader::mut_from_prefix(block) {
        header.h_magic.set(XATTR_MAGIC);
        header.h_refcount.set(refcount);
        header.h_blocks.set(1);
        header.h_hash.set(block_hash(entries.iter().map(|xattr| xattr.entry_hash())));
        header.h_checksum.set(0);
    }
    Ok(())
}

fn check_room(entries: &[&Xattr], room: usize) -> Result<(), NoRoom> {
    let needed = entries.iter().map(|xattr| xattr.stored_len()).sum();
    if needed > room { Err(NoRoom { needed, room }) } else { Ok(()) }
}

/// Requires enough room, and zeros from `first_entry` on.
fn encode(entries: &[&Xattr], region: &mut [u8], first_entry: usize, hash: impl Fn(&Xattr) -> u32) {
    let (mut at, mut values) = (first_entry, region.len() / 4 * 4);
    for xattr in entries {
        let suffix = &xattr.name.suffix;
        let value = xattr.stored_value();
        let start = if value.is_empty() {
            0
        } else {
            values -= padded(value.len());
            region[values..values + value.len()].copy_from_slice(value);
            values
        };
        let (inode, size) = match &xattr.value {
            Value::Stored(value) => (0, value.len() as u32),
            Value::EaInode(ea) => (ea.inode.0, ea.size),
        };
        let raw = RawXattrEntry {
            e_name_len: suffix.len() as u8, // XattrName has at most 255
            e_name_index: xattr.name.index.0,
            e_value_offs: U16::new(start as u16), // blocks have at most 2^16 bytes, and entries come first
            e_value_inum: U32::new(inode),
            e_value_size: U32::new(size),
            e_hash: U32::new(hash(xattr)),
        };
        let name_at = at + size_of::<RawXattrEntry>();
        region[at..name_at].copy_from_slice(raw.as_bytes());
        region[name_at..name_at + suffix.len()].copy_from_slice(suffix);
        at += xattr.entry_len();
    }
}
