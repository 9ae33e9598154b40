//! Extended attributes in the order in which they are stored.

use extant_ondisk::inode::SECTOR;
use extant_ondisk::xattr::{
    self, NameIndex, RawXattrEntry, RawXattrHeader, XATTR_MAGIC, XattrName,
};
use extant_ondisk::{BlockNo, FormatError, InodeNo};
use zerocopy::FromBytes;

use super::{DebugError, DebugVolume, RawRecord};

/// An extended attribute as stored.
#[derive(Clone, Debug)]
pub struct RawXattr {
    /// The number of the prefix.
    pub index: u8,
    /// The name after the prefix.
    pub suffix: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// Whether it is in the inode, and not in a block.
    pub is_in_inode: bool,
    /// The inode that holds the value.
    pub value_inode: Option<InodeNo>,
}

impl RawXattr {
    /// The whole name; an unknown prefix is left out.
    pub fn name(&self) -> Vec<u8> {
        let mut name = NameIndex(self.index).prefix().unwrap_or_default().as_bytes().to_vec();
        name.extend_from_slice(&self.suffix);
        name
    }

    /// Whether it has this name.
    pub fn is(&self, name: &XattrName) -> bool {
        self.index == name.index.0 && self.suffix == name.suffix
    }
}

impl DebugVolume {
    /// The attributes of an inode: those in it first, then those in its block.
    ///
    /// # Errors
    /// The block cannot be read or is damaged, or a value cannot be read.
    pub fn xattrs(&self, record: &RawRecord) -> Result<Vec<RawXattr>, DebugError> {
        let mut found = Vec::new();
        let space = record.xattr_space();
        if let Some((magic, region)) = space.split_first_chunk::<4>()
            && u32::from_le_bytes(*magic) == XATTR_MAGIC
        {
            self.collect(region, 0, true, &mut found)?;
        }
        let at = record.file_acl(self.geometry());
        if at.0 != 0 {
            let block = self.xattr_block(at)?;
            self.collect(&block, size_of::<RawXattrHeader>(), false, &mut found)?;
        }
        Ok(found)
    }

    /// A block of attributes, verified.
    ///
    /// # Errors
    /// It cannot be read, its header or its checksum is wrong.
    pub fn xattr_block(&self, at: BlockNo) -> Result<Vec<u8>, DebugError> {
        let block = self.block(at)?;
        let header = RawXattrHeader::from_block(&block, at)?;
        if header.h_magic.get() != XATTR_MAGIC || header.h_blocks.get() != 1 {
            return Err(DebugError::XattrHeader);
        }
        if self.verifies
            && matches!(
                xattr::verify_block(&block, at, self.geometry()),
                Err(FormatError::Corrupt { .. })
            )
        {
            return Err(DebugError::XattrChecksum);
        }
        Ok(block)
    }

    fn collect(
        &self,
        region: &[u8],
        first: usize,
        is_in_inode: bool,
        found: &mut Vec<RawXattr>,
    ) -> Result<(), DebugError> {
        let mut at = first;
        while let Some(rest) = region.get(at..)
            && let Ok((entry, names)) = RawXattrEntry::read_from_prefix(rest)
        {
            let is_end = rest.first_chunk::<4>().is_none_or(|word| *word == [0; 4]);
            let len = usize::from(entry.e_name_len);
            if is_end || names.len() < len {
                break;
            }
            let size = usize::try_from(entry.e_value_size.get()).unwrap_or(usize::MAX);
            let inode = entry.e_value_inum.get();
            let value = match inode {
                0 => {
                    let start = usize::from(entry.e_value_offs.get());
                    let end = start.saturating_add(size);
                    region.get(start..end).ok_or(DebugError::XattrHeader)?.to_vec()
                }
                _ => self.value_of(InodeNo(inode), size)?,
            };
            found.push(RawXattr {
                index: entry.e_name_index,
                suffix: names[..len].to_vec(),
                value,
                is_in_inode,
                value_inode: (inode != 0).then_some(InodeNo(inode)),
            });
            at += size_of::<RawXattrEntry>() + len.next_multiple_of(4);
        }
        Ok(())
    }

    /// The value of an attribute in an inode of its own.
    fn value_of(&self, number: InodeNo, size: usize) -> Result<Vec<u8>, DebugError> {
        let record = self.inode(number)?;
        // `i_blocks` bounds what may be allocated for it.
        let held = record.blocks(self.geometry()).saturating_mul(SECTOR);
        if size as u64 > held.max(u64::from(self.geometry().block_size)) {
            return Err(DebugError::XattrHeader);
        }
        let mut value = self.contents(&record)?;
        value.truncate(size);
        Ok(value)
    }
}
