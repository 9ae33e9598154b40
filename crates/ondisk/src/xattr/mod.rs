//! Extended attributes: named values, stored after an inode's fields, in a block, or each in its
//! own inode.
//!
//! Source: the kernel's `attributes.rst`, `eainode.rst` and `checksums.rst`;
//! `docs/src/internals/on-disk.md` for the hashes, checked against images that the kernel wrote.
//! [`pack`] decides the location of each attribute; the caller checks permissions.

pub mod pack;
mod region;

pub use region::{
    NoRoom, decode_block, decode_inode, encode_block, encode_inode, is_sorted, room_in_block,
    room_in_inode,
};

use crate::checksum::Crc32c;
use crate::types::{BlockNo, InodeNo};
use crate::{Flaw, FormatError, Geometry, Location};
use alloc::vec::Vec;
use core::fmt;
use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Magic number of the attributes of an inode and of a block (`h_magic`).
pub const XATTR_MAGIC: u32 = 0xea02_0000;
/// Entries, names and values start on multiples of this.
const ALIGNMENT: usize = 4;
/// Maximum number of inodes that share one block (the kernel's limit of `h_refcount`).
pub const MAX_BLOCK_REFCOUNT: u32 = 1024;
/// Maximum length in bytes of a name after its prefix: `e_name_len` has 8 bits.
pub const MAX_SUFFIX_LEN: usize = 255;
/// Maximum size of a value in bytes: the kernel's limit of `e_value_size`, reachable only in an
/// ea_inode.
pub const MAX_VALUE_SIZE: u32 = 1 << 24;

/// The header of a block of attributes, as stored.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[allow(missing_docs, reason = "the kernel's field names, documented in attributes.rst")]
pub struct RawXattrHeader {
    pub h_magic: U32,
    pub h_refcount: U32,
    pub h_blocks: U32,
    pub h_hash: U32,
    pub h_checksum: U32,
    pub h_reserved: [U32; 3],
}

/// The fixed part of an entry, as stored; the name's bytes follow it.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[allow(missing_docs, reason = "the kernel's field names, documented in attributes.rst")]
pub struct RawXattrEntry {
    pub e_name_len: u8,
    pub e_name_index: u8,
    pub e_value_offs: U16,
    pub e_value_inum: U32,
    pub e_value_size: U32,
    pub e_hash: U32,
}

const CHECKSUM_AT: usize = 0x10;
const _: () = assert!(size_of::<RawXattrHeader>() == 32);
const _: () = assert!(offset_of!(RawXattrHeader, h_checksum) == CHECKSUM_AT);
const _: () = assert!(size_of::<RawXattrEntry>() == 16);

impl RawXattrHeader {
    /// The header at a block's start.
    ///
    /// # Errors
    /// [`Flaw::Truncated`].
    pub fn from_block(block: &[u8], no: BlockNo) -> Result<Self, FormatError> {
        Self::read_from_prefix(block).map(|(raw, _)| raw).map_err(|_| {
            Flaw::truncated(block.len(), size_of::<Self>()).at(Location::XattrBlock(no))
        })
    }
}

/// Verifies the magic number, the length in blocks, and the checksum with metadata_csum.
///
/// # Errors
/// The flaw, with block `no` as its location.
pub fn verify_block(block: &[u8], no: BlockNo, geometry: &Geometry) -> Result<(), FormatError> {
    let location = Location::XattrBlock(no);
    let header = RawXattrHeader::from_block(block, no)?;
    if header.h_magic.get() != XATTR_MAGIC {
        return Err(Flaw::magic(header.h_magic.get(), XATTR_MAGIC).at(location));
    }
    if header.h_blocks.get() != 1 {
        return Err(Flaw::bad_value("h_blocks", header.h_blocks.get()).at(location));
    }
    if geometry.has_metadata_csum() {
        let (found, computed) = (header.h_checksum.get(), block_checksum(block, no, geometry));
        if found != computed {
            return Err(Flaw::checksum(found, computed).at(location));
        }
    }
    Ok(())
}

/// Sets the checksum with metadata_csum; the last step before a block is written.
pub fn seal_block(block: &mut [u8], no: BlockNo, geometry: &Geometry) {
    if geometry.has_metadata_csum() {
        let checksum = block_checksum(block, no, geometry);
        block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Covers the seed, the block's number in 64 bits, and the whole block, in which the checksum
/// counts as zero.
fn block_checksum(block: &[u8], no: BlockNo, geometry: &Geometry) -> u32 {
    Crc32c::seeded(geometry.checksum_seed)
        .bytes(&no.0.to_le_bytes())
        .bytes(&block[..CHECKSUM_AT])
        .zeros(4)
        .bytes(&block[CHECKSUM_AT + 4..])
        .value()
}

/// The prefix of a name (`e_name_index`); only the rest of the name is stored.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NameIndex(pub u8);

impl NameIndex {
    /// `user.`
    pub const USER: Self = Self(1);
    /// `system.posix_acl_access`, the whole name.
    pub const ACL_ACCESS: Self = Self(2);
    /// `system.posix_acl_default`, the whole name.
    pub const ACL_DEFAULT: Self = Self(3);
    /// `trusted.`
    pub const TRUSTED: Self = Self(4);
    /// `security.`
    pub const SECURITY: Self = Self(6);
    /// `system.`; `system.data` is the part of inline data that did not fit into `i_block`.
    pub const SYSTEM: Self = Self(7);
    /// `system.richacl`, the whole name.
    pub const RICHACL: Self = Self(8);
    /// The encryption context, stored with the suffix `c`. It has no name for users.
    pub const ENCRYPTION: Self = Self(9);
    /// `gnu.`, written by the Hurd.
    pub const HURD: Self = Self(10);

    /// The prefix of names with this index; `None` for an index without names for users.
    pub fn prefix(self) -> Option<&'static str> {
        PREFIXES.iter().find(|(index, ..)| *index == self).map(|(_, prefix)| *prefix)
    }
}

/// Whole names are before the prefixes with which they start.
const PREFIXES: [(NameIndex, &str); 8] = [
    (NameIndex::ACL_ACCESS, "system.posix_acl_access"),
    (NameIndex::ACL_DEFAULT, "system.posix_acl_default"),
    (NameIndex::RICHACL, "system.richacl"),
    (NameIndex::USER, "user."),
    (NameIndex::TRUSTED, "trusted."),
    (NameIndex::SECURITY, "security."),
    (NameIndex::SYSTEM, "system."),
    (NameIndex::HURD, "gnu."),
];

/// An attribute's name as stored: the number of the prefix, and the rest.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct XattrName {
    /// The prefix.
    pub index: NameIndex,
    /// The rest of the name, at most [`MAX_SUFFIX_LEN`] bytes; not always UTF-8.
    pub suffix: Vec<u8>,
}

impl XattrName {
    /// `system.data`, which holds inline data and is not visible to users.
    pub fn inline_data() -> Self {
        Self { index: NameIndex::SYSTEM, suffix: b"data".to_vec() }
    }

    /// Splits a full name, such as `user.comment`; `None` for a prefix without a number in ext4, a
    /// prefix only, or a name that is too long.
    pub fn parse(full: &[u8]) -> Option<Self> {
        PREFIXES.iter().find_map(|&(index, prefix)| {
            let suffix = full.strip_prefix(prefix.as_bytes())?;
            let is_whole = !prefix.ends_with('.');
            let fits = if is_whole {
                suffix.is_empty()
            } else {
                (1..=MAX_SUFFIX_LEN).contains(&suffix.len())
            };
            fits.then(|| Self { index, suffix: suffix.to_vec() })
        })
    }

    /// The full name; `None` if it is not visible to users (the encryption context, unknown
    /// indexes).
    pub fn full(&self) -> Option<Vec<u8>> {
        self.as_ref().full()
    }

    fn as_ref(&self) -> XattrNameRef<'_> {
        XattrNameRef { index: self.index, suffix: &self.suffix }
    }
}

impl fmt::Display for XattrName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}

/// Order of the entries of a block: by index, then length, then bytes.
impl Ord for XattrName {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.as_ref().cmp(&other.as_ref())
    }
}

impl PartialOrd for XattrName {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// A name borrowed from the bytes it was read from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct XattrNameRef<'a> {
    /// The prefix.
    pub index: NameIndex,
    /// The rest of the name.
    pub suffix: &'a [u8],
}

impl XattrNameRef<'_> {
    /// The full name; `None` if it is not visible to users.
    pub fn full(&self) -> Option<Vec<u8>> {
        let prefix = self.index.prefix()?.as_bytes();
        Some([prefix, self.suffix].concat())
    }

    /// Whether this is `system.data`, which holds inline data.
    pub fn is_inline_data(&self) -> bool {
        self.index == NameIndex::SYSTEM && self.suffix == b"data"
    }

    /// Converts to an owned name.
    pub fn to_owned(&self) -> XattrName {
        XattrName { index: self.index, suffix: self.suffix.to_vec() }
    }
}

impl Ord for XattrNameRef<'_> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (self.index, self.suffix.len(), self.suffix).cmp(&(
            other.index,
            other.suffix.len(),
            other.suffix,
        ))
    }
}

impl PartialOrd for XattrNameRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for XattrNameRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index.prefix() {
            Some(prefix) => f.write_str(prefix)?,
            None => write!(f, "#{}.", self.index.0)?,
        }
        write!(f, "{}", self.suffix.escape_ascii())
    }
}

/// A value, or the inode that holds it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ValueRef<'a> {
    /// Stored in the same region as its entry.
    Stored(&'a [u8]),
    /// In its own inode (ea_inode).
    EaInode(EaValue),
}

/// A value in its own inode.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct EaValue {
    /// The inode.
    pub inode: InodeNo,
    /// Size of the value in bytes.
    pub size: u32,
    /// [`value_hash`] of the value, as implied by the entry's hash. The inode's atime has it too.
    pub hash: u32,
}

/// An attribute borrowed from the bytes it was read from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct XattrRef<'a> {
    /// The name.
    pub name: XattrNameRef<'a>,
    /// The value, or the inode that holds it.
    pub value: ValueRef<'a>,
    /// `e_hash` as stored.
    pub hash: u32,
    /// A stored value with the bytes after it up to the next word, which its hash covers as they
    /// are.
    hashed: &'a [u8],
}

impl XattrRef<'_> {
    /// Whether the stored hash matches name and value, with unsigned characters or, as old writers
    /// on x86 did, with signed ones. Entries in the inode may store 0. For a value in its own
    /// inode, also compare [`EaValue::hash`] with [`value_hash`]: the entry does not verify it.
    pub fn hash_matches(&self) -> bool {
        let ValueRef::Stored(_) = self.value else { return true };
        self.hash == 0
            || self.hash == entry_hash(self.name.suffix, self.hashed)
            || self.hash == mix_value(signed_name_hash(self.name.suffix), self.hashed)
    }

    /// Whether the stored hash, of an entry whose value is in its own inode, is that of the name
    /// and a value with the given [`value_hash`], with unsigned or signed characters.
    pub fn has_hash_of(&self, value_hash: u32) -> bool {
        let of_name = self.hash ^ value_hash;
        [name_hash, signed_name_hash]
            .iter()
            .any(|hash_of| hash_of(self.name.suffix).rotate_left(16) == of_name)
    }

    /// Whether a hash is stored: 0, which hardly any attribute hashes to, means none. Entries in
    /// blocks have one.
    pub fn has_hash(&self) -> bool {
        let ValueRef::Stored(_) = self.value else { return true };
        self.hash != 0 || entry_hash(self.name.suffix, self.hashed) == 0
    }

    /// Converts to an owned attribute.
    pub fn to_owned(&self) -> Xattr {
        let value = match self.value {
            ValueRef::Stored(bytes) => Value::Stored(bytes.to_vec()),
            ValueRef::EaInode(ea) => Value::EaInode(ea),
        };
        Xattr { name: self.name.to_owned(), value }
    }
}

/// An owned value, or the inode that holds it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Value {
    /// To be stored in the same region as its entry.
    Stored(Vec<u8>),
    /// In its own inode.
    EaInode(EaValue),
}

/// An attribute to be written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Xattr {
    /// The name.
    pub name: XattrName,
    /// The value, or the inode that holds it.
    pub value: Value,
}

impl Xattr {
    /// Creates an attribute whose value is stored with its entry.
    pub fn new(name: XattrName, value: Vec<u8>) -> Self {
        Self { name, value: Value::Stored(value) }
    }

    /// `e_hash` of this attribute.
    pub fn entry_hash(&self) -> u32 {
        match &self.value {
            Value::Stored(value) => entry_hash(&self.name.suffix, value),
            Value::EaInode(ea) => ea_entry_hash(&self.name.suffix, ea.hash),
        }
    }

    /// Size in bytes of its entry and its value with padding; of the entry only, if the value is in
    /// its own inode.
    pub fn stored_len(&self) -> usize {
        self.entry_len() + padded(self.stored_value().len())
    }

    /// Size in bytes of the entry and name with padding.
    fn entry_len(&self) -> usize {
        size_of::<RawXattrEntry>() + padded(self.name.suffix.len())
    }

    fn stored_value(&self) -> &[u8] {
        match &self.value {
            Value::Stored(value) => value,
            Value::EaInode(_) => &[],
        }
    }
}

/// All attributes of an inode, regardless of location, for changes between decoding and
/// [`pack::pack`].
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct XattrSet {
    /// Attributes in the order in which they were read or added; names are unique.
    pub entries: Vec<Xattr>,
}

impl XattrSet {
    /// Collects the attributes of the inode and of its block. If a name occurs twice the first
    /// attribute is kept, which is the one that the kernel finds.
    pub fn of<'a>(found: impl IntoIterator<Item = XattrRef<'a>>) -> Self {
        let mut set = Self::default();
        for xattr in found {
            if !set.entries.iter().any(|known| known.name.as_ref() == xattr.name) {
                set.entries.push(xattr.to_owned());
            }
        }
        set
    }

    /// The attribute with a name.
    pub fn get(&self, name: &XattrName) -> Option<&Xattr> {
        self.entries.iter().find(|xattr| xattr.name == *name)
    }

    /// Adds an attribute, or replaces the one with its name, which is returned.
    pub fn set(&mut self, xattr: Xattr) -> Option<Xattr> {
        match self.entries.iter_mut().find(|known| known.name == xattr.name) {
            Some(known) => Some(core::mem::replace(known, xattr)),
            None => {
                self.entries.push(xattr);
                None
            }
        }
    }

    /// Removes an attribute.
    pub fn remove(&mut self, name: &XattrName) -> Option<Xattr> {
        let at = self.entries.iter().position(|xattr| xattr.name == *name)?;
        Some(self.entries.remove(at))
    }
}

/// `e_hash` of an entry whose value is stored with it.
pub fn entry_hash(suffix: &[u8], value: &[u8]) -> u32 {
    mix_value(name_hash(suffix), value)
}

/// `e_hash` of an entry whose value is in its own inode and has the given [`value_hash`].
pub fn ea_entry_hash(suffix: &[u8], value_hash: u32) -> u32 {
    name_hash(suffix).rotate_left(16) ^ value_hash
}

/// The hash of a value in its own inode: crc32c from the volume's seed. The seconds of the inode's
/// atime store it.
pub fn value_hash(value: &[u8], checksum_seed: u32) -> u32 {
    Crc32c::seeded(checksum_seed).bytes(value).value()
}

/// `h_hash` of a block from the `e_hash` of its entries in order: 0, which prevents sharing, if one
/// of them is 0.
pub fn block_hash(entry_hashes: impl IntoIterator<Item = u32>) -> u32 {
    let mut hash = 0_u32;
    for entry in entry_hashes {
        if entry == 0 {
            return 0;
        }
        hash = hash.rotate_left(16) ^ entry;
    }
    hash
}

/// The reference count of a value's inode: ctime seconds are the high half, the low half of the
/// version the low one.
pub fn ea_inode_refcount(ctime_seconds: u32, version_lo: u32) -> u64 {
    u64::from(ctime_seconds) << 32 | u64::from(version_lo)
}

/// The fields of [`ea_inode_refcount`]: ctime seconds and the low half of the version.
pub fn ea_inode_refcount_fields(refcount: u64) -> (u32, u32) {
    ((refcount >> 32) as u32, (refcount & 0xffff_ffff) as u32)
}

fn name_hash(suffix: &[u8]) -> u32 {
    suffix.iter().fold(0_u32, |hash, &byte| hash.rotate_left(5) ^ u32::from(byte))
}

fn signed_name_hash(suffix: &[u8]) -> u32 {
    suffix.iter().fold(0_u32, |hash, &byte| {
        hash.rotate_left(5) ^ i32::from(byte.cast_signed()).cast_unsigned()
    })
}

fn mix_value(name_hash: u32, value: &[u8]) -> u32 {
    value.chunks(4).fold(name_hash, |hash, bytes| {
        let mut word = [0; 4];
        word[..bytes.len()].copy_from_slice(bytes);
        hash.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

fn padded(len: usize) -> usize {
    len.next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests;
