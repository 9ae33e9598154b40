//! A journal whose map is broken past the part of the log that waits: that part is replayed before
//! the journal is given up, as if the map were whole.

use super::{OpenError, Pass0, has};
use crate::finding::{Code, Finding};
use extant_journal::{Finish, JournalLocation, Log, LogHistory, recover};
use extant_ondisk::inode::{FileType, Inode};
use extant_ondisk::{IncompatFeatures, InodeNo};

/// Blocks that a broken map may lack.
const MOST_LACKING: u32 = 1 << 20;

/// A journal of which only the first blocks are known.
struct PartOfLog {
    /// With blocks that hold no part of a log in place of those that are not known.
    place: JournalLocation,
    /// Number of blocks that are known.
    known: u32,
}

impl Pass0<'_> {
    /// Replays the log of a journal with a broken map, where all that waits lies in blocks that the
    /// map still has. The log is not changed.
    pub(super) fn replay_known_part(&mut self, number: InodeNo) -> Result<(), OpenError> {
        if !self.may_repair() || !has(&self.volume.raw, IncompatFeatures::RECOVER) {
            return Ok(());
        }
        let Some(part) = self.known_part(number) else { return Ok(()) };
        let device = self.volume.device().clone();
        let log = Log { device: &*device, place: &part.place };
        if !has_all_that_waits(&log, part.known) {
            return Ok(());
        }
        self.report(Finding::new(Code::JournalRecovered))?;
        self.mark_unclean()?;
        let recovered = recover(&*device, &log, Finish::Leave)?;
        self.reload()?;
        Ok(self.check_recovery(&recovered)?)
    }

    fn known_part(&self, number: InodeNo) -> Option<PartOfLog> {
        let geometry = self.volume.geometry();
        let record = self.volume.read_inode(number).ok()?;
        let inode = Inode::decode(&record, number, geometry).ok()?;
        let blocks = u32::try_from(inode.size >> geometry.block_bits()).ok()?;
        if inode.file_type() != Some(FileType::Regular) || inode.links == 0 {
            return None;
        }
        let (mut runs, _) = self.blocks_of_map(number, &inode);
        let known = runs.blocks_count();
        let lacking = blocks.checked_sub(known).filter(|lacking| *lacking <= MOST_LACKING)?;
        for _ in 0..lacking {
            // The superblock has no header of a log.
            if !runs.push(geometry.superblock_block(), 1) {
                return None;
            }
        }
        let block_size = geometry.block_size;
        Some(PartOfLog { place: JournalLocation { runs, superblock_at: 0, block_size }, known })
    }
}

/// Whether the transactions that wait are whole, and they and the block after them lie in the first
/// `known` blocks. Fast commits lie at the log's end.
fn has_all_that_waits(log: &Log<'_>, known: u32) -> bool {
    let Ok((_, superblock)) = log.superblock() else { return false };
    let Ok(history) = LogHistory::read(log, &superblock) else { return false };
    let mut waiting = history.transactions.iter().filter(|it| it.needs_replay).peekable();
    superblock.fast_commit_blocks == 0
        && history.complete_from.is_some()
        && waiting.peek().is_some()
        && waiting.all(|it| it.start.checked_add(it.len).is_some_and(|end| end < known))
}
