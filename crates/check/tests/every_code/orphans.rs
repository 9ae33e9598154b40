//! Orphans that are finished on a volume with quotas: what they used is taken off the quota files.

use super::damages::Requested;
use super::hand::{EA_INODE, Hand, ORPHAN_FILE, PROJECT, device, fsck, put16, put32, scan};
use super::kept::repair;
use extant_check::pass0::{self, CheckOpenOptions, Closing};
use extant_check::{AutoPolicy, Code, Severity};
use extant_device::Device;
use extant_ondisk::{BlockNo, InodeNo};
use extant_sim::{Recorder, Sweep};
use extant_testkit::{TempImage, copied, e2fsck_fn, skip, tool};
use std::sync::Arc;

/// Where `i_projid` lies.
const PROJECT_AT: usize = 0x9c;

/// A deleted and a truncated orphan of the same user, group and project. The quota files still
/// count all that they had.
fn with_orphans() -> TempImage {
    let image = PROJECT.make();
    let path = image.path();
    let hand = Hand::on(&path);
    for name in ["file", "long", "other"] {
        hand.file(name, |record| {
            put16(record, 2, 1000);
            put16(record, 0x18, 100);
            put32(record, PROJECT_AT, 7);
        });
    }
    drop(hand);
    let e2fsck = tool("e2fsck").expect("asked for before");
    e2fsck.run(["-fy", path.to_str().expect("UTF-8")]);
    e2fsck_fn(&path).expect("the quota files are right");
    let mut hand = Hand::on(&path);
    let (deleted, truncated) = (hand.find("file"), hand.find("long"));
    hand.entry("", "file", |entry| put32(entry, 0, 0));
    hand.inode(deleted, |record| {
        put16(record, 0x1a, 0);
        put32(record, 0x14, truncated.0);
    });
    hand.inode(truncated, |record| put32(record, 4, 5000));
    hand.superblock(|raw| raw.s_last_orphan.set(deleted.0));
    image
}

#[test]
fn what_orphans_used_is_taken_off_the_quota_files() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = with_orphans();
    let skipped = copied(&image.path()).expect("a copy");

    let done =
        fsck(device(&image.path()), &AutoPolicy::Yes, Requested::Nothing).expect("it is repaired");
    let mut codes: Vec<_> = done.iter().map(|it| it.finding.code).collect();
    codes.retain(|code| {
        // The superblock's counts are old, as on a volume that was not unmounted.
        ![Code::FreeBlocksTotalWrong, Code::FreeInodesTotalWrong].contains(code)
    });
    assert_eq!(codes, [Code::OrphanCleared, Code::OrphanTruncated]);
    e2fsck_fn(&image.path()).expect("nothing to find");

    let recorder = extant_check::Recorder::new(&AutoPolicy::Preen);
    let ready = pass0::open(device(&skipped.path()), &CheckOpenOptions::default(), &recorder);
    let ready = ready.expect("it opens");
    assert!(!ready.needs_passes(), "without the passes all is right");
    ready.close(Closing::Skipped, &recorder).expect("writes");
    e2fsck_fn(&skipped.path()).expect("nothing to find");
}

/// The value of an attribute in an inode of its own is still the file's when the file was cut.
#[test]
fn an_orphan_that_is_cut_keeps_the_space_of_its_values() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = EA_INODE.make();
    let mut hand = Hand::on(&image.path());
    let truncated = hand.find("valued");
    hand.inode(truncated, |record| put32(record, 4, 0));
    hand.superblock(|raw| raw.s_last_orphan.set(truncated.0));
    drop(hand);
    let done = fsck(device(&image.path()), &AutoPolicy::Preen, Requested::Nothing)
        .expect("it is repaired");
    let codes: Vec<_> = done.iter().map(|it| it.finding.code).collect();
    let is_count = |code: &&Code| **code == Code::FreeBlocksTotalWrong;
    let counts = codes.iter().filter(is_count).count();
    assert!(codes[0] == Code::OrphanTruncated && codes.len() == 1 + counts, "{codes:?}");
    e2fsck_fn(&image.path()).expect("nothing to find");
}

/// A check that was cut off while it finished orphans is followed by one that finds all counts
/// right, or puts them right: a volume that says that it is clean gets no passes.
#[test]
fn a_cut_while_orphans_are_finished_leaves_no_wrong_count() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = with_orphans();
    let recorder = Arc::new(Recorder::new(device(&image.path())));
    at_boot(recorder.clone());
    let mut wrong = Vec::new();
    for cut in recorder.cuts(Sweep::seeded(5)) {
        let text = cut.to_string();
        let left: Arc<dyn Device> = Arc::new(cut.image);
        at_boot(left.clone());
        let found = fsck(left, &AutoPolicy::No, Requested::Nothing).expect("a look ends");
        let codes: Vec<_> = found.iter().map(|it| it.finding.code).collect();
        if codes.iter().any(|code| code.row().severity > Severity::Note) {
            wrong.push(format!("{text}: {codes:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}: {}", wrong.len(), wrong.join("\n"));
}

/// The check of a volume when a machine starts: the passes run only where they are due. A
/// yes is for torn superblocks.
fn at_boot(device: Arc<dyn Device>) {
    let recorder = extant_check::Recorder::new(&AutoPolicy::Yes);
    let ready = pass0::open(device, &CheckOpenOptions::default(), &recorder);
    let mut ready = ready.expect("it opens");
    let is_due = pass0::needs_check(&ready.store.superblock(), 0).is_some();
    let closing = if is_due || ready.needs_passes() {
        extant_check::repair(&mut ready.store, &extant_check::CheckOptions::default(), &recorder)
            .expect("repaired");
        Closing::Clean
    } else {
        Closing::Skipped
    };
    ready.close(closing, &recorder).expect("writes");
}

/// A quota file without the record of an orphan's owner is for the passes, which write all of it.
#[test]
fn a_quota_file_that_lacks_the_owner_of_an_orphan_is_repaired_by_the_passes() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = with_orphans();
    let hand = Hand::on(&image.path());
    let users: InodeNo = InodeNo(hand.volume.raw.s_usr_quota_inum.get());
    hand.block(hand.blocks(users)[1], |root| root.fill(0));
    drop(hand);
    let recorder = extant_check::Recorder::new(&AutoPolicy::Preen);
    let ready = pass0::open(device(&image.path()), &CheckOpenOptions::default(), &recorder);
    let mut ready = ready.expect("it opens");
    assert!(ready.needs_passes());
    extant_check::repair(&mut ready.store, &extant_check::CheckOptions::default(), &recorder)
        .expect("repaired");
    ready.close(Closing::Clean, &recorder).expect("writes");
    e2fsck_fn(&image.path()).expect("nothing to find");
}

/// Blocks of the orphan file that are those of other files are theirs: nothing is written to them.
#[test]
fn an_orphan_file_that_lies_on_other_files_leaves_them_their_contents() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    /// Where the location of the first extent lies.
    const FIRST_EXTENT_AT: usize = 0x28 + 12 + 8;
    let image = ORPHAN_FILE.make();
    let contents = |hand: &Hand| -> Vec<Vec<u8>> {
        let blocks = ["long", "file", "other"].map(|name| hand.blocks(hand.find(name)));
        let read = |block: u64| hand.volume.read(BlockNo(block)).expect("reads");
        blocks.iter().map(|blocks| blocks.iter().flat_map(|block| read(*block)).collect()).collect()
    };
    let hand = Hand::on(&image.path());
    let before = contents(&hand);
    let first = hand.blocks(hand.find("long"))[0];
    let number = InodeNo(hand.volume.raw.s_orphan_file_inum.get());
    let own = hand.blocks(number);
    hand.inode(number, |record| put32(record, FIRST_EXTENT_AT, first as u32));
    assert_eq!(hand.blocks(number)[0], first, "the first extent moved");
    drop(hand);
    let codes = repair(&image);
    assert!(codes.contains(&Code::OrphanBlockInvalid), "{codes:?}");
    assert!(codes.contains(&Code::MultiplyClaimed), "{codes:?}");
    let hand = Hand::on(&image.path());
    assert_eq!(contents(&hand), before);
    assert_eq!(hand.blocks(number).len(), own.len());
}

/// Copies of sound blocks of the orphan file get the checksums of their places.
#[test]
fn a_copy_of_a_block_of_the_orphan_file_is_sealed_for_its_place() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = ORPHAN_FILE.make();
    let mut hand = Hand::on(&image.path());
    let number = InodeNo(hand.volume.raw.s_orphan_file_inum.get());
    let first = hand.blocks(number)[0];
    // A file of a smaller number stays where it is, and the orphan file gives way.
    let file = hand.find("long");
    hand.inode(file, |record| put32(record, 0x28 + 12 + 8, first as u32));
    assert_eq!(hand.blocks(file)[0], first, "the first extent moved");
    hand.superblock(|_| {});
    drop(hand);
    let codes = repair(&image);
    assert!(codes.contains(&Code::MultiplyClaimed), "{codes:?}");
    assert!(!codes.contains(&Code::OrphanBlockInvalid), "{codes:?}");
    assert_eq!(scan(&image.path(), Requested::Nothing), Ok(Vec::new()));
}

#[test]
fn clusters_of_more_than_a_kibibyte_begin_with_block_0() {
    if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let args = ["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "2048"];
    let image = TempImage::by_mke2fs(64 << 20, &args).expect("mke2fs makes it");
    let mut hand = Hand::on(&image.path());
    hand.superblock(|raw| raw.s_first_data_block.set(1));
    drop(hand);
    let codes = repair(&image);
    assert!(codes.contains(&Code::SuperblockInvalid), "{codes:?}");
}
