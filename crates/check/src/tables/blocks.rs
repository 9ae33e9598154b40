//! Claims of clusters: one bit each, in bitmaps that are allocated with the first claim in a group.

use super::{Budget, Window};
use crate::store::CheckError;
use extant_layout::RunSet;
use extant_ondisk::{BlockNo, ClusterNo, Geometry, GroupNo};
use extant_runtime::sync::Mutex;
use roaring::RoaringTreemap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

type BitmapWords = Box<[AtomicU64]>;

/// The stored bitmap of a group's clusters.
#[derive(Clone, Debug)]
pub(crate) enum Stored {
    /// None is in use, or nothing is known.
    Empty,
    /// All are.
    Full,
    /// Those of the bits set are.
    Words(Arc<[u64]>),
}

/// The clusters in use. The volume's own metadata (superblocks, descriptors, bitmaps, inode tables)
/// are kept as runs and need no bitmap in groups where nothing else is in use. For groups outside
/// of the window nothing is kept: claims there are ignored, and nothing is allocated there.
pub(crate) struct BlockTable {
    /// Of the groups of the window.
    groups: Vec<OnceLock<BitmapWords>>,
    /// The first group of the window.
    first_group: usize,
    /// The clusters of the window.
    kept: Range<u64>,
    /// The volume's own clusters, in order, neighbours joined.
    system: Vec<Range<u64>>,
    per_group: u64,
    clusters: u64,
    blocks_per_cluster: u64,
    first_block: u64,
    /// Clusters claimed more than once.
    twice: Mutex<RoaringTreemap>,
    has_twice: AtomicBool,
    /// Clusters given back that are still claimed.
    released: Mutex<RoaringTreemap>,
}

impl BlockTable {
    pub(crate) fn new(geometry: &Geometry, system: &RunSet, window: &Window) -> Self {
        let first_block = geometry.first_data_block.0;
        let blocks_per_cluster = u64::from(geometry.blocks_per_cluster);
        let mut clusters: Vec<Range<u64>> = Vec::new();
        for run in system.in_clusters(first_block, blocks_per_cluster).iter() {
            let start = run.start.saturating_sub(first_block) / blocks_per_cluster;
            let end = run.end.saturating_sub(first_block).div_ceil(blocks_per_cluster);
            let end = end.min(geometry.clusters_count());
            match clusters.last_mut() {
                Some(last) if last.end >= start => last.end = last.end.max(end),
                _ if start < end => clusters.push(start..end),
                _ => {}
            }
        }
        let per_group = u64::from(geometry.clusters_per_group);
        let count = geometry.clusters_count();
        let at = |group: u32| (u64::from(group) * per_group).min(count);
        Self {
            groups: window.groups.clone().map(|_| OnceLock::new()).collect(),
            first_group: window.groups.start as usize,
            kept: at(window.groups.start)..at(window.groups.end),
            system: clusters,
            per_group,
            clusters: count,
            blocks_per_cluster,
            first_block,
            twice: Mutex::default(),
            has_twice: AtomicBool::new(false),
            released: Mutex::default(),
        }
    }

    pub(crate) fn cluster_of(&self, block: BlockNo) -> ClusterNo {
        let at = block.0.saturating_sub(self.first_block);
        ClusterNo(if self.blocks_per_cluster == 1 { at } else { at / self.blocks_per_cluster })
    }

    pub(crate) fn cluster_start(&self, cluster: ClusterNo) -> BlockNo {
        BlockNo(self.first_block + cluster.0 * self.blocks_per_cluster)
    }

    fn group_range(&self, group: usize) -> Range<u64> {
        let start = group as u64 * self.per_group;
        start..(start + self.per_group).min(self.clusters)
    }

    /// The volume's own clusters in a range.
    fn system_in(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.system.partition_point(|run| run.end <= range.start);
        self.system[first..]
            .iter()
            .take_while(move |run| run.start < range.end)
            .map(move |run| run.start.max(range.start)..run.end.min(range.end))
    }

    /// Whether a cluster is one of the volume's own.
    pub(crate) fn is_system(&self, cluster: ClusterNo) -> bool {
        self.system_in(cluster.0..cluster.0 + 1).next().is_some()
    }

    /// The bitmap of a group of the window; `None` where nothing but the volume itself claimed
    /// anything.
    fn bitmap_of(&self, group: usize) -> Option<&BitmapWords> {
        self.groups.get(group.checked_sub(self.first_group)?)?.get()
    }

    fn words(&self, group: usize, budget: &Budget) -> &BitmapWords {
        self.groups[group - self.first_group].get_or_init(|| {
            let count = self.per_group.div_ceil(64) as usize;
            budget.take(count * 8);
            let words: BitmapWords = (0..count).map(|_| AtomicU64::new(0)).collect();
            let range = self.group_range(group);
            for run in self.system_in(range.clone()) {
                for_words(run.start - range.start..run.end - range.start, |at, mask| {
                    words[at].fetch_or(mask, Relaxed);
                });
            }
            words
        })
    }

    /// Claims clusters; true if one of them was claimed before. All of them must be on the volume.
    pub(crate) fn claim(&self, clusters: Range<u64>, budget: &Budget) -> bool {
        let mut collided = false;
        let mut start = clusters.start.max(self.kept.start);
        let end = clusters.end.min(self.kept.end);
        while start < end {
            let group = (start / self.per_group) as usize;
            let range = self.group_range(group);
            let stop = end.min(range.end);
            let words = self.words(group, budget);
            for_words(start - range.start..stop - range.start, |at, mask| {
                let before = words[at].fetch_or(mask, Relaxed) & mask;
                if before != 0 {
                    collided = true;
                    self.note_twice(range.start + at as u64 * 64, before);
                }
            });
            start = stop;
        }
        collided
    }

    #[cold]
    fn note_twice(&self, first: u64, mut bits: u64) {
        self.has_twice.store(true, Relaxed);
        let mut twice = self.twice.lock();
        while bits != 0 {
            twice.insert(first + u64::from(bits.trailing_zeros()));
            bits &= bits - 1;
        }
    }

    /// The clusters claimed more than once.
    pub(crate) fn twice(&self) -> Option<RoaringTreemap> {
        self.has_twice.load(Relaxed).then(|| self.twice.lock().clone())
    }

    /// Gives a cluster back. It is free after [`BlockTable::free_released`]: until the next flush
    /// the volume on the medium may lead to it.
    pub(crate) fn release(&self, cluster: ClusterNo) {
        if self.kept.contains(&cluster.0) && !self.is_system(cluster) {
            self.released.lock().insert(cluster.0);
        }
    }

    /// Frees what was given back, after a flush; whether there was anything.
    pub(crate) fn free_released(&self, budget: &Budget) -> bool {
        let released = std::mem::take(&mut *self.released.lock());
        for cluster in &released {
            let group = (cluster / self.per_group) as usize;
            let bit = cluster % self.per_group;
            self.words(group, budget)[(bit / 64) as usize].fetch_and(!(1 << (bit % 64)), Relaxed);
        }
        !released.is_empty()
    }

    /// Whether clusters were given back that are not free yet.
    pub(crate) fn has_released(&self) -> bool {
        !self.released.lock().is_empty()
    }

    /// Claims a free cluster: the first from `goal` on, else the first of the volume; `None` on a
    /// full volume. Of a window, since what is free elsewhere is not known. Clusters in use by
    /// `stored`, the bitmaps on the volume, are passed over: it gives the words of a group's.
    pub(crate) fn allocate(
        &self,
        goal: ClusterNo,
        budget: &Budget,
        stored: &dyn Fn(GroupNo) -> Result<Stored, CheckError>,
    ) -> Result<Option<ClusterNo>, CheckError> {
        let goal = if self.kept.contains(&goal.0) { goal.0 } else { self.kept.start };
        let mut found = self.free_in(goal..self.kept.end, stored)?;
        if found.is_none() {
            found = self.free_in(self.kept.start..goal, stored)?;
        }
        if let Some(found) = found {
            self.claim(found..found + 1, budget);
        }
        Ok(found.map(ClusterNo))
    }

    fn free_in(
        &self,
        range: Range<u64>,
        stored: &dyn Fn(GroupNo) -> Result<Stored, CheckError>,
    ) -> Result<Option<u64>, CheckError> {
        let mut at = range.start;
        while at < range.end {
            let group = (at / self.per_group) as usize;
            let of_group = self.group_range(group);
            let stop = of_group.end.min(range.end);
            let in_group = at - of_group.start..stop - of_group.start;
            let found = match stored(GroupNo(group as u32))? {
                Stored::Full => None,
                Stored::Empty => self.free_bit(group, in_group, &[]),
                Stored::Words(words) => self.free_bit(group, in_group, &words),
            };
            if let Some(bit) = found {
                return Ok(Some(of_group.start + bit));
            }
            at = stop;
        }
        Ok(None)
    }

    /// The first free bit of a range of a group's bits, and free in `stored` too, as far as that
    /// reaches.
    fn free_bit(&self, group: usize, bits: Range<u64>, stored: &[u64]) -> Option<u64> {
        let system;
        let used: &dyn Fn(usize) -> u64 = match self.bitmap_of(group) {
            Some(words) => &|index| words[index].load(Relaxed),
            None => {
                system = self.system_words(group);
                &|index| system[index]
            }
        };
        let mut found = None;
        for_words(bits, |index, mask| {
            let free = !used(index) & !stored.get(index).copied().unwrap_or(0) & mask;
            if free != 0 && found.is_none() {
                found = Some(index as u64 * 64 + u64::from(free.trailing_zeros()));
            }
        });
        found
    }

    /// The volume's own clusters in a group, as words.
    fn system_words(&self, group: usize) -> Vec<u64> {
        let range = self.group_range(group);
        let mut words = vec![0; self.per_group.div_ceil(64) as usize];
        for run in self.system_in(range.clone()) {
            for_words(run.start - range.start..run.end - range.start, |at, mask| words[at] |= mask);
        }
        words
    }

    /// Clusters in use in a group.
    pub(crate) fn count(&self, group: GroupNo) -> u32 {
        let range = self.group_range(group.0 as usize);
        let used = match self.bitmap_of(group.0 as usize) {
            Some(words) => {
                words.iter().map(|word| u64::from(word.load(Relaxed).count_ones())).sum()
            }
            None => self.system_in(range).map(|run| run.end - run.start).sum::<u64>(),
        };
        used as u32 // at most the clusters of a group
    }

    /// Whether a group's usage is only the volume's own.
    pub(crate) fn is_system_only(&self, group: GroupNo) -> bool {
        let Some(_) = self.bitmap_of(group.0 as usize) else { return true };
        let range = self.group_range(group.0 as usize);
        let own: u64 = self.system_in(range).map(|run| run.end - run.start).sum();
        u64::from(self.count(group)) == own
    }

    /// Fills `bitmap` with a group's clusters in use, without padding.
    pub(crate) fn fill_bitmap(&self, group: GroupNo, bitmap: &mut [u8]) {
        bitmap.fill(0);
        match self.bitmap_of(group.0 as usize) {
            Some(words) => {
                for (bytes, word) in bitmap.chunks_exact_mut(8).zip(words) {
                    bytes.copy_from_slice(&word.load(Relaxed).to_le_bytes());
                }
            }
            None => {
                let range = self.group_range(group.0 as usize);
                for run in self.system_in(range.clone()) {
                    let bits = (run.start - range.start) as u32..(run.end - range.start) as u32;
                    extant_ondisk::bitmap::set_range(bitmap, bits);
                }
            }
        }
    }
}

/// The 64-bit words that a range of bits touches, with the mask of its bits in each.
fn for_words(bits: Range<u64>, mut visit: impl FnMut(usize, u64)) {
    let mut at = bits.start;
    while at < bits.end {
        let stop = ((at / 64 + 1) * 64).min(bits.end);
        let mask = (u64::MAX >> (64 - (stop - at))) << (at % 64);
        visit((at / 64) as usize, mask);
        at = stop;
    }
}
