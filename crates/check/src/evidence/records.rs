//! Records of inode tables: which ones of a block cannot be, and what a copy has in their place.

use extant_ondisk::extent::{ExtentNode, NodeLimits, NodeOwner};
use extant_ondisk::indirect;
use extant_ondisk::inode::{self, FileType, Inode, RawInode};
use extant_ondisk::{Geometry, IncompatFeatures, InodeNo};
use zerocopy::FromBytes;

/// A block of an inode table, with some of its records taken from a copy.
pub(crate) struct Merged {
    pub(crate) bytes: Vec<u8>,
    /// The inodes whose records are those of the copy.
    pub(crate) numbers: Vec<InodeNo>,
}

/// The record of an inode in its place and in a copy, which differ.
pub(crate) struct Pair<'b> {
    pub(crate) number: InodeNo,
    pub(crate) in_place: &'b [u8],
    pub(crate) copy: &'b [u8],
}

pub(crate) fn is_zero(record: &[u8]) -> bool {
    record.iter().all(|byte| *byte == 0)
}

/// Whether a record has the right checksum, and what it says of its type and map can be.
pub(crate) fn is_sound(record: &[u8], number: InodeNo, geometry: &Geometry) -> bool {
    inode::verify(record, number, geometry).is_ok() && is_possible(record, number, geometry)
}

/// Whether what a record says of its type and map can be. A free inode's can be anything.
fn is_possible(record: &[u8], number: InodeNo, geometry: &Geometry) -> bool {
    let Ok(inode) = Inode::decode(record, number, geometry) else { return false };
    if inode.links == 0 {
        return true;
    }
    if inode.dtime != 0 {
        return false;
    }
    let is_mapped = match inode.file_type() {
        Some(FileType::Regular | FileType::Directory) => true,
        Some(FileType::Symlink) => !inode.is_fast_symlink(geometry),
        Some(_) => false,
        // Reserved inodes may have none.
        None => return number < geometry.first_inode && number != InodeNo::ROOT,
    };
    if !is_mapped {
        return true;
    }
    if inode.is_inline() {
        return geometry.has_incompat(IncompatFeatures::INLINE_DATA);
    }
    if inode.is_extent_mapped() {
        let owner = NodeOwner { inode: number, generation: inode.generation, block: None };
        return ExtentNode::check(&inode.i_block, &owner, &NodeLimits::ROOT, geometry).is_ok();
    }
    indirect::pointers(&inode.i_block).all(|block| block.0 == 0 || geometry.contains(block, 1))
}

impl Pair<'_> {
    /// The copy is the last content: it takes the place of any record that is wrong. A record of
    /// zeros is wrong where the inode is in use.
    pub(crate) fn is_replaced_by_last(&self, geometry: &Geometry) -> bool {
        if is_zero(self.in_place) {
            return is_in_use(self.copy) && is_sound(self.copy, self.number, geometry);
        }
        !is_sound(self.in_place, self.number, geometry)
            && (is_zero(self.copy) || is_sound(self.copy, self.number, geometry))
    }

    /// The copy may be older: it takes the place of a record of which nothing can be read, if it is
    /// that of a file. The caller knows whether the inode is in use.
    pub(crate) fn is_replaced_by_older(&self, geometry: &Geometry) -> bool {
        let is_lost = is_zero(self.in_place) || !is_possible(self.in_place, self.number, geometry);
        is_lost && is_in_use(self.copy) && is_sound(self.copy, self.number, geometry)
    }
}

fn is_in_use(record: &[u8]) -> bool {
    RawInode::ref_from_prefix(record)
        .is_ok_and(|(raw, _)| raw.i_links_count.get() > 0 && raw.i_dtime.get() == 0)
}

/// The block in place with the records of the copy that `takes` chooses; `None` if there are none.
/// `first` is the inode of the first record.
pub(crate) fn merged(
    in_place: &[u8],
    copy: &[u8],
    first: InodeNo,
    geometry: &Geometry,
    mut takes: impl FnMut(&Pair<'_>) -> bool,
) -> Option<Merged> {
    let size = usize::from(geometry.inode_size);
    let (mut bytes, mut numbers) = (in_place.to_vec(), Vec::new());
    let records = in_place.chunks_exact(size).zip(copy.chunks_exact(size));
    let in_group = first.0.wrapping_sub(1) % geometry.inodes_per_group;
    // The last block of a table may have room for more.
    let count = (geometry.inodes_per_group - in_group) as usize;
    for (index, (in_place, copy)) in records.enumerate().take(count) {
        let number = InodeNo(first.0.saturating_add(index as u32)); // records of one block
        if in_place != copy && takes(&Pair { number, in_place, copy }) {
            bytes[index * size..(index + 1) * size].copy_from_slice(copy);
            numbers.push(number);
        }
    }
    (!numbers.is_empty()).then_some(Merged { bytes, numbers })
}

/// Inodes in words: `inode 12`, `inodes 12, 14 to 16`.
pub(crate) fn list(numbers: &[InodeNo]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number.0 => *last = number.0,
            _ => runs.push((number.0, number.0)),
        }
    }
    let shown = runs.iter().map(|(first, last)| match last - first {
        0 => format!("{first}"),
        _ => format!("{first} to {last}"),
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    if numbers.len() == 1 { format!("inode {shown}") } else { format!("inodes {shown}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_are_listed_in_runs() {
        let list =
            |numbers: &[u32]| list(&numbers.iter().copied().map(InodeNo).collect::<Vec<_>>());
        assert_eq!(list(&[12]), "inode 12");
        assert_eq!(list(&[12, 14, 15, 16, 20]), "inodes 12, 14 to 16, 20");
    }
}
