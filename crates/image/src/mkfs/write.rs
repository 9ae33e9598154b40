//! Bringing a new volume to its device: large sorted writes, and only of what is not zero there
//! already.

use std::io::IoSlice;
use std::ops::Range;

use extant_device::{Device, DeviceError, Request};
use extant_layout::DescriptorTable;
use extant_layout::groups::{desc_block_places, leading};
use extant_layout::tables::GroupTables;
use extant_ondisk::superblock::{RawSuperblock, State};
use extant_ondisk::{BlockNo, GroupNo};
use rayon::prelude::*;
use zerocopy::IntoBytes;

use super::summary::{GroupSummary, Usage, store, summarize};
use super::volume::NewVolume;

/// Where the superblock starts, whatever the block size.
const SUPERBLOCK_AT: u64 = 1024;
/// Bytes collected before they are written.
const BATCH_BYTES: usize = 8 << 20;
/// Groups that are summed up side by side; most of their bitmaps need not be kept.
const GROUPS_AT_ONCE: usize = 1024;
/// The end of the device is cleared so far: other formats keep their signatures there.
const TAIL_BYTES: u64 = 64 * 1024;

/// How to write.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteRules {
    /// Bytes from the device's start to the volume's.
    pub offset: u64,
    /// Give the whole range back to the device first.
    pub discard: bool,
    /// Everything reads as zero already, by an option.
    pub prezeroed: bool,
    /// Superblocks and descriptors only: a last attempt to save a volume (`-S`).
    pub super_only: bool,
    /// The caller's thread alone uses the device, as that of a simulated drive must.
    pub one_thread: bool,
}

/// Writes that wait to be sorted and merged.
pub(crate) struct Batch<'a> {
    device: &'a dyn Device,
    offset: u64,
    waiting: Vec<(u64, Vec<u8>)>,
    bytes: usize,
    written: u64,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(device: &'a dyn Device, offset: u64) -> Self {
        Self { device, offset, waiting: Vec::new(), bytes: 0, written: 0 }
    }

    pub(crate) fn put(&mut self, at: u64, bytes: Vec<u8>) -> Result<(), DeviceError> {
        self.bytes += bytes.len();
        self.waiting.push((at, bytes));
        if self.bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Sends everything: neighbours as one vectored write.
    pub(crate) fn flush(&mut self) -> Result<(), DeviceError> {
        /// Vectors that one system call takes.
        const MAX_VECTORS: usize = 1024;
        self.waiting.sort_unstable_by_key(|(at, _)| *at);
        let mut requests = Vec::new();
        let mut waiting = self.waiting.iter().peekable();
        while let Some((start, bytes)) = waiting.next() {
            let mut slices = vec![IoSlice::new(bytes)];
            let mut end = start + bytes.len() as u64;
            while slices.len() < MAX_VECTORS
                && let Some((_, bytes)) = waiting.next_if(|(at, _)| *at == end)
            {
                slices.push(IoSlice::new(bytes));
                end += bytes.len() as u64;
            }
            requests.push(Request::write_vectored(self.offset + start, slices));
        }
        self.device.submit(&mut requests)?;
        drop(requests);
        self.written += self.bytes as u64;
        self.waiting.clear();
        self.bytes = 0;
        Ok(())
    }
}

impl NewVolume {
    /// Writes the volume; the superblock comes last, so that a partly made volume is not recognised
    /// as one.
    pub fn write_to(&mut self, device: &dyn Device, rules: WriteRules) -> Result<(), DeviceError> {
        let zeroed = if rules.super_only { false } else { self.clear(device, rules)? };
        self.write_metadata(device, rules, zeroed)
    }

    /// The work of [`Self::write_to`] after the device is cleared; `zeroed` is the result of
    /// [`Self::clear`].
    pub(crate) fn write_metadata(
        &mut self,
        device: &dyn Device,
        rules: WriteRules,
        zeroed: bool,
    ) -> Result<(), DeviceError> {
        let mut batch = Batch::new(device, rules.offset);
        if !rules.super_only {
            self.write_contents(&mut batch)?;
        }
        let table = self.write_groups(&mut batch, zeroed, rules.super_only)?;
        batch.flush()?;
        // Bitmaps lie scattered, so their way to the medium is long: it begins while the
        // descriptors are copied.
        if rules.one_thread {
            self.write_descriptors(&mut batch, &table, rules)?;
            self.write_superblocks(&mut batch, rules)?;
            return device.flush();
        }
        std::thread::scope(|scope| {
            let bitmaps = scope.spawn(|| device.flush());
            let written = self.write_descriptors(&mut batch, &table, rules);
            let flushed = bitmaps.join().expect("a device reports errors, it does not panic");
            written.and(flushed)
        })?;
        self.write_superblocks(&mut batch, rules)?;
        device.flush()
    }

    fn byte(&self, block: u64) -> u64 {
        self.geometry.byte_of(BlockNo(block))
    }

    /// Clears old signatures. Returns whether all inode tables read as zero now.
    pub(crate) fn clear(
        &self,
        device: &dyn Device,
        rules: WriteRules,
    ) -> Result<bool, DeviceError> {
        let size = self.byte(self.geometry.blocks_count);
        let at = |range: Range<u64>| rules.offset + range.start..rules.offset + range.end;
        let mut all_zero = rules.prezeroed;
        if rules.discard && !all_zero {
            device.discard(at(0..size))?;
            all_zero = device.discard_reads_zero();
        }
        if all_zero {
            return Ok(true);
        }
        // Old signatures before the superblock and at the end.
        let boot = 0..SUPERBLOCK_AT;
        let mut ranges = Vec::from([boot]);
        let tail = size.saturating_sub(TAIL_BYTES).max(self.byte(1))..size;
        let tail_blocks = tail.start.div_ceil(u64::from(self.geometry.block_size));
        if self.used.is_free(tail_blocks..self.geometry.blocks_count) {
            ranges.push(tail);
        }
        ranges.extend(self.zeroes.iter().map(|run| self.byte(run.start)..self.byte(run.end)));
        let is_lazy = self.params.lazy_itable_init && self.geometry.has_uninit_groups();
        if !is_lazy {
            let length = u64::from(self.geometry.itable_blocks());
            ranges.extend(self.tables.iter().map(|tables| {
                self.byte(tables.inode_table.0)..self.byte(tables.inode_table.0 + length)
            }));
        }
        for range in merged(ranges) {
            for run in extant_device::data_runs(device, at(range)) {
                device.write_zeroes(run?)?;
            }
        }
        if !is_lazy {
            return Ok(true);
        }
        // A file's holes are zero, too: then nothing is left for the kernel to do.
        self.tables_are_holes(device, rules.offset)
    }

    fn tables_are_holes(&self, device: &dyn Device, offset: u64) -> Result<bool, DeviceError> {
        let length = u64::from(self.geometry.itable_blocks());
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for tables in &self.tables {
            let start = offset + self.byte(tables.inode_table.0);
            let end = offset + self.byte(tables.inode_table.0 + length);
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        let mut known_hole = 0..0;
        for range in ranges {
            if known_hole.contains(&range.start) && range.end <= known_hole.end {
                continue;
            }
            // One question covers every table up to the next data.
            let rest = range.start..device.size().max(range.end);
            match device.next_data(rest.clone())? {
                None => known_hole = rest,
                Some(data) if data.start < range.end => return Ok(false),
                Some(data) => known_hole = rest.start..data.start,
            }
        }
        Ok(true)
    }

    fn write_contents(&mut self, batch: &mut Batch<'_>) -> Result<(), DeviceError> {
        for (block, bytes) in std::mem::take(&mut self.contents) {
            batch.put(self.byte(block), bytes)?;
        }
        // Whole blocks of the tables, from the first record used to the last.
        let per_block = self.geometry.inodes_per_block();
        let size = usize::from(self.geometry.inode_size);
        let mut open: Option<(u64, Vec<u8>)> = None;
        for (number, record) in std::mem::take(&mut self.records) {
            let index = number - 1;
            let group = index / self.geometry.inodes_per_group;
            let within = index % self.geometry.inodes_per_group;
            let Some(tables) = self.tables.get(group as usize) else { continue };
            let block = tables.inode_table.0 + u64::from(within / per_block);
            if open.as_ref().is_none_or(|(at, _)| *at != block) {
                if let Some((at, bytes)) = open.take() {
                    batch.put(self.byte(at), bytes)?;
                }
                open = Some((block, vec![0; self.geometry.block_len()]));
            }
            if let Some((_, bytes)) = &mut open {
                let at = (within % per_block) as usize * size;
                bytes[at..at + size].copy_from_slice(&record);
            }
        }
        if let Some((at, bytes)) = open {
            batch.put(self.byte(at), bytes)?;
        }
        Ok(())
    }

    /// Writes the bitmaps and returns the descriptor table.
    fn write_groups(
        &mut self,
        batch: &mut Batch<'_>,
        zeroed: bool,
        super_only: bool,
    ) -> Result<DescriptorTable, DeviceError> {
        let usage = Usage { blocks: &self.used, inodes: &self.inodes, tables_zeroed: zeroed };
        let size = usize::from(self.geometry.desc_size);
        let mut table = DescriptorTable::zeroed(&self.geometry);
        let (mut free_clusters, mut free_inodes) = (0_u64, 0_u32);
        let one = |group: GroupNo, tables: &GroupTables, stored: &mut [u8]| {
            let directories = self.directories.get(&group.0).copied().unwrap_or(0);
            let mut summary = summarize(&self.geometry, group, tables, directories, usage);
            if super_only {
                // The contents of bitmaps and tables are unknown: e2fsck must check all of them.
                summary.desc.flags = extant_ondisk::group_desc::GroupFlags::empty();
                summary.desc.itable_unused = 0;
                (summary.block_bitmap, summary.inode_bitmap) = (None, None);
            }
            store(&summary.desc, group, &self.geometry, stored);
            summary
        };
        for (index, (tables, stored)) in self
            .tables
            .chunks(GROUPS_AT_ONCE)
            .zip(table.bytes_mut().chunks_mut(GROUPS_AT_ONCE * size))
            .enumerate()
        {
            let first = GroupNo((index * GROUPS_AT_ONCE) as u32);
            let summaries: Vec<GroupSummary> = tables
                .par_iter()
                .zip(stored.par_chunks_exact_mut(size))
                .enumerate()
                .map(|(at, (tables, stored))| one(GroupNo(first.0 + at as u32), tables, stored))
                .collect();
            for (tables, summary) in tables.iter().zip(summaries) {
                free_clusters += u64::from(summary.desc.free_clusters);
                free_inodes += summary.desc.free_inodes;
                if let Some(bits) = summary.block_bitmap {
                    batch.put(self.geometry.byte_of(tables.block_bitmap), bits)?;
                }
                if let Some(bits) = summary.inode_bitmap {
                    batch.put(self.geometry.byte_of(tables.inode_bitmap), bits)?;
                }
            }
        }
        self.superblock.free_blocks = free_clusters * u64::from(self.geometry.blocks_per_cluster);
        self.superblock.free_inodes = free_inodes;
        if super_only {
            self.superblock.state = State::ERRORS;
        }
        Ok(table)
    }

    /// Writes all copies of the descriptor table.
    fn write_descriptors(
        &self,
        batch: &mut Batch<'_>,
        table: &DescriptorTable,
        rules: WriteRules,
    ) -> Result<(), DeviceError> {
        if self.geometry.has_incompat(extant_ondisk::IncompatFeatures::META_BG) {
            for number in 0..self.geometry.desc_blocks() {
                let bytes = table.block(number, &self.geometry);
                for place in desc_block_places(&self.geometry, number) {
                    batch.put(self.geometry.byte_of(place), bytes.to_vec())?;
                }
            }
            batch.flush()?;
        } else {
            let groups =
                std::iter::once(GroupNo(0)).chain(self.geometry.backup_superblock_groups());
            for group in groups {
                let start = leading(&self.geometry, group).descriptors.start;
                let at = rules.offset + self.byte(start);
                batch.device.submit(&mut [Request::write(at, table.bytes())])?;
                batch.written += table.bytes().len() as u64;
            }
        }
        Ok(())
    }

    fn write_superblocks(
        &mut self,
        batch: &mut Batch<'_>,
        rules: WriteRules,
    ) -> Result<(), DeviceError> {
        let backups = self.geometry.backup_superblock_groups();
        batch.written += (backups.len() as u64 + 1) * SUPERBLOCK_AT;
        self.superblock.kbytes_written = batch.written.div_ceil(1024);
        for group in backups {
            let raw = self.raw_superblock_of(group);
            let start = self.byte(self.geometry.group_start(group).0);
            batch.put(start, raw.as_bytes().to_vec())?;
        }
        batch.flush()?;
        batch.device.flush()?;
        let raw = self.raw_superblock_of(GroupNo(0));
        batch.device.write_at(rules.offset + SUPERBLOCK_AT, raw.as_bytes())
    }

    /// The superblock, or its backup in another group, sealed.
    pub fn raw_superblock_of(&self, group: GroupNo) -> RawSuperblock {
        let mut raw = self.raw;
        self.superblock.encode_into(&mut raw);
        // 16 bits are stored, and backups lie in low groups or at powers: the rest is cut off as
        // the kernel does.
        raw.s_block_group_nr.set((group.0 & 0xffff) as u16);
        raw.seal();
        raw
    }
}

/// Ranges in order, neighbours joined.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}
