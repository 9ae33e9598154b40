//! A new volume in memory: what is in use, its special inodes, the blocks to be written. Nothing
//! reaches the device here; a volume of terabytes takes memory for its groups' descriptors and not
//! more.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use extant_layout::RunSet;
use extant_layout::pack::{ExtentTree, IndirectTree, dense_runs, indirect_blocks};
use extant_layout::tables::{GroupTables, TableRules, place_tables};
use extant_ondisk::extent::ROOT_SIZE;
use extant_ondisk::indirect::IndirectMap;
use extant_ondisk::inode::{self, Inode, InodeFlags};
use extant_ondisk::superblock::{RawSuperblock, Superblock};
use extant_ondisk::time::Timestamp;
use extant_ondisk::{BlockNo, FileBlock, Geometry, GroupNo, IncompatFeatures, InodeNo};

use super::error::{MkfsError, Shortage};
use super::identity::Identity;
use super::params::FsParams;
use super::superblock::raw_superblock;

/// The new volume.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// The figures it was made from.
    pub params: FsParams,
    /// UUID, times, names.
    pub identity: Identity,
    /// The parameters as `Geometry`.
    pub geometry: Geometry,
    /// By group.
    pub tables: Vec<GroupTables>,
    /// Blocks in use, in whole clusters.
    pub used: RunSet,
    /// Inodes in use, by number.
    pub inodes: RunSet,
    /// Directories, by group.
    pub directories: BTreeMap<u32, u32>,
    directory_inodes: BTreeSet<u32>,
    root_map: Option<MappedFile>,
    /// The superblock's fields, without counts and checksums.
    pub superblock: Superblock,
    /// Fields that the decoded superblock does not carry.
    pub(super) raw: RawSuperblock,
    /// Inode records, sealed, by number.
    pub(crate) records: BTreeMap<u32, Vec<u8>>,
    /// Blocks with contents, by their first block: whole blocks, runs do not overlap.
    pub(super) contents: BTreeMap<u64, Vec<u8>>,
    /// Blocks that must read as zero.
    pub(super) zeroes: Vec<Range<u64>>,
}

/// A file's blocks.
#[derive(Clone, Debug)]
pub struct MappedFile {
    /// The root of the map.
    pub i_block: [u8; ROOT_SIZE],
    /// Data blocks in the order of the file.
    pub data: Vec<Range<u64>>,
    /// Blocks in use, the map's included, in whole clusters.
    pub space_blocks: u64,
    /// Whether the map is an extent tree.
    pub has_extents: bool,
}

impl MappedFile {
    /// The data blocks one by one.
    pub fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        self.data.iter().flat_map(Clone::clone)
    }
}

impl NewVolume {
    /// Places superblocks, descriptors, bitmaps and inode tables; `bad` blocks are left out.
    pub fn new(params: FsParams, identity: Identity, bad: &RunSet) -> Result<Self, MkfsError> {
        let raw = raw_superblock(&params, &identity);
        let geometry = Geometry::new(&raw)?;
        let rules = TableRules {
            stride: params.extended.stride.unwrap_or(0),
            packed: params.packed_meta_blocks && geometry.has_incompat(IncompatFeatures::FLEX_BG),
        };
        let tables = place_tables(&geometry, rules, bad).map_err(Shortage::from)?;
        let origin = geometry.first_data_block.0;
        let used = tables.used.in_clusters(origin, u64::from(geometry.blocks_per_cluster));
        let mut superblock = Superblock::decode(&raw);
        let mut inodes = RunSet::new();
        inodes.insert(1..u64::from(geometry.first_inode.0));
        // Bad blocks are the files' loss, as with mke2fs; with clusters there are none.
        let own = used.count() - bad.count();
        let overhead = own / u64::from(geometry.blocks_per_cluster) + origin;
        superblock.overhead_clusters = u32::try_from(overhead).unwrap_or(0);
        Ok(Self {
            params,
            identity,
            geometry,
            tables: tables.groups,
            used,
            inodes,
            directories: BTreeMap::new(),
            directory_inodes: BTreeSet::new(),
            root_map: None,
            superblock,
            raw,
            records: BTreeMap::new(),
            contents: BTreeMap::new(),
            zeroes: Vec::new(),
        })
    }

    /// Number of free blocks.
    pub fn free_blocks(&self) -> u64 {
        self.geometry.blocks_count - self.geometry.first_data_block.0 - self.used.count()
    }

    /// Number of free inodes.
    pub fn free_inodes(&self) -> u64 {
        u64::from(self.geometry.inodes_count) - self.inodes.count()
    }

    /// Takes the lowest free inode.
    pub fn take_inode(&mut self) -> Result<InodeNo, MkfsError> {
        let range =
            u64::from(self.geometry.first_inode.0)..u64::from(self.geometry.inodes_count) + 1;
        let number = self
            .inodes
            .next_gap(range)
            .and_then(|gap| u32::try_from(gap.start).ok())
            .ok_or(Shortage::Inode)?;
        self.inodes.insert(u64::from(number)..u64::from(number) + 1);
        Ok(InodeNo(number))
    }

    /// Takes free blocks in whole clusters, the first that are free from `goal` on, then from the
    /// start; the last cluster may be longer than what is returned.
    pub fn take_blocks(&mut self, goal: u64, count: u64) -> Result<Vec<Range<u64>>, MkfsError> {
        let ratio = u64::from(self.geometry.blocks_per_cluster);
        let origin = self.geometry.first_data_block.0;
        let goal = goal.max(origin);
        let goal = goal - (goal - origin) % ratio;
        let end = self.geometry.blocks_count;
        let mut left = count;
        let mut runs = Vec::new();
        for mut range in [goal..end, origin..goal.min(end)] {
            while left > 0
                && let Some(gap) = self.used.next_gap(range.clone())
            {
                let length = (gap.end - gap.start).min(left);
                runs.push(gap.start..gap.start + length);
                self.used.insert(gap.start..(gap.start + length.next_multiple_of(ratio)).min(end));
                left -= length;
                range.start = gap.end;
            }
        }
        if left > 0 {
            return Err(Shortage::Missing(left).into());
        }
        Ok(runs)
    }

    /// Whether new files get extent trees.
    pub fn has_extents(&self) -> bool {
        self.geometry.has_incompat(IncompatFeatures::EXTENTS)
    }

    /// Takes blocks for a file and maps them. The map's own blocks are part of the volume's
    /// contents then.
    pub fn map_file(
        &mut self,
        owner: InodeNo,
        goal: u64,
        count: u64,
    ) -> Result<MappedFile, MkfsError> {
        if self.has_extents() {
            let data = self.take_blocks(goal, count)?;
            let before = data.first().map_or(0, |run| run.start.saturating_sub(1));
            return self.map_runs(owner, data, before);
        }
        let shape = IndirectMap::new(self.geometry.block_size);
        let nodes = indirect_blocks([(FileBlock(0), count)], self.geometry.block_size)
            .ok_or(Shortage::IndirectFile)?;
        let mut places = self.take_blocks(goal, count + nodes)?.into_iter().flatten();
        let (mut data, mut node_places) = (Vec::new(), Vec::new());
        // A sequential writer meets the indirect blocks just before the blocks that they map.
        for block in 0..count {
            let path = shape.path(FileBlock(block)).ok_or(Shortage::IndirectFile)?;
            let positions = path.positions[..path.levels].iter().rev();
            let opened = positions.take_while(|position| **position == 0).count();
            node_places.extend(places.by_ref().take(opened).map(BlockNo));
            data.extend(places.next());
        }
        let data = joined(&data);
        let contents = &mut self.contents;
        let i_block = IndirectTree::new(self.geometry.block_size).write(
            dense_runs(data.iter().cloned()),
            node_places,
            |block, bytes| drop(contents.insert(block.0, bytes.to_vec())),
        );
        Ok(MappedFile { i_block, data, space_blocks: count + nodes, has_extents: false })
    }

    /// Keeps the root directory's map, for [`Self::grow_root`].
    pub(super) fn keep_root(&mut self, map: MappedFile) {
        self.root_map = Some(map);
    }

    /// The root directory's blocks, and more up to `count`.
    pub(super) fn grow_root(&mut self, count: u64) -> Result<MappedFile, MkfsError> {
        let mut data = self.root_map.as_ref().map(|map| map.data.clone()).unwrap_or_default();
        let held: u64 = data.iter().map(|run| run.end - run.start).sum();
        data.extend(self.take_blocks(self.goal_of(InodeNo::ROOT), count.saturating_sub(held))?);
        self.map_runs(InodeNo::ROOT, data, self.group_start(0))
    }

    /// Maps allocated blocks by an extent tree, whose nodes are put into free blocks from
    /// `node_goal` on.
    pub fn map_runs(
        &mut self,
        owner: InodeNo,
        data: Vec<Range<u64>>,
        node_goal: u64,
    ) -> Result<MappedFile, MkfsError> {
        let ratio = u64::from(self.geometry.blocks_per_cluster);
        let count: u64 = data.iter().map(|run| run.end - run.start).sum();
        let tree = ExtentTree::new(dense_runs(data.iter().cloned()));
        let mut nodes = Vec::new();
        for _ in 0..tree.blocks(self.geometry.block_size) {
            nodes.extend(self.take_blocks(node_goal, 1)?.into_iter().flatten().map(BlockNo));
        }
        let space_blocks = count.next_multiple_of(ratio) + nodes.len() as u64 * ratio;
        let contents = &mut self.contents;
        let i_block = tree.write(owner, 0, &self.geometry, nodes, |block, bytes| {
            contents.insert(block.0, bytes.to_vec());
        });
        Ok(MappedFile { i_block, data, space_blocks, has_extents: true })
    }

    /// An inode with the volume's times and the room that its fields need.
    pub fn new_inode(&self, mode: u16, links: u16) -> Inode {
        let time = Timestamp::new(i64::try_from(self.identity.time).unwrap_or(i64::MAX), 0);
        Inode { links, ..Inode::new(&self.geometry, mode, time) }
    }

    /// Sets map, block count and the flag for extents.
    pub fn set_map(&self, inode: &mut Inode, map: &MappedFile) {
        inode.i_block = map.i_block;
        if map.has_extents {
            inode.flags |= InodeFlags::EXTENTS;
        }
        inode.set_space(&self.geometry, map.space_blocks);
    }

    /// Puts an inode into its table. `edit` may add bytes after the fields.
    pub fn put_inode(&mut self, number: InodeNo, decoded: &Inode, edit: impl FnOnce(&mut [u8])) {
        let mut record = vec![0; usize::from(self.geometry.inode_size)];
        decoded.encode_into(&mut record, &self.geometry);
        edit(&mut record);
        inode::seal(&mut record, number, &self.geometry);
        if decoded.is_dir() && self.directory_inodes.insert(number.0) {
            let group = (number.0 - 1) / self.geometry.inodes_per_group;
            *self.directories.entry(group).or_default() += 1;
        }
        self.records.insert(number.0, record);
    }

    /// Gives blocks their contents, from `block` on; the last block's rest is zero.
    pub fn put_contents(&mut self, block: u64, mut bytes: Vec<u8>) {
        bytes.resize(bytes.len().next_multiple_of(self.geometry.block_len()), 0);
        self.contents.insert(block, bytes);
    }

    /// Spreads a file's bytes over its data blocks.
    pub fn put_file(&mut self, map: &MappedFile, bytes: &[u8]) {
        let mut parts = bytes.chunks(self.geometry.block_len());
        for run in &map.data {
            let blocks = usize::try_from(run.end - run.start).unwrap_or(usize::MAX);
            let part: Vec<u8> = parts.by_ref().take(blocks).flatten().copied().collect();
            self.put_contents(run.start, part);
        }
    }

    /// Where the data of an inode should lie: in its group, with flex_bg in its flex group.
    pub fn goal_of(&self, number: InodeNo) -> u64 {
        let group = number.0.saturating_sub(1) / self.geometry.inodes_per_group;
        self.group_start(group - group % self.geometry.groups_per_flex)
    }

    /// First block of a group.
    pub fn group_start(&self, group: u32) -> u64 {
        self.geometry.group_start(GroupNo(group)).0
    }
}

/// Blocks as runs.
fn joined(blocks: &[u64]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for block in blocks {
        match runs.last_mut() {
            Some(run) if run.end == *block => run.end += 1,
            _ => runs.push(*block..*block + 1),
        }
    }
    runs
}
