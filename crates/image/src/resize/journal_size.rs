//! Another size for the journal inside a volume: a new one is written to free blocks, and takes the
//! place of the old one as a journal that moves does (see `journal.rs`).

use std::sync::Arc;

use extant_device::Device;
use extant_journal::{JournalLocation, Log, OneTransaction, ReplayBy};
use extant_offline::{OfflineVolume, back_up_journal, read_primary_superblock};
use extant_ondisk::inode::{Inode, InodeFlags};
use extant_ondisk::superblock::{RawSuperblock, State};
use extant_ondisk::{BlockNo, CompatFeatures, Geometry, InodeNo};

use super::error::ResizeError;
use super::staged::Staged;
use super::{Resize, write_superblock};
use crate::mkfs::JournalOptions;
use crate::mkfs::params::journal;

impl Resize<'_> {
    /// Gives the journal inside the volume a size in MiB, as mkfs gives it to a new one: blocks for
    /// fast commits come in addition, and stay as many. Returns its number of blocks.
    ///
    /// # Errors
    /// A volume without a journal, or with one on another device; a size that a journal cannot
    /// have, or for which too few blocks are free; a volume that is in use or damaged; and failures
    /// of a device. After a refusal the volume is as it was.
    pub fn set_journal_size(&self, megabytes: u32) -> Result<u32, ResizeError> {
        self.claimed(|| self.change_journal_size(megabytes))
    }

    fn change_journal_size(&self, megabytes: u32) -> Result<u32, ResizeError> {
        let device = &**self.device;
        let before = self.open_to_move()?;
        let geometry = before.geometry().clone();
        if !geometry.has_compat(CompatFeatures::HAS_JOURNAL) {
            return Err(ResizeError::NoJournal);
        }
        let number = InodeNo(before.raw.s_journal_inum.get());
        if number.0 == 0 {
            return Err(ResizeError::JournalElsewhere);
        }
        let inode = Inode::decode(&before.read_inode(number)?, number, &geometry)?;
        let map = before.read_map(number, &inode)?;
        let old: Vec<_> = map.all().collect();
        let blocks = self.journal_blocks(&before, megabytes)?;
        let size = u64::from(blocks) * u64::from(geometry.block_size);
        if inode.size == size {
            return Ok(blocks);
        }

        let staged = Arc::new(Staged::new(self.device.clone(), &geometry));
        let mut volume = OfflineVolume::open_strict(staged.clone() as Arc<dyn Device>)?;
        let goal = volume.journal_goal()?;
        let now = u64::try_from(self.env.now().seconds).unwrap_or_default();
        let file = volume.make_file(number, size, goal, InodeFlags::empty(), now)?;
        let used = |blocks: u64| blocks.div_ceil(u64::from(geometry.blocks_per_cluster));
        let (had, has) = (used(inode.size / u64::from(geometry.block_size)), used(blocks.into()));
        let place = JournalLocation::internal(&*staged, &volume.raw, &geometry)?;
        let at = volume.inode_offset(number).map(|at| at / u64::from(geometry.block_size));
        // Free blocks are written at once, the inode later.
        let (leads, free): (Vec<_>, Vec<_>) =
            staged.take_changes()?.into_iter().partition(|(block, _)| Some(block.0) == at);
        self.write_new_journal(&geometry, &file.data, &place, blocks)?;
        write_blocks(device, &geometry, &free)?;

        // As for a journal that moves: not clean until the old blocks are free.
        let state = volume.raw.s_state.get();
        let not_clean = |raw: &mut RawSuperblock| raw.s_state.set(state & !State::CLEAN.bits());
        let mut raw = read_primary_superblock(device)?;
        not_clean(&mut raw);
        raw.seal();
        write_superblock(device, &raw)?;
        volume.update_superblock(|raw| {
            not_clean(raw);
            let overhead = u64::from(raw.s_overhead_blocks.get());
            if overhead > 0 {
                let now = (overhead + has).saturating_sub(had);
                raw.s_overhead_blocks.set(u32::try_from(now).unwrap_or(0));
            }
        })?;
        volume.commit()?;
        self.switch(staged.take_changes()?, ReplayBy::All)?;

        write_blocks(device, &geometry, &leads)?;
        device.flush()?;

        volume.free_blocks_of(old)?;
        volume.update_superblock(|raw| {
            raw.s_state.set(state);
            if raw.s_jnl_backup_type == 1 {
                back_up_journal(raw, &file.inode);
            }
        })?;
        self.set_write_time(&mut volume)?;
        volume.commit()?;
        self.switch(staged.take_changes()?, ReplayBy::All)?;
        self.write_backups()?;
        Ok(blocks)
    }

    /// The number of blocks of the new journal.
    fn journal_blocks(&self, volume: &OfflineVolume, megabytes: u32) -> Result<u32, ResizeError> {
        let geometry = volume.geometry();
        let place = JournalLocation::internal(&**self.device, &volume.raw, geometry)?;
        let (_, superblock) = Log { device: &**self.device, place: &place }.superblock()?;
        let options = JournalOptions { megabytes: Some(megabytes), ..JournalOptions::default() };
        let fits = journal::blocks(geometry.blocks_count, geometry.block_size, &options, false)
            .map_err(ResizeError::JournalSize)?;
        let (blocks, _) = fits.filter(|_| megabytes > 0).ok_or(ResizeError::NoJournalSize)?;
        Ok(blocks.saturating_add(superblock.fast_commit_blocks))
    }

    /// Writes an empty log of this number of blocks to blocks that are free.
    fn write_new_journal(
        &self,
        geometry: &Geometry,
        data: &[std::ops::Range<u64>],
        place: &JournalLocation,
        blocks: u32,
    ) -> Result<(), ResizeError> {
        let device = &**self.device;
        for run in data {
            let bytes = geometry.byte_of(BlockNo(run.start))..geometry.byte_of(BlockNo(run.end));
            device.write_zeroes(bytes)?;
        }
        let journal = OneTransaction::open(device, None)?.ok_or(ResizeError::NoJournal)?;
        Ok(journal.copy_superblock(place, Some(blocks))?)
    }
}

fn write_blocks(
    device: &dyn Device,
    geometry: &Geometry,
    blocks: &[(BlockNo, Vec<u8>)],
) -> Result<(), ResizeError> {
    for (block, bytes) in blocks {
        device.write_at(geometry.byte_of(*block), bytes)?;
    }
    Ok(())
}
