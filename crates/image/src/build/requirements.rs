//! The requirements of the tree, before the size of the volume is known: how each node's data are
//! stored, how many blocks each directory takes.

use extant_layout::pack::{DirItem, DirPlan, DirectoryPacker};
use extant_ondisk::dirent::{DirFormat, FileType};
use extant_ondisk::dx_hash::{DirHasher, HashVersion};
use extant_ondisk::extent::ROOT_SIZE;
use extant_ondisk::indirect::IndirectMap;
use extant_ondisk::inline_data::{IN_I_BLOCK, xattr_len_of};
use extant_ondisk::superblock::Superblock;
use extant_ondisk::xattr::pack::Room;
use extant_ondisk::xattr::{Xattr, XattrName, room_in_inode};
use extant_ondisk::{
    CompatFeatures, FileBlock, Geometry, IncompatFeatures, InodeNo, MAX_FILE_BLOCKS,
    RoCompatFeatures,
};
use rayon::prelude::*;

use super::attributes::{Attributes, entries_of};
use super::error::{BuildError, Limit};
use super::numbers::{Directory, Numbers};
use crate::source::{EntryName, NodeId, NodeKind, Tree, XattrSetId};

/// The name that e2fsck wants in the root directory.
pub(super) const LOST_FOUND: &[u8] = b"lost+found";
/// ext4 counts at most this many names of one inode.
const MAX_LINKS: u32 = 65_000;
/// A directory holds this many subdirectories before its links cannot be counted (`dir_nlink`).
const MAX_SUBDIRECTORIES: u32 = 64_998;
/// Shortest chain of records in an attribute.
const MIN_INLINE_PART: usize = 12;

/// Properties of all files that the features determine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) block_size: u64,
    pub(super) cluster_blocks: u64,
    pub(super) has_extents: bool,
    has_inline_data: bool,
    has_huge_file: bool,
    has_dir_nlink: bool,
    has_large_dir: bool,
    /// Bytes for attributes after the inode's fields.
    inode_space: usize,
    has_ea_inodes: bool,
    /// Blocks of the largest file.
    max_file_blocks: u64,
}

impl Shape {
    fn new(geometry: &Geometry, extra_isize: u16) -> Self {
        let has_extents = geometry.has_incompat(IncompatFeatures::EXTENTS);
        let indirect = IndirectMap::new(geometry.block_size);
        Self {
            block_size: u64::from(geometry.block_size),
            cluster_blocks: u64::from(geometry.blocks_per_cluster),
            has_extents,
            has_inline_data: geometry.has_incompat(IncompatFeatures::INLINE_DATA),
            has_huge_file: geometry.has_ro_compat(RoCompatFeatures::HUGE_FILE),
            has_dir_nlink: geometry.has_ro_compat(RoCompatFeatures::DIR_NLINK),
            has_large_dir: geometry.has_incompat(IncompatFeatures::LARGEDIR),
            inode_space: usize::from(geometry.inode_size) - 128 - usize::from(extra_isize),
            has_ea_inodes: geometry.has_incompat(IncompatFeatures::EA_INODE),
            max_file_blocks: if has_extents { MAX_FILE_BLOCKS } else { indirect.max_blocks() },
        }
    }

    /// Bytes a cluster.
    pub(super) fn cluster_size(&self) -> u64 {
        self.block_size * self.cluster_blocks
    }

    fn room(&self) -> Room {
        Room {
            inode_space: self.inode_space,
            block_size: self.block_size as usize, // at most 64 KiB
            has_ea_inodes: self.has_ea_inodes,
        }
    }
}

/// How a node's data are kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Storage {
    /// There are none, or they are a device number or a short target in `i_block`.
    InIBlock,
    /// In `i_block` and this many bytes of the attribute `system.data`.
    Inline(usize),
    /// In blocks.
    Blocks,
}

/// A directory and what it takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirRequirements {
    pub(super) node: NodeId,
    pub(super) parent: InodeNo,
    pub(super) plan: DirPlan,
    /// Its names lie in the inode, with this many bytes in the attribute.
    pub(super) inline: Option<u32>,
}

/// Requirements of the tree.
#[derive(Debug)]
pub(super) struct Requirements<'t> {
    pub(super) tree: &'t Tree,
    pub(super) shape: Shape,
    pub(super) packer: DirectoryPacker,
    format: DirFormat,
    pub(super) attributes: Attributes,
    pub(super) numbers: Numbers,
    /// The tree's own lost+found.
    pub(super) lost_found: Option<NodeId>,
    /// In the order of their inodes.
    pub(super) dirs: Vec<DirRequirements>,
    /// Symbolic links with a block, by node.
    pub(super) symlinks: Vec<NodeId>,
    /// Regular files with blocks, by node: the order of their data in the sources.
    pub(super) files: Vec<NodeId>,
}

impl<'t> Requirements<'t> {
    /// Of a tree on volumes like this one: only features and sizes count here, not how many blocks
    /// there are. Ordinary inodes start at `first_inode`.
    pub(super) fn new(
        tree: &'t Tree,
        geometry: &Geometry,
        superblock: &Superblock,
        first_inode: u32,
        extra_isize: u16,
    ) -> Result<Self, BuildError> {
        let shape = Shape::new(geometry, extra_isize);
        let lost_found = lost_found_of(tree)?;
        check_count(tree, first_inode)?;
        let index = if geometry.has_compat(CompatFeatures::DIR_INDEX) {
            let hasher = DirHasher::of_volume(superblock)?;
            HashVersion::decode(superblock.def_hash_version).map(|version| (version, hasher))
        } else {
            None
        };
        let packer = DirectoryPacker::new(geometry, index);
        let format = DirFormat::new(geometry, InodeNo(0), 0);
        let (numbers, directories) = Numbers::assign(tree, lost_found, first_inode);
        let mut requirements = Self {
            tree,
            shape,
            packer,
            format,
            attributes: Attributes::new(tree, shape.room(), |node| {
                inline_len(tree, &shape, &format, node, lost_found).is_some()
            })?,
            dirs: requirements_of(&numbers, &directories),
            numbers,
            lost_found,
            symlinks: Vec::new(),
            files: Vec::new(),
        };
        requirements.collect()?;
        requirements.plan_directories()?;
        Ok(requirements)
    }

    /// Sorts the nodes by kind and refuses what the format cannot hold.
    fn collect(&mut self) -> Result<(), BuildError> {
        for (id, node) in self.tree.nodes() {
            let refuse =
                |limit| BuildError::Limit { path: EntryName(self.tree.path_of(id)), limit };
            match node.kind() {
                // Their links are subdirectories, which have other limits.
                NodeKind::Directory => continue,
                NodeKind::Regular => {
                    let blocks = node.size().div_ceil(self.shape.block_size);
                    if blocks > self.shape.max_file_blocks {
                        let max = self.shape.max_file_blocks;
                        return Err(refuse(Limit::FileBlocks { blocks, max }));
                    }
                    // Without huge_file 32 bits count sectors.
                    if !self.shape.has_huge_file
                        && self.clusters_of(id) * self.shape.cluster_size() >= 1 << 40
                    {
                        return Err(refuse(Limit::HugeFile));
                    }
                    if self.storage(id) == Storage::Blocks {
                        self.files.push(id);
                    }
                }
                NodeKind::Symlink => {
                    if node.size() >= self.shape.block_size {
                        let (bytes, block_size) = (node.size(), self.shape.block_size);
                        return Err(refuse(Limit::Symlink { bytes, block_size }));
                    }
                    if self.storage(id) == Storage::Blocks {
                        self.symlinks.push(id);
                    }
                }
                _ => {}
            }
            if node.links() > MAX_LINKS {
                return Err(refuse(Limit::Links { links: node.links(), max: MAX_LINKS }));
            }
        }
        Ok(())
    }

    fn plan_directories(&mut self) -> Result<(), BuildError> {
        let mut dirs = std::mem::take(&mut self.dirs);
        let this = &*self;
        dirs.par_iter_mut()
            .with_min_len(64)
            .try_for_each_init(Vec::new, |items, dir| this.plan_directory(dir, items))?;
        self.dirs = dirs;
        Ok(())
    }

    fn plan_directory(
        &self,
        dir: &mut DirRequirements,
        items: &mut Vec<DirItem<'t>>,
    ) -> Result<(), BuildError> {
        if let Some(len) = self.inline_len(dir.node) {
            dir.inline = Some(len as u32); // less than an inode
            return Ok(());
        }
        let path = || EntryName(self.tree.path_of(dir.node));
        let refuse = |limit| Err(BuildError::Limit { path: path(), limit });
        self.items(dir.node, items);
        let plan = match self.packer.plan(items) {
            Ok(plan) => plan,
            Err(error) => return refuse(Limit::Index(error)),
        };
        let bytes = u64::from(plan.blocks()) * self.shape.block_size;
        if bytes >= 1 << 31 && !self.shape.has_large_dir {
            return refuse(Limit::LargeDirectory(bytes));
        }
        let subdirectories = self.links(dir.node).saturating_sub(2);
        if subdirectories > MAX_SUBDIRECTORIES && !(self.shape.has_dir_nlink && plan.is_indexed) {
            let (count, max) = (subdirectories, MAX_SUBDIRECTORIES);
            return refuse(Limit::Subdirectories { count, max });
        }
        dir.plan = plan;
        Ok(())
    }

    /// The names of a directory, ready to be planned or written.
    pub(super) fn items(&self, directory: NodeId, items: &mut Vec<DirItem<'t>>) {
        items.clear();
        if self.adds_lost_found(directory) {
            items.push(DirItem::new(LOST_FOUND, InodeNo::FIRST_ORDINARY, FileType::Directory));
        }
        items.extend(self.tree.dirents(directory).iter().map(|dirent| {
            let node = dirent.node();
            let file_type = FileType::of_mode(self.tree.node(node).mode());
            DirItem::new(self.tree.name(dirent), self.numbers.of(node), file_type)
        }));
    }

    fn adds_lost_found(&self, directory: NodeId) -> bool {
        directory == NodeId::ROOT && self.lost_found.is_none()
    }

    /// Links of a node in the image: the root may get a lost+found.
    pub(super) fn links(&self, node: NodeId) -> u32 {
        self.tree.node(node).links() + u32::from(self.adds_lost_found(node))
    }

    /// How a node's data are stored; for directories see their [`DirRequirements`].
    pub(super) fn storage(&self, id: NodeId) -> Storage {
        let node = self.tree.node(id);
        match node.kind() {
            NodeKind::Regular if node.size() > 0 => match self.inline_len(id) {
                Some(len) => Storage::Inline(len),
                // All hole: no block at all.
                None => Storage::Blocks,
            },
            NodeKind::Symlink if node.size() >= ROOT_SIZE as u64 => Storage::Blocks,
            _ => Storage::InIBlock,
        }
    }

    fn inline_len(&self, id: NodeId) -> Option<usize> {
        inline_len(self.tree, &self.shape, &self.format, id, self.lost_found)
    }

    /// The logical blocks of a regular file that have data, in whole clusters but for the file's
    /// end, in order.
    pub(super) fn ranges(&self, id: NodeId) -> impl Iterator<Item = (FileBlock, u64)> + '_ {
        let Shape { block_size, cluster_blocks, .. } = self.shape;
        let end_block = self.tree.node(id).size().div_ceil(block_size);
        let mut segments = self.tree.segments(id).peekable();
        std::iter::from_fn(move || {
            let blocks = |offset: u64, length: u64| {
                let cluster = block_size * cluster_blocks;
                let start = offset / cluster * cluster_blocks;
                (start, (offset + length).div_ceil(cluster) * cluster_blocks)
            };
            let first = segments.next()?;
            let (start, mut end) = blocks(first.offset, first.length);
            while let Some(next) = segments.peek() {
                let (next_start, next_end) = blocks(next.offset, next.length);
                if next_start > end {
                    break;
                }
                end = next_end;
                segments.next();
            }
            let end = end.min(end_block);
            Some((FileBlock(start), end - start))
        })
    }

    /// Clusters of a regular file's data.
    pub(super) fn clusters_of(&self, id: NodeId) -> u64 {
        self.ranges(id).map(|(_, blocks)| blocks.div_ceil(self.shape.cluster_blocks)).sum()
    }

    /// Inodes that the tree takes besides the reserved ones and lost+found.
    pub(super) fn inodes(&self) -> u64 {
        self.numbers.count() + self.attributes.ea_files.len() as u64
    }

    /// The inode of a value of its own.
    pub(super) fn ea_inode(&self, index: usize) -> InodeNo {
        InodeNo(self.numbers.end().saturating_add(index as u32))
    }
}

/// All directories in the order of their inodes, not planned yet.
fn requirements_of(numbers: &Numbers, directories: &[Directory]) -> Vec<DirRequirements> {
    let plan = DirPlan { leaves: 0, nodes: [0; 2], is_indexed: false };
    let requirements = |&(node, parent): &Directory| DirRequirements {
        node,
        parent: numbers.of(parent),
        plan,
        inline: None,
    };
    let mut dirs: Vec<_> = directories.iter().map(requirements).collect();
    dirs.sort_unstable_by_key(|dir| numbers.of(dir.node));
    dirs
}

/// The tree's own lost+found, which must be a directory then.
fn lost_found_of(tree: &Tree) -> Result<Option<NodeId>, BuildError> {
    let Some(dirent) = tree.lookup(NodeId::ROOT, LOST_FOUND) else { return Ok(None) };
    if tree.node(dirent.node()).kind() == NodeKind::Directory {
        Ok(Some(dirent.node()))
    } else {
        Err(BuildError::Limit { path: EntryName(b"/lost+found".to_vec()), limit: Limit::LostFound })
    }
}

fn check_count(tree: &Tree, first_inode: u32) -> Result<(), BuildError> {
    let most = u64::from(u32::MAX) - u64::from(first_inode);
    let count = tree.node_count() as u64;
    if count > most { Err(BuildError::TooManyFiles { count, most }) } else { Ok(()) }
}

/// Bytes of a file or directory stored in its inode that are in the attribute; `None` if it is not
/// stored there. All other attributes must fit in addition to it.
fn inline_len(
    tree: &Tree,
    shape: &Shape,
    format: &DirFormat,
    id: NodeId,
    lost_found: Option<NodeId>,
) -> Option<usize> {
    if !shape.has_inline_data || id == NodeId::ROOT || Some(id) == lost_found {
        return None;
    }
    let node = tree.node(id);
    let most = IN_I_BLOCK + shape.inode_space;
    let len = match node.kind() {
        NodeKind::Regular if (1..=most as u64).contains(&node.size()) => {
            (node.size() as usize).saturating_sub(IN_I_BLOCK)
        }
        NodeKind::Directory => {
            let dirents = tree.dirents(id);
            if dirents.len() > most / MIN_INLINE_PART {
                return None;
            }
            xattr_len_of(dirents.iter().map(|dirent| format.rec_len(tree.name(dirent).len())))
        }
        _ => return None,
    };
    let data = Xattr::new(XattrName::inline_data(), vec![0; len]);
    let others = if node.xattr_set() == XattrSetId::NONE {
        0
    } else {
        entries_of(tree, node.xattr_set()).ok()?.iter().map(Xattr::stored_len).sum()
    };
    (data.stored_len() + others <= room_in_inode(shape.inode_space)).then_some(len)
}
