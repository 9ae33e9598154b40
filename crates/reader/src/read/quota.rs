//! Quota files: what users, groups and projects use, and their limits.

use extant_ondisk::quota::{
    QUOTA_BLOCK_SIZE, QuotaBlock, QuotaHeader, QuotaKind, QuotaRecord, QuotaTree,
};
use extant_ondisk::{BlockNo, FileBlock, Flaw, Location};

use super::inode::{LoadedInode, load};
use super::mapping::map;
use crate::error::Error;
use crate::source::{BlockKind, MetadataRead};

/// All that a quota file says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QuotaReport {
    /// Grace times.
    pub header: QuotaHeader,
    /// A record for each ID, in ascending order.
    pub records: Vec<QuotaRecord>,
}

/// The quota file of users, groups or projects; `None` where the volume keeps none.
///
/// # Errors
/// A broken quota file, or the device failed.
pub fn report<S: MetadataRead>(source: &S, kind: QuotaKind) -> Result<Option<QuotaReport>, Error> {
    let Some(number) = source.info().quota_file(kind) else { return Ok(None) };
    let file = load(source, number)?;
    let header = header(source, kind, &file)?;
    let read = |block| read_block(source, &file, block);
    let records = QuotaTree::new(header, number, read).records()?;
    Ok(Some(QuotaReport { header, records }))
}

/// The header of a quota file.
///
/// # Errors
/// As [`report`].
pub fn header<S: MetadataRead>(
    source: &S,
    kind: QuotaKind,
    file: &LoadedInode,
) -> Result<QuotaHeader, Error> {
    let blocks = u32::try_from(file.size / QUOTA_BLOCK_SIZE as u64).unwrap_or(u32::MAX);
    let first = read_block(source, file, 0)?;
    Ok(QuotaHeader::decode(&first, kind, file.number, blocks)?)
}

/// Where a block of a quota file lies: the volume's block and the byte in it.
///
/// # Errors
/// The file has a hole there, its map is broken, or the device failed.
pub fn place<S: MetadataRead>(
    source: &S,
    file: &LoadedInode,
    block: u32,
) -> Result<(BlockNo, usize), Error> {
    let byte = u64::from(block) * QUOTA_BLOCK_SIZE as u64;
    let geometry = source.geometry();
    let at = FileBlock(byte >> geometry.block_bits());
    let physical = map(source, file, at)?.physical().ok_or_else(|| {
        let flaw = Flaw::Rule("a quota file has holes");
        flaw.at(Location::Quota(file.number, block))
    })?;
    // Less than a block.
    Ok((physical, (byte % u64::from(geometry.block_size)) as usize))
}

/// A block of a quota file.
///
/// # Errors
/// As [`place`].
pub fn read_block<S: MetadataRead>(
    source: &S,
    file: &LoadedInode,
    block: u32,
) -> Result<QuotaBlock, Error> {
    let (physical, at) = place(source, file, block)?;
    let bytes = source.metadata(physical, BlockKind::Contents)?;
    let mut whole = [0; QUOTA_BLOCK_SIZE];
    whole.copy_from_slice(&bytes[at..at + QUOTA_BLOCK_SIZE]);
    Ok(whole)
}
