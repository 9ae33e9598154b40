//! Delayed data written: file by file, in the file's order, each run as one request for space.
//!
//! A file's lock is held while a round of its data is written; who wants the file meanwhile gets it between two rounds. Space is claimed, the data go to the device with no handle held, then one
//! operation maps them: as for data that are not delayed, nothing shows blocks before they hold their data.

use super::Delayed;
use crate::alloc::Budget;
use crate::cache::BlockCache;
use crate::error::Error;
use crate::live::Live;
use crate::live::inodes::{InodeWrite, LiveInode, LockAs};
use crate::ops::data::Round;
use crate::read::inode::LoadedInode;
use crate::volume::{Source, Volume};
use extant_device::Request;
use extant_device::env::Next;
use extant_device::sync::{Arc, Weak};
use std::io::IoSlice;
use std::time::Duration;

/// Blocks that one operation gives places at most: as many as an extent has.
const BLOCKS_OF_ROUND: u64 = 1 << 15;
/// Bytes of these blocks at most: longer writes are no faster, and who reads the file waits for one.
const BYTES_OF_ROUND: u64 = 16 << 20;
/// The background writer looks again after this time where all that is to be written is being written by others.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

impl Volume {
    /// Data of a file were delayed: it is written when they are old. The file's lock is held.
    pub(crate) fn note_delayed(&self, live: &Live, shared: &Arc<LiveInode>, delayed: &mut Delayed) {
        if delayed.due.is_none() && !delayed.is_empty() {
            let age = if shared.is_replaced() {
                live.options.commit_interval.min(live.options.dirty_expire)
            } else {
                live.options.dirty_expire
            };
            let due = live.env.elapsed().saturating_add(age);
            delayed.due = Some(due);
            live.delays.add(due, shared);
        }
        if live.delays.memory.is_short() {
            live.delays.wake_writer();
        }
    }

    /// Writes all delayed data of a file. What cannot be written is lost: whoever waits for the file's data, or for all, is told.
    pub(crate) fn write_back(&self, live: &Live, shared: &LiveInode, file: &mut InodeWrite<'_>) {
        while !file.delayed().is_empty() {
            self.write_back_round(live, shared, file);
        }
        shared.set_replaced(false);
    }

    /// Writes the first delayed data of a file.
    fn write_back_round(&self, live: &Live, shared: &LiveInode, file: &mut InodeWrite<'_>) {
        let (inode, delayed) = file.parts();
        if let Err(error) = self.noted(self.write_back_some(live, inode, delayed)) {
            tracing::error!(inode = %inode.number, %error, "delayed data are lost");
            shared.set_lost(error.clone());
            live.delays.set_lost(error);
        }
    }

    /// Writes as many delayed data as a file has now, one round under its lock at a time. No lock is held. What the file has then
    /// came meanwhile, unless somebody wrote before the place that the rounds had reached.
    fn write_back_in_turns(&self, live: &Live, shared: &Arc<LiveInode>) {
        let mut left = u64::MAX;
        while left > 0 {
            let Some(mut file) = shared.write_if_loaded(LockAs::File) else { return };
            let before = file.delayed().blocks();
            left = left.min(before);
            if before > 0 {
                self.write_back_round(live, shared, &mut file);
            }
            let (inode, delayed) = file.parts();
            left = left.saturating_sub(before - delayed.blocks());
            if delayed.is_empty() {
                shared.set_replaced(false);
                return;
            }
            if left == 0
                && let Some(due) = delayed.due.take()
            {
                // It is as old as what came meanwhile.
                live.delays.remove(due, inode.number);
                self.note_delayed(live, shared, delayed);
            }
        }
    }

    /// Writes the first delayed data of a file, as many as one operation maps. They are not delayed any more, written or not.
    fn write_back_some(
        &self,
        live: &Live,
        file: &mut LoadedInode,
        delayed: &mut Delayed,
    ) -> Result<(), Error> {
        let mut budget = delayed.data_reserved();
        let mut round = Round::new(self);
        let planned = self.plan_delayed(live, file, delayed, &mut round, &mut budget);
        let consumed = delayed.data_reserved() - budget;
        let range = round.range();
        let outcome = match planned {
            Err(error) if range.is_empty() => {
                // Nothing of the first run could be given a place: all of it goes.
                let first = delayed.runs(self.geometry()).into_iter().next().unwrap_or_default();
                self.forget(live, file, delayed, first, Some(consumed));
                return Err(error);
            }
            // What was planned is written; the rest fails in its turn.
            _ => self.fill_delayed(delayed, &round),
        };
        let size = delayed.end().min(range.end << self.geometry().block_bits());
        let outcome = outcome.and_then(|()| {
            let edit = self.edit(round.credits())?.privileged(true);
            let mut edit = edit.with_reserved(delayed.map_reserved);
            let placed = self.map_round(live, &mut edit, file, round, size);
            delayed.map_reserved = edit.reserved();
            placed
        });
        self.forget(live, file, delayed, range, Some(consumed));
        outcome
    }

    /// Sets space aside for the first runs.
    fn plan_delayed(
        &self,
        live: &Live,
        file: &LoadedInode,
        delayed: &Delayed,
        round: &mut Round,
        budget: &mut u64,
    ) -> Result<(), Error> {
        let mut left = BLOCKS_OF_ROUND.min(BYTES_OF_ROUND >> self.geometry().block_bits());
        for run in delayed.runs(self.geometry()) {
            let wanted = run.start..run.end.min(run.start + left);
            left -= wanted.end - wanted.start;
            let is_done = self.plan_blocks(live, file, wanted, round, |request| {
                let clusters = *budget;
                if clusters == 0 {
                    let budget = Budget::Free { is_privileged: true };
                    return live.allocator.claim(self, request, budget);
                }
                let paid = Budget::Reserved { clusters };
                let claim = live.allocator.claim(self, request, paid)?;
                *budget -= claim.clusters();
                Ok(claim)
            })?;
            if !is_done || left == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Writes the data of a round to its places.
    fn fill_delayed(&self, delayed: &Delayed, round: &Round) -> Result<(), Error> {
        let geometry = self.geometry();
        let mut batch: Vec<Request<'_>> = round
            .places()
            .map(|(blocks, start)| {
                let slices = delayed.slices(&blocks, geometry).map(IoSlice::new).collect();
                Request::write_vectored(geometry.byte_of(start), slices)
            })
            .collect();
        Ok(self.device.submit(&mut batch)?)
    }

    /// Writes all delayed data of the volume, as far as there are any now. No lock is held.
    pub(crate) fn write_back_all(&self, live: &Live) {
        for shared in live.delays.all() {
            self.write_back_file(live, &shared);
        }
    }

    /// Writes the delayed data of a file, if there are any. No lock is held.
    pub(crate) fn write_back_file(&self, live: &Live, shared: &Arc<LiveInode>) {
        self.write_back_in_turns(live, shared);
        // As few as came meanwhile.
        if let Some(mut file) = shared.write_if_loaded(LockAs::File) {
            self.write_back(live, shared, &mut file);
        }
    }

    /// Who waits for memory writes the oldest data that nobody else writes, so that the device has several requests at once. False
    /// where enough others do.
    pub(crate) fn help_to_write(&self, live: &Live) -> bool {
        live.delays.wake_writer();
        live.allocator.trim_buddies(live.delays.memory.least_buddies());
        let Some(shared) = live.delays.take_part() else { return false };
        self.write_back_in_turns(live, &shared);
        live.delays.end_part(&shared);
        true
    }

    /// One turn of the background writer: what is old, and while memory is short what is oldest.
    fn write_back_old(&self, live: &Live) -> Next {
        let frames = live.journal.frames_count() as u64 * u64::from(self.geometry().block_size);
        live.delays.memory.set_others(frames + live.allocator.buddy_bytes());
        while let Some(due) = live.delays.first_due() {
            let left = due.saturating_sub(live.env.elapsed());
            if !left.is_zero() && !live.delays.memory.is_short() {
                return Next::After(left);
            }
            // What others write already would be a few bytes that came behind it.
            let Some(shared) = live.delays.start_first() else { break };
            self.write_back_in_turns(live, &shared);
            shared.end_writing();
        }
        let Some(due) = live.delays.first_due() else {
            live.delays.spares.clear();
            return Next::WhenWoken;
        };
        Next::After(due.saturating_sub(live.env.elapsed()).max(BUSY_PAUSE))
    }
}

/// The work of the background writer. `twin` is the volume but for what it has live, which is held only while it works.
pub(crate) fn writer(mut twin: Volume, live: Weak<Live>) -> impl FnMut() -> Next + Send + 'static {
    move || {
        let Some(live) = live.upgrade() else { return Next::Done };
        twin.source = Source::Live(live.clone());
        let next = twin.write_back_old(&live);
        twin.source = Source::Cached(BlockCache::new(0, 1));
        next
    }
}
