//! What comes before pass 1 and after pass 5: a volume is found, brought to where the passes can look at it, and closed.
//!
//! [`open`] finds a superblock, has the journal replayed, judges the superblock's fields, the descriptors and the orphans;
//! the [`Ready`] volume goes to [`look`](crate::look) or [`repair`](crate::repair), and [`Ready::close`]
//! makes what only a whole volume allows (a new journal), stamps the check and renews the backups.

mod candidates;
mod close;
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

pub use close::{Closing, needs_check};
pub use find::Wanted;
pub(crate) use journal::forget_journal;
pub(crate) use orphans::forget_orphan_file;

use candidates::Chosen;
use find::Found;

use crate::finding::{Code, Finding, Severity};
use crate::recorder::Recorder;
use crate::store::{CheckError, Store};
use extant_device::{Device, DeviceError};
use extant_journal::JournalError;
use extant_layout::DescriptorTable;
use extant_offline::{OfflineError, OfflineVolume, read_table};
use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::superblock::RawSuperblock;
use extant_ondisk::{BlockNo, FormatError, GroupNo, IncompatFeatures, Uuid};
use extant_runtime::env::{Env, WallTime};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What opening is told.
#[derive(Clone)]
pub struct OpenOptions {
    /// Which superblock to take (`-b`, `-B`).
    pub superblock: Wanted,
    /// The device of an external journal (`-j`).
    pub journal: Option<Arc<dyn Device>>,
    /// The number of that device, as the superblock stores it; `None` leaves the superblock's as it
    /// is.
    pub journal_number: Option<u32>,
    /// For a volume without a UUID.
    pub fresh_uuid: Uuid,
    /// The clock.
    pub env: Env,
    /// Whether times of the superblock are judged. e2fsck does so where a check is asked for (`-f`).
    pub judges_times: bool,
    /// Seconds that a time of the superblock may lie in the future: a machine's clock may tick local time.
    pub time_fudge: u64,
    /// Called with seconds while a volume that may be in use elsewhere is watched.
    pub waiting: Option<Arc<dyn Fn(u64) + Send + Sync>>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            superblock: Wanted::default(),
            journal: None,
            journal_number: None,
            fresh_uuid: Uuid::NIL,
            env: Env::threads(),
            judges_times: true,
            time_fudge: 24 * 60 * 60,
            waiting: None,
        }
    }
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions").field("superblock", &self.superblock).finish_non_exhaustive()
    }
}

/// Why a volume was not opened. What was found before is recorded all the same.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The device failed, or the policy ended the run.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// No superblock makes sense.
    #[error("no valid superblock, and no backup of it was found: {0}")]
    NoSuperblock(FormatError),
    /// The volume has features that this version cannot check.
    #[error("unsupported feature(s): {}", .0.join(" "))]
    Unsupported(Vec<String>),
    /// The device ends before the volume does.
    #[error(
        "the volume has {blocks} blocks, the device only {device}: check it with -n, or extend the device first"
    )]
    DeviceTooSmall {
        /// Blocks of the volume.
        blocks: u64,
        /// Whole blocks of the device.
        device: u64,
    },
    /// The journal stands in the way.
    #[error("{0}")]
    Journal(#[from] JournalError),
    /// Another host has the volume open.
    #[error("{0}")]
    InUse(String),
}

impl From<OfflineError> for CheckError {
    fn from(error: OfflineError) -> Self {
        match error {
            OfflineError::Device(error) => Self::Device(error),
            OfflineError::Format(error) => Self::Format(error),
            other => Self::Volume(other.to_string()),
        }
    }
}

impl From<OfflineError> for OpenError {
    fn from(error: OfflineError) -> Self {
        Self::Check(error.into())
    }
}

impl From<DeviceError> for OpenError {
    fn from(error: DeviceError) -> Self {
        Self::Check(error.into())
    }
}

/// What was found out about the volume on the way, for closing it.
#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    /// The superblock came from a backup.
    from_backup: bool,
    /// So did the descriptors.
    is_table_backup: bool,
    /// Blocks of the journal that was taken off: a new one is due.
    lost_journal: Option<u32>,
    /// Something was found that only the passes can put right.
    needs_passes: bool,
    /// Orphans were finished.
    has_orphans: bool,
    /// Something was repaired.
    is_repaired: bool,
    /// Something that is worse than a note was not.
    has_errors_left: bool,
    /// The MMP block says that a checker is at work: to be cleared.
    mmp_claimed: bool,
}

/// A volume that the passes can look at.
pub struct Ready {
    /// Its blocks.
    pub store: Store,
    device: Arc<dyn Device>,
    facts: Facts,
    env: Env,
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// The front part at work.
struct Front<'a> {
    volume: OfflineVolume,
    recorder: &'a Recorder<'a>,
    options: &'a OpenOptions,
    /// Descriptors that the passes are to see and that nobody agreed to write.
    patches: BTreeMap<u32, GroupDesc>,
    facts: Facts,
    /// How often a descriptor was looked at: what grows with the square of the groups is seen here.
    #[cfg(test)]
    looks: std::cell::Cell<usize>,
}

/// Finds a volume on `device` and brings it to where the passes can look at it. With a policy that repairs nothing,
/// nothing is written and the journal stays as it is.
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
    // The journal may hold better descriptors, but its inode is not found, let alone written, through one that is broken.
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
        // A backup that the user asked for beside a sound primary one is no finding; it is written all the same.
        if let Some(finding) = finding {
            let answer = front.ask(finding);
            if let Some(names) = unknown.filter(|_| !matches!(answer, Ok(true))) {
                return Err(OpenError::Unsupported(vec![names]));
            }
            let is_accepted = answer?;
            if !is_accepted && front.may_repair() {
                let flaw = extant_ondisk::Flaw::Rule("the superblock was not repaired");
                return Err(OpenError::NoSuperblock(
                    flaw.at(extant_ondisk::Place::Superblock(GroupNo(0))),
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

    /// A superblock of features that this version knows; where the primary one has others, a backup without them.
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

    fn may_repair(&self) -> bool {
        self.recorder.may_repair()
    }

    fn now(&self) -> u64 {
        self.options.env.now().seconds.max(0).cast_unsigned()
    }

    fn wall(&self) -> WallTime {
        self.options.env.now()
    }

    /// Whether a finding is to be repaired now.
    fn ask(&mut self, finding: Finding) -> Result<bool, CheckError> {
        self.recorder.ask(finding)
    }

    /// Says something that needs no answer.
    fn tell(&mut self, finding: Finding) -> Result<(), CheckError> {
        self.ask(finding).map(|_| ())
    }

    /// A group's descriptor as the passes will see it.
    fn desc(&self, group: GroupNo) -> GroupDesc {
        #[cfg(test)]
        self.looks.set(self.looks.get() + 1);
        self.patches.get(&group.0).cloned().unwrap_or_else(|| self.volume.desc(group))
    }

    /// The kernel does not keep the marks of backups up to date: no inode and no block counts as never used.
    fn distrust_all(&mut self) {
        for group in (0..self.volume.geometry().groups_count).map(GroupNo) {
            self.volume.update_desc(group, groups::distrust);
        }
        self.volume.seal_descs();
    }

    /// Changes a descriptor: to be written where that was accepted, else for the passes to see.
    fn settle(&mut self, group: GroupNo, is_accepted: bool, change: impl FnOnce(&mut GroupDesc)) {
        let mut desc = self.desc(group);
        change(&mut desc);
        // Where nothing is written, nothing needs to be held back either.
        if is_accepted || !self.may_repair() {
            self.patches.remove(&group.0);
            self.volume.update_desc(group, |stored| *stored = desc);
        } else {
            self.patches.insert(group.0, desc);
        }
    }

    fn read(&self, block: BlockNo) -> Result<Vec<u8>, CheckError> {
        Ok(self.volume.read(block)?)
    }

    /// Reads superblock and descriptors anew, after a replay that may have changed both.
    fn reload(&mut self) -> Result<(), OpenError> {
        let device = self.volume.device().clone();
        let again = Self::find(device, self.options, self.recorder)?;
        self.volume = again.volume;
        self.facts.from_backup |= again.facts.from_backup;
        self.facts.is_table_backup |= again.facts.is_table_backup;
        Ok(())
    }
}

/// The descriptors beside a backup superblock; a block of the table that has no copy there is the primary one's.
fn backup_table(
    device: &dyn Device,
    geometry: &extant_ondisk::Geometry,
    group: GroupNo,
) -> Result<DescriptorTable, DeviceError> {
    DescriptorTable::read(geometry, |index, block| {
        let place =
            geometry.desc_block_backup(index, group).unwrap_or_else(|| geometry.desc_block(index));
        device.read_at(geometry.byte_of(place), block)
    })
}

/// Whether a superblock has the incompatible feature.
fn has(raw: &RawSuperblock, feature: IncompatFeatures) -> bool {
    raw.features().incompat.contains(feature)
}
