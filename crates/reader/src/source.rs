//! Where the reading algorithms get their blocks from.

use crate::error::Error;
use crate::hash::WordHasher;
use crate::info::VolumeInfo;
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::dirent::DirFormat;
use extant_ondisk::extent::{self, ExtentNode, NodeLimits, NodeOwner};
use extant_ondisk::htree::{HtreeFormat, IndexKind};
use extant_ondisk::orphan_file::OrphanFileFormat;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use extant_ondisk::{
    BlockNo, CompatFeatures, FileBlock, Flaw, FormatError, Geometry, GroupNo, InodeNo, Location,
    indirect, xattr,
};
use std::hash::{Hash, Hasher};
use std::ops::{Deref, Range};

/// The kind of a metadata block, by which it is checked. A block is checked as that when it is
/// first read, and again only when it is read as another kind.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum BlockKind {
    /// Part of the descriptor table. Its descriptors are checked one by one when they are used.
    Descriptors,
    /// Part of an inode table. Its inodes are checked one by one when they are used.
    InodeTable {
        /// The group.
        group: GroupNo,
    },
    /// A block or inode bitmap that is stored.
    Bitmap {
        /// The group.
        group: GroupNo,
        /// Which of its two.
        kind: BitmapKind,
        /// The checksum that its descriptor has.
        checksum: u32,
    },
    /// A node of an extent tree, with the values that the node above requires.
    ExtentNode {
        /// The file.
        inode: InodeNo,
        /// Its generation, part of the checksum.
        generation: u32,
        /// Levels below the node.
        depth: u16,
        /// First logical block that it may map.
        from: u64,
        /// The logical block after the last.
        to: u64,
    },
    /// A block of pointers.
    Indirect {
        /// The file.
        inode: InodeNo,
    },
    /// A block of directory records, or in an indexed directory an index block, which shows as free
    /// space.
    DirBlock {
        /// The directory.
        inode: InodeNo,
        /// Its generation, part of the checksum.
        generation: u32,
        /// Which block of the directory.
        at: FileBlock,
        /// Whether the directory is indexed.
        is_indexed: bool,
        /// Whether records carry hashes, see [`DirFormat::with_stored_hashes`].
        has_stored_hashes: bool,
    },
    /// A block of a directory's index.
    HtreeBlock {
        /// The directory.
        inode: InodeNo,
        /// Its generation, part of the checksum.
        generation: u32,
        /// Which block of the directory.
        at: FileBlock,
        /// Root or node.
        kind: IndexKind,
    },
    /// A block of extended attributes.
    XattrBlock,
    /// Contents of a file that go through the journal like metadata: quota files, values of
    /// attributes. They have no checks of their own.
    Contents,
    /// The block that holds the primary superblock, wherever in it.
    Superblock,
    /// A block of the orphan file.
    OrphanFile {
        /// The orphan file.
        inode: InodeNo,
        /// Its generation, part of the checksum.
        generation: u32,
        /// Which block of the file.
        at: FileBlock,
    },
}

impl BlockKind {
    /// A number for the kind, never 0: blocks that were checked as the same number need no second
    /// check. A bitmap's checksum changes with every change of ours and is no part of it.
    pub fn number(&self) -> u64 {
        let mut hasher = WordHasher::default();
        match *self {
            // The most frequent kinds: in one word, which no other kind begins with, or two.
            Self::InodeTable { group } => hasher.write_u64(u64::from(group.0) << 8 | 0x80),
            Self::Bitmap { group, kind: BitmapKind::Block, .. } => {
                hasher.write_u64(u64::from(group.0) << 8 | 0x81);
            }
            Self::Bitmap { group, kind: BitmapKind::Inode, .. } => {
                hasher.write_u64(u64::from(group.0) << 8 | 0x82);
            }
            Self::DirBlock { inode, generation, at, is_indexed, has_stored_hashes } => {
                hasher.write_u64(u64::from(inode.0) << 32 | u64::from(generation));
                let flags = u64::from(is_indexed) << 1 | u64::from(has_stored_hashes);
                hasher.write_u64(at.0 << 2 | flags);
            }
            _ => self.hash(&mut hasher),
        }
        hasher.finish() | 1
    }

    /// Checks a block's bytes as this kind: the checksum and all rules that need only the block.
    ///
    /// # Errors
    /// The first flaw with its place.
    pub fn check(
        &self,
        bytes: &[u8],
        block: BlockNo,
        geometry: &Geometry,
    ) -> Result<(), FormatError> {
        match *self {
            Self::Descriptors | Self::InodeTable { .. } | Self::Contents => Ok(()),
            Self::Bitmap { group, kind, checksum } => {
                bitmap::verify_stored(bytes, kind, group, checksum, geometry)
            }
            Self::ExtentNode { inode, generation, depth, from, to } => {
                let owner = NodeOwner { inode, generation, block: Some(block) };
                let limits = NodeLimits { depth: Some(depth), blocks: from..to };
                extent::verify(bytes, &owner, geometry)?;
                ExtentNode::check(bytes, &owner, &limits, geometry).map(drop)
            }
            Self::Indirect { inode } => check_pointers(bytes, inode, block, geometry),
            Self::DirBlock { inode, generation, at, is_indexed, has_stored_hashes } => {
                let mut format = DirFormat::new(geometry, inode, generation);
                format.has_stored_hashes = has_stored_hashes;
                match index_kind(&format, bytes, at).filter(|_| is_indexed) {
                    Some(kind) => {
                        HtreeFormat::new(geometry, inode, generation).verify(bytes, at, kind)?;
                    }
                    None => format.verify(bytes, at)?,
                }
                check_records(&format, bytes, at, geometry)
            }
            Self::HtreeBlock { inode, generation, at, kind } => {
                let format = HtreeFormat::new(geometry, inode, generation);
                format.verify(bytes, at, kind)?;
                format.node(bytes, at, kind)?.check_order(Location::Htree(inode, at))
            }
            Self::XattrBlock => {
                xattr::verify_block(bytes, block, geometry)?;
                xattr::decode_block(bytes, block, geometry).map(drop)
            }
            Self::Superblock => {
                let raw = bytes.get(superblock_at(geometry)..).unwrap_or_default();
                RawSuperblock::from_bytes(raw, GroupNo(0))?.verify(GroupNo(0))
            }
            Self::OrphanFile { inode, generation, at } => {
                OrphanFileFormat::new(geometry, inode, generation).verify(bytes, at, block)
            }
        }
    }
}

/// The block that the primary superblock lies in.
pub fn superblock_block(geometry: &Geometry) -> BlockNo {
    BlockNo(SUPERBLOCK_OFFSET >> geometry.block_bits())
}

/// The superblock's first byte in its block.
pub fn superblock_at(geometry: &Geometry) -> usize {
    SUPERBLOCK_OFFSET as usize % geometry.block_len()
}

fn check_pointers(
    bytes: &[u8],
    inode: InodeNo,
    block: BlockNo,
    geometry: &Geometry,
) -> Result<(), FormatError> {
    match indirect::pointers(bytes).find(|to| to.0 != 0 && !geometry.contains(*to, 1)) {
        Some(off) => {
            Err(Flaw::bad_value("pointer", off.0).at(Location::IndirectBlock(inode, block)))
        }
        None => Ok(()),
    }
}

/// Which kind of index block a block of an indexed directory is; `None` for a leaf. A tail does not
/// tell: a root that was made of a leaf may still have the leaf's. A node's only record fills the
/// block, a leaf's never does.
fn index_kind(format: &DirFormat, bytes: &[u8], at: FileBlock) -> Option<IndexKind> {
    if at.0 == 0 {
        return Some(IndexKind::Root);
    }
    let first = format.entries(bytes, at).next()?.ok()?;
    (first.inode.is_none() && first.rec_len == bytes.len()).then_some(IndexKind::Node)
}

fn check_records(
    format: &DirFormat,
    bytes: &[u8],
    at: FileBlock,
    geometry: &Geometry,
) -> Result<(), FormatError> {
    for entry in format.entries(bytes, at) {
        let entry = entry?;
        let place = || Location::DirEntry(format.inode, at, entry.at as u32);
        if let Some(inode) = entry.inode
            && inode.0 > geometry.inodes_count
        {
            return Err(Flaw::above_limit("inode", inode.0, geometry.inodes_count).at(place()));
        }
    }
    Ok(())
}

/// Bytes of file data to be read: any bytes, from one run of blocks.
#[derive(Debug)]
pub struct DataPiece<'a> {
    /// First byte on the volume.
    pub offset: u64,
    /// Where they go.
    pub buffer: &'a mut [u8],
}

/// Where an inode's record lies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RecordPlace {
    /// The block of the table.
    pub block: BlockNo,
    /// The number of the record in the block.
    pub index: u32,
    /// The group whose table it is.
    pub group: GroupNo,
}

impl RecordPlace {
    /// The kind of its block.
    pub fn kind(&self) -> BlockKind {
        BlockKind::InodeTable { group: self.group }
    }

    /// The record's bytes in the block.
    pub fn bytes(&self, geometry: &Geometry) -> Range<usize> {
        let size = usize::from(geometry.inode_size);
        let at = self.index as usize * size;
        at..at + size
    }
}

/// The source of the reading algorithms: checked metadata blocks, and the bytes of file data.
pub trait MetadataRead {
    /// A block's bytes, unchanging while held.
    type Block: Deref<Target = [u8]>;

    /// The properties of the volume.
    fn info(&self) -> &VolumeInfo;

    /// The block, checked as `kind`. Its number is on the volume, or the call fails.
    ///
    /// # Errors
    /// The device failed, or the block is not what it should be.
    fn metadata(&self, block: BlockNo, kind: BlockKind) -> Result<Self::Block, Error>;

    /// Reads file data, the pieces in one batch.
    ///
    /// # Errors
    /// The device failed.
    fn data(&self, pieces: &mut [DataPiece<'_>]) -> Result<(), Error>;

    /// Where a block of the descriptor table lies, counted from 0.
    fn descriptor_block(&self, index: u32) -> BlockNo {
        self.geometry().desc_block(index)
    }

    /// Where a group's inode table begins.
    ///
    /// # Errors
    /// A broken descriptor, or the device failed.
    fn inode_table(&self, group: GroupNo) -> Result<BlockNo, Error>;

    /// The block of an inode table that a record lies in; whether that record has no checksum yet,
    /// since this program wrote it.
    ///
    /// # Errors
    /// As [`Self::metadata`].
    fn inode_block(&self, place: &RecordPlace) -> Result<(Self::Block, bool), Error> {
        Ok((self.metadata(place.block, place.kind())?, false))
    }

    /// Sizes and counts.
    fn geometry(&self) -> &Geometry {
        &self.info().geometry
    }

    /// Whether directories may be indexed on this volume.
    fn has_dir_index(&self) -> bool {
        self.geometry().has_compat(CompatFeatures::DIR_INDEX)
    }
}
