//! The reservations of delayed data: clusters for themselves and for their map, and the quotas of
//! their owners.

use super::DelayedData;
use crate::engine::Engine;
use crate::ops::Credentials;
use crate::write::mapping::has_blocks_in_cluster;
use crate::write::quota::Owners;
use extant_ondisk::indirect::IndirectMap;
use extant_ondisk::{FileBlock, Geometry};
use extant_reader::Error;
use extant_reader::read::inode::LoadedInode;
use std::ops::Range;

/// Bytes of a node's header, and of each of its records.
const NODE_HEADER: u64 = 12;
const NODE_RECORD: u64 = 12;
/// Levels of a tree of extents, and of pointers.
const MAX_DEPTH: u16 = 5;
const INDIRECT_LEVELS: u64 = 3;

/// Number of blocks that a map grows by at most when `blocks` blocks in `runs` runs are mapped,
/// however scattered they are.
///
/// A run may split a node on each level, and in the worst case each block becomes an extent of its
/// own; nodes that were split are half full.
pub(super) fn map_growth(geometry: &Geometry, file: &LoadedInode, runs: u64, blocks: u64) -> u64 {
    if blocks == 0 {
        return 0;
    }
    let (levels, per_node) = if file.is_extent_mapped() {
        let depth = u16::from_le_bytes([file.i_block[6], file.i_block[7]]).min(MAX_DEPTH);
        let records = (u64::from(geometry.block_size) - NODE_HEADER) / NODE_RECORD;
        (u64::from(depth) + 1, records / 2)
    } else {
        (INDIRECT_LEVELS, IndirectMap::new(geometry.block_size).pointers_per_block())
    };
    let mut growth = runs * levels + 1;
    let mut nodes = blocks / per_node;
    while nodes > 0 {
        growth += nodes;
        nodes /= per_node;
    }
    growth
}

impl Engine {
    /// Reserves the space that blocks of a hole need beyond the file's reservation. A failed call
    /// has reserved nothing.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::QuotaExceeded`], a broken map or quota file, or the device
    /// failed.
    pub(crate) fn reserve(
        &self,
        file: &LoadedInode,
        delayed: &mut DelayedData,
        blocks: &Range<u64>,
        by: &Credentials,
    ) -> Result<(), Error> {
        let geometry = self.geometry();
        let clusters = self.unreserved_clusters(file, delayed, blocks)?;
        let data = clusters.as_ref().map_or(blocks.end - blocks.start, |new| new.len() as u64);
        let count = delayed.blocks() + (blocks.end - blocks.start);
        let map = map_growth(geometry, file, delayed.runs_count() + 1, count);
        let map = map.saturating_sub(delayed.map_reserved);
        let quota = data * geometry.cluster_size();
        if !by.is_privileged {
            self.reserve_quota(file, quota)?;
            delayed.quota += quota;
        }
        if let Err(error) = self.allocator.reserve(data + map, by.is_privileged) {
            if !by.is_privileged {
                self.release_quota(file, quota);
                delayed.quota -= quota;
            }
            return Err(error);
        }
        delayed.data_reserved += data;
        delayed.map_reserved += map;
        for cluster in clusters.into_iter().flatten() {
            delayed.add_cluster(cluster);
        }
        Ok(())
    }

    /// Whether `bytes` bytes of data would find space in a file, and its owners' limits allow them.
    /// Nothing is reserved: others may be faster.
    ///
    /// # Errors
    /// An error has made the volume read-only, a broken quota file, or the device failed.
    pub fn has_room(
        &self,
        file: &LoadedInode,
        bytes: u64,
        by: &Credentials,
    ) -> Result<bool, Error> {
        self.check_writable()?;
        let clusters = bytes.div_ceil(self.geometry().cluster_size());
        if !self.allocator.has_room(clusters, by.is_privileged) {
            return Ok(false);
        }
        if by.is_privileged || !self.has_quotas() {
            return Ok(true);
        }
        let now = self.now().seconds;
        match self.quotas.lock().check_limits(self, Owners::of(&file.inode), bytes, now) {
            Err(Error::QuotaExceeded) => Ok(false),
            verified => verified.map(|()| true),
        }
    }

    /// With bigalloc: the logical clusters of a range that neither have blocks nor are reserved.
    fn unreserved_clusters(
        &self,
        file: &LoadedInode,
        delayed: &DelayedData,
        blocks: &Range<u64>,
    ) -> Result<Option<Vec<u64>>, Error> {
        let per_cluster = u64::from(self.geometry().blocks_per_cluster);
        if per_cluster == 1 {
            return Ok(None);
        }
        let mut new = Vec::new();
        for cluster in blocks.start / per_cluster..blocks.end.div_ceil(per_cluster) {
            let start = FileBlock(cluster * per_cluster);
            if !delayed.has_cluster(cluster) && !has_blocks_in_cluster(self, file, start)? {
                new.push(cluster);
            }
        }
        Ok(Some(new))
    }

    /// Blocks are delayed no more: they were given places, for which `consumed` clusters were
    /// taken, or were dropped. Gives back memory and reservations that are not needed any more. The
    /// file's lock is held.
    pub(super) fn forget(
        &self,
        file: &LoadedInode,
        delayed: &mut DelayedData,
        blocks: Range<u64>,
        consumed: Option<u64>,
    ) {
        let geometry = self.geometry();
        let (memory, reserved) = (delayed.memory(), delayed.data_reserved);
        delayed.remove(blocks.clone(), geometry, &self.delalloc.buffers);
        self.delalloc.memory.changed(memory, delayed.memory());
        let per_cluster = u64::from(geometry.blocks_per_cluster);
        if per_cluster == 1 {
            delayed.data_reserved = delayed.blocks();
        } else {
            let clusters = blocks.start / per_cluster..blocks.end.div_ceil(per_cluster);
            let has_place = consumed.is_some();
            delayed.remove_clusters(clusters, |delayed, cluster| {
                let blocks = cluster * per_cluster..(cluster + 1) * per_cluster;
                has_place || !delayed.overlaps(&blocks, geometry)
            });
            delayed.data_reserved = delayed.clusters_count();
        }
        let gone = reserved - delayed.data_reserved;
        self.allocator.unreserve(gone - consumed.unwrap_or(0).min(gone));
        let quota = (delayed.data_reserved * geometry.cluster_size()).min(delayed.quota);
        self.release_quota(file, delayed.quota - quota);
        delayed.quota = quota;
        let map = map_growth(geometry, file, delayed.runs_count(), delayed.blocks());
        if map < delayed.map_reserved {
            self.allocator.unreserve(delayed.map_reserved - map);
            delayed.map_reserved = map;
        }
        if delayed.is_empty()
            && let Some(due) = delayed.due.take()
        {
            self.delalloc.remove(due, file.number);
        }
    }

    /// Drops all delayed data of a file from a block on. The file's lock is held.
    pub(crate) fn drop_delayed(&self, file: &LoadedInode, delayed: &mut DelayedData, from: u64) {
        if !delayed.is_empty() {
            self.forget(file, delayed, from..u64::MAX >> 20, None);
        }
    }

    /// Reserves quota for the owners of a file.
    fn reserve_quota(&self, file: &LoadedInode, bytes: u64) -> Result<(), Error> {
        if !self.has_quotas() || bytes == 0 {
            return Ok(());
        }
        let mut reserved = self.quotas.lock();
        let now = self.now().seconds;
        reserved.reserve(self, file, bytes, now)
    }

    /// Gives back a reservation of the owners of a file.
    fn release_quota(&self, file: &LoadedInode, bytes: u64) {
        if self.has_quotas() && bytes > 0 {
            self.quotas.lock().take_back(Owners::of(&file.inode), bytes);
        }
    }
}
