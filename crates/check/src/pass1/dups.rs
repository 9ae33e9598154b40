//! Passes 1B to 1D: the files that claim a block which other files claim too, and a copy of the
//! block for each but the last.

use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::map::FileMap;
use crate::pass0::{forget_journal, forget_orphan_file};
use crate::store::CheckError;
use extant_ondisk::extent::Extent;
use extant_ondisk::inode::Inode;
use extant_ondisk::orphan_file::OrphanFileFormat;
use extant_ondisk::quota::QuotaKind;
use extant_ondisk::{
    BlockNo, ClusterNo, CompatFeatures, FileBlock, GroupNo, InodeNo, RoCompatFeatures, xattr,
};
use extant_runtime::sync::Mutex;
use roaring::RoaringTreemap;
use std::collections::BTreeMap;

/// Blocks named in one finding at most.
const NAMED: usize = 40;
/// Memory of an owner in addition to its clusters, in numbers of 8 bytes.
const OWNER: usize = 6;

/// Blocks that one copy takes at most.
const COPY: u64 = 256;

/// Blocks to be copied to others, both in a row.
struct BlockCopy {
    from: BlockNo,
    to: BlockNo,
    count: u64,
}

impl BlockCopy {
    /// Adds the copy of a block where it follows the others; whether it does.
    fn extend(&mut self, from: BlockNo, to: BlockNo) -> bool {
        let follows = self.count < COPY
            && from.0 == self.from.0 + self.count
            && to.0 == self.to.0 + self.count
            && self.count > 0;
        self.count += u64::from(follows);
        follows
    }
}

impl Check<'_> {
    pub(super) fn resolve_multiply_claimed(&self) -> Result<(), CheckError> {
        if !self.is_repair() && !self.window.is_last {
            return Ok(()); // the last window knows what all others met
        }
        let mut twice = self.blocks.twice().unwrap_or_default();
        if !self.is_repair() {
            twice |= &self.carry.twice;
        }
        if twice.is_empty() {
            return Ok(());
        }
        let may_share = self.geometry.has_ro_compat(RoCompatFeatures::SHARED_BLOCKS);
        if may_share && !self.options.unshare_blocks {
            return Ok(());
        }
        let code = if may_share { Code::SharedBlocks } else { Code::MultiplyClaimed };
        let owners = self.find_owners(&twice)?;
        // How often each cluster is claimed; the volume itself counts, and so do inodes that cannot
        // give way.
        let mut claims: BTreeMap<u64, u32> = BTreeMap::new();
        for clusters in owners.values() {
            for cluster in clusters {
                *claims.entry(*cluster).or_default() += 1;
            }
        }
        for (cluster, count) in &mut claims {
            *count += u32::from(self.blocks.is_system(ClusterNo(*cluster)));
        }
        if may_share && !self.is_repair() {
            self.check_room_for_copies(&claims)?;
        }
        if self.is_repair() && !may_share && self.make_room(&owners, &claims)? {
            self.need_restart();
            return Ok(());
        }
        for (ino, clusters) in &owners {
            if self.must_stay(*ino) {
                continue;
            }
            let is_shared =
                clusters.iter().any(|cluster| claims.get(cluster).is_some_and(|n| *n > 1));
            if !is_shared {
                continue; // the others are cleared already
            }
            let finding = Finding::new(code).inode(*ino).detail(self.name_blocks(clusters));
            if self.should_fix(finding)? {
                match self.clone_blocks(*ino, &mut claims) {
                    Ok(true) => self.need_restart(),
                    Ok(false) => {
                        let finding = Finding::new(Code::CloneFailed)
                            .inode(*ino)
                            .detail("no free blocks".into());
                        self.report(finding)?;
                        // Sound files that share blocks by intent are all kept.
                        if !may_share && self.give_up(&owners, clusters)? {
                            return Ok(());
                        }
                    }
                    Err(error) => return Err(error),
                }
            } else if self.is_repair()
                && self.should_fix(Finding::new(Code::MultiplyClaimedDelete).inode(*ino))?
            {
                let mut record = self.record(*ino)?;
                self.write_cleared(*ino, &mut record)?;
                for cluster in clusters {
                    if let Some(count) = claims.get_mut(cluster) {
                        *count = count.saturating_sub(1);
                    }
                }
                self.need_restart();
            }
        }
        Ok(())
    }

    /// If there is no room for copies for all: files that can be made again are cleared first, then
    /// others. True if one was cleared.
    fn make_room(
        &self,
        owners: &BTreeMap<InodeNo, Vec<u64>>,
        claims: &BTreeMap<u64, u32>,
    ) -> Result<bool, CheckError> {
        let (needed, free) = self.room_for_copies(claims);
        if needed > free && self.window.is_whole() {
            let is_shared = |cluster: &u64| claims.get(cluster).is_some_and(|n| *n > 1);
            let sharing = owners.iter().filter(|(_, clusters)| clusters.iter().any(is_shared));
            if self.discard_one(sharing.map(|(ino, _)| *ino))? {
                return Ok(true);
            }
        }
        self.clear_greediest(owners, claims)
    }

    /// Clears the first of some inodes that can be made again: an orphan file, a quota file, the
    /// journal, which was replayed. False if the iterator has no such inode.
    fn discard_one(&self, inodes: impl Iterator<Item = InodeNo>) -> Result<bool, CheckError> {
        let rank = |ino: &InodeNo| {
            if self.orphan_file() == Some(*ino) {
                Some(0)
            } else if QuotaKind::ALL.into_iter().any(|kind| self.quota_inode(kind) == Some(*ino)) {
                Some(1)
            } else {
                (self.superblock.internal_journal() == Some(*ino)).then_some(2)
            }
        };
        match inodes.filter(|ino| rank(ino).is_some()).min_by_key(rank) {
            Some(ino) => self.discard(ino),
            None => Ok(false),
        }
    }

    fn orphan_file(&self) -> Option<InodeNo> {
        let has_feature = self.geometry.has_compat(CompatFeatures::ORPHAN_FILE);
        self.superblock.orphan_file_inode.filter(|_| has_feature)
    }

    /// Clears an inode that can be made again: the journal is made after the passes, a quota file
    /// in pass 6, each if there is room. Orphans are listed elsewhere if there is no file for them,
    /// which needs a journal.
    fn discard(&self, ino: InodeNo) -> Result<bool, CheckError> {
        if !self.should_fix(Finding::new(Code::MultiplyClaimedDelete).inode(ino))? {
            return Ok(false);
        }
        let is_journal = self.superblock.internal_journal() == Some(ino);
        if is_journal {
            let record = self.record(ino)?;
            let size = Inode::decode(&record, ino, self.geometry).map_or(0, |inode| inode.size);
            let blocks = size >> self.geometry.block_bits();
            self.store.note_lost_journal(u32::try_from(blocks).unwrap_or(u32::MAX));
            self.store.update_superblock(forget_journal)?;
        }
        let orphans = self.orphan_file().filter(|orphans| is_journal || *orphans == ino);
        if orphans.is_some() {
            self.store.update_superblock(forget_orphan_file)?;
        }
        for ino in orphans.into_iter().chain(Some(ino).filter(|ino| orphans != Some(*ino))) {
            let mut record = self.record(ino)?;
            if ino < self.geometry.first_inode {
                record.fill(0);
            }
            self.write_cleared(ino, &mut record)?;
        }
        self.need_restart();
        Ok(true)
    }

    /// If there is no room for copies for all, the file with the most clusters that others claim
    /// too is cleared: a corrupt map that covers many files is such a file, and each of those then
    /// has its own blocks again.
    fn clear_greediest(
        &self,
        owners: &BTreeMap<InodeNo, Vec<u64>>,
        claims: &BTreeMap<u64, u32>,
    ) -> Result<bool, CheckError> {
        // Neither of two files that share blocks is better than the other, and a window does not
        // know the free space outside of it.
        let (needed, free) = self.room_for_copies(claims);
        if needed <= free || owners.len() <= 2 || !self.window.is_whole() {
            return Ok(false);
        }
        let shared = |clusters: &[u64]| {
            clusters.iter().filter(|cluster| claims.get(cluster).is_some_and(|n| *n > 1)).count()
        };
        let greediest = owners
            .iter()
            .filter(|(ino, _)| **ino >= self.geometry.first_inode && !self.is_nameless(**ino))
            .max_by_key(|(_, clusters)| shared(clusters));
        let Some((ino, _)) = greediest else { return Ok(false) };
        if !self.should_fix(Finding::new(Code::MultiplyClaimedDelete).inode(*ino))? {
            return Ok(false);
        }
        let mut record = self.record(*ino)?;
        self.write_cleared(*ino, &mut record)?;
        Ok(true)
    }

    /// If there is no room for a copy, one of the files that claim some of the clusters is cleared,
    /// and the others keep theirs: one that can be made again, else the smallest file.
    fn give_up(
        &self,
        owners: &BTreeMap<InodeNo, Vec<u64>>,
        clusters: &[u64],
    ) -> Result<bool, CheckError> {
        let sharing =
            owners.iter().filter(|(_, others)| others.iter().any(|it| clusters.contains(it)));
        if self.discard_one(sharing.map(|(ino, _)| *ino))? {
            return Ok(true);
        }
        let mut smallest: Option<(u64, InodeNo)> = None;
        for (ino, others) in owners {
            if !others.iter().any(|cluster| clusters.contains(cluster)) {
                continue;
            }
            if *ino < self.geometry.first_inode || self.is_nameless(*ino) {
                continue;
            }
            let record = self.record(*ino)?;
            let Ok(inode) = Inode::decode(&record, *ino, self.geometry) else { continue };
            // Names below a directory are worth more than what a file holds.
            let size = if inode.is_dir() { u64::MAX } else { inode.size };
            if smallest.is_none_or(|(least, _)| size < least) {
                smallest = Some((size, *ino));
            }
        }
        let Some((_, ino)) = smallest else {
            // None of these can be cleared: the journal makes room for copies.
            let journal = self.superblock.internal_journal();
            return journal.map_or(Ok(false), |journal| self.discard(journal));
        };
        if !self.should_fix(Finding::new(Code::MultiplyClaimedDelete).inode(ino))? {
            return Ok(false);
        }
        let mut record = self.record(ino)?;
        self.write_cleared(ino, &mut record)?;
        self.need_restart();
        Ok(true)
    }

    /// Clusters that copies would take, and free ones.
    fn room_for_copies(&self, claims: &BTreeMap<u64, u32>) -> (u64, u64) {
        let needed: u64 = claims.values().map(|count| u64::from(count.saturating_sub(1))).sum();
        let free: u64 = self
            .window
            .groups
            .clone()
            .map(|group| (self.geometry.group_clusters(GroupNo(group)), GroupNo(group)))
            .map(|(clusters, group)| u64::from(clusters.saturating_sub(self.blocks.count(group))))
            .sum();
        (needed, free + self.carry.free_clusters)
    }

    /// Blocks that are shared on purpose are not a flaw; a lack of room for copies is one.
    fn check_room_for_copies(&self, claims: &BTreeMap<u64, u32>) -> Result<(), CheckError> {
        let (needed, free) = self.room_for_copies(claims);
        if needed > free {
            let detail = format!("{needed} clusters needed, {free} free");
            self.report(Finding::new(Code::CloneFailed).detail(detail))?;
        }
        Ok(())
    }

    /// Bad blocks are where they are, and the resize inode is where the descriptors grow.
    fn must_stay(&self, ino: InodeNo) -> bool {
        ino == InodeNo::BAD_BLOCKS || ino == InodeNo::RESIZE
    }

    fn name_blocks(&self, clusters: &[u64]) -> String {
        let mut text = String::new();
        for cluster in clusters.iter().take(NAMED) {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(&self.blocks.cluster_start(ClusterNo(*cluster)).to_string());
        }
        if clusters.len() > NAMED {
            text.push_str(" ...");
        }
        text
    }

    /// The clusters of `twice` that each inode claims, as often as it claims them.
    fn find_owners(
        &self,
        twice: &RoaringTreemap,
    ) -> Result<BTreeMap<InodeNo, Vec<u64>>, CheckError> {
        let found = Mutex::new(BTreeMap::new());
        let groups = self.geometry.groups_count as usize;
        let find = |group| {
            for ino in self.inodes.used_of(GroupNo(group as u32)) {
                let clusters = self.claims_of(ino, twice)?;
                if !clusters.is_empty() {
                    self.budget.take((clusters.len() + OWNER) * size_of::<u64>());
                    found.lock().insert(ino, clusters);
                }
            }
            self.check_memory()
        };
        // Nothing is reported here, and nothing is changed.
        self.in_part(true, || self.for_all(groups, groups, find))?;
        Ok(found.into_inner())
    }

    fn claims_of(&self, ino: InodeNo, twice: &RoaringTreemap) -> Result<Vec<u64>, CheckError> {
        if self.copies.lock().contains(&ino) {
            return Ok(Vec::new());
        }
        let record = self.record(ino)?;
        let Ok(inode) = Inode::decode(&record, ino, self.geometry) else { return Ok(Vec::new()) };
        let mut clusters = Vec::new();
        if ino == InodeNo::RESIZE && self.has_resize_inode() {
            // Its other blocks are the volume's own.
            let double = self.resize_pointer(&inode).map(|block| self.blocks.cluster_of(block).0);
            clusters.extend(double.filter(|cluster| twice.contains(*cluster)));
            return Ok(clusters);
        }
        let map = self.read_map(ino, &inode)?;
        let mut last = None;
        for extent in &map.extents {
            let first = self.blocks.cluster_of(extent.start).0;
            let end = self.blocks.cluster_of(BlockNo(extent.start.0 + u64::from(extent.len) - 1)).0;
            if clusters.len() as u64 > self.geometry.clusters_count() {
                break; // no room for that many copies
            }
            // A cluster may hold several extents of one logical cluster, one after the other.
            let logical = |block: u64| block / u64::from(self.geometry.blocks_per_cluster);
            let is_continued = self.geometry.blocks_per_cluster > 1
                && last == Some((first, logical(extent.block.0)));
            last = Some((end, logical(extent.end().0 - 1)));
            for cluster in first + u64::from(is_continued)..=end {
                if twice.contains(cluster) {
                    clusters.push(cluster);
                }
            }
        }
        for block in map.nodes.iter().chain(Some(&inode.file_acl).filter(|acl| acl.0 != 0)) {
            let cluster = self.blocks.cluster_of(*block).0;
            let is_shared_acl = *block == inode.file_acl
                && self.xattr_blocks.get(*block).is_none_or(|known| !known.is_sound);
            if twice.contains(cluster) && !is_shared_acl {
                clusters.push(cluster);
            }
        }
        Ok(clusters)
    }

    /// Gives an inode copies of the clusters that others claim too; false on a full volume.
    fn clone_blocks(
        &self,
        ino: InodeNo,
        claims: &mut BTreeMap<u64, u32>,
    ) -> Result<bool, CheckError> {
        let mut record = self.record(ino)?;
        let Ok(mut inode) = Inode::decode(&record, ino, self.geometry) else { return Ok(false) };
        let old = self.read_map(ino, &inode)?;
        let Some(new) = self.clone_data(ino, &inode, &old, claims)? else { return Ok(false) };
        let mut give_up = |block: BlockNo| {
            let cluster = self.blocks.cluster_of(block).0;
            match claims.get_mut(&cluster) {
                Some(count) if *count > 1 => {
                    *count -= 1;
                    true
                }
                _ => false,
            }
        };
        // Nodes that others claim are left to them; the map is written to new ones.
        let mut own = old.nodes.clone();
        own.retain(|block| !give_up(*block));
        let acl_is_shared = inode.file_acl.0 != 0
            && self.xattr_blocks.get(inode.file_acl).is_some_and(|known| known.is_sound)
            && give_up(inode.file_acl);
        let is_changed = new.extents != old.extents || own.len() != old.nodes.len();
        if is_changed && !self.write_map_over(&own, ino, &mut inode, &old, &new)? {
            return Ok(false);
        }
        if acl_is_shared {
            let Some(block) = self.allocate_block(inode.file_acl)? else { return Ok(false) };
            let mut bytes = self.store.read(inode.file_acl)?;
            bytes[4..8].copy_from_slice(&1_u32.to_le_bytes());
            xattr::seal_block(&mut bytes, block, self.geometry);
            self.store.write(block, &bytes)?;
            inode.file_acl = block;
        }
        inode.encode_into(&mut record, self.geometry);
        self.store.write_inode_ordered(ino, &mut record);
        Ok(true)
    }

    /// The map with new places for what others claim too, the contents copied; `None` on a full
    /// volume.
    fn clone_data(
        &self,
        ino: InodeNo,
        inode: &Inode,
        old: &FileMap,
        claims: &mut BTreeMap<u64, u32>,
    ) -> Result<Option<FileMap>, CheckError> {
        let per_cluster = u64::from(self.geometry.blocks_per_cluster);
        let orphan_format = (self.orphan_file() == Some(ino))
            .then(|| OrphanFileFormat::new(self.geometry, ino, inode.generation));
        let mut new = FileMap { extents: Vec::new(), nodes: old.nodes.clone() };
        // The copy of the current cluster: logical cluster, old cluster, first block of the copy.
        let mut moved: Option<(u64, u64, Option<BlockNo>)> = None;
        let mut copy = BlockCopy { from: BlockNo(0), to: BlockNo(0), count: 0 };
        let mut push = |one: Extent| match new.extents.last_mut() {
            Some(last) if last.is_continued_by(&one) => last.len += one.len,
            _ => new.extents.push(one),
        };
        for extent in &old.extents {
            let first = self.blocks.cluster_of(extent.start).0;
            let end = self.blocks.cluster_of(BlockNo(extent.start.0 + u64::from(extent.len) - 1)).0;
            let is_claimed = claims.range(first..=end).any(|(_, count)| *count > 1);
            if !is_claimed && per_cluster == 1 {
                push(*extent);
                continue;
            }
            for at in 0..u64::from(extent.len) {
                let (block, from) = (extent.block.0 + at, BlockNo(extent.start.0 + at));
                let (logical, cluster) = (block / per_cluster, self.blocks.cluster_of(from).0);
                let base = match moved {
                    Some((of, was, base)) if of == logical && was == cluster => base,
                    _ => {
                        let base = match claims.get_mut(&cluster) {
                            Some(count) if *count > 1 => {
                                let Some(base) = self.allocate_block(from)? else {
                                    return Ok(None);
                                };
                                *count -= 1;
                                Some(base)
                            }
                            _ => None,
                        };
                        moved = Some((logical, cluster, base));
                        base
                    }
                };
                let to = match base {
                    Some(base) => {
                        let to = BlockNo(base.0 + block % per_cluster);
                        if let Some(format) = orphan_format {
                            let mut bytes = self.read_claimed(from)?;
                            // The checksum covers the place of the block.
                            if format.verify(&bytes, FileBlock(block), from).is_ok() {
                                format.seal(&mut bytes, to);
                            }
                            self.store.write(to, &bytes)?;
                        } else if !copy.extend(from, to) {
                            self.copy_blocks(&copy)?;
                            copy = BlockCopy { from, to, count: 1 };
                        }
                        to
                    }
                    None => from,
                };
                push(Extent {
                    block: FileBlock(block),
                    len: 1,
                    start: to,
                    is_unwritten: extent.is_unwritten,
                });
            }
        }
        self.copy_blocks(&copy)?;
        Ok(Some(new))
    }

    /// Copies blocks; those of inode tables as they were before they were repaired.
    fn copy_blocks(&self, copy: &BlockCopy) -> Result<(), CheckError> {
        let block_len = self.geometry.block_len();
        let mut bytes = vec![0; copy.count as usize * block_len];
        if bytes.is_empty() {
            return Ok(());
        }
        self.store.read_into(copy.from, &mut bytes)?;
        for (at, block) in (copy.from.0..).zip(bytes.chunks_exact_mut(block_len)) {
            if let Some(before) = self.shared.before(BlockNo(at)) {
                block.copy_from_slice(before);
            }
        }
        self.store.write_all(copy.to, &bytes)
    }
}
