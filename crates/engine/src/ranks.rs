//! The lock order of the engine; the journal's locks come after (levels from 500 on).
//!
//! A handle is started with the inode locks held. Inside a handle no lock below [`OrphanLock`] is
//! taken.

extant_runtime::lock_ranks! {
    /// Held while the volume is frozen or thawed: one after the other.
    pub FreezeLock = 50;
    /// One rename of a directory to another directory at a time: the ancestors of directories do
    /// not change during it.
    pub RenameLock = 100;
    /// An inode: its fields, its map, and for directories its records. The key is
    /// [`LockClass`](crate::engine::inodes::LockClass) and the number: parents, then directories in
    /// them, then other files.
    pub InodeLock = 200, keyed;
    /// The orphans of the volume.
    pub OrphanLock = 280;
    /// A shard of the attribute blocks that are known to hold something.
    pub SharedBlocksLock = 282;
    /// A shard of the inodes of attributes' values that are known to hold something.
    pub SharedValuesLock = 284;
    /// The quota files.
    pub QuotaLock = 290;
    /// A shard of the preallocations of files that grow.
    pub PreallocationLock = 292;
    /// The preallocations that small files of one thread share.
    pub GroupPreallocationLock = 294;
    /// A group's bitmaps and descriptor, and what must not be given out yet. The key is the group.
    pub GroupLock = 300, keyed;
    /// The summaries of a few groups; held for a short time.
    pub KnownLock = 302;
    /// The groups whose buddies are in memory.
    pub LoadedLock = 305;
    /// The clusters that running transactions have freed.
    pub FreedLock = 310;
    /// A shard of the cache of inodes. Held for a short time; no other lock is taken under it.
    pub InodeCacheLock = 400;
    /// A shard of the names that are known. Held for a short time; no other lock is taken under it.
    pub NameCacheLock = 401;
    /// The files that have delayed data.
    pub DelayListLock = 402;
    /// The files whose times wait in memory. Held for a short time; no other lock is taken under
    /// it.
    pub TimesListLock = 407;
    /// Whether a file's delayed data are under writeback. Held during waits, perhaps with locks of
    /// directories.
    pub WritebackLock = 403;
    /// How much memory delayed data take. Waited under, with no other lock held.
    pub DelayedMemoryLock = 404;
    /// Buffers that are kept for delayed data.
    pub BufferPoolLock = 405;
    /// Why a file's delayed data were lost.
    pub LostLock = 406;
    /// The volume's own errors.
    pub HealthLock = 410;
    /// Whether writes are held back from the device. Above the journal's: it writes with its locks
    /// held.
    pub WriteGateLock = 600;
}
