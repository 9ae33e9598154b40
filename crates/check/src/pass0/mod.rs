//! The work before pass 1 and after pass 5: finds a volume, prepares it for the passes, and closes
//! it.
//!
//! [`open`] finds a superblock, has the journal replayed, and checks the superblock's fields, the
//! descriptors and the orphans; the [`Prepared`] volume goes to [`scan`](crate::scan) or
//! [`repair`](crate::repair), and [`Prepared::close`] makes changes that need a whole volume (a new
//! journal), stamps the check and renews the backups.

mod broken_map;
mod close;
mod context;
mod fast_commits;
mod fields;
mod groups;
mod journal;
mod log_copies;
mod log_head;
mod mmp;
mod moved;
mod orphan_file;
mod orphan_quota;
mod orphans;
mod places;
mod short_device;
mod superblock_choice;
mod superblock_search;
mod table_places;
mod table_proof;

pub use close::{Closing, needs_check};
pub use context::{CheckOpenOptions, OpenError, Prepared};
pub(crate) use journal::forget_journal;
pub(crate) use orphan_file::forget_orphan_file;
pub use superblock_search::SuperblockChoice;

use context::{OpenState, Pass0, backup_table, has};
use superblock_choice::Chosen;
use superblock_search::SuperblockCandidate;

use crate::finding::{Code, Finding, Severity};
use crate::recorder::Recorder;
use crate::store::{EvidenceSource, Store};
use extant_device::Device;
use extant_offline::{OfflineVolume, read_table};
use extant_ondisk::{FormatError, GroupNo};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Finds a volume on `device` and prepares it for the passes. With a policy that repairs nothing,
/// nothing is written and the journal stays as it is.
///
/// # Errors
/// See [`OpenError`].
pub fn open(
    device: Arc<dyn Device>,
    options: &CheckOpenOptions,
    recorder: &Recorder<'_>,
) -> Result<Prepared, OpenError> {
    let start = recorder.count();
    let mut pass0 = Pass0::find(device, options, recorder)?;
    pass0.claim_mmp()?;
    // The log holds newer descriptors.
    let is_log_first = pass0.is_log_known()?;
    if is_log_first {
        pass0.check_journal()?;
    }
    if pass0.state.is_doubtful {
        pass0.restore_from_log()?;
    }
    pass0.check_moved_tables()?;
    if pass0.may_repair() {
        pass0.volume.commit()?;
    }
    // The journal may hold better descriptors, but a corrupt descriptor does not lead to its inode.
    if !pass0.is_journal_found() {
        pass0.check_groups()?;
        pass0.volume.seal_descs();
        if pass0.may_repair() {
            pass0.volume.commit()?;
        }
    }
    let before = recorder.count();
    if !is_log_first {
        pass0.check_journal()?;
    }
    let is_replayed = recorder.any_since(before, |it| it.finding.code == Code::JournalRecovered);
    pass0.check_fields()?;
    pass0.check_groups()?;
    if is_replayed || is_log_first {
        // The replay may have written the journal's own inode.
        pass0.check_journal()?;
    }
    if pass0.may_repair() {
        pass0.volume.commit()?;
    }
    pass0.check_orphans()?;
    if pass0.may_repair() {
        pass0.volume.commit()?;
    }
    let mut table = pass0.volume.table().clone();
    for (group, desc) in &pass0.patches {
        table.put(GroupNo(*group), desc, pass0.volume.geometry());
    }
    let device = pass0.volume.device().clone();
    let mut store = Store::new(device.clone(), pass0.volume.raw, table)?;
    if options.journal_evidence {
        store.use_evidence(EvidenceSource { external: options.journal.clone() });
    }
    let mut state = pass0.state;
    state.is_repaired = recorder.any_since(start, |it| it.repaired);
    state.has_errors_left = recorder
        .any_since(start, |it| it.finding.code.row().severity > Severity::Note && !it.repaired);
    Ok(Prepared { store, device, state, env: options.env.clone() })
}

impl<'a> Pass0<'a> {
    fn find(
        device: Arc<dyn Device>,
        options: &'a CheckOpenOptions,
        recorder: &'a Recorder<'a>,
    ) -> Result<Self, OpenError> {
        let mut found = Self::found(&*device, options)?;
        if recorder.may_repair() && short_device::replay(&device, &found, recorder)? {
            found = Self::found(&*device, options)?; // the log may have held the superblock
        }
        let device = short_device::to_the_end(device, &found.geometry, recorder)?;
        let is_restored = log_copies::restore_superblock(&device, &found, options, recorder)?;
        if is_restored {
            found = Self::found(&*device, options)?;
        }
        let geometry = &found.geometry;
        let before = recorder.count();
        let is_backup = found.group.0 != 0;
        let is_named = options.superblock.superblock.is_some();
        let Chosen { found, table, is_table_backup, is_doubtful } = if is_backup {
            let table = backup_table(&*device, geometry, found.group)?;
            Chosen { found, table, is_table_backup: true, is_doubtful: true }
        } else if is_named || found.is_checksum_wrong {
            let table = read_table(&*device, geometry)?;
            Chosen { found, table, is_table_backup: false, is_doubtful: true }
        } else {
            let primary = found.clone();
            let chosen = superblock_choice::choose(&*device, found, options.superblock.block_size)?;
            if chosen.found.geometry != primary.geometry
                && let Some(pass0) = Self::waiting_for_log(&device, primary, options, recorder)?
            {
                return Ok(pass0);
            }
            chosen
        };
        let is_backup = found.group.0 != 0;
        let state = OpenState {
            from_backup: is_backup,
            is_table_backup,
            is_doubtful: is_doubtful || is_restored,
            needs_passes: is_restored,
            ..OpenState::default()
        };
        let mut raw = found.raw;
        raw.s_block_group_nr.set(0);
        let volume = OfflineVolume::of_parts(device, raw, found.geometry, table);
        let mut pass0 = Self::of_volume(volume, options, recorder, state);
        if is_table_backup {
            pass0.mark_all_suspect();
        }
        let finding = if found.is_checksum_wrong {
            Some(Finding::new(Code::SuperblockChecksum))
        } else if let Some(flaw) = found.primary_flaw {
            let detail = format!("{flaw}; using the backup of group {}", found.group);
            Some(Finding::new(Code::SuperblockInvalid).detail(detail))
        } else {
            found.counted
        };
        let unknown = finding
            .as_ref()
            .filter(|finding| finding.code == Code::FeaturesUnknown)
            .and_then(|finding| finding.subject.detail.clone());
        // A backup that the user named although the primary one is valid is not a finding; it is
        // written all the same.
        if let Some(finding) = finding {
            let answer = pass0.should_fix(finding);
            if let Some(names) = unknown.filter(|_| !matches!(answer, Ok(true))) {
                return Err(OpenError::Unsupported(vec![names]));
            }
            let is_accepted = answer?;
            if !is_accepted && pass0.may_repair() {
                let flaw = extant_ondisk::Flaw::Rule("the superblock was not repaired");
                return Err(OpenError::NoSuperblock(
                    flaw.at(extant_ondisk::Location::Superblock(GroupNo(0))),
                ));
            }
        }
        if pass0.may_repair() && (is_backup || recorder.count() > before) {
            pass0.volume.update_superblock(|_| {})?;
            if is_backup {
                pass0.volume.touch_all_descs();
            }
            pass0.volume.commit()?;
        }
        Ok(pass0)
    }

    fn of_volume(
        volume: OfflineVolume,
        options: &'a CheckOpenOptions,
        recorder: &'a Recorder<'a>,
        state: OpenState,
    ) -> Self {
        Self {
            volume,
            recorder,
            options,
            patches: BTreeMap::new(),
            state,
            #[cfg(test)]
            desc_reads: std::cell::Cell::new(0),
        }
    }

    /// The volume by its primary superblock, if its log is known and waits: the log may hold the
    /// descriptors that the superblock does not fit, as after a power cut in a resize.
    fn waiting_for_log(
        device: &Arc<dyn Device>,
        primary: SuperblockCandidate,
        options: &'a CheckOpenOptions,
        recorder: &'a Recorder<'a>,
    ) -> Result<Option<Self>, OpenError> {
        let table = read_table(&**device, &primary.geometry)?;
        let volume = OfflineVolume::of_parts(device.clone(), primary.raw, primary.geometry, table);
        let state = OpenState { is_doubtful: true, ..OpenState::default() };
        let pass0 = Self::of_volume(volume, options, recorder, state);
        let is_waiting = pass0.is_log_known()?;
        Ok(is_waiting.then_some(pass0))
    }

    /// A superblock of features that this version knows; where the primary one has others, a backup
    /// without them.
    fn found(
        device: &dyn Device,
        options: &CheckOpenOptions,
    ) -> Result<SuperblockCandidate, OpenError> {
        let SuperblockChoice { superblock, block_size } = options.superblock;
        let (found, unknown) = match superblock_search::find(device, options.superblock) {
            Ok(found) => {
                let unknown = superblock_search::beyond(&found.raw);
                (Some(found), unknown)
            }
            Err(superblock_search::NotFound::Device(error)) => return Err(error.into()),
            Err(superblock_search::NotFound::Format(FormatError::Unsupported(features))) => {
                (None, features.names())
            }
            Err(superblock_search::NotFound::Format(error)) => {
                return Err(OpenError::NoSuperblock(error));
            }
        };
        if let Some(found) = found.filter(|_| unknown.is_empty()) {
            let blocks = device.size() >> found.geometry.block_bits();
            if blocks < found.geometry.blocks_count
                && found.group.0 == 0
                && let Some(backup) = superblock_search::fitting(device, &found, block_size)?
            {
                return Ok(backup);
            }
            return Ok(found);
        }
        let known = match superblock {
            None => superblock_search::without_features(device, block_size)?,
            Some(_) => None,
        };
        known.ok_or(OpenError::Unsupported(unknown))
    }

    /// The kernel does not keep the marks of backups up to date: no inode and no block counts as
    /// never used.
    fn mark_all_suspect(&mut self) {
        for group in (0..self.volume.geometry().groups_count).map(GroupNo) {
            self.volume.update_desc(group, table_places::mark_suspect);
        }
        self.volume.seal_descs();
    }

    /// Reads superblock and descriptors again, after a replay that may have changed both.
    fn reload(&mut self) -> Result<(), OpenError> {
        let device = self.volume.device().clone();
        let again = Self::find(device, self.options, self.recorder)?;
        self.volume = again.volume;
        self.state.from_backup |= again.state.from_backup;
        self.state.is_table_backup |= again.state.is_table_backup;
        self.state.is_doubtful = again.state.is_doubtful;
        self.state.needs_passes |= again.state.needs_passes;
        Ok(())
    }
}
