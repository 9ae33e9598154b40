//! The volume's blocks as a check sees them: read from the device and repaired there.
//!
//! Everything takes `&self`: the scan reads from many threads, and only the repair, which is one
//! thread, writes.

use crate::older_names::OlderName;
use crate::prefetch::{CheckPrefetch, Taken};
use extant_device::{Device, DeviceError, OverlayDevice, errno};
use extant_layout::DescriptorTable;
use extant_offline::{OfflineError, format_errno};
use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, State, Superblock};
use extant_ondisk::{BlockNo, ClusterNo, FormatError, Geometry, GroupNo, InodeNo, inode};
use extant_runtime::sync::Mutex;
use roaring::RoaringTreemap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use zerocopy::IntoBytes;

/// Error of a check. A flaw of the volume is a [`Finding`](crate::Finding), not an error.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The volume cannot be opened at all.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A part of the volume cannot be used.
    #[error(transparent)]
    Volume(OfflineError),
    /// The policy ended the run: preening met something that it may not repair, or the user
    /// cancelled.
    #[error("the check was stopped")]
    Stopped,
    /// The tables of the check need more memory than it may use.
    #[error("out of memory: the check needs more than {limit} bytes")]
    Memory {
        /// The limit, in bytes.
        limit: u64,
    },
}

impl CheckError {
    /// The number that a system call returns for it (`ENOENT` is 2).
    pub fn errno(&self) -> i32 {
        match self {
            Self::Device(error) => error.errno(),
            Self::Format(error) => format_errno(error),
            Self::Volume(error) => error.errno(),
            Self::Stopped => errno::ECANCELED,
            Self::Memory { .. } => errno::ENOMEM,
        }
    }

    /// The kind of error in std's words.
    pub fn kind(&self) -> std::io::ErrorKind {
        errno::kind(self.errno())
    }
}

/// Bytes moved between the device and a check.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Traffic {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

/// Where copies of damaged blocks may come from: the log of the volume's journal.
#[derive(Clone)]
pub(crate) struct EvidenceSource {
    /// The device of an external journal.
    pub(crate) external: Option<Arc<dyn Device>>,
}

/// Bytes about which the device is asked at once whether they hold data.
const DATA_AT_ONCE: u64 = 64 << 20;

/// Blocks of one volume, its superblock and its group descriptors.
pub struct Store {
    device: Arc<dyn Device>,
    geometry: Geometry,
    meta: Mutex<Meta>,
    /// Inode records that are written after the next flush, by their place on the device.
    ordered: Mutex<BTreeMap<u64, Vec<u8>>>,
    /// Whether there are any, for readers on many threads.
    has_ordered: AtomicBool,
    changed: AtomicBool,
    /// Blocks of a journal that the passes gave up; 0 for none.
    lost_journal: AtomicU32,
    /// A scan went over the whole volume.
    is_scanned: AtomicBool,
    /// Where copies of damaged blocks may come from.
    evidence: Option<EvidenceSource>,
    /// Clusters that were in use and that nothing claimed before the repairs began.
    unclaimed: Mutex<Option<RoaringTreemap>>,
    /// Names in copies of directory blocks that are not restored.
    older_names: Mutex<Arc<[OlderName]>>,
    /// Bytes that [`Store::next_data`] found to hold data: nothing makes a hole of them.
    data: Mutex<Range<u64>>,
    read: AtomicU64,
    written: AtomicU64,
}

struct Meta {
    superblock: RawSuperblock,
    table: DescriptorTable,
    /// Blocks of the table that are changed and not written yet.
    unwritten: BTreeSet<u32>,
}

impl Store {
    /// Opens a volume by its primary superblock and descriptors.
    ///
    /// # Errors
    /// The device failed, or the superblock is invalid.
    pub fn open(device: Arc<dyn Device>) -> Result<Self, CheckError> {
        let mut bytes = vec![0; size_of::<RawSuperblock>()];
        device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
        let superblock = RawSuperblock::from_bytes(&bytes, GroupNo(0))?;
        superblock.verify(GroupNo(0))?;
        let geometry = Geometry::new(&superblock)?;
        let table = DescriptorTable::read(&geometry, |index, block| {
            device.read_at(geometry.byte_of(geometry.desc_block(index)), block)
        })?;
        Self::new(device, superblock, table)
    }

    /// The blocks of `device` as `superblock` divides it, with the descriptor table as found,
    /// repaired or taken from a backup. Nothing is written.
    ///
    /// # Errors
    /// A superblock that cannot be computed with.
    ///
    /// # Panics
    /// When the table is not [`Geometry::desc_blocks`] blocks.
    pub fn new(
        device: Arc<dyn Device>,
        superblock: RawSuperblock,
        table: DescriptorTable,
    ) -> Result<Self, CheckError> {
        let geometry = Geometry::new(&superblock)?;
        assert!(table.fits(&geometry), "a descriptor for every group");
        Ok(Self {
            device,
            geometry,
            meta: Mutex::new(Meta { superblock, table, unwritten: BTreeSet::new() }),
            ordered: Mutex::default(),
            has_ordered: AtomicBool::new(false),
            changed: AtomicBool::new(false),
            lost_journal: AtomicU32::new(0),
            is_scanned: AtomicBool::new(false),
            evidence: None,
            unclaimed: Mutex::default(),
            older_names: Mutex::new(Arc::default()),
            data: Mutex::new(0..0),
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
        })
    }

    /// The same volume on another device, with the same superblock, descriptors and evidence: what
    /// is written there, and to an external journal, leaves this one alone.
    pub(crate) fn on(&self, device: Arc<dyn Device>) -> Result<Self, CheckError> {
        let (superblock, table) = {
            let meta = self.meta.lock();
            (meta.superblock, meta.table.clone())
        };
        let mut store = Self::new(device, superblock, table)?;
        store.evidence = self.evidence.as_ref().map(|source| {
            let in_memory = |device: &Arc<dyn Device>| -> Arc<dyn Device> {
                Arc::new(OverlayDevice::new(device.clone()))
            };
            EvidenceSource { external: source.external.as_ref().map(in_memory) }
        });
        Ok(store)
    }

    /// Takes sizes and features from the superblock again, after a repair that changed them.
    pub(crate) fn reload(&mut self) -> Result<(), CheckError> {
        self.geometry = Geometry::new(&self.meta.lock().superblock)?;
        Ok(())
    }

    /// The sizes and counts.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The device itself, for large sequential reads.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Whether anything was written.
    pub fn is_changed(&self) -> bool {
        self.changed.load(Relaxed)
    }

    /// Whether what is read need not stay in the system's cache: a sound volume is read once. One
    /// that is repaired is read again, and the second time fills the cache.
    pub(crate) fn is_read_once(&self) -> bool {
        let state = self.superblock().state;
        !self.is_scanned.load(Relaxed)
            && state.contains(State::CLEAN)
            && !state.contains(State::ERRORS)
    }

    /// Notes bytes that were written past this store.
    pub(crate) fn note_written(&self, bytes: u64) {
        self.written.fetch_add(bytes, Relaxed);
        self.changed.store(true, Relaxed);
    }

    /// Notes that a journal of `blocks` blocks was discarded, so that a new one is made after the
    /// passes.
    pub(crate) fn note_lost_journal(&self, blocks: u32) {
        self.lost_journal.store(blocks.max(1), Relaxed);
    }

    /// Blocks of the journal that the passes gave up.
    pub(crate) fn lost_journal(&self) -> Option<u32> {
        Some(self.lost_journal.load(Relaxed)).filter(|blocks| *blocks > 0)
    }

    /// Records that a scan has gone over the whole volume.
    pub(crate) fn note_scan(&self) {
        self.is_scanned.store(true, Relaxed);
    }

    /// Lets damaged blocks be restored from the log of the journal.
    pub(crate) fn use_evidence(&mut self, source: EvidenceSource) {
        self.evidence = Some(source);
    }

    /// Notes the clusters that are in use and that nothing claims before the repairs begin.
    pub(crate) fn set_unclaimed(&self, clusters: RoaringTreemap) {
        *self.unclaimed.lock() = Some(clusters);
    }

    /// Those of the noted clusters that lie in a range; `None` where none were noted, as nothing
    /// is repaired yet.
    pub(crate) fn unclaimed_within(&self, clusters: Range<u64>) -> Option<Vec<u64>> {
        let unclaimed = self.unclaimed.lock();
        let mut noted = unclaimed.as_ref()?.iter();
        noted.advance_to(clusters.start);
        Some(noted.take_while(|cluster| *cluster < clusters.end).collect())
    }

    /// A repair takes a cluster for something new.
    pub(crate) fn note_allocated(&self, cluster: ClusterNo) {
        if let Some(noted) = self.unclaimed.lock().as_mut() {
            noted.remove(cluster.0);
        }
    }

    pub(crate) fn set_older_names(&self, names: Vec<OlderName>) {
        *self.older_names.lock() = names.into();
    }

    /// The names, of the newest copies first.
    pub(crate) fn older_names(&self) -> Arc<[OlderName]> {
        self.older_names.lock().clone()
    }

    pub(crate) fn evidence_source(&self) -> Option<&EvidenceSource> {
        self.evidence.as_ref()
    }

    /// After a crash from here on, the next check does not skip the volume.
    pub(crate) fn mark_unclean(&self) -> Result<(), CheckError> {
        if self.superblock().state.contains(State::CLEAN) {
            self.update_superblock(|raw| {
                raw.s_state.set(raw.s_state.get() & !State::CLEAN.bits());
            })?;
            self.flush()?;
        }
        Ok(())
    }

    /// The traffic so far.
    pub fn traffic(&self) -> Traffic {
        Traffic { read: self.read.load(Relaxed), written: self.written.load(Relaxed) }
    }

    /// The superblock in its current state.
    pub fn superblock(&self) -> Superblock {
        Superblock::decode(&self.meta.lock().superblock)
    }

    /// The superblock's bytes in their current state.
    pub fn raw_superblock(&self) -> RawSuperblock {
        self.meta.lock().superblock
    }

    /// The descriptor of a group in its current state. Its locations and counts may be impossible.
    pub fn desc(&self, group: GroupNo) -> GroupDesc {
        self.meta.lock().table.get(group, &self.geometry)
    }

    /// All descriptors in their current state.
    pub fn descs(&self) -> Vec<GroupDesc> {
        self.meta.lock().table.iter(&self.geometry).collect()
    }

    /// Whether a group's descriptor has the checksum that its bytes give.
    pub fn desc_checksum_matches(&self, group: GroupNo) -> bool {
        self.meta.lock().table.verify(group, &self.geometry).is_ok()
    }

    /// Changes the superblock, seals it and writes the primary copy.
    ///
    /// # Errors
    /// The device failed.
    pub fn update_superblock(
        &self,
        change: impl FnOnce(&mut RawSuperblock),
    ) -> Result<(), CheckError> {
        let sealed = {
            let mut meta = self.meta.lock();
            change(&mut meta.superblock);
            meta.superblock.seal();
            meta.superblock
        };
        self.write_bytes(SUPERBLOCK_OFFSET, sealed.as_bytes())
    }

    /// Changes a group's descriptor, seals it and writes its block of the primary table.
    ///
    /// # Errors
    /// The device failed.
    pub fn update_desc(
        &self,
        group: GroupNo,
        change: impl FnOnce(&mut GroupDesc),
    ) -> Result<(), CheckError> {
        let geometry = &self.geometry;
        let (index, _) = geometry.desc_place(group);
        let block = {
            let mut meta = self.meta.lock();
            let mut desc = meta.table.get(group, geometry);
            change(&mut desc);
            meta.table.put(group, &desc, geometry);
            meta.unwritten.remove(&index);
            meta.table.block(index, geometry).to_vec()
        };
        self.write(geometry.desc_block(index), &block)
    }

    /// Changes a group's descriptor and seals it. Its block is written by
    /// [`Store::write_descs`], once for all of its descriptors, at the latest at the next flush.
    pub(crate) fn change_desc(&self, group: GroupNo, change: impl FnOnce(&mut GroupDesc)) {
        let meta = &mut *self.meta.lock();
        let mut desc = meta.table.get(group, &self.geometry);
        change(&mut desc);
        meta.table.put(group, &desc, &self.geometry);
        meta.unwritten.insert(self.geometry.desc_place(group).0);
        self.changed.store(true, Relaxed);
    }

    /// Writes the blocks of the table that [`Store::change_desc`] changed.
    ///
    /// # Errors
    /// The device failed.
    pub(crate) fn write_descs(&self) -> Result<(), CheckError> {
        let blocks: Vec<_> = {
            let meta = &mut *self.meta.lock();
            let unwritten = std::mem::take(&mut meta.unwritten);
            let block_of = |index| meta.table.block(index, &self.geometry).to_vec();
            unwritten.into_iter().map(|index| (index, block_of(index))).collect()
        };
        for (index, block) in blocks {
            self.write(self.geometry.desc_block(index), &block)?;
        }
        Ok(())
    }

    /// Changes the descriptors of some groups, in ascending order, and writes each block of the
    /// primary table once.
    ///
    /// # Errors
    /// The device failed.
    pub(crate) fn update_descs(
        &self,
        groups: impl IntoIterator<Item = GroupNo>,
        mut change: impl FnMut(GroupNo, &mut GroupDesc),
    ) -> Result<(), CheckError> {
        let geometry = &self.geometry;
        let mut touched = BTreeSet::new();
        let table = {
            let mut meta = self.meta.lock();
            for group in groups {
                let mut desc = meta.table.get(group, geometry);
                change(group, &mut desc);
                meta.table.put(group, &desc, geometry);
                touched.insert(geometry.desc_place(group).0);
            }
            meta.table.clone()
        };
        for index in touched {
            self.write(geometry.desc_block(index), table.block(index, geometry))?;
        }
        Ok(())
    }

    /// One block.
    ///
    /// # Errors
    /// The device failed; a block off the volume is the caller's to avoid ([`Geometry::contains`]).
    pub fn read(&self, block: BlockNo) -> Result<Vec<u8>, CheckError> {
        let mut bytes = vec![0; self.geometry.block_len()];
        self.read_into(block, &mut bytes)?;
        Ok(bytes)
    }

    /// Blocks from `block` on, as many as `bytes` holds.
    ///
    /// # Errors
    /// The device failed.
    pub fn read_into(&self, block: BlockNo, bytes: &mut [u8]) -> Result<(), CheckError> {
        self.read_bytes(self.geometry.byte_of(block), bytes)
    }

    /// Reads from the device, with the inode records that are not written yet.
    fn read_bytes(&self, offset: u64, bytes: &mut [u8]) -> Result<(), CheckError> {
        self.read.fetch_add(bytes.len() as u64, Relaxed);
        self.device.read_at(offset, bytes)?;
        if !self.has_ordered.load(Relaxed) {
            return Ok(());
        }
        let ordered = self.ordered.lock();
        // Records are aligned to their size, so that one lies in the range or outside of it.
        for (at, record) in ordered.range(offset..offset + bytes.len() as u64) {
            let start = (at - offset) as usize;
            if let Some(stored) = bytes.get_mut(start..start + record.len()) {
                stored.copy_from_slice(record);
            }
        }
        Ok(())
    }

    /// The first run of blocks in `blocks` that may hold something else than zeros; whole blocks,
    /// cut to `blocks`.
    ///
    /// # Errors
    /// The device failed.
    pub fn next_data(&self, blocks: Range<u64>) -> Result<Option<Range<u64>>, CheckError> {
        let bits = self.geometry.block_bits();
        let end = (blocks.end << bits).min(self.device.size());
        let start = blocks.start << bits;
        if start >= end {
            return Ok(None);
        }
        let mut known = self.data.lock();
        if !known.contains(&start) {
            // A system may walk over all data up to the next hole, so it is asked rarely.
            let until = end.max(start.saturating_add(DATA_AT_ONCE)).min(self.device.size());
            let Some(found) = self.device.next_data(start..until)? else { return Ok(None) };
            let touches = found.start <= known.end && known.start <= found.end;
            *known = match touches {
                true => known.start.min(found.start)..known.end.max(found.end),
                false => found,
            };
        }
        let found = known.start.max(start)..known.end.min(end);
        drop(known);
        Ok(Some(found).filter(|run| run.start < run.end).map(|run| {
            let first = (run.start >> bits).max(blocks.start);
            first..run.end.div_ceil(1 << bits).min(blocks.end)
        }))
    }

    /// Says that blocks will be read soon: the system fetches them while others are checked.
    pub(crate) fn will_need(&self, blocks: Range<u64>) {
        self.device.will_need(self.bytes_of(&blocks));
    }

    /// Has blocks fetched while others are checked, into memory of ours or by the system.
    pub(crate) fn fetch(&self, blocks: Range<u64>, ahead: &CheckPrefetch) {
        if !ahead.request(self.bytes_of(&blocks)) {
            self.will_need(blocks);
        }
    }

    /// Blocks that [`Store::fetch`] has brought into memory of ours; `None` where they are to be
    /// read.
    pub(crate) fn fetched<'a>(
        &self,
        blocks: &Range<u64>,
        ahead: &'a CheckPrefetch,
    ) -> Option<Taken<'a>> {
        let taken = ahead.take(&self.bytes_of(blocks))?;
        self.read.fetch_add(taken.len() as u64, Relaxed);
        Some(taken)
    }

    fn bytes_of(&self, blocks: &Range<u64>) -> Range<u64> {
        let bits = self.geometry.block_bits();
        blocks.start << bits..blocks.end << bits
    }

    /// Overwrites one block with a repaired one.
    ///
    /// # Errors
    /// The device failed.
    pub fn write(&self, block: BlockNo, bytes: &[u8]) -> Result<(), CheckError> {
        assert_eq!(bytes.len(), self.geometry.block_len(), "blocks are written whole");
        self.write_bytes(self.geometry.byte_of(block), bytes)
    }

    /// Overwrites blocks from `block` on, as many as `bytes` holds.
    ///
    /// # Errors
    /// The device failed.
    pub(crate) fn write_all(&self, block: BlockNo, bytes: &[u8]) -> Result<(), CheckError> {
        assert!(bytes.len().is_multiple_of(self.geometry.block_len()), "blocks are written whole");
        self.write_bytes(self.geometry.byte_of(block), bytes)
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<(), CheckError> {
        self.device.write_at(offset, bytes)?;
        self.written.fetch_add(bytes.len() as u64, Relaxed);
        self.changed.store(true, Relaxed);
        Ok(())
    }

    /// Offset of an inode's record on the device, in bytes; `None` for an invalid number, or if its
    /// table lies off the volume.
    pub fn inode_offset(&self, inode: InodeNo) -> Option<u64> {
        let (group, index) = self.geometry.inode_place(inode)?;
        let table = self.desc(group).inode_table;
        if !self.geometry.contains(table, u64::from(self.geometry.itable_blocks())) {
            return None;
        }
        Some(self.geometry.byte_of(table) + u64::from(index) * u64::from(self.geometry.inode_size))
    }

    /// The record of an inode; `None` for an invalid number.
    ///
    /// # Errors
    /// The device failed.
    pub fn read_inode(&self, inode: InodeNo) -> Result<Option<Vec<u8>>, CheckError> {
        let Some(offset) = self.inode_offset(inode) else { return Ok(None) };
        let mut record = vec![0; usize::from(self.geometry.inode_size)];
        self.read_bytes(offset, &mut record)?;
        Ok(Some(record))
    }

    /// Seals the record of an inode and writes it. A record that waits for a flush is replaced by
    /// it, and still waits.
    ///
    /// # Errors
    /// The device failed.
    pub fn write_inode(&self, inode: InodeNo, record: &mut [u8]) -> Result<(), CheckError> {
        let Some(offset) = self.inode_offset(inode) else { return Ok(()) };
        inode::seal(record, inode, &self.geometry);
        if let Some(waiting) = self.ordered.lock().get_mut(&offset) {
            waiting.copy_from_slice(record);
            return Ok(());
        }
        self.write_bytes(offset, record)
    }

    /// Seals the record of an inode, which leads to blocks written before, and has it written when
    /// these are on the medium: at the next [`Store::flush`].
    pub(crate) fn write_inode_ordered(&self, inode: InodeNo, record: &mut [u8]) {
        let Some(offset) = self.inode_offset(inode) else { return };
        inode::seal(record, inode, &self.geometry);
        self.ordered.lock().insert(offset, record.to_vec());
        self.has_ordered.store(true, Relaxed);
        self.changed.store(true, Relaxed);
    }

    /// Puts everything written so far on the medium, and then the records that waited for it.
    ///
    /// # Errors
    /// The device failed.
    pub fn flush(&self) -> Result<(), CheckError> {
        self.write_descs()?;
        self.device.flush()?;
        if !self.has_ordered.swap(false, Relaxed) {
            return Ok(());
        }
        let ordered = std::mem::take(&mut *self.ordered.lock());
        for (offset, record) in ordered {
            self.write_bytes(offset, &record)?;
        }
        Ok(self.device.flush()?)
    }
}
