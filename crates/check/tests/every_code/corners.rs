//! Damages to what few volumes have: features without a revision for them, trees deeper than any file needs, reserved inodes with a
//! mode, lists of bad blocks that have the block they are kept in.

use extant_check::Code;
use extant_ondisk::{BlockNo, InodeNo};

use super::damages::{Damage, FREE, on, with};
use super::hand::{EXT4, Hand, MARKS, META_BG, PLAIN, put16, put32};

/// A node of extents with one entry, the first block of all below it.
fn lead_to(node: &mut [u8], most: u16, depth: u16, below: u64) {
    node.fill(0);
    for (at, value) in [(0, 0xf30a), (2, 1), (4, most), (6, depth)] {
        put16(node, at, value);
    }
    put32(node, 16, below as u32);
}

/// Puts so many nodes between the root of a file's tree and its extents.
pub(crate) fn deepen(hand: &mut Hand, path: &str, levels: u16) {
    const MOST: u16 = 84;
    let runs = hand.volume.take_blocks(BlockNo(0), u64::from(levels)).expect("there is room");
    hand.volume.commit().expect("writes");
    let nodes: Vec<u64> = runs.into_iter().flatten().collect();
    let root = hand.decoded(hand.find(path)).i_block;
    for (at, depth) in (0..levels).rev().enumerate() {
        hand.block(nodes[at], |bytes| match nodes.get(at + 1) {
            Some(below) => lead_to(bytes, MOST, depth, *below),
            None => {
                bytes.fill(0);
                bytes[..root.len()].copy_from_slice(&root);
                put16(bytes, 4, MOST);
            }
        });
    }
    hand.file(path, |record| {
        lead_to(&mut record[0x28..0x64], 4, levels, nodes[0]);
        let sectors = u32::from_le_bytes(record[0x1c..0x20].try_into().expect("four bytes"));
        put32(record, 0x1c, sectors + 2 * u32::from(levels));
    });
}

pub(crate) const DAMAGES: &[Damage] = &[
    // The superblock: the revision, where the first group begins, a file of orphans without its feature.
    on(Code::FeaturesOfRevisionZero, PLAIN, |hand| {
        hand.block(1, |bytes| put32(bytes, 0x4c, 0));
    }),
    with(
        Code::SuperblockInvalid,
        PLAIN,
        &[Code::GroupFreeBlocksWrong, Code::FreeBlocksTotalWrong],
        |hand| hand.block(1, |bytes| put32(bytes, 0x14, 0)),
    ),
    on(Code::OrphanFileWithoutFeature, PLAIN, |hand| {
        hand.superblock(|raw| raw.s_orphan_file_inum.set(20));
    }),
    on(Code::ExtentTreeBeyondLimit, PLAIN, |hand| deepen(hand, "long", 6)),
    // No kernel reads it.
    on(Code::ExtentTreeBeyondLimit, PLAIN, |hand| deepen(hand, "long", 9)),
    // A node says that it is the top of a tree of its own.
    on(Code::ExtentNodeLevel, PLAIN, |hand| {
        deepen(hand, "long", 1);
        let root = hand.decoded(hand.find("long")).i_block;
        let node = u32::from_le_bytes(root[16..20].try_into().expect("four bytes"));
        hand.block(u64::from(node), |bytes| put16(bytes, 6, 3));
    }),
    // The inode of descriptors on a volume that has none, a socket.
    on(Code::ReservedInodeMode, META_BG, |hand| {
        hand.inode(InodeNo::RESIZE, |record| put16(record, 0, 0o140_644));
    }),
    with(Code::EntryNeverUsedInode, MARKS, &[Code::UnattachedInode], |hand| {
        hand.entry("", "file", |entry| put32(entry, 0, FREE.0));
    }),
    // The list of bad blocks has the block that it is kept in.
    on(Code::BadBlockIllegal, EXT4, |hand| {
        let free = hand.free_blocks();
        let mut bad = extant_layout::RunSet::new();
        for block in free.iter().flatten().skip(100).step_by(7).take(14) {
            bad.insert(block..block + 1);
        }
        hand.bad_blocks(&bad);
        let list = hand.decoded(InodeNo::BAD_BLOCKS).i_block;
        let node = u32::from_le_bytes(list[48..52].try_into().expect("four bytes"));
        hand.block(u64::from(node), |bytes| put32(bytes, 8, node));
    }),
];
