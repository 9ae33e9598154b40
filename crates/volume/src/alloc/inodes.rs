//! In which group a new inode goes: pure functions over what descriptors say.
//!
//! Files lie with their directory. Directories whose siblings have nothing to do with them are spread over groups that have
//! room; others stay near their parent as long as its group is not crowded.

use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::{Geometry, GroupNo};

/// Groups that are looked at for a spread directory before any with a free inode will do.
pub(crate) const SPREAD_LOOKS: u32 = 64;

/// Averages of the volume, which a group is held against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Averages {
    /// Free inodes a group.
    pub free_inodes: u32,
    /// Free clusters a group.
    pub free_clusters: u32,
}

/// Whether a group takes another directory that is spread: at least as empty as the average.
pub(crate) fn is_roomy(desc: &GroupDesc, averages: Averages) -> bool {
    desc.free_inodes > 0
        && desc.free_inodes >= averages.free_inodes
        && desc.free_clusters >= averages.free_clusters
}

/// Whether a group takes another directory beside its parent: inodes and blocks for its files are left.
pub(crate) fn is_uncrowded(desc: &GroupDesc, averages: Averages, geometry: &Geometry) -> bool {
    desc.free_inodes > 0
        && desc.free_inodes >= averages.free_inodes.saturating_sub(geometry.inodes_per_group / 4)
        && desc.free_clusters
            >= averages.free_clusters.saturating_sub(geometry.clusters_per_group / 4)
}

/// All groups, each once, from one on.
pub(crate) fn from_group(start: GroupNo, count: u32) -> impl Iterator<Item = GroupNo> {
    (start.0..count).chain(0..start.0.min(count)).map(GroupNo)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_comes_once_from_the_first_on() {
        let all: Vec<u32> = from_group(GroupNo(2), 4).map(|group| group.0).collect();
        assert_eq!(all, [2, 3, 0, 1]);
        assert_eq!(from_group(GroupNo(0), 1).count(), 1);
    }
}
