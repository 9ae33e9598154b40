//! Extent trees: a valid root is claimed at once; any other is walked node by node, and every flaw
//! is reported.

use super::Local;
use super::visit::{MapCounts, Visit};
use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::map::root_of_impossible_depth;
use crate::order::ExtentFix;
use crate::report::DiscontinuityTarget;
use crate::store::CheckError;
use crate::tables::{DirBlock, Kind};
use extant_ondisk::extent::{
    self, Extent, ExtentIndex, ExtentNode, NodeLimits, NodeOwner, RawExtent, RawExtentHeader,
    RawExtentIndex, capacity,
};
use extant_ondisk::{BlockNo, FileBlock, InodeNo};
use std::collections::BTreeSet;
use zerocopy::FromBytes;

/// Directories end here: the kernel keeps their size in 31 bits, with large_dir in more.
pub(super) const MAX_DIR_BYTES: u64 = 1 << 31;

/// Where the walk of one tree is.
struct Walk {
    owner: NodeOwner,
    is_dir: bool,
    /// First logical block that is free for the next extent.
    next: u64,
    /// The extent before.
    last: Option<Extent>,
    counts: MapCounts,
    extents: u64,
    nodes: u64,
    /// Blocks of the largest directory.
    dir_limit: u64,
    /// Blocks of extents so far.
    taken: u64,
    /// Nodes so far: one that the tree names again would be walked again, with its subtree.
    met: BTreeSet<BlockNo>,
    /// A part that lay on the volume's own metadata was cut off.
    is_cut: bool,
    /// The root has levels below it and leads to none, which no reader takes.
    is_hollow: bool,
    /// The fixes for the extents that follow, if they are out of order.
    extent_fixes: Option<std::vec::IntoIter<ExtentFix>>,
}

impl Check<'_> {
    pub(super) fn check_extents(
        &self,
        visit: &mut Visit<'_>,
        local: &mut Local,
    ) -> Result<MapCounts, CheckError> {
        let owner = NodeOwner { inode: visit.ino, generation: visit.inode.generation, block: None };
        let root = visit.inode.i_block;
        let mut walk = Walk {
            owner,
            is_dir: visit.inode.is_dir(),
            next: 0,
            last: None,
            counts: MapCounts::default(),
            extents: 0,
            nodes: 0,
            dir_limit: self.dir_limit(),
            taken: 0,
            met: BTreeSet::new(),
            is_cut: false,
            is_hollow: false,
            extent_fixes: None,
        };
        let walkable = self.usable_node(&root, None);
        let is_walkable = walkable.is_some();
        let Some(node) = walkable.or_else(|| root_of_impossible_depth(&root)) else {
            if self.should_fix(visit.finding(Code::ExtentHeaderCorrupt))? {
                self.clear_visited(visit)?;
            }
            return Ok(MapCounts { is_unsure: true, ..MapCounts::default() });
        };
        walk.counts.depth = node.depth();
        walk.is_hollow = matches!(node, ExtentNode::Index([], _));
        walk.counts.rebuild |= self.has_narrow_header(&root, &walk)?;
        let (found, expected) = (u64::from(node.depth()), self.most_levels());
        if found > expected {
            let finding = visit.finding(Code::ExtentTreeBeyondLimit);
            walk.counts.rebuild |= self.should_fix(finding.found(found).expected(expected))?;
        }
        if is_walkable {
            walk.extent_fixes = self.extent_fixes(visit.ino, &visit.inode)?.map(Vec::into_iter);
            self.walk_node(node, &mut walk, local)?;
        } else {
            self.drop_entries(&node, &mut walk)?;
        }
        if walk.is_cut {
            self.need_restart();
        }
        let mut counts = walk.counts;
        counts.clusters += walk.nodes;
        counts.rebuild |= self.is_too_deep(visit, &walk)?;
        if counts.rebuild && self.is_repair() {
            visit.dirty = true;
        }
        Ok(counts)
    }

    /// Whether a header says that a node has room for fewer entries than any writer makes it for,
    /// and that is accepted as a flaw.
    fn has_narrow_header(&self, node: &[u8], walk: &Walk) -> Result<bool, CheckError> {
        // Some have left room for a checksum or two.
        const SPARE: u16 = 2;
        let room = capacity(node.len());
        let limit = match RawExtentHeader::ref_from_prefix(node) {
            Ok((header, _)) => header.eh_max.get(),
            Err(_) => return Ok(false),
        };
        if limit.saturating_add(SPARE) >= room {
            return Ok(false);
        }
        let finding = Finding::new(Code::ExtentHeaderLimit).inode(walk.owner.inode);
        self.should_fix(finding.found(u64::from(limit)).expected(u64::from(room)))
    }

    /// Levels below the root that are enough for 2^32 extents, in nodes that are a power of two
    /// full.
    fn most_levels(&self) -> u64 {
        let bits = |entries: u16| u64::from(entries.ilog2());
        let of_root = bits(capacity(extent::ROOT_SIZE));
        1 + (31 - of_root) / bits(capacity(self.geometry.block_len()))
    }

    /// Logical blocks of the largest directory.
    pub(super) fn dir_limit(&self) -> u64 {
        if self.geometry.has_incompat(extant_ondisk::IncompatFeatures::LARGEDIR) {
            1 << 32
        } else {
            MAX_DIR_BYTES >> self.geometry.block_bits()
        }
    }

    /// Extents that fit into fewer levels: rebuilt along with other repairs, never a reason for
    /// one.
    fn is_too_deep(&self, visit: &Visit<'_>, walk: &Walk) -> Result<bool, CheckError> {
        let found = u64::from(walk.counts.depth);
        if walk.is_hollow {
            return self.should_fix(visit.finding(Code::ExtentTreeTooDeep).found(found));
        }
        if !self.is_repair() || self.options.keep_extents || walk.counts.depth == 0 {
            return Ok(false);
        }
        let fits = walk.extents <= u64::from(capacity(extent::ROOT_SIZE));
        if !fits || !walk.counts.rebuild {
            return Ok(false);
        }
        self.should_fix(visit.finding(Code::ExtentTreeTooDeep).found(found))
    }

    /// The entries of a root of an impossible depth lead to no node: all are dropped, and the inode
    /// keeps its name and its attributes.
    fn drop_entries(&self, node: &ExtentNode<'_>, walk: &mut Walk) -> Result<(), CheckError> {
        let ExtentNode::Index(indexes, _) = node else { return Ok(()) };
        for index in indexes.iter().map(RawExtentIndex::decode) {
            let finding = Finding::new(Code::ExtentNodeInvalid)
                .inode(walk.owner.inode)
                .block(index.leaf)
                .file_block(index.block);
            walk.counts.rebuild |= self.should_fix(finding)?;
        }
        Ok(())
    }

    fn walk_node(
        &self,
        node: ExtentNode<'_>,
        walk: &mut Walk,
        local: &mut Local,
    ) -> Result<(), CheckError> {
        match node {
            ExtentNode::Leaf(extents) => {
                for raw in extents {
                    self.walk_extent(raw.decode(), walk, local)?;
                }
                Ok(())
            }
            ExtentNode::Index(indexes, below) => {
                for index in indexes.iter().map(RawExtentIndex::decode) {
                    self.walk_index(index, below, walk, local)?;
                }
                Ok(())
            }
        }
    }

    fn walk_index(
        &self,
        index: ExtentIndex,
        below: u16,
        walk: &mut Walk,
        local: &mut Local,
    ) -> Result<(), CheckError> {
        let invalid = Finding::new(Code::ExtentNodeInvalid)
            .inode(walk.owner.inode)
            .block(index.leaf)
            .file_block(index.block);
        if !self.geometry.contains(index.leaf, 1) {
            walk.counts.rebuild |= self.should_fix(invalid)?;
            return Ok(());
        }
        let owner = NodeOwner { block: Some(index.leaf), ..walk.owner };
        if self.blocks.is_system(self.blocks.cluster_of(index.leaf))
            && !self.is_own_node(&self.read_claimed(index.leaf)?, &owner, below)
        {
            walk.counts.is_unsure = true;
            let finding =
                Finding::new(Code::MapOnMetadata).inode(walk.owner.inode).block(index.leaf);
            let is_cut = self.should_fix(finding)?;
            walk.is_cut |= is_cut;
            walk.counts.rebuild |= is_cut;
            return Ok(());
        }
        if !walk.met.insert(index.leaf) {
            walk.counts.rebuild |= self.should_fix(invalid)?;
            return Ok(());
        }
        let mut bytes = local.nodes.pop().unwrap_or_default();
        bytes.resize(self.geometry.block_len(), 0);
        self.read_claimed_into(index.leaf, &mut bytes)?;
        let Some(node) = self.usable_node(&bytes, Some(below)) else {
            walk.counts.rebuild |= self.should_fix(invalid)?;
            local.nodes.push(bytes);
            return Ok(());
        };
        let first = first_block(&node);
        if first.is_none() {
            // A node that holds nothing.
            walk.counts.rebuild |= self.should_fix(invalid)?;
            local.nodes.push(bytes);
            return Ok(());
        }
        let said =
            RawExtentHeader::ref_from_prefix(&bytes).map_or(below, |(it, _)| it.eh_depth.get());
        if said != below {
            let finding = Finding::new(Code::ExtentNodeLevel)
                .inode(walk.owner.inode)
                .block(index.leaf)
                .found(u64::from(said))
                .expected(u64::from(below));
            walk.counts.rebuild |= self.should_fix(finding)?;
        }
        let sum_is_wrong = extent::verify(&bytes, &owner, self.geometry).is_err();
        let cluster = self.blocks.cluster_of(index.leaf).0;
        self.blocks.claim(cluster..cluster + 1, &self.budget);
        walk.nodes += 1;
        if let Some(first) = first
            && first != index.block.0
        {
            let finding = Finding::new(Code::ExtentIndexStart)
                .inode(walk.owner.inode)
                .file_block(index.block)
                .found(u64::from(walk.counts.depth - below - 1))
                .expected(first);
            walk.counts.rebuild |= self.should_fix(finding)?;
        }
        walk.counts.rebuild |= self.has_narrow_header(&bytes, walk)?;
        let before = walk.counts.rebuild;
        self.walk_node(node, walk, local)?;
        if sum_is_wrong && before == walk.counts.rebuild {
            let finding =
                Finding::new(Code::ExtentNodeChecksum).inode(walk.owner.inode).block(index.leaf);
            if self.should_fix(finding)? {
                // Written again with the rest of the tree.
                walk.counts.rebuild = true;
            }
        }
        local.nodes.push(bytes);
        Ok(())
    }

    fn walk_extent(
        &self,
        said: Extent,
        walk: &mut Walk,
        local: &mut Local,
    ) -> Result<(), CheckError> {
        let mut extent = said;
        let finding = |code| {
            Finding::new(code)
                .inode(walk.owner.inode)
                .file_block(said.block)
                .block(said.start)
                .found(u64::from(said.len))
        };
        let flaw = match self.candidate(said) {
            None if said.len == 0 => Some(finding(Code::ExtentZeroLength)),
            None => Some(finding(Code::ExtentInvalidStart)),
            Some(candidate) => {
                extent = candidate.extent;
                let fix = walk.extent_fixes.as_mut().and_then(Iterator::next);
                match fix.unwrap_or(ExtentFix::Keep) {
                    ExtentFix::Keep => None,
                    ExtentFix::Cut(len) => {
                        extent.len = len;
                        Some(finding(Code::ExtentTooLong).expected(u64::from(len)))
                    }
                    ExtentFix::Move(to) => {
                        extent.block = FileBlock(to);
                        Some(finding(Code::ExtentMisplaced).expected(to))
                    }
                    ExtentFix::Drop if candidate.is_clipped => {
                        Some(finding(Code::ExtentInvalidLength))
                    }
                    ExtentFix::Drop => Some(finding(Code::ExtentOutOfOrder)),
                }
            }
        };
        if let Some(finding) = flaw {
            let code = finding.code;
            let repaired = self.should_fix(finding)?;
            walk.counts.rebuild |= repaired;
            let is_kept = matches!(code, Code::ExtentTooLong | Code::ExtentMisplaced);
            if !is_kept || self.is_repair() && !repaired {
                return Ok(());
            }
        }
        let finding = |code| {
            Finding::new(code)
                .inode(walk.owner.inode)
                .file_block(extent.block)
                .block(extent.start)
                .found(u64::from(extent.len))
        };
        if walk.is_dir
            && (extent.end().0 > walk.dir_limit
                || walk.taken + u64::from(extent.len) > self.geometry.blocks_count)
        {
            let repaired = self.should_fix(finding(Code::DirectoryTooBig))?;
            walk.counts.rebuild |= repaired;
            if repaired {
                self.deferred.lock().drop_from.push((walk.owner.inode, extent.block.0));
            }
            return Ok(());
        }
        if walk.is_dir
            && extent.is_unwritten
            && self.should_fix(finding(Code::UnwrittenDirectory))?
        {
            walk.counts.rebuild = true;
            self.deferred.lock().write_out.push(walk.owner.inode);
        }
        let mut block = extent.block.0;
        if walk.is_dir && block > walk.next {
            let hole = finding(Code::DirectoryHole).found(block).file_block(FileBlock(walk.next));
            if self.should_fix(hole)? {
                walk.counts.rebuild = true;
                self.deferred.lock().close_holes.push(walk.owner.inode);
                block = walk.next;
            }
        }
        self.claim_extent(&extent, walk, local)?;
        walk.taken += u64::from(extent.len);
        if walk.is_dir {
            for at in 0..extent.len {
                local.dir_blocks.push(DirBlock {
                    block: extent.start.0 + u64::from(at),
                    dir: walk.owner.inode,
                    at: (block + u64::from(at)) as u32, // below the limit of directories, or of files
                });
            }
        }
        let end = block + u64::from(extent.len);
        walk.next = end;
        walk.counts.end = end;
        if !extent.is_unwritten {
            walk.counts.written_end = end;
        }
        walk.extents += 1;
        walk.last = Some(extent);
        Ok(())
    }

    /// Claims the clusters of an extent, and counts them and the runs.
    fn claim_extent(
        &self,
        extent: &Extent,
        walk: &mut Walk,
        local: &mut Local,
    ) -> Result<(), CheckError> {
        let per_cluster = u64::from(self.geometry.blocks_per_cluster);
        let mut first = self.blocks.cluster_of(extent.start).0;
        let end = self.blocks.cluster_of(BlockNo(extent.start.0 + u64::from(extent.len) - 1)).0 + 1;
        let next = walk.last.map(|last| last.start.0 + u64::from(last.len));
        if next != Some(extent.start.0) {
            walk.counts.runs += 1;
            if let Some(next) = next {
                let kind = if walk.is_dir { Kind::Directory } else { Kind::Regular };
                let to = DiscontinuityTarget::Extent(extent.block, extent.len);
                self.note_discontinuity(
                    (walk.owner.inode, kind),
                    (next, extent.start.0),
                    to,
                    local,
                );
            }
        }
        if per_cluster > 1 {
            let at = extent.start.0 - self.geometry.first_data_block.0;
            // A logical cluster lies in one cluster, each block at its own place there.
            let splits = walk.last.is_some_and(|last| {
                let last_block = BlockNo(last.start.0 + u64::from(last.len) - 1);
                (last.end().0 - 1) / per_cluster == extent.block.0 / per_cluster
                    && self.blocks.cluster_of(last_block).0 != first
            });
            if splits || at % per_cluster != extent.block.0 % per_cluster {
                let finding = Finding::new(Code::ClusterMisaligned)
                    .inode(walk.owner.inode)
                    .file_block(extent.block)
                    .block(extent.start);
                if self.should_fix(finding)? {
                    self.deferred.lock().misaligned.push(walk.owner.inode);
                }
            }
            // The rest of a cluster that the extent before began.
            if let Some(last) = walk.last {
                let last_block = BlockNo(last.start.0 + u64::from(last.len) - 1);
                let shares = self.blocks.cluster_of(last_block).0 == first
                    && (last.end().0 - 1) / per_cluster == extent.block.0 / per_cluster;
                if shares {
                    first += 1;
                }
            }
        }
        if first < end {
            self.blocks.claim(first..end, &self.budget);
            walk.counts.clusters += end - first;
        }
        Ok(())
    }

    /// Whether an extent tree of this inode could be sound: used where flags contradict each other.
    pub(super) fn looks_like_extents(&self, ino: InodeNo, i_block: &[u8; 60]) -> bool {
        let owner = NodeOwner { inode: ino, generation: 0, block: None };
        ExtentNode::check(i_block, &owner, &NodeLimits::ROOT, self.geometry).is_ok()
    }
}

fn first_block(node: &ExtentNode<'_>) -> Option<u64> {
    match node {
        ExtentNode::Leaf(extents) => {
            extents.first().map(RawExtent::decode).map(|extent| extent.block.0)
        }
        ExtentNode::Index(indexes, _) => {
            indexes.first().map(RawExtentIndex::decode).map(|index| index.block.0)
        }
    }
}
