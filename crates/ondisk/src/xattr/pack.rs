//! Locations of attributes: as many as fit after the inode's fields, the rest in a block, large
//! values in their own inodes if the volume has ea_inode.

use super::{NameIndex, Xattr, room_in_block, room_in_inode};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// The room for attributes of one inode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Room {
    /// Bytes after the inode's `i_extra_isize`, including the magic number.
    pub inode_space: usize,
    /// Block size in bytes; 0 if the inode must not have a block.
    pub block_size: usize,
    /// Whether values may be stored in their own inodes.
    pub has_ea_inodes: bool,
}

/// The locations of attributes, by their index in the packed list. Every attribute is in exactly
/// one of `in_inode`, `in_block` and `does_not_fit`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Packing {
    /// Entries after the inode's fields.
    pub in_inode: Vec<usize>,
    /// Entries in the block, which is needed only if there are any.
    pub in_block: Vec<usize>,
    /// Those of the entries above whose values are stored in their own inodes.
    pub to_ea_inode: Vec<usize>,
    /// Attributes without room: the largest ones, so that most of the others fit.
    pub does_not_fit: Vec<usize>,
}

/// Chooses the locations of attributes. If all of them can fit, a solution is found. Attributes
/// that the file system itself reads (inline data, which must be in the inode, ACLs, security
/// labels) are put into the inode first. The block is avoided if possible, and values stay with
/// their entry as long as possible.
pub fn pack(entries: &[Xattr], room: Room) -> Packing {
    let mut packing = Packing::default();
    let mut sizes: Vec<usize> = entries.iter().map(Xattr::stored_len).collect();
    let mut places: Vec<usize> = (0..entries.len()).collect();
    places.sort_by_key(|&at| rank(&entries[at]));
    loop {
        if let Some((in_inode, in_block)) = divide(entries, &sizes, &places, room) {
            (packing.in_inode, packing.in_block) = (in_inode, in_block);
            break;
        }
        let largest = |places: &[usize], movable: &dyn Fn(usize) -> bool| {
            places.iter().copied().filter(|&at| movable(at)).max_by_key(|&at| {
                (sizes[at], Reverse(at)) // of equals the first
            })
        };
        let can_move = |at: usize| {
            room.has_ea_inodes
                && rank(&entries[at]) != Rank::InlineData
                && sizes[at] > entries[at].entry_len()
        };
        if let Some(at) = largest(&places, &can_move) {
            sizes[at] = entries[at].entry_len();
            packing.to_ea_inode.push(at);
        } else if let Some(at) = largest(&places, &|_| true) {
            places.retain(|&place| place != at);
            packing.to_ea_inode.retain(|&place| place != at);
            packing.does_not_fit.push(at);
        } else {
            break; // nothing is left to place
        }
    }
    for list in [
        &mut packing.in_inode,
        &mut packing.in_block,
        &mut packing.to_ea_inode,
        &mut packing.does_not_fit,
    ] {
        list.sort_unstable();
    }
    packing
}

/// Priority of an attribute for the inode.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Rank {
    /// Must be in the inode.
    InlineData,
    /// Read together with the inode.
    Lookup,
    Other,
}

fn rank(xattr: &Xattr) -> Rank {
    match xattr.name.index {
        NameIndex::SYSTEM if xattr.name.suffix == b"data" => Rank::InlineData,
        NameIndex::ACL_ACCESS
        | NameIndex::ACL_DEFAULT
        | NameIndex::SECURITY
        | NameIndex::ENCRYPTION => Rank::Lookup,
        _ => Rank::Other,
    }
}

/// Divides `places`, which are sorted by rank, between inode and block; `None` if that is not
/// possible.
fn divide(
    entries: &[Xattr],
    sizes: &[usize],
    places: &[usize],
    room: Room,
) -> Option<(Vec<usize>, Vec<usize>)> {
    let (inode_room, block_room) =
        (room_in_inode(room.inode_space), room_in_block(room.block_size));
    let total = |list: &[usize]| list.iter().map(|&at| sizes[at]).sum::<usize>();
    let must = places.partition_point(|&at| rank(&entries[at]) == Rank::InlineData);
    let (bound, free) = places.split_at(must);
    let left = inode_room.checked_sub(total(bound))?;
    if total(free) > left + block_room {
        return None;
    }
    // In order of rank, while there is room.
    let (mut in_inode, mut in_block, mut taken) = (bound.to_vec(), Vec::new(), 0);
    for &at in free {
        if taken + sizes[at] <= left {
            taken += sizes[at];
            in_inode.push(at);
        } else {
            in_block.push(at);
        }
    }
    if total(&in_block) <= block_room {
        return Some((in_inode, in_block));
    }
    // Fills the inode as far as possible.
    let chosen = fullest(free, sizes, left);
    in_inode = [bound, &chosen].concat();
    in_block = free.iter().copied().filter(|at| !chosen.contains(at)).collect();
    (total(&in_block) <= block_room).then_some((in_inode, in_block))
}

/// The subset with the largest sum up to `limit`. Sizes are multiples of four.
fn fullest(places: &[usize], sizes: &[usize], limit: usize) -> Vec<usize> {
    const UNIT: usize = 4;
    let limit = limit / UNIT;
    // For each possible sum, the item that completed it last; items before that one make the rest
    // of the sum.
    let mut made_by = vec![None; limit + 1];
    let mut largest = 0;
    for (order, &at) in places.iter().enumerate() {
        let size = sizes[at] / UNIT;
        for sum in (0..=largest.min(limit.saturating_sub(size))).rev() {
            let is_made = sum == 0 || made_by[sum].is_some_and(|earlier| earlier < order);
            if is_made && sum + size <= limit && made_by[sum + size].is_none() && size > 0 {
                made_by[sum + size] = Some(order);
                largest = largest.max(sum + size);
            }
        }
    }
    let (mut chosen, mut sum) = (Vec::new(), largest);
    while let Some(order) = made_by[sum] {
        let at = places[order];
        chosen.push(at);
        sum -= sizes[at] / UNIT;
    }
    chosen
}
