//! Windows: where all facts together would take more memory than allowed, the passes run several
//! times over the disk, each time with the facts of some groups.
//!
//! Each run reads all inodes and all directory blocks. It checks all rules that need no data of
//! other groups, and claims of clusters, names of inodes, bitmaps and counts in its window. Kept
//! for the whole volume are one bit per inode, the directories and their blocks.

use super::{BYTES_OF_INODE, DirBlock, DirInfo};
use crate::report::CheckOptions;
use crate::store::Store;
use extant_ondisk::group_desc::{GroupDesc, GroupFlags};
use extant_ondisk::{Geometry, GroupNo};
use roaring::RoaringTreemap;
use std::ops::Range;

/// The groups whose data one run keeps.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Window {
    pub(crate) groups: Range<u32>,
    /// No other run is needed.
    is_whole: bool,
    /// The last run, which knows what the others counted.
    pub(crate) is_last: bool,
}

impl Window {
    /// Whether the facts of all groups are kept.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }
}

/// Counts of earlier windows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carry {
    pub(crate) free_clusters: u64,
    pub(crate) free_inodes: u64,
    /// Clusters claimed more than once.
    pub(crate) twice: RoaringTreemap,
}

/// The windows of a check, one after the other.
#[derive(Debug)]
pub(crate) struct Windows {
    ends: Vec<u32>,
    /// Bytes that the facts of each group take at most.
    costs: Vec<u64>,
    /// Bytes for a window's facts.
    room: u64,
}

/// Blocks per directory, for a first estimate of the memory of all directories.
const BLOCKS_OF_DIRECTORY: u64 = 2;

impl Windows {
    /// As many windows as the limit makes necessary, if the estimate for the whole volume is right.
    pub(crate) fn plan(store: &Store, options: &CheckOptions) -> Self {
        let geometry = store.geometry();
        if options.memory.is_none() && !options.in_parts {
            return Self { ends: vec![geometry.groups_count], costs: Vec::new(), room: u64::MAX };
        }
        let limit = options.memory.unwrap_or(u64::MAX);
        let mut costs = Vec::with_capacity(geometry.groups_count as usize);
        let (mut bits, mut directories) = (0, 0);
        for (group, desc) in store.descs().iter().enumerate() {
            let group = GroupNo(group as u32);
            let inodes = if store.desc_checksum_matches(group) {
                u64::from(desc.itable_used(geometry))
            } else {
                u64::from(geometry.inodes_per_group)
            };
            bits += inodes.div_ceil(8);
            directories += u64::from(desc.used_dirs).min(inodes);
            let is_unused =
                geometry.has_uninit_groups() && desc.flags.contains(GroupFlags::BLOCK_UNINIT);
            let bitmap = if is_unused { 0 } else { bitmap_bytes(geometry) };
            costs.push(inodes * BYTES_OF_INODE as u64 + bitmap);
        }
        let a_directory =
            size_of::<DirInfo>() as u64 + BLOCKS_OF_DIRECTORY * size_of::<DirBlock>() as u64;
        let kept = directories * a_directory + (costs.len() * size_of::<GroupDesc>()) as u64;
        let all: u64 = costs.iter().sum();
        if all + kept <= limit && !options.in_parts {
            return Self { ends: vec![geometry.groups_count], costs, room: all };
        }
        let mut room = limit.saturating_sub(kept + bits);
        if options.in_parts {
            room = room.min(all.div_ceil(2));
        }
        let mut windows = Self { ends: Vec::new(), costs, room };
        windows.divide();
        windows
    }

    /// Cuts the groups into runs that have room.
    fn divide(&mut self) {
        self.ends.clear();
        let mut taken = 0_u64;
        for (group, cost) in self.costs.iter().enumerate() {
            if taken > 0 && taken + cost > self.room {
                self.ends.push(group as u32);
                taken = 0;
            }
            taken += cost;
        }
        self.ends.push(self.costs.len() as u32);
    }

    /// Makes the windows smaller after one took more than was left; false when that cannot be.
    pub(crate) fn shrink(&mut self) -> bool {
        let before = self.ends.len();
        let largest = self.costs.iter().copied().max().unwrap_or(0);
        while self.ends.len() == before {
            if self.room <= largest {
                return false;
            }
            // At first the room is what all groups take.
            self.room = (self.room / 2).max(largest);
            self.divide();
        }
        true
    }

    pub(crate) fn count(&self) -> usize {
        self.ends.len()
    }

    /// The window of a number below [`count`](Self::count).
    pub(crate) fn get(&self, at: usize) -> Window {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        Window {
            groups: start..self.ends[at],
            is_whole: self.ends.len() == 1,
            is_last: at + 1 == self.ends.len(),
        }
    }

    /// Whether the windows are of a volume with that many groups.
    pub(crate) fn fit(&self, geometry: &Geometry) -> bool {
        self.ends.last() == Some(&geometry.groups_count)
    }
}

fn bitmap_bytes(geometry: &Geometry) -> u64 {
    u64::from(geometry.clusters_per_group).div_ceil(64) * 8
}
