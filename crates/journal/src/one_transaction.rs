//! Changes of a volume that is not in use, made as one transaction: after a power cut either all of
//! them are found or none, once the journal is replayed.

use extant_device::Device;
use extant_offline::read_primary_superblock;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, Superblock};
use extant_ondisk::{BlockNo, CompatFeatures, Geometry, IncompatFeatures, Uuid};
use extant_runtime::env::WallTime;
use zerocopy::{FromBytes, IntoBytes};

use crate::live::{JournalOptions, SetFeatures};
use crate::recovery::set_needs_recovery;
use crate::transaction_blocks::{Built, Flushes, needed};
use crate::{JournalError, JournalLocation, Log};

/// The journal of a volume, empty, that takes one transaction at a time.
#[derive(Debug)]
pub struct OneTransaction<'a> {
    volume: &'a dyn Device,
    /// The device of the journal: the volume, or the journal's own.
    device: &'a dyn Device,
    place: JournalLocation,
    geometry: Geometry,
}

impl<'a> OneTransaction<'a> {
    /// Finds the journal of a volume: inside, or on the device given. `None` if it has none.
    ///
    /// # Errors
    /// The journal cannot be found, is another volume's or invalid, or a device failed.
    pub fn open(
        volume: &'a dyn Device,
        external: Option<&'a dyn Device>,
    ) -> Result<Option<Self>, JournalError> {
        let raw = read_primary_superblock(volume)?;
        let geometry = Geometry::new(&raw)?;
        if !geometry.has_compat(CompatFeatures::HAS_JOURNAL) {
            return Ok(None);
        }
        let (device, place) = if raw.s_journal_inum.get() != 0 {
            (volume, JournalLocation::internal(volume, &raw, &geometry)?)
        } else if let Some(device) = external {
            (device, JournalLocation::external(device, &raw, &geometry)?)
        } else {
            return Err(JournalError::ExternalJournalNeeded(Uuid(raw.s_journal_uuid)));
        };
        Ok(Some(Self { volume, device, place, geometry }))
    }

    /// Maximum number of blocks of a transaction.
    ///
    /// # Errors
    /// The journal superblock is invalid, or the device failed.
    pub fn capacity(&self) -> Result<u32, JournalError> {
        let (_, mut superblock) = self.log(&self.place).superblock()?;
        superblock.set_features(&self.geometry, &JournalOptions::default());
        let (format, log) = (superblock.log_format(), superblock.log());
        // One block stays free, so that the log does not end where it begins.
        let room = (log.end - log.start).saturating_sub(1);
        let mut count = room;
        while count > 0 && needed(&format, count, 0) > room {
            count -= needed(&format, count, 0) - room;
        }
        Ok(count)
    }

    fn log<'b>(&'b self, place: &'b JournalLocation) -> Log<'b> {
        Log { device: self.device, place }
    }

    /// Makes the changes: blocks of the volume with their new contents. Everything that was written
    /// before is flushed first. `moved_to` is the place of the journal after the changes, where
    /// these move it; its blocks must be free.
    ///
    /// # Errors
    /// The log is not empty ([`JournalError::NotRecovered`]), or a device failed. If the
    /// transaction was written, the next recovery makes the changes.
    ///
    /// # Panics
    /// If there are more blocks than [`Self::capacity`].
    pub fn change(
        &self,
        mut blocks: Vec<(BlockNo, Vec<u8>)>,
        time: WallTime,
        moved_to: Option<&JournalLocation>,
    ) -> Result<(), JournalError> {
        let log = self.log(&self.place);
        let (mut raw, mut superblock) = log.superblock()?;
        if superblock.start != 0 {
            return Err(JournalError::NotRecovered);
        }
        superblock.set_features(&self.geometry, &JournalOptions::default());
        let (format, range, tid) = (superblock.log_format(), superblock.log(), superblock.sequence);
        let is_smaller = self.mark_needs_recovery(&mut blocks);
        let built = Built::new(&format, tid, time, &blocks, &[]);
        let capacity = self.capacity()?;
        assert!(blocks.len() as u64 <= u64::from(capacity), "{} blocks", blocks.len());
        self.volume.flush()?;
        (superblock.start, superblock.head) = (range.start, 0);
        // The new place has the same log: while the changes are written, either may be found.
        if let Some(place) = moved_to {
            let log = self.log(place);
            log.write_superblock_bytes(raw.as_bytes())?;
            log.write_superblock(&mut raw, &superblock)?;
            built.write(&log, &range, range.start, &blocks, Flushes::Both)?;
        }
        set_needs_recovery(self.volume, true)?;
        log.write_superblock(&mut raw, &superblock)?;
        self.device.flush()?;
        built.write(&log, &range, range.start, &blocks, Flushes::Both)?;
        // The kernel reads the superblock and the descriptors of all its groups before it replays:
        // none of them may be missing.
        let primary = self.geometry.superblock_block();
        let (first, then): (Vec<_>, Vec<_>) =
            blocks.iter().partition(|(block, _)| (*block == primary) == is_smaller);
        for part in [first, then] {
            for (block, bytes) in part {
                self.volume.write_at(self.geometry.byte_of(*block), bytes)?;
            }
            self.volume.flush()?;
        }
        (superblock.start, superblock.sequence) = (0, tid.next());
        let now_at = self.log(moved_to.unwrap_or(&self.place));
        now_at.write_superblock(&mut raw, &superblock)?;
        self.device.flush()?;
        set_needs_recovery(self.volume, false)
    }

    /// Sets needs_recovery in the superblock of the log, as in the log of a mounted volume. Returns
    /// whether the volume gets fewer blocks.
    fn mark_needs_recovery(&self, blocks: &mut [(BlockNo, Vec<u8>)]) -> bool {
        let mut is_smaller = false;
        let at = SUPERBLOCK_OFFSET - self.geometry.byte_of(self.geometry.superblock_block());
        let primary = self.geometry.superblock_block();
        for (_, bytes) in blocks.iter_mut().filter(|(block, _)| *block == primary) {
            // Within a block, whose length is an index.
            let bytes = &mut bytes[at as usize..at as usize + size_of::<RawSuperblock>()];
            let Ok(mut raw) = RawSuperblock::read_from_bytes(bytes) else { continue };
            let mut features = raw.features();
            features.incompat |= IncompatFeatures::RECOVER;
            raw.set_features(features);
            raw.seal();
            bytes.copy_from_slice(raw.as_bytes());
            is_smaller |= Superblock::decode(&raw).blocks_count < self.geometry.blocks_count;
        }
        is_smaller
    }
}
