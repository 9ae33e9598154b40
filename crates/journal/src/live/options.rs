//! Options of a live journal.

use std::time::Duration;

/// How a journal works. The data modes are the volume's: journalled data goes through frames like
/// metadata.
#[derive(Clone, Debug)]
pub struct Options {
    /// A transaction is committed at this age at the latest (`commit=N`).
    pub commit_interval: Duration,
    /// Flushes order the log (`barrier`). Without them power loss may break the volume.
    pub barriers: bool,
    /// Checksums in the log (`journal_checksum`); volumes with metadata_csum have them anyway.
    pub checksum: bool,
    /// The commit block is not held back until the log is on the medium (`journal_async_commit`).
    pub async_commit: bool,
    /// How long a commit that is waited for waits for other operations to join.
    pub batch: BatchTime,
    /// The priority of what commits write, 0 (first) to 7 (`journal_ioprio=`). `None`: as other threads have.
    pub io_priority: Option<u8>,
    /// Bytes of memory for frames, about. A transaction closes early at a quarter of it.
    pub memory: u64,
}

impl Default for Options {
    /// As the kernel mounts: five seconds, barriers, no options; 64 MiB of frames.
    fn default() -> Self {
        Self {
            commit_interval: Duration::from_secs(5),
            barriers: true,
            checksum: false,
            async_commit: false,
            batch: BatchTime::default(),
            io_priority: None,
            memory: 64 << 20,
        }
    }
}

/// How long [`Journal::commit`](super::Journal::commit) waits for other operations to join the transaction before it is committed (ext4(5),
/// `max_batch_time=`): for as long as commits have taken on average, within these bounds, where the transaction is younger than
/// that. Operations that come during a commit are committed together by the next one in any case.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BatchTime {
    /// At least so long.
    pub min: Duration,
    /// At most so long: zero for not at all.
    pub max: Duration,
}

impl BatchTime {
    /// How long to wait where commits take `average` and the transaction has been open for `age`.
    pub(super) fn wait(self, average: Duration, age: Duration) -> Duration {
        let wanted = average.max(self.min).min(self.max);
        if age < wanted { wanted } else { Duration::ZERO }
    }
}
