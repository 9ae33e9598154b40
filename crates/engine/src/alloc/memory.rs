//! How much memory buddies take, and which of them go when it is too much.

use crate::ranks::LoadedLock;
use extant_ondisk::GroupNo;
use extant_runtime::sync::Mutex;
use extant_runtime::sync::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;

/// Groups in the order of their turns when memory is short.
const MAX_EXAMINED: usize = 8;

/// The account of buddies in memory: their bytes, the limit, and the groups that have one in the
/// order of their turns to be freed.
#[derive(Debug)]
pub(super) struct BuddyMemory {
    bytes: AtomicU64,
    limit: u64,
    queue: Mutex<VecDeque<GroupNo>, LoadedLock>,
}

impl BuddyMemory {
    pub(super) fn new(limit: u64) -> Self {
        Self { bytes: AtomicU64::new(0), limit, queue: Mutex::default() }
    }

    /// A group has a buddy now. The groups whose buddies should go: [`Self::removed`] or
    /// [`Self::stays`] is called for each.
    pub(super) fn added(&self, group: GroupNo, bytes: u64) -> Vec<GroupNo> {
        let used = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let mut queue = self.queue.lock();
        queue.push_back(group);
        if used <= self.limit {
            return Vec::new();
        }
        let examined = MAX_EXAMINED.min(queue.len() - 1);
        queue.drain(..examined).collect()
    }

    /// A group's buddy is gone.
    pub(super) fn removed(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A group's buddy is in use.
    pub(super) fn stays(&self, group: GroupNo) {
        self.queue.lock().push_back(group);
    }

    /// Bytes of all buddies.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The bytes that they may take.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// All groups that have a buddy, if these take more than `bytes` bytes: as [`Self::added`]
    /// gives a few.
    pub(super) fn all_beyond(&self, bytes: u64) -> Vec<GroupNo> {
        if self.bytes() <= bytes {
            return Vec::new();
        }
        self.queue.lock().drain(..).collect()
    }
}
