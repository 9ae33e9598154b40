//! Inodes that get other numbers, and everything that names them.

use std::collections::{BTreeMap, BTreeSet};

use extant_offline::OfflineVolume;
use extant_ondisk::dirent::{DirEntry, DirFormat};
use extant_ondisk::extent::{self, ExtentNode, NodeOwner};
use extant_ondisk::htree::{HtreeFormat, IndexKind};
use extant_ondisk::inode::{self, Inode, InodeFlags};
use extant_ondisk::orphan_file::OrphanFileFormat;
use extant_ondisk::xattr::{self, RawXattrEntry, ValueRef};
use extant_ondisk::{BlockNo, FormatError, Geometry, IncompatFeatures, InodeNo};

use super::error::ResizeError;
use super::scan::each_inode;

/// Where `i_block` begins in a record.
const I_BLOCK_AT: usize = 40;
/// Bytes of the header of attributes in a block, and in an inode.
const BLOCK_HEADER: usize = 32;
const INODE_HEADER: usize = 4;
/// Where an entry of an attribute names the inode of its value.
const VALUE_INODE_AT: usize = 4;

/// Gives inodes new numbers, whose inodes are free. `numbers_only`: names and attributes still have
/// the old ones.
pub(super) fn inodes(
    volume: &mut OfflineVolume,
    pairs: &BTreeMap<u32, u32>,
    numbers_only: bool,
) -> Result<(), ResizeError> {
    for (&old, &new) in pairs {
        move_record(volume, InodeNo(old), InodeNo(new))?;
    }
    volume.update_superblock(|raw| {
        let fields = [
            &mut raw.s_orphan_file_inum,
            &mut raw.s_usr_quota_inum,
            &mut raw.s_grp_quota_inum,
            &mut raw.s_prj_quota_inum,
            &mut raw.s_lpf_ino,
            &mut raw.s_journal_inum,
        ];
        for field in fields {
            if let Some(new) = pairs.get(&field.get()) {
                field.set(*new);
            }
        }
    })?;
    if numbers_only {
        return Ok(());
    }
    let renumbered: BTreeSet<u32> = pairs.values().copied().collect();
    let has_ea_inodes = volume.geometry().has_incompat(IncompatFeatures::EA_INODE);
    let mut blocks = BTreeSet::new();
    let geometry = volume.geometry().clone();
    let numbers = NewNumbers { pairs, geometry: &geometry };
    each_inode(volume, |volume, number, mut record| {
        let inode = Inode::decode(&record, number, &geometry)?;
        let mut is_changed = false;
        if inode.is_dir() {
            is_changed |= match inode.is_inline() {
                true => numbers.inline_directory(&mut record, number, &inode)?,
                false => {
                    numbers.directory(volume, number, &inode, renumbered.contains(&number.0))?;
                    false
                }
            };
        }
        if has_ea_inodes {
            is_changed |= numbers.values_in_inode(&mut record, number)?;
            if inode.file_acl.0 != 0 && blocks.insert(inode.file_acl) {
                numbers.values_in_block(volume, inode.file_acl)?;
            }
        }
        if is_changed {
            volume.write_inode(number, &mut record)?;
        }
        Ok(())
    })
}

fn move_record(volume: &mut OfflineVolume, old: InodeNo, new: InodeNo) -> Result<(), ResizeError> {
    let geometry = volume.geometry().clone();
    let mut record = volume.read_inode(old)?;
    let inode = Inode::decode(&record, old, &geometry)?;
    inode::verify(&record, old, &geometry)?;
    volume.mark_inode(new, inode.is_dir())?;
    volume.write_inode(new, &mut record)?;
    reseal_nodes(volume, new, &inode)?;
    if volume.raw.s_orphan_file_inum.get() == old.0 {
        let format = OrphanFileFormat::new(&geometry, new, inode.generation);
        for (_, block) in volume.read_map(new, &inode)?.blocks() {
            let mut bytes = volume.read(block)?;
            format.seal(&mut bytes, block);
            volume.write(block, &bytes)?;
        }
    }
    record.fill(0);
    volume.write_inode(old, &mut record)?;
    Ok(volume.free_inode(old, inode.is_dir())?)
}

/// Numbers of inodes with the new ones that they get, on a volume of this geometry.
struct NewNumbers<'a> {
    pairs: &'a BTreeMap<u32, u32>,
    geometry: &'a Geometry,
}

impl NewNumbers<'_> {
    /// Where entries name inodes that get new numbers, with these.
    fn named<'b>(
        &self,
        entries: impl Iterator<Item = Result<DirEntry<'b>, FormatError>>,
    ) -> Result<Vec<(usize, u32)>, FormatError> {
        let mut named = Vec::new();
        for entry in entries {
            let entry = entry?;
            let new = entry.inode.and_then(|inode| self.pairs.get(&inode.0));
            named.extend(new.map(|new| (entry.at, *new)));
        }
        Ok(named)
    }

    /// The numbers in the blocks of a directory.
    fn directory(
        &self,
        volume: &OfflineVolume,
        number: InodeNo,
        inode: &Inode,
        is_renumbered: bool,
    ) -> Result<(), ResizeError> {
        let geometry = self.geometry;
        let format = DirFormat::of_inode(self.geometry, number, inode);
        let index = HtreeFormat::new(geometry, number, inode.generation);
        let is_indexed = inode.flags.contains(InodeFlags::INDEX);
        for (at, block) in volume.read_map(number, inode)?.blocks() {
            let mut bytes = volume.read(block)?;
            let named = self.named(format.entries(&bytes, at))?;
            if named.is_empty() && !is_renumbered {
                continue;
            }
            write_numbers(&mut bytes, &named);
            if is_indexed && at.0 == 0 {
                index.seal(&mut bytes, IndexKind::Root);
            } else if is_indexed && geometry.has_metadata_csum() && !format.has_tail(&bytes) {
                index.seal(&mut bytes, IndexKind::Node);
            } else {
                format.seal(&mut bytes);
            }
            volume.write(block, &bytes)?;
        }
        Ok(())
    }

    /// The numbers in a directory inside its inode. Returns whether any has changed.
    fn inline_directory(
        &self,
        record: &mut [u8],
        number: InodeNo,
        inode: &Inode,
    ) -> Result<bool, ResizeError> {
        /// After the parent's number.
        const FIRST_ENTRY: usize = 4;
        let area = inode::xattr_area(record, number, self.geometry)?;
        let area_at = record.len() - area.len();
        let found = xattr::decode_inode(area, number, self.geometry)?;
        let value = found.iter().find_map(|xattr| match xattr.value {
            ValueRef::Stored(value) if xattr.name.is_inline_data() && !value.is_empty() => {
                let at = value.as_ptr() as usize - area.as_ptr() as usize;
                Some(area_at + at..area_at + at + value.len())
            }
            _ => None,
        });
        let format = DirFormat::of_inode(self.geometry, number, inode);
        let first = I_BLOCK_AT + FIRST_ENTRY..I_BLOCK_AT + inode::I_BLOCK_SIZE;
        let parent =
            record[I_BLOCK_AT..].first_chunk::<4>().map_or(0, |it| u32::from_le_bytes(*it));
        let mut changes: Vec<_> =
            self.pairs.get(&parent).map(|new| (I_BLOCK_AT, *new)).into_iter().collect();
        for part in std::iter::once(first).chain(value) {
            if part.is_empty() {
                continue;
            }
            let bytes = &record[part.clone()];
            let format = format.inline(bytes.len());
            let named = self.named(format.entries(bytes, extant_ondisk::FileBlock(0)))?;
            changes.extend(named.into_iter().map(|(at, new)| (part.start + at, new)));
        }
        write_numbers(record, &changes);
        Ok(!changes.is_empty())
    }

    /// The inodes of values, in the attributes of an inode. Returns whether any has changed.
    fn values_in_inode(&self, record: &mut [u8], number: InodeNo) -> Result<bool, ResizeError> {
        let area = inode::xattr_area(record, number, self.geometry)?;
        // Also verifies that the entries lie in the area.
        if xattr::decode_inode(area, number, self.geometry)?.is_empty() {
            return Ok(false);
        }
        let start = record.len() - area.len() + INODE_HEADER;
        Ok(self.change_values(&mut record[start..]))
    }

    fn values_in_block(&self, volume: &OfflineVolume, block: BlockNo) -> Result<(), ResizeError> {
        let mut bytes = volume.read(block)?;
        xattr::decode_block(&bytes, block, self.geometry)?;
        if self.change_values(&mut bytes[BLOCK_HEADER..]) {
            xattr::seal_block(&mut bytes, block, self.geometry);
            volume.write(block, &bytes)?;
        }
        Ok(())
    }

    /// Changes the entries from the start of `bytes` on.
    fn change_values(&self, bytes: &mut [u8]) -> bool {
        let (mut at, mut is_changed) = (0, false);
        // The list ends with four bytes of zero.
        while bytes.get(at..at + 4).is_some_and(|end| end != [0; 4])
            && bytes.len() >= at + size_of::<RawXattrEntry>()
        {
            let field = at + VALUE_INODE_AT..at + VALUE_INODE_AT + 4;
            let stored =
                bytes[field.clone()].first_chunk::<4>().map_or(0, |it| u32::from_le_bytes(*it));
            if let Some(new) = self.pairs.get(&stored) {
                bytes[field].copy_from_slice(&new.to_le_bytes());
                is_changed = true;
            }
            let name = usize::from(bytes[at]).next_multiple_of(4);
            at += size_of::<RawXattrEntry>() + name;
        }
        is_changed
    }
}

fn write_numbers(bytes: &mut [u8], numbers: &[(usize, u32)]) {
    for (at, number) in numbers {
        bytes[*at..at + 4].copy_from_slice(&number.to_le_bytes());
    }
}

/// Writes the extent nodes of a file again whose inode has another number.
fn reseal_nodes(volume: &OfflineVolume, number: InodeNo, inode: &Inode) -> Result<(), ResizeError> {
    let geometry = volume.geometry().clone();
    if !inode.is_extent_mapped() || !volume.has_map(inode) {
        return Ok(());
    }
    for block in volume.read_map(number, inode)?.nodes {
        let mut bytes = volume.read(block)?;
        let owner = NodeOwner { inode: number, generation: inode.generation, block: Some(block) };
        ExtentNode::parse(&bytes).ok_or(ResizeError::NeedsCheck)?;
        extent::seal(&mut bytes, &owner, &geometry);
        volume.write(block, &bytes)?;
    }
    Ok(())
}
