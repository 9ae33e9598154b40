//! Values of attributes that have inodes of their own (ea_inode): made, referred to, deleted with
//! the last reference.

use super::mapping::{self, ExtentState};
use crate::edit::{
    AllocationRequest, EditInodes, Purpose, Undo, clear_inode, new_inode, write_new_inode,
};
use extant_ondisk::inode::{FileType, Inode, InodeFlags};
use extant_ondisk::time::Timestamp;
use extant_ondisk::xattr::{EaValue, value_hash};
use extant_ondisk::{BlockNo, FileBlock, Flaw, InodeNo, Location};
use extant_reader::read::inode::{LoadedInode, load, load_any};
use extant_reader::read::mapping::{MappingTarget, map};
use extant_reader::{BlockKind, Error};

/// Mode of the inode of a value.
const MODE: u16 = 0o100_600;
/// Runs that one step of a deletion takes away.
const RUNS: usize = 64;

/// An inode that holds a value, with one more reference to it: one that is known to hold the same,
/// or a new one, owned as `owner` is.
///
/// # Errors
/// [`Error::NoSpace`], or the change failed. A failed call has changed nothing.
pub(super) fn obtain<E: EditInodes>(
    edit: &mut E,
    owner: &LoadedInode,
    value: &[u8],
) -> Result<EaValue, Error> {
    let hash = value_hash(value, edit.geometry().checksum_seed);
    let known = edit.with_shared_values(hash, |edit, inodes| {
        for inode in inodes.iter().copied() {
            if holds(edit, inode, value)? {
                let left = edit.unlogged(|edit| add_references(edit, inode, 1))?;
                edit.record_undo(Undo::References { number: inode, by: 1, left });
                return Ok::<_, Error>(Some(inode));
            }
        }
        Ok(None)
    })?;
    if let Some(inode) = known {
        return Ok(EaValue { inode, size: value.len() as u32, hash });
    }
    let made = create(edit, owner, value)?;
    add_references(edit, made.inode, 1)?;
    edit.record_undo(Undo::OffersValue(hash, made.inode));
    Ok(made)
}

/// Whether an inode of a value holds these bytes.
fn holds<E: EditInodes>(edit: &E, number: InodeNo, value: &[u8]) -> Result<bool, Error> {
    let file = load(edit, number)?;
    if !file.flags.contains(InodeFlags::EA_INODE) || file.size != value.len() as u64 {
        return Ok(false);
    }
    for (at, bytes) in (0..).zip(value.chunks(edit.geometry().block_len())) {
        let MappingTarget::Written(place) = map(edit, &file, FileBlock(at))?.target else {
            return Ok(false);
        };
        if edit.metadata(place, BlockKind::Contents)?.get(..bytes.len()) != Some(bytes) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes an inode that holds a value, with no reference to it yet. The inode is owned as `owner`
/// is.
///
/// # Errors
/// [`Error::NoSpace`], or the change failed. A failed call has changed nothing.
fn create<E: EditInodes>(
    edit: &mut E,
    owner: &LoadedInode,
    value: &[u8],
) -> Result<EaValue, Error> {
    let number = edit.allocate_inode(owner.number, FileType::Regular)?;
    let geometry = edit.geometry().clone();
    let hash = value_hash(value, geometry.checksum_seed);
    let now = edit.now();
    let mut inode = new_inode(&geometry, MODE, now);
    (inode.uid, inode.gid, inode.size) = (owner.uid, owner.gid, value.len() as u64);
    // The value's hash lies where others keep their time of reading.
    inode.atime = Timestamp::new(i64::from(hash.cast_signed()), 0);
    inode.flags |= InodeFlags::EA_INODE;
    inode.set_ea_inode_references(0);
    let mut file = LoadedInode { number, inode, xattr_space: Box::default() };
    let made =
        write(edit, &mut file, value).and_then(|()| write_new_inode(edit, number, &file.inode));
    match made {
        // At most MAX_XATTR_SIZE.
        Ok(()) => Ok(EaValue { inode: number, size: value.len() as u32, hash }),
        Err(error) => {
            remove_blocks(edit, &mut file)?;
            edit.free_inode(number, FileType::Regular)?;
            Err(error)
        }
    }
}

fn write<E: EditInodes>(edit: &mut E, file: &mut LoadedInode, value: &[u8]) -> Result<(), Error> {
    let block_len = edit.geometry().block_len();
    let end = value.len().div_ceil(block_len);
    let mut at = 0;
    while at < end {
        let request = AllocationRequest {
            inode: file.number,
            purpose: Purpose::Metadata,
            goal: None,
            count: (end - at) as u64,
            part: None,
        };
        let run =
            mapping::allocate(edit, file, FileBlock(at as u64), request, ExtentState::Written)?;
        for (block, bytes) in
            (run.start.0..run.start.0 + run.count).zip(value[at * block_len..].chunks(block_len))
        {
            edit.create(BlockNo(block), BlockKind::Contents, |into| {
                into[..bytes.len()].copy_from_slice(bytes);
            })?;
            at += 1;
        }
    }
    Ok(())
}

fn remove_blocks<E: EditInodes>(edit: &mut E, file: &mut LoadedInode) -> Result<(), Error> {
    let mut from = Some(FileBlock(0));
    while let Some(start) = from {
        from = mapping::remove_step(edit, file, start..FileBlock(u64::MAX), RUNS)?;
    }
    Ok(())
}

/// Counts references to a value; without any it is deleted.
///
/// # Errors
/// An inode that holds no value, fewer references than are taken, or the change failed.
pub(super) fn change_references<E: EditInodes>(
    edit: &mut E,
    number: InodeNo,
    by: i64,
) -> Result<(), Error> {
    if by == 0 {
        return Ok(());
    }
    let place = Location::EaInode(number);
    let file = load(edit, number)?;
    if !file.flags.contains(InodeFlags::EA_INODE) {
        return Err(Flaw::Rule("the inode is not one of an attribute's value").at(place).into());
    }
    // Where values keep their hash.
    let hash = file.atime.seconds as u32;
    let left = edit.with_shared_values(hash, |edit, inodes| {
        let left = edit.unlogged(|edit| add_references(edit, number, by))?;
        edit.record_undo(Undo::References { number, by, left });
        if left == 0 {
            inodes.retain(|known| *known != number);
        }
        Ok::<_, Error>(left)
    })?;
    if left == 0 { delete(edit, number) } else { Ok(()) }
}

/// Counts references back. Values that others have given up since are gone.
pub(crate) fn count_references_back<E: EditInodes>(
    edit: &mut E,
    number: InodeNo,
    by: i64,
    left: u64,
) -> Result<(), Error> {
    let now = load_any(edit, number)?.ea_inode_references();
    if now.checked_add_signed(-by).is_none_or(|back| back == 0) || now == 0 && left > 0 {
        return Err(Flaw::Rule("attribute value was removed").at(Location::EaInode(number)).into());
    }
    add_references(edit, number, -by).map(drop)
}

/// Counts references to a value: how many there are then.
fn add_references<E: EditInodes>(edit: &mut E, number: InodeNo, by: i64) -> Result<u64, Error> {
    let place = Location::EaInode(number);
    edit.modify_record(number, |record, geometry| {
        let mut inode = Inode::decode(record, number, geometry)?;
        let references = inode.ea_inode_references();
        let left = references.checked_add_signed(by).ok_or_else(|| {
            Flaw::bad_value("references to an attribute's value", references).at(place)
        })?;
        inode.set_ea_inode_references(left);
        inode.encode_into(record, geometry);
        Ok::<_, Error>(left)
    })?
}

/// Deletes a value that nothing refers to.
///
/// # Errors
/// A broken map, or the change failed.
fn delete<E: EditInodes>(edit: &mut E, number: InodeNo) -> Result<(), Error> {
    let mut file = load_any(edit, number)?;
    remove_blocks(edit, &mut file)?;
    clear_inode(edit, number)?;
    edit.free_inode(number, FileType::Regular)
}
