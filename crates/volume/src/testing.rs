//! A volume changed in memory, without a journal: what the algorithms over [`Edit`] are tested on. [`ScratchEdit::write_out`] gives an
//! image that e2fsck judges.

use crate::edit::{self, AllocationRequest, Edit, EditInodes, Limits, Purpose, Run, Usage};
use crate::error::Error;
use crate::read::group;
use crate::read::inode::LoadedInode;
use crate::source::{BlockKind, DataPiece, Facts, MetadataRead};
use crate::volume::Volume;
use crate::write::quota;
use extant_device::Device;
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::group_desc::{self, GroupDesc, GroupFlags, RawGroupDesc};
use extant_ondisk::inode::FileType;
use extant_ondisk::superblock::{SUPERBLOCK_OFFSET, Superblock};
use extant_ondisk::time::Timestamp;
use extant_ondisk::{BlockNo, Flaw, GroupNo, InodeNo, Place};
use std::collections::BTreeMap;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Changes to a volume, kept in memory. Blocks are given out first fit from the goal on, so that tests see the same places
/// every time; [`ScratchEdit::longest_run`] makes free space look fragmented.
pub struct ScratchEdit {
    volume: Volume,
    changed: BTreeMap<BlockNo, Arc<[u8]>>,
    free_clusters: u64,
    /// No run longer than this many clusters is given out.
    pub longest_run: u64,
    /// What [`Edit::now`] says.
    pub time: Timestamp,
    free_inodes: u32,
    /// All that was charged, by file.
    charged: BTreeMap<InodeNo, Usage>,
}

impl ScratchEdit {
    /// Changes to a volume that was opened for reading.
    pub fn new(volume: Volume) -> Self {
        let per_cluster = u64::from(volume.geometry().blocks_per_cluster);
        let free_clusters = volume.superblock().free_blocks / per_cluster;
        // Small times of deletion look like numbers of orphans.
        let time = Timestamp::new(1_700_000_000, 0);
        Self {
            free_inodes: volume.superblock().free_inodes,
            volume,
            changed: BTreeMap::new(),
            free_clusters,
            longest_run: u64::MAX,
            time,
            charged: BTreeMap::new(),
        }
    }

    /// All that was charged for a file since the edit began.
    pub fn charged(&self, file: InodeNo) -> Usage {
        self.charged.get(&file).copied().unwrap_or_default()
    }

    /// Inodes free now.
    pub fn free_inodes(&self) -> u32 {
        self.free_inodes
    }

    /// Clusters free now.
    pub fn free_clusters(&self) -> u64 {
        self.free_clusters
    }

    /// Writes all changes to `device`, the superblock with the free count as well.
    ///
    /// # Errors
    /// The device failed.
    pub fn write_out(&self, device: &dyn Device) -> Result<(), Error> {
        let geometry = self.volume.geometry();
        for (block, bytes) in &self.changed {
            device.write_at(geometry.byte_of(*block), bytes)?;
        }
        let mut raw = edit::superblock(self)?;
        let mut superblock = Superblock::decode(&raw);
        superblock.free_blocks = self.free_clusters * u64::from(geometry.blocks_per_cluster);
        superblock.free_inodes = self.free_inodes;
        superblock.encode_into(&mut raw);
        raw.seal();
        device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes())?;
        Ok(device.flush()?)
    }

    /// Changes a group's block bitmap and its free count, and seals both. A bitmap that was only implied is stored from now on.
    fn change_bitmap(
        &mut self,
        no: GroupNo,
        change: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Error> {
        let geometry = self.volume.geometry().clone();
        let mut bits = group::bitmap(self, no, BitmapKind::Block)?;
        change(&mut bits);
        let mut desc = group::descriptor(self, no)?;
        desc.flags.remove(GroupFlags::BLOCK_UNINIT);
        let clusters = geometry.group_clusters(no);
        desc.free_clusters = clusters - bitmap::count_set(&bits, 0..clusters);
        bitmap::seal(&bits, BitmapKind::Block, &mut desc, &geometry);
        self.changed.insert(desc.block_bitmap, bits.into());
        self.write_descriptor(no, &desc)
    }

    /// Changes a group's inode bitmap, and with it the descriptor's counts and the count of directories by `dirs`.
    fn change_inodes(
        &mut self,
        no: GroupNo,
        dirs: i32,
        change: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Error> {
        let geometry = self.volume.geometry().clone();
        let mut bits = group::bitmap(self, no, BitmapKind::Inode)?;
        change(&mut bits);
        let mut desc = group::descriptor(self, no)?;
        desc.flags.remove(GroupFlags::INODE_UNINIT);
        let inodes = geometry.inodes_per_group;
        let used = bitmap::count_set(&bits, 0..inodes);
        desc.free_inodes = inodes - used;
        desc.used_dirs = desc.used_dirs.saturating_add_signed(dirs);
        let end = (0..inodes).rev().find(|bit| bitmap::test(&bits, *bit)).map_or(0, |bit| bit + 1);
        if geometry.has_uninit_groups() {
            desc.itable_unused = desc.itable_unused.min(inodes - end);
        }
        bitmap::seal(&bits, BitmapKind::Inode, &mut desc, &geometry);
        self.changed.insert(desc.inode_bitmap, bits.into());
        self.write_descriptor(no, &desc)
    }

    fn write_descriptor(&mut self, no: GroupNo, desc: &GroupDesc) -> Result<(), Error> {
        let geometry = self.volume.geometry().clone();
        let (index, at) = geometry.desc_place(no);
        let end = at + usize::from(geometry.desc_size);
        let block = self.descriptor_block(index);
        self.modify(block, BlockKind::Descriptors, |table| {
            let stored = &mut table[at..end];
            let mut raw = RawGroupDesc::from_bytes(stored, no, &geometry)?;
            desc.encode_into(&mut raw);
            raw.write_to(stored, &geometry);
            group_desc::seal(stored, no, &geometry);
            Ok(())
        })?
    }

    /// The first free clusters in a group's bitmap from a bit on.
    fn first_run(&self, no: GroupNo, from: u32, most: u64) -> Result<Option<(u32, u32)>, Error> {
        let clusters = self.volume.geometry().group_clusters(no);
        let bits = group::bitmap(self, no, BitmapKind::Block)?;
        let run = bitmap::clear_runs(&bits, from..clusters).next();
        // At most a group's clusters, so it fits.
        Ok(run.map(|run| (run.start, u64::from(run.end - run.start).min(most) as u32)))
    }
}

impl MetadataRead for ScratchEdit {
    type Block = Arc<[u8]>;

    fn facts(&self) -> &Facts {
        self.volume.facts()
    }

    fn metadata(&self, block: BlockNo, kind: BlockKind) -> Result<Arc<[u8]>, Error> {
        match self.changed.get(&block) {
            Some(bytes) => {
                kind.check(bytes, block, self.volume.geometry())?;
                Ok(bytes.clone())
            }
            None => self.volume.metadata(block, kind),
        }
    }

    fn data(&self, pieces: &mut [DataPiece<'_>]) -> Result<(), Error> {
        self.volume.data(pieces)
    }

    fn descriptor_block(&self, index: u32) -> BlockNo {
        self.volume.descriptor_block(index)
    }
}

impl Edit for ScratchEdit {
    fn modify<R>(
        &mut self,
        block: BlockNo,
        kind: BlockKind,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Error> {
        let mut bytes = self.metadata(block, kind)?.to_vec();
        let result = change(&mut bytes);
        kind.seal(&mut bytes, block, self.volume.geometry());
        self.changed.insert(block, bytes.into());
        Ok(result)
    }

    fn create<R>(
        &mut self,
        block: BlockNo,
        kind: BlockKind,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Error> {
        let mut bytes = vec![0; self.volume.geometry().block_len()];
        let result = fill(&mut bytes);
        kind.seal(&mut bytes, block, self.volume.geometry());
        self.changed.insert(block, bytes.into());
        Ok(result)
    }

    fn allocate(&mut self, request: AllocationRequest) -> Result<Run, Error> {
        let geometry = self.volume.geometry().clone();
        let per_cluster = u64::from(geometry.blocks_per_cluster);
        let most = request.count.max(1).div_ceil(per_cluster).min(self.longest_run);
        let goal = request.goal.unwrap_or(geometry.first_data_block);
        let home = geometry.group_of(goal).unwrap_or(GroupNo(0));
        // Within a group, so it fits.
        let at_home = ((goal.0.saturating_sub(geometry.group_start(home).0)) / per_cluster) as u32;
        let groups = (home.0..geometry.groups_count).chain(0..=home.0).map(GroupNo);
        for (turn, no) in groups.enumerate() {
            let from = if turn == 0 { at_home } else { 0 };
            let Some((first, count)) = self.first_run(no, from, most)? else { continue };
            self.change_bitmap(no, |bits| bitmap::set_range(bits, first..first + count))?;
            self.free_clusters -= u64::from(count);
            let start = geometry.group_start(no).0 + u64::from(first) * per_cluster;
            // The volume's last cluster may be cut off.
            let count = (u64::from(count) * per_cluster).min(geometry.blocks_count - start);
            return Ok(Run { start: BlockNo(start), count });
        }
        Err(Error::NoSpace)
    }

    fn free(&mut self, run: Run, purpose: Purpose) -> Result<(), Error> {
        let geometry = self.volume.geometry().clone();
        let per_cluster = u64::from(geometry.blocks_per_cluster);
        let mut next = run.start;
        let end = run.start.0 + run.count;
        while next.0 < end {
            let no = geometry.group_of(next).ok_or_else(|| {
                Flaw::Rule("a block past the volume's end was freed").at(Place::Block(next))
            })?;
            let group_start = geometry.group_start(no).0;
            let group_end = group_start + u64::from(geometry.group_blocks(no));
            let stop = end.min(group_end);
            // Within a group, so it fits.
            let first = ((next.0 - group_start) / per_cluster) as u32;
            let last = ((stop - group_start).div_ceil(per_cluster)) as u32;
            let mut was_free = false;
            self.change_bitmap(no, |bits| {
                was_free = bitmap::next_clear(bits, first..last).is_some();
                bitmap::clear_range(bits, first..last);
            })?;
            if was_free {
                return Err(Flaw::Rule("a free block was freed").at(Place::Block(next)).into());
            }
            self.free_clusters += u64::from(last - first);
            next = BlockNo(stop);
        }
        if purpose == Purpose::Metadata {
            for block in run.start.0..end {
                self.changed.remove(&BlockNo(block));
            }
        }
        Ok(())
    }

    fn now(&self) -> Timestamp {
        self.time
    }

    fn charge(&mut self, file: &LoadedInode, usage: Usage, limits: Limits) -> Result<(), Error> {
        quota::charge(self, file, usage, limits)?;
        let charged = self.charged.entry(file.number).or_default();
        charged.space += usage.space;
        charged.inodes += usage.inodes;
        Ok(())
    }
}

impl EditInodes for ScratchEdit {
    fn allocate_inode(&mut self, near: InodeNo, file_type: FileType) -> Result<InodeNo, Error> {
        let geometry = self.volume.geometry().clone();
        let (home, _) = geometry.inode_place(near).ok_or(Error::NoSuchInode(near))?;
        let first = self.volume.geometry().first_inode.0;
        for no in (home.0..geometry.groups_count).chain(0..home.0).map(GroupNo) {
            let bits = group::bitmap(self, no, BitmapKind::Inode)?;
            let before = no.0 * geometry.inodes_per_group;
            let from = (first - 1).saturating_sub(before).min(geometry.inodes_per_group);
            let Some(bit) = bitmap::next_clear(&bits, from..geometry.inodes_per_group) else {
                continue;
            };
            let dirs = i32::from(file_type == FileType::Directory);
            self.change_inodes(no, dirs, |bits| bitmap::set_range(bits, bit..bit + 1))?;
            self.free_inodes -= 1;
            return Ok(InodeNo(before + bit + 1));
        }
        Err(Error::NoSpace)
    }

    fn free_inode(&mut self, number: InodeNo, file_type: FileType) -> Result<(), Error> {
        let place = self.volume.geometry().inode_place(number);
        let (no, bit) = place.ok_or(Error::NoSuchInode(number))?;
        let dirs = -i32::from(file_type == FileType::Directory);
        let mut was_used = false;
        self.change_inodes(no, dirs, |bits| {
            was_used = bitmap::next_clear(bits, bit..bit + 1).is_none();
            bitmap::clear_range(bits, bit..bit + 1);
        })?;
        if !was_used {
            return Err(Flaw::Rule("a free inode was freed").at(Place::Inode(number)).into());
        }
        self.free_inodes += 1;
        Ok(())
    }
}
