//! The ways of files to the threads that make them.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use extant_ondisk::InodeNo;

use super::worker::{Job, Worker};

/// Number of batches of jobs that wait for one thread.
pub(super) const BATCHES: usize = 16;
/// Most jobs that are handed over at once, so that threads do not wake each other for each file.
const BATCH: usize = 16;
/// Bytes of contents from which on they are handed over.
const BATCH_BYTES: usize = 256 * 1024;

/// One worker, on its own thread or on the reader's. A name of a directory always has the same one,
/// so that of two entries of a name the last one counts.
pub(super) struct Lane<'e> {
    to: To<'e>,
    /// Files that were made.
    done: Arc<AtomicU64>,
    sent: u64,
    /// Hashes of the names that were sent, oldest first: of those that were not made yet, and some.
    pending: VecDeque<u64>,
    /// Jobs that were not handed over yet, and bytes of their contents.
    batch: Vec<Job>,
    batch_bytes: usize,
}

enum To<'e> {
    Here(Box<Worker<'e>>),
    Thread(SyncSender<Vec<Job>>),
}

fn hash(dir: InodeNo, name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (dir.0, name).hash(&mut hasher);
    hasher.finish()
}

impl<'e> Lane<'e> {
    pub(super) fn here(worker: Worker<'e>) -> Self {
        let done = worker.done();
        Self::new(To::Here(Box::new(worker)), done)
    }

    pub(super) fn of_thread(to: SyncSender<Vec<Job>>, done: Arc<AtomicU64>) -> Self {
        Self::new(To::Thread(to), done)
    }

    fn new(to: To<'e>, done: Arc<AtomicU64>) -> Self {
        Self { to, done, sent: 0, pending: VecDeque::new(), batch: Vec::new(), batch_bytes: 0 }
    }

    /// The number of the lane of a name.
    pub(super) fn of(dir: InodeNo, name: &[u8], lanes: usize) -> usize {
        (hash(dir, name) % lanes as u64) as usize
    }

    /// Waits until nothing of this name is being made.
    pub(super) fn wait_for(lanes: &mut [Lane<'e>], dir: InodeNo, name: &[u8]) {
        let number = Self::of(dir, name, lanes.len());
        let lane = &mut lanes[number];
        lane.forget_done();
        if lane.pending.contains(&hash(dir, name)) {
            lane.drain();
        }
    }

    fn forget_done(&mut self) {
        let waiting = self.sent - self.done.load(Ordering::Acquire);
        while self.pending.len() as u64 > waiting {
            self.pending.pop_front();
        }
    }

    /// Sends the job that begins a file.
    pub(super) fn send_leaf(&mut self, job: Job) {
        if let (To::Thread(_), Job::Leaf(leaf) | Job::Begin(leaf)) = (&self.to, &job) {
            self.forget_done();
            self.pending.push_back(hash(leaf.dir, &leaf.name));
        }
        self.sent += 1;
        self.send(job);
    }

    pub(super) fn send(&mut self, job: Job) {
        if let To::Here(worker) = &mut self.to {
            return worker.take(job);
        }
        self.batch_bytes += job.len();
        self.batch.push(job);
        if self.batch.len() >= BATCH || self.batch_bytes >= BATCH_BYTES {
            self.flush();
        }
    }

    /// Hands over what waits here.
    pub(super) fn flush(&mut self) {
        self.batch_bytes = 0;
        if let To::Thread(to) = &self.to
            && !self.batch.is_empty()
        {
            // A worker that panicked takes no more; its thread is joined.
            drop(to.send(std::mem::take(&mut self.batch)));
        }
    }

    /// Waits until all that was sent is made.
    pub(super) fn drain(&mut self) {
        let (to, done) = sync_channel(1);
        self.send(Job::Tell(to));
        self.flush();
        let _ = done.recv();
        self.pending.clear();
    }
}
