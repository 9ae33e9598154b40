//! The lock order of the journal. The volume's locks have lower levels: they are taken before.

extant_runtime::lock_ranks! {
    /// One checkpoint batch at a time goes home.
    pub CheckpointLock = 500;
    /// Where the log stands and what was asked of the workers. Held for moments, never while waiting for a device.
    pub ProgressLock = 510;
    /// The content of a frame. Who holds several takes them with rising block numbers.
    pub FrameLock = 520, keyed;
    /// A shard of a transaction's list of frames.
    pub FrameListLock = 530;
    /// A shard of a transaction's revoke records.
    pub RevokeLock = 540;
    /// A shard of the frame cache.
    pub CacheLock = 550;
    /// The journal's superblock, held while it is written.
    pub SuperblockLock = 560;
    /// The first error.
    pub LatchLock = 570;
    /// The handles that wake the workers.
    pub WakersLock = 580;
}
