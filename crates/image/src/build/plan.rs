//! The plan of an image: the smallest volume in which the tree fits, or one of the requested size,
//! and the location of everything.

use std::collections::BTreeMap;

use extant_layout::RunSet;
use extant_ondisk::quota::{QuotaKind, QuotaRecord, build_quota_file};
use extant_ondisk::superblock::Superblock;
use extant_ondisk::{CompatFeatures, Geometry, GroupNo, InodeNo, RoCompatFeatures};

use super::attributes::Divided;
use super::error::BuildError;
use super::identity::of_content;
use super::options::{BuildOptions, Room, Size};
use super::placement::{Mapping, Placement, dir_ranges};
use super::requirements::{DirRequirements, Requirements, Storage};
use super::space::Space;
use crate::mkfs::{
    BlockSize, Config, DeviceInfo, FsParams, Identity, MappedFile, MkfsError, NewVolume, Options,
    Program, UuidChoice, params::params, raw_superblock,
};
use crate::source::{Node, NodeId, NodeKind, Tree, XattrSetId};

/// Of the prototype that only shows features and sizes: large enough for a journal of any size.
const PROTOTYPE_BYTES: u64 = 1 << 36;
/// From here on a file needs the feature large_file.
const LARGE_FILE: u64 = 1 << 31;
/// Bytes of the room for more files for which an inode is added: mke2fs's usual ratio.
const ROOM_PER_INODE: u64 = 16 << 10;
/// Steps of the search for the smallest volume, which takes about ten.
const MAX_STEPS: u32 = 20_000;
/// Volumes of fewer blocks get no journal.
const MIN_JOURNAL_VOLUME: u64 = 2048;

/// Everything that the writer needs to know.
#[derive(Debug)]
pub(super) struct Plan<'t> {
    pub(super) requirements: Requirements<'t>,
    pub(super) volume: NewVolume,
    pub(super) space: Space,
    pub(super) placement: Placement,
    /// Bytes of the lost+found that was added.
    lost_found_space: u64,
}

/// A volume of some size with its own files, and the room that is left.
struct Attempt {
    volume: NewVolume,
    space: Space,
    quotas: Vec<(QuotaKind, InodeNo, MappedFile)>,
    lost_found_space: u64,
}

/// The result of an attempt.
enum Fit {
    Fits(Box<(Attempt, Placement)>),
    /// At least this many more blocks are needed.
    Short(u64),
}

/// The state of the search for a size.
struct Planner<'t> {
    options: Options,
    config: Config,
    info: DeviceInfo,
    identity: Identity,
    needs: TreeNeeds<'t>,
    /// Features that the tree needs in addition to the chosen ones.
    added: RoCompatFeatures,
    prototype: FsParams,
    /// Clusters of the demand where no file is cut by metadata.
    least_clusters: u64,
    /// The number of inodes follows from the tree.
    counts_inodes: bool,
    /// Inodes for files that are written later.
    extra_inodes: u64,
}

/// The space and inodes that a tree takes on volumes of some features.
struct TreeNeeds<'t> {
    requirements: Requirements<'t>,
    /// Inodes that are not the tree's.
    own_inodes: u32,
}

impl<'t> TreeNeeds<'t> {
    fn new(tree: &'t Tree, params: &FsParams, identity: &Identity) -> Result<Self, BuildError> {
        let raw = raw_superblock(params, identity);
        let geometry = Geometry::new(&raw)?;
        let superblock = Superblock::decode(&raw);
        let own_inodes = 1
            + u32::from(params.quotas.contains(&QuotaKind::Project))
            + u32::from(params.features.compat.contains(CompatFeatures::ORPHAN_FILE));
        let first = geometry.first_inode.0 + own_inodes;
        let extra_isize = superblock.want_extra_isize;
        let requirements = Requirements::new(tree, &geometry, &superblock, first, extra_isize)?;
        Ok(Self { requirements, own_inodes })
    }

    /// Inodes of the volume that the tree needs, the reserved ones included.
    fn inodes(&self) -> u64 {
        u64::from(InodeNo::FIRST_ORDINARY.0 - 1)
            + u64::from(self.own_inodes)
            + self.requirements.inodes()
    }

    fn check_inodes(&self, params: &FsParams) -> Result<(), BuildError> {
        let (needed, given) = (self.inodes(), u64::from(params.inodes()));
        if given < needed { Err(BuildError::NoInodes { needed, given }) } else { Ok(()) }
    }
}

impl<'t> Plan<'t> {
    /// Plans the image of a tree; `info` are those of the device written to.
    pub(super) fn new(
        build: &BuildOptions,
        tree: &'t Tree,
        info: DeviceInfo,
    ) -> Result<Self, BuildError> {
        let mut planner = Planner::new(build, tree, info)?;
        let attempt = match &build.size {
            Size::Auto => planner.smallest(0)?,
            Size::AutoPlus(room) => planner.with_room(*room)?,
            Size::Given(bytes) => {
                let blocks = bytes / u64::from(planner.prototype.block_size);
                planner.of_size(Some(blocks.to_string()))?
            }
            Size::Device => planner.of_size(None)?,
        };
        let (attempt, placement) = *attempt;
        Self::new_of(planner.needs.requirements, attempt, placement)
    }

    /// Plans a volume of given parameters, as mke2fs does; an error if the tree does not fit.
    pub(super) fn of_params(
        mut params: FsParams,
        identity: Identity,
        tree: &'t Tree,
    ) -> Result<Self, BuildError> {
        added_features(tree, &mut params)?;
        let needs = TreeNeeds::new(tree, &params, &identity)?;
        needs.check_inodes(&params)?;
        let (room, block_size) = (params.blocks, params.block_size);
        let cluster_blocks = u64::from(params.blocks_per_cluster());
        let attempt = Attempt::new(params, identity, &needs.requirements)?;
        let placement = Placement::new(&needs.requirements, &attempt.space);
        if let Some(clusters) = attempt.missing(placement.end) {
            let missing = clusters * cluster_blocks;
            return Err(BuildError::Missing { missing, room, block_size });
        }
        Self::new_of(needs.requirements, attempt, placement)
    }

    fn new_of(
        requirements: Requirements<'t>,
        attempt: Attempt,
        placement: Placement,
    ) -> Result<Self, BuildError> {
        let Attempt { volume, space, quotas, lost_found_space } = attempt;
        let mut plan = Self { requirements, volume, space, placement, lost_found_space };
        plan.take(quotas)?;
        Ok(plan)
    }

    /// Marks the clusters of the tree as used, and counts them.
    fn take(&mut self, quotas: Vec<(QuotaKind, InodeNo, MappedFile)>) -> Result<(), BuildError> {
        let geometry = &self.volume.geometry;
        let cluster_blocks = u64::from(geometry.blocks_per_cluster);
        let end_block = geometry.blocks_count;
        for piece in self.space.pieces(0..self.placement.end) {
            let end = (piece.block + piece.len * cluster_blocks).min(end_block);
            self.volume.used.insert(piece.block..end);
        }
        let numbers = &self.requirements.numbers;
        let first = numbers.end() - numbers.count() as u32;
        let end = u64::from(numbers.end()) + self.requirements.attributes.ea_files.len() as u64;
        self.volume.inodes.insert(u64::from(first)..end);
        let per_group = geometry.inodes_per_group;
        for dir in &self.requirements.dirs {
            let group = (numbers.of(dir.node).0 - 1) / per_group;
            *self.volume.directories.entry(group).or_default() += 1;
        }
        for (kind, number, map) in quotas {
            let bytes = build_quota_file(kind, &self.usage(kind)?)?;
            self.volume.put_quota_file(kind, number, &map, &bytes);
        }
        Ok(())
    }

    /// Usage of users, groups or projects on the volume.
    fn usage(&self, kind: QuotaKind) -> Result<Vec<QuotaRecord>, BuildError> {
        let shape = &self.requirements.shape;
        let mut usage: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        let mut add = |id: u32, inodes: u64, space: u64| {
            let entry = usage.entry(id).or_default();
            entry.0 += inodes;
            entry.1 += space;
        };
        if self.requirements.lost_found.is_none() {
            add(0, 1, self.lost_found_space);
        }
        let (tree, attributes) = (self.requirements.tree, &self.requirements.attributes);
        for (id, node) in tree.nodes() {
            // Each owner of a value with an inode of its own is charged as if it were not shared.
            let (inodes, space) =
                attributes.ea_charge(tree, node.xattr_set(), shape.cluster_size())?;
            add(owner(node, kind), 1 + inodes, self.space_of(id) * shape.block_size + space);
        }
        let record =
            |(id, (inodes, space))| QuotaRecord { id, inodes, space, ..QuotaRecord::default() };
        Ok(usage.into_iter().map(record).collect())
    }

    /// Blocks that a node takes, in whole clusters.
    pub(super) fn space_of(&self, id: NodeId) -> u64 {
        let requirements = &self.requirements;
        let data = match requirements.tree.node(id).kind() {
            NodeKind::Directory => {
                self.directory(requirements.numbers.of(id)).map_or(0, |(dir, start)| {
                    Mapping::new(&requirements.shape, &self.space, start, dir_ranges(dir)).blocks()
                })
            }
            NodeKind::Regular => match requirements.storage(id) {
                Storage::Blocks => self.file(id).map_or(0, |mapping| mapping.blocks()),
                _ => 0,
            },
            NodeKind::Symlink if self.placement.symlink(requirements, id).is_some() => {
                requirements.shape.cluster_blocks
            }
            _ => 0,
        };
        let has_block = requirements.attributes.block_of(id).is_some();
        data + if has_block { requirements.shape.cluster_blocks } else { 0 }
    }

    /// A directory and its place.
    pub(super) fn directory(&self, number: InodeNo) -> Option<(&DirRequirements, u64)> {
        let dirs = &self.requirements.dirs;
        let index = dirs
            .binary_search_by_key(&number, |dir| self.requirements.numbers.of(dir.node))
            .ok()?;
        Some((&dirs[index], self.placement.dirs[index]))
    }

    /// The mapping of a regular file with blocks.
    pub(super) fn file(&self, id: NodeId) -> Option<Mapping<'_>> {
        let start = self.placement.file(&self.requirements, id)?;
        Some(Mapping::new(
            &self.requirements.shape,
            &self.space,
            start,
            self.requirements.ranges(id),
        ))
    }

    /// The mapping of one block.
    pub(super) fn one_block(&self, start: u64) -> Mapping<'_> {
        let range = std::iter::once((extant_ondisk::FileBlock(0), 1));
        Mapping::new(&self.requirements.shape, &self.space, start, range)
    }

    /// The attributes of a set by location.
    pub(super) fn divided(&self, set: XattrSetId) -> Result<Divided, BuildError> {
        let seed = self.volume.geometry.checksum_seed;
        let ea_inode = |index| self.requirements.ea_inode(index);
        self.requirements.attributes.divided(self.requirements.tree, set, seed, ea_inode)
    }

    /// The checksum seed of an inode's structures.
    pub(super) fn seed_of(&self, number: InodeNo) -> Option<u32> {
        let geometry = &self.volume.geometry;
        geometry.has_metadata_csum().then(|| geometry.inode_checksum_seed(number, 0))
    }

    /// How many inodes of a group's table are written: up to the last in use.
    pub(super) fn table_end(&self, group: GroupNo) -> u32 {
        let per_group = self.volume.geometry.inodes_per_group;
        let first = u64::from(group.0) * u64::from(per_group) + 1;
        let used = self.volume.inodes.runs_in(first..first + u64::from(per_group)).last();
        used.map_or(0, |run| (run.end - first) as u32) // at most per_group
    }

    /// Bytes that the streaming part writes.
    pub(super) fn bytes_to_write(&self) -> u64 {
        let geometry = &self.volume.geometry;
        let groups = (0..geometry.groups_count).map(GroupNo);
        let inodes: u64 = groups.map(|group| u64::from(self.table_end(group))).sum();
        self.placement.end * self.requirements.shape.cluster_size()
            + inodes * u64::from(geometry.inode_size)
    }

    /// Bytes of the whole volume.
    pub(super) fn bytes(&self) -> u64 {
        self.volume.geometry.blocks_count * u64::from(self.volume.geometry.block_size)
    }
}

impl<'t> Planner<'t> {
    fn new(build: &BuildOptions, tree: &'t Tree, info: DeviceInfo) -> Result<Self, BuildError> {
        let mut options = build.format.clone();
        refuse_options(&options)?;
        // Sizes must not depend on the size of the image.
        options.usage_types.get_or_insert_with(|| "default".to_owned());
        options.reserved_ratio.get_or_insert(0.0);
        let config = Config::built_in();
        let mut shown = options.clone();
        shown.size = Some(format!("{}k", PROTOTYPE_BYTES >> 10));
        (shown.inodes, shown.inode_ratio) = (None, None);
        let mut prototype = params(Program::Extant, &shown, &config, &info)?;
        if prototype.is_journal_device() {
            return Err(BuildError::Unsupported("journal devices: there is no room for files"));
        }
        let extended = &prototype.extended;
        if extended.root_owner.is_some()
            || extended.root_perms.is_some()
            || extended.root_selinux.is_some()
        {
            return Err(BuildError::Unsupported(
                "root_owner, root_perms, root_selinux (the sources give them)",
            ));
        }
        if extended.offset.is_some() {
            return Err(BuildError::Unsupported("an offset in the image (-E offset)"));
        }
        if prototype.huge_files.is_some() {
            return Err(BuildError::Unsupported("huge files of the usage type"));
        }
        options.block_size = Some(BlockSize::Exactly(prototype.block_size));
        let added = added_features(tree, &mut prototype)?;
        let identity = identity(build, tree, &options, &prototype)?;
        let needs = TreeNeeds::new(tree, &prototype, &identity)?;
        let geometry = Geometry::new(&raw_superblock(&prototype, &identity))?;
        let boundless = Space::new(&geometry, &RunSet::new());
        let least_clusters = Placement::new(&needs.requirements, &boundless).end;
        Ok(Self {
            options,
            config,
            info,
            identity,
            needs,
            added,
            prototype,
            least_clusters,
            counts_inodes: false,
            extra_inodes: 0,
        })
    }

    /// The smallest volume in which everything fits, and more files.
    fn with_room(&mut self, room: Room) -> Result<Box<(Attempt, Placement)>, BuildError> {
        let block_size = u64::from(self.prototype.block_size);
        let bytes = match room {
            Room::Bytes(bytes) => bytes,
            Room::Percent(percent) => {
                let exact = self.smallest(0)?.0.volume.geometry.blocks_count;
                let bytes = u128::from(exact * block_size) * u128::from(percent);
                u64::try_from(bytes.div_ceil(100)).map_err(|_| BuildError::NoFittingSize)?
            }
        };
        // A file takes a cluster at least.
        let per_inode = ROOM_PER_INODE.max(self.needs.requirements.shape.cluster_size());
        self.extra_inodes = bytes.div_ceil(per_inode);
        self.smallest(bytes.div_ceil(block_size))
    }

    /// The smallest volume in which everything fits with `room` blocks available.
    fn smallest(&mut self, room: u64) -> Result<Box<(Attempt, Placement)>, BuildError> {
        self.counts_inodes = self.options.inodes.is_none() && self.options.inode_ratio.is_none();
        let block_size = u64::from(self.prototype.block_size);
        let cluster_blocks = u64::from(self.prototype.blocks_per_cluster());
        // Data and inode tables are needed in any case.
        let tables = self.needs.inodes() * u64::from(self.prototype.inode_size) / block_size;
        let least = (self.least_clusters * cluster_blocks).checked_add(tables);
        let least = least.and_then(|least| least.checked_add(room));
        // More than any volume has.
        let least = least.filter(|blocks| blocks.checked_mul(block_size).is_some());
        let mut blocks = least.ok_or(BuildError::NoFittingSize)?;
        if self.prototype.features.compat.contains(CompatFeatures::HAS_JOURNAL) {
            blocks = blocks.max(MIN_JOURNAL_VOLUME);
        }
        let mut found = None;
        for _ in 0..MAX_STEPS {
            match self.attempt_with_room(blocks, room)? {
                Fit::Fits(fitting) => {
                    found = Some(fitting);
                    break;
                }
                Fit::Short(more) => blocks += more.max(1),
            }
        }
        let mut fitting = found.ok_or(BuildError::NoFittingSize)?;
        // A larger volume needs more for itself, so that no smaller one should fit; but that is
        // tried.
        loop {
            let less = fitting.0.volume.geometry.blocks_count.saturating_sub(1);
            match self.attempt_with_room(less, room)? {
                Fit::Fits(smaller) => fitting = smaller,
                Fit::Short(_) => return Ok(fitting),
            }
        }
    }

    /// An attempt with a number of blocks, of which `room` are available after all else.
    fn attempt_with_room(&self, blocks: u64, room: u64) -> Result<Fit, BuildError> {
        let fit = self.attempt_blocks(blocks)?;
        let Fit::Fits(fitting) = &fit else { return Ok(fit) };
        let (attempt, placement) = &**fitting;
        let geometry = &attempt.volume.geometry;
        let per_cluster = u64::from(geometry.blocks_per_cluster);
        let free = attempt.space.total().saturating_sub(placement.end) * per_cluster;
        let kept =
            attempt.volume.params.reserved_blocks + geometry.clusters_for_maps() * per_cluster;
        let more = room.saturating_sub(free.saturating_sub(kept));
        if room == 0 || more == 0 {
            return Ok(fit);
        }
        Ok(Fit::Short(more))
    }

    /// An attempt with a number of blocks. A journal of a requested size must be less than half of
    /// the volume.
    fn attempt_blocks(&self, blocks: u64) -> Result<Fit, BuildError> {
        if self.options.journal.megabytes.is_some_and(|size| size > 0)
            && let Some(journal) = self.prototype.journal
        {
            let least = 2 * (u64::from(journal.blocks) + 1);
            if blocks < least {
                return Ok(Fit::Short(least - blocks));
            }
        }
        match self.attempt(Some(blocks.to_string())) {
            Err(BuildError::Mkfs(MkfsError::TooManyInodes)) => {
                Ok(Fit::Short(self.to_next_group(blocks)))
            }
            outcome => outcome,
        }
    }

    /// The number of blocks that may add a group, if the inodes do not fit the present ones. A last
    /// group that is too small for its own tables is dropped, so the first blocks of a group are
    /// tried one by one.
    fn to_next_group(&self, blocks: u64) -> u64 {
        let per_group = u64::from(self.prototype.blocks_per_group);
        let rest = blocks.saturating_sub(self.prototype.first_data_block) % per_group;
        // A group has at most as many inodes as a block has bits; descriptors and bitmaps take less
        // than as much again.
        let most_tables = 8 * u64::from(self.prototype.inode_size);
        if rest <= 2 * most_tables { 1 } else { per_group - rest + 1 }
    }

    /// A volume of the requested size; `None` for the device's own.
    fn of_size(&mut self, size: Option<String>) -> Result<Box<(Attempt, Placement)>, BuildError> {
        let chooses_inodes = self.options.inodes.is_none() && self.options.inode_ratio.is_none();
        let outcome = match self.attempt(size.clone()) {
            // With fewer or more inodes than the usual ratio gives it may fit.
            Ok(Fit::Short(_)) | Err(BuildError::NoInodes { .. }) if chooses_inodes => {
                self.counts_inodes = true;
                self.attempt(size.clone())
            }
            other => other,
        };
        if let Fit::Fits(fitting) = outcome? {
            return Ok(fitting);
        }
        let mut options = self.options.clone();
        options.size = size;
        let room = match self.params(&mut options) {
            Ok(params) => params.blocks,
            Err(MkfsError::TooSmall(_)) => 0,
            Err(error) => return Err(error.into()),
        };
        let needed = self.smallest(0)?.0.volume.geometry.blocks_count;
        Err(BuildError::NoSpace { needed, room, block_size: self.prototype.block_size })
    }

    /// The parameters, with as many inodes as the tree needs unless an option gives the number.
    fn params(&self, options: &mut Options) -> Result<FsParams, MkfsError> {
        let needed = self.needs.inodes() + self.extra_inodes;
        if self.counts_inodes {
            options.inodes = Some(needed);
        }
        let first = params(Program::Extant, options, &self.config, &self.info)?;
        if !self.counts_inodes || u64::from(first.inodes()) >= needed {
            return Ok(first);
        }
        let groups = u64::from(first.groups);
        options.inodes = Some(groups * needed.div_ceil(groups).next_multiple_of(INODES_STEP));
        params(Program::Extant, options, &self.config, &self.info)
    }

    /// Lays out a volume of this size and the tree in it.
    fn attempt(&self, size: Option<String>) -> Result<Fit, BuildError> {
        let mut options = self.options.clone();
        options.size = size;
        let params = self.params(&mut options);
        let mut params = match params {
            Ok(params) => params,
            Err(MkfsError::TooSmall(_)) => return Ok(Fit::Short(1)),
            Err(error) => return Err(error.into()),
        };
        let wanted = self.prototype.features.compat & CompatFeatures::HAS_JOURNAL;
        if !params.features.compat.contains(wanted) {
            // The journal was dropped: build keeps the requested features.
            return Ok(Fit::Short(1));
        }
        params.features.ro_compat |= self.added;
        params.features.compat |= self.prototype.features.compat & CompatFeatures::EXT_ATTR;
        self.needs.check_inodes(&params)?;
        let cluster_blocks = u64::from(params.blocks_per_cluster());
        let attempt = match Attempt::new(params, self.identity.clone(), &self.needs.requirements) {
            Ok(attempt) => attempt,
            Err(BuildError::Mkfs(MkfsError::TooSmall(_))) => return Ok(Fit::Short(1)),
            Err(error) => return Err(error),
        };
        if let Some(more) = attempt.missing(self.least_clusters) {
            return Ok(Fit::Short(more * cluster_blocks));
        }
        let placement = Placement::new(&self.needs.requirements, &attempt.space);
        if let Some(more) = attempt.missing(placement.end) {
            return Ok(Fit::Short(more * cluster_blocks));
        }
        Ok(Fit::Fits(Box::new((attempt, placement))))
    }
}

/// Inodes per group are a multiple of this: mke2fs rounds down to it.
const INODES_STEP: u64 = 8;

impl Attempt {
    fn new(
        params: FsParams,
        identity: Identity,
        requirements: &Requirements<'_>,
    ) -> Result<Self, BuildError> {
        let mut volume = NewVolume::new(params, identity, &RunSet::new())?;
        volume.add_reserved_inodes();
        let lost_found_space = if requirements.lost_found.is_none() {
            volume.add_lost_found()?
        } else {
            // Its number is taken by the tree's own.
            volume.take_inode()?;
            0
        };
        volume.add_system_files(&RunSet::new())?;
        let mut quotas = Vec::new();
        for kind in volume.params.quotas.clone() {
            // Use is known later; the file's size depends on who has files at all.
            let zero = |id| QuotaRecord { id, ..QuotaRecord::default() };
            let records: Vec<_> = owners(requirements, kind).into_iter().map(zero).collect();
            let bytes = build_quota_file(kind, &records)?.len() as u64;
            let (number, map) = volume.take_quota_file(kind, bytes)?;
            quotas.push((kind, number, map));
        }
        if volume.params.orphan_file_blocks > 0 {
            volume.add_orphan_file()?;
        }
        let space = Space::new(&volume.geometry, &volume.used);
        Ok(Self { volume, space, quotas, lost_found_space })
    }

    /// The clusters that a placement up to `end` has too few of.
    fn missing(&self, end: u64) -> Option<u64> {
        end.checked_sub(self.space.total()).filter(|more| *more > 0)
    }
}

/// The id that a node's usage is charged to; the only project is the first.
fn owner(node: &Node, kind: QuotaKind) -> u32 {
    match kind {
        QuotaKind::User => node.uid(),
        QuotaKind::Group => node.gid(),
        QuotaKind::Project => 0,
    }
}

/// The ids of all owners, in order.
fn owners(requirements: &Requirements<'_>, kind: QuotaKind) -> Vec<u32> {
    let mut ids: Vec<u32> = requirements.tree.nodes().map(|(_, node)| owner(node, kind)).collect();
    if requirements.lost_found.is_none() {
        ids.push(0);
    }
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Features that the tree needs: those that a kernel would set when it wrote such files.
fn added_features(tree: &Tree, prototype: &mut FsParams) -> Result<RoCompatFeatures, BuildError> {
    let mut added = RoCompatFeatures::empty();
    if tree.nodes().any(|(_, node)| node.kind() == NodeKind::Regular && node.size() >= LARGE_FILE) {
        added |= RoCompatFeatures::LARGE_FILE;
    }
    if tree.xattr_sets().len() > 1 {
        prototype.features.compat |= CompatFeatures::EXT_ATTR;
    }
    if prototype.revision == 0 && (!added.is_empty() || !prototype.features.compat.is_empty()) {
        return Err(BuildError::Unsupported(
            "files of 2 GiB or extended attributes on volumes of revision 0, which has no features",
        ));
    }
    prototype.features.ro_compat |= added;
    Ok(added)
}

fn identity(
    build: &BuildOptions,
    tree: &Tree,
    options: &Options,
    prototype: &FsParams,
) -> Result<Identity, BuildError> {
    let newest = tree.nodes().map(|(_, node)| node.mtime().seconds).max().unwrap_or(0);
    let time = u64::try_from(build.epoch.unwrap_or(newest)).unwrap_or(0);
    let label = options.label.as_deref().unwrap_or_default();
    let (uuid, hash_seed) = of_content(tree, prototype, label, time);
    let uuid = match options.uuid_choice()? {
        UuidChoice::Given(given) => extant_ondisk::Uuid(given.into_bytes()),
        UuidChoice::Clear => extant_ondisk::Uuid::NIL,
        UuidChoice::Random if options.uuid.is_none() => uuid,
        UuidChoice::Random | UuidChoice::Time => {
            return Err(BuildError::Unsupported(
                "random UUIDs: the same input gives the same image",
            ));
        }
    };
    let given = prototype.extended.hash_seed.map(|seed| extant_ondisk::Uuid(seed.into_bytes()));
    let mut identity = Identity::given(options, uuid, given.unwrap_or(hash_seed), time);
    identity.lost_found_selinux = tree.lost_found_label().map(<[u8]>::to_vec);
    Ok(identity)
}

/// Options of mkfs that an image from sources has no use for.
fn refuse_options(options: &Options) -> Result<(), BuildError> {
    let refused = [
        (options.bad_blocks_file.is_some() || options.check_blocks > 0, "bad blocks (-c, -l)"),
        (options.undo_file.is_some(), "undo files (-z)"),
        (options.super_only, "-S"),
        (options.dry_run, "-n"),
        (options.journal.device.is_some(), "external journals (-J device=)"),
        (options.source.is_some(), "-d: the sources are arguments"),
        (options.creator_os.is_some(), "other creators (-o)"),
    ];
    match refused.into_iter().find(|(is_given, _)| *is_given) {
        Some((_, what)) => Err(BuildError::Unsupported(what)),
        None => Ok(()),
    }
}
