//! Pass 3A: packs directories again from their entries.

use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::map::FileMap;
use crate::pass2::DirContext;
use crate::store::CheckError;
use crate::tables::{DirFlags, DirInfo};
use extant_layout::pack::{DirItem, DirectoryPacker};
use extant_ondisk::dirent::FileType;
use extant_ondisk::dx_hash::{DirHash, DirHasher, HashVersion};
use extant_ondisk::extent::Extent;
use extant_ondisk::htree::{HtreeFormat, HtreeNode, IndexKind};
use extant_ondisk::inode::{Inode, InodeFlags};
use extant_ondisk::{BlockNo, CompatFeatures, FileBlock, InodeNo};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

/// The bits of a block number in an index that are used.
const BLOCK_BITS: u64 = 0x0fff_ffff;

/// A name of a directory that is packed again.
struct Name {
    /// The logical block that it was found in.
    at: u64,
    bytes: Vec<u8>,
    inode: InodeNo,
    file_type: FileType,
    stored_hash: Option<DirHash>,
}

/// Where the index of a directory leads.
struct LeavesByHash {
    hasher: DirHasher,
    /// The lowest hash of each leaf with its logical block, by hash.
    leaves: Vec<(u32, u64)>,
}

impl LeavesByHash {
    fn leads_to(&self, name: &Name) -> bool {
        let hash = self.hasher.hash(&name.bytes).hash;
        let after = self.leaves.partition_point(|(least, _)| *least <= hash);
        after.checked_sub(1).is_some_and(|at| self.leaves[at].1 == name.at)
    }
}

impl Check<'_> {
    /// The index that a directory has, as far as it can be read; `None` without one.
    fn leaves_by_hash(
        &self,
        dir: &DirInfo,
        map: &FileMap,
        context: &DirContext,
    ) -> Result<Option<LeavesByHash>, CheckError> {
        // Names that are compared without case have the hash of another form.
        let Some(root) = map.physical(0).filter(|_| !dir.has(DirFlags::CASEFOLD)) else {
            return Ok(None);
        };
        if !dir.has(DirFlags::INDEXED) {
            return Ok(None);
        }
        let format = HtreeFormat::new(self.geometry, dir.inode, 0);
        let bytes = self.store.read(root)?;
        let Ok((root, node)) = format.root(&bytes) else { return Ok(None) };
        let Some(hasher) = context.hasher(root.hash_version).copied() else { return Ok(None) };
        let mut level: Vec<(u32, u64)> = entries_of(&node);
        for _ in 0..root.indirect_levels {
            let mut below = Vec::new();
            for (least, at) in level {
                let Some(block) = map.physical(at) else { continue };
                let bytes = self.store.read(block)?;
                if let Ok(node) = format.node(&bytes, FileBlock(at), IndexKind::Node) {
                    let mut entries = entries_of(&node);
                    if let Some(first) = entries.first_mut() {
                        first.0 = least;
                    }
                    below.append(&mut entries);
                }
                // An index has no more entries than the directory has blocks.
                if below.len() as u64 > map.end() {
                    return Ok(None);
                }
            }
            level = below;
        }
        level.sort_unstable();
        Ok(Some(LeavesByHash { hasher, leaves: level }))
    }

    pub(super) fn rebuild_directories(&self) -> Result<(), CheckError> {
        if !self.is_repair() {
            return Ok(());
        }
        for dir in self.dirs.iter() {
            // One block stays one block.
            let wanted =
                self.options.optimize_directories && !dir.has(DirFlags::INLINE) && dir.blocks > 1;
            if !(dir.has(DirFlags::REBUILD) || wanted) || !self.inodes.is_used(dir.inode) {
                continue;
            }
            if self.should_fix(Finding::new(Code::DirectoryOptimized).inode(dir.inode))? {
                self.rebuild_directory(dir)?;
            }
        }
        Ok(())
    }

    fn rebuild_directory(&self, dir: &DirInfo) -> Result<(), CheckError> {
        let mut record = self.record(dir.inode)?;
        let Ok(mut inode) = Inode::decode(&record, dir.inode, self.geometry) else { return Ok(()) };
        if inode.is_inline() {
            return Ok(());
        }
        let old = self.read_map(dir.inode, &inode)?;
        let context = self.dir_context();
        let mut names = self.collect_names(dir, &old)?;
        if let Some(index) = self.leaves_by_hash(dir, &old, &context)? {
            // Of several entries of one name the first keeps it.
            names.sort_by_cached_key(|name| !index.leads_to(name));
        }
        self.make_unique(dir, &mut names)?;
        let is_keyed = dir.has(DirFlags::ENCRYPTED) && dir.has(DirFlags::CASEFOLD);
        let version = if is_keyed {
            HashVersion::SipHash
        } else {
            HashVersion::decode(self.superblock.def_hash_version)
                .filter(|version| context.hasher(*version).is_some())
                .unwrap_or(HashVersion::HalfMd4)
        };
        let hasher =
            context.hasher(version).or_else(|| context.hasher(HashVersion::HalfMd4)).copied();
        let index = hasher
            .filter(|_| self.geometry.has_compat(CompatFeatures::DIR_INDEX))
            .map(|hasher| (version, hasher));
        let casefold = context
            .casefold
            .filter(|_| dir.has(DirFlags::CASEFOLD) && !dir.has(DirFlags::ENCRYPTED));
        let mut items: Vec<DirItem<'_>> = names
            .iter()
            .map(|name| {
                let item = DirItem::new(&name.bytes, name.inode, name.file_type);
                match (name.stored_hash, casefold, hasher) {
                    (Some(hash), ..) if is_keyed => item.with_hash(hash),
                    (_, Some(casefold), Some(hasher)) => {
                        item.with_hash(hasher.hash(&casefold.key(&name.bytes)))
                    }
                    _ => item,
                }
            })
            .collect();
        let mut packer = DirectoryPacker::new(self.geometry, index);
        if is_keyed {
            packer = packer.with_stored_hashes();
        }
        let Ok(plan) = packer.plan(&mut items) else { return Ok(()) };
        let Some(new) = self.places_for(dir, &old, u64::from(plan.blocks()))? else {
            return Ok(());
        };
        let mut bytes = vec![0; plan.blocks() as usize * self.geometry.block_len()];
        let parent = if dir.parent().0 == 0 { dir.dotdot() } else { dir.parent() };
        let seed = self.geometry.has_metadata_csum().then_some(dir.checksum_seed);
        packer.write(&plan, dir.inode, parent, seed, &items, &mut bytes);
        for ((_, block), bytes) in new.blocks().zip(bytes.chunks_exact(self.geometry.block_len())) {
            self.store.write(block, bytes)?;
        }
        if !self.write_map(dir.inode, &mut inode, &old, &new)? {
            return Ok(());
        }
        let kept: std::collections::BTreeSet<_> =
            new.blocks().map(|(_, block)| self.blocks.cluster_of(block)).collect();
        for (_, block) in old.blocks() {
            if !kept.contains(&self.blocks.cluster_of(block)) {
                self.release_block(block);
            }
        }
        inode.size = u64::from(plan.blocks()) * u64::from(self.geometry.block_size);
        inode.flags.set(InodeFlags::INDEX, plan.is_indexed);
        inode.encode_into(&mut record, self.geometry);
        self.store.write_inode_ordered(dir.inode, &mut record);
        Ok(())
    }

    fn collect_names(&self, dir: &DirInfo, map: &FileMap) -> Result<Vec<Name>, CheckError> {
        let format = self.dir_format(dir);
        let mut names = Vec::new();
        for (at, block) in map.blocks() {
            let bytes = self.store.read(block)?;
            for entry in format.entries(&bytes, FileBlock(at)).map_while(Result::ok) {
                let Some(inode) = entry.inode.filter(|_| !entry.is_dot()) else { continue };
                names.push(Name {
                    at,
                    bytes: entry.name.to_vec(),
                    inode,
                    file_type: entry.file_type,
                    stored_hash: entry.stored_hash,
                });
            }
        }
        Ok(names)
    }

    /// Entries of one name: of one inode they become one, of several all but the first get another
    /// name.
    fn make_unique(&self, dir: &DirInfo, names: &mut Vec<Name>) -> Result<(), CheckError> {
        let casefold = self.dir_context().casefold.filter(|_| dir.has(DirFlags::CASEFOLD));
        let key = |name: &[u8]| match casefold {
            Some(casefold) => casefold.key(name).into_owned(),
            None => name.to_vec(),
        };
        let mut known: HashMap<Vec<u8>, InodeNo> = HashMap::with_capacity(names.len());
        let mut kept: Vec<Name> = Vec::with_capacity(names.len());
        let mut later: Vec<Name> = Vec::new();
        for name in names.drain(..) {
            match known.entry(key(&name.bytes)) {
                Entry::Vacant(new) => {
                    new.insert(name.inode);
                    kept.push(name);
                }
                Entry::Occupied(old) if *old.get() == name.inode => {
                    let finding = Finding::new(Code::DuplicateEntry)
                        .dir(dir.inode)
                        .inode(name.inode)
                        .name(name.bytes.clone());
                    if self.should_fix(finding)? {
                        self.inodes.uncount_name(name.inode);
                    } else {
                        kept.push(name);
                    }
                }
                Entry::Occupied(_) => later.push(name),
            }
        }
        // Lower numbers are taken: a name may occur a hundred thousand times.
        let mut free: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        for mut name in later {
            let first = free.entry(key(&mutated(&name.bytes, 0))).or_default();
            let other = (*first..u32::MAX)
                .map(|number| (number, mutated(&name.bytes, number)))
                .find(|(_, other)| !known.contains_key(&key(other)));
            let Some((number, other)) = other else { continue };
            *first = number;
            let finding = Finding::new(Code::NameNotUnique)
                .dir(dir.inode)
                .inode(name.inode)
                .name(name.bytes.clone())
                .detail(other.escape_ascii().to_string());
            if self.should_fix(finding)? {
                known.insert(key(&other), name.inode);
                name.bytes = other;
            }
            kept.push(name);
        }
        *names = kept;
        Ok(())
    }

    /// A map of `blocks` blocks for a directory that is rebuilt. They are new ones, so that the old
    /// blocks keep all names until the inode maps the new ones. On a full volume the old blocks are
    /// reused, unless the directory is sound; `None` then.
    fn places_for(
        &self,
        dir: &DirInfo,
        old: &FileMap,
        blocks: u64,
    ) -> Result<Option<FileMap>, CheckError> {
        let per_cluster = u64::from(self.geometry.blocks_per_cluster);
        let goal = old.extents.first().map_or(BlockNo(0), |extent| extent.start);
        let fresh = self.allocate_blocks(goal, blocks.div_ceil(per_cluster))?;
        let places = match fresh {
            Some(fresh) => self.in_clusters(&fresh, blocks),
            None if !dir.has(DirFlags::REBUILD) => return Ok(None),
            None => {
                let mut places = self.places_in_place(old, blocks);
                let missing = blocks - places.len() as u64;
                let more = self.allocate_blocks(goal, missing.div_ceil(per_cluster))?;
                let Some(more) = more else { return Ok(None) };
                places.extend(self.in_clusters(&more, missing));
                places
            }
        };
        let mut new = FileMap { extents: Vec::new(), nodes: old.nodes.clone() };
        for (at, block) in places.into_iter().enumerate() {
            new.extents.push(Extent {
                block: FileBlock(at as u64),
                len: 1,
                start: block,
                is_unwritten: false,
            });
        }
        new.join();
        Ok(Some(new))
    }

    /// The first `blocks` blocks of clusters.
    fn in_clusters(&self, clusters: &[BlockNo], blocks: u64) -> Vec<BlockNo> {
        let per_cluster = u64::from(self.geometry.blocks_per_cluster);
        let all = clusters.iter().flat_map(|base| (0..per_cluster).map(|at| BlockNo(base.0 + at)));
        all.take(blocks as usize).collect()
    }

    /// The old blocks that the directory can keep, as many as it needs.
    fn places_in_place(&self, old: &FileMap, blocks: u64) -> Vec<BlockNo> {
        let in_order: Option<Vec<BlockNo>> = (0..blocks).map(|at| old.physical(at)).collect();
        match in_order {
            Some(places) => places,
            // With clusters each block has its place in one.
            None if self.geometry.blocks_per_cluster > 1 => Vec::new(),
            None => old.blocks().map(|(_, block)| block).take(blocks as usize).collect(),
        }
    }
}

/// Lowest hash and logical block of each entry of an index block.
fn entries_of(node: &HtreeNode<'_>) -> Vec<(u32, u64)> {
    node.entries().map(|entry| (entry.hash, entry.block.0 & BLOCK_BITS)).collect()
}

/// Another name made of one, as by e2fsck: `~N` in the padding of the name's record, or in place of
/// its last bytes otherwise. A name that already ends so gets the next number.
fn mutated(name: &[u8], number: u32) -> Vec<u8> {
    const SUFFIX: usize = 2;
    const LONGEST: usize = 255;
    let (room, stem, number) = match name {
        [stem @ .., b'~', digit] if digit.is_ascii_digit() && !stem.is_empty() => {
            let next = u32::from(digit - b'0') + 1;
            (name.len(), stem, number.saturating_add(next))
        }
        _ => {
            let room = (name.len() + SUFFIX).min(name.len().next_multiple_of(4));
            (room.min(LONGEST), name, number)
        }
    };
    let suffix = format!("~{number}");
    let keep = stem.len().min(room.saturating_sub(suffix.len()));
    [&stem[..keep], suffix.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names that e2fsck 1.47.0 gives to the second file of each of these names.
    #[test]
    fn names_are_mutated_as_by_e2fsck() {
        let long = "x".repeat(254);
        let longest = format!("{}~0", "x".repeat(253));
        for (name, expected) in [
            ("a", "a~0"),
            ("A.", "A.~0"),
            ("q12", "q1~0"),
            ("hard", "ha~0"),
            ("three", "three~0"),
            ("abcdef", "abcdef~0"),
            ("abcdefgh", "abcdef~0"),
            ("modules.conf.old", "modules.conf.o~0"),
            ("q~1", "q~2"),
            (&long, &longest),
        ] {
            let found = mutated(name.as_bytes(), 0);
            assert_eq!(found.escape_ascii().to_string(), expected, "{name}");
        }
    }
}
