//! The volume's own metadata: superblocks, descriptors, bitmaps, inode tables. They must not
//! overlap.

use super::special::is_bad_block_list;
use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use extant_layout::RunSet;
use extant_layout::groups::leading;
use extant_ondisk::{BlockNo, GroupNo, IncompatFeatures};

const BLOCK_BITMAP: &str = "block bitmap";
const INODE_BITMAP: &str = "inode bitmap";
const INODE_TABLE: &str = "inode table";

/// One of a group's tables: what it is called, where it lies, how many blocks it has.
type Table = (&'static str, BlockNo, u64);

impl Check<'_> {
    fn tables_of(&self, group: GroupNo) -> [Table; 3] {
        let desc = &self.descs[group.0 as usize];
        [
            (BLOCK_BITMAP, desc.block_bitmap, 1),
            (INODE_BITMAP, desc.inode_bitmap, 1),
            (INODE_TABLE, desc.inode_table, u64::from(self.geometry.itable_blocks())),
        ]
    }

    fn fixed_blocks(&self) -> RunSet {
        let mut fixed = RunSet::new();
        for group in 0..self.geometry.groups_count {
            fixed.insert(leading(self.geometry, GroupNo(group)).blocks());
        }
        if self.geometry.has_incompat(IncompatFeatures::MMP) {
            let block = self.superblock.mmp_block;
            if self.geometry.contains(block, 1) {
                fixed.insert(block.0..block.0 + 1);
            }
        }
        fixed
    }

    /// The volume's own blocks, as far as they lie on the volume.
    pub(crate) fn system_blocks(&self) -> Result<RunSet, CheckError> {
        let mut system = self.fixed_blocks();
        for group in 0..self.geometry.groups_count {
            for (_, block, count) in self.tables_of(GroupNo(group)) {
                if self.geometry.contains(block, count) {
                    system.insert(block.0..block.0 + count);
                }
            }
        }
        Ok(system)
    }

    /// Tables that overlap each other, superblocks or bad blocks, or lie off the volume, are moved.
    /// Inode tables are handled first, so that a bitmap moves out of their way: its contents can be
    /// computed again.
    pub(crate) fn check_tables(&self) -> Result<(), CheckError> {
        let mut taken = self.fixed_blocks();
        for is_bitmap in [false, true] {
            for group in (0..self.geometry.groups_count).map(GroupNo) {
                for table in self.tables_of(group) {
                    let (name, block, count) = table;
                    if (name != INODE_TABLE) != is_bitmap {
                        continue;
                    }
                    let is_lost = !self.geometry.contains(block, count);
                    let range = if is_lost { 0..0 } else { block.0..block.0 + count };
                    let code = if is_lost {
                        Some(Code::GroupTableLost)
                    } else if !taken.is_free(range.clone()) {
                        Some(Code::TableConflict)
                    } else {
                        let is_bad = is_bitmap && self.bad.contains(block.0);
                        is_bad.then_some(Code::TableInBadBlock)
                    };
                    if let Some(code) = code {
                        let finding = Finding::new(code).group(group).block(block);
                        if self.should_fix(finding.detail(name.into()))?
                            && self.relocate(group, table, &taken)?
                        {
                            self.need_restart();
                            return Ok(());
                        }
                    }
                    taken.insert(range);
                }
            }
        }
        Ok(())
    }

    /// Moves a table to free blocks after its group's start, or anywhere; false if there are none.
    /// Nothing is claimed yet, and the bitmaps are unreliable: all inodes are read for the blocks
    /// of files. Blocks of an inode table that lie in `taken` hold no inodes, and a table off the
    /// volume holds nothing.
    fn relocate(
        &self,
        group: GroupNo,
        (name, old, count): Table,
        taken: &RunSet,
    ) -> Result<bool, CheckError> {
        let mut used = self.system_blocks()?;
        for run in self.blocks_of_all_files()?.iter().chain(self.bad.iter()) {
            used.insert(run);
        }
        let (first, start) = (self.geometry.first_data_block.0, self.geometry.group_start(group).0);
        let found = used
            .first_fit(start..self.geometry.blocks_count, count)
            .or_else(|| used.first_fit(first..self.geometry.blocks_count, count));
        let Some(new) = found else { return Ok(false) };
        for at in 0..count {
            let is_lost = !self.geometry.contains(old, count);
            let bytes = if is_lost || name == INODE_TABLE && taken.contains(old.0 + at) {
                vec![0; self.geometry.block_len()]
            } else {
                self.store.read(BlockNo(old.0 + at))?
            };
            self.store.write(BlockNo(new + at), &bytes)?;
        }
        // The descriptor must not lead to a table that is not there.
        self.store.flush()?;
        self.store.update_desc(group, |desc| match name {
            BLOCK_BITMAP => desc.block_bitmap = BlockNo(new),
            INODE_BITMAP => desc.inode_bitmap = BlockNo(new),
            _ => desc.inode_table = BlockNo(new),
        })?;
        Ok(true)
    }

    /// The clusters of files, independent of the bitmaps: whole clusters.
    fn blocks_of_all_files(&self) -> Result<RunSet, CheckError> {
        let mut owned = RunSet::new();
        for group in (0..self.geometry.groups_count).map(GroupNo) {
            let first = group.0 * self.geometry.inodes_per_group + 1;
            for at in 0..self.table_used(group) {
                let ino = extant_ondisk::InodeNo(first + at);
                let record = self.record(ino)?;
                let Ok(inode) = extant_ondisk::inode::Inode::decode(&record, ino, self.geometry)
                else {
                    continue;
                };
                if inode.links == 0 && ino >= self.geometry.first_inode {
                    continue;
                }
                let map = self.read_map(ino, &inode)?;
                for extent in &map.extents {
                    owned.insert(extent.start.0..extent.start.0 + u64::from(extent.len));
                }
                for block in map.nodes.iter().chain([&inode.file_acl]) {
                    owned.insert(block.0..block.0 + 1);
                }
            }
        }
        let ratio = u64::from(self.geometry.blocks_per_cluster);
        Ok(owned.in_clusters(self.geometry.first_data_block.0, ratio))
    }

    /// The blocks that the bad blocks inode lists.
    pub(crate) fn bad_blocks(&self) -> Result<RunSet, CheckError> {
        let mut bad = RunSet::new();
        let ino = extant_ondisk::InodeNo::BAD_BLOCKS;
        let record = self.record(ino)?;
        if record.iter().all(|byte| *byte == 0) {
            return Ok(bad);
        }
        let Ok(inode) = extant_ondisk::inode::Inode::decode(&record, ino, self.geometry) else {
            return Ok(bad);
        };
        // A list that is cleared is ignored here too: inodes in its blocks stay.
        if !is_bad_block_list(&record, &inode) || inode.is_extent_mapped() {
            return Ok(bad);
        }
        for extent in &self.read_map(ino, &inode)?.extents {
            bad.insert(extent.start.0..extent.start.0 + u64::from(extent.len));
        }
        Ok(bad)
    }
}
