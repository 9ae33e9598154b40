//! Delayed data of several files that go to the device as one batch.
//!
//! Space for small files that were made one after the other lies side by side, so that the device
//! gets a few large writes where each file alone would be a small one.
//!
//! All files of a batch are under writeback at once. The holder of one file's lock may wait for the
//! writeback of another, so while any is under writeback no lock is waited for but those of the
//! batch's files, to complete their writeback, and these from the last one in the order of locks to
//! the first: the holder of the last one's lock waits for none of the others.

use super::dirty::{CHUNK, Slice};
use super::writeback::PlannedWriteback;
use crate::engine::Engine;
use crate::engine::inodes::{CachedInode, LockClass};
use extant_device::{Request, RequestStatus};
use extant_reader::Error;
use extant_runtime::sync::Arc;

/// Bytes that a file of a batch has at most. One with more is written alone, step by step.
const FEW_BYTES: u64 = CHUNK as u64;
/// Bytes of a batch. Longer writes are no faster.
const BYTES_OF_BATCH: u64 = 8 << 20;
/// Files of a batch at most: each waits for all others.
const FILES_OF_BATCH: usize = 256;

/// A file of a batch whose data are under writeback.
struct BatchedInode {
    shared: Arc<CachedInode>,
    writeback: PlannedWriteback,
    /// Whether all delayed data of the file are under writeback.
    is_whole: bool,
}

impl Engine {
    /// Writes delayed data of the first files, none of which another thread is writing: together,
    /// as long as each has few, or else one alone. No lock is held. False where there was no file.
    pub(super) fn write_back_next(
        &self,
        files: &mut impl Iterator<Item = Arc<CachedInode>>,
    ) -> bool {
        let most = BYTES_OF_BATCH.min(self.delalloc.memory.limit() / 4);
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut alone = None;
        while bytes < most && batch.len() < FILES_OF_BATCH && alone.is_none() {
            let Some(shared) = files.next() else { break };
            match self.try_begin_small(shared) {
                Ok(taken) => {
                    bytes += taken.writeback.bytes();
                    batch.push(taken);
                }
                Err(shared) => alone = Some(shared),
            }
        }
        let is_any = !batch.is_empty() || alone.is_some();
        self.write_batch(batch);
        if let Some(shared) = alone {
            self.write_back_in_turns(&shared);
            shared.end_writing();
        }
        is_any
    }

    /// Gives places to the delayed data of a file that has few of them. The file is given back
    /// where it has more, or where its lock would have to be waited for.
    fn try_begin_small(&self, shared: Arc<CachedInode>) -> Result<BatchedInode, Arc<CachedInode>> {
        if shared.has_writeback_waiters() {
            return Err(shared);
        }
        let Ok(Some(mut file)) = shared.try_write(self, LockClass::File) else {
            return Err(shared);
        };
        let (inode, delayed) = file.parts();
        let blocks = delayed.blocks();
        let is_few = (1..=FEW_BYTES >> self.geometry().block_bits()).contains(&blocks);
        if !is_few {
            drop(file);
            return Err(shared);
        }
        let writeback = match self.plan_writeback(&shared, inode, delayed) {
            Ok(writeback) => writeback,
            Err(error) => {
                drop(file);
                self.record_lost(&shared, Err(error));
                return Err(shared);
            }
        };
        let is_whole = writeback.blocks() == blocks;
        shared.begin_writeback(file, writeback.range(), self.geometry());
        Ok(BatchedInode { shared, writeback, is_whole })
    }

    /// Writes the data of files to their places, and maps them.
    fn write_batch(&self, mut batch: Vec<BatchedInode>) {
        let data: Vec<_> = batch.iter_mut().map(|file| file.writeback.take_data()).collect();
        let outcomes = self.submit_together(&data);
        // Buffers are used again when they are unshared.
        drop(data);
        let mut written_files: Vec<_> = batch.into_iter().zip(outcomes).collect();
        written_files.sort_by_key(|(file, _)| file.shared.number());
        while let Some((BatchedInode { shared, writeback, is_whole }, written)) =
            written_files.pop()
        {
            let mut file = shared.lock_after_writeback(self);
            let (inode, delayed) = file.parts();
            let outcome = self.complete_writeback(&shared, inode, delayed, writeback, written);
            self.record_lost(&shared, outcome);
            if is_whole {
                self.finish_writeback(&shared, &mut file);
            }
            drop(file);
            shared.end_writing();
        }
    }

    /// Writes data of several files in one batch. Returns the result of each file.
    fn submit_together(&self, data: &[Vec<(u64, Vec<Slice>)>]) -> Vec<Result<(), Error>> {
        let mut batch: Vec<Request<'_>> = data.iter().flatten().map(Slice::request).collect();
        if batch.is_empty() {
            return data.iter().map(|_| Ok(())).collect();
        }
        let Err(why) = self.device.submit(&mut batch) else {
            return data.iter().map(|_| Ok(())).collect();
        };
        let mut rest = batch.as_slice();
        let outcome_of = |requests: &[Request<'_>]| {
            requests.iter().try_for_each(|request| match &request.status {
                RequestStatus::Done => Ok(()),
                RequestStatus::Failed(error) => Err(error.clone().into()),
                // The batch was refused whole.
                RequestStatus::Pending => Err(why.clone().into()),
            })
        };
        data.iter()
            .map(|file| {
                let (own, after) = rest.split_at(file.len());
                rest = after;
                outcome_of(own)
            })
            .collect()
    }
}
