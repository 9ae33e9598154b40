//! A repair keeps the names and contents that the damage does not touch, in addition to making the
//! volume sound.

use super::corners::deepen;
use super::damages::{FREE, Requested, ro_compat};
use super::hand::{
    Base, EA_INODE, EXT2, EXT4, FIRST_ATTRIBUTE, Hand, INLINE, PLAIN, SINGLE, device, fsck, put16,
    put32, scan,
};
use extant_check::{AutoPolicy, Code, HandledFinding};
use extant_ondisk::inode::Inode;
use extant_ondisk::{GroupNo, InodeNo};
use extant_testkit::{TempImage, copied, e2fsck_fn, skip, tool};

/// Every file of the bases, so that what is lost shows.
fn paths() -> Vec<String> {
    let few = ["file", "other", "long", "sub/inner/deep", "tiny", "small", "fast", "slow", "fifo"];
    let many = (0..300).map(|number| format!("dir/name-{number:03}"));
    few.into_iter().map(str::to_owned).chain(many).collect()
}

/// Repairs an image; e2fsck finds nothing then. Returns the repaired codes.
pub(crate) fn repair(image: &TempImage) -> Vec<Code> {
    let done =
        fsck(device(&image.path()), &AutoPolicy::Yes, Requested::Nothing).expect("it is repaired");
    e2fsck_fn(&image.path()).expect("nothing to find");
    done.iter().map(|it: &HandledFinding| it.finding.code).collect()
}

pub(crate) fn can_make() -> bool {
    tool("mke2fs").is_some() && tool("e2fsck").is_some()
}

#[test]
fn names_after_a_broken_record_stay_in_their_directory() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let healthy = EXT4.make();
    // Lengths that lead nowhere, back, and past the end.
    for length in [3, 0, 0xffff] {
        let image = copied(&healthy.path()).expect("a copy");
        let hand = Hand::on(&image.path());
        let before: Vec<_> = paths().iter().map(|path| hand.find(path)).collect();
        hand.entry("", "file", |entry| put16(entry, 4, length));
        drop(hand);
        assert_eq!(repair(&image), [Code::DirectoryCorrupted], "length {length}");
        let hand = Hand::on(&image.path());
        let after: Vec<_> = paths().iter().map(|path| hand.find(path)).collect();
        assert_eq!(after, before, "length {length}");
    }
}

#[test]
fn names_between_two_broken_records_stay_in_their_directory() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let healthy = EXT4.make();
    for second in ["other", "long", "tiny", "small", "fast", "slow", "fifo"] {
        let image = copied(&healthy.path()).expect("a copy");
        let hand = Hand::on(&image.path());
        let before: Vec<_> = paths().iter().map(|path| hand.find(path)).collect();
        let to_end = |name| {
            let mut left = 0;
            hand.entry("", name, |entry| left = entry.len());
            left
        };
        let mut names = ["file", second];
        names.sort_by_key(|name| to_end(*name)); // no name is found after a broken one
        for name in names {
            hand.entry("", name, |entry| put16(entry, 4, 3));
        }
        drop(hand);
        assert_eq!(repair(&image), [Code::DirectoryCorrupted; 2], "file and {second}");
        let hand = Hand::on(&image.path());
        let after: Vec<_> = paths().iter().map(|path| hand.find(path)).collect();
        assert_eq!(after, before, "file and {second}");
    }
}

#[test]
fn files_of_a_table_with_a_wrong_location_are_kept() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = EXT4.make();
    let mut hand = Hand::on(&image.path());
    let before: Vec<_> = paths().iter().map(|path| hand.find(path)).collect();
    // Group 0 holds the root, the journal and all files.
    hand.desc(0, |desc| desc.inode_table.0 += 1);
    drop(hand);
    assert_eq!(repair(&image), [Code::GroupTableMoved]);
    let hand = Hand::on(&image.path());
    let after: Vec<_> = paths().iter().map(|path| hand.find(path)).collect();
    assert_eq!(after, before);
}

/// One group has no backup: the table is where mke2fs puts it.
#[test]
fn files_of_a_lost_table_are_kept_without_a_backup() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let plain = &["-t", "ext4", "-b", "4096", "-I", "256", "-O", "^metadata_csum"];
    for base in [SINGLE, Base { name: "single plain", mke2fs: plain, ..SINGLE }] {
        let healthy = base.make();
        let before: Vec<_> = {
            let hand = Hand::on(&healthy.path());
            paths().iter().map(|path| hand.find(path)).collect()
        };
        for (place, code) in [(0, Code::GroupTablePlace), (1500, Code::GroupTableMoved)] {
            let image = copied(&healthy.path()).expect("a copy");
            // The descriptor, of which any checksum is now wrong.
            Hand::on(&image.path()).block(1, |bytes| put32(bytes, 8, place));
            assert_eq!(repair(&image).first(), Some(&code));
            let hand = Hand::on(&image.path());
            let after: Vec<_> = paths().iter().map(|path| hand.find(path)).collect();
            assert_eq!(after, before, "{}: the table at {place}", base.name);
        }
    }
}

/// A table that overlaps another is moved, and nothing of the other is lost.
#[test]
fn an_inode_table_on_another_one_gives_way() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = PLAIN.make();
    let mut hand = Hand::on(&image.path());
    let before: Vec<_> = paths().iter().map(|path| hand.find(path)).collect();
    let of_first = hand.volume.desc(GroupNo(0)).inode_table;
    hand.desc(1, |desc| desc.inode_table = of_first);
    hand.volume.write_backups().expect("writes");
    drop(hand);
    assert!(repair(&image).contains(&Code::TableConflict));
    let hand = Hand::on(&image.path());
    let after: Vec<_> = paths().iter().map(|path| hand.find(path)).collect();
    assert_eq!(after, before);
}

/// `sub` is lost but for a name inside itself.
#[test]
fn a_circle_of_directories_is_opened() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = EXT4.make();
    let hand = Hand::on(&image.path());
    let (sub, inner) = (hand.find("sub"), hand.find("sub/inner"));
    hand.entry("sub/inner", "deep", |entry| {
        put32(entry, 0, sub.0);
        entry[7] = 2;
    });
    hand.entry("", "sub", |entry| put32(entry, 0, 0));
    drop(hand);
    assert!(repair(&image).contains(&Code::UnconnectedDirectory));
    let hand = Hand::on(&image.path());
    assert_eq!(hand.find(&format!("lost+found/#{}/deep", inner.0)), sub);
}

/// All inodes below the marks are in use, so that the passes begin again before lost+found is made:
/// link counts are compared when the directories are connected, and not before.
#[test]
fn link_counts_wait_for_lost_and_found() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = EXT4.make();
    let hand = Hand::on(&image.path());
    let root = hand.blocks(InodeNo::ROOT)[0];
    hand.block(root, |bytes| bytes.fill(0));
    drop(hand);
    let found = fsck(device(&image.path()), &AutoPolicy::Yes, Requested::Nothing).unwrap();
    e2fsck_fn(&image.path()).expect("nothing to find");
    let is_count = |it: &&HandledFinding| it.finding.code == Code::LinkCountWrong;
    let counted: Vec<_> =
        found.iter().filter(is_count).filter_map(|it| it.finding.subject.inode).collect();
    let once: std::collections::BTreeSet<_> = counted.iter().collect();
    assert_eq!(counted.len(), once.len(), "corrected more than once: {counted:?}");
    let made = found.iter().filter(|it| it.finding.code == Code::LostFoundMissing).count();
    assert_eq!(made, 2, "the passes begin again");
}

/// The rest of inline data is empty; that its place lies past the end makes it unreadable for
/// others.
#[test]
fn an_empty_attribute_past_the_end_is_none() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = INLINE.make();
    Hand::on(&image.path()).file("tiny", |record| put16(record, FIRST_ATTRIBUTE + 2, 0xdc));
    assert!(repair(&image).contains(&Code::EaInInodeCollision));
}

#[test]
fn a_file_keeps_the_blocks_outside_of_a_part_of_its_map_on_metadata() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = EXT2.make();
    let hand = Hand::on(&image.path());
    let table = hand.volume.desc(GroupNo(1)).inode_table;
    let before = hand.blocks(hand.find("long"));
    hand.file("long", |record| put32(record, 0x28 + 4 * 14, table.0 as u32));
    drop(hand);
    assert!(repair(&image).contains(&Code::MapOnMetadata));
    let hand = Hand::on(&image.path());
    assert_eq!(hand.blocks(hand.find("long")), before);
}

/// A lost flag together with others, on files, directories and links: the magic number gives the
/// kind of the map.
#[test]
fn a_map_of_extents_without_its_flag_is_read_as_one() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let healthy = EXT4.make();
    for (path, flags) in [("long", 0x80), ("dir", 0x1000), ("slow", 0x10), ("slow", 0)] {
        let image = copied(&healthy.path()).expect("a copy");
        let hand = Hand::on(&image.path());
        let number = hand.find(path);
        let before: Vec<_> = paths().iter().map(|path| hand.find(path)).collect();
        let blocks = hand.blocks(number);
        hand.file(path, |record| put32(record, 0x20, flags));
        drop(hand);
        let done = repair(&image);
        assert!(done.contains(&Code::ExtentsFlagMissing), "{path}, {flags:#x}: {done:?}");
        let hand = Hand::on(&image.path());
        let after: Vec<_> = paths().iter().map(|path| hand.find(path)).collect();
        assert_eq!((after, hand.blocks(number)), (before, blocks), "{path}, {flags:#x}");
    }
}

/// A machine whose clock starts in 1970 deletes files at times that are below the number of inodes.
#[test]
fn times_of_deletion_by_a_clock_that_had_just_started_are_no_orphans() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = PLAIN.make();
    let mut hand = Hand::on(&image.path());
    hand.inode(FREE, |record| {
        put16(record, 0, 0o100_644);
        put32(record, 0x14, 600);
    });
    drop(hand);
    let scan_now = || scan(&image.path(), Requested::Nothing).expect("it can be looked at");
    assert_eq!(scan_now(), [Code::OrphanListLeftover]);
    hand = Hand::on(&image.path());
    hand.superblock(|raw| raw.s_mkfs_time.set(500));
    drop(hand);
    assert_eq!(scan_now(), []);
    e2fsck_fn(&image.path()).expect("nothing to find");
}

/// Reserved inodes are in orphan lists no more than others, and keep what they have otherwise.
#[test]
fn places_in_an_orphan_list_are_taken_from_reserved_inodes_too() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let healthy = EXT4.make();
    let reserved = (1..=10).map(InodeNo).filter(|number| *number != InodeNo::ROOT);
    for number in reserved {
        let image = copied(&healthy.path()).expect("a copy");
        let hand = Hand::on(&image.path());
        hand.inode(number, |record| put32(record, 0x14, 1));
        drop(hand);
        e2fsck_fn(&image.path()).expect_err("e2fsck finds it too");
        assert_eq!(repair(&image), [Code::OrphanListLeftover], "inode {number}");
    }
}

/// The numbers of free blocks.
fn free(hand: &mut Hand, count: usize) -> Vec<u64> {
    hand.free_blocks().iter().flatten().take(count).collect()
}

/// Trees in which each node leads to the next one with all that it has: walked at every mention
/// they would never end.
#[test]
fn what_lies_below_a_node_is_walked_once() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = EXT2.make();
    let mut hand = Hand::on(&image.path());
    let data = hand.blocks(hand.find("file"))[0];
    let nodes = free(&mut hand, 3);
    for (node, below) in nodes.iter().zip(nodes[1..].iter().chain([&data])) {
        hand.block(*node, |bytes| {
            for at in (0..bytes.len()).step_by(4) {
                put32(bytes, at, *below as u32);
            }
        });
    }
    hand.file("long", |record| put32(record, 0x28 + 4 * 14, nodes[0] as u32));
    drop(hand);
    assert!(repair(&image).contains(&Code::IllegalBlock));

    let image = EXT4.make();
    let mut hand = Hand::on(&image.path());
    let nodes = free(&mut hand, 5);
    let fill = |bytes: &mut [u8], depth: u16, most: u16, below: u64| {
        let entries = if depth == 0 { 1 } else { most };
        for (at, value) in [(0, 0xf30a), (2, entries), (4, most), (6, depth)] {
            put16(bytes, at, value);
        }
        for at in 0..usize::from(entries) {
            // A logical block and a node, or an extent of one block.
            put32(bytes, 12 + 12 * at, at as u32);
            put32(bytes, 16 + 12 * at, if depth == 0 { 1 } else { below as u32 });
            put32(bytes, 20 + 12 * at, if depth == 0 { below as u32 } else { 0 });
        }
    };
    hand.file("long", |record| fill(&mut record[0x28..], 5, 4, nodes[0]));
    for (depth, node) in (0..5_u16).rev().zip(&nodes) {
        let below = nodes.get(5 - usize::from(depth)).copied().unwrap_or(nodes[4] + 1);
        hand.block(*node, |bytes| fill(bytes, depth, 84, below));
    }
    drop(hand);
    assert!(repair(&image).contains(&Code::ExtentNodeInvalid));
}

/// Thousands of blocks are missing before the last one: it moves up, and the hole stays empty.
#[test]
fn a_wide_hole_of_a_directory_is_closed() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = EXT2.make();
    let mut hand = Hand::on(&image.path());
    let before: Vec<_> = paths().iter().map(|path| hand.find(path)).collect();
    let blocks = free(&mut hand, 3);
    for (at, place) in [(0, 200), (1, 10)] {
        hand.block(blocks[at], |bytes| put32(bytes, place * 4, blocks[at + 1] as u32));
    }
    hand.block(blocks[2], |bytes| {
        let length = bytes.len() as u16;
        put16(bytes, 4, length);
    });
    hand.file("dir", |record| put32(record, 0x28 + 4 * 13, blocks[0] as u32));
    drop(hand);
    let done = repair(&image);
    assert!(done.contains(&Code::DirectoryHole), "{done:?}");
    let hand = Hand::on(&image.path());
    let after: Vec<_> = paths().iter().map(|path| hand.find(path)).collect();
    assert_eq!(after, before);
}

/// A directory that once had more subdirectories than can be counted, on a volume that lost the
/// feature for that.
#[test]
fn a_count_of_links_that_was_given_up_is_sound() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = EXT4.make();
    let mut hand = Hand::on(&image.path());
    hand.superblock(|raw| ro_compat(raw, extant_ondisk::RoCompatFeatures::DIR_NLINK, false));
    hand.file("dir", |record| put16(record, 0x1a, 1));
    drop(hand);
    assert_eq!(scan(&image.path(), Requested::Nothing).expect("it can be looked at"), []);
    e2fsck_fn(&image.path()).expect("nothing to find");
}

/// Another block lies on the descriptors, and some of what it holds could be places: without
/// checksums all come from the backup.
#[test]
fn descriptors_next_to_an_impossible_one_come_from_the_backup() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = PLAIN.make();
    let mut hand = Hand::on(&image.path());
    let before: Vec<_> = paths().iter().map(|path| hand.find(path)).collect();
    hand.desc(0, |desc| desc.inode_table.0 = 0);
    hand.desc(1, |desc| {
        desc.inode_table.0 -= 1;
        desc.block_bitmap.0 = 20;
    });
    drop(hand);
    let done = repair(&image);
    assert!(!done.contains(&Code::GroupTableMoved), "{done:?}");
    let hand = Hand::on(&image.path());
    let after: Vec<_> = paths().iter().map(|path| hand.find(path)).collect();
    assert_eq!(after, before);
}

/// The same where there is no backup: all come from where makers put the tables.
#[test]
fn locations_next_to_an_impossible_one_are_those_of_mkfs() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let options = &["-t", "ext3", "-b", "4096", "-I", "256"];
    let healthy = Base { name: "single plain", mke2fs: options, ..SINGLE }.make();
    let before: Vec<_> = {
        let hand = Hand::on(&healthy.path());
        paths().iter().map(|path| hand.find(path)).collect()
    };
    // The first words of a directory's block, and of a block of attributes.
    for words in [[300, 0x0201_000c, 46], [0xea02_0000, 1, 1]] {
        let image = copied(&healthy.path()).expect("a copy");
        Hand::on(&image.path()).block(1, |bytes| {
            bytes[..32].fill(0x2e);
            for (at, word) in words.into_iter().enumerate() {
                put32(bytes, at * 4, word);
            }
        });
        let done = repair(&image);
        assert!(done.contains(&Code::GroupTableMoved), "{done:?}");
        let hand = Hand::on(&image.path());
        let after: Vec<_> = paths().iter().map(|path| hand.find(path)).collect();
        assert_eq!(after, before, "{words:?}");
    }
}

/// No program reads a tree of that many levels; the file attached to it exists all the same.
#[test]
fn a_file_whose_tree_is_too_deep_keeps_its_blocks() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let healthy = PLAIN.make();
    let before = {
        let hand = Hand::on(&healthy.path());
        hand.blocks(hand.find("long"))
    };
    for levels in [6, 12] {
        let image = copied(&healthy.path()).expect("a copy");
        deepen(&mut Hand::on(&image.path()), "long", levels);
        assert_eq!(repair(&image).first(), Some(&Code::ExtentTreeBeyondLimit), "{levels} levels");
        let hand = Hand::on(&image.path());
        assert_eq!(hand.blocks(hand.find("long")), before, "{levels} levels");
    }
}

/// The map of a file leads nowhere; the name and the attributes are kept, as by e2fsck.
#[test]
fn a_file_whose_tree_is_of_an_impossible_depth_keeps_its_name() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    for base in [EXT4, PLAIN] {
        let healthy = base.make();
        let (before, record) = {
            let hand = Hand::on(&healthy.path());
            let before: Vec<_> = paths().iter().map(|path| hand.find(path)).collect();
            (before, hand.decoded(hand.find("file")))
        };
        for (depth, block) in [(33, None), (0x1234, None), (0x1234, Some(0xffff_fff0))] {
            let image = copied(&healthy.path()).expect("a copy");
            Hand::on(&image.path()).file("file", |record| {
                put16(record, 0x28 + 6, depth);
                if let Some(block) = block {
                    put32(record, 0x28 + 12 + 8, block);
                }
            });
            let done = repair(&image);
            assert!(done.contains(&Code::ExtentNodeInvalid), "{}: {done:?}", base.name);
            let hand = Hand::on(&image.path());
            let after: Vec<_> = paths().iter().map(|path| hand.find(path)).collect();
            assert_eq!(after, before, "{}: {depth}", base.name);
            let found = hand.decoded(hand.find("file"));
            let kept = |inode: &Inode| (inode.mode, inode.uid, inode.size, inode.mtime);
            assert_eq!(kept(&found), kept(&record), "{}: {depth}", base.name);
        }
    }
}

/// Contents of reserved inodes without a mode belong to no file.
#[test]
fn leavings_in_spare_inodes_are_no_damage() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = EXT4.make();
    let hand = Hand::on(&image.path());
    for number in [5, 6, 9, 10].map(InodeNo) {
        hand.inode(number, |record| {
            for (at, value) in [(4, 77), (0x14, 0x5000_0000), (0x20, 0x2000), (0x28, 9)] {
                put32(record, at, value);
            }
        });
    }
    drop(hand);
    assert_eq!(scan(&image.path(), Requested::Nothing).expect("it can be looked at"), []);
    e2fsck_fn(&image.path()).expect("nothing to find");
}

/// A root that leads nowhere: no program reads such a file, which is all hole.
#[test]
fn a_file_whose_tree_is_hollow_can_be_read() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = PLAIN.make();
    Hand::on(&image.path()).file("long", |record| {
        record[0x28..0x64].fill(0);
        for (at, value) in [(0, 0xf30a), (4, 4), (6, 1)] {
            put16(record, 0x28 + at, value);
        }
    });
    assert!(repair(&image).contains(&Code::ExtentTreeTooDeep));
    let hand = Hand::on(&image.path());
    assert!(hand.blocks(hand.find("long")).is_empty());
    assert_eq!(scan(&image.path(), Requested::Nothing).expect("it can be looked at"), []);
}

/// The checksum of each says which inode it is.
#[test]
fn inodes_that_changed_places_are_put_back() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = EXT4.make();
    let hand = Hand::on(&image.path());
    let (one, two) = (hand.find("file"), hand.find("other"));
    let contents = [hand.blocks(one), hand.blocks(two)];
    let (mut first, mut second) = (Vec::new(), Vec::new());
    hand.unsealed(one, |record| first = record.to_vec());
    hand.unsealed(two, |record| {
        second = record.to_vec();
        record.copy_from_slice(&first);
    });
    hand.unsealed(one, |record| record.copy_from_slice(&second));
    drop(hand);
    assert_eq!(repair(&image), [Code::InodeMisplaced, Code::InodeMisplaced]);
    let hand = Hand::on(&image.path());
    assert_eq!([hand.find("file"), hand.find("other")], [one, two]);
    assert_eq!([hand.blocks(one), hand.blocks(two)], contents);
}

/// The hash of an attribute with a value of its own covers the name, whatever its characters are.
#[test]
fn a_changed_name_of_a_value_in_an_inode_is_found() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let healthy = EA_INODE.make();
    for letter in [b'x', 0xff] {
        let image = copied(&healthy.path()).expect("a copy");
        let hand = Hand::on(&image.path());
        hand.file("valued", |record| record[FIRST_ATTRIBUTE + 16] = letter);
        drop(hand);
        assert!(repair(&image).contains(&Code::EaValueInode), "{letter:#x}");
    }
}

/// Where files lie in inodes, one without blocks is not empty for that: it keeps its place in
/// lost+found, as with e2fsck.
#[test]
fn a_file_without_a_name_in_an_inode_is_not_cleared() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = INLINE.make();
    let hand = Hand::on(&image.path());
    let tiny = hand.find("tiny");
    hand.file("tiny", |record| put32(record, 4, 0));
    hand.entry("", "tiny", |entry| put32(entry, 0, 0));
    drop(hand);
    assert!(repair(&image).contains(&Code::UnattachedInode));
    let hand = Hand::on(&image.path());
    assert_eq!(hand.find(&format!("lost+found/#{}", tiny.0)), tiny);
}
