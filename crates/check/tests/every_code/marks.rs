//! High-water marks that are stale: inodes in use lie beyond them. And marks that are right: what
//! lies there is not this volume's.

use super::cuts::Tree;
use super::damages::{EXTENT, Requested};
use super::hand::{Base, EXT4, Hand, MARKS, device, fsck, put16, put32, scan};
use extant_check::{AutoPolicy, Code};
use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::{GroupNo, InodeNo};
use extant_testkit::{TempImage, e2fsck_fn, skip, tool};

/// Inodes of the volume that come before the first file: the reserved ones and lost+found.
const BEFORE_FILES: u32 = 11;

/// One directory with files.
const ONE_DIRECTORY: Base = Base {
    name: "one directory",
    grow: |root| {
        std::fs::create_dir(root.join("dir")).expect("scratch space takes directories");
        for number in 0..20 {
            let path = root.join(format!("dir/{number}"));
            std::fs::write(path, [number + 1; 2000]).expect("scratch space takes files");
        }
    },
    ..EXT4
};

fn can_make() -> bool {
    tool("mke2fs").is_some() && tool("e2fsck").is_some()
}

/// Sets the first group's mark so that no inode beyond the first `used` was ever in use.
fn lower_mark(hand: &mut Hand, used: u32) {
    let unused = hand.volume.geometry().inodes_per_group - used;
    hand.desc(0, |desc| (desc.itable_unused, desc.free_inodes) = (unused, unused));
}

/// Repairs an image; e2fsck and a second run find nothing then. Returns the repaired codes.
fn repair(image: &TempImage) -> Vec<Code> {
    let done =
        fsck(device(&image.path()), &AutoPolicy::Yes, Requested::Nothing).expect("it is repaired");
    e2fsck_fn(&image.path()).expect("nothing to find");
    assert_eq!(scan(&image.path(), Requested::Nothing).expect("it can be looked at"), []);
    done.iter().map(|it| it.finding.code).collect()
}

fn tree(image: &TempImage) -> Tree {
    Tree::of(device(&image.path()))
}

#[test]
fn files_beyond_a_stale_mark_are_found_when_the_name_that_leads_there_is_lost() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = ONE_DIRECTORY.make();
    let before = tree(&image);
    let mut hand = Hand::on(&image.path());
    hand.unsealed(hand.find("dir"), |record| record.fill(0));
    lower_mark(&mut hand, BEFORE_FILES);
    drop(hand);
    let done = repair(&image);
    assert!(done.contains(&Code::EntryPastHighWater), "{done:?}");
    assert!(before.contents.is_subset(&tree(&image).contents), "{done:?}");
}

/// The directory has lost its name too: the bitmap says that there is something.
#[test]
fn files_beyond_a_stale_mark_are_found_by_the_bitmap() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = ONE_DIRECTORY.make();
    let before = tree(&image);
    let mut hand = Hand::on(&image.path());
    hand.entry("", "dir", |entry| put32(entry, 0, 0));
    lower_mark(&mut hand, BEFORE_FILES);
    drop(hand);
    let done = repair(&image);
    assert!(done.contains(&Code::HighWaterWrong), "{done:?}");
    assert!(before.contents.is_subset(&tree(&image).contents), "{done:?}");
}

/// A record of the root is broken, and all names after it lead beyond the mark.
#[test]
fn names_after_a_broken_record_may_lead_beyond_a_stale_mark() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    for base in [EXT4, MARKS] {
        let image = base.make();
        let before = tree(&image);
        let mut hand = Hand::on(&image.path());
        hand.entry("", "file", |entry| put16(entry, 4, 3));
        lower_mark(&mut hand, BEFORE_FILES);
        drop(hand);
        let done = repair(&image);
        assert!(done.contains(&Code::EntryPastHighWater), "{}: {done:?}", base.name);
        assert!(before.names.is_subset(&tree(&image).names), "{}: {done:?}", base.name);
    }
}

/// A hole of lost+found is filled before all inodes in use are known: not by a block of one that is
/// not.
#[test]
fn blocks_of_files_beyond_a_stale_mark_are_not_taken() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let options = &["-t", "ext2", "-b", "1024", "-I", "256", "-O", "uninit_bg"];
    let image = Base { name: "marks of pointers", mke2fs: options, ..EXT4 }.make();
    let before = tree(&image);
    let mut hand = Hand::on(&image.path());
    let free = hand.free_blocks();
    let own = hand.blocks(hand.find("lost+found"));
    // All blocks but the first are used, so that the next one without a known owner is a file's.
    hand.file("lost+found", |record| {
        record.copy_within(0x2c..0x28 + 4 * 11, 0x28);
        put32(record, 0x28 + 4 * 10, 0);
    });
    lower_mark(&mut hand, BEFORE_FILES);
    drop(hand);
    let done = repair(&image);
    assert!(done.contains(&Code::DirectoryBlockMissing), "{done:?}");
    assert!(!done.contains(&Code::MultiplyClaimed), "{done:?}");
    let hand = Hand::on(&image.path());
    for block in hand.blocks(hand.find("lost+found")) {
        assert!(own.contains(&block) || free.contains(block), "block {block} was in use");
    }
    drop(hand);
    let after = tree(&image);
    let lost: Vec<_> = before.names.difference(&after.names).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

/// The device had another file system before, and its inode tables were not cleared: records of
/// that one beyond the mark, and the last of this one after them.
#[test]
fn records_of_an_earlier_file_system_are_not_believed() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    const STALE: std::ops::Range<u32> = 600..610;
    const LAST: InodeNo = InodeNo(700);
    for base in [EXT4, MARKS] {
        let image = base.make();
        let before = tree(&image);
        let mut hand = Hand::on(&image.path());
        hand.desc(0, |desc| desc.flags.remove(GroupFlags::INODE_ZEROED));
        let long = hand.volume.read_inode(hand.find("long")).expect("reads");
        for number in STALE.map(InodeNo) {
            // The map of another file, or one that lies on an inode table; made in 1998.
            hand.unsealed(number, |record| {
                record.copy_from_slice(&long);
                for at in [8, 12, 16] {
                    put32(record, at, 900_000_000);
                }
                if number.0 % 2 == 0 {
                    let table = hand.volume.desc(GroupNo(1)).inode_table;
                    put32(record, EXTENT + 8, table.0 as u32);
                }
            });
        }
        // A file of this volume, moved after them: its name leads there.
        let tiny = hand.volume.read_inode(hand.find("tiny")).expect("reads");
        hand.inode(LAST, |record| record.copy_from_slice(&tiny));
        hand.unsealed(hand.find("tiny"), |record| record.fill(0));
        hand.entry("", "tiny", |entry| put32(entry, 0, LAST.0));
        drop(hand);
        let done = repair(&image);
        assert!(done.contains(&Code::EntryPastHighWater), "{}: {done:?}", base.name);
        assert!(!done.contains(&Code::UnattachedInode), "{}: {done:?}", base.name);
        assert!(!done.contains(&Code::MultiplyClaimed), "{}: {done:?}", base.name);
        let after = tree(&image);
        let lost: Vec<_> = before.names.difference(&after.names).collect();
        assert!(lost.is_empty(), "{}: {lost:?}", base.name);
    }
}
