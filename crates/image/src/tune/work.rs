//! The state of a change, which all its parts share.

use extant_device::Device;
use extant_offline::OfflineVolume;
use extant_ondisk::Features;
use extant_ondisk::superblock::{RawSuperblock, State, Superblock};

use super::error::{TuneError, Work};
use super::request::Request;
use crate::mkfs::Prompt;
use crate::mkfs::external_journal::ExternalJournal;

/// Whether the kernel has the volume mounted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mounted {
    /// No other program uses it.
    No,
    /// The kernel does: only the superblock can be changed.
    ByKernel,
}

/// State that all parts need.
pub(super) struct Tune<'a> {
    pub(super) volume: OfflineVolume,
    /// The device of a journal that is not inside the volume.
    pub(super) journal: Option<&'a dyn Device>,
    /// That journal, where it is one that the volume is to get.
    pub(super) attached: Option<&'a ExternalJournal>,
    pub(super) request: &'a Request,
    pub(super) mounted: Mounted,
    /// Seconds since 1970.
    pub(super) now: u64,
    pub(super) prompt: &'a mut dyn Prompt,
    /// A feature changed whose consequences only a check can draw.
    pub(super) wants_check: bool,
}

impl Tune<'_> {
    pub(super) fn say(&mut self, line: &str) {
        self.prompt.say(&format!("{line}\n"));
    }

    pub(super) fn features(&self) -> Features {
        self.volume.raw.features()
    }

    pub(super) fn change(
        &mut self,
        change: impl FnOnce(&mut RawSuperblock),
    ) -> Result<(), TuneError> {
        Ok(self.volume.update_superblock(change)?)
    }

    /// Work on files, bitmaps or checksums rests on a volume that is sound.
    pub(super) fn need_sound_volume(&self, work: Work) -> Result<(), TuneError> {
        let state = State::from_bits_retain(self.volume.raw.s_state.get());
        let has_orphans = self.volume.raw.s_last_orphan.get() != 0;
        if !state.contains(State::CLEAN) || state.contains(State::ERRORS) || has_orphans {
            return Err(TuneError::NeedsCheck(work));
        }
        Ok(())
    }

    /// Checksums of metadata are written again on a volume that was checked after its last mount.
    pub(super) fn need_check_since_mount(&self, work: Work) -> Result<(), TuneError> {
        self.need_sound_volume(work)?;
        let superblock = Superblock::decode(&self.volume.raw);
        match superblock.last_check < superblock.mount_time {
            true => Err(TuneError::NeedsCheck(work)),
            false => Ok(()),
        }
    }

    pub(super) fn finish(mut self) -> Result<(), TuneError> {
        let (now, wants_check) = (self.now, self.wants_check);
        self.change(|raw| {
            raw.set_write_time(now);
            if wants_check {
                raw.s_state.set(raw.s_state.get() & !State::CLEAN.bits());
            }
        })?;
        self.volume.commit()?;
        match self.mounted {
            Mounted::No => self.volume.write_backups()?,
            Mounted::ByKernel => self.volume.write_backup_superblocks()?,
        }
        if wants_check {
            self.say("\nPlease run e2fsck -f on the filesystem.\n");
        }
        Ok(())
    }
}
