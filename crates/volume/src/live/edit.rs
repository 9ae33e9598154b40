//! One operation that changes the volume: a journal handle, the allocator, and the frames.

use super::Live;
use crate::alloc::{Budget, InodeRequest};
use crate::edit::{AllocationRequest, Edit, EditInodes, Limits, Purpose, Run, Usage};
use crate::error::Error;
use crate::open::DataMode;
use crate::read::inode::{self, LoadedInode, RecordPlace};
use crate::source::{BlockKind, DataPiece, Facts, MetadataRead};
use crate::volume::Volume;
use crate::write::quota::{self, Owners, Promised};
use extant_journal::{FrameWrite, Handle, JournalError};
use extant_ondisk::inode::FileType;
use extant_ondisk::time::Timestamp;
use extant_ondisk::{BlockNo, Geometry, GroupNo, InodeNo, Tid};
use std::sync::Arc;

/// Credits asked for at a time when an operation turns out to need more than it said.
const MORE_CREDITS: u32 = 16;

/// All of a block is one part.
const WHOLE: u64 = 1;

/// One operation: what it changes is committed together. The locks of the inodes that it changes are held before it starts.
pub(crate) struct LiveEdit<'v> {
    volume: &'v Volume,
    live: &'v Live,
    /// `None` after a restart that failed.
    handle: Option<Handle<'v>>,
    now: Timestamp,
    is_privileged: bool,
    /// Clusters that were promised to the operation: it takes these before others.
    reserved: u64,
    /// The quota files' lock is held.
    is_charging: bool,
}

impl<'v> LiveEdit<'v> {
    /// Starts an operation that may dirty `credits` blocks.
    pub(crate) fn start(volume: &'v Volume, live: &'v Live, credits: u32) -> Result<Self, Error> {
        let credits = credits.min(live.journal.max_credits());
        let handle = Some(live.journal.start(credits)?);
        Ok(Self {
            volume,
            live,
            handle,
            now: live.now(volume.geometry()),
            is_privileged: false,
            reserved: 0,
            is_charging: false,
        })
    }

    /// The operation may use reserved blocks.
    pub(crate) fn privileged(mut self, is_privileged: bool) -> Self {
        self.is_privileged = is_privileged;
        self
    }

    /// The operation has a promise of so many clusters.
    pub(crate) fn with_reserved(mut self, clusters: u64) -> Self {
        self.reserved = clusters;
        self
    }

    /// What is left of the promise.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }

    fn handle(&self) -> Result<&Handle<'v>, Error> {
        match &self.handle {
            Some(handle) => Ok(handle),
            None => Err(self.live.journal.aborted().map_or(Error::ReadOnly, Error::from)),
        }
    }

    /// Takes a free inode.
    pub(crate) fn allocate_inode_for(&mut self, request: InodeRequest) -> Result<InodeNo, Error> {
        self.live.allocator.allocate_inode(self, request)
    }

    /// What the journal has of a block that is home: neither a frame nor recovery brings it back.
    pub(crate) fn forget(&mut self, block: BlockNo) -> Result<(), Error> {
        Ok(self.handle()?.forget(block)?)
    }

    /// The transaction that the changes belong to.
    pub(crate) fn tid(&self) -> Result<Tid, Error> {
        Ok(self.handle()?.tid())
    }

    /// Makes sure that `credits` more blocks may be dirtied: in this transaction, or else in a later one (true). Between the two
    /// the volume must be as it may be found after power loss.
    pub(crate) fn continue_with(&mut self, credits: u32) -> Result<bool, Error> {
        let handle = self.handle()?;
        let missing = credits.saturating_sub(handle.credits());
        if missing == 0 || handle.extend(missing) {
            return Ok(false);
        }
        let credits = credits.min(self.live.journal.max_credits());
        if let Some(handle) = self.handle.take() {
            self.handle = Some(handle.restart(credits)?);
        }
        Ok(true)
    }

    /// Counts all that a file uses for other owners from now on; the inode is not changed.
    pub(crate) fn transfer(&mut self, file: &LoadedInode, to: Owners) -> Result<(), Error> {
        self.with_quotas(|edit, promised| {
            quota::transfer_beside(edit, promised, file, to, edit.limits(Limits::Judged))
        })
    }

    /// Runs a change of the quota files under their lock, where the volume has any.
    fn with_quotas(
        &mut self,
        change: impl FnOnce(&mut Self, &Promised) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // A quota file that grows is itself charged to nobody.
        if !self.volume.has_quotas() || self.is_charging {
            return Ok(());
        }
        let promised = self.live.quotas.lock();
        self.is_charging = true;
        let changed = change(self, &promised);
        self.is_charging = false;
        changed
    }

    /// Limits bind nobody who is privileged.
    fn limits(&self, limits: Limits) -> Limits {
        if self.is_privileged { Limits::Ignored } else { limits }
    }

    /// Seals a block that was changed: one of records, which many operations change before it is committed, when that happens.
    fn seal(&self, bytes: &mut FrameWrite<'_>, block: BlockNo, kind: BlockKind) {
        if matches!(kind, BlockKind::DirBlock { .. }) {
            bytes.seal_later(kind.number(), WHOLE, || {
                let geometry = self.live.geometry.clone();
                Box::new(move |bytes, _| kind.seal(bytes, block, &geometry))
            });
        } else if !matches!(kind, BlockKind::InodeTable { .. }) {
            bytes.set_sealed();
            kind.seal(bytes, block, self.geometry());
        }
    }

    /// One block more will be dirtied.
    fn spend(&self) -> Result<&Handle<'v>, Error> {
        let handle = self.handle()?;
        if handle.credits() == 0 && !handle.extend(MORE_CREDITS) && !handle.extend(1) {
            let (asked, limit) = (MORE_CREDITS, self.live.journal.max_credits());
            return Err(JournalError::TooManyCredits { asked, limit }.into());
        }
        Ok(handle)
    }
}

impl MetadataRead for LiveEdit<'_> {
    type Block = Arc<[u8]>;

    fn facts(&self) -> &Facts {
        self.volume.facts()
    }

    fn metadata(&self, block: BlockNo, kind: BlockKind) -> Result<Arc<[u8]>, Error> {
        self.volume.metadata(block, kind)
    }

    fn data(&self, pieces: &mut [DataPiece<'_>]) -> Result<(), Error> {
        self.volume.data(pieces)
    }

    fn inode_table(&self, group: GroupNo) -> Result<BlockNo, Error> {
        self.volume.inode_table(group)
    }

    fn inode_block(&self, place: &RecordPlace) -> Result<(Arc<[u8]>, bool), Error> {
        self.volume.inode_block(place)
    }
}

impl Edit for LiveEdit<'_> {
    fn modify<R>(
        &mut self,
        block: BlockNo,
        kind: BlockKind,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Error> {
        let frame = self.live.frame(self.volume, block, kind)?;
        let mut bytes = self.spend()?.write(&frame)?;
        let result = change(&mut bytes);
        self.seal(&mut bytes, block, kind);
        Ok(result)
    }

    fn modify_record<R>(
        &mut self,
        number: InodeNo,
        change: impl FnOnce(&mut [u8], &Geometry) -> R,
    ) -> Result<R, Error> {
        let place = inode::place(self, number)?;
        let geometry = &self.live.geometry;
        let frame = self.live.frame(self.volume, place.block, place.kind())?;
        let mut bytes = self.spend()?.write(&frame)?;
        let record = &mut bytes[place.bytes(geometry)];
        let result = change(record, geometry);
        match inode::part_of_block(geometry, place.index) {
            // Only the records that were changed: others may be broken, and stay so.
            Some(part) => bytes.seal_later(place.kind().number(), part, || {
                let geometry = geometry.clone();
                let first = InodeNo(number.0 - place.index);
                Box::new(move |bytes, parts| inode::seal_parts(bytes, parts, first, &geometry))
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
        let handle = self.spend()?;
        let frame = handle.create(block)?;
        let mut bytes = handle.write(&frame)?;
        let result = fill(&mut bytes);
        self.seal(&mut bytes, block, kind);
        Ok(result)
    }

    fn allocate(&mut self, request: AllocationRequest) -> Result<Run, Error> {
        let allocator = &self.live.allocator;
        if self.reserved == 0 {
            // A quota file must count whatever is done, as a map must have room for it.
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

    fn free_all(&mut self, runs: &[(Run, Purpose)]) -> Result<(), Error> {
        let tid = self.tid()?;
        self.live.allocator.free(self, tid, runs.iter().map(|(run, _)| *run))?;
        // Data that went through the journal are revoked as metadata are.
        let is_revoked =
            |purpose: &Purpose| *purpose != Purpose::Data || self.live.data == DataMode::Journal;
        for (run, _) in runs.iter().filter(|(_, purpose)| is_revoked(purpose)) {
            for block in run.start.0..run.start.0 + run.count {
                self.spend()?.forget(BlockNo(block))?;
            }
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
        match self.live.options.shares_xattrs {
            true => self.live.shared.with_blocks(hash, |blocks| act(self, blocks)),
            false => act(self, &mut Vec::new()),
        }
    }

    fn with_shared_values<R>(
        &mut self,
        hash: u32,
        act: impl FnOnce(&mut Self, &mut Vec<InodeNo>) -> R,
    ) -> R {
        match self.live.options.shares_xattrs {
            true => self.live.shared.with_values(hash, |values| act(self, values)),
            false => act(self, &mut Vec::new()),
        }
    }

    fn charge(&mut self, file: &LoadedInode, usage: Usage, limits: Limits) -> Result<(), Error> {
        self.with_quotas(|edit, promised| {
            quota::charge_beside(edit, promised, file, usage, edit.limits(limits))
        })
    }
}

impl EditInodes for LiveEdit<'_> {
    fn allocate_inode(&mut self, near: InodeNo, file_type: FileType) -> Result<InodeNo, Error> {
        let is_dir = file_type == FileType::Directory;
        self.allocate_inode_for(InodeRequest { parent: near, is_dir, is_top: false })
    }

    fn free_inode(&mut self, number: InodeNo, file_type: FileType) -> Result<(), Error> {
        let is_dir = file_type == FileType::Directory;
        self.live.allocator.free_inode(self, number, is_dir)
    }
}
