//! A volume opened for a debugger.

use std::ops::ControlFlow;
use std::sync::Arc;

use extant_device::Device;
use extant_offline::{OfflineError, OfflineVolume, read_superblock, read_table};
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_MAGIC, SUPERBLOCK_OFFSET};
use extant_ondisk::{
    BlockNo, Features, Flaw, FormatError, Geometry, GroupNo, IncompatFeatures, InodeNo,
    RoCompatFeatures, inode,
};

use super::{DebugError, RawRecord};

/// Inodes that are read at once.
const AT_ONCE: u32 = 512;

/// How a volume is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct DebugChoice {
    /// The block size that the volume must have.
    pub block_size: Option<u32>,
    /// The block of the superblock, in blocks of `block_size`; the primary one otherwise.
    pub superblock: Option<u64>,
    /// Whether checksums are looked past.
    pub ignores_checksums: bool,
    /// Whether the bitmaps are left alone.
    pub is_catastrophic: bool,
    /// Whether features that are not known are looked past.
    pub forces: bool,
    /// Whether it will be changed.
    pub is_writable: bool,
}

/// A volume whose structures are read as they are stored.
pub struct DebugVolume {
    pub(super) editor: OfflineVolume,
    /// Whether a wrong checksum is an error.
    pub(super) verifies: bool,
    has_bitmaps: bool,
}

impl DebugVolume {
    /// Reads superblock and descriptors. The flag is true if the checksum of the superblock is
    /// wrong.
    ///
    /// # Errors
    /// No superblock that can be believed, features that are not known, or the device failed.
    pub fn open(device: Arc<dyn Device>, choice: &DebugChoice) -> Result<(Self, bool), DebugError> {
        let at = match (choice.superblock, choice.block_size) {
            (Some(block), Some(size)) => {
                block.checked_mul(size.into()).ok_or(DebugError::ShortRead)?
            }
            _ => SUPERBLOCK_OFFSET,
        };
        if device.size() < at.saturating_add(size_of::<RawSuperblock>() as u64) {
            return Err(DebugError::ShortRead);
        }
        let raw = read_superblock(&*device, at).map_err(|error| match error {
            OfflineError::Device(error) => DebugError::Device(error),
            _ => DebugError::ShortRead,
        })?;
        if raw.s_magic.get() != SUPERBLOCK_MAGIC {
            return Err(DebugError::BadMagic);
        }
        let is_damaged = raw.verify(GroupNo(0)).is_err() && !choice.ignores_checksums;
        let size = 1024_u32.checked_shl(raw.s_log_block_size.get());
        if choice.block_size.is_some_and(|wanted| Some(wanted) != size) {
            return Err(DebugError::BlockSize);
        }
        let geometry = geometry(&raw, choice)?;
        let table = read_table(&*device, &geometry)?;
        let editor = OfflineVolume::of_parts(device, raw, geometry, table);
        let volume = Self {
            editor,
            verifies: !choice.ignores_checksums,
            has_bitmaps: !choice.is_catastrophic,
        };
        Ok((volume, is_damaged))
    }

    /// Whether the bitmaps may be used.
    pub fn has_bitmaps(&self) -> bool {
        self.has_bitmaps
    }

    /// Whether a wrong checksum is an error.
    pub fn verifies(&self) -> bool {
        self.verifies
    }

    /// The sizes and counts.
    pub fn geometry(&self) -> &Geometry {
        self.editor.geometry()
    }

    /// The superblock's bytes.
    pub fn raw(&self) -> &RawSuperblock {
        &self.editor.raw
    }

    /// Descriptors, bitmaps and inodes, and changes of them.
    pub fn editor(&self) -> &OfflineVolume {
        &self.editor
    }

    /// The same, for changes.
    pub fn editor_mut(&mut self) -> &mut OfflineVolume {
        &mut self.editor
    }

    /// A block of the device, whether or not the volume reaches so far.
    ///
    /// # Errors
    /// It is past the end of the device, or the device failed.
    pub fn block(&self, block: BlockNo) -> Result<Vec<u8>, DebugError> {
        let len = self.geometry().block_len();
        let device = self.editor.device();
        let at = block.0.checked_mul(len as u64).ok_or(DebugError::ShortRead)?;
        if at.checked_add(len as u64).is_none_or(|end| end > device.size()) {
            return Err(DebugError::ShortRead);
        }
        let mut bytes = vec![0; len];
        device.read_at(at, &mut bytes)?;
        Ok(bytes)
    }

    /// The record of an inode. A wrong checksum is an error unless checksums are ignored.
    ///
    /// # Errors
    /// There is no such inode, its checksum is wrong, or the device failed.
    pub fn inode(&self, number: InodeNo) -> Result<RawRecord, DebugError> {
        let record = self.inode_unverified(number)?;
        if self.verifies && !self.checksum_is_right(&record) {
            return Err(DebugError::InodeChecksum);
        }
        Ok(record)
    }

    /// The record of an inode, whatever its checksum.
    ///
    /// # Errors
    /// There is no such inode, or the device failed.
    pub fn inode_unverified(&self, number: InodeNo) -> Result<RawRecord, DebugError> {
        if self.geometry().inode_place(number).is_none() {
            return Err(DebugError::BadInode);
        }
        if self.editor.inode_offset(number).is_none() {
            return Err(DebugError::MissingTable);
        }
        Ok(RawRecord::new(number, self.editor.read_inode(number)?))
    }

    /// Calls `visit` for the record of every inode that was ever used, whatever its checksum, until
    /// it breaks off.
    ///
    /// # Errors
    /// The device failed. Tables that lie outside the volume are passed over.
    pub fn walk_inodes(
        &self,
        visit: &mut dyn FnMut(RawRecord) -> ControlFlow<()>,
    ) -> Result<(), DebugError> {
        let geometry = self.geometry();
        let size = usize::from(geometry.inode_size);
        for group in (0..geometry.groups_count).map(GroupNo) {
            let desc = self.editor.desc(group);
            let used = match geometry.has_uninit_groups() {
                true => desc.itable_used(geometry),
                false => geometry.inodes_per_group,
            };
            let first = u64::from(group.0) * u64::from(geometry.inodes_per_group) + 1;
            // Inodes have numbers of 32 bits.
            let Some(at) = self.editor.inode_offset(InodeNo(first as u32)) else { continue };
            let mut bytes = vec![0; size * AT_ONCE as usize];
            for start in (0..used).step_by(AT_ONCE as usize) {
                let count = (used - start).min(AT_ONCE);
                let bytes = &mut bytes[..size * count as usize];
                self.editor.device().read_at(at + u64::from(start) * size as u64, bytes)?;
                for (index, record) in bytes.chunks_exact(size).enumerate() {
                    let number = InodeNo((first + u64::from(start) + index as u64) as u32);
                    if visit(RawRecord::new(number, record.to_vec())).is_break() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether the checksum of a record is right. A record of zeros needs none.
    pub fn checksum_is_right(&self, record: &RawRecord) -> bool {
        record.bytes.iter().all(|byte| *byte == 0)
            || !matches!(
                inode::verify(&record.bytes, record.number, self.geometry()),
                Err(FormatError::Corrupt { flaw: Flaw::Checksum { .. }, .. })
            )
    }

    /// Writes a record with its checksum.
    ///
    /// # Errors
    /// There is no such inode, or the device failed.
    pub fn write_inode(&mut self, record: &mut RawRecord) -> Result<(), DebugError> {
        Ok(self.editor.write_inode(record.number, &mut record.bytes)?)
    }

    /// Writes a record as it is, with the checksum that it has.
    ///
    /// # Errors
    /// There is no such inode, or the device failed.
    pub fn write_inode_unsealed(&mut self, record: &RawRecord) -> Result<(), DebugError> {
        let Some(at) = self.editor.inode_offset(record.number) else {
            return Err(DebugError::MissingTable);
        };
        Ok(self.editor.device().write_at(at, &record.bytes)?)
    }

    /// A group's bitmap: as stored, or as an uninitialized group implies it.
    ///
    /// # Errors
    /// Its checksum is wrong, it lies outside the volume, or the device failed.
    pub fn bitmap(&mut self, kind: BitmapKind, group: GroupNo) -> Result<&[u8], DebugError> {
        if self.verifies {
            self.verify_bitmap(kind, group)?;
        }
        Ok(self.editor.bitmap(kind, group)?)
    }

    fn verify_bitmap(&mut self, kind: BitmapKind, group: GroupNo) -> Result<(), DebugError> {
        let geometry = self.editor.geometry().clone();
        let desc = self.editor.desc(group);
        let (uninit, wrong) = match kind {
            BitmapKind::Block => (GroupFlags::BLOCK_UNINIT, DebugError::BlockBitmapChecksum),
            BitmapKind::Inode => (GroupFlags::INODE_UNINIT, DebugError::InodeBitmapChecksum),
        };
        if geometry.has_uninit_groups() && desc.flags.contains(uninit) {
            return Ok(());
        }
        let place = match kind {
            BitmapKind::Block => desc.block_bitmap,
            BitmapKind::Inode => desc.inode_bitmap,
        };
        // One that was changed here gets its checksum when it is written.
        if self.editor.has_changed_bitmap(kind, group) {
            return Ok(());
        }
        let bits = self.block(place)?;
        bitmap::verify(&bits, kind, group, &desc, &geometry).map_err(|_| wrong)
    }

    /// Whether a block is in use. Blocks outside the volume are not.
    ///
    /// # Errors
    /// As [`Self::bitmap`].
    pub fn is_block_used(&mut self, block: BlockNo) -> Result<bool, DebugError> {
        let Some(group) = self.geometry().group_of(block) else { return Ok(false) };
        let start = self.geometry().group_start(group).0;
        // A group has fewer than 2^32 clusters.
        let bit = ((block.0 - start) / u64::from(self.geometry().blocks_per_cluster)) as u32;
        Ok(bitmap::test(self.bitmap(BitmapKind::Block, group)?, bit))
    }

    /// Whether an inode is in use. An inode that does not exist is not.
    ///
    /// # Errors
    /// As [`Self::bitmap`].
    pub fn is_inode_used(&mut self, number: InodeNo) -> Result<bool, DebugError> {
        let Some((group, index)) = self.geometry().inode_place(number) else { return Ok(false) };
        Ok(bitmap::test(self.bitmap(BitmapKind::Inode, group)?, index))
    }
}

/// The checked figures; features that are not known are looked past by force.
fn geometry(raw: &RawSuperblock, choice: &DebugChoice) -> Result<Geometry, DebugError> {
    let mut raw = *raw;
    let features = raw.features();
    let known = IncompatFeatures::READABLE;
    if !known.contains(features.incompat) {
        if !choice.forces {
            return Err(DebugError::Features);
        }
        let incompat = features.incompat.intersection(known);
        raw.set_features(Features { incompat, ..features });
    }
    let is_unknown = !RoCompatFeatures::unknown(features.ro_compat).is_empty();
    if choice.is_writable && is_unknown && !choice.forces {
        return Err(DebugError::ReadOnlyFeatures);
    }
    Geometry::new(&raw).map_err(|_| DebugError::CorruptSuperblock)
}
