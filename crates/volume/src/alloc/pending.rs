//! What the bitmaps on the volume do not say: clusters that are free there but not to be used yet, and the counts of all groups.

use super::inodes::{Averages, SPREAD_LOOKS, from_group, is_roomy, is_uncrowded};
use super::{InodeRequest, group};
use crate::edit::{AllocationRequest, Edit, Run};
use crate::error::Error;
use crate::live::ranks::{FreedLock, GroupLock};
use crate::read::group as read_group;
use crate::source::MetadataRead;
use extant_device::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use extant_device::sync::{Arc, Mutex};
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::{BlockNo, Flaw, Geometry, GroupNo, InodeNo, Place, Tid};
use std::ops::Range;

/// Shards of the lists of freed clusters.
const SHARDS: usize = 8;

/// What is known of a group beyond its bitmap.
#[derive(Debug)]
struct GroupState {
    /// The block bitmap with all clusters set that must not be given out: in use, freed by a transaction that is not committed, or
    /// claimed.
    busy: Box<[u8]>,
    /// How many of them are free on the volume. The state goes when there are none.
    extra: u32,
}

/// Clusters freed by a transaction.
#[derive(Debug)]
struct Freed {
    tid: Tid,
    group: GroupNo,
    clusters: Range<u32>,
}

/// The volume's free space.
#[derive(Debug)]
pub(crate) struct Allocator {
    groups: Box<[Mutex<Option<Box<GroupState>>, GroupLock>]>,
    freed: [Mutex<Vec<Freed>, FreedLock>; SHARDS],
    /// Free clusters of all groups, less those that are claimed.
    free_clusters: AtomicU64,
    /// Those of them that wait for a commit.
    pending_clusters: AtomicU64,
    free_inodes: AtomicU64,
    /// Clusters that only the privileged may take.
    reserved_clusters: u64,
    /// Where the next directory that is spread is looked for.
    next_spread: AtomicU32,
}

/// Free clusters set aside: nobody else gets them, and nothing on the volume says so. Dropped, they are free again;
/// [`Allocator::take`] makes them one's own.
#[derive(Debug)]
pub(crate) struct Claim {
    allocator: Arc<Allocator>,
    group: GroupNo,
    clusters: Range<u32>,
    run: Run,
}

impl Claim {
    /// The blocks.
    pub(crate) fn run(&self) -> Run {
        self.run
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let count = self.clusters.end - self.clusters.start;
        if count > 0 {
            self.allocator.release(self.group, self.clusters.clone());
            self.allocator.free_clusters.fetch_add(u64::from(count), Ordering::Relaxed);
        }
    }
}

impl Allocator {
    /// An allocator with the volume's counts.
    pub(crate) fn new(
        geometry: &Geometry,
        free_clusters: u64,
        free_inodes: u64,
        reserved_blocks: u64,
    ) -> Self {
        let per_cluster = u64::from(geometry.blocks_per_cluster);
        Self {
            groups: (0..geometry.groups_count).map(|_| Mutex::ranked(None)).collect(),
            freed: std::array::from_fn(|_| Mutex::default()),
            free_clusters: AtomicU64::new(free_clusters),
            pending_clusters: AtomicU64::new(0),
            free_inodes: AtomicU64::new(free_inodes),
            reserved_clusters: reserved_blocks / per_cluster,
            next_spread: AtomicU32::new(0),
        }
    }

    /// Sets the counts that the descriptors were found to have, before anything is taken.
    pub(crate) fn set_counts(&self, free_clusters: u64, free_inodes: u64) {
        self.free_clusters.store(free_clusters, Ordering::Relaxed);
        self.free_inodes.store(free_inodes, Ordering::Relaxed);
    }

    /// Free clusters, those that wait for a commit included, those that are claimed not.
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

    /// Takes at most `most` off the volume's count, at least one.
    fn count_off(&self, most: u64, is_privileged: bool) -> Result<u64, Error> {
        let kept = if is_privileged { 0 } else { self.reserved_clusters };
        let mut free = self.free_clusters.load(Ordering::Relaxed);
        loop {
            let count = most.min(free.saturating_sub(kept));
            if count == 0 {
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

    /// Takes free clusters for an operation, marked on the volume.
    pub(crate) fn allocate<E: Edit>(
        &self,
        edit: &mut E,
        request: AllocationRequest,
        is_privileged: bool,
    ) -> Result<Run, Error> {
        self.search(edit, request, is_privileged, |edit, state, no, clusters| {
            group::take_clusters(edit, no, clusters.clone())?;
            if let Some(state) = state {
                bitmap::set_range(&mut state.busy, clusters);
            }
            Ok(())
        })
        .map(|(_, _, run)| run)
    }

    /// Sets free clusters aside. No handle is needed.
    pub(crate) fn claim<S: MetadataRead>(
        self: &Arc<Self>,
        source: &S,
        request: AllocationRequest,
        is_privileged: bool,
    ) -> Result<Claim, Error> {
        let mut source = Reader(source);
        let (group, clusters, run) =
            self.search(&mut source, request, is_privileged, |source, state, no, clusters| {
                let state = known(state, source.0, no)?;
                state.extra += clusters.end - clusters.start;
                bitmap::set_range(&mut state.busy, clusters);
                Ok(())
            })?;
        Ok(Claim { allocator: self.clone(), group, clusters, run })
    }

    /// Marks claimed clusters as in use on the volume.
    pub(crate) fn take<E: Edit>(&self, edit: &mut E, mut claim: Claim) -> Result<Run, Error> {
        let clusters = claim.clusters.clone();
        let mut slot = self.lock(claim.group)?;
        group::take_clusters(edit, claim.group, clusters.clone())?;
        forget_extra(&mut slot, clusters.end - clusters.start);
        drop(slot);
        claim.clusters = clusters.end..clusters.end;
        Ok(claim.run)
    }

    fn lock(
        &self,
        no: GroupNo,
    ) -> Result<extant_device::sync::MutexGuard<'_, Option<Box<GroupState>>, GroupLock>, Error>
    {
        let group = self.groups.get(no.0 as usize).ok_or_else(|| {
            Flaw::above_limit("group", no.0, self.groups.len() as u64 - 1).at(Place::GroupDesc(no))
        })?;
        Ok(group.lock_keyed(u64::from(no.0)))
    }

    /// The first free run from the goal on, in the goal's group and then in the others; `take` makes it one's own under the
    /// group's lock.
    fn search<S: Source>(
        &self,
        source: &mut S,
        request: AllocationRequest,
        is_privileged: bool,
        mut take: impl FnMut(
            &mut S,
            &mut Option<Box<GroupState>>,
            GroupNo,
            Range<u32>,
        ) -> Result<(), Error>,
    ) -> Result<(GroupNo, Range<u32>, Run), Error> {
        let geometry = source.metadata_source().geometry().clone();
        let per_cluster = u64::from(geometry.blocks_per_cluster);
        let counted = self.count_off(request.count.max(1).div_ceil(per_cluster), is_privileged)?;
        let goal = request.goal.unwrap_or(geometry.first_data_block);
        let home = geometry.group_of(goal).unwrap_or(GroupNo(0));
        // Within a group, so it fits.
        let at_home = (goal.0.saturating_sub(geometry.group_start(home).0) / per_cluster) as u32;
        // The part of the first group before the goal comes last.
        let turns = from_group(home, geometry.groups_count).chain([home]);
        for (turn, no) in turns.enumerate() {
            let from = if turn == 0 { at_home } else { 0 };
            let found = self.lock(no).and_then(|mut slot| {
                let found = first_run(source.metadata_source(), &slot, no, from, counted)?;
                if let Some(clusters) = &found {
                    take(source, &mut slot, no, clusters.clone())?;
                }
                Ok(found)
            });
            match found {
                Ok(None) => {}
                Ok(Some(clusters)) => {
                    self.count_back(counted - u64::from(clusters.end - clusters.start));
                    let run = run_of(&geometry, no, &clusters);
                    return Ok((no, clusters, run));
                }
                Err(error) => {
                    self.count_back(counted);
                    return Err(error);
                }
            }
        }
        self.count_back(counted);
        Err(Error::NoSpace)
    }

    /// Gives clusters back in the transaction `tid`; they are used again after its commit.
    pub(crate) fn free<E: Edit>(&self, edit: &mut E, tid: Tid, run: Run) -> Result<(), Error> {
        let parts = parts_of(edit.geometry(), run)?;
        for (no, clusters) in &parts {
            group::check_in_use(edit, *no, clusters.clone())?;
        }
        for (no, clusters) in parts {
            let count = clusters.end - clusters.start;
            let mut slot = self.lock(no)?;
            // Before the bits are cleared there, so that they stay set here.
            let state = known(&mut slot, edit, no)?;
            group::give_clusters(edit, no, clusters.clone())?;
            state.extra += count;
            drop(slot);
            self.pending_clusters.fetch_add(u64::from(count), Ordering::Relaxed);
            self.count_back(u64::from(count));
            self.freed[no.0 as usize % SHARDS].lock().push(Freed { tid, group: no, clusters });
        }
        Ok(())
    }

    /// A transaction is committed: what it freed may be used.
    pub(crate) fn committed(&self, tid: Tid) {
        for shard in &self.freed {
            let mut freed = shard.lock();
            let done: Vec<Freed> = freed.extract_if(.., |freed| freed.tid == tid).collect();
            drop(freed);
            for Freed { group, clusters, .. } in done {
                let count = clusters.end - clusters.start;
                self.release(group, clusters);
                self.pending_clusters.fetch_sub(u64::from(count), Ordering::Relaxed);
            }
        }
    }

    /// Clusters that are free on the volume may be given out.
    fn release(&self, no: GroupNo, clusters: Range<u32>) {
        let Ok(mut slot) = self.lock(no) else { return };
        if let Some(state) = &mut *slot {
            bitmap::clear_range(&mut state.busy, clusters.clone());
        }
        forget_extra(&mut slot, clusters.end - clusters.start);
    }

    /// Takes a free inode for an operation.
    pub(crate) fn allocate_inode<E: Edit>(
        &self,
        edit: &mut E,
        request: InodeRequest,
    ) -> Result<InodeNo, Error> {
        if self.free_inodes() == 0 {
            return Err(Error::NoSpace);
        }
        let geometry = edit.geometry().clone();
        let (parent_group, _) =
            geometry.inode_place(request.parent).ok_or(Error::NoSuchInode(request.parent))?;
        let start = if request.is_dir {
            self.group_for_dir(edit, &geometry, parent_group, request.is_top)?
        } else {
            parent_group
        };
        for no in from_group(start, geometry.groups_count) {
            let _slot = self.lock(no)?;
            let desc = group::descriptor(edit, no)?;
            if desc.free_inodes == 0 {
                continue;
            }
            let Some(index) = group::free_inode_from(edit, no, &desc, 0)? else { continue };
            let number = group::take_inode(edit, no, index, request.is_dir)?;
            self.free_inodes.fetch_sub(1, Ordering::Relaxed);
            return Ok(number);
        }
        Err(Error::NoSpace)
    }

    /// Where a directory is looked for first.
    fn group_for_dir<S: MetadataRead>(
        &self,
        source: &S,
        geometry: &Geometry,
        parent: GroupNo,
        is_top: bool,
    ) -> Result<GroupNo, Error> {
        let groups = u64::from(geometry.groups_count);
        // Averages of a group, so they fit.
        let averages = Averages {
            free_inodes: (self.free_inodes() / groups) as u32,
            free_clusters: (self.free_clusters() / groups).min(u64::from(u32::MAX)) as u32,
        };
        let start = if is_top {
            let step = geometry.groups_per_flex.max(1);
            let next = self.next_spread.fetch_add(step, Ordering::Relaxed);
            GroupNo(next % geometry.groups_count)
        } else {
            parent
        };
        let looks = from_group(start, geometry.groups_count).take(SPREAD_LOOKS as usize);
        for no in looks {
            let desc = group::descriptor(source, no)?;
            let fits = if is_top {
                is_roomy(&desc, averages)
            } else {
                is_uncrowded(&desc, averages, geometry)
            };
            if fits {
                return Ok(no);
            }
        }
        Ok(start)
    }

    /// Gives an inode back.
    pub(crate) fn free_inode<E: Edit>(
        &self,
        edit: &mut E,
        inode: InodeNo,
        is_dir: bool,
    ) -> Result<(), Error> {
        let (no, index) = edit.geometry().inode_place(inode).ok_or(Error::NoSuchInode(inode))?;
        let _slot = self.lock(no)?;
        group::give_inode(edit, no, index, is_dir)?;
        self.free_inodes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// What is searched: an operation that changes the volume, or a reader.
trait Source {
    type Metadata: MetadataRead;
    fn metadata_source(&self) -> &Self::Metadata;
}

impl<E: Edit> Source for E {
    type Metadata = E;
    fn metadata_source(&self) -> &E {
        self
    }
}

/// Reads only.
#[derive(Debug)]
struct Reader<'s, S>(&'s S);

impl<S: MetadataRead> Source for Reader<'_, S> {
    type Metadata = S;
    fn metadata_source(&self) -> &S {
        self.0
    }
}

/// The group's state, made from its bitmap when there is none.
fn known<'s, S: MetadataRead>(
    slot: &'s mut Option<Box<GroupState>>,
    source: &S,
    no: GroupNo,
) -> Result<&'s mut GroupState, Error> {
    if slot.is_none() {
        let busy = read_group::bitmap(source, no, BitmapKind::Block)?.into();
        *slot = Some(Box::new(GroupState { busy, extra: 0 }));
    }
    // Made above, if it was not there.
    slot.as_deref_mut().ok_or(Error::NoSpace)
}

/// Clusters of the state are the volume's business again, as in use or as free.
fn forget_extra(slot: &mut Option<Box<GroupState>>, count: u32) {
    if let Some(state) = slot {
        state.extra = state.extra.saturating_sub(count);
        if state.extra == 0 {
            *slot = None;
        }
    }
}

/// The first free clusters of a group from a bit on, at most `most`.
fn first_run<S: MetadataRead>(
    source: &S,
    state: &Option<Box<GroupState>>,
    no: GroupNo,
    from: u32,
    most: u64,
) -> Result<Option<Range<u32>>, Error> {
    let geometry = source.geometry();
    let bits = from..geometry.group_clusters(no);
    let first = if let Some(state) = state {
        bitmap::clear_runs(&state.busy, bits).next()
    } else {
        let desc = group::descriptor(source, no)?;
        if desc.free_clusters == 0 {
            return Ok(None);
        }
        if read_group::is_implied(geometry, BitmapKind::Block, &desc) {
            let implied = read_group::implied_bitmap(geometry, no, BitmapKind::Block, &desc);
            bitmap::clear_runs(&implied, bits).next()
        } else {
            let stored = read_group::stored_bitmap(source, no, BitmapKind::Block, &desc)?;
            bitmap::clear_runs(&stored, bits).next()
        }
    };
    Ok(first.map(|run| {
        // At most a group's clusters, so it fits.
        let len = u64::from(run.end - run.start).min(most) as u32;
        run.start..run.start + len
    }))
}

/// The blocks of a group's clusters; the volume's last cluster may be cut off.
fn run_of(geometry: &Geometry, no: GroupNo, clusters: &Range<u32>) -> Run {
    let per_cluster = u64::from(geometry.blocks_per_cluster);
    let start = geometry.group_start(no).0 + u64::from(clusters.start) * per_cluster;
    let count = u64::from(clusters.end - clusters.start) * per_cluster;
    Run { start: BlockNo(start), count: count.min(geometry.blocks_count - start) }
}

/// The clusters of a run, group by group.
pub(crate) fn parts_of(geometry: &Geometry, run: Run) -> Result<Vec<(GroupNo, Range<u32>)>, Error> {
    let per_cluster = u64::from(geometry.blocks_per_cluster);
    let flaw = |at| Flaw::Rule("a block off the volume was freed").at(Place::Block(at));
    let end = run.start.checked_add(run.count).ok_or_else(|| flaw(run.start))?.0;
    let mut parts = Vec::new();
    let mut next = run.start;
    while next.0 < end {
        let no = geometry.group_of(next).ok_or_else(|| flaw(next))?;
        let group_start = geometry.group_start(no).0;
        let stop = end.min(group_start + u64::from(geometry.group_blocks(no)));
        // Within a group, so they fit.
        let first = ((next.0 - group_start) / per_cluster) as u32;
        let last = (stop - group_start).div_ceil(per_cluster) as u32;
        parts.push((no, first..last));
        next = BlockNo(stop);
    }
    Ok(parts)
}
