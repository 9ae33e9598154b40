//! Delayed data written: file by file, in the file's order, each run as one request for space.
//!
//! Space is claimed, the data go to the device with no handle held, then one operation maps them:
//! as for data that are not delayed, nothing shows blocks before they hold their data. A caller
//! that waits for a file's data holds its lock during that. Background writeback gives the lock up
//! during the write: then the file can be read, and further data of it delayed. A change of the
//! file's map waits for the end of the writeback, and goes first then.

use super::DelayedData;
use super::dirty::Slice;
use super::memory::Waits;
use crate::alloc::Budget;
use crate::edit::{AllocationRequest, FilePart};
use crate::engine::Engine;
use crate::engine::faults::Step;
use crate::engine::inodes::{CachedInode, InodeWrite, LockClass};
use crate::ops::data::WritePlan;
use extant_device::Request;
use extant_reader::Error;
use extant_reader::read::inode::LoadedInode;
use extant_runtime::env::Next;
use extant_runtime::sync::Arc;
use extant_runtime::sync::atomic::Ordering;
use std::ops::Range;
use std::time::Duration;

/// Blocks that one operation gives places at most: as many as an extent has.
const BLOCKS_PER_PLAN: u64 = 1 << 15;
/// Bytes of these blocks at most: longer writes are no faster, and readers of the file wait for
/// one.
const BYTES_PER_PLAN: u64 = 16 << 20;
/// Data that are due within this time are written with data that are due: small files that were
/// written one after the other become one large write.
const ALMOST_DUE: Duration = Duration::from_secs(1);
/// The background writer tries again after this time if all files to be written are being written
/// by other threads.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// It checks again after this time whether the volume was thawed.
const FROZEN_PAUSE: Duration = Duration::from_millis(100);

/// Delayed data with their places.
pub(super) struct PlannedWriteback {
    write_plan: WritePlan,
    /// ReservedQuota clusters that were taken for it.
    consumed: u64,
    /// The data with their positions on the device, in bytes.
    data: Vec<(u64, Vec<Slice>)>,
}

impl PlannedWriteback {
    /// The data, to be written.
    pub(super) fn take_data(&mut self) -> Vec<(u64, Vec<Slice>)> {
        std::mem::take(&mut self.data)
    }

    /// From the first block to the one after the last.
    pub(super) fn range(&self) -> Range<u64> {
        self.write_plan.range()
    }

    /// Blocks that have places.
    pub(super) fn blocks(&self) -> u64 {
        self.write_plan.places().map(|(blocks, _)| blocks.end - blocks.start).sum()
    }

    /// Bytes of the data.
    pub(super) fn bytes(&self) -> u64 {
        let slices = self.data.iter().flat_map(|(_, slices)| slices);
        slices.map(|slice| slice.bytes().len() as u64).sum()
    }
}

impl Engine {
    /// Data of a file were delayed: it is written when they are old. The file's lock is held.
    pub(crate) fn schedule_writeback(&self, shared: &Arc<CachedInode>, delayed: &mut DelayedData) {
        if delayed.due.is_none() && !delayed.is_empty() {
            let age = if shared.is_replaced() {
                self.options.commit_interval.min(self.options.dirty_expire)
            } else {
                self.options.dirty_expire
            };
            let due = self.env.elapsed().saturating_add(age);
            delayed.due = Some(due);
            self.delalloc.add(due, shared);
        }
        if self.delalloc.memory.is_short() {
            self.delalloc.wake_writer();
        }
    }

    /// Writes all delayed data of a file. Data that cannot be written are lost: callers that wait
    /// for the file's data, or for all, get the error.
    pub(crate) fn write_back(&self, shared: &CachedInode, file: &mut InodeWrite<'_>) {
        while !file.delayed().is_empty() {
            self.write_back_step(shared, file);
        }
        shared.set_replaced(false);
    }

    /// Writes the first delayed data of a file.
    fn write_back_step(&self, shared: &CachedInode, file: &mut InodeWrite<'_>) {
        let (inode, delayed) = file.parts();
        let outcome = self.plan_writeback(shared, inode, delayed).and_then(|mut writeback| {
            let written = self.submit(writeback.take_data());
            self.complete_writeback(shared, inode, delayed, writeback, written)
        });
        self.record_lost(shared, outcome);
    }

    /// As [`Self::write_back_step`], with the lock given up during the write. How many blocks are
    /// not delayed any more.
    fn write_back_unlocked<'a>(
        &self,
        shared: &'a CachedInode,
        mut file: InodeWrite<'a>,
    ) -> (InodeWrite<'a>, u64) {
        let (inode, delayed) = file.parts();
        let before = delayed.blocks();
        let mut writeback = match self.plan_writeback(shared, inode, delayed) {
            Ok(writeback) => writeback,
            Err(error) => {
                let gone = before - delayed.blocks();
                self.record_lost(shared, Err(error));
                return (file, gone);
            }
        };
        let (blocks, data) = (writeback.range(), writeback.take_data());
        let geometry = self.geometry();
        let (mut file, written) =
            shared.write_unlocked(self, file, blocks, geometry, || self.submit(data));
        let (inode, delayed) = file.parts();
        let before = delayed.blocks();
        let outcome = self.complete_writeback(shared, inode, delayed, writeback, written);
        let gone = before - delayed.blocks();
        self.record_lost(shared, outcome);
        (file, gone)
    }

    /// Records that delayed data could not be written, for `fsync` of the file and `sync` of the
    /// volume. With `data_err=abort` the journal stops.
    pub(super) fn record_lost(&self, shared: &CachedInode, outcome: Result<(), Error>) {
        if let Err(error) = self.record_corruption(outcome) {
            tracing::error!(inode = %shared.number(), %error, "delayed data are lost");
            if self.options.aborts_on_lost_data
                && let Error::Io(error) = &error
            {
                self.journal.abort(error.clone().into());
            }
            shared.set_lost(error.clone());
            self.delalloc.set_lost(error);
        }
    }

    /// Writes the delayed data that a file has now, step by step; other threads get the file's lock
    /// between and during the writes. No lock is held. Data that the file has afterwards are newer,
    /// unless they were written before the place that the steps had reached.
    pub(super) fn write_back_in_turns(&self, shared: &Arc<CachedInode>) {
        let mut left = u64::MAX;
        while left > 0 {
            shared.yield_to_waiters();
            let Some(mut file) = shared.write_if_loaded(self, LockClass::File) else { return };
            left = left.min(file.delayed().blocks());
            if left > 0 {
                let gone;
                (file, gone) = self.write_back_unlocked(shared, file);
                left = left.saturating_sub(gone);
            }
            if left == 0 || file.delayed().is_empty() {
                self.finish_writeback(shared, &mut file);
                return;
            }
        }
    }

    /// All delayed data that a file had were written: the data that it has now are newer, and their
    /// age starts with them.
    pub(super) fn finish_writeback(&self, shared: &Arc<CachedInode>, file: &mut InodeWrite<'_>) {
        let (inode, delayed) = file.parts();
        if delayed.is_empty() {
            shared.set_replaced(false);
        } else if let Some(due) = delayed.due.take() {
            self.delalloc.remove(due, inode.number);
            self.schedule_writeback(shared, delayed);
        }
    }

    /// Gives places to as many of a file's first delayed data as one operation maps.
    pub(super) fn plan_writeback(
        &self,
        shared: &CachedInode,
        file: &LoadedInode,
        delayed: &mut DelayedData,
    ) -> Result<PlannedWriteback, Error> {
        let mut budget = delayed.data_reserved();
        let mut write_plan = WritePlan::new(self);
        let grows = !shared.is_closed();
        let planned = self.plan_delayed(file, delayed, grows, &mut write_plan, &mut budget);
        let consumed = delayed.data_reserved() - budget;
        if shared.is_closed() {
            // Perhaps it was closed just now, and has got a new preallocation since the last one
            // was given back.
            self.allocator.discard_preallocation(file.number);
        }
        if let Err(error) = planned
            && write_plan.range().is_empty()
        {
            // Nothing of the first run could be given a place: all of it goes.
            let first = delayed.runs(self.geometry()).into_iter().next().unwrap_or_default();
            self.forget(file, delayed, first, Some(consumed));
            return Err(error);
        }
        // The planned data are written; the rest fails in its turn.
        let data = write_plan
            .places()
            .map(|(blocks, start)| {
                (self.geometry().byte_of(start), delayed.slices(&blocks, self.geometry()))
            })
            .collect();
        Ok(PlannedWriteback { write_plan, consumed, data })
    }

    /// Maps data that were written. They are not delayed any more, written or not. That counts as a
    /// change of its own: a sync when they were only delayed did not make their map durable.
    pub(super) fn complete_writeback(
        &self,
        shared: &CachedInode,
        file: &mut LoadedInode,
        delayed: &mut DelayedData,
        writeback: PlannedWriteback,
        written: Result<(), Error>,
    ) -> Result<(), Error> {
        let PlannedWriteback { write_plan, consumed, .. } = writeback;
        let range = write_plan.range();
        let size = delayed.end().min(range.end << self.geometry().block_bits());
        shared.set_unsynced();
        let outcome = written.and_then(|()| {
            let edit = self.edit(write_plan.credits())?.privileged(true);
            let mut edit = edit.with_reserved(delayed.map_reserved);
            let placed = self.map_plan(&mut edit, file, write_plan, size);
            delayed.map_reserved = edit.reserved();
            let failed = placed?;
            edit.finish();
            failed.map_or(Ok(()), Err)
        });
        self.forget(file, delayed, range, Some(consumed));
        outcome
    }

    /// Sets space aside for the first runs.
    fn plan_delayed(
        &self,
        file: &LoadedInode,
        delayed: &DelayedData,
        grows: bool,
        write_plan: &mut WritePlan,
        budget: &mut u64,
    ) -> Result<(), Error> {
        let mut left = BLOCKS_PER_PLAN.min(BYTES_PER_PLAN >> self.geometry().block_bits());
        for run in delayed.runs(self.geometry()) {
            let wanted = run.start..run.end.min(run.start + left);
            left -= wanted.end - wanted.start;
            let is_done = self.plan_blocks(file, wanted, write_plan, |request| {
                let part = request.part.map(|part| FilePart { grows, ..part });
                let request = AllocationRequest { part, ..request };
                self.faults.meet(Step::Space)?;
                let clusters = *budget;
                if clusters == 0 {
                    return self.allocator.claim(self, request, Budget::All);
                }
                let paid = Budget::Reserved { clusters };
                let claim = self.allocator.claim(self, request, paid)?;
                *budget -= claim.clusters();
                Ok(claim)
            })?;
            if !is_done || left == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Writes data to their places.
    fn submit(&self, data: Vec<(u64, Vec<Slice>)>) -> Result<(), Error> {
        let mut batch: Vec<Request<'_>> = data.iter().map(Slice::request).collect();
        Ok(self.device.submit(&mut batch)?)
    }

    /// Writes all delayed data of the volume, as far as there are any now. No lock is held.
    pub(crate) fn write_back_all(&self) {
        let all = self.delalloc.all();
        let mut left = all.iter().filter(|shared| shared.start_writing()).cloned();
        while self.write_back_next(&mut left) {}
        // Those that other threads were writing, and data that were delayed since.
        for shared in all {
            self.write_back_file(&shared);
        }
    }

    /// Writes the delayed data of a file, if there are any. No lock is held.
    pub(crate) fn write_back_file(&self, shared: &Arc<CachedInode>) {
        self.write_back_in_turns(shared);
        // Only the data that were delayed since.
        if let Some(mut file) = shared.write_if_loaded(self, LockClass::File) {
            self.write_back(shared, &mut file);
        }
    }

    /// A thread that waits for memory with others writes the oldest data that no other thread
    /// writes, so that the device has several requests at once. False where enough others do.
    pub(crate) fn help_to_write(&self, waits: Waits) -> bool {
        self.delalloc.wake_writer();
        self.allocator.trim_buddies(self.delalloc.memory.least_buddies());
        if waits == Waits::Alone {
            return false;
        }
        let Some(shared) = self.delalloc.take_part() else { return false };
        self.write_back_in_turns(&shared);
        self.delalloc.end_part(&shared);
        true
    }

    /// Bytes that are reserved for delayed data and the growth of their maps: not among the free
    /// ones. 0 after [`Self::sync`], unless writes continue.
    pub fn reserved_space(&self) -> u64 {
        self.allocator.reserved_clusters() * self.geometry().cluster_size()
    }

    /// One turn of the background writer: data and times that are old.
    pub(crate) fn write_back_due(&self) -> Next {
        self.write_back_old().sooner(self.write_old_times())
    }

    /// The data that are old, and while memory is short what is oldest.
    fn write_back_old(&self) -> Next {
        if self.is_frozen.load(Ordering::Acquire) {
            return Next::After(FROZEN_PAUSE);
        }
        let frames = self.journal.frames_count() as u64 * u64::from(self.geometry().block_size);
        self.delalloc.memory.set_others(frames + self.allocator.buddy_bytes());
        self.delalloc.buffers.keep_at_most(self.delalloc.memory.limit());
        while let Some(due) = self.delalloc.first_due() {
            let now = self.env.elapsed();
            let is_short = self.delalloc.memory.is_short();
            if due > now && !is_short {
                return Next::After(due - now);
            }
            let until = if is_short { Duration::MAX } else { now.saturating_add(ALMOST_DUE) };
            // A file that another thread writes already has only a few newer bytes.
            let mut oldest = self.delalloc.start_each(until);
            if !self.write_back_next(&mut oldest) {
                break;
            }
        }
        let Some(due) = self.delalloc.first_due() else {
            self.delalloc.buffers.clear();
            return Next::WhenWoken;
        };
        Next::After(due.saturating_sub(self.env.elapsed()).max(BUSY_PAUSE))
    }
}
