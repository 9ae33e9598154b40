//! The tables of an image in memory, and how they are changed and written.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use extant_device::{Device, DeviceError};
use extant_runtime::sync::Mutex;

use super::counts::{Counts, SECTOR, widen};
use super::failure::{damaged_file, no_space};
use super::file::GrowingFile;
use super::tables::{COPIED, Cluster, Layout, PLACE, Table};
use crate::vm::clusters;
use crate::vm::error::VmImageError;
use crate::vm::mapped::Source;
use crate::vm::qcow2::{Header, be64};

/// Bytes of L2 tables that are kept, and of those that may differ from the file.
const TABLES_KEPT: u64 = 64 << 20;
const CHANGED_MAX: u64 = 16 << 20;
/// Clusters that wait to be freed.
const RELEASED_MAX: usize = 1 << 20;
/// Bytes of zeroes that are written at a time.
const ZEROES: usize = 64 << 10;

pub(super) struct State {
    file: GrowingFile,
    below: Option<Arc<dyn Device>>,
    layout: Layout,
    is_zstd: bool,
    size: u64,
    l1_at: u64,
    l1: Vec<u64>,
    /// Sectors of the L1 table that differ from the file.
    l1_changed: BTreeSet<usize>,
    /// By their places in the file.
    tables: HashMap<u64, Table>,
    /// Bytes of tables that differ from the file, since the last flush.
    changed: u64,
    counts: Counts,
    /// Clusters to which the file refers until the next flush, once for each reference.
    released: Vec<u64>,
    /// The compressed cluster that was read last.
    last: Mutex<Option<(u64, Arc<[u8]>)>>,
    /// Why nothing is written any more.
    failed: Option<DeviceError>,
}

impl State {
    pub(super) fn open(
        file: GrowingFile,
        below: Option<Arc<dyn Device>>,
        header: &Header,
    ) -> Result<Self, VmImageError> {
        let damaged = |what| VmImageError::Damaged { what };
        let layout = Layout {
            cluster_bits: header.cluster_bits,
            is_extended: header.is_extended,
            has_zeroes: header.version >= 3,
        };
        let cluster = layout.cluster();
        let mut counts = Counts::open(&*file.device, header)?;
        let end = header.l1_at.checked_add(header.l1_entries * 8);
        if end.is_none_or(|end| end > file.device.size()) || !header.l1_at.is_multiple_of(cluster) {
            return Err(damaged("the L1 table is past the end"));
        }
        let mut bytes = vec![0; (header.l1_entries * 8) as usize];
        file.device.read_at(header.l1_at, &mut bytes)?;
        let l1: Vec<u64> = bytes.chunks_exact(8).map(|entry| be64(entry, 0)).collect();
        let first = header.l1_at / cluster;
        for number in first..first + (header.l1_entries * 8).div_ceil(cluster) {
            counts.add_metadata(number)?;
        }
        for entry in l1.iter().filter(|entry| **entry != 0) {
            let at = entry & PLACE;
            if at == 0 || !at.is_multiple_of(cluster) || at >= file.device.size() {
                return Err(damaged("an entry of the L1 table"));
            }
            counts.add_metadata(at / cluster)?;
            let count = counts.get(&*file.device, at / cluster)?;
            if count == 0 || entry & COPIED != 0 && count != 1 {
                return Err(damaged("the reference count of an L2 table (run qemu-img check)"));
            }
        }
        Ok(Self {
            file,
            below,
            layout,
            is_zstd: header.is_zstd,
            size: header.size,
            l1_at: header.l1_at,
            l1,
            l1_changed: BTreeSet::new(),
            tables: HashMap::new(),
            changed: 0,
            counts,
            released: Vec::new(),
            last: Mutex::default(),
            failed: None,
        })
    }

    /// The number of a cluster's table, and the byte of its entry there.
    fn entry_of(&self, cluster: u64) -> (usize, usize) {
        let per_table = self.layout.per_table();
        let place = cluster % per_table * self.layout.entry_size();
        ((cluster / per_table) as usize, place as usize)
    }

    fn table_at(&self, index: usize) -> u64 {
        self.l1.get(index).map_or(0, |entry| entry & PLACE)
    }

    /// The entry of a cluster of the disk; `None` where its table is not in memory.
    fn known(&self, cluster: u64) -> Result<Option<Cluster>, DeviceError> {
        let (index, place) = self.entry_of(cluster);
        let at = self.table_at(index);
        if at == 0 {
            return Ok(Some(Cluster::default()));
        }
        let Some(table) = self.tables.get(&at) else { return Ok(None) };
        let decoded = self.layout.decode(&table.bytes, place);
        decoded.map(Some).map_err(|what| damaged_file(at, what))
    }

    /// Reads the table with the byte `at` of the disk, where it is not in memory.
    pub(super) fn load(&mut self, at: u64) -> Result<(), DeviceError> {
        let (index, _) = self.entry_of(at >> self.layout.cluster_bits);
        let table_at = self.table_at(index);
        if table_at == 0 || self.tables.contains_key(&table_at) {
            return Ok(());
        }
        let is_full = |tables: &HashMap<u64, Table>| {
            (tables.len() as u64) << self.layout.cluster_bits >= TABLES_KEPT
        };
        if is_full(&self.tables) {
            self.tables.retain(|_, table| !table.changed.is_empty() || table.is_new);
        }
        let mut bytes = vec![0; self.layout.cluster() as usize];
        self.file.read_at(table_at, &mut bytes)?;
        self.compare_with_counts(table_at, &bytes)?;
        self.tables.insert(table_at, Table { bytes, changed: 0..0, is_new: false });
        Ok(())
    }

    /// Refuses a table with an entry whose cluster is counted as free, or that says of a cluster
    /// with several references that it has one.
    fn compare_with_counts(&mut self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let layout = self.layout;
        for place in (0..bytes.len()).step_by(layout.entry_size() as usize) {
            let cluster = layout.decode(bytes, place).map_err(|what| damaged_file(at, what))?;
            let range = match (cluster.host, cluster.compressed) {
                (0, 0) => continue,
                (0, entry) => layout.compressed(entry),
                (host, _) => host..host + 1,
            };
            let bits = layout.cluster_bits;
            for number in range.start >> bits..range.end.div_ceil(layout.cluster()) {
                let count = self.counts.get(&*self.file.device, number)?;
                if count == 0 || cluster.is_own && count != 1 {
                    return Err(damaged_file(at, "the reference count of a cluster"));
                }
            }
        }
        Ok(())
    }

    /// The entry of a cluster of the disk.
    fn cluster(&mut self, cluster: u64) -> Result<Cluster, DeviceError> {
        self.load(cluster << self.layout.cluster_bits)?;
        let found = self.known(cluster)?;
        found.ok_or_else(|| damaged_file(cluster, "an L2 table"))
    }

    /// Where the bytes from `at` on are, and how many are there one after the other; `None` where
    /// the table is not in memory.
    pub(super) fn locate(&self, at: u64, end: u64) -> Result<Option<(Source, u64)>, DeviceError> {
        let layout = self.layout;
        let (number, within) = (at >> layout.cluster_bits, at % layout.cluster());
        let (index, _) = self.entry_of(number);
        if self.table_at(index) == 0 {
            let span = layout.per_table() * layout.cluster();
            return Ok(Some((Source::Below(at), (span - at % span).min(end - at))));
        }
        let Some(cluster) = self.known(number)? else { return Ok(None) };
        if cluster.compressed != 0 {
            let bytes = self.decompressed(cluster.compressed)?;
            let length = (layout.cluster() - within).min(end - at);
            return Ok(Some((Source::Held(bytes, within as usize), length)));
        }
        let first = (within / layout.part()) as u32;
        let kind = |part: u32| (cluster.data >> part & 1, cluster.zero >> part & 1);
        let alike =
            (first..layout.parts()).take_while(|part| kind(*part) == kind(first)).count() as u64;
        let length = (alike * layout.part() - within % layout.part()).min(end - at);
        let source = match kind(first) {
            (1, _) => Source::File(cluster.host + within),
            (_, 1) => Source::Zero,
            _ => Source::Below(at),
        };
        Ok(Some((source, length)))
    }

    fn decompressed(&self, entry: u64) -> Result<Arc<[u8]>, DeviceError> {
        let mut last = self.last.lock();
        if let Some((_, bytes)) = last.as_ref().filter(|(known, _)| *known == entry) {
            return Ok(bytes.clone());
        }
        let (file, bits) = (&*self.file.device, self.layout.cluster_bits);
        let bytes: Arc<[u8]> = clusters::decompress(file, bits, self.is_zstd, entry)?.into();
        *last = Some((entry, bytes.clone()));
        Ok(bytes)
    }

    pub(super) fn read_source(&self, source: Source, to: &mut [u8]) -> Result<(), DeviceError> {
        match source {
            Source::File(place) => self.file.read_at(place, to)?,
            Source::Held(bytes, from) => to.copy_from_slice(&bytes[from..from + to.len()]),
            Source::Below(at) => {
                let size = self.below.as_ref().map_or(0, |below| below.size());
                let there = size.saturating_sub(at).min(to.len() as u64) as usize;
                let (from_below, past) = to.split_at_mut(there);
                past.fill(0);
                if let Some(below) = self.below.as_ref().filter(|_| there > 0) {
                    below.read_at(at, from_below)?;
                }
            }
            Source::Zero | Source::Fill(_) => to.fill(0),
        }
        Ok(())
    }

    /// The first data of a run.
    pub(super) fn data_in(
        &self,
        run: &Range<u64>,
        source: &Source,
    ) -> Result<Option<Range<u64>>, DeviceError> {
        match source {
            Source::Zero | Source::Fill(_) => Ok(None),
            Source::File(_) | Source::Held(..) => Ok(Some(run.clone())),
            Source::Below(_) => match &self.below {
                Some(below) if run.start < below.size() => {
                    below.next_data(run.start..run.end.min(below.size()))
                }
                _ => Ok(None),
            },
        }
    }

    /// Writes the bytes from `at` on that go to clusters which the file has: how many, up to the
    /// end of a cluster.
    pub(super) fn write_in_place(&self, at: u64, from: &[u8]) -> Result<usize, DeviceError> {
        self.refuse_after_failure()?;
        let layout = self.layout;
        let (number, within) = (at >> layout.cluster_bits, at % layout.cluster());
        let (index, _) = self.entry_of(number);
        if self.l1.get(index).is_none_or(|entry| entry & COPIED == 0) {
            return Ok(0);
        }
        let Some(cluster) = self.known(number)? else { return Ok(0) };
        let length = from.len().min((layout.cluster() - within) as usize);
        let end = within + length as u64;
        let parts = layout.mask(within / layout.part()..end.div_ceil(layout.part()));
        let is_in_file = cluster.host + end <= self.file.device.size();
        if !cluster.is_own || cluster.data & parts != parts || !is_in_file {
            return Ok(0);
        }
        self.file.device.write_at(cluster.host + within, &from[..length])?;
        Ok(length)
    }

    fn refuse_after_failure(&self) -> Result<(), DeviceError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Writes the bytes from `at` on, up to the end of a cluster: how many.
    pub(super) fn write_piece(&mut self, at: u64, from: &[u8]) -> Result<usize, DeviceError> {
        self.refuse_after_failure()?;
        let layout = self.layout;
        let within = at % layout.cluster();
        let length = from.len().min((layout.cluster() - within) as usize);
        self.write_cluster(at >> layout.cluster_bits, within, &from[..length])?;
        self.sync_if_much()?;
        Ok(length)
    }

    /// Writes bytes of one cluster of the disk.
    fn write_cluster(&mut self, number: u64, within: u64, from: &[u8]) -> Result<(), DeviceError> {
        let layout = self.layout;
        let old = self.cluster(number)?;
        let (index, _) = self.entry_of(number);
        let is_own = old.is_own && self.l1[index] & COPIED != 0;
        let end = within + from.len() as u64;
        let touched = within / layout.part()..end.div_ceil(layout.part());
        // The bytes that are written: whole parts, but for those whose bytes stay where they are.
        let has = |part: u64| is_own && old.data >> part & 1 != 0;
        let mut start = if has(touched.start) { within } else { touched.start * layout.part() };
        let mut stop = if has(touched.end - 1) { end } else { touched.end * layout.part() };
        let mut data = old.data | layout.mask(touched.clone());
        if old.compressed != 0 {
            (start, stop, data) = (0, layout.cluster(), layout.all());
        } else if !is_own && old.data != 0 {
            // The parts that others refer to are copied.
            start = start.min(u64::from(old.data.trailing_zeros()) * layout.part());
            let last = u64::from(31 - old.data.leading_zeros());
            stop = stop.max((last + 1) * layout.part());
        }
        let base = number << layout.cluster_bits;
        let mut bytes = vec![0; (stop - start) as usize];
        // The disk may end inside the cluster.
        let have = self.size.saturating_sub(base).min(stop);
        self.fill(base, start..within.max(start), &mut bytes[..(within - start) as usize])?;
        let after = (end - start) as usize;
        if have > end {
            let to = (have - start) as usize;
            self.fill(base, end..have, &mut bytes[after..to])?;
        }
        bytes[(within - start) as usize..after].copy_from_slice(from);

        let host = match is_own {
            true => old.host,
            false => self.counts.allocate(&self.file)? << layout.cluster_bits,
        };
        let written = self
            .file
            .reach(host + layout.cluster())
            .and_then(|()| self.file.device.write_at(host + start, &bytes));
        if let Err(error) = written {
            if !is_own {
                // Nothing refers to it.
                self.counts.release(&*self.file.device, host >> layout.cluster_bits)?;
            }
            return Err(error);
        }
        let mut zero = old.zero & !data;
        if old.compressed != 0 {
            zero = 0;
        }
        let new = Cluster { host, is_own: true, compressed: 0, data, zero };
        if new == old {
            return Ok(());
        }
        self.set(number, new)?;
        if !is_own {
            self.release_place(&old);
        }
        Ok(())
    }

    /// Reads bytes of a cluster of the disk that begins at `base`.
    fn fill(&self, base: u64, range: Range<u64>, to: &mut [u8]) -> Result<(), DeviceError> {
        let (mut at, end) = (base + range.start, base + range.end);
        let mut rest = to;
        while at < end {
            let found = self.locate(at, end)?;
            let (source, length) = found.ok_or_else(|| damaged_file(at, "an L2 table"))?;
            let (part, after) = rest.split_at_mut(length as usize);
            self.read_source(source, part)?;
            (at, rest) = (at + length, after);
        }
        Ok(())
    }

    /// The reference of a cluster to its place is given up, with the next flush.
    fn release_place(&mut self, old: &Cluster) {
        let bits = self.layout.cluster_bits;
        if old.host != 0 {
            self.released.push(old.host >> bits);
        } else if old.compressed != 0 {
            let range = self.layout.compressed(old.compressed);
            self.released.extend(range.start >> bits..range.end.div_ceil(self.layout.cluster()));
        }
    }

    /// Sets the entry of a cluster of the disk.
    fn set(&mut self, number: u64, cluster: Cluster) -> Result<(), DeviceError> {
        let (index, place) = self.entry_of(number);
        let at = self.own_table(index)?;
        let layout = self.layout;
        let table = self.tables.get_mut(&at).ok_or_else(|| damaged_file(at, "an L2 table"))?;
        let before = table.changed.len();
        let changed = layout.encode(&mut table.bytes, place, cluster);
        widen(&mut table.changed, changed);
        self.changed += (table.changed.len() - before) as u64;
        Ok(())
    }

    /// The place of a table that nothing else refers to: a new one, or a copy.
    fn own_table(&mut self, index: usize) -> Result<u64, DeviceError> {
        let entry = *self.l1.get(index).ok_or_else(|| no_space("the L1 table is too short"))?;
        let old = entry & PLACE;
        self.load((index as u64 * self.layout.per_table()) << self.layout.cluster_bits)?;
        if entry & COPIED != 0 {
            return Ok(old);
        }
        let size = self.layout.cluster() as usize;
        let bytes = match self.tables.get(&old) {
            Some(table) if old != 0 => table.bytes.clone(),
            _ => vec![0; size],
        };
        let cluster = self.counts.allocate(&self.file)?;
        let at = cluster << self.layout.cluster_bits;
        self.tables.insert(at, Table { bytes, changed: 0..size, is_new: true });
        self.changed += size as u64;
        self.l1[index] = at | COPIED;
        self.l1_changed.insert(index * 8 / SECTOR);
        if old != 0 {
            self.tables.remove(&old);
            self.released.push(old >> self.layout.cluster_bits);
        }
        Ok(at)
    }

    /// Makes a range read as zeroes; or, where `is_sure` is false, gives back what can be given
    /// back.
    pub(super) fn clear(&mut self, range: Range<u64>, is_sure: bool) -> Result<(), DeviceError> {
        self.refuse_after_failure()?;
        let layout = self.layout;
        let mut at = range.start;
        while at < range.end {
            let number = at >> layout.cluster_bits;
            let (index, _) = self.entry_of(number);
            let below = self.below.as_ref().map_or(0, |below| below.size());
            if self.table_at(index) == 0 && at >= below {
                let span = layout.per_table() * layout.cluster();
                at = (at / span + 1) * span;
                continue;
            }
            let start = number << layout.cluster_bits;
            let end = (start + layout.cluster()).min(range.end);
            self.clear_in(number, at - start..end - start, is_sure)?;
            self.sync_if_much()?;
            at = end;
        }
        Ok(())
    }

    fn clear_in(
        &mut self,
        number: u64,
        range: Range<u64>,
        is_sure: bool,
    ) -> Result<(), DeviceError> {
        let layout = self.layout;
        let old = self.cluster(number)?;
        let base = number << layout.cluster_bits;
        // A part at the end of the disk is whole too.
        let end = match base + range.end == self.size {
            true => layout.cluster(),
            false => range.end,
        };
        let (first, last) = (range.start.div_ceil(layout.part()), end / layout.part());
        let mut whole = if first < last { layout.mask(first..last) } else { 0 };
        let shows_below = self.below.as_ref().is_some_and(|below| base < below.size());
        if old.compressed != 0 && whole != layout.all() || shows_below && !layout.has_zeroes {
            whole = 0;
        }
        let mut new = old;
        if whole != 0 {
            new.data &= !whole;
            new.zero &= !whole;
            new.compressed = 0;
            if shows_below {
                new.zero |= whole;
            }
            if new.data == 0 {
                (new.host, new.is_own) = (0, false);
            }
        }
        if new != old {
            self.set(number, new)?;
            if new.host == 0 {
                self.release_place(&old);
            }
        }
        if is_sure {
            let edges = match whole {
                0 => [range.clone(), range.end..range.end],
                _ => [range.start..first * layout.part(), last * layout.part()..range.end],
            };
            for edge in edges.into_iter().filter(|edge| edge.start < edge.end) {
                self.write_zeroes_in(number, edge)?;
            }
        }
        Ok(())
    }

    /// Writes zeroes where a range of a cluster is not zeroes already.
    fn write_zeroes_in(&mut self, number: u64, range: Range<u64>) -> Result<(), DeviceError> {
        let base = number << self.layout.cluster_bits;
        let mut at = range.start;
        while at < range.end {
            self.load(base)?;
            let found = self.locate(base + at, base + range.end)?;
            let (source, length) = found.ok_or_else(|| damaged_file(at, "an L2 table"))?;
            let length = length.min(ZEROES as u64);
            if self.data_in(&(base + at..base + at + length), &source)?.is_some() {
                self.write_cluster(number, at, &vec![0; length as usize])?;
            }
            at += length;
        }
        Ok(())
    }

    fn sync_if_much(&mut self) -> Result<(), DeviceError> {
        match self.changed >= CHANGED_MAX || self.released.len() >= RELEASED_MAX {
            true => self.sync(),
            false => Ok(()),
        }
    }

    /// Brings everything to the medium, in the order that the [module](super) has.
    pub(super) fn sync(&mut self) -> Result<(), DeviceError> {
        self.refuse_after_failure()?;
        let done = self.sync_in_order();
        if let Err(error) = &done {
            // It is unknown which writes have come to the medium: nothing more may refer to them.
            self.failed = Some(error.clone());
        }
        done
    }

    fn sync_in_order(&mut self) -> Result<(), DeviceError> {
        let file = self.file.device.clone();
        let changed: BTreeMap<u64, bool> = self
            .tables
            .iter()
            .filter(|(_, table)| !table.changed.is_empty())
            .map(|(at, table)| (*at, table.is_new))
            .collect();
        if !changed.is_empty() || self.counts.is_changed() {
            // Whole clusters are written.
            self.file.reach(file.size().next_multiple_of(self.layout.cluster()))?;
        }
        let of_kind = |is_new: bool| changed.iter().filter(move |it| *it.1 == is_new);
        self.counts.write_blocks(&*file)?;
        self.write_tables(of_kind(true).map(|(at, _)| *at))?;
        file.flush()?;
        self.counts.blocks_are_written();
        let mut moved = 0..0;
        if self.counts.is_table_changed() {
            self.counts.write_table(&*file)?;
            file.flush()?;
            moved = self.counts.table_is_written();
        }
        if !changed.is_empty() || !self.l1_changed.is_empty() {
            self.write_tables(of_kind(false).map(|(at, _)| *at))?;
            let sector = |sector: &usize| {
                let entries = sector * SECTOR / 8..((sector + 1) * SECTOR / 8).min(self.l1.len());
                let bytes: Vec<u8> =
                    self.l1[entries].iter().flat_map(|entry| entry.to_be_bytes()).collect();
                file.write_at(self.l1_at + (sector * SECTOR) as u64, &bytes)
            };
            self.l1_changed.iter().try_for_each(sector)?;
            file.flush()?;
            for at in changed.keys() {
                if let Some(table) = self.tables.get_mut(at) {
                    (table.changed, table.is_new) = (0..0, false);
                }
            }
            self.l1_changed.clear();
            self.changed = 0;
        }
        self.released.extend(moved);
        if !self.released.is_empty() {
            self.free_released()?;
        }
        Ok(())
    }

    fn write_tables(&self, places: impl Iterator<Item = u64>) -> Result<(), DeviceError> {
        for at in places {
            if let Some(table) = self.tables.get(&at) {
                let bytes = &table.bytes[table.changed.clone()];
                self.file.device.write_at(at + table.changed.start as u64, bytes)?;
            }
        }
        Ok(())
    }

    /// Counts the references that the file does not have any more. No flush: at a power cut the
    /// clusters are counted and not used.
    fn free_released(&mut self) -> Result<(), DeviceError> {
        let file = self.file.device.clone();
        let mut released = std::mem::take(&mut self.released);
        released.sort_unstable();
        let mut runs: Vec<Range<u64>> = Vec::new();
        for cluster in released {
            if self.counts.release(&*file, cluster)? {
                match runs.last_mut() {
                    Some(run) if run.end == cluster => run.end += 1,
                    _ => runs.push(cluster..cluster + 1),
                }
            }
        }
        self.counts.write_blocks(&*file)?;
        self.counts.blocks_are_written();
        let bits = self.layout.cluster_bits;
        for run in runs {
            let range = run.start << bits..(run.end << bits).min(file.size());
            if range.start < range.end {
                // The host's room only: a file system without holes keeps it.
                file.discard(range)?;
            }
        }
        Ok(())
    }
}
