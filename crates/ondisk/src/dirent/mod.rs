//! Directory entries of a directory block: inode, length, name, and with `filetype` the file type.
//!
//! Source: `directory.rst`. `docs/src/internals/on-disk.md` has the encoding of the record length
//! in blocks of 64 KiB and the hashes after the names in directories that are both encrypted and
//! casefolded.
//!
//! A directory block is a chain of entries from its first byte to its last; an entry with inode 0
//! is free space. With metadata_csum the last entry is a fake one that holds the checksum
//! ([`TAIL_LEN`]).

use crate::checksum::Crc32c;
use crate::dx_hash::DirHash;
use crate::features::IncompatFeatures;
use crate::types::{FileBlock, InodeNo};
use crate::{Flaw, FormatError, Geometry, Location};
use core::mem::{offset_of, size_of};
use core::ops::Range;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

mod pack;
mod scan;
pub use pack::DirPacker;
pub use scan::HEADER_LEN;
use scan::{MAX_PLAIN, NO_ROOM, pass_over};

/// Maximum length of a name in bytes.
pub const MAX_NAME_LEN: usize = 255;
/// Length in bytes of the fake entry with the checksum.
pub const TAIL_LEN: usize = 12;
/// Minimum length in bytes of an entry: a header and a name of one to four bytes.
const MIN_REC_LEN: usize = 12;
/// Length in bytes of the hash and minor hash after a name.
const STORED_HASH_LEN: usize = 8;
/// `det_reserved_ft`: the file type of the fake entry.
const TAIL_FILE_TYPE: u8 = 0xde;
/// Stored length of an entry that fills a block of 64 KiB, which does not fit the field.
const WHOLE_BLOCK: u16 = 0xffff;

/// The fields before the name, as stored. Without `filetype`, `file_type` is the high byte of the
/// name's length.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[allow(missing_docs, reason = "the kernel's field names, documented in directory.rst")]
pub struct RawDirEntry {
    pub inode: U32,
    pub rec_len: U16,
    pub name_len: u8,
    pub file_type: u8,
}

/// The fake entry at a block's end that holds its checksum.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[allow(missing_docs, reason = "the kernel's field names, documented in directory.rst")]
pub struct RawDirTail {
    pub det_reserved_zero1: U32,
    pub det_rec_len: U16,
    pub det_reserved_zero2: u8,
    pub det_reserved_ft: u8,
    pub det_checksum: U32,
}

const _: () = assert!(size_of::<RawDirEntry>() == HEADER_LEN);
const _: () = assert!(offset_of!(RawDirEntry, file_type) == 7);
const _: () = assert!(size_of::<RawDirTail>() == TAIL_LEN);
const _: () = assert!(offset_of!(RawDirTail, det_checksum) == 8);

/// The file type in an entry.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum FileType {
    /// Not stored: the inode's mode has the type.
    #[default]
    Unknown = 0,
    /// A regular file.
    Regular = 1,
    /// A directory.
    Directory = 2,
    /// A character device.
    CharDevice = 3,
    /// A block device.
    BlockDevice = 4,
    /// A FIFO.
    Fifo = 5,
    /// A socket.
    Socket = 6,
    /// A symbolic link.
    Symlink = 7,
}

impl FileType {
    /// Decodes the stored number. Like the kernel, ignores bits above the low three; an unknown
    /// number is `Unknown`.
    pub fn decode(stored: u8) -> Self {
        match stored {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::CharDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            _ => Self::Unknown,
        }
    }

    /// The stored number.
    pub fn encode(self) -> u8 {
        self as u8
    }

    /// Converts the type bits of `i_mode`.
    pub fn of_mode(mode: u16) -> Self {
        match mode & 0xf000 {
            0x8000 => Self::Regular,
            0x4000 => Self::Directory,
            0x2000 => Self::CharDevice,
            0x6000 => Self::BlockDevice,
            0x1000 => Self::Fifo,
            0xc000 => Self::Socket,
            0xa000 => Self::Symlink,
            _ => Self::Unknown,
        }
    }
}

/// The format of a directory's blocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DirFormat {
    /// The directory.
    pub inode: InodeNo,
    /// Block size in bytes (for inline data, the length of the part).
    pub block_len: usize,
    /// Whether entries have the file type.
    pub has_filetype: bool,
    /// Whether entries have a hash: in directories that are both encrypted and casefolded.
    pub has_stored_hashes: bool,
    /// The inode's checksum seed with metadata_csum; blocks then end with a tail.
    pub checksum_seed: Option<u32>,
}

impl DirFormat {
    /// The format of a directory without stored hashes.
    pub fn new(geometry: &Geometry, inode: InodeNo, generation: u32) -> Self {
        Self {
            inode,
            block_len: geometry.block_len(),
            has_filetype: geometry.has_incompat(IncompatFeatures::FILETYPE),
            has_stored_hashes: false,
            checksum_seed: geometry
                .has_metadata_csum()
                .then(|| geometry.inode_checksum_seed(inode, generation)),
        }
    }

    /// The format of the directory that an inode is.
    pub fn of_inode(geometry: &Geometry, number: InodeNo, inode: &crate::inode::Inode) -> Self {
        let format = Self::new(geometry, number, inode.generation);
        Self { has_stored_hashes: inode.has_stored_hashes(), ..format }
    }

    /// The format of a directory that is both encrypted and casefolded.
    #[must_use]
    pub fn with_stored_hashes(self) -> Self {
        Self { has_stored_hashes: true, ..self }
    }

    /// The format of `len` bytes of inline data, which have no tail.
    #[must_use]
    pub fn inline(self, len: usize) -> Self {
        Self { block_len: len, checksum_seed: None, ..self }
    }

    /// Length in bytes of an entry with a name of this length: `.` and `..` never have hashes.
    pub fn rec_len(&self, name_len: usize) -> usize {
        let hash_len = if self.has_stored_hashes { STORED_HASH_LEN } else { 0 };
        HEADER_LEN + name_len.next_multiple_of(4) + hash_len
    }

    /// Length in bytes of an entry with this name.
    pub fn rec_len_of(&self, name: &[u8]) -> usize {
        if matches!(name, b"." | b"..") { MIN_REC_LEN } else { self.rec_len(name.len()) }
    }

    /// Number of bytes for entries in a block.
    pub fn room(&self) -> usize {
        self.block_len - if self.checksum_seed.is_some() { TAIL_LEN } else { 0 }
    }

    /// Encodes the length. In blocks of 64 KiB its two highest bits are stored in the lowest two.
    pub fn encode_rec_len(&self, rec_len: usize) -> u16 {
        match u16::try_from(rec_len) {
            Ok(short) => short,
            Err(_) if rec_len == self.block_len => WHOLE_BLOCK,
            Err(_) => (rec_len & 0xfffc | rec_len >> 16 & 3) as u16,
        }
    }

    /// The length that [`Self::encode_rec_len`] has stored.
    pub fn decode_rec_len(&self, stored: u16) -> usize {
        let wide = usize::from(stored);
        if self.block_len <= usize::from(u16::MAX) {
            wide
        } else if stored == WHOLE_BLOCK || stored == 0 {
            self.block_len
        } else {
            wide & 0xfffc | (wide & 3) << 16
        }
    }

    /// Verifies the checksum tail of a block.
    ///
    /// # Errors
    /// There is no tail despite metadata_csum, or the checksum does not match.
    pub fn verify(&self, block: &[u8], at: FileBlock) -> Result<(), FormatError> {
        let Some(seed) = self.checksum_seed else { return Ok(()) };
        let location = Location::DirBlock(self.inode, at);
        let (records, tail) = RawDirTail::ref_from_suffix(block)
            .map(|(records, tail)| (records, *tail))
            .map_err(|_| Flaw::truncated(block.len(), TAIL_LEN).at(location))?;
        if !tail.is_tail() {
            return Err(Flaw::Rule("checksum tail missing").at(location));
        }
        let (found, computed) =
            (tail.det_checksum.get(), Crc32c::seeded(seed).bytes(records).value());
        if found != computed {
            return Err(Flaw::checksum(found, computed).at(location));
        }
        Ok(())
    }

    /// The seed from which the checksum in the tail of a block is right; `None` without a tail.
    pub fn seed_of(&self, block: &[u8]) -> Option<u32> {
        let (records, tail) = RawDirTail::ref_from_suffix(block).ok()?;
        let stored = Crc32c::seeded(tail.det_checksum.get());
        tail.is_tail().then(|| stored.without(records).value())
    }

    /// Sets the checksum; the last step before the block is written. A block without a tail (of an
    /// htree node) is not changed.
    pub fn seal(&self, block: &mut [u8]) {
        let Some(seed) = self.checksum_seed else { return };
        if let Ok((records, tail)) = RawDirTail::mut_from_suffix(block)
            && tail.is_tail()
        {
            tail.det_checksum.set(Crc32c::seeded(seed).bytes(records).value());
        }
    }

    /// Whether the block ends with a checksum tail, right or wrong.
    pub fn has_tail(&self, block: &[u8]) -> bool {
        RawDirTail::ref_from_suffix(block).is_ok_and(|(_, tail)| tail.is_tail())
    }

    /// The entries of a block in order, including free ones. An index block of a hashed directory
    /// reads as free space.
    ///
    /// The iterator ends after the first error. The caller checks whether inodes exist and names
    /// have valid characters.
    pub fn entries<'a>(&self, block: &'a [u8], at: FileBlock) -> Entries<'a> {
        Entries { format: *self, block, file_block: at, before: 0, next: 0, is_done: false }
    }

    fn entry_at<'a>(
        &self,
        block: &'a [u8],
        file_block: FileBlock,
        at: usize,
        before: usize,
    ) -> Result<DirEntry<'a>, FormatError> {
        let location = Location::DirEntry(self.inode, file_block, at as u32);
        let rest = block.get(at..).unwrap_or_default();
        let (raw, after) = RawDirEntry::read_from_prefix(rest)
            .map_err(|_| Flaw::truncated(rest.len(), HEADER_LEN).at(location))?;
        let rec_len = self.decode_rec_len(raw.rec_len.get());
        if rec_len < MIN_REC_LEN {
            return Err(
                Flaw::below_limit("rec_len", rec_len as u64, MIN_REC_LEN as u64).at(location)
            );
        }
        if !rec_len.is_multiple_of(4) {
            return Err(Flaw::bad_value("rec_len", rec_len as u64).at(location));
        }
        if rec_len > rest.len() {
            return Err(
                Flaw::above_limit("rec_len", rec_len as u64, rest.len() as u64).at(location)
            );
        }
        if rest.len() - rec_len != 0 && rest.len() - rec_len < MIN_REC_LEN {
            return Err(Flaw::Rule("no room for another entry after this one").at(location));
        }
        let name_len = if self.has_filetype {
            usize::from(raw.name_len)
        } else {
            usize::from(raw.name_len) | usize::from(raw.file_type) << 8
        };
        if name_len > MAX_NAME_LEN {
            return Err(
                Flaw::above_limit("name_len", name_len as u64, MAX_NAME_LEN as u64).at(location)
            );
        }
        let is_used = raw.inode.get() != 0;
        if is_used && name_len == 0 {
            return Err(Flaw::below_limit("name_len", 0_u32, 1_u32).at(location));
        }
        let name = after.get(..name_len).unwrap_or_default();
        let needed = if is_used { self.rec_len_of(name) } else { HEADER_LEN + name_len };
        if name.len() < name_len || rec_len < needed {
            return Err(Flaw::below_limit("rec_len", rec_len as u64, needed as u64).at(location));
        }
        let has_hash = is_used && needed == self.rec_len(name_len) && self.has_stored_hashes;
        Ok(DirEntry {
            at,
            before,
            rec_len,
            inode: is_used.then(|| InodeNo(raw.inode.get())),
            file_type: if self.has_filetype {
                FileType::decode(raw.file_type)
            } else {
                FileType::Unknown
            },
            name,
            stored_hash: has_hash.then(|| stored_hash(after, name_len)).flatten(),
        })
    }

    /// The header of the entry at the start of `rest`, not verified; `None` if it needs a full
    /// check.
    #[inline(always)]
    fn glance(&self, rest: &[u8]) -> Option<Glance> {
        // As a single number: inode, length, length of the name, file type.
        let header = u64::from_le_bytes(*rest.first_chunk::<HEADER_LEN>()?);
        let rec_len = self.decode_rec_len((header >> 32 & 0xffff) as u16);
        let name_len = (header >> 48) as usize & if self.has_filetype { 0xff } else { 0xffff };
        let is_used = header & 0xffff_ffff != 0;
        let fits = rec_len.is_multiple_of(4)
            && rec_len <= rest.len()
            && rec_len >= MIN_REC_LEN.max(HEADER_LEN + name_len)
            && (name_len > 0 || !is_used);
        fits.then_some(Glance { rec_len, name_len, is_used })
    }

    /// The first used entry with a name.
    ///
    /// # Errors
    /// The block has an error before the entry.
    pub fn find<'a>(
        &self,
        block: &'a [u8],
        file_block: FileBlock,
        name: &[u8],
    ) -> Result<Option<DirEntry<'a>>, FormatError> {
        match self.seek(block, file_block, Some(name), usize::MAX)? {
            Sought::Found(entry) => Ok(Some(entry)),
            Sought::Vacant(_) => Ok(None),
        }
    }

    /// The first slot with room for an entry: a free entry, or the slack after the name of a used
    /// one.
    ///
    /// # Errors
    /// The name is empty or too long, or the block has an error before a slot is found.
    pub fn slot(
        &self,
        block: &[u8],
        file_block: FileBlock,
        new: &NewEntry<'_>,
    ) -> Result<Option<Slot>, FormatError> {
        self.check_name(new.name, file_block)?;
        match self.seek(block, file_block, None, self.rec_len_of(new.name))? {
            Sought::Found(_) => Ok(None),
            Sought::Vacant(slot) => Ok(slot),
        }
    }

    /// In one pass, the entry with a name or else the first slot with room for it.
    ///
    /// # Errors
    /// The name is empty or too long, or the block has an error.
    pub fn find_or_slot<'a>(
        &self,
        block: &'a [u8],
        file_block: FileBlock,
        name: &[u8],
    ) -> Result<Sought<'a>, FormatError> {
        self.check_name(name, file_block)?;
        self.seek(block, file_block, Some(name), self.rec_len_of(name))
    }

    /// Searches for a name, and for the first slot with that number of bytes; without a name for
    /// the slot only.
    fn seek<'a>(
        &self,
        block: &'a [u8],
        file_block: FileBlock,
        name: Option<&[u8]>,
        needed: usize,
    ) -> Result<Sought<'a>, FormatError> {
        let (mut at, mut before, end) = (0, 0, self.records_end(block));
        let (mut slot, mut room) = (None, needed.min(NO_ROOM));
        let tail = name.and_then(<[u8]>::last_chunk::<4>);
        let is_plain = self.has_filetype && !self.has_stored_hashes && block.len() < MAX_PLAIN;
        while at < end {
            if is_plain {
                (at, before) = pass_over(&block[..end], (at, before), name, room);
                if at >= end {
                    break;
                }
            }
            let rest = &block[at..];
            let Some(Glance { rec_len, name_len, is_used }) = self.glance(rest) else {
                // The full check finds the error, if there is one.
                let entry = self.entry_at(block, file_block, at, before)?;
                if entry.is_used() && Some(entry.name) == name {
                    return Ok(Sought::Found(entry));
                }
                before = at;
                at += entry.rec_len;
                continue;
            };
            let found = &rest[HEADER_LEN..HEADER_LEN + name_len];
            // Names in a directory often differ only at their ends.
            if is_used && found.last_chunk::<4>() == tail && Some(found) == name {
                return self.entry_at(block, file_block, at, before).map(Sought::Found);
            }
            let taken = if is_used { self.rec_len_of(found) } else { 0 };
            if rec_len >= taken.saturating_add(room) {
                slot = Some(Slot { at, rec_len, taken });
                if name.is_none() {
                    break;
                }
                room = NO_ROOM;
            }
            before = at;
            at += rec_len;
        }
        Ok(Sought::Vacant(slot))
    }

    /// Byte where the entries end: before a checksum tail.
    fn records_end(&self, block: &[u8]) -> usize {
        let has_tail = self.checksum_seed.is_some() && self.has_tail(block);
        block.len() - if has_tail { TAIL_LEN } else { 0 }
    }

    /// The bytes that change when an entry is written to a slot from [`Self::slot`].
    pub fn part_of(&self, slot: Slot, new: &NewEntry<'_>) -> Range<usize> {
        slot.at..slot.at + slot.taken + self.rec_len_of(new.name)
    }

    /// Writes an entry to a slot from [`Self::slot`]; `part` is the bytes of the range from
    /// [`Self::part_of`].
    pub fn insert_in(&self, part: &mut [u8], slot: Slot, new: &NewEntry<'_>) {
        let Slot { rec_len, taken, .. } = slot;
        if taken > 0 {
            self.set_rec_len(part, 0, taken);
        }
        self.write(&mut part[taken..], rec_len - taken, new);
    }

    /// Inserts an entry into a block's slack. Returns false and leaves the block unchanged if there
    /// is not enough room.
    ///
    /// # Errors
    /// As [`Self::slot`].
    pub fn insert(
        &self,
        block: &mut [u8],
        file_block: FileBlock,
        new: &NewEntry<'_>,
    ) -> Result<bool, FormatError> {
        let Some(slot) = self.slot(block, file_block, new)? else { return Ok(false) };
        self.insert_in(&mut block[self.part_of(slot, new)], slot, new);
        Ok(true)
    }

    /// Removes the entry at byte `at`: it is merged into the previous one or, as the first of the
    /// block, marked free. Returns false if no used entry starts there.
    ///
    /// # Errors
    /// The block has an error before the entry.
    pub fn remove(
        &self,
        block: &mut [u8],
        file_block: FileBlock,
        at: usize,
    ) -> Result<bool, FormatError> {
        let Some(part) = self.removal(block, file_block, at, at)? else { return Ok(false) };
        let from = at - part.start;
        self.remove_in(&mut block[part], from);
        Ok(true)
    }

    /// The bytes that change when the entry at byte `at` is removed: its own, and those of the
    /// previous one. `None` if no used entry starts there. `before` is the earlier position of the
    /// previous entry ([`DirEntry::before`]): if no entry from there ends at `at`, the block is
    /// searched from its start.
    ///
    /// # Errors
    /// The block has an error before the entry.
    pub fn removal(
        &self,
        block: &[u8],
        file_block: FileBlock,
        at: usize,
        before: usize,
    ) -> Result<Option<Range<usize>>, FormatError> {
        let known = block.get(before..at).and_then(|_| self.glance(&block[before..]));
        let before = match known {
            Some(known) if before + known.rec_len == at => before,
            _ => match self.before(block, file_block, at)? {
                Some(before) => before,
                None => return Ok(None),
            },
        };
        if at >= self.records_end(block) {
            return Ok(None);
        }
        let entry = self.entry_at(block, file_block, at, before)?;
        Ok(entry.is_used().then_some(before..at + entry.rec_len))
    }

    /// Position of the entry before that at byte `at`, or `at` for the first of the block; `None`
    /// if no entry starts there.
    fn before(
        &self,
        block: &[u8],
        file_block: FileBlock,
        at: usize,
    ) -> Result<Option<usize>, FormatError> {
        let (mut before, mut next) = (at, 0);
        while next < at {
            let rec_len = match self.glance(&block[next..]) {
                Some(glance) => glance.rec_len,
                None => self.entry_at(block, file_block, next, before)?.rec_len,
            };
            before = next;
            next += rec_len;
        }
        Ok((next == at).then_some(before))
    }

    /// Removes an entry as [`Self::remove`] does; `part` is the bytes of the range from
    /// [`Self::removal`], in which the entry starts at byte `from`.
    pub fn remove_in(&self, part: &mut [u8], from: usize) {
        // The bytes of the removed entry are cleared, so that names do not outlive their files.
        part[from..].fill(0);
        self.set_rec_len(part, 0, part.len());
    }

    /// Sets the inode of the used entry at byte `at`, for a rename over it or a new parent of `..`.
    /// Returns false if no used entry starts there.
    ///
    /// # Errors
    /// The block has an error before the entry.
    pub fn set_inode(
        &self,
        block: &mut [u8],
        file_block: FileBlock,
        at: usize,
        inode: InodeNo,
        file_type: FileType,
    ) -> Result<bool, FormatError> {
        let mut found = false;
        for entry in self.entries(block, file_block) {
            let entry = entry?;
            if entry.at >= at {
                found = entry.at == at && entry.is_used();
                break;
            }
        }
        if found && let Ok((raw, _)) = RawDirEntry::mut_from_prefix(&mut block[at..]) {
            raw.inode.set(inode.0);
            if self.has_filetype {
                raw.file_type = file_type.encode();
            }
        }
        Ok(found)
    }

    fn check_name(&self, name: &[u8], file_block: FileBlock) -> Result<(), FormatError> {
        let location = Location::DirBlock(self.inode, file_block);
        if name.is_empty() {
            return Err(Flaw::below_limit("name_len", 0_u32, 1_u32).at(location));
        }
        if name.len() > MAX_NAME_LEN {
            let len = name.len() as u64;
            return Err(Flaw::above_limit("name_len", len, MAX_NAME_LEN as u64).at(location));
        }
        Ok(())
    }

    fn set_rec_len(&self, block: &mut [u8], at: usize, rec_len: usize) {
        if let Ok((raw, _)) = RawDirEntry::mut_from_prefix(&mut block[at..]) {
            raw.rec_len.set(self.encode_rec_len(rec_len));
        }
    }

    /// Writes an entry of `rec_len` bytes to the start of `place`, which must be long enough. Bytes
    /// between the name and the end of the entry are not changed.
    fn write(&self, place: &mut [u8], rec_len: usize, new: &NewEntry<'_>) {
        let name_len = new.name.len();
        let raw = RawDirEntry {
            inode: U32::new(new.inode.0),
            rec_len: U16::new(self.encode_rec_len(rec_len)),
            name_len: name_len as u8,
            file_type: if self.has_filetype { new.file_type.encode() } else { 0 },
        };
        place[..HEADER_LEN].copy_from_slice(raw.as_bytes());
        let padded = HEADER_LEN + name_len.next_multiple_of(4);
        place[HEADER_LEN..HEADER_LEN + name_len].copy_from_slice(new.name);
        place[HEADER_LEN + name_len..padded].fill(0);
        if self.rec_len_of(new.name) > padded {
            place[padded..padded + 4].copy_from_slice(&new.hash.hash.to_le_bytes());
            place[padded + 4..padded + 8].copy_from_slice(&new.hash.minor.to_le_bytes());
        }
    }

    fn write_tail(&self, block: &mut [u8]) {
        if self.checksum_seed.is_none() {
            return;
        }
        if let Ok((_, tail)) = RawDirTail::mut_from_suffix(block) {
            *tail = RawDirTail {
                det_reserved_zero1: U32::ZERO,
                det_rec_len: U16::new(TAIL_LEN as u16),
                det_reserved_zero2: 0,
                det_reserved_ft: TAIL_FILE_TYPE,
                det_checksum: U32::ZERO,
            };
        }
    }

    /// Clears a block to one free entry and a tail, whose checksum is not set: a new leaf.
    pub fn clear(&self, block: &mut [u8]) {
        block.fill(0);
        let room = self.room();
        self.set_rec_len(block, 0, room);
        self.write_tail(block);
    }

    /// Starts packing entries into `block`, whose length is that of the format.
    pub fn packer<'a>(&self, block: &'a mut [u8]) -> DirPacker<'a> {
        self.clear(block);
        DirPacker { format: *self, block, end: 0, last: None }
    }
}

impl RawDirTail {
    fn is_tail(&self) -> bool {
        self.det_reserved_zero1.get() == 0
            && usize::from(self.det_rec_len.get()) == TAIL_LEN
            && self.det_reserved_zero2 == 0
            && self.det_reserved_ft == TAIL_FILE_TYPE
    }
}

fn stored_hash(after_header: &[u8], name_len: usize) -> Option<DirHash> {
    let bytes = after_header.get(name_len.next_multiple_of(4)..)?;
    let (stored, _) = <[U32; 2]>::read_from_prefix(bytes).ok()?;
    Some(DirHash { hash: stored[0].get(), minor: stored[1].get() })
}

/// An entry as read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DirEntry<'a> {
    /// Its position in the block in bytes.
    pub at: usize,
    /// Position of the previous entry; `at` for the first of the block.
    pub before: usize,
    /// Its length in bytes, including free ones after its name.
    pub rec_len: usize,
    /// The file's inode; `None` for free space.
    pub inode: Option<InodeNo>,
    /// The file type, if entries have it.
    pub file_type: FileType,
    /// The name, any bytes (a checker reports `/` and zero bytes).
    pub name: &'a [u8],
    /// The name's hash, if entries have it.
    pub stored_hash: Option<DirHash>,
}

impl DirEntry<'_> {
    /// Whether it is in use.
    pub fn is_used(&self) -> bool {
        self.inode.is_some()
    }

    /// Whether it is `.` or `..`.
    pub fn is_dot(&self) -> bool {
        matches!(self.name, b"." | b"..")
    }
}

/// The header of an entry.
#[derive(Clone, Copy)]
struct Glance {
    rec_len: usize,
    name_len: usize,
    is_used: bool,
}

/// The result of [`DirFormat::find_or_slot`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sought<'a> {
    /// The name was found.
    Found(DirEntry<'a>),
    /// The name was not found; the first slot for it, if the block has one.
    Vacant(Option<Slot>),
}

/// A slot for a new entry: in the entry at byte `at`, after its used bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Slot {
    at: usize,
    rec_len: usize,
    taken: usize,
}

/// An entry to be written.
#[derive(Clone, Copy, Debug)]
pub struct NewEntry<'a> {
    /// The file.
    pub inode: InodeNo,
    /// The file type, stored if entries have it.
    pub file_type: FileType,
    /// The name, 1 to 255 bytes.
    pub name: &'a [u8],
    /// The name's hash, stored if entries have it.
    pub hash: DirHash,
}

impl<'a> NewEntry<'a> {
    /// Creates an entry for a directory without stored hashes.
    pub fn new(inode: InodeNo, file_type: FileType, name: &'a [u8]) -> Self {
        Self { inode, file_type, name, hash: DirHash::default() }
    }
}

/// Iterator over a block's entries.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    format: DirFormat,
    block: &'a [u8],
    file_block: FileBlock,
    before: usize,
    next: usize,
    is_done: bool,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<DirEntry<'a>, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (at, before) = (self.next, self.before);
        let left = self.block.len().saturating_sub(at);
        if self.is_done || left == 0 {
            return None;
        }
        if self.format.checksum_seed.is_some()
            && left == TAIL_LEN
            && self.format.has_tail(self.block)
        {
            return None;
        }
        let entry = self.format.entry_at(self.block, self.file_block, at, before);
        match &entry {
            Ok(entry) => (self.before, self.next) = (at, at + entry.rec_len),
            Err(_) => self.is_done = true,
        }
        Some(entry)
    }
}

/// The inodes of `.` and `..` in a directory's first block.
///
/// # Errors
/// The first entry is not `.`, the second is not `..`, or an entry has an error.
pub fn dot_entries(
    format: &DirFormat,
    first_block: &[u8],
) -> Result<(InodeNo, InodeNo), FormatError> {
    let location = Location::DirBlock(format.inode, FileBlock(0));
    let mut entries = format.entries(first_block, FileBlock(0));
    let mut named = |name: &[u8], rule| {
        let entry = entries.next().transpose()?;
        entry
            .filter(|entry| entry.name == name)
            .and_then(|entry| entry.inode)
            .ok_or(Flaw::Rule(rule).at(location))
    };
    let dot = named(b".", "the first record is not '.'")?;
    let dot_dot = named(b"..", "the second record is not '..'")?;
    Ok((dot, dot_dot))
}

#[cfg(test)]
mod tests;
