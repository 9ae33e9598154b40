//! Packs whole directories: a single linear block if it holds all entries, otherwise an htree whose
//! leaves are filled in hash order.
//!
//! Leaves are filled until the next entry does not fit: a small image matters more here than room
//! for new entries, so the first entry added to a full leaf splits it. The root is first, then the
//! nodes level by level, then the leaves, so that the index blocks of a lookup are adjacent.
//! Without `dir_index` (or a usable hash), blocks are linear, in the given order.

use extant_ondisk::dirent::{DirFormat, FileType, NewEntry};
use extant_ondisk::dx_hash::{DirHash, DirHasher, HashVersion};
use extant_ondisk::htree::{HtreeFormat, HtreeRoot, IndexKind};
use extant_ondisk::{Geometry, InodeNo};

/// An entry to be packed.
#[derive(Clone, Copy, Debug)]
pub struct DirItem<'a> {
    /// The file's name.
    pub name: &'a [u8],
    /// The file's inode; not used for planning.
    pub inode: InodeNo,
    /// The file's type; not used for planning.
    pub file_type: FileType,
    /// Computed by the packer unless the caller gave it.
    hash: DirHash,
    /// Whether the caller gave the hash: that of the folded name, or one stored in the directory.
    has_hash: bool,
}

impl<'a> DirItem<'a> {
    /// Creates an entry.
    pub fn new(name: &'a [u8], inode: InodeNo, file_type: FileType) -> Self {
        Self { name, inode, file_type, hash: DirHash::default(), has_hash: false }
    }

    /// As [`Self::new`], with a hash that is not computed from the name's bytes.
    #[must_use]
    pub fn with_hash(self, hash: DirHash) -> Self {
        Self { hash, has_hash: true, ..self }
    }
}

/// The number and use of the blocks of a directory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DirPlan {
    /// Number of blocks that hold entries.
    pub leaves: u32,
    /// Number of nodes of the level below the root and, with `large_dir`, of the level below that.
    pub nodes: [u32; 2],
    /// Whether there is a root: the inode then has the index flag.
    pub is_indexed: bool,
}

impl DirPlan {
    /// Number of blocks of the directory.
    pub fn blocks(&self) -> u32 {
        self.leaves + self.nodes[0] + self.nodes[1] + u32::from(self.is_indexed)
    }

    fn levels(&self) -> u8 {
        self.nodes.iter().map(|&count| u8::from(count > 0)).sum()
    }
}

/// A directory has more entries than its index supports.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "directory too large: its index needs {leaves} leaf blocks, the limit is {limit}: \
     use large_dir or larger blocks"
)]
pub struct TooManyNames {
    /// Number of leaf blocks needed.
    pub leaves: u64,
    /// Maximum number of leaf blocks.
    pub limit: u64,
}

/// Packs the directories of one volume.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryPacker {
    geometry_format: DirFormat,
    htree_format: HtreeFormat,
    /// The hash version as the root stores it, and the hash function; `None` without `dir_index`.
    index: Option<(HashVersion, DirHasher)>,
}

impl DirectoryPacker {
    /// Creates a packer for a volume. `index` is the hash version that roots store and its
    /// function, `None` without `dir_index`.
    pub fn new(geometry: &Geometry, index: Option<(HashVersion, DirHasher)>) -> Self {
        // The checksum seed differs per directory and is given to `write`; here it only enables
        // tails.
        Self {
            geometry_format: DirFormat::new(geometry, InodeNo(0), 0),
            htree_format: HtreeFormat::new(geometry, InodeNo(0), 0),
            index,
        }
    }

    /// As [`Self::new`], for directories that are both encrypted and casefolded: their entries
    /// store hashes.
    #[must_use]
    pub fn with_stored_hashes(self) -> Self {
        Self { geometry_format: self.geometry_format.with_stored_hashes(), ..self }
    }

    /// The blocks that these entries need. `items` are sorted into the order in which they are
    /// written.
    ///
    /// # Errors
    /// More entries than an index supports.
    pub fn plan(&self, items: &mut [DirItem<'_>]) -> Result<DirPlan, TooManyNames> {
        let dots = 2 * self.geometry_format.rec_len_of(b".");
        let total: usize =
            items.iter().map(|item| self.geometry_format.rec_len_of(item.name)).sum();
        if dots + total <= self.geometry_format.room() {
            return Ok(DirPlan { leaves: 1, nodes: [0; 2], is_indexed: false });
        }
        let Some((_, hasher)) = &self.index else {
            let leaves = self.count_leaves(dots, items)?;
            return Ok(DirPlan { leaves, nodes: [0; 2], is_indexed: false });
        };
        for item in items.iter_mut().filter(|item| !item.has_hash) {
            item.hash = hasher.hash(item.name);
        }
        // Names of equal hash are sorted by their bytes, so that the result does not depend on
        // their source.
        items.sort_unstable_by(|a, b| (a.hash, a.name).cmp(&(b.hash, b.name)));
        let leaves = self.count_leaves(0, items)?;
        Ok(DirPlan { leaves, nodes: self.nodes_for(leaves)?, is_indexed: true })
    }

    fn count_leaves(&self, first: usize, items: &[DirItem<'_>]) -> Result<u32, TooManyNames> {
        let room = self.geometry_format.room();
        let (mut leaves, mut used) = (1_u64, first);
        for item in items {
            let rec_len = self.geometry_format.rec_len_of(item.name);
            if used + rec_len > room {
                leaves += 1;
                used = 0;
            }
            used += rec_len;
        }
        let limit = u64::from(u32::MAX) / 2;
        u32::try_from(leaves)
            .ok()
            .filter(|&leaves| u64::from(leaves) <= limit)
            .ok_or(TooManyNames { leaves, limit })
    }

    /// Number of nodes of each level above `leaves` leaves, top level first.
    fn nodes_for(&self, leaves: u32) -> Result<[u32; 2], TooManyNames> {
        let root = self.htree_format.capacity(IndexKind::Root) as u64;
        let node = self.htree_format.capacity(IndexKind::Node) as u64;
        let count = |nodes: u64| nodes as u32; // fewer than leaves
        let leaves = u64::from(leaves);
        if leaves <= root {
            return Ok([0; 2]);
        }
        let lower = leaves.div_ceil(node);
        if lower <= root && self.htree_format.max_levels >= 1 {
            return Ok([count(lower), 0]);
        }
        let upper = lower.div_ceil(node);
        if upper <= root && self.htree_format.max_levels >= 2 {
            return Ok([count(upper), count(lower)]);
        }
        let limit = root * node.pow(u32::from(self.htree_format.max_levels));
        Err(TooManyNames { leaves, limit })
    }

    /// Writes all blocks of a directory with their checksums. `items` are those given to
    /// [`Self::plan`], in the order in which it left them; `checksum_seed` is that of the
    /// directory, with metadata_csum.
    ///
    /// # Panics
    /// If `plan` is not that of `items`, or the length of `blocks` differs from it.
    pub fn write(
        &self,
        plan: &DirPlan,
        inode: InodeNo,
        parent: InodeNo,
        checksum_seed: Option<u32>,
        items: &[DirItem<'_>],
        blocks: &mut [u8],
    ) {
        let format = DirFormat { inode, checksum_seed, ..self.geometry_format };
        let block_len = format.block_len;
        assert_eq!(blocks.len(), plan.blocks() as usize * block_len, "blocks of {inode}");
        let dots = [
            NewEntry::new(inode, FileType::Directory, b"."),
            NewEntry::new(parent, FileType::Directory, b".."),
        ];
        let index_blocks = (plan.blocks() - plan.leaves) as usize;
        let (index, leaves) = blocks.split_at_mut(index_blocks * block_len);
        let mut starts = Vec::with_capacity(if plan.is_indexed { plan.leaves as usize } else { 0 });
        let mut left = items;
        let mut before: Option<u32> = None;
        for (number, block) in leaves.chunks_exact_mut(block_len).enumerate() {
            let mut packer = format.packer(block);
            if number == 0 && !plan.is_indexed {
                assert!(dots.iter().all(|dot| packer.push(dot)), "'.' and '..' always fit");
            }
            if plan.is_indexed
                && let Some(first) = left.first()
            {
                let is_continuation = before == Some(first.hash.hash);
                starts.push(first.hash.hash | u32::from(is_continuation));
            }
            let fitting = left.iter().take_while(|item| {
                packer.push(&NewEntry {
                    hash: item.hash,
                    ..NewEntry::new(item.inode, item.file_type, item.name)
                })
            });
            let count = fitting.count();
            before = left[..count].last().map(|item| item.hash.hash);
            left = &left[count..];
            packer.finish();
            format.seal(block);
        }
        assert!(left.is_empty(), "{} names of {inode} have no place", left.len());
        if plan.is_indexed {
            self.write_index(plan, inode, parent, checksum_seed, &starts, index);
        }
    }

    fn write_index(
        &self,
        plan: &DirPlan,
        inode: InodeNo,
        parent: InodeNo,
        checksum_seed: Option<u32>,
        leaf_starts: &[u32],
        index: &mut [u8],
    ) {
        let Some((hash_version, _)) = self.index else { return };
        let format = HtreeFormat { inode, checksum_seed, ..self.htree_format };
        let capacity = format.capacity(IndexKind::Node);
        // From the lowest level up: the first hash of every block, and the first block of that
        // level.
        let mut below: Vec<u32> = leaf_starts.to_vec();
        let mut below_at = 1 + plan.nodes[0] + plan.nodes[1];
        for (level, &count) in plan.nodes.iter().enumerate().rev().filter(|(_, count)| **count > 0)
        {
            let level_at = 1 + plan.nodes[..level].iter().sum::<u32>();
            let mut starts = Vec::with_capacity(count as usize);
            for (number, entries) in below.chunks(capacity).enumerate() {
                starts.push(entries[0]);
                let first = below_at + (number * capacity) as u32;
                let at = (level_at as usize + number) * format.block_len;
                let block = &mut index[at..at + format.block_len];
                format.write_node(block, numbered(entries, first));
                format.seal(block, IndexKind::Node);
            }
            (below, below_at) = (starts, level_at);
        }
        let root = HtreeRoot { hash_version, indirect_levels: plan.levels() };
        let block = &mut index[..format.block_len];
        format.write_root(block, parent, root, numbered(&below, below_at));
        format.seal(block, IndexKind::Root);
    }
}

/// Index entries: the hashes of consecutive blocks, from block `first` on.
fn numbered(starts: &[u32], first: u32) -> impl ExactSizeIterator<Item = (u32, u32)> + '_ {
    starts.iter().enumerate().map(move |(number, &hash)| (hash, first + number as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::sample;
    use extant_ondisk::FileBlock;
    use std::collections::BTreeMap;

    fn packer(geometry: &Geometry) -> DirectoryPacker {
        let hasher = DirHasher::new(HashVersion::HalfMd4, [1, 2, 3, 4]).unwrap();
        DirectoryPacker::new(geometry, Some((HashVersion::HalfMd4, hasher)))
    }

    fn names(count: u32) -> Vec<Vec<u8>> {
        (0..count).map(|at| format!("name-{at:06}").into_bytes()).collect()
    }

    fn items(names: &[Vec<u8>]) -> Vec<DirItem<'_>> {
        let inodes = (100..).map(InodeNo);
        let named = names.iter().zip(inodes);
        named.map(|(name, inode)| DirItem::new(name, inode, FileType::Regular)).collect()
    }

    const DIR: InodeNo = InodeNo(12);

    fn written(
        packer: &DirectoryPacker,
        geometry: &Geometry,
        names: &[Vec<u8>],
    ) -> (DirPlan, Vec<u8>) {
        let mut items = items(names);
        let plan = packer.plan(&mut items).unwrap();
        let mut blocks = vec![0xee; plan.blocks() as usize * geometry.block_len()];
        let seed = geometry.has_metadata_csum().then(|| geometry.inode_checksum_seed(DIR, 0));
        packer.write(&plan, DIR, InodeNo::ROOT, seed, &items, &mut blocks);
        (plan, blocks)
    }

    /// Looks up a name as a reader does: by its hash, and on through continuation blocks.
    fn lookup(geometry: &Geometry, blocks: &[u8], name: &[u8]) -> Option<InodeNo> {
        let hasher = DirHasher::new(HashVersion::HalfMd4, [1, 2, 3, 4]).unwrap();
        let hash = hasher.hash(name).hash;
        let htree = HtreeFormat::new(geometry, DIR, 0);
        let dirents = DirFormat::new(geometry, DIR, 0);
        let block = |at: FileBlock| {
            let at = at.0 as usize * geometry.block_len();
            &blocks[at..at + geometry.block_len()]
        };
        let (root, mut node) = htree.root(block(FileBlock(0))).unwrap();
        for _ in 0..root.indirect_levels {
            let at = node.entry(node.search(hash)).unwrap().block;
            htree.verify(block(at), at, IndexKind::Node).unwrap();
            node = htree.node(block(at), at, IndexKind::Node).unwrap();
        }
        let mut position = node.search(hash);
        loop {
            let entry = node.entry(position)?;
            let found = dirents
                .entries(block(entry.block), entry.block)
                .map(Result::unwrap)
                .find(|found| found.name == name);
            if let Some(found) = found {
                return found.inode;
            }
            position += 1;
            let next = node.entry(position)?;
            if !(next.is_continuation && next.hash == hash) {
                return None;
            }
        }
    }

    #[test]
    fn names_that_fit_one_block_stay_linear() {
        let geometry = sample::geometry(1024, true);
        // 1,012 bytes of room, 24 for `.` and `..`, 20 per entry.
        let (plan, blocks) = written(&packer(&geometry), &geometry, &names(49));
        assert_eq!((plan.blocks(), plan.is_indexed), (1, false));
        let format = DirFormat::new(&geometry, DIR, 0);
        assert_eq!(format.verify(&blocks, FileBlock(0)), Ok(()));
        assert_eq!(format.entries(&blocks, FileBlock(0)).count(), 51);
        let (plan, _) = written(&packer(&geometry), &geometry, &names(50));
        assert_eq!((plan.blocks(), plan.is_indexed), (2, true));
    }

    #[test]
    fn every_name_is_found_by_its_hash_at_every_depth() {
        for (has_csum, count, nodes) in
            [(true, 3000, [0, 0]), (false, 3000, [0, 0]), (true, 20_000, [4, 0])]
        {
            let geometry = sample::geometry(1024, has_csum);
            let names = names(count);
            let (plan, blocks) = written(&packer(&geometry), &geometry, &names);
            assert_eq!(plan.nodes, nodes);
            for (at, name) in names.iter().enumerate() {
                let inode = lookup(&geometry, &blocks, name);
                assert_eq!(inode, Some(InodeNo(100 + at as u32)), "{at} of {count}");
            }
            assert_eq!(lookup(&geometry, &blocks, b"absent"), None);
        }
    }

    #[test]
    fn names_of_one_hash_continue_in_the_next_leaf() {
        let geometry = sample::geometry(1024, true);
        let packer = packer(&geometry);
        let names = names(80);
        let mut items = items(&names);
        packer.plan(&mut items).unwrap();
        for item in &mut items {
            item.hash = DirHash { hash: 0x1000, minor: 0 };
        }
        let plan = DirPlan { leaves: 2, nodes: [0; 2], is_indexed: true };
        let mut blocks = vec![0; 3 * 1024];
        packer.write(&plan, DIR, InodeNo::ROOT, Some(1), &items, &mut blocks);
        let htree = HtreeFormat::new(&geometry, DIR, 0);
        let (_, root) = htree.root(&blocks[..1024]).unwrap();
        let second = root.entry(1).unwrap();
        assert!(second.is_continuation && second.hash == 0x1000);
    }

    #[test]
    fn more_leaves_than_an_index_leads_to_are_refused_or_need_large_dir() {
        let mut geometry = sample::geometry(1024, true);
        assert_eq!(packer(&geometry).nodes_for(123 * 126), Ok([123, 0]));
        let refused = TooManyNames { leaves: 123 * 126 + 1, limit: 123 * 126 };
        assert_eq!(packer(&geometry).nodes_for(123 * 126 + 1), Err(refused));
        geometry.features.incompat |= extant_ondisk::IncompatFeatures::LARGEDIR;
        assert_eq!(packer(&geometry).nodes_for(123 * 126 + 1), Ok([1, 124]));
    }

    #[test]
    fn without_an_index_names_keep_their_order() {
        let geometry = sample::geometry(1024, false);
        let names = names(200);
        let (plan, blocks) = written(&DirectoryPacker::new(&geometry, None), &geometry, &names);
        assert!(!plan.is_indexed);
        let format = DirFormat::new(&geometry, DIR, 0);
        let found: Vec<_> = blocks
            .chunks(1024)
            .flat_map(|block| format.entries(block, FileBlock(0)))
            .map(|entry| entry.unwrap().name.to_vec())
            .collect();
        let dots = [b".".to_vec(), b"..".to_vec()];
        assert_eq!(found, dots.into_iter().chain(names).collect::<Vec<_>>());
    }

    #[test]
    fn the_order_given_does_not_show_in_an_indexed_directory() {
        let geometry = sample::geometry(1024, true);
        let names = names(500);
        let packer = packer(&geometry);
        let (plan, blocks) = written(&packer, &geometry, &names);
        let mut shuffled = items(&names);
        shuffled.reverse();
        assert_eq!(packer.plan(&mut shuffled), Ok(plan));
        let mut again = vec![0; blocks.len()];
        let seed = geometry.inode_checksum_seed(DIR, 0);
        packer.write(&plan, DIR, InodeNo::ROOT, Some(seed), &shuffled, &mut again);
        assert!(again == blocks);
        let by_name: BTreeMap<_, _> = shuffled.iter().map(|item| (item.name, item.inode)).collect();
        assert_eq!(by_name.len(), 500);
    }
}
