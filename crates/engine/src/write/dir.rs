//! Directories: putting names in and taking them out.

use super::htree;
use crate::edit::{AllocationRequest, Edit, Purpose};
use crate::write::{inline, mapping};
use extant_ondisk::dirent::{DirFormat, FileType, MAX_NAME_LEN, NewEntry, Slot, Sought};
use extant_ondisk::dx_hash::DirHash;
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::{BlockNo, FileBlock, Flaw, InodeNo, Location, MAX_FILE_BLOCKS};
use extant_reader::read::dir::BrokenIndex;
use extant_reader::read::dir::{self, Found, Located, block_kind, format, is_indexed, locate};
use extant_reader::read::htree as read_htree;
use extant_reader::read::inode::{LoadedInode, dir_blocks};
use extant_reader::{BlockKind, Error, MetadataRead};

/// Without large_dir a directory's index has this many levels below the root, and its size stays
/// below 2 GiB.
const MAX_DIR_SIZE: u64 = 1 << 31;

/// Blocks that one [`insert`] may change at most besides those of the map: the leaf and its split,
/// and on every level of the index a node and its split.
pub const INSERT_CREDITS: u32 = 2 + 2 * 4;

/// Gives a new directory `.` and `..`: in its inode on volumes with inline data, else in its first
/// block. The inode is a directory of size 0 that maps nothing.
///
/// # Errors
/// No space, or the change failed.
pub fn create<E: Edit>(edit: &mut E, new: &mut LoadedInode, parent: InodeNo) -> Result<(), Error> {
    if inline::start_dir(edit, new, parent)? {
        return Ok(());
    }
    let place = append(edit, new, None)?;
    let records = format(edit, new);
    let kind = block_kind(edit, new, FileBlock(0));
    let number = new.number;
    edit.create(place, kind, |block| {
        let mut packer = records.packer(block);
        packer.push(&NewEntry::new(number, FileType::Directory, b"."));
        packer.push(&NewEntry::new(parent, FileType::Directory, b".."));
        packer.finish();
    })
}

/// Whether nothing but `.` and `..` is in the directory.
///
/// # Errors
/// A broken directory, or the device failed.
pub fn is_empty<S: MetadataRead>(source: &S, dir: &LoadedInode) -> Result<bool, Error> {
    for entry in dir::read_dir(source, dir.clone(), 0)? {
        if !matches!(entry?.name.as_slice(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A place for a name that is not in a directory, good as long as the directory is locked and does
/// not change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vacancy(Option<(FileBlock, BlockNo, Slot)>);

impl Vacancy {
    /// Whether there is room for the name as the directory is.
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }
}

/// Makes sure that a name is not in the directory, and remembers where it would go.
///
/// # Errors
/// [`Error::Exists`], or as [`dir::lookup`].
pub fn vacancy<S: MetadataRead>(
    source: &S,
    dir: &LoadedInode,
    name: &[u8],
) -> Result<Vacancy, Error> {
    let is_plain = is_indexed(source, dir)
        && !dir.is_casefolded()
        && !dir.is_encrypted()
        && !matches!(name, b"." | b"..")
        && (1..=MAX_NAME_LEN).contains(&name.len());
    if !is_plain {
        return match dir::lookup(source, dir, name, BrokenIndex::Report) {
            Ok(_) => Err(Error::Exists),
            Err(Error::NotFound) => Ok(Vacancy::default()),
            Err(error) => Err(error),
        };
    }
    let records = format(source, dir);
    let index = read_htree::format(source, dir);
    let blocks = dir_blocks(source, dir)?;
    let (hash, way) = read_htree::descend_to(source, dir, name)?;
    let (mut levels, mut leaf) = (way.levels, way.leaf);
    let mut first = None;
    // Names of one hash may fill several leaves; a directory has no more leaves than blocks.
    for _ in 0..blocks.0 {
        let place = dir::block_place(source, dir, leaf)?;
        let bytes = source.metadata(place, block_kind(source, dir, leaf))?;
        match records.find_or_slot(&bytes, leaf, name)? {
            Sought::Found(_) => return Err(Error::Exists),
            Sought::Vacant(slot) if leaf == way.leaf => {
                first = slot.map(|slot| (leaf, place, slot));
            }
            Sought::Vacant(_) => {}
        }
        if !way.goes_on {
            break;
        }
        match read_htree::continuation(source, dir, &index, &mut levels, hash, blocks)? {
            Some(next) => leaf = next,
            None => break,
        }
    }
    Ok(Vacancy(first))
}

/// Puts a name into the directory, where [`vacancy`] has found no other.
///
/// # Errors
/// As [`insert`].
pub fn insert_new<E: Edit>(
    edit: &mut E,
    dir: &mut LoadedInode,
    name: &[u8],
    target: Found,
    vacancy: Vacancy,
) -> Result<(), Error> {
    let Vacancy(Some((at, place, slot))) = vacancy else { return insert(edit, dir, name, target) };
    let Found { inode, file_type } = target;
    let new = NewEntry { inode, file_type, name, hash: DirHash::default() };
    let records = format(edit, dir);
    let kind = block_kind(edit, dir, at);
    insert_at(edit, (place, kind), &records, slot, &new)
}

/// Puts a name into the directory. The caller has looked it up: it is not there.
///
/// # Errors
/// [`Error::NameTooLong`], [`Error::NoSpace`], [`Error::DirectoryFull`], [`Error::Encrypted`]
/// without the key, a broken directory, or the change failed. A failed call has added no name.
pub fn insert<E: Edit>(
    edit: &mut E,
    dir: &mut LoadedInode,
    name: &[u8],
    target: Found,
) -> Result<(), Error> {
    dir.as_dir()?;
    if name.len() > MAX_NAME_LEN {
        return Err(Error::NameTooLong);
    }
    if dir.is_encrypted() {
        return Err(Error::Encrypted(dir.number));
    }
    let new = NewEntry {
        inode: target.inode,
        file_type: target.file_type,
        name,
        hash: DirHash::default(),
    };
    if dir.is_inline() {
        if inline::insert(edit, dir, &new)? {
            return Ok(());
        }
        grow_out(edit, dir)?;
    }
    if is_indexed(edit, dir) {
        return htree::insert(edit, dir, &new);
    }
    let blocks = dir_blocks(edit, dir)?;
    for at in (0..blocks.0).map(FileBlock) {
        if insert_into(edit, dir, at, &new)? {
            return Ok(());
        }
    }
    if blocks == FileBlock(1) && edit.has_dir_index() && edit.info().default_hasher.is_some() {
        htree::build(edit, dir)?;
        return htree::insert(edit, dir, &new);
    }
    let (at, place) = append_leaf(edit, dir)?;
    let records = format(edit, dir);
    let kind = block_kind(edit, dir, at);
    edit.create(place, kind, |block| {
        let mut packer = records.packer(block);
        packer.push(&new);
        packer.finish();
    })
}

/// Puts a record into one block of records. False when it has no room.
pub(super) fn insert_into<E: Edit>(
    edit: &mut E,
    dir: &LoadedInode,
    at: FileBlock,
    new: &NewEntry<'_>,
) -> Result<bool, Error> {
    let records = format(edit, dir);
    let place = dir::block_place(edit, dir, at)?;
    let kind = block_kind(edit, dir, at);
    // Looked for first: a full block must not join the transaction. The lock of the directory is
    // held.
    let slot = records.slot(&edit.metadata(place, kind)?, at, new)?;
    let Some(slot) = slot else { return Ok(false) };
    insert_at(edit, (place, kind), &records, slot, new)?;
    Ok(true)
}

/// Puts a record into a place that was found in a block.
fn insert_at<E: Edit>(
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

/// Takes a name out.
///
/// # Errors
/// [`Error::NotFound`], a broken directory, or the change failed.
pub fn remove<E: Edit>(edit: &mut E, dir: &mut LoadedInode, name: &[u8]) -> Result<Found, Error> {
    let (located, ..) = record_of(edit, dir, name)?;
    remove_located(edit, dir, located)
}

/// Takes a record out that [`locate`] has found, in a directory that has not changed since.
///
/// # Errors
/// As [`remove`].
pub fn remove_located<E: Edit>(
    edit: &mut E,
    dir: &mut LoadedInode,
    located: Located,
) -> Result<Found, Error> {
    let (at, byte) = located.place.ok_or(Error::NotFound)?;
    if dir.is_inline() {
        let removed = inline::remove(edit, dir, at, byte)?;
        check_is_there(removed, Location::Inode(dir.number))?;
        return Ok(located.found);
    }
    let records = format(edit, dir);
    let place = dir::block_place(edit, dir, at)?;
    let kind = block_kind(edit, dir, at);
    let part = |block: &[u8]| records.removal(block, at, byte, located.before);
    let remove = |part: &mut [u8], start| records.remove_in(part, byte - start);
    let removed = edit.modify_part(place, kind, part, remove)?;
    check_is_there(removed.is_some(), Location::DirBlock(dir.number, at))?;
    Ok(located.found)
}

/// The record that was found at a place is changed there. It is there no more only where the same
/// block was changed as that of another directory, or as another of this one.
fn check_is_there(is_there: bool, place: Location) -> Result<(), Error> {
    if is_there {
        return Ok(());
    }
    Err(Flaw::Rule("the block of a directory was changed as another").at(place).into())
}

/// Points a name to another file, and says what it stood for.
///
/// # Errors
/// As [`remove`].
pub fn replace<E: Edit>(
    edit: &mut E,
    dir: &mut LoadedInode,
    name: &[u8],
    target: Found,
) -> Result<Found, Error> {
    if dir.is_inline() && name == b".." {
        let found = locate(edit, dir, name, BrokenIndex::Report)?.found;
        inline::set_parent(dir, target.inode);
        return Ok(found);
    }
    let (located, at, byte) = record_of(edit, dir, name)?;
    if dir.is_inline() {
        let set = inline::replace(edit, dir, at, byte, target)?;
        check_is_there(set, Location::Inode(dir.number))?;
        return Ok(located.found);
    }
    let records = format(edit, dir);
    let place = dir::block_place(edit, dir, at)?;
    // The root of an index holds `..` and is sealed as what it is.
    let kind = if at.0 == 0 && is_indexed(edit, dir) {
        htree::block_kind(dir, at, extant_ondisk::htree::IndexKind::Root)
    } else {
        block_kind(edit, dir, at)
    };
    let Found { inode, file_type } = target;
    let set =
        edit.modify(place, kind, |block| records.set_inode(block, at, byte, inode, file_type))??;
    check_is_there(set, Location::DirBlock(dir.number, at))?;
    Ok(located.found)
}

fn record_of<E: Edit>(
    edit: &E,
    dir: &LoadedInode,
    name: &[u8],
) -> Result<(Located, FileBlock, usize), Error> {
    if dir.is_encrypted() && !matches!(name, b"." | b"..") {
        return Err(Error::Encrypted(dir.number));
    }
    let located = locate(edit, dir, name, BrokenIndex::Report)?;
    match located.place {
        Some((at, byte)) => Ok((located, at, byte)),
        // Of an inline directory, whose `.` has no record.
        None => Err(Error::NotFound),
    }
}

/// Moves the records of an inline directory to its first block.
fn grow_out<E: Edit>(edit: &mut E, dir: &mut LoadedInode) -> Result<(), Error> {
    let names = inline::names(edit, dir)?;
    let mut grown = dir.clone();
    inline::leave(edit, &mut grown)?;
    grown.inode.size = 0;
    let place = append(edit, &mut grown, None)?;
    let records = format(edit, &grown);
    let kind = block_kind(edit, &grown, FileBlock(0));
    let number = dir.number;
    edit.create(place, kind, |block| {
        let mut packer = records.packer(block);
        packer.push(&NewEntry::new(number, FileType::Directory, b"."));
        packer.push(&NewEntry::new(names.parent, FileType::Directory, b".."));
        for (found, name) in &names.records {
            let fits = packer.push(&NewEntry::new(found.inode, found.file_type, name));
            assert!(fits, "what was in an inode fits in a block");
        }
        packer.finish();
    })?;
    *dir = grown;
    Ok(())
}

/// One more block at the directory's end, empty but for its tail.
pub(super) fn append_leaf<E: Edit>(
    edit: &mut E,
    dir: &mut LoadedInode,
) -> Result<(FileBlock, BlockNo), Error> {
    let at = dir_blocks(edit, dir)?;
    let near = dir::block_place(edit, dir, FileBlock(at.0.saturating_sub(1)))?;
    let place = append(edit, dir, near.checked_add(1))?;
    let records = format(edit, dir);
    let kind = block_kind(edit, dir, at);
    edit.create(place, kind, |block| records.clear(block))?;
    Ok((at, place))
}

/// Maps one more block behind the directory's last. The block is not written yet.
fn append<E: Edit>(
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
    let place = mapping::allocate(edit, dir, at, request, mapping::State::Written)?;
    dir.inode.size = size;
    Ok(place.start)
}

/// A record of a block, to be put into another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'b> {
    pub found: Found,
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
            let found = Found { inode, file_type: entry.file_type };
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
