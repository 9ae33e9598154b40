//! Indexed directories: the hashes of leaves as pass 2 meets them, and afterwards whether the index
//! leads to them.

use super::DirContext;
use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use crate::tables::{Budget, DirFlags, DirInfo, DirTable};
use extant_ondisk::dx_hash::{DirHasher, HashVersion};
use extant_ondisk::htree::{HtreeFormat, HtreeNode, HtreeRoot, IndexKind};
use extant_ondisk::inode::Inode;
use extant_ondisk::{FileBlock, InodeNo};
use extant_runtime::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Blocks of an index: more are a cycle.
const MAX_LEVELS: usize = 4;

/// Leaves that are worth the start of a thread.
const SHARE: usize = 4096;

/// `reserved_zero` of an index's root: after the records of `.` and `..`.
const ROOT_RESERVED: std::ops::Range<usize> = 24..28;
/// `unused_flags` of an index's root, and the flag of what no reader knows.
const ROOT_FLAGS: usize = 31;
const UNKNOWN_FORM: u8 = 1;
/// `info_length` of an index's root, and what it is.
const ROOT_INFO_LEN: usize = 29;
const INFO_LEN: u8 = 8;

/// The entries of an index block: hash, whether it continues the one before, logical block below.
type Entries = Vec<(u32, bool, u32)>;

struct Leaf {
    least: AtomicU32,
    most: AtomicU32,
}

struct Tree {
    dir: InodeNo,
    leaves: Vec<Leaf>,
    hasher: OnceLock<Option<DirHasher>>,
    index: Mutex<Index>,
}

#[derive(Default)]
struct Index {
    root: Option<(HtreeRoot, Entries)>,
    nodes: BTreeMap<u32, Entries>,
    flaw: Option<(Code, &'static str)>,
}

/// Data about all indexes.
#[derive(Default)]
pub(crate) struct HtreeTable {
    trees: Vec<Tree>,
}

impl HtreeTable {
    pub(crate) fn new(dirs: &DirTable, budget: &Budget) -> Self {
        let indexed =
            dirs.iter().filter(|dir| dir.has(DirFlags::INDEXED) && !dir.has(DirFlags::INLINE));
        let leaf = || Leaf { least: AtomicU32::new(u32::MAX), most: AtomicU32::new(0) };
        let trees: Vec<Tree> = indexed
            .map(|dir| Tree {
                dir: dir.inode,
                // A size that no index can cover is a flaw found later.
                leaves: (0..dir.blocks.min(1 << 24)).map(|_| leaf()).collect(),
                hasher: OnceLock::new(),
                index: Mutex::default(),
            })
            .collect();
        let table = Self { trees };
        budget.take(table.trees.len() * size_of::<Tree>() + table.leaves() * size_of::<Leaf>());
        table
    }

    fn leaves(&self) -> usize {
        self.trees.iter().map(|tree| tree.leaves.len()).sum()
    }

    fn tree(&self, dir: InodeNo) -> Option<&Tree> {
        let at = self.trees.binary_search_by_key(&dir, |tree| tree.dir).ok()?;
        self.trees.get(at)
    }

    pub(super) fn note_leaf(&self, dir: &DirInfo, at: u32, hashes: Option<(u32, u32)>) {
        if let Some((least, most)) = hashes
            && let Some(leaf) = self.tree(dir.inode).and_then(|tree| tree.leaves.get(at as usize))
        {
            leaf.least.store(least, Relaxed);
            leaf.most.store(most, Relaxed);
        }
    }

    /// The hash function of a directory, read from its root where it was not met yet.
    pub(super) fn hasher_of(
        &self,
        dir: &DirInfo,
        check: &Check<'_>,
        context: &DirContext,
    ) -> Option<DirHasher> {
        let tree = self.tree(dir.inode)?;
        *tree.hasher.get_or_init(|| {
            let record = check.store.read_inode(dir.inode).ok()??;
            let inode = Inode::decode(&record, dir.inode, check.geometry).ok()?;
            let map = check.read_map(dir.inode, &inode).ok()?;
            let bytes = check.store.read(map.physical(0)?).ok()?;
            let format = HtreeFormat::new(check.geometry, dir.inode, 0);
            let (root, _) = format.root(&bytes).ok()?;
            context.hasher(root.hash_version).copied()
        })
    }
}

fn entries_of(node: &HtreeNode<'_>) -> Entries {
    node.entries()
        .map(|entry| {
            // The high bits of a block number are not used.
            (entry.hash, entry.is_continuation, (entry.block.0 & 0x0fff_ffff) as u32)
        })
        .collect()
}

impl Check<'_> {
    /// Notes an index block.
    pub(super) fn read_index(
        &self,
        dir: &DirInfo,
        at: FileBlock,
        bytes: &[u8],
        kind: IndexKind,
        context: &DirContext,
    ) -> Result<(), CheckError> {
        let Some(tree) = context.htree.tree(dir.inode) else { return Ok(()) };
        let format = HtreeFormat {
            checksum_seed: self.geometry.has_metadata_csum().then_some(dir.checksum_seed),
            ..HtreeFormat::new(self.geometry, dir.inode, 0)
        };
        let sum_is_wrong = format.verify(bytes, at, kind).is_err();
        let mut index = tree.index.lock();
        if kind == IndexKind::Root {
            // Without an index a block with checksums lacks one: more than the index has to be put
            // right then.
            let of_root = if self.geometry.has_metadata_csum() {
                Code::HtreeInvalid
            } else {
                Code::HtreeRootInvalid
            };
            match format.root(bytes) {
                Ok((root, node)) => {
                    let _ = tree.hasher.set(context.hasher(root.hash_version).copied());
                    if node.limit != format.capacity(IndexKind::Root) {
                        index.flaw = Some((of_root, "the root has a bad limit"));
                    }
                    if bytes.get(ROOT_RESERVED).is_some_and(|field| field != [0; 4]) {
                        index.flaw =
                            Some((Code::HtreeRootInvalid, "the root has a reserved field"));
                    }
                    if bytes.get(ROOT_FLAGS).is_some_and(|flags| flags & UNKNOWN_FORM != 0) {
                        index.flaw = Some((of_root, "the root has an unknown flag"));
                    }
                    if sum_is_wrong {
                        index.flaw = Some((Code::HtreeRootChecksum, ""));
                    }
                    index.root = Some((root, entries_of(&node)));
                }
                Err(_) => {
                    let has_other_form = bytes.get(ROOT_INFO_LEN) != Some(&INFO_LEN);
                    let code = if has_other_form { Code::HtreeRootInvalid } else { of_root };
                    index.flaw = Some((code, "invalid root"));
                }
            }
        } else if let Ok(node) = format.node(bytes, at, kind) {
            if sum_is_wrong && index.flaw.is_none() {
                index.flaw = Some((Code::HtreeNodeChecksum, ""));
            }
            index.nodes.insert(at.0 as u32, entries_of(&node)); // logical blocks have 32 bits
        }
        Ok(())
    }

    /// After all blocks: every index leads to every leaf, and each leaf holds the hashes that the
    /// index says.
    pub(super) fn check_htrees(&self, context: &DirContext) -> Result<(), CheckError> {
        let trees = &context.htree.trees;
        self.for_all(trees.len(), context.htree.leaves() / SHARE, |at| self.check_htree(&trees[at]))
    }

    fn check_htree(&self, tree: &Tree) -> Result<(), CheckError> {
        let index = tree.index.lock();
        let flaw = match index.flaw {
            Some(flaw) => Some(flaw),
            None => self.check_index(tree, &index),
        };
        let Some((code, text)) = flaw else { return Ok(()) };
        let finding = Finding::new(code).dir(tree.dir).detail(text.into());
        if self.should_fix(finding)?
            && let Some(dir) = self.dirs.get(tree.dir)
        {
            dir.set(DirFlags::REBUILD);
        }
        Ok(())
    }

    fn check_index(&self, tree: &Tree, index: &Index) -> Option<(Code, &'static str)> {
        let invalid = |text| Some((Code::HtreeInvalid, text));
        let Some((root, entries)) = &index.root else { return invalid("no root") };
        if root.hash_version == HashVersion::SipHash
            && !self.dirs.get(tree.dir).is_some_and(|dir| dir.has(DirFlags::CASEFOLD))
        {
            return invalid("the hash version is not supported");
        }
        let knows_hashes = tree.hasher.get().is_some_and(Option::is_some);
        let mut met = vec![false; tree.leaves.len()];
        if let Some(first) = met.first_mut() {
            *first = true;
        }
        let mut waiting = vec![(entries, usize::from(root.indirect_levels), 0, u32::MAX, true)];
        while let Some((entries, levels, low, high, high_is_open)) = waiting.pop() {
            if levels > MAX_LEVELS {
                return invalid("the tree is too deep");
            }
            for (at, (hash, _, block)) in entries.iter().enumerate() {
                let least = if at == 0 { low } else { *hash };
                let (most, is_open) = match entries.get(at + 1) {
                    Some((next, is_continuation, _)) => (*next, *is_continuation),
                    None => (high, high_is_open),
                };
                if least < low || least > most {
                    return Some((Code::HtreeUnordered, ""));
                }
                match met.get_mut(*block as usize) {
                    None => return invalid("a block number is invalid"),
                    Some(true) => return invalid("a block is referenced twice"),
                    Some(met) => *met = true,
                }
                if levels > 0 {
                    let Some(below) = index.nodes.get(block) else {
                        return invalid("invalid node block");
                    };
                    waiting.push((below, levels - 1, least, most, is_open));
                    continue;
                }
                if index.nodes.contains_key(block) {
                    return invalid("node where a leaf is expected");
                }
                let Some(leaf) = tree.leaves.get(*block as usize) else { continue };
                let (min, max) = (leaf.least.load(Relaxed), leaf.most.load(Relaxed));
                if knows_hashes && min <= max {
                    if min < least {
                        return invalid("a block has a bad min hash");
                    }
                    if max > most || max == most && !is_open && most != u32::MAX {
                        return invalid("a block has a bad max hash");
                    }
                }
            }
        }
        if met.iter().any(|met| !met) {
            return invalid("a block is not referenced");
        }
        None
    }
}
