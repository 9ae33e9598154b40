//! The volume while fast commits are replayed: blocks, groups and inodes changed in memory.

use std::collections::{BTreeMap, BTreeSet};

use extant_device::Device;
use extant_layout::groups::{desc_block_places, leading};
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::group_desc::{self, GroupDesc, GroupFlags, RawGroupDesc};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, Superblock};
use extant_ondisk::{BlockNo, Flaw, FormatError, Geometry, GroupNo, InodeNo, Place, inode};
use zerocopy::{FromBytes, IntoBytes};

use crate::JournalError;
use extant_offline::read_primary_superblock;

/// A group's summary, loaded.
struct Group {
    desc: GroupDesc,
    blocks: Vec<u8>,
    inodes: Vec<u8>,
}

pub(super) struct Image<'a> {
    device: &'a dyn Device,
    pub(super) geometry: Geometry,
    pub(super) superblock: Superblock,
    blocks: BTreeMap<BlockNo, Vec<u8>>,
    changed: BTreeSet<BlockNo>,
    groups: BTreeMap<GroupNo, Group>,
}

impl<'a> Image<'a> {
    pub(super) fn new(device: &'a dyn Device) -> Result<Self, JournalError> {
        let raw = read_primary_superblock(device)?;
        Ok(Self {
            device,
            geometry: Geometry::new(&raw)?,
            superblock: Superblock::decode(&raw),
            blocks: BTreeMap::new(),
            changed: BTreeSet::new(),
            groups: BTreeMap::new(),
        })
    }

    /// Refuses blocks that are not on the volume.
    pub(super) fn check(
        &self,
        start: BlockNo,
        count: u64,
        place: Place,
    ) -> Result<(), FormatError> {
        if self.geometry.contains(start, count) {
            return Ok(());
        }
        Err(Flaw::above_limit("block", start.0, self.geometry.blocks_count).at(place))
    }

    /// A copy of a block as it is now, not kept.
    pub(super) fn read(&self, block: BlockNo) -> Result<Vec<u8>, JournalError> {
        self.check(block, 1, Place::Block(block))?;
        if let Some(held) = self.blocks.get(&block) {
            return Ok(held.clone());
        }
        let mut bytes = vec![0; self.geometry.block_len()];
        self.device.read_at(self.geometry.byte_of(block), &mut bytes)?;
        Ok(bytes)
    }

    /// A block as it is now.
    pub(super) fn block(&mut self, block: BlockNo) -> Result<&[u8], JournalError> {
        Ok(self.loaded(block)?)
    }

    fn loaded(&mut self, block: BlockNo) -> Result<&mut Vec<u8>, JournalError> {
        self.check(block, 1, Place::Block(block))?;
        match self.blocks.entry(block) {
            std::collections::btree_map::Entry::Occupied(held) => Ok(held.into_mut()),
            std::collections::btree_map::Entry::Vacant(free) => {
                let mut bytes = vec![0; self.geometry.block_len()];
                self.device.read_at(self.geometry.byte_of(block), &mut bytes)?;
                Ok(free.insert(bytes))
            }
        }
    }

    /// A block to be changed.
    pub(super) fn block_mut(&mut self, block: BlockNo) -> Result<&mut [u8], JournalError> {
        self.changed.insert(block);
        Ok(self.loaded(block)?)
    }

    /// A block whose old content does not matter.
    pub(super) fn set_block(&mut self, block: BlockNo, bytes: &[u8]) {
        self.blocks.insert(block, bytes.to_vec());
        self.changed.insert(block);
    }

    fn group(&mut self, group: GroupNo) -> Result<&mut Group, JournalError> {
        if !self.groups.contains_key(&group) {
            let loaded = self.load_group(group)?;
            self.groups.insert(group, loaded);
        }
        Ok(self.groups.get_mut(&group).expect("inserted above"))
    }

    fn desc_at(&self, group: GroupNo) -> (BlockNo, usize) {
        let per_block = self.geometry.descs_per_block();
        let place = desc_block_places(&self.geometry, group.0 / per_block)[0];
        (place, (group.0 % per_block) as usize * usize::from(self.geometry.desc_size))
    }

    fn desc(&mut self, group: GroupNo) -> Result<GroupDesc, JournalError> {
        let geometry = self.geometry.clone();
        let (block, at) = self.desc_at(group);
        let stored = &self.block(block)?[at..at + usize::from(geometry.desc_size)];
        group_desc::verify(stored, group, &geometry)?;
        Ok(GroupDesc::decode(
            &RawGroupDesc::from_bytes(stored, group, &geometry)?,
            group,
            &geometry,
        )?)
    }

    fn load_group(&mut self, group: GroupNo) -> Result<Group, JournalError> {
        let geometry = self.geometry.clone();
        let mut desc = self.desc(group)?;
        let has_uninit = geometry.has_uninit_groups();
        let blocks = if has_uninit && desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            desc.flags.remove(GroupFlags::BLOCK_UNINIT);
            self.implied_block_bitmap(group)?
        } else {
            let bytes = self.block(desc.block_bitmap)?.to_vec();
            bitmap::verify(&bytes, BitmapKind::Block, group, &desc, &geometry)?;
            bytes
        };
        let inodes = if has_uninit && desc.flags.contains(GroupFlags::INODE_UNINIT) {
            desc.flags.remove(GroupFlags::INODE_UNINIT);
            let mut bytes = vec![0; geometry.block_len()];
            bitmap::pad(&mut bytes, geometry.inodes_per_group);
            bytes
        } else {
            let bytes = self.block(desc.inode_bitmap)?.to_vec();
            bitmap::verify(&bytes, BitmapKind::Inode, group, &desc, &geometry)?;
            bytes
        };
        Ok(Group { desc, blocks, inodes })
    }

    /// The bitmap of a group that never had one: the metadata that lies in it is in use.
    fn implied_block_bitmap(&mut self, group: GroupNo) -> Result<Vec<u8>, JournalError> {
        let geometry = self.geometry.clone();
        let mut bytes = vec![0; geometry.block_len()];
        let own = leading(&geometry, group).blocks();
        let start = geometry.group_start(group).0;
        let end = start + u64::from(geometry.group_blocks(group));
        let mut mark = |from: u64, to: u64| {
            let per_cluster = u64::from(geometry.blocks_per_cluster);
            let (from, to) = (from.max(start), to.min(end));
            if from < to {
                // Within a group: below 2^32.
                let bits = ((from - start) / per_cluster) as u32;
                bitmap::set_range(&mut bytes, bits..(to - start).div_ceil(per_cluster) as u32);
            }
        };
        mark(own.start, own.end);
        let flex = geometry.groups_per_flex;
        let first = group.0 / flex * flex;
        for other in first..first.saturating_add(flex).min(geometry.groups_count) {
            let desc = self.desc(GroupNo(other))?;
            mark(desc.block_bitmap.0, desc.block_bitmap.0 + 1);
            mark(desc.inode_bitmap.0, desc.inode_bitmap.0 + 1);
            let table = desc.inode_table.0;
            mark(table, table + u64::from(geometry.itable_blocks()));
        }
        bitmap::pad(&mut bytes, geometry.group_clusters(group));
        Ok(bytes)
    }

    /// Marks blocks as used or free: the clusters that they lie in.
    pub(super) fn mark(
        &mut self,
        start: BlockNo,
        count: u64,
        is_used: bool,
    ) -> Result<(), JournalError> {
        self.check(start, count, Place::Block(start))?;
        let (mut at, end) = (start.0, start.0 + count);
        while at < end {
            let group = self.geometry.group_of(BlockNo(at)).expect("checked to be on the volume");
            let first = self.geometry.group_start(group).0;
            let stop = end.min(first + u64::from(self.geometry.group_blocks(group)));
            let per_cluster = u64::from(self.geometry.blocks_per_cluster);
            // Within a group: below 2^32.
            let bits = ((at - first) / per_cluster) as u32;
            let bits = bits..(stop - first).div_ceil(per_cluster) as u32;
            let bitmap = &mut self.group(group)?.blocks;
            if is_used {
                bitmap::set_range(bitmap, bits);
            } else {
                bitmap::clear_range(bitmap, bits);
            }
            at = stop;
        }
        Ok(())
    }

    /// A free block (a whole cluster is taken for it), in the group of `goal` or after it.
    pub(super) fn allocate(&mut self, goal: BlockNo) -> Result<BlockNo, JournalError> {
        let groups = self.geometry.groups_count;
        let first = self.geometry.group_of(goal).unwrap_or_default().0;
        for step in 0..groups {
            let group = GroupNo(((u64::from(first) + u64::from(step)) % u64::from(groups)) as u32);
            let clusters = self.geometry.group_clusters(group);
            let (start, size) =
                (self.geometry.group_start(group), self.geometry.blocks_per_cluster);
            let bitmap = &mut self.group(group)?.blocks;
            if let Some(bit) = bitmap::next_clear(bitmap, 0..clusters) {
                bitmap::set(bitmap, bit);
                return Ok(BlockNo(start.0 + u64::from(bit) * u64::from(size)));
            }
        }
        Err(JournalError::FastCommit("no free block for a directory or an extent tree"))
    }

    fn record_at(&mut self, inode: InodeNo) -> Result<(BlockNo, usize), JournalError> {
        let (group, index) = self.geometry.inode_place(inode).ok_or_else(|| {
            Flaw::above_limit("inode", inode.0, self.geometry.inodes_count).at(Place::Inode(inode))
        })?;
        let table = self.desc(group)?.inode_table;
        let per_block = self.geometry.inodes_per_block();
        let block = BlockNo(table.0 + u64::from(index / per_block));
        Ok((block, (index % per_block) as usize * usize::from(self.geometry.inode_size)))
    }

    /// An inode's record.
    pub(super) fn record(&mut self, inode: InodeNo) -> Result<Vec<u8>, JournalError> {
        let (block, at) = self.record_at(inode)?;
        let size = usize::from(self.geometry.inode_size);
        Ok(self.block(block)?[at..at + size].to_vec())
    }

    /// Seals and stores an inode's record.
    pub(super) fn set_record(
        &mut self,
        number: InodeNo,
        record: &mut [u8],
    ) -> Result<(), JournalError> {
        inode::seal(record, number, &self.geometry);
        let (block, at) = self.record_at(number)?;
        self.block_mut(block)?[at..at + record.len()].copy_from_slice(record);
        Ok(())
    }

    /// Whether an inode is in use.
    pub(super) fn is_inode_used(&mut self, inode: InodeNo) -> Result<bool, JournalError> {
        let Some((group, index)) = self.geometry.inode_place(inode) else { return Ok(false) };
        Ok(bitmap::test(&self.group(group)?.inodes, index))
    }

    /// Marks an inode as used or free.
    pub(super) fn mark_inode(
        &mut self,
        inode: InodeNo,
        is_used: bool,
        is_dir: bool,
    ) -> Result<(), JournalError> {
        let Some((number, index)) = self.geometry.inode_place(inode) else { return Ok(()) };
        let per_group = self.geometry.inodes_per_group;
        let group = self.group(number)?;
        let has_changed = if is_used {
            bitmap::set(&mut group.inodes, index)
        } else {
            bitmap::clear(&mut group.inodes, index)
        };
        if has_changed && is_dir {
            let dirs = group.desc.used_dirs;
            group.desc.used_dirs = if is_used { dirs + 1 } else { dirs.saturating_sub(1) };
        }
        if is_used {
            group.desc.itable_unused = group.desc.itable_unused.min(per_group - index - 1);
        }
        Ok(())
    }

    /// Counts and seals all that changed. Gives the blocks, which are not on the volume yet.
    pub(super) fn finish(mut self) -> Result<Vec<(BlockNo, Vec<u8>)>, JournalError> {
        let geometry = self.geometry.clone();
        for (number, mut group) in std::mem::take(&mut self.groups) {
            let clear = |bitmap: &[u8], bits: u32| bits - bitmap::count_set(bitmap, 0..bits);
            let clusters = clear(&group.blocks, geometry.group_clusters(number));
            let inodes = clear(&group.inodes, geometry.inodes_per_group);
            let before = self.desc(number)?;
            (group.desc.free_clusters, group.desc.free_inodes) = (clusters, inodes);
            bitmap::seal(&group.blocks, BitmapKind::Block, &mut group.desc, &geometry);
            bitmap::seal(&group.inodes, BitmapKind::Inode, &mut group.desc, &geometry);
            self.set_block(before.block_bitmap, &group.blocks);
            self.set_block(before.inode_bitmap, &group.inodes);
            let (block, at) = self.desc_at(number);
            let stored = &mut self.block_mut(block)?[at..at + usize::from(geometry.desc_size)];
            let mut raw = RawGroupDesc::from_bytes(stored, number, &geometry)?;
            group.desc.encode_into(&mut raw);
            raw.write_to(stored, &geometry);
            group_desc::seal(stored, number, &geometry);
        }
        self.sum_up()?;
        self.set_counts()?;
        let Self { mut blocks, changed, .. } = self;
        Ok(changed.iter().filter_map(|block| blocks.remove_entry(block)).collect())
    }

    /// The superblock's counts may be older than the groups': the kernel writes them late.
    fn sum_up(&mut self) -> Result<(), JournalError> {
        let geometry = self.geometry.clone();
        let size = usize::from(geometry.desc_size);
        let (mut clusters, mut inodes) = (0_u64, 0_u64);
        for desc_block in 0..geometry.desc_blocks() {
            let first = desc_block * geometry.descs_per_block();
            let count = geometry.descs_per_block().min(geometry.groups_count - first);
            let (place, _) = self.desc_at(GroupNo(first));
            let mut read = Vec::new();
            let table = match self.blocks.get(&place) {
                Some(held) => held,
                None => {
                    read.resize(geometry.block_len(), 0);
                    self.device.read_at(geometry.byte_of(place), &mut read)?;
                    &read
                }
            };
            for (number, stored) in (first..).zip(table.chunks_exact(size)).take(count as usize) {
                let raw = RawGroupDesc::from_bytes(stored, GroupNo(number), &geometry)?;
                let desc = GroupDesc::unchecked(&raw);
                clusters += u64::from(desc.free_clusters);
                inodes += u64::from(desc.free_inodes);
            }
        }
        self.superblock.free_blocks =
            clusters.saturating_mul(u64::from(geometry.blocks_per_cluster));
        self.superblock.free_inodes = u32::try_from(inodes).unwrap_or(u32::MAX);
        Ok(())
    }

    fn set_counts(&mut self) -> Result<(), JournalError> {
        let size = u64::from(self.geometry.block_size);
        let superblock = self.superblock.clone();
        // Below 64 KiB.
        let at = (SUPERBLOCK_OFFSET % size) as usize;
        let block = self.block_mut(BlockNo(SUPERBLOCK_OFFSET / size))?;
        let (raw, _) = RawSuperblock::mut_from_prefix(&mut block[at..])
            .map_err(|_| Flaw::truncated(0, 1024).at(Place::Superblock(GroupNo(0))))?;
        let before = raw.as_bytes().to_vec();
        superblock.encode_into(raw);
        if raw.as_bytes() != before {
            raw.seal();
        }
        Ok(())
    }
}
