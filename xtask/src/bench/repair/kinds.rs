//! Kinds of damage: each writes over a volume, and returns how many of its things it damaged.

use super::volume::{BLOCK, Inode, Volume, records, u16_at, u32_at};
use crate::Failure;

/// A kind of damage.
pub(super) struct Kind {
    /// Its name, for the table.
    pub(super) name: &'static str,
    /// Damages a volume; the number of structures that are damaged.
    pub(super) damage: fn(&mut Volume) -> Result<usize, Failure>,
}

pub(super) const KINDS: [Kind; 22] = [
    Kind { name: "bitmaps of blocks zeroed", damage: |volume| bitmaps(volume, 0) },
    Kind { name: "bitmaps of inodes zeroed", damage: |volume| bitmaps(volume, 4) },
    Kind { name: "counts of the descriptors wrong", damage: counts },
    Kind { name: "link counts wrong", damage: link_counts },
    Kind { name: "checksums of inodes wrong", damage: inode_checksums },
    Kind { name: "i_blocks wrong", damage: block_counts },
    Kind { name: "sizes wrong", damage: sizes },
    Kind { name: "extents past the volume's end", damage: wild_extents },
    Kind { name: "nodes of extents zeroed", damage: extent_nodes },
    Kind { name: "blocks claimed by two files", damage: shared_blocks },
    Kind { name: "counts of owners of attributes wrong", damage: owners },
    Kind { name: "directory blocks zeroed", damage: names_zeroed },
    Kind { name: "checksums of directory blocks wrong", damage: name_checksums },
    Kind { name: "types of names wrong", damage: name_types },
    Kind { name: "names of unused inodes", damage: unused_names },
    Kind { name: "parents of directories wrong", damage: parents },
    Kind { name: "indexes of directories wrong", damage: indexes },
    Kind { name: "root directory zeroed", damage: root },
    Kind { name: "orphans in the list", damage: orphans },
    Kind { name: "blocks of inode tables zeroed", damage: tables },
    Kind { name: "superblock zeroed", damage: superblock },
    Kind { name: "descriptors zeroed", damage: descriptors },
];

/// Adds to a field of 16 bits of a record.
fn add(record: &mut [u8], at: usize, more: u16) {
    let value = u16_at(record, at).wrapping_add(more);
    record[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

fn bitmaps(volume: &mut Volume, at: usize) -> Result<usize, Failure> {
    let places: Vec<u64> =
        (0..volume.groups()).filter_map(|group| volume.place(group, at)).collect();
    places.iter().try_for_each(|place| volume.zero(*place))?;
    Ok(places.len())
}

fn counts(volume: &mut Volume) -> Result<usize, Failure> {
    let groups = volume.groups();
    (0..groups).try_for_each(|group| volume.change_counts(group, 3))?;
    Ok(groups)
}

/// Changes each `each`th of the inodes that are meant, and writes them with their checksums.
fn change_each(
    volume: &Volume,
    each: usize,
    is_meant: impl Fn(&Inode) -> bool,
    change: impl Fn(&mut [u8]),
) -> Result<usize, Failure> {
    let mut count = 0;
    for mut inode in volume.inodes()?.into_iter().filter(is_meant).step_by(each) {
        change(&mut inode.record);
        volume.write_inode(&mut inode)?;
        count += 1;
    }
    Ok(count)
}

fn link_counts(volume: &mut Volume) -> Result<usize, Failure> {
    change_each(volume, 4, Inode::is_file, |record| add(record, 26, 2))
}

fn block_counts(volume: &mut Volume) -> Result<usize, Failure> {
    change_each(volume, 4, Inode::is_file, |record| add(record, 28, 8))
}

fn sizes(volume: &mut Volume) -> Result<usize, Failure> {
    let has_blocks = |inode: &Inode| inode.is_file() && u32_at(&inode.record, 28) > 8;
    change_each(volume, 1, has_blocks, |record| record[4..8].fill(0))
}

fn inode_checksums(volume: &mut Volume) -> Result<usize, Failure> {
    let mut count = 0;
    for mut inode in volume.inodes()?.into_iter().filter(Inode::is_file).step_by(8) {
        inode.record[124] ^= 0x55;
        volume.write_raw_inode(&inode)?;
        count += 1;
    }
    Ok(count)
}

/// Files of one extent with some blocks: the count of its blocks is in the first record.
fn is_large_file(inode: &Inode) -> bool {
    let root = &inode.record[40..100];
    inode.is_file() && u16_at(root, 2) == 1 && u16_at(root, 6) == 0 && u16_at(root, 16) > 8
}

fn wild_extents(volume: &mut Volume) -> Result<usize, Failure> {
    let past_end = (volume.blocks + 1000) as u32;
    change_each(volume, 4, is_large_file, |record| {
        record[60..64].copy_from_slice(&past_end.to_le_bytes());
    })
}

fn extent_nodes(volume: &mut Volume) -> Result<usize, Failure> {
    let mut count = 0;
    for inode in volume.inodes()?.iter().filter(|inode| inode.is_file()) {
        let nodes = volume.map(inode)?.nodes;
        if count % 2 == 0 {
            nodes.iter().try_for_each(|node| volume.zero(*node))?;
        }
        count += usize::from(!nodes.is_empty());
    }
    Ok(count.div_ceil(2))
}

fn shared_blocks(volume: &mut Volume) -> Result<usize, Failure> {
    let files: Vec<Inode> = volume.inodes()?.into_iter().filter(is_large_file).collect();
    let mut count = 0;
    for pair in files.chunks_exact(2).step_by(2) {
        let mut second = pair[1].clone();
        second.record[60..64].copy_from_slice(&pair[0].record[60..64]);
        volume.write_inode(&mut second)?;
        count += 2;
    }
    Ok(count)
}

fn owners(volume: &mut Volume) -> Result<usize, Failure> {
    let inodes = volume.inodes()?;
    let mut blocks: Vec<u64> = inodes.iter().map(Inode::attributes).collect();
    blocks.sort_unstable();
    blocks.dedup();
    blocks.retain(|block| *block != 0);
    blocks.iter().try_for_each(|block| volume.set_owners(*block, 7))?;
    Ok(blocks.len())
}

/// Each `each`th directory but the root, with its blocks.
fn directories(volume: &Volume, each: usize) -> Result<Vec<(Inode, Vec<u64>)>, Failure> {
    let mut all = Vec::new();
    let is_meant = |inode: &Inode| inode.is_dir() && inode.number > 2;
    for dir in volume.inodes()?.into_iter().filter(is_meant).step_by(each) {
        let runs = volume.map(&dir)?.runs;
        let blocks = runs.iter().flat_map(|(start, len)| *start..start + len).collect();
        all.push((dir, blocks));
    }
    Ok(all)
}

fn names_zeroed(volume: &mut Volume) -> Result<usize, Failure> {
    let dirs = directories(volume, 16)?;
    dirs.iter()
        .filter_map(|(_, blocks)| blocks.last())
        .try_for_each(|block| volume.zero(*block))?;
    Ok(dirs.len())
}

fn name_checksums(volume: &mut Volume) -> Result<usize, Failure> {
    let mut count = 0;
    for (dir, blocks) in directories(volume, 2)? {
        for block in blocks.into_iter().skip(usize::from(dir.is_indexed())) {
            let mut bytes = volume.read(block)?;
            bytes[BLOCK - 1] ^= 0x55;
            volume.write(block, &bytes)?;
            count += 1;
        }
    }
    Ok(count)
}

/// Changes the names of each `each`th directory; the number of names that are changed.
fn change_names(
    volume: &Volume,
    each: usize,
    mut change: impl FnMut(&mut [u8], usize) -> bool,
) -> Result<usize, Failure> {
    let mut count = 0;
    for (dir, blocks) in directories(volume, each)? {
        for block in blocks.into_iter().skip(usize::from(dir.is_indexed())) {
            let mut bytes = volume.read(block)?;
            for at in records(&bytes) {
                let is_dot = bytes[at + 6] <= 2 && bytes[at + 8] == b'.';
                if !is_dot && u32_at(&bytes, at) != 0 {
                    count += usize::from(change(&mut bytes, at));
                }
            }
            volume.write_names(&dir, block, &mut bytes)?;
        }
    }
    Ok(count)
}

fn name_types(volume: &mut Volume) -> Result<usize, Failure> {
    change_names(volume, 8, |bytes, at| {
        bytes[at + 7] = 3;
        true
    })
}

fn unused_names(volume: &mut Volume) -> Result<usize, Failure> {
    let inodes = volume.inodes()?;
    let unused = inodes.last().map_or(0, |last| last.number + 1);
    change_names(volume, 16, |bytes, at| {
        let is_meant = at % 5 == 0 && bytes[at + 7] == 1;
        if is_meant {
            bytes[at..at + 4].copy_from_slice(&unused.to_le_bytes());
        }
        is_meant
    })
}

fn parents(volume: &mut Volume) -> Result<usize, Failure> {
    let mut count = 0;
    for (dir, blocks) in directories(volume, 4)? {
        let is_meant = !dir.is_indexed();
        if let Some(first) = blocks.first().filter(|_| is_meant) {
            let mut bytes = volume.read(*first)?;
            bytes[12..16].copy_from_slice(&11_u32.to_le_bytes());
            volume.write_names(&dir, *first, &mut bytes)?;
            count += 1;
        }
    }
    Ok(count)
}

fn indexes(volume: &mut Volume) -> Result<usize, Failure> {
    let mut count = 0;
    for (dir, blocks) in directories(volume, 1)? {
        if let Some(first) = blocks.first().filter(|_| dir.is_indexed()) {
            let mut bytes = volume.read(*first)?;
            bytes[44..BLOCK - 8].fill(0);
            volume.write(*first, &bytes)?;
            count += 1;
        }
    }
    Ok(count)
}

fn root(volume: &mut Volume) -> Result<usize, Failure> {
    let root = volume.inodes()?.into_iter().find(|inode| inode.number == 2);
    let runs = volume.map(&root.ok_or("the volume has no root directory")?)?.runs;
    runs.iter().try_for_each(|(start, _)| volume.zero(*start))?;
    Ok(runs.len())
}

/// The files of some directories lose their names and are in the list of orphans.
fn orphans(volume: &mut Volume) -> Result<usize, Failure> {
    let mut lost = std::collections::BTreeSet::new();
    change_names(volume, 32, |bytes, at| {
        let is_file = bytes[at + 7] == 1;
        if is_file {
            lost.insert(u32_at(bytes, at));
            bytes[at..at + 4].fill(0);
        }
        is_file
    })?;
    let mut next = 0_u32;
    for mut inode in volume.inodes()?.into_iter().filter(|inode| lost.contains(&inode.number)) {
        inode.record[26..28].fill(0);
        inode.record[20..24].copy_from_slice(&next.to_le_bytes());
        volume.write_inode(&mut inode)?;
        next = inode.number;
    }
    volume.set_first_orphan(next)?;
    Ok(lost.len())
}

/// A stretch of the tables of some groups.
fn tables(volume: &mut Volume) -> Result<usize, Failure> {
    let mut count = 0;
    for group in (0..volume.groups()).step_by(4) {
        let start = volume.place(group, 8).unwrap_or_default() + 40;
        (start..start + 32).try_for_each(|block| volume.zero(block))?;
        count += 32;
    }
    Ok(count)
}

fn superblock(volume: &mut Volume) -> Result<usize, Failure> {
    volume.zero(0)?;
    Ok(1)
}

fn descriptors(volume: &mut Volume) -> Result<usize, Failure> {
    volume.zero(1)?;
    Ok(1)
}
