//! Fast commits on a damaged volume: the blocks that their replay reads are restored from the log
//! first, and only what cannot be replayed even then is left out.
//!
//! Inodes are written to a damaged table only after its copies in the log were restored: the replay
//! logs the blocks that it changes, and a table that is whole in part would be the newest copy.

use super::{OpenError, Pass0};
use crate::evidence;
use crate::finding::{Code, Finding};
use crate::report::CheckOptions;
use crate::store::{CheckError, EvidenceSource, Store};
use extant_device::OverlayDevice;
use extant_journal::{Finish, JournalError, Log, Recovered, recover, recover_damaged};
use extant_ondisk::superblock::State;

/// A log that was replayed.
pub(super) struct Replayed {
    pub(super) recovered: Recovered,
    /// The volume was damaged.
    pub(super) is_damaged: bool,
}

/// Whether a replay failed because of what the volume holds.
pub(super) fn is_of_volume(error: &JournalError) -> bool {
    matches!(error, JournalError::Format(_) | JournalError::FastCommit(_) | JournalError::Volume(_))
}

impl Pass0<'_> {
    /// Replays a log after the replay of its fast commits failed with `error`. Its transactions
    /// are in place. An error is returned where the log cannot be replayed in part either.
    pub(super) fn replay_damaged(
        &mut self,
        log: &Log<'_>,
        error: JournalError,
    ) -> Result<Result<Replayed, JournalError>, OpenError> {
        let device = self.volume.device().clone();
        let overlay = OverlayDevice::new(&*device);
        match recover_damaged(&overlay, log, Finish::Leave) {
            Ok(planned) if planned.fast_commits > 0 => {}
            Err(error) if !is_of_volume(&error) => return Err(error.into()),
            _ => return Ok(Err(error)), // the transactions are what cannot be replayed
        }
        if self.restore_before_replay()? {
            match recover(&*device, log, Finish::Reset) {
                Err(error) if is_of_volume(&error) => {}
                outcome => {
                    return Ok(outcome.map(|recovered| Replayed { recovered, is_damaged: true }));
                }
            }
        }
        let overlay = OverlayDevice::new(&*device);
        let planned = match recover_damaged(&overlay, log, Finish::Leave) {
            Err(error) if is_of_volume(&error) => return Ok(Err(error)),
            planned => planned?,
        };
        if !self.are_accepted(&planned)? {
            return Err(error.into());
        }
        self.mark_unclean()?;
        let recovered = recover_damaged(&*device, log, Finish::Reset);
        Ok(recovered.map(|recovered| Replayed { recovered, is_damaged: true }))
    }

    /// Restores damaged blocks from the copies in the log; whether there were any.
    fn restore_before_replay(&mut self) -> Result<bool, OpenError> {
        if !self.options.journal_evidence {
            return Ok(false);
        }
        self.reload()?;
        let device = self.volume.device().clone();
        let mut store = Store::new(device, self.volume.raw, self.volume.table().clone())?;
        store.use_evidence(EvidenceSource { external: self.options.journal.clone() });
        let options = CheckOptions { env: self.options.env.clone(), ..CheckOptions::default() };
        let restored = evidence::restore(&store, &options, self.recorder, None)?;
        // The passes do not propose again a repair that was refused.
        self.recorder.begin_round();
        if restored > 0 {
            self.reload()?;
        }
        Ok(restored > 0)
    }

    /// Whether the inodes that only fast commits hold are to be restored, and the fast commits that
    /// cannot be replayed to be left out.
    fn are_accepted(&mut self, planned: &Recovered) -> Result<bool, CheckError> {
        for inode in &planned.restored_inodes {
            if !self.should_fix(Finding::new(Code::FastCommitInode).inode(*inode))? {
                return Ok(false);
            }
        }
        for (inode, why) in &planned.left_out {
            let finding = Finding::new(Code::FastCommitsLeftOut).inode(*inode);
            if !self.should_fix(finding.detail(why.clone()))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// After a crash from here on, the next check does not skip the volume.
    pub(super) fn mark_unclean(&mut self) -> Result<(), CheckError> {
        self.volume.update_superblock(|raw| {
            raw.s_state.set(raw.s_state.get() & !State::CLEAN.bits());
        })?;
        self.volume.commit()?;
        Ok(self.volume.device().flush()?)
    }
}
