//! Damages to what few volumes have: features without a revision for them, trees deeper than any
//! file needs, reserved inodes with a mode, lists of bad blocks that have the block they are kept
//! in.

use extant_check::Code;
use extant_ondisk::{BlockNo, CompatFeatures, InodeNo};

use super::damages::{Damage, FREE, compat, on, with};
use super::hand::{
    EA_INODE, EXT2_128, EXT4, Hand, MARKS, META_BG, NO_JOURNAL, ORPHAN_FILE, PLAIN, PROJECT, put16,
    put32,
};
use super::pass0::{FROM_BACKUP, primary};

/// A node of extents with one entry, the first block of all below it.
fn lead_to(node: &mut [u8], most: u16, depth: u16, below: u64) {
    node.fill(0);
    for (at, value) in [(0, 0xf30a), (2, 1), (4, most), (6, depth)] {
        put16(node, at, value);
    }
    put32(node, 16, below as u32);
}

/// Puts a number of nodes between the root of a file's tree and its extents.
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

/// A file with a name and a time of deletion.
fn in_use_and_deleted(record: &mut [u8]) {
    put16(record, 0, 0o100_600);
    put16(record, 0x1a, 1);
    put32(record, 0x14, 0x5f00_0000);
}

pub(crate) const DAMAGES: &[Damage] = &[
    // The superblock: the revision, where the first group begins, a file of orphans without its
    // feature.
    on(Code::InodeSizeOfRevisionZero, PLAIN, |hand| {
        hand.block(1, |bytes| put32(bytes, 0x4c, 0));
    }),
    on(Code::FeaturesOfRevisionZero, EXT2_128, |hand| {
        hand.superblock(|raw| raw.s_rev_level.set(0));
    }),
    // Fewer blocks than there are: groups are missing then.
    with(Code::SuperblockInvalid, ORPHAN_FILE, FROM_BACKUP, |hand| {
        primary(hand, |raw| raw.s_blocks_count_lo.set(5000))
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
    // A block of attributes, where no feature says that there are any; ea_inode does not.
    with(
        Code::FieldNotZero,
        EA_INODE,
        &[
            Code::InodeBlocksWrong,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| hand.superblock(|raw| compat(raw, CompatFeatures::EXT_ATTR, false)),
    ),
    // Unused reserved inodes that are in use and deleted: both are reported, and one repair fixes
    // both.
    with(Code::QuotaNotInUse, EXT4, &[Code::InUseWithDtime], |hand| {
        hand.inode(InodeNo::USER_QUOTA, in_use_and_deleted);
    }),
    with(Code::JournalNotInUse, NO_JOURNAL, &[Code::InUseWithDtime], |hand| {
        hand.inode(InodeNo::JOURNAL, in_use_and_deleted);
    }),
    // Levels that no program can walk, below a root that leads to none.
    with(Code::ExtentTreeBeyondLimit, EXT4, &[Code::ExtentTreeTooDeep], |hand| {
        hand.file("dir/name-100", |record| put16(record, 0x2e, 0x8000));
    }),
    // One file for two quotas: the one of projects has no number of its own.
    with(
        Code::QuotaInodeBad,
        PROJECT,
        &[
            Code::QuotaNotInUse,
            Code::BlockBitmapWrong,
            Code::GroupFreeBlocksWrong,
            Code::FreeBlocksTotalWrong,
        ],
        |hand| hand.superblock(|raw| raw.s_usr_quota_inum = raw.s_prj_quota_inum),
    ),
    // An unused inode claims to take space.
    on(Code::InodeBlocksWrong, EXT4, |hand| {
        hand.inode(InodeNo(6), |record| put32(record, 0x1c, 8));
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
