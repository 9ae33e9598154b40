//! Opening a volume for changes and closing it: refusals, recovery, and the superblock's state
//! while it is open.

use crate::alloc::{Allocator, AllocatorOptions};
use crate::edit::change_superblock;
use crate::engine::bytes_written::CountedDevice;
use crate::engine::delay::DelayedAllocation;
use crate::engine::fast_commit;
use crate::engine::faults::Faults;
use crate::engine::health::Health;
use crate::engine::inodes::InodeCache;
use crate::engine::lazy_times::LazyTimes;
use crate::engine::mmp::MmpMark;
use crate::engine::names::NameCache;
use crate::engine::operation::Operation;
use crate::engine::shared::Shared;
use crate::engine::{Engine, Hooks, Sizes};
use crate::growable::{Growable, Versions};
use crate::options::{DataMode, VolumeOptions};
use crate::volume::{Volume, Workers};
use crate::write::orphans::{Orphans, clear_present};
use extant_device::Device;
use extant_journal::{Finish, JournalError, JournalLocation, OpenLog, recover_volume};
use extant_offline::read_primary_superblock;
use extant_ondisk::quota::QuotaKind;
use extant_ondisk::superblock::{
    DefaultMountOptions, RawSuperblock, SUPERBLOCK_OFFSET, State, SuperFlags, Superblock,
};
use extant_ondisk::{
    CompatFeatures, FormatError, Geometry, IncompatFeatures, RoCompatFeatures, Uuid,
};
use extant_reader::read::ahead::FileReadAhead;
use extant_reader::read::{group, inode_tables};
use extant_reader::{Error, VolumeInfo, check_journal_device, check_size, torn};
use extant_runtime::env::{Env, Next, Worker};
use extant_runtime::sync::Mutex;
use extant_runtime::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// The part of the memory that buddies may take.
const BUDDY_SHARE: u64 = 8;
/// Bytes that an inode in memory takes, about.
const INODE_BYTES: u64 = 512;

/// Blocks of a volume that indirect blocks can name all: their numbers have 32 bits.
const MOST_INDIRECT_BLOCKS: u64 = 1 << 32;

/// Read-only compatible features that this code keeps right when it writes.
const WRITABLE: RoCompatFeatures = RoCompatFeatures::SPARSE_SUPER
    .union(RoCompatFeatures::LARGE_FILE)
    .union(RoCompatFeatures::HUGE_FILE)
    .union(RoCompatFeatures::GDT_CSUM)
    .union(RoCompatFeatures::DIR_NLINK)
    .union(RoCompatFeatures::EXTRA_ISIZE)
    .union(RoCompatFeatures::QUOTA)
    .union(RoCompatFeatures::PROJECT)
    .union(RoCompatFeatures::BIGALLOC)
    .union(RoCompatFeatures::METADATA_CSUM)
    .union(RoCompatFeatures::ORPHAN_PRESENT)
    .union(RoCompatFeatures::VERITY);

/// Refuses what this code cannot write, before anything is written.
fn check_writable(geometry: &Geometry) -> Result<(), Error> {
    let beyond = geometry.features.ro_compat.difference(WRITABLE);
    if !beyond.is_empty() {
        return Err(FormatError::UnsupportedForWriting(beyond).into());
    }
    Ok(())
}

/// Refuses options that do not go together.
fn check_options(
    options: &VolumeOptions,
    geometry: &Geometry,
    superblock: &Superblock,
    data: DataMode,
) -> Result<(), Error> {
    let has_journal = geometry.has_compat(CompatFeatures::HAS_JOURNAL);
    if !has_journal && options.data.is_some() {
        return Err(Error::Options("data= requires a journal"));
    }
    if !has_journal && (options.journal_async_commit || options.journal_checksum) {
        return Err(Error::Options("journal options given, but the volume has no journal"));
    }
    if !has_journal && options.aborts_on_lost_data {
        return Err(Error::Options("data_err=abort requires a journal"));
    }
    check_journal_device(options.external_journal.is_some(), geometry, superblock)?;
    if data == DataMode::Journal && options.delalloc == Some(true) {
        return Err(Error::Options("delalloc and data=journal are mutually exclusive"));
    }
    if data == DataMode::Ordered && options.journal_async_commit {
        return Err(Error::Options("journal_async_commit and data=ordered are mutually exclusive"));
    }
    check_mapping(options, geometry, superblock.revision)
}

/// Refuses a mapping of new files that the volume cannot have.
fn check_mapping(options: &VolumeOptions, geometry: &Geometry, revision: u32) -> Result<(), Error> {
    if options.extents == Some(false) && geometry.has_ro_compat(RoCompatFeatures::BIGALLOC) {
        return Err(Error::Options("noextents: not possible with bigalloc"));
    }
    if options.extents == Some(true) && revision == 0 {
        return Err(Error::Options("extents: not possible with revision 0"));
    }
    if options.extents == Some(false) && geometry.blocks_count > MOST_INDIRECT_BLOCKS {
        return Err(Error::Options("noextents: not possible above block 4294967295"));
    }
    Ok(())
}

/// Refuses limits of a kind whose use the volume does not count.
fn check_quotas(options: &VolumeOptions, info: &VolumeInfo) -> Result<(), Error> {
    let asked = options.enforced_limits.unwrap_or_default();
    match QuotaKind::ALL
        .into_iter()
        .zip(asked)
        .find(|(kind, is_asked)| *is_asked && info.quota_file(*kind).is_none())
    {
        Some((kind, _)) => Err(Error::Options(match kind {
            QuotaKind::User => {
                "usrquota: the volume has no quota file of users (feature quota); quota files of quotacheck(8) are not supported"
            }
            QuotaKind::Group => {
                "grpquota: the volume has no quota file of groups (feature quota); quota files of quotacheck(8) are not supported"
            }
            QuotaKind::Project => {
                "prjquota: the volume has no quota file of projects (features quota and project)"
            }
        })),
        None => Ok(()),
    }
}

/// Whether data are delayed.
fn delalloc(options: &VolumeOptions, superblock: &Superblock, data: DataMode) -> bool {
    let default = !superblock.default_mount_opts.contains(DefaultMountOptions::NO_DELALLOC);
    data != DataMode::Journal && options.delalloc.unwrap_or(default)
}

/// The default data mode.
fn default_data_mode(superblock: &Superblock) -> DataMode {
    let both = DefaultMountOptions::DATA_JOURNAL | DefaultMountOptions::DATA_ORDERED;
    match superblock.default_mount_opts & both {
        mode if mode == both => DataMode::Writeback,
        mode if mode == DefaultMountOptions::DATA_JOURNAL => DataMode::Journal,
        _ => DataMode::Ordered,
    }
}

/// How the allocator works on this volume.
fn allocator_options(
    superblock: &Superblock,
    geometry: &Geometry,
    options: &VolumeOptions,
) -> AllocatorOptions {
    let per_cluster = u64::from(geometry.blocks_per_cluster);
    let stripe = u64::from(options.stripe.unwrap_or(superblock.raid_stripe_width)) / per_cluster;
    AllocatorOptions {
        kind: options.allocator,
        longest_run: 1,
        // Longer than a group is no stripe to a run.
        stripe: u32::try_from(stripe).unwrap_or(0) % geometry.clusters_per_group,
        kept_clusters: superblock.reserved_blocks / per_cluster,
        map_clusters: options.reserved_clusters.unwrap_or_else(|| geometry.clusters_for_maps()),
        memory: options.memory / BUDDY_SHARE,
    }
}

/// Starts the background writer, where data or times wait in memory. It has the engine only while
/// it works.
fn start_writer(engine: &Arc<Engine>) -> Option<Worker> {
    if !engine.delalloc.is_on && !engine.lazy_times.is_on {
        return None;
    }
    let writer = engine.env.spawn("writeback", {
        let engine = Arc::downgrade(engine);
        move || engine.upgrade().map_or(Next::Done, |engine| engine.write_back_due())
    });
    engine.delalloc.set_writer(writer.waker());
    Some(writer)
}

/// Puts the options that the algorithms of `write` obey into the properties of the volume.
pub(crate) fn follow(info: &mut VolumeInfo, options: &VolumeOptions) {
    info.maps_by_extents = options.extents.unwrap_or(info.maps_by_extents);
    info.enforced_limits = options.enforced_limits.unwrap_or(info.enforced_limits);
    info.most_directory_bytes = options
        .max_dir_size_kb
        .filter(|limit| *limit != 0)
        .map_or(u64::MAX, |limit| u64::from(limit) << 10);
}

/// Whether the volume gets the feature `extent` now.
fn gains_extents(options: &VolumeOptions, geometry: &Geometry) -> bool {
    options.extents == Some(true) && !geometry.has_incompat(IncompatFeatures::EXTENTS)
}

fn add_extents(raw: &mut RawSuperblock) {
    let features = raw.s_feature_incompat.get() | IncompatFeatures::EXTENTS.bits();
    raw.s_feature_incompat.set(features);
}

/// Where the journal is; `None` without one.
fn find_log(
    device: &Arc<dyn Device>,
    raw: &RawSuperblock,
    geometry: &Geometry,
    external: Option<Arc<dyn Device>>,
) -> Result<Option<OpenLog>, Error> {
    if !geometry.has_compat(CompatFeatures::HAS_JOURNAL) {
        return Ok(None);
    }
    let log = if raw.s_journal_inum.get() != 0 {
        let place = JournalLocation::internal(&**device, raw, geometry)?;
        OpenLog { device: device.clone(), place, is_external: false }
    } else {
        let journal =
            external.ok_or(JournalError::ExternalJournalNeeded(Uuid(raw.s_journal_uuid)))?;
        let place = JournalLocation::external(&*journal, raw, geometry)?;
        OpenLog { device: journal, place, is_external: true }
    };
    Ok(Some(log))
}

/// Stores that the volume is in use, before any other change: another mount, its time, and without
/// a journal that it is not clean.
fn mark_mounted(device: &dyn Device, env: &Env, has_log: bool) -> Result<RawSuperblock, Error> {
    let mut raw = read_primary_superblock(device)?;
    let mut superblock = Superblock::decode(&raw);
    let now = env.now().seconds.max(0).cast_unsigned();
    superblock.mount_count = superblock.mount_count.saturating_add(1);
    (superblock.mount_time, superblock.write_time) = (now, now);
    if !has_log {
        superblock.state.remove(State::CLEAN);
    }
    if !superblock.flags.intersects(SuperFlags::SIGNED_HASH | SuperFlags::UNSIGNED_HASH) {
        superblock.flags.insert(SuperFlags::SIGNED_HASH);
    }
    superblock.encode_into(&mut raw);
    raw.seal();
    device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes())?;
    device.flush()?;
    Ok(raw)
}

impl Engine {
    /// Commits all changes so far and waits for it (syncfs).
    ///
    /// # Errors
    /// The journal was stopped by an earlier failure, or now.
    pub fn sync(&self) -> Result<(), Error> {
        self.write_back_all();
        self.write_all_times()?;
        self.allocator.discard_preallocations(|inode| self.inodes.is_pinned(inode));
        self.delalloc.take_lost()?;
        self.commit_all()
    }

    /// As [`Self::commit_all`], by a fast commit where that is possible: blocks that were freed
    /// stay in use until the next transaction.
    pub(crate) fn commit_file(&self) -> Result<(), Error> {
        self.record_errors()?;
        Ok(self.journal.sync_fast()?)
    }

    /// Commits all changes so far and waits for it, except for delayed data.
    pub(crate) fn commit_all(&self) -> Result<(), Error> {
        self.record_errors()?;
        Ok(self.journal.sync()?)
    }

    /// Holds all changes back until [`Self::thaw`]: calls that change something wait, and no write
    /// reaches the device but the mark of multiple-mount protection. Everything is on the device
    /// then, with nothing to recover: a copy of the device is a clean volume (but for files without
    /// names that are held).
    ///
    /// # Errors
    /// [`Error::Invalid`] where it is frozen already; why delayed data were lost, once; the journal
    /// was stopped by an earlier failure, or now.
    pub fn freeze(&self) -> Result<(), Error> {
        self.check_writable()?;
        let _one_at_a_time = self.freezing.lock();
        if self.is_frozen.load(Ordering::Acquire) {
            return Err(Error::Invalid("the volume is already frozen"));
        }
        self.write_back_all();
        self.delalloc.take_lost()?;
        self.write_all_times()?;
        self.is_frozen.store(true, Ordering::Release);
        let frozen = self.store_counts(false).and_then(|()| self.hold_all_writes());
        if frozen.is_err() {
            self.is_frozen.store(false, Ordering::Release);
        }
        frozen
    }

    /// Holds operations back, then what goes past the journal: data that are written in place, and
    /// to blocks that no file has yet. An operation may write such data itself, so that it has to
    /// end first.
    fn hold_all_writes(&self) -> Result<(), Error> {
        self.journal.freeze()?;
        self.written.hold_writes();
        self.device.flush().or_else(|error| {
            self.written.let_writes_pass();
            self.journal.thaw()?;
            Err(error.into())
        })
    }

    /// Allows changes again.
    ///
    /// # Errors
    /// [`Error::Invalid`] where it is not frozen; the journal was stopped by an earlier failure, or
    /// now.
    pub fn thaw(&self) -> Result<(), Error> {
        let _one_at_a_time = self.freezing.lock();
        if !self.is_frozen.swap(false, Ordering::AcqRel) {
            return Err(Error::Invalid("the volume is not frozen"));
        }
        self.written.let_writes_pass();
        Ok(self.journal.thaw()?)
    }

    /// Puts the counts into the superblock.
    fn store_counts(&self, at_end: bool) -> Result<(), Error> {
        let per_cluster = u64::from(self.geometry().blocks_per_cluster);
        let now = self.seconds();
        self.record_errors()?;
        let mut edit = Operation::start(self, 1)?;
        let orphans = self.orphans.lock();
        if at_end && orphans.is_empty() {
            clear_present(&mut edit, &orphans)?;
        }
        drop(orphans);
        change_superblock(&mut edit, |raw| {
            let mut superblock = Superblock::decode(raw);
            let reserved = self.allocator.reserved_clusters();
            superblock.free_blocks = (self.allocator.free_clusters() + reserved) * per_cluster;
            // At most the volume's inodes.
            superblock.free_inodes = self.allocator.free_inodes() as u32;
            superblock.write_time = now;
            superblock.kbytes_written =
                superblock.kbytes_written.saturating_add(self.written.take_kib());
            if at_end && self.closes_clean {
                superblock.state.insert(State::CLEAN);
            }
            superblock.encode_into(raw);
        })?;
        edit.finish();
        Ok(())
    }
}

impl Volume {
    /// Opens the volume on a device for reading and changing, by its first superblock. A journal
    /// that must be replayed is replayed into the volume. [`Self::close`] ends it well; a volume
    /// that is dropped is left as by power loss.
    ///
    /// # Errors
    /// As [`Reader::open`](extant_reader::Reader::open); a feature that this code does not write,
    /// or options that do not go together: then nothing was written. Or the journal could not be
    /// recovered or started.
    pub fn open(
        device: Arc<dyn Device>,
        env: &Env,
        options: &VolumeOptions,
    ) -> Result<Self, Error> {
        if device.is_read_only() {
            return Err(Error::ReadOnly);
        }
        if let Some(superblock) =
            torn::repair_torn_superblock(&device, options.external_journal.as_deref())?
        {
            device.write_at(SUPERBLOCK_OFFSET, superblock.as_bytes())?;
            device.flush()?;
        }
        let raw = read_primary_superblock(&*device)?;
        let geometry = Geometry::new(&raw)?;
        check_size(&geometry, &*device)?;
        let superblock = Superblock::decode(&raw);
        check_writable(&geometry)?;
        let data = options.data.unwrap_or_else(|| default_data_mode(&superblock));
        check_options(options, &geometry, &superblock, data)?;
        check_quotas(options, &VolumeInfo::new(geometry.clone(), raw)?)?;
        if !geometry.has_incompat(IncompatFeatures::MMP) {
            return Self::open_taken(device, env, options, data, Arc::default());
        }
        let mark = Arc::new(MmpMark::take(&device, &raw, &geometry, env)?);
        let health = Arc::<Health>::default();
        let mut volume = match Self::open_taken(device, env, options, data, health.clone()) {
            Ok(volume) => volume,
            Err(error) => {
                mark.give_back(env)?;
                return Err(error);
            }
        };
        let (kept, world) = (mark.clone(), env.clone());
        volume.workers.mmp = Some((env.spawn("mmp", move || kept.keep(&health, &world)), mark));
        Ok(volume)
    }

    /// Opens a volume that is ours: recovers it, starts the journal, and finishes what was cut off.
    fn open_taken(
        device: Arc<dyn Device>,
        env: &Env,
        options: &VolumeOptions,
        data: DataMode,
        health: Arc<Health>,
    ) -> Result<Self, Error> {
        let written = Arc::new(CountedDevice::new(device, health.clone()));
        let device: Arc<dyn Device> = written.clone();
        let raw = read_primary_superblock(&*device)?;
        let geometry = Geometry::new(&raw)?;
        let needs_recovery = geometry.has_incompat(IncompatFeatures::RECOVER);
        let recovered =
            recover_volume(&*device, options.external_journal.as_deref(), Finish::Reset)?
                .filter(|_| needs_recovery);
        let raw = read_primary_superblock(&*device)?;
        let geometry = Geometry::new(&raw)?;
        check_size(&geometry, &*device)?;
        check_writable(&geometry)?;
        let state = State::from_bits_retain(raw.s_state.get());
        let counts_are_true =
            !needs_recovery && state.contains(State::CLEAN) && !state.contains(State::ERRORS);

        let guarded = |log| Arc::new(CountedDevice::new(log, health.clone())) as Arc<dyn Device>;
        let external = options.external_journal.clone().map(guarded);
        let log = find_log(&device, &raw, &geometry, external)?;
        let has_log = log.is_some();
        let superblock = Superblock::decode(&raw);
        let allocator = Arc::new(Allocator::new(
            &geometry,
            superblock.free_blocks / u64::from(geometry.blocks_per_cluster),
            u64::from(superblock.free_inodes),
            allocator_options(&superblock, &geometry, options),
        ));
        let freed_in = Arc::new(Versions::new(geometry.clone()));
        let mut first_info = VolumeInfo::new(geometry.clone(), raw)?;
        follow(&mut first_info, options);
        let journal = extant_journal::Journal::open(
            device.clone(),
            &geometry,
            log,
            env,
            extant_journal::JournalOptions {
                commit_interval: options.commit_interval,
                barriers: options.barriers,
                checksum: options.journal_checksum,
                async_commit: options.journal_async_commit,
                fast_commits: fast_commit::is_possible(&geometry, &first_info, data),
                batch: options.batch,
                io_priority: options.journal_io_priority,
                memory: options.memory,
            },
            Arc::new(Hooks {
                allocator: allocator.clone(),
                health: health.clone(),
                discards: options.discard.then(|| device.clone()),
                freed_in: freed_in.clone(),
            }),
        )?;
        let mut raw = mark_mounted(&*device, env, has_log)?;
        let gains_extents = gains_extents(options, &geometry);
        if gains_extents {
            add_extents(&mut raw);
        }
        let geometry = Geometry::new(&raw)?;
        let mut info = VolumeInfo::new(geometry, raw)?;
        follow(&mut info, options);
        let now = env.now();
        let first_generation = now.seconds.cast_unsigned() << 30 ^ u64::from(now.nanoseconds);
        let inodes = usize::try_from(options.memory / 8 / INODE_BYTES).unwrap_or(usize::MAX);
        // Frames have half of the memory at most.
        let table_run = inode_tables::longest_run(
            options.inode_readahead_blks,
            options.memory / 2,
            info.geometry.block_size,
        );
        let engine = Engine {
            device,
            written,
            journal,
            recovered,
            on_broken_index: options.on_broken_index,
            ahead: FileReadAhead::default(),
            table_run,
            env: env.clone(),
            options: options.clone(),
            data,
            closes_clean: state.contains(State::CLEAN),
            allocator,
            inodes: InodeCache::new(inodes),
            names: NameCache::new(options.memory / 64),
            delalloc: DelayedAllocation::new(
                delalloc(options, &info.superblock, data),
                options.memory,
            ),
            lazy_times: LazyTimes::new(options.lazytime, inodes),
            tables: Growable::new(info.geometry.groups_count as usize, |_| AtomicU64::new(0)),
            renames: Mutex::default(),
            orphans: Mutex::default(),
            shared: Shared::default(),
            quotas: Mutex::default(),
            health,
            is_frozen: AtomicBool::new(false),
            freezing: Mutex::default(),
            faults: Faults::default(),
            generations: AtomicU64::new(first_generation),
            freed_in,
            sizes: Versions::new(Sizes::new(info)),
        };
        let orphans =
            Orphans::load(&engine, |error| drop(engine.record_corruption(Err::<(), _>(error))))?;
        *engine.orphans.lock() = orphans;
        if !counts_are_true {
            let (clusters, inodes) = group::free_counts(&engine)?;
            engine.allocator.set_counts(clusters, inodes);
        }
        if gains_extents {
            change_superblock(&mut engine.edit(1)?, add_extents)?;
            engine.commit_all()?;
        }
        engine.finish_orphans()?;
        let engine = Arc::new(engine);
        let workers = Workers { writer: start_writer(&engine), mmp: None };
        Ok(Self { workers, engine })
    }

    /// Ends the volume well: everything is on the device, the journal is empty, the superblock has
    /// the counts and is marked clean if it was clean before.
    ///
    /// # Errors
    /// The journal was stopped by an earlier failure, or now: then the volume needs recovery.
    pub fn close(mut self) -> Result<(), Error> {
        if self.is_frozen.load(Ordering::Acquire) {
            self.thaw()?;
        }
        if !self.is_read_only() {
            self.unpin_all()?;
        }
        self.write_back_all();
        self.write_all_times()?;
        // It has the engine no more once it has stopped.
        self.workers.writer = None;
        if !self.geometry().has_compat(CompatFeatures::HAS_JOURNAL) {
            // The word that it is clean comes when all before it is durable; a log sees to that by
            // itself.
            self.commit_all()?;
        }
        self.store_counts(true)?;
        let Self { workers, engine } = self;
        let engine = Arc::into_inner(engine).expect("the background writer has stopped");
        let lost = engine.delalloc.take_lost();
        let Engine { journal, env, .. } = engine;
        let closed = journal.close();
        if let Some((worker, mark)) = workers.mmp {
            worker.stop();
            mark.give_back(&env)?;
        }
        closed?;
        lost
    }
}
