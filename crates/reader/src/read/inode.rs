//! Inodes by number.

use crate::error::Error;
use crate::source::{MetadataRead, RecordPlace};
use extant_ondisk::inode::{self, FileType, Inode, InodeFlags};
use extant_ondisk::xattr::XATTR_MAGIC;
use extant_ondisk::{BlockNo, FileBlock, Flaw, Geometry, InodeNo, Location};
use std::ops::Deref;

/// An inode with its number and its own space for extended attributes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LoadedInode {
    /// The number.
    pub number: InodeNo,
    /// The fields.
    pub inode: Inode,
    /// The bytes after the fields in the record, if they hold attributes; else empty.
    pub xattr_space: Box<[u8]>,
}

impl Deref for LoadedInode {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        &self.inode
    }
}

impl LoadedInode {
    /// The file type. An inode in use has one: [`load`] checks it.
    pub fn file_type(&self) -> FileType {
        self.inode.file_type().unwrap_or(FileType::Regular)
    }

    /// Whether names, contents and link targets are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.flags.contains(InodeFlags::ENCRYPT)
    }

    /// Whether names that differ in case only are one name in this directory.
    pub fn is_casefolded(&self) -> bool {
        self.flags.contains(InodeFlags::CASEFOLD)
    }

    /// The directory, or [`Error::NotADirectory`].
    ///
    /// # Errors
    /// [`Error::NotADirectory`].
    #[inline]
    pub fn as_dir(&self) -> Result<&Self, Error> {
        if self.is_dir() { Ok(self) } else { Err(Error::NotADirectory) }
    }
}

/// Where an inode's record lies.
///
/// # Errors
/// No such inode, or a broken descriptor.
pub fn place<S: MetadataRead>(source: &S, number: InodeNo) -> Result<RecordPlace, Error> {
    let geometry = source.geometry();
    let (group, index) = geometry.inode_place(number).ok_or(Error::NoSuchInode(number))?;
    let table = source.inode_table(group)?;
    let per_block = geometry.inodes_per_block();
    // The table lies on the volume, as the descriptor was checked for.
    let block = BlockNo(table.0 + u64::from(index / per_block));
    Ok(RecordPlace { block, index: index % per_block, group })
}

/// The part of its block that a record is, as journal frames number them: a bit each. `None` where
/// a block has more records.
pub fn part_of_block(geometry: &Geometry, index: u32) -> Option<u64> {
    (geometry.inodes_per_block() <= u64::BITS).then(|| 1 << index)
}

/// An inode that is in use: it has links, a file type, and a right checksum.
///
/// # Errors
/// [`Error::NoSuchInode`], [`Error::FreeInode`], a broken inode, or the device failed.
pub fn load<S: MetadataRead>(source: &S, number: InodeNo) -> Result<LoadedInode, Error> {
    let loaded = load_any(source, number)?;
    if loaded.links == 0 {
        return Err(Error::FreeInode(number));
    }
    if loaded.inode.file_type().is_none() {
        let flaw = Flaw::bad_value("i_mode", loaded.mode);
        return Err(flaw.at(Location::Inode(number)).into());
    }
    Ok(loaded)
}

/// An inode in use or not: orphans and deleted ones too. One that was never used is
/// [`Error::FreeInode`].
///
/// # Errors
/// As [`load`].
pub fn load_any<S: MetadataRead>(source: &S, number: InodeNo) -> Result<LoadedInode, Error> {
    let geometry = source.geometry();
    let place = place(source, number)?;
    let (table, is_unsealed) = source.inode_block(&place)?;
    let record = table.get(place.bytes(geometry)).unwrap_or_default();
    if record.iter().all(|byte| *byte == 0) {
        return Err(Error::FreeInode(number));
    }
    if !is_unsealed {
        inode::verify(record, number, geometry)?;
    }
    let decoded = Inode::decode(record, number, geometry)?;
    let space = inode::xattr_area(record, number, geometry)?;
    let has_xattrs = space.first_chunk::<4>() == Some(&XATTR_MAGIC.to_le_bytes());
    let xattr_space = if has_xattrs { space.into() } else { Box::default() };
    Ok(LoadedInode { number, inode: decoded, xattr_space })
}

/// Blocks of a directory: its size is whole blocks.
///
/// # Errors
/// A size that is not.
pub fn dir_blocks<S: MetadataRead>(source: &S, dir: &LoadedInode) -> Result<FileBlock, Error> {
    let geometry = source.geometry();
    if !dir.size.is_multiple_of(u64::from(geometry.block_size)) {
        let flaw = Flaw::bad_value("i_size of a directory", dir.size);
        return Err(flaw.at(Location::Inode(dir.number)).into());
    }
    Ok(FileBlock(dir.size >> geometry.block_bits()))
}
