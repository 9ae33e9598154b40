//! Preallocation: free space in front of files that grow, kept for them in memory.
//!
//! A preallocation is clusters that are busy but not allocated: they count as free, nothing on the
//! volume refers to them, and when space is short they are given back. A file that grows has a
//! preallocation of its own, sized by the file; small files of a flex group share one for each
//! thread, so that they lie together and threads do not mix.

use crate::ranks::{GroupPreallocationLock, PreallocationLock};
use extant_ondisk::{FileBlock, GroupNo, InodeNo};
use extant_reader::hash::ByWord;
use extant_runtime::sync::atomic::{AtomicU64, Ordering};
use extant_runtime::sync::{Mutex, thread};
use std::collections::HashMap;
use std::ops::Range;

/// Shards of the files' preallocations.
const SHARDS: u32 = 16;
/// Preallocations that a shard keeps.
const MOST: usize = 64;
/// Threads that share nothing.
const THREADS: usize = 8;
/// Flex groups for which one thread has a shared preallocation.
const FLEX_GROUPS: usize = 4;

/// Clusters of one group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ClusterRange {
    /// The group.
    pub group: GroupNo,
    /// The clusters in it.
    pub clusters: Range<u32>,
}

impl ClusterRange {
    /// How many.
    pub(crate) fn len(&self) -> u32 {
        self.clusters.end - self.clusters.start
    }

    /// Whether another one follows it in the same group.
    pub(crate) fn is_continued_by(&self, next: &Self) -> bool {
        self.group == next.group && self.clusters.end == next.clusters.start
    }

    /// Takes at most `most` clusters off the front.
    pub(crate) fn cut(&mut self, most: u32) -> Self {
        let at = self.clusters.start + most.min(self.len());
        let front = self.clusters.start..at;
        self.clusters.start = at;
        Self { group: self.group, clusters: front }
    }
}

/// A file's preallocation.
#[derive(Debug)]
struct FilePreallocation {
    /// The block of the file that its first cluster is for.
    next: FileBlock,
    piece: ClusterRange,
    /// When its file last grew, see [`Preallocations::clock`].
    used: u64,
}

/// A preallocation that small files share.
#[derive(Debug)]
struct GroupPreallocation {
    /// The first group of the flex group that its files belong to.
    flex_group: GroupNo,
    piece: ClusterRange,
}

/// All preallocations of a volume.
#[derive(Debug, Default)]
pub(crate) struct Preallocations {
    files: [Mutex<HashMap<u32, FilePreallocation, ByWord>, PreallocationLock>; SHARDS as usize],
    /// Clusters in the files' preallocations.
    held: AtomicU64,
    /// Counts the uses of preallocations, so that the time of the last use can be compared.
    clock: AtomicU64,
    shared: [Mutex<Vec<GroupPreallocation>, GroupPreallocationLock>; THREADS],
}

impl Preallocations {
    fn shard(
        &self,
        inode: InodeNo,
    ) -> &Mutex<HashMap<u32, FilePreallocation, ByWord>, PreallocationLock> {
        &self.files[(inode.0 % SHARDS) as usize]
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    fn own_shared(&self) -> &Mutex<Vec<GroupPreallocation>, GroupPreallocationLock> {
        &self.shared[thread::number() % THREADS]
    }

    /// Clusters in the files' preallocations.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Counts clusters that left the files' preallocations.
    fn gone(&self, pieces: &[ClusterRange]) {
        let clusters = pieces.iter().map(|piece| u64::from(piece.len())).sum();
        self.held.fetch_sub(clusters, Ordering::Relaxed);
    }

    /// How many files have one.
    pub(crate) fn count(&self) -> u64 {
        self.files.iter().map(|shard| shard.lock().len() as u64).sum()
    }

    /// Clusters for a block of a file from its preallocation, if that continues there.
    /// `per_cluster` are the blocks of a cluster.
    pub(crate) fn cut(
        &self,
        inode: InodeNo,
        at: FileBlock,
        most: u32,
        per_cluster: u64,
    ) -> Option<ClusterRange> {
        let mut shard = self.shard(inode).lock();
        let preallocation =
            shard.get_mut(&inode.0).filter(|preallocation| preallocation.next == at)?;
        let front = preallocation.piece.cut(most);
        preallocation.next = FileBlock(at.0 + u64::from(front.len()) * per_cluster);
        preallocation.used = self.tick();
        if preallocation.piece.clusters.is_empty() {
            shard.remove(&inode.0);
        }
        drop(shard);
        self.gone(std::slice::from_ref(&front));
        Some(front)
    }

    /// Gives a file a preallocation; returns the ranges that are given back for it.
    pub(crate) fn put(
        &self,
        inode: InodeNo,
        next: FileBlock,
        piece: ClusterRange,
    ) -> Vec<ClusterRange> {
        let mut shard = self.shard(inode).lock();
        let mut back: Vec<ClusterRange> = Vec::new();
        back.extend(shard.remove(&inode.0).map(|preallocation| preallocation.piece));
        if shard.len() >= MOST {
            // Of any file: files that are written now get another.
            let other = shard.keys().next().copied();
            back.extend(
                other
                    .and_then(|other| shard.remove(&other))
                    .map(|preallocation| preallocation.piece),
            );
        }
        if !piece.clusters.is_empty() {
            self.held.fetch_add(u64::from(piece.len()), Ordering::Relaxed);
            shard.insert(inode.0, FilePreallocation { next, piece, used: self.tick() });
        }
        drop(shard);
        self.gone(&back);
        back
    }

    /// Takes the preallocation of a file away.
    pub(crate) fn take(&self, inode: InodeNo) -> Option<ClusterRange> {
        let mut shard = self.shard(inode).lock();
        if shard.is_empty() {
            return None;
        }
        let piece = shard.remove(&inode.0)?.piece;
        drop(shard);
        self.gone(std::slice::from_ref(&piece));
        Some(piece)
    }

    /// Clusters from the preallocation that small files of a flex group share.
    pub(crate) fn cut_shared(&self, flex_group: GroupNo, most: u32) -> Option<ClusterRange> {
        let mut shared = self.own_shared().lock();
        let at = shared.iter().position(|preallocation| preallocation.flex_group == flex_group)?;
        let front = shared[at].piece.cut(most);
        if shared[at].piece.clusters.is_empty() {
            shared.remove(at);
        }
        Some(front)
    }

    /// Gives small files of a flex group a preallocation; returns the range that is given back for
    /// it.
    pub(crate) fn put_shared(
        &self,
        flex_group: GroupNo,
        piece: ClusterRange,
    ) -> Option<ClusterRange> {
        let mut shared = self.own_shared().lock();
        let old =
            match shared.iter().position(|preallocation| preallocation.flex_group == flex_group) {
                Some(at) => Some(shared.remove(at)),
                None if shared.len() >= FLEX_GROUPS => Some(shared.remove(0)),
                None => None,
            };
        if !piece.clusters.is_empty() {
            shared.push(GroupPreallocation { flex_group, piece });
        }
        old.map(|preallocation| preallocation.piece)
    }

    /// Takes half of the files' preallocations away, those of files that have not grown for the
    /// longest time.
    pub(crate) fn drain_idle(&self) -> Vec<ClusterRange> {
        let used = |shard: &Mutex<HashMap<u32, FilePreallocation, ByWord>, PreallocationLock>| {
            shard.lock().values().map(|preallocation| preallocation.used).collect::<Vec<_>>()
        };
        let mut all: Vec<u64> = self.files.iter().flat_map(used).collect();
        if all.is_empty() {
            return Vec::new();
        }
        let middle = (all.len() - 1) / 2;
        let last = *all.select_nth_unstable(middle).1;
        let mut back = Vec::new();
        for shard in &self.files {
            let mut shard = shard.lock();
            let gone = shard.extract_if(|_, preallocation| preallocation.used <= last);
            back.extend(gone.map(|(_, preallocation)| preallocation.piece));
        }
        self.gone(&back);
        back
    }

    /// Takes all preallocations away, except those of files for which `keeps` is true.
    pub(crate) fn drain(&self, keeps: impl Fn(InodeNo) -> bool) -> Vec<ClusterRange> {
        let mut back = Vec::new();
        for shard in &self.files {
            let mut shard = shard.lock();
            let gone = shard.extract_if(|inode, _| !keeps(InodeNo(*inode)));
            back.extend(gone.map(|(_, preallocation)| preallocation.piece));
        }
        self.gone(&back);
        for shared in &self.shared {
            back.extend(shared.lock().drain(..).map(|preallocation| preallocation.piece));
        }
        back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(clusters: Range<u32>) -> ClusterRange {
        ClusterRange { group: GroupNo(3), clusters }
    }

    #[test]
    fn a_window_goes_on_where_its_file_does_and_nowhere_else() {
        let (preallocations, inode) = (Preallocations::default(), InodeNo(12));
        assert_eq!(preallocations.put(inode, FileBlock(16), piece(100..110)), []);
        assert_eq!(preallocations.cut(inode, FileBlock(15), 4, 1), None);
        assert_eq!(preallocations.cut(InodeNo(28), FileBlock(16), 4, 1), None);
        assert_eq!(preallocations.cut(inode, FileBlock(16), 4, 1), Some(piece(100..104)));
        assert_eq!(preallocations.held(), 6);
        assert_eq!(preallocations.cut(inode, FileBlock(20), 40, 1), Some(piece(104..110)));
        assert_eq!(preallocations.held(), 0);
        assert_eq!(preallocations.cut(inode, FileBlock(26), 1, 1), None);
    }

    #[test]
    fn a_new_window_gives_the_old_one_back() {
        let (preallocations, inode) = (Preallocations::default(), InodeNo(12));
        assert_eq!(preallocations.put(inode, FileBlock(0), piece(0..8)), []);
        assert_eq!(preallocations.put(inode, FileBlock(9), piece(20..28)), [piece(0..8)]);
        assert_eq!(preallocations.held(), 8);
        assert_eq!(preallocations.take(inode), Some(piece(20..28)));
        assert_eq!(preallocations.held(), 0);
        assert_eq!(preallocations.take(inode), None);
    }

    #[test]
    fn no_more_windows_are_kept_than_there_is_room_for() {
        let preallocations = Preallocations::default();
        let back: usize = (0..10_000)
            .map(|number| {
                preallocations.put(InodeNo(number), FileBlock(0), piece(number..number + 1))
            })
            .map(|back| back.len())
            .sum();
        assert_eq!(back, 10_000 - MOST * SHARDS as usize);
        assert_eq!(preallocations.drain(|_| false).len(), MOST * SHARDS as usize);
    }

    #[test]
    fn small_files_of_a_flex_group_share_a_window() {
        let preallocations = Preallocations::default();
        assert_eq!(preallocations.put_shared(GroupNo(16), piece(0..8)), None);
        assert_eq!(preallocations.cut_shared(GroupNo(0), 2), None);
        assert_eq!(preallocations.cut_shared(GroupNo(16), 2), Some(piece(0..2)));
        assert_eq!(preallocations.put_shared(GroupNo(16), piece(50..51)), Some(piece(2..8)));
        assert_eq!(preallocations.cut_shared(GroupNo(16), 2), Some(piece(50..51)));
        assert_eq!(preallocations.cut_shared(GroupNo(16), 2), None);
    }

    #[test]
    fn windows_that_were_not_used_for_long_go_first() {
        let preallocations = Preallocations::default();
        for number in 0..4 {
            preallocations.put(InodeNo(number), FileBlock(0), piece(number * 8..number * 8 + 8));
        }
        preallocations.cut(InodeNo(0), FileBlock(0), 2, 1);
        let mut back = preallocations.drain_idle();
        back.sort_by_key(|piece| piece.clusters.start);
        assert_eq!(back, [piece(8..16), piece(16..24)]);
        assert_eq!(preallocations.drain_idle(), [piece(24..32)]);
        assert_eq!(preallocations.held(), 6);
        assert_eq!(preallocations.drain_idle(), [piece(2..8)]);
        assert_eq!(preallocations.held(), 0);
        assert_eq!(preallocations.drain_idle(), []);
    }

    #[test]
    fn windows_of_files_that_are_open_may_stay() {
        let preallocations = Preallocations::default();
        preallocations.put(InodeNo(12), FileBlock(0), piece(0..8));
        preallocations.put(InodeNo(13), FileBlock(0), piece(8..9));
        preallocations.put_shared(GroupNo(0), piece(9..10));
        let mut back = preallocations.drain(|inode| inode == InodeNo(13));
        back.sort_by_key(|piece| piece.clusters.start);
        assert_eq!(back, [piece(0..8), piece(9..10)]);
        assert_eq!(preallocations.held(), 1);
        assert_eq!(preallocations.take(InodeNo(13)), Some(piece(8..9)));
    }
}
