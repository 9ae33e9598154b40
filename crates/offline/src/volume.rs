//! A volume that is not mounted: superblock, descriptors, bitmaps, inodes and blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use extant_device::Device;
use extant_layout::DescriptorTable;
use extant_layout::groups::{desc_block_places, leading};
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::group_desc::{GroupDesc, GroupFlags};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use extant_ondisk::{BlockNo, Flaw, FormatError, Geometry, GroupNo, InodeNo, Location, inode};
use zerocopy::IntoBytes;

use crate::OfflineError;
use crate::superblock::{backup_superblock, read_primary_superblock, read_table};

/// A volume to which the caller has exclusive access.
pub struct OfflineVolume<D = Arc<dyn Device>> {
    pub(crate) device: D,
    /// Whether checksums and locations are verified before a structure is used.
    pub(crate) is_strict: bool,
    /// The superblock; [`Self::commit`] writes changes to it.
    pub raw: RawSuperblock,
    pub(crate) geometry: Geometry,
    table: DescriptorTable,
    bitmaps: BTreeMap<(bool, u32), Bitmap>,
    /// Table blocks to be written, and groups whose descriptors need a new checksum first.
    dirty_descs: BTreeSet<u32>,
    unsealed: BTreeSet<u32>,
    pub(crate) is_superblock_dirty: bool,
    /// Where bitmaps and inode tables are, once it was asked for.
    metadata: OnceLock<MetadataRanges>,
}

/// The blocks of all bitmaps and inode tables.
struct MetadataRanges {
    /// First block and number of blocks, by first block.
    ranges: Vec<(u64, u64)>,
    /// The most blocks of a range.
    longest: u64,
}

impl MetadataRanges {
    /// The ranges that may have blocks in `blocks`.
    fn near(&self, blocks: &Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let from = blocks.start.saturating_sub(self.longest);
        let [first, end] = [from, blocks.end]
            .map(|block| self.ranges.partition_point(|(start, _)| *start < block));
        self.ranges[first..end.max(first)]
            .iter()
            .map(|(start, count)| *start..start.saturating_add(*count))
    }
}

pub(crate) struct Bitmap {
    pub(crate) bits: Vec<u8>,
    pub(crate) is_dirty: bool,
}

/// Whether a bitmap is that of inodes: the key of the map.
fn is_inode(kind: BitmapKind) -> bool {
    kind == BitmapKind::Inode
}

/// Where a group's bitmaps and inode table are.
fn places(desc: &GroupDesc) -> [BlockNo; 3] {
    [desc.block_bitmap, desc.inode_bitmap, desc.inode_table]
}

impl OfflineVolume {
    /// Opens a volume by its primary superblock and descriptors.
    ///
    /// # Errors
    /// The device failed or the superblock is not valid.
    pub fn open(device: Arc<dyn Device>) -> Result<Self, OfflineError> {
        Self::opened(device, false)
    }

    /// A volume from a superblock and descriptor table that the caller has read.
    ///
    /// # Panics
    /// If the table has not [`Geometry::desc_blocks`] blocks.
    pub fn of_parts(
        device: Arc<dyn Device>,
        raw: RawSuperblock,
        geometry: Geometry,
        table: DescriptorTable,
    ) -> Self {
        Self::assembled(device, (raw, geometry, table), false)
    }
}

impl<D: Device> OfflineVolume<D> {
    /// Opens a volume as [`OfflineVolume::open`], but strictly: descriptors, bitmaps and extent
    /// nodes are used only if their checksums are right, descriptors and blocks only if they are
    /// valid. Free counts are not trusted: see [`Self::recount`].
    ///
    /// # Errors
    /// The device failed or the superblock is not valid.
    pub fn open_strict(device: D) -> Result<Self, OfflineError> {
        Self::opened(device, true)
    }

    fn opened(device: D, is_strict: bool) -> Result<Self, OfflineError> {
        let raw = read_primary_superblock(&device)?;
        let geometry = Geometry::new(&raw)?;
        let table = read_table(&device, &geometry)?;
        Ok(Self::assembled(device, (raw, geometry, table), is_strict))
    }

    fn assembled(
        device: D,
        (raw, geometry, table): (RawSuperblock, Geometry, DescriptorTable),
        is_strict: bool,
    ) -> Self {
        assert!(table.fits(&geometry), "a descriptor for every group");
        Self {
            device,
            is_strict,
            raw,
            geometry,
            table,
            bitmaps: BTreeMap::new(),
            dirty_descs: BTreeSet::new(),
            unsealed: BTreeSet::new(),
            is_superblock_dirty: false,
            metadata: OnceLock::new(),
        }
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The sizes and counts.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The descriptor table in memory.
    pub fn table(&self) -> &DescriptorTable {
        &self.table
    }

    /// Changes the superblock, and the geometry with it: later calls use the new features, UUID and
    /// seeds.
    ///
    /// # Errors
    /// The changed superblock is not valid; it is unchanged then.
    pub fn update_superblock(
        &mut self,
        change: impl FnOnce(&mut RawSuperblock),
    ) -> Result<(), OfflineError> {
        let before = self.raw;
        change(&mut self.raw);
        match Geometry::new(&self.raw) {
            Ok(geometry) => self.geometry = geometry,
            Err(error) => {
                self.raw = before;
                return Err(error.into());
            }
        }
        self.is_superblock_dirty = true;
        self.metadata = OnceLock::new();
        Ok(())
    }

    /// The descriptor of a group.
    pub fn desc(&self, group: GroupNo) -> GroupDesc {
        self.table.get(group, &self.geometry)
    }

    /// The descriptor of a group; opened strictly, only a valid one.
    fn trusted_desc(&self, group: GroupNo) -> Result<GroupDesc, FormatError> {
        let desc = self.desc(group);
        // A descriptor changed here was valid before, and gets its checksum later.
        if self.is_strict && !self.unsealed.contains(&group.0) {
            self.table.verify(group, &self.geometry)?;
            desc.check_places(group, &self.geometry)?;
            desc.check_counts(group, &self.geometry)?;
        }
        Ok(desc)
    }

    /// Changes the descriptor of a group.
    pub fn update_desc(&mut self, group: GroupNo, change: impl FnOnce(&mut GroupDesc)) {
        let mut desc = self.desc(group);
        let before = places(&desc);
        change(&mut desc);
        if places(&desc) != before {
            self.metadata = OnceLock::new();
        }
        self.table.set(group, &desc, &self.geometry);
        self.dirty_descs.insert(self.geometry.desc_place(group).0);
        self.unsealed.insert(group.0);
    }

    /// Changes the bytes of a group's descriptor. Its checksum is computed when it is written, if
    /// `seals` is set.
    pub fn update_stored_desc(
        &mut self,
        group: GroupNo,
        seals: bool,
        change: impl FnOnce(&mut [u8]),
    ) {
        change(self.table.stored_mut(group, &self.geometry));
        self.metadata = OnceLock::new();
        self.dirty_descs.insert(self.geometry.desc_place(group).0);
        match seals {
            true => self.unsealed.insert(group.0),
            false => self.unsealed.remove(&group.0),
        };
    }

    /// Makes [`Self::commit`] write all descriptors, because their checksums changed.
    pub fn touch_all_descs(&mut self) {
        self.dirty_descs.extend(0..self.geometry.desc_blocks());
        self.unsealed.extend(0..self.geometry.groups_count);
    }

    /// Opened strictly, returns an error for blocks outside the volume.
    pub(crate) fn check_blocks(&self, start: BlockNo, count: u64) -> Result<(), FormatError> {
        if !self.is_strict || self.geometry.contains(start, count) {
            return Ok(());
        }
        let flaw = Flaw::above_limit("block", start.0, self.geometry.blocks_count);
        Err(flaw.at(Location::Block(start)))
    }

    /// Reads one block.
    ///
    /// # Errors
    /// The device failed; opened strictly, a block outside the volume.
    pub fn read(&self, block: BlockNo) -> Result<Vec<u8>, OfflineError> {
        self.check_blocks(block, 1)?;
        let mut bytes = vec![0; self.geometry.block_len()];
        self.device.read_at(self.geometry.byte_of(block), &mut bytes)?;
        Ok(bytes)
    }

    /// Overwrites a block.
    ///
    /// # Errors
    /// The device failed.
    pub fn write(&self, block: BlockNo, bytes: &[u8]) -> Result<(), OfflineError> {
        Ok(self.device.write_at(self.geometry.byte_of(block), bytes)?)
    }

    /// Byte offset of an inode's record; `None` if there is no such inode or its table is outside
    /// the volume.
    pub fn inode_offset(&self, number: InodeNo) -> Option<u64> {
        let (group, index) = self.geometry.inode_place(number)?;
        let table = self.desc(group).inode_table;
        self.geometry.contains(table, u64::from(self.geometry.itable_blocks())).then(|| {
            self.geometry.byte_of(table) + u64::from(index) * u64::from(self.geometry.inode_size)
        })
    }

    fn checked_inode_offset(&self, number: InodeNo) -> Result<u64, FormatError> {
        if let Some((group, _)) = self.geometry.inode_place(number) {
            self.trusted_desc(group)?;
        }
        self.inode_offset(number).ok_or_else(|| no_inode(number, &self.geometry))
    }

    /// The record of an inode.
    ///
    /// # Errors
    /// There is no such inode, or the device failed.
    pub fn read_inode(&self, number: InodeNo) -> Result<Vec<u8>, OfflineError> {
        let offset = self.checked_inode_offset(number)?;
        let mut record = vec![0; usize::from(self.geometry.inode_size)];
        self.device.read_at(offset, &mut record)?;
        Ok(record)
    }

    /// The records of several inodes of a group, which lie one after another.
    ///
    /// # Errors
    /// There is no such inode, or the device failed.
    pub fn read_inodes(&self, first: InodeNo, count: u32) -> Result<Vec<u8>, OfflineError> {
        let offset = self.checked_inode_offset(first)?;
        if let Some(last) = count.checked_sub(1) {
            self.checked_inode_offset(InodeNo(first.0.saturating_add(last)))?;
        }
        let mut records = vec![0; count as usize * usize::from(self.geometry.inode_size)];
        self.device.read_at(offset, &mut records)?;
        Ok(records)
    }

    /// Writes the record of an inode with its checksum.
    ///
    /// # Errors
    /// There is no such inode, or the device failed.
    pub fn write_inode(&self, number: InodeNo, record: &mut [u8]) -> Result<(), OfflineError> {
        let offset = self.checked_inode_offset(number)?;
        inode::seal(record, number, &self.geometry);
        Ok(self.device.write_at(offset, record)?)
    }

    /// The bits of a bitmap: as stored, or those implied by an uninitialized group.
    ///
    /// # Errors
    /// It is outside the volume, or the device failed.
    pub fn bitmap(&mut self, kind: BitmapKind, group: GroupNo) -> Result<&[u8], OfflineError> {
        Ok(&self.loaded(kind, group)?.bits)
    }

    /// Whether a bitmap has changes that the next [`Self::commit`] writes.
    pub fn has_changed_bitmap(&self, kind: BitmapKind, group: GroupNo) -> bool {
        self.bitmaps.get(&(is_inode(kind), group.0)).is_some_and(|bitmap| bitmap.is_dirty)
    }

    /// The groups of which a bitmap was loaded.
    pub(crate) fn groups_with_bitmaps(&self) -> BTreeSet<GroupNo> {
        self.bitmaps.keys().map(|(_, group)| GroupNo(*group)).collect()
    }

    pub(crate) fn loaded(
        &mut self,
        kind: BitmapKind,
        group: GroupNo,
    ) -> Result<&mut Bitmap, OfflineError> {
        let key = (is_inode(kind), group.0);
        if !self.bitmaps.contains_key(&key) {
            let bits = self.load(kind, group)?;
            self.bitmaps.insert(key, Bitmap { bits, is_dirty: false });
        }
        Ok(self.bitmaps.get_mut(&key).expect("it was put there"))
    }

    fn load(&self, kind: BitmapKind, group: GroupNo) -> Result<Vec<u8>, OfflineError> {
        let desc = self.trusted_desc(group)?;
        desc.check_places(group, &self.geometry)?;
        let has_flags = self.geometry.has_uninit_groups();
        let (block, uninit) = match kind {
            BitmapKind::Block => (desc.block_bitmap, GroupFlags::BLOCK_UNINIT),
            BitmapKind::Inode => (desc.inode_bitmap, GroupFlags::INODE_UNINIT),
        };
        if !(has_flags && desc.flags.contains(uninit)) {
            let bits = self.read(block)?;
            if self.is_strict {
                bitmap::verify(&bits, kind, group, &desc, &self.geometry)?;
            }
            return Ok(bits);
        }
        let mut bits = vec![0; self.geometry.block_len()];
        if kind == BitmapKind::Block {
            for range in self.own_blocks(group)? {
                self.mark(&mut bits, group, range);
            }
        }
        bitmap::pad(&mut bits, kind.used_bits(group, &self.geometry));
        Ok(bits)
    }

    /// Blocks in a group used for metadata: its superblock and descriptors, and the tables of any
    /// group.
    fn own_blocks(&self, group: GroupNo) -> Result<Vec<Range<u64>>, FormatError> {
        let geometry = &self.geometry;
        let start = geometry.group_start(group).0;
        let end = start + u64::from(geometry.group_blocks(group));
        let metadata = match self.metadata.get() {
            Some(metadata) => metadata,
            None => {
                let found = self.metadata_ranges()?;
                self.metadata.get_or_init(|| found)
            }
        };
        let own =
            [leading(geometry, group).blocks()].into_iter().chain(metadata.near(&(start..end)));
        let own = own
            .map(|range| range.start.max(start)..range.end.min(end))
            .filter(|range| range.start < range.end)
            .collect();
        Ok(own)
    }

    fn metadata_ranges(&self) -> Result<MetadataRanges, FormatError> {
        let table = u64::from(self.geometry.itable_blocks());
        let mut ranges = Vec::new();
        for group in (0..self.geometry.groups_count).map(GroupNo) {
            let [blocks, inodes, inode_table] = places(&self.trusted_desc(group)?);
            ranges.extend([(blocks.0, 1), (inodes.0, 1), (inode_table.0, table)]);
        }
        ranges.sort_unstable();
        Ok(MetadataRanges { ranges, longest: table.max(1) })
    }

    /// Sets the bits of blocks in the group.
    fn mark(&self, bits: &mut [u8], group: GroupNo, range: Range<u64>) {
        let start = self.geometry.group_start(group).0;
        let ratio = u64::from(self.geometry.blocks_per_cluster);
        // A group has fewer than 2^32 clusters.
        let (first, end) = ((range.start - start) / ratio, (range.end - start).div_ceil(ratio));
        bitmap::set_range(bits, first as u32..end as u32);
    }

    /// Writes all changes: bitmaps, descriptors, then the superblock. Backups do not change: see
    /// [`Self::write_backups`].
    ///
    /// # Errors
    /// The device failed.
    pub fn commit(&mut self) -> Result<(), OfflineError> {
        let dirty: Vec<(bool, u32)> = self
            .bitmaps
            .iter()
            .filter(|(_, bitmap)| bitmap.is_dirty)
            .map(|(key, _)| *key)
            .collect();
        for key in dirty {
            self.write_bitmap(key)?;
        }
        self.seal_descs();
        for index in std::mem::take(&mut self.dirty_descs) {
            let bytes = self.table.block(index, &self.geometry);
            self.write(self.geometry.desc_block(index), bytes)?;
        }
        if self.is_superblock_dirty {
            self.raw.seal();
            self.device.write_at(SUPERBLOCK_OFFSET, self.raw.as_bytes())?;
            self.is_superblock_dirty = false;
        }
        Ok(self.device.flush()?)
    }

    /// Sets the checksums of changed descriptors in memory. The others keep theirs, right or wrong.
    pub fn seal_descs(&mut self) {
        for group in std::mem::take(&mut self.unsealed).into_iter().map(GroupNo) {
            self.table.seal(group, &self.geometry);
        }
    }

    fn write_bitmap(&mut self, key: (bool, u32)) -> Result<(), OfflineError> {
        let group = GroupNo(key.1);
        let kind = if key.0 { BitmapKind::Inode } else { BitmapKind::Block };
        let geometry = self.geometry.clone();
        let Some(held) = self.bitmaps.get_mut(&key) else { return Ok(()) };
        held.is_dirty = false;
        bitmap::pad(&mut held.bits, kind.used_bits(group, &geometry));
        let bits = held.bits.clone();
        self.update_desc(group, |desc| {
            match kind {
                BitmapKind::Block => desc.flags -= GroupFlags::BLOCK_UNINIT,
                BitmapKind::Inode => desc.flags -= GroupFlags::INODE_UNINIT,
            }
            bitmap::seal(&bits, kind, desc, &geometry);
        });
        let desc = self.desc(group);
        let block = if key.0 { desc.inode_bitmap } else { desc.block_bitmap };
        self.write(block, &bits)
    }

    /// Makes the next [`Self::commit`] store a bitmap, even if it was uninitialized.
    ///
    /// # Errors
    /// It is outside the volume, or the device failed.
    pub fn store_bitmap(&mut self, kind: BitmapKind, group: GroupNo) -> Result<(), OfflineError> {
        self.loaded(kind, group)?.is_dirty = true;
        Ok(())
    }

    /// Updates the checksums of a group's bitmaps for the current geometry. Uninitialized bitmaps
    /// stay so.
    ///
    /// # Errors
    /// It is outside the volume, or the device failed.
    pub fn reseal_bitmaps(&mut self, group: GroupNo) -> Result<(), OfflineError> {
        let geometry = self.geometry.clone();
        for kind in [BitmapKind::Block, BitmapKind::Inode] {
            let desc = self.desc(group);
            let uninit = match kind {
                BitmapKind::Block => GroupFlags::BLOCK_UNINIT,
                BitmapKind::Inode => GroupFlags::INODE_UNINIT,
            };
            if desc.flags.contains(uninit) {
                continue;
            }
            let bits = self.bitmap(kind, group)?.to_vec();
            self.update_desc(group, |desc| bitmap::seal(&bits, kind, desc, &geometry));
        }
        Ok(())
    }

    /// Writes the backups of superblock and descriptors from those in memory.
    ///
    /// # Errors
    /// The device failed.
    pub fn write_backups(&mut self) -> Result<(), OfflineError> {
        let geometry = self.geometry.clone();
        self.seal_descs();
        for index in 0..geometry.desc_blocks() {
            let bytes = self.table.block(index, &geometry);
            for place in desc_block_places(&geometry, index).into_iter().skip(1) {
                if geometry.contains(place, 1) {
                    self.write(place, bytes)?;
                }
            }
        }
        self.write_backup_superblocks()?;
        Ok(self.device.flush()?)
    }

    /// Writes the backups of the superblock alone.
    ///
    /// # Errors
    /// The device failed.
    pub fn write_backup_superblocks(&self) -> Result<(), OfflineError> {
        let geometry = &self.geometry;
        for group in geometry.backup_superblock_groups() {
            let sealed = backup_superblock(&self.raw, group);
            // In a block of 1 KiB, or at the start of a larger one.
            self.device
                .write_at(geometry.byte_of(geometry.group_start(group)), sealed.as_bytes())?;
        }
        Ok(())
    }
}

pub(crate) fn no_inode(number: InodeNo, geometry: &Geometry) -> FormatError {
    Flaw::above_limit("inode number", number.0, geometry.inodes_count).at(Location::Inode(number))
}
