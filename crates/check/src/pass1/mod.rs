//! Pass 1: every inode in use, its map, its attributes.
//!
//! Inode tables are read in large pieces, in order, up to each group's high-water mark; each worker
//! takes one piece after another. A worker's data about directories stay with it until all pieces
//! are done. A healthy inode costs one checksum, one decode, and a claim for each of its runs.

mod deferred;
mod dups;
mod extents;
mod features;
mod fields;
mod indirect;
mod inline;
mod inode;
mod special;
mod system;
mod visit;
mod xattr;

pub(crate) use fields::is_sound_special;

use crate::context::Check;
use crate::report::{Discontinuity, DiscontinuityTarget, VolumeStatistics};
use crate::store::CheckError;
use crate::tables::{DirBlock, DirInfo, DirTable, Kind, Usage};
use extant_ondisk::{BlockNo, GroupNo, InodeNo};
use extant_runtime::sync::Mutex;
use roaring::RoaringBitmap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes of inode table that a worker takes at once: few where there are few in all, so that all
/// workers have some.
const PIECES: [usize; 2] = [256 << 10, 1 << 20];
/// Bytes of inode table that are worth large pieces.
const MANY: u64 = 16 << 20;
/// Bytes that are read at once where they are in the cache: what a processor's own cache holds.
const AT_ONCE: u64 = 256 << 10;

/// Blocks that are read at once for the inodes in which a scan found something.
const FOUND_AT_ONCE: u64 = 4;

/// Results of one worker.
#[derive(Default)]
pub(crate) struct Local {
    pub(crate) dirs: Vec<DirInfo>,
    pub(crate) dir_blocks: Vec<DirBlock>,
    pub(crate) statistics: VolumeStatistics,
    pub(crate) usage: Usage,
    pub(crate) discontinuities: Vec<Discontinuity>,
    /// Blocks of the current extent tree, one per level.
    pub(crate) nodes: Vec<Vec<u8>>,
}

impl Local {
    /// Bytes of what grows with directories.
    fn bytes(&self) -> usize {
        self.dirs.capacity() * size_of::<DirInfo>()
            + self.dir_blocks.capacity() * size_of::<DirBlock>()
    }
}

/// A part of one group's inode table.
#[derive(Clone, Copy, Debug)]
struct TableChunk {
    group: GroupNo,
    /// First block of the table.
    table: BlockNo,
    /// First inode of the piece, counted from 0 in the table; at a block's start.
    first: u32,
    count: u32,
    /// Inodes of the whole group up to its high-water mark.
    of_group: u32,
}

/// The part of a group's inode table that was ever used.
struct UsedTable {
    group: GroupNo,
    /// First block of the table.
    table: BlockNo,
    /// Inodes up to the high-water mark.
    inodes: u32,
    /// The number of its first piece.
    first_piece: usize,
}

/// The parts of all inode tables that were ever used, as pieces: computed on demand, so that
/// nothing is stored for each.
struct Pieces {
    tables: Vec<UsedTable>,
    /// Bytes of a piece.
    bytes: u64,
    /// Inodes of a piece, in whole blocks; the last piece of a table may have fewer.
    each: u32,
}

impl Pieces {
    fn get(&self, number: usize) -> Option<TableChunk> {
        let after = self.tables.partition_point(|table| table.first_piece <= number);
        let table = self.tables.get(after.checked_sub(1)?)?;
        let first = u32::try_from(number - table.first_piece).ok()?.checked_mul(self.each)?;
        let count = self.each.min(table.inodes.checked_sub(first)?);
        let UsedTable { group, table, inodes, .. } = *table;
        (count > 0).then_some(TableChunk { group, table, first, count, of_group: inodes })
    }

    /// Inodes of all pieces.
    fn inodes(&self) -> u64 {
        self.tables.iter().map(|table| u64::from(table.inodes)).sum()
    }
}

/// Inodes that are worth the start of a thread.
const SHARE: u64 = 1024;

impl Check<'_> {
    /// Pass 1, with 1B to 1D where blocks are claimed more than once.
    pub(crate) fn pass1(&mut self) -> Result<(), CheckError> {
        self.check_tables()?;
        if self.must_restart() {
            return Ok(());
        }
        let pieces = self.pieces();
        let whole = pieces.inodes();
        let this: &Self = self;
        // Pieces that are fetched ahead of the one that is checked.
        let ahead = self.options.read_ahead.div_ceil(pieces.bytes);
        let ahead = usize::try_from(ahead).unwrap_or(usize::MAX);
        for piece in (0..ahead).map_while(|at| pieces.get(at)) {
            this.fetch(&piece);
        }
        this.fetch_reserved_blocks();
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        let shares = usize::try_from(whole.div_ceil(SHARE)).unwrap_or(usize::MAX);
        let work = || {
            let mut local = Local::default();
            let mut buffer = Vec::new();
            let mut counted = 0;
            loop {
                let at = next.fetch_add(1, Relaxed);
                let Some(piece) = pieces.get(at) else { break };
                if let Some(later) = pieces.get(at.saturating_add(ahead)).filter(|_| ahead > 0) {
                    this.fetch(&later);
                }
                if failed.lock().is_some() {
                    break;
                }
                let checked = this.check_piece(&piece, &mut buffer, &mut local);
                let bytes = local.bytes();
                this.budget.take(bytes.saturating_sub(counted));
                counted = bytes;
                if let Err(error) = checked.and_then(|()| this.check_memory()) {
                    failed.lock().get_or_insert(error);
                    break;
                }
                this.progress(1, u64::from(piece.count), whole);
            }
            local.dir_blocks.sort_unstable();
            Ok(local)
        };
        let places = this.places_of(|found| &found.inodes);
        let mut locals = this.in_part(places.is_some(), || this.in_parallel(shares, work))?;
        if let Some(error) = failed.into_inner() {
            return Err(error);
        }
        if let Some(places) = places {
            locals.push(this.check_found(places)?);
        }
        self.merge(locals);
        self.check_memory()?;
        if self.must_restart() {
            return Ok(());
        }
        self.finish_resize_inode()?;
        self.run_deferred()?;
        self.resolve_multiply_claimed()?;
        self.check_xattr_references()
    }

    /// Records that a file's next block is not adjacent to its last, if the options ask for it.
    fn note_discontinuity(
        &self,
        visit: (InodeNo, Kind),
        (expected, found): (u64, u64),
        to: DiscontinuityTarget,
        local: &mut Local,
    ) {
        if self.options.list_discontinuities {
            let ((inode, kind), expected, found) = (visit, BlockNo(expected), BlockNo(found));
            local.discontinuities.push(Discontinuity { inode, kind, expected, found, to });
        }
    }

    fn merge(&mut self, locals: Vec<Local>) {
        let mut dirs = Vec::new();
        for mut local in locals {
            join(&mut dirs, local.dirs);
            join(&mut self.dir_blocks, local.dir_blocks);
            self.statistics.add(&local.statistics);
            self.discontinuities.append(&mut local.discontinuities);
            for (sum, more) in self.usage.iter_mut().zip(local.usage) {
                for (id, (space, inodes)) in more {
                    let entry = sum.entry(id).or_default();
                    entry.0 += space;
                    entry.1 += inodes;
                }
            }
        }
        // Stable: those of one inode stay in order.
        self.discontinuities.sort_by_key(|jump| jump.inode);
        self.dirs = DirTable::new(dirs);
    }

    fn pieces(&self) -> Pieces {
        let mut tables = Vec::new();
        for (group, desc) in self.descs.iter().enumerate() {
            let group = GroupNo(group as u32);
            let (inodes, table) = (self.table_used(group), desc.inode_table);
            let table_blocks = u64::from(self.geometry.itable_blocks());
            if inodes > 0 && self.geometry.contains(table, table_blocks) {
                tables.push(UsedTable { group, table, inodes, first_piece: 0 });
            }
        }
        let size = usize::from(self.geometry.inode_size);
        let all = tables.iter().map(|table| u64::from(table.inodes)).sum::<u64>() * size as u64;
        let bytes = PIECES[usize::from(all >= MANY)];
        let per_block = self.geometry.inodes_per_block();
        let each = ((bytes / size) as u32 / per_block * per_block).max(per_block);
        let mut first_piece = 0;
        for table in &mut tables {
            table.first_piece = first_piece;
            first_piece += table.inodes.div_ceil(each) as usize;
        }
        Pieces { tables, bytes: bytes as u64, each }
    }

    /// The high-water mark of a group; all inodes if the descriptor fails its checksum. The
    /// reserved inodes are always checked.
    pub(crate) fn table_used(&self, group: GroupNo) -> u32 {
        let desc = &self.descs[group.0 as usize];
        let used = desc.itable_used(self.geometry);
        let whole = self.geometry.inodes_per_group;
        if !self.store.desc_checksum_matches(group) {
            return whole;
        }
        let first = group.0 * whole; // inodes before this group
        let reserved = (self.geometry.first_inode.0 - 1).saturating_sub(first).min(whole);
        used.max(reserved)
    }

    fn blocks_of_piece(&self, piece: &TableChunk) -> Range<u64> {
        let per_block = self.geometry.inodes_per_block();
        let first = piece.table.0 + u64::from(piece.first / per_block);
        first..first + u64::from(piece.count.div_ceil(per_block))
    }

    /// Has the data of a piece fetched: for a hole, the system would fill memory with zeros.
    fn fetch(&self, piece: &TableChunk) {
        let mut rest = self.blocks_of_piece(piece);
        // A piece that cannot be requested cannot be read either, and that read reports the error.
        while let Ok(Some(run)) = self.store.next_data(rest.clone()) {
            rest.start = run.end;
            self.store.fetch(run, &self.ahead);
        }
    }

    /// The next blocks of an inode table to read: holes are skipped, unless there are bad blocks.
    /// Inodes in a bad block count as in use, in a hole too.
    fn next_records(&self, blocks: Range<u64>) -> Result<Option<Range<u64>>, CheckError> {
        if self.has_bad_inodes {
            return Ok(Some(blocks).filter(|blocks| !blocks.is_empty()));
        }
        self.store.next_data(blocks)
    }

    fn check_piece(
        &self,
        piece: &TableChunk,
        buffer: &mut Vec<u8>,
        local: &mut Local,
    ) -> Result<(), CheckError> {
        self.inodes.open(piece.group, piece.of_group, &self.budget);
        let bits = self.geometry.block_bits();
        let at_once = (AT_ONCE >> bits).max(1);
        let blocks = self.blocks_of_piece(piece);
        let mut rest = blocks.clone();
        while let Some(run) = self.next_records(rest.clone())? {
            rest.start = run.end;
            if let Some(mut fetched) = self.store.fetched(&run, &self.ahead) {
                self.check_records(piece, run.start - blocks.start, &mut fetched, local)?;
                continue;
            }
            let mut at = run.start;
            while at < run.end {
                let end = run.end.min(at + at_once);
                buffer.resize(((end - at) as usize) << bits, 0);
                self.store.read_into(BlockNo(at), buffer)?;
                self.check_records(piece, at - blocks.start, buffer, local)?;
                at = end;
            }
        }
        Ok(())
    }

    /// Records of a piece from its block `first` on.
    fn check_records(
        &self,
        piece: &TableChunk,
        first: u64,
        records: &mut [u8],
        local: &mut Local,
    ) -> Result<(), CheckError> {
        let geometry = self.geometry;
        let before = u64::from(piece.group.0) * u64::from(geometry.inodes_per_group);
        let skipped = first as u32 * geometry.inodes_per_block();
        let size = usize::from(geometry.inode_size);
        let put_off = self.inodes_put_off();
        for (index, record) in (skipped..piece.count).zip(records.chunks_exact_mut(size)) {
            let ino = before + 1 + u64::from(piece.first + index);
            let ino = InodeNo(u32::try_from(ino).unwrap_or(u32::MAX));
            if !put_off.is_some_and(|inodes| inodes.contains(ino.0)) {
                self.check_record(ino, record, local)?;
            }
        }
        Ok(())
    }

    /// The inodes in which the scan found something, in order; the others are checked.
    fn check_found(&self, inodes: &RoaringBitmap) -> Result<Local, CheckError> {
        let geometry = self.geometry;
        let (size, per_block) = (usize::from(geometry.inode_size), geometry.inodes_per_block());
        let mut local = Local::default();
        let (mut run, mut bytes) = (0..0, Vec::new());
        for ino in inodes.iter().map(InodeNo) {
            let Some((group, index)) = geometry.inode_place(ino) else { continue };
            let table = self.descs[group.0 as usize].inode_table;
            let whole = u64::from(geometry.itable_blocks());
            // A record past the mark is not read.
            if index >= self.table_used(group) || !geometry.contains(table, whole) {
                continue;
            }
            let block = table.0 + u64::from(index / per_block);
            if !run.contains(&block) {
                // Inodes that lie close together are read together.
                run = block..(block + FOUND_AT_ONCE).min(table.0 + whole);
                bytes.resize((run.end - run.start) as usize * geometry.block_len(), 0);
                self.store.read_into(BlockNo(block), &mut bytes)?;
            }
            let at = (block - run.start) as usize * geometry.block_len()
                + (index % per_block) as usize * size;
            if let Some(record) = bytes.get_mut(at..at + size) {
                self.check_record(ino, record, &mut local)?;
            }
        }
        local.dir_blocks.sort_unstable();
        Ok(local)
    }
}

/// Appends to what may be empty, so that one worker's list is not copied.
fn join<T>(all: &mut Vec<T>, mut more: Vec<T>) {
    if all.is_empty() {
        *all = more;
    } else {
        // No more than what the workers' lists were counted as.
        all.reserve_exact(more.len());
        all.append(&mut more);
    }
}
