//! The lock order of the journal. The volume's locks have lower levels: they are taken first.

extant_runtime::lock_ranks! {
    /// Serializes fast commits; held while one is written.
    pub FastCommitLock = 490;
    /// Serializes checkpoint batches.
    pub CheckpointLock = 500;
    /// The state of the log and the requests to the workers. Held briefly, never while waiting for
    /// a device.
    pub ProgressLock = 510;
    /// The changes of a transaction for fast commits.
    pub FastChangesLock = 514;
    /// The content of a frame. Several are locked in ascending order of block numbers.
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
