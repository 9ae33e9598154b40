//! Files and directories inside their inodes that fast commits name.

use std::collections::BTreeMap;

use extant_ondisk::dirent::{DirFormat, FileType, NewEntry};
use extant_ondisk::extent::OwnedNode;
use extant_ondisk::inline_data::{InlineDir, InlineDirPacker, xattr_len_of};
use extant_ondisk::inode::{I_BLOCK_SIZE, InodeFlags, xattr_area};
use extant_ondisk::xattr::{self, Value, Xattr, XattrName};
use extant_ondisk::{Flaw, FormatError, Geometry, IncompatFeatures, InodeNo, Location};

use super::file::File;
use super::volume::Volume;
use crate::JournalError;

/// Bytes of an inode record before its extra fields.
const FIELDS: usize = 128;

/// The entries of a directory by their names; `.` and `..` are not among them.
pub(super) type DirEntries = BTreeMap<Vec<u8>, (InodeNo, FileType)>;

/// Reads the parent and the entries of a directory inside its inode.
pub(super) fn load(
    volume: &Volume<'_>,
    file: &File,
) -> Result<(InodeNo, DirEntries), JournalError> {
    let geometry = volume.geometry();
    let attributes = attributes_of(file, geometry)?;
    let value = inline_value(&attributes)
        .ok_or_else(|| Flaw::Rule("no attribute system.data").at(location(file)))?;
    let format = DirFormat::new(geometry, file.number, file.inode.generation);
    let dir = InlineDir::decode(&format, &file.inode.i_block, value, file.inode.size)?;
    let mut entries = DirEntries::new();
    for entry in dir.entries() {
        let entry = entry?;
        if let Some(inode) = entry.inode.filter(|_| entry.is_used()) {
            entries.insert(entry.name.to_vec(), (inode, entry.file_type));
        }
    }
    Ok((dir.parent, entries))
}

/// Packs entries into the directory's inode; false if they do not fit, and the inode is as it was.
pub(super) fn store(
    volume: &Volume<'_>,
    file: &mut File,
    parent: InodeNo,
    entries: &DirEntries,
) -> Result<bool, JournalError> {
    let geometry = volume.geometry();
    let format = DirFormat::new(geometry, file.number, file.inode.generation);
    let mut attributes = attributes_of(file, geometry)?;
    let entries = || {
        let parts = entries.iter();
        parts.map(|(name, (inode, file_type))| NewEntry::new(*inode, *file_type, name))
    };
    let wanted = xattr_len_of(entries().map(|entry| format.rec_len_of(entry.name)));
    let held = inline_value(&attributes).map_or(0, <[u8]>::len);
    let (mut i_block, mut value) = ([0; I_BLOCK_SIZE], vec![0; held.max(wanted)]);
    if !InlineDirPacker::new(&format).pack(parent, &mut i_block, &mut value, entries()) {
        return Ok(false);
    }
    let size = i_block.len() + value.len();
    attributes.retain(|it| it.name != XattrName::inline_data());
    attributes.push(Xattr::new(XattrName::inline_data(), value));
    if !put(file, &attributes) {
        return Ok(false);
    }
    (file.inode.i_block, file.inode.size) = (i_block, size as u64);
    Ok(true)
}

/// Makes a directory inside its inode one with a map, which is empty.
pub(super) fn leave_inode(volume: &Volume<'_>, file: &mut File) -> Result<(), JournalError> {
    drop_data(volume, file)?;
    file.inode.flags.remove(InodeFlags::INLINE_DATA);
    file.inode.i_block.fill(0);
    if volume.geometry().has_incompat(IncompatFeatures::EXTENTS) {
        file.inode.flags |= InodeFlags::EXTENTS;
        OwnedNode::empty_leaf(I_BLOCK_SIZE).encode_into(&mut file.inode.i_block);
    }
    Ok(())
}

/// Removes the attribute with the data of a file that was inside its inode.
pub(super) fn drop_data(volume: &Volume<'_>, file: &mut File) -> Result<(), JournalError> {
    let mut attributes = attributes_of(file, volume.geometry())?;
    attributes.retain(|it| it.name != XattrName::inline_data());
    put(file, &attributes);
    Ok(())
}

fn location(file: &File) -> Location {
    Location::InlineData(file.number)
}

fn attributes_of(file: &File, geometry: &Geometry) -> Result<Vec<Xattr>, FormatError> {
    let number: InodeNo = file.number;
    let area = xattr_area(&file.record, number, geometry)?;
    let found = xattr::decode_inode(area, number, geometry)?;
    Ok(found.iter().map(|it| it.to_owned()).collect())
}

fn inline_value(attributes: &[Xattr]) -> Option<&[u8]> {
    attributes.iter().find_map(|it| match &it.value {
        Value::Stored(value) if it.name == XattrName::inline_data() => Some(&value[..]),
        _ => None,
    })
}

/// Writes the attributes in an inode; false if there is no room.
fn put(file: &mut File, attributes: &[Xattr]) -> bool {
    let start = FIELDS + usize::from(file.inode.extra_isize);
    xattr::encode_inode(attributes.iter(), &mut file.record[start..]).is_ok()
}
