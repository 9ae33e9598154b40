//! The volume's free space: counts, claimed space, space given back.

use super::buddy::Buddy;
use super::busy::BusyClusters;
use super::group;
use super::index::{GroupSet, OrderIndex};
use super::inode_group::KnownGroups;
use super::memory::BuddyMemory;
use super::policy::AllocatorKind;
use super::preallocation::{ClusterRange, Preallocations};
use super::try_limits::TryLimits;
use crate::edit::{AllocationRequest, BlockRange, Edit, Undo};
use crate::growable::Growable;
use crate::ranks::{FreedLock, GroupLock};
use extant_ondisk::{BlockNo, Flaw, Geometry, GroupNo, InodeNo, Location, Tid};
use extant_reader::{Error, MetadataRead};
use extant_runtime::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use extant_runtime::sync::{Arc, Mutex, MutexGuard};
use std::ops::Range;

/// Shards of the lists of freed clusters.
const SHARDS: usize = 8;

/// The state of a group in addition to its bitmap.
#[derive(Debug, Default)]
pub(super) struct GroupState {
    /// Clusters that are free on the volume and must not be given out.
    pub(super) busy: BusyClusters,
    /// The others that are free. Made of the bitmap when it is needed, and given up when memory is
    /// short.
    pub(super) buddy: Option<Buddy>,
    /// Whether it was used since memory was short.
    pub(super) was_used: bool,
}

/// A locked group.
pub(super) type Slot<'a> = MutexGuard<'a, Option<Box<GroupState>>, GroupLock>;

/// Clusters freed by a transaction.
#[derive(Debug)]
struct Freed {
    tid: Tid,
    piece: ClusterRange,
}

/// How an allocator works.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocatorOptions {
    /// Which one.
    pub kind: AllocatorKind,
    /// The plain one gives out no longer runs, in clusters.
    pub longest_run: u32,
    /// Clusters of a stripe; 0 or 1 for none.
    pub stripe: u32,
    /// Clusters that only the privileged may take.
    pub kept_clusters: u64,
    /// Clusters in addition to these that are for maps alone ([`Budget::All`]).
    pub map_clusters: u64,
    /// Bytes for buddies, about.
    pub memory: u64,
}

/// The volume's free space.
#[derive(Debug)]
pub(crate) struct Allocator {
    pub(super) groups: Growable<Mutex<Option<Box<GroupState>>, GroupLock>>,
    pub(super) index: OrderIndex,
    /// Groups that may have a free inode.
    pub(super) with_inodes: GroupSet,
    pub(super) known: KnownGroups,
    pub(super) preallocations: Preallocations,
    pub(super) memory: BuddyMemory,
    pub(super) options: AllocatorOptions,
    pub(super) try_limits: TryLimits,
    freed: [Mutex<Vec<Freed>, FreedLock>; SHARDS],
    /// Free clusters of all groups, less those that are claimed or reserved.
    free_clusters: AtomicU64,
    /// Clusters reserved for data that wait for their blocks. As many are free, not waiting for a
    /// commit, and not claimed.
    reserved_clusters: AtomicU64,
    /// The reserved clusters that wait for a commit.
    pending_clusters: AtomicU64,
    pub(super) free_inodes: AtomicU64,
    /// As in the options; larger after growth.
    kept_clusters: AtomicU64,
    map_clusters: AtomicU64,
    /// Where the next directory that is spread is looked for.
    pub(super) next_spread: AtomicU32,
}

/// Free clusters that are claimed: they are not allocatable, and nothing on the volume refers to
/// them. Dropped, they are free again; [`Allocator::take`] makes them one's own.
#[derive(Debug)]
pub(crate) struct Claim {
    allocator: Arc<Allocator>,
    piece: ClusterRange,
    run: BlockRange,
}

impl Claim {
    /// The blocks.
    pub(crate) fn run(&self) -> BlockRange {
        self.run
    }

    /// How many clusters.
    pub(crate) fn clusters(&self) -> u64 {
        u64::from(self.piece.len())
    }

    /// The cluster after them, counted in their group.
    pub(crate) fn end(&self) -> u32 {
        self.piece.clusters.end
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let count = self.piece.len();
        if count > 0 {
            self.allocator.release(&self.piece);
            self.allocator.count_back(u64::from(count));
        }
    }
}

/// The budget that pays for clusters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Budget {
    /// Free space; some of it is kept for the privileged, and some for maps.
    Free {
        /// Whether the caller is privileged.
        is_privileged: bool,
    },
    /// All free space.
    All,
    /// A reservation ([`Allocator::reserve`]), which has at least this number of clusters left, one
    /// or more.
    Reserved {
        /// How many are taken at most.
        clusters: u64,
    },
}

impl Allocator {
    /// An allocator with the volume's counts.
    pub(crate) fn new(
        geometry: &Geometry,
        free_clusters: u64,
        free_inodes: u64,
        options: AllocatorOptions,
    ) -> Self {
        let groups = geometry.groups_count;
        let top = geometry.clusters_per_group.max(1).ilog2();
        Self {
            groups: Growable::new(groups as usize, |_| Mutex::ranked(None)),
            index: OrderIndex::new(groups, top),
            with_inodes: GroupSet::new(groups, true),
            known: KnownGroups::new(),
            preallocations: Preallocations::default(),
            memory: BuddyMemory::new(options.memory),
            kept_clusters: AtomicU64::new(options.kept_clusters),
            map_clusters: AtomicU64::new(options.map_clusters),
            options,
            try_limits: TryLimits::new(),
            freed: std::array::from_fn(|_| Mutex::default()),
            free_clusters: AtomicU64::new(free_clusters),
            reserved_clusters: AtomicU64::new(0),
            pending_clusters: AtomicU64::new(0),
            free_inodes: AtomicU64::new(free_inodes),
            next_spread: AtomicU32::new(0),
        }
    }

    /// Sets the counts that the descriptors were found to have, before anything is taken.
    pub(crate) fn set_counts(&self, free_clusters: u64, free_inodes: u64) {
        self.free_clusters.store(free_clusters, Ordering::Relaxed);
        self.free_inodes.store(free_inodes, Ordering::Relaxed);
    }

    /// Makes room for groups that the volume is about to have; they are found when its geometry
    /// has them too. One thread at a time does.
    pub(crate) fn add_groups(&self, groups: Range<u32>) {
        self.groups.grow(groups.end as usize, |_| Mutex::ranked(None));
        self.index.grow(groups.clone());
        self.with_inodes.grow(groups.end);
        groups.for_each(|group| self.with_inodes.insert(GroupNo(group)));
    }

    /// Runs `change`, which changes the bitmaps and descriptors of a group and of those with freed
    /// clusters in another way than by the calls here, and publishes it. What is claimed in the
    /// groups stays claimed. The freed clusters, which are in order, are not allocatable until
    /// [`Self::changed_groups`] is called.
    pub(crate) fn change_groups<R>(
        &self,
        no: GroupNo,
        freed: &[ClusterRange],
        change: impl FnOnce() -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut groups: Vec<GroupNo> = freed.iter().map(|piece| piece.group).collect();
        groups.push(no);
        groups.sort_unstable();
        groups.dedup();
        let mut slots = Vec::new();
        for no in groups {
            slots.push((no, self.lock(no)?));
            self.known.forget_desc(no);
        }
        let changed = change()?;
        for (no, slot) in &mut slots {
            for piece in freed.iter().filter(|piece| piece.group == *no) {
                slot.get_or_insert_default().busy.add(piece.clusters.clone());
            }
            if let Some(buddy) = slot.as_mut().and_then(|state| state.buddy.take()) {
                self.memory.removed(buddy.bytes());
            }
            self.index.set(*no, Some(self.index.top()));
        }
        Ok(changed)
    }

    /// The clusters that [`Self::change_groups`] freed may be used: the change is committed.
    pub(crate) fn changed_groups(&self, freed: &[ClusterRange]) {
        for piece in freed {
            self.release(piece);
            self.count_back(u64::from(piece.len()));
        }
    }

    /// The volume has got more free space; `kept_clusters` and `map_clusters` are as in
    /// [`AllocatorOptions`].
    pub(crate) fn add_space(
        &self,
        clusters: u64,
        inodes: u64,
        kept_clusters: u64,
        map_clusters: u64,
    ) {
        self.kept_clusters.store(kept_clusters, Ordering::Relaxed);
        self.map_clusters.store(map_clusters, Ordering::Relaxed);
        self.free_inodes.fetch_add(inodes, Ordering::Relaxed);
        self.count_back(clusters);
    }

    /// Free clusters, those that wait for a commit included, those that are claimed or reserved
    /// not.
    pub(crate) fn free_clusters(&self) -> u64 {
        self.free_clusters.load(Ordering::Relaxed)
    }

    /// Free inodes.
    pub(crate) fn free_inodes(&self) -> u64 {
        self.free_inodes.load(Ordering::Relaxed)
    }

    /// Whether a commit would free something.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending_clusters.load(Ordering::Relaxed) > 0
    }

    /// Whether `clusters` clusters are free, some of them perhaps after a commit, that are not kept
    /// for others.
    pub(crate) fn has_room(&self, clusters: u64, is_privileged: bool) -> bool {
        self.free_clusters().saturating_sub(self.kept_from(is_privileged)) >= clusters
    }

    /// Clusters that are not for data: those for maps, and those for the privileged.
    fn kept_from(&self, is_privileged: bool) -> u64 {
        let kept = self.kept_clusters.load(Ordering::Relaxed);
        let for_privileged = if is_privileged { 0 } else { kept };
        self.map_clusters().saturating_add(for_privileged)
    }

    /// Clusters that are for maps alone.
    pub(crate) fn map_clusters(&self) -> u64 {
        self.map_clusters.load(Ordering::Relaxed)
    }

    /// Clusters that are reserved for data that wait for their blocks.
    pub(crate) fn reserved_clusters(&self) -> u64 {
        self.reserved_clusters.load(Ordering::Relaxed)
    }

    /// Reserves clusters: the holder of the reservation finds as many, whatever others allocate
    /// ([`Budget::Reserved`]).
    ///
    /// # Errors
    /// [`Error::NoSpace`]: there are not as many, or some of them wait for a commit. Nothing is
    /// reserved then.
    pub(crate) fn reserve(&self, clusters: u64, is_privileged: bool) -> Result<(), Error> {
        if clusters == 0 {
            return Ok(());
        }
        self.count_off(clusters, clusters, self.kept_from(is_privileged))?;
        self.reserved_clusters.fetch_add(clusters, Ordering::Relaxed);
        Ok(())
    }

    /// Gives a reservation back.
    pub(crate) fn unreserve(&self, clusters: u64) {
        let before = self.reserved_clusters.fetch_sub(clusters, Ordering::Relaxed);
        assert!(before >= clusters, "{clusters} clusters given back, {before} reserved");
        self.count_back(clusters);
    }

    /// Takes at most `most` off the volume's count, at least `least`, and leaves what is kept.
    /// Clusters that wait for a commit do not count: a search would not find them.
    fn count_off(&self, least: u64, most: u64, kept: u64) -> Result<u64, Error> {
        let mut free = self.free_clusters.load(Ordering::Relaxed);
        loop {
            let held_back = self.pending_clusters.load(Ordering::Relaxed).saturating_add(kept);
            let count = most.min(free.saturating_sub(held_back));
            if count < least {
                return Err(Error::NoSpace);
            }
            match self.free_clusters.compare_exchange_weak(
                free,
                free - count,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(count),
                Err(now) => free = now,
            }
        }
    }

    fn count_back(&self, count: u64) {
        self.free_clusters.fetch_add(count, Ordering::Relaxed);
    }

    /// How many clusters a request may look for. Free ones are taken off the count at once.
    fn draw(&self, budget: Budget, most: u64) -> Result<u64, Error> {
        match budget {
            Budget::Free { is_privileged } => {
                self.count_off(1, most, self.kept_from(is_privileged))
            }
            Budget::All => self.count_off(1, most, 0),
            Budget::Reserved { clusters } => Ok(most.min(clusters)),
        }
    }

    /// Settles a draw: `found` of the `drawn` clusters were found.
    fn settle(&self, budget: Budget, drawn: u64, found: u64) {
        match budget {
            Budget::Free { .. } | Budget::All => self.count_back(drawn - found),
            Budget::Reserved { .. } => {
                self.reserved_clusters.fetch_sub(found, Ordering::Relaxed);
            }
        }
    }

    /// Takes free clusters for an operation, marked on the volume.
    pub(crate) fn allocate<E: Edit>(
        self: &Arc<Self>,
        edit: &mut E,
        request: AllocationRequest,
        budget: Budget,
    ) -> Result<BlockRange, Error> {
        let claim = self.claim(edit, request, budget)?;
        self.take(edit, claim)
    }

    /// Sets free clusters aside in one run: at most as many as are wanted, at least one. No handle
    /// is needed.
    pub(crate) fn claim<S: MetadataRead>(
        self: &Arc<Self>,
        source: &S,
        request: AllocationRequest,
        budget: Budget,
    ) -> Result<Claim, Error> {
        let geometry = source.geometry();
        let per_cluster = u64::from(geometry.blocks_per_cluster);
        let wanted = request.count.max(1).div_ceil(per_cluster);
        let claim =
            self.claim_found(source, budget, wanted, |drawn| self.find(source, &request, drawn))?;
        claim.ok_or(Error::NoSpace)
    }

    /// Sets at most `most` clusters of a group aside: the first in a range that are part of a free
    /// run of `least` or more. No handle is needed. `None` where there are none.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: all free space is reserved. And the group's bitmap is broken.
    pub(crate) fn claim_in<S: MetadataRead>(
        self: &Arc<Self>,
        source: &S,
        group: GroupNo,
        clusters: Range<u32>,
        least: u32,
        most: u32,
    ) -> Result<Option<Claim>, Error> {
        self.claim_found(source, Budget::All, u64::from(most.max(1)), |drawn| {
            // No more than `most`, so it fits.
            self.find_in(source, group, clusters, least, drawn as u32)
        })
    }

    /// Draws clusters from the budget, at most as many as are wanted, and gives back those that
    /// `find`, which gets their number, does not use.
    fn claim_found<S: MetadataRead>(
        self: &Arc<Self>,
        source: &S,
        budget: Budget,
        wanted: u64,
        find: impl FnOnce(u64) -> Result<Option<ClusterRange>, Error>,
    ) -> Result<Option<Claim>, Error> {
        let drawn = self.draw(budget, wanted)?;
        let found = find(drawn);
        let used = match &found {
            Ok(Some(piece)) => u64::from(piece.len()),
            _ => 0,
        };
        self.settle(budget, drawn, used);
        // The geometry of now: the volume may have grown since the search began.
        let claim = |piece| {
            let run = run_of(source.geometry(), &piece);
            Claim { allocator: self.clone(), run, piece }
        };
        Ok(found?.map(claim))
    }

    /// Marks claimed clusters as in use on the volume.
    pub(crate) fn take<E: Edit>(
        &self,
        edit: &mut E,
        mut claim: Claim,
    ) -> Result<BlockRange, Error> {
        let mut slot = self.lock(claim.piece.group)?;
        self.known.forget_desc(claim.piece.group);
        group::take_clusters(edit, claim.piece.group, claim.piece.clusters.clone())?;
        if let Some(state) = &mut *slot {
            state.busy.remove(claim.piece.clusters.clone());
        }
        drop(slot);
        claim.piece.cut(u32::MAX);
        edit.record_undo(Undo::Took(claim.run));
        Ok(claim.run)
    }

    pub(super) fn lock(&self, no: GroupNo) -> Result<Slot<'_>, Error> {
        let group = self.groups.get(no.0 as usize).ok_or_else(|| {
            Flaw::above_limit("group", no.0, self.groups.len() as u64 - 1)
                .at(Location::GroupDesc(no))
        })?;
        Ok(group.lock_keyed(u64::from(no.0)))
    }

    /// Gives clusters back in the transaction `tid`; they are used again after its commit. Each
    /// group is changed once, in any order of the runs.
    pub(crate) fn free<E: Edit>(
        &self,
        edit: &mut E,
        tid: Tid,
        runs: impl IntoIterator<Item = BlockRange>,
    ) -> Result<(), Error> {
        let pieces = pieces_of(edit.geometry(), runs)?;
        let by_group = || pieces.chunk_by(|a, b| a.group == b.group);
        for pieces in by_group() {
            // The descriptor has the bitmap's checksum: both are read while the group is locked.
            let slot = self.lock(pieces[0].group)?;
            group::check_in_use(edit, pieces[0].group, pieces)?;
            // The bitmap has them in use, and they were free before: something else wrote it.
            let set_aside = slot.as_ref().and_then(|state| {
                pieces.iter().find_map(|piece| state.busy.first_of(piece.clusters.clone()))
            });
            drop(slot);
            if let Some(bit) = set_aside {
                let flaw = Flaw::bad_value("freed cluster is set aside: bit", bit);
                return Err(flaw.at(Location::BlockBitmap(pieces[0].group)).into());
            }
        }
        for pieces in by_group() {
            let no = pieces[0].group;
            let count = pieces.iter().map(|piece| u64::from(piece.len())).sum();
            let mut slot = self.lock(no)?;
            self.known.forget_desc(no);
            group::give_clusters(edit, no, pieces)?;
            let state = slot.get_or_insert_default();
            pieces.iter().for_each(|piece| state.busy.add(piece.clusters.clone()));
            drop(slot);
            self.pending_clusters.fetch_add(count, Ordering::Relaxed);
            self.count_back(count);
            let mut freed = self.freed[no.0 as usize % SHARDS].lock();
            for piece in pieces {
                match freed.last_mut() {
                    Some(last) if last.tid == tid && last.piece.is_continued_by(piece) => {
                        last.piece.clusters.end = piece.clusters.end;
                    }
                    _ => freed.push(Freed { tid, piece: piece.clone() }),
                }
            }
            drop(freed);
            for piece in pieces {
                let run = run_of(edit.geometry(), piece);
                edit.record_undo(Undo::Gave(run));
            }
        }
        Ok(())
    }

    /// Takes clusters again that transaction `tid` has freed, which runs still.
    pub(crate) fn retake<E: Edit>(
        &self,
        edit: &mut E,
        tid: Tid,
        run: BlockRange,
    ) -> Result<(), Error> {
        for piece in parts_of(edit.geometry(), run)? {
            let count = u64::from(piece.len());
            let mut slot = self.lock(piece.group)?;
            self.known.forget_desc(piece.group);
            group::take_clusters(edit, piece.group, piece.clusters.clone())?;
            if let Some(state) = &mut *slot {
                state.busy.remove(piece.clusters.clone());
            }
            drop(slot);
            let mut freed = self.freed[piece.group.0 as usize % SHARDS].lock();
            let with_it = |freed: &Freed| {
                freed.tid == tid
                    && freed.piece.group == piece.group
                    && freed.piece.clusters.start <= piece.clusters.start
                    && piece.clusters.end <= freed.piece.clusters.end
            };
            if let Some(at) = freed.iter().position(with_it) {
                let whole = freed.swap_remove(at).piece;
                let before = whole.clusters.start..piece.clusters.start;
                let after = piece.clusters.end..whole.clusters.end;
                for clusters in [before, after].into_iter().filter(|left| !left.is_empty()) {
                    freed.push(Freed { tid, piece: ClusterRange { group: whole.group, clusters } });
                }
            }
            drop(freed);
            // Off the count first, so that it never shows clusters that are not there.
            self.free_clusters.fetch_sub(count, Ordering::Relaxed);
            self.pending_clusters.fetch_sub(count, Ordering::Relaxed);
        }
        Ok(())
    }

    /// A transaction is committed: what it freed may be used. Before that `discard` sees it.
    pub(crate) fn committed(&self, tid: Tid, mut discard: impl FnMut(&ClusterRange)) {
        for shard in &self.freed {
            let mut freed = shard.lock();
            let done: Vec<Freed> = freed.extract_if(.., |freed| freed.tid == tid).collect();
            drop(freed);
            for Freed { piece, .. } in done {
                discard(&piece);
                self.release(&piece);
                self.pending_clusters.fetch_sub(u64::from(piece.len()), Ordering::Relaxed);
            }
        }
    }

    /// Clusters that are free on the volume may be given out.
    pub(super) fn release(&self, piece: &ClusterRange) {
        let Ok(mut slot) = self.lock(piece.group) else { return };
        let Some(state) = &mut *slot else { return };
        state.busy.remove(piece.clusters.clone());
        match &mut state.buddy {
            Some(buddy) => {
                buddy.give(piece.clusters.clone());
                self.index.set(piece.group, buddy.largest_order());
            }
            None => self.index.raise(piece.group, super::policy::order_in(&piece.clusters)),
        }
    }

    /// Gives back what was preallocated for a file: it is closed, cut or deleted.
    pub(crate) fn discard_preallocation(&self, inode: InodeNo) {
        if let Some(piece) = self.preallocations.take(inode) {
            self.release(&piece);
        }
    }

    /// Gives back preallocations, except those of files for which `keeps` is true. Whether there
    /// was any.
    pub(crate) fn discard_preallocations(&self, keeps: impl Fn(InodeNo) -> bool) -> bool {
        self.give_back(self.preallocations.drain(keeps))
    }

    /// Gives back what was preallocated. Whether there was any.
    pub(super) fn give_back(&self, pieces: Vec<ClusterRange>) -> bool {
        pieces.iter().for_each(|piece| self.release(piece));
        !pieces.is_empty()
    }
}

/// The blocks of a group's clusters; the volume's last cluster may be cut off.
pub(crate) fn run_of(geometry: &Geometry, piece: &ClusterRange) -> BlockRange {
    let per_cluster = u64::from(geometry.blocks_per_cluster);
    let first = u64::from(piece.clusters.start) * per_cluster;
    let start = geometry.group_start(piece.group).0 + first;
    let count = u64::from(piece.len()) * per_cluster;
    BlockRange { start: BlockNo(start), count: count.min(geometry.blocks_count - start) }
}

/// The clusters of runs in the order of the volume, neighbours of a group joined. A cluster that is
/// named twice is an error.
pub(crate) fn pieces_of(
    geometry: &Geometry,
    runs: impl IntoIterator<Item = BlockRange>,
) -> Result<Vec<ClusterRange>, Error> {
    let mut pieces = Vec::new();
    for run in runs {
        pieces.append(&mut parts_of(geometry, run)?);
    }
    pieces.sort_unstable_by_key(|piece| (piece.group, piece.clusters.start));
    let is_twice = |two: &&[ClusterRange]| {
        two[0].group == two[1].group && two[1].clusters.start < two[0].clusters.end
    };
    if let Some([_, twice]) = pieces.windows(2).find(is_twice) {
        let flaw = Flaw::bad_value("the cluster is freed twice: bit", twice.clusters.start);
        return Err(flaw.at(Location::BlockBitmap(twice.group)).into());
    }
    pieces.dedup_by(|next, last| {
        let joins = last.is_continued_by(next);
        if joins {
            last.clusters.end = next.clusters.end;
        }
        joins
    });
    Ok(pieces)
}

/// The clusters of a run, group by group.
pub(crate) fn parts_of(geometry: &Geometry, run: BlockRange) -> Result<Vec<ClusterRange>, Error> {
    let per_cluster = u64::from(geometry.blocks_per_cluster);
    let flaw = |at| Flaw::Rule("freed block is past the end of the volume").at(Location::Block(at));
    let end = run.start.checked_add(run.count).ok_or_else(|| flaw(run.start))?.0;
    let mut parts = Vec::new();
    let mut next = run.start;
    while next.0 < end {
        let group = geometry.group_of(next).ok_or_else(|| flaw(next))?;
        let group_start = geometry.group_start(group).0;
        let stop = end.min(group_start + u64::from(geometry.group_blocks(group)));
        // Within a group, so they fit.
        let first = ((next.0 - group_start) / per_cluster) as u32;
        let last = (stop - group_start).div_ceil(per_cluster) as u32;
        parts.push(ClusterRange { group, clusters: first..last });
        next = BlockNo(stop);
    }
    Ok(parts)
}
