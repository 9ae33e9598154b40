//! The entries of a directory that fast commits name, all in memory.

use extant_layout::pack::{DirItem, DirPlan, DirectoryPacker};
use extant_ondisk::dirent::{self, DirFormat};
use extant_ondisk::dx_hash::{DirHasher, HashVersion};
use extant_ondisk::extent::Extent;
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::superblock::Superblock;
use extant_ondisk::{BlockNo, CompatFeatures, FileBlock, Flaw, InodeNo, Location};

use super::file::File;
use super::inline::{self, DirEntries};
use super::volume::{Volume, allocate};
use crate::JournalError;

pub(super) struct Names {
    pub(super) parent: InodeNo,
    pub(super) entries: DirEntries,
}

impl Names {
    /// A new, empty directory.
    pub(super) fn empty(parent: InodeNo) -> Self {
        Self { parent, entries: DirEntries::new() }
    }

    /// Reads a directory, hashed or linear: htree index blocks read as empty blocks.
    pub(super) fn load(volume: &Volume<'_>, file: &File) -> Result<Self, JournalError> {
        if !file.inode.is_dir() {
            return Err(JournalError::FastCommit(
                "directory entry in a file that is not a directory",
            ));
        }
        let is_hashed = InodeFlags::ENCRYPT | InodeFlags::CASEFOLD;
        if file.inode.flags.contains(is_hashed) {
            return Err(JournalError::FastCommit(
                "entry in a directory that is both encrypted and casefolded",
            ));
        }
        if file.inode.is_inline() {
            let (parent, entries) = inline::load(volume, file)?;
            return Ok(Self { parent, entries });
        }
        let geometry = volume.geometry();
        let format = DirFormat::new(geometry, file.number, file.inode.generation);
        let is_indexed = file.inode.flags.contains(InodeFlags::INDEX);
        let mut names = Self::empty(InodeNo(0));
        for extent in &file.extents {
            for step in 0..u64::from(extent.len) {
                let at = FileBlock(extent.block.0 + step);
                let block = &volume.read(BlockNo(extent.start.0 + step))?[..];
                if at.0 == 0 {
                    names.parent = dirent::dot_entries(&format, block)?.1;
                }
                // Index blocks have another kind of tail. The kernel leaves that of the leaf in a
                // root that it was.
                let is_root = is_indexed && at.0 == 0;
                if format.checksum_seed.is_some() && format.has_tail(block) && !is_root {
                    format.verify(block, at)?;
                }
                for entry in format.entries(block, at) {
                    let entry = entry?;
                    if let Some(inode) = entry.inode.filter(|_| entry.is_used() && !entry.is_dot())
                    {
                        names.entries.insert(entry.name.to_vec(), (inode, entry.file_type));
                    }
                }
            }
        }
        if names.parent.0 == 0 {
            let place = Location::DirBlock(file.number, FileBlock(0));
            return Err(Flaw::Rule("the first block is a hole").at(place).into());
        }
        Ok(names)
    }

    /// Resizes the directory's map to the blocks that its entries need. Returns the blocks that it
    /// frees.
    pub(super) fn shrink(
        &self,
        volume: &Volume<'_>,
        file: &mut File,
    ) -> Result<Vec<(BlockNo, u64)>, JournalError> {
        if file.inode.is_inline() {
            return Ok(Vec::new());
        }
        let (_, plan, _) = self.plan(volume, file)?;
        Ok(file.unmap(u64::from(plan.blocks()), u64::MAX))
    }

    fn plan(
        &self,
        volume: &Volume<'_>,
        file: &File,
    ) -> Result<(DirectoryPacker, DirPlan, Vec<DirItem<'_>>), JournalError> {
        let mut items: Vec<_> = self
            .entries
            .iter()
            .map(|(name, (inode, file_type))| DirItem::new(name, *inode, *file_type))
            .collect();
        let geometry = volume.geometry();
        let superblock = Superblock::decode(&volume.raw);
        // A casefolded directory hashes folded names: it gets no index.
        let may_index = geometry.has_compat(CompatFeatures::DIR_INDEX)
            && !file.inode.flags.contains(InodeFlags::CASEFOLD);
        let index = match HashVersion::decode(superblock.def_hash_version) {
            Some(version) if may_index => Some((version, DirHasher::of_volume(&superblock)?)),
            _ => None,
        };
        let packer = DirectoryPacker::new(geometry, index);
        let plan = packer
            .plan(&mut items)
            .map_err(|_| JournalError::FastCommit("too many entries for a directory"))?;
        Ok((packer, plan, items))
    }

    /// Maps the hole at a logical block, up to the end of its cluster or of the directory's
    /// `blocks`.
    fn fill_hole(
        &self,
        volume: &mut Volume<'_>,
        file: &mut File,
        at: u64,
        blocks: u64,
    ) -> Result<(), JournalError> {
        let per_cluster = u64::from(volume.geometry().blocks_per_cluster);
        let (first, within) = (at - at % per_cluster, at % per_cluster);
        // Logical blocks of one cluster lie in one cluster.
        let shared = file.extents.iter().find_map(|extent| {
            let block = extent.block.0.max(first);
            let is_here = block < extent.end().0.min(first + per_cluster);
            let physical = extent.physical(FileBlock(block)).filter(|_| is_here)?;
            Some(BlockNo(physical.0 - (block - first)))
        });
        let cluster = match shared {
            Some(cluster) => cluster,
            None => {
                let goal = file.extents.first().map_or(BlockNo(0), |extent| extent.start);
                allocate(volume, goal)?
            }
        };
        let mapped =
            |block: u64| file.extents.iter().any(|extent| extent.contains(FileBlock(block)));
        let end = (first + per_cluster).min(blocks);
        let len = (at..end).take_while(|block| !mapped(*block)).count();
        let start = BlockNo(cluster.0 + within);
        // At most a cluster.
        file.map(Extent { block: FileBlock(at), len: len as u32, start, is_unwritten: false });
        Ok(())
    }

    /// Packs the names into the directory's inode or blocks, and into new ones.
    pub(super) fn store(
        &self,
        volume: &mut Volume<'_>,
        file: &mut File,
    ) -> Result<(), JournalError> {
        if file.inode.is_inline() {
            if inline::store(volume, file, self.parent, &self.entries)? {
                return Ok(());
            }
            inline::leave_inode(volume, file)?;
        }
        let (packer, plan, items) = self.plan(volume, file)?;
        let block_len = volume.geometry().block_len();
        let blocks = u64::from(plan.blocks());
        let mut at = 0;
        while at < blocks {
            // Holes are filled: a packed directory has none.
            let held = file.extents.iter().find(|extent| extent.contains(FileBlock(at)));
            match held.map(|extent| extent.end().0) {
                Some(end) => at = end,
                None => self.fill_hole(volume, file, at, blocks)?,
            }
        }
        let mut bytes = vec![0; plan.blocks() as usize * block_len];
        let geometry = volume.geometry();
        let format = DirFormat::new(geometry, file.number, file.inode.generation);
        packer.write(&plan, file.number, self.parent, format.checksum_seed, &items, &mut bytes);
        for (at, bytes) in (0..).zip(bytes.chunks_exact(block_len)) {
            let place = file.extents.iter().find_map(|extent| extent.physical(FileBlock(at)));
            volume.write(place.expect("every block was mapped above"), bytes)?;
        }
        file.inode.size = blocks * block_len as u64;
        file.inode.flags.set(InodeFlags::INDEX, plan.is_indexed);
        Ok(())
    }
}
