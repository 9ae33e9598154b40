//! Group descriptors: location of a block group's bitmaps and inode table, and its free counts.
//!
//! Source: the kernel's `group_descr.rst` and `checksums.rst`. A descriptor has `desc_size` bytes
//! on disk: 32, or with 64bit 64 and more. Checksums cover all of them, so [`verify`] and [`seal`]
//! take the stored slice.

use crate::checksum::{Crc32c, crc16};
use crate::features::MetadataChecksum;
use crate::geometry::Geometry;
use crate::types::{BlockNo, GroupNo};
use crate::{Flaw, FormatError, Location};
use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The descriptor as stored, little-endian. One of 32 bytes is extended with zeros; the bytes of a
/// longer one after 64 are only in the stored slice.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[allow(missing_docs, reason = "the kernel's field names, documented in group_descr.rst")]
pub struct RawGroupDesc {
    pub bg_block_bitmap_lo: U32,
    pub bg_inode_bitmap_lo: U32,
    pub bg_inode_table_lo: U32,
    pub bg_free_blocks_count_lo: U16,
    pub bg_free_inodes_count_lo: U16,
    pub bg_used_dirs_count_lo: U16,
    pub bg_flags: U16,
    pub bg_exclude_bitmap_lo: U32,
    pub bg_block_bitmap_csum_lo: U16,
    pub bg_inode_bitmap_csum_lo: U16,
    pub bg_itable_unused_lo: U16,
    pub bg_checksum: U16,
    pub bg_block_bitmap_hi: U32,
    pub bg_inode_bitmap_hi: U32,
    pub bg_inode_table_hi: U32,
    pub bg_free_blocks_count_hi: U16,
    pub bg_free_inodes_count_hi: U16,
    pub bg_used_dirs_count_hi: U16,
    pub bg_itable_unused_hi: U16,
    pub bg_exclude_bitmap_hi: U32,
    pub bg_block_bitmap_csum_hi: U16,
    pub bg_inode_bitmap_csum_hi: U16,
    pub bg_reserved: U32,
}

const CHECKSUM_AT: usize = 0x1e;
const LOW_HALF: usize = 32;
const _: () = assert!(size_of::<RawGroupDesc>() == 64);
const _: () = assert!(offset_of!(RawGroupDesc, bg_checksum) == CHECKSUM_AT);
const _: () = assert!(offset_of!(RawGroupDesc, bg_block_bitmap_hi) == LOW_HALF);
const _: () = assert!(offset_of!(RawGroupDesc, bg_inode_bitmap_csum_hi) == 0x3a);

bitflags::bitflags! {
    /// `bg_flags`. They are valid only if descriptors have checksums.
    #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
    pub struct GroupFlags: u16 {
        /// No inode was ever used: bitmap and table are not initialized.
        const INODE_UNINIT = 0x1;
        /// Only the group's own metadata is in use: the bitmap is not initialized.
        const BLOCK_UNINIT = 0x2;
        /// The unused part of the inode table is zero on disk.
        const INODE_ZEROED = 0x4;
        const _ = !0;
    }
}

impl RawGroupDesc {
    /// Copies the known part out of the stored bytes.
    ///
    /// # Errors
    /// [`Flaw::Truncated`] if there are fewer than `geometry.desc_size`.
    pub fn from_bytes(
        stored: &[u8],
        group: GroupNo,
        geometry: &Geometry,
    ) -> Result<Self, FormatError> {
        let stored = whole(stored, group, geometry)?;
        let mut raw = Self::new_zeroed();
        let known = stored.len().min(size_of::<Self>());
        raw.as_mut_bytes()[..known].copy_from_slice(&stored[..known]);
        Ok(raw)
    }

    /// Copies the known part into the stored bytes. Bytes after it are not changed.
    ///
    /// # Panics
    /// If `stored` has not `geometry.desc_size` bytes.
    pub fn write_to(&self, stored: &mut [u8], geometry: &Geometry) {
        assert_eq!(stored.len(), usize::from(geometry.desc_size), "bytes of a descriptor");
        let known = stored.len().min(size_of::<Self>());
        stored[..known].copy_from_slice(&self.as_bytes()[..known]);
    }
}

/// Verifies the checksum of a stored descriptor. Ok if the volume has no checksums.
///
/// # Errors
/// [`Flaw::Checksum`], or [`Flaw::Truncated`] if there are fewer bytes than `geometry.desc_size`.
pub fn verify(stored: &[u8], group: GroupNo, geometry: &Geometry) -> Result<(), FormatError> {
    let stored = whole(stored, group, geometry)?;
    let Some(computed) = checksum(stored, group, geometry) else { return Ok(()) };
    let found = u16::from_le_bytes([stored[CHECKSUM_AT], stored[CHECKSUM_AT + 1]]);
    if found != computed {
        return Err(Flaw::checksum(found, computed).at(Location::GroupDesc(group)));
    }
    Ok(())
}

/// Sets the checksum; the last step before the bytes are written.
///
/// # Panics
/// If `stored` has not `geometry.desc_size` bytes.
pub fn seal(stored: &mut [u8], group: GroupNo, geometry: &Geometry) {
    assert_eq!(stored.len(), usize::from(geometry.desc_size), "bytes of a descriptor");
    if let Some(computed) = checksum(stored, group, geometry) {
        stored[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&computed.to_le_bytes());
    }
}

fn whole<'a>(
    stored: &'a [u8],
    group: GroupNo,
    geometry: &Geometry,
) -> Result<&'a [u8], FormatError> {
    let size = usize::from(geometry.desc_size);
    stored
        .get(..size)
        .ok_or_else(|| Flaw::truncated(stored.len(), size).at(Location::GroupDesc(group)))
}

/// For metadata_csum the checksum field counts as zero; for uninit_bg it is omitted.
fn checksum(stored: &[u8], group: GroupNo, geometry: &Geometry) -> Option<u16> {
    let (front, back) = (&stored[..CHECKSUM_AT], &stored[CHECKSUM_AT + 2..]);
    match geometry.checksum() {
        MetadataChecksum::None => None,
        MetadataChecksum::DescCrc16 => {
            let start = crc16(crc16(!0, &geometry.uuid.0), &group.0.to_le_bytes());
            Some(crc16(crc16(start, front), back))
        }
        MetadataChecksum::Crc32c => Some(
            Crc32c::seeded(geometry.checksum_seed)
                .le32(group.0)
                .bytes(front)
                .zeros(2)
                .bytes(back)
                .low16(),
        ),
    }
}

/// A decoded descriptor: halves joined, units in the types.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupDesc {
    /// Block of the block bitmap.
    pub block_bitmap: BlockNo,
    /// Block of the inode bitmap.
    pub inode_bitmap: BlockNo,
    /// First block of the inode table.
    pub inode_table: BlockNo,
    /// Number of free clusters, which are blocks without bigalloc.
    pub free_clusters: u32,
    /// Number of free inodes.
    pub free_inodes: u32,
    /// Number of directories.
    pub used_dirs: u32,
    /// The parts that are not initialized.
    pub flags: GroupFlags,
    /// Number of inodes at the table's end that were never used; scans stop before them. See
    /// [`Self::itable_used`].
    pub itable_unused: u32,
    /// Checksum of the block bitmap; its low 16 bits with descriptors of 32 bytes.
    pub block_bitmap_checksum: u32,
    /// Checksum of the inode bitmap; its low 16 bits with descriptors of 32 bytes.
    pub inode_bitmap_checksum: u32,
}

impl GroupDesc {
    /// Decodes a descriptor and checks its locations and counts.
    ///
    /// # Errors
    /// The first of [`Self::check_places`] and [`Self::check_counts`].
    pub fn decode(
        raw: &RawGroupDesc,
        group: GroupNo,
        geometry: &Geometry,
    ) -> Result<Self, FormatError> {
        let desc = Self::unchecked(raw);
        desc.check_places(group, geometry)?;
        desc.check_counts(group, geometry)?;
        Ok(desc)
    }

    /// Decodes a descriptor without checks.
    pub fn unchecked(raw: &RawGroupDesc) -> Self {
        let block =
            |low: U32, high: U32| BlockNo(u64::from(low.get()) | u64::from(high.get()) << 32);
        let number = |low: U16, high: U16| u32::from(low.get()) | u32::from(high.get()) << 16;
        Self {
            block_bitmap: block(raw.bg_block_bitmap_lo, raw.bg_block_bitmap_hi),
            inode_bitmap: block(raw.bg_inode_bitmap_lo, raw.bg_inode_bitmap_hi),
            inode_table: block(raw.bg_inode_table_lo, raw.bg_inode_table_hi),
            free_clusters: number(raw.bg_free_blocks_count_lo, raw.bg_free_blocks_count_hi),
            free_inodes: number(raw.bg_free_inodes_count_lo, raw.bg_free_inodes_count_hi),
            used_dirs: number(raw.bg_used_dirs_count_lo, raw.bg_used_dirs_count_hi),
            flags: GroupFlags::from_bits_retain(raw.bg_flags.get()),
            itable_unused: number(raw.bg_itable_unused_lo, raw.bg_itable_unused_hi),
            block_bitmap_checksum: number(raw.bg_block_bitmap_csum_lo, raw.bg_block_bitmap_csum_hi),
            inode_bitmap_checksum: number(raw.bg_inode_bitmap_csum_lo, raw.bg_inode_bitmap_csum_hi),
        }
    }

    /// Decodes stored bytes without checks.
    ///
    /// # Errors
    /// [`Flaw::Truncated`] if there are fewer than `geometry.desc_size`.
    pub fn from_stored(
        stored: &[u8],
        group: GroupNo,
        geometry: &Geometry,
    ) -> Result<Self, FormatError> {
        Ok(Self::unchecked(&RawGroupDesc::from_bytes(stored, group, geometry)?))
    }

    /// Sets the known fields in the stored bytes. All others, including the checksum, are not
    /// changed: call [`seal`] next.
    ///
    /// # Errors
    /// [`Flaw::Truncated`] if there are fewer than `geometry.desc_size`.
    pub fn store(
        &self,
        stored: &mut [u8],
        group: GroupNo,
        geometry: &Geometry,
    ) -> Result<(), FormatError> {
        let mut raw = RawGroupDesc::from_bytes(stored, group, geometry)?;
        self.encode_into(&mut raw);
        raw.write_to(stored, geometry);
        Ok(())
    }

    /// Sets the known fields. Every other byte is not changed. [`RawGroupDesc::write_to`] truncates
    /// high halves to the volume's `desc_size`.
    pub fn encode_into(&self, raw: &mut RawGroupDesc) {
        let block = |value: BlockNo, low: &mut U32, high: &mut U32| {
            low.set((value.0 & 0xffff_ffff) as u32);
            high.set((value.0 >> 32) as u32);
        };
        let number = |value: u32, low: &mut U16, high: &mut U16| {
            low.set((value & 0xffff) as u16);
            high.set((value >> 16) as u16);
        };
        block(self.block_bitmap, &mut raw.bg_block_bitmap_lo, &mut raw.bg_block_bitmap_hi);
        block(self.inode_bitmap, &mut raw.bg_inode_bitmap_lo, &mut raw.bg_inode_bitmap_hi);
        block(self.inode_table, &mut raw.bg_inode_table_lo, &mut raw.bg_inode_table_hi);
        number(
            self.free_clusters,
            &mut raw.bg_free_blocks_count_lo,
            &mut raw.bg_free_blocks_count_hi,
        );
        number(
            self.free_inodes,
            &mut raw.bg_free_inodes_count_lo,
            &mut raw.bg_free_inodes_count_hi,
        );
        number(self.used_dirs, &mut raw.bg_used_dirs_count_lo, &mut raw.bg_used_dirs_count_hi);
        raw.bg_flags.set(self.flags.bits());
        number(self.itable_unused, &mut raw.bg_itable_unused_lo, &mut raw.bg_itable_unused_hi);
        number(
            self.block_bitmap_checksum,
            &mut raw.bg_block_bitmap_csum_lo,
            &mut raw.bg_block_bitmap_csum_hi,
        );
        number(
            self.inode_bitmap_checksum,
            &mut raw.bg_inode_bitmap_csum_lo,
            &mut raw.bg_inode_bitmap_csum_hi,
        );
    }

    /// Checks that bitmaps and table are within the volume, which is enough for reading.
    ///
    /// # Errors
    /// [`Flaw::BadValue`] with the first one outside.
    pub fn check_places(&self, group: GroupNo, geometry: &Geometry) -> Result<(), FormatError> {
        let places = [
            ("block_bitmap", self.block_bitmap, 1),
            ("inode_bitmap", self.inode_bitmap, 1),
            ("inode_table", self.inode_table, u64::from(geometry.itable_blocks())),
        ];
        for (field, block, count) in places {
            if !geometry.contains(block, count) {
                return Err(Flaw::bad_value(field, block.0).at(Location::GroupDesc(group)));
            }
        }
        Ok(())
    }

    /// Checks that the counts do not exceed those of the group.
    ///
    /// # Errors
    /// [`Flaw::AboveLimit`] with the first one that does.
    pub fn check_counts(&self, group: GroupNo, geometry: &Geometry) -> Result<(), FormatError> {
        let counts = [
            ("free_clusters", self.free_clusters, geometry.group_clusters(group)),
            ("free_inodes", self.free_inodes, geometry.inodes_per_group),
            ("used_dirs", self.used_dirs, geometry.inodes_per_group),
            ("itable_unused", self.itable_unused, geometry.inodes_per_group),
        ];
        for (field, found, limit) in counts {
            if found > limit {
                return Err(Flaw::above_limit(field, found, limit).at(Location::GroupDesc(group)));
            }
        }
        Ok(())
    }

    /// Number of inodes before the table's never used end. The whole table if descriptors have no
    /// checksums, or if `itable_unused` is invalid.
    pub fn itable_used(&self, geometry: &Geometry) -> u32 {
        if !geometry.has_uninit_groups() {
            return geometry.inodes_per_group;
        }
        if self.flags.contains(GroupFlags::INODE_UNINIT) {
            return 0;
        }
        geometry
            .inodes_per_group
            .checked_sub(self.itable_unused)
            .unwrap_or(geometry.inodes_per_group)
    }
}
