//! Blocks that a file and something else claim, and inodes that contain the record of another one:
//! the parts that a repair keeps.

use super::hand::{Base, EXT2, EXT4, FRAGMENTS, Hand, PLAIN, put16, put32};
use super::kept::{can_make, repair};
use extant_check::Code;
use extant_ondisk::inode::FileType;
use extant_ondisk::{BlockNo, GroupNo, InodeNo};
use extant_testkit::{copied, skip};

/// Where `i_block` starts in a record.
const MAP: usize = 0x28;
/// Where the first index of a root has the node, and where the first extent has its block.
const FIRST_PLACE: usize = MAP + 12 + 4;
const FIRST_START: usize = MAP + 12 + 8;

/// Files of many extents, without checksums.
const FRAGMENTS_PLAIN: Base = Base { name: "fragments, plain", mke2fs: PLAIN.mke2fs, ..FRAGMENTS };

fn word(hand: &Hand, number: InodeNo, at: usize) -> u32 {
    let record = hand.volume.read_inode(number).expect("reads");
    u32::from_le_bytes(record[at..at + 4].try_into().expect("four bytes"))
}

fn contents(hand: &Hand, path: &str) -> Vec<Vec<u8>> {
    let blocks = hand.blocks(hand.find(path)).into_iter();
    blocks.map(|block| hand.volume.read(BlockNo(block)).expect("reads")).collect()
}

/// A block of an inode table in which no inode is in use.
fn unused_table_block(hand: &Hand) -> u64 {
    hand.volume.desc(GroupNo(1)).inode_table.0 + 20
}

fn copy_block(hand: &Hand, from: u64, to: u64) {
    let bytes = hand.volume.read(BlockNo(from)).expect("reads");
    hand.block(to, |block| block.copy_from_slice(&bytes));
}

/// With checksums it is known by its own, without by what it holds.
#[test]
fn a_node_of_a_file_on_an_inode_table_gets_a_copy() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    for base in [FRAGMENTS, FRAGMENTS_PLAIN] {
        let image = base.make();
        let hand = Hand::on(&image.path());
        let (number, place) = (hand.find("holes"), unused_table_block(&hand));
        let before = hand.blocks(number);
        copy_block(&hand, u64::from(word(&hand, number, FIRST_PLACE)), place);
        hand.file("holes", |record| put32(record, FIRST_PLACE, place as u32));
        drop(hand);
        let done = repair(&image);
        assert!(done.contains(&Code::MultiplyClaimed), "{}: {done:?}", base.name);
        assert!(!done.contains(&Code::MapOnMetadata), "{}: {done:?}", base.name);
        let hand = Hand::on(&image.path());
        assert_eq!(hand.blocks(hand.find("holes")), before, "{}", base.name);
    }
}

#[test]
fn an_indirect_block_on_an_inode_table_or_a_bitmap_gets_a_copy() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let healthy = EXT2.make();
    for is_bitmap in [false, true] {
        let image = copied(&healthy.path()).expect("a copy");
        let hand = Hand::on(&image.path());
        let number = hand.find("long");
        let place = match is_bitmap {
            true => hand.volume.desc(GroupNo(1)).block_bitmap.0,
            false => unused_table_block(&hand),
        };
        let before = hand.blocks(number);
        copy_block(&hand, u64::from(word(&hand, number, MAP + 4 * 12)), place);
        hand.file("long", |record| put32(record, MAP + 4 * 12, place as u32));
        drop(hand);
        let done = repair(&image);
        assert!(!done.contains(&Code::MapOnMetadata), "{done:?}");
        let hand = Hand::on(&image.path());
        assert_eq!(hand.blocks(hand.find("long")), before);
    }
}

/// The table is repaired first: its apparent inodes change.
#[test]
fn contents_on_an_inode_table_are_copied_as_they_were() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    for base in [PLAIN, EXT4] {
        let image = base.make();
        let hand = Hand::on(&image.path());
        let (number, place) = (hand.find("small"), unused_table_block(&hand));
        hand.block(hand.blocks(number)[0], |bytes| {
            for at in (0..bytes.len()).step_by(256) {
                put16(bytes, at, 0o100_644);
                put16(bytes, at + 0x1a, 1);
                put32(bytes, at + 0x14, 0x5000_0000); // a time of deletion
            }
        });
        let before = contents(&hand, "small");
        copy_block(&hand, hand.blocks(number)[0], place);
        hand.file("small", |record| put32(record, FIRST_START, place as u32));
        let mut hand = hand;
        hand.desc(1, |desc| desc.itable_unused = 0);
        drop(hand);
        let done = repair(&image);
        assert!(done.contains(&Code::MultiplyClaimed), "{}: {done:?}", base.name);
        assert_eq!(contents(&Hand::on(&image.path()), "small"), before, "{}", base.name);
    }
}

/// The map is what is wrong, and the other file's contents are taken for a part of it.
#[test]
fn pointers_are_not_cleared_in_the_contents_of_another_file() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = EXT2.make();
    let hand = Hand::on(&image.path());
    let place = hand.blocks(hand.find("other"))[0];
    hand.block(place, |bytes| {
        bytes.fill(0);
        put32(bytes, 40, 0xffff_fff0);
    });
    let before = contents(&hand, "other");
    hand.file("file", |record| put32(record, MAP + 4 * 12, place as u32));
    drop(hand);
    assert!(repair(&image).contains(&Code::MultiplyClaimed));
    assert_eq!(contents(&Hand::on(&image.path()), "other"), before);
}

/// The name and its type stay; nothing of the other inode shows there.
#[test]
fn an_inode_with_the_record_of_another_one_is_emptied() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let healthy = EXT4.make();
    let cases = [
        ("file", "other", FileType::Regular),
        ("file", "sub", FileType::Directory),
        ("dir", "long", FileType::Regular),
        ("", "tiny", FileType::Regular),
        ("file", "fifo", FileType::Fifo),
    ];
    for (from, to, file_type) in cases {
        let image = copied(&healthy.path()).expect("a copy");
        let hand = Hand::on(&image.path());
        let (source, number) = (hand.find(from), hand.find(to));
        let before = hand.blocks(source);
        let record = hand.volume.read_inode(source).expect("reads");
        hand.unsealed(number, |place| place.copy_from_slice(&record));
        drop(hand);
        let done = repair(&image);
        assert_eq!(done.first(), Some(&Code::InodeIsCopy), "{from} on {to}: {done:?}");
        assert!(!done.contains(&Code::MultiplyClaimed), "{from} on {to}: {done:?}");
        let hand = Hand::on(&image.path());
        assert_eq!([hand.find(from), hand.find(to)], [source, number], "{from} on {to}");
        assert_eq!(hand.blocks(source), before, "{from} on {to}");
        let inode = hand.decoded(number);
        assert_eq!(inode.file_type(), Some(file_type), "{from} on {to}");
        let size = if file_type == FileType::Directory { 1024 } else { 0 };
        assert_eq!(inode.size, size, "{from} on {to}");
    }
}

/// Its map leads to the reserved descriptor blocks, through a block that the resize inode keeps.
#[test]
fn a_file_with_the_map_of_the_resize_inode_gets_a_map_of_its_own() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = EXT4.make();
    let hand = Hand::on(&image.path());
    let record = hand.volume.read_inode(InodeNo::RESIZE).expect("reads");
    hand.file("other", |place| place.copy_from_slice(&record));
    let pointers = usize::from(hand.volume.geometry().reserved_gdt_blocks);
    drop(hand);
    let done = repair(&image);
    // Each pointer is found once: the copy has none of them.
    assert!(done.contains(&Code::MultiplyClaimed), "{done:?}");
    let cut = done.iter().filter(|code| **code == Code::MapOnMetadata).count();
    assert_eq!(cut, pointers, "{done:?}");
    assert_eq!(Hand::on(&image.path()).volume.read_inode(InodeNo::RESIZE).expect("reads"), record);
}

/// Without a name there is nothing to keep.
#[test]
fn a_copied_record_without_a_name_goes() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = EXT4.make();
    let hand = Hand::on(&image.path());
    let (source, number) = (hand.find("file"), hand.find("other"));
    let before = hand.blocks(source);
    let record = hand.volume.read_inode(source).expect("reads");
    hand.unsealed(number, |place| place.copy_from_slice(&record));
    hand.entry("", "other", |entry| put32(entry, 0, 0));
    drop(hand);
    assert_eq!(repair(&image).first(), Some(&Code::InodeIsCopy));
    let hand = Hand::on(&image.path());
    assert_eq!((hand.blocks(source), hand.decoded(number).links), (before, 0));
}

/// The index leads to the block of one of them; the other one is a stranger there.
#[test]
fn of_two_entries_of_one_name_the_one_that_the_index_leads_to_keeps_it() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = EXT4.make();
    let hand = Hand::on(&image.path());
    let dir = hand.find("dir");
    let mut names: Vec<_> = (0..300).map(|number| format!("name-{number:03}")).collect();
    names.sort_by_key(|name| hand.place(dir, name).0);
    let (stranger, name) = (names[0].clone(), names[299].clone());
    let numbers = [hand.find(&format!("dir/{stranger}")), hand.find(&format!("dir/{name}"))];
    hand.entry("dir", &stranger, |entry| entry[8..8 + name.len()].copy_from_slice(name.as_bytes()));
    drop(hand);
    assert!(repair(&image).contains(&Code::NameNotUnique));
    let hand = Hand::on(&image.path());
    assert_eq!(hand.find(&format!("dir/{name}")), numbers[1]);
    assert_eq!(hand.find(&format!("dir/{}~0", &name[..6])), numbers[0]);
}
