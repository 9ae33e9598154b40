//! One operation that changes the volume: a journal handle, the allocator, and the frames.

use super::fast_commit::{Described, REMOVED};
use super::faults::Step;
use super::inodes::record_undone;
use super::undo::{Entry, Mark, UndoLog};
use crate::alloc::{Budget, InodeRequest};
use crate::edit::{
    self, AllocationRequest, BlockRange, Edit, EditInodes, Limits, Purpose, Undo, Usage, offer,
    set_dtime,
};
use crate::engine::Engine;
use crate::options::DataMode;
use crate::write::quota::{self, Owners, ReservedQuota};
use crate::write::{value, xattr};
use extant_journal::{FastNameChange, Frame, FrameWrite, Handle, JournalError, Turn};
use extant_ondisk::inode::{FileType, RawInode};
use extant_ondisk::quota::{QuotaKind, QuotaRecord};
use extant_ondisk::time::Timestamp;
use extant_ondisk::{BlockNo, FileBlock, FormatError, Geometry, GroupNo, InodeNo, Tid};
use extant_reader::read::inode::{self, LoadedInode};
use extant_reader::{BlockKind, DataPiece, Error, MetadataRead, RecordPlace, VolumeInfo};
use std::ops::Range;
use std::sync::Arc;
use zerocopy::FromBytes;

/// Credits asked for at a time when an operation turns out to need more than it asked for.
const MORE_CREDITS: u32 = 16;

/// All of a block is one part.
const WHOLE: u64 = 1;

/// One operation: what it changes is committed together. The locks of the inodes that it changes
/// are held before it starts, and until it is gone.
///
/// An operation that ends well calls [`Self::finish`]. An operation that is dropped before that is
/// undone ([`super::undo`]); if that fails too the journal stops, so that nothing of the
/// transaction is committed.
pub(crate) struct Operation<'e> {
    engine: &'e Engine,
    /// `None` after a restart that failed.
    handle: Option<Handle<'e>>,
    now: Timestamp,
    is_privileged: bool,
    /// Clusters that were reserved for the operation: it takes these before others.
    reserved: u64,
    /// The quota files' lock is held.
    is_charging: bool,
    /// The log of changes to undo unless the operation ends well; `None` before the first change.
    log: Option<Box<UndoLog>>,
    /// Changes are not logged: they are recorded, or undone.
    is_unlogged: bool,
    /// Changes are taken back: they need no credits.
    is_undoing: bool,
    /// It has ended well.
    is_finished: bool,
    /// Its changes, where the volume has fast commits.
    described: Option<Box<Described>>,
}

impl<'e> Operation<'e> {
    /// Starts an operation that may dirty `credits` blocks.
    pub(crate) fn start(engine: &'e Engine, credits: u32) -> Result<Self, Error> {
        let credits = credits.min(engine.journal.max_credits());
        let handle = Some(engine.journal.start(credits)?);
        Ok(Self {
            engine,
            handle,
            now: engine.now(),
            is_privileged: false,
            reserved: 0,
            is_charging: false,
            log: None,
            is_unlogged: false,
            is_undoing: false,
            is_finished: false,
            described: engine.journal.has_fast_commits().then(Box::default),
        })
    }

    /// The volume that is changed.
    pub(crate) fn engine(&self) -> &'e Engine {
        self.engine
    }

    /// The operation has ended well.
    pub(crate) fn finish(mut self) {
        if self.log.as_ref().is_some_and(|log| log.has_offers()) {
            self.settle();
        }
        self.describe();
        self.is_finished = true;
    }

    /// Tells the journal what was changed so far, for a fast commit.
    fn describe(&mut self) {
        let Some(described) = self.described.as_mut().map(std::mem::take) else { return };
        if let Some(handle) = &self.handle {
            let refusal = handle.fast_commit_refusal();
            match refusal.map_or_else(|| described.changes(self.engine), Err) {
                Ok(changes) => handle.describe(changes),
                Err(reason) => handle.refuse_fast_commit(reason),
            }
        }
    }

    /// The change is committed by a transaction, for this reason.
    pub(crate) fn refuse_fast_commit(&mut self, reason: &'static str) {
        if let Some(described) = &mut self.described {
            described.refuse(reason);
        }
    }

    /// A name of a directory was changed, and nothing else in the directory.
    pub(crate) fn name_changed(
        &mut self,
        change: FastNameChange,
        dir: InodeNo,
        inode: InodeNo,
        name: &[u8],
    ) {
        if let Some(described) = &mut self.described {
            described.name(change, dir, inode, name);
        }
    }

    /// The log, from the first change on.
    #[inline]
    fn log(&mut self) -> &mut UndoLog {
        self.log.get_or_insert_with(UndoLog::take)
    }

    /// Runs a change that puts copies of the log back.
    fn with_copies<R>(&mut self, change: impl FnOnce(&mut Self, &UndoLog) -> R) -> R {
        let log = self.log.take().unwrap_or_default();
        let result = change(self, &log);
        self.log = Some(log);
        result
    }

    /// The changes so far may be found after power loss: they stay, however the operation ends.
    pub(crate) fn settle(&mut self) {
        self.describe();
        let Some(mut log) = self.log.take() else { return };
        for (at, entry) in log.entries().iter().enumerate() {
            match *entry {
                Entry::Recorded(Undo::Forgets(run)) => self.forget_run(run),
                Entry::Recorded(undo) if !log.gives_back(undo, at) => offer(self, undo),
                _ => {}
            }
        }
        log.clear();
        self.log = Some(log);
    }

    fn forget_run(&self, run: BlockRange) {
        let Some(handle) = &self.handle else { return };
        for block in run.start.0..run.start.0 + run.count {
            // It fails only where the journal has stopped.
            if handle.forget(BlockNo(block)).is_err() {
                return;
            }
        }
    }

    /// Runs a part of the operation that changes the file; if it fails, it has changed nothing, and
    /// the operation may continue.
    pub(crate) fn attempt<R>(
        &mut self,
        file: &mut LoadedInode,
        part: impl FnOnce(&mut Self, &mut LoadedInode) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let before = file.clone();
        let mark = self.log().mark();
        let result = part(self, file);
        if result.is_err() {
            self.roll_back(mark);
            *file = before;
        }
        self.log().leave(mark);
        result
    }

    /// Takes everything back that was changed since the mark. Where that fails the journal stops.
    fn roll_back(&mut self, mark: Mark) {
        if let Some(described) = &mut self.described {
            described.refuse("a change that was undone");
        }
        let undone = self.undoing(|edit| {
            while let Some(entry) = edit.log().pop(mark) {
                edit.revert(entry)?;
            }
            Ok(())
        });
        self.log().cut(mark);
        self.must(undone);
    }

    /// Takes changes back.
    fn undoing(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let before = (self.is_unlogged, self.is_undoing);
        (self.is_unlogged, self.is_undoing) = (true, true);
        let undone = change(self);
        (self.is_unlogged, self.is_undoing) = before;
        undone
    }

    /// A change that cannot be undone is never committed.
    fn must(&self, undone: Result<(), Error>) {
        let Err(error) = undone else { return };
        tracing::error!(%error, "half a change cannot be taken back");
        let error = match error {
            Error::Journal(error) => error,
            Error::Io(error) => error.into(),
            Error::Format(error) => error.into(),
            _ => JournalError::HalfDone,
        };
        self.engine.health.set_read_only();
        self.engine.journal.abort(error);
    }

    fn revert(&mut self, entry: Entry) -> Result<(), Error> {
        let engine = self.engine;
        match entry {
            Entry::Part { block, kind, start, len, at } => self.with_copies(|edit, log| {
                let (start, len) = (start as usize, len as usize);
                edit.modify(block, kind, |bytes| {
                    bytes[start..start + len].copy_from_slice(log.copied(at, len));
                })
            }),
            Entry::Unread { block } => Ok(self.handle()?.uncreate(block)?),
            Entry::Record { number, at } => self.with_copies(|edit, log| {
                let before = log.copied(at, usize::from(engine.geometry().inode_size));
                edit.modify_record(number, |record, _| {
                    let dtime = dtime_of(record);
                    record.copy_from_slice(before);
                    put_dtime(record, dtime);
                })
            }),
            Entry::Dtime { number, dtime } => set_dtime(self, number, dtime),
            Entry::Inode { number, is_dir, is_taken: true } => {
                // As it was when it was taken.
                self.modify_record(number, |record, _| record.fill(0))?;
                engine.allocator.free_inode(self, number, is_dir)
            }
            Entry::Inode { number, is_dir, is_taken: false } => {
                engine.allocator.retake_inode(self, number, is_dir)
            }
            Entry::Charged { owners, usage } => {
                let reserved = engine.quotas.lock();
                let usage = usage.reversed();
                quota::charge_owners(self, &reserved, owners, usage, Limits::Ignored)
            }
            Entry::Recorded(undo) => self.revert_recorded(undo),
        }
    }

    fn revert_recorded(&mut self, undo: Undo) -> Result<(), Error> {
        let engine = self.engine;
        let tid = self.tid()?;
        match undo {
            Undo::Took(run) => {
                engine.allocator.free(self, tid, [run])?;
                for block in (run.start.0..run.start.0 + run.count).map(BlockNo) {
                    if engine.journal.cached(block).is_some() {
                        self.handle()?.forget(block)?;
                    }
                }
                Ok(())
            }
            Undo::Gave(run) => engine.allocator.retake(self, tid, run),
            Undo::Orphan { number, is_one: true } => engine.orphans.lock().remove(self, number),
            Undo::Orphan { number, is_one: false } => engine.orphans.lock().add(self, number),
            Undo::Users { block, by, left } => xattr::count_users_back(self, block, by, left),
            Undo::References { number, by, left } => {
                value::count_references_back(self, number, by, left)
            }
            Undo::Forgets(_) | Undo::OffersBlock(..) | Undo::OffersValue(..) => Ok(()),
        }
    }

    /// The operation may use reserved blocks.
    pub(crate) fn privileged(mut self, is_privileged: bool) -> Self {
        self.is_privileged = is_privileged;
        self
    }

    /// The operation has a reservation of `clusters` clusters.
    pub(crate) fn with_reserved(mut self, clusters: u64) -> Self {
        self.reserved = clusters;
        self
    }

    /// The rest of the reservation.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }

    fn handle(&self) -> Result<&Handle<'e>, Error> {
        match &self.handle {
            Some(handle) => Ok(handle),
            None => Err(self.engine.journal.aborted().map_or(Error::ReadOnly, Error::from)),
        }
    }

    /// Takes a free inode.
    #[inline]
    pub(crate) fn allocate_inode_for(&mut self, request: InodeRequest) -> Result<InodeNo, Error> {
        self.engine.faults.meet(Step::Space)?;
        let number = self.engine.allocator.allocate_inode(self, request)?;
        self.log().push(Entry::Inode { number, is_dir: request.is_dir, is_taken: true });
        Ok(number)
    }

    /// The journal's copies of a block that was checkpointed: neither a frame nor recovery writes
    /// them again.
    pub(crate) fn forget(&mut self, block: BlockNo) -> Result<(), Error> {
        Ok(self.handle()?.forget(block)?)
    }

    /// The transaction that the changes belong to.
    pub(crate) fn tid(&self) -> Result<Tid, Error> {
        Ok(self.handle()?.tid())
    }

    /// Whether `credits` more blocks may be dirtied in this transaction, and all of it taken back
    /// if the rest fails.
    pub(crate) fn extends(&mut self, credits: u32) -> Result<bool, Error> {
        let handle = self.handle()?;
        let missing = credits.saturating_sub(handle.credits());
        let is_long = self.log.as_ref().is_some_and(|log| log.is_long());
        Ok(missing == 0 || !is_long && handle.extend(missing))
    }

    /// Makes sure that `credits` more blocks may be dirtied: in this transaction, or else in a
    /// later one (true). Between the two the volume must be as it may be found after power loss.
    pub(crate) fn continue_with(&mut self, credits: u32) -> Result<bool, Error> {
        if self.extends(credits)? {
            return Ok(false);
        }
        self.settle();
        let credits = credits.min(self.engine.journal.max_credits());
        if let Some(handle) = self.handle.take() {
            self.handle = Some(handle.restart(credits)?);
        }
        Ok(true)
    }

    /// Counts all that a file uses for other owners from now on; the inode is not changed.
    pub(crate) fn transfer(&mut self, file: &LoadedInode, to: Owners) -> Result<(), Error> {
        let from = Owners::of(&file.inode);
        self.with_quotas(|edit, reserved| {
            let limits = edit.limits(Limits::Enforced);
            let moved = quota::transfer_with_reserved(edit, reserved, file, to, limits)?;
            Ok([(to, moved), (from, moved.reversed())])
        })
    }

    /// Sets the limits of an ID; its use stays.
    pub(crate) fn set_quota_limits(
        &mut self,
        kind: QuotaKind,
        limits: &QuotaRecord,
    ) -> Result<(), Error> {
        self.with_quotas(|edit, _| quota::set_limits(edit, kind, limits).map(|()| []))
    }

    /// Runs a change of the quota files under their lock, where the volume has any: all of it or
    /// nothing. Errors name the owners and the amount.
    fn with_quotas<const N: usize>(
        &mut self,
        change: impl FnOnce(&mut Self, &ReservedQuota) -> Result<[(Owners, Usage); N], Error>,
    ) -> Result<(), Error> {
        // A quota file that grows is itself charged to no owner.
        if !self.engine.has_quotas() || self.is_charging {
            return Ok(());
        }
        let reserved = self.engine.quotas.lock();
        self.is_charging = true;
        let mark = self.log().mark();
        let changed = change(self, &reserved);
        match &changed {
            Err(_) => self.roll_back(mark),
            Ok(charged) => {
                self.log().cut(mark);
                let charged = charged.iter().filter(|(_, usage)| !usage.is_none());
                for (owners, usage) in charged {
                    self.log().push(Entry::Charged { owners: *owners, usage: *usage });
                }
            }
        }
        self.is_charging = false;
        changed.map(drop)
    }

    /// Limits do not bind privileged callers.
    fn limits(&self, limits: Limits) -> Limits {
        if self.is_privileged { Limits::Ignored } else { limits }
    }

    /// Seals a block that was changed: one of records, which many operations change before it is
    /// committed, when that happens.
    fn seal(&self, bytes: &mut FrameWrite<'_>, block: BlockNo, kind: BlockKind) {
        if matches!(kind, BlockKind::DirBlock { .. }) {
            bytes.seal_later(kind.number(), WHOLE, || {
                let geometry = self.engine.sizes.geometry.clone();
                Box::new(move |bytes, _| edit::seal(&kind, bytes, block, &geometry))
            });
        } else if !matches!(kind, BlockKind::InodeTable { .. }) {
            bytes.set_sealed();
            edit::seal(&kind, bytes, block, self.geometry());
        }
    }

    /// One block more will be dirtied, unless the transaction has its frame.
    #[inline]
    fn spend(&self, frame: Option<&Frame>) -> Result<&Handle<'e>, Error> {
        self.engine.faults.meet(Step::Credit)?;
        match &self.handle {
            Some(handle) if handle.credits() > 0 => Ok(handle),
            _ => self.spend_more(frame),
        }
    }

    /// As [`Self::spend`], where no credit is left.
    #[cold]
    fn spend_more(&self, frame: Option<&Frame>) -> Result<&Handle<'e>, Error> {
        let handle = self.handle()?;
        if frame.is_some_and(|frame| handle.has(frame)) {
            return Ok(handle);
        }
        if self.is_undoing {
            handle.overdraw();
        } else if !handle.extend(MORE_CREDITS) && !handle.extend(1) {
            let (asked, limit) = (MORE_CREDITS, self.engine.journal.max_credits());
            return Err(JournalError::TooManyCredits { asked, limit }.into());
        }
        Ok(handle)
    }
}

impl Engine {
    /// Starts an operation that may dirty `credits` blocks.
    pub(crate) fn edit(&self, credits: u32) -> Result<Operation<'_>, Error> {
        self.check_writable()?;
        self.record_errors()?;
        Operation::start(self, credits)
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            // Holders of the inodes' locks must read them again.
            record_undone();
            if self.log.is_some()
                && self.handle.is_some()
                && self.engine.journal.aborted().is_none()
            {
                self.roll_back(UndoLog::START);
            }
        }
        if let Some(log) = self.log.take() {
            log.keep();
        }
    }
}

/// Whether a block is changed under the locks of the operation alone.
fn is_own(kind: BlockKind) -> bool {
    !matches!(
        kind,
        BlockKind::Descriptors
            | BlockKind::Bitmap { .. }
            | BlockKind::InodeTable { .. }
            | BlockKind::Superblock
            | BlockKind::OrphanFile { .. }
    )
}

/// When a block that is not new is written where there is no log: records and extents move between
/// those of their kind.
fn turn_of(kind: BlockKind) -> Turn {
    match kind {
        BlockKind::DirBlock { .. } | BlockKind::ExtentNode { .. } => Turn::Last,
        _ => Turn::Middle,
    }
}

fn dtime_of(record: &[u8]) -> u32 {
    RawInode::ref_from_prefix(record).map_or(0, |(raw, _)| raw.i_dtime.get())
}

fn put_dtime(record: &mut [u8], dtime: u32) {
    if let Ok((raw, _)) = RawInode::mut_from_prefix(record) {
        raw.i_dtime.set(dtime);
    }
}

impl MetadataRead for Operation<'_> {
    type Block = Arc<[u8]>;

    fn info(&self) -> &VolumeInfo {
        self.engine.info()
    }

    fn metadata(&self, block: BlockNo, kind: BlockKind) -> Result<Arc<[u8]>, Error> {
        self.engine.metadata(block, kind)
    }

    fn data(&self, pieces: &mut [DataPiece<'_>]) -> Result<(), Error> {
        self.engine.data(pieces)
    }

    fn inode_table(&self, group: GroupNo) -> Result<BlockNo, Error> {
        self.engine.inode_table(group)
    }

    fn inode_block(&self, place: &RecordPlace) -> Result<(Arc<[u8]>, bool), Error> {
        self.engine.inode_block(place)
    }
}

impl Edit for Operation<'_> {
    fn modify<R>(
        &mut self,
        block: BlockNo,
        kind: BlockKind,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Error> {
        let whole = |bytes: &[u8]| Ok(Some(0..bytes.len()));
        let changed = self.modify_part(block, kind, whole, |bytes, _| change(bytes))?;
        Ok(changed.expect("all of the block is a part of it"))
    }

    fn modify_part<R>(
        &mut self,
        block: BlockNo,
        kind: BlockKind,
        find: impl FnOnce(&[u8]) -> Result<Option<Range<usize>>, FormatError>,
        change: impl FnOnce(&mut [u8], usize) -> R,
    ) -> Result<Option<R>, Error> {
        let frame = self.engine.frame(block, kind)?;
        let mut bytes = self.spend(Some(&frame))?.write(&frame)?;
        let Some(part) = find(&bytes)? else { return Ok(None) };
        if let Some(described) = &mut self.described {
            described.block(kind);
        }
        let start = part.start;
        let changing = &mut bytes[part];
        if !self.is_unlogged && is_own(kind) {
            self.log().copy_part(block, kind, start, changing);
        }
        let before = match kind {
            BlockKind::InodeTable { .. } if self.described.is_some() => changing.to_vec(),
            _ => Vec::new(),
        };
        let result = change(changing, start);
        if let Some(described) = &mut self.described {
            described.table(&before, changing, self.engine.geometry());
        }
        self.seal(&mut bytes, block, kind);
        bytes.set_turn(turn_of(kind));
        Ok(Some(result))
    }

    fn modify_record<R>(
        &mut self,
        number: InodeNo,
        change: impl FnOnce(&mut [u8], &Geometry) -> R,
    ) -> Result<R, Error> {
        let place = inode::place(self, number)?;
        let engine = self.engine;
        let geometry = &engine.sizes.newest().geometry;
        let frame = engine.frame(place.block, place.kind())?;
        let mut bytes = self.spend(Some(&frame))?.write(&frame)?;
        let record = &mut bytes[place.bytes(geometry)];
        let dtime = dtime_of(record);
        if !self.is_unlogged {
            self.log().copy_record(number, record);
        }
        let before = self.described.is_some().then(|| record.to_vec());
        let result = change(record, geometry);
        if let (Some(described), Some(before)) = (&mut self.described, before) {
            described.record(number, &before, record, geometry);
        }
        if !self.is_unlogged && dtime_of(record) != dtime {
            self.log().push(Entry::Dtime { number, dtime });
        }
        match inode::part_of_block(geometry, place.index) {
            // Only the records that were changed: others may be broken, and stay so.
            Some(part) => bytes.seal_later(place.kind().number(), part, || {
                let geometry = geometry.clone();
                let first = InodeNo(number.0 - place.index);
                Box::new(move |bytes, parts| edit::seal_parts(bytes, parts, first, &geometry))
            }),
            None => extant_ondisk::inode::seal(record, number, geometry),
        }
        Ok(result)
    }

    fn create<R>(
        &mut self,
        block: BlockNo,
        kind: BlockKind,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Error> {
        self.spend(None)?;
        if let Some(described) = &mut self.described {
            described.block(kind);
            if matches!(kind, BlockKind::DirBlock { .. } | BlockKind::HtreeBlock { .. }) {
                // e2fsck 1.47.0 stops a replay where a directory must grow.
                described.refuse("a directory that grows");
            }
            if matches!(kind, BlockKind::InodeTable { .. }) {
                // A replay makes single records, and leaves the others as they are.
                let geometry = self.engine.geometry();
                let zeros = vec![0; geometry.block_len()];
                self.engine.device.write_at(geometry.byte_of(block), &zeros)?;
                described.cleared();
            }
        }
        if !self.is_unlogged && is_own(kind) && !self.log().took(block) {
            // It is filled again.
            match self.engine.journal.cached(block) {
                Some(frame) => {
                    self.log().copy_part(block, BlockKind::Contents, 0, &frame.sealed());
                }
                None => self.log().push(Entry::Unread { block }),
            }
        }
        let turn = if self.log().took(block) { Turn::First } else { turn_of(kind) };
        let handle = self.handle()?;
        let frame = handle.create(block)?;
        let mut bytes = handle.write(&frame)?;
        let result = fill(&mut bytes);
        self.seal(&mut bytes, block, kind);
        bytes.set_turn(turn);
        Ok(result)
    }

    fn allocate(&mut self, request: AllocationRequest) -> Result<BlockRange, Error> {
        self.engine.faults.meet(Step::Space)?;
        let allocator = &self.engine.allocator;
        if self.reserved == 0 {
            // A quota file must count every change, as a map must have room for it.
            let is_kept = request.purpose == Purpose::Map || self.is_charging;
            let budget = match is_kept {
                true => Budget::All,
                false => Budget::Free { is_privileged: self.is_privileged },
            };
            return allocator.allocate(self, request, budget);
        }
        let per_cluster = u64::from(self.geometry().blocks_per_cluster);
        let budget = Budget::Reserved { clusters: self.reserved };
        let run = allocator.allocate(self, request, budget)?;
        self.reserved -= run.count.div_ceil(per_cluster);
        Ok(run)
    }

    fn free_all(&mut self, runs: &[(BlockRange, Purpose)]) -> Result<(), Error> {
        let tid = self.tid()?;
        self.engine.allocator.free(self, tid, runs.iter().map(|(run, _)| *run))?;
        // Data that went through the journal are revoked as metadata are.
        let is_revoked =
            |purpose: &Purpose| *purpose != Purpose::Data || self.engine.data == DataMode::Journal;
        for (run, _) in runs.iter().filter(|(_, purpose)| is_revoked(purpose)) {
            // A forget cannot be undone.
            self.record_undo(Undo::Forgets(*run));
        }
        Ok(())
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    fn with_shared_blocks<R>(
        &mut self,
        hash: u32,
        act: impl FnOnce(&mut Self, &mut Vec<BlockNo>) -> R,
    ) -> R {
        let engine = self.engine;
        match engine.options.shares_xattrs {
            true => engine.shared.with_blocks(hash, |blocks| act(self, blocks)),
            false => act(self, &mut Vec::new()),
        }
    }

    fn with_shared_values<R>(
        &mut self,
        hash: u32,
        act: impl FnOnce(&mut Self, &mut Vec<InodeNo>) -> R,
    ) -> R {
        let engine = self.engine;
        match engine.options.shares_xattrs {
            true => engine.shared.with_values(hash, |values| act(self, values)),
            false => act(self, &mut Vec::new()),
        }
    }

    fn unlogged<R>(&mut self, change: impl FnOnce(&mut Self) -> R) -> R {
        let before = std::mem::replace(&mut self.is_unlogged, true);
        let result = change(self);
        self.is_unlogged = before;
        result
    }

    fn map_changed(&mut self, number: InodeNo, range: Range<FileBlock>) {
        if let Some(described) = &mut self.described {
            described.range(number, range);
        }
    }

    fn record_undo(&mut self, undo: Undo) {
        if let (Some(described), Undo::Orphan { number, .. }) = (&mut self.described, undo) {
            described.orphan(number);
        }
        if !self.is_undoing {
            self.log().record_undo(undo);
        }
    }

    fn take_back(&mut self, change: impl FnOnce(&mut Self) -> Result<(), Error>) {
        let undone = self.undoing(change);
        self.must(undone);
    }

    fn charge(&mut self, file: &LoadedInode, usage: Usage, limits: Limits) -> Result<(), Error> {
        self.with_quotas(|edit, reserved| {
            let limits = edit.limits(limits);
            let charged = quota::charge_with_reserved(edit, reserved, file, usage, limits)?;
            Ok([(Owners::of(&file.inode), charged)])
        })
    }
}

impl EditInodes for Operation<'_> {
    fn allocate_inode(&mut self, near: InodeNo, file_type: FileType) -> Result<InodeNo, Error> {
        let is_dir = file_type == FileType::Directory;
        self.allocate_inode_for(InodeRequest { parent: near, is_dir, is_top: false })
    }

    fn free_inode(&mut self, number: InodeNo, file_type: FileType) -> Result<(), Error> {
        let is_dir = file_type == FileType::Directory;
        // Before another operation can take its number.
        self.handle()?.refuse_fast_commit(REMOVED);
        self.engine.allocator.free_inode(self, number, is_dir)?;
        self.log().push(Entry::Inode { number, is_dir, is_taken: false });
        Ok(())
    }
}
