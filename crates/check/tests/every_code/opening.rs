//! Volumes whose superblock, descriptors or journal are damaged keep no less than e2fsck keeps of a
//! copy.

use super::common::{Walker, open};
use super::hand::{
    Base, EA_INODE, EXT2, EXT4, Hand, LOGGED, LOGGED_BLOCK, LOGGED_PLAIN, MMP, NO_JOURNAL, PLAIN,
    SINGLE, device, fsck, put16, put32,
};
use super::pass0::primary;
use extant_check::pass0::{self, CheckOpenOptions, Closing, OpenError, SuperblockChoice};
use extant_check::{
    AutoPolicy, CheckOptions, Code, Decision, Finding, HandledFinding, Recorder, RepairPolicy,
    Store,
};
use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::superblock::RawSuperblock;
use extant_ondisk::{BlockNo, CompatFeatures, GroupNo, IncompatFeatures, InodeNo};
use extant_testkit::{Scratch, TempImage, copied, e2fsck_fn, e2fsck_is_silent_with, skip, tool};
use std::collections::BTreeMap;
use std::path::Path;
use zerocopy::FromBytes;

use super::damages::{FREE, Requested, compat, incompat};

/// The block that a log's first transaction holds, and what it holds.
const LOGGED_AT: BlockNo = BlockNo(LOGGED_BLOCK);
const LOGGED_BYTES: [u8; 1024] = [b'j'; 1024];

/// Block-mapped, with a journal.
const EXT2_JOURNAL: Base =
    Base { name: "ext3", mke2fs: &["-t", "ext3", "-b", "1024", "-I", "256"], ..EXT2 };

fn can_make() -> bool {
    tool("mke2fs").is_some() && tool("e2fsck").is_some()
}

/// Files of a volume with their contents.
fn tree(image: &Path) -> Vec<String> {
    let store = Store::open(open(image, false)).expect("it opens");
    Walker::tree(&store).lines().map(str::to_owned).collect()
}

/// Paths with their contents that are still there.
fn kept(before: &[String], image: &Path) -> usize {
    let after = tree(image);
    before.iter().filter(|line| after.contains(line)).count()
}

/// Contents that are still there, under whatever name.
fn contents_kept(before: &[String], image: &Path) -> usize {
    let count = |lines: &[String]| {
        lines.iter().fold(BTreeMap::new(), |mut counts: BTreeMap<String, usize>, line| {
            let contents = line.split_once('\t').expect("a path and more").1;
            *counts.entry(contents.to_owned()).or_default() += 1;
            counts
        })
    };
    let (before, after) = (count(before), count(&tree(image)));
    before.iter().map(|(line, count)| after.get(line).copied().unwrap_or(0).min(*count)).sum()
}

/// Repairs an image; e2fsck finds nothing then.
fn repair(image: &TempImage) -> Vec<HandledFinding> {
    let done =
        fsck(device(&image.path()), &AutoPolicy::Yes, Requested::Nothing).expect("it is repaired");
    e2fsck_fn(&image.path()).expect("nothing to find");
    done
}

/// The result of e2fsck on a copy.
fn repaired_by_e2fsck(image: &TempImage) -> TempImage {
    let copy = copied(&image.path()).expect("a copy");
    let e2fsck = tool("e2fsck").expect("asked for before");
    e2fsck.run(["-fy", copy.path().to_str().expect("UTF-8")]);
    copy
}

/// Repairs an image: all paths of before are there with their contents, or as many as e2fsck keeps
/// of a copy.
fn assert_kept(before: &[String], image: &TempImage, what: &str) {
    let theirs = repaired_by_e2fsck(image);
    let done = repair(image);
    let found: Vec<_> = done.iter().map(|it| it.finding.code).collect();
    let (ours, theirs) = (kept(before, &image.path()), kept(before, &theirs.path()));
    assert!(ours >= theirs && ours > 0, "{what}: {ours} paths, e2fsck {theirs}: {found:?}");
}

/// The backups are as mke2fs made them: no inode but the reserved ones in use, and all of the last
/// group unused.
fn with_old_marks(base: &Base) -> TempImage {
    let image = base.make();
    let mut hand = Hand::on(&image.path());
    let per_group = hand.volume.geometry().inodes_per_group;
    let groups = hand.volume.geometry().groups_count;
    let now: Vec<_> = (0..groups).map(|group| hand.volume.desc(GroupNo(group))).collect();
    for group in 0..groups {
        hand.volume.update_desc(GroupNo(group), |desc| {
            desc.itable_unused = if group == 0 { per_group - 11 } else { per_group };
            desc.free_inodes = desc.itable_unused;
            if group > 0 {
                desc.flags |= GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
            }
        });
    }
    hand.volume.write_backups().expect("writes");
    for (group, desc) in (0..).zip(now) {
        hand.desc(group, |stored| *stored = desc);
    }
    image
}

/// Issue 21: the kernel keeps the marks of backups as mke2fs wrote them.
#[test]
fn marks_of_never_used_inodes_in_backups_are_not_believed() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let healthy = with_old_marks(&EXT4);
    let before = tree(&healthy.path());
    for has_root in [true, false] {
        let image = copied(&healthy.path()).expect("a copy");
        let hand = Hand::on(&image.path());
        if !has_root {
            hand.unsealed(InodeNo::ROOT, |record| record.fill(0));
        }
        for block in 1..4 {
            hand.block(block, |bytes| bytes.fill(0));
        }
        drop(hand);
        let theirs = repaired_by_e2fsck(&image);
        repair(&image);
        let ours = contents_kept(&before, &image.path());
        let theirs = contents_kept(&before, &theirs.path());
        assert!(ours >= theirs && ours > 300, "root {has_root}: {ours} kept, e2fsck {theirs}");
    }
}

/// Changes the primary superblock alone.
fn spoil(image: &TempImage, change: impl FnOnce(&mut RawSuperblock)) {
    primary(&Hand::on(&image.path()), change);
}

type Spoil = fn(&mut RawSuperblock);
type Act = fn(&mut Hand);

/// A superblock that makes sense by itself and does not fit the descriptors: a backup that fits is
/// taken before tables are moved.
#[test]
fn a_superblock_that_its_descriptors_contradict_gives_way_to_a_backup() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let changes: [(&str, Spoil); 6] = [
        ("reserved_gdt_blocks", |raw| {
            raw.s_reserved_gdt_blocks.set(raw.s_reserved_gdt_blocks.get() + 8);
        }),
        ("a smaller inode size", |raw| raw.s_inode_size.set(128)),
        ("a larger inode size", |raw| raw.s_inode_size.set(512)),
        ("sparse_super", |raw| {
            raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() & !1);
        }),
        ("flex_bg", |raw| incompat(raw, IncompatFeatures::FLEX_BG, false)),
        ("meta_bg", |raw| incompat(raw, IncompatFeatures::META_BG, true)),
    ];
    for base in [&PLAIN, &EXT4] {
        let healthy = base.make();
        let before = tree(&healthy.path());
        for (what, change) in changes {
            let image = copied(&healthy.path()).expect("a copy");
            spoil(&image, change);
            assert_kept(&before, &image, &format!("{}, {what}", base.name));
            assert_eq!(kept(&before, &image.path()), before.len(), "{}, {what}", base.name);
        }
    }
}

/// One group has no backup: the first table gives the number of blocks in front of it.
#[test]
fn reserved_blocks_end_where_the_first_table_begins() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = SINGLE.make();
    let before = tree(&image.path());
    spoil(&image, |raw| raw.s_reserved_gdt_blocks.set(raw.s_reserved_gdt_blocks.get() + 200));
    assert_kept(&before, &image, "200 blocks more");
    assert_eq!(kept(&before, &image.path()), before.len());
}

/// The exponent is refused by readers of volumes without flex_bg too.
#[test]
fn a_number_of_groups_in_a_flex_group_that_cannot_be_is_put_right() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    for base in [&EXT2, &PLAIN] {
        let image = base.make();
        let before = tree(&image.path());
        spoil(&image, |raw| raw.s_log_groups_per_flex = 0xff);
        assert_kept(&before, &image, base.name);
    }
}

/// A user who says yes to all.
struct User;

impl RepairPolicy for User {
    fn decide(&self, _: &Finding) -> Decision {
        Decision::Fix
    }

    fn may_repair(&self) -> bool {
        true
    }
}

/// No program writes a feature word with every bit: the primary superblock is broken, and a backup
/// is not.
#[test]
fn a_word_of_all_features_was_written_by_no_program() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let changes: [Spoil; 3] = [
        |raw| raw.s_feature_compat.set(u32::MAX),
        |raw| raw.s_feature_incompat.set(u32::MAX),
        |raw| raw.s_feature_ro_compat.set(u32::MAX),
    ];
    let healthy = EXT4.make();
    let before = tree(&healthy.path());
    for change in changes {
        let image = copied(&healthy.path()).expect("a copy");
        spoil(&image, change);
        fsck(device(&image.path()), &AutoPolicy::Yes, Requested::Nothing).expect("it is repaired");
        e2fsck_fn(&image.path()).expect("nothing to find");
        assert_eq!(kept(&before, &image.path()), before.len());
    }
}

/// A newer kernel sets its bits in the primary superblock alone, so that a backup without them
/// proves nothing.
#[test]
fn unknown_features_that_no_backup_has_are_left_out_where_a_user_says_so() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let changes: [Spoil; 3] = [
        |raw| raw.s_feature_incompat.set(raw.s_feature_incompat.get() | 1 << 30),
        |raw| raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() | 1 << 30),
        |raw| raw.s_feature_compat.set(raw.s_feature_compat.get() | 1 << 30),
    ];
    let healthy = EXT4.make();
    let before = tree(&healthy.path());
    for change in changes {
        let image = copied(&healthy.path()).expect("a copy");
        spoil(&image, change);
        let spoiled = std::fs::read(image.path()).expect("it is there");
        for answers in [AutoPolicy::No, AutoPolicy::Preen, AutoPolicy::Yes] {
            let recorder = Recorder::new(&answers);
            let error = pass0::open(device(&image.path()), &CheckOpenOptions::default(), &recorder);
            let error = error.map(|_| ()).expect_err("that is not known");
            assert!(matches!(error, OpenError::Unsupported(_)), "{answers:?}: {error}");
            assert!(std::fs::read(image.path()).expect("it is there") == spoiled, "it is written");
        }
        let requested = copied(&image.path()).expect("a copy");
        fsck(device(&requested.path()), &User, Requested::Nothing).expect("it is repaired");
        // The option -b names the backup.
        let wanted = SuperblockChoice { superblock: Some(8193), ..SuperblockChoice::default() };
        let options = CheckOpenOptions { superblock: wanted, ..CheckOpenOptions::default() };
        let recorder = Recorder::new(&AutoPolicy::Yes);
        let mut ready = pass0::open(device(&image.path()), &options, &recorder).expect("opens");
        let report = extant_check::repair(&mut ready.store, &CheckOptions::default(), &recorder);
        assert!(!report.expect("it is repaired").errors_left);
        ready.close(Closing::Clean, &recorder).expect("it is written");
        for image in [&requested, &image] {
            e2fsck_fn(&image.path()).expect("nothing to find");
            assert_eq!(kept(&before, &image.path()), before.len());
        }
        // All copies have it: a newer program made the volume.
        let image = copied(&healthy.path()).expect("a copy");
        let mut hand = Hand::on(&image.path());
        change(&mut hand.volume.raw);
        hand.volume.write_backups().expect("writes");
        drop(hand);
        spoil(&image, change);
        fsck(device(&image.path()), &User, Requested::Nothing).expect_err("that is not known");
    }
}

/// The journal is restored where its inode lies, not where a broken descriptor says.
#[test]
fn a_journal_is_not_restored_through_a_broken_descriptor() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    for base in [&EXT4, &PLAIN] {
        let image = base.make();
        let before = tree(&image.path());
        let mut hand = Hand::on(&image.path());
        let block = hand.blocks(hand.find("long"))[8];
        hand.desc(0, |desc| {
            desc.block_bitmap = BlockNo(2_000_000_000);
            desc.inode_table = BlockNo(block);
        });
        drop(hand);
        assert_kept(&before, &image, base.name);
        assert_eq!(kept(&before, &image.path()), before.len(), "{}", base.name);
    }
}

/// Fields of the superblock of a log that waits, which its place or its first block know better.
#[test]
fn a_log_with_one_wrong_field_in_its_superblock_is_replayed() {
    if !can_make() || tool("debugfs").is_none() {
        skip!("e2fsprogs is not installed");
    }
    // The first block of the log, twice; the magic number, the type, the block size, the block
    // count, unknown features, and the checksum feature of the first version together with the
    // third.
    let fields = [0x16, 0x17, 0x00, 0x07, 0x0e, 0x10, 0x28, 0xfc, 0x27];
    for base in [&LOGGED, &LOGGED_PLAIN] {
        let healthy = base.make();
        for at in fields {
            // Without a checksum, unknown features are another program's.
            if at >= 0x27 && base.name == LOGGED_PLAIN.name {
                continue;
            }
            let image = copied(&healthy.path()).expect("a copy");
            let hand = Hand::on(&image.path());
            let first = hand.blocks(InodeNo::JOURNAL)[0];
            hand.block(first, |bytes| bytes[at] ^= 0x41);
            drop(hand);
            let done = repair(&image);
            let said = format!("{}, {at:#x}: {done:?}", base.name);
            assert!(done.iter().any(|it| it.finding.code == Code::JournalRecovered), "{said}");
            assert_eq!(
                Hand::on(&image.path()).volume.read(LOGGED_AT).expect("reads"),
                LOGGED_BYTES
            );
        }
    }
}

/// The inode of the journal is lost, or another one is named: the superblock's copy of the map
/// leads to the log, or the reserved inode does.
#[test]
fn a_log_is_replayed_whatever_became_of_its_inode() {
    if !can_make() || tool("debugfs").is_none() {
        skip!("e2fsprogs is not installed");
    }
    let moved: Act = |hand| {
        let record = hand.volume.read_inode(InodeNo::JOURNAL).expect("reads");
        hand.inode(FREE, |bytes| bytes.copy_from_slice(&record));
        hand.inode(InodeNo::JOURNAL, |bytes| bytes.fill(0));
        hand.superblock(|raw| raw.s_journal_inum.set(FREE.0));
    };
    let damages: [(&str, Act); 4] = [
        ("another number", |hand| hand.superblock(|raw| raw.s_journal_inum.set(FREE.0))),
        ("no number", |hand| hand.superblock(|raw| raw.s_journal_inum.set(0))),
        ("the reserved inode", |hand| hand.unsealed(InodeNo::JOURNAL, |bytes| bytes.fill(0x5a))),
        ("the table", |_| {}),
    ];
    let healthy = LOGGED.make();
    let before = tree(&healthy.path());
    for (what, damage) in damages {
        let image = copied(&healthy.path()).expect("a copy");
        let mut hand = Hand::on(&image.path());
        damage(&mut hand);
        if what == "the table" {
            moved(&mut hand);
            hand.unsealed(FREE, |bytes| bytes.fill(0x5a));
        }
        drop(hand);
        for answers in [AutoPolicy::Preen, AutoPolicy::Yes] {
            let copy = copied(&image.path()).expect("a copy");
            let done = fsck(device(&copy.path()), &answers, Requested::Nothing);
            let done = done.unwrap_or_else(|error| panic!("{what}, {answers:?}: {error}"));
            let said = format!("{what}: {done:?}");
            assert!(done.iter().any(|it| it.finding.code == Code::JournalRecovered), "{said}");
            e2fsck_fn(&copy.path()).unwrap_or_else(|said| panic!("{what}: {said}"));
            let hand = Hand::on(&copy.path());
            assert_eq!(hand.volume.read(LOGGED_AT).expect("reads"), LOGGED_BYTES, "{what}");
            drop(hand);
            assert_eq!(kept(&before, &copy.path()), before.len(), "{what}");
        }
    }
}

/// The log holds the descriptors as they were, so that nothing is left to decide: preening
/// continues, as with e2fsck.
#[test]
fn a_log_is_replayed_before_descriptors_are_checked() {
    let Some(e2fsck) = tool("e2fsck").filter(|_| can_make() && tool("debugfs").is_some()) else {
        skip!("e2fsprogs is not installed");
    };
    let healthy = EXT4.make();
    let scratch = Scratch::new();
    let (block, script) = (scratch.join("block"), scratch.join("script"));
    let table = Hand::on(&healthy.path()).volume.read(BlockNo(2)).expect("reads");
    std::fs::write(&block, table).expect("scratch space takes files");
    std::fs::write(&script, format!("jo -c\njw -b 2 {}\njc\n", block.display())).expect("the same");
    let debugfs = tool("debugfs").expect("asked for before");
    debugfs.run(["-w".as_ref(), "-f".as_ref(), script.as_os_str(), healthy.path().as_os_str()]);
    let damages: [Act; 2] = [
        |hand| hand.desc(0, |desc| desc.inode_bitmap.0 = 0xfff_ffff),
        |hand| hand.desc(1, |desc| desc.block_bitmap.0 += 1),
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let image = copied(&healthy.path()).expect("a copy");
        damage(&mut Hand::on(&image.path()));
        let theirs = copied(&image.path()).expect("a copy");
        let done = e2fsck.command().arg("-fp").arg(theirs.path()).output().expect("it starts");
        assert_eq!(done.status.code(), Some(0), "{number}: {done:?}");
        let found = fsck(device(&image.path()), &AutoPolicy::Preen, Requested::Nothing);
        let found = found.unwrap_or_else(|error| panic!("{number}: {error}"));
        let codes: Vec<Code> = found.iter().map(|it| it.finding.code).collect();
        assert_eq!(codes, [Code::JournalRecovered], "{number}");
        e2fsck_fn(&image.path()).unwrap_or_else(|said| panic!("{number}: {said}"));
    }
}

/// The kernel keeps the counts of the groups; the superblock's follow when orphans are finished,
/// with the passes or without.
#[test]
fn counts_of_the_superblock_are_right_when_orphans_are_finished() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = EXT4.make();
    let mut hand = Hand::on(&image.path());
    let right = hand.volume.raw.s_free_inodes_count.get();
    let file = hand.find("file");
    hand.entry("", "file", |entry| put32(entry, 0, 0));
    hand.inode(file, |record| put16(record, 0x1a, 0));
    let count = hand.volume.geometry().inodes_count;
    hand.superblock(|raw| {
        raw.s_last_orphan.set(file.0);
        raw.s_free_inodes_count.set(count);
    });
    drop(hand);
    let recorder = Recorder::new(&AutoPolicy::Preen);
    let ready = pass0::open(device(&image.path()), &CheckOpenOptions::default(), &recorder);
    let ready = ready.expect("it opens");
    assert!(!ready.needs_passes());
    ready.close(Closing::Skipped, &recorder).expect("writes");
    assert_eq!(Hand::on(&image.path()).volume.raw.s_free_inodes_count.get(), right + 1);
    e2fsck_fn(&image.path()).expect("nothing to find");
}

/// A journal on a device of its own, whose own superblock or the log's fails its checksum.
#[test]
fn checksums_of_a_journal_device_are_put_right() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let options = ["-b", "1024", "-O", "journal_dev,metadata_csum"];
    let journal = TempImage::by_mke2fs(8 << 20, &options).expect("it is made");
    let at = |offset: u64, count: usize| {
        let mut bytes = vec![0; count];
        device(&journal.path()).read_at(offset, &mut bytes).expect("reads");
        bytes
    };
    let image = NO_JOURNAL.make();
    let uuid: [u8; 16] = at(1024 + 0x68, 16).try_into().expect("16 bytes");
    Hand::on(&image.path()).superblock(|raw| {
        compat(raw, CompatFeatures::HAS_JOURNAL, true);
        incompat(raw, IncompatFeatures::RECOVER, true);
        raw.s_journal_uuid = uuid;
    });
    let before = tree(&image.path());
    // The last byte of the checksum, and a name in the superblock.
    for place in [1024 + 0x3ff, 1024 + 0x78] {
        let copy = copied(&image.path()).expect("a copy");
        let byte = at(place, 1)[0] ^ 0x55;
        device(&journal.path()).write_at(place, &[byte]).expect("writes");
        let options = CheckOpenOptions {
            journal: Some(device(&journal.path())),
            ..CheckOpenOptions::default()
        };
        let recorder = Recorder::new(&AutoPolicy::Preen);
        let ready = pass0::open(device(&copy.path()), &options, &recorder);
        let ready = ready.unwrap_or_else(|error| panic!("{place:#x}: {error}"));
        let codes: Vec<_> = recorder.findings().iter().map(|it| it.finding.code).collect();
        assert!(codes.contains(&Code::JournalSuperblockCorrupt), "{place:#x}: {codes:?}");
        assert!(codes.contains(&Code::JournalRecovered), "{place:#x}: {codes:?}");
        ready.close(Closing::Skipped, &recorder).expect("writes");
        e2fsck_is_silent_with(&copy.path(), Some(&journal.path())).expect("nothing to find");
        assert_eq!(kept(&before, &copy.path()), before.len());
    }
}

/// A file whose map leads to the resize inode's own block gets a copy: descriptors grow there.
#[test]
fn a_file_on_the_block_of_the_resize_inode_gets_a_copy() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = EXT2.make();
    let before = tree(&image.path());
    let hand = Hand::on(&image.path());
    let double = hand.decoded(InodeNo(7)).i_block[4 * 13..4 * 14].to_vec();
    hand.file("long", |record| record[0x28..0x2c].copy_from_slice(&double));
    drop(hand);
    let done = repair(&image);
    assert!(done.iter().any(|it| it.finding.code == Code::MultiplyClaimed), "{done:?}");
    assert_eq!(kept(&before, &image.path()), before.len() - 1);
}

/// Sizes that are not those of the log; the superblock's copy of the map knows, or the log does.
/// The copy is right afterwards.
#[test]
fn the_size_of_the_journals_inode_is_that_of_the_log() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let healthy = EXT4.make();
    let right = Hand::on(&healthy.path()).decoded(InodeNo::JOURNAL).size as u32;
    for (size, has_copy) in [(right + 133, true), (right + 133, false), (right - 500, false)] {
        let image = copied(&healthy.path()).expect("a copy");
        let mut hand = Hand::on(&image.path());
        hand.inode(InodeNo::JOURNAL, |record| put32(record, 4, size));
        hand.superblock(|raw| raw.s_jnl_backup_type = u8::from(has_copy));
        drop(hand);
        repair(&image);
        let hand = Hand::on(&image.path());
        assert_eq!(hand.decoded(InodeNo::JOURNAL).size as u32, right, "{size}, {has_copy}");
        let raw = &hand.volume.raw;
        assert_eq!((raw.s_jnl_backup_type, raw.s_jnl_blocks[16].get()), (1, right));
    }
}

/// Blocks of the journal that pass 1 copies for it are in the superblock's copy of its map after
/// the same run.
#[test]
fn the_copy_of_the_journals_map_follows_its_blocks() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let image = EXT2_JOURNAL.make();
    let hand = Hand::on(&image.path());
    let block = hand.blocks(InodeNo::JOURNAL)[5];
    hand.file("long", |record| put32(record, 0x28, block as u32));
    drop(hand);
    repair(&image);
    let hand = Hand::on(&image.path());
    let stored = zerocopy::IntoBytes::as_bytes(&hand.volume.raw.s_jnl_blocks);
    assert_eq!(stored[..60], hand.decoded(InodeNo::JOURNAL).i_block);
}

/// Taking a backup without such a feature would clear all files that need it.
#[test]
fn features_that_a_repair_sets_are_set_in_the_backups() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    let missing = [(EXT4, IncompatFeatures::EXTENTS), (EA_INODE, IncompatFeatures::EA_INODE)];
    for (base, feature) in missing {
        let image = base.make();
        let before = tree(&image.path());
        let mut hand = Hand::on(&image.path());
        hand.superblock(|raw| incompat(raw, feature, false));
        hand.volume.write_backups().expect("writes");
        drop(hand);
        repair(&image);
        let bytes = std::fs::read(image.path()).expect("it is there");
        let features = |block: usize| {
            let (raw, _) = RawSuperblock::read_from_prefix(&bytes[block << 10..]).expect("whole");
            raw.features().incompat
        };
        assert!(features(1).contains(feature), "{}", base.name);
        assert_eq!(features(8193), features(1), "{}", base.name);
        assert_eq!(kept(&before, &image.path()), before.len(), "{}", base.name);
    }
}

/// A block without the magic number of MMP is a file's, or holds the boot sector.
#[test]
fn a_wrong_number_of_the_mmp_block_costs_no_other_block() {
    if !can_make() {
        skip!("mke2fs and e2fsck are not installed");
    }
    // A bit of the features that was not set: the number is 0.
    let image = SINGLE.make();
    Hand::on(&image.path()).block(0, |bytes| bytes[..1024].fill(b'b'));
    spoil(&image, |raw| incompat(raw, IncompatFeatures::MMP, true));
    repair(&image);
    let bytes = std::fs::read(image.path()).expect("it is there");
    assert_eq!(bytes[..1024], [b'b'; 1024]);

    let image = MMP.make();
    let before = tree(&image.path());
    for block in [|hand: &Hand| hand.blocks(hand.find("long"))[3], |_: &Hand| 1, |_: &Hand| 2] {
        let image = copied(&image.path()).expect("a copy");
        let block = block(&Hand::on(&image.path()));
        spoil(&image, |raw| raw.s_mmp_block.set(block));
        repair(&image);
        assert_eq!(kept(&before, &image.path()), before.len(), "block {block}");
    }
}
