//! The extents of a file, as FIEMAP reports them.

use std::io::ErrorKind;

use extant_device::errno;
use extant_ondisk::inode::GOOD_OLD_INODE_SIZE;
use extant_ondisk::{FileBlock, MAX_FILE_BLOCKS};
use extant_reader::read::inode::place;
use extant_reader::read::mapping::map;
use extant_reader::{Error, LoadedInode, Mapping, MappingTarget, VolumeRead};
use serde::Serialize;

use crate::path_error::kind_of;

/// The extents of a file cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum ExtentsError {
    /// The volume cannot be read there.
    #[error(transparent)]
    Volume(#[from] Error),
    /// Blocks that are mapped several times, perhaps without an end.
    #[error("the file maps more blocks than the volume has")]
    TooManyBlocks,
}

impl ExtentsError {
    /// The number that a system call returns for it (`ENOENT` is 2).
    pub fn errno(&self) -> i32 {
        match self {
            Self::Volume(error) => error.errno().raw_os_error(),
            Self::TooManyBlocks => errno::EUCLEAN,
        }
    }

    /// The kind of error in std's words.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Volume(error) => kind_of(error),
            Self::TooManyBlocks => errno::kind(self.errno()),
        }
    }
}

/// Where `i_block` begins in an inode.
const I_BLOCK_AT: u64 = 0x28;

/// A run of a file, as FIEMAP reports it. Numbers count units: blocks, or bytes where the run is
/// not aligned.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Extent {
    /// Start in the file.
    pub logical: u64,
    /// Start on the volume.
    pub physical: u64,
    /// Length.
    pub length: u64,
    /// Flags, by the names of filefrag: `last`, `unwritten`, `not_aligned`, `inline`, `merged`.
    pub flags: Vec<&'static str>,
    /// Whether its numbers count bytes: the data are stored in the inode.
    #[serde(skip)]
    pub is_in_bytes: bool,
}

impl Extent {
    /// Where the next run would have to be so that the file is in one piece, when it is not there:
    /// at a distance that leaves room for the hole between the two. Directly after this one is fine
    /// too.
    pub fn missed_by(&self, next: &Self) -> Option<u64> {
        let after = self.physical.saturating_add(self.length);
        let expected = self.physical.saturating_add(next.logical.saturating_sub(self.logical));
        (next.physical != expected && next.physical != after).then_some(expected)
    }
}

/// Number of pieces of a file: runs that do not continue the one in front of them.
pub fn fragments(rows: &[Extent]) -> usize {
    let breaks = rows.windows(2).filter(|pair| pair[0].missed_by(&pair[1]).is_some());
    breaks.count() + usize::from(!rows.is_empty())
}

/// The runs of the data, with numbers that count units of `unit` bytes: one for each extent of the
/// tree; of a block map as long as they lie together (`merged`).
///
/// # Errors
/// The map is damaged, or the device failed.
pub fn data_extents(
    volume: &impl VolumeRead,
    file: &LoadedInode,
    unit: u64,
) -> Result<Vec<Extent>, ExtentsError> {
    if file.is_inline() {
        let at = place_in_inode(volume, file, I_BLOCK_AT)?;
        let flags = vec!["last", "not_aligned", "inline"];
        let row = Extent { logical: 0, physical: at, length: file.size, flags, is_in_bytes: true };
        return Ok(if file.size > 0 { vec![row] } else { Vec::new() });
    }
    let block_size = u64::from(volume.geometry().block_size);
    let mut rows = Vec::new();
    let mut add = |mapping: Mapping, is_merged: bool| {
        let Some(start) = mapping.physical() else { return };
        let unwritten = matches!(mapping.target, MappingTarget::Unwritten(_));
        let mut flags = Vec::new();
        flags.extend(unwritten.then_some("unwritten"));
        flags.extend(is_merged.then_some("merged"));
        let in_units = |blocks: u64| blocks.saturating_mul(block_size) / unit;
        rows.push(Extent {
            logical: in_units(mapping.block.0),
            physical: in_units(start.0),
            length: mapping.len.saturating_mul(block_size).div_ceil(unit),
            flags,
            is_in_bytes: false,
        });
    };
    if !file.is_extent_mapped() {
        for mapping in volume.extents(file.number)? {
            add(mapping?, true);
        }
    } else {
        // A file that maps more than there is maps something twice, perhaps without an end.
        let mut left = volume.geometry().blocks_count.saturating_mul(2);
        let mut next = FileBlock(0);
        while next.0 < MAX_FILE_BLOCKS {
            let mapping = map(volume, file, next)?;
            next = mapping.end();
            let cost = if mapping.is_hole() { 1 } else { mapping.len };
            left = left.checked_sub(cost).ok_or(ExtentsError::TooManyBlocks)?;
            add(mapping, false);
        }
    }
    if let Some(last) = rows.last_mut() {
        last.flags.insert(0, "last");
    }
    Ok(rows)
}

/// Where the extended attributes are: after the inode's fields, or in their block. As FIEMAP does,
/// the first that is there.
///
/// # Errors
/// The inode cannot be placed.
pub fn xattr_extents(
    volume: &impl VolumeRead,
    file: &LoadedInode,
    unit: u64,
) -> Result<Vec<Extent>, ExtentsError> {
    let geometry = volume.geometry();
    if !file.xattr_space.is_empty() {
        let offset = GOOD_OLD_INODE_SIZE + file.extra_isize;
        let physical = place_in_inode(volume, file, u64::from(offset))?;
        let length = file.xattr_space.len() as u64;
        let flags = vec!["last", "not_aligned", "inline"];
        return Ok(vec![Extent { logical: 0, physical, length, flags, is_in_bytes: true }]);
    }
    if file.file_acl.0 == 0 {
        return Ok(Vec::new());
    }
    Ok(vec![Extent {
        logical: 0,
        physical: geometry.byte_of(file.file_acl) / unit,
        length: u64::from(geometry.block_size).div_ceil(unit),
        flags: vec!["last"],
        is_in_bytes: false,
    }])
}

/// The byte of the volume at which a part of an inode's record lies.
fn place_in_inode(
    volume: &impl VolumeRead,
    file: &LoadedInode,
    offset: u64,
) -> Result<u64, ExtentsError> {
    let geometry = volume.geometry();
    let place = place(volume, file.number)?;
    Ok(geometry.byte_of(place.block) + place.bytes(geometry).start as u64 + offset)
}
