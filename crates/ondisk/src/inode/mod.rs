//! Inodes of every size: the metadata of a file except its names.
//!
//! Source: the kernel's `inodes.rst`. A record of the inode table has `inode_size` bytes: the 128
//! of ext2, then `i_extra_isize` bytes of further fields, then room for extended attributes. A
//! field past `i_extra_isize` does not exist.

mod fields;
mod flags;

pub use fields::{
    DeviceNumber, FILE_TYPE_MASK, FileType, GOOD_OLD_INODE_SIZE, I_BLOCK_SIZE, NEW_EXTRA_ISIZE,
    PERMISSION_MASK, RawInode, RawInodeExtra, SETGID, SETUID,
};
pub use flags::InodeFlags;

use crate::checksum::Crc32c;
use crate::features::{IncompatFeatures, RoCompatFeatures};
use crate::geometry::Geometry;
use crate::time::Timestamp;
use crate::types::{BlockNo, InodeNo};
use crate::xattr::{ea_inode_refcount, ea_inode_refcount_fields};
use crate::{Flaw, FormatError, Location};
use core::mem::{offset_of, size_of};
use fields::{BASE, CHECKSUM_HI_AT, CHECKSUM_LO_AT, has_extra};
use zerocopy::{FromBytes, IntoBytes};

/// Unit of `i_blocks` in bytes, unless the inode has [`InodeFlags::HUGE_FILE`].
pub const SECTOR: u64 = 512;
/// `s_creator_os` of the Hurd, for which some fields differ.
const CREATOR_HURD: u32 = 1;
/// Link count of directories with too many links to count (dir_nlink).
pub const MANY_LINKS: u16 = 1;

/// A decoded inode: halves joined, units in the types. The room for extended attributes and
/// reserved bytes are only in the record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Inode {
    /// File type and permissions, `i_mode`; 0 in a free inode. See [`Self::file_type`].
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// File size in bytes. For directories the high half is used only with large_dir.
    pub size: u64,
    /// Access time; the seconds of an ea_inode are the value's checksum.
    pub atime: Timestamp,
    /// Change time of the inode; in an ea_inode a part of its reference count.
    pub ctime: Timestamp,
    /// Modification time of the data.
    pub mtime: Timestamp,
    /// Creation time; `None` if the record has no room for it.
    pub crtime: Option<Timestamp>,
    /// Deletion time in seconds since 1970; in the orphan list the number of the next orphan.
    pub dtime: u32,
    /// Number of hard links; [`MANY_LINKS`] for a directory with too many subdirectories to count.
    pub links: u16,
    /// Space in use, in units of [`Self::space_unit`].
    pub blocks: u64,
    /// `i_flags`.
    pub flags: InodeFlags,
    /// Change counter; in an ea_inode a part of its reference count. The high half needs room in
    /// the record.
    pub version: u64,
    /// The block map, extent root, fast symlink target, device number or inline data.
    pub i_block: [u8; I_BLOCK_SIZE],
    /// Changed whenever the inode number is reused.
    pub generation: u32,
    /// Block of extended attributes, 0 for none.
    pub file_acl: BlockNo,
    /// Length in bytes of fields after the first 128; 0 in records of 128 bytes.
    pub extra_isize: u16,
    /// Project ID; `None` if the record has no room for it.
    pub project: Option<u32>,
}

impl Inode {
    /// Creates an inode with one link, without blocks and block map, owned by user and group 0. All
    /// its times are `time`, and it has all fields that its record has room for.
    #[must_use]
    pub fn new(geometry: &Geometry, mode: u16, time: Timestamp) -> Self {
        let has_extra = geometry.inode_size > GOOD_OLD_INODE_SIZE;
        Self {
            mode,
            uid: 0,
            gid: 0,
            size: 0,
            atime: time,
            ctime: time,
            mtime: time,
            crtime: has_extra.then_some(time),
            dtime: 0,
            links: 1,
            blocks: 0,
            flags: InodeFlags::empty(),
            version: 0,
            i_block: [0; I_BLOCK_SIZE],
            generation: 0,
            file_acl: BlockNo(0),
            extra_isize: if has_extra { NEW_EXTRA_ISIZE } else { 0 },
            project: has_extra.then_some(0),
        }
    }

    /// Sets the space that the file uses, in blocks of the volume. It is stored in sectors if that
    /// fits, otherwise in blocks, with [`InodeFlags::HUGE_FILE`].
    pub fn set_space(&mut self, geometry: &Geometry, blocks: u64) {
        let sectors = blocks * (u64::from(geometry.block_size) / SECTOR);
        let in_blocks = geometry.has_ro_compat(RoCompatFeatures::HUGE_FILE) && sectors >= 1 << 48;
        self.flags.set(InodeFlags::HUGE_FILE, in_blocks);
        self.blocks = if in_blocks { blocks } else { sectors };
    }

    /// Decodes a record. Does not check the file type or the content of `i_block`.
    ///
    /// # Errors
    /// A record shorter than `geometry.inode_size`, or an `i_extra_isize` that does not fit in it
    /// or is not a multiple of 4.
    pub fn decode(record: &[u8], inode: InodeNo, geometry: &Geometry) -> Result<Self, FormatError> {
        Self::decoded(record, geometry).map_err(|flaw| flaw.at(Location::Inode(inode)))
    }

    fn decoded(record: &[u8], geometry: &Geometry) -> Result<Self, Flaw> {
        let record = whole(record, geometry)?;
        let (raw, rest) = RawInode::ref_from_prefix(record)
            .map_err(|_| Flaw::truncated(record.len(), size_of::<RawInode>()))?;
        let extra_isize = extra_isize(record)?;
        let extra = RawInodeExtra::of_record(&rest[..usize::from(extra_isize)]);
        let has = |end: usize| has_extra(extra_isize, end);
        let time =
            |low: u32, high: u32, end: usize| Timestamp::decode(low, has(end).then_some(high));
        let mode = raw.i_mode.get();
        let size_high =
            if size_is_64bit(mode, geometry) { u64::from(raw.i_size_high.get()) } else { 0 };
        let blocks_high =
            if blocks_have_high(geometry) { u64::from(raw.i_blocks_high.get()) } else { 0 };
        let acl_high =
            if acl_has_high(geometry) { u64::from(raw.i_file_acl_high.get()) } else { 0 };
        Ok(Self {
            mode,
            uid: u32::from(raw.i_uid.get()) | u32::from(raw.i_uid_high.get()) << 16,
            gid: u32::from(raw.i_gid.get()) | u32::from(raw.i_gid_high.get()) << 16,
            size: u64::from(raw.i_size_lo.get()) | size_high << 32,
            atime: time(raw.i_atime.get(), extra.i_atime_extra.get(), fields::ATIME_EXTRA_END),
            ctime: time(raw.i_ctime.get(), extra.i_ctime_extra.get(), fields::CTIME_EXTRA_END),
            mtime: time(raw.i_mtime.get(), extra.i_mtime_extra.get(), fields::MTIME_EXTRA_END),
            crtime: has(fields::CRTIME_END).then(|| {
                time(extra.i_crtime.get(), extra.i_crtime_extra.get(), fields::CRTIME_EXTRA_END)
            }),
            dtime: raw.i_dtime.get(),
            links: raw.i_links_count.get(),
            blocks: u64::from(raw.i_blocks_lo.get()) | blocks_high << 32,
            flags: InodeFlags::from_bits_retain(raw.i_flags.get()),
            version: u64::from(raw.i_version_lo.get()) | u64::from(extra.i_version_hi.get()) << 32,
            i_block: raw.i_block,
            generation: raw.i_generation.get(),
            file_acl: BlockNo(u64::from(raw.i_file_acl_lo.get()) | acl_high << 32),
            extra_isize,
            project: has(fields::PROJID_END).then(|| extra.i_projid.get()),
        })
    }

    /// Sets the known fields that the record has room for. Every other byte is not changed. Times
    /// are clamped to their range ([`Timestamp::clamped`]). Call [`seal`] afterwards.
    ///
    /// # Panics
    /// If the record has not `geometry.inode_size` bytes, or `extra_isize` does not fit in it: a
    /// programming error.
    pub fn encode_into(&self, record: &mut [u8], geometry: &Geometry) {
        assert_eq!(record.len(), usize::from(geometry.inode_size), "bytes of an inode record");
        let (base, rest) = record.split_at_mut(BASE);
        let room = rest
            .get_mut(..usize::from(self.extra_isize))
            .expect("i_extra_isize is within the inode record");
        let raw = RawInode::mut_from_bytes(base).expect("a record has at least 128 bytes");
        let mut extra = RawInodeExtra::of_record(room);
        let has = |end: usize| has_extra(self.extra_isize, end);

        raw.i_mode.set(self.mode);
        raw.i_uid.set((self.uid & 0xffff) as u16);
        raw.i_uid_high.set((self.uid >> 16) as u16);
        raw.i_gid.set((self.gid & 0xffff) as u16);
        raw.i_gid_high.set((self.gid >> 16) as u16);
        raw.i_size_lo.set((self.size & 0xffff_ffff) as u32);
        if size_is_64bit(self.mode, geometry) {
            raw.i_size_high.set((self.size >> 32) as u32);
        }
        let (atime, atime_extra) = self.atime.encode(has(fields::ATIME_EXTRA_END));
        let (ctime, ctime_extra) = self.ctime.encode(has(fields::CTIME_EXTRA_END));
        let (mtime, mtime_extra) = self.mtime.encode(has(fields::MTIME_EXTRA_END));
        raw.i_atime.set(atime);
        raw.i_ctime.set(ctime);
        raw.i_mtime.set(mtime);
        raw.i_dtime.set(self.dtime);
        raw.i_links_count.set(self.links);
        raw.i_blocks_lo.set((self.blocks & 0xffff_ffff) as u32);
        if blocks_have_high(geometry) {
            raw.i_blocks_high.set((self.blocks >> 32 & 0xffff) as u16);
        }
        raw.i_flags.set(self.flags.bits());
        raw.i_version_lo.set((self.version & 0xffff_ffff) as u32);
        raw.i_block = self.i_block;
        raw.i_generation.set(self.generation);
        raw.i_file_acl_lo.set((self.file_acl.0 & 0xffff_ffff) as u32);
        if acl_has_high(geometry) {
            raw.i_file_acl_high.set((self.file_acl.0 >> 32 & 0xffff) as u16);
        }

        extra.i_extra_isize.set(self.extra_isize);
        extra.i_ctime_extra.set(ctime_extra);
        extra.i_mtime_extra.set(mtime_extra);
        extra.i_atime_extra.set(atime_extra);
        let (crtime, crtime_extra) =
            self.crtime.unwrap_or_default().encode(has(fields::CRTIME_EXTRA_END));
        extra.i_crtime.set(crtime);
        extra.i_crtime_extra.set(crtime_extra);
        extra.i_version_hi.set((self.version >> 32) as u32);
        extra.i_projid.set(self.project.unwrap_or(0));
        // A field that i_extra_isize truncates does not exist: its bytes are not changed.
        let whole_fields = fields::whole_fields(self.extra_isize);
        room[..whole_fields].copy_from_slice(&extra.as_bytes()[..whole_fields]);
    }

    /// The file type; `None` for a mode without one, as in a free inode.
    pub fn file_type(&self) -> Option<FileType> {
        FileType::of_mode(self.mode)
    }

    /// Permissions with setuid, setgid and sticky: the mode's low twelve bits.
    pub fn permissions(&self) -> u16 {
        self.mode & PERMISSION_MASK
    }

    /// Whether the file is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type() == Some(FileType::Directory)
    }

    /// Whether `i_block` is the root of an extent tree.
    pub fn is_extent_mapped(&self) -> bool {
        self.flags.contains(InodeFlags::EXTENTS)
    }

    /// Whether it is a directory whose entries have their names' hashes: both encrypted and
    /// casefolded.
    pub fn has_stored_hashes(&self) -> bool {
        self.flags.contains(InodeFlags::ENCRYPT | InodeFlags::CASEFOLD)
    }

    /// Whether the inode has inline data.
    pub fn is_inline(&self) -> bool {
        self.flags.contains(InodeFlags::INLINE_DATA)
    }

    /// Whether a symbolic link's target is in `i_block` instead of a block: without ea_inode, if no
    /// block except that of extended attributes is counted; with it, if the target is short.
    pub fn is_fast_symlink(&self, geometry: &Geometry) -> bool {
        if self.file_type() != Some(FileType::Symlink) || self.is_inline() {
            return false;
        }
        if geometry.has_incompat(IncompatFeatures::EA_INODE) {
            return self.size > 0 && self.size < I_BLOCK_SIZE as u64;
        }
        let of_xattrs = if self.file_acl.0 == 0 { 0 } else { geometry.cluster_size() };
        self.space(geometry) == of_xattrs
    }

    /// Space in use in bytes, for data, indirect blocks or extent nodes, and the block of extended
    /// attributes.
    pub fn space(&self, geometry: &Geometry) -> u64 {
        // 48 bits of count and 16 of unit.
        self.blocks.saturating_mul(self.space_unit(geometry))
    }

    /// Unit of [`Self::blocks`] in bytes: a sector, or a block of the volume.
    pub fn space_unit(&self, geometry: &Geometry) -> u64 {
        let is_in_blocks = self.flags.contains(InodeFlags::HUGE_FILE)
            && geometry.has_ro_compat(RoCompatFeatures::HUGE_FILE);
        if is_in_blocks { u64::from(geometry.block_size) } else { SECTOR }
    }

    /// The device number of a device file.
    pub fn device(&self) -> Option<DeviceNumber> {
        let is_device =
            matches!(self.file_type(), Some(FileType::CharDevice | FileType::BlockDevice));
        is_device.then(|| DeviceNumber::decode(&self.i_block))
    }

    /// Increments `i_version` for a change of a file's content or attributes, or of a directory's
    /// entries. Not called for changes of links and access times.
    pub fn count_change(&mut self) {
        self.version = self.version.wrapping_add(1);
    }

    /// Reference count of an inode that holds the value of an extended attribute: ctime is the high
    /// half, the version the low one (`inodes.rst` has it the other way round; the kernel writes it
    /// so).
    pub fn ea_inode_references(&self) -> u64 {
        let ctime = (self.ctime.seconds & 0xffff_ffff) as u32;
        ea_inode_refcount(ctime, (self.version & 0xffff_ffff) as u32)
    }

    /// Sets the reference count that [`Self::ea_inode_references`] returns.
    pub fn set_ea_inode_references(&mut self, references: u64) {
        let (ctime, version_lo) = ea_inode_refcount_fields(references);
        self.ctime = Timestamp::new(i64::from(ctime.cast_signed()), 0);
        self.version = self.version & !0xffff_ffff | u64::from(version_lo);
    }

    /// The checksum of the value in an ea_inode.
    pub fn ea_inode_checksum(&self) -> u32 {
        (self.atime.seconds & 0xffff_ffff) as u32
    }
}

/// The part of a record for extended attributes: after the extra fields. Empty in records of 128
/// bytes.
///
/// # Errors
/// As [`Inode::decode`].
pub fn xattr_area<'a>(
    record: &'a [u8],
    inode: InodeNo,
    geometry: &Geometry,
) -> Result<&'a [u8], FormatError> {
    let location = Location::Inode(inode);
    let record = whole(record, geometry).map_err(|flaw| flaw.at(location))?;
    let extra = extra_isize(record).map_err(|flaw| flaw.at(location))?;
    Ok(&record[BASE + usize::from(extra)..])
}

/// Verifies the record's checksum. Ok without metadata_csum. A record that was never used may be
/// all zeros, which is an error: check the mode and the group's `itable_unused` first.
///
/// # Errors
/// [`Flaw::Checksum`], or those of [`Inode::decode`].
pub fn verify(record: &[u8], inode: InodeNo, geometry: &Geometry) -> Result<(), FormatError> {
    let location = Location::Inode(inode);
    let record = whole(record, geometry).map_err(|flaw| flaw.at(location))?;
    let Some(computed) = checksum(record, inode, geometry) else { return Ok(()) };
    let half = |at: usize| u32::from(u16::from_le_bytes([record[at], record[at + 1]]));
    let low = half(CHECKSUM_LO_AT);
    let (found, computed) = if checksum_is_wide(record) {
        (low | half(CHECKSUM_HI_AT) << 16, computed)
    } else {
        (low, computed & 0xffff)
    };
    if found != computed {
        return Err(Flaw::checksum(found, computed).at(location));
    }
    Ok(())
}

/// Sets the checksum; the last step before the record is written.
///
/// # Panics
/// If the record has not `geometry.inode_size` bytes: a programming error.
pub fn seal(record: &mut [u8], inode: InodeNo, geometry: &Geometry) {
    assert_eq!(record.len(), usize::from(geometry.inode_size), "bytes of an inode record");
    let Some(computed) = checksum(record, inode, geometry) else { return };
    let stored = computed.to_le_bytes();
    record[CHECKSUM_LO_AT..CHECKSUM_LO_AT + 2].copy_from_slice(&stored[..2]);
    if checksum_is_wide(record) {
        record[CHECKSUM_HI_AT..CHECKSUM_HI_AT + 2].copy_from_slice(&stored[2..]);
    }
}

/// The number of the inode for which a record's 32-bit checksum was computed; `None` if there is no
/// checksum, or if it matches no inode.
pub fn number_of(record: &[u8], inode: InodeNo, geometry: &Geometry) -> Option<InodeNo> {
    let record = whole(record, geometry).ok()?;
    if !checksum_is_wide(record) {
        return None;
    }
    let half = |at: usize| u32::from(u16::from_le_bytes([record[at], record[at + 1]]));
    let stored = half(CHECKSUM_LO_AT) | half(CHECKSUM_HI_AT) << 16;
    // Checksums of equal bytes after two numbers differ by the difference of the numbers, continued
    // over those bytes.
    let difference = Crc32c::seeded(stored ^ checksum(record, inode, geometry)?);
    let number = InodeNo(inode.0 ^ difference.without_zeros(8 + record.len()).value());
    let is_some = (1..=geometry.inodes_count).contains(&number.0);
    (is_some && verify(record, number, geometry).is_ok()).then_some(number)
}

/// Record size in bytes of most volumes.
const USUAL: usize = 256;

/// Covers number, generation and the whole record, in which the checksum's halves count as zero.
/// The Hurd uses these fields otherwise, so its inodes have no checksum.
fn checksum(record: &[u8], inode: InodeNo, geometry: &Geometry) -> Option<u32> {
    if !geometry.has_metadata_csum() || geometry.creator_os == CREATOR_HURD {
        return None;
    }
    const GENERATION_AT: usize = offset_of!(RawInode, i_generation);
    if record.len() <= USUAL {
        // A single long slice is summed faster than several short ones.
        let mut joined = [0; 8 + USUAL];
        joined[..4].copy_from_slice(&inode.0.to_le_bytes());
        joined[4..8].copy_from_slice(&record[GENERATION_AT..GENERATION_AT + 4]);
        let joined = &mut joined[..8 + record.len()];
        joined[8..].copy_from_slice(record);
        joined[8 + CHECKSUM_LO_AT..][..2].fill(0);
        if checksum_is_wide(record) {
            joined[8 + CHECKSUM_HI_AT..][..2].fill(0);
        }
        return Some(Crc32c::seeded(geometry.checksum_seed).bytes(joined).value());
    }
    let crc = Crc32c::seeded(geometry.checksum_seed)
        .le32(inode.0)
        .bytes(&record[GENERATION_AT..GENERATION_AT + 4])
        .bytes(&record[..CHECKSUM_LO_AT])
        .zeros(2);
    let rest = &record[CHECKSUM_LO_AT + 2..];
    if !checksum_is_wide(record) {
        return Some(crc.bytes(rest).value());
    }
    let (front, back) = rest.split_at(CHECKSUM_HI_AT - CHECKSUM_LO_AT - 2);
    Some(crc.bytes(front).zeros(2).bytes(&back[2..]).value())
}

/// Whether the record has room for the checksum's high half.
fn checksum_is_wide(record: &[u8]) -> bool {
    record.len() > BASE
        && has_extra(u16::from_le_bytes([record[BASE], record[BASE + 1]]), fields::CHECKSUM_HI_END)
}

fn whole<'a>(record: &'a [u8], geometry: &Geometry) -> Result<&'a [u8], Flaw> {
    let size = usize::from(geometry.inode_size);
    record.get(..size).ok_or(Flaw::truncated(record.len(), size))
}

/// `i_extra_isize` of a whole record.
fn extra_isize(record: &[u8]) -> Result<u16, Flaw> {
    if record.len() == BASE {
        return Ok(0);
    }
    let room = record.len() - BASE;
    let found = u16::from_le_bytes([record[BASE], record[BASE + 1]]);
    if usize::from(found) > room {
        return Err(Flaw::above_limit("i_extra_isize", found, room as u64));
    }
    if !found.is_multiple_of(4) {
        return Err(Flaw::bad_value("i_extra_isize", found));
    }
    Ok(found)
}

/// Whether `i_size_high` is part of the size: for regular files always, for directories with
/// large_dir.
fn size_is_64bit(mode: u16, geometry: &Geometry) -> bool {
    match FileType::of_mode(mode) {
        Some(FileType::Regular) => true,
        Some(FileType::Directory) => geometry.has_incompat(IncompatFeatures::LARGEDIR),
        _ => false,
    }
}

fn blocks_have_high(geometry: &Geometry) -> bool {
    geometry.creator_os != CREATOR_HURD && geometry.has_ro_compat(RoCompatFeatures::HUGE_FILE)
}

fn acl_has_high(geometry: &Geometry) -> bool {
    geometry.creator_os != CREATOR_HURD && geometry.has_incompat(IncompatFeatures::BIT64)
}

#[cfg(test)]
mod tests;
