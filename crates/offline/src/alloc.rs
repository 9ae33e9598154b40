//! Allocation and freeing of blocks and inodes.

use std::ops::Range;

use extant_device::Device;
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::superblock::{RawSuperblock, Superblock};
use extant_ondisk::{BlockNo, GroupNo, IncompatFeatures, InodeNo};

use crate::{NoSpace, OfflineError, OfflineVolume};

impl<D: Device> OfflineVolume<D> {
    /// Number of free blocks in the superblock.
    pub fn free_blocks(&self) -> u64 {
        Superblock::decode(&self.raw).free_blocks
    }

    /// Sets the superblock's free counts to the sums of the groups' counts: the kernel keeps only
    /// those up to date.
    pub fn sum_free_counts(&mut self) {
        let (mut clusters, mut inodes) = (0_u64, 0_u64);
        for group in (0..self.geometry.groups_count).map(GroupNo) {
            let desc = self.desc(group);
            clusters += u64::from(desc.free_clusters);
            inodes += u64::from(desc.free_inodes);
        }
        let blocks = clusters.saturating_mul(u64::from(self.geometry.blocks_per_cluster));
        let inodes = u32::try_from(inodes).unwrap_or(u32::MAX);
        if (blocks, inodes) != (self.free_blocks(), self.raw.s_free_inodes_count.get()) {
            set_free_blocks(&mut self.raw, blocks);
            self.raw.s_free_inodes_count.set(inodes);
            self.is_superblock_dirty = true;
        }
    }

    /// Recounts the free blocks and inodes of the groups whose bitmaps were loaded. The next
    /// [`Self::commit`] stores both bitmaps of each, even if they were uninitialized. The
    /// superblock's counts are set to the sums of the groups' counts.
    ///
    /// # Errors
    /// A bitmap cannot be read.
    pub fn recount(&mut self) -> Result<(), OfflineError> {
        for group in self.groups_with_bitmaps() {
            let bits = 0..self.geometry.group_clusters(group);
            self.store_bitmap(BitmapKind::Block, group)?;
            let used = bitmap::count_set(self.bitmap(BitmapKind::Block, group)?, bits.clone());
            let clusters = bits.end - used;
            let bits = 0..self.geometry.inodes_per_group;
            self.store_bitmap(BitmapKind::Inode, group)?;
            let used = bitmap::count_set(self.bitmap(BitmapKind::Inode, group)?, bits.clone());
            let inodes = bits.end - used;
            self.update_desc(group, |desc| {
                (desc.free_clusters, desc.free_inodes) = (clusters, inodes);
            });
        }
        self.sum_free_counts();
        Ok(())
    }

    fn add_free_blocks(&mut self, change: i64) {
        let now = self.free_blocks().saturating_add_signed(change);
        set_free_blocks(&mut self.raw, now);
        self.is_superblock_dirty = true;
    }

    /// Allocates `count` blocks in whole clusters: in a single run from `goal` on if there is one,
    /// otherwise in several. The last cluster may be longer than the returned run.
    ///
    /// # Errors
    /// Fewer than `count` blocks are free (none is allocated then), or a bitmap cannot be read.
    pub fn take_blocks(
        &mut self,
        goal: BlockNo,
        count: u64,
    ) -> Result<Vec<Range<u64>>, OfflineError> {
        let ratio = u64::from(self.geometry.blocks_per_cluster);
        let clusters = count.div_ceil(ratio);
        let goal = self.geometry.group_of(goal).unwrap_or(GroupNo(0));
        let count_of_groups = self.geometry.groups_count;
        let groups = || (goal.0..count_of_groups).chain(0..goal.0).map(GroupNo);
        // First a single run within a group; then the largest runs available.
        let mut found: Vec<(GroupNo, Range<u32>)> = Vec::new();
        let mut left = clusters;
        if clusters <= u64::from(self.geometry.clusters_per_group) {
            for group in groups() {
                let runs = self.free_runs(group)?;
                let fits = |run: &&Range<u32>| u64::from(run.end - run.start) >= clusters;
                if let Some(run) = runs.iter().find(fits) {
                    found.push((group, run.start..run.start + clusters as u32));
                    left = 0;
                    break;
                }
            }
        }
        if left > 0 {
            for group in groups() {
                for run in self.free_runs(group)? {
                    let now = u64::from(run.end - run.start).min(left);
                    found.push((group, run.start..run.start + now as u32));
                    left -= now;
                    if left == 0 {
                        break;
                    }
                }
                if left == 0 {
                    break;
                }
            }
        }
        if left > 0 {
            return Err(NoSpace::Blocks { wanted: left * ratio }.into());
        }
        let (mut runs, mut blocks_left): (Vec<Range<u64>>, u64) = (Vec::new(), count);
        for (group, bits) in found {
            self.set_clusters(group, bits.clone(), true)?;
            let start = self.geometry.group_start(group).0 + u64::from(bits.start) * ratio;
            let len = (u64::from(bits.end - bits.start) * ratio).min(blocks_left);
            blocks_left -= len;
            match runs.last_mut() {
                Some(last) if last.end == start => last.end = start + len,
                _ => runs.push(start..start + len),
            }
        }
        Ok(runs)
    }

    fn free_runs(&mut self, group: GroupNo) -> Result<Vec<Range<u32>>, OfflineError> {
        if !self.is_strict && self.desc(group).free_clusters == 0 {
            return Ok(Vec::new());
        }
        let bits = 0..self.geometry.group_clusters(group);
        let bitmap = self.bitmap(BitmapKind::Block, group)?;
        Ok(bitmap::clear_runs(bitmap, bits).collect())
    }

    fn set_clusters(
        &mut self,
        group: GroupNo,
        bits: Range<u32>,
        is_taken: bool,
    ) -> Result<(), OfflineError> {
        let bitmap = self.loaded(BitmapKind::Block, group)?;
        let before = bitmap::count_set(&bitmap.bits, bits.clone());
        if is_taken {
            bitmap::set_range(&mut bitmap.bits, bits.clone());
        } else {
            bitmap::clear_range(&mut bitmap.bits, bits.clone());
        }
        bitmap.is_dirty = true;
        let whole = bits.end - bits.start;
        // The bits that changed: one that was set already does not count twice.
        let changed = if is_taken { whole - before } else { before };
        self.update_desc(group, |desc| {
            desc.free_clusters = if is_taken {
                desc.free_clusters.saturating_sub(changed)
            } else {
                desc.free_clusters.saturating_add(changed)
            };
        });
        let blocks = i64::from(changed) * i64::from(self.geometry.blocks_per_cluster);
        self.add_free_blocks(if is_taken { -blocks } else { blocks });
        Ok(())
    }

    /// Marks the clusters of blocks in use, whether or not they are free. Blocks outside the volume
    /// are skipped.
    ///
    /// # Errors
    /// A bitmap cannot be read; opened strictly, blocks outside the volume.
    pub fn claim_blocks(
        &mut self,
        blocks: impl IntoIterator<Item = Range<u64>>,
    ) -> Result<(), OfflineError> {
        self.set_blocks(blocks, true)
    }

    /// Frees the clusters of blocks. Blocks outside the volume are skipped.
    ///
    /// # Errors
    /// A bitmap cannot be read; opened strictly, blocks outside the volume.
    pub fn free_blocks_of(
        &mut self,
        blocks: impl IntoIterator<Item = Range<u64>>,
    ) -> Result<(), OfflineError> {
        self.set_blocks(blocks, false)
    }

    fn set_blocks(
        &mut self,
        blocks: impl IntoIterator<Item = Range<u64>>,
        is_taken: bool,
    ) -> Result<(), OfflineError> {
        let ratio = u64::from(self.geometry.blocks_per_cluster);
        for run in blocks {
            self.check_blocks(BlockNo(run.start), run.end.saturating_sub(run.start))?;
            let mut at = run.start;
            while at < run.end {
                let Some(group) = self.geometry.group_of(BlockNo(at)) else { break };
                let start = self.geometry.group_start(group).0;
                let end = run.end.min(start + u64::from(self.geometry.group_blocks(group)));
                // A group has fewer than 2^32 clusters.
                let bits = ((at - start) / ratio) as u32..(end - start).div_ceil(ratio) as u32;
                self.set_clusters(group, bits, is_taken)?;
                at = end;
            }
        }
        Ok(())
    }

    /// Allocates the first free inode that is not reserved.
    ///
    /// # Errors
    /// No inode is free, or a bitmap cannot be read.
    pub fn take_inode(&mut self) -> Result<InodeNo, OfflineError> {
        let per_group = self.geometry.inodes_per_group;
        for group in (0..self.geometry.groups_count).map(GroupNo) {
            if self.desc(group).free_inodes == 0 {
                continue;
            }
            let first_ordinary = self.geometry.first_inode.0 - 1;
            let from = first_ordinary.saturating_sub(group.0 * per_group);
            let bitmap = self.bitmap(BitmapKind::Inode, group)?;
            let Some(bit) = bitmap::next_clear(bitmap, from.min(per_group)..per_group) else {
                continue;
            };
            let number = InodeNo(group.0 * per_group + bit + 1);
            self.mark_inode(number, false)?;
            return Ok(number);
        }
        Err(NoSpace::Inodes.into())
    }

    /// Whether an inode is in use; false if there is no such inode.
    ///
    /// # Errors
    /// A bitmap cannot be read.
    pub fn is_inode_used(&mut self, number: InodeNo) -> Result<bool, OfflineError> {
        let Some((group, index)) = self.geometry.inode_place(number) else { return Ok(false) };
        Ok(bitmap::test(self.bitmap(BitmapKind::Inode, group)?, index))
    }

    /// Marks an inode in use. Counts it as a directory if it was free and `is_dir` is true.
    ///
    /// # Errors
    /// There is no such inode, or a bitmap cannot be read.
    pub fn mark_inode(&mut self, number: InodeNo, is_dir: bool) -> Result<(), OfflineError> {
        let Some((group, index)) = self.geometry.inode_place(number) else {
            return Err(crate::volume::no_inode(number, &self.geometry).into());
        };
        let per_group = self.geometry.inodes_per_group;
        let has_mark = self.geometry.has_uninit_groups();
        let unused = per_group - index - 1;
        let bitmap = self.loaded(BitmapKind::Inode, group)?;
        let was_free = bitmap::set(&mut bitmap.bits, index);
        bitmap.is_dirty |= was_free;
        let is_past_mark = has_mark && self.desc(group).itable_unused > unused;
        if !was_free && !is_past_mark {
            return Ok(());
        }
        self.update_desc(group, |desc| {
            if was_free {
                desc.free_inodes = desc.free_inodes.saturating_sub(1);
                desc.used_dirs = desc.used_dirs.saturating_add(u32::from(is_dir));
            }
            if has_mark {
                if desc.flags.contains(GroupFlags::INODE_UNINIT) {
                    desc.flags -= GroupFlags::INODE_UNINIT;
                    desc.itable_unused = per_group;
                }
                desc.itable_unused = desc.itable_unused.min(unused);
            }
        });
        if was_free {
            let now = self.raw.s_free_inodes_count.get().saturating_sub(1);
            self.raw.s_free_inodes_count.set(now);
            self.is_superblock_dirty = true;
        }
        Ok(())
    }

    /// Frees an inode. The caller clears its record.
    ///
    /// # Errors
    /// There is no such inode, or a bitmap cannot be read.
    pub fn free_inode(&mut self, number: InodeNo, is_dir: bool) -> Result<(), OfflineError> {
        let Some((group, index)) = self.geometry.inode_place(number) else {
            return Err(crate::volume::no_inode(number, &self.geometry).into());
        };
        let bitmap = self.loaded(BitmapKind::Inode, group)?;
        if !bitmap::test(&bitmap.bits, index) {
            return Ok(());
        }
        bitmap::clear(&mut bitmap.bits, index);
        bitmap.is_dirty = true;
        self.update_desc(group, |desc| {
            desc.free_inodes = desc.free_inodes.saturating_add(1);
            if is_dir {
                desc.used_dirs = desc.used_dirs.saturating_sub(1);
            }
        });
        let now = self.raw.s_free_inodes_count.get().saturating_add(1);
        self.raw.s_free_inodes_count.set(now);
        self.is_superblock_dirty = true;
        Ok(())
    }
}

/// Sets the superblock's number of free blocks.
fn set_free_blocks(raw: &mut RawSuperblock, blocks: u64) {
    raw.s_free_blocks_count_lo.set((blocks & 0xffff_ffff) as u32);
    if raw.features().incompat.contains(IncompatFeatures::BIT64) {
        raw.s_free_blocks_count_hi.set((blocks >> 32) as u32);
    }
}
