//! The search for free space: which groups are tried, and in which order.
//!
//! The multi-block allocator takes the goal's place where that is free; else the nearest group,
//! from the goal's on and first in its flex group, that has a chunk as large as is wanted, by the
//! [index](super::index); else one with a smaller chunk, of which the run that fits best. The
//! number of groups that it tries does not depend on the size of the volume: a group that is filed
//! too high is filed again when it is tried. After a few failures, preallocations of files that
//! have not grown lately are given back; then less is asked for, of groups that are known to have
//! it. If nothing is found then, all preallocations are given back and all groups tried.
//!
//! The plain allocator tries one group after the other and takes the first that is free.

use super::allocator::{Allocator, GroupState};
use super::buddy::Buddy;
use super::policy::{self, AllocatorKind, SearchRequest, Stripe};
use super::preallocation::ClusterRange;
use super::{group, inode_group::from_group};
use crate::edit::{AllocationRequest, FilePart, Purpose};
use extant_ondisk::bitmap::BitmapKind;
use extant_ondisk::{BlockNo, FileBlock, Geometry, GroupNo};
use extant_reader::read::group as read_group;
use extant_reader::{Error, MetadataRead};
use std::ops::Range;

/// Number of passes of a trim over all buddies: recently used ones are freed in the second.
const TRIMS: usize = 2;

/// Where a search begins.
#[derive(Clone, Copy, Debug)]
struct SearchStart {
    group: GroupNo,
    /// The goal's cluster in it.
    at: u32,
    /// The groups of its flex group.
    flex: (u32, u32),
}

impl SearchStart {
    fn of(geometry: &Geometry, goal: Option<BlockNo>) -> Self {
        let goal = goal.unwrap_or(geometry.first_data_block);
        let group = geometry.group_of(goal).unwrap_or(GroupNo(0));
        let into = goal.0.saturating_sub(geometry.group_start(group).0);
        // Within a group, so it fits.
        let at = (into / u64::from(geometry.blocks_per_cluster)) as u32;
        let per_flex = geometry.groups_per_flex.max(1);
        let first = group.0 - group.0 % per_flex;
        let flex = (first, first.saturating_add(per_flex).min(geometry.groups_count));
        Self { group, at, flex }
    }

    /// All groups in the order in which they are near.
    fn ranges(&self, count: u32) -> [Range<u32>; 4] {
        let (first, end) = self.flex;
        [self.group.0..end, first..self.group.0, end..count, 0..first]
    }
}

impl Allocator {
    /// Finds at most `most` free clusters in one run and sets them aside.
    pub(super) fn find<S: MetadataRead>(
        &self,
        source: &S,
        request: &AllocationRequest,
        most: u64,
    ) -> Result<Option<ClusterRange>, Error> {
        let geometry = source.geometry();
        // A run lies in one group.
        let needed = most.min(u64::from(geometry.clusters_per_group)) as u32;
        if self.options.kind == AllocatorKind::Plain {
            let search = self.search(needed.min(self.options.longest_run), 0);
            return self.first_fit(source, request.goal, &search);
        }
        if request.purpose == Purpose::Data
            && let Some(part) = request.part
        {
            return self.find_for_file(source, request, part, needed);
        }
        self.find_best(source, SearchStart::of(geometry, request.goal), needed, needed)
    }

    fn search(&self, needed: u32, wanted: u32) -> SearchRequest {
        let stripe = Stripe { clusters: self.options.stripe.max(1), first: 0 };
        SearchRequest { needed, wanted: wanted.max(needed), stripe }
    }

    /// Space for the contents of a file: from its preallocation, or from that of small files, or
    /// new with a preallocation after it.
    fn find_for_file<S: MetadataRead>(
        &self,
        source: &S,
        request: &AllocationRequest,
        part: FilePart,
        needed: u32,
    ) -> Result<Option<ClusterRange>, Error> {
        let geometry = source.geometry();
        let per_cluster = u64::from(geometry.blocks_per_cluster);
        if let Some(piece) = self.preallocations.cut(request.inode, part.at, needed, per_cluster) {
            return Ok(Some(piece));
        }
        let start = SearchStart::of(geometry, request.goal);
        // The free clusters outside all preallocations.
        let free = self.free_clusters().saturating_sub(self.preallocations.held());
        let cluster_size = geometry.cluster_size();
        let group_clusters = geometry.clusters_per_group;
        if policy::is_small(part.file_size) {
            let flex = GroupNo(start.flex.0);
            if let Some(piece) = self.preallocations.cut_shared(flex, needed) {
                return Ok(Some(piece));
            }
            let stripe = self.options.stripe;
            let wanted =
                policy::group_preallocation_size(cluster_size, free, group_clusters, stripe);
            let found = self.find_best(source, start, needed, wanted.max(needed))?;
            let Some(mut piece) = found else { return Ok(None) };
            let front = piece.cut(needed);
            if let Some(back) = self.preallocations.put_shared(flex, piece) {
                self.release(&back);
            }
            return Ok(Some(front));
        }
        if !part.grows {
            return self.find_best(source, start, needed, needed);
        }
        let preallocations = self.preallocations.count();
        let beyond = policy::preallocation_size(
            part.file_size,
            cluster_size,
            free,
            group_clusters,
            preallocations,
        );
        let wanted = needed.saturating_add(beyond).min(group_clusters);
        let found = self.find_best(source, start, needed, wanted)?;
        let Some(mut piece) = found else { return Ok(None) };
        let front = piece.cut(needed);
        let next = FileBlock(part.at.0 + u64::from(front.len()) * per_cluster);
        for back in self.preallocations.put(request.inode, next, piece) {
            self.release(&back);
        }
        Ok(Some(front))
    }

    /// The best place that a few groups have; if they have none, the best of all.
    fn find_best<S: MetadataRead>(
        &self,
        source: &S,
        start: SearchStart,
        needed: u32,
        wanted: u32,
    ) -> Result<Option<ClusterRange>, Error> {
        let search = self.search(needed, wanted);
        let found = self.try_group(source, start.group, &search, 0, |buddy, search| {
            policy::at_goal(buddy, start.at, search)
        })?;
        if found.is_some() {
            return Ok(found);
        }
        let top = self.index.top();
        let least = policy::order_for(search.needed, top);
        let most = policy::order_for(search.wanted, top);
        // All wanted clusters, then the needed ones; then less, of groups that were tried before.
        let wanted = (most > least).then_some(most);
        let try_orders = |orders| self.try_order(source, start, &search, orders);
        for order in wanted.into_iter().chain([least]) {
            let found = try_orders(order..top + 1)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        // Before a file is scattered others lose what they may not need.
        while self.give_back(self.preallocations.drain_idle()) {
            let found = try_orders(least..top + 1)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        for order in (0..least).rev() {
            let found = try_orders(order..top)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        self.try_all(source, start, &search).and_then(|found| match found {
            None if self.discard_preallocations(|_| false) => self.try_all(source, start, &search),
            found => Ok(found),
        })
    }

    /// Tries the nearest groups that are filed under one of the orders.
    fn try_order<S: MetadataRead>(
        &self,
        source: &S,
        start: SearchStart,
        search: &SearchRequest,
        orders: Range<u32>,
    ) -> Result<Option<ClusterRange>, Error> {
        let count = source.geometry().groups_count;
        let order = orders.start;
        let tries = self.try_limits.get(order);
        for _ in 0..tries {
            let mut ranges = start.ranges(count).into_iter();
            let near = ranges.find_map(|range| self.index.next_in(orders.clone(), range));
            let Some(no) = near else { return Ok(None) };
            let from = if no == start.group { start.at } else { 0 };
            let found = self.try_group(source, no, search, order, |buddy, search| {
                policy::in_group(buddy, from, search)
            })?;
            if found.is_some() {
                self.try_limits.restore(order, tries);
                return Ok(found);
            }
        }
        self.try_limits.halve(order, tries);
        Ok(None)
    }

    /// Tries every group that is not known to be full, from the home on.
    fn try_all<S: MetadataRead>(
        &self,
        source: &S,
        start: SearchStart,
        search: &SearchRequest,
    ) -> Result<Option<ClusterRange>, Error> {
        for range in start.ranges(source.geometry().groups_count) {
            let mut next = range.start;
            while let Some(no) = self.index.next_in(0..self.index.top() + 1, next..range.end) {
                let found = self.try_group(source, no, search, 0, |buddy, search| {
                    policy::in_group(buddy, 0, search)
                })?;
                if found.is_some() {
                    return Ok(found);
                }
                next = no.0 + 1;
            }
        }
        Ok(None)
    }

    /// The first free clusters from the goal on, in its group and then in the others.
    fn first_fit<S: MetadataRead>(
        &self,
        source: &S,
        goal: Option<BlockNo>,
        search: &SearchRequest,
    ) -> Result<Option<ClusterRange>, Error> {
        let start = SearchStart::of(source.geometry(), goal);
        // The part of the first group before the goal comes last.
        let turns = from_group(start.group, source.geometry().groups_count).chain([start.group]);
        for (turn, no) in turns.enumerate() {
            let from = if turn == 0 { start.at } else { 0 };
            let found = self.try_group(source, no, search, 0, |buddy, search| {
                let at = buddy.chunk_in(0, from..u32::MAX)?;
                Some(buddy.run_from(at, search.wanted))
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Sets at most `most` clusters of a group aside: the first in a range that are part of a free
    /// run of `least` or more.
    pub(super) fn find_in<S: MetadataRead>(
        &self,
        source: &S,
        no: GroupNo,
        clusters: Range<u32>,
        least: u32,
        most: u32,
    ) -> Result<Option<ClusterRange>, Error> {
        let search = self.search(1, 1);
        self.try_group(source, no, &search, 0, |buddy, _| {
            let mut from = clusters.start;
            loop {
                let at = buddy.chunk_in(0, from..clusters.end)?;
                let run = buddy.run_around(at);
                if run.end - run.start >= least {
                    return Some(at..run.end.min(clusters.end).min(at.saturating_add(most)));
                }
                from = run.end;
            }
        })
    }

    /// Claims clusters of a group where `place` finds them; a group without a chunk of `order` is
    /// filed again and not searched.
    fn try_group<S: MetadataRead>(
        &self,
        source: &S,
        no: GroupNo,
        search: &SearchRequest,
        order: u32,
        place: impl FnOnce(&Buddy, &SearchRequest) -> Option<Range<u32>>,
    ) -> Result<Option<ClusterRange>, Error> {
        if self.index.order(no).is_none() {
            return Ok(None);
        }
        let mut slot = self.lock(no)?;
        let state = slot.get_or_insert_default();
        let Some(buddy) = self.known(source, no, state, order)? else {
            if state.busy.is_empty() {
                *slot = None;
            }
            return Ok(None);
        };
        let largest = buddy.largest_order();
        if largest.is_none_or(|largest| largest < order) {
            self.index.set(no, largest);
            return Ok(None);
        }
        let geometry = source.geometry();
        let stripe = if search.stripe.clusters > 1 {
            let start = geometry.group_start(no).0;
            Stripe::of_group(search.stripe.clusters, start / u64::from(geometry.blocks_per_cluster))
        } else {
            search.stripe
        };
        let found = place(buddy, &SearchRequest { stripe, ..*search });
        if let Some(clusters) = &found {
            buddy.take(clusters.clone());
            let largest = buddy.largest_order();
            self.index.set(no, largest);
            state.busy.add(clusters.clone());
        }
        drop(slot);
        Ok(found.map(|clusters| ClusterRange { group: no, clusters }))
    }

    /// The group's buddy, made from its bitmap if necessary. `None` if the descriptor alone shows
    /// that the group has no chunk of an order. A bitmap that is only implied is not read, nor is
    /// anything else of its group.
    fn known<'s, S: MetadataRead>(
        &self,
        source: &S,
        no: GroupNo,
        state: &'s mut GroupState,
        order: u32,
    ) -> Result<Option<&'s mut Buddy>, Error> {
        state.was_used = true;
        if state.buddy.is_none() {
            let desc = group::descriptor(source, no)?;
            let most = desc.free_clusters.checked_ilog2();
            if most.is_none_or(|most| most < order) {
                self.index.set(no, most);
                return Ok(None);
            }
            let geometry = source.geometry();
            let clusters = geometry.group_clusters(no);
            let mut buddy = if read_group::is_implied(geometry, BitmapKind::Block, &desc) {
                let bits = read_group::implied_bitmap(geometry, no, BitmapKind::Block, &desc);
                Buddy::new(&bits, clusters)
            } else {
                let bits = read_group::stored_bitmap(source, no, BitmapKind::Block, &desc)?;
                Buddy::new(&bits, clusters)
            };
            for range in state.busy.ranges() {
                buddy.take(range);
            }
            let bytes = buddy.bytes();
            state.buddy = Some(buddy);
            self.make_room(no, bytes);
        }
        Ok(state.buddy.as_mut())
    }

    /// A group got a buddy: others go if they are too many. A group that is locked is skipped.
    fn make_room(&self, new: GroupNo, bytes: u64) {
        for no in self.memory.added(new, bytes) {
            self.give_up_buddy(no, self.memory.limit());
        }
    }

    /// Bytes that buddies take.
    pub(crate) fn buddy_bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Memory is short: frees buddies until they take `bytes` bytes, those that were not used
    /// lately first. They are made again of their bitmaps when they are needed.
    pub(crate) fn trim_buddies(&self, bytes: u64) {
        for _ in 0..TRIMS {
            for no in self.memory.all_beyond(bytes) {
                self.give_up_buddy(no, bytes);
            }
        }
    }

    /// Frees a buddy, unless it was used since the last attempt, or all take no more than `bytes`
    /// bytes.
    fn give_up_buddy(&self, no: GroupNo, bytes: u64) {
        let is_enough = self.memory.bytes() <= bytes;
        let slot = self.groups.get(no.0 as usize).filter(|_| !is_enough);
        let Some(mut slot) = slot.and_then(|slot| slot.try_lock()) else {
            self.memory.stays(no);
            return;
        };
        let Some(state) = &mut *slot else { return };
        if std::mem::take(&mut state.was_used) {
            self.memory.stays(no);
            return;
        }
        if let Some(buddy) = state.buddy.take() {
            self.memory.removed(buddy.bytes());
        }
        if state.busy.is_empty() {
            *slot = None;
        }
    }
}
