//! Repairs of maps that need free blocks: done when all of pass 1 knows what is in use.

use crate::context::Check;
use crate::store::CheckError;
use extant_ondisk::extent::Extent;
use extant_ondisk::inode::{Inode, InodeFlags};
use extant_ondisk::{BlockNo, ClusterNo, FileBlock, InodeNo};
use std::collections::BTreeSet;

impl Check<'_> {
    pub(super) fn run_deferred(&self) -> Result<(), CheckError> {
        if !self.is_repair() {
            return Ok(());
        }
        let deferred = std::mem::take(&mut *self.deferred.lock());
        let mut all: BTreeSet<InodeNo> = BTreeSet::new();
        all.extend(deferred.rebuild.iter().chain(&deferred.write_out).chain(&deferred.close_holes));
        all.extend(deferred.misaligned.iter().chain(&deferred.to_extents));
        all.extend(deferred.drop_from.iter().map(|(ino, _)| *ino));
        for ino in all {
            let mut record = self.record(ino)?;
            let Ok(mut inode) = Inode::decode(&record, ino, self.geometry) else { continue };
            let old = self.read_map(ino, &inode)?;
            let mut new = old.clone();
            for (_, from) in deferred.drop_from.iter().filter(|(of, _)| *of == ino) {
                new.truncate(*from);
            }
            if deferred.write_out.contains(&ino) {
                for extent in &mut new.extents {
                    extent.is_unwritten = false;
                }
            }
            if deferred.close_holes.contains(&ino) {
                let mut next = 0;
                for extent in &mut new.extents {
                    extent.block = FileBlock(next);
                    next = extent.end().0;
                }
                new.join();
                inode.size = new.end() * u64::from(self.geometry.block_size);
            }
            if deferred.misaligned.contains(&ino) && !self.realign(&mut new)? {
                continue;
            }
            if deferred.to_extents.contains(&ino) {
                inode.flags |= InodeFlags::EXTENTS;
            }
            // A node that something else claims may be that one's: the map is written elsewhere.
            let is_own = |node: &BlockNo| !self.is_claimed_twice(self.blocks.cluster_of(*node));
            let own: Vec<_> = old.nodes.iter().copied().filter(is_own).collect();
            if self.write_map_over(&own, ino, &mut inode, &old, &new)? {
                inode.encode_into(&mut record, self.geometry);
                self.store.write_inode_ordered(ino, &mut record);
            }
        }
        Ok(())
    }

    /// Whether a cluster is the volume's own, or several files claim it.
    fn is_claimed_twice(&self, cluster: ClusterNo) -> bool {
        // Of a window it is not known what files of others claim.
        self.blocks.is_system(cluster)
            || !self.window.is_whole() && self.shared.contains(cluster)
            || self.blocks.twice().is_some_and(|twice| twice.contains(cluster.0))
    }

    /// Moves extents that lie wrongly in their clusters to new ones, block by block; false when the
    /// volume is full.
    pub(super) fn realign(&self, map: &mut crate::map::FileMap) -> Result<bool, CheckError> {
        let per_cluster = u64::from(self.geometry.blocks_per_cluster);
        let first = self.geometry.first_data_block.0;
        let mut moved: Vec<Extent> = Vec::new();
        // The cluster that holds the blocks of the current logical cluster.
        let mut home: Option<(u64, BlockNo)> = None;
        for extent in std::mem::take(&mut map.extents) {
            for at in 0..u64::from(extent.len) {
                let (block, from) = (extent.block.0 + at, BlockNo(extent.start.0 + at));
                let logical = block / per_cluster;
                let is_right = (from.0 - first) % per_cluster == block % per_cluster;
                let base = match home {
                    Some((of, base)) if of == logical => base,
                    _ if is_right => BlockNo(from.0 - block % per_cluster),
                    _ => match self.allocate_block(from)? {
                        Some(base) => base,
                        None => return Ok(false),
                    },
                };
                home = Some((logical, base));
                let to = BlockNo(base.0 + block % per_cluster);
                if to != from {
                    self.store.write(to, &self.store.read(from)?)?;
                }
                let one = Extent {
                    block: FileBlock(block),
                    len: 1,
                    start: to,
                    is_unwritten: extent.is_unwritten,
                };
                match moved.last_mut() {
                    Some(last) if last.is_continued_by(&one) => last.len += 1,
                    _ => moved.push(one),
                }
            }
        }
        map.extents = moved;
        Ok(true)
    }
}
