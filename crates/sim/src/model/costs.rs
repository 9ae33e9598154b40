//! The processor time of work in a runtime with a simulated drive: a table, and never the host's
//! clock.

use std::sync::Arc;
use std::time::Duration;

use extant_runtime::env::Env;

/// A request of the device: building it, sending it, its interrupt. In the range that fio and
/// blktrace report for one request at a time on a machine of this decade.
pub const REQUEST: Duration = Duration::from_micros(2);

/// A check: an inode below its group's high-water mark, in pass 1. From
/// `docs/src/performance/history.md`: a million files with their names in 2.6 million inodes take
/// 0.26 to 0.33 seconds of a processor in all passes.
pub const CHECK_INODE: Duration = Duration::from_nanos(60);

/// A check: a block of a directory with some hundred names, in pass 2. From the same figures.
pub const CHECK_DIR_BLOCK: Duration = Duration::from_micros(15);

/// A check: a group's link counts in pass 4, and its bitmaps and counts in pass 5.
pub const CHECK_GROUP: Duration = Duration::from_micros(5);

/// Charges a check on a simulated drive: a checker calls it with the number of the pass, and of the
/// inodes, directory blocks or groups that were checked, and `env` spends the time of the table.
pub fn check_work(env: Env) -> Arc<dyn Fn(u8, u64) + Send + Sync> {
    Arc::new(move |pass, more| {
        let one = match pass {
            1 => CHECK_INODE,
            2 => CHECK_DIR_BLOCK,
            _ => CHECK_GROUP,
        };
        env.spend(one.saturating_mul(more.try_into().unwrap_or(u32::MAX)));
    })
}

/// The engine: a file or directory is made, with its share of the commit. From
/// `docs/src/performance/history.md`, as those that follow: CPU seconds of all threads for 200,000
/// calls.
pub const CREATE: Duration = Duration::from_nanos(3_700);

/// The engine: one more name of a file.
pub const LINK: Duration = Duration::from_nanos(4_300);

/// The engine: a name is taken away.
pub const UNLINK: Duration = Duration::from_nanos(3_200);

/// The engine: a file is opened, closed, looked up or listed.
pub const LOOK: Duration = Duration::from_micros(1);

/// The engine: reading or writing `bytes` bytes of a file. 65,536 writes of 64 KiB take 2 seconds
/// of a processor, requests of the device included.
pub fn file_bytes(count: u64) -> Duration {
    Duration::from_nanos(4_000 + count / 4)
}

/// Copying or clearing `bytes` bytes: 8 GB a second.
pub fn bytes(count: u64) -> Duration {
    Duration::from_nanos(count / 8)
}
