//! Changes of a volume that is not in use, made as one transaction: after a power cut either all of
//! them are found or none, once the journal is replayed.

use extant_device::Device;
use extant_offline::read_primary_superblock;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, Superblock};
use extant_ondisk::{
    BlockNo, CompatFeatures, Geometry, IncompatFeatures, MetadataChecksum, RoCompatFeatures, Uuid,
};
use extant_runtime::env::WallTime;
use zerocopy::{FromBytes, IntoBytes};

use crate::live::{JournalOptions, SetFeatures};
use crate::recovery::set_needs_recovery;
use crate::transaction_blocks::{Built, Flushes, around, needed};
use crate::{JournalError, JournalLocation, Log, LogHistory};

/// The programs that may replay a transaction after a power cut.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReplayBy {
    /// The kernel and all others.
    All,
    /// All but the kernel, which refuses to mount the volume until then: it reads the size of the
    /// descriptors before it replays a log, and would keep to it afterwards.
    AllButKernel,
}

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

    /// Writes the journal superblock, of an empty log, to another place; with `blocks` for a
    /// journal of that number of blocks. Nothing is flushed.
    ///
    /// # Errors
    /// The log is not empty ([`JournalError::NotRecovered`]), or the device failed.
    pub fn copy_superblock(
        &self,
        to: &JournalLocation,
        blocks: Option<u32>,
    ) -> Result<(), JournalError> {
        let (mut raw, mut superblock) = self.log(&self.place).superblock()?;
        if superblock.start != 0 {
            return Err(JournalError::NotRecovered);
        }
        if let Some(blocks) = blocks {
            // The block where the last log ended may lie past the end.
            superblock.head = 0;
            superblock.encode_into(&mut raw);
            raw.s_maxlen.set(blocks);
            raw.seal();
        }
        self.log(to).write_superblock_bytes(raw.as_bytes())
    }

    /// Makes the changes: blocks of the volume with their new contents. Everything that was written
    /// before is flushed first. The changes must not move the journal: a log is found and replayed
    /// by the journal's inode as a power cut left it.
    ///
    /// With [`ReplayBy::AllButKernel`] the superblock names a journal device in addition to the
    /// journal's inode while the log is not empty. The kernel does not mount such a volume; e2fsck
    /// and [`recover_volume`](crate::recover_volume) replay it, and the superblock in the log names
    /// the inode alone. After a power cut before the log was found the name may be left over.
    ///
    /// # Errors
    /// The log is not empty ([`JournalError::NotRecovered`]), or a device failed. If the
    /// transaction was written, the next recovery makes the changes.
    ///
    /// # Panics
    /// If there are more blocks than [`Self::capacity`].
    pub fn change(
        &self,
        blocks: Vec<(BlockNo, Vec<u8>)>,
        time: WallTime,
        replay: ReplayBy,
    ) -> Result<(), JournalError> {
        let (_, superblock) = self.log(&self.place).superblock()?;
        self.change_at(superblock.log().start, blocks, time, replay).map(|_| ())
    }

    /// Makes the changes as [`Self::change`] does, and leaves the log as it was: the transaction
    /// lies after those of which the log still holds copies, and is taken out again.
    ///
    /// # Errors
    /// As of [`Self::change`].
    ///
    /// # Panics
    /// If there are more blocks than [`Self::capacity`].
    pub fn change_past_copies(
        &self,
        blocks: Vec<(BlockNo, Vec<u8>)>,
        time: WallTime,
    ) -> Result<(), JournalError> {
        let log = self.log(&self.place);
        let (before, superblock) = log.superblock()?;
        let range = superblock.log();
        let found = LogHistory::read(&log, &superblock)?.transactions;
        let last = found.iter().rfind(|it| it.tid.is_before(superblock.sequence));
        let start = last.map_or(range.start, |last| around(&range, last.start, last.len));
        let count = self.change_at(start, blocks, time, ReplayBy::All)?;
        let zeros = vec![0; log.block_size() as usize];
        for at in (0..count).map(|at| around(&range, start, at)) {
            self.device.submit(&mut log.writes(at, &[&zeros])?)?;
        }
        self.device.flush()?;
        // Its number is free again.
        log.write_superblock_bytes(before.as_bytes())?;
        Ok(self.device.flush()?)
    }

    /// Makes the changes with the transaction at a place of the log; how many blocks of the log it
    /// takes.
    fn change_at(
        &self,
        start: u32,
        mut blocks: Vec<(BlockNo, Vec<u8>)>,
        time: WallTime,
        replay: ReplayBy,
    ) -> Result<u32, JournalError> {
        let log = self.log(&self.place);
        let (mut raw, mut superblock) = log.superblock()?;
        if superblock.start != 0 {
            return Err(JournalError::NotRecovered);
        }
        superblock.set_features(&self.geometry, &JournalOptions::default());
        let (format, range, tid) = (superblock.log_format(), superblock.log(), superblock.sequence);
        let is_smaller = self.mark_needs_recovery(&mut blocks);
        let built = Built::new(&format, tid, time, &blocks, &[]);
        let count = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
        let capacity = self.capacity()?;
        assert!(blocks.len() as u64 <= u64::from(capacity), "{} blocks", blocks.len());
        self.volume.flush()?;
        (superblock.start, superblock.head) = (start, 0);
        set_needs_recovery(self.volume, true)?;
        if replay == ReplayBy::AllButKernel {
            // The log is complete when it is found, and the kernel is barred by then.
            built.write(&log, &range, start, &blocks, Flushes::Both)?;
            self.bar_kernel()?;
        }
        log.write_superblock(&mut raw, &superblock)?;
        self.device.flush()?;
        if replay == ReplayBy::All {
            built.write(&log, &range, start, &blocks, Flushes::Both)?;
        }
        let before = read_primary_superblock(self.volume)?;
        if self.new_superblock(&blocks).is_some_and(|after| changes_checksums(&before, &after)) {
            self.ignore_checksums()?;
        }
        self.write_home(&blocks, is_smaller, replay)?;
        (superblock.start, superblock.sequence) = (0, tid.next());
        log.write_superblock(&mut raw, &superblock)?;
        self.device.flush()?;
        set_needs_recovery(self.volume, false)?;
        Ok(needed(&format, count, 0))
    }

    /// Writes the blocks to their places. Whatever of them a cut leaves, the superblock and the
    /// descriptors on the device lead to the journal.
    fn write_home(
        &self,
        blocks: &[(BlockNo, Vec<u8>)],
        is_smaller: bool,
        replay: ReplayBy,
    ) -> Result<(), JournalError> {
        let primary = self.geometry.superblock_block();
        // It has group 0's descriptor at the same place in either size. Other blocks may come where
        // that group's tables were.
        let first = self.geometry.desc_block(0);
        // The kernel reads the superblock and the descriptors of all its groups before it replays:
        // none of them may be missing.
        let turn = |block: BlockNo| match block {
            block if block == primary => {
                if is_smaller {
                    0
                } else {
                    3
                }
            }
            block if block == first && replay == ReplayBy::AllButKernel => 1,
            _ => 2,
        };
        for now in 0..=3 {
            let mut part = blocks.iter().filter(|(block, _)| turn(*block) == now).peekable();
            if part.peek().is_none() {
                continue;
            }
            for (block, bytes) in part {
                self.volume.write_at(self.geometry.byte_of(*block), bytes)?;
            }
            self.volume.flush()?;
        }
        Ok(())
    }

    /// The volume's new superblock, if it is one of the blocks.
    fn new_superblock(&self, blocks: &[(BlockNo, Vec<u8>)]) -> Option<RawSuperblock> {
        let primary = self.geometry.superblock_block();
        let at = (SUPERBLOCK_OFFSET - self.geometry.byte_of(primary)) as usize;
        let (_, bytes) = blocks.iter().find(|(block, _)| *block == primary)?;
        RawSuperblock::read_from_bytes(bytes.get(at..at + size_of::<RawSuperblock>())?).ok()
    }

    /// Clears the features of checksums in the superblock while the blocks are written to their
    /// places: the first descriptor and the journal's inode lead to the log with their old
    /// checksums and with their new ones. The superblock in the log has the features.
    fn ignore_checksums(&self) -> Result<(), JournalError> {
        let mut raw = without_checksums(read_primary_superblock(self.volume)?);
        raw.seal();
        self.volume.write_at(SUPERBLOCK_OFFSET, raw.as_bytes())?;
        Ok(self.volume.flush()?)
    }

    /// Names a journal device in the superblock.
    fn bar_kernel(&self) -> Result<(), JournalError> {
        let mut raw = read_primary_superblock(self.volume)?;
        raw.s_journal_dev.set(1);
        raw.seal();
        self.volume.write_at(SUPERBLOCK_OFFSET, raw.as_bytes())?;
        Ok(self.volume.flush()?)
    }

    /// Sets needs_recovery in the superblock of the log, as in the log of a mounted volume. Returns
    /// whether the volume gets fewer blocks, or smaller descriptors.
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
            is_smaller |= Superblock::decode(&raw).blocks_count < self.geometry.blocks_count
                || self.geometry.has_incompat(IncompatFeatures::BIT64)
                    && !features.incompat.contains(IncompatFeatures::BIT64);
        }
        is_smaller
    }
}

/// Whether the checksums of all descriptors or inodes change.
pub fn changes_checksums(before: &RawSuperblock, after: &RawSuperblock) -> bool {
    let form = |raw: &RawSuperblock| match raw.features().checksum() {
        MetadataChecksum::Crc32c => (Some(MetadataChecksum::Crc32c), raw.checksum_seed(), [0; 16]),
        MetadataChecksum::None => (None, 0, [0; 16]),
        kind => (Some(kind), 0, raw.s_uuid),
    };
    form(before) != form(after)
}

/// A superblock without features of checksums, and otherwise the same.
pub(crate) fn without_checksums(mut raw: RawSuperblock) -> RawSuperblock {
    let mut features = raw.features();
    features.ro_compat -= RoCompatFeatures::METADATA_CSUM | RoCompatFeatures::GDT_CSUM;
    features.incompat -= IncompatFeatures::CSUM_SEED;
    raw.set_features(features);
    raw
}
