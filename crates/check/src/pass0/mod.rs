//! What comes before pass 1 and after pass 5: a volume is found, brought to where the passes can
//! look at it, and closed.
//!
//! [`open`] finds a superblock, has the journal replayed, judges the superblock's fields, the
//! descriptors and the orphans; the [`Ready`] volume goes to [`look`](crate::look) or
//! [`repair`](crate::repair), and [`Ready::close`] makes what only a whole volume allows (a new
//! journal), stamps the check and renews the backups.

mod candidates;
mod close;
mod context;
mod fields;
mod find;
mod groups;
mod journal;
mod log_head;
mod mmp;
mod moved;
mod orphan_quota;
mod orphans;
mod places;
mod short_device;
mod table_places;

pub use close::{Closing, needs_check};
pub use context::{OpenError, OpenOptions, Ready};
pub use find::Wanted;
pub(crate) use journal::forget_journal;
pub(crate) use orphans::forget_orphan_file;

use candidates::Chosen;
use context::{Facts, Front, backup_table, has};
use find::Found;

use crate::finding::{Code, Finding, Severity};
use crate::recorder::Recorder;
use crate::store::Store;
use extant_device::Device;
use extant_offline::{OfflineVolume, read_table};
use extant_ondisk::{FormatError, GroupNo};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Finds a volume on `device` and brings it to where the passes can look at it. With a policy that
/// repairs nothing, nothing is written and the journal stays as it is.
///
/// # Errors
/// See [`OpenError`].
pub fn open(
    device: Arc<dyn Device>,
    options: &OpenOptions,
    recorder: &Recorder<'_>,
) -> Result<Ready, OpenError> {
    let start = recorder.count();
    let mut front = Front::find(device, options, recorder)?;
    front.claim_mmp()?;
    // The log holds newer descriptors.
    let is_log_first = front.is_log_known()?;
    if is_log_first {
        front.check_journal()?;
    }
    front.check_moved_tables()?;
    if front.may_repair() {
        front.volume.commit()?;
    }
    // The journal may hold better descriptors, but its inode is not found, let alone written,
    // through one that is broken.
    if !front.is_journal_found() {
        front.check_groups()?;
        front.volume.seal_descs();
        if front.may_repair() {
            front.volume.commit()?;
        }
    }
    let before = recorder.count();
    if !is_log_first {
        front.check_journal()?;
    }
    let is_replayed = recorder.any_since(before, |it| it.finding.code == Code::JournalRecovered);
    front.check_fields()?;
    front.check_groups()?;
    if is_replayed || is_log_first {
        // What was logged may have been the journal's own inode.
        front.check_journal()?;
    }
    if front.may_repair() {
        front.volume.commit()?;
    }
    front.check_orphans()?;
    if front.may_repair() {
        front.volume.commit()?;
    }
    let mut table = front.volume.table().clone();
    for (group, desc) in &front.patches {
        table.put(GroupNo(*group), desc, front.volume.geometry());
    }
    let device = front.volume.device().clone();
    let store = Store::new(device.clone(), front.volume.raw, table)?;
    let mut facts = front.facts;
    facts.is_repaired = recorder.any_since(start, |it| it.repaired);
    facts.has_errors_left = recorder
        .any_since(start, |it| it.finding.code.row().severity > Severity::Note && !it.repaired);
    Ok(Ready { store, device, facts, env: options.env.clone() })
}

impl<'a> Front<'a> {
    fn find(
        device: Arc<dyn Device>,
        options: &'a OpenOptions,
        recorder: &'a Recorder<'a>,
    ) -> Result<Self, OpenError> {
        let mut found = Self::found(&*device, options)?;
        if recorder.may_repair() && short_device::replay(&device, &found, recorder)? {
            found = Self::found(&*device, options)?; // the log may have held the superblock
        }
        let geometry = &found.geometry;
        let device = short_device::to_the_end(device, geometry, recorder)?;
        let before = recorder.count();
        let is_backup = found.group.0 != 0;
        let is_asked_for = options.superblock.superblock.is_some();
        let Chosen { found, table, is_table_backup } = if is_backup {
            let table = backup_table(&*device, geometry, found.group)?;
            Chosen { found, table, is_table_backup: true }
        } else if is_asked_for || found.is_checksum_wrong {
            let table = read_table(&*device, geometry)?;
            Chosen { found, table, is_table_backup: false }
        } else {
            candidates::choose(&*device, found, options.superblock.block_size)?
        };
        let is_backup = found.group.0 != 0;
        let mut raw = found.raw;
        raw.s_block_group_nr.set(0);
        let volume = OfflineVolume::of_parts(device, raw, found.geometry, table);
        let mut front = Self {
            volume,
            recorder,
            options,
            patches: BTreeMap::new(),
            facts: Facts { from_backup: is_backup, is_table_backup, ..Facts::default() },
            #[cfg(test)]
            looks: std::cell::Cell::new(0),
        };
        if is_table_backup {
            front.distrust_all();
        }
        let finding = if found.is_checksum_wrong {
            Some(Finding::new(Code::SuperblockChecksum))
        } else if let Some(flaw) = found.primary_flaw {
            let detail = format!("{flaw}; the backup of group {} is taken", found.group);
            Some(Finding::new(Code::SuperblockInvalid).detail(detail))
        } else {
            found.counted
        };
        let unknown = finding
            .as_ref()
            .filter(|finding| finding.code == Code::FeaturesUnknown)
            .and_then(|finding| finding.subject.detail.clone());
        // A backup that the user asked for beside a sound primary one is no finding; it is written
        // all the same.
        if let Some(finding) = finding {
            let answer = front.ask(finding);
            if let Some(names) = unknown.filter(|_| !matches!(answer, Ok(true))) {
                return Err(OpenError::Unsupported(vec![names]));
            }
            let is_accepted = answer?;
            if !is_accepted && front.may_repair() {
                let flaw = extant_ondisk::Flaw::Rule("the superblock was not repaired");
                return Err(OpenError::NoSuperblock(
                    flaw.at(extant_ondisk::Location::Superblock(GroupNo(0))),
                ));
            }
        }
        if front.may_repair() && (is_backup || recorder.count() > before) {
            front.volume.update_superblock(|_| {})?;
            if is_backup {
                front.volume.touch_all_descs();
            }
            front.volume.commit()?;
        }
        Ok(front)
    }

    /// A superblock of features that this version knows; where the primary one has others, a backup
    /// without them.
    fn found(device: &dyn Device, options: &OpenOptions) -> Result<Found, OpenError> {
        let Wanted { superblock, block_size } = options.superblock;
        let (found, unknown) = match find::find(device, options.superblock) {
            Ok(found) => {
                let unknown = find::beyond(&found.raw);
                (Some(found), unknown)
            }
            Err(find::NotFound::Device(error)) => return Err(error.into()),
            Err(find::NotFound::Format(FormatError::Unsupported(features))) => {
                (None, features.names())
            }
            Err(find::NotFound::Format(error)) => return Err(OpenError::NoSuperblock(error)),
        };
        if let Some(found) = found.filter(|_| unknown.is_empty()) {
            let blocks = device.size() >> found.geometry.block_bits();
            if blocks < found.geometry.blocks_count
                && found.group.0 == 0
                && let Some(backup) = find::fitting(device, &found, block_size)?
            {
                return Ok(backup);
            }
            return Ok(found);
        }
        let known = match superblock {
            None => find::without_features(device, block_size)?,
            Some(_) => None,
        };
        known.ok_or(OpenError::Unsupported(unknown))
    }

    /// The kernel does not keep the marks of backups up to date: no inode and no block counts as
    /// never used.
    fn distrust_all(&mut self) {
        for group in (0..self.volume.geometry().groups_count).map(GroupNo) {
            self.volume.update_desc(group, table_places::distrust);
        }
        self.volume.seal_descs();
    }

    /// Reads superblock and descriptors again, after a replay that may have changed both.
    fn reload(&mut self) -> Result<(), OpenError> {
        let device = self.volume.device().clone();
        let again = Self::find(device, self.options, self.recorder)?;
        self.volume = again.volume;
        self.facts.from_backup |= again.facts.from_backup;
        self.facts.is_table_backup |= again.facts.is_table_backup;
        Ok(())
    }
}
