//! Block and inode bitmaps: bit operations, runs, checksums.
//!
//! Bit 0 of byte 0 is the group's first cluster or inode; a set bit means in use. A bitmap fills a
//! block; the bits after the group's last cluster or inode are set, up to the block's end. Source:
//! the kernel's `bitmaps.rst`, `checksums.rst`.

use crate::checksum::Crc32c;
use crate::geometry::Geometry;
use crate::group_desc::GroupDesc;
use crate::types::GroupNo;
use crate::{Flaw, FormatError, Location};
use core::ops::Range;

/// Minimum size in bytes of descriptors that store all 32 bits of a bitmap's checksum.
const WIDE_DESC: u16 = 64;

/// The block or the inode bitmap of a group.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum BitmapKind {
    /// Clusters in use.
    Block,
    /// Inodes in use.
    Inode,
}

impl BitmapKind {
    /// Number of bits that the checksum covers: those of a full group, even in a shorter last one.
    pub fn bits(self, geometry: &Geometry) -> u32 {
        match self {
            Self::Block => geometry.clusters_per_group,
            Self::Inode => geometry.inodes_per_group,
        }
    }

    /// Number of bits for clusters or inodes of this group; those after them are padding and set.
    pub fn used_bits(self, group: GroupNo, geometry: &Geometry) -> u32 {
        match self {
            Self::Block => geometry.group_clusters(group),
            Self::Inode => geometry.inodes_per_group,
        }
    }

    /// The checksum in a descriptor.
    pub fn stored_checksum(self, desc: &GroupDesc) -> u32 {
        match self {
            Self::Block => desc.block_bitmap_checksum,
            Self::Inode => desc.inode_bitmap_checksum,
        }
    }

    fn location(self, group: GroupNo) -> Location {
        match self {
            Self::Block => Location::BlockBitmap(group),
            Self::Inode => Location::InodeBitmap(group),
        }
    }
}

/// Compares a bitmap, a whole block, with the checksum in its descriptor. Ok if the volume has no
/// checksums.
///
/// # Errors
/// [`Flaw::Checksum`], or [`Flaw::Truncated`] for less than a block.
pub fn verify(
    bitmap: &[u8],
    kind: BitmapKind,
    group: GroupNo,
    desc: &GroupDesc,
    geometry: &Geometry,
) -> Result<(), FormatError> {
    verify_stored(bitmap, kind, group, kind.stored_checksum(desc), geometry)
}

/// As [`verify`], with a given checksum instead of a descriptor.
///
/// # Errors
/// As [`verify`].
pub fn verify_stored(
    bitmap: &[u8],
    kind: BitmapKind,
    group: GroupNo,
    found: u32,
    geometry: &Geometry,
) -> Result<(), FormatError> {
    let location = kind.location(group);
    if bitmap.len() < geometry.block_len() {
        return Err(Flaw::truncated(bitmap.len(), geometry.block_len()).at(location));
    }
    let Some(computed) = checksum(bitmap, kind, geometry) else { return Ok(()) };
    if found != computed {
        return Err(Flaw::checksum(found, computed).at(location));
    }
    Ok(())
}

/// Sets the bitmap's checksum in its descriptor. The descriptor's own checksum must be set
/// afterwards.
pub fn seal(bitmap: &[u8], kind: BitmapKind, desc: &mut GroupDesc, geometry: &Geometry) {
    let Some(computed) = checksum(bitmap, kind, geometry) else { return };
    match kind {
        BitmapKind::Block => desc.block_bitmap_checksum = computed,
        BitmapKind::Inode => desc.inode_bitmap_checksum = computed,
    }
}

/// Sets or clears a bit, and updates the checksum in the descriptor as [`seal`] would, without
/// reading the whole bitmap. Returns false if the bit had that value before.
///
/// # Panics
/// If the bit is past the bitmap's end.
pub fn change(
    bitmap: &mut [u8],
    bit: u32,
    is_set: bool,
    kind: BitmapKind,
    desc: &mut GroupDesc,
    geometry: &Geometry,
) -> bool {
    let has_changed = if is_set { set(bitmap, bit) } else { clear(bitmap, bit) };
    let covered = kind.bits(geometry) / 8;
    if !has_changed || !geometry.has_metadata_csum() || bit / 8 >= covered {
        return has_changed;
    }
    let bits_after = (covered - 1 - bit / 8) * 8 + 7 - bit % 8;
    let checksum = match kind {
        BitmapKind::Block => &mut desc.block_bitmap_checksum,
        BitmapKind::Inode => &mut desc.inode_bitmap_checksum,
    };
    *checksum ^= cut(Crc32c::of_bit(bits_after), geometry);
    true
}

/// Truncates a checksum to the bits that the descriptor stores.
fn cut(checksum: u32, geometry: &Geometry) -> u32 {
    if geometry.desc_size < WIDE_DESC { checksum & 0xffff } else { checksum }
}

/// crc32c of the bytes that a full group uses, truncated to the bits that the descriptor stores;
/// `None` without metadata_csum.
///
/// # Panics
/// If `bitmap` is shorter than a block.
pub fn checksum(bitmap: &[u8], kind: BitmapKind, geometry: &Geometry) -> Option<u32> {
    if !geometry.has_metadata_csum() {
        return None;
    }
    let bytes = (kind.bits(geometry) / 8) as usize;
    let value = Crc32c::seeded(geometry.checksum_seed).bytes(&bitmap[..bytes]).value();
    Some(cut(value, geometry))
}

/// Whether a bit is set; false past the end.
pub fn test(bitmap: &[u8], bit: u32) -> bool {
    bitmap.get((bit / 8) as usize).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
}

/// Sets a bit. Returns whether it was clear before.
///
/// # Panics
/// If the bit is past the bitmap's end.
pub fn set(bitmap: &mut [u8], bit: u32) -> bool {
    let byte = &mut bitmap[(bit / 8) as usize];
    let was_clear = *byte >> (bit % 8) & 1 == 0;
    *byte |= 1 << (bit % 8);
    was_clear
}

/// Clears a bit. Returns whether it was set before.
///
/// # Panics
/// If the bit is past the bitmap's end.
pub fn clear(bitmap: &mut [u8], bit: u32) -> bool {
    let byte = &mut bitmap[(bit / 8) as usize];
    let was_set = *byte >> (bit % 8) & 1 == 1;
    *byte &= !(1 << (bit % 8));
    was_set
}

/// Sets all bits of a range.
///
/// # Panics
/// If the range ends past the bitmap's end.
pub fn set_range(bitmap: &mut [u8], bits: Range<u32>) {
    fill(bitmap, bits, true);
}

/// Clears all bits of a range.
///
/// # Panics
/// If the range ends past the bitmap's end.
pub fn clear_range(bitmap: &mut [u8], bits: Range<u32>) {
    fill(bitmap, bits, false);
}

fn fill(bitmap: &mut [u8], bits: Range<u32>, value: bool) {
    if bits.start >= bits.end {
        return;
    }
    let (first, last) = ((bits.start / 8) as usize, ((bits.end - 1) / 8) as usize);
    let front = 0xff_u8 << (bits.start % 8);
    let back = 0xff_u8 >> (7 - (bits.end - 1) % 8);
    let mut apply = |at: usize, mask: u8| {
        if value {
            bitmap[at] |= mask;
        } else {
            bitmap[at] &= !mask;
        }
    };
    if first == last {
        apply(first, front & back);
        return;
    }
    apply(first, front);
    apply(last, back);
    bitmap[first + 1..last].fill(if value { 0xff } else { 0 });
}

/// Sets the padding: all bits from `used_bits` to the end of the block.
pub fn pad(bitmap: &mut [u8], used_bits: u32) {
    let end = bit_len(bitmap);
    set_range(bitmap, used_bits.min(end)..end);
}

/// Whether all bits from `used_bits` to the end of the block are set.
pub fn is_padded(bitmap: &[u8], used_bits: u32) -> bool {
    next_clear(bitmap, used_bits..bit_len(bitmap)).is_none()
}

/// Number of set bits in a range; bits past the end count as clear.
pub fn count_set(bitmap: &[u8], bits: Range<u32>) -> u32 {
    let bits = bits.start..bits.end.min(bit_len(bitmap));
    words(bitmap, bits).map(|(_, word, mask)| (word & mask).count_ones()).sum()
}

/// The first set bit in a range; bits past the end are ignored.
pub fn next_set(bitmap: &[u8], bits: Range<u32>) -> Option<u32> {
    next(bitmap, bits, 0)
}

/// The first clear bit in a range; bits past the end are ignored.
pub fn next_clear(bitmap: &[u8], bits: Range<u32>) -> Option<u32> {
    next(bitmap, bits, u64::MAX)
}

fn next(bitmap: &[u8], bits: Range<u32>, invert: u64) -> Option<u32> {
    let bits = bits.start..bits.end.min(bit_len(bitmap));
    words(bitmap, bits).find_map(|(start, word, mask)| {
        let found = (word ^ invert) & mask;
        (found != 0).then(|| start + found.trailing_zeros())
    })
}

/// A run of bits with the same value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Run {
    /// The range of the bits.
    pub bits: Range<u32>,
    /// Whether they are set.
    pub is_set: bool,
}

/// Splits a range into its maximal runs of equal bits, in order. Bits past the bitmap's end are
/// left out.
pub fn runs(bitmap: &[u8], bits: Range<u32>) -> impl Iterator<Item = Run> + '_ {
    let end = bits.end.min(bit_len(bitmap));
    let mut at = bits.start;
    core::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let is_set = test(bitmap, at);
        let invert = if is_set { u64::MAX } else { 0 };
        let stop = next(bitmap, at..end, invert).unwrap_or(end);
        let run = Run { bits: at..stop, is_set };
        at = stop;
        Some(run)
    })
}

/// The runs of clear bits in a range: free clusters or inodes.
pub fn clear_runs(bitmap: &[u8], bits: Range<u32>) -> impl Iterator<Item = Range<u32>> + '_ {
    runs(bitmap, bits).filter(|run| !run.is_set).map(|run| run.bits)
}

/// Number of bits of a bitmap. A block has at most 2^19, so the number fits; longer slices are
/// truncated.
fn bit_len(bitmap: &[u8]) -> u32 {
    u32::try_from(bitmap.len().saturating_mul(8)).unwrap_or(u32::MAX)
}

/// The 64-bit words of a range: index of the first bit, the word, and the mask of the range's bits
/// in it.
fn words(bitmap: &[u8], bits: Range<u32>) -> impl Iterator<Item = (u32, u64, u64)> + '_ {
    let first = bits.start / 64;
    let last = if bits.start < bits.end { bits.end.div_ceil(64) } else { first };
    (first..last).map(move |index| {
        let start = index * 64;
        let at = (index * 8) as usize;
        let word = match bitmap[at..].first_chunk::<8>() {
            Some(bytes) => u64::from_le_bytes(*bytes),
            None => {
                let mut bytes = [0; 8];
                bytes[..bitmap.len() - at].copy_from_slice(&bitmap[at..]);
                u64::from_le_bytes(bytes)
            }
        };
        let front = u64::MAX << bits.start.saturating_sub(start).min(63);
        let back = u64::MAX >> (64 - (bits.end - start).min(64));
        (start, word, front & back)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn setting_says_whether_the_bit_was_clear() {
        let mut bitmap = [0; 8];
        assert!(set(&mut bitmap, 9));
        assert!(!set(&mut bitmap, 9));
        assert_eq!(bitmap, [0, 2, 0, 0, 0, 0, 0, 0]);
        assert!(clear(&mut bitmap, 9));
        assert!(!clear(&mut bitmap, 9));
    }

    #[test]
    fn padding_sets_every_bit_past_the_group_and_none_before() {
        let mut bitmap = [0; 4];
        pad(&mut bitmap, 13);
        assert_eq!(bitmap, [0, 0xe0, 0xff, 0xff]);
        assert!(is_padded(&bitmap, 13));
        assert!(!is_padded(&bitmap, 12));
        assert!(is_padded(&bitmap, 32));
    }

    #[test]
    fn an_empty_range_has_no_runs() {
        assert_eq!(runs(&[0xff; 8], 5..5).count(), 0);
        assert_eq!(runs(&[], 0..100).count(), 0);
    }

    /// As [`runs`], bit by bit.
    fn slow_runs(bitmap: &[u8], bits: Range<u32>) -> Vec<Run> {
        let mut runs: Vec<Run> = vec![];
        for bit in bits.start..bits.end.min(bit_len(bitmap)) {
            let is_set = test(bitmap, bit);
            match runs.last_mut() {
                Some(run) if run.is_set == is_set => run.bits.end = bit + 1,
                _ => runs.push(Run { bits: bit..bit + 1, is_set }),
            }
        }
        runs
    }

    fn bitmap_and_range() -> impl Strategy<Value = (Vec<u8>, Range<u32>)> {
        let byte = prop_oneof![Just(0_u8), Just(0xff), any::<u8>()];
        (prop::collection::vec(byte, 0..40), 0_u32..330, 0_u32..330)
            .prop_map(|(bitmap, a, b)| (bitmap, a.min(b)..a.max(b)))
    }

    proptest! {
        #[test]
        fn runs_are_those_found_bit_by_bit((bitmap, range) in bitmap_and_range()) {
            prop_assert_eq!(runs(&bitmap, range.clone()).collect::<Vec<_>>(), slow_runs(&bitmap, range));
        }

        #[test]
        fn counting_is_that_of_single_bits((bitmap, range) in bitmap_and_range()) {
            let slow = range.clone().filter(|&bit| test(&bitmap, bit)).count();
            prop_assert_eq!(count_set(&bitmap, range) as usize, slow);
        }

        #[test]
        fn filling_a_range_changes_its_bits_alone((mut bitmap, range) in bitmap_and_range()) {
            let end = bit_len(&bitmap);
            let range = range.start.min(end)..range.end.min(end);
            let before = bitmap.clone();
            set_range(&mut bitmap, range.clone());
            for bit in 0..end {
                prop_assert_eq!(test(&bitmap, bit), range.contains(&bit) || test(&before, bit));
            }
            clear_range(&mut bitmap, range.clone());
            for bit in 0..end {
                prop_assert_eq!(test(&bitmap, bit), !range.contains(&bit) && test(&before, bit));
            }
        }
    }
}
