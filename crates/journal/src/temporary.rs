//! Changes of a volume that is not in use and has no journal, or an external one, made as one
//! transaction of a log in free blocks, which exists for that time only.
//!
//! First the log is complete in blocks that the volume does not use. Then the journal's inode is
//! written to the volume, which says "not clean": e2fsck clears it there. One write of the
//! superblock makes that inode the journal: from now on a replay makes all changes. The superblock
//! in the log has no journal, or the external one. When all changes are at their places, that
//! superblock is written, still "not clean", and the inode is cleared at last. The kernel does not
//! mount the volume in between, since the superblock names a journal device in addition to the
//! inode.

use extant_device::Device;
use extant_offline::read_primary_superblock;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, State};
use extant_ondisk::{BlockNo, CompatFeatures, Geometry, IncompatFeatures, InodeNo};
use extant_runtime::env::WallTime;
use zerocopy::IntoBytes;

use crate::live::{JournalOptions, SetFeatures};
use crate::one_transaction::without_checksums;
use crate::transaction_blocks::{Built, Flushes, needed};
use crate::{JournalError, JournalLocation, Log};

/// A log in free blocks of a volume, with an empty journal.
#[derive(Debug)]
pub struct TemporaryLog<'a> {
    /// The volume.
    pub volume: &'a dyn Device,
    /// The primary superblock with the changes.
    pub after: RawSuperblock,
    /// The blocks of the log.
    pub place: JournalLocation,
    /// The block of the journal's inode, with the inode that leads to the log.
    pub with_inode: Vec<u8>,
    /// The same block with the changes and that inode.
    pub changed_with_inode: Vec<u8>,
    /// The same block with the changes, without the inode.
    pub changed: (BlockNo, Vec<u8>),
    /// Whether the checksums of inodes change, or whether they have checksums.
    pub changes_checksums: bool,
}

impl TemporaryLog<'_> {
    /// Number of blocks of a log for a transaction of `count` blocks.
    pub fn size_for(geometry: &Geometry, count: u32) -> u32 {
        /// The fewest blocks of a journal.
        const LEAST: u32 = 1024;
        // The journal superblock, the commit block, and a descriptor block for the fewest tags.
        let tags = geometry.block_size / 32;
        LEAST.max(count.saturating_add(count.div_ceil(tags)).saturating_add(8))
    }

    /// Makes the changes: blocks of the volume with their new contents, among them the primary
    /// superblock and the block of the journal's inode.
    ///
    /// # Errors
    /// The device failed. If the transaction was written, the next recovery makes the changes.
    ///
    /// # Panics
    /// If the log is too small.
    pub fn change(
        &self,
        blocks: &[(BlockNo, Vec<u8>)],
        time: WallTime,
    ) -> Result<(), JournalError> {
        let before = read_primary_superblock(self.volume)?;
        let geometry = Geometry::new(&before)?;
        let log = Log { device: self.volume, place: &self.place };
        let (mut raw, mut superblock) = log.superblock()?;
        superblock.set_features(&geometry, &JournalOptions::default());
        let (format, range, tid) = (superblock.log_format(), superblock.log(), superblock.sequence);
        let count = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
        assert!(needed(&format, count, 0) < range.end - range.start, "{count} blocks");
        let built = Built::new(&format, tid, time, blocks, &[]);
        built.write(&log, &range, range.start, blocks, Flushes::Both)?;
        superblock.start = range.start;
        log.write_superblock(&mut raw, &superblock)?;
        self.volume.flush()?;

        let (inode_block, changed) = (self.changed.0, &self.changed.1);
        let unclean = |raw: &RawSuperblock| {
            let mut raw = *raw;
            raw.s_state.set(raw.s_state.get() & !State::CLEAN.bits());
            raw
        };
        self.write_superblock(unclean(&before))?;
        self.write(&geometry, inode_block, &self.with_inode)?;
        self.volume.flush()?;
        self.lead_to_log(unclean(&before))?;
        let primary = geometry.superblock_block();
        for (block, bytes) in blocks {
            if *block != primary && *block != inode_block {
                self.write(&geometry, *block, bytes)?;
            }
        }
        self.write(&geometry, inode_block, &self.changed_with_inode)?;
        self.volume.flush()?;
        self.write_superblock(unclean(&self.after))?;
        self.write(&geometry, inode_block, changed)?;
        self.volume.flush()?;
        self.write_superblock(self.after)
    }

    /// Makes the log the volume's journal.
    fn lead_to_log(&self, before: RawSuperblock) -> Result<(), JournalError> {
        let mut raw = before;
        let mut features = raw.features();
        features.compat |= CompatFeatures::HAS_JOURNAL;
        features.incompat |= IncompatFeatures::RECOVER;
        raw.set_features(features);
        if self.changes_checksums {
            raw = without_checksums(raw);
        }
        raw.s_journal_inum.set(InodeNo::JOURNAL.0);
        raw.s_journal_dev.set(1);
        raw.s_journal_uuid = [0; 16];
        raw.s_jnl_backup_type = 0;
        self.write_superblock(raw)
    }

    fn write_superblock(&self, mut raw: RawSuperblock) -> Result<(), JournalError> {
        raw.seal();
        self.volume.write_at(SUPERBLOCK_OFFSET, raw.as_bytes())?;
        Ok(self.volume.flush()?)
    }

    fn write(&self, geometry: &Geometry, block: BlockNo, bytes: &[u8]) -> Result<(), JournalError> {
        Ok(self.volume.write_at(geometry.byte_of(block), bytes)?)
    }
}
