//! One block of a directory's records: a record put in, the records read, a block appended.

use super::mapping;
use crate::edit::{AllocationRequest, Edit, Purpose};
use extant_ondisk::dirent::{DirFormat, NewEntry, Slot};
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::{BlockNo, FileBlock, Flaw, Location, MAX_FILE_BLOCKS};
use extant_reader::read::dir_block::{self, EntryTarget, block_kind, format};
use extant_reader::read::inode::{LoadedInode, dir_blocks};
use extant_reader::{BlockKind, Error};

/// Without large_dir a directory's index has this many levels below the root, and its size stays
/// below 2 GiB.
const MAX_DIR_SIZE: u64 = 1 << 31;

/// Puts a record into one block of records. False when it has no room.
pub(super) fn insert_into<E: Edit>(
    edit: &mut E,
    dir: &LoadedInode,
    at: FileBlock,
    new: &NewEntry<'_>,
) -> Result<bool, Error> {
    let records = format(edit, dir);
    let place = dir_block::block_place(edit, dir, at)?;
    let kind = block_kind(edit, dir, at);
    // Looked for first: a full block must not join the transaction. The lock of the directory is
    // held.
    let slot = records.slot(&edit.metadata(place, kind)?, at, new)?;
    let Some(slot) = slot else { return Ok(false) };
    insert_at(edit, (place, kind), &records, slot, new)?;
    Ok(true)
}

/// Puts a record into a place that was found in a block.
pub(super) fn insert_at<E: Edit>(
    edit: &mut E,
    (place, kind): (BlockNo, BlockKind),
    records: &DirFormat,
    slot: Slot,
    new: &NewEntry<'_>,
) -> Result<(), Error> {
    let part = records.part_of(slot, new);
    let insert = |part: &mut [u8], _| records.insert_in(part, slot, new);
    edit.modify_part(place, kind, |_| Ok(Some(part)), insert).map(drop)
}

/// One more block at the directory's end, empty but for its tail.
pub(super) fn append_leaf<E: Edit>(
    edit: &mut E,
    dir: &mut LoadedInode,
) -> Result<(FileBlock, BlockNo), Error> {
    let at = dir_blocks(edit, dir)?;
    let near = dir_block::block_place(edit, dir, FileBlock(at.0.saturating_sub(1)))?;
    let place = append(edit, dir, near.checked_add(1))?;
    let records = format(edit, dir);
    let kind = block_kind(edit, dir, at);
    edit.create(place, kind, |block| records.clear(block))?;
    Ok((at, place))
}

/// Maps one more block after the directory's last. The block is not written yet.
pub(super) fn append<E: Edit>(
    edit: &mut E,
    dir: &mut LoadedInode,
    goal: Option<BlockNo>,
) -> Result<BlockNo, Error> {
    let geometry = edit.geometry();
    let size = dir.size + u64::from(geometry.block_size);
    let at = FileBlock(dir.size >> geometry.block_bits());
    let has_large_dir = geometry.has_incompat(extant_ondisk::IncompatFeatures::LARGEDIR);
    if at.0 >= MAX_FILE_BLOCKS || (!has_large_dir && size >= MAX_DIR_SIZE) {
        return Err(Error::DirectoryFull);
    }
    if dir.size >= edit.info().most_directory_bytes {
        return Err(Error::NoSpace);
    }
    let request = AllocationRequest {
        inode: dir.number,
        purpose: Purpose::Metadata,
        goal,
        count: 1,
        part: None,
    };
    let place = mapping::allocate(edit, dir, at, request, mapping::ExtentState::Written)?;
    dir.inode.size = size;
    Ok(place.start)
}

/// A record of a block, to be put into another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'b> {
    pub found: EntryTarget,
    pub name: &'b [u8],
}

/// The used records of a block's bytes, but for `.` and `..`.
pub(super) fn records_of<'b, E: Edit>(
    edit: &E,
    dir: &LoadedInode,
    at: FileBlock,
    bytes: &'b [u8],
) -> Result<Vec<Record<'b>>, Error> {
    let format = format(edit, dir);
    // Records on the volume may be shorter than this code makes them.
    let (mut records, mut needed) = (Vec::new(), 0);
    for entry in format.entries(bytes, at) {
        let entry = entry?;
        let Some(inode) = entry.inode else { continue };
        if !entry.is_dot() {
            let found = EntryTarget { inode, file_type: entry.file_type };
            records.push(Record { found, name: entry.name });
            needed += format.rec_len_of(entry.name);
        }
    }
    if needed > format.room() {
        let flaw = Flaw::Rule("records that are shorter than their names");
        return Err(flaw.at(Location::DirBlock(dir.number, at)).into());
    }
    Ok(records)
}

/// Whether the directory may get or keep an index: a flag that only directories with one have.
pub(super) fn set_indexed(dir: &mut LoadedInode) -> Result<(), Error> {
    if dir.is_encrypted() {
        return Err(Flaw::Rule("an encrypted directory").at(Location::Inode(dir.number)).into());
    }
    dir.inode.flags.insert(InodeFlags::INDEX);
    Ok(())
}
