//! How a volume is opened for changes.

use crate::alloc::AllocatorKind;
use extant_device::Device;
use extant_journal::BatchTime;
use extant_ondisk::superblock::ErrorPolicy;
use extant_reader::DEFAULT_TABLE_RUN;
use extant_reader::read::dir::BrokenIndex;
use std::sync::Arc;
use std::time::Duration;

/// The default memory of a volume that is changed.
const DEFAULT_MEMORY: u64 = 256 << 20;
/// Age of delayed data when they are written: the kernel's default.
const DIRTY_EXPIRE: Duration = Duration::from_secs(30);

/// The way of file data, as against that of metadata.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DataMode {
    /// Data are on the device before the metadata that show them are committed.
    Ordered,
    /// Data are written when it suits; after power loss a file may show what its blocks held
    /// before.
    Writeback,
    /// Data go through the journal too.
    Journal,
}

/// How a volume is opened for changes.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    /// The way of a lookup when a directory's index is broken.
    pub on_broken_index: BrokenIndex,
    /// Blocks of an inode table that are read at once at most, where one of them is not in memory
    /// (`inode_readahead_blks=`); 0 or 1: only that one. Fewer where memory is short.
    pub inode_readahead_blks: u32,
    /// The mode of file data (`data=`); else the superblock's default, else [`DataMode::Ordered`].
    pub data: Option<DataMode>,
    /// A transaction is committed at this age at the latest (`commit=`).
    pub commit_interval: Duration,
    /// The device is flushed where the order of writes counts (`barrier`).
    pub barriers: bool,
    /// Checksums in the log (`journal_checksum`).
    pub journal_checksum: bool,
    /// The commit block is not held back until the log is on the medium (`journal_async_commit`).
    pub journal_async_commit: bool,
    /// Data written into holes wait in memory for their blocks (`delalloc`), or not (`nodelalloc`).
    /// `None`: they do, unless data go through the journal, or the superblock's default options
    /// disable it.
    pub delalloc: Option<bool>,
    /// Delayed data are written at this age at the latest, and then with the next commit durable.
    /// The kernel's `dirty_expire_centisecs`: `commit_interval` does not apply to data that have no
    /// blocks yet.
    pub dirty_expire: Duration,
    /// Delayed data of a file that is renamed over another, or was emptied to be written again, are
    /// written early (`auto_da_alloc`).
    pub auto_da_alloc: bool,
    /// Bytes of memory for metadata, inodes and delayed data together, about. 16 MiB and 32 bytes
    /// for each block group are enough; with less than there is to do, calls wait for the device.
    pub memory: u64,
    /// The behaviour on an error (`errors=`); else the superblock's.
    pub errors: Option<ErrorPolicy>,
    /// The journal's own device, where the volume has an external one.
    pub external_journal: Option<Arc<dyn Device>>,
    /// The allocator that finds free blocks (`mballoc`, `nomballoc`).
    pub allocator: AllocatorKind,
    /// Blocks of a stripe that large runs are aligned to (`stripe=`); else the superblock's, 0 or 1
    /// for none.
    pub stripe: Option<u32>,
    /// Freed blocks are discarded on the device after the commit (`discard`).
    pub discard: bool,
    /// Clusters that only maps may take, so that a full volume can still cut extents. The kernel's
    /// `reserved_clusters`; `None` for as many as it keeps: a fiftieth of all, 4096 at most, none
    /// where no file can have extents.
    pub reserved_clusters: Option<u64>,
    /// Whether new files and directories are extent-mapped (`extents`, which gives the volume the
    /// feature) or mapped by indirect blocks (`noextents`). `None`: as the feature requires.
    pub extents: Option<bool>,
    /// Whether new files take their directory's group (`grpid`) or their maker's (`nogrpid`).
    /// `None`: as in the superblock's default options.
    pub passes_group: Option<bool>,
    /// Whether the limits of users, groups and projects are enforced (`usrquota`, `grpquota`,
    /// `prjquota`); those that are must be counted by the volume. `None`: all that it counts. Use
    /// is counted always.
    pub enforced_limits: Option<[bool; 3]>,
    /// Directories of this number of KiB and more do not grow (`max_dir_size_kb=`). `None` and 0:
    /// without a limit.
    pub max_dir_size_kb: Option<u32>,
    /// Whether files with equal attributes share the block or inode that holds them; `nombcache`
    /// disables it.
    pub shares_xattrs: bool,
    /// Changes of nothing but an inode's times wait in memory (`lazytime`), a day at most: until
    /// the inode is written for another reason, or [`Engine::fsync`](crate::Engine::fsync),
    /// [`Engine::sync`](crate::Engine::sync), freezing or closing asks for it.
    pub lazytime: bool,
    /// Whether delayed data that cannot be written abort the journal (`data_err=abort`). Else they
    /// are lost, and `fsync` returns the error (`data_err=ignore`).
    pub aborts_on_lost_data: bool,
    /// The priority of what commits write, 0 (first) to 7 (`journal_ioprio=`). `None`: as other
    /// threads have.
    pub journal_io_priority: Option<u8>,
    /// How long an fsync waits for other operations to join its transaction (`max_batch_time=`,
    /// `min_batch_time=`).
    pub batch: BatchTime,
}

impl Default for VolumeOptions {
    /// As the kernel mounts, with 256 MiB of memory.
    fn default() -> Self {
        let journal = extant_journal::JournalOptions::default();
        Self {
            on_broken_index: BrokenIndex::default(),
            inode_readahead_blks: DEFAULT_TABLE_RUN,
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
