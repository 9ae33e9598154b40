//! A volume that is being changed: the journal and its frames, the allocator, inodes in memory.

pub(crate) mod bytes_written;
pub(crate) mod delay;
mod errors;
pub(crate) mod fast_commit;
pub(crate) mod faults;
pub(crate) mod health;
pub(crate) mod inodes;
pub(crate) mod lazy_times;
pub(crate) mod lost;
pub(crate) mod mmp;
pub(crate) mod names;
pub(crate) mod operation;
mod reading;
pub(crate) mod shared;
#[cfg(all(test, feature = "shuttle"))]
mod shuttle_tests;
pub(crate) mod space;
mod times;
mod undo;

use crate::alloc::{Allocator, run_of};
use crate::engine::inodes::InodeCache;
use crate::engine::names::NameCache;
use crate::growable::{Growable, Versions};
use crate::options::{DataMode, VolumeOptions};
use crate::ranks::{FreezeLock, OrphanLock, QuotaLock, RenameLock};
use crate::write::orphans::Orphans;
use crate::write::quota::ReservedQuota;
use bytes_written::CountedDevice;
use delay::DelayedAllocation;
use extant_device::{Device, DeviceError};
use extant_journal::{CommitHooks, FastCommitCounts, Frame, Journal, Recovered};
use extant_ondisk::inode::GOOD_OLD_INODE_SIZE;
use extant_ondisk::quota::QuotaKind;
use extant_ondisk::time::Timestamp;
use extant_ondisk::{BlockNo, Flaw, Geometry, Location, Tid};
use extant_reader::read::ahead::FileReadAhead;
use extant_reader::read::dir::BrokenIndex;
use extant_reader::read::inode_tables::run_of_table;
use extant_reader::{BlockKind, Error, VolumeInfo};
use extant_runtime::env::Env;
use extant_runtime::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use extant_runtime::sync::{Arc, Mutex};
use faults::Step;
use health::Health;
use lazy_times::LazyTimes;
use shared::Shared;

/// A volume that is changed: its calls, and what they work with. Any number of threads may call at
/// once. A [`Volume`](crate::Volume) owns it, opens it and ends it well; its calls that read are in
/// [`VolumeRead`](extant_reader::VolumeRead).
#[derive(Debug)]
pub struct Engine {
    /// Sizes and counts, which growth replaces.
    pub(crate) sizes: Versions<Sizes>,
    /// The geometry for discards of freed space.
    pub(crate) freed_in: Arc<Versions<Geometry>>,
    /// The device, by which all that is written is counted.
    pub(crate) device: Arc<dyn Device>,
    /// The same: what was written to it.
    pub(crate) written: Arc<CountedDevice>,
    pub(crate) journal: Journal,
    /// The result of the journal's replay when the volume was opened.
    pub(crate) recovered: Option<Recovered>,
    pub(crate) on_broken_index: BrokenIndex,
    /// The sequential readers.
    pub(crate) ahead: FileReadAhead,
    /// Blocks of an inode table that are read at once.
    pub(crate) table_run: u32,
    pub(crate) env: Env,
    pub(crate) options: VolumeOptions,
    /// The journalling mode of file data.
    pub(crate) data: DataMode,
    /// The superblock was clean and is marked clean again at the end.
    pub(crate) closes_clean: bool,
    pub(crate) allocator: Arc<Allocator>,
    pub(crate) inodes: InodeCache,
    pub(crate) names: NameCache,
    /// Data that wait for their blocks.
    pub(crate) delalloc: DelayedAllocation,
    /// Times that wait to be stored.
    pub(crate) lazy_times: LazyTimes,
    /// Where each group's inode table begins; 0 until the first lookup.
    pub(crate) tables: Growable<AtomicU64>,
    /// Held by renames of directories between directories.
    pub(crate) renames: Mutex<(), RenameLock>,
    /// Inodes to be finished after power loss.
    pub(crate) orphans: Mutex<Orphans, OrphanLock>,
    /// Attribute blocks and values that files may share.
    pub(crate) shared: Shared,
    /// Held while quotas are counted: the reserved quota of owners, in addition to the stored
    /// usage.
    pub(crate) quotas: Mutex<ReservedQuota, QuotaLock>,
    pub(crate) health: Arc<Health>,
    /// Changes are held back.
    pub(crate) is_frozen: AtomicBool,
    /// Held while the volume is frozen or thawed, or grows.
    pub(crate) freezing: Mutex<(), FreezeLock>,
    /// Steps that tests let fail.
    pub(crate) faults: faults::Faults,
    /// The next inode's generation is made of it.
    pub(crate) generations: AtomicU64,
}

/// The volume as its superblock describes it: replaced when it grows.
#[derive(Debug)]
pub(crate) struct Sizes {
    pub(crate) info: VolumeInfo,
    /// The same geometry, for functions that seal blocks later.
    pub(crate) geometry: Arc<Geometry>,
}

impl Sizes {
    pub(crate) fn new(info: VolumeInfo) -> Self {
        Self { geometry: Arc::new(info.geometry.clone()), info }
    }
}

/// The hooks that the journal calls.
#[derive(Debug)]
pub(crate) struct Hooks {
    pub(crate) allocator: Arc<Allocator>,
    pub(crate) health: Arc<Health>,
    /// The device on which freed space is discarded.
    pub(crate) discards: Option<Arc<dyn Device>>,
    /// The engine's `freed_in`.
    pub(crate) freed_in: Arc<Versions<Geometry>>,
}

impl CommitHooks for Hooks {
    /// Data are on the device before the metadata that show them are changed: nothing is left to
    /// write.
    fn before_commit(&self, _: Tid) -> Result<(), DeviceError> {
        self.health.refusal().map_or(Ok(()), Err)
    }

    fn may_write(&self) -> bool {
        self.health.refusal().is_none()
    }

    fn committed(&self, tid: Tid) {
        self.allocator.committed(tid, |piece| {
            let Some(device) = &self.discards else { return };
            let geometry = self.freed_in.newest();
            let run = run_of(geometry, piece);
            let start = geometry.byte_of(run.start);
            let end = start + run.count * u64::from(geometry.block_size);
            if let Err(error) = device.discard(start..end) {
                tracing::warn!(%error, start = run.start.0, count = run.count, "blocks were not discarded");
            }
        });
    }
}

impl Engine {
    /// Sizes and counts.
    pub fn geometry(&self) -> &Geometry {
        &self.sizes.newest().info.geometry
    }

    /// The result of the journal's replay when the volume was opened; `None` if no replay was
    /// needed.
    pub fn recovered(&self) -> Option<&Recovered> {
        self.recovered.as_ref()
    }

    /// Fast commits so far, and what was committed by transactions instead; `None` where the volume
    /// has none.
    pub fn fast_commits(&self) -> Option<FastCommitCounts> {
        self.journal.fast_commit_counts()
    }

    /// A block's frame, checked as `kind`.
    pub(crate) fn frame(&self, block: BlockNo, kind: BlockKind) -> Result<Frame, Error> {
        self.faults.meet(Step::Read)?;
        let geometry = self.geometry();
        if !geometry.contains(block, 1) {
            let flaw = Flaw::Rule("block past the end of the volume");
            return Err(flaw.at(Location::Block(block)).into());
        }
        let frame = match kind {
            BlockKind::InodeTable { group } => self
                .journal
                .read_with(block, || run_of_table(self, self.table_run, block, group))?,
            _ => self.journal.read(block)?,
        };
        // By the geometry of after the block was read: if it names what growth has added, this
        // geometry has it.
        frame.verify_once(kind.number(), |bytes| kind.check(bytes, block, self.geometry()))?;
        Ok(frame)
    }

    /// Seconds since 1970.
    pub(crate) fn seconds(&self) -> u64 {
        self.env.now().seconds.max(0).cast_unsigned()
    }

    /// The time that changes are stamped with: in whole seconds where inodes have no room for more,
    /// so that a time does not change when its inode is read again.
    pub(crate) fn now(&self) -> Timestamp {
        let now = self.env.now();
        let has_nanoseconds = self.geometry().inode_size > GOOD_OLD_INODE_SIZE;
        Timestamp::new(now.seconds, if has_nanoseconds { now.nanoseconds } else { 0 })
    }

    /// A generation for a new inode: numbers that do not follow each other.
    pub(crate) fn generation(&self) -> u32 {
        let count = self.generations.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (count ^ count >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        // The upper half, mixed well.
        ((mixed ^ mixed >> 27) >> 32) as u32
    }

    /// Refuses changes where an error has made the volume read-only.
    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        if self.health.is_read_only() {
            return Err(Error::ReadOnly);
        }
        self.journal.aborted().map_or(Ok(()), |error| Err(error.into()))
    }

    /// Whether nothing can be changed any more, since an error has made it so.
    pub fn is_read_only(&self) -> bool {
        self.health.is_read_only() || self.journal.aborted().is_some()
    }

    /// Whether use is counted against quotas.
    pub(crate) fn has_quotas(&self) -> bool {
        QuotaKind::ALL.iter().any(|kind| self.sizes.info.quota_file(*kind).is_some())
    }

    /// Waits while the volume is frozen, and fails where it takes no changes. Before locks are
    /// taken, so that a waiter does not block readers.
    pub(crate) fn wait_for_thaw(&self) -> Result<(), Error> {
        Ok(self.journal.wait_for_thaw()?)
    }
}
