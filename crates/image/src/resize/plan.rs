//! The plan of a smaller size, or of a larger descriptor table: which tables, blocks and inodes
//! move where.

use std::collections::BTreeMap;
use std::ops::Range;

use extant_layout::RunSet;
use extant_layout::groups::leading;
use extant_layout::pack::MappingTree;
use extant_layout::tables::GroupTables;
use extant_offline::OfflineVolume;
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::extent::Extent;
use extant_ondisk::{BlockNo, Geometry, GroupNo, IncompatFeatures, InodeNo};

use super::error::ResizeError;
use super::moves::{FreeRuns, Moves};
use super::scan::{Scan, ScannedFile, has_no_inodes};
use super::size::{Resized, Target};

/// A file whose blocks move.
#[derive(Clone, Debug)]
pub(super) struct MovedFile {
    pub(super) number: InodeNo,
    /// Blocks that it leaves and their new places.
    pub(super) moved: Vec<(Range<u64>, u64)>,
    /// The map after the move, where extents were split.
    pub(super) split: Option<SplitMap>,
}

impl MovedFile {
    /// The runs that the file takes.
    pub(super) fn taken(&self, ratio: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let moved = self.moved.iter().map(|(from, to)| *to..to + (from.end - from.start));
        let more = self.split.iter().flat_map(|split| split.nodes.iter().skip(split.had));
        moved.chain(more.map(move |node| node.0..node.0 + ratio))
    }

    /// The runs that the file leaves: old places, and nodes that are no longer needed.
    pub(super) fn left(&self, ratio: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let gone = self.split.iter().flat_map(|split| &split.gone);
        let moved = self.moved.iter().map(|(from, _)| from.clone());
        moved.chain(gone.map(move |node| node.0..node.0 + ratio))
    }
}

/// A map that is written again.
#[derive(Clone, Debug)]
pub(super) struct SplitMap {
    pub(super) extents: Vec<Extent>,
    /// The nodes of after; the first ones are those of before at their new places.
    pub(super) nodes: Vec<BlockNo>,
    /// Nodes that are no longer needed, at their new places.
    pub(super) gone: Vec<BlockNo>,
    /// Number of nodes before.
    pub(super) had: usize,
}

/// Tables of the groups that are cut off, where `flex_bg` has them below the new end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CutTables {
    /// Their blocks are in use until the switch.
    InPlace,
    /// Their blocks are free: see [`Target::TablesBeyond`].
    Beyond,
}

/// How a volume gets a smaller size, or other descriptors.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) target: Target,
    /// Number of blocks of after.
    pub(super) blocks: u64,
    /// New places of tables.
    pub(super) tables: BTreeMap<u32, GroupTables>,
    pub(super) moves: Moves,
    pub(super) files: Vec<MovedFile>,
    pub(super) xattr_blocks: Vec<BlockNo>,
    pub(super) moves_mmp: bool,
    /// Inode numbers of before and of after.
    pub(super) renumbered: BTreeMap<u32, u32>,
}

/// The blocks of the metadata of groups below the volume's end of after.
pub(super) fn metadata(
    volume: &OfflineVolume,
    geometry: &Geometry,
    moved: &BTreeMap<u32, GroupTables>,
) -> RunSet {
    let mut fixed: RunSet = std::iter::once(0..geometry.first_data_block.0).collect();
    for group in (0..geometry.groups_count).map(GroupNo) {
        let own = leading(geometry, group).blocks();
        let start = if group.0 == 0 { geometry.group_start(group).0 } else { own.start };
        fixed.insert(start..own.end);
        let tables = moved.get(&group.0).copied().unwrap_or_else(|| tables_of(volume, group));
        for run in runs_of(&tables, geometry) {
            fixed.insert(run);
        }
    }
    fixed
}

fn tables_of(volume: &OfflineVolume, group: GroupNo) -> GroupTables {
    let desc = volume.desc(group);
    GroupTables {
        block_bitmap: desc.block_bitmap,
        inode_bitmap: desc.inode_bitmap,
        inode_table: desc.inode_table,
    }
}

/// The blocks of a group's tables.
pub(super) fn runs_of(tables: &GroupTables, geometry: &Geometry) -> [Range<u64>; 3] {
    let length = u64::from(geometry.itable_blocks());
    [
        tables.block_bitmap.0..tables.block_bitmap.0 + 1,
        tables.inode_bitmap.0..tables.inode_bitmap.0 + 1,
        tables.inode_table.0..tables.inode_table.0 + length,
    ]
}

/// The blocks at the starts of groups that become metadata. A smaller size takes none.
pub(super) fn taken(old: &Geometry, new: &Geometry) -> RunSet {
    let mut taken = RunSet::new();
    if old.desc_size == new.desc_size {
        return taken;
    }
    for group in (0..new.groups_count).map(GroupNo) {
        let (before, after) = (leading(old, group).blocks(), leading(new, group).blocks());
        // Both begin with the group, or with its superblock.
        taken.insert(before.end.max(after.start)..after.end);
    }
    taken
}

impl Plan {
    /// A plan that moves nothing.
    pub(super) fn without_moves(target: Target, geometry: &Geometry) -> Self {
        Self {
            target,
            blocks: geometry.blocks_count,
            tables: BTreeMap::new(),
            moves: Moves::new(geometry),
            files: Vec::new(),
            xattr_blocks: Vec::new(),
            moves_mmp: false,
            renumbered: BTreeMap::new(),
        }
    }

    /// Plans a change. `None` if what is there does not fit.
    pub(super) fn new(
        volume: &mut OfflineVolume,
        scan: &Scan,
        target: Target,
        cut_tables: CutTables,
    ) -> Result<Option<Self>, ResizeError> {
        let geometry = match Resized::of(&volume.raw, target) {
            Ok(resized) => resized.geometry,
            Err(ResizeError::TooSmall { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let old = volume.geometry().clone();
        if geometry.inodes_count < geometry.first_inode.0
            || scan.inodes > geometry.inodes_count - (geometry.first_inode.0 - 1)
        {
            return Ok(None);
        }
        let taken = taken(&old, &geometry);
        let vacant = match cut_tables {
            CutTables::InPlace => RunSet::new(),
            CutTables::Beyond => freed_metadata(volume, &geometry, &BTreeMap::new()),
        };
        let places = TablePlaces { target, geometry: &geometry, taken: &taken, vacant: &vacant };
        let Some(tables) = places.of(volume)? else { return Ok(None) };
        let mut planner = Planner::new(volume, &geometry, &tables, &taken, &vacant)?;
        let Some(files) = planner.files(volume, scan) else { return Ok(None) };
        let moves_mmp = volume.mmp_block().is_some_and(|block| planner.moves.block(block) != block);
        let is_moved = |block: &&BlockNo| planner.moves.block(**block) != **block;
        let xattr_blocks = scan.xattr_blocks.keys().filter(is_moved).copied().collect();
        let renumbered = match old.inodes_count > geometry.inodes_count {
            true => renumber(volume, &geometry)?,
            false => Some(BTreeMap::new()),
        };
        let Some(renumbered) = renumbered else { return Ok(None) };
        let target = match target {
            Target::Blocks(_) => Target::Blocks(geometry.blocks_count),
            Target::TablesBeyond(_) | Target::Bit64(_) => target,
        };
        Ok(Some(Self {
            target,
            blocks: geometry.blocks_count,
            tables,
            moves: planner.moves,
            files,
            xattr_blocks,
            moves_mmp,
            renumbered,
        }))
    }

    /// Whether maps need fewer blocks afterwards.
    pub(super) fn frees_nodes(&self) -> bool {
        self.files.iter().any(|file| file.split.as_ref().is_some_and(|map| !map.gone.is_empty()))
    }
}

/// Where tables move to.
struct TablePlaces<'a> {
    target: Target,
    geometry: &'a Geometry,
    /// Blocks at the starts of groups that become metadata.
    taken: &'a RunSet,
    /// Blocks of tables of groups that are cut off, where these are free.
    vacant: &'a RunSet,
}

impl TablePlaces<'_> {
    /// Whether a run of a group's tables must move.
    fn leaves(&self, group: GroupNo, run: &Range<u64>) -> bool {
        match self.target {
            Target::TablesBeyond(end) => {
                self.geometry.group_start(group).0 >= end && run.start < end
            }
            _ => run.end > self.geometry.blocks_count || !self.taken.is_free(run.clone()),
        }
    }

    /// The blocks where a group's tables may come to lie, the best ones first.
    fn ranges(&self, group: GroupNo) -> Vec<Range<u64>> {
        let geometry = self.geometry;
        let start = geometry.group_start(group).0;
        let own = start..start + u64::from(geometry.group_blocks(group));
        if !geometry.has_incompat(IncompatFeatures::FLEX_BG) {
            return vec![own];
        }
        let first = match self.target {
            Target::TablesBeyond(end) => end,
            _ => geometry.first_data_block.0,
        };
        vec![own, first..geometry.blocks_count]
    }

    /// The places of tables that move, by group. `None` if they have no room.
    fn of(
        &self,
        volume: &mut OfflineVolume,
    ) -> Result<Option<BTreeMap<u32, GroupTables>>, ResizeError> {
        let geometry = self.geometry;
        let mut places = BTreeMap::new();
        let is_moved = |group: &GroupNo| {
            let runs = runs_of(&tables_of(volume, *group), geometry);
            runs.iter().any(|run| self.leaves(*group, run))
        };
        let moved: Vec<GroupNo> =
            (0..geometry.groups_count).map(GroupNo).filter(is_moved).collect();
        if moved.is_empty() {
            return Ok(Some(places));
        }
        let mut fixed = metadata(volume, geometry, &places);
        // Those of groups that are cut off are in use until the switch.
        let old = volume.geometry().clone();
        for run in metadata(volume, &old, &places).without(self.vacant).iter() {
            fixed.insert(run);
        }
        let mut used = RunSet::new();
        for group in (0..geometry.groups_count).map(GroupNo) {
            let start = geometry.group_start(group).0;
            let ratio = u64::from(geometry.blocks_per_cluster);
            let bits = 0..geometry.group_clusters(group);
            for run in bitmap::runs(volume.bitmap(BitmapKind::Block, group)?, bits) {
                if run.is_set {
                    let bits = u64::from(run.bits.start)..u64::from(run.bits.end);
                    used.insert(start + bits.start * ratio..start + bits.end * ratio);
                }
            }
        }
        let mut used = used.without(self.vacant);
        for run in fixed.iter() {
            used.insert(run);
        }
        let length = u64::from(geometry.itable_blocks());
        for group in moved {
            let mut tables = tables_of(volume, group);
            let ranges = self.ranges(group);
            for (place, length) in [
                (&mut tables.block_bitmap, 1),
                (&mut tables.inode_bitmap, 1),
                (&mut tables.inode_table, length),
            ] {
                if !self.leaves(group, &(place.0..place.0 + length)) {
                    continue;
                }
                let fits = |set: &RunSet| {
                    ranges.iter().find_map(|range| set.first_fit(range.clone(), length))
                };
                let Some(found) = fits(&used).or_else(|| fits(&fixed)) else { return Ok(None) };
                fixed.insert(found..found + length);
                used.insert(found..found + length);
                *place = BlockNo(found);
            }
            places.insert(group.0, tables);
        }
        Ok(Some(places))
    }
}

/// The blocks of metadata that are free after a change, below the end of after.
pub(super) fn freed_metadata(
    volume: &OfflineVolume,
    geometry: &Geometry,
    moved: &BTreeMap<u32, GroupTables>,
) -> RunSet {
    let before = metadata(volume, volume.geometry(), &BTreeMap::new());
    let below = before.runs_in(0..geometry.blocks_count).collect::<RunSet>();
    below.without(&metadata(volume, geometry, moved))
}

/// Assigns new places.
struct Planner {
    /// Blocks that files must leave: above the new end, or where tables or descriptors come.
    vacated: RunSet,
    free: FreeRuns,
    moves: Moves,
}

impl Planner {
    fn new(
        volume: &mut OfflineVolume,
        geometry: &Geometry,
        tables: &BTreeMap<u32, GroupTables>,
        taken: &RunSet,
        vacant: &RunSet,
    ) -> Result<Self, ResizeError> {
        let moves = Moves::new(geometry);
        let mut vacated =
            taken.in_clusters(geometry.first_data_block.0, u64::from(geometry.blocks_per_cluster));
        let end = geometry.blocks_count;
        for (group, tables) in tables {
            let before = runs_of(&tables_of(volume, GroupNo(*group)), geometry);
            for (run, before) in runs_of(tables, geometry).into_iter().zip(before) {
                if run != before {
                    vacated.insert(moves.blocks(&moves.clusters(&run)));
                }
            }
        }
        let ratio = u64::from(geometry.blocks_per_cluster);
        let in_clusters = |set: &RunSet| set.in_clusters(geometry.first_data_block.0, ratio);
        let kept = in_clusters(&metadata(volume, geometry, tables));
        let mut unused = in_clusters(vacant).without(&kept);
        for group in (0..geometry.groups_count).map(GroupNo) {
            let first = moves.clusters(&(geometry.group_start(group).0..end)).start;
            let bits = 0..geometry.group_clusters(group);
            for run in bitmap::clear_runs(volume.bitmap(BitmapKind::Block, group)?, bits) {
                let run = first + u64::from(run.start)..first + u64::from(run.end);
                unused.insert(moves.blocks(&run));
            }
        }
        let mut free = FreeRuns::default();
        for run in unused.without(&vacated).iter() {
            free.insert(moves.clusters(&run));
        }
        vacated.insert(end..volume.geometry().blocks_count.max(end));
        Ok(Self { vacated, free, moves })
    }

    /// The clusters of a run that must move.
    fn cut(&self, run: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let whole = self.moves.blocks(&self.moves.clusters(&run));
        self.vacated.runs_in(whole).map(|run| self.moves.clusters(&run))
    }

    /// Moves what must move. `None` if it has no room.
    fn files(&mut self, volume: &OfflineVolume, scan: &Scan) -> Option<Vec<MovedFile>> {
        let mut wanted = RunSet::new();
        let mut runs: Vec<Range<u64>> = Vec::new();
        let mut add = |run: Range<u64>, joins: bool| {
            // With bigalloc several extents of a file may share a cluster.
            let mut at = run.start;
            let known: Vec<_> = wanted.runs_in(run.clone()).collect();
            for part in known.into_iter().chain(std::iter::once(run.end..run.end)) {
                if at < part.start {
                    match runs.last_mut() {
                        Some(last) if joins && last.end == at => last.end = part.start,
                        _ => runs.push(at..part.start),
                    }
                }
                at = part.end;
            }
            wanted.insert(run);
        };
        let journal = volume.raw.s_journal_inum.get();
        for file in &scan.files {
            let (mut end, mut is_moved) = (None, false);
            for extent in &file.extents {
                let run = extent.start.0..extent.start.0 + u64::from(extent.len);
                for part in self.cut(run.clone()) {
                    add(part, end == Some((extent.block.0, run.start)));
                    is_moved = true;
                }
                end = Some((extent.end().0, run.end));
            }
            for node in &file.nodes {
                for part in self.cut(node.0..node.0 + 1) {
                    add(part, false);
                    is_moved = true;
                }
            }
            // The old map of the journal stays whole until its inode leads to the new one.
            if is_moved && file.number.0 == journal {
                let nodes = file.nodes.iter().map(|node| node.0..node.0 + 1);
                nodes.for_each(|run| add(self.moves.clusters(&run), false));
            }
        }
        let single = scan.xattr_blocks.keys().copied().chain(volume.mmp_block());
        for block in single {
            self.cut(block.0..block.0 + 1).for_each(|part| add(part, false));
        }
        // The longest first: they are split least.
        runs.sort_by_key(|run| (std::cmp::Reverse(run.end - run.start), run.start));
        for run in runs {
            let places = self.free.take(run.end - run.start)?;
            self.moves.insert(run, places);
        }
        if self.moves.is_empty() {
            return Some(Vec::new());
        }
        let mut moved = Vec::new();
        for file in &scan.files {
            if let Some(file) = self.file(file, volume.geometry())? {
                moved.push(file);
            }
        }
        Some(moved)
    }

    /// The move of one file, if it moves.
    fn file(&mut self, file: &ScannedFile, geometry: &Geometry) -> Option<Option<MovedFile>> {
        let mut moved = Vec::new();
        let mut seen = RunSet::new();
        let data = file.extents.iter().map(|it| it.start.0..it.start.0 + u64::from(it.len));
        for run in data.chain(file.nodes.iter().map(|node| node.0..node.0 + 1)) {
            let whole = self.moves.blocks(&self.moves.clusters(&run));
            for (part, to) in self.moves.parts(whole) {
                if seen.is_free(part.clone()) {
                    seen.insert(part.clone());
                    moved.push((part, to));
                }
            }
        }
        if moved.is_empty() {
            return Some(None);
        }
        // Indirect blocks hold numbers of 32 bits.
        let end = |(run, to): &(Range<u64>, u64)| to + (run.end - run.start);
        if !file.is_extents && moved.iter().any(|it| end(it) > u64::from(u32::MAX)) {
            return None;
        }
        let parts: Vec<Vec<Extent>> =
            file.extents.iter().map(|extent| self.moves.extent(extent)).collect();
        let mut split = None;
        // Maps of indirect blocks have an entry for each block.
        if file.is_extents && parts.iter().any(|parts| parts.len() > 1) {
            let mut extents: Vec<Extent> = Vec::new();
            for part in parts.into_iter().flatten() {
                match extents.last_mut() {
                    Some(last) if last.is_continued_by(&part) => last.len += part.len,
                    _ => extents.push(part),
                }
            }
            let tree = MappingTree::from_extents(&extents, true);
            let needed = usize::try_from(tree.blocks(geometry.block_size)?).ok()?;
            let mut nodes: Vec<BlockNo> =
                file.nodes.iter().map(|node| self.moves.block(*node)).collect();
            let gone = nodes.split_off(needed.min(nodes.len()));
            while nodes.len() < needed {
                let [cluster] = &self.free.take(1)?[..] else { return None };
                nodes.push(BlockNo(self.moves.blocks(cluster).start));
            }
            split = Some(SplitMap { extents, nodes, gone, had: file.nodes.len() });
        }
        Some(Some(MovedFile { number: file.number, moved, split }))
    }
}

/// New numbers for the inodes of groups that are cut off. `None` if there are too few.
fn renumber(
    volume: &mut OfflineVolume,
    geometry: &Geometry,
) -> Result<Option<BTreeMap<u32, u32>>, ResizeError> {
    let old = volume.geometry().clone();
    let per_group = old.inodes_per_group;
    let mut renumbered = BTreeMap::new();
    let mut next = geometry.first_inode.0;
    for group in (geometry.groups_count..old.groups_count).map(GroupNo) {
        if has_no_inodes(volume, group) {
            continue;
        }
        let bits = volume.bitmap(BitmapKind::Inode, group)?.to_vec();
        let mut at = 0;
        while let Some(bit) = bitmap::next_set(&bits, at..per_group) {
            at = bit + 1;
            let Some(free) = next_free(volume, geometry, next)? else { return Ok(None) };
            renumbered.insert(group.0 * per_group + bit + 1, free);
            next = free + 1;
        }
    }
    Ok(Some(renumbered))
}

/// The first free inode from a number on.
fn next_free(
    volume: &mut OfflineVolume,
    geometry: &Geometry,
    from: u32,
) -> Result<Option<u32>, ResizeError> {
    let per_group = geometry.inodes_per_group;
    let mut from = from;
    while from <= geometry.inodes_count {
        let (group, index) = ((from - 1) / per_group, (from - 1) % per_group);
        let bits = volume.bitmap(BitmapKind::Inode, GroupNo(group))?;
        if let Some(bit) = bitmap::next_clear(bits, index..per_group) {
            return Ok(Some(group * per_group + bit + 1));
        }
        from = (group + 1) * per_group + 1;
    }
    Ok(None)
}
