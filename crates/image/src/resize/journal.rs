//! The journal moves in a step of its own.
//!
//! A log is found by the map of the journal's inode, so no transaction may change this map: a power
//! cut could leave the new map and blocks of the transaction that are missing, with the log at the
//! old place. Between two transactions the log is empty. The new place gets an empty log, and one
//! write of the inode leads to it. Its new blocks are claimed by a transaction before, and its old
//! blocks are freed by a transaction afterwards. Between them the volume is not clean, since blocks
//! in use have no owner: a check frees them after a power cut.

use extant_journal::{JournalLocation, OneTransaction};
use extant_offline::{back_up_journal, read_primary_superblock};
use extant_ondisk::superblock::{RawSuperblock, State};

use super::error::ResizeError;
use super::plan::MovedFile;
use super::shrink::Work;
use super::write_superblock;

impl Work<'_> {
    /// Moves the journal. All nodes of its map are at new places, so that the inode alone leads to
    /// the old map or to the new one.
    pub(super) fn move_journal(&mut self, file: &MovedFile) -> Result<(), ResizeError> {
        self.flush()?;
        let state = self.volume.raw.s_state.get();
        let ratio = u64::from(self.volume.geometry().blocks_per_cluster);
        let device = &**self.resize.device;
        let not_clean = |raw: &mut RawSuperblock| raw.s_state.set(state & !State::CLEAN.bits());
        // The kernel reads the state before it replays a log, and writes that back.
        let mut raw = read_primary_superblock(device)?;
        not_clean(&mut raw);
        raw.seal();
        write_superblock(device, &raw)?;
        self.volume.claim_blocks(file.taken(ratio))?;
        self.volume.update_superblock(not_clean)?;
        self.flush()?;

        let journal = OneTransaction::open(device, self.resize.journal)?;
        file.taken(ratio).for_each(|run| self.staged.add_unused(run));
        let inode = self.write_file_map(file)?;
        if let Some(journal) = journal {
            let (volume, staged) = (&self.volume, &*self.staged);
            let place = JournalLocation::internal(staged, &volume.raw, volume.geometry())?;
            journal.copy_superblock(&place, None)?;
        }
        device.flush()?;
        // The block of the inode.
        for (block, bytes) in self.staged.take_changes()? {
            device.write_at(self.volume.geometry().byte_of(block), &bytes)?;
        }
        device.flush()?;
        self.staged.clear_unused();

        self.volume.free_blocks_of(file.left(ratio))?;
        self.volume.update_superblock(|raw| {
            raw.s_state.set(state);
            if raw.s_jnl_backup_type == 1 {
                back_up_journal(raw, &inode);
            }
        })?;
        self.flush()
    }
}
