//! The reference counts of the clusters of a qcow2 file, and where new clusters are.
//!
//! The counts are blocks of numbers, found by a table. Changes stay in memory until they are
//! written: see [`super`] for the order.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use extant_device::{Device, DeviceError};

use super::failure::{damaged_file, no_space};
use super::file::GrowingFile;
use crate::vm::error::VmImageError;
use crate::vm::qcow2::{Header, be64};

/// The largest table, in bytes: qemu's limit.
const TABLE_MAX: u64 = 8 << 20;
/// Bytes of blocks that are kept in memory while they are as the file has them.
const BLOCKS_KEPT: usize = 64 << 20;
/// The bits of an entry of the table that are a place in the file.
const PLACE: u64 = !0x1ff;
/// Bytes that are written together.
pub(super) const SECTOR: usize = 512;

/// A block of counts, with the bytes that differ from the file.
struct Block {
    at: u64,
    bytes: Vec<u8>,
    changed: Range<usize>,
}

pub(super) struct Counts {
    cluster_bits: u32,
    /// The width of a count is 1 bit shifted by this.
    order: u32,
    table_at: u64,
    table: Vec<u64>,
    blocks: HashMap<u64, Block>,
    /// Entries of the table that differ from the file.
    changed: BTreeSet<usize>,
    /// The place and the clusters of the table that the header of the file names, after a move.
    moved_from: Option<Range<u64>>,
    /// No cluster before this one is free.
    first_free: u64,
    /// Clusters with metadata, which are never given out: a file that counts them as free is
    /// damaged.
    metadata: BTreeSet<u64>,
}

/// Widens `changed` so that it has `range`, in whole sectors.
pub(super) fn widen(changed: &mut Range<usize>, range: Range<usize>) {
    let range = range.start / SECTOR * SECTOR..range.end.next_multiple_of(SECTOR);
    *changed = match changed.start == changed.end {
        true => range,
        false => changed.start.min(range.start)..changed.end.max(range.end),
    };
}

impl Counts {
    pub(super) fn open(file: &dyn Device, header: &Header) -> Result<Self, VmImageError> {
        let damaged = |what| VmImageError::Damaged { what };
        let cluster = 1_u64 << header.cluster_bits;
        let bytes = u64::from(header.counts_clusters) * cluster;
        let end = header.counts_at.checked_add(bytes).filter(|end| *end <= file.size());
        if bytes == 0 || bytes > TABLE_MAX || !header.counts_at.is_multiple_of(cluster) {
            return Err(damaged("the table of reference counts"));
        }
        if header.counts_order > 6 {
            return Err(damaged("the width of the reference counts"));
        }
        end.ok_or(damaged("the table of reference counts is past the end"))?;
        let mut table = vec![0; bytes as usize];
        file.read_at(header.counts_at, &mut table)?;
        let table: Vec<u64> = table.chunks_exact(8).map(|entry| be64(entry, 0) & PLACE).collect();
        let first = header.counts_at / cluster;
        let mut metadata: BTreeSet<u64> = (first..first + bytes / cluster).collect();
        metadata.insert(0);
        for &at in table.iter().filter(|at| **at != 0) {
            if !at.is_multiple_of(cluster) || at >= file.size() {
                return Err(damaged("a block of reference counts is past the end"));
            }
            if !metadata.insert(at / cluster) {
                return Err(damaged("a cluster has two uses"));
            }
        }
        Ok(Self {
            cluster_bits: header.cluster_bits,
            order: header.counts_order,
            table_at: header.counts_at,
            table,
            blocks: HashMap::new(),
            changed: BTreeSet::new(),
            moved_from: None,
            first_free: 0,
            metadata,
        })
    }

    /// Adds a cluster of metadata that another one names.
    ///
    /// # Errors
    /// It has another use already.
    pub(super) fn add_metadata(&mut self, cluster: u64) -> Result<(), VmImageError> {
        match self.metadata.insert(cluster) {
            true => Ok(()),
            false => Err(VmImageError::Damaged { what: "a cluster has two uses" }),
        }
    }

    fn cluster(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Clusters that a block counts.
    fn per_block(&self) -> u64 {
        1 << (self.cluster_bits + 3 - self.order)
    }

    fn block(&mut self, file: &dyn Device, index: u64) -> Result<Option<&mut Block>, DeviceError> {
        let at = self.table.get(index as usize).copied().unwrap_or(0);
        if at == 0 {
            return Ok(None);
        }
        if !self.blocks.contains_key(&index) {
            if self.blocks.len() << self.cluster_bits >= BLOCKS_KEPT {
                self.blocks.retain(|_, block| !block.changed.is_empty());
            }
            let mut bytes = vec![0; self.cluster() as usize];
            let there = file.size().saturating_sub(at).min(self.cluster()) as usize;
            file.read_at(at, &mut bytes[..there])?;
            self.blocks.insert(index, Block { at, bytes, changed: 0..0 });
        }
        Ok(self.blocks.get_mut(&index))
    }

    /// Number of references to a cluster.
    pub(super) fn get(&mut self, file: &dyn Device, cluster: u64) -> Result<u64, DeviceError> {
        let (per_block, order) = (self.per_block(), self.order);
        let place = cluster % per_block;
        let block = self.block(file, cluster / per_block)?;
        Ok(block.map_or(0, |block| get(&block.bytes, order, place)))
    }

    fn set(&mut self, file: &dyn Device, cluster: u64, count: u64) -> Result<(), DeviceError> {
        let (per_block, order) = (self.per_block(), self.order);
        let place = cluster % per_block;
        let block = self.block(file, cluster / per_block)?;
        let block = block.ok_or_else(|| damaged_file(cluster, "a cluster without a count"))?;
        let range = set(&mut block.bytes, order, place, count);
        widen(&mut block.changed, range);
        Ok(())
    }

    /// Takes one reference away. Whether the cluster is free now.
    pub(super) fn release(&mut self, file: &dyn Device, cluster: u64) -> Result<bool, DeviceError> {
        let count = self.get(file, cluster)?;
        let count = count.checked_sub(1);
        let count = count.ok_or_else(|| damaged_file(cluster, "a free cluster is in use"))?;
        self.set(file, cluster, count)?;
        if count == 0 {
            self.first_free = self.first_free.min(cluster);
            self.metadata.remove(&cluster);
        }
        Ok(count == 0)
    }

    /// A free cluster, which has one reference now. Nothing of it is written.
    pub(super) fn allocate(&mut self, file: &GrowingFile) -> Result<u64, DeviceError> {
        let mut cluster = self.first_free;
        loop {
            let index = cluster / self.per_block();
            if index >= self.table.len() as u64 {
                self.grow_table(file)?;
                continue;
            }
            if self.table[index as usize] == 0 {
                // Nothing that the block counts is in use: the block is its first cluster.
                cluster = cluster.max(index * self.per_block());
                self.add_block(file, index, cluster)?;
                cluster += 1;
                continue;
            }
            if self.get(&*file.device, cluster)? == 0 {
                break;
            }
            cluster += 1;
            self.first_free = cluster;
        }
        if self.metadata.contains(&cluster) {
            return Err(damaged_file(cluster, "metadata are counted as free"));
        }
        file.reach((cluster + 1) << self.cluster_bits)?;
        self.set(&*file.device, cluster, 1)?;
        self.first_free = cluster + 1;
        Ok(cluster)
    }

    /// A new block of counts in a free cluster, which it counts itself or an earlier new one does.
    fn add_block(
        &mut self,
        file: &GrowingFile,
        index: u64,
        cluster: u64,
    ) -> Result<(), DeviceError> {
        if !self.metadata.insert(cluster) {
            return Err(damaged_file(cluster, "metadata are counted as free"));
        }
        file.reach((cluster + 1) << self.cluster_bits)?;
        let (at, size) = (cluster << self.cluster_bits, self.cluster() as usize);
        self.table[index as usize] = at;
        self.changed.insert(index as usize);
        self.blocks.insert(index, Block { at, bytes: vec![0; size], changed: 0..size });
        self.set(&*file.device, cluster, 1)
    }

    /// Moves the table to a larger place after all that it counts.
    fn grow_table(&mut self, file: &GrowingFile) -> Result<(), DeviceError> {
        let per_table = self.cluster() / 8;
        let old = self.table.len() as u64 / per_table;
        let new = (old * 2).max(old + 1);
        if new << self.cluster_bits > TABLE_MAX {
            return Err(no_space("the image has no more reference counts"));
        }
        let (start, per_block) = (self.table.len() as u64 * self.per_block(), self.per_block());
        let mut blocks = 1;
        while blocks * per_block < blocks + new {
            blocks += 1;
        }
        let place = start + blocks;
        if (start..place + new).any(|cluster| self.metadata.contains(&cluster)) {
            return Err(damaged_file(start, "metadata are counted as free"));
        }
        file.reach((place + new) << self.cluster_bits)?;
        let first_index = self.table.len() as u64;
        self.table.resize((new * per_table) as usize, 0);
        for number in 0..blocks {
            // The block of the first clusters comes first, so that it counts the others.
            self.add_block(file, first_index + number, start + number)?;
        }
        for cluster in place..place + new {
            self.set(&*file.device, cluster, 1)?;
            self.metadata.insert(cluster);
        }
        let before = self.table_at >> self.cluster_bits;
        self.table_at = place << self.cluster_bits;
        match self.moved_from {
            None => self.moved_from = Some(before..before + old),
            // The file never named the table before this one.
            Some(_) => {
                for cluster in before..before + old {
                    self.release(&*file.device, cluster)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a block differs from the file.
    pub(super) fn is_changed(&self) -> bool {
        self.blocks.values().any(|block| !block.changed.is_empty())
    }

    /// Writes the blocks that differ.
    pub(super) fn write_blocks(&self, file: &dyn Device) -> Result<(), DeviceError> {
        let changed = self.blocks.values().filter(|block| !block.changed.is_empty());
        let sorted: BTreeMap<u64, &Block> = changed.map(|block| (block.at, block)).collect();
        for (at, block) in sorted {
            file.write_at(at + block.changed.start as u64, &block.bytes[block.changed.clone()])?;
        }
        if self.moved_from.is_some() {
            file.write_at(self.table_at, &self.table_bytes(0..self.table.len()))?;
        }
        Ok(())
    }

    /// The blocks are as the file has them.
    pub(super) fn blocks_are_written(&mut self) {
        for block in self.blocks.values_mut() {
            block.changed = 0..0;
        }
    }

    /// Whether the file does not name all blocks yet.
    pub(super) fn is_table_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Makes the file name all blocks, which it has.
    pub(super) fn write_table(&self, file: &dyn Device) -> Result<(), DeviceError> {
        if self.moved_from.is_some() {
            // `refcount_table_offset` and `refcount_table_clusters`, in one sector.
            let clusters = (self.table.len() as u64 * 8) >> self.cluster_bits;
            let mut fields = self.table_at.to_be_bytes().to_vec();
            fields.extend((clusters as u32).to_be_bytes());
            return file.write_at(48, &fields);
        }
        let per_sector = SECTOR / 8;
        let sectors: BTreeSet<usize> =
            self.changed.iter().map(|index| index / per_sector).collect();
        for sector in sectors {
            let entries = sector * per_sector..(sector + 1) * per_sector;
            file.write_at(self.table_at + (sector * SECTOR) as u64, &self.table_bytes(entries))?;
        }
        Ok(())
    }

    /// The file names all blocks. Gives the clusters of the old table, which are to be released.
    pub(super) fn table_is_written(&mut self) -> Range<u64> {
        self.changed.clear();
        self.moved_from.take().unwrap_or(0..0)
    }

    fn table_bytes(&self, entries: Range<usize>) -> Vec<u8> {
        self.table[entries].iter().flat_map(|entry| entry.to_be_bytes()).collect()
    }
}

/// A count of a block. Counts of less than a byte begin at the lowest bits.
fn get(bytes: &[u8], order: u32, place: u64) -> u64 {
    let place = place as usize;
    if order < 3 {
        let (per_byte, bits) = (8_usize >> order, 1_u32 << order);
        let shift = (place % per_byte) as u32 * bits;
        return u64::from(bytes[place / per_byte] >> shift) & ((1 << bits) - 1);
    }
    let width = 1 << (order - 3);
    let mut number = [0; 8];
    number[8 - width..].copy_from_slice(&bytes[place * width..(place + 1) * width]);
    u64::from_be_bytes(number)
}

/// Sets a count; the bytes that were changed.
fn set(bytes: &mut [u8], order: u32, place: u64, count: u64) -> Range<usize> {
    let place = place as usize;
    if order < 3 {
        let (per_byte, bits) = (8_usize >> order, 1_u32 << order);
        let shift = (place % per_byte) as u32 * bits;
        let mask = ((1_u32 << bits) - 1) << shift;
        let at = place / per_byte;
        bytes[at] = (u32::from(bytes[at]) & !mask | (count as u32) << shift & mask) as u8;
        return at..at + 1;
    }
    let width = 1 << (order - 3);
    let range = place * width..(place + 1) * width;
    bytes[range.clone()].copy_from_slice(&count.to_be_bytes()[8 - width..]);
    range
}
