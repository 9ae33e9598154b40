//! Inline data: small files and directories changed inside their inodes, and grown out of them.
//!
//! Everything here changes the [`LoadedInode`] in memory alone, its fields and its attributes;
//! [`write_loaded`](crate::edit::write_loaded) stores both.

use extant_ondisk::dirent::{DirFormat, NewEntry};
use extant_ondisk::extent::{OwnedNode, ROOT_SIZE};
use extant_ondisk::inline_data::{IN_I_BLOCK, InlineDir, file_parts};
use extant_ondisk::inode::{GOOD_OLD_INODE_SIZE, InodeFlags};
use extant_ondisk::xattr::{
    Value, Xattr, XattrName, XattrSet, decode_inode, encode_inode, room_in_inode,
};
use extant_ondisk::{FileBlock, Flaw, Geometry, IncompatFeatures, InodeNo, Location};
use extant_reader::read::dir_block::{EntryTarget, format};
use extant_reader::read::inline::inline_data;
use extant_reader::read::inode::LoadedInode;
use extant_reader::{Error, MetadataRead, VolumeInfo};

/// Bytes of a directory's `i_block` that its parent's number takes.
const PARENT_LEN: usize = 4;
/// Values of attributes take whole units.
const UNIT: usize = 4;

/// Bytes after the fields of the inode's record.
fn space_len(geometry: &Geometry, inode: &LoadedInode) -> usize {
    let fields = usize::from(GOOD_OLD_INODE_SIZE) + usize::from(inode.extra_isize);
    usize::from(geometry.inode_size).saturating_sub(fields)
}

/// The attributes in the inode but for the inline data.
fn other_xattrs<S: MetadataRead>(source: &S, inode: &LoadedInode) -> Result<XattrSet, Error> {
    let found = decode_inode(&inode.xattr_space, inode.number, source.geometry())?;
    Ok(XattrSet::of(found.into_iter().filter(|xattr| !xattr.name.is_inline_data())))
}

/// Bytes that the inode can hold inline next to its other attributes.
///
/// # Errors
/// Broken attributes in the inode.
pub fn room<S: MetadataRead>(source: &S, inode: &LoadedInode) -> Result<usize, Error> {
    let empty = Xattr::new(XattrName::inline_data(), Vec::new());
    let others = other_xattrs(source, inode)?;
    let taken = others.entries.iter().map(Xattr::stored_len).sum::<usize>() + empty.stored_len();
    let value = room_in_inode(space_len(source.geometry(), inode)).saturating_sub(taken);
    Ok(IN_I_BLOCK + value / UNIT * UNIT)
}

/// Stores the value of `system.data`, or takes the attribute away. False, and nothing changed, when
/// there is no room.
fn set_value<S: MetadataRead>(
    source: &S,
    inode: &mut LoadedInode,
    value: Option<Vec<u8>>,
) -> Result<bool, Error> {
    let others = other_xattrs(source, inode)?;
    let data =
        value.map(|value| Xattr { name: XattrName::inline_data(), value: Value::Stored(value) });
    let mut space = vec![0; space_len(source.geometry(), inode)];
    let entries = data.iter().chain(&others.entries);
    if encode_inode(entries, &mut space).is_err() {
        return Ok(false);
    }
    inode.xattr_space = space.into();
    Ok(true)
}

/// Makes a new, empty file one whose data lie in the inode. False, and nothing changed, on volumes
/// without inline data, and where the attributes that it has already leave no room.
///
/// # Errors
/// Broken attributes in the inode.
pub fn start<S: MetadataRead>(source: &S, inode: &mut LoadedInode) -> Result<bool, Error> {
    if !source.geometry().has_incompat(IncompatFeatures::INLINE_DATA)
        || !set_value(source, inode, Some(Vec::new()))?
    {
        return Ok(false);
    }
    inode.inode.i_block = [0; IN_I_BLOCK];
    inode.inode.flags.remove(InodeFlags::EXTENTS);
    inode.inode.flags.insert(InodeFlags::INLINE_DATA);
    Ok(true)
}

/// The bytes of a file that lie in the inode: as many as its size, zeros where it holds fewer.
///
/// # Errors
/// Broken attributes in the inode, or a size that no inline file has.
pub fn contents<S: MetadataRead>(source: &S, file: &LoadedInode) -> Result<Vec<u8>, Error> {
    let rest = inline_data(source, file)?.unwrap_or_default();
    let held = file.size.min((IN_I_BLOCK + rest.len()) as u64);
    if file.size > u64::from(source.geometry().block_size) {
        let limit = source.geometry().block_size;
        return Err(Flaw::above_limit("size", file.size, limit)
            .at(Location::InlineData(file.number))
            .into());
    }
    let mut bytes = file_parts(&file.i_block, &rest, held, file.number)?.concat();
    bytes.resize(file.size as usize, 0); // at most a block
    Ok(bytes)
}

/// Gives the file these bytes and their length as its size. False, and nothing changed, when they
/// do not fit.
///
/// # Errors
/// Broken attributes in the inode.
pub fn set_contents<S: MetadataRead>(
    source: &S,
    file: &mut LoadedInode,
    bytes: &[u8],
) -> Result<bool, Error> {
    let (first, rest) = bytes.split_at(bytes.len().min(IN_I_BLOCK));
    if !set_value(source, file, Some(rest.to_vec()))? {
        return Ok(false);
    }
    file.inode.i_block = [0; IN_I_BLOCK];
    file.inode.i_block[..first.len()].copy_from_slice(first);
    file.inode.size = bytes.len() as u64;
    Ok(true)
}

/// Makes the file one that maps blocks, none yet. Its size stays; what it held is the caller's to
/// write ([`contents`]).
///
/// # Errors
/// Broken attributes in the inode.
pub fn leave<S: MetadataRead>(source: &S, file: &mut LoadedInode) -> Result<(), Error> {
    set_value(source, file, None)?;
    file.inode.flags.remove(InodeFlags::INLINE_DATA);
    set_empty_map(source.info(), file);
    Ok(())
}

/// Gives a file a map of no blocks, as new files are mapped.
pub fn set_empty_map(info: &VolumeInfo, file: &mut LoadedInode) {
    file.inode.i_block = [0; IN_I_BLOCK];
    file.inode.flags.set(InodeFlags::EXTENTS, info.maps_by_extents);
    if info.maps_by_extents {
        OwnedNode::empty_leaf(ROOT_SIZE).encode_into(&mut file.inode.i_block);
    }
}

/// Which part of an inline directory a record lies in: the first in `i_block`, the second in the
/// attribute. As the logical block that [`InlineDir::entries`] reports them by.
const FIRST: FileBlock = FileBlock(0);
const SECOND: FileBlock = FileBlock(1);

/// Makes a new directory one whose names lie in the inode; there are none yet. False as [`start`].
///
/// # Errors
/// As [`start`].
pub fn start_dir<S: MetadataRead>(
    source: &S,
    dir: &mut LoadedInode,
    parent: InodeNo,
) -> Result<bool, Error> {
    if !start(source, dir)? {
        return Ok(false);
    }
    let format = DirFormat::new(source.geometry(), dir.number, dir.generation);
    let records = &mut dir.inode.i_block[PARENT_LEN..];
    format.inline(records.len()).clear(records);
    set_parent(dir, parent);
    dir.inode.size = IN_I_BLOCK as u64;
    Ok(true)
}

/// Sets the parent of an inline directory.
pub(super) fn set_parent(dir: &mut LoadedInode, parent: InodeNo) {
    dir.inode.i_block[..PARENT_LEN].copy_from_slice(&parent.0.to_le_bytes());
}

/// The records of an inline directory and its parent.
pub(super) struct Names {
    pub parent: InodeNo,
    pub records: Vec<(EntryTarget, Vec<u8>)>,
}

/// Reads an inline directory.
pub(super) fn names<S: MetadataRead>(source: &S, dir: &LoadedInode) -> Result<Names, Error> {
    let rest = inline_data(source, dir)?.unwrap_or_default();
    let inline = InlineDir::decode(&format(source, dir), &dir.i_block, &rest, dir.size)?;
    let mut records = Vec::new();
    for entry in inline.entries() {
        let entry = entry?;
        if let Some(inode) = entry.inode {
            let found = EntryTarget { inode, file_type: entry.file_type };
            records.push((found, entry.name.to_vec()));
        }
    }
    Ok(Names { parent: inline.parent, records })
}

/// Changes one part of an inline directory as a block of records.
fn change_part<S: MetadataRead, R>(
    source: &S,
    dir: &mut LoadedInode,
    part: FileBlock,
    change: impl FnOnce(&DirFormat, &mut [u8]) -> Result<R, Error>,
) -> Result<R, Error> {
    let format = format(source, dir);
    if part == FIRST {
        let records = &mut dir.inode.i_block[PARENT_LEN..];
        return change(&format.inline(records.len()), records);
    }
    let mut value = inline_data(source, dir)?.unwrap_or_default();
    let result = change(&format.inline(value.len()), &mut value)?;
    let is_stored = set_value(source, dir, Some(value))?;
    assert!(is_stored, "the value is as long as before");
    Ok(result)
}

/// Puts a record in: where there is room, else after the last, as far as the inode has space.
/// False, and nothing changed, when it is full.
pub(super) fn insert<S: MetadataRead>(
    source: &S,
    dir: &mut LoadedInode,
    new: &NewEntry<'_>,
) -> Result<bool, Error> {
    names(source, dir)?; // all of it is sound
    if change_part(source, dir, FIRST, |format, part| Ok(format.insert(part, FIRST, new)?))? {
        return Ok(true);
    }
    let value = inline_data(source, dir)?.unwrap_or_default();
    if !value.is_empty()
        && change_part(source, dir, SECOND, |format, part| Ok(format.insert(part, SECOND, new)?))?
    {
        return Ok(true);
    }
    let needed = format(source, dir).rec_len_of(new.name);
    let mut longer = value;
    let added = longer.len();
    longer.resize(added + needed, 0);
    let format = format(source, dir).inline(needed);
    let mut packer = format.packer(&mut longer[added..]);
    packer.push(new);
    packer.finish();
    let size = (IN_I_BLOCK + longer.len()) as u64;
    if !set_value(source, dir, Some(longer))? {
        return Ok(false);
    }
    dir.inode.size = size;
    Ok(true)
}

/// Takes out the record at a place ([`locate`](extant_reader::read::dir::locate)).
pub(super) fn remove<S: MetadataRead>(
    source: &S,
    dir: &mut LoadedInode,
    part: FileBlock,
    byte: usize,
) -> Result<bool, Error> {
    change_part(source, dir, part, |format, records| Ok(format.remove(records, part, byte)?))
}

/// Points the record at a place to another file.
pub(super) fn replace<S: MetadataRead>(
    source: &S,
    dir: &mut LoadedInode,
    part: FileBlock,
    byte: usize,
    target: EntryTarget,
) -> Result<bool, Error> {
    let EntryTarget { inode, file_type } = target;
    change_part(source, dir, part, |format, records| {
        Ok(format.set_inode(records, part, byte, inode, file_type)?)
    })
}
