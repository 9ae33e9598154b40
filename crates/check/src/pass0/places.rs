//! The locations of all tables of the volume: finds overlaps with one of them in a few steps,
//! however many groups there are.

use super::Pass0;
use super::table_places::{TABLES, place, table_blocks};
use extant_layout::RunSet;
use extant_layout::groups::leading;
use extant_ondisk::GroupNo;
use extant_ondisk::group_desc::GroupDesc;
use std::collections::BTreeSet;
use std::ops::Range;

/// The places of all tables, kept up to date while descriptors change.
pub(super) struct Places {
    /// Superblocks, descriptors, and what is reserved for more of them.
    leading: RunSet,
    /// Of each of [`TABLES`]: first block and group. Those of one kind have one length, so that it
    /// is known how far before a range one can start that reaches into it.
    starts: [BTreeSet<(u64, u32)>; TABLES.len()],
}

impl Places {
    /// As the descriptors say; what they say off the volume takes no room.
    pub(super) fn of(pass0: &Pass0<'_>) -> Self {
        let geometry = pass0.volume.geometry();
        let mut places = Self { leading: RunSet::new(), starts: Default::default() };
        for group in (0..geometry.groups_count).map(GroupNo) {
            places.leading.insert(leading(geometry, group).blocks());
            places.add(pass0, group);
        }
        places
    }

    fn add(&mut self, pass0: &Pass0<'_>, group: GroupNo) {
        let (geometry, desc) = (pass0.volume.geometry(), pass0.desc(group));
        for (name, starts) in TABLES.iter().zip(&mut self.starts) {
            let start = place(&desc, name);
            if geometry.contains(start, table_blocks(name, geometry)) {
                starts.insert((start.0, group.0));
            }
        }
    }

    /// A group's descriptor was `before`, and is another one now.
    pub(super) fn update(&mut self, pass0: &Pass0<'_>, group: GroupNo, before: &GroupDesc) {
        for (name, starts) in TABLES.iter().zip(&mut self.starts) {
            starts.remove(&(place(before, name).0, group.0));
        }
        self.add(pass0, group);
    }

    /// Whether nothing but the table `name` of the group takes any of these blocks.
    pub(super) fn is_free_but_for(
        &self,
        pass0: &Pass0<'_>,
        range: Range<u64>,
        group: GroupNo,
        name: &str,
    ) -> bool {
        let is_taken = TABLES.iter().zip(&self.starts).any(|(table, starts)| {
            let before = table_blocks(table, pass0.volume.geometry()).saturating_sub(1);
            let first = range.start.saturating_sub(before);
            // The table itself is one of them at most: two steps at most.
            starts
                .range((first, 0)..(range.end.max(first), 0))
                .any(|(_, of)| (*of, *table) != (group.0, name))
        });
        !is_taken && self.leading.is_free(range)
    }
}
