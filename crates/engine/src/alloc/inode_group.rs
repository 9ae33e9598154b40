//! The group of a new inode: pure functions over the descriptors' values.
//!
//! Files lie with their directory. Directories whose siblings have nothing to do with them are
//! spread over flex groups that have room; others stay near their parent as long as its flex group
//! is not crowded. (M. Orlov's way, for flex groups.)

use crate::ranks::KnownLock;
use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::{Geometry, GroupNo};
use extant_runtime::sync::Mutex;

/// Number of flex groups that are examined for a directory before any with a free inode is taken.
pub(crate) const MAX_EXAMINED: u32 = 8;
/// Groups of them at most: without flex groups each is one of its own.
pub(crate) const GROUPS: u32 = 128;

/// Averages of the volume, which a flex group is held against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Averages {
    /// Free inodes a group.
    pub free_inodes: u32,
    /// Free clusters a group.
    pub free_clusters: u32,
}

/// The totals of the groups of a flex group.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Summary {
    /// Groups that were counted.
    pub groups: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// Free clusters.
    pub free_clusters: u64,
}

impl Summary {
    /// Counts another group.
    pub(crate) fn add(&mut self, desc: &GroupDesc) {
        self.groups += 1;
        self.free_inodes += u64::from(desc.free_inodes);
        self.free_clusters += u64::from(desc.free_clusters);
    }

    /// Whether a directory that is spread goes here: at least as empty as the average.
    pub(crate) fn is_roomy(&self, averages: Averages) -> bool {
        self.has(averages.free_inodes, averages.free_clusters)
    }

    /// Whether a directory goes here because its parent does: inodes and blocks for its files are
    /// left.
    pub(crate) fn is_uncrowded(&self, averages: Averages, geometry: &Geometry) -> bool {
        self.has(
            averages.free_inodes.saturating_sub(geometry.inodes_per_group / 4),
            averages.free_clusters.saturating_sub(geometry.clusters_per_group / 4),
        )
    }

    /// Whether each group has so much, on average.
    fn has(&self, free_inodes: u32, free_clusters: u32) -> bool {
        self.free_inodes > 0
            && self.free_inodes >= self.groups * u64::from(free_inodes)
            && self.free_clusters >= self.groups * u64::from(free_clusters)
    }
}

/// Groups that are remembered; of those that share a place the last one.
const REMEMBERED: usize = 64;

/// The summary of a group whose inodes were allocated or freed a moment ago.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// Its descriptor as it is stored now.
    pub desc: Option<GroupDesc>,
    /// No inode before this one is free.
    pub first_free: u32,
}

/// Groups that inodes were taken of or given back to, so that a call does not begin by decoding a
/// descriptor and searching a bitmap from its first bit. Used and changed under a group's lock.
#[derive(Debug)]
pub(crate) struct KnownGroups([Mutex<Option<(GroupNo, Known)>, KnownLock>; REMEMBERED]);

impl KnownGroups {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| Mutex::ranked(None)))
    }

    fn place(&self, no: GroupNo) -> &Mutex<Option<(GroupNo, Known)>, KnownLock> {
        &self.0[no.0 as usize % REMEMBERED]
    }

    /// Takes out the summary of a group: the caller changes the group and stores the new one, or
    /// nothing if the change fails.
    pub(crate) fn take(&self, no: GroupNo) -> Known {
        let known = self.place(no).lock().take_if(|(known, _)| *known == no);
        known.map(|(_, known)| known).unwrap_or_default()
    }

    /// This is known of the group now.
    pub(crate) fn put(&self, no: GroupNo, known: Known) {
        *self.place(no).lock() = Some((no, known));
    }

    /// The group's descriptor changes otherwise.
    pub(crate) fn forget_desc(&self, no: GroupNo) {
        if let Some((known, of_group)) = &mut *self.place(no).lock()
            && *known == no
        {
            of_group.desc = None;
        }
    }
}

/// All groups, each once, from one on.
pub(crate) fn from_group(start: GroupNo, count: u32) -> impl Iterator<Item = GroupNo> {
    (start.0..count).chain(0..start.0.min(count)).map(GroupNo)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::testing;

    #[test]
    fn every_group_comes_once_from_the_first_on() {
        let all: Vec<u32> = from_group(GroupNo(2), 4).map(|group| group.0).collect();
        assert_eq!(all, [2, 3, 0, 1]);
        assert_eq!(from_group(GroupNo(0), 1).count(), 1);
    }

    #[test]
    fn what_is_known_of_a_group_is_never_taken_for_anothers() {
        let groups = KnownGroups::new();
        let known = |first_free| Known { desc: None, first_free };
        let (one, other) = (GroupNo(3), GroupNo(3 + REMEMBERED as u32));
        assert_eq!(groups.take(one).first_free, 0);
        groups.put(one, known(100));
        groups.forget_desc(one);
        assert_eq!(groups.take(other).first_free, 0);
        assert_eq!(groups.take(one).first_free, 100);
        assert_eq!(groups.take(one).first_free, 0, "taken out");
        groups.put(one, known(100));
        groups.put(other, known(7));
        assert_eq!((groups.take(one).first_free, groups.take(other).first_free), (0, 7));
    }

    #[test]
    fn a_flex_group_is_roomy_when_its_groups_are_as_empty_as_others() {
        let averages = Averages { free_inodes: 100, free_clusters: 1000 };
        let summary =
            |free_inodes, free_clusters| Summary { groups: 4, free_inodes, free_clusters };
        assert!(summary(400, 4000).is_roomy(averages));
        assert!(!summary(399, 4000).is_roomy(averages));
        assert!(!summary(400, 3999).is_roomy(averages));
        assert!(!summary(0, 4000).is_roomy(Averages { free_inodes: 0, ..averages }));
    }

    #[test]
    fn a_flex_group_is_uncrowded_with_a_quarter_of_a_group_less_than_others() {
        let geometry = testing::geometry(64);
        let quarters = (geometry.inodes_per_group / 4, geometry.clusters_per_group / 4);
        let averages = Averages { free_inodes: quarters.0 * 2, free_clusters: quarters.1 * 2 };
        let (free_inodes, free_clusters) = (u64::from(quarters.0), u64::from(quarters.1));
        let summary = Summary { groups: 1, free_inodes, free_clusters };
        assert!(summary.is_uncrowded(averages, &geometry));
        assert!(
            !Summary { free_inodes: free_inodes - 1, ..summary }.is_uncrowded(averages, &geometry)
        );
    }
}
