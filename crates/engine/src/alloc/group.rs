//! Changes to one group's bitmaps and descriptor, as the format requires. The caller holds the
//! group's lock where there is one.

use super::preallocation::ClusterRange;
use crate::edit::Edit;
use extant_ondisk::bitmap::{self, BitmapKind};
use extant_ondisk::group_desc::{self, GroupDesc, GroupFlags};
use extant_ondisk::{BlockNo, Flaw, Geometry, GroupNo, InodeNo, Location};
use extant_reader::read::group;
use extant_reader::{BlockKind, Error, MetadataRead};
use std::ops::Range;

/// Blocks that one call here may change at most: both bitmaps, the descriptor, and a block of the
/// inode table.
pub(crate) const GROUP_CREDITS: u32 = 4;

/// A group's descriptor with counts that can be.
pub(crate) fn descriptor<S: MetadataRead>(source: &S, no: GroupNo) -> Result<GroupDesc, Error> {
    let desc = group::descriptor(source, no)?;
    desc.check_counts(no, source.geometry())?;
    Ok(desc)
}

/// Stores a descriptor and seals it.
fn write_descriptor<E: Edit>(edit: &mut E, no: GroupNo, desc: &GroupDesc) -> Result<(), Error> {
    let geometry = edit.geometry().clone();
    let (index, at) = geometry.desc_place(no);
    let end = at + usize::from(geometry.desc_size);
    let block = edit.descriptor_block(index);
    edit.modify(block, BlockKind::Descriptors, |table| {
        let stored = &mut table[at..end];
        desc.store(stored, no, &geometry)?;
        group_desc::seal(stored, no, &geometry);
        Ok(())
    })?
}

/// Changes the block bitmap and puts its checksum into `desc`, which the caller stores. One that
/// was only implied is stored from now on.
fn change_block_bitmap<E: Edit>(
    edit: &mut E,
    no: GroupNo,
    desc: &mut GroupDesc,
    change: impl FnOnce(&mut [u8]),
) -> Result<(), Error> {
    change_and_seal(edit, no, BitmapKind::Block, desc, |bits, desc, geometry| {
        change(bits);
        bitmap::seal(bits, BitmapKind::Block, desc, geometry);
    })
}

/// Sets or clears one bit of the inode bitmap, else as [`change_block_bitmap`].
fn change_bit<E: Edit>(
    edit: &mut E,
    no: GroupNo,
    desc: &mut GroupDesc,
    bit: u32,
    is_set: bool,
) -> Result<(), Error> {
    let kind = BitmapKind::Inode;
    let is_implied = group::is_implied(edit.geometry(), kind, desc);
    change_and_seal(edit, no, kind, desc, |bits, desc, geometry| {
        if is_implied {
            // Its descriptor has no checksum of it yet.
            bitmap::seal(bits, kind, desc, geometry);
        }
        bitmap::change(bits, bit, is_set, kind, desc, geometry);
    })
}

fn change_and_seal<E: Edit>(
    edit: &mut E,
    no: GroupNo,
    kind: BitmapKind,
    desc: &mut GroupDesc,
    change: impl FnOnce(&mut [u8], &mut GroupDesc, &Geometry),
) -> Result<(), Error> {
    let geometry = edit.geometry().clone();
    let place = group::bitmap_place(kind, desc);
    let as_kind = BlockKind::Bitmap { group: no, kind, checksum: kind.stored_checksum(desc) };
    if group::is_implied(&geometry, kind, desc) {
        let implied = group::implied_bitmap(&geometry, no, kind, desc);
        edit.create(place, as_kind, |bits| {
            bits.copy_from_slice(&implied);
            change(bits, desc, &geometry);
        })?;
    } else {
        edit.modify(place, as_kind, |bits| change(bits, desc, &geometry))?;
    }
    desc.flags.remove(match kind {
        BitmapKind::Block => GroupFlags::BLOCK_UNINIT,
        BitmapKind::Inode => GroupFlags::INODE_UNINIT,
    });
    Ok(())
}

/// Marks free clusters of a group as in use.
pub(crate) fn take_clusters<E: Edit>(
    edit: &mut E,
    no: GroupNo,
    clusters: Range<u32>,
) -> Result<(), Error> {
    let mut desc = descriptor(edit, no)?;
    let count = clusters.end - clusters.start;
    desc.free_clusters = desc.free_clusters.checked_sub(count).ok_or_else(|| {
        Flaw::below_limit("free_clusters", desc.free_clusters, count).at(Location::GroupDesc(no))
    })?;
    change_clusters(edit, no, &mut desc, [clusters].into_iter(), true)
}

/// Whether all clusters of the pieces are in use, as those that are freed must be.
pub(crate) fn check_in_use<S: MetadataRead>(
    source: &S,
    no: GroupNo,
    pieces: &[ClusterRange],
) -> Result<(), Error> {
    let desc = descriptor(source, no)?;
    let free = if group::is_implied(source.geometry(), BitmapKind::Block, &desc) {
        pieces.first().map(|piece| piece.clusters.start)
    } else {
        let bits = group::stored_bitmap(source, no, BitmapKind::Block, &desc)?;
        pieces.iter().find_map(|piece| bitmap::next_clear(&bits, piece.clusters.clone()))
    };
    match free {
        None => Ok(()),
        Some(bit) => {
            let flaw = Flaw::bad_value("freed cluster is already free: bit", bit);
            Err(flaw.at(Location::BlockBitmap(no)).into())
        }
    }
}

/// Marks clusters of a group as free.
pub(crate) fn give_clusters<E: Edit>(
    edit: &mut E,
    no: GroupNo,
    pieces: &[ClusterRange],
) -> Result<(), Error> {
    let mut desc = descriptor(edit, no)?;
    let limit = edit.geometry().group_clusters(no);
    let free = desc.free_clusters + pieces.iter().map(ClusterRange::len).sum::<u32>();
    if free > limit {
        return Err(Flaw::above_limit("free_clusters", free, limit)
            .at(Location::GroupDesc(no))
            .into());
    }
    desc.free_clusters = free;
    let clusters = pieces.iter().map(|piece| piece.clusters.clone());
    change_clusters(edit, no, &mut desc, clusters, false)
}

/// Sets or clears the bits of clusters and stores the descriptor: both or neither.
fn change_clusters<E: Edit>(
    edit: &mut E,
    no: GroupNo,
    desc: &mut GroupDesc,
    clusters: impl Iterator<Item = Range<u32>> + Clone,
    is_set: bool,
) -> Result<(), Error> {
    let change = |bits: &mut [u8], is_set: bool| match is_set {
        true => clusters.clone().for_each(|run| bitmap::set_range(bits, run)),
        false => clusters.clone().for_each(|run| bitmap::clear_range(bits, run)),
    };
    change_block_bitmap(edit, no, desc, |bits| change(bits, is_set))?;
    write_descriptor(edit, no, desc).inspect_err(|_| {
        edit.take_back(|edit| change_block_bitmap(edit, no, desc, |bits| change(bits, !is_set)));
    })
}

/// Sets or clears an inode's bit and stores the descriptor: both or neither.
fn change_inode_bit<E: Edit>(
    edit: &mut E,
    no: GroupNo,
    desc: &mut GroupDesc,
    index: u32,
    is_set: bool,
) -> Result<(), Error> {
    change_bit(edit, no, desc, index, is_set)?;
    store_after_bit(edit, no, desc, is_set).inspect_err(|_| {
        edit.take_back(|edit| change_bit(edit, no, desc, index, !is_set));
    })
}

/// Stores the descriptor of a group in which an inode's bit was changed.
fn store_after_bit<E: Edit>(
    edit: &mut E,
    no: GroupNo,
    desc: &mut GroupDesc,
    is_set: bool,
) -> Result<(), Error> {
    if is_set && group::is_implied(edit.geometry(), BitmapKind::Block, desc) {
        // A group with inodes in use has its block bitmap stored.
        change_block_bitmap(edit, no, desc, |_| {})?;
    }
    write_descriptor(edit, no, desc)
}

/// The first inode of a group that is free and not reserved, from a place in its table on.
pub(crate) fn free_inode_from<S: MetadataRead>(
    source: &S,
    no: GroupNo,
    desc: &GroupDesc,
    from: u32,
) -> Result<Option<u32>, Error> {
    let geometry = source.geometry();
    let first = u64::from(no.0) * u64::from(geometry.inodes_per_group) + 1;
    // Below a group's inodes wherever it matters; past them nothing is found.
    let reserved = u64::from(geometry.first_inode.0).saturating_sub(first);
    let from = from.max(reserved.min(u64::from(u32::MAX)) as u32);
    if from >= geometry.inodes_per_group {
        return Ok(None);
    }
    if group::is_implied(geometry, BitmapKind::Inode, desc) {
        return Ok(Some(from));
    }
    let bits = group::stored_bitmap(source, no, BitmapKind::Inode, desc)?;
    Ok(bitmap::next_clear(&bits, from..geometry.inodes_per_group))
}

fn count_taken_inode(no: GroupNo, desc: &mut GroupDesc, is_dir: bool) -> Result<(), Error> {
    desc.free_inodes = desc.free_inodes.checked_sub(1).ok_or_else(|| {
        Flaw::below_limit("free_inodes", 0_u32, 1_u32).at(Location::GroupDesc(no))
    })?;
    desc.used_dirs += u32::from(is_dir);
    Ok(())
}

/// Marks a free inode as in use and clears its record; `desc` is the group's descriptor as it is,
/// and as it is afterwards. Blocks of the table in which no inode was ever used are not read: they
/// may hold anything.
pub(crate) fn take_inode<E: Edit>(
    edit: &mut E,
    no: GroupNo,
    desc: &mut GroupDesc,
    index: u32,
    is_dir: bool,
) -> Result<InodeNo, Error> {
    let geometry = edit.geometry().clone();
    let number = InodeNo(no.0 * geometry.inodes_per_group + index + 1);
    let used = desc.itable_used(&geometry);
    count_taken_inode(no, desc, is_dir)?;

    let per_block = geometry.inodes_per_block();
    let block = BlockNo(desc.inode_table.0 + u64::from(index / per_block));
    let kind = BlockKind::InodeTable { group: no };
    let first_of_block = index - index % per_block;
    let clear = |table: &mut [u8]| {
        let size = usize::from(geometry.inode_size);
        let at = (index % per_block) as usize * size;
        table[at..at + size].fill(0);
    };
    if geometry.has_uninit_groups() && first_of_block >= used {
        edit.create(block, kind, |_| {})?;
    } else {
        edit.modify(block, kind, clear)?;
    }
    if geometry.has_uninit_groups() {
        desc.itable_unused = geometry.inodes_per_group - used.max(index + 1);
    }
    change_inode_bit(edit, no, desc, index, true)?;
    Ok(number)
}

/// Marks an inode that was just freed as in use again, whatever its record holds; `desc` as for
/// [`take_inode`].
pub(crate) fn retake_inode<E: Edit>(
    edit: &mut E,
    no: GroupNo,
    desc: &mut GroupDesc,
    index: u32,
    is_dir: bool,
) -> Result<(), Error> {
    let bits = group::stored_bitmap(edit, no, BitmapKind::Inode, desc)?;
    if bitmap::test(&bits, index) {
        let flaw = Flaw::bad_value("the inode is another's by now: bit", index);
        return Err(flaw.at(Location::InodeBitmap(no)).into());
    }
    count_taken_inode(no, desc, is_dir)?;
    change_inode_bit(edit, no, desc, index, true)
}

/// Marks an inode as free; `desc` is the group's descriptor as it is, and as it is afterwards.
pub(crate) fn give_inode<E: Edit>(
    edit: &mut E,
    no: GroupNo,
    desc: &mut GroupDesc,
    index: u32,
    is_dir: bool,
) -> Result<(), Error> {
    let place = Location::InodeBitmap(no);
    let is_used = !group::is_implied(edit.geometry(), BitmapKind::Inode, desc)
        && bitmap::test(&group::stored_bitmap(edit, no, BitmapKind::Inode, desc)?, index);
    if !is_used {
        return Err(Flaw::bad_value("freed inode is already free: bit", index).at(place).into());
    }
    desc.free_inodes += 1;
    desc.used_dirs = desc.used_dirs.saturating_sub(u32::from(is_dir));
    change_inode_bit(edit, no, desc, index, false)
}
