//! One block of a directory's records: where it lies, what it is read as, and the record of a name.

use super::inode::LoadedInode;
use super::mapping::{Mapping, MappingTarget, map};
use super::nokey::nokey_name;
use crate::error::Error;
use crate::source::{BlockKind, MetadataRead};
use extant_ondisk::casefold::Casefold;
use extant_ondisk::dirent::{self, DirFormat, FileType};
use extant_ondisk::dx_hash::DirHasher;
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::{BlockNo, FileBlock, Flaw, FormatError, InodeNo, Location};

/// The inode and type of a directory entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EntryTarget {
    /// The file.
    pub inode: InodeNo,
    /// Its kind, where the directory stores it; else [`FileType::Unknown`].
    pub file_type: FileType,
}

/// A name found, and where its record lies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EntryLocation {
    /// The inode and type.
    pub found: EntryTarget,
    /// The record's block, and its byte there. In inline data block 0 is the part in `i_block` and
    /// block 1 the attribute, and `.` and `..` have no record: `None`.
    pub place: Option<(FileBlock, usize)>,
    /// Where the record before it starts in its block
    /// ([`extant_ondisk::dirent::DirEntry::before`]).
    pub before: usize,
}

/// Whether the directory has an index that is used.
pub fn is_indexed<S: MetadataRead>(source: &S, dir: &LoadedInode) -> bool {
    source.has_dir_index() && dir.flags.contains(InodeFlags::INDEX) && !dir.is_inline()
}

/// How the directory's blocks are read.
pub fn format<S: MetadataRead>(source: &S, dir: &LoadedInode) -> DirFormat {
    DirFormat::of_inode(source.geometry(), dir.number, &dir.inode)
}

/// Where a block of the directory lies. Directories have neither holes nor unwritten blocks.
///
/// # Errors
/// A hole, a broken map, or the device failed.
pub fn block_place<S: MetadataRead>(
    source: &S,
    dir: &LoadedInode,
    at: FileBlock,
) -> Result<BlockNo, Error> {
    written(&map(source, dir, at)?, dir, at)
}

pub(super) fn written(
    mapping: &Mapping,
    dir: &LoadedInode,
    at: FileBlock,
) -> Result<BlockNo, Error> {
    match mapping.target {
        MappingTarget::Written(start) => Ok(BlockNo(start.0 + (at.0 - mapping.block.0))),
        MappingTarget::Hole | MappingTarget::Unwritten(_) => {
            let flaw = Flaw::Rule("the directory has a hole");
            Err(flaw.at(Location::DirBlock(dir.number, at)).into())
        }
    }
}

/// The message of an error of the directory's blocks, which tells the logical block and the block
/// of the volume: `directory block 3 (block 1234): checksum does not match`. Other errors are shown
/// as they are.
pub fn message<S: MetadataRead>(source: &S, dir: &LoadedInode, error: &Error) -> String {
    let Error::Format(FormatError::Corrupt { location, flaw }) = error else {
        return error.to_string();
    };
    let (at, entry) = match *location {
        Location::DirBlock(_, at) | Location::Htree(_, at) => (at, String::new()),
        Location::DirEntry(_, at, byte) => (at, format!(", entry at byte {byte}")),
        _ => return error.to_string(),
    };
    let place = match block_place(source, dir, at) {
        Ok(block) => format!(" (block {block})"),
        Err(_) => String::new(),
    };
    let flaw = match flaw {
        Flaw::Checksum { .. } => "checksum does not match".to_owned(),
        flaw => flaw.to_string(),
    };
    format!("directory block {at}{place}{entry}: {flaw}")
}

/// A block of the directory as records.
///
/// # Errors
/// A broken block or map, or the device failed.
pub fn block<S: MetadataRead>(
    source: &S,
    dir: &LoadedInode,
    at: FileBlock,
) -> Result<S::Block, Error> {
    let place = block_place(source, dir, at)?;
    source.metadata(place, block_kind(source, dir, at))
}

/// The kind by which a block of the directory's records is checked.
pub fn block_kind<S: MetadataRead>(source: &S, dir: &LoadedInode, at: FileBlock) -> BlockKind {
    BlockKind::DirBlock {
        inode: dir.number,
        generation: dir.generation,
        at,
        is_indexed: is_indexed(source, dir),
        has_stored_hashes: dir.has_stored_hashes(),
    }
}

/// The name that is looked for, and how it is compared.
pub(super) enum Wanted<'a> {
    Exact(&'a [u8]),
    /// Names that differ in case only are one.
    Folded(&'a [u8], Casefold),
    /// The form without a key; hashes are those of the names without an index.
    NoKey(&'a [u8], Option<DirHasher>),
}

impl Wanted<'_> {
    pub(super) fn is(&self, entry: &dirent::DirEntry<'_>) -> bool {
        if entry.inode.is_none() {
            return false;
        }
        match self {
            Self::Exact(name) => entry.name == *name,
            Self::Folded(name, casefold) => !entry.is_dot() && casefold.is_same(entry.name, name),
            Self::NoKey(name, hasher) => {
                !entry.is_dot() && shown_name(entry, hasher.as_ref()) == *name
            }
        }
    }
}

/// The record of a block that is wanted.
pub(super) fn search_block(
    format: &DirFormat,
    bytes: &[u8],
    at: FileBlock,
    wanted: &Wanted<'_>,
) -> Result<Option<EntryLocation>, Error> {
    if let Wanted::Exact(name) = wanted {
        let entry = format.find(bytes, at, name)?;
        return Ok(entry.and_then(|entry| {
            let found = EntryTarget { inode: entry.inode?, file_type: entry.file_type };
            Some(EntryLocation { found, place: Some((at, entry.at)), before: entry.before })
        }));
    }
    for entry in format.entries(bytes, at) {
        let entry = entry?;
        if wanted.is(&entry)
            && let Some(inode) = entry.inode
        {
            let found = EntryTarget { inode, file_type: entry.file_type };
            let place = Some((at, entry.at));
            return Ok(Some(EntryLocation { found, place, before: entry.before }));
        }
    }
    Ok(None)
}

pub(super) fn shown_name(entry: &dirent::DirEntry<'_>, hasher: Option<&DirHasher>) -> Vec<u8> {
    let hash = entry
        .stored_hash
        .or_else(|| hasher.map(|hasher| hasher.hash(entry.name)))
        .unwrap_or_default();
    nokey_name(hash, entry.name)
}
