//! The interface for metadata changes. The algorithms that change the format (mapping, directories,
//! attributes, inodes, orphans, quota) see neither the journal nor the allocator's inside.

use extant_ondisk::dirent::DirFormat;
use extant_ondisk::extent::{self, NodeOwner, OwnedNode};
use extant_ondisk::htree::HtreeFormat;
use extant_ondisk::inode::{FileType, I_BLOCK_SIZE, Inode, InodeFlags, RawInode};
use extant_ondisk::orphan_file::OrphanFileFormat;
use extant_ondisk::superblock::RawSuperblock;
use extant_ondisk::time::Timestamp;
use extant_ondisk::{
    BlockNo, CompatFeatures, FileBlock, FormatError, Geometry, GroupNo, IncompatFeatures, InodeNo,
    xattr,
};
use extant_reader::read::inode::LoadedInode;
use extant_reader::read::{group, inode};
use extant_reader::{BlockKind, Error, MetadataRead, superblock_at, superblock_block};
use std::ops::Range;
use zerocopy::FromBytes;

/// The purpose of wanted blocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Purpose {
    /// File contents.
    Data,
    /// Extent nodes and pointer blocks. On a full volume they get clusters that are kept for them.
    Map,
    /// Directory blocks, attribute blocks.
    Metadata,
}

/// A wish for blocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AllocationRequest {
    /// The inode that they are for.
    pub inode: InodeNo,
    /// The purpose.
    pub purpose: Purpose,
    /// Where we would like the first one.
    pub goal: Option<BlockNo>,
    /// How many, at least one. Fewer may be given, never none.
    pub count: u64,
    /// The part of a file's contents that they are for: a file that grows gets a preallocation
    /// after them. `None` where just this is wanted.
    pub part: Option<FilePart>,
}

/// A place in a file's contents.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FilePart {
    /// The block that the first one given is for.
    pub at: FileBlock,
    /// Bytes that the file has when its contents are written.
    pub file_size: u64,
    /// Whether it may continue to grow. A file that does not grow gets no preallocation of its own.
    pub grows: bool,
}

/// A run of physical blocks: whole clusters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BlockRange {
    /// The first.
    pub start: BlockNo,
    /// How many.
    pub count: u64,
}

/// How a change of what other operations change too is taken back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Undo {
    /// Clusters were taken.
    Took(BlockRange),
    /// Clusters were given back.
    Gave(BlockRange),
    /// The journal forgets these blocks once the operation is done.
    Forgets(BlockRange),
    /// Others may share an attribute block of this hash once the operation is done.
    OffersBlock(u32, BlockNo),
    /// The same for an inode of a value.
    OffersValue(u32, InodeNo),
    /// An inode became an orphan, or is one no more.
    Orphan {
        /// Which.
        number: InodeNo,
        /// The value now.
        is_one: bool,
    },
    /// An attribute block has another user, or one less.
    Users {
        /// The block.
        block: BlockNo,
        /// One more, or one less.
        by: i32,
        /// How many there are then.
        left: u32,
    },
    /// The inode of an attribute's value is referred to more often, or less.
    References {
        /// The inode.
        number: InodeNo,
        /// How many more.
        by: i64,
        /// How many there are then.
        left: u64,
    },
}

/// The interface by which an operation changes metadata: a journal handle and the allocator.
///
/// Reading ([`MetadataRead`]) sees the operation's own changes. A call that fails has changed
/// nothing.
pub trait Edit: MetadataRead {
    /// Changes a block that is in use. It is checked as `kind` when it is first read and sealed as
    /// `kind` after the change, so that `change` does not handle checksums.
    ///
    /// # Errors
    /// As [`MetadataRead::metadata`], or the journal is aborted or out of credits.
    fn modify<R>(
        &mut self,
        block: BlockNo,
        kind: BlockKind,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Error>;

    /// As [`Edit::modify`], for a part of the block: `find` returns the part, and `change` gets
    /// only its bytes, and where it begins in the block. `None` where `find` has found none: then
    /// nothing is changed.
    ///
    /// # Errors
    /// As [`Edit::modify`]; also returns the result of `find`.
    fn modify_part<R>(
        &mut self,
        block: BlockNo,
        kind: BlockKind,
        find: impl FnOnce(&[u8]) -> Result<Option<Range<usize>>, FormatError>,
        change: impl FnOnce(&mut [u8], usize) -> R,
    ) -> Result<Option<R>, Error>
    where
        Self: Sized,
    {
        self.modify(block, kind, |bytes| {
            let Some(part) = find(bytes)? else { return Ok(None) };
            let start = part.start;
            Ok(Some(change(&mut bytes[part], start)))
        })?
    }

    /// Changes an inode's record, which lies in a block of an inode table, and seals it.
    ///
    /// # Errors
    /// As [`Edit::modify`].
    fn modify_record<R>(
        &mut self,
        number: InodeNo,
        change: impl FnOnce(&mut [u8], &Geometry) -> R,
    ) -> Result<R, Error>
    where
        Self: Sized,
    {
        let place = inode::place(self, number)?;
        let geometry = self.geometry().clone();
        self.modify(place.block, place.kind(), |table| {
            let record = &mut table[place.bytes(&geometry)];
            let result = change(record, &geometry);
            extant_ondisk::inode::seal(record, number, &geometry);
            result
        })
    }

    /// Fills a block that was just allocated: it starts as zeroes, nothing is read. Sealed as
    /// `kind`.
    ///
    /// # Errors
    /// As [`Edit::modify`].
    fn create<R>(
        &mut self,
        block: BlockNo,
        kind: BlockKind,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Error>;

    /// Blocks near the goal, in one run: at most `count` (rounded up to whole clusters), at least
    /// one cluster.
    ///
    /// # Errors
    /// [`Error::NoSpace`], or as [`Edit::modify`].
    fn allocate(&mut self, request: AllocationRequest) -> Result<BlockRange, Error>;

    /// Gives blocks back; they are reused only after the commit. Metadata blocks are forgotten and
    /// revoked as well. The run is whole clusters.
    ///
    /// # Errors
    /// As [`Edit::modify`]; a block that was free already is corruption.
    fn free(&mut self, run: BlockRange, purpose: Purpose) -> Result<(), Error> {
        self.free_all(&[(run, purpose)])
    }

    /// Gives several runs back as [`Edit::free`] does one: each group's bitmap and descriptor
    /// change once.
    ///
    /// # Errors
    /// As [`Edit::free`]; a block that is named twice is corruption too.
    fn free_all(&mut self, runs: &[(BlockRange, Purpose)]) -> Result<(), Error>;

    /// The time that changes of this operation are stamped with.
    fn now(&self) -> Timestamp;

    /// Runs `act` with the attribute blocks that are known to hold what hashes to `hash`. While it
    /// runs, no other thread sees or changes the list; a block in it is in use, and is taken out
    /// before it is freed or rewritten. Here none is known.
    fn with_shared_blocks<R>(
        &mut self,
        _hash: u32,
        act: impl FnOnce(&mut Self, &mut Vec<BlockNo>) -> R,
    ) -> R
    where
        Self: Sized,
    {
        act(self, &mut Vec::new())
    }

    /// The same for the inodes of attributes' values.
    fn with_shared_values<R>(
        &mut self,
        _hash: u32,
        act: impl FnOnce(&mut Self, &mut Vec<InodeNo>) -> R,
    ) -> R
    where
        Self: Sized,
    {
        act(self, &mut Vec::new())
    }

    /// Runs a change of a block that other operations change too: its bytes are not kept, and
    /// [`Self::record_undo`] records how it is undone.
    fn unlogged<R>(&mut self, change: impl FnOnce(&mut Self) -> R) -> R
    where
        Self: Sized,
    {
        change(self)
    }

    /// The file maps these logical blocks otherwise than before.
    fn map_changed(&mut self, _number: InodeNo, _range: Range<FileBlock>) {}

    /// How the change that was just made is taken back, or what is done once the operation is.
    fn record_undo(&mut self, undo: Undo)
    where
        Self: Sized,
    {
        offer(self, undo);
    }

    /// Takes a change back at once, since another that it goes with has failed. Where this fails
    /// too nothing of it may stay.
    fn take_back(&mut self, change: impl FnOnce(&mut Self) -> Result<(), Error>)
    where
        Self: Sized,
    {
        // A caller without an undo log gives up the whole edit after an error.
        let _ = change(self);
    }

    /// Counts what `file` uses more or less than before against the quotas of its owner, its group
    /// and its project. Called by the algorithms wherever they change [`Inode::blocks`], see
    /// [`space`](crate::write::space).
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`], or as [`Edit::modify`]. Nothing is counted then.
    fn charge(&mut self, file: &LoadedInode, usage: Usage, limits: Limits) -> Result<(), Error>;
}

/// Whether a quota's limits may refuse what is charged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Limits {
    /// They may: the operation can still be undone.
    Enforced,
    /// They may not: the space is in use already, as that of a map which grew.
    Ignored,
}

/// The change of a file's use; negative where it uses less.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// Bytes.
    pub space: i64,
    /// Inodes.
    pub inodes: i64,
}

impl Usage {
    /// Whether there is nothing to count.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    /// The usage counted the other way.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self { space: -self.space, inodes: -self.inodes }
    }
}

/// Allocation and freeing of inodes, in addition to the blocks of [`Edit`].
pub trait EditInodes: Edit {
    /// Marks a free inode near `near` as used. Its record holds anything: [`write_new_inode`] fills
    /// it. No quota is charged.
    ///
    /// # Errors
    /// [`Error::NoInodes`], or as [`Edit::modify`].
    fn allocate_inode(&mut self, near: InodeNo, file_type: FileType) -> Result<InodeNo, Error>;

    /// Marks an inode as free. Its record was cleared before, with [`clear_inode`].
    ///
    /// # Errors
    /// As [`Edit::modify`]; an inode that was free already is corruption.
    fn free_inode(&mut self, number: InodeNo, file_type: FileType) -> Result<(), Error>;
}

/// Lets others share what the operation has made.
pub(crate) fn offer<E: Edit>(edit: &mut E, made: Undo) {
    match made {
        Undo::OffersBlock(hash, block) => edit.with_shared_blocks(hash, |_, blocks| {
            blocks.retain(|known| *known != block);
            blocks.push(block);
        }),
        Undo::OffersValue(hash, inode) => {
            edit.with_shared_values(hash, |_, inodes| inodes.push(inode));
        }
        _ => {}
    }
}

/// Stamps a block's checksum, where it has one as this kind. The one place where metadata blocks of
/// files are sealed. Bitmaps and descriptors are sealed by their writers, since their checksums lie
/// in the descriptor.
pub fn seal(kind: &BlockKind, bytes: &mut [u8], block: BlockNo, geometry: &Geometry) {
    match *kind {
        BlockKind::Descriptors
        | BlockKind::InodeTable { .. }
        | BlockKind::Bitmap { .. }
        | BlockKind::Contents
        | BlockKind::Indirect { .. } => {}
        BlockKind::ExtentNode { inode, generation, .. } => {
            extent::seal(bytes, &NodeOwner { inode, generation, block: Some(block) }, geometry);
        }
        BlockKind::DirBlock { inode, generation, has_stored_hashes, .. } => {
            let mut format = DirFormat::new(geometry, inode, generation);
            format.has_stored_hashes = has_stored_hashes;
            format.seal(bytes);
        }
        BlockKind::HtreeBlock { inode, generation, kind, .. } => {
            HtreeFormat::new(geometry, inode, generation).seal(bytes, kind);
        }
        BlockKind::XattrBlock => xattr::seal_block(bytes, block, geometry),
        BlockKind::Superblock => {
            let raw = bytes.get_mut(superblock_at(geometry)..).unwrap_or_default();
            if let Ok((raw, _)) = RawSuperblock::mut_from_prefix(raw) {
                raw.seal();
            }
        }
        BlockKind::OrphanFile { inode, generation, .. } => {
            OrphanFileFormat::new(geometry, inode, generation).seal(bytes, block);
        }
    }
}

/// Seals the records of a block that `parts` names; `first` is the number of its first inode.
pub(crate) fn seal_parts(bytes: &mut [u8], parts: u64, first: InodeNo, geometry: &Geometry) {
    let records = bytes.chunks_exact_mut(usize::from(geometry.inode_size));
    for (record, number) in records.zip(first.0..) {
        if parts >> (number - first.0) & 1 == 1 {
            extant_ondisk::inode::seal(record, InodeNo(number), geometry);
        }
    }
}

/// The primary superblock as it is now, with the operation's own changes.
///
/// # Errors
/// As [`MetadataRead::metadata`].
pub fn superblock<S: MetadataRead>(source: &S) -> Result<RawSuperblock, Error> {
    let geometry = source.geometry();
    let bytes = source.metadata(superblock_block(geometry), BlockKind::Superblock)?;
    let stored = bytes.get(superblock_at(geometry)..).unwrap_or_default();
    Ok(RawSuperblock::from_bytes(stored, GroupNo(0))?)
}

/// Changes the primary superblock and seals it.
///
/// # Errors
/// As [`Edit::modify`].
pub fn change_superblock<E: Edit, R>(
    edit: &mut E,
    change: impl FnOnce(&mut RawSuperblock) -> R,
) -> Result<R, Error> {
    let geometry = edit.geometry();
    let (block, at) = (superblock_block(geometry), superblock_at(geometry));
    edit.modify(block, BlockKind::Superblock, |bytes| {
        let (raw, _) = RawSuperblock::mut_from_prefix(&mut bytes[at..])
            .expect("the block was checked to hold a superblock");
        change(raw)
    })
}

/// Writes an inode's fields into its record, seals it, and leaves the bytes that the fields do not
/// name (attributes in the inode, fields of the future) as they are. `i_dtime` stays as it is too:
/// while the inode is an orphan it belongs to the list, where its neighbours change it
/// ([`set_dtime`]).
///
/// # Errors
/// As [`Edit::modify`].
pub fn write_inode<E: Edit>(edit: &mut E, number: InodeNo, fields: &Inode) -> Result<(), Error> {
    edit.modify_record(number, |record, geometry| encode_but_dtime(fields, record, geometry))
}

/// As [`write_inode`], with the attributes that are kept in the inode.
///
/// # Errors
/// As [`Edit::modify`].
pub fn write_loaded<E: Edit>(edit: &mut E, loaded: &LoadedInode) -> Result<(), Error> {
    edit.modify_record(loaded.number, |record, geometry| {
        encode_but_dtime(&loaded.inode, record, geometry);
        let space = &loaded.xattr_space;
        let after = record.len().saturating_sub(space.len());
        if !space.is_empty() {
            record[after..].copy_from_slice(space);
        }
    })
}

fn encode_but_dtime(fields: &Inode, record: &mut [u8], geometry: &Geometry) {
    let stored = RawInode::ref_from_prefix(record).map_or(0, |(raw, _)| raw.i_dtime.get());
    fields.encode_into(record, geometry);
    if let Ok((raw, _)) = RawInode::mut_from_prefix(record) {
        raw.i_dtime.set(stored);
    }
}

/// Sets `i_dtime`: the time of deletion in seconds since 1970, or the next inode of the orphan
/// list.
///
/// # Errors
/// As [`Edit::modify`].
pub fn set_dtime<E: Edit>(edit: &mut E, number: InodeNo, dtime: u32) -> Result<(), Error> {
    edit.modify_record(number, |record, _| {
        if let Ok((raw, _)) = RawInode::mut_from_prefix(record) {
            raw.i_dtime.set(dtime);
        }
    })
}

/// Fills the record of an inode that was just allocated: what it held before is gone.
///
/// # Errors
/// As [`Edit::modify`].
pub fn write_new_inode<E: Edit>(
    edit: &mut E,
    number: InodeNo,
    fields: &Inode,
) -> Result<(), Error> {
    edit.modify_record(number, |record, geometry| {
        record.fill(0);
        fields.encode_into(record, geometry);
    })
}

/// Marks a record as that of a deleted inode: no links, no bytes, deleted now. Mode and generation
/// stay.
///
/// # Errors
/// As [`Edit::modify`].
pub fn clear_inode<E: Edit>(edit: &mut E, number: InodeNo) -> Result<(), Error> {
    // Times of deletion have 32 bits.
    let now = u32::try_from(edit.now().seconds).unwrap_or(u32::MAX);
    edit.modify_record(number, |record, geometry| {
        let mut inode = Inode::decode(record, number, geometry)?;
        (inode.links, inode.size, inode.blocks, inode.dtime) = (0, 0, 0, now);
        if inode.is_extent_mapped() && geometry.has_compat(CompatFeatures::FAST_COMMIT) {
            // A fast commit that makes the inode again keeps the map of the record.
            OwnedNode::empty_leaf(I_BLOCK_SIZE).encode_into(&mut inode.i_block);
        }
        inode.encode_into(record, geometry);
        Ok::<_, Error>(())
    })?
}

/// An inode without blocks and owner: all times `now`, one link, mapped as new files of the volume
/// are if its type has blocks.
pub fn new_inode(geometry: &Geometry, mode: u16, now: Timestamp) -> Inode {
    let has_blocks =
        matches!(FileType::of_mode(mode), Some(FileType::Regular | FileType::Directory));
    let is_mapped = has_blocks && geometry.has_incompat(IncompatFeatures::EXTENTS);
    let mut i_block = [0; I_BLOCK_SIZE];
    if is_mapped {
        OwnedNode::empty_leaf(I_BLOCK_SIZE).encode_into(&mut i_block);
    }
    let flags = if is_mapped { InodeFlags::EXTENTS } else { InodeFlags::empty() };
    Inode { flags, i_block, ..Inode::new(geometry, mode, now) }
}

/// The first block of the group that an inode lies in: the goal where a file has no blocks yet.
///
/// # Errors
/// No such inode.
pub fn default_goal<S: MetadataRead>(source: &S, number: InodeNo) -> Result<BlockNo, Error> {
    let geometry = source.geometry();
    let (group, _) = geometry.inode_place(number).ok_or(Error::NoSuchInode(number))?;
    group::descriptor(source, group)?;
    Ok(geometry.group_start(group))
}
