//! What the volume itself takes: superblocks, descriptors, bitmaps, inode tables. They must not lie on each other.

use crate::check::Check;
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use extant_layout::RunSet;
use extant_layout::groups::leading;
use extant_ondisk::{BlockNo, GroupNo, IncompatFeatures};

/// One of a group's tables: what it is called, where it lies, how many blocks it has.
type Table = (&'static str, BlockNo, u64);

impl Check<'_> {
    fn tables_of(&self, group: GroupNo) -> [Table; 3] {
        let desc = &self.descs[group.0 as usize];
        [
            ("block bitmap", desc.block_bitmap, 1),
            ("inode bitmap", desc.inode_bitmap, 1),
            ("inode table", desc.inode_table, u64::from(self.geometry.itable_blocks())),
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

    /// Tables on each other, on superblocks or in bad blocks. Bitmaps are moved elsewhere; an inode table that lies on something
    /// is left, since half of it is lost wherever it goes.
    pub(crate) fn check_tables(&self) -> Result<(), CheckError> {
        let fixed = self.fixed_blocks();
        let mut taken = fixed;
        let bad = &self.bad;
        for group in (0..self.geometry.groups_count).map(GroupNo) {
            for (name, block, count) in self.tables_of(group) {
                if !self.geometry.contains(block, count) {
                    continue; // judged with the descriptors, before the passes
                }
                let range = block.0..block.0 + count;
                let finding =
                    |code| Finding::new(code).group(group).block(block).detail(name.into());
                if !taken.is_free(range.clone()) {
                    if self.ask(finding(Code::TableConflict))? {
                        self.relocate(group, name)?;
                        self.need_restart();
                        return Ok(());
                    }
                } else if count == 1
                    && bad.contains(block.0)
                    && self.ask(finding(Code::TableInBadBlock))?
                {
                    self.relocate(group, name)?;
                    self.need_restart();
                    return Ok(());
                }
                taken.insert(range);
            }
        }
        Ok(())
    }

    /// Moves a bitmap to a free block of its group, or anywhere. Nothing is claimed yet, and the bitmaps are what is in doubt:
    /// all inodes are read for what files own.
    fn relocate(&self, group: GroupNo, name: &str) -> Result<(), CheckError> {
        if name == "inode table" {
            return Ok(());
        }
        let (system, owned) = (self.system_blocks()?, self.blocks_of_all_files()?);
        let groups = (group.0..self.geometry.groups_count).chain(0..group.0);
        for candidate in groups.map(GroupNo) {
            let start = self.geometry.group_start(candidate).0;
            let end = start + u64::from(self.geometry.group_blocks(candidate));
            let free = (start..end).find(|&block| {
                [&system, &owned, &self.bad].iter().all(|taken| !taken.contains(block))
            });
            let Some(free) = free else { continue };
            let desc = self.store.desc(group);
            let old = if name == "block bitmap" { desc.block_bitmap } else { desc.inode_bitmap };
            let bytes = self.store.read(old)?;
            self.store.write(BlockNo(free), &bytes)?;
            return self.store.update_desc(group, |desc| match name {
                "block bitmap" => desc.block_bitmap = BlockNo(free),
                _ => desc.inode_bitmap = BlockNo(free),
            });
        }
        Ok(())
    }

    /// What files own, whatever bitmaps say: whole clusters.
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
        if inode.mode != 0 || inode.is_extent_mapped() || inode.is_inline() {
            return Ok(bad);
        }
        for extent in &self.read_map(ino, &inode)?.extents {
            bad.insert(extent.start.0..extent.start.0 + u64::from(extent.len));
        }
        Ok(bad)
    }
}
