//! Opening a volume.

use crate::alloc::AllocatorKind;
use crate::cache::BlockCache;
use crate::error::Error;
use crate::info::VolumeInfo;
use crate::read::ahead::ReadAhead;
use crate::read::dir::BrokenIndex;
use crate::read::tables;
use crate::reader::Reader;
use crate::torn;
use extant_device::{Device, OverlayDevice};
use extant_journal::{BatchTime, Finish, Recovered, recover_volume};
use extant_offline::read_superblock;
use extant_ondisk::superblock::{ErrorPolicy, RawSuperblock, SUPERBLOCK_OFFSET, Superblock};
use extant_ondisk::{
    CompatFeatures, Flaw, FormatError, Geometry, GroupNo, IncompatFeatures, Place,
};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Bytes of metadata blocks kept in memory, unless other is asked for.
const DEFAULT_CACHE: u64 = 64 << 20;

/// Blocks of an inode table that are read at once: the kernel's default.
const DEFAULT_TABLE_RUN: u32 = 32;

/// Memory of a live volume, unless other is asked for.
const DEFAULT_MEMORY: u64 = 256 << 20;
/// Age of delayed data when they are written: the kernel's default.
const DIRTY_EXPIRE: Duration = Duration::from_secs(30);

/// Which superblock a volume is opened by.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SuperblockAt {
    /// The first one, at byte 1,024.
    #[default]
    Primary,
    /// A backup: the block that it starts, and the block size in bytes (as `e2fsck -b` and `-B` take them). The descriptors
    /// that belong to it are used too.
    Backup {
        /// Block number.
        block: u64,
        /// Bytes a block.
        block_size: u32,
    },
    /// A backup at this byte of the device; its own block size says which block that is.
    BackupAt {
        /// Bytes.
        offset: u64,
    },
}

/// What is done with a journal that must be replayed. The device itself is never written.
#[derive(Clone, Debug, Default)]
pub enum Journal {
    /// Replayed into memory, so that reading sees what the next mount would.
    #[default]
    Replay,
    /// The same with a journal on a device of its own.
    ReplayExternal(Arc<dyn Device>),
    /// Left alone: the volume is read as it lies, which may be inconsistent.
    Ignore,
    /// The volume is refused: [`Error::NeedsRecovery`].
    Refuse,
}

/// How a volume is opened for reading.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Which superblock.
    pub superblock: SuperblockAt,
    /// What is done with a journal that must be replayed.
    pub journal: Journal,
    /// The way of a lookup when a directory's index is broken.
    pub on_broken_index: BrokenIndex,
    /// Bytes of metadata blocks kept in memory.
    pub cache_size: u64,
    /// Blocks of an inode table that are read at once at most, where one of them is not in memory (`inode_readahead_blks=`); 0
    /// or 1: only that one. Of a volume opened for changes too. Fewer where memory is short.
    pub inode_readahead_blks: u32,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            superblock: SuperblockAt::default(),
            journal: Journal::default(),
            on_broken_index: BrokenIndex::default(),
            cache_size: DEFAULT_CACHE,
            inode_readahead_blks: DEFAULT_TABLE_RUN,
        }
    }
}

/// What happens to file data beside the journal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DataMode {
    /// Data are on the device before the metadata that show them are committed.
    Ordered,
    /// Data are written when it suits; after power loss a file may show what its blocks held before.
    Writeback,
    /// Data go through the journal too.
    Journal,
}

/// How a volume is opened for changes.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// What happens to file data (`data=`); else what the superblock's default options say, else [`DataMode::Ordered`].
    pub data: Option<DataMode>,
    /// A transaction is committed at this age at the latest (`commit=`).
    pub commit_interval: Duration,
    /// The device is flushed where the order of writes counts (`barrier`).
    pub barriers: bool,
    /// Checksums in the log (`journal_checksum`).
    pub journal_checksum: bool,
    /// The commit block is not held back until the log is on the medium (`journal_async_commit`).
    pub journal_async_commit: bool,
    /// Data written into holes wait in memory for their blocks (`delalloc`), or not (`nodelalloc`). `None`: they do, unless data
    /// go through the journal, or the superblock's default options say no.
    pub delalloc: Option<bool>,
    /// Delayed data are written at this age at the latest, and then with the next commit durable. The kernel's
    /// `dirty_expire_centisecs`: `commit_interval` says nothing of data that have no blocks yet.
    pub dirty_expire: Duration,
    /// Delayed data of a file that is renamed over another, or was emptied to be written anew, are written early (`auto_da_alloc`).
    pub auto_da_alloc: bool,
    /// Bytes of memory for metadata, inodes and delayed data together, about. 16 MiB and 32 bytes for each block group are enough;
    /// with less than there is to do, calls wait for the device.
    pub memory: u64,
    /// What to do when an error is met (`errors=`); else what the superblock says.
    pub errors: Option<ErrorPolicy>,
    /// The journal's own device, where the volume has an external one.
    pub external_journal: Option<Arc<dyn Device>>,
    /// Who finds free blocks (`mballoc`, `nomballoc`).
    pub allocator: AllocatorKind,
    /// Blocks of a stripe that large runs are aligned to (`stripe=`); else what the superblock says, 0 or 1 for none.
    pub stripe: Option<u32>,
    /// The device is told of blocks that were freed, once that is committed (`discard`).
    pub discard: bool,
    /// Clusters that only maps may take, so that a full volume can still cut extents. The kernel's `reserved_clusters`; `None` for as
    /// many as it keeps: a fiftieth of all, 4096 at most, none where no file can have extents.
    pub reserved_clusters: Option<u64>,
    /// Whether new files and directories are extent-mapped (`extents`, which gives the volume the feature) or mapped by indirect
    /// blocks (`noextents`). `None`: as the feature says.
    pub extents: Option<bool>,
    /// Whether new files take their directory's group (`grpid`) or their maker's (`nogrpid`). `None`: as the superblock's
    /// default options say.
    pub passes_group: Option<bool>,
    /// Whether the limits of users, groups and projects are enforced (`usrquota`, `grpquota`, `prjquota`); those that are must be
    /// counted by the volume. `None`: all that it counts. Use is counted always.
    pub enforced_limits: Option<[bool; 3]>,
    /// Directories of so many KiB and more do not grow (`max_dir_size_kb=`). `None` and 0: without a limit.
    pub max_dir_size_kb: Option<u32>,
    /// Whether files with equal attributes share the block or inode that holds them; `nombcache` says no.
    pub shares_xattrs: bool,
    /// Changes of nothing but an inode's times wait in memory (`lazytime`), a day at most: until
    /// the inode is written for another reason, or [`Engine::fsync`](crate::Engine::fsync),
    /// [`Engine::sync`](crate::Engine::sync), freezing or closing asks for it.
    pub lazytime: bool,
    /// Whether delayed data that cannot be written abort the journal (`data_err=abort`). Else they are lost, and `fsync` returns the
    /// error (`data_err=ignore`).
    pub aborts_on_lost_data: bool,
    /// The priority of what commits write, 0 (first) to 7 (`journal_ioprio=`). `None`: as other threads have.
    pub journal_io_priority: Option<u8>,
    /// How long an fsync waits for other operations to join its transaction (`max_batch_time=`, `min_batch_time=`).
    pub batch: BatchTime,
}

impl Default for LiveOptions {
    /// As the kernel mounts, with 256 MiB of memory.
    fn default() -> Self {
        let journal = extant_journal::Options::default();
        Self {
            data: None,
            commit_interval: journal.commit_interval,
            barriers: journal.barriers,
            journal_checksum: journal.checksum,
            journal_async_commit: journal.async_commit,
            delalloc: None,
            dirty_expire: DIRTY_EXPIRE,
            auto_da_alloc: true,
            memory: DEFAULT_MEMORY,
            errors: None,
            external_journal: None,
            allocator: AllocatorKind::default(),
            stripe: None,
            discard: false,
            reserved_clusters: None,
            extents: None,
            passes_group: None,
            enforced_limits: None,
            max_dir_size_kb: None,
            shares_xattrs: true,
            lazytime: false,
            aborts_on_lost_data: false,
            journal_io_priority: None,
            batch: BatchTime::default(),
        }
    }
}

/// Refuses a device for the journal of a volume that has its journal inside.
pub(crate) fn check_journal_device(
    is_given: bool,
    geometry: &Geometry,
    superblock: &Superblock,
) -> Result<(), Error> {
    let has_journal = geometry.has_compat(CompatFeatures::HAS_JOURNAL);
    if is_given && has_journal && superblock.journal_inode.is_some() {
        return Err(Error::Options(
            "a journal device is given, and the volume has its journal inside",
        ));
    }
    Ok(())
}

impl OpenOptions {
    /// Opens the volume on a device for reading. Nothing is ever written to the device. Descriptors are read when they are
    /// needed, so the time does not depend on the volume's size.
    ///
    /// # Errors
    /// No ext2, ext3 or ext4; a feature that this code does not know, by name; a broken superblock; a volume that is larger
    /// than its device; a journal that cannot be replayed; or the device failed.
    pub fn open(&self, device: Arc<dyn Device>) -> Result<Reader, Error> {
        let device = self.with_whole_superblock(device)?;
        let (raw, backup) = self.find_superblock(&*device)?;
        let geometry = Geometry::new(&raw)?;
        check_size(&geometry, &*device)?;
        let is_given = matches!(self.journal, Journal::ReplayExternal(_));
        check_journal_device(is_given, &geometry, &Superblock::decode(&raw))?;
        let needs_recovery = geometry.has_incompat(IncompatFeatures::RECOVER)
            && geometry.has_compat(CompatFeatures::HAS_JOURNAL);
        let opened = Opened { device, raw, geometry, recovered: None };
        let opened = match &self.journal {
            _ if !needs_recovery => opened,
            Journal::Ignore => opened,
            Journal::Refuse => return Err(Error::NeedsRecovery),
            Journal::Replay => opened.replay(None)?,
            Journal::ReplayExternal(journal) => opened.replay(Some(&**journal))?,
        };
        let info = VolumeInfo::new(opened.geometry, opened.raw)?;
        let cache = BlockCache::new(self.cache_size, info.geometry.block_size);
        let table_run = tables::longest_run(
            self.inode_readahead_blks,
            self.cache_size,
            info.geometry.block_size,
        );
        Ok(Reader {
            info,
            device: opened.device,
            cache,
            backup,
            recovered: opened.recovered,
            on_broken_index: self.on_broken_index,
            ahead: ReadAhead::default(),
            table_run,
        })
    }

    /// The device, or where its superblock was torn by power loss and the log will bring it home whole, one over it with a superblock
    /// that finds the log.
    fn with_whole_superblock(&self, device: Arc<dyn Device>) -> Result<Arc<dyn Device>, Error> {
        let external = match &self.journal {
            Journal::Replay => None,
            Journal::ReplayExternal(journal) => Some(&**journal),
            Journal::Ignore | Journal::Refuse => return Ok(device),
        };
        if self.superblock != SuperblockAt::Primary {
            return Ok(device);
        }
        let Some(superblock) = torn::mended(&device, external)? else { return Ok(device) };
        let overlay = OverlayDevice::new(device);
        overlay.write_at(SUPERBLOCK_OFFSET, superblock.as_bytes())?;
        Ok(Arc::new(overlay))
    }

    /// The superblock asked for, verified, and the group that it is a backup in.
    pub(crate) fn find_superblock(
        &self,
        device: &dyn Device,
    ) -> Result<(RawSuperblock, Option<GroupNo>), Error> {
        let (at, stated_size) = match self.superblock {
            SuperblockAt::Primary => (SUPERBLOCK_OFFSET, None),
            SuperblockAt::BackupAt { offset } => (offset.max(SUPERBLOCK_OFFSET), None),
            SuperblockAt::Backup { block, block_size } => {
                let at = block.checked_mul(u64::from(block_size)).ok_or_else(|| {
                    Flaw::bad_value("block of the backup superblock", block).at(Place::Volume)
                })?;
                // A block that is said to hold the first superblock holds it 1,024 bytes in.
                (at.max(SUPERBLOCK_OFFSET), Some(block_size))
            }
        };
        let raw = read_superblock(device, at)?;
        if at == SUPERBLOCK_OFFSET {
            raw.verify(GroupNo(0)).map_err(FormatError::of_primary)?;
            return Ok((raw, None));
        }
        let group = GroupNo(u32::from(raw.s_block_group_nr.get()));
        raw.verify(group)?;
        let geometry = Geometry::new(&raw)?;
        // The stored group number has 16 bits; the place tells the rest.
        let block_size = u64::from(geometry.block_size);
        let block = extant_ondisk::BlockNo(at / block_size);
        let lies_in = geometry.group_of(block).unwrap_or(group);
        let is_elsewhere = !at.is_multiple_of(block_size)
            || stated_size.is_some_and(|stated| stated != geometry.block_size);
        if is_elsewhere || geometry.group_start(lies_in) != block {
            let rule = Flaw::Rule("the superblock found there does not belong there");
            return Err(rule.at(Place::Superblock(group)).into());
        }
        Ok((raw, Some(lies_in)))
    }
}

impl Reader {
    /// Opens a volume for reading with the default [`OpenOptions`]: a journal that must be replayed
    /// is replayed into memory.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(device: Arc<dyn Device>) -> Result<Self, Error> {
        OpenOptions::default().open(device)
    }
}

struct Opened {
    device: Arc<dyn Device>,
    raw: RawSuperblock,
    geometry: Geometry,
    recovered: Option<Recovered>,
}

impl Opened {
    /// Replays the journal into an overlay, and reads the superblock that this gives.
    fn replay(self, external: Option<&dyn Device>) -> Result<Self, Error> {
        let overlay = OverlayDevice::new(self.device);
        let recovered = recover_volume(&overlay, external, Finish::Leave)?;
        let device: Arc<dyn Device> = Arc::new(overlay);
        let raw = read_superblock(&*device, SUPERBLOCK_OFFSET)?;
        raw.verify(GroupNo(0))?;
        let geometry = Geometry::new(&raw)?;
        check_size(&geometry, &*device)?;
        Ok(Self { device, raw, geometry, recovered })
    }
}

pub(crate) fn check_size(geometry: &Geometry, device: &dyn Device) -> Result<(), Error> {
    // 48 bits of blocks and 16 of their size.
    let volume = geometry.blocks_count.saturating_mul(u64::from(geometry.block_size));
    if volume > device.size() {
        return Err(Error::DeviceTooSmall { volume, device: device.size() });
    }
    Ok(())
}
