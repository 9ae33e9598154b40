//! State that the files of pass 0 share: the volume being opened, and errors of opening.

use super::superblock_search::SuperblockChoice;
use crate::finding::Finding;
use crate::recorder::Recorder;
use crate::store::{CheckError, Store};
use extant_device::{Device, DeviceError, FileError, errno};
use extant_journal::JournalError;
use extant_layout::DescriptorTable;
use extant_offline::{OfflineError, OfflineVolume, format_errno};
use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::superblock::RawSuperblock;
use extant_ondisk::{BlockNo, FileBlock, FormatError, GroupNo, IncompatFeatures, Uuid};
use extant_runtime::env::{Env, WallTime};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Options of opening.
#[derive(Clone)]
pub struct CheckOpenOptions {
    /// Which superblock to take (`-b`, `-B`).
    pub superblock: SuperblockChoice,
    /// The device of an external journal (`-j`).
    pub journal: Option<Arc<dyn Device>>,
    /// The number of that device, as the superblock stores it; `None` leaves the superblock's as it
    /// is.
    pub journal_number: Option<u32>,
    /// For a volume without a UUID.
    pub fresh_uuid: Uuid,
    /// The clock.
    pub env: Env,
    /// Whether times of the superblock are checked. e2fsck checks them if the check is forced
    /// (`-f`).
    pub checks_times: bool,
    /// Seconds that a time of the superblock may lie in the future: a machine's clock may tick
    /// local time.
    pub time_fudge: u64,
    /// Whether damaged blocks are restored from copies that the log of the journal still holds.
    pub journal_evidence: bool,
    /// Called with seconds while a volume that may be in use elsewhere is watched.
    pub waiting: Option<Arc<dyn Fn(u64) + Send + Sync>>,
}

impl Default for CheckOpenOptions {
    fn default() -> Self {
        Self {
            superblock: SuperblockChoice::default(),
            journal: None,
            journal_number: None,
            fresh_uuid: Uuid::NIL,
            env: Env::threads(),
            checks_times: true,
            time_fudge: 24 * 60 * 60,
            journal_evidence: true,
            waiting: None,
        }
    }
}

impl fmt::Debug for CheckOpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions").field("superblock", &self.superblock).finish_non_exhaustive()
    }
}

/// Error of opening a volume. Findings before it are recorded all the same.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The device failed, or the policy ended the run.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// No superblock is valid.
    #[error("no valid superblock or backup found: {0}")]
    NoSuperblock(FormatError),
    /// The volume has features that this version cannot check.
    #[error("unsupported feature(s): {}", .0.join(" "))]
    Unsupported(Vec<String>),
    /// The device ends before the volume does.
    #[error(
        "the volume has {blocks} blocks, but the device only {device} (use -n, or extend the device)"
    )]
    DeviceTooSmall {
        /// Blocks of the volume.
        blocks: u64,
        /// Whole blocks of the device.
        device: u64,
    },
    /// The journal prevents opening.
    #[error("{0}")]
    Journal(#[from] JournalError),
    /// The device of an external journal cannot be opened.
    #[error(transparent)]
    JournalDevice(#[from] FileError),
    /// The system gives no random bytes for a UUID.
    #[error("cannot generate a UUID: {0}")]
    NoRandomness(std::io::Error),
    /// Another host has the volume open.
    #[error("MMP: the volume is in use on {node} (device {device})")]
    InUse {
        /// The host.
        node: String,
        /// The device's name there.
        device: String,
    },
    /// Another check runs on the volume, or was interrupted.
    #[error(
        "MMP: a check is running on {node}, or was interrupted; if none is running, use tune -f -E clear_mmp"
    )]
    InCheck {
        /// The host.
        node: String,
    },
}

impl OpenError {
    /// The number that a system call returns for it (`ENOENT` is 2).
    pub fn errno(&self) -> i32 {
        match self {
            Self::Check(error) => error.errno(),
            Self::NoSuperblock(error) => format_errno(error),
            Self::Unsupported(_) => errno::EOPNOTSUPP,
            Self::DeviceTooSmall { .. } => errno::EUCLEAN,
            Self::Journal(error) => error.errno(),
            Self::JournalDevice(error) => error.errno(),
            Self::NoRandomness(error) => errno::of_io(error),
            Self::InUse { .. } | Self::InCheck { .. } => errno::EBUSY,
        }
    }

    /// The kind of error in std's words.
    pub fn kind(&self) -> std::io::ErrorKind {
        errno::kind(self.errno())
    }
}

impl From<OfflineError> for CheckError {
    fn from(error: OfflineError) -> Self {
        match error {
            OfflineError::Device(error) => Self::Device(error),
            OfflineError::Format(error) => Self::Format(error),
            other => Self::Volume(other),
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

/// Facts about the volume found during opening, used for closing it.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenState {
    /// The superblock came from a backup.
    pub(super) from_backup: bool,
    /// So did the descriptors.
    pub(super) is_table_backup: bool,
    /// The superblock was lost, or the descriptors contradict themselves: the log may have what was
    /// there.
    pub(super) is_doubtful: bool,
    /// Blocks of the journal that was taken off: a new one is due.
    pub(super) lost_journal: Option<u32>,
    /// Something was found that only the passes can put right.
    pub(super) needs_passes: bool,
    /// Orphans were finished.
    pub(super) has_orphans: bool,
    /// Blocks of the orphan file that are to be emptied.
    pub(super) invalid_orphan_blocks: Vec<FileBlock>,
    /// Something was repaired.
    pub(super) is_repaired: bool,
    /// Something that is worse than a note was not.
    pub(super) has_errors_left: bool,
    /// The MMP block is set to FSCK by this check: to be cleared.
    pub(super) mmp_claimed: bool,
}

/// A volume that is ready for the passes.
pub struct Prepared {
    /// Its blocks.
    pub store: Store,
    pub(super) device: Arc<dyn Device>,
    pub(super) state: OpenState,
    pub(super) env: Env,
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("state", &self.state).finish_non_exhaustive()
    }
}

/// The state of pass 0.
pub(super) struct Pass0<'a> {
    pub(super) volume: OfflineVolume,
    pub(super) recorder: &'a Recorder<'a>,
    pub(super) options: &'a CheckOpenOptions,
    /// Descriptors that the passes use and that the policy did not let be written.
    pub(super) patches: BTreeMap<u32, GroupDesc>,
    pub(super) state: OpenState,
    /// Number of times that a descriptor was read: a test bounds it, so that it does not grow with
    /// the square of the number of groups.
    #[cfg(test)]
    pub(super) desc_reads: std::cell::Cell<usize>,
}

impl Pass0<'_> {
    pub(super) fn may_repair(&self) -> bool {
        self.recorder.may_repair()
    }

    pub(super) fn now(&self) -> u64 {
        self.options.env.now().seconds.max(0).cast_unsigned()
    }

    pub(super) fn wall(&self) -> WallTime {
        self.options.env.now()
    }

    /// Whether a finding is to be repaired now.
    pub(super) fn should_fix(&mut self, finding: Finding) -> Result<bool, CheckError> {
        self.recorder.should_fix(finding)
    }

    /// Reports a finding that needs no decision.
    pub(super) fn report(&mut self, finding: Finding) -> Result<(), CheckError> {
        self.should_fix(finding).map(|_| ())
    }

    /// A group's descriptor as the passes will see it.
    pub(super) fn desc(&self, group: GroupNo) -> GroupDesc {
        #[cfg(test)]
        self.desc_reads.set(self.desc_reads.get() + 1);
        self.patches.get(&group.0).cloned().unwrap_or_else(|| self.volume.desc(group))
    }

    /// Changes a descriptor: to be written where that was accepted, else for the passes to see.
    pub(super) fn set_descriptor(
        &mut self,
        group: GroupNo,
        is_accepted: bool,
        change: impl FnOnce(&mut GroupDesc),
    ) {
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

    pub(super) fn read(&self, block: BlockNo) -> Result<Vec<u8>, CheckError> {
        Ok(self.volume.read(block)?)
    }
}

/// The descriptors next to a backup superblock; a block of the table without a copy there is taken
/// from the primary table.
pub(super) fn backup_table(
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
pub(super) fn has(raw: &RawSuperblock, feature: IncompatFeatures) -> bool {
    raw.features().incompat.contains(feature)
}
