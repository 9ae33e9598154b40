//! Directories: putting names in and taking them out.

use super::dir_block::{append, append_leaf, insert_at, insert_into};
use super::htree;
use crate::edit::Edit;
use crate::write::inline;
use extant_ondisk::dirent::{FileType, MAX_NAME_LEN, NewEntry, Slot, Sought};
use extant_ondisk::dx_hash::DirHash;
use extant_ondisk::{BlockNo, FileBlock, Flaw, InodeNo, Location};
use extant_reader::read::dir::BrokenIndex;
use extant_reader::read::dir::{self, locate};
use extant_reader::read::dir_block::{
    self, EntryLocation, EntryTarget, block_kind, format, is_indexed,
};
use extant_reader::read::htree as read_htree;
use extant_reader::read::inode::{LoadedInode, dir_blocks};
use extant_reader::{Error, MetadataRead};

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
    let (hash, path) = read_htree::descend_to(source, dir, name)?;
    let (mut levels, mut leaf) = (path.levels, path.leaf);
    let mut first = None;
    // Names of one hash may fill several leaves; a directory has no more leaves than blocks.
    for _ in 0..blocks.0 {
        let place = dir_block::block_place(source, dir, leaf)?;
        let bytes = source.metadata(place, block_kind(source, dir, leaf))?;
        match records.find_or_slot(&bytes, leaf, name)? {
            Sought::Found(_) => return Err(Error::Exists),
            Sought::Vacant(slot) if leaf == path.leaf => {
                first = slot.map(|slot| (leaf, place, slot));
            }
            Sought::Vacant(_) => {}
        }
        if !path.hash_continues {
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
    target: EntryTarget,
    vacancy: Vacancy,
) -> Result<(), Error> {
    let Vacancy(Some((at, place, slot))) = vacancy else { return insert(edit, dir, name, target) };
    let EntryTarget { inode, file_type } = target;
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
    target: EntryTarget,
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

/// Takes a name out.
///
/// # Errors
/// [`Error::NotFound`], a broken directory, or the change failed.
pub fn remove<E: Edit>(
    edit: &mut E,
    dir: &mut LoadedInode,
    name: &[u8],
) -> Result<EntryTarget, Error> {
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
    located: EntryLocation,
) -> Result<EntryTarget, Error> {
    let (at, byte) = located.place.ok_or(Error::NotFound)?;
    if dir.is_inline() {
        let removed = inline::remove(edit, dir, at, byte)?;
        check_is_there(removed, Location::Inode(dir.number))?;
        return Ok(located.found);
    }
    let records = format(edit, dir);
    let place = dir_block::block_place(edit, dir, at)?;
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

/// Points a name to another file, and returns its former target.
///
/// # Errors
/// As [`remove`].
pub fn replace<E: Edit>(
    edit: &mut E,
    dir: &mut LoadedInode,
    name: &[u8],
    target: EntryTarget,
) -> Result<EntryTarget, Error> {
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
    let place = dir_block::block_place(edit, dir, at)?;
    // The root of an index holds `..` and is sealed as what it is.
    let kind = if at.0 == 0 && is_indexed(edit, dir) {
        htree::block_kind(dir, at, extant_ondisk::htree::IndexKind::Root)
    } else {
        block_kind(edit, dir, at)
    };
    let EntryTarget { inode, file_type } = target;
    let set =
        edit.modify(place, kind, |block| records.set_inode(block, at, byte, inode, file_type))??;
    check_is_there(set, Location::DirBlock(dir.number, at))?;
    Ok(located.found)
}

fn record_of<E: Edit>(
    edit: &E,
    dir: &LoadedInode,
    name: &[u8],
) -> Result<(EntryLocation, FileBlock, usize), Error> {
    if dir.is_encrypted() && !matches!(name, b"." | b"..") {
        return Err(Error::Encrypted(dir.number));
    }
    let located = locate(edit, dir, name, BrokenIndex::Report)?;
    match located.place {
        Some((at, byte)) => Ok((located, at, byte)),
        // For an inline directory, whose `.` has no record.
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
