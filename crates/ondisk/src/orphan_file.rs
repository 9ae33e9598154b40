//! A block of the orphan file: inodes whose deletion or truncation must be completed.
//!
//! Source: `orphan.rst`. The checksum covers the physical block number too, so that a stale block
//! elsewhere is detected.

use crate::checksum::Crc32c;
use crate::types::{BlockNo, FileBlock, InodeNo};
use crate::{Flaw, FormatError, Geometry, Location};
use core::mem::size_of;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `ob_magic`.
pub const ORPHAN_BLOCK_MAGIC: u32 = 0x0b10_ca04;
/// Size of the tail in bytes.
const TAIL_LEN: usize = 8;

/// The last bytes of a block, as stored.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[allow(missing_docs, reason = "the kernel's field names, documented in orphan.rst")]
pub struct RawOrphanTail {
    pub ob_magic: U32,
    pub ob_checksum: U32,
}

const _: () = assert!(size_of::<RawOrphanTail>() == TAIL_LEN);

/// The format of the blocks of a volume's orphan file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OrphanFileFormat {
    /// The orphan file's inode.
    pub inode: InodeNo,
    /// The inode's checksum seed with metadata_csum.
    pub checksum_seed: Option<u32>,
}

impl OrphanFileFormat {
    /// The format for the orphan file with this inode and generation.
    pub fn new(geometry: &Geometry, inode: InodeNo, generation: u32) -> Self {
        let checksum_seed =
            geometry.has_metadata_csum().then(|| geometry.inode_checksum_seed(inode, generation));
        Self { inode, checksum_seed }
    }

    /// Number of orphans in a block.
    pub fn capacity(block_len: usize) -> usize {
        block_len.saturating_sub(TAIL_LEN) / size_of::<U32>()
    }

    /// Verifies the magic number, and the checksum if there is one. `at` is the logical, `block_no`
    /// the physical block.
    ///
    /// # Errors
    /// [`Flaw::Magic`], [`Flaw::Checksum`], or a block that is too short for its tail.
    pub fn verify(
        &self,
        block: &[u8],
        at: FileBlock,
        block_no: BlockNo,
    ) -> Result<(), FormatError> {
        let location = Location::OrphanFile(self.inode, at);
        let (entries, tail) = RawOrphanTail::read_from_suffix(block)
            .map_err(|_| Flaw::truncated(block.len(), TAIL_LEN).at(location))?;
        if tail.ob_magic.get() != ORPHAN_BLOCK_MAGIC {
            return Err(Flaw::magic(tail.ob_magic.get(), ORPHAN_BLOCK_MAGIC).at(location));
        }
        if let Some(seed) = self.checksum_seed {
            let (found, computed) = (tail.ob_checksum.get(), checksum(seed, entries, block_no));
            if found != computed {
                return Err(Flaw::checksum(found, computed).at(location));
            }
        }
        Ok(())
    }

    /// Sets magic number and checksum; the last step before the bytes are written. The checksum is
    /// 0 without metadata_csum (e2fsck treats a block with another value as in use).
    pub fn seal(&self, block: &mut [u8], block_no: BlockNo) {
        if let Ok((entries, tail)) = RawOrphanTail::mut_from_suffix(block) {
            tail.ob_magic.set(ORPHAN_BLOCK_MAGIC);
            let stored = self.checksum_seed.map_or(0, |seed| checksum(seed, entries, block_no));
            tail.ob_checksum.set(stored);
        }
    }
}

/// Covers the inode's seed, the physical block number and the entries.
fn checksum(seed: u32, entries: &[u8], block_no: BlockNo) -> u32 {
    Crc32c::seeded(seed).bytes(&block_no.0.to_le_bytes()).bytes(entries).value()
}

/// The slots of a block; free ones are `None`. The caller checks whether the inodes exist.
pub fn orphans(block: &[u8]) -> impl Iterator<Item = Option<InodeNo>> + '_ {
    let entries = &block[..OrphanFileFormat::capacity(block.len()) * size_of::<U32>()];
    entries.chunks_exact(size_of::<U32>()).map(|slot| {
        let stored = U32::read_from_bytes(slot).map_or(0, U32::get);
        (stored != 0).then_some(InodeNo(stored))
    })
}

/// Sets or clears a slot. Returns false if the block has no such slot.
pub fn set_orphan(block: &mut [u8], slot: usize, orphan: Option<InodeNo>) -> bool {
    if slot >= OrphanFileFormat::capacity(block.len()) {
        return false;
    }
    let stored = U32::new(orphan.map_or(0, |inode| inode.0));
    block[slot * 4..slot * 4 + 4].copy_from_slice(stored.as_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const FORMAT: OrphanFileFormat =
        OrphanFileFormat { inode: InodeNo(12), checksum_seed: Some(5) };
    const PLACE: Location = Location::OrphanFile(InodeNo(12), FileBlock(1));

    fn verify(block: &[u8], block_no: u64) -> Result<(), FormatError> {
        FORMAT.verify(block, FileBlock(1), BlockNo(block_no))
    }

    #[test]
    fn a_sealed_block_lists_its_orphans() {
        let mut block = vec![0; 1024];
        assert!(set_orphan(&mut block, 253, Some(InodeNo(77))));
        assert!(!set_orphan(&mut block, 254, Some(InodeNo(78))));
        FORMAT.seal(&mut block, BlockNo(600));
        assert_eq!(verify(&block, 600), Ok(()));
        let found: Vec<_> = orphans(&block).flatten().collect();
        assert_eq!(found, [InodeNo(77)]);
        assert!(set_orphan(&mut block, 253, None));
        assert_eq!(orphans(&block).flatten().count(), 0);
    }

    #[test]
    fn a_block_at_another_place_is_not_believed() {
        let mut block = vec![0; 1024];
        FORMAT.seal(&mut block, BlockNo(600));
        let found = u32::from_le_bytes(block[1020..].try_into().unwrap());
        let computed = checksum(5, &block[..1016], BlockNo(601));
        assert_eq!(verify(&block, 601), Err(Flaw::checksum(found, computed).at(PLACE)));
    }

    #[test]
    fn a_block_without_magic_is_refused() {
        let expected = Flaw::magic(0_u32, ORPHAN_BLOCK_MAGIC).at(PLACE);
        assert_eq!(verify(&[0; 1024], 600), Err(expected));
        assert_eq!(verify(&[0; 7], 600), Err(Flaw::truncated(7, 8).at(PLACE)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(block in proptest::collection::vec(any::<u8>(), 0..64), slot in 0_usize..20) {
            let _ = verify(&block, 1);
            prop_assert_eq!(orphans(&block).count(), block.len().saturating_sub(8) / 4);
            let mut edited = block.clone();
            let _ = set_orphan(&mut edited, slot, Some(InodeNo(1)));
            FORMAT.seal(&mut edited, BlockNo(1));
        }
    }
}
