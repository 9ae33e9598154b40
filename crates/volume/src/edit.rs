//! One door for metadata changes. The algorithms that change the format (mapping, directories, attributes, inodes, orphans, quota)
//! see neither the journal nor the allocator's inside.

use crate::error::Error;
use crate::read::{group, inode};
use crate::source::{BlockKind, MetadataRead};
use extant_ondisk::dirent::DirFormat;
use extant_ondisk::extent::{self, NodeOwner};
use extant_ondisk::htree::HtreeFormat;
use extant_ondisk::inode::Inode;
use extant_ondisk::time::Timestamp;
use extant_ondisk::{BlockNo, Geometry, InodeNo, xattr};

/// What blocks are wanted for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Purpose {
    /// File contents.
    Data,
    /// Extent nodes, pointer blocks, directory blocks, attribute blocks.
    Metadata,
}

/// A wish for blocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AllocationRequest {
    /// Who they are for.
    pub inode: InodeNo,
    /// What for.
    pub purpose: Purpose,
    /// Where we would like the first one.
    pub goal: Option<BlockNo>,
    /// How many, at least one. Fewer may be given, never none.
    pub count: u64,
}

/// A run of physical blocks: whole clusters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Run {
    /// The first.
    pub start: BlockNo,
    /// How many.
    pub count: u64,
}

/// One operation's way to change metadata: a journal handle and the allocator behind one door.
///
/// Reading ([`MetadataRead`]) sees the operation's own changes. A call that fails has changed nothing.
pub trait Edit: MetadataRead {
    /// Changes a block that is in use. It is checked as `kind` when it is first read and sealed as `kind` after the change, so
    /// that `change` never thinks of checksums.
    ///
    /// # Errors
    /// As [`MetadataRead::metadata`], or the journal is aborted or out of credits.
    fn modify<R>(
        &mut self,
        block: BlockNo,
        kind: BlockKind,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Error>;

    /// Fills a block that was just allocated: it starts as zeroes, nothing is read. Sealed as `kind`.
    ///
    /// # Errors
    /// As [`Edit::modify`].
    fn create<R>(
        &mut self,
        block: BlockNo,
        kind: BlockKind,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Error>;

    /// Blocks near the goal, in one run: at most `count` (rounded up to whole clusters), at least one cluster.
    ///
    /// # Errors
    /// [`Error::NoSpace`], or as [`Edit::modify`].
    fn allocate(&mut self, request: AllocationRequest) -> Result<Run, Error>;

    /// Gives blocks back; they are reused only after the commit. Metadata blocks are forgotten and revoked as well.
    /// The run is whole clusters.
    ///
    /// # Errors
    /// As [`Edit::modify`]; a block that was free already is corruption.
    fn free(&mut self, run: Run, purpose: Purpose) -> Result<(), Error>;

    /// The time that changes of this operation are stamped with.
    fn now(&self) -> Timestamp;
}

impl BlockKind {
    /// Stamps the block's checksum, where it has one. The one place where metadata blocks of files are sealed. Bitmaps and
    /// descriptors are sealed by those who change them, since their checksums lie in the descriptor.
    pub fn seal(&self, bytes: &mut [u8], block: BlockNo, geometry: &Geometry) {
        match *self {
            Self::Descriptors | Self::InodeTable | Self::Bitmap | Self::Indirect { .. } => {}
            Self::ExtentNode { inode, generation, .. } => {
                extent::seal(bytes, &NodeOwner { inode, generation, block: Some(block) }, geometry);
            }
            Self::DirBlock { inode, generation, has_stored_hashes, .. } => {
                let mut format = DirFormat::new(geometry, inode, generation);
                format.has_stored_hashes = has_stored_hashes;
                format.seal(bytes);
            }
            Self::HtreeBlock { inode, generation, kind, .. } => {
                HtreeFormat::new(geometry, inode, generation).seal(bytes, kind);
            }
            Self::XattrBlock => xattr::seal_block(bytes, block, geometry),
        }
    }
}

/// Writes an inode's fields into its record, seals it, and leaves the bytes that the fields do not name (attributes in the inode,
/// fields of the future) as they are.
///
/// # Errors
/// As [`Edit::modify`].
pub fn write_inode<E: Edit>(edit: &mut E, number: InodeNo, fields: &Inode) -> Result<(), Error> {
    change_record(edit, number, |record, geometry| fields.encode_into(record, geometry))
}

/// Changes an inode's record as bytes and seals it: for attributes kept in the inode.
///
/// # Errors
/// As [`Edit::modify`].
pub fn change_record<E: Edit, R>(
    edit: &mut E,
    number: InodeNo,
    change: impl FnOnce(&mut [u8], &Geometry) -> R,
) -> Result<R, Error> {
    let (block, at) = inode::place(edit, number)?;
    let geometry = edit.geometry().clone();
    let end = at + usize::from(geometry.inode_size);
    edit.modify(block, BlockKind::InodeTable, |table| {
        let record = &mut table[at..end];
        let result = change(record, &geometry);
        extant_ondisk::inode::seal(record, number, &geometry);
        result
    })
}

/// The first block of the group that an inode lies in: the goal where a file has no blocks yet.
///
/// # Errors
/// No such inode.
pub fn default_goal<E: Edit>(edit: &E, number: InodeNo) -> Result<BlockNo, Error> {
    let geometry = edit.geometry();
    let (group, _) = geometry.inode_place(number).ok_or(Error::NoSuchInode(number))?;
    group::descriptor(edit, group)?;
    Ok(geometry.group_start(group))
}
