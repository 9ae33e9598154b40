//! Options of a live journal.

use std::time::Duration;

/// Options of a journal. The data modes belong to the volume: journalled data goes through frames
/// like metadata.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// Maximum age of a transaction before it is committed (`commit=N`).
    pub commit_interval: Duration,
    /// Whether flushes order the log writes (`barrier`). Without them a power cut may corrupt the
    /// volume.
    pub barriers: bool,
    /// Whether the log has checksums (`journal_checksum`); with metadata_csum it always has.
    pub checksum: bool,
    /// Whether the commit block is written without waiting for the log to be durable
    /// (`journal_async_commit`).
    pub async_commit: bool,
    /// Whether fsync writes fast commits ([`Journal::sync_fast`](super::Journal::sync_fast)), in an
    /// area of the journal that a v2 journal gets if it has none.
    pub fast_commits: bool,
    /// Time that a commit with a waiting caller waits for other operations to join.
    pub batch: BatchTime,
    /// I/O priority of the commit's writes, 0 (highest) to 7 (`journal_ioprio=`). `None`: the
    /// default.
    pub io_priority: Option<u8>,
    /// Approximate memory for frames in bytes. A transaction closes early when it has a quarter of
    /// it.
    pub memory: u64,
}

impl Default for JournalOptions {
    /// The kernel's defaults: five seconds, barriers, no other option; 64 MiB of frames.
    fn default() -> Self {
        Self {
            commit_interval: Duration::from_secs(5),
            barriers: true,
            checksum: false,
            async_commit: false,
            fast_commits: false,
            batch: BatchTime::default(),
            io_priority: None,
            memory: 64 << 20,
        }
    }
}

/// Time that [`Journal::commit`](super::Journal::commit) waits for other operations to join the
/// transaction before it is committed (ext4(5), `max_batch_time=`): the average duration of a
/// commit, within these bounds, if the transaction is younger than that. Operations during a commit
/// are committed together by the next one in any case.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BatchTime {
    /// Minimum.
    pub min: Duration,
    /// Maximum; zero disables the wait.
    pub max: Duration,
}

impl BatchTime {
    /// Time to wait if commits take `average` and the transaction has been open for `age`.
    pub(super) fn wait(self, average: Duration, age: Duration) -> Duration {
        let wanted = average.max(self.min).min(self.max);
        if age < wanted { wanted } else { Duration::ZERO }
    }
}
