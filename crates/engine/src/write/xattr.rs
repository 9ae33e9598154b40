//! Extended attributes changed: in the inode, in a block, or with an inode for the value, and moved
//! between these.
//!
//! An attribute that is set stays in the inode if there is room, else it goes to the block; if
//! neither has room, all of them are divided again ([`pack`]). Blocks that hold the same are shared
//! as far as they are known ([`Edit::with_shared_blocks`](crate::edit::Edit::with_shared_blocks)),
//! and so are values with inodes; a shared block is copied before it changes.

use super::{space, value};
use crate::edit::{
    AllocationRequest, BlockRange, EditInodes, Limits, Purpose, Undo, Usage, default_goal,
};
use extant_ondisk::xattr::pack::{Room, pack};
use extant_ondisk::xattr::{
    RawXattrHeader, Value, Xattr, XattrName, decode_block, decode_inode, encode_block,
    encode_inode, room_in_block, room_in_inode,
};
use extant_ondisk::{BlockNo, Flaw, Geometry, IncompatFeatures, InodeNo, Location};
use extant_reader::read::inode::LoadedInode;
use extant_reader::{BlockKind, Error, MetadataRead};
use std::collections::BTreeMap;
use zerocopy::FromBytes;

/// Bytes of the longest value that may be set: the kernel's limit of `setxattr`. Longer values can
/// be read.
pub const MAX_XATTR_SIZE: usize = 65_536;
/// Users of a shared block at most, as the kernel has it.
const MAX_USERS: u32 = 1024;
/// Bytes of a record before the fields that `i_extra_isize` counts.
const BASE: usize = extant_ondisk::inode::GOOD_OLD_INODE_SIZE as usize;

/// The expected state of an attribute that is set.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum XattrSet {
    /// Nothing: it is made or replaced.
    #[default]
    Any,
    /// It is not there yet.
    Create,
    /// It is there.
    Replace,
}

/// Sets an attribute to a value in the form that is stored. The caller writes the inode afterwards.
///
/// # Errors
/// [`Error::Exists`] and [`Error::NoXattr`] as `how` says, [`Error::XattrTooLarge`],
/// [`Error::NoXattrRoom`] when neither inode nor block have room, [`Error::NoSpace`],
/// [`Error::QuotaExceeded`], broken attributes, or the change failed. A failed call has changed
/// nothing.
pub fn set<E: EditInodes>(
    edit: &mut E,
    file: &mut LoadedInode,
    name: &XattrName,
    value: &[u8],
    how: XattrSet,
) -> Result<(), Error> {
    if value.len() > MAX_XATTR_SIZE {
        return Err(Error::XattrTooLarge);
    }
    let old = Attributes::of(edit, file)?;
    let known = old.find(name);
    match (how, known) {
        (XattrSet::Create, Some(_)) => return Err(Error::Exists),
        (XattrSet::Replace, None) => return Err(Error::NoXattr),
        _ => {}
    }
    let xattr = Xattr::new(name.clone(), value.to_vec());
    if known == Some(&xattr) {
        return Ok(());
    }
    let new = place(edit.geometry(), file, &old, xattr).ok_or(Error::NoXattrRoom)?;
    exchange(edit, file, &old, new)
}

/// Removes an attribute. The caller writes the inode afterwards.
///
/// # Errors
/// [`Error::NoXattr`], broken attributes, or the change failed.
pub fn remove<E: EditInodes>(
    edit: &mut E,
    file: &mut LoadedInode,
    name: &XattrName,
) -> Result<(), Error> {
    let old = Attributes::of(edit, file)?;
    if old.find(name).is_none() {
        return Err(Error::NoXattr);
    }
    let left = old.without(name);
    exchange(edit, file, &old, left.into())
}

/// Whether the attributes of a file can be read.
///
/// # Errors
/// Broken attributes, or the device failed.
pub(crate) fn check<S: MetadataRead>(source: &S, file: &LoadedInode) -> Result<(), Error> {
    if file.file_acl.0 == 0 && file.xattr_space.is_empty() {
        return Ok(());
    }
    Attributes::of(source, file).map(drop)
}

/// Gives the attributes of a deleted file back: its block, and the values that have inodes. The
/// inode's own space is left.
///
/// # Errors
/// Broken attributes, or the change failed.
pub fn release_all<E: EditInodes>(edit: &mut E, file: &mut LoadedInode) -> Result<(), Error> {
    let old = Attributes::of(edit, file)?;
    let inline: Vec<_> =
        old.in_inode.iter().filter(|xattr| is_inline_data(xattr)).cloned().collect();
    if old.in_inode.len() == inline.len() && old.in_block.is_empty() && file.file_acl.0 == 0 {
        return Ok(());
    }
    let left = Attributes { in_inode: inline, in_block: Vec::new() };
    exchange(edit, file, &old, left.into())
}

/// A file's attributes by place.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Attributes {
    in_inode: Vec<Xattr>,
    in_block: Vec<Xattr>,
}

impl Attributes {
    fn of<S: MetadataRead>(source: &S, file: &LoadedInode) -> Result<Self, Error> {
        let geometry = source.geometry();
        let found = decode_inode(&file.xattr_space, file.number, geometry)?;
        let in_inode = found.iter().map(|xattr| xattr.to_owned()).collect();
        let block = file.file_acl;
        if block.0 == 0 {
            return Ok(Self { in_inode, in_block: Vec::new() });
        }
        if !geometry.contains(block, 1) {
            let flaw = Flaw::bad_value("i_file_acl", block.0);
            return Err(flaw.at(Location::Inode(file.number)).into());
        }
        let bytes = source.metadata(block, BlockKind::XattrBlock)?;
        let found = decode_block(&bytes, block, geometry)?;
        Ok(Self { in_inode, in_block: found.iter().map(|xattr| xattr.to_owned()).collect() })
    }

    /// The attribute of that name: of two the one in the inode, as it is read.
    fn find(&self, name: &XattrName) -> Option<&Xattr> {
        self.all().find(|xattr| xattr.name == *name)
    }

    fn all(&self) -> impl Iterator<Item = &Xattr> {
        self.in_inode.iter().chain(&self.in_block)
    }

    fn without(&self, name: &XattrName) -> Self {
        let others = |list: &[Xattr]| {
            list.iter().filter(|xattr| xattr.name != *name).cloned().collect::<Vec<_>>()
        };
        Self { in_inode: others(&self.in_inode), in_block: others(&self.in_block) }
    }

    /// The owner's charge for values with inodes, shared ones too: the inode and the bytes in whole
    /// clusters. The values of `moving` are about to get inodes.
    fn values_usage(&self, moving: &[XattrName], geometry: &Geometry) -> Usage {
        let mut usage = Usage::default();
        for xattr in self.all() {
            let size = match &xattr.value {
                Value::EaInode(ea) => u64::from(ea.size),
                Value::Stored(value) if moving.contains(&xattr.name) => value.len() as u64,
                Value::Stored(_) => continue,
            };
            usage.inodes += 1;
            usage.space += size.next_multiple_of(geometry.cluster_size()).cast_signed();
        }
        usage
    }
}

fn is_inline_data(xattr: &Xattr) -> bool {
    xattr.name == XattrName::inline_data()
}

/// Bytes after the inode's fields.
fn inode_space(geometry: &Geometry, file: &LoadedInode) -> usize {
    usize::from(geometry.inode_size).saturating_sub(BASE + usize::from(file.extra_isize))
}

/// A place for a new or changed attribute; `None` if neither has room. Values that do not fit next
/// to their entry are still [`Value::Stored`] here: [`Placed::to_ea_inode`] names them.
fn place(
    geometry: &Geometry,
    file: &LoadedInode,
    old: &Attributes,
    xattr: Xattr,
) -> Option<Placed> {
    let has_ea_inodes = geometry.has_incompat(IncompatFeatures::EA_INODE);
    let room = Room {
        inode_space: inode_space(geometry, file),
        block_size: geometry.block_len(),
        has_ea_inodes,
    };
    let mut kept = old.without(&xattr.name);
    let needed = |list: &[Xattr]| list.iter().map(Xattr::stored_len).sum::<usize>();
    let len = xattr.stored_len();
    if needed(&kept.in_inode) + len <= room_in_inode(room.inode_space) {
        kept.in_inode.push(xattr);
        return Some(Placed { lists: kept, to_ea_inode: Vec::new() });
    }
    let belongs_to_inode = xattr.name == XattrName::inline_data();
    if !belongs_to_inode && needed(&kept.in_block) + len <= room_in_block(room.block_size) {
        kept.in_block.push(xattr);
        return Some(Placed { lists: kept, to_ea_inode: Vec::new() });
    }
    let mut all: Vec<Xattr> = kept.in_inode.into_iter().chain(kept.in_block).collect();
    all.push(xattr);
    let packing = pack(&all, room);
    if !packing.does_not_fit.is_empty() {
        return None;
    }
    let names = |places: &[usize]| places.iter().map(|&at| all[at].name.clone()).collect();
    let pick = |places: &[usize]| places.iter().map(|&at| all[at].clone()).collect();
    Some(Placed {
        to_ea_inode: names(&packing.to_ea_inode),
        lists: Attributes { in_inode: pick(&packing.in_inode), in_block: pick(&packing.in_block) },
    })
}

/// Attributes where they shall be.
#[derive(Debug)]
struct Placed {
    lists: Attributes,
    /// Names of those whose values get inodes of their own.
    to_ea_inode: Vec<XattrName>,
}

impl From<Attributes> for Placed {
    fn from(lists: Attributes) -> Self {
        Self { lists, to_ea_inode: Vec::new() }
    }
}

/// Puts attributes in the place of the old ones. Changes that can be refused come first and are
/// undone on a refusal.
fn exchange<E: EditInodes>(
    edit: &mut E,
    file: &mut LoadedInode,
    old: &Attributes,
    placed: Placed,
) -> Result<(), Error> {
    let geometry = edit.geometry().clone();
    let Placed { mut lists, to_ea_inode } = placed;
    let block_usage = |has_block: bool| if has_block { geometry.cluster_size() } else { 0 };
    let (was, is) = (old.values_usage(&[], &geometry), lists.values_usage(&to_ea_inode, &geometry));
    let (block_was, block_is) =
        (block_usage(file.file_acl.0 != 0), block_usage(!lists.in_block.is_empty()));
    let usage = Usage {
        space: is.space - was.space + block_is.cast_signed() - block_was.cast_signed(),
        inodes: is.inodes - was.inodes,
    };
    space::change(edit, file, usage, Limits::Enforced)?;
    let mut references = References::default();
    let taken = take_what_is_new(edit, file, old, &mut lists, &to_ea_inode, &mut references);
    let taken = match taken {
        Ok(taken) => taken,
        Err(error) => {
            space::change(edit, file, usage.reversed(), Limits::Ignored)?;
            return Err(error);
        }
    };

    if lists.in_block != old.in_block || lists.in_block.is_empty() {
        exchange_block(edit, file, old, &lists, taken, &mut references)?;
    }
    if lists.in_inode != old.in_inode {
        references.count(&lists.in_inode, 1);
        references.count(&old.in_inode, -1);
        write_into_inode(edit, file, &lists.in_inode)?;
    }
    for (inode, by) in references.0 {
        value::change_references(edit, inode, by)?;
    }
    Ok(())
}

/// Where the attributes in a block go.
#[derive(Clone, Copy, Debug)]
enum ToBlock {
    /// There are none, or they stay as they are.
    Nowhere,
    /// The file's own block.
    Own,
    /// A new block.
    New(BlockRange),
    /// Another file's, which holds the same and counts this one already.
    Shared(BlockNo),
}

/// Changes in how often values with inodes are referred to.
#[derive(Debug, Default)]
struct References(BTreeMap<InodeNo, i64>);

impl References {
    fn count(&mut self, list: &[Xattr], by: i64) {
        for xattr in list {
            if let Value::EaInode(ea) = &xattr.value {
                *self.0.entry(ea.inode).or_default() += by;
            }
        }
    }
}

/// Takes the inodes of values that move and the block where a new one is needed. All or nothing.
fn take_what_is_new<E: EditInodes>(
    edit: &mut E,
    file: &LoadedInode,
    old: &Attributes,
    lists: &mut Attributes,
    to_ea_inode: &[XattrName],
    references: &mut References,
) -> Result<ToBlock, Error> {
    let mut values = Vec::new();
    let moving = lists.in_inode.iter_mut().chain(&mut lists.in_block);
    for xattr in moving.filter(|xattr| to_ea_inode.contains(&xattr.name)) {
        let Value::Stored(bytes) = &xattr.value else { continue };
        match value::obtain(edit, file, bytes) {
            Ok(ea) => {
                values.push(ea.inode);
                xattr.value = Value::EaInode(ea);
            }
            Err(error) => {
                give_back(edit, &values)?;
                return Err(error);
            }
        }
    }
    match place_of_block(edit, file, old, lists) {
        Ok(place) => {
            // They count this use already.
            for inode in values {
                *references.0.entry(inode).or_default() -= 1;
            }
            Ok(place)
        }
        Err(error) => {
            give_back(edit, &values)?;
            Err(error)
        }
    }
}

/// Values that were obtained are not used after all.
fn give_back<E: EditInodes>(edit: &mut E, values: &[InodeNo]) -> Result<(), Error> {
    values.iter().try_for_each(|inode| value::change_references(edit, *inode, -1))
}

/// Finds a place for the attributes in a block.
fn place_of_block<E: EditInodes>(
    edit: &mut E,
    file: &LoadedInode,
    old: &Attributes,
    lists: &Attributes,
) -> Result<ToBlock, Error> {
    if lists.in_block.is_empty() || lists.in_block == old.in_block {
        return Ok(ToBlock::Nowhere);
    }
    if let Some(block) = share(edit, &lists.in_block)? {
        return Ok(ToBlock::Shared(block));
    }
    if file.file_acl.0 != 0 && is_own(edit, file.file_acl)? {
        return Ok(ToBlock::Own);
    }
    let request = AllocationRequest {
        inode: file.number,
        purpose: Purpose::Metadata,
        goal: Some(default_goal(edit, file.number)?),
        count: 1,
        part: None,
    };
    Ok(ToBlock::New(edit.allocate(request)?))
}

/// Takes a share of a block that holds these attributes, if one is known.
fn share<E: EditInodes>(edit: &mut E, list: &[Xattr]) -> Result<Option<BlockNo>, Error> {
    let mut wanted = vec![0; edit.geometry().block_len()];
    if encode_block(list, 1, &mut wanted).is_err() {
        return Ok(None);
    }
    let hash = hash_of(&wanted);
    if hash == 0 {
        // Not to be shared.
        return Ok(None);
    }
    edit.with_shared_blocks(hash, |edit, blocks| {
        for block in blocks.iter().copied() {
            let users = edit.unlogged(|edit| {
                edit.modify(block, BlockKind::XattrBlock, |bytes| {
                    if bytes.get(size_of::<RawXattrHeader>()..)
                        != wanted.get(size_of::<RawXattrHeader>()..)
                    {
                        return None;
                    }
                    let (header, _) = RawXattrHeader::mut_from_prefix(bytes).ok()?;
                    let users = header.h_refcount.get();
                    if header.h_hash.get() != hash || users == 0 || users >= MAX_USERS {
                        return None;
                    }
                    header.h_refcount.set(users + 1);
                    Some(users + 1)
                })
            })?;
            if let Some(left) = users {
                edit.record_undo(Undo::Users { block, by: 1, left });
                return Ok(Some(block));
            }
        }
        Ok(None)
    })
}

/// Whether a block has no other user; then none comes from now on.
fn is_own<E: EditInodes>(edit: &mut E, block: BlockNo) -> Result<bool, Error> {
    let hash = hash_of(&edit.metadata(block, BlockKind::XattrBlock)?);
    edit.with_shared_blocks(hash, |edit, blocks| {
        let bytes = edit.metadata(block, BlockKind::XattrBlock)?;
        let is_own = RawXattrHeader::from_block(&bytes, block)?.h_refcount.get() <= 1;
        if is_own {
            blocks.retain(|known| *known != block);
        }
        Ok(is_own)
    })
}

/// Lets other files share a block that was written.
fn offer<E: EditInodes>(edit: &mut E, block: BlockNo) -> Result<(), Error> {
    let hash = hash_of(&edit.metadata(block, BlockKind::XattrBlock)?);
    if hash != 0 {
        edit.record_undo(Undo::OffersBlock(hash, block));
    }
    Ok(())
}

fn hash_of(bytes: &[u8]) -> u32 {
    RawXattrHeader::ref_from_prefix(bytes).map_or(0, |(header, _)| header.h_hash.get())
}

/// Rewrites the block in place, moves to a new one, or does without.
fn exchange_block<E: EditInodes>(
    edit: &mut E,
    file: &mut LoadedInode,
    old: &Attributes,
    lists: &Attributes,
    to: ToBlock,
    references: &mut References,
) -> Result<(), Error> {
    let block = file.file_acl;
    let no_room = |at: BlockNo| {
        Flaw::Rule("attributes need more room than their block has").at(Location::XattrBlock(at))
    };
    let start = match to {
        ToBlock::Nowhere => BlockNo(0),
        // Its values count the block once, however many files use it.
        ToBlock::Shared(shared) => shared,
        ToBlock::Own => {
            references.count(&lists.in_block, 1);
            references.count(&old.in_block, -1);
            let written = edit.modify(block, BlockKind::XattrBlock, |bytes| {
                encode_block(&lists.in_block, 1, bytes)
            })?;
            written.map_err(|_| no_room(block))?;
            return offer(edit, block);
        }
        ToBlock::New(run) => {
            references.count(&lists.in_block, 1);
            let written = edit.create(run.start, BlockKind::XattrBlock, |bytes| {
                encode_block(&lists.in_block, 1, bytes)
            })?;
            written.map_err(|_| no_room(run.start))?;
            offer(edit, run.start)?;
            run.start
        }
    };
    if block.0 != 0 && leave_block(edit, block)? {
        references.count(&old.in_block, -1);
    }
    file.inode.file_acl = start;
    Ok(())
}

/// One user of a block less. Whether it was the last: the block is freed then.
fn leave_block<E: EditInodes>(edit: &mut E, block: BlockNo) -> Result<bool, Error> {
    let hash = hash_of(&edit.metadata(block, BlockKind::XattrBlock)?);
    let left = edit.with_shared_blocks(hash, |edit, blocks| {
        let left = edit.unlogged(|edit| {
            edit.modify(block, BlockKind::XattrBlock, |bytes| {
                let Ok((header, _)) = RawXattrHeader::mut_from_prefix(bytes) else { return 0 };
                let left = header.h_refcount.get().saturating_sub(1);
                header.h_refcount.set(left);
                left
            })
        })?;
        edit.record_undo(Undo::Users { block, by: -1, left });
        if left == 0 {
            blocks.retain(|known| *known != block);
        }
        Ok::<_, Error>(left)
    })?;
    if left > 0 {
        return Ok(false);
    }
    let geometry = edit.geometry();
    let start = geometry.cluster_start(geometry.cluster_of(block));
    let count = u64::from(geometry.blocks_per_cluster).min(geometry.blocks_count - start.0);
    edit.free(BlockRange { start, count }, Purpose::Metadata)?;
    Ok(true)
}

/// Counts the users of a block back. Values that others have given up since are gone.
pub(crate) fn count_users_back<E: EditInodes>(
    edit: &mut E,
    block: BlockNo,
    by: i32,
    left: u32,
) -> Result<(), Error> {
    let is_back = edit.modify(block, BlockKind::XattrBlock, |bytes| {
        let Ok((header, _)) = RawXattrHeader::mut_from_prefix(bytes) else { return false };
        let now = header.h_refcount.get();
        let back = now.checked_add_signed(-by).filter(|back| *back > 0);
        header.h_refcount.set(back.unwrap_or(now));
        back.is_some() && (now > 0 || left == 0)
    })?;
    if !is_back {
        return Err(Flaw::Rule("attribute block was removed")
            .at(Location::XattrBlock(block))
            .into());
    }
    Ok(())
}

fn write_into_inode<E: EditInodes>(
    edit: &mut E,
    file: &mut LoadedInode,
    list: &[Xattr],
) -> Result<(), Error> {
    let from = usize::from(edit.geometry().inode_size) - inode_space(edit.geometry(), file);
    let space = edit.modify_record(file.number, |record, _| {
        let space = &mut record[from..];
        encode_inode(list, space).map(|()| Box::from(&*space))
    })?;
    let space = space.map_err(|_| {
        let flaw = Flaw::Rule("attributes need more room than their inode has");
        flaw.at(Location::InodeXattr(file.number))
    })?;
    file.xattr_space = if list.is_empty() { Box::default() } else { space };
    Ok(())
}
