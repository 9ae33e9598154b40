//! Checksums of everything, written again: another UUID, another seed, metadata_csum on or off.
//!
//! The volume is read in its old form and written in its new form, inode by inode. Directories get
//! room for their checksums if they have none; the capacity of an index depends on that room, so
//! indexed directories are packed again.

use std::collections::BTreeSet;
use std::sync::Arc;

use extant_device::Device;
use extant_offline::OfflineVolume;
use extant_ondisk::bitmap::BitmapKind;
use extant_ondisk::dirent::{DirFormat, NewEntry};
use extant_ondisk::extent::{self, NodeOwner};
use extant_ondisk::htree::{HtreeFormat, IndexKind};
use extant_ondisk::inode::{self, Inode, InodeFlags};
use extant_ondisk::orphan_file::OrphanFileFormat;
use extant_ondisk::superblock::RawSuperblock;
use extant_ondisk::xattr::{self, EaValue, RawXattrHeader, Value, Xattr};
use extant_ondisk::{BlockNo, Flaw, Geometry, GroupNo, IncompatFeatures, InodeNo, Location};

use super::error::TuneError;
use super::pending::Pending;
use super::records::{each_record, is_used};
use super::{marks, repack};

/// Where an inode that holds the value of an attribute stores the value's hash: `i_atime`.
const VALUE_HASH: std::ops::Range<usize> = 8..12;

/// Makes a change to the superblock on which checksums depend, and all dependent changes.
pub(super) fn checksums(
    volume: &mut OfflineVolume,
    change: impl FnOnce(&mut RawSuperblock),
) -> Result<(), TuneError> {
    volume.commit()?;
    // The old form is still read while the new one is written.
    let device = volume.device().clone();
    let before = OfflineVolume::open_strict(device.clone())?;
    let changed = Arc::new(Pending::new(device.clone()));
    *volume = OfflineVolume::open_strict(changed.clone() as Arc<dyn Device>)?;
    // All bitmaps are verified by their old checksums.
    for group in (0..volume.geometry().groups_count).map(GroupNo) {
        for kind in [BitmapKind::Block, BitmapKind::Inode] {
            volume.bitmap(kind, group)?;
        }
    }

    let mut after = volume.raw;
    change(&mut after);
    let new = Geometry::new(&after)?;
    let had_marks = before.geometry().has_uninit_groups();
    if had_marks && !new.has_uninit_groups() {
        marks::remove(volume)?;
    }
    volume.update_superblock(|raw| *raw = after)?;
    volume.touch_all_descs();
    if !had_marks && new.has_uninit_groups() {
        marks::set(volume)?;
    }
    let rewriter = Rewriter { before, done: BTreeSet::new() };
    rewriter.run(volume)?;
    volume.reseal_mmp()?;
    for group in (0..new.groups_count).map(GroupNo) {
        volume.reseal_bitmaps(group)?;
    }
    volume.commit()?;
    changed.write_to(&*device, &(0..0))?;
    *volume = OfflineVolume::open_strict(device)?;
    Ok(())
}

struct Rewriter {
    /// The volume in its old form.
    before: OfflineVolume,
    /// Attribute blocks that are done: several inodes may share one.
    done: BTreeSet<BlockNo>,
}

impl Rewriter {
    fn run(mut self, volume: &mut OfflineVolume) -> Result<(), TuneError> {
        let old = self.before.geometry().clone();
        let new = volume.geometry();
        let seals = old.has_metadata_csum() || new.has_metadata_csum();
        if !seals && !(self.has_new_hashes(volume)) {
            return Ok(());
        }
        each_record(volume, &old, |volume, number, record| {
            self.record(volume, number, record)?;
            Ok(true)
        })
    }

    /// Whether hashes of attributes with inodes of their own change.
    fn has_new_hashes(&self, volume: &OfflineVolume) -> bool {
        let old = self.before.geometry();
        old.has_incompat(IncompatFeatures::EA_INODE)
            && old.checksum_seed != volume.geometry().checksum_seed
    }

    fn record(
        &mut self,
        volume: &mut OfflineVolume,
        number: InodeNo,
        record: &mut [u8],
    ) -> Result<(), TuneError> {
        let old = self.before.geometry().clone();
        let inode = Inode::decode(record, number, &old);
        if let Ok(mut inode) = inode
            && is_used(number, &inode, &old)
        {
            inode::verify(record, number, &old)?;
            self.file(volume, number, &mut inode, record)?;
        }
        inode::seal(record, number, volume.geometry());
        Ok(())
    }

    fn file(
        &mut self,
        volume: &mut OfflineVolume,
        number: InodeNo,
        inode: &mut Inode,
        record: &mut [u8],
    ) -> Result<(), TuneError> {
        let new = volume.geometry().clone();
        if inode.is_extent_mapped() && self.before.has_map(inode) {
            let map = self.before.read_map(number, inode)?;
            for &block in &map.nodes {
                let mut bytes = self.before.read(block)?;
                let owner =
                    NodeOwner { inode: number, generation: inode.generation, block: Some(block) };
                extent::seal(&mut bytes, &owner, &new);
                volume.write(block, &bytes)?;
            }
        }
        if inode.is_dir() && !inode.is_inline() {
            self.directory(volume, number, inode, record)?;
        }
        if volume.raw.s_orphan_file_inum.get() == number.0 {
            let format = OrphanFileFormat::new(&new, number, inode.generation);
            for (_, block) in self.before.read_map(number, inode)?.blocks() {
                let mut bytes = self.before.read(block)?;
                format.seal(&mut bytes, block);
                volume.write(block, &bytes)?;
            }
        }
        if self.has_new_hashes(volume) {
            self.hashes(volume, number, inode, record)?;
        }
        self.xattr_block(volume, inode)
    }

    fn directory(
        &self,
        volume: &mut OfflineVolume,
        number: InodeNo,
        inode: &mut Inode,
        record: &mut [u8],
    ) -> Result<(), TuneError> {
        repack::check(&self.before, number, inode)?;
        let (old, new) = (self.before.geometry(), volume.geometry().clone());
        let is_indexed = inode.flags.contains(InodeFlags::INDEX);
        let room_changes = old.has_metadata_csum() != new.has_metadata_csum();
        if is_indexed && room_changes {
            return repack::directory(&self.before, volume, number, inode, record);
        }
        if !new.has_metadata_csum() {
            return Ok(()); // an unused tail is free space
        }
        let map = self.before.read_map(number, inode)?;
        let format = |geometry| DirFormat::of_inode(geometry, number, inode);
        let (reader, writer) = (format(old), format(&new));
        let index = HtreeFormat::new(&new, number, inode.generation);
        let mut sealed = Vec::new();
        for (at, block) in map.blocks() {
            let mut bytes = self.before.read(block)?;
            if is_indexed && at.0 == 0 {
                index.seal(&mut bytes, IndexKind::Root);
            } else if is_indexed && !reader.has_tail(&bytes) {
                index.seal(&mut bytes, IndexKind::Node);
            } else if room_changes && !reader.has_tail(&bytes) {
                let entries: Vec<_> = reader.entries(&bytes, at).collect::<Result<_, _>>()?;
                let mut fresh = vec![0; bytes.len()];
                let mut packer = writer.packer(&mut fresh);
                let used = entries.iter().filter_map(|entry| {
                    let new = NewEntry::new(entry.inode?, entry.file_type, entry.name);
                    Some(NewEntry { hash: entry.stored_hash.unwrap_or_default(), ..new })
                });
                let mut count = 0;
                for entry in used {
                    if !packer.push(&entry) {
                        return repack::directory(&self.before, volume, number, inode, record);
                    }
                    count += 1;
                }
                packer.finish();
                if count == 0 {
                    writer.clear(&mut fresh);
                }
                writer.seal(&mut fresh);
                bytes = fresh;
            } else {
                writer.seal(&mut bytes);
            }
            sealed.push((block, bytes));
        }
        for (block, bytes) in sealed {
            volume.write(block, &bytes)?;
        }
        Ok(())
    }

    /// The hash of a value's inode, in it and in the entries that lead to it.
    fn hashes(
        &self,
        volume: &OfflineVolume,
        number: InodeNo,
        inode: &Inode,
        record: &mut [u8],
    ) -> Result<(), TuneError> {
        let old = self.before.geometry();
        if inode.flags.contains(InodeFlags::EA_INODE) {
            let hash = self.value_hash(volume, number, inode)?;
            record[VALUE_HASH].copy_from_slice(&hash.to_le_bytes());
        }
        let area = inode::xattr_area(record, number, old)?;
        let start = record.len() - area.len();
        let found = xattr::decode_inode(area, number, old)?;
        if let Some(entries) = self.rehashed(volume, &found)? {
            xattr::encode_inode(&entries, &mut record[start..]).map_err(|_| {
                Flaw::Rule("its attributes overlap").at(Location::InodeXattr(number))
            })?;
        }
        Ok(())
    }

    fn value_hash(
        &self,
        volume: &OfflineVolume,
        number: InodeNo,
        inode: &Inode,
    ) -> Result<u32, TuneError> {
        let block_size = u64::from(volume.geometry().block_size);
        let map = self.before.read_map(number, inode)?;
        let mut value = Vec::new();
        for (at, block) in map.blocks() {
            let left = inode.size.saturating_sub(at.0 * block_size).min(block_size);
            value.extend_from_slice(&self.before.read(block)?[..left as usize]);
        }
        Ok(xattr::value_hash(&value, volume.geometry().checksum_seed))
    }

    /// The attributes with their new hashes; `None` when no value has an inode of its own.
    fn rehashed(
        &self,
        volume: &OfflineVolume,
        found: &[xattr::XattrRef<'_>],
    ) -> Result<Option<Vec<Xattr>>, TuneError> {
        let mut is_changed = false;
        let mut entries = Vec::with_capacity(found.len());
        for xattr in found.iter().map(xattr::XattrRef::to_owned) {
            let Value::EaInode(ea) = xattr.value else {
                entries.push(xattr);
                continue;
            };
            let record = self.before.read_inode(ea.inode)?;
            let inode = Inode::decode(&record, ea.inode, self.before.geometry())?;
            let hash = self.value_hash(volume, ea.inode, &inode)?;
            entries.push(Xattr { value: Value::EaInode(EaValue { hash, ..ea }), ..xattr });
            is_changed = true;
        }
        Ok(is_changed.then_some(entries))
    }

    fn xattr_block(&mut self, volume: &OfflineVolume, inode: &Inode) -> Result<(), TuneError> {
        let block = inode.file_acl;
        if block.0 == 0 || !self.done.insert(block) {
            return Ok(());
        }
        let old = self.before.geometry();
        let mut bytes = self.before.read(block)?;
        xattr::verify_block(&bytes, block, old)?;
        if self.has_new_hashes(volume) {
            let references = RawXattrHeader::from_block(&bytes, block)?.h_refcount.get();
            let found = xattr::decode_block(&bytes, block, old)?;
            if let Some(entries) = self.rehashed(volume, &found)? {
                let full = |_| Flaw::Rule("its attributes overlap").at(Location::XattrBlock(block));
                xattr::encode_block(&entries, references, &mut bytes).map_err(full)?;
            }
        }
        xattr::seal_block(&mut bytes, block, volume.geometry());
        Ok(volume.write(block, &bytes)?)
    }
}
