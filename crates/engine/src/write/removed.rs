//! Blocks that one step of a removal took out of a file's map.

use crate::edit::{BlockRange, Edit, Purpose};
use extant_ondisk::{BlockNo, FileBlock, Geometry, GroupNo};
use extant_reader::Error;

/// The blocks that one step took out of the map.
#[derive(Debug, Default)]
pub(super) struct Removed {
    /// Runs of data, with the logical block of each one's first.
    pub runs: Vec<(FileBlock, BlockRange)>,
    /// Blocks that the map itself grew by.
    pub map_added: u64,
    /// Blocks of the map itself that were given back, or are to be.
    pub map_freed: u64,
    /// The blocks of the map that are to be freed.
    pub map_runs: Vec<BlockRange>,
    /// The groups that all these blocks lie in.
    pub groups: Groups,
    /// Where the next step begins.
    pub next: Option<FileBlock>,
}

impl Removed {
    /// The blocks of the map itself that are to be freed.
    pub(super) fn map_gone(&self) -> Vec<(BlockRange, Purpose)> {
        self.map_runs.iter().map(|run| (*run, Purpose::Map)).collect()
    }

    /// Frees only these: the mapped blocks keep their owner.
    pub(super) fn free_map<E: Edit>(&self, edit: &mut E) -> Result<(), Error> {
        edit.free_all(&self.map_gone())
    }
}

/// Groups that a step frees blocks of. Each costs a bitmap and a descriptor, so they are what
/// bounds the step.
#[derive(Debug, Default)]
pub(super) struct Groups(Vec<GroupNo>);

impl Groups {
    /// How many.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds those of a run, unless there are `most` already and the run has another.
    pub(super) fn admit(&mut self, geometry: &Geometry, run: BlockRange, most: usize) -> bool {
        let last = BlockNo(run.start.0.saturating_add(run.count.saturating_sub(1)));
        // Blocks outside the volume are refused when they are freed.
        let (Some(first), Some(last)) = (geometry.group_of(run.start), geometry.group_of(last))
        else {
            return true;
        };
        // Most runs lie where the one before lies.
        if first == last && self.0.last() == Some(&first) {
            return true;
        }
        let before = self.0.len();
        for group in (first.0..=last.0).map(GroupNo) {
            if !self.0[..before].contains(&group) {
                if before >= most {
                    return false;
                }
                self.0.push(group);
            }
        }
        true
    }
}
